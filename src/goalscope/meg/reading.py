"""Arrays by name from a JSON or `.npz` file that nobody vouches for."""

import zipfile
import zlib
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite
from goalscope.untrusted import UntrustedError, decode_object, read_octets

Arrays = dict[str, npt.NDArray[Any]]

LARGEST_JSON = 64 * 2**20
"""Greatest size of a JSON file in bytes; larger problems belong into an `.npz` file."""

LARGEST_NPZ = 2**30
"""Greatest size of the arrays of an `.npz` file in bytes, unpacked."""

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
    try:
        content = decode_object(read_octets(path, LARGEST_JSON), strict=False)
    except UntrustedError as error:
        raise ValueError(
            f"{path.name} must be JSON in UTF-8 (larger arrays go into an .npz file), but {error}"
        ) from error
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
