"""An organism as an agent of studies, such as ``organism:folder=organisms/goal-network-100-0``, or as a policy.

`OrganismPlayer` plays ``goalscope/Grid-v0``: it maps observations to moves (tables and networks need no PyTorch). What
reads an organism is imported when one is asked: every listing of agents imports this module.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from goalscope.agents.agent import Observation, agent_kind
from goalscope.agents.policies import PLANES
from goalscope.agents.scripted import Distribution, ScriptedAgent
from goalscope.worlds.grid import Grid, Position
from goalscope.worlds.gridworld import GridView

if TYPE_CHECKING:
    from goalscope.goals.hypotheses.definition import Array
    from goalscope.organisms.cards import Card


@agent_kind("organism")
@dataclass(frozen=True)
class Organism(ScriptedAgent):
    """Agent of a study that acts by the policy of an organism, a small agent trained to have a known goal.

    Args:
        folder: folder with the organism's card (its measured behaviour) and weights. The id of the agent depends on
            their content, not on their place.
    """

    kind: ClassVar[str] = "organism"
    folder: str = field()

    def describe(self) -> Mapping[str, Any]:
        """Return the description that a run stores: the kind of agent, the organism (specification of a small agent
        with a known goal) and the hash of its weights.
        """
        card, _ = _remembered(self.folder)
        return {"kind": self.kind, "version": self.version, "spec": card.spec.plain(), "weights": card.weights}

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability of each of the four moves for an observation of a grid, ``[4]``."""
        card, weights = _remembered(self.folder)
        view = observation.seen(GridView)
        if view.grid.start is None or view.grid.fog is not None:
            raise ValueError("an organism must see its own cell and the whole grid: use worlds without fog")
        return _moves(card, weights, view.grid, carrying=view.carrying_key)


class OrganismPlayer:
    """An organism (a small agent trained to have a known goal) as a policy that maps observations to moves.

    ``player.predict(observation)`` has the interface of Stable-Baselines3, so `goalscope.environments.PolicyAgent`
    accepts it.

    Args:
        folder: folder of the organism.
        seed: seed of the drawn moves; not used for deterministic predictions.

    Attributes:
        card: the card of the organism, with its measured behaviour.
    """

    def __init__(self, folder: str | Path, seed: int = 0) -> None:
        self.card, self._weights = _read(str(folder))
        self._rng = np.random.default_rng(seed)

    def probabilities(self, observation: Any) -> "Array":
        """Return the probability of each of the four moves, ``[4]``, or ``[B, 4]`` for a batch of B observations.

        Args:
            observation: planes ``[6, H, W]`` or ``[B, 6, H, W]`` of ``goalscope/Grid-v0`` (rows by columns), or a grid
                as text.

        Raises:
            ValueError: the observation has another form, or its grid has no agent.
        """
        if isinstance(observation, str):
            return self._of(Grid.parse(observation), carrying=False)
        planes = np.asarray(observation)
        if planes.ndim == 4:
            return np.stack([self.probabilities(single) for single in planes])
        if planes.ndim != 3 or len(planes) != len(PLANES):
            raise ValueError(
                f"an observation must be planes [{len(PLANES)}, H, W] or a grid as text, got an array of shape "
                f"{planes.shape}: make the environment with form='planes' or form='text'"
            )
        start, goal, key, door = (_cell(plane) for plane in planes[1:5])
        grid = Grid(walls=planes[0] > 0, start=start, goal=goal, key=key, door=door)
        return self._of(grid, carrying=bool((planes[5] > 0).any()))

    def predict(self, observation: Any, deterministic: bool = False, **_: Any) -> tuple[Any, None]:
        """Choose a move for one observation, or one for each observation of a batch.

        Args:
            observation: as for `probabilities`.
            deterministic: take the most probable move instead of drawing one.

        Returns:
            The move or moves, as numbers; and None, since the policy has no state (as in Stable-Baselines3).
        """
        chances = np.atleast_2d(self.probabilities(observation))
        drawn = (chances.cumsum(axis=1) <= self._rng.random((len(chances), 1))).sum(axis=1)
        moves = chances.argmax(axis=1) if deterministic else np.minimum(drawn, chances.shape[1] - 1)
        single = isinstance(observation, str) or np.asarray(observation).ndim == 3
        return (int(moves[0]) if single else moves), None

    def _of(self, grid: Grid, *, carrying: bool) -> "Array":
        if grid.start is None:
            raise ValueError(f"the grid that an organism is shown must contain the agent (A), got:\n{grid}")
        return _moves(self.card, self._weights, grid, carrying=carrying)


def _read(folder: str) -> "tuple[Card, dict[str, Array]]":
    from goalscope.organisms.cards import read_card, read_weights

    path = Path(folder)
    card = read_card(path)
    return card, read_weights(path, card)


_remembered = lru_cache(maxsize=256)(_read)


def _moves(card: "Card", weights: "Mapping[str, Array]", grid: Grid, *, carrying: bool) -> "Array":
    """Return the move probabilities in the state that a grid shows, ``[4]``."""
    from goalscope.organisms.learners import policy

    return np.asarray(policy(card.spec, weights, grid, np.array([grid.start]), np.array([carrying]))[0])


def _cell(plane: "Array") -> Position | None:
    positions = np.argwhere(plane > 0)
    return (int(positions[0, 0]), int(positions[0, 1])) if len(positions) else None
