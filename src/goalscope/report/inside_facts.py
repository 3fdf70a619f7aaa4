"""On how much the numbers about activations stand: steps and grids of both parts of the split, places, settings."""

import math
from collections.abc import Mapping
from typing import Any, Final

from goalscope.probing.pipeline import INFO
from goalscope.report.parts import Section, counted, listed
from goalscope.runs import Store

_TITLES: Final[Mapping[str, str]] = {
    "cognitive-map": "Cognitive map",
    "beliefs": "Actions against decoded beliefs",
    "plans": "Decoded plans",
    "distance": "Decoded distance to the goal",
}
_COUNTS: Final = ("training grids", "training steps", "test grids", "test steps", "steps left out")
_TEXT: Final = (
    "Probes are fitted on some grids and scored on others: all steps of a grid, and all its turned versions, are on "
    "one side. Intervals are over the tested grids, for the probes that were fitted; another split or other first "
    "weights would give other probes. Grids with different ids may have the same walls, which a probe may know by "
    "heart: their share is said."
)


def inside_facts(store: Store) -> list[Section]:
    """Return on how many grids and steps each reading of activations stands; nothing where none was made.

    Raises:
        ValueError: what the run keeps about them is not what goalscope writes.
    """
    stored = store.info().get(INFO)
    if not stored:
        return []
    try:
        facts = tuple((title, _said(stored[name])) for name, title in _TITLES.items() if name in stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{store.path} must say soundly what was read out of activations, but: {error!r}") from error
    return [Section(anchor="inside", title="What was read out of activations", paragraphs=(_TEXT,), facts=facts)]


def _said(about: Mapping[str, Any]) -> str:
    grids, steps, tested, scored, gone = (_count(about[name]) for name in _COUNTS)
    known = about["known walls"]
    if isinstance(known, bool) or not isinstance(known, int | float) or not (math.isfinite(known) and 0 <= known <= 1):
        raise ValueError(f"known walls is {known!r}")
    layers = [str(_count(layer)) for layer in about["layers"]]
    left = f"; {counted(gone, 'step')} left out, where not all sites are there" if gone else ""
    return (
        f"{about['agent']}: {listed([str(site) for site in about['sites']])}, layer{'' if len(layers) == 1 else 's'} "
        f"{listed(layers)}. Fitted on {counted(grids, 'grid')} ({counted(steps, 'step')}), tested on "
        f"{counted(tested, 'grid')} ({counted(scored, 'step')}){left}. The wall maps of {100 * known:.0f} % of the "
        "tested grids stand in the other part, too."
    )


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"a count is {value!r}")
    return value
