"""Random streams derived by name from one root seed.

Every random number of a study comes from a Philox counter-based generator whose key is the hash of the root seed and a
tuple of names. So neither the number of workers nor the order of work can change a result, and a block of draws for
item ``i`` has the same bytes whether it is drawn alone or with a thousand others.
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

_WORDS_PER_BLOCK = 4  # Philox-4x64 yields four 64-bit words per value of its counter
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
Item = TypeVar("Item")
_encode = json.JSONEncoder(separators=(",", ":")).encode


def _digest(root_seed: int, names: tuple[str | int | float, ...]) -> bytes:
    if isinstance(root_seed, bool) or not isinstance(root_seed, int | np.integer):
        raise TypeError(f"a root seed must be a whole number, got {root_seed!r} of type {type(root_seed).__name__}")
    if not names:
        raise ValueError("a random stream must have at least one name, got none: name the purpose of the numbers")
    return hashlib.sha256(_encode([int(root_seed), *names]).encode()).digest()


def _key(root_seed: int, names: tuple[str | int | float, ...]) -> int:
    return int.from_bytes(_digest(root_seed, names)[:16], "little")


def stream(root_seed: int, *names: str | int | float) -> np.random.Generator:
    """Return the random generator with a name, derived from the root seed of a study.

    Args:
        root_seed: the only seed of the study; any integer, including 0.
        names: the name, in parts: what the random numbers are for, e.g. ``("agent", episode_id, step)``.

    Returns:
        A Philox generator. Equal arguments give equal streams, different names independent ones.

    Raises:
        TypeError: if the root seed is not an integer.
        ValueError: if no name is given.
    """
    return np.random.Generator(np.random.Philox(key=_key(root_seed, names)))


def uniform(root_seed: int, *names: str | int | float) -> float:
    """Return one uniform random number in [0, 1), determined by the root seed of a study and a name.

    For a single number this is about twenty times faster than `stream`. It uses another part of the hash than `stream`,
    so the number is independent of the stream with the same name.

    Args:
        root_seed: the only seed of the study.
        names: the name, in parts: what the number is for, e.g. ``("agent", episode_id, step)``.

    Raises:
        TypeError: if the root seed is not an integer.
        ValueError: if no name is given.
    """
    return (int.from_bytes(_digest(root_seed, names)[16:24], "little") >> 11) * 2.0**-53


def uniforms(heads: Sequence[bytes], *names: str | int | float) -> npt.NDArray[np.float64]:
    """Return N uniform random numbers in [0, 1), for N names that begin differently and end alike.

    The numbers are bit for bit those of `uniform`, but are computed faster.

    Args:
        heads: N beginnings of names, from `heads`.
        names: the common end of the names, in parts, at least one.

    Returns:
        ``[N]`` numbers.
    """
    tail = b"," + _encode(names)[1:].encode()
    digests = b"".join([hashlib.sha256(head + tail).digest() for head in heads])
    return (np.frombuffer(digests, dtype="<u8")[2::4] >> np.uint64(11)).astype(np.float64) * 2.0**-53


def heads(root_seed: int, *names: str | int | float, each: Iterable[str]) -> list[bytes]:
    """Return the common beginning of names of random numbers for each of several texts, to be completed by `uniforms`.

    Splitting names like this saves time where many numbers are drawn whose names end alike.

    Args:
        root_seed: the only seed of the study.
        names: first parts that all names have in common.
        each: the next part of each name, one text per name.

    Returns:
        One beginning per text, as bytes.
    """
    begin = _encode([int(root_seed), *names])[:-1]
    return [f"{begin},{encode_basestring_ascii(text)}".encode() for text in each]


def words(
    root_seed: int, *names: str | int | float, first: int, count: int, each: int, attempt: int = 0
) -> npt.NDArray[np.uint64]:
    """Return raw random 64-bit words of a named series, for a range of its items (such as the worlds of a study).

    Args:
        root_seed: the only seed of the study.
        names: the name of the series, in parts.
        first: index of the first item, >= 0.
        count: number of items.
        each: number of words per item; another number gives another series.
        attempt: number of the redraw; each attempt has its own words.

    Returns:
        ``[count, each]`` uint64, items by words. The row of an item depends only on its index ``first + j``, not on
        ``first`` or ``count``.

    Raises:
        TypeError: if the root seed is not an integer.
        ValueError: if no name is given, or a number is out of range.
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
    """Yield each item of a sequence once, reordered so that the first few are spread evenly over the sequence.

    The middle item comes first. This serves to try a representative few of many items.
    """
    taken_indices = set[int]()
    for step in itertools.count():
        index = int((0.5 + step * _GOLDEN) % 1 * len(items))
        if index not in taken_indices:
            taken_indices.add(index)
            yield items[index]
        if len(taken_indices) == len(items):
            return
