"""Decoders of plans as files: safetensors with one header, checked from end to end before anything is believed."""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.represent.plan_decoder import PlanDecoder
from goalscope.represent.plans import TOKENS
from goalscope.represent.probe import Source
from goalscope.represent.shards import FORMAT, Shard, write_shard

_KIND: Final = "plan-decoder"
_KEY: Final = "goalscope"
_LARGEST: Final = 1 << 32  # bytes
_SOURCE: Final = {"site": str, "layer": int, "model": str, "width": int}
_SIZES: Final = {"positions": int, "horizon": int, "layers": int, "heads": int}
_FIELDS: Final = {**_SOURCE, **_SIZES, "tags": dict, "decoder": str, "tokens": list}


def write_decoder(path: Path, decoder: PlanDecoder) -> int:
    """Write a decoder under a temporary name, sync and rename it; return its size in bytes."""
    header = {"kind": _KIND, "decoder": decoder.id, "tokens": list(TOKENS), **decoder.describe()}
    return write_shard(path, Shard(header=header, arrays=decoder.arrays()))


def read_decoder(path: Path) -> PlanDecoder:
    """Read a decoder.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, or no decoder of plans.
    """
    if not path.is_file():
        raise FileNotFoundError(f"a decoder of plans must be a file, got {path}: there is none")
    size = path.stat().st_size
    if size > _LARGEST:
        raise _refused(path, f"it has {size} bytes, a decoder has at most {_LARGEST}")
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            header = _header(path, file.metadata())
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, TypeError) as error:
        raise _refused(path, f"it is no sound safetensors file ({error})") from error
    return _decoder(path, header, arrays)


def _header(path: Path, metadata: dict[str, str] | None) -> dict[str, Any]:
    try:
        header = json.loads((metadata or {}).get(_KEY, ""))
    except (ValueError, RecursionError) as error:
        raise _refused(path, "its header is no JSON") from error
    if not isinstance(header, dict) or header.get("kind") != _KIND or header.get("format") != FORMAT:
        raise _refused(path, f"its header does not say that it is a decoder of plans of format {FORMAT}")
    for name, kind in _FIELDS.items():
        value = header.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _refused(path, f"{name} in its header must be {kind.__name__}, got {str(value)[:80]!r}")
    if header["tokens"] != list(TOKENS):
        raise _refused(path, f"its tokens must be {', '.join(TOKENS)}, got {str(header['tokens'])[:80]}")
    plain = (str, int, float, bool, type(None))
    if not all(isinstance(value, plain) for value in header["tags"].values()):
        raise _refused(path, "its tags must be plain values")
    return header


def _decoder(path: Path, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> PlanDecoder:
    odd = [name for name, array in arrays.items() if array.dtype != np.float32]
    if odd:
        raise _refused(path, f"all its arrays must be float32, these are not: {', '.join(map(repr, odd))[:200]}")
    if "centre" not in arrays or "spread" not in arrays:
        raise _refused(path, "it must hold centre and spread")
    centre, spread = arrays.pop("centre"), arrays.pop("spread")
    if not all(name.startswith("weights.") for name in arrays):
        raise _refused(path, f"it holds other arrays than weights: {', '.join(map(repr, arrays))[:200]}")
    try:
        decoder = PlanDecoder(
            source=Source(**{name: header[name] for name in _SOURCE}),
            centre=centre,
            spread=spread,
            weights={name.removeprefix("weights."): array for name, array in arrays.items()},
            tags=header["tags"],
            **{name: header[name] for name in _SIZES},
        )
        known = decoder.id
    except (ValueError, OverflowError) as error:
        raise _refused(path, str(error)) from error
    if known != header["decoder"]:
        raise _refused(path, f"its content must have the id {header['decoder'][:80]!r}, it has {known}")
    return decoder


def _refused(path: Path, what: str) -> ValueError:
    return ValueError(f"{path} must be a sound decoder of plans, but {what}: fit the decoder again")
