"""Input checks: numbers and arrays of the right shape, dtype and range, and read-only copies."""

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # every command imports this module, and some need no arrays
    import numpy as np
    import numpy.typing as npt


def note_namesake(name: str, role: str, *, only_files: bool = False) -> None:
    """Warn that a name was read as something that comes with goalscope, although a path of that name exists, too.

    Args:
        name: the name that the user gave; a path of this name in the working directory is looked for.
        role: what comes with goalscope under this name, such as "model" or "study".
        only_files: whether to warn only if the path is a regular file.
    """
    if Path(name).is_file() or (not only_files and os.path.lexists(name)):
        text = f"{name} is the {role} that ships with goalscope; the path of that name is not taken, ./{name} names it"
        warnings.warn(text, stacklevel=3)


def freeze(array: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    """Return a read-only copy of an array, or the array itself if it is read-only already."""
    frozen = array.copy() if array.flags.writeable else array
    frozen.flags.writeable = False
    return frozen


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer of Python or numpy; a boolean is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise a ValueError, which lists the valid values, if the value of a setting is not one of them.

    Args:
        name: name of the setting, for the error.
        value: value of the setting.
        choices: the valid values.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_whole(name: str, value: Any, least: int, unit: str = "", most: int | None = None) -> int:
    """Check a whole number, and return it as a plain ``int``.

    Args:
        name: the argument's name, for the error.
        value: the value; numpy integers are accepted, booleans are not.
        least, most: smallest and largest allowed value; without ``most`` there is no upper limit.
        unit: what the number counts, such as "steps", for the error.

    Raises:
        ValueError: if the value is not a whole number, or out of range.
    """
    if not is_whole(value) or value < least or (most is not None and value > most):
        of = f" of {unit}" if unit else ""
        limits = f">= {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number{of} {limits}, got {value!r:.60}")
    return int(value)


def check_number(name: str, value: Any, low: float, high: float, kind: str = "number") -> float:
    """Check that a number lies in [low, high], and return it as a plain ``float``.

    Args:
        name: the argument's name, for the error.
        value: the value; numpy numbers are accepted, booleans are not.
        low, high: smallest and largest allowed value.
        kind: noun for the error, such as "probability".

    Raises:
        ValueError: if the value is not a number, or out of range.
    """
    is_real = isinstance(value, Real) and not isinstance(value, Integral)
    if not (is_whole(value) or is_real) or not low <= value <= high:
        raise ValueError(f"{name} must be a {kind} in [{low:g}, {high:g}], got {value!r:.60}")
    return float(value)


def check_probability(name: str, value: Any) -> float:
    """Check that a number lies between 0 and 1, and return it as a plain ``float``.

    Args:
        name: the argument's name, for the error.
        value: the value; booleans are not accepted.

    Raises:
        ValueError: if the value is not a number, or out of range.
    """
    return check_number(name, value, 0, 1, "probability")


def check_shape(
    name: str, array: "npt.NDArray[Any]", shape: str, sizes: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Check the shape of an array against symbols such as ``"S A S"``, and return the size that each symbol stands for.

    Args:
        name: the argument's name, for the error.
        array: the array to check.
        shape: one symbol per axis, separated by blanks; a number stands for itself, and equal symbols need equal sizes.
        sizes: sizes of symbols that earlier arguments fixed.

    Returns:
        ``sizes`` with the symbols of this shape added.

    Raises:
        ValueError: if the shape differs; the message has the argument and both shapes.
    """
    size_of = dict(sizes or {})
    symbols = shape.split()
    fits = array.ndim == len(symbols) and all(
        size_of.setdefault(symbol, int(symbol) if symbol.isdigit() else length) == length
        for symbol, length in zip(symbols, array.shape, strict=True)
    )
    if not fits:
        fixed = ", ".join(
            f"{symbol} = {size_of[symbol]}" for symbol in dict.fromkeys(symbols) if symbol in (sizes or {})
        )
        raise ValueError(
            f"{name} must have shape [{', '.join(symbols)}]{f' with {fixed}' if fixed else ''}, got {list(array.shape)}"
        )
    return size_of


def refuse_where(bad: "npt.NDArray[np.bool_]", array: "npt.NDArray[Any]", must: str) -> None:
    """Raise a ValueError that names the first entry of an array that is marked as bad, if there is one.

    Args:
        bad: boolean array of the same shape as ``array``, true where an entry is bad.
        array: the entries.
        must: what the entries must be, including the array's name, as the beginning of the message.
    """
    if bad.any():
        import numpy as np

        bad_index = tuple(int(index) for index in np.argwhere(np.atleast_1d(bad))[0])
        raise ValueError(f"{must}, got {np.atleast_1d(array)[bad_index]} at index {bad_index}")


def check_finite(name: str, array: "npt.NDArray[Any]") -> None:
    """Raise a ValueError that names the first NaN or infinite entry of an array, if there is one.

    Args:
        name: the argument's name, for the error.
        array: the array to check.
    """
    import numpy as np

    refuse_where(~np.isfinite(array), array, f"{name} must be finite everywhere")


def check_distributions(name: str, array: "npt.NDArray[Any]", tolerance: float = 1e-8) -> None:
    """Raise a ValueError unless an array contains a probability distribution along its last axis.

    Args:
        name: the argument's name, for the error.
        array: ``[..., K]`` probabilities of K outcomes.
        tolerance: allowed distance of a sum from 1.
    """
    check_finite(name, array)
    refuse_where(array < 0, array, f"{name} must hold probabilities >= 0")
    sums = array.sum(axis=-1)
    refuse_where(abs(sums - 1.0) > tolerance, sums, f"{name} must sum to 1 over its last axis (to {tolerance:g})")


def check_text(name: str, value: str) -> str:
    """Return a text unchanged if UTF-8 can encode it, so that it can be stored and printed.

    Args:
        name: what the text is called in the error.
        value: the text.

    Raises:
        ValueError: if the text contains half of a surrogate pair (one of two code units that only make a character
            together).
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} must be Unicode text, got half of a surrogate pair at character {error.start + 1} of "
            f"{value[:60]!a}: leave that character out"
        ) from None
    return value


def check_texts(value: Any, name: str, path: str = "") -> None:
    """Check with `check_text` that UTF-8 can encode every key and every text of nested values.

    Args:
        value: nested mappings and lists of texts, numbers, booleans and None.
        name: what the value is called in errors.
        path: keys that lead from the named value to this one, for errors; used by recursive calls.

    Raises:
        ValueError: if a key or text contains half of a surrogate pair.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            place = f"{path}.{key}".removeprefix(".")
            if not str(key).isascii():
                check_text(f"a key of {name}", place)
            check_texts(item, name, place)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_texts(item, name, f"{path}[{index}]")
    elif isinstance(value, str):
        check_text(f"{name}: {path}", value)


def near_miss(word: object, valid: Sequence[str], most: int = 1) -> str:
    """Return the end of an error message about an unknown word: "; did you mean ...?" or a list of the valid words.

    Args:
        word: the unknown word.
        valid: the valid words.
        most: maximum number of suggestions, closest first; without a close word, all valid words are listed.
    """
    close = get_close_matches(str(word)[:200], valid, n=most, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else f"; valid: {', '.join(valid)}"


def check_parameters(source: str, function: Callable[..., Any], parameters: Collection[str], how: str) -> None:
    """Raise a ValueError if keyword arguments do not fit the signature of a class or function.

    An argument must be one of the parameters, and every parameter without a default must be given.

    Args:
        source: what the class or function is called in the message.
        function: the class or function, which is not called.
        parameters: the names of the keyword arguments.
        how: how the user gives a parameter, with {name} in the place of its name.
    """
    entries = signature(function).parameters.values()
    named = [entry for entry in entries if entry.kind in (entry.POSITIONAL_OR_KEYWORD, entry.KEYWORD_ONLY)]
    names = [entry.name for entry in named]
    takes_all = any(entry.kind is entry.VAR_KEYWORD for entry in entries)
    for name in parameters if not takes_all else ():
        if name not in names:
            takes = f"takes {', '.join(names)}" if names else "takes no parameters"
            raise ValueError(f"{source} has no parameter {name}: leave it out; it {takes}{did_you_mean(name, names)}")
    missing = [entry.name for entry in named if entry.default is entry.empty and entry.name not in parameters]
    if missing:
        raise ValueError(
            f"{source} needs a value for {' and '.join(missing)}: {how.format(name=missing[0])}, or give the parameter "
            "a default"
        )


def did_you_mean(word: str, valid: Sequence[str]) -> str:
    """Return "; did you mean ...?", the end of an error message, if a name is close to a valid one, otherwise ""."""
    lower = {name.lower(): name for name in valid}
    close = get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[close[0]]}?" if close else ""
