"""A small world of a user's own, with chance and with a sub-goal on the way to its goal: a forklift that slips."""

from typing import Any

from goalscope._ground.rng import stream
from goalscope.environments import Observed, environment_kind

ROWS, COLUMNS = 3, 4
SLIP = 0.15
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""The change of row and column by action; the fifth action lifts the crate."""

Position = tuple[int, int]
Load = tuple[Position, bool]
"""Where the forklift stands, and whether it holds the crate."""


@environment_kind("slipping forklift")
class Forklift:
    """A forklift on a floor of 3 rows and 4 columns with a crate, a dock and a charger.

    An episode ends when the forklift stands at the dock with the crate. Each move fails with probability `SLIP`, and so
    does each attempt to lift the crate; the forklift then stays where it is.

    Args:
        seed: draws where the forklift begins, and where the crate, the dock and the charger are.
    """

    actions = ("up", "down", "left", "right", "lift")

    def __init__(self, seed: int) -> None:
        cells = stream(seed, "slipping forklift").permutation(ROWS * COLUMNS)[:4].tolist()
        self.seed = seed
        self.start, self.crate, self.dock, self.charger = (divmod(int(cell), COLUMNS) for cell in cells)

    def initial(self) -> dict[Load, float]:
        return {(self.start, False): 1.0}

    def step(self, state: Load, action: int) -> dict[Load, float]:
        (row, column), held = state
        if action == len(MOVES):
            meant = (row, column), held or (row, column) == self.crate
        else:
            down, right = MOVES[action]
            place = min(max(row + down, 0), ROWS - 1), min(max(column + right, 0), COLUMNS - 1)
            meant = place, held
        return {state: 1.0} if meant == state else {meant: 1 - SLIP, state: SLIP}

    def done(self, state: Load) -> bool:
        return self.goal(state)

    def goal(self, state: Load) -> bool:
        return state == (self.dock, True)

    def goals(self) -> dict[str, Any]:
        return {
            "crate held": lambda state: state[1],
            "dock": lambda state: state[0] == self.dock,
            "dock with crate": self.goal,
            "charger": lambda state: state[0] == self.charger,
        }

    def observe(self, state: Load) -> Observed:
        return Observed(text=f"You stand at {state[0]} {'with' if state[1] else 'without'} the crate.")

    def describe(self) -> dict[str, Any]:
        return {"name": "slipping forklift", "seed": self.seed}
