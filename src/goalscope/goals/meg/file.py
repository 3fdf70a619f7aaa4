"""MEG of the agent and decision process in a user's file (schema: docs/meg.md)."""

import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_finite, check_shape, freeze
from goalscope._ground.folder import NamedFile
from goalscope._ground.progress import TALLY, aloud
from goalscope._ground.untrusted import UntrustedError, decode_object
from goalscope.goals.meg.known import KnownMEG, chance_note, meg_known
from goalscope.goals.meg.unknown import UnknownMEG, meg_unknown
from goalscope.worlds.planning import TabularMDP

Array = npt.NDArray[np.float64]
Arrays = dict[str, npt.NDArray[Any]]

LARGEST_JSON = 64 * 2**20
"""Maximum size of a JSON file in bytes; larger problems belong in an `.npz` file."""
LARGEST_NPZ = 2**30
"""Maximum unpacked size of the arrays of an `.npz` file in bytes."""
LONGEST = 1_000_000
"""Maximum number of decisions of a process in a file."""

_FIELDS = (
    *("horizon", "start", "utility", "terminal_utility", "transitions", "next", "possible", "chance", "actions"),
    *("policy", "returns", "mean_return", "trajectory_states", "trajectory_actions"),
)
_UNREADABLE = (  # raised by numpy and zipfile for damaged, encrypted, too large or foreign members
    ValueError,
    EOFError,
    KeyError,
    OSError,
    MemoryError,
    OverflowError,
    RuntimeError,
    zlib.error,
    zipfile.BadZipFile,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MEGFile:
    """The content of a file: a process and one description of an agent.

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
    """MEG of the agent that a file describes.

    Attributes:
        mdp: the process.
        known: MEG for the utility in the file.
        unknown: MEG for the best utility over states; None if not requested.
    """

    mdp: TabularMDP
    known: KnownMEG
    unknown: UnknownMEG | None = None

    @property
    def chance(self) -> str:
        """The warning if returns cannot be distinguished from chance, so share and beta are omitted; otherwise ""."""
        return chance_note(self.known.signed_low, self.known.signed_high) if self.known.n else ""

    def to_plain(self) -> dict[str, Any]:
        """Return all figures as plain values for JSON: infinities as text, undefined numbers as None."""
        mdp, known_figures = self.mdp, {name: _plain(getattr(self.known, name)) for name in _KNOWN}
        if self.chance:
            known_figures |= {
                "share": None,
                "beta": None,
                "note": "; ".join(filter(None, (self.known.note, self.chance))),
            }
        process = {"states": mdp.states, "actions": mdp.actions, "horizon": mdp.horizon}
        plain: dict[str, Any] = {"process": process, "known": known_figures}
        if self.unknown is not None:
            plain["unknown"] = {name: _plain(getattr(self.unknown, name)) for name in _UNKNOWN}
            plain["unknown"]["utility"] = self.unknown.utility.tolist()
            if self.unknown.terminal_utility is not None:
                plain["unknown"]["terminal_utility"] = self.unknown.terminal_utility.tolist()
        return plain


def meg_of_file(path: str | Path, *, unknown: bool = False, confidence: float = 0.95) -> FileMEG:
    """Return the MEG of the agent that a `.json` or `.npz` file describes; `goalscope meg FILE` prints it.

    Args:
        path: the file.
        unknown: also search for the best utility over states (and over the final state if the file has a
            ``terminal_utility``); needs a policy.
        confidence: nominal coverage of the interval of MEG from returns.

    Raises:
        ValueError: the file is invalid (see `read_meg_file`), or ``unknown`` was requested without a policy.
        OSError: the file cannot be read.
    """
    described = read_meg_file(Path(path))
    mdp, policy = described.mdp, described.policy
    if unknown and policy is None:
        raise ValueError(
            "--unknown needs a file with a policy, got returns: with few episodes the supremum over utilities "
            "diverges. Leave --unknown out, or add the policy"
        )
    measured = meg_known(mdp, policy, described.returns, mean_return=described.mean_return, confidence=confidence)
    if not unknown or policy is None:
        return FileMEG(mdp=mdp, known=measured)
    if mdp.horizon * mdp.states > _SLOW:
        with aloud():
            TALLY.tell(f"searching for the best utility over {mdp.horizon:,} decisions; this takes minutes")
    # Where the file pays for the last state, the best utility may do so, too: it would otherwise explain less.
    free = meg_unknown(mdp, policy, terminal=mdp.terminal_utility is not None)
    return FileMEG(mdp=mdp, known=measured, unknown=free)


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold: infinities as text, NaN (undefined) as null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def read_meg_file(path: Path) -> MEGFile:
    """Read a process and an agent from a JSON or `.npz` file.

    Raises:
        ValueError: a field is missing, unknown, of the wrong shape, or does not sum to 1; the message names the field.
        OSError: the file cannot be read.
    """
    arrays = _read_arrays(path)
    mdp = _process(arrays)
    *figures, states, actions = ("policy", "returns", "mean_return", "trajectory_states", "trajectory_actions")
    descriptions = {name: {name} for name in figures} | {f"{states} and {actions}": {states, actions}}
    sources = [name for name, fields in descriptions.items() if fields & set(arrays)]
    if len(sources) != 1:
        raise ValueError(
            f"the file must describe the agent by exactly one of {'; '.join(descriptions)}, got "
            f"{'; '.join(sources) or 'none'}"
        )
    if "policy" in arrays:
        return MEGFile(mdp=mdp, policy=freeze(arrays["policy"]))
    if "mean_return" in arrays:
        return MEGFile(mdp=mdp, mean_return=_single("mean_return", arrays["mean_return"]))
    returns = arrays["returns"] if "returns" in arrays else _returns(mdp, arrays)
    check_shape("returns", returns, "N")
    return MEGFile(mdp=mdp, returns=freeze(returns.astype(np.float64)))


def _process(arrays: Arrays) -> TabularMDP:
    _require(arrays, ("horizon", "start", "utility"), "a decision process must have horizon, start and utility")
    horizon = _integer("horizon", arrays["horizon"])
    if not 1 <= horizon <= LONGEST:
        raise ValueError(f"horizon must be a number of decisions from 1 to {LONGEST}, got {horizon:.12g}")
    utility = arrays["utility"]
    if not 1 <= utility.ndim <= 3 or 0 in utility.shape:
        raise ValueError(f"utility must have shape [S], [S, A] or [S, A, S], got {list(utility.shape)}")
    settings: dict[str, Any] = {
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
    superfluous = [name for name in ("chance", "actions") if name in arrays and forms != ["possible"]]
    if superfluous:
        raise ValueError(f"{' and '.join(superfluous)} must go with possible, got {forms[0]}: leave them out")
    if forms == ["next"]:
        return TabularMDP.deterministic(_integers("next", arrays["next"]), **settings)
    if forms == ["transitions"]:
        probabilities = arrays["transitions"]
        check_shape("transitions", probabilities, "S A S", {"S": len(utility)})
        if probabilities.shape[1] == 0:
            raise ValueError("transitions must hold at least one action, got none")
        return TabularMDP(transitions=probabilities, **settings)
    _require(arrays, ("chance", "actions"), "possible must come with chance [N] and actions (their number)")
    actions, possible = _integer("actions", arrays["actions"]), _integers("possible", arrays["possible"])
    count = check_shape("possible", possible, "N 3")["N"]
    states = len(utility)
    if not 1 <= actions * states <= count:
        raise ValueError(
            f"every state and action needs at least one possible transition, got {count} rows for {states} states and "
            f"actions = {actions}"
        )
    return TabularMDP.sparse(possible, arrays["chance"].astype(np.float64), actions=actions, **settings)


def _start(start: npt.NDArray[Any], states: int) -> Array:
    if start.ndim:
        return start
    number = _integer("start", start)
    if not 0 <= number < states:
        raise ValueError(f"start must be a state from 0 to {states - 1} or [S] chances, got {number:.12g}")
    return np.asarray(np.eye(1, states, number)[0])


def _returns(mdp: TabularMDP, arrays: Arrays) -> Array:
    """Return the utility of each recorded episode, ``[N]``; every step is checked against the process."""
    names = ("trajectory_states", "trajectory_actions")
    _require(arrays, names, "trajectories must have trajectory_states and trajectory_actions")
    states, actions = (_integers(name, arrays[name]) for name in names)
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
    for name, array, limit in (("states", states, mdp.states), ("actions", actions, mdp.actions)):
        outside = np.argwhere((array < 0) | (array >= limit))
        if len(outside):
            index = outside[0].tolist()
            raise ValueError(
                f"trajectory_{name} must lie from 0 to {limit - 1}, got {array[tuple(index)]} at index {index}"
            )
    if states.shape[1] == n:
        if mdp.utility.ndim == 3 or mdp.terminal_utility is not None:
            raise ValueError(
                f"trajectory_states must have shape [{len(actions)}, {n + 1}] where the utility depends on the state "
                f"that follows, got {list(states.shape)}: add the state after the last decision"
            )
        states = np.concatenate([states, np.full((len(states), 1), -1)], axis=1)
    _check_possible(mdp, states, actions)
    parts = (states[:, :n], actions, states[:, 1:])
    gained = mdp.utility[parts[: mdp.utility.ndim]]
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
    flat, recorded = (before * mdp.actions + actions).reshape(-1), after.reshape(-1) >= 0
    target = np.where(recorded, after.reshape(-1), 0)
    table = mdp.transitions
    if not isinstance(table, np.ndarray):
        chance = np.asarray(table.tocsr()[flat, target]).reshape(-1)
    elif table.ndim == 2:
        chance = (table.reshape(-1)[flat] == target).astype(np.float64)
    else:
        chance = table.reshape(-1, mdp.states)[flat, target]
    bad = recorded & (chance <= 0)
    if bad.any():
        episode, step = divmod(int(bad.argmax()), actions.shape[1])
        raise ValueError(
            f"trajectories must follow the transitions, got state {states[episode, step]}, action "
            f"{actions[episode, step]}, then state {states[episode, step + 1]}, which has chance 0, in episode "
            f"{episode} at step {step}: correct the episode or the transitions"
        )


def _require(arrays: Arrays, names: Sequence[str], requirement: str) -> None:
    for name in names:
        if name not in arrays:
            raise ValueError(f"{requirement}, got no {name}")


def _single(name: str, array: npt.NDArray[Any]) -> float:
    if array.ndim:
        raise ValueError(f"{name} must be one number, got an array {list(array.shape)}")
    return float(array)


def _integer(name: str, array: npt.NDArray[Any]) -> int:
    number = _single(name, array)
    if number != int(number):
        raise ValueError(f"{name} must be a whole number, got {number}")
    return int(number)


def _integers(name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if array.dtype.kind == "i":
        return array.astype(np.int64)
    if (array != np.round(array)).any() or (np.abs(array) > 2**53).any():
        raise ValueError(f"{name} must hold whole numbers, got fractions or numbers beyond 2**53")
    return array.astype(np.int64)


def _read_arrays(path: Path) -> Arrays:
    """Return the arrays of a file, all real and finite."""
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".json":
        return _read_json(path)
    raise ValueError(
        f"a decision process must come as .json or .npz, got {path.name}: name it by its format, "
        "or give the directory of a run"
    )


def _read_npz(path: Path) -> Arrays:
    try:
        with NamedFile(path).open_file() as stream, zipfile.ZipFile(stream) as packed:
            members = packed.infolist()
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path.name} is not a valid .npz file: save it again with numpy.savez") from error
    total = sum(member.file_size for member in members)
    if total > LARGEST_NPZ:
        raise ValueError(f"the arrays of {path.name} must take at most {LARGEST_NPZ} bytes unpacked, got {total}")
    names = [member.filename.removesuffix(".npy") for member in members]
    _check_names(path, names)
    arrays: Arrays = {}
    with NamedFile(path).open_file() as stream, np.load(stream, allow_pickle=False) as file:
        for name in names:
            try:
                array = file[name]
            except _UNREADABLE as error:
                raise ValueError(
                    f"{name} must be a plain array of numbers, got one that cannot be read ({error}): save it with "
                    "numpy.savez and a numeric dtype"
                ) from error
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{name} must be a plain array of numbers, got other bytes: save it with numpy.savez")
            arrays[name] = _checked(name, array)
    return arrays


def _read_json(path: Path) -> Arrays:
    try:
        content = decode_object(NamedFile(path).load_bytes(LARGEST_JSON), strict=False)
    except UntrustedError as error:
        raise ValueError(
            f"{path.name} must be JSON in UTF-8 (larger arrays go into an .npz file), but {error}"
        ) from error
    _check_names(path, list(content))
    return {name: _checked(name, _array(name, value)) for name, value in content.items()}


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    if not isinstance(value, int | float | list) or isinstance(value, bool):
        raise ValueError(f"{name} must be a number or nested lists of numbers, got {type(value).__name__}")
    try:
        array = np.array(value)
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{name} must be a rectangular array, got lists of different lengths or depths") from error
    return array.astype(np.float64) if array.size == 0 else array


def _checked(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype} {list(array.shape)}")
    if array.dtype.kind == "f":
        check_finite(name, array)  # single precision is kept: its rounding is allowed for where sums are checked
    elif array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must hold numbers below 2**63, got {array.max()}")
    else:
        array = array.astype(np.int64)
    return array


def _check_names(path: Path, names: list[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(f"{path.name} must name each field once, got {', '.join(map(repr, repeated[:5]))} repeatedly")
    unknown = [name for name in names if name not in _FIELDS]
    if unknown:
        raise ValueError(f"fields must be among {', '.join(_FIELDS)}, got {', '.join(map(repr, unknown[:5]))}")
