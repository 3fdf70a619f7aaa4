"""What a study can show before it is run: the smallest effect it sees, the smallest margin it can hold to."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from goalscope.measures.behaviour import COMPARED
from goalscope.measures.invariance import ORIGINAL, bounds_of
from goalscope.planning.shortest import shortest_length
from goalscope.rng import stream
from goalscope.rows import Rows
from goalscope.runs import Study
from goalscope.stats import (
    Paired,
    SimulatedPower,
    estimate_mean,
    minimum_detectable_effect,
    sensitivity,
    simulate_power,
    smallest_margin,
)
from goalscope.stats.estimate import factorize
from goalscope.worlds.gridworld import GridView

CHANCE = 0.8
"""Power that is planned for."""

DIFFICULTY = 0.2
"""Assumed fraction of the greatest possible variance that lies between grids, without a pilot."""

_Designs = list[tuple[str, str, str, Paired]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is assumed of the values where no pilot run says it.

    Attributes:
        mean: mean of each measure over grids, in (0, 1).
        between: standard deviation over grids of the true difference of two conditions.
    """

    mean: float = 0.8
    between: float = 0.05

    def __post_init__(self) -> None:
        if not (0 < self.mean < 1 and 0 <= self.between < 1):
            raise ValueError(
                "an assumed mean must lie between 0 and 1 (--assume-mean), a deviation in [0, 1) (--assume-between), "
                f"got {self.mean:g} and {self.between:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLine:
    """A measure of the plan, for an agent of the pilot ("" without one); NaN where there is no margin, or no variance.

    ``effect`` and ``smallest`` are what ``found`` shows of the simulated design, from the closed form.
    """

    agent: str
    measure: str
    unit: str
    design: Paired
    margin: float
    found: SimulatedPower
    effect: float
    smallest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPlan:
    """The paired comparisons of a study, and what they can show.

    Attributes:
        conditions: what is compared.
        grids, trajectories: on how many.
        family: number of tests in the family of an agent.
        level: level of the family.
        margins: declared margins by measure.
        measures: the measures of the family.
        lines: one for each measure, and for each agent of a pilot.
        left_out: agent and measure of a pilot with too few values.
    """

    conditions: str
    grids: int
    trajectories: int
    family: int
    level: float
    margins: dict[str, float]
    measures: tuple[str, ...]
    lines: tuple[PowerLine, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def hardest(self) -> float:
        """Level of the hardest test: Holm judges the smallest p of a family at level / size."""
        return self.level / self.family


def layout(study: Study) -> PowerPlan:
    """Return the paired comparisons of a study, without lines: transforms where its worlds have them, else its agents.

    Raises:
        ValueError: there is nothing to compare, or there are fewer than two grids.
    """
    transforms: dict[str, set[str]] = {}
    for world in study.worlds():
        transforms.setdefault(world.grid_id, set()).add(str(world.tags.get("transform", ORIGINAL)))
    kinds = sorted({name for there in transforms.values() for name in there if ORIGINAL in there} - {ORIGINAL})
    declared = study.analysis.invariance if study.analysis else None
    margins = dict(declared.margin) if declared else {}
    measures = tuple(margins) or COMPARED
    if kinds:
        grids = min(sum({name, ORIGINAL} <= there for there in transforms.values()) for name in kinds)
        conditions, pairs = f"each transform ({', '.join(kinds)}) against the original", len(kinds)
    else:
        names = [agent.name for agent in study.agents()]
        if len(names) < 2:
            raise ValueError(
                "power is that of a paired comparison, but the study has one agent and no transforms: add an agent, or "
                "transforms: [identity, reflect, ...] to its worlds"
            )
        grids, pairs = len(transforms), len(list(combinations(names, 2)))
        conditions = "agents, pair by pair"
    if grids < 2:
        raise ValueError(f"a paired comparison needs at least two grids, got {grids}")
    return PowerPlan(
        conditions=conditions,
        grids=grids,
        trajectories=study.trajectories,
        family=pairs * len(measures),
        level=declared.level if declared else 0.05,
        margins=margins,
        measures=measures,
    )


def study_power(study: Study, pilot: Rows | None = None, assumed: Assumptions | None = None) -> PowerPlan:
    """Return the effects and the equivalence margins that a study can show.

    Args:
        study: the study.
        pilot: rows of a run whose variances count; None for assumed ones.
        assumed: what is assumed where no pilot says it, the defaults where None.

    Raises:
        ValueError: task worlds, nothing to compare, a pilot without the measures or with too few values, or a measure
            that needs a pilot.
    """
    if not issubclass(study.view, GridView):
        raise ValueError(
            f"power must be that of a study of grids, got one of {study.view.shows}: its errors have no model yet"
        )
    shape, given = layout(study), assumed or Assumptions()
    designs, left_out = (_assumed(study, shape, given), []) if pilot is None else _piloted(study, pilot, shape, given)
    lines = tuple(_planned(agent, name, unit, design, shape) for agent, name, unit, design in designs)
    return replace(shape, lines=lines, left_out=tuple(left_out))


def _planned(agent: str, measure: str, unit: str, design: Paired, shape: PowerPlan) -> PowerLine:
    margin, normal = shape.margins.get(measure, math.nan), design.closed_form()

    def possible(closed_form: Callable[..., float]) -> float:
        """Return what a closed form says, NaN where it is more than two fractions can differ by."""
        found = math.nan if normal is None else closed_form(normal, chance=CHANCE, level=shape.hardest)
        return math.nan if design.share and found >= 1 else found

    tested = None if math.isnan(margin) else margin
    return PowerLine(
        agent=agent,
        measure=measure,
        unit=unit,
        design=design,
        margin=margin,
        found=simulate_power(design, seed=0, chance=CHANCE, level=shape.hardest, margin=tested),
        effect=possible(minimum_detectable_effect),
        smallest=possible(smallest_margin),
    )


def _assumed(study: Study, shape: PowerPlan, assumed: Assumptions) -> _Designs:
    """Return the assumed design of each measure: binomial noise, of one success or of the steps of an episode."""
    foreign = [name for name in shape.measures if name not in COMPARED]
    if foreign:
        raise ValueError(
            f"variances can be assumed for {' and '.join(COMPARED)} only, the study also names {'; '.join(foreign)}: "
            "measure a small run of it and give that as the pilot (--pilot RUN)"
        )
    room = assumed.mean * (1 - assumed.mean)
    noise = (1 - DIFFICULTY) * room
    steps = float(np.mean([1 / max(1, shortest_length(world.grid)) for world in study.worlds()]))

    def design(name: str) -> Paired:
        return Paired(
            grids=shape.grids,
            trajectories=shape.trajectories,
            mean=assumed.mean,
            spread=math.sqrt(DIFFICULTY * room),
            between=assumed.between,
            within=math.sqrt(noise if name == "success" else noise * steps),
        )

    return [("", name, "share", design(name)) for name in shape.measures]


def _piloted(
    study: Study, rows: Rows, shape: PowerPlan, assumed: Assumptions
) -> tuple[_Designs, list[tuple[str, str]]]:
    """Return the design of each agent and measure with the variances of a run: the study's agents, or else all."""
    known = list(dict.fromkeys(rows.measure.tolist()))
    missing = [name for name in shape.measures if name not in known]
    if missing:
        raise ValueError(f"the pilot must hold the measures {'; '.join(missing)}, it has {'; '.join(known)}")
    found: _Designs = []
    left_out: list[tuple[str, str]] = []
    there = list(dict.fromkeys(map(str, rows["agent"].tolist())))
    planned = {agent.name for agent in study.agents()}
    chosen = [name for name in there if name in planned]
    if chosen:
        left_out += [(name, measure) for name in sorted(planned - set(chosen)) for measure in shape.measures]
    for agent in chosen or there:
        for name in shape.measures:
            mine = rows.select(measure=name, agent=agent)
            design = _from_rows(mine, shape, assumed)
            if design is None:
                left_out.append((agent, name))
            else:
                found.append((agent, name, str(mine.unit[0]), design))
    if not found:
        raise ValueError("the pilot must hold two grids with two trajectories each, it has too few")
    return found, left_out


def _from_rows(rows: Rows, shape: PowerPlan, assumed: Assumptions) -> Paired | None:
    """Return the design with the variances of one agent's values of one measure, None where there are too few."""
    bounds = bounds_of(rows)
    plain = rows.where(_is_original(rows))
    plain = plain.where(~np.isnan(plain.value))
    codes, _ = factorize(plain.grid_id)
    order = np.argsort(codes, kind="stable")
    parts = np.split(plain.value[order], np.cumsum(np.bincount(codes))[:-1]) if len(codes) else []
    grids = [values for values in parts if len(values) > 1]
    if len(grids) < 2:
        return None
    means = np.array([values.mean() for values in grids])
    within = float(np.mean([values.var(ddof=1) for values in grids]))
    noise = float(np.mean([values.var(ddof=1) / len(values) for values in grids]))
    fraction, mean = bounds == (0.0, 1.0), float(means.mean())
    most = mean * (1 - mean) if fraction else math.inf
    variance = min(max(0.0, float(means.var(ddof=1)) - noise), most)
    between = _between(rows, plain, bounds)
    return Paired(
        grids=shape.grids,
        trajectories=shape.trajectories,
        mean=mean,
        spread=math.sqrt(variance),
        between=assumed.between if between is None else between,
        within=math.sqrt(within),
        share=fraction,
    )


def _between(rows: Rows, plain: Rows, bounds: tuple[float, float]) -> float | None:
    """Return the standard deviation over grids of the true difference that a transform made, None without transforms.

    The mean over all transforms: of each the mean squared true difference less the square of the mean.
    """
    found: list[float] = []
    others: Sequence[str] = sorted(set(map(str, rows.tags.get("transform", ()))) - {ORIGINAL, "None"})
    for name in others:
        changed = rows.select(transform=name)
        sides = (changed.value, changed.grid_id, plain.value, plain.grid_id)
        rng = stream(0, "pilot", name)
        square = sensitivity(*sides, unit="", bounds=bounds, rng=rng, draws=1).square
        after, before = (estimate_mean(side.value, side.grid_id, unit="").value for side in (changed, plain))
        if not (math.isnan(square.value) or math.isnan(after - before)):
            found.append(square.value - (after - before) ** 2)
    return math.sqrt(max(0.0, float(np.mean(found)))) if found else None


def _is_original(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    names = rows.tags.get("transform", np.full(len(rows), ORIGINAL, dtype=object)).tolist()
    return np.array([name in (ORIGINAL, None) for name in names], dtype=bool)
