"""A field with two gems and an exit, and a measure of it alone."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.environments import Observed, environment_kind
from goalscope.measures import StepTable, measure
from goalscope.worlds import Drawing

SIDE = 5
MOVES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
State = tuple[int, int]


@environment_kind("gem-field")
class GemField:
    """An empty field: the agent begins in the middle, the exit and both gems lie elsewhere."""

    actions = tuple(MOVES)

    def __init__(self, seed: int = 0) -> None:
        cells = [(row, col) for row in range(SIDE) for col in range(SIDE) if (row, col) != (2, 2)]
        drawn = np.random.default_rng(seed).choice(len(cells), size=3, replace=False)
        self.exit, self.gem_a, self.gem_b = (cells[int(index)] for index in drawn)

    def initial(self) -> Mapping[State, float]:
        return {(2, 2): 1.0}

    def step(self, state: State, action: int) -> Mapping[State, float]:
        down, right = MOVES[self.actions[action]]
        to = state[0] + down, state[1] + right
        return {to if 0 <= to[0] < SIDE and 0 <= to[1] < SIDE else state: 1.0}

    def done(self, state: State) -> bool:
        return self.goal(state)

    def goal(self, state: State) -> bool:
        return state == self.exit

    def goals(self) -> Mapping[str, Callable[[State], bool]]:
        return {"gem a": lambda state: state == self.gem_a, "gem b": lambda state: state == self.gem_b}

    def observe(self, state: State) -> Observed:
        return Observed(text=f"You are at {state}. Go to the exit at {self.exit}. Gems: {self.gem_a}, {self.gem_b}.")

    def drawing(self, state: State) -> Drawing:
        labels = ((*self.exit, "exit"), (*self.gem_a, "gem a"), (*self.gem_b, "gem b"))
        return Drawing(rows=("_" * SIDE,) * SIDE, agent=state, labels=labels)

    def describe(self) -> Mapping[str, Any]:
        return {"name": "gem-field", "exit": list(self.exit), "gems": [list(self.gem_a), list(self.gem_b)]}


@measure("edge of the field", unit="share", needs="environment gem-field", source="goalscope-compass")
def edge_of_the_field(table: StepTable) -> npt.NDArray[np.float64]:
    """Share of an episode's states that lie at the edge of the field."""
    share = np.zeros(len(table.length))
    for episode in range(len(table.length)):
        states = table.path(episode)
        share[episode] = np.mean([not 0 < row < SIDE - 1 or not 0 < col < SIDE - 1 for row, col in states])
    return share
