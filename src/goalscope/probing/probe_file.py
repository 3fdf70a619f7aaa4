"""Probes as files, see `goalscope.probing.fitted_file`."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from goalscope.probing.fitted_file import Arrays, Form, read_fitted, source_of, weights_of, write_fitted
from goalscope.probing.probe import CLASSES, Probe

_FORM: Final = Form(
    kind=Probe.KIND,
    noun="probe",
    short="probe",
    listed="classes",
    names=CLASSES,
    fields={"head": str, "task": str, "frame": int, "target": list},
)


def write_probe(path: Path, probe: Probe) -> int:
    """Write a probe and return the file's size in bytes."""
    return write_fitted(path, _FORM, probe)


def read_probe(path: Path) -> Probe:
    """Read a probe.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, or no probe.
    """
    return read_fitted(path, _FORM, _probe)


def _probe(header: dict[str, Any], arrays: Arrays) -> Probe:
    target = header["target"]
    if len(target) != 2 or not all(type(one) in (int, float) for one in target):
        raise ValueError(f"target must be two numbers, got {str(target)[:80]}")
    if header["width"] < 1:
        raise ValueError(f"width must be >= 1, got {header['width']}")
    fixed = {name: arrays.pop(name, None) for name in ("prior", "centre", "spread")}
    for name, array in fixed.items():
        dtype = np.float64 if name == "prior" else np.float32
        if array is None or array.ndim != 1 or array.dtype != dtype:
            raise ValueError(f"it must hold {name} as a vector of {np.dtype(dtype)}")
    weights = weights_of(arrays)
    return Probe(
        head=header["head"],
        task=header["task"],
        source=source_of(header),
        frame=header["frame"],
        target=(float(target[0]), float(target[1])),
        tags=header["tags"],
        weights=weights,
        **{name: array for name, array in fixed.items() if array is not None},
    )
