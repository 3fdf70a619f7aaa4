"""MiniGrid's missions as numbers: characters as indicators, or words by a vocabulary that is stated here."""

from typing import Final

import numpy as np
import numpy.typing as npt

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,"
_LONGEST_MISSION = 96

MOST_WORDS: Final = 64
"""Length to which missions are filled up with 0: BabyAI's longest instruction has as many words."""

_WORDS = (
    "a after and at avoid ball behind blue box door end fetch find from front get go goal green grey hallway in "
    "key lava left matching maze must near next object of on open opening pick purple put reach red right room "
    "rooms square the then to traverse unlock up use yellow you your"
)
WORDS: Final = tuple(_WORDS.split())
"""The words of the missions of MiniGrid and BabyAI; the first one has the number 1."""
_NUMBERS: Final = {word: number for number, word in enumerate(WORDS, 1)}


def indicators(mission: str) -> npt.NDArray[np.uint8]:
    """Return ``[96 * 28]``: which character stands at each place of a mission.

    Raises:
        ValueError: a longer mission, or one with other characters.
    """
    mission = mission.lower()
    if len(mission) > _LONGEST_MISSION or not set(mission) <= set(_CHARACTERS):
        raise ValueError(
            f"a mission that is shown as an array must have at most {_LONGEST_MISSION} letters, spaces and commas, got "
            f"{mission!r:.200}: choose another array"
        )
    rows = np.zeros((_LONGEST_MISSION, len(_CHARACTERS)), dtype=np.uint8)
    rows[np.arange(len(mission)), [_CHARACTERS.index(character) for character in mission]] = 1
    return rows.ravel()


def tokens(mission: str) -> npt.NDArray[np.uint8]:
    """Return ``[64]``: the number of each word of a mission in `WORDS`, commas left out, 0 after the last one.

    Raises:
        ValueError: a longer mission, or one with other words.
    """
    words = mission.lower().replace(",", " ").split()
    unknown = [word for word in words if word not in _NUMBERS]
    if unknown or len(words) > MOST_WORDS:
        raise ValueError(
            f"a mission that is shown as numbers must have at most {MOST_WORDS} words of MiniGrid's and BabyAI's "
            f"missions, got {len(words)}{', among them ' + ', '.join(unknown) if unknown else ''}: choose another array"
        )
    numbers = np.zeros(MOST_WORDS, dtype=np.uint8)
    numbers[: len(words)] = [_NUMBERS[word] for word in words]
    return numbers
