"""What a run still has to do: the episodes of a study that its directory does not hold, laid out as they are run.

A study of a million episodes is a few numbers. Its specifications are made when their turn comes, and of what is stored
the ids alone are kept, as bytes beside one another.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from goalscope.agents.agent import Agent
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.runs.study_shard import StudyShard
from goalscope.worlds.world import World

Item = tuple[EpisodeSpec, World, Agent]

_PAGE = 4096


class RunPlan:
    """The episodes of a study, or of one of its shards, that a run directory does not hold yet, in their order.

    Args:
        study: what is to be run.
        agents: its agents, ready to act.
        shard: the part of the study, None for all of it.
        store: the run directory as it is when the run begins.
        effort: of an agent, about how long it takes for a step.

    Attributes:
        total: number of episodes that the study, or its shard, has.
        reused: how many of them are stored.
        work: the most steps of the others, each times the effort of its agent.
    """

    def __init__(
        self,
        study: Study,
        agents: Sequence[Agent],
        shard: StudyShard | None,
        store: Store,
        effort: Callable[[Agent], float],
    ) -> None:
        self._study, self._agents, self._shard = study, agents, shard
        known, parts = _stored_ids(store), list[npt.NDArray[np.bool_]]()
        self.work = 0.0
        specified = self._specified()
        while page := list(islice(specified, _PAGE)):
            parts.append(_among(known, (spec.id for spec, _, _ in page)) if len(known) else np.zeros(len(page), bool))
            left = (item for item, there in zip(page, parts[-1].tolist(), strict=True) if not there)
            self.work += sum(spec.horizon * effort(agent) for spec, _, agent in left)
        self._there = np.concatenate(parts) if parts else np.zeros(0, dtype=bool)
        self.total, self.reused = len(self._there), int(self._there.sum())

    def __iter__(self) -> Iterator[Item]:
        for index, item in enumerate(self._specified()):
            if not self._there[index]:
                yield item

    def _specified(self) -> Iterator[Item]:
        every = self._study.specs(self._agents)
        return every if self._shard is None else self._shard.part(every, self._study.trajectories)


def _stored_ids(store: Store) -> npt.NDArray[np.bytes_]:
    """Return the ids of all stored episodes that a specification can have, sorted."""
    kept, width = list[npt.NDArray[np.bytes_]](), len(_EXAMPLE.id)
    with store.snapshot() as database:
        # Of the table: in a damaged file the index of ids may name others, which no reader of episodes would find.
        found = database.execute("SELECT id FROM episodes NOT INDEXED")
        while page := found.fetchmany(_PAGE):
            listed = [one for (one,) in page if isinstance(one, str) and len(one) == width and one.isascii()]
            kept.append(np.array(listed, dtype=f"S{width}"))
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=f"S{width}")


def _among(known: npt.NDArray[np.bytes_], ids: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return whether each of some ids is among those known, which are sorted."""
    asked = np.array(list(ids), dtype=known.dtype)
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    found: npt.NDArray[np.bool_] = known[place] == asked
    return found


_EXAMPLE = EpisodeSpec(world_id="", agent_id="", trajectory=0, seed=0, horizon=1)  # all ids are as long as its own
