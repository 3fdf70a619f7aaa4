"""Content ids: equal content has equal ids, on every machine and in every run.

An id consists of a kind and the first 96 bits of the sha256 of canonical JSON. Times, paths and software versions never
enter an id, so that resuming, caching and joining are set differences of ids.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

_HEX_DIGITS = 24  # 96 bits: the probability of a collision among 10**9 ids is below 10**-10


def _to_plain(value: Any, path: str) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"canonical JSON can only contain finite numbers, got {value!r} at {path}")
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"canonical JSON can only have text keys, got {key!r} at {path}")
        return {key: _to_plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_to_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"canonical JSON cannot hold {type(value).__name__} at {path}: convert it to plain values first")


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a plain value: sorted keys, no blanks, ASCII, finite numbers.

    Args:
        value: nested mappings with text keys, sequences, text, numbers, booleans and None.

    Raises:
        TypeError: for a value of another type, such as a numpy array or a set.
        ValueError: for a number that is not finite.
    """
    return json.dumps(_to_plain(value, "$"), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def content_id(kind: str, value: Any) -> str:
    """Return ``kind-xxxxxxxx``, the content id (a hash) of a plain value; equal values have equal ids.

    Args:
        kind: kind of the value ("world", "episode", ...); values of different kinds never share an id.
        value: see `canonical_json`.
    """
    return id_of_text(kind, canonical_json(value))


def id_of_text(kind: str, text: str) -> str:
    """Return the content id of a value from its canonical JSON."""
    digest = hashlib.sha256(f"{kind}\n{text}".encode()).hexdigest()
    return f"{kind}-{digest[:_HEX_DIGITS]}"
