"""Environments in files: a finite decision process as plain arrays, for other tools and back (docs/environments.md)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_shape
from goalscope._ground.folder import NamedFile
from goalscope._ground.ids import canonical_json
from goalscope.worlds.environments.environment import Observed, environment_kind, goal_name_of
from goalscope.worlds.environments.world import Believed
from goalscope.worlds.planning import TabularMDP
from goalscope.worlds.planning.process_file import (
    LARGEST_NPZ,
    Arrays,
    check_field,
    digest_of,
    goals_in,
    naming,
    process_of,
    read_arrays,
    rewards_of,
    single,
    state_count,
)
from goalscope.worlds.planning.reached import possible_steps

MOST_STATES: Final = 2_000_000
"""Maximum number of states of an environment in a file."""


@environment_kind("table")
class StoredEnvironment:
    """An environment from a file of arrays (`.npz` or JSON); its states are the numbers of the states in the file.

    Without ``goals`` in the file, the goal is reached where the highest reward leads: in the states whose decisions pay
    it if rewards belong to states, otherwise in the next states of the transitions that pay it.

    Args:
        file: the path of the file.

    Attributes:
        actions: names of the actions.
        discount: the discount in the file, 1 without one.

    Raises:
        ValueError: a field is missing, unknown or of the wrong shape, rows do not sum to 1, or names repeat.
        OSError: the file cannot be read.
    """

    def __init__(self, file: str) -> None:
        with naming(Path(file)):
            self._read(read_arrays(Path(file)), Path(file).stem)

    def _read(self, arrays: Arrays, stem: str) -> None:
        if (count := state_count(arrays)) > MOST_STATES:
            raise ValueError(f"an environment in a file must have at most {MOST_STATES} states, got {count}")
        base = process_of(arrays, np.zeros(count), 1)
        self._start, self._transitions = base.start, base.transitions
        self._offered, self._done = base.offered, arrays.get("done", np.zeros(count, dtype=bool))
        names = arrays.get("actions", np.empty(()))
        self.actions = tuple(names.tolist() if names.ndim else (f"action {number}" for number in range(base.actions)))
        self._states = _texts(arrays, "states", [str(number) for number in range(count)])
        self._observations = _texts(arrays, "observations", [f"You are in state {name}." for name in self._states])
        check_shape("done", self._done, "S", {"S": count})
        self._rewards = rewards_of(arrays, base)
        if self._rewards is not None:
            self.utility = self._utility  # environments without rewards have no such method
        self._goals = goals_in(arrays, count) or {"goal": self._rewarded(arrays, base)}
        self.discount = single("discount", arrays["discount"]) if "discount" in arrays else 1.0
        self.goal_name = str(arrays.get("goal_name", ""))
        name = str(arrays["name"]) if "name" in arrays else stem
        description = str(arrays.get("description", ""))
        self._described = {"name": name, "description": description, "digest": digest_of(arrays)}

    def _rewarded(self, arrays: Arrays, base: TabularMDP) -> npt.NDArray[np.bool_]:
        """Return ``[S]`` where the highest reward leads."""
        state, action, following = possible_steps(base)
        rewards = np.zeros(len(state)) if self._rewards is None else self._rewards(state, action, following)
        highest = rewards == rewards.max()
        if highest.all():
            raise ValueError(
                "a file must have goals [G, S] with goal_names, or rewards of which some are the highest, got neither: "
                "add goals, e.g. goals=[[False, True]], goal_names=['home']"
            )
        by_state = arrays["rewards"].ndim == 1 and "possible" not in arrays
        goal = np.zeros(len(self._states), dtype=bool)
        goal[(state if by_state else following)[highest]] = True
        return goal

    def initial(self) -> dict[int, float]:
        """Return the probabilities of the first state."""
        return {int(state): float(self._start[state]) for state in np.flatnonzero(self._start)}

    def step(self, state: int, action: int) -> dict[int, float]:
        """Return the probabilities of the next state."""
        table = self._transitions
        if not isinstance(table, np.ndarray):
            row = state * len(self.actions) + action
            part = slice(table.indptr[row], table.indptr[row + 1])
            outcomes = zip(table.indices[part].tolist(), table.data[part].tolist(), strict=True)
            return {following: chance for following, chance in outcomes if chance > 0}
        if table.ndim == 2:
            return {int(table[state, action]): 1.0}
        return {
            int(following): float(table[state, action, following]) for following in np.flatnonzero(table[state, action])
        }

    def done(self, state: int) -> bool:
        """Return whether the episode is over."""
        return bool(self._done[state])

    def goal(self, state: int) -> bool:
        """Return whether the first goal of the file is reached."""
        return bool(next(iter(self._goals.values()))[state])

    def goals(self) -> dict[str, Callable[[int], bool]]:
        """Return all goals of the file by name, without the first one if its name is "goal"."""
        return {name: partial(_holds, reached) for name, reached in self._goals.items() if name != "goal"}

    def admissible(self, state: int) -> list[int]:
        """Return the actions that are offered."""
        offered = range(len(self.actions)) if self._offered is None else np.flatnonzero(self._offered[state]).tolist()
        return list(offered)

    def _utility(self, state: int, action: int, following: int) -> float:
        """Return the reward of a step."""
        return float(self._rewards(np.array(state), np.array(action), np.array(following)))

    def observe(self, state: int) -> Observed:
        """Return the observation text of a state."""
        return Observed(text=self._observations[state])

    def name_state(self, state: int) -> str:
        """Return the text of a state in the file."""
        return self._states[state]

    def describe(self) -> dict[str, Any]:
        """Return name, description and the digest of the arrays, which does not depend on the path of the file."""
        return self._described


def _texts(arrays: Arrays, field: str, otherwise: list[str]) -> list[str]:
    if field not in arrays:
        return otherwise
    check_shape(field, arrays[field], "S", {"S": len(otherwise)})
    return list(arrays[field].tolist())


def _holds(reached: npt.NDArray[np.bool_], state: int) -> bool:
    return bool(reached[state])


def save_table(believed: Believed, file: str | Path) -> Path:
    """Write an environment to an `.npz` file, which `StoredEnvironment` and `goalscope meg` read, and return its path.

    Every state and action has transitions that sum to 1: after the end, and for actions that are not offered, the state
    stays.

    Raises:
        ValueError: not all states were enumerated, or the file could not be read back.
        OSError: the file cannot be written.
    """
    path = Path(file)
    if path.suffix != ".npz":
        raise ValueError(f"a table is written as .npz, got {path.name}: name it {path.stem}.npz")
    table, environment = believed.table, believed.environment
    if table.bound is not None:
        raise ValueError("a table must have all states, but the search was limited by depth: leave depth out")
    described, name_state = environment.describe(), getattr(environment, "name_state", repr)
    if not isinstance(environment, StoredEnvironment):
        name = str(described.get("name", type(environment).__name__))
        described = {"name": name, "description": canonical_json(dict(described))}
    state, action = np.divmod(np.flatnonzero(np.diff(table.rows) == 0), len(table.actions))
    possible = np.concatenate([table.triples, np.stack([state, action, state], axis=1)])
    order = np.lexsort(possible.T[::-1])
    arrays: dict[str, Any] = {
        "name": described["name"],
        "description": described["description"],
        "states": [name_state(value) for value in table.states],
        "observations": [environment.observe(value).text for value in table.states],
        "actions": table.actions,
        "start": table.start,
        "possible": possible[order],
        "chance": np.concatenate([table.chance, np.ones(len(state))])[order],
        "goal_names": tuple(table.goals),
        "goals": np.stack([*table.goals.values()]),
        "done": table.done,
        "offered": table.offered,
    }
    if table.reward is not None:
        arrays["rewards"] = np.concatenate([table.reward, np.zeros(len(state))])[order]
    if goal_name := goal_name_of(environment):
        arrays["goal_name"] = goal_name
    if (discount := getattr(environment, "discount", 1.0)) != 1:
        arrays["discount"] = float(discount)
    arrays = {name: check_field(name, np.asarray(value)) for name, value in arrays.items()}
    if (size := sum(array.nbytes for array in arrays.values())) > LARGEST_NPZ:
        raise ValueError(f"the arrays of a table must take at most {LARGEST_NPZ} bytes, got {size}: shorten the texts")
    with NamedFile(path).writing() as stream:
        np.savez_compressed(stream, **arrays)
    return path
