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
from goalscope.measures.goals.asked import GoalSettings, cells_of
from goalscope.measures.goals.curves import CurveTable, WorldCurve
from goalscope.measures.goals.draws import NOTHING, Measured, few_grids, mean_of, widened, without_action
from goalscope.measures.goals.hypotheses import process
from goalscope.measures.goals.lines import Line, Place, lines_of
from goalscope.measures.goals.mixed import Mixed, Sample, cross_fitted
from goalscope.measures.goals.records import GoalContrast, GoalEstimate, GoalFindings, joined_notes
from goalscope.measures.goals.resample import (
    METHOD,
    interval,
    not_below_random,
    p_value,
    random_p,
    weigh,
    with_random,
)
from goalscope.measures.goals.returns import acted, random_returns
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
    asked = settings or GoalSettings()
    table = episodes if isinstance(episodes, StepTable) else StepTable.from_episodes(episodes)
    if not len(table.length):
        raise ValueError("the goals of agents must be measured on episodes, got none")
    absent = [name for name in asked.by if name not in table.tags]
    if absent:
        there = ", ".join(name for name in table.tags if name != "agent") or "none"
        raise ValueError(f"`by` must name tags of the episodes ({there}), got {', '.join(absent)}")
    lines, returns = lines_of(table, asked, believed)
    cells = cells_of(table, asked.by)
    study = _Study(table, lines, asked, progress)
    found = [study.cell(cell, members) for cell, members in cells]
    contrasts = [entry for _, part, _ in found for entry in part]
    return GoalFindings(
        estimates=tuple(entry for part, _, _ in found for entry in part),
        contrasts=tuple(corrected(contrasts)),
        rows=Rows.concatenate(rows for _, _, parts in found for rows in parts),
        settings={
            "hypotheses": list(asked.hypotheses),
            "by": list(asked.by),
            "utility": asked.utility,
            "invalid": asked.invalid,
            "confidence": asked.confidence,
            "seed": asked.seed,
            "believed": believed is not None,
        },
        episodes=len(table.length),
        left_out=int((~returns.complete).sum()),
        failed=returns.failed,
    )


class _Study:
    def __init__(
        self,
        table: StepTable,
        lines: Mapping[str, tuple[Line, ...]],
        asked: GoalSettings,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.table, self.lines, self.asked = table, lines, asked
        self._acted = acted(table)
        self._show = progress or (lambda done, total: None)
        places = set[Place]().union(*(line.places() for listed in lines.values() for line in listed))
        self._total = len(places) + len({place[:2] for place in places})  # curves, and random agents on each grid
        self._done = 0
        self._curves: dict[Place, WorldCurve] = {}
        self._random: dict[tuple[Place, int], Array] = {}
        self._mixtures: dict[tuple[str, tuple[int, ...]], Mixed] = {}

    def cell(
        self, cell: dict[str, Tag], members: npt.NDArray[np.int64]
    ) -> tuple[list[GoalEstimate], list[GoalContrast], list[Rows]]:
        """Return estimates, contrasts and rows of one cell; the latter two only for cells of conditions alone."""
        whole = not any(name in self.asked.by and name not in CONDITIONS for name in cell)
        agents = sorted(set(self.table.agent[members].tolist()))
        self._mixtures.clear()
        estimates: list[GoalEstimate] = []
        contrasts: list[GoalContrast] = []
        rows: list[Rows] = []
        for agent in agents:
            mine = members[self.table.agent[members] == agent]
            samples = {name: self._samples(name, mine) for name in self.asked.hypotheses}
            found = {name: self._fit(agent, cell, name, part) for name, part in samples.items() if part}
            estimates += [one.estimate for one in found.values()]
            if whole:
                rows += [self._rows(name, samples[name][0], one.parts) for name, one in found.items()]
                for contrast, extra in self._contrasts(agent, cell, samples, found):
                    contrasts.append(contrast)
                    rows += extra
        return estimates, contrasts, rows

    def _samples(self, name: str, members: npt.NDArray[np.int64]) -> tuple[Sample, ...]:
        """Return one sample for each draw, all of the same worlds; none where the hypothesis has no meaning."""
        found = [self._sample(line, members) for line in self.lines[name]]
        if any(sample is None for sample in found):
            return ()
        return _on_common([sample for sample in found if sample is not None])

    def _sample(self, line: Line, members: npt.NDArray[np.int64]) -> Sample | None:
        values = line.returns.values[line.name]
        used = members[~np.isnan(values[members])]
        if not len(used):
            return None
        units = line.returns.units
        numbers = sorted(
            set(line.returns.unit[used].tolist()),
            key=lambda u: (units[u].grid_id, units[u].world_id, units[u].horizon),
        )
        place = {number: index for index, number in enumerate(numbers)}
        code = np.array([place[number] for number in line.returns.unit[used].tolist()])
        order = np.argsort(code, kind="stable")
        counts = np.bincount(code)
        return Sample(
            units=tuple(numbers),
            counts=counts,
            means=np.bincount(code, weights=values[used]) / counts,
            episodes=used[order],
            first=used[order][np.cumsum(counts) - counts],
        )

    def _curve(self, line: Line, number: int) -> WorldCurve:
        place = line.place(number)
        if place not in self._curves:
            unit, asked = line.unit(number), self.asked
            mdp = process(unit.grid, unit.masks[line.name], unit.horizon, utility=asked.utility, invalid=asked.invalid)
            self._curves[place] = WorldCurve.of(RationalityCurve(mdp))
            self._advance()
        return self._curves[place]

    def _null(self, line: Line, number: int, episodes: int) -> Array:
        if (line.place(number), episodes) not in self._random:
            drawn = random_returns(
                line.unit(number),
                episodes,
                NULL_AGENTS,
                seed=self.asked.seed,
                utility=self.asked.utility,
                invalid=self.asked.invalid,
            )
            for name, values in drawn.items():
                self._random[Line(name=name, returns=line.returns).place(number), episodes] = values
            self._advance()
        return self._random[line.place(number), episodes]

    def _advance(self) -> None:
        self._done += 1
        self._total = max(self._total, self._done)  # agents with other counts of episodes have nulls of their own
        self._show(self._done, self._total)

    def _mixed(self, line: Line, units: tuple[int, ...]) -> Mixed:
        known = self._mixtures.get((line.name, units))
        if known is not None:
            return known
        curves = CurveTable([self._curve(line, number) for number in units])
        weights = weigh([line.unit(number).grid_id for number in units], seed=self.asked.seed)
        mixed = Mixed.of(curves, weights)
        if line.name in self.lines:  # those of draws are megabytes each, and many
            self._mixtures[line.name, units] = mixed
        return mixed

    def _fit(self, agent: str, cell: Mapping[str, Tag], name: str, samples: Sequence[Sample]) -> Measured:
        draws = [
            self._fit_one(agent, cell, name, line, sample)
            for line, sample in zip(self.lines[name], samples, strict=True)
        ]
        found = mean_of(draws) if len(draws) > 1 else draws[0]
        return found if self._acted[samples[0].episodes].any() else without_action(found)

    def _fit_one(self, agent: str, cell: Mapping[str, Tag], name: str, line: Line, sample: Sample) -> Measured:
        asked, mixed = self.asked, self._mixed(line, sample.units)
        curves, weights = mixed.curves, mixed.weights
        relative = sample.means - curves.uniform
        share = weights.whole[0]
        signed, beta = (float(part[0]) for part in mixed.whole.fit(weights.whole @ relative))
        resampled = mixed.resampled.fit(weights.resampled @ relative)[0]
        low, high = interval(resampled, weights.grids, asked.confidence)
        upper, lower = (float(part[0]) for part in mixed.whole.bounds())
        null = self._null_values(line, sample, mixed)
        method, note = (METHOD, few_grids(weights.grids)) if weights.grids > 1 else ("none", "one grid")
        if len(sample.units) == 1:
            signed, low, high, beta, method, note = self._one_world(line, sample)
        if upper == lower == 0.0:  # e.g. a goal that is believed where nobody can get
            low, high, method, note = math.nan, math.nan, "none", NOTHING
        low, high, note = widened((low, high), signed, null, asked.confidence, note)
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
            cross_fitted=cross_fitted(relative, sample.counts, mixed),
            null=float(np.abs(null).mean()),
            null_high=float(np.quantile(np.abs(null), 0.95)),
            null_p=random_p(signed, null),
            utility=float(share @ sample.means),
            uniform_utility=float(share @ curves.uniform),
            highest_utility=float(mixed.whole.ends[0, 1] + share @ curves.uniform),
            n=int(sample.counts.sum()),
            worlds=len(sample.units),
            grids=weights.grids,
            confidence=asked.confidence,
            method=method,
            note=note,
        )
        return Measured(
            estimate=estimate, beta=beta, resampled=resampled, null=null, parts=terms if signed >= 0 else -terms
        )

    def _one_world(self, line: Line, sample: Sample) -> tuple[float, float, float, float, str, str]:
        """Return the figures of a single world: the interval is that of the mean return, mapped through W*."""
        unit, asked = line.unit(sample.units[0]), self.asked
        mdp = process(unit.grid, unit.masks[line.name], unit.horizon, utility=asked.utility, invalid=asked.invalid)
        curve, returns = RationalityCurve(mdp), line.returns.values[line.name][sample.episodes]
        inside = np.clip(returns, curve.lowest, curve.highest)
        beyond = np.abs(returns - inside) > curve.rounding  # on a believed map, through whose walls the agent walked
        found = meg_known(curve, returns=np.where(beyond, inside, returns), confidence=asked.confidence)
        note = joined_notes("one world: the interval speaks of this world alone", found.note)
        return found.signed, found.signed_low, found.signed_high, found.beta, found.method, note

    def _null_values(self, line: Line, sample: Sample, mixed: Mixed) -> Array:
        drawn = np.stack(
            [
                self._null(line, number, count)
                for number, count in zip(sample.units, sample.counts.tolist(), strict=True)
            ]
        )
        relative = mixed.weights.whole[0] @ (drawn - mixed.curves.uniform[:, None])
        return mixed.whole.repeated(len(relative)).fit(relative)[0]

    def _rows(self, name: str, sample: Sample, parts: Array) -> Rows:
        return group_rows(self.table, f"MEG towards the {name}", "nats", parts, sample.first)

    def _contrasts(
        self,
        agent: str,
        cell: Mapping[str, Tag],
        samples: Mapping[str, tuple[Sample, ...]],
        fitted: Mapping[str, Measured],
    ) -> Iterator[tuple[GoalContrast, list[Rows]]]:
        first, *others = self.asked.hypotheses
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
            low, high = interval(difference, grids, self.asked.confidence)
            value = sides[0].estimate.signed - sides[1].estimate.signed
            null = sides[0].null - sides[1].null  # the same walks on both sides
            if all(side.estimate.method == "none" for side in sides):
                low = high = math.nan
            if not math.isnan(low):
                low, high = with_random((low, high), value, null, self.asked.confidence)
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
            short = self.asked.less.get(second)
            yield contrast, [self._rows(f"{first}{LESS}{short}", kept[0], parts)] if short else []


def _on_common(samples: Sequence[Sample]) -> tuple[Sample, ...]:
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
