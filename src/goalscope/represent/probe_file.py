"""Probes as files: safetensors with one header, checked from end to end before anything is believed."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.represent.probe import CLASSES, Probe, Source, check_task
from goalscope.represent.shards import Shard, write_shard

_KIND: Final = "probe"
_KEY: Final = "goalscope"
_LARGEST: Final = 1 << 32  # bytes
_FIELDS: Final = {
    "head": str,
    "task": str,
    "site": str,
    "layer": int,
    "model": str,
    "width": int,
    "frame": int,
    "target": list,
    "tags": dict,
    "probe": str,
    "classes": list,
}


def write_probe(path: Path, probe: Probe) -> int:
    """Write a probe under a temporary name, sync and rename it; return its size in bytes."""
    header = {"kind": _KIND, "probe": probe.id, "classes": list(CLASSES), **probe.describe()}
    return write_shard(path, Shard(header=header, arrays=probe.arrays()))


def read_probe(path: Path) -> Probe:
    """Read a probe.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, or no probe.
    """
    if not path.is_file():
        raise FileNotFoundError(f"a probe must be a file, got {path}: there is none")
    size = path.stat().st_size
    if size > _LARGEST:
        raise _refused(path, f"it has {size} bytes, a probe has at most {_LARGEST}")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            header = _header(path, file.metadata())
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, TypeError) as error:
        raise _refused(path, f"it is no sound safetensors file ({error})") from error
    return _probe(path, header, arrays)


def _header(path: Path, metadata: dict[str, str] | None) -> dict[str, Any]:
    try:
        header = json.loads((metadata or {}).get(_KEY, ""))
    except (ValueError, RecursionError) as error:
        raise _refused(path, "its header is no JSON") from error
    if not isinstance(header, dict) or header.get("kind") != _KIND or header.get("format") != 1:
        raise _refused(path, "its header does not say that it is a probe of format 1")
    for name, kind in _FIELDS.items():
        value = header.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _refused(path, f"{name} in its header must be {kind.__name__}, got {str(value)[:80]!r}")
    if header["classes"] != list(CLASSES):
        raise _refused(path, f"its classes must be {', '.join(CLASSES)}, got {str(header['classes'])[:80]}")
    if len(header["target"]) != 2 or not all(type(one) in (int, float) for one in header["target"]):
        raise _refused(path, f"target must be two numbers, got {str(header['target'])[:80]}")
    plain = (str, int, float, bool, type(None))
    if not all(isinstance(value, plain) for value in header["tags"].values()):
        raise _refused(path, "its tags must be plain values")
    if header["width"] < 1:
        raise _refused(path, f"width must be >= 1, got {header['width']}")
    return header


def _probe(path: Path, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Probe:
    fixed = {name: arrays.pop(name, None) for name in ("prior", "centre", "spread")}
    for name, array in fixed.items():
        dtype = np.float64 if name == "prior" else np.float32
        if array is None or array.ndim != 1 or array.dtype != dtype:
            raise _refused(path, f"it must hold {name} as a vector of {np.dtype(dtype)}")
    if not all(name.startswith("weights.") and array.dtype == np.float32 for name, array in arrays.items()):
        raise _refused(path, f"it holds other arrays than weights: {', '.join(map(repr, arrays))[:200]}")
    try:
        check_task(header["task"], header["frame"])
        probe = Probe(
            head=header["head"],
            task=header["task"],
            source=Source(**{name: header[name] for name in ("site", "layer", "model", "width")}),
            frame=header["frame"],
            target=(float(header["target"][0]), float(header["target"][1])),
            tags=header["tags"],
            weights={name.removeprefix("weights."): array for name, array in arrays.items()},
            **{name: array for name, array in fixed.items() if array is not None},
        )
        known = probe.id
    except (ValueError, OverflowError) as error:
        raise _refused(path, str(error)) from error
    if known != header["probe"]:
        raise _refused(path, f"its content must have the id {header['probe'][:80]!r}, it has {known}")
    return probe


def _refused(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} must be a sound probe, but {what}: fit the probe again")
