"""Decoders of plans as files, see `goalscope.probing.fitted_file`."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from goalscope.probing.fitted_file import Arrays, Form, read_fitted, source_of, weights_of, write_fitted
from goalscope.probing.plan_decoder import PlanDecoder
from goalscope.probing.plans import TOKENS

_SIZES: Final = {"positions": int, "horizon": int, "layers": int, "heads": int}
_FORM: Final = Form(
    kind=PlanDecoder.KIND,
    noun="decoder of plans",
    short="decoder",
    listed="tokens",
    names=TOKENS,
    fields=_SIZES,
)


def write_decoder(path: Path, decoder: PlanDecoder) -> int:
    """Write a decoder and return the file's size in bytes."""
    return write_fitted(path, _FORM, decoder)


def read_decoder(path: Path) -> PlanDecoder:
    """Read a decoder.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, or no decoder of plans.
    """
    return read_fitted(path, _FORM, _decoder)


def _decoder(header: dict[str, Any], arrays: Arrays) -> PlanDecoder:
    odd = [name for name, array in arrays.items() if array.dtype != np.float32]
    if odd:
        raise ValueError(f"all its arrays must be float32, these are not: {', '.join(map(repr, odd))[:200]}")
    if "centre" not in arrays or "spread" not in arrays:
        raise ValueError("it must hold centre and spread")
    centre, spread = arrays.pop("centre"), arrays.pop("spread")
    return PlanDecoder(
        source=source_of(header),
        centre=centre,
        spread=spread,
        weights=weights_of(arrays),
        tags=header["tags"],
        **{name: header[name] for name in _SIZES},
    )
