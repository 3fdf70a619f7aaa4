"""Compact form of a run's episodes for the estimates of goals: a few codes and numbers, without steps and ids."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from goalscope.columns import Coded, constant, encoded, joined
from goalscope.measures.goals.returns import Returns, acted
from goalscope.measures.goals.state_blind import moves_by_episode
from goalscope.measures.table import PROVENANCE, StepTable

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GoalEpisodes:
    """Agents and conditions of E episodes.

    Attributes:
        agent: ``[E]`` the agent of each.
        tags: name -> ``[E]`` tags, None where an episode lacks one.
        acted: ``[E]`` whether any turn of each held an action.
        fogged: ``[E]`` whether the agent did not see all of the world.
        moves: ``[E, A]`` how often each action was taken, see `moves_by_episode`; no columns where nobody asks.
    """

    agent: Coded
    tags: Mapping[str, Coded]
    acted: Flags
    fogged: Flags
    moves: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.acted)

    @classmethod
    def of(cls, table: StepTable, by: Collection[str], *, moves: bool = False) -> Self:
        """Return the episodes of a table, ``moves`` if asked; tags of their origin (`PROVENANCE`) only if in ``by``."""
        fogged = np.array([world.fog_radius is not None for world in table.worlds], dtype=bool)
        return cls(
            agent=encoded(table.agent),
            tags={name: encoded(tag) for name, tag in table.tags.items() if name not in PROVENANCE or name in by},
            acted=acted(table),
            fogged=fogged[table.world],
            moves=moves_by_episode(table) if moves else np.zeros((len(table.length), 0)),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the episodes of several tables in one."""
        names = dict.fromkeys(name for part in parts for name in part.tags)
        tags = {
            name: [part.tags[name] if name in part.tags else constant(None, len(part)) for part in parts]
            for name in names
        }
        return cls(
            agent=encoded(joined([part.agent for part in parts])),
            tags={name: encoded(joined(columns)) for name, columns in tags.items()},
            acted=np.concatenate([part.acted for part in parts]),
            fogged=np.concatenate([part.fogged for part in parts]),
            moves=np.concatenate([_padded(part.moves, max(part.moves.shape[1] for part in parts)) for part in parts]),
        )


def _padded(moves: npt.NDArray[np.float64], actions: int) -> npt.NDArray[np.float64]:
    return np.pad(moves, ((0, 0), (0, actions - moves.shape[1])))


def joined_returns(parts: Sequence[Returns]) -> Returns:
    """Return the joined returns of several tables of different worlds."""
    offsets = np.cumsum([0, *(len(part.units) for part in parts)])[:-1]
    return Returns(
        units=tuple(unit for part in parts for unit in part.units),
        unit=np.concatenate([part.unit + offset for part, offset in zip(parts, offsets, strict=True)]),
        complete=np.concatenate([part.complete for part in parts]),
        exact=np.concatenate([part.exact for part in parts]),
        failed=sum(part.failed for part in parts),
        values={name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values},
    )
