"""A forklift in a warehouse: it brings a crate to the dock; the floor is slippery."""
# mypy: ignore-errors

from goalscope.environments import Observed

FLOOR = ("C...O", ".##..", "..#..", "D...B")  # C crate, D dock, O office, B battery charger, # shelf
MOVES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}


class Warehouse:
    actions = (*MOVES, "lift")

    def __init__(self, row: int = 1, col: int = 4, slip: float = 0.2) -> None:
        self.begin, self.slip = (row, col), slip

    def initial(self):
        return {(*self.begin, False): 1.0}

    def step(self, state, action):
        row, col, loaded = state
        if self.actions[action] == "lift":
            return {(row, col, loaded or FLOOR[row][col] == "C"): 1.0}
        down, right = MOVES[self.actions[action]]
        free = 0 <= row + down < 4 and 0 <= col + right < 5 and FLOOR[row + down][col + right] != "#"
        if not free:
            return {state: 1.0}
        return {(row + down, col + right, loaded): 1.0 - self.slip, state: self.slip}

    def done(self, state):
        return self.goal(state)

    def goal(self, state):
        return state[2] and FLOOR[state[0]][state[1]] == "D"

    goal_name = "deliver the crate"

    def goals(self):
        return {"office": at("O"), "charger": at("B"), "crate lifted": lambda state: state[2]}

    def observe(self, state):
        load = "with" if state[2] else "without"
        place = f"You drive a forklift at row {state[0]}, column {state[1]}, {load} the crate."
        return Observed(text="\n".join([f"{place} Bring C to D.", *FLOOR]))

    def describe(self):
        return {"name": "warehouse", "floor": list(FLOOR), "begin": list(self.begin), "slip": self.slip}


def at(letter):
    """Return whether the forklift stands on a letter of the floor, as a function of the state."""
    return lambda state: FLOOR[state[0]][state[1]] == letter
