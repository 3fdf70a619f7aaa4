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
    """Write a value as canonical JSON, so that equal values have equal texts: sorted keys, no blanks, ASCII.

    Args:
        value: nested mappings with text keys, sequences, text, finite numbers, booleans and None.

    Raises:
        TypeError: for a value of another type, such as a numpy array or a set.
        ValueError: for a number that is not finite.
    """
    return json.dumps(_to_plain(value, "$"), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def content_id(kind: str, value: Any) -> str:
    """Return the content id of a value: its kind, a hyphen and 24 hexadecimal digits of a hash of its canonical JSON.

    Equal values of one kind have equal ids on every machine.

    Args:
        kind: kind of the value ("world", "episode", ...); values of different kinds never share an id.
        value: nested mappings with text keys, sequences, text, finite numbers, booleans and None.
    """
    return id_of_text(kind, canonical_json(value))


def id_of_text(kind: str, text: str) -> str:
    """Return the content id (kind, hyphen, 24 digits of a sha256 hash) of a value whose canonical JSON is given.

    Args:
        kind: kind of the value ("world", "episode", ...).
        text: the value as `canonical_json` writes it.
    """
    digest = hashlib.sha256(f"{kind}\n{text}".encode()).hexdigest()
    return f"{kind}-{digest[:_HEX_DIGITS]}"
