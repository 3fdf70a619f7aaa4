"""MiniGrid's missions as arrays of numbers: either one indicator per character, or one number per word."""

from typing import Final

import numpy as np
import numpy.typing as npt

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,"
_LONGEST_MISSION = 96

MOST_WORDS: Final = 64
"""Length to which missions are padded with 0: the number of words in BabyAI's longest instruction."""

_WORDS = (
    "a after and at avoid ball behind blue box door end fetch find from front get go goal green grey hallway in "
    "key lava left matching maze must near next object of on open opening pick purple put reach red right room "
    "rooms square the then to traverse unlock up use yellow you your"
)
WORDS: Final = tuple(_WORDS.split())
"""Word of the missions of MiniGrid and BabyAI -> its number, beginning with 1."""
_NUMBERS: Final = {word: number for number, word in enumerate(WORDS, 1)}


def indicators(mission: str) -> npt.NDArray[np.uint8]:
    """Return ``[96 * 28]``: for each position of a mission, which of the 28 characters is there.

    Raises:
        ValueError: the mission is too long or has other characters.
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
    """Return ``[64]``: the number of each word of a mission in `WORDS`, without commas, then 0 after the last word.

    Raises:
        ValueError: the mission is too long or has other words.
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
