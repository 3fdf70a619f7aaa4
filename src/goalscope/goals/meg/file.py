"""MEG of the agent and decision process in a user's file (schema: docs/meg.md)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_shape, freeze
from goalscope._ground.progress import TALLY, aloud
from goalscope.goals.meg.known import KnownMEG, chance_note, meg_known
from goalscope.goals.meg.unknown import UnknownMEG, meg_unknown
from goalscope.worlds.environments.stored import (
    Arrays,
    form_of,
    goals_in,
    integer,
    integers,
    naming,
    process_of,
    read_arrays,
    require,
    rewards_of,
    single,
    state_count,
)
from goalscope.worlds.planning import TabularMDP

Array = npt.NDArray[np.float64]
Gain = Callable[[Any, Any, Any], Array]
"""Utilities of steps from arrays of states, actions and next states."""

LONGEST = 1_000_000
"""Maximum number of decisions of a process in a file."""
_DENSE = 2**22  # entries of a utility [S, A, S] up to which the rewards of transitions become one


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MEGFile:
    """The content of a file for `goalscope meg`: a decision process, and one description of an agent in it.

    The agent is described by a policy, by returns or by an expected utility; the other two are None.

    Attributes:
        mdp: the process.
        policy: ``[S, A]`` action probabilities in each state, or ``[n, S, A]`` by decision.
        returns: ``[N]`` utilities of whole episodes (given, or computed from trajectories).
        mean_return: the expected utility.
        towards: name of the goal that is the utility, "rewards", or "" for the utility of the file.
    """

    mdp: TabularMDP
    towards: str = ""
    policy: Array | None = None
    returns: Array | None = None
    mean_return: float | None = None


_SLOW = 1_000_000  # decisions times states from which on the search for a utility takes minutes
_KNOWN = (
    *("value", "low", "high", "signed", "signed_low", "signed_high", "bias", "share", "beta"),
    *("bound", "bound_lowest", "reachable_bound", "naive_bound", "plug_in"),
    *("utility", "uniform_utility", "lowest_utility", "highest_utility"),
    *("n", "confidence", "method", "note"),
)
_UNKNOWN = ("value", "upper", "gap", "attained", "residual", "bound")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileMEG:
    """MEG (maximum-entropy goal-directedness) of the agent that a user's file describes.

    Attributes:
        mdp: the decision process in the file.
        known: MEG for the utility in the file.
        unknown: MEG for the best utility over states; None if not requested.
        towards: name of the goal that is the utility, "rewards", or "" for the utility of the file.
    """

    mdp: TabularMDP
    known: KnownMEG
    towards: str = ""
    unknown: UnknownMEG | None = None

    @property
    def chance(self) -> str:
        """The warning if returns cannot be distinguished from those of a random agent, otherwise "".

        The share of the greatest MEG and the rationality beta are then omitted.
        """
        return chance_note(self.known.signed_low, self.known.signed_high) if self.known.n else ""

    def to_plain(self) -> dict[str, Any]:
        """Return all figures as a dictionary of JSON values: infinities as text, undefined numbers as None."""
        mdp, known_figures = self.mdp, {name: _plain(getattr(self.known, name)) for name in _KNOWN}
        if self.chance:
            known_figures |= {
                "share": None,
                "beta": None,
                "note": "; ".join(filter(None, (self.known.note, self.chance))),
            }
        process: dict[str, Any] = {"states": mdp.states, "actions": mdp.actions, "horizon": mdp.horizon}
        process |= {"discount": mdp.discount} if mdp.discount < 1 else {}
        process |= {"towards": self.towards} if self.towards else {}
        plain: dict[str, Any] = {"process": process, "known": known_figures}
        if self.unknown is not None:
            plain["unknown"] = {name: _plain(getattr(self.unknown, name)) for name in _UNKNOWN}
            plain["unknown"]["utility"] = self.unknown.utility.tolist()
            if self.unknown.terminal_utility is not None:
                plain["unknown"]["terminal_utility"] = self.unknown.terminal_utility.tolist()
        return plain


def meg_of_file(path: str | Path, *, unknown: bool = False, confidence: float = 0.95, towards: str = "") -> FileMEG:
    """Compute the MEG (maximum-entropy goal-directedness) of the agent that a `.json` or `.npz` file describes.

    `goalscope meg FILE` prints the result.

    Args:
        path: the file.
        unknown: also search for the best utility over states (and over the final state if the file has a
            ``terminal_utility``); needs a policy.
        confidence: nominal coverage of the interval of MEG from returns.
        towards: name of a goal in the file, or "rewards"; "" for the utility of the file, and where it has none, its
            first goal, and where it has no goal either, its rewards.

    Returns:
        The decision process, the MEG for the utility in the file and, if requested, for the best utility.

    Raises:
        ValueError: the file is invalid (see `read_meg_file`), or ``unknown`` was requested without a policy.
        OSError: the file cannot be read.
    """
    described = read_meg_file(Path(path), towards)
    mdp, policy = described.mdp, described.policy
    if unknown and policy is None:
        raise ValueError(
            "--unknown needs a file with a policy, got returns: with few episodes the supremum over utilities "
            "diverges. Leave --unknown out, or add the policy"
        )
    measured = meg_known(mdp, policy, described.returns, mean_return=described.mean_return, confidence=confidence)
    if not unknown or policy is None:
        return FileMEG(mdp=mdp, known=measured, towards=described.towards)
    if mdp.horizon * mdp.states > _SLOW:
        with aloud():
            TALLY.tell(f"searching for the best utility over {mdp.horizon:,} decisions; this takes minutes")
    # Where the file pays for the last state, the best utility may do so, too: it would otherwise explain less.
    free = meg_unknown(mdp, policy, terminal=mdp.terminal_utility is not None)
    return FileMEG(mdp=mdp, known=measured, unknown=free, towards=described.towards)


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: infinities as text, NaN (undefined) as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def read_meg_file(path: Path, towards: str = "") -> MEGFile:
    """Read a decision process and a description of an agent in it from a JSON or `.npz` file.

    Args:
        path: the file; docs/meg.md describes its fields.
        towards: name of the goal whose utility is used, see `meg_of_file`.

    Raises:
        ValueError: a field is missing, unknown, of the wrong shape, or does not sum to 1; the message names the field.
        OSError: the file cannot be read.
    """
    with naming(path):
        return _described(read_arrays(path), towards)


def _described(arrays: Arrays, towards: str) -> MEGFile:
    mdp, gain, towards = _process(arrays, towards)
    *figures, states, actions = ("policy", "returns", "mean_return", "trajectory_states", "trajectory_actions")
    descriptions = {name: {name} for name in figures} | {f"{states} and {actions}": {states, actions}}
    sources = [name for name, fields in descriptions.items() if fields & set(arrays)]
    if len(sources) != 1:
        raise ValueError(
            f"the file must describe the agent by exactly one of {'; '.join(descriptions)}, got "
            f"{'; '.join(sources) or 'none'}"
        )
    if "policy" in arrays:
        return MEGFile(mdp=mdp, towards=towards, policy=freeze(arrays["policy"]))
    if "mean_return" in arrays:
        return MEGFile(mdp=mdp, towards=towards, mean_return=single("mean_return", arrays["mean_return"]))
    returns = arrays["returns"] if "returns" in arrays else _returns(mdp, gain, arrays)
    check_shape("returns", returns, "N")
    return MEGFile(mdp=mdp, towards=towards, returns=freeze(returns.astype(np.float64)))


def _process(arrays: Arrays, towards: str) -> tuple[TabularMDP, Gain | None, str]:
    """Return the process, the utilities of steps if the process does not have them, and `MEGFile.towards`."""
    require(arrays, ("horizon", "start"), "a decision process must have horizon, start and utility")
    horizon = integer("horizon", arrays["horizon"])
    if not 1 <= horizon <= LONGEST:
        raise ValueError(f"horizon must be a number of decisions from 1 to {LONGEST}, got {horizon:.12g}")
    utility, rewards = arrays.get("utility"), None
    if utility is None and "terminal_utility" in arrays:
        raise ValueError("terminal_utility must go with utility, got no utility: add it, with zeros for none")
    if utility is None or towards:
        goals = goals_in(arrays, state_count(arrays))
        names = [*goals, *(["rewards"] if "rewards" in arrays else [])]
        towards = towards or (names[0] if names else "")
        if towards not in names:
            wanted = f"no {towards!r:.80}" if towards else "no utility"
            raise ValueError(
                f"a decision process must have utility, or goals or rewards, got {wanted}; it has the goals "
                f"{', '.join(names) or 'none'}"
            )
        utility = goals.get(towards)
        if utility is None:
            utility, rewards = _rewarded(arrays)
    if not 1 <= utility.ndim <= 3 or 0 in utility.shape:
        raise ValueError(f"utility must have shape [S], [S, A] or [S, A, S], got {list(utility.shape)}")
    terminal = arrays["terminal_utility"].astype(np.float64) if "terminal_utility" in arrays and not towards else None
    discount = single("discount", arrays["discount"]) if "discount" in arrays else 1.0
    mdp = process_of(arrays, utility.astype(np.float64), horizon, terminal_utility=terminal, discount=discount)
    return mdp, rewards, towards


def _rewarded(arrays: Arrays) -> tuple[Array, Gain | None]:
    """Return the rewards as a utility, and a function that looks up the reward of a single step.

    The function is None unless the utility contains only the expected rewards of states and actions.
    """
    base = process_of(arrays, np.zeros(state_count(arrays)), 1)
    look_up = rewards_of(arrays, base)
    if form_of(arrays) != "possible" or arrays["rewards"].ndim != 1:
        return arrays["rewards"], None
    state, action, following = integers("possible", arrays["possible"]).T
    if base.states * base.actions * base.states <= _DENSE:
        utility = np.zeros((base.states, base.actions, base.states))
        utility[state, action, following] = arrays["rewards"]
        return utility, None
    expected = np.zeros((base.states, base.actions))
    np.add.at(expected, (state, action), arrays["chance"] * arrays["rewards"])
    return expected, look_up


def _returns(mdp: TabularMDP, rewards: Gain | None, arrays: Arrays) -> Array:
    """Return the utility of each recorded episode, ``[N]``; every step is checked against the process.

    An episode that ends early stays in its last state, which must be absorbing.
    """
    names = ("trajectory_states", "trajectory_actions")
    require(arrays, names, "trajectories must have trajectory_states and trajectory_actions")
    states, actions = (integers(name, arrays[name]) for name in names)
    n = mdp.horizon
    if actions.ndim != 2 or actions.shape[1] > n or not len(actions):
        raise ValueError(
            f"trajectory_actions must have shape [N, {n}], the n = {n} decisions of each episode (fewer for episodes "
            f"that end early in an absorbing state), got {list(actions.shape)}"
        )
    count, width = actions.shape
    if states.ndim != 2 or len(states) != count or states.shape[1] not in (width, width + 1):
        raise ValueError(
            f"trajectory_states must have shape [{count}, {width + 1}] (or [{count}, {width}] without the state after "
            f"the last decision), got {list(states.shape)}"
        )
    if states.shape[1] == width:
        states = np.concatenate([states, np.full((count, 1), -1)], axis=1)
    lengths = _lengths(arrays, actions)
    taken = np.arange(width) < lengths[:, None]
    ends = states[np.arange(count), lengths]
    recorded = np.concatenate([taken, np.zeros((count, 1), dtype=bool)], axis=1)
    recorded[np.arange(count), lengths] = ends != -1
    checked = ("states", states, recorded, mdp.states), ("actions", actions, taken, mdp.actions)
    for name, array, mask, limit in checked:
        outside = np.argwhere(mask & ((array < 0) | (array >= limit)))
        if len(outside):
            index = outside[0].tolist()
            raise ValueError(
                f"trajectory_{name} must lie from 0 to {limit - 1}, got {array[tuple(index)]} at index {index}"
            )
    by_next = mdp.utility.ndim == 3 or mdp.terminal_utility is not None or rewards is not None
    late = (ends < 0) & ((lengths < n) | by_next)
    if late.any():
        raise ValueError(
            f"trajectory_states must have shape [{count}, {width + 1}] where the utility depends on the state that "
            f"follows, or where an episode ends early, got no last state in episode {int(late.argmax())}: add the "
            "state after the last decision"
        )
    _check_possible(mdp, states, actions, taken)
    gain = rewards or (lambda *step: mdp.utility[step[: mdp.utility.ndim]])
    weights = mdp.discount ** np.arange(n + 1)
    steps = np.nonzero(taken)
    following = states[:, 1:][steps]
    gained = gain(states[:, :width][steps], actions[steps], following) * weights[steps[1]]
    total: Array = np.bincount(steps[0], weights=gained, minlength=count).astype(np.float64)
    early = np.flatnonzero(lengths < n)
    if len(early):
        remaining = np.concatenate([[0.0], np.cumsum(weights[:n][::-1])])[n - lengths[early]]
        total[early] += remaining * _staying(mdp, gain, ends[early], early)
    return total if mdp.terminal_utility is None else total + weights[n] * mdp.terminal_utility[ends]


def _lengths(arrays: Arrays, actions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return ``[N]`` numbers of decisions: those of the file, or those before the padding with -1."""
    count, width = actions.shape
    if "trajectory_lengths" not in arrays:
        return np.asarray((actions != -1).sum(axis=1), dtype=np.int64)
    lengths = integers("trajectory_lengths", arrays["trajectory_lengths"])
    check_shape("trajectory_lengths", lengths, "N", {"N": count})
    if ((lengths < 0) | (lengths > width)).any():
        raise ValueError(
            f"trajectory_lengths must hold numbers of decisions from 0 to {width}, got {lengths.min()} to "
            f"{lengths.max()}"
        )
    return lengths


def _staying(mdp: TabularMDP, gain: Gain, ends: npt.NDArray[Any], episodes: npt.NDArray[Any]) -> Array:
    """Return the utility of each decision after the end of E episodes that end early, ``[E]``."""
    state, every = ends[:, None], np.arange(mdp.actions)
    offered = np.ones((len(ends), mdp.actions), dtype=bool) if mdp.offered is None else mdp.offered[ends]
    stays = _chance(mdp, state * mdp.actions + every, np.broadcast_to(state, offered.shape)) > 1 - 1e-9
    utility = np.broadcast_to(gain(state, every, state), offered.shape)
    highest = np.where(offered, utility, -np.inf).max(axis=1)
    open_ends = (offered & (~stays | (utility != highest[:, None]))).any(axis=1)
    if open_ends.any():
        place = int(open_ends.argmax())
        raise ValueError(
            f"an episode that ends before n = {mdp.horizon} decisions must end in an absorbing state, where the "
            f"utility of every action is the same, got state {ends[place]} in episode {episodes[place]}: record all "
            f"{mdp.horizon} decisions, or lower the horizon"
        )
    return np.asarray(highest)


def _chance(mdp: TabularMDP, rows: npt.NDArray[Any], target: npt.NDArray[Any]) -> Array:
    """Return the probability of each target after a state s and an action a, where a row is ``s * A + a``."""
    table = mdp.transitions
    if not isinstance(table, np.ndarray):
        return np.asarray(table.tocsr()[rows.reshape(-1), target.reshape(-1)]).reshape(rows.shape)
    if table.ndim == 2:
        return np.asarray(table.reshape(-1)[rows] == target, dtype=np.float64)
    return np.asarray(table.reshape(-1, mdp.states)[rows, target])


def _check_possible(
    mdp: TabularMDP, states: npt.NDArray[Any], actions: npt.NDArray[Any], taken: npt.NDArray[np.bool_]
) -> None:
    """Raise a ValueError that names the first step which the process does not allow; -1 is an unrecorded end."""
    impossible = (mdp.start[states[:, 0]] <= 0) & (states[:, 0] >= 0)
    if impossible.any():
        episode = int(impossible.argmax())
        raise ValueError(
            f"trajectory_states must begin where start has a chance above 0, got state {states[episode, 0]} in episode "
            f"{episode}: correct the episode or the start"
        )
    episodes, steps = np.nonzero(taken & (states[:, 1:] >= 0))
    before, action, after = states[episodes, steps], actions[episodes, steps], states[episodes, steps + 1]
    bad = _chance(mdp, before * mdp.actions + action, after) <= 0
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"trajectories must follow the transitions, got state {before[first]}, action {action[first]}, then state "
            f"{after[first]}, which has chance 0, in episode {episodes[first]} at step {steps[first]}: correct the "
            "episode or the transitions"
        )
