"""Arrays by name from a JSON or `.npz` file that nobody vouches for."""

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite

Arrays = dict[str, npt.NDArray[Any]]

LARGEST_JSON = 64 * 2**20
"""Greatest size of a JSON file in bytes; larger problems belong into an `.npz` file."""

LARGEST_NPZ = 2**30
"""Greatest size of the arrays of an `.npz` file in bytes, unpacked."""

_DIGITS = 400  # of a whole number in JSON; beyond no double holds it
_UNREADABLE = (  # what numpy and zipfile raise at members that are damaged, encrypted, too large or of another kind
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


def read_arrays(path: Path, known: Collection[str]) -> Arrays:
    """Return the arrays of a file, every one of real numbers and finite.

    Args:
        path: a JSON object of numbers and nested lists of them, or an `.npz` file of arrays.
        known: the names that may occur.

    Raises:
        ValueError: another format, unknown or repeated names, entries that are no arrays of finite real numbers, sizes
            beyond `LARGEST_JSON` and `LARGEST_NPZ`; each names the field and how to mend it.
        OSError: the file cannot be read.
    """
    if path.suffix == ".npz":
        return _read_npz(path, known)
    if path.suffix == ".json":
        return _read_json(path, known)
    raise ValueError(
        f"a decision process must come as .json or .npz, got {path.name}: name it by its format, "
        "or give the directory of a run"
    )


def _read_npz(path: Path, known: Collection[str]) -> Arrays:
    try:
        with zipfile.ZipFile(path) as packed:
            members = packed.infolist()
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path.name} must be an .npz file, got one that is damaged or none: write it anew") from error
    total = sum(member.file_size for member in members)
    if total > LARGEST_NPZ:
        raise ValueError(f"the arrays of {path.name} must take at most {LARGEST_NPZ} bytes unpacked, got {total}")
    names = [member.filename.removesuffix(".npy") for member in members]
    _check_names(path, names, known)
    arrays: Arrays = {}
    with np.load(path, allow_pickle=False) as file:
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


def _read_json(path: Path, known: Collection[str]) -> Arrays:
    size = path.stat().st_size
    if size > LARGEST_JSON:
        raise ValueError(f"a JSON file must take at most {LARGEST_JSON} bytes, got {size}: use an .npz file")
    try:
        content = json.loads(
            path.read_text(encoding="utf-8-sig"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_int=_whole_number,
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path.name} must be JSON in UTF-8, got something else: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} must hold one JSON object, got a {type(content).__name__}")
    _check_names(path, list(content), known)
    return {name: _checked(name, _array(name, value)) for name, value in content.items()}


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    if not isinstance(value, int | float | list) or isinstance(value, bool):
        raise ValueError(f"{name} must be a number or nested lists of numbers, got {type(value).__name__}")
    try:
        array = np.array(value)
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{name} must be a full array, got lists of different lengths or depths") from error
    return array.astype(np.float64) if array.size == 0 else array


def _checked(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must hold real numbers, got {array.dtype} {list(array.shape)}")
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        check_finite(name, array)
    elif array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must hold numbers below 2**63, got {array.max()}")
    else:
        array = array.astype(np.int64)
    return array


def _check_names(path: Path, names: list[str], known: Collection[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(f"{path.name} must name each field once, got {', '.join(map(repr, repeated[:5]))} repeatedly")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"fields must be among {', '.join(known)}, got {', '.join(map(repr, unknown[:5]))}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("every name of a JSON object must occur once, got one repeatedly: remove what is not meant")
    return content


def _whole_number(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"every number must have at most {_DIGITS} digits, got {text[:20]}... with {len(text)}")
    return int(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"every number must be finite, got {name}")
