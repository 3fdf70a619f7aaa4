"""MEG of the agents of a run towards several goals: one rationality for each agent and cell of worlds.

Per agent, cell and hypothesis: ``sup over beta of mean over worlds of beta u_w - W_w(beta)``, u_w the mean utility of
the agent's episodes in world w, utilities in steps in every world. Per-world suprema are never averaged: each is >= 0,
however random the agent.
"""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.curves import (
    CurveBank,
    interval,
    not_below_random,
    p_value,
    with_random,
)
from goalscope.measures.goals.episodes import GoalEpisodes, joined_returns
from goalscope.measures.goals.results import (
    EXACT_NOTE,
    GoalContrast,
    GoalEstimate,
    GoalFindings,
    goal_estimate,
    joined_notes,
    one_family,
)
from goalscope.measures.goals.returns import Returns, work_items
from goalscope.measures.goals.separability import DividedWorlds
from goalscope.measures.goals.settings import TOWARDS, GoalSettings, cells_of, goal_measure, goal_settings
from goalscope.measures.goals.state_blind import blind_visits, frequencies
from goalscope.measures.table import CONDITIONS, PROVENANCE, StepTable
from goalscope.meg import RationalityCurve, meg_known
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode
from goalscope.stats import DIFFERENCES, LESS
from goalscope.worlds.grid import Grid

Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Sample = dict[int, Numbers]
"""Number of a world -> an agent's episodes in it, worlds in the order of their ids."""

_NOTHING = "no policy changes the utility: 0 by definition"
_BEYOND = "mean return at or beyond what is attainable in expectation, counted as the end of it"
_FOG = "under fog the class of policies sees the whole maze, the agent does not (--seen: one that does not)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Fit:
    """One agent's MEG towards one draw of a hypothesis, or the mean over its draws."""

    figures: Mapping[str, float]  # fields of `GoalEstimate` that are averaged over draws, by name
    beta: float  # the fitted rationality, also where the estimate has none
    resampled: Array  # [B] signed MEG in each resample of the grids; empty with fewer than two
    null: Array  # [R] signed MEG of random agents
    parts: Array  # [U] part of each world at the common rationality; their mean over grids is the signed MEG
    grids: int
    ends: tuple[float, float, str, str] | None = None  # interval, method and note of a single world


_UNDEFINED: dict[str, Any] = dict.fromkeys(("difference", "low", "high", "p_value"), math.nan)
_Fitted = Mapping[str, tuple[GoalEstimate, _Fit]]


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
        settings: the settings; `goal_settings` of the worlds where None.
        believed: world id -> a grid that replaces the world, e.g. a decoded map: MEG relative to beliefs. The agent's
            states are evaluated on that grid; worlds without one are left out.
        progress: called with (done, total) pieces of work.

    Raises:
        ValueError: no episode, a tag that no episode has, no hypothesis with a meaning in any world.
    """
    table = episodes if isinstance(episodes, StepTable) else StepTable.from_episodes(episodes)
    settings = settings or goal_settings(table.worlds)
    if not len(table.length):
        raise ValueError("the goals of agents must be measured on episodes, got none")
    _check_tags(table.tags, settings)
    names, returns, main = work_items(table, settings, believed)
    summaries = GoalEpisodes.of(table, settings.by, moves=settings.state_blind)
    return _findings(summaries, settings, (names, returns, main), believed is not None, progress)


def measure_goals_by_parts(
    parts: Iterable[StepTable], settings: GoalSettings, *, progress: Callable[[int, int], None] | None = None
) -> GoalFindings:
    """Like `measure_goals`, from tables of different worlds; only one table is in memory at a time.

    Args:
        parts: tables of the episodes; no world is in two of them.
        settings: the settings, without draws.
        progress: called with (done, total) pieces of work.

    Raises:
        ValueError: no episode, draws, and as `measure_goals`.
    """
    if settings.drawn:
        raise ValueError("hypotheses that are drawn must be measured on one table, got parts: use measure_goals")
    episodes, returns = list[GoalEpisodes](), list[Returns]()
    names: dict[str, tuple[str, ...]] = {}
    for part in parts:
        names, _, main = work_items(part, settings, None)
        episodes.append(GoalEpisodes.of(part, settings.by, moves=settings.state_blind))
        returns.append(main)
    if not episodes:
        raise ValueError("the goals of agents must be measured on episodes, got none")
    summaries, main = GoalEpisodes.joined(episodes), joined_returns(returns)
    _check_tags(summaries.tags, settings)
    by_draw = dict.fromkeys((draw_name for draw_names in names.values() for draw_name in draw_names), main)
    return _findings(summaries, settings, (names, by_draw, main), False, progress)


def _check_tags(tags: Collection[str], settings: GoalSettings) -> None:
    absent = [name for name in settings.by if name not in tags]
    if absent:
        present = ", ".join(name for name in tags if name != "agent") or "none"
        raise ValueError(f"`by` must name tags of the episodes ({present}), got {', '.join(absent)}")


def _findings(
    episodes: GoalEpisodes,
    settings: GoalSettings,
    work: tuple[dict[str, tuple[str, ...]], dict[str, Returns], Returns],
    believed: bool,
    progress: Callable[[int, int], None] | None,
) -> GoalFindings:
    """Return the findings of episodes whose returns are known."""
    names, returns, main = work
    if not any(unit.masks for entry in returns.values() for unit in entry.units):
        raise ValueError(f"some hypothesis must have a meaning in some world, got {', '.join(settings.hypotheses)}")
    estimator = _Estimator(episodes, CurveBank(names, returns, settings, progress))
    for cell, members in cells_of(episodes.tags, settings.by, len(episodes)):
        estimator.add(cell, members)
    return GoalFindings(
        estimates=tuple(estimator.estimates),
        contrasts=one_family(estimator.contrasts),
        rows=Rows.concatenate(estimator.rows),
        settings={
            "hypotheses": list(settings.hypotheses),
            "by": list(settings.by),
            **{name: getattr(settings, name) for name in ("utility", "invalid", "confidence", "seed")},
            "believed": believed,
        },
        episodes=len(episodes),
        left_out=int((~main.complete).sum()),
        failed=main.failed,
    )


class _Estimator:
    """Collects estimates, contrasts and rows, cell by cell."""

    def __init__(self, episodes: GoalEpisodes, bank: CurveBank) -> None:
        self.episodes, self.bank, self.settings = episodes, bank, bank.settings
        self.estimates: list[GoalEstimate] = []
        self.contrasts: list[GoalContrast] = []
        self.rows: list[Rows] = []
        self._apart = DividedWorlds(bank.settings.utility, bank.settings.invalid)

    def add(self, cell: dict[str, Tag], members: Numbers) -> None:
        """Measure the agents in a cell; contrasts and rows only for cells of conditions."""
        self.bank.forget()
        pairs = list(combinations(self.settings.hypotheses, 2))
        if self.settings.pairs == "first":
            pairs = [pair for pair in pairs if pair[0] == self.settings.hypotheses[0]]
        codes, names = self.episodes.agent[members].numbered()
        for agent in sorted(names):
            agent_episodes = members[codes == names.index(agent)]
            samples = {name: self._samples(name, agent_episodes) for name in self.settings.hypotheses}
            fitted = {name: self._fit(agent, cell, name, part) for name, part in samples.items() if part}
            if self.settings.state_blind:
                fitted |= {
                    name: (self._with_state_blind(estimate, samples[name][0]), fit)
                    for name, (estimate, fit) in fitted.items()
                    if name not in self.settings.drawn
                }
            self.estimates += [estimate for estimate, _ in fitted.values()]
            if not any(name in self.settings.by and name not in CONDITIONS for name in cell):
                for name, (_, fit) in fitted.items():
                    self._add_rows(name, samples[name][0], fit.parts)
                for first, second in pairs:
                    if first in fitted and second in fitted:
                        self._add_contrast(first, second, samples, fitted)

    def _samples(self, name: str, members: Numbers) -> list[Sample]:
        """Return one sample for each draw, all of the same worlds; none where the hypothesis is undefined."""
        return _on_common([self._sample(draw, members) for draw in self.bank.names[name]])

    def _sample(self, draw: str, members: Numbers) -> Sample:
        returns = self.bank.returns[draw]
        used = members[~np.isnan(returns.values[draw][members])]
        used = used[np.argsort(returns.unit[used], kind="stable")]
        numbers, first = np.unique(returns.unit[used], return_index=True)
        parts = dict(zip(numbers.tolist(), np.split(used, first[1:]), strict=False))
        units = returns.units
        order = sorted(parts, key=lambda u: (units[u].cluster, units[u].world_id, units[u].horizon))
        return {number: parts[number] for number in order}

    def _fit(
        self, agent: str, cell: Mapping[str, Tag], name: str, samples: Sequence[Sample]
    ) -> tuple[GoalEstimate, _Fit]:
        """Return the estimate of a hypothesis and its fit: means over its draws."""
        # Each resample of grids, and each random agent, is averaged over the draws: the interval is that of the mean,
        # and draws are not observations. The rationality is their (lower) median.
        draws = [self._fit_draw(draw, sample) for draw, sample in zip(self.bank.names[name], samples, strict=True)]
        settings, sample, fit, count = self.settings, samples[0], draws[0], len(draws)
        if count > 1:
            fit = replace(
                fit,
                figures={key: statistics.fmean(draw.figures[key] for draw in draws) for key in fit.figures},
                beta=statistics.median_low(draw.beta for draw in draws),
                ends=None,
                **{
                    key: np.mean([getattr(draw, key) for draw in draws], axis=0)
                    for key in ("resampled", "null", "parts")
                },
            )
        first = self.bank.names[name][0]
        ends, notes = fit.ends, []
        if fit.figures["bound"] == fit.figures["bound_lowest"] == 0.0:  # e.g. an unreachable goal
            ends = math.nan, math.nan, "none", _NOTHING
        if count > 1:
            std = statistics.stdev(draw.figures["signed"] for draw in draws)
            notes.append(f"mean of {count} draws, their standard deviation {std:.2g} nats")
        elif math.isinf(fit.beta):
            by_luck = self._lucky(first, sample)
            notes.append(_BEYOND if by_luck else "every episode at the end of what is attainable")
        notes += [EXACT_NOTE] if self._exact(first, sample) else []
        episodes = np.concatenate(list(sample.values()))
        notes += [_FOG] if self.episodes.fogged[episodes].any() else []
        acts = bool(self.episodes.acted[episodes].any())
        estimate = goal_estimate(
            fit.figures,
            beta=fit.beta,
            resampled=fit.resampled,
            null=fit.null,
            grids=fit.grids,
            confidence=settings.confidence,
            acts=acts,
            notes=notes,
            ends=ends,
            agent=agent,
            cell=cell,
            hypothesis=name,
            n=len(episodes),
            worlds=len(sample),
        )
        return estimate, fit if acts else replace(fit, parts=np.full_like(fit.parts, np.nan))

    def _fit_draw(self, draw: str, sample: Sample) -> _Fit:
        numbers, values = tuple(sample), self.bank.returns[draw].values[draw]
        ensemble = self.bank.ensemble(draw, numbers)
        weights, whole = ensemble.weights, ensemble.whole
        means = np.array([values[members].mean() for members in sample.values()])
        counts = np.array([len(members) for members in sample.values()])
        relative, fraction = means - ensemble.uniform, weights.whole[0]
        signed, beta = (float(part[0]) for part in whole.fit(weights.whole @ relative))
        ends = None
        if len(sample) == 1:
            signed, beta, ends = self._one_world(draw, sample)
        episodes = dict(zip(numbers, counts.tolist(), strict=True))
        null = self.bank.null(draw, episodes, fraction, ensemble.uniform, exact=self._exact(draw, sample))
        terms = np.concatenate([part.terms(beta, relative[at]) for at, part in self.bank.curves(draw, numbers)])
        uniform = float(fraction @ ensemble.uniform)
        figures = {
            "signed": signed,
            "bound": float(whole.ends[0, 3]),
            "bound_lowest": float(whole.ends[0, 2]),
            "cross_fitted": ensemble.cross_fitted(relative, counts, lucky=self._lucky(draw, sample)),
            "utility": float(fraction @ means),
            "uniform_utility": uniform,
            "highest_utility": float(whole.ends[0, 1]) + uniform,
        }
        return _Fit(
            figures=figures,
            beta=beta,
            resampled=ensemble.resampled.fit(weights.resampled @ relative)[0],
            null=whole.fit(null)[0],
            parts=terms if signed >= 0 else -terms,
            grids=weights.grids,
            ends=ends,
        )

    def _with_state_blind(self, estimate: GoalEstimate, sample: Sample) -> GoalEstimate:
        """Return an estimate with that of the agent's state-blind baseline in the same worlds."""
        numbers, draw = tuple(sample), estimate.hypothesis
        clusters, units = self.bank.clusters(numbers), self.bank.returns[draw].units
        of_episode = [name for name, members in zip(clusters, sample.values(), strict=True) for _ in members]
        shares = frequencies(self.episodes.moves[np.concatenate(list(sample.values()))], of_episode)
        utilities = [
            blind_visits(units[number], shares[cluster], self.settings.utility) @ units[number].masks[draw]
            for number, cluster in zip(numbers, clusters, strict=True)
        ]
        ensemble = self.bank.ensemble(draw, numbers)
        relative = ensemble.weights.whole @ (np.array(utilities) - ensemble.uniform)
        return replace(estimate, state_blind=float(ensemble.whole.fit(relative)[0][0]))

    def _lucky(self, draw: str, sample: Sample) -> bool:
        """Return whether episodes of one policy may differ by chance in some world."""
        return any(self.bank.returns[draw].units[number].lucky for number in sample)

    def _exact(self, draw: str, sample: Sample) -> bool:
        """Return whether exact policies replace all drawn actions."""
        exact = self.bank.returns[draw].exact
        return all(bool(exact[members].all()) for members in sample.values())

    def _one_world(self, draw: str, sample: Sample) -> tuple[float, float, tuple[float, float, str, str]]:
        """Return the results of a single world: the interval is that of the mean return, mapped through W*."""
        ((number, episodes),) = sample.items()
        curve, returns = (
            RationalityCurve(self.bank.process(draw, number)),
            self.bank.returns[draw].values[draw][episodes],
        )
        inside = np.clip(returns, *curve.episode_range)
        beyond = np.abs(returns - inside) > curve.rounding  # on a believed map, through whose walls the agent may walk
        meg = meg_known(curve, returns=np.where(beyond, inside, returns), confidence=self.settings.confidence)
        note = joined_notes("one world: the interval speaks of this world alone", meg.note)
        return meg.signed, meg.beta, (meg.signed_low, meg.signed_high, meg.method, note)

    def _add_rows(self, name: str, sample: Sample, parts: Array, **own: Tag) -> None:
        first = [episodes[0] for episodes in sample.values()]  # their tags go into the row of the world
        self.rows.append(
            Rows.from_columns(
                measure=goal_measure(name),
                unit="nats",
                value=parts,
                cluster=self.bank.clusters(sample),
                tags={tag: column[first] for tag, column in self.episodes.tags.items() if tag not in PROVENANCE}
                | {TOWARDS: name, **own},
            )
        )

    def _add_contrast(self, first: str, second: str, samples: Mapping[str, list[Sample]], fitted: _Fitted) -> None:
        common = _on_common([*samples[first], *samples[second]])
        if not common or any(math.isnan(fitted[name][0].signed) for name in (first, second)):
            return
        if short_name := self.settings.less.get(second):
            (_, left), (_, right) = self._sides(first, second, common, samples, fitted)
            self._add_rows(f"{first}{LESS}{short_name}", common[0], left.parts - right.parts, **{DIFFERENCES: 1})
        # Hypotheses that are drawn, or measured on other grids, count as told apart: draws differ by chance.
        apart, same = list(common[0]), list[int]()
        returns = [self.bank.returns[self.bank.names[name][0]] for name in (first, second)]
        if not {first, second} & set(self.settings.drawn) and returns[0] is returns[1]:
            apart, same = self._apart.divided(returns[0].units, first, second, apart)
        parts = {"grids": apart, "common": common[0], "same": same}
        counts = {name: len(set(self.bank.clusters(numbers))) for name, numbers in parts.items()}
        about: dict[str, Any] = {"agent": fitted[first][0].agent, "cell": fitted[first][0].cell, **counts}
        if not apart:
            self.contrasts.append(GoalContrast(first=first, second=second, **_UNDEFINED, **about))
            return
        on_apart = [{number: sample[number] for number in apart} for sample in common]
        (first_estimate, left), (second_estimate, right) = self._sides(first, second, on_apart, samples, fitted)
        value, difference = first_estimate.signed - second_estimate.signed, left.resampled - right.resampled
        null = left.null - right.null  # the same walks on both sides
        low, high = interval(difference, first_estimate.grids, self.settings.confidence)
        if first_estimate.method == second_estimate.method == "none":
            low = high = math.nan
        if not math.isnan(low):
            low, high = with_random((low, high), value, null, self.settings.confidence)
            low, high = (low, high) if low < high else (math.nan, math.nan)  # all worlds have the same difference
        p = not_below_random(p_value(difference, value, first_estimate.grids), value, null)
        self.contrasts.append(
            GoalContrast(first=first, second=second, difference=value, low=low, high=high, p_value=p, **about)
        )

    def _sides(
        self, first: str, second: str, chosen: Sequence[Sample], samples: Mapping[str, list[Sample]], fitted: _Fitted
    ) -> tuple[tuple[GoalEstimate, _Fit], tuple[GoalEstimate, _Fit]]:
        """Return the fits of two hypotheses on the same worlds: ``chosen`` are their draws, the first's before."""
        agent, cell, count = fitted[first][0].agent, fitted[first][0].cell, len(samples[first])
        left, right = (
            fitted[name] if side[0].keys() == samples[name][0].keys() else self._fit(agent, cell, name, side)
            for name, side in ((first, chosen[:count]), (second, chosen[count:]))
        )
        return left, right


def _on_common(samples: Sequence[Sample]) -> list[Sample]:
    """Return samples on the worlds common to all; none without such a world."""
    common = [number for number in samples[0] if all(number in other for other in samples)]
    return [{number: sample[number] for number in common} for sample in samples] if common else []
