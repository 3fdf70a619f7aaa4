"""Curves over the distance to the goal, and tables of size x density x distance.

The measures here emit one row for each group and distance, tagged ``distance``; size and density are tags of worlds.
With `estimate_rows`, ``by=("agent", "size", "density", "distance_band")`` is the table, ``by=("agent", "distance")``
the curve. The accuracy curve comes from the rows of `ActionOptimality`, which carry the same tag.

Source: behavioural and representational evaluation, Fig. 4.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from goalscope.measures.measure import Measure, StepTable, group_rows
from goalscope.measures.performance import distance_tag
from goalscope.measures.uncertainty import (
    ENOUGH_VISITS,
    Part,
    check_least,
    check_part,
    full_name,
    state_divergence,
    state_entropy,
)
from goalscope.measures.visits import Visits
from goalscope.rows import Rows
from goalscope.shapes import check_whole

Quantity = Literal["policy entropy", "JSD from optimal"]
_QUANTITIES = {"policy entropy": (state_entropy, 2.0), "JSD from optimal": (state_divergence, 1.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceProfile:
    """A quantity of the visited states by their distance to the goal; one row for each group and distance.

    Attributes:
        quantity: "policy entropy" or "JSD from optimal".
        part: "observed", "optimal baseline" or "excess".
        least_visits: states with fewer visits are left out; the main curves use states with enough visits.
    """

    quantity: Quantity
    part: Part = "observed"
    least_visits: int = ENOUGH_VISITS
    unit: str = "bits"

    def __post_init__(self) -> None:
        if self.quantity not in _QUANTITIES:
            raise ValueError(f"quantity must be one of {', '.join(_QUANTITIES)}, got {self.quantity!r}")
        check_part(self.part)
        check_least(self.least_visits)

    @property
    def name(self) -> str:
        """The quantity, its part, its restriction, and that it is told by distance."""
        return f"{full_name(self.quantity, self.part, self.least_visits)}, by distance"

    @property
    def bounds(self) -> tuple[float, float]:
        """Those of the quantity."""
        most = _QUANTITIES[self.quantity][1]
        return (-most if self.part == "excess" else 0.0), most

    def rows(self, table: StepTable) -> Rows:
        """Return the mean over the states of each group and distance."""
        visits = table.once(Visits.from_table).at_least(self.least_visits)
        value = _QUANTITIES[self.quantity][0](visits, self.part)
        span = int(visits.distance.max(initial=0)) + 1
        cell, where = np.unique(visits.group * span + visits.distance, return_inverse=True)
        mean = np.bincount(where, weights=value, minlength=len(cell)) / np.bincount(where, minlength=len(cell))
        group, distance = np.divmod(cell, span)
        return group_rows(table, self.name, self.unit, mean, visits.first[group], {"distance": distance_tag(distance)})


def with_distance_bands(rows: Rows, width: int) -> Rows:
    """Return rows with a tag ``distance_band`` such as "05-08", so that sparse distances can be shown together.

    Args:
        rows: rows with the tag ``distance`` in steps, None where there is none.
        width: distances in one band, >= 1; the bands are 1..width, width + 1..2 width, ...

    Raises:
        ValueError: a width below 1.
        KeyError: no row has the tag ``distance``.
    """
    check_whole("width", width, 1, "steps")
    distances = rows["distance"].tolist()
    band: dict[Any, str] = {}
    for distance in set(distances) - {None}:
        if distance >= 1:
            least = (int(distance) - 1) // width * width + 1
            band[distance] = f"{least:02d}-{least + width - 1:02d}" if width > 1 else f"{least:02d}"
    bands = np.empty(len(rows), dtype=object)
    bands[:] = list(map(band.get, distances))
    return Rows(
        measure=rows.measure,
        unit=rows.unit,
        value=rows.value,
        grid_id=rows.grid_id,
        episode_id=rows.episode_id,
        step=rows.step,
        tags={**rows.tags, "distance_band": bands},
    )


PROFILES: tuple[Measure, ...] = (
    *(DistanceProfile(quantity="policy entropy", part=part) for part in ("observed", "excess")),
    *(DistanceProfile(quantity="JSD from optimal", part=part) for part in ("observed", "excess")),
)
"""Entropy and divergence by distance, over states with enough visits."""
