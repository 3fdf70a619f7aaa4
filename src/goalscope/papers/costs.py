"""Estimates of how long each item takes on two cores, computed from stored measurements."""

from typing import Final

from goalscope.papers.item import Item
from goalscope.runs import Study

SMALL: Final = "small"
"""As a scale: that of `COSTS` for the study of each item, at which all items together take less than an hour."""

COSTS: Final[dict[str, tuple[float, float, float, float]]] = {
    "baseline": (0.02, 20.0, 0.033, 3.0),
    "key-door": (0.1, 4.0, 0.038, 2.5),
    "two-path": (0.1, 6.0, 0.05, 2.0),
    "cognitive-map": (0.02, 57.0, 0.3, 8.0),
    "beliefs": (0.02, 56.0, 0.3, 3.5),
    "plans": (0.02, 28.0, 0.3, 5.0),
    "distance": (0.02, 37.0, 0.3, 5.0),
    "patching": (0.02, 30.0, 5.0, 5.0),
    "iso-difficulty": (0.02, 14.0, 0.072, 5.5),
    "fog": (0.02, 8.0, 0.12, 4.0),
    "explore-exploit": (0.02, 64.0, 2.3, 4.0),
    "harness": (0.02, 20.0, 2.3, 4.0),
    "semantic": (0.1, 1.0, 0.005, 1.0),
    "demand": (0.1, 1.5, 0.01, 1.5),
}
"""Study -> its small scale; processor seconds of its run at any scale, for each episode, and of reading an item.

Kept measurements with the bundled models (`goalscope reproduce --all` prints what each item took), with one thread;
probes and patches are those of a reduced scale.
"""
_COMPUTED: Final = {"cliff": 3.0}  # seconds of these exact items; other exact items take 1.5
_CORES: Final = (0.5, 0.7, 1.4)
"""Seconds on two cores for a processor second: both at work throughout, as measured, and one alone and slower."""


def scale_of(item: Item, text: str) -> float:
    """Parse the option --scale, which is a number or `SMALL`.

    Raises:
        ValueError: any other text.
    """
    if text == SMALL:
        return COSTS[item.study][0] if item.study else 1.0
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--scale must be a number in (0, 1] or {SMALL!r}, got {text!r}") from None


def seconds(item: Item, study: Study | None, *, shared: bool = False) -> tuple[float, float, float] | None:
    """Estimate the least, expected and greatest number of seconds that an item takes on two cores; None if unknown.

    Args:
        item: the item.
        study: the study of the item, at the size to be run and with the item's own agents; None for an exact item.
        shared: whether the run already exists, so that it only needs to be read.
    """
    processor = _COMPUTED.get(item.exact.partition(" ")[0], 1.5)
    if study is not None:
        _, fixed, episode, reading = COSTS[item.study]
        processor = reading + (0.0 if shared else fixed + episode * study.size().episodes)
        if not shared and item.full and study.analysis is not None and study.analysis.inside is not None:
            inside = study.analysis.inside
            if inside.steps is None or inside.random is None or inside.random.seeds > 1:
                return None  # the time of probes at the published size was not measured
    low, middle, high = (processor * share for share in _CORES)
    return low, middle, high
