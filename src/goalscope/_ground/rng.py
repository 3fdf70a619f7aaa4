"""Random streams derived by name from one root seed.

Every random number of a study comes from a Philox counter-based generator whose key is the hash of the root seed and
a tuple of names. Neither the number of workers nor the order of work can therefore change a result, and a block of
draws can be taken for item ``i`` alone or for a thousand items at once with the same bytes.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from json.encoder import encode_basestring_ascii
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

_WORDS_PER_BLOCK = 4  # Philox-4x64 yields four 64-bit words for each value of its counter
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
Item = TypeVar("Item")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def _digest(root_seed: int, names: tuple[str | int | float, ...]) -> bytes:
    if isinstance(root_seed, bool) or not isinstance(root_seed, int | np.integer):
        raise TypeError(f"a root seed must be a whole number, got {root_seed!r} of type {type(root_seed).__name__}")
    if not names:
        raise ValueError("a random stream must have at least one name, got none: name what the numbers are for")
    return hashlib.sha256(_encode([int(root_seed), *names]).encode()).digest()


def _key(root_seed: int, names: tuple[str | int | float, ...]) -> int:
    return int.from_bytes(_digest(root_seed, names)[:16], "little")


def stream(root_seed: int, *names: str | int | float) -> np.random.Generator:
    """Return the generator that belongs to these names under this root seed.

    Args:
        root_seed: the one seed of the study; any integer, 0 included.
        names: purpose of the numbers, e.g. ``("agent", episode_id, step)``.

    Returns:
        A Philox generator; equal arguments give equal streams, different names independent ones.

    Raises:
        TypeError: the root seed is not an integer.
        ValueError: no name is given.
    """
    return np.random.Generator(np.random.Philox(key=_key(root_seed, names)))


def uniform(root_seed: int, *names: str | int | float) -> float:
    """Return the one uniform number in [0, 1) that belongs to these names under this root seed.

    For single draws: about twenty times faster than a generator. It uses a part of the hash that `stream` does not, so
    it is independent of the stream of the same names.

    Raises:
        TypeError: the root seed is not an integer.
        ValueError: no name is given.
    """
    return (int.from_bytes(_digest(root_seed, names)[16:24], "little") >> 11) * 2.0**-53


def uniforms(heads: Sequence[bytes], *names: str | int | float) -> npt.NDArray[np.float64]:
    """Return ``[N]`` the numbers `uniform` of names that differ in their beginning alone, bit by bit.

    Args:
        heads: the root seed and the first names of each, from `heads`.
        names: the further names, at least one.
    """
    tail = b"," + _encode(names)[1:].encode()
    digests = b"".join([hashlib.sha256(head + tail).digest() for head in heads])
    return (np.frombuffer(digests, dtype="<u8")[2::4] >> np.uint64(11)).astype(np.float64) * 2.0**-53


def heads(root_seed: int, *names: str | int | float, each: Iterable[str]) -> list[bytes]:
    """Return the root seed, the first names and each of some texts as the next name, as `uniforms` takes them."""
    begin = _encode([int(root_seed), *names])[:-1]
    return [f"{begin},{encode_basestring_ascii(text)}".encode() for text in each]


def words(
    root_seed: int, *names: str | int | float, first: int, count: int, each: int, attempt: int = 0
) -> npt.NDArray[np.uint64]:
    """Return raw random words for the items ``first .. first + count - 1`` of a named series.

    Args:
        root_seed: the one seed of the study.
        names: the name of the series.
        first: index of the first item, >= 0.
        count: number of items.
        each: number of words of every item; another number gives another series.
        attempt: number of the redraw; each attempt has its own words.

    Returns:
        ``[count, each]`` uint64. Row ``j`` depends on ``first + j`` only, not on ``first`` or ``count``.

    Raises:
        TypeError: the root seed is not an integer.
        ValueError: no name is given, or a number out of its range.
    """
    if first < 0 or count < 0 or each < 1 or attempt < 0:
        raise ValueError(
            f"first, count and attempt must be >= 0 and each >= 1, got {first=}, {count=}, {each=}, {attempt=}"
        )
    blocks = -(-each // _WORDS_PER_BLOCK)
    counter = np.array([0, 0, attempt, 0], dtype=np.uint64)
    start = first * blocks
    counter[0], counter[1] = start & 0xFFFFFFFFFFFFFFFF, start >> 64
    generator = np.random.Philox(key=_key(root_seed, names), counter=counter)
    raw = generator.random_raw(count * blocks * _WORDS_PER_BLOCK)
    return np.asarray(raw, dtype=np.uint64).reshape(count, blocks * _WORDS_PER_BLOCK)[:, :each]


def spread(items: Sequence[Item]) -> Iterator[Item]:
    """Yield the items, each once, so that the first few are spread evenly over all; the middle one is the first."""
    taken_indices = set[int]()
    for step in itertools.count():
        index = int((0.5 + step * _GOLDEN) % 1 * len(items))
        if index not in taken_indices:
            taken_indices.add(index)
            yield items[index]
        if len(taken_indices) == len(items):
            return
