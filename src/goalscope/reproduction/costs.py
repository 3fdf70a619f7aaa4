"""What an item takes on two cores, from kept measurements, said before it starts."""

from typing import Final

from goalscope.reproduction.items import Item
from goalscope.runs import Study

SMALL: Final = "small"
"""As a scale: that of `COSTS` for the study of each item, at which all items together take less than an hour."""

COSTS: Final[dict[str, tuple[float, float, float]]] = {
    "baseline": (0.02, 10.0, 0.05),
    "key-door": (0.02, 10.0, 0.05),
    "two-path": (0.02, 10.0, 0.05),
    "cognitive-map": (0.02, 10.0, 0.05),
    "beliefs": (0.02, 10.0, 0.05),
    "plans": (0.02, 10.0, 0.05),
    "distance": (0.02, 10.0, 0.05),
    "patching": (0.02, 10.0, 0.05),
    "iso-difficulty": (0.02, 10.0, 0.05),
    "fog": (0.02, 10.0, 0.05),
    "explore-exploit": (0.02, 10.0, 0.05),
    "harness": (0.02, 10.0, 0.05),
    "semantic": (0.02, 10.0, 0.05),
    "demand": (0.02, 10.0, 0.05),
}
"""Study -> its small scale; processor seconds that it takes at any scale; further ones for each episode.

Measured with the bundled models at two scales (`benchmarks/items.py`); probes are those of a reduced scale.
"""

READING: Final = 6.0
"""Processor seconds of an item that is read from a run that is there, or computed."""
_CORES: Final = (0.5, 0.7, 1.4)
"""Seconds on two cores for a processor second: both at work throughout, as measured, and one alone and slower."""


def scale_of(item: Item, text: str) -> float:
    """Return the scale that a text stands for, a number or `SMALL`.

    Raises:
        ValueError: another text.
    """
    if text == SMALL:
        return COSTS[item.study][0] if item.study else 1.0
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--scale must be a number in (0, 1] or {SMALL!r}, got {text!r}") from None


def seconds(item: Item, study: Study | None, *, shared: bool = False) -> tuple[float, float, float] | None:
    """Return the least, the expected and the most seconds of an item on two cores, None where nothing is known.

    Args:
        item: the item.
        study: its study at the size that is run with its own agents, None for an exact item.
        shared: whether the run is there already, so that it is only read.
    """
    processor = READING
    if study is not None and not shared:
        if item.full and study.analysis is not None and study.analysis.inside is not None:
            inside = study.analysis.inside
            if inside.steps is None or inside.random is None or inside.random.seeds > 1:
                return None  # probes at the published size were not measured
        _, fixed, episode = COSTS[item.study]
        processor += fixed + episode * study.size().episodes
    low, middle, high = (processor * share for share in _CORES)
    return low, middle, high
