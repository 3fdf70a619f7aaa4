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
    """Warn that a name means something that ships with goalscope, not the path of this name in the working directory.

    Args:
        name: the name, as given.
        role: what ships under this name: "model", "study".
        only_files: whether only a file could be meant.
    """
    if Path(name).is_file() or (not only_files and os.path.lexists(name)):
        text = f"{name} is the {role} that ships with goalscope; the path of that name is not taken, ./{name} names it"
        warnings.warn(text, stacklevel=3)


def freeze(array: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    """Return a read-only copy of an array; the given array stays writable."""
    frozen = array.copy() if array.flags.writeable else array
    frozen.flags.writeable = False
    return frozen


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer of Python or numpy; a boolean is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise a ValueError, which lists the valid values, if a setting has none of them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_whole(name: str, value: Any, least: int, unit: str = "", most: int | None = None) -> int:
    """Return a whole number as a plain integer.

    Args:
        name: the argument's name, for the error.
        value: the value; a boolean is not a number.
        least, most: allowed range.
        unit: what it counts, e.g. "steps", for the error.

    Raises:
        ValueError: if it is not a whole number, or out of range.
    """
    if not is_whole(value) or value < least or (most is not None and value > most):
        of = f" of {unit}" if unit else ""
        limits = f">= {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number{of} {limits}, got {value!r:.60}")
    return int(value)


def check_number(name: str, value: Any, low: float, high: float, kind: str = "number") -> float:
    """Return a number in [low, high] as a plain float.

    Args:
        name: the argument's name, for the error.
        value: the value; a boolean is not a number.
        low, high: allowed range.
        kind: noun for the error.

    Raises:
        ValueError: if it is not a number, or out of range.
    """
    is_real = isinstance(value, Real) and not isinstance(value, Integral)
    if not (is_whole(value) or is_real) or not low <= value <= high:
        raise ValueError(f"{name} must be a {kind} in [{low:g}, {high:g}], got {value!r:.60}")
    return float(value)


def check_probability(name: str, value: Any) -> float:
    """Return a number from 0 to 1 as a plain float; errors are those of `check_number`."""
    return check_number(name, value, 0, 1, "probability")


def check_shape(
    name: str, array: "npt.NDArray[Any]", shape: str, sizes: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Check an array against a shape written as symbols, and return the size of each symbol.

    Args:
        name: the argument's name, for the error.
        array: the array to check.
        shape: symbols separated by blanks, e.g. ``"S A S"``; a number stands for itself.
        sizes: sizes that earlier arguments fixed.

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
    """Raise a ValueError that names the first entry of an array marked as bad.

    Args:
        bad: which entries are bad, in the shape of the array.
        array: the entries.
        must: the requirement, with the name of the array.
    """
    if bad.any():
        import numpy as np

        bad_index = tuple(int(index) for index in np.argwhere(np.atleast_1d(bad))[0])
        raise ValueError(f"{must}, got {np.atleast_1d(array)[bad_index]} at index {bad_index}")


def check_finite(name: str, array: "npt.NDArray[Any]") -> None:
    """Raise a ValueError that names the first entry that is not a finite number."""
    import numpy as np

    refuse_where(~np.isfinite(array), array, f"{name} must be finite everywhere")


def check_distributions(name: str, array: "npt.NDArray[Any]", tolerance: float = 1e-8) -> None:
    """Raise a ValueError unless the last axis holds probability distributions.

    Args:
        name: the argument's name, for the error.
        array: ``[..., K]`` probabilities.
        tolerance: allowed distance of a sum from 1.
    """
    check_finite(name, array)
    refuse_where(array < 0, array, f"{name} must hold probabilities >= 0")
    sums = array.sum(axis=-1)
    refuse_where(abs(sums - 1.0) > tolerance, sums, f"{name} must sum to 1 over its last axis (to {tolerance:g})")


def check_text(name: str, value: str) -> str:
    """Return a text if UTF-8 can encode it, as names and tags that are stored and printed require.

    Args:
        name: noun for the error.
        value: the text.

    Raises:
        ValueError: if it has half of a surrogate pair.
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
    """Check every key and text of nested plain values with `check_text`.

    Args:
        value: the nested mappings, lists and plain values.
        name: what the value is called in errors.
        path: keys that lead to the value from that of the name, for errors.
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
    """Return "; did you mean ...?" if a word is close to a valid one, else a list of the valid words.

    Args:
        word: the word.
        valid: the valid words.
        most: maximum number of suggestions, closest first.
    """
    close = get_close_matches(str(word)[:200], valid, n=most, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else f"; valid: {', '.join(valid)}"


def check_parameters(source: str, function: Callable[..., Any], parameters: Collection[str], how: str) -> None:
    """Raise a ValueError if a class or function lacks one of the given parameters, or needs one that is not given.

    Args:
        source: its name, for the message.
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
    """Return "; did you mean ...?" if a name is close to a valid one, else ""."""
    lower = {name.lower(): name for name in valid}
    close = get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[close[0]]}?" if close else ""
