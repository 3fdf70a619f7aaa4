"""Small random worlds: grids with walls, keys and doors, and processes with chance."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.planning.process import Process
from goalscope.worlds.world import Session, View, World


def room(
    rng: np.random.Generator, height: int = 3, width: int = 3, *, key: bool = False, door: bool = False
) -> GridWorld:
    """Return a small grid with walls, whose objects lie anywhere; some places cannot be come to."""
    walls = rng.random((height, width)) < 0.2
    cells = [divmod(int(cell), width) for cell in rng.permutation(height * width)]
    names = ["start", "goal", *(["key"] if key else []), *(["door"] if door else [])]
    grid = Grid(walls=np.zeros_like(walls)).at(**dict(zip(names, cells, strict=False)))
    for cell in cells[: len(names)]:
        walls[cell] = False
    return GridWorld(grid=grid.at(walls=walls))


@dataclass(frozen=True, kw_only=True)
class Lottery(World):
    """A process of random transitions with the goals ``far`` and ``near``; nothing of it is run."""

    kind: ClassVar[str] = "lottery"
    view: ClassVar[type[View]] = View
    known: Process

    def begin(self, rng: np.random.Generator) -> Session:
        raise NotImplementedError

    def to_plain(self) -> dict[str, Any]:
        return {"start": self.known.start.tolist(), "sums": self.known.transitions.toarray().tolist()}

    @classmethod
    def from_plain(cls, plain: Any, **options: Any) -> Any:
        raise NotImplementedError

    def process(self) -> Process:
        return self.known


def lottery(rng: np.random.Generator, states: int = 4, actions: int = 3) -> Lottery:
    """Return a process with chance, an absorbing last state, and an action that is not offered somewhere."""
    table = rng.dirichlet(np.ones(states), size=states * actions)
    table[-actions:] = np.eye(states)[-1]
    offered = rng.random((states, actions)) < 0.7
    offered[np.arange(states), rng.integers(actions, size=states)] = True
    goals = {"far": np.eye(states)[-1], "near": np.eye(states)[1]}
    process = Process(
        transitions=csr_array(table),
        start=rng.dirichlet(np.ones(states)),
        number=None,
        goals=goals,
        offered=offered,
    )
    return Lottery(known=process)
