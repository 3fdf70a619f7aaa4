"""Random grids with things, kinds of things of another package, and grids with things as environments."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope.worlds import Grid, State, generate, initial_state, step
from goalscope.worlds.dynamics import has_ended
from goalscope.worlds.environments.environment import Observed
from goalscope.worlds.things import kinds
from tests.registered import entries_of

PLUGINS = ("tests.worlds.conveyor", "tests.worlds.toll_gate")


@contextmanager
def plugin_things() -> Iterator[None]:
    """Register the conveyor and the toll gate, and take them back."""
    before = {part: entries_of(part) for part in ("thing", "measure")}
    for module in PLUGINS:
        sys.modules.pop(module, None)
        import_module(module)
    try:
        yield
    finally:
        registry._entries |= before


def all_names() -> tuple[str, ...]:
    with plugin_things():
        return registry.names("thing")


def grid_with(name: str, seed: int, *, size: int = 7, density: float = 0.4) -> Grid:
    """Return a random grid with one or two things of a kind, and three of other kinds that may go with it."""
    rng = stream(seed, "things", name)
    grid = generate(size, density, rng=rng)
    registered = {kind.name: kind.symbol for kind in kinds()}
    free = [(int(row), int(col)) for row, col in np.argwhere(~grid.walls) if (row, col) not in (grid.start, grid.goal)]
    others = rng.choice(sorted(registered.values()), size=3).tolist()
    symbols = [registered[name]] * int(rng.integers(1, 3)) + others
    cells = rng.permutation(len(free))[: len(symbols)].tolist()
    things = tuple((free[cell], symbol) for cell, symbol in zip(cells, symbols, strict=False))
    rest = [cell for cell in free if cell not in dict(things)]
    keyed = seed % 3 == 0 and len(rest) > 1
    return grid.at(things=things, key=rest[0] if keyed else None, door=rest[-1] if keyed else None)


class GridEnvironment:
    """A grid as an environment, which asks for one step at a time."""

    actions = ("UP", "DOWN", "LEFT", "RIGHT")

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def initial(self) -> Mapping[State, float]:
        return {initial_state(self.grid): 1.0}

    def step(self, state: State, action: int) -> Mapping[State, float]:
        return {step(self.grid, state, action): 1.0}

    def done(self, state: State) -> bool:
        return has_ended(self.grid, state)

    def goal(self, state: State) -> bool:
        return state.position == self.grid.goal

    def observe(self, state: State) -> Observed:
        return Observed(text=str(state))

    def describe(self) -> Mapping[str, Any]:
        return {"grid": str(self.grid)}
