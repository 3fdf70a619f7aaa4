"""Headers of safetensors files, checked before a file of weights is hashed or given to a library.

A file of weights may have hundreds of gigabytes, so reading it whole, only to find that it is cut or that its header
describes something else, takes minutes. The header has some kilobytes and says where the file must end.

Source: the safetensors format, https://github.com/huggingface/safetensors#format.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, Final

from goalscope._ground.folder import NamedFile
from goalscope._ground.untrusted import decode_object, printable
from goalscope.agents.models.gguf import MOST_WEIGHTS

BITS: Final[Mapping[str, int]] = {
    "F4": 4,
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
"""Name of a kind of numbers -> the bits that each number takes."""

_PREFIX: Final = 8  # bytes that contain the length of the header
_MOST_HEADER: Final = 1 << 24  # bytes; headers with 10,000 tensors have 1.2 MB
_MOST_DIMENSIONS: Final = 32
_METADATA: Final = "__metadata__"


def check_header(path: Path) -> None:
    """Refuse a safetensors file whose size differs from what its header describes, without reading its weights.

    Each tensor must take the bytes that follow from its shape and kind of numbers, the tensors must follow each other
    without gaps, and the file must end with the last one.

    Raises:
        ValueError: they differ, or the file has no such header; the message does not name the file.
    """
    _check(path, (status := NamedFile(path).status()).st_size, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _check(path: Path, size: int, modified: int) -> None:
    # Size and modification time are arguments only for the cache.
    with NamedFile(path).open_file(MOST_WEIGHTS, sparse=True) as file:
        length = int.from_bytes(file.read(_PREFIX), "little")
        if not 2 <= length <= min(_MOST_HEADER, size - _PREFIX):
            raise ValueError(f"its header has {length} bytes, where the file has {size} and {_MOST_HEADER} are allowed")
        header = decode_object(file.read(length), strict=False)
    spans = sorted(_span(name, entry) for name, entry in header.items() if name != _METADATA)
    end = 0
    for begin, stop, name in spans:
        if begin != end:
            raise ValueError(f"its tensor {name} begins at byte {begin} of the weights, where {end} is expected")
        end = stop
    if (octets := size - _PREFIX - length) != end:
        raise ValueError(f"its header describes {end} bytes of weights, and the file has {octets}")


def _span(name: str, entry: Any) -> tuple[int, int, str]:
    """Return where the bytes of a tensor begin and end, and its printable name."""
    name = printable(name)
    try:
        bits, shape, (begin, end) = BITS[entry["dtype"]], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its tensor {name} lacks a known dtype, a shape or two data_offsets") from error
    numbers = [begin, end, *shape] if isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS else [None]
    if not all(type(number) is int and 0 <= number <= MOST_WEIGHTS for number in numbers):
        raise ValueError(
            f"the data_offsets and shape of its tensor {name} must be whole numbers from 0 to {MOST_WEIGHTS}, with at "
            f"most {_MOST_DIMENSIONS} axes"
        )
    if 8 * (end - begin) != prod(shape) * bits:
        raise ValueError(f"its tensor {name} has {end - begin} bytes, which differs from its shape and dtype")
    return begin, end, name
