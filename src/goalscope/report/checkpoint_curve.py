"""A curve over training: what the checkpoints of a model do in the worlds that all of them met.

The place of a checkpoint on the curve is a number that it was given (a tag of its episodes, or one a run), never a part
of a name.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goalscope._ground.words import short
from goalscope.measures.behaviour import measure_bounds
from goalscope.measures.comparison import Compared, SideRows, compare, shared_worlds
from goalscope.report.blocks import Footnotes, Table, TextColumns, interval, number, plain_table
from goalscope.report.charts import Lines, Series
from goalscope.report.comparison import comparison_records, p_text
from goalscope.report.definitions import title_of
from goalscope.report.ledger import recorded
from goalscope.report.measured import MeasuredRows
from goalscope.report.run_comparison import (
    ComparedAgent,
    ComparisonSettings,
    check_known,
    compared_agents,
    horizon_notes,
    kept_apart,
)
from goalscope.report.specs import SHARE, Figure
from goalscope.stats import Estimate, estimate_rows
from goalscope.stats.records import Records
from goalscope.stats.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A measure of a checkpoint.

    Attributes:
        measure: the measure.
        series: the agent, of runs; "" where the agents of one run are the checkpoints.
        agent: the checkpoint's own name.
        step: its place on the curve.
        estimate: over the worlds that all checkpoints of the series met.
        since: the difference to the first checkpoint in the same worlds, None for that itself.
    """

    measure: str
    series: str
    agent: str
    step: float
    estimate: Estimate
    since: Compared | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCurve(Records):
    """A curve over training.

    Attributes:
        over: what the places are, e.g. "step".
        checkpoints: measure by measure and series by series, each by its place.
        tests: number of differences to the first, which are one family.
        notes: caveats for the reader.
    """

    over: str
    checkpoints: Sequence[Checkpoint]
    tests: int
    notes: Sequence[str]

    @property
    def records(self) -> list[dict[str, Any]]:
        """A record each: place, value with its interval, worlds; the difference to the first with interval and p."""
        found = []
        for one in self.checkpoints:
            since = comparison_records([one.since])[0] if one.since else {}
            kept = {f"since_first_{name}": since.get(name) for name in ("difference", "low", "high", "p", "p_holm")}
            place = {"measure": one.measure, "series": one.series, "agent": one.agent, self.over: one.step}
            found.append({**place, **recorded(one.estimate), **kept})
        return found

    @property
    def table(self) -> Table:
        """The curve, a checkpoint of a measure a line."""
        notes = Footnotes()
        columns: TextColumns[Checkpoint] = [
            ("measure", lambda one: title_of(one.measure)),
            *([("agent", lambda one: one.series)] if any(one.series for one in self.checkpoints) else []),
            (self.over, lambda one: number(one.step)),
            ("value", lambda one: short(one.estimate.value, one.estimate.unit)),
            ("95 % interval", lambda one: interval(one.estimate) or "undefined"),
            ("n", lambda one: str(one.estimate.n)),
            ("worlds", lambda one: str(one.estimate.clusters)),
            ("− first", lambda one: _since(one)),
            ("p (Holm)", lambda one: "–" if one.since is None else p_text(one.since.test.adjusted)),
            ("notes", lambda one: notes.mark(one.estimate.note, *(one.since.notes if one.since else ()))),
        ]
        numbers = range(len(columns) - 8, len(columns) - 1)
        return plain_table(self.checkpoints, columns, numbers, footnotes=notes)

    @property
    def figure(self) -> Figure:
        """The curves of all measures, which must have one unit.

        Raises:
            ValueError: several units.
        """
        units = {one.estimate.unit for one in self.checkpoints}
        measures = list(dict.fromkeys(one.measure for one in self.checkpoints))
        if len(units) > 1:
            raise ValueError(f"a drawn curve must have one unit, got {', '.join(sorted(units))}: --measures with one")
        names = dict.fromkeys((one.measure, one.series) for one in self.checkpoints)
        series = []
        for style, (measure, agent) in enumerate(names):
            own = [one for one in self.checkpoints if (one.measure, one.series) == (measure, agent)]
            label = " of ".join(part for part in (title_of(measure) if len(measures) > 1 else "", agent) if part)
            places, values = tuple(one.step for one in own), tuple(one.estimate for one in own)
            series.append(Series(label=label or title_of(measure), style=style, x=places, estimates=values))
        (unit,) = units
        what = title_of(measures[0]) if len(measures) == 1 else "what checkpoints do"
        title = f"{what} over training"
        steps = sorted({one.step for one in self.checkpoints})
        ticks = {step: number(step) for step in steps} if len(steps) <= 8 else None
        bounds = SHARE if unit == "share" else None
        chart = Lines(series, title=title, x_label=self.over, y_label=unit, bounds=bounds, ticks=ticks)
        worlds = min(one.estimate.clusters for one in self.checkpoints)
        return Figure(chart, label=f"{title}: 95 % intervals over {worlds} worlds or more")


def _since(one: Checkpoint) -> str:
    if one.since is None:
        return "–"
    difference = one.since.paired.difference
    return " ".join(filter(None, (short(difference.value, difference.unit), interval(difference))))


def curve_of(
    runs: Sequence[tuple[Path, MeasuredRows]],
    settings: ComparisonSettings,
    measures: Sequence[str],
    *,
    over: str,
    places: Sequence[float] = (),
) -> CheckpointCurve:
    """Return the curve of checkpoints.

    Args:
        runs: the run directories, each with its rows.
        settings: what is to be compared.
        measures: the measures of the curve.
        over: the tag of episodes whose value is their checkpoint's place; with ``places`` a name for them.
        places: a number for each run; its agents are curves of their own.

    Raises:
        ValueError: unknown measures or agents, fewer than two checkpoints, two at one place, no common worlds.
    """
    for path, rows in runs:
        check_known(path, rows.every_measure, measures, settings)
    by_run = compared_agents(runs, measures, settings)
    every = [agent for agents in by_run for agent in agents]
    for measure, tags in kept_apart(every, measures, runs, over).items():
        of_measure = Rows.concatenate(agent.side.rows.where(agent.side.rows.measure == measure) for agent in every)
        if several := [tag for tag in tags if len(of_measure.numbered(tag)[1]) > 1]:
            raise ValueError(
                f"a curve of {measure} must be of one value of {', '.join(several)}: choose it, --where "
                f"'{several[0]}={number(of_measure.numbered(several[0])[1][0])}'"
            )
    series: dict[str, dict[float, ComparedAgent]] = {}
    for number_of_run, agents in enumerate(by_run):
        for agent in agents:
            name = agent.name if places else ""
            step = places[number_of_run] if places else _place(agent, over)
            if step in series.setdefault(name, {}):
                raise ValueError(
                    f"checkpoints of one curve must have different places, got {over} {number(step)} of "
                    f"{series[name][step].side.name} and {agent.side.name}: name those of one training, --agents"
                )
            series[name][step] = agent
    pairs: list[tuple[SideRows, SideRows]] = []
    kept: dict[tuple[str, float], tuple[ComparedAgent, SideRows]] = {}
    for name, by_step in series.items():
        steps = sorted(by_step)
        if len(steps) < 2:
            raise ValueError(f"a curve needs two checkpoints or more, got {over} {number(steps[0])} of {name or 'all'}")
        sides = shared_worlds(*(by_step[step].side for step in steps))
        if not len(sides[0].rows):
            raise ValueError(
                f"checkpoints must share worlds, but {', '.join(side.name for side in sides)} have none in common: run "
                "all of them on the same worlds"
            )
        for step, side in zip(steps, sides, strict=True):
            kept[name, step] = by_step[step], side
        pairs += [(side, sides[0]) for side in sides[1:]]
    full = [(kept[name, step][0].episodes, kept[name, min(series[name])][0].episodes) for name, step in kept]
    notes = horizon_notes([path for path, _ in runs], full, allowed=settings.horizons)
    left_out = sum(side.left_out for _, side in kept.values())
    notes += [f"note: {left_out} worlds that some checkpoint did not meet left out"] if left_out else []
    since = {(one.measure, one.first): one for one in compare(pairs, measures, name="checkpoints")}
    found = [
        Checkpoint(
            measure=measure,
            series=name,
            agent=agent.name,
            step=step,
            estimate=_estimate(side.rows.where(side.rows.measure == measure)),
            since=since.get((measure, side.name)),
        )
        for measure in measures
        for (name, step), (agent, side) in kept.items()
    ]
    return CheckpointCurve(over=over, checkpoints=found, tests=len(since), notes=notes)


def _place(agent: ComparedAgent, over: str) -> float:
    """Return the one value of a tag of an agent's rows."""
    rows = agent.side.rows
    values: Mapping[Any, None] = dict.fromkeys(rows.numbered(over)[1] if over in rows.tags else ())
    (value,) = values if len(values) == 1 else (None,)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        tags = ", ".join(name for name in rows.tags if rows.known(name).any())
        raise ValueError(
            f"--over must name a tag that is one number for each agent (tags: {tags}), got of {agent.side.name} "
            f"{', '.join(map(repr, values)) or 'none'}: say checkpoint: N of an agent of the kind policy, or give each "
            "run its number with --at"
        )
    return float(value)


def _estimate(rows: Rows) -> Estimate:
    """Return the mean over worlds of a measure's rows, whatever their other tags."""
    (found,) = estimate_rows(rows, by=(), bounds=measure_bounds())
    return found.estimate
