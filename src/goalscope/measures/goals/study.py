"""MEG of the agents of a run towards several goals: one rationality for each agent and cell of worlds.

Per agent, cell and hypothesis: ``sup over beta of mean over worlds of beta u_w - W_w(beta)``, u_w the mean utility of
the agent's episodes in world w, utilities in steps in every world. Per-world suprema are never averaged: each is >= 0,
however random the agent.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.asked import GoalSettings, cells_of
from goalscope.measures.goals.curves import CurveTable, WorldCurve
from goalscope.measures.goals.hypotheses import process
from goalscope.measures.goals.mixed import Mixed, Sample, cross_fitted
from goalscope.measures.goals.records import GoalContrast, GoalEstimate, GoalFindings
from goalscope.measures.goals.resample import (
    METHOD,
    interval,
    not_below_random,
    p_value,
    random_p,
    weigh,
    with_random,
)
from goalscope.measures.goals.returns import Returns, episode_returns, random_returns
from goalscope.measures.measure import CONDITIONS, StepTable, group_rows
from goalscope.meg import RationalityCurve, meg_known
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode
from goalscope.stats.family import Family, holm
from goalscope.worlds.grid import Grid

Array = npt.NDArray[np.float64]

NULL_AGENTS = 200
_FEW = (  # by simulation, see docs/meg-runs.md
    (10, "fewer than 10 grids: simulated intervals cover 0.80 to 0.91"),
    (20, "fewer than 20 grids: simulated intervals cover 0.88 to 0.95"),
)
_RANDOM = "interval widened to what random agents show, from which this one cannot be told"


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
    returns = episode_returns(table, asked.hypotheses, utility=asked.utility, believed=believed, cells=asked.cells)
    if not any(unit.masks for unit in returns.units):
        raise ValueError(f"some hypothesis must have a meaning in some world, got {', '.join(asked.hypotheses)}")
    cells = cells_of(table, asked.by)
    study = _Study(table, returns, asked, progress)
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fitted:
    """One agent's MEG towards one hypothesis: the estimate, and the signed values of resamples and random agents."""

    estimate: GoalEstimate
    resampled: Array
    null: Array


class _Study:
    def __init__(
        self,
        table: StepTable,
        returns: Returns,
        asked: GoalSettings,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.table, self.returns, self.asked = table, returns, asked
        self._show = progress or (lambda done, total: None)
        curves = sum(len(unit.masks) for unit in returns.units)
        self._total = curves + len(returns.units)
        self._done = 0
        self._curves: dict[tuple[str, int], WorldCurve] = {}
        self._random: dict[tuple[int, int], dict[str, Array]] = {}

    def cell(
        self, cell: dict[str, Tag], members: npt.NDArray[np.int64]
    ) -> tuple[list[GoalEstimate], list[GoalContrast], list[Rows]]:
        """Return estimates, contrasts and rows of one cell; the latter two only for cells of conditions alone."""
        whole = not any(name in self.asked.by and name not in CONDITIONS for name in cell)
        agents = sorted(set(self.table.agent[members].tolist()))
        mixtures: dict[tuple[str, tuple[int, ...]], Mixed] = {}
        estimates: list[GoalEstimate] = []
        contrasts: list[GoalContrast] = []
        rows: list[Rows] = []
        for agent in agents:
            mine = members[self.table.agent[members] == agent]
            fitted: dict[str, _Fitted] = {}
            samples = {name: self._sample(name, mine) for name in self.asked.hypotheses}
            for name, sample in samples.items():
                if sample is None:
                    continue
                mixed = self._mixed(mixtures, name, sample.units)
                fitted[name] = self._fit(agent, cell, name, sample, mixed)
                if whole:
                    rows.append(self._rows(name, sample, mixed, fitted[name].estimate))
            estimates += [one.estimate for one in fitted.values()]
            if whole:
                contrasts += self._contrasts(agent, cell, samples, fitted, mixtures)
        return estimates, contrasts, rows

    def _sample(self, name: str, members: npt.NDArray[np.int64]) -> Sample | None:
        values = self.returns.values[name]
        used = members[~np.isnan(values[members])]
        if not len(used):
            return None
        units = self.returns.units
        numbers = sorted(
            set(self.returns.unit[used].tolist()),
            key=lambda u: (units[u].grid_id, units[u].world_id, units[u].horizon),
        )
        place = {number: index for index, number in enumerate(numbers)}
        code = np.array([place[number] for number in self.returns.unit[used].tolist()])
        order = np.argsort(code, kind="stable")
        counts = np.bincount(code)
        return Sample(
            units=tuple(numbers),
            counts=counts,
            means=np.bincount(code, weights=values[used]) / counts,
            episodes=used[order],
            first=used[order][np.cumsum(counts) - counts],
        )

    def _curve(self, name: str, number: int) -> WorldCurve:
        if (name, number) not in self._curves:
            unit, asked = self.returns.units[number], self.asked
            mdp = process(unit.grid, unit.masks[name], unit.horizon, utility=asked.utility, invalid=asked.invalid)
            self._curves[name, number] = WorldCurve.of(RationalityCurve(mdp))
            self._advance()
        return self._curves[name, number]

    def _null(self, name: str, number: int, episodes: int) -> Array:
        if (number, episodes) not in self._random:
            self._random[number, episodes] = random_returns(
                self.returns.units[number],
                episodes,
                NULL_AGENTS,
                seed=self.asked.seed,
                utility=self.asked.utility,
                invalid=self.asked.invalid,
            )
            self._advance()
        return self._random[number, episodes][name]

    def _advance(self) -> None:
        self._done += 1
        self._total = max(self._total, self._done)  # agents with other counts of episodes have nulls of their own
        self._show(self._done, self._total)

    def _mixed(self, known: dict[tuple[str, tuple[int, ...]], Mixed], name: str, units: tuple[int, ...]) -> Mixed:
        if (name, units) not in known:
            curves = CurveTable([self._curve(name, number) for number in units])
            weights = weigh([self.returns.units[number].grid_id for number in units], seed=self.asked.seed)
            known[name, units] = Mixed.of(curves, weights)
        return known[name, units]

    def _fit(self, agent: str, cell: Mapping[str, Tag], name: str, sample: Sample, mixed: Mixed) -> _Fitted:
        asked, curves, weights = self.asked, mixed.curves, mixed.weights
        relative = sample.means - curves.uniform
        share = weights.whole[0]
        signed, beta = (float(part[0]) for part in mixed.whole.fit(weights.whole @ relative))
        resampled = mixed.resampled.fit(weights.resampled @ relative)[0]
        low, high = interval(resampled, weights.grids, asked.confidence)
        upper, lower = (float(part[0]) for part in mixed.whole.bounds())
        null = self._null_values(name, sample, mixed)
        method, note = (METHOD, "") if weights.grids > 1 else ("none", "one grid")
        if weights.grids > 1:
            note = next((text for few, text in _FEW if weights.grids < few), "")
        if len(sample.units) == 1:
            signed, low, high, beta, method, note = self._one_world(name, sample)
        if upper == lower == 0.0:  # e.g. a goal that is believed where nobody can get
            low, high, method, note = math.nan, math.nan, "none", "no policy changes the utility: 0 by definition"
        wide = (low, high) if math.isnan(low) else with_random((low, high), signed, null, asked.confidence)
        if wide != (low, high):
            low, high = wide
            note = "; ".join(part for part in (note, _RANDOM) if part)
        if math.isinf(beta):
            note = "; ".join(part for part in (note, "every episode at the end of what is attainable") if part)
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
        return _Fitted(estimate=estimate, resampled=resampled, null=null)

    def _one_world(self, name: str, sample: Sample) -> tuple[float, float, float, float, str, str]:
        """Return the figures of a single world: the interval is that of the mean return, mapped through W*."""
        unit, asked = self.returns.units[sample.units[0]], self.asked
        mdp = process(unit.grid, unit.masks[name], unit.horizon, utility=asked.utility, invalid=asked.invalid)
        found = meg_known(mdp, returns=self.returns.values[name][sample.episodes], confidence=asked.confidence)
        note = "; ".join(part for part in ("one world: the interval speaks of this world alone", found.note) if part)
        return found.signed, found.signed_low, found.signed_high, found.beta, found.method, note

    def _null_values(self, name: str, sample: Sample, mixed: Mixed) -> Array:
        drawn = np.stack(
            [
                self._null(name, number, count)
                for number, count in zip(sample.units, sample.counts.tolist(), strict=True)
            ]
        )
        relative = mixed.weights.whole[0] @ (drawn - mixed.curves.uniform[:, None])
        return mixed.whole.repeated(len(relative)).fit(relative)[0]

    def _rows(self, name: str, sample: Sample, mixed: Mixed, estimate: GoalEstimate) -> Rows:
        terms = mixed.curves.terms(estimate.beta, sample.means - mixed.curves.uniform)
        value = terms if estimate.signed >= 0 else -terms
        return group_rows(self.table, f"MEG towards the {name}", "nats", value, sample.first)

    def _contrasts(
        self,
        agent: str,
        cell: Mapping[str, Tag],
        samples: Mapping[str, Sample | None],
        fitted: Mapping[str, _Fitted],
        mixtures: dict[tuple[str, tuple[int, ...]], Mixed],
    ) -> Iterator[GoalContrast]:
        first, *others = self.asked.hypotheses
        one = samples[first]
        for second in others:
            other = samples[second]
            if one is None or other is None:
                continue
            common = tuple(number for number in one.units if number in other.units)
            if not common:
                continue
            sides = []
            for name, sample in ((first, one), (second, other)):
                if sample.units == common:
                    sides.append(fitted[name])
                else:
                    part = sample.only(common)
                    sides.append(self._fit(agent, cell, name, part, self._mixed(mixtures, name, common)))
            difference = sides[0].resampled - sides[1].resampled
            grids = sides[0].estimate.grids
            low, high = interval(difference, grids, self.asked.confidence)
            value = sides[0].estimate.signed - sides[1].estimate.signed
            null = sides[0].null - sides[1].null  # the same walks on both sides
            if all(side.estimate.method == "none" for side in sides):
                low = high = math.nan
            if not math.isnan(low):
                low, high = with_random((low, high), value, null, self.asked.confidence)
            yield GoalContrast(
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


def corrected(contrasts: Sequence[GoalContrast]) -> list[GoalContrast]:
    """Return the contrasts with Holm's correction: all of a run are one family."""
    if not contrasts:
        return []
    names = [str(index) for index in range(len(contrasts))]
    family = Family(name="goal hypotheses", members=tuple(names))
    found = holm({name: entry.p_value for name, entry in zip(names, contrasts, strict=True)}, family)
    return [replace(entry, adjusted=one.adjusted) for entry, one in zip(contrasts, found, strict=True)]
