"""Flipped bits and cuts: who reads the changed bytes says that they are damaged, or reads what was there before."""

import random
import re
import sys
from collections.abc import Callable, Mapping
from typing import Final

FULL: Final = {"flip": 1000, "cut": 200, "page": 100}
"""Changes of each kind of file in `make test-full`."""


def attack(
    name: str, sound: bytes, read: Callable[[bytes], object], changes: Mapping[str, int], *, says: str, seed: int
) -> dict[str, int]:
    """Try changes; fail where another number is read, or an error does not say what to do.

    Args:
        name: what is damaged, for the line that is printed.
        sound: the bytes that are changed.
        read: what is read of some bytes, in plain values; a ValueError or OSError where damage is detected.
        changes: how many bits are flipped, each alone, how many cuts are made, and how many pages of 4096 bytes are
            zeroed: "flip", "cut" and "page".
        says: a pattern that each error must match: the file, and what to do.
        seed: which changes.

    Returns:
        How many of each were detected; all others were without effect.
    """
    expected, draw = read(sound), random.Random(seed)
    found = dict.fromkeys(changes, 0)
    for kind, count in changes.items():
        for _ in range(count):
            changed = bytearray(sound)
            at, bit = draw.randrange(len(sound)), draw.randrange(8)
            if kind == "flip":
                changed[at] ^= 1 << bit
            elif kind == "cut":
                del changed[at:]
            else:
                page = slice(at - at % 4096, at - at % 4096 + 4096)
                changed[page] = bytes(len(changed[page]))
            what = f"{name}, {kind} at byte {at}, bit {bit}"
            try:
                got = read(bytes(changed))
            except (ValueError, OSError) as error:
                found[kind] += 1
                assert re.search(says, str(error), re.DOTALL), f"{what}: {error}"
            else:
                assert got == expected, f"{what}: another number"
    for kind, count in changes.items():
        without = count - found[kind]
        sys.stdout.write(f"{name}, {kind}: {count}, detected {found[kind]}, without effect {without}, changed 0\n")
    return found
