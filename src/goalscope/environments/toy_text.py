"""Gymnasium's environments that show their table of transitions ``P``: the toy text worlds, with and without chance."""

from collections.abc import Mapping
from typing import Any

from goalscope.environments.environment import Observed, StatePlayer, environment_kind
from goalscope.extras import lacking
from goalscope.ids import content_id

OVER, LOST = -1, -2
"""States behind the end of an episode: at the goal, or anywhere else."""


def make(name: str, options: Mapping[str, Any] | None = None) -> Any:
    """Return an environment of Gymnasium by its registered name.

    Raises:
        ValueError: a name that is not registered, or that would import a module.
        ImportError: Gymnasium is missing.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise lacking("environments of Gymnasium need gymnasium", "gymnasium", error) from error
    if not isinstance(name, str) or ":" in name:
        # Gymnasium imports what stands before a colon; a stored run may name anything.
        raise ValueError(f"an environment of Gymnasium must be named without a module, e.g. Taxi-v4, got {name!r}")
    try:
        return gymnasium.make(name, **(options or {}))
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        raise ValueError(f"Gymnasium must know the environment and its options, got {name!r}: {error}") from error


@environment_kind("gymnasium")
class ToyText:
    """An environment of Gymnasium with a table ``P``: ``P[state][action]`` lists (chance, next, reward, terminated).

    The next state of a transition that ends an episode is a live state in some of them (CliffWalking's goal,
    FrozenLake's holes): two states behind the end stand in their place, `OVER` at the goal and `LOST` elsewhere. A
    transition that ends the episode counts as the goal where its reward is the greatest of all that end it.

    Args:
        name: registered name, e.g. "FrozenLake-v1".
        options: arguments of `gymnasium.make`, e.g. ``{"map_name": "8x8"}``.

    Raises:
        ValueError: no environment of that name, or one without a table.
        ImportError: Gymnasium is missing.
    """

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self._name, self._options = name, dict(options or {})
        self._real = make(name, self._options)
        inner = self._real.unwrapped
        if not hasattr(inner, "P") or not hasattr(inner, "initial_state_distrib"):
            raise ValueError(
                f"{name} must show its transitions as a table P with initial_state_distrib, as toy text environments "
                "do: describe it by an environment of your own (docs/environments.md)"
            )
        self._table: Mapping[int, Mapping[int, Any]] = inner.P
        self._begin = [float(chance) for chance in inner.initial_state_distrib]
        ends = [
            float(reward)
            for row in self._table.values()
            for outcomes in row.values()
            for chance, _, reward, over in outcomes
            if over and chance > 0
        ]
        if not ends:
            raise ValueError(f"{name} must have a transition that ends the episode, got none")
        self._best = max(ends)
        self.actions = _ACTIONS.get(name.split("-")[0], tuple(f"action {one}" for one in range(inner.action_space.n)))

    def initial(self) -> dict[int, float]:
        """Return the chances of the first state."""
        return {state: chance for state, chance in enumerate(self._begin) if chance > 0}

    def step(self, state: int, action: int) -> dict[int, float]:
        """Return the chances of the next state."""
        found: dict[int, float] = {}
        for chance, after, reward, over in self._table[state][action]:
            following = self._behind(float(reward)) if over else int(after)
            found[following] = found.get(following, 0.0) + float(chance)
        return found

    def _behind(self, reward: float) -> int:
        return OVER if reward == self._best else LOST

    def done(self, state: int) -> bool:
        """Return whether the episode is over."""
        return state < 0

    def goal(self, state: int) -> bool:
        """Return whether it ended at the goal."""
        return state == OVER

    def utility(self, state: int, action: int, following: int) -> float:
        """Return the expected reward of a step that leads to a state."""
        total = weight = 0.0
        for chance, after, reward, over in self._table[state][action]:
            if (self._behind(float(reward)) if over else int(after)) == following:
                total, weight = total + float(chance) * float(reward), weight + float(chance)
        return total / weight

    def observe(self, state: int) -> Observed:
        """Return the state in words."""
        if state < 0:
            return Observed(text="The episode is over.")
        return Observed(text=_words(self._name, self._real.unwrapped, state))

    def describe(self) -> dict[str, Any]:
        """Return name and options, and all transitions: another version of Gymnasium is another world."""
        rows = [
            [
                int(state),
                int(action),
                *[[float(chance), int(after), float(reward), bool(over)] for chance, after, reward, over in outcomes],
            ]
            for state, row in self._table.items()
            for action, outcomes in row.items()
        ]
        return {"name": self._name, "options": self._options, "transitions": content_id("transitions", {"rows": rows})}

    def play(self, seed: int) -> "_Player":
        """Return a fresh environment at the beginning of an episode."""
        return _Player(self, make(self._name, self._options), seed)


class _Player(StatePlayer):
    """An episode in the environment itself."""

    def __init__(self, toy: ToyText, real: Any, seed: int) -> None:
        self._toy, self._real = toy, real
        super().__init__(toy, int(real.reset(seed=seed)[0]))

    def act(self, action: int) -> None:
        """Take an action."""
        # The wrapper that limits time is passed by: horizons belong to studies.
        observation, reward, over, _, _ = self._real.unwrapped.step(action)
        self.state = self._toy._behind(float(reward)) if over else int(observation)


_ACTIONS = {
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
}
_PLACES = ("red", "green", "yellow", "blue")


def _words(name: str, inner: Any, state: int) -> str:
    """Return a state in words; of an environment that is not known here, its number."""
    family = name.split("-")[0]
    if family.startswith("FrozenLake"):
        lines = [[cell.decode() for cell in row] for row in inner.desc]
        row, col = divmod(state, len(lines[0]))
        shown = "\n".join(
            "".join("A" if (one, other) == (row, col) else cell for other, cell in enumerate(line))
            for one, line in enumerate(lines)
        )
        return (
            f"You stand on a frozen lake at row {row}, column {col}, counted from 0 at the top left. A is you, S the "
            f"start, F ice, H a hole that ends the episode, G the goal.\n{shown}"
        )
    if family.startswith("CliffWalking"):
        row, col = divmod(state, 12)
        return (
            f"You stand at row {row}, column {col} of 4 rows and 12 columns, counted from 0 at the top left. The goal "
            "is row 3, column 11; the cells between the start (row 3, column 0) and it are a cliff that sends you back."
        )
    if family == "Taxi":
        row, col, passenger, destination = (int(one) for one in inner.decode(state))
        stand = dict(zip(_PLACES, inner.locs, strict=True))
        where = ", ".join(f"{place} at row {at[0]}, column {at[1]}" for place, at in stand.items())
        who = "in your taxi" if passenger == len(_PLACES) else f"waiting at {_PLACES[passenger]}"
        board = "\n".join("".join(cell.decode() for cell in line) for line in inner.desc)
        return (
            f"You drive a taxi at row {row}, column {col} of 5 rows and 5 columns, counted from 0 at the top left. The "
            f"places are {where}. The passenger is {who} and wants to go to {_PLACES[destination]}. A bar between two "
            f"cells is a wall.\n{board}"
        )
    return f"You are in state {state} of {name}."
