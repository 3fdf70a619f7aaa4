"""Finite decision processes in `.npz` or JSON files (schema: docs/meg.md), and environments that are read from them.

A file holds a process alone or with the agent that acts in it. It may come from a stranger: nothing is unpickled, and
the shape of each array is compared with the size of its bytes before memory is allocated.
"""

import hashlib
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.archives import open_archive
from goalscope._ground.checks import check_finite, check_shape, near_miss
from goalscope._ground.folder import NamedFile
from goalscope._ground.ids import canonical_json
from goalscope._ground.untrusted import UntrustedError, decode_object, printable
from goalscope.worlds.environments.environment import Observed, environment_kind, goal_name_of
from goalscope.worlds.environments.world import Believed
from goalscope.worlds.planning.mdp import TabularMDP, possible_steps

Array = npt.NDArray[np.float64]
Arrays = dict[str, npt.NDArray[Any]]

LARGEST_JSON = 64 * 2**20
"""Maximum size of a JSON file in bytes; larger problems belong in an `.npz` file."""
LARGEST_NPZ = 2**30
"""Maximum unpacked size of the arrays of an `.npz` file in bytes."""

TEXTS = ("states", "observations", "goal_names", "goal_name", "name", "description")
"""Fields of texts."""
TRUTHS = ("goals", "done", "offered")
"""Fields of truth values."""
WORLD = (
    *("start", "transitions", "next", "possible", "chance", "actions", "rewards", "discount"),
    *TRUTHS,
    *TEXTS,
)
"""Fields that describe the process; the digest of a process covers these fields."""
AGENT = (
    *("horizon", "utility", "terminal_utility", "policy", "returns", "mean_return"),
    *("trajectory_states", "trajectory_actions", "trajectory_lengths"),
)
"""Fields that describe an agent and what is measured."""
MOST_STATES: Final = 2_000_000
"""Maximum number of states of an environment in a file."""

_NAMED = (*TEXTS, "actions")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # all that no text needs except for line breaks
_RAGGED = ("trajectory_states", "trajectory_actions")

_MOST_DIRECTORY = 2**20  # bytes of the directory of a .npz file, which has one short entry for each array


@environment_kind("table")
class StoredEnvironment:
    """An environment from a file of arrays (`.npz` or JSON); its states are the numbers of the states in the file.

    Without ``goals`` in the file, the goal is where the highest reward is obtained: in the states whose decisions have
    this reward if rewards belong to states, otherwise in the next states of the transitions that have it.

    Args:
        file: the path of the file.

    Attributes:
        actions: names of the actions.
        discount: the discount in the file, 1 without one.

    Raises:
        ValueError: if a field is missing, unknown or of the wrong shape, rows do not sum to 1, or names repeat.
        OSError: if the file cannot be read.
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
        """Return the first states of an episode: number of the state -> probability."""
        return {int(state): float(self._start[state]) for state in np.flatnonzero(self._start)}

    def step(self, state: int, action: int) -> dict[int, float]:
        """Return the states to which an action leads: number of the next state -> probability."""
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
        """Return whether the file marks a state as one in which the episode is over."""
        return bool(self._done[state])

    def goal(self, state: int) -> bool:
        """Return whether the first goal of the file is reached in a state."""
        return bool(next(iter(self._goals.values()))[state])

    def goals(self) -> dict[str, Callable[[int], bool]]:
        """Return the goals of the file: name -> test of a state. The first one is left out if its name is "goal"."""
        return {name: partial(_holds, reached) for name, reached in self._goals.items() if name != "goal"}

    def admissible(self, state: int) -> list[int]:
        """Return the actions (their numbers) that are offered in a state."""
        offered = range(len(self.actions)) if self._offered is None else np.flatnonzero(self._offered[state]).tolist()
        return list(offered)

    def _utility(self, state: int, action: int, following: int) -> float:
        """Return the reward of a step."""
        return float(self._rewards(np.array(state), np.array(action), np.array(following)))

    def observe(self, state: int) -> Observed:
        """Return what an agent is shown in a state: its observation text in the file, by default a text with its
        name.
        """
        return Observed(text=self._observations[state])

    def name_state(self, state: int) -> str:
        """Return the name of a state in the file, or its number as text if the file has no names of states."""
        return self._states[state]

    def describe(self) -> dict[str, Any]:
        """Return the name, the description and a digest of the arrays, which do not depend on where the file lies.

        The id of the world is a hash of these values.
        """
        return self._described


def save_table(believed: Believed, file: str | Path) -> Path:
    """Write an enumerated environment to an `.npz` file, which `StoredEnvironment` and `goalscope meg` read.

    Every state and action has transitions that sum to 1: after the end of an episode, and for actions that are not
    offered, the state stays the same.

    Args:
        believed: the environment.
        file: path of the file to write, which must end in ``.npz``.

    Returns:
        The path of the file.

    Raises:
        ValueError: if not all states were enumerated, or the file could not be read back.
        OSError: if the file cannot be written.
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
    possible, chance = table.complete
    order = np.lexsort(possible.T[::-1])
    arrays: dict[str, Any] = {
        "name": described["name"],
        "description": described["description"],
        "states": [name_state(value) for value in table.states],
        "observations": [environment.observe(value).text for value in table.states],
        "actions": table.actions,
        "start": table.start,
        "possible": possible[order],
        "chance": chance[order],
        "goal_names": tuple(table.goals),
        "goals": np.stack([*table.goals.values()]),
        "done": table.done,
        "offered": table.offered,
    }
    if table.reward is not None:
        arrays["rewards"] = np.concatenate([table.reward, np.zeros(len(possible) - len(table.reward))])[order]
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


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """While this context lasts, put the name of a file before the message of each ValueError that lacks it."""
    try:
        yield
    except ValueError as error:
        if path.name in str(error):
            raise
        raise ValueError(f"{path.name}: {error}") from error


def read_arrays(path: Path) -> Arrays:
    """Read the arrays of a decision process from an `.npz` or JSON file, and return them by name of the field.

    Raises:
        ValueError: if the file is not `.npz` or JSON, is too large, or has a field that is unknown, of the wrong type,
            or with numbers that are not finite.
        OSError: if the file cannot be read.
    """
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".json":
        return _read_json(path)
    raise ValueError(
        f"a decision process is read from a .json or .npz file, got {path.name}: give such a file, or the directory of "
        "a run"
    )


def process_of(arrays: Mapping[str, Any], utility: Array, horizon: int, **settings: Any) -> TabularMDP:
    """Make a Markov decision process from the fields of a file, a utility and a number of decisions.

    Args:
        arrays: name of a field -> array, as `read_arrays` returns them.
        utility: ``[S]`` by state, ``[S, A]`` by state and action, or ``[S, A, S]`` also by next state.
        horizon: number of decisions.
        settings: further attributes of `TabularMDP`.

    Raises:
        ValueError: if a field is missing or of the wrong shape, or probabilities do not sum to 1.
    """
    require(arrays, ("start",), "a decision process must have start")
    states = len(utility)
    if "offered" in arrays:
        settings["offered"] = arrays["offered"]
    settings |= {"utility": utility, "horizon": horizon, "start": _start(arrays["start"], states)}
    form = form_of(arrays)
    if form == "next":
        mdp = TabularMDP.deterministic(integers("next", arrays["next"]), **settings)
    elif form == "transitions":
        probabilities = arrays["transitions"]
        check_shape("transitions", probabilities, "S A S", {"S": states})
        if probabilities.shape[1] == 0:
            raise ValueError("transitions must hold at least one action, got none")
        mdp = TabularMDP(transitions=probabilities, **settings)
    else:
        require(arrays, ("chance", "actions"), "possible must come with chance [N] and actions (names or their number)")
        actions = len(arrays["actions"]) if arrays["actions"].ndim else integer("actions", arrays["actions"])
        possible = integers("possible", arrays["possible"])
        count = check_shape("possible", possible, "N 3")["N"]
        if not 1 <= actions * states <= count:
            raise ValueError(
                f"every state and action needs at least one possible transition, got {count} rows for {states} states "
                f"and actions = {actions}"
            )
        mdp = TabularMDP.sparse(possible, arrays["chance"].astype(np.float64), actions=actions, **settings)
    check_names("actions", arrays.get("actions"), mdp.actions)
    return mdp


def state_count(arrays: Mapping[str, Any]) -> int:
    """Return the number of states of the decision process in a file, given its arrays by name of the field.

    Raises:
        ValueError: if no field tells the number.
    """
    form = form_of(arrays)
    if form != "possible" and arrays[form].ndim:
        return len(arrays[form])
    sized = [name for name in ("start", "states", "utility", "done") if name in arrays and arrays[name].ndim]
    if not sized:
        raise ValueError("possible must come with start [S] chances or the names of the states, got neither")
    return len(arrays[sized[0]])


def form_of(arrays: Mapping[str, Any]) -> str:
    """Return the name of the field in which a file gives its transitions: "transitions", "next" or "possible".

    Raises:
        ValueError: if the file has none of these fields, several, or fields that only go with another one.
    """
    forms = [name for name in ("transitions", "next", "possible") if name in arrays]
    if len(forms) != 1:
        raise ValueError(
            "transitions must be given in exactly one form, transitions [S, A, S], next [S, A], or possible [N, 3] "
            f"with chance [N] and actions; got {', '.join(forms) or 'none'}"
        )
    superfluous = ["chance"] if "chance" in arrays else []
    superfluous += ["actions"] if "actions" in arrays and not arrays["actions"].ndim else []
    if superfluous and forms != ["possible"]:
        raise ValueError(f"{' and '.join(superfluous)} must go with possible, got {forms[0]}: leave them out")
    return forms[0]


def check_names(field: str, names: npt.NDArray[Any] | None, count: int) -> None:
    """Raise a ValueError unless a field of a file has ``count`` different names, none of them empty.

    A field that is missing (None), or that is a single value instead of a list, is accepted.
    """
    if names is None or not names.ndim:
        return
    check_shape(field, names, "N", {"N": count})
    repeated = [name for name, times in Counter(names.tolist()).items() if times > 1 or not name.strip()]
    if repeated:
        raise ValueError(f"{field} must be different names, none of them empty, got {repeated[0]!r:.80} repeatedly")


def goals_in(arrays: Mapping[str, Any], states: int) -> dict[str, npt.NDArray[np.bool_]]:
    """Return the goals in a file: name -> ``[S]`` bool, the states in which the goal is reached; empty without goals.

    Args:
        arrays: name of a field -> array, as `read_arrays` returns them.
        states: number S of states.

    Raises:
        ValueError: if the goals have the wrong shape, or their names are missing or repeated.
    """
    if "goals" not in arrays and "goal_names" not in arrays:
        return {}
    require(arrays, ("goals",), "goal_names must go with goals [G, S]")
    goals, names = np.atleast_2d(arrays["goals"]), np.atleast_1d(arrays.get("goal_names", "goal"))
    check_names("goal_names", names, check_shape("goals", goals, "G S", {"S": states})["G"])
    if "goal" in names[1:]:
        raise ValueError("goal_names must begin with the goal that ends an episode, got 'goal' at a later place")
    return dict(zip(names.tolist(), goals, strict=True))


def rewards_of(arrays: Mapping[str, Any], mdp: TabularMDP) -> Any:
    """Return a function that looks up rewards in a file, or None if the file has no rewards.

    The function takes arrays of states, actions and next states of N steps, and returns their rewards ``[N]``. A step
    that the file does not list among its possible transitions has the reward 0.

    Args:
        arrays: name of a field -> array, as `read_arrays` returns them.
        mdp: the decision process of the file.

    Raises:
        ValueError: if rewards have the wrong shape, or one transition has two rewards.
    """
    if "rewards" not in arrays:
        return None
    rewards = arrays["rewards"].astype(np.float64)
    sizes = {"S": mdp.states, "A": mdp.actions}
    if form_of(arrays) != "possible" or rewards.ndim != 1:
        check_shape("rewards", rewards, "S A S"[: max(1, 2 * rewards.ndim - 1)], sizes)
        return lambda *step: rewards[step[: rewards.ndim]]
    possible = integers("possible", arrays["possible"])
    check_shape("rewards", rewards, "N", {"N": len(possible)})
    size = mdp.actions, mdp.states
    keys = (possible[:, 0] * size[0] + possible[:, 1]) * size[1] + possible[:, 2]
    order = np.argsort(keys, kind="stable")
    keys, rewards = keys[order], rewards[order]
    if (np.diff(keys) == 0).any():
        twice = possible[order[int(np.argmax(np.diff(keys) == 0))]].tolist()
        raise ValueError(f"possible must list each transition once where rewards are given, got {twice} repeatedly")

    def look_up(states: Any, actions: Any, following: Any) -> Array:
        wanted = (np.asarray(states) * size[0] + actions) * size[1] + following
        rows = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[rows] == wanted, rewards[rows], 0.0)

    return look_up


def digest_of(arrays: Mapping[str, Any]) -> str:
    """Return a hash (64 hexadecimal digits) of the arrays that describe a decision process, whatever file contains
    them.

    Arrays that describe an agent are left out.
    """
    digest = hashlib.sha256()
    for name in sorted(set(arrays) & set(WORLD)):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.kind} {array.shape}\n".encode())
        digest.update("\0".join(array.ravel().tolist()).encode() if name in _NAMED else array.data)
    return digest.hexdigest()


def require(arrays: Mapping[str, Any], names: Sequence[str], requirement: str) -> None:
    """Raise a ValueError if a field that is needed is missing in a file.

    Args:
        arrays: name of a field -> array, as `read_arrays` returns them.
        names: names of the fields that are needed.
        requirement: what must hold, as the beginning of the message.
    """
    for name in names:
        if name not in arrays:
            raise ValueError(f"{requirement}, got no {name}")


def single(name: str, array: npt.NDArray[Any]) -> float:
    """Return the value of a field of a file that must contain a single number, not an array.

    Raises:
        ValueError: if the field contains an array.
    """
    if array.ndim:
        raise ValueError(f"{name} must be one number, got an array {list(array.shape)}")
    return float(array)


def integer(name: str, array: npt.NDArray[Any]) -> int:
    """Return the value of a field of a file that must contain a single whole number, not an array.

    Raises:
        ValueError: if the field contains an array or a fraction.
    """
    number = single(name, array)
    if number != int(number):
        raise ValueError(f"{name} must be a whole number, got {number}")
    return int(number)


def integers(name: str, array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Convert a field of whole numbers, which the file may store as floats, to an integer array of the same shape.

    Raises:
        ValueError: if the field contains fractions, or floats beyond 2**53.
    """
    if array.dtype.kind == "i":
        return array.astype(np.int64)
    if (array != np.round(array)).any() or (np.abs(array) > 2**53).any():
        raise ValueError(f"{name} must hold whole numbers, got fractions or numbers beyond 2**53")
    return array.astype(np.int64)


def _texts(arrays: Arrays, field: str, otherwise: list[str]) -> list[str]:
    if field not in arrays:
        return otherwise
    check_shape(field, arrays[field], "S", {"S": len(otherwise)})
    return list(arrays[field].tolist())


def _holds(reached: npt.NDArray[np.bool_], state: int) -> bool:
    return bool(reached[state])


def _start(start: npt.NDArray[Any], states: int) -> Array:
    if start.ndim:
        check_shape("start", start, "S", {"S": states})
        return start
    number = integer("start", start)
    if not 0 <= number < states:
        raise ValueError(f"start must be a state from 0 to {states - 1} or [S] chances, got {number:.12g}")
    return np.asarray(np.eye(1, states, number)[0])


def _read_npz(path: Path) -> Arrays:
    try:
        with NamedFile(path).open_file() as stream, open_archive(stream, _MOST_DIRECTORY) as packed:
            members = packed.infolist()
            total = sum(member.file_size for member in members)
            if total > LARGEST_NPZ:
                raise ValueError(
                    f"the arrays of {path.name} must take at most {LARGEST_NPZ} bytes unpacked, got {total}"
                )
            names = [member.filename.removesuffix(".npy") for member in members]
            _check_fields(path, names)
            return {name: _member(name, packed, member) for name, member in zip(names, members, strict=True)}
    except (zipfile.BadZipFile, UntrustedError) as error:
        raise ValueError(
            f"{path.name} is not a valid .npz file ({printable(str(error))}): save it again with numpy.savez"
        ) from error


def _member(name: str, packed: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    try:
        # Other methods of compression may allocate gigabytes for a dictionary.
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError("a compression that numpy does not write")
        with packed.open(member) as stream:
            is_first = np.lib.format.read_magic(stream) == (1, 0)
            read_header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
            shape, _, dtype = read_header(stream)
            octets = member.file_size - stream.tell()
            if dtype.hasobject or not dtype.itemsize or prod(shape) * dtype.itemsize != octets:
                raise ValueError(f"{dtype} {list(shape)} in {octets} bytes")
        with packed.open(member) as stream:
            array = np.lib.format.read_array(stream, allow_pickle=False)
    except Exception as error:  # numpy and zipfile raise errors of any kind for damaged members
        reason = printable(next(iter(str(error).splitlines()), type(error).__name__))
        raise ValueError(
            f"{name} must be a plain array of numbers, or of texts where it holds names, got one that cannot be read "
            f"({reason}): save it with numpy.savez and a numeric dtype"
        ) from error
    return check_field(name, array)


def _read_json(path: Path) -> Arrays:
    try:
        content = decode_object(NamedFile(path).load_bytes(LARGEST_JSON), strict=False)
    except UntrustedError as error:
        raise ValueError(
            f"{path.name} must be JSON in UTF-8 (larger arrays go into an .npz file), but {error}"
        ) from error
    _check_fields(path, list(content))
    return {name: check_field(name, _array(name, value)) for name, value in content.items()}


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    is_text = name in TEXTS and isinstance(value, str)
    if not (is_text or isinstance(value, int | float | list)) or isinstance(value, bool):
        raise ValueError(f"{name} must be a number or nested lists of numbers, got {type(value).__name__}")
    if name in _RAGGED and isinstance(value, list) and all(isinstance(row, list) for row in value):
        width = max(map(len, value), default=0)
        if 8 * width * len(value) > LARGEST_NPZ:
            raise ValueError(f"{name} must have at most {LARGEST_NPZ // 8} entries, got {len(value)} times {width}")
        value = [row + [-1] * (width - len(row)) for row in value]  # episodes of different lengths
    try:
        array = np.array(value)
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{name} must be a rectangular array, got lists of different lengths or depths") from error
    return array.astype(np.float64) if array.size == 0 else array


def check_field(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Check the array of one field of a file, and return it with whole numbers as int64 and truth values as bool.

    Args:
        name: name of the field, such as "start".
        array: the array as it was read.

    Raises:
        ValueError: if the array holds values of another type than the field needs, numbers that are not finite, or
            texts with control characters, which could change what a terminal shows.
    """
    if name in TEXTS or (name == "actions" and (array.ndim or array.dtype.kind == "U")):
        if array.dtype.kind != "U" or array.ndim > 1:
            raise ValueError(f"{name} must hold texts, got {array.dtype} {list(array.shape)}")
        if _has_numbers_beyond_unicode(array):
            raise ValueError(f"{name} must hold texts, got numbers that are no characters")
        if any(_CONTROL.search(text) for text in array.ravel().tolist()):
            raise ValueError(f"{name} must hold texts without control characters, which could change a terminal")
        return array
    if name in TRUTHS:
        if array.dtype.kind not in "biu" or ((array != 0) & (array != 1)).any():
            raise ValueError(f"{name} must hold true or false, got {array.dtype} {list(array.shape)}")
        return array.astype(bool)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype} {list(array.shape)}")
    if array.dtype.kind == "f":
        check_finite(name, array)  # single precision is kept: its rounding is allowed for where sums are checked
    elif array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must hold numbers below 2**63, got {array.max()}")
    else:
        array = array.astype(np.int64)
    return array


def _has_numbers_beyond_unicode(texts: npt.NDArray[Any]) -> bool:
    """Return whether an array of texts holds a number that is no character; Python cannot make a text of it."""
    if not texts.size or not texts.dtype.itemsize:
        return False
    characters = np.ascontiguousarray(texts).reshape(-1).view(np.dtype("u4").newbyteorder(texts.dtype.byteorder))
    return bool(characters.max() > sys.maxunicode)


def _check_fields(path: Path, names: list[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(f"{path.name} must name each field once, got {', '.join(map(repr, repeated[:5]))} repeatedly")
    unknown = [name for name in names if name not in (*WORLD, *AGENT)]
    if unknown:
        close = near_miss(unknown[0], (*WORLD, *AGENT))
        raise ValueError(
            f"fields must be among {', '.join((*WORLD, *AGENT))}, got {', '.join(map(repr, unknown[:5]))}{close}"
        )
