"""MEG of the agents of a run towards several goals: one rationality for each agent and cell of worlds.

Per agent, cell and hypothesis: ``sup over beta of mean over worlds of beta u_w - W_w(beta)``, u_w the mean utility of
the agent's episodes in world w, utilities in steps in every world. Per-world suprema are never averaged: each is >= 0,
however random the agent.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from goalscope.measures.definition import group_rows
from goalscope.measures.goals.curves import AgentSample, CurveEnsemble, CurveTable, WorldCurve, cross_fitted
from goalscope.measures.goals.resample import (
    METHOD,
    interval,
    not_below_random,
    p_value,
    random_p,
    weigh,
    with_random,
)
from goalscope.measures.goals.results import (
    NOTHING,
    GoalContrast,
    GoalEstimate,
    GoalFindings,
    HypothesisResult,
    few_grids,
    joined_notes,
    mean_of,
    widened,
    without_action,
)
from goalscope.measures.goals.returns import Place, WorkItem, acted, random_returns, work_items
from goalscope.measures.goals.settings import GoalSettings, cells_of, process
from goalscope.measures.table import CONDITIONS, StepTable
from goalscope.meg import RationalityCurve, meg_known
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode
from goalscope.stats import LESS
from goalscope.stats.family import Family, holm
from goalscope.worlds.grid import Grid

Array = npt.NDArray[np.float64]

NULL_AGENTS = 200


def measure_goals(
    episodes: Iterable[Episode] | StepTable,
    settings: GoalSettings | None = None,
    *,
    believed: Mapping[str, Grid] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> GoalFindings:
    """Measure the MEG of each agent towards each hypothesis.

    Args:
        episodes: all episodes that belong together, or their table.
        settings: what is asked, the defaults where None.
        believed: world id -> the grid that stands in the place of that world, e.g. a decoded map: MEG relative to
            beliefs. Where an agent went is looked up on that grid; worlds without one are left out.
        progress: called with (done, total) pieces of work.

    Raises:
        ValueError: no episode, a tag that no episode has, no hypothesis with a meaning in any world.
    """
    settings = settings or GoalSettings()
    table = episodes if isinstance(episodes, StepTable) else StepTable.from_episodes(episodes)
    if not len(table.length):
        raise ValueError("the goals of agents must be measured on episodes, got none")
    absent = [name for name in settings.by if name not in table.tags]
    if absent:
        there = ", ".join(name for name in table.tags if name != "agent") or "none"
        raise ValueError(f"`by` must name tags of the episodes ({there}), got {', '.join(absent)}")
    items, returns = work_items(table, settings, believed)
    cells = cells_of(table, settings.by)
    estimator = _Estimator(table, items, settings, progress)
    found = [estimator.cell(cell, members) for cell, members in cells]
    contrasts = [entry for _, part, _ in found for entry in part]
    return GoalFindings(
        estimates=tuple(entry for part, _, _ in found for entry in part),
        contrasts=tuple(corrected(contrasts)),
        rows=Rows.concatenate(rows for _, _, parts in found for rows in parts),
        settings={
            "hypotheses": list(settings.hypotheses),
            "by": list(settings.by),
            "utility": settings.utility,
            "invalid": settings.invalid,
            "confidence": settings.confidence,
            "seed": settings.seed,
            "believed": believed is not None,
        },
        episodes=len(table.length),
        left_out=int((~returns.complete).sum()),
        failed=returns.failed,
    )


class _Estimator:
    def __init__(
        self,
        table: StepTable,
        items: Mapping[str, tuple[WorkItem, ...]],
        settings: GoalSettings,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.table, self.items, self.settings = table, items, settings
        self._acted = acted(table)
        self._show = progress or (lambda done, total: None)
        places = set[Place]().union(*(item.places() for listed in items.values() for item in listed))
        self._total = len(places) + len({place[:2] for place in places})  # curves, and random agents on each grid
        self._done = 0
        self._curves: dict[Place, WorldCurve] = {}
        self._random: dict[tuple[Place, int], Array] = {}
        self._mixtures: dict[tuple[str, tuple[int, ...]], CurveEnsemble] = {}

    def cell(
        self, cell: dict[str, Tag], members: npt.NDArray[np.int64]
    ) -> tuple[list[GoalEstimate], list[GoalContrast], list[Rows]]:
        """Return estimates, contrasts and rows of one cell; the latter two only for cells of conditions alone."""
        whole = not any(name in self.settings.by and name not in CONDITIONS for name in cell)
        agents = sorted(set(self.table.agent[members].tolist()))
        self._mixtures.clear()
        estimates: list[GoalEstimate] = []
        contrasts: list[GoalContrast] = []
        rows: list[Rows] = []
        for agent in agents:
            mine = members[self.table.agent[members] == agent]
            samples = {name: self._samples(name, mine) for name in self.settings.hypotheses}
            found = {name: self._fit(agent, cell, name, part) for name, part in samples.items() if part}
            estimates += [one.estimate for one in found.values()]
            if whole:
                rows += [self._rows(name, samples[name][0], one.parts) for name, one in found.items()]
                for contrast, extra in self._contrasts(agent, cell, samples, found):
                    contrasts.append(contrast)
                    rows += extra
        return estimates, contrasts, rows

    def _samples(self, name: str, members: npt.NDArray[np.int64]) -> tuple[AgentSample, ...]:
        """Return one sample for each draw, all of the same worlds; none where the hypothesis has no meaning."""
        found = [self._sample(item, members) for item in self.items[name]]
        if any(sample is None for sample in found):
            return ()
        return _on_common([sample for sample in found if sample is not None])

    def _sample(self, item: WorkItem, members: npt.NDArray[np.int64]) -> AgentSample | None:
        values = item.returns.values[item.name]
        used = members[~np.isnan(values[members])]
        if not len(used):
            return None
        units = item.returns.units
        numbers = sorted(
            set(item.returns.unit[used].tolist()),
            key=lambda u: (units[u].grid_id, units[u].world_id, units[u].horizon),
        )
        place = {number: index for index, number in enumerate(numbers)}
        code = np.array([place[number] for number in item.returns.unit[used].tolist()])
        order = np.argsort(code, kind="stable")
        counts = np.bincount(code)
        return AgentSample(
            units=tuple(numbers),
            counts=counts,
            means=np.bincount(code, weights=values[used]) / counts,
            episodes=used[order],
            first=used[order][np.cumsum(counts) - counts],
        )

    def _curve(self, item: WorkItem, number: int) -> WorldCurve:
        place = item.place(number)
        if place not in self._curves:
            unit, settings = item.unit(number), self.settings
            mdp = process(
                unit.grid, unit.masks[item.name], unit.horizon, utility=settings.utility, invalid=settings.invalid
            )
            self._curves[place] = WorldCurve.of(RationalityCurve(mdp))
            self._advance()
        return self._curves[place]

    def _null(self, item: WorkItem, number: int, episodes: int) -> Array:
        if (item.place(number), episodes) not in self._random:
            drawn = random_returns(
                item.unit(number),
                episodes,
                NULL_AGENTS,
                seed=self.settings.seed,
                utility=self.settings.utility,
                invalid=self.settings.invalid,
            )
            for name, values in drawn.items():
                self._random[WorkItem(name=name, returns=item.returns).place(number), episodes] = values
            self._advance()
        return self._random[item.place(number), episodes]

    def _advance(self) -> None:
        self._done += 1
        self._total = max(self._total, self._done)  # agents with other counts of episodes have nulls of their own
        self._show(self._done, self._total)

    def _ensemble(self, item: WorkItem, units: tuple[int, ...]) -> CurveEnsemble:
        known = self._mixtures.get((item.name, units))
        if known is not None:
            return known
        curves = CurveTable([self._curve(item, number) for number in units])
        weights = weigh([item.unit(number).grid_id for number in units], seed=self.settings.seed)
        ensemble = CurveEnsemble.of(curves, weights)
        if item.name in self.items:  # those of draws are megabytes each, and many
            self._mixtures[item.name, units] = ensemble
        return ensemble

    def _fit(self, agent: str, cell: Mapping[str, Tag], name: str, samples: Sequence[AgentSample]) -> HypothesisResult:
        draws = [
            self._fit_one(agent, cell, name, item, sample)
            for item, sample in zip(self.items[name], samples, strict=True)
        ]
        found = mean_of(draws) if len(draws) > 1 else draws[0]
        return found if self._acted[samples[0].episodes].any() else without_action(found)

    def _fit_one(
        self, agent: str, cell: Mapping[str, Tag], name: str, item: WorkItem, sample: AgentSample
    ) -> HypothesisResult:
        settings, ensemble = self.settings, self._ensemble(item, sample.units)
        curves, weights = ensemble.curves, ensemble.weights
        relative = sample.means - curves.uniform
        fraction = weights.whole[0]
        signed, beta = (float(part[0]) for part in ensemble.whole.fit(weights.whole @ relative))
        resampled = ensemble.resampled.fit(weights.resampled @ relative)[0]
        low, high = interval(resampled, weights.grids, settings.confidence)
        upper, lower = (float(part[0]) for part in ensemble.whole.bounds())
        null = self._null_values(item, sample, ensemble)
        method, note = (METHOD, few_grids(weights.grids)) if weights.grids > 1 else ("none", "one grid")
        if len(sample.units) == 1:
            signed, low, high, beta, method, note = self._one_world(item, sample)
        if upper == lower == 0.0:  # e.g. a goal that is believed where nobody can get
            low, high, method, note = math.nan, math.nan, "none", NOTHING
        low, high, note = widened((low, high), signed, null, settings.confidence, note)
        if math.isinf(beta):
            note = joined_notes(note, "every episode at the end of what is attainable")
        terms = curves.terms(beta, relative)
        estimate = GoalEstimate(
            agent=agent,
            cell=cell,
            hypothesis=name,
            signed=signed,
            low=min(low, signed),
            high=max(high, signed),
            beta=beta,
            bound=upper,
            bound_lowest=lower,
            cross_fitted=cross_fitted(relative, sample.counts, ensemble),
            null=float(np.abs(null).mean()),
            null_high=float(np.quantile(np.abs(null), 0.95)),
            null_p=random_p(signed, null),
            utility=float(fraction @ sample.means),
            uniform_utility=float(fraction @ curves.uniform),
            highest_utility=float(ensemble.whole.ends[0, 1] + fraction @ curves.uniform),
            n=int(sample.counts.sum()),
            worlds=len(sample.units),
            grids=weights.grids,
            confidence=settings.confidence,
            method=method,
            note=note,
        )
        return HypothesisResult(
            estimate=estimate, beta=beta, resampled=resampled, null=null, parts=terms if signed >= 0 else -terms
        )

    def _one_world(self, item: WorkItem, sample: AgentSample) -> tuple[float, float, float, float, str, str]:
        """Return the figures of a single world: the interval is that of the mean return, mapped through W*."""
        unit, settings = item.unit(sample.units[0]), self.settings
        mdp = process(
            unit.grid, unit.masks[item.name], unit.horizon, utility=settings.utility, invalid=settings.invalid
        )
        curve, returns = RationalityCurve(mdp), item.returns.values[item.name][sample.episodes]
        inside = np.clip(returns, curve.lowest, curve.highest)
        beyond = np.abs(returns - inside) > curve.rounding  # on a believed map, through whose walls the agent walked
        found = meg_known(curve, returns=np.where(beyond, inside, returns), confidence=settings.confidence)
        note = joined_notes("one world: the interval speaks of this world alone", found.note)
        return found.signed, found.signed_low, found.signed_high, found.beta, found.method, note

    def _null_values(self, item: WorkItem, sample: AgentSample, ensemble: CurveEnsemble) -> Array:
        drawn = np.stack(
            [
                self._null(item, number, count)
                for number, count in zip(sample.units, sample.counts.tolist(), strict=True)
            ]
        )
        relative = ensemble.weights.whole[0] @ (drawn - ensemble.curves.uniform[:, None])
        return ensemble.whole.repeated(len(relative)).fit(relative)[0]

    def _rows(self, name: str, sample: AgentSample, parts: Array) -> Rows:
        return group_rows(self.table, f"MEG towards the {name}", "nats", parts, sample.first)

    def _contrasts(
        self,
        agent: str,
        cell: Mapping[str, Tag],
        samples: Mapping[str, tuple[AgentSample, ...]],
        fitted: Mapping[str, HypothesisResult],
    ) -> Iterator[tuple[GoalContrast, list[Rows]]]:
        first, *others = self.settings.hypotheses
        for second in others:
            if not samples[first] or not samples[second]:
                continue
            kept = _on_common([*samples[first], *samples[second]])
            if not kept:
                continue
            sides = []
            for name, mine in ((first, kept[: len(samples[first])]), (second, kept[len(samples[first]) :])):
                same = mine[0].units == samples[name][0].units
                sides.append(fitted[name] if same else self._fit(agent, cell, name, mine))
            if any(math.isnan(side.estimate.signed) for side in sides):
                continue
            difference = sides[0].resampled - sides[1].resampled
            grids = sides[0].estimate.grids
            low, high = interval(difference, grids, self.settings.confidence)
            value = sides[0].estimate.signed - sides[1].estimate.signed
            null = sides[0].null - sides[1].null  # the same walks on both sides
            if all(side.estimate.method == "none" for side in sides):
                low = high = math.nan
            if not math.isnan(low):
                low, high = with_random((low, high), value, null, self.settings.confidence)
            contrast = GoalContrast(
                agent=agent,
                cell=cell,
                first=first,
                second=second,
                difference=value,
                low=low,
                high=high,
                p_value=not_below_random(p_value(difference, value, grids), value, null),
                grids=grids,
            )
            parts = sides[0].parts - sides[1].parts
            short = self.settings.less.get(second)
            yield contrast, [self._rows(f"{first}{LESS}{short}", kept[0], parts)] if short else []


def _on_common(samples: Sequence[AgentSample]) -> tuple[AgentSample, ...]:
    """Return samples on the worlds that all of them have; none where there is no such world."""
    common = tuple(number for number in samples[0].units if all(number in other.units for other in samples))
    if not common:
        return ()
    return tuple(sample if sample.units == common else sample.only(common) for sample in samples)


def corrected(contrasts: Sequence[GoalContrast]) -> list[GoalContrast]:
    """Return the contrasts with Holm's correction: all of a run are one family."""
    if not contrasts:
        return []
    names = [str(index) for index in range(len(contrasts))]
    family = Family(name="goal hypotheses", members=tuple(names))
    found = holm({name: entry.p_value for name, entry in zip(names, contrasts, strict=True)}, family)
    return [replace(entry, adjusted=one.adjusted) for entry, one in zip(contrasts, found, strict=True)]
