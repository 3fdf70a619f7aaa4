"""Play organisms in ``goalscope/Grid-v0``: map observations to moves (tables and networks need no PyTorch)."""

from pathlib import Path
from typing import Any

import numpy as np

from goalscope.agents.policies import PLANES
from goalscope.goals.hypotheses.definition import Array
from goalscope.organisms.cards import read_card, read_weights
from goalscope.organisms.learners import policy
from goalscope.worlds.grid import Grid, Position


class OrganismPlayer:
    """An organism as a policy on observations.

    ``player.predict(observation)`` has the interface of Stable-Baselines3, so `goalscope.environments.PolicyAgent`
    accepts it.

    Args:
        folder: folder of the organism.
        seed: seed of the drawn moves; not used for deterministic predictions.

    Attributes:
        card: the card of the organism.
    """

    def __init__(self, folder: str | Path, seed: int = 0) -> None:
        self.card = read_card(Path(folder))
        self._weights = read_weights(Path(folder), self.card)
        self._rng = np.random.default_rng(seed)

    def probabilities(self, observation: Any) -> Array:
        """Return the move probabilities, ``[4]`` or ``[B, 4]`` for a batch.

        Args:
            observation: planes ``[6, H, W]`` or ``[B, 6, H, W]``, or a grid as text.

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
        """Return a move (drawn, or the most probable one) or a batch of moves, and None as the state."""
        chances = np.atleast_2d(self.probabilities(observation))
        drawn = (chances.cumsum(axis=1) <= self._rng.random((len(chances), 1))).sum(axis=1)
        moves = chances.argmax(axis=1) if deterministic else np.minimum(drawn, chances.shape[1] - 1)
        single = isinstance(observation, str) or np.asarray(observation).ndim == 3
        return (int(moves[0]) if single else moves), None

    def _of(self, grid: Grid, *, carrying: bool) -> Array:
        if grid.start is None:
            raise ValueError(f"the grid that an organism is shown must contain the agent (A), got:\n{grid}")
        cells = np.array([grid.start])
        return np.asarray(policy(self.card.spec, self._weights, grid, cells, np.array([carrying]))[0])


def _cell(plane: Array) -> Position | None:
    positions = np.argwhere(plane > 0)
    return (int(positions[0, 0]), int(positions[0, 1])) if len(positions) else None
