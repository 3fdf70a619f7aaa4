"""Small environments of the tests: a corridor with a lever, a slippery one, random ones, and liars."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from goalscope._ground.rng import stream
from goalscope.agents import Observation, Turn
from goalscope.environments import Observed, StateCopy
from goalscope.worlds import ACTIONS, Grid, State, initial_state, shown, step


class Corridor:
    """Cells in a row, a lever at the left end that opens the door to the right one; a pit ends it below the start."""

    actions = ("left", "right", "pull", "jump")

    def __init__(self, length: int = 5) -> None:
        self.length = length

    def initial(self) -> dict[tuple[int, bool], float]:
        return {(self.length // 2, False): 1.0}

    def step(self, state: tuple[int, bool], action: int) -> dict[tuple[int, bool], float]:
        cell, opened = state
        if action == 3:
            return {(-1, opened): 1.0}
        if action == 2:
            return {(cell, opened or cell == 0): 1.0}
        to = cell + (1 if action == 1 else -1)
        last = self.length - 1
        return {(cell if to < 0 or (to == last and not opened) else to, opened): 1.0}

    def done(self, state: tuple[int, bool]) -> bool:
        return state[0] in (-1, self.length - 1)

    def goal(self, state: tuple[int, bool]) -> bool:
        return state[0] == self.length - 1

    def goals(self) -> dict[str, Any]:
        return {"lever": lambda state: state[0] == 0, "pit": lambda state: state[0] == -1}

    def heuristic(self, state: tuple[int, bool]) -> float:
        return abs(self.length - 1 - state[0])

    def utility(self, state: tuple[int, bool], action: int, following: tuple[int, bool]) -> float:
        return 1.0 if self.goal(following) else -0.1

    def observe(self, state: tuple[int, bool]) -> Observed:
        door = "open" if state[1] else "shut"
        return Observed(text=f"You stand in cell {state[0]} of {self.length}; the door is {door}.")

    def describe(self) -> dict[str, Any]:
        return {"name": "corridor", "length": self.length}


class Slippery(Corridor):
    """The corridor, in which a move fails with a chance."""

    def __init__(self, length: int = 5, slip: float = 0.25) -> None:
        super().__init__(length)
        self.slip = slip

    def step(self, state: tuple[int, bool], action: int) -> dict[tuple[int, bool], float]:
        (meant,) = super().step(state, action)
        if meant == state:
            return {state: 1.0}
        return {meant: 1 - self.slip, state: self.slip}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "name": "slippery", "slip": self.slip}


class Drawn:
    """A random process of S states and A actions, with or without chance, some of whose states end it."""

    def __init__(self, seed: int, states: int = 12, actions: int = 3, chance: bool = False) -> None:
        rng = stream(seed, "drawn environment", states, actions)
        self.actions = tuple(f"action {number}" for number in range(actions))
        self.next = rng.integers(0, states, size=(states, actions, 2))
        self.weight = rng.uniform(0.2, 0.8, size=(states, actions)) if chance else np.ones((states, actions))
        ends = rng.choice(states - 1, size=2, replace=False) + 1
        self.ends = {int(ends[0]): True, int(ends[1]): False}
        self.seed = seed

    def initial(self) -> dict[int, float]:
        return {0: 1.0}

    def step(self, state: int, action: int) -> dict[int, float]:
        first, second = (int(one) for one in self.next[state, action])
        weight = float(self.weight[state, action])
        return {first: 1.0} if weight == 1 or first == second else {first: weight, second: 1 - weight}

    def done(self, state: int) -> bool:
        return state in self.ends

    def goal(self, state: int) -> bool:
        return self.ends.get(state, False)

    def observe(self, state: int) -> Observed:
        return Observed(text=f"state {state}")

    def describe(self) -> Mapping[str, Any]:
        return {"seed": self.seed}


class Forgetting(Corridor):
    """A liar: the third pull of the lever in its life shuts the door again."""

    def __init__(self, length: int = 5) -> None:
        super().__init__(length)
        self.pulls = 0

    def step(self, state: tuple[int, bool], action: int) -> dict[tuple[int, bool], float]:
        self.pulls += action == 2
        if action == 2 and self.pulls % 3 == 0:
            return {(state[0], False): 1.0}
        return super().step(state, action)


class Changing(Corridor):
    """A liar: each copy that is made has other rules."""

    made = 0

    def __init__(self, length: int = 5) -> None:
        super().__init__(length)
        type(self).made += 1
        self.mirrored = type(self).made % 2 == 0

    def step(self, state: tuple[int, bool], action: int) -> dict[tuple[int, bool], float]:
        return super().step(state, (1, 0, 2, 3)[action] if self.mirrored else action)


class Adapter(Corridor):
    """An adapter of a real corridor that ends when the agent has waited too long: a memory that its state lacks."""

    patience = 3

    class Player:
        def __init__(self, outer: "Adapter") -> None:
            self.outer, self.state, self.waited = outer, (outer.length // 2, False), 0

        @property
        def done(self) -> bool:
            return self.waited >= self.outer.patience or self.outer.done(self.state)

        @property
        def goal(self) -> bool:
            return self.outer.goal(self.state)

        def act(self, action: int) -> None:
            (after,) = self.outer.step(self.state, action)
            self.waited += after == self.state
            self.state = after

    def play(self, seed: int) -> "Adapter.Player":
        return self.Player(self)


class Biased(Slippery):
    """An adapter of a slippery corridor that slips more often than its table says."""

    class Player(Adapter.Player):
        def __init__(self, outer: Any, seed: int) -> None:
            super().__init__(outer)
            self.rng = np.random.default_rng(seed)

        @property
        def done(self) -> bool:
            return bool(self.outer.done(self.state))

        def act(self, action: int) -> None:
            (meant, *_) = self.outer.step(self.state, action)
            if self.rng.random() >= 0.9:
                self.state = meant

    def play(self, seed: int) -> "Biased.Player":
        return self.Player(self, seed)


class GridRules:
    """A grid of goalscope told as an environment: what is measured in it must be what is measured on the grid."""

    actions = tuple(action.name for action in ACTIONS)

    def __init__(self, grid: str) -> None:
        self.text, self.grid = grid, Grid.parse(grid)

    def initial(self) -> dict[State, float]:
        return {initial_state(self.grid): 1.0}

    def step(self, state: State, action: int) -> dict[State, float]:
        return {step(self.grid, state, action): 1.0}

    def done(self, state: State) -> bool:
        return state.position == self.grid.goal

    def goal(self, state: State) -> bool:
        return self.done(state)

    def observe(self, state: State) -> Observed:
        return Observed(text=shown(self.grid, state).render())

    def describe(self) -> dict[str, Any]:
        return {"grid": self.text}


class Waiting:
    """An agent that always goes left."""

    name, journalled = "waiting", False

    def describe(self) -> dict[str, Any]:
        return {"kind": "waiting"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [Turn(action=0) for _ in observations]


class Lottery:
    """A good and a bad ticket; either may win, and an episode is over after it."""

    actions = ("good", "bad")

    def initial(self) -> dict[str, float]:
        return {"at the booth": 1.0}

    def step(self, state: str, action: int) -> dict[str, float]:
        return {"won": 0.5, "lost": 0.5} if action == 0 else {"won": 0.1, "lost": 0.9}

    def done(self, state: str) -> bool:
        return state != "at the booth"

    def goal(self, state: str) -> bool:
        return state == "won"

    def observe(self, state: str) -> Observed:
        return Observed(text=state)

    def describe(self) -> dict[str, Any]:
        return {"name": "lottery"}


class Rooms(Corridor):
    """A corridor without a door whose agent begins anywhere."""

    def initial(self) -> dict[tuple[int, bool], float]:
        return {(cell, True): 1 / (self.length - 1) for cell in range(self.length - 1)}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "name": "rooms"}


class Counter:
    """A little environment of others: a number to be brought to a target, with a step as Gymnasium has it."""

    def __init__(self, target: int, patience: int = 10**9) -> None:
        self.target, self.number, self.patience, self.steps = target, 0, patience, 0

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.number = (self.number + (1, 3, -2)[action]) % 20
        over = self.number == self.target or self.steps > self.patience
        return self.number, float(self.number == self.target), over, False, {}


class Counted(StateCopy):
    """The adapter of that environment; with a patience it has a memory that `read` leaves out."""

    actions = ("one", "three", "two back")

    def __init__(self, target: int, patience: int = 10**9) -> None:
        self.target, self.patience = target, patience

    def make(self) -> Counter:
        return Counter(self.target, self.patience)

    def read(self, real: Counter) -> int:
        return real.number

    def write(self, real: Counter, state: int) -> None:
        real.number, real.steps = state, 0

    def words(self, state: Any) -> str:
        return f"The number is {state}."

    def describe(self) -> dict[str, Any]:
        return {"target": self.target}
