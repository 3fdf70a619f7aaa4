"""Power of a planned study: the smallest detectable effects and equivalence margins, and which hypotheses its worlds
are enough to name.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import isfinite

import numpy as np

from goalscope._ground.rng import stream
from goalscope._ground.words import counted, listed
from goalscope.goals.decision import noun_in
from goalscope.goals.hypotheses import Hypothesis, Undefined, bind, finite_world
from goalscope.goals.hypotheses.definition import FiniteWorld, Mask, steps_in
from goalscope.goals.hypotheses.design import LAPSES, POWER, Need, needed
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.reading import by_phase, default_hypotheses, hypotheses_of
from goalscope.measures.behaviour import COMPARED
from goalscope.measures.comparison import ORIGINAL, bounds_of
from goalscope.runs import Study
from goalscope.stats import (
    Paired,
    SimulatedPower,
    estimate_mean,
    sensitivity,
    simulate_power,
)
from goalscope.stats.estimate import factorize
from goalscope.stats.rows import Rows
from goalscope.verdict.texts import TEXTS, percent
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.planning.shortest import shortest_length

CHANCE = 0.8
"""Planned power, the probability of detecting an effect."""

DIFFICULTY = 0.2
"""Assumed share of the maximum possible variance that lies between grids, if there is no pilot."""

_Designs = list[tuple[str, str, str, Paired]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is assumed about the values of measures, to compute the power of a study without a pilot run.

    Attributes:
        mean: mean of each measure over grids, in (0, 1).
        between: standard deviation over grids of the true difference of two conditions.

    Raises:
        ValueError: a value is out of range.
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
    """The power of the comparisons of two conditions in one measure: which differences they detect, and how often.

    Attributes:
        agent: the agent of the pilot run that provides the variances; "" without a pilot.
        measure, unit: name and unit of the measure.
        design: number of grids and episodes, and the variances.
        margin: greatest difference that the study declares to be negligible; NaN if none is declared.
        found: the simulated power.
    """

    agent: str
    measure: str
    unit: str
    design: Paired
    margin: float
    found: SimulatedPower


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPlan:
    """The paired comparisons of a study, and which differences they can show (their power).

    Attributes:
        conditions: the compared conditions.
        grids, trajectories: number of grids, and of episodes per grid.
        family: number of tests in the family of one agent.
        level: family-wise level.
        margins: declared equivalence margins by measure.
        measures: the measures of the family.
        lines: one for each measure and each agent of a pilot.
        left_out: agents and measures of a pilot with too few values.
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
        """Error level of the strictest test: Holm's correction tests the smallest of n p values at the level ``level /
        n``.
        """
        return self.level / self.family


def layout(study: Study) -> PowerPlan:
    """Determine which paired comparisons a study makes; the power of each is not computed yet.

    If its worlds are transformed (mirrored, for example), each transform is compared with the original; otherwise the
    agents are compared pair by pair.

    Raises:
        ValueError: there is nothing to compare, or there are fewer than two grids.
    """
    transforms: dict[str, set[str]] = {}
    for world in study.worlds():
        transforms.setdefault(world.cluster_id, set()).add(str(world.tags.get("transform", ORIGINAL)))
    transform_names = sorted(
        {name for names_of_grid in transforms.values() for name in names_of_grid if ORIGINAL in names_of_grid}
        - {ORIGINAL}
    )
    declared = study.analysis.invariance if study.analysis else None
    margins = dict(declared.margin) if declared else {}
    measures = tuple(margins) or COMPARED
    if transform_names:
        grids = min(
            sum({name, ORIGINAL} <= names_of_grid for names_of_grid in transforms.values()) for name in transform_names
        )
        conditions, pairs = f"each transform ({', '.join(transform_names)}) against the original", len(transform_names)
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
    """Compute which effects the comparisons of a study can detect, and which equivalence margins they can confirm.

    An equivalence margin is the greatest difference that counts as negligible.

    Args:
        study: the study.
        pilot: rows of a run that provides the variances; None to assume them.
        assumed: assumptions without a pilot; None for the defaults.

    Returns:
        The comparisons of the study, and the power of each measure (for each agent of the pilot).

    Raises:
        ValueError: the study has task worlds or nothing to compare, the pilot lacks the measures or has too few values,
            or a measure needs a pilot.
    """
    if not issubclass(study.view, GridView):
        raise ValueError(
            f"power must be that of a study of grids, got one of {study.view.shows}: its errors have no model yet"
        )
    plan, assumptions = layout(study), assumed or Assumptions()
    designs, left_out = (
        (_assumed_designs(study, plan, assumptions), [])
        if pilot is None
        else _pilot_designs(study, pilot, plan, assumptions)
    )
    lines = tuple(_power_line(agent, name, unit, design, plan) for agent, name, unit, design in designs)
    return replace(plan, lines=lines, left_out=tuple(left_out))


def _power_line(agent: str, measure: str, unit: str, design: Paired, plan: PowerPlan) -> PowerLine:
    margin = plan.margins.get(measure, math.nan)
    tested_margin = None if math.isnan(margin) else margin
    return PowerLine(
        agent=agent,
        measure=measure,
        unit=unit,
        design=design,
        margin=margin,
        found=simulate_power(design, seed=0, chance=CHANCE, level=plan.hardest, margin=tested_margin),
    )


def _assumed_designs(study: Study, plan: PowerPlan, assumed: Assumptions) -> _Designs:
    """Return the assumed design of each measure.

    Its noise is binomial, over one success or over the steps of an episode.
    """
    unsupported = [name for name in plan.measures if name not in COMPARED]
    if unsupported:
        raise ValueError(
            f"variances can be assumed for {' and '.join(COMPARED)} only, the study also names "
            f"{'; '.join(unsupported)}: measure a small run of it and give that as the pilot (--pilot RUN)"
        )
    largest_variance = assumed.mean * (1 - assumed.mean)
    noise = (1 - DIFFICULTY) * largest_variance
    steps = float(np.mean([1 / max(1, shortest_length(world.grid)) for world in study.worlds()]))

    def design(name: str) -> Paired:
        return Paired(
            grids=plan.grids,
            trajectories=plan.trajectories,
            mean=assumed.mean,
            spread=math.sqrt(DIFFICULTY * largest_variance),
            between=assumed.between,
            within=math.sqrt(noise if name == "success" else noise * steps),
        )

    return [("", name, "share", design(name)) for name in plan.measures]


def _pilot_designs(
    study: Study, rows: Rows, plan: PowerPlan, assumed: Assumptions
) -> tuple[_Designs, list[tuple[str, str]]]:
    """Return the design of each agent and measure with the variances of a run, for the study's agents if it has them,
    otherwise for all.
    """
    pilot_measures = list(dict.fromkeys(rows.measure.tolist()))
    missing = [name for name in plan.measures if name not in pilot_measures]
    if missing:
        raise ValueError(f"the pilot must hold the measures {'; '.join(missing)}, it has {'; '.join(pilot_measures)}")
    designs: _Designs = []
    left_out: list[tuple[str, str]] = []
    pilot_agents = list(dict.fromkeys(map(str, rows["agent"].tolist())))
    study_agents = {agent.name for agent in study.agents()}
    chosen = [name for name in pilot_agents if name in study_agents]
    if chosen:
        left_out += [(name, measure) for name in sorted(study_agents - set(chosen)) for measure in plan.measures]
    for agent in chosen or pilot_agents:
        for name in plan.measures:
            selected = rows.select(measure=name, agent=agent)
            design = _design_from_rows(selected, plan, assumed)
            if design is None:
                left_out.append((agent, name))
            else:
                designs.append((agent, name, str(selected.unit[0]), design))
    if not designs:
        raise ValueError("the pilot must hold two grids with two trajectories each, it has too few")
    return designs, left_out


def _design_from_rows(rows: Rows, plan: PowerPlan, assumed: Assumptions) -> Paired | None:
    """Return the design with the variances of one agent's values of one measure; None if there are too few values."""
    bounds = bounds_of(rows)
    original = rows.where(_is_original(rows))
    original = original.where(~np.isnan(original.value))
    codes, _ = factorize(original.cluster)
    order = np.argsort(codes, kind="stable")
    values_by_grid = np.split(original.value[order], np.cumsum(np.bincount(codes))[:-1]) if len(codes) else []
    grids = [values for values in values_by_grid if len(values) > 1]
    if len(grids) < 2:
        return None
    means = np.array([values.mean() for values in grids])
    within = float(np.mean([values.var(ddof=1) for values in grids]))
    noise = float(np.mean([values.var(ddof=1) / len(values) for values in grids]))
    fraction, mean = bounds == (0.0, 1.0), float(means.mean())
    largest_variance = mean * (1 - mean) if fraction else math.inf
    variance = min(max(0.0, float(means.var(ddof=1)) - noise), largest_variance)
    between = _difference_deviation(rows, original, bounds)
    return Paired(
        grids=plan.grids,
        trajectories=plan.trajectories,
        mean=mean,
        spread=math.sqrt(variance),
        between=assumed.between if between is None else between,
        within=math.sqrt(within),
        share=fraction,
    )


def _difference_deviation(rows: Rows, original: Rows, bounds: tuple[float, float]) -> float | None:
    """Return the standard deviation over grids of the true difference between transform and original.

    The variance is the mean over all transforms of (mean squared true difference minus the square of the mean
    difference). None without transforms.
    """
    variances: list[float] = []
    transforms: Sequence[str] = sorted(set(map(str, rows.tags.get("transform", ()))) - {ORIGINAL, "None"})
    for name in transforms:
        transformed = rows.select(transform=name)
        sides = (transformed.value, transformed.cluster, original.value, original.cluster)
        rng = stream(0, "pilot", name)
        square = sensitivity(*sides, unit="", bounds=bounds, rng=rng, draws=1).square
        after, before = (estimate_mean(side.value, side.cluster, unit="").value for side in (transformed, original))
        if not (math.isnan(square.value) or math.isnan(after - before)):
            variances.append(square.value - (after - before) ** 2)
    return math.sqrt(max(0.0, float(np.mean(variances)))) if variances else None


def _is_original(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    names = rows.tags.get("transform", np.full(len(rows), ORIGINAL, dtype=object)).tolist()
    return np.array([name in (ORIGINAL, None) for name in names], dtype=bool)


_ALONE = ("strength", "consistency", "steps")
"""Conditions for naming a hypothesis that do not depend on its rivals."""


_MOST_DECISIONS = 2_000_000
"""Maximum number of states times decisions of an episode, over all worlds; above it this takes over 20 s of processor
time, and may take longer than the evaluation.
"""

_MOST_SENTENCES = 5
"""Number of hypotheses with too few worlds up to which there is a sentence for each."""


def told_beforehand(study: Study, *, level: float) -> list[str]:
    """Say before a study is run which hypotheses it has enough worlds to name; sentences for each phase (group of
    worlds).

    For each hypothesis with too few worlds, a sentence names the condition or the rival hypothesis that requires most
    worlds. All others are listed in one sentence for each of `LAPSES` (probabilities of a random move). The numbers
    follow from the distribution of the consistency score (`goalscope.goals.hypotheses.design`), with two answers per
    step.

    Args:
        study: the study, with the planned number of worlds.
        level: error rate of each one-sided end of the score.
    """
    worlds_of_study, sentences = study.worlds(), list[str]()
    usual = "environment" in worlds_of_study[0].offers and (study.analysis is None or not study.analysis.hypotheses)
    hypotheses = default_hypotheses(worlds_of_study) if usual else hypotheses_of(study)
    bank = {name: bind(hypothesis, worlds_of_study) for name, hypothesis in hypotheses.items()}
    for phase, worlds in by_phase(worlds_of_study).items():
        prefix, clusters, finites = f"phase {phase}: " if phase else "", set[str](), list[FiniteWorld]()
        for world in worlds:
            try:
                finites.append(finite_world(world, study.horizon.of(world)))
            except Undefined:
                continue
            clusters.add(world.cluster or world.id)
        if len(clusters) < FEWEST:
            few = counted(len(clusters), "world")
            sentences.append(TEXTS("plan/too few for any", where=prefix, worlds=few, fewest=FEWEST))
            continue
        steps = _steps_among(bank, finites)  # no goals to plan for: the verdict names them as on the way
        rest = {name: hypothesis for name, hypothesis in bank.items() if name not in steps}
        if not rest or sum(finite.process.states * finite.horizon for finite in finites) > _MOST_DECISIONS:
            continue
        # In environments one lapse rate, since what takes a second in a grid takes a minute there.
        lapses = LAPSES if "grid" in worlds[0].offers else LAPSES[1:2]
        needs = needed(rest, worlds, horizon=study.horizon.of, level=level, episodes=study.trajectories, lapses=lapses)
        sentences += needs_in_words(
            prefix, needs, len(clusters), max(lapses), partial(noun_in, bank=bank, worlds=worlds)
        )
    return sentences


def _steps_among(bank: Mapping[str, Hypothesis], finites: Sequence[FiniteWorld]) -> set[str]:
    """Return the names of the hypotheses that are an intermediate step to another one in some world."""
    names, steps = list(bank), set[int]()
    for finite in finites:
        masks = dict[int, Mask]()
        for number, hypothesis in enumerate(bank.values()):
            with suppress(Undefined):
                if hypothesis.kind in ("place", "event"):
                    masks[number] = hypothesis.where(finite)
        events = {number: mask for number, mask in masks.items() if list(bank.values())[number].kind == "event"}
        steps |= {step for _, step in steps_in(finite, masks, events)}
    return {names[step] for step in steps}


def needs_in_words(
    prefix: str, needs_of_all: Sequence[Need], count: int, lapse: float, noun: Callable[[str], str]
) -> Iterator[str]:
    """Yield sentences that compare the number of planned worlds with what is needed to name each hypothesis.

    Args:
        prefix: beginning of each sentence, such as "phase trained: ".
        needs_of_all: the needed numbers of worlds, from `goalscope.goals.hypotheses.design.needed`.
        count: number of the planned worlds.
        lapse: the highest lapse rate (probability of a random move) among the needs.
        noun: function from the name of a hypothesis to its noun phrase.
    """
    names, worlds = list(dict.fromkeys(need.name for need in needs_of_all)), counted(count, "world")
    short = [need for need in needs_of_all if need.worlds > count]
    lacking = {need.name for need in short}
    if len(lacking) > _MOST_SENTENCES:
        few = listed([noun(name) for name in names if name in lacking])
        yield TEXTS("plan/too few for several", where=prefix, worlds=worlds, names=few, power=percent(POWER))
    else:
        yield from _limits(prefix, short, worlds, noun)
    if enough := [noun(name) for name in names if name not in lacking]:
        yield TEXTS("plan/enough", where=prefix, worlds=worlds, names=listed(enough), lapse=percent(lapse))


def _limits(prefix: str, short: Sequence[Need], worlds: str, noun: Callable[[str], str]) -> Iterator[str]:
    """Yield what limits each hypothesis for which the worlds are too few."""
    never = {frozenset((need.name, need.hardest)): need for need in reversed(short) if not isfinite(need.worlds)}
    for need in reversed(never.values()):
        if need.hardest in _ALONE:
            yield TEXTS("plan/never named", where=prefix, name=noun(need.name))
        else:
            yield TEXTS("plan/never told apart", where=prefix, name=noun(need.name), rival=noun(need.hardest))
    for name in dict.fromkeys(need.name for need in short if isfinite(need.worlds)):
        limits = [_needed(need, noun) for need in short if need.name == name and isfinite(need.worlds)]
        yield TEXTS(
            "plan/too few", where=prefix, worlds=worlds, name=noun(name), needs=", ".join(limits), power=percent(POWER)
        )


def _needed(need: Need, noun: Callable[[str], str]) -> str:
    hardest = need.hardest if need.hardest in _ALONE else noun(need.hardest)
    return TEXTS("plan/needed", worlds=f"{need.worlds:.0f}", lapse=percent(need.lapse), hardest=hardest)
