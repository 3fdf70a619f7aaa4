"""A decision process and an agent in it from a file of the user's own (docs/meg.md holds the schema)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape, freeze
from goalscope.meg.reading import Arrays, read_arrays
from goalscope.planning import TabularMDP

Array = npt.NDArray[np.float64]

PROCESS = ("horizon", "start", "utility", "terminal_utility", "transitions", "next", "possible", "chance", "actions")
AGENT = ("policy", "returns", "mean_return", "trajectory_states", "trajectory_actions")
LONGEST = 1_000_000
"""Most decisions of a process that is read from a file."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MEGFile:
    """What a file holds: a process and one description of an agent.

    Attributes:
        mdp: the process.
        policy: ``[S, A]`` or ``[n, S, A]``, or None.
        returns: ``[N]`` utilities of whole episodes (given, or computed from trajectories), or None.
        mean_return: an expected utility, or None.
    """

    mdp: TabularMDP
    policy: Array | None = None
    returns: Array | None = None
    mean_return: float | None = None


def read_meg_file(path: Path) -> MEGFile:
    """Read a process and an agent from a JSON or `.npz` file.

    Raises:
        ValueError: whatever is missing, unknown, of the wrong shape or no distribution; names the field.
        OSError: the file cannot be read.
    """
    arrays = read_arrays(path, (*PROCESS, *AGENT))
    mdp = _process(arrays)
    ways = {
        "policy": "policy" in arrays,
        "returns": "returns" in arrays,
        "mean_return": "mean_return" in arrays,
        "trajectory_states and trajectory_actions": "trajectory_states" in arrays or "trajectory_actions" in arrays,
    }
    found = [name for name, there in ways.items() if there]
    if len(found) != 1:
        raise ValueError(
            f"an agent must be given in exactly one way ({'; '.join(ways)}), got {'; '.join(found) or 'none'}"
        )
    if "policy" in arrays:
        return MEGFile(mdp=mdp, policy=freeze(arrays["policy"].astype(np.float64)))
    if "mean_return" in arrays:
        return MEGFile(mdp=mdp, mean_return=_single("mean_return", arrays["mean_return"]))
    if "returns" in arrays:
        check_shape("returns", arrays["returns"], "N")
        return MEGFile(mdp=mdp, returns=freeze(arrays["returns"].astype(np.float64)))
    return MEGFile(mdp=mdp, returns=freeze(_returns(mdp, arrays)))


def _process(arrays: Arrays) -> TabularMDP:
    for name in ("horizon", "start", "utility"):
        if name not in arrays:
            raise ValueError(f"a decision process must have the field {name}, got {', '.join(arrays) or 'none'}")
    horizon = _whole("horizon", arrays["horizon"])
    if not 1 <= horizon <= LONGEST:
        raise ValueError(f"horizon must be a number of decisions from 1 to {LONGEST}, got {horizon:.12g}")
    utility = arrays["utility"]
    if not 1 <= utility.ndim <= 3 or 0 in utility.shape:
        raise ValueError(f"utility must have shape [S], [S, A] or [S, A, S], got {list(utility.shape)}")
    rest: dict[str, Any] = {
        "utility": utility.astype(np.float64),
        "horizon": horizon,
        "start": _start(arrays["start"], len(utility)),
        "terminal_utility": arrays["terminal_utility"].astype(np.float64) if "terminal_utility" in arrays else None,
    }
    forms = [name for name in ("transitions", "next", "possible") if name in arrays]
    if len(forms) != 1:
        raise ValueError(
            "transitions must be given in exactly one form, transitions [S, A, S], next [S, A], or possible [N, 3] "
            f"with chance [N] and actions; got {', '.join(forms) or 'none'}"
        )
    spare = [name for name in ("chance", "actions") if name in arrays and forms != ["possible"]]
    if spare:
        raise ValueError(f"{' and '.join(spare)} must go with possible, got {forms[0]}: leave them out")
    if forms == ["next"]:
        return TabularMDP.deterministic(_whole_numbers("next", arrays["next"]), **rest)
    if forms == ["transitions"]:
        chances = arrays["transitions"]
        check_shape("transitions", chances, "S A S", {"S": len(utility)})
        if chances.shape[1] == 0:
            raise ValueError("transitions must hold at least one action, got none")
        return TabularMDP(transitions=chances.astype(np.float64), **rest)
    for name in ("chance", "actions"):
        if name not in arrays:
            raise ValueError(f"possible must come with chance [N] and actions (their number), got no {name}")
    actions, possible = _whole("actions", arrays["actions"]), _whole_numbers("possible", arrays["possible"])
    count = check_shape("possible", possible, "N 3")["N"]
    states = len(utility)
    if not 1 <= actions * states <= count:
        raise ValueError(
            f"every state and action needs at least one possible transition, got {count} rows for {states} states and "
            f"actions = {actions}"
        )
    return TabularMDP.sparse(possible, arrays["chance"].astype(np.float64), actions=actions, **rest)


def _start(start: npt.NDArray[Any], states: int) -> Array:
    if start.ndim:
        return start.astype(np.float64)
    number = _whole("start", start)
    if not 0 <= number < states:
        raise ValueError(f"start must be a state from 0 to {states - 1} or [S] chances, got {number:.12g}")
    chances = np.zeros(states)
    chances[number] = 1.0
    return chances


def _returns(mdp: TabularMDP, arrays: Arrays) -> Array:
    """Return ``[N]`` the utility of each recorded episode, every step of it checked against the process."""
    for name in ("trajectory_states", "trajectory_actions"):
        if name not in arrays:
            raise ValueError(f"trajectories must have trajectory_states and trajectory_actions, got no {name}")
    states = _whole_numbers("trajectory_states", arrays["trajectory_states"])
    actions = _whole_numbers("trajectory_actions", arrays["trajectory_actions"])
    n = mdp.horizon
    if actions.ndim != 2 or actions.shape[1] != n or not len(actions):
        raise ValueError(
            f"trajectory_actions must have shape [N, {n}], all n = {n} decisions of each episode, got "
            f"{list(actions.shape)}: continue an episode that ended early in its absorbing state"
        )
    if states.ndim != 2 or len(states) != len(actions) or states.shape[1] not in (n, n + 1):
        raise ValueError(
            f"trajectory_states must have shape [{len(actions)}, {n + 1}] (or [{len(actions)}, {n}] without the state "
            f"after the last decision), got {list(states.shape)}"
        )
    for name, given, limit in (("states", states, mdp.states), ("actions", actions, mdp.actions)):
        if ((given < 0) | (given >= limit)).any():
            where = [int(index) for index in np.argwhere((given < 0) | (given >= limit))[0]]
            raise ValueError(
                f"trajectory_{name} must lie from 0 to {limit - 1}, got {given[tuple(where)]} at index {where}"
            )
    if states.shape[1] == n:
        if mdp.utility.ndim == 3 or mdp.terminal_utility is not None:
            raise ValueError(
                f"trajectory_states must have shape [{len(actions)}, {n + 1}] where the utility depends on the state "
                f"that follows, got {list(states.shape)}: add the state after the last decision"
            )
        states = np.concatenate([states, np.full((len(states), 1), -1)], axis=1)
    _check_possible(mdp, states, actions)
    before, after = states[:, :n], states[:, 1:]
    if mdp.utility.ndim == 3:
        gained = mdp.utility[before, actions, after]
    else:
        gained = mdp.utility[before] if mdp.utility.ndim == 1 else mdp.utility[before, actions]
    total: Array = gained.sum(axis=1)
    return total if mdp.terminal_utility is None else total + mdp.terminal_utility[states[:, n]]


def _check_possible(mdp: TabularMDP, states: npt.NDArray[Any], actions: npt.NDArray[Any]) -> None:
    """Raise a ValueError that names the first step which the process does not allow; -1 is an unrecorded end."""
    impossible = mdp.start[states[:, 0]] <= 0
    if impossible.any():
        episode = int(impossible.argmax())
        raise ValueError(
            f"trajectory_states must begin where start has a chance above 0, got state {states[episode, 0]} in episode "
            f"{episode}: correct the episode or the start"
        )
    before, after = states[:, :-1], states[:, 1:]
    flat, known = (before * mdp.actions + actions).reshape(-1), after.reshape(-1) >= 0
    target = np.where(known, after.reshape(-1), 0)
    table = mdp.transitions
    if not isinstance(table, np.ndarray):
        rows, columns = flat, target
        chance = np.asarray(table.tocsr()[rows, columns]).reshape(-1)
    elif table.ndim == 2:
        chance = (table.reshape(-1)[flat] == target).astype(np.float64)
    else:
        chance = table.reshape(-1, mdp.states)[flat, target]
    bad = known & (chance <= 0)
    if bad.any():
        episode, step = divmod(int(bad.argmax()), actions.shape[1])
        raise ValueError(
            f"trajectories must follow the transitions, got state {states[episode, step]}, action "
            f"{actions[episode, step]}, then state {states[episode, step + 1]}, which has chance 0, in episode "
            f"{episode} at step {step}: correct the episode or the transitions"
        )


def _single(name: str, array: npt.NDArray[Any]) -> float:
    if array.ndim:
        raise ValueError(f"{name} must be one number, got an array {list(array.shape)}")
    return float(array)


def _whole(name: str, array: npt.NDArray[Any]) -> int:
    number = _single(name, array)
    if number != int(number):
        raise ValueError(f"{name} must be a whole number, got {number}")
    return int(number)


def _whole_numbers(name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if array.dtype.kind == "i":
        return array.astype(np.int64)
    if (array != np.round(array)).any() or (np.abs(array) > 2**53).any():
        raise ValueError(f"{name} must hold whole numbers, got fractions or numbers beyond 2**53")
    return array.astype(np.int64)
