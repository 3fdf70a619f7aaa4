"""`goalscope compare`: agents and runs on the worlds that they share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

from goalscope.cli.commands import check_measures
from goalscope.cli.console import say, table
from goalscope.cli.measuring import measured_rows
from goalscope.cli.overrides import split_names
from goalscope.measures.behaviour import COMPARED
from goalscope.measures.invariance import check_family, compare_transforms
from goalscope.report.blocks import Plain, counted
from goalscope.report.comparison import (
    LEVEL,
    Side,
    World,
    as_csv,
    as_json,
    compare_pairs,
    comparison_records,
    comparison_table,
    contrast_records,
    shared_worlds,
    worlds_of,
)
from goalscope.report.run_data import on_tasks
from goalscope.report.sections.invariance import grids_table, in_order, means_table
from goalscope.report.sections.results import PAIRED
from goalscope.rows import Rows
from goalscope.runs import Store
from goalscope.runs.analysis import check_margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Where the numbers of a comparison are written beside the table, None for nowhere."""

    json: Path | None = None
    csv: Path | None = None

    def write(self, records: Sequence[Mapping[str, Any]], **about: Any) -> None:
        """Write the records to the files that were asked for."""
        for path, text in ((self.json, as_json(records, **about)), (self.csv, as_csv(records))):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
                say(f"written: {path}", error=True)


def agents_of(text: str | None) -> list[str]:
    """Return the names of agents, separated as those of `goalscope run`; none, which stands for all, for None.

    Raises:
        ValueError: a text without a name.
    """
    names = [] if text is None else split_names(text)
    if text is not None and not names:
        raise ValueError("--agents must name at least one agent, got none: leave it out for all")
    return names


def margins_of(text: str | None) -> dict[str, float]:
    """Return equivalence margins by measure from ``success=0.1;action accuracy=0.05``; none for None.

    Raises:
        ValueError: a text without a margin, a part that is no MEASURE=NUMBER, a measure twice, or a margin that is not
            above 0.
    """
    found: dict[str, float] = {}
    if text is None:
        return found
    if not text.strip("; "):
        raise ValueError("--margin must name at least one margin, got none: e.g. --margin 'success=0.1'")
    for part in (piece.strip() for piece in text.split(";")):
        if not part:
            continue
        measure, _, number = (side.strip() for side in part.rpartition("="))
        try:
            margin = float(number)
        except ValueError:
            margin = math.nan
        if not measure or measure in found or math.isnan(margin):
            raise ValueError(
                f"--margin must be MEASURE=NUMBER, each measure once, separated by ';', got {part!r}: "
                "e.g. --margin 'success=0.1;action accuracy=0.05'"
            )
        found[measure] = check_margin(measure, margin)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings:
    """What is to be compared.

    Attributes:
        measures: the family of tests; None for the measures of the margins, else for what fits the runs.
        agents: the agents to compare, all where empty.
        margin: equivalence margin of each measure that has one.
        horizons: compare episodes that may last differently long, too.
        files: where the numbers are written, too.
    """

    measures: Sequence[str] | None = None
    agents: Sequence[str] = ()
    margin: Mapping[str, float] = field(default_factory=dict)
    horizons: bool = False
    files: Files = Files()

    def family(self, otherwise: Sequence[str]) -> list[str]:
        """Return the measures of the family: those named, else those with margins, else others; checked.

        Raises:
            ValueError: no measure or one twice, or a margin of a measure outside of the family.
        """
        names = list(self.measures if self.measures is not None else self.margin or otherwise)
        check_family(names, self.margin)
        return names


def compare(paths: Sequence[Path], settings: ComparisonSettings) -> None:
    """Print the paired comparison of runs, or of the agents of one run.

    Without measures the family is success and action accuracy; success, both errors and steps of successful episodes
    for runs in task worlds.

    Args:
        paths: the runs.
        settings: what is to be compared.

    Raises:
        ValueError: a run twice, unknown measures or agents, runs without common worlds or with other horizons there,
            nothing to compare.
    """
    if len({path.resolve() for path in paths}) != len(paths):
        raise ValueError(f"runs that are compared must be different, got {', '.join(map(str, paths))}")
    runs = [(path, measured_rows(path)) for path in paths]
    tasks = [path for path, rows in runs if on_tasks(rows)]
    if tasks and len(tasks) < len(runs):
        raise ValueError(
            f"runs that are compared must be of one kind, got task worlds in {', '.join(map(str, tasks))} and grids in "
            f"{', '.join(str(path) for path, _ in runs if path not in tasks)}: no world is in both"
        )
    measures = settings.family(PAIRED if tasks else COMPARED)
    for path, rows in runs:
        _check_known(path, rows, measures, settings)
    sides = _sides(runs, measures, settings.agents)
    pairs = _pairs(sides)
    if not pairs:
        raise ValueError(
            "a comparison needs two sides, got one agent in one run: name a second agent or a second run"
            if len(runs) == 1
            else "a comparison needs an agent on either side: see goalscope measure RUN for the names of the agents"
        )
    shared = [shared_worlds(first, second) for first, second in pairs]
    without = [f"{first.name} and {second.name}" for first, second in shared if not len(first.rows)]
    if len(without) == len(shared):
        raise ValueError(
            f"what is compared must share worlds, but {'; '.join(without[:5])} have none in common: run both on the "
            "same worlds (same seed, sizes, densities and count in their studies)"
        )
    alone = _alone(sides, pairs)
    if len(runs) > 1:
        shared = _between_runs(runs, sides, pairs, shared, settings, alone)
    listed = compare_pairs(shared, measures, margin=settings.margin)
    plain = comparison_table(listed)
    family = (
        f"p (Holm) corrected for all {len(listed)} tests of this table" if len(listed) > 1 else "a family of 1 test"
    )
    _show(plain, f"Paired by grid on common worlds; {family}")
    if without:
        say(f"no worlds in common: {'; '.join(without)}")
    if alone:
        say(alone)
    settings.files.write(
        comparison_records(listed), level=LEVEL, family=counted(len(listed), "test"), measures=measures
    )


def compare_versions(paths: Sequence[Path], settings: ComparisonSettings) -> None:
    """Print each agent of one run under each transform against itself on the original grids.

    The family and its margins are those that the study of the run declares, unless measures or margins are named.

    Args:
        paths: one run.
        settings: what is to be compared.

    Raises:
        ValueError: several runs, no declared family, unknown measures or agents, no transforms.
    """
    if len(paths) != 1:
        raise ValueError(f"--transforms compares the versions of one run's grids, got {len(paths)} runs")
    path = paths[0]
    with Store(path) as store:
        study = store.study()
        listed = store.agent_names() if study else []
    declared = study.analysis.invariance if study and study.analysis else None
    if not settings.margin and settings.measures is None:
        if declared is None:
            raise ValueError(
                f"a family of tests must be declared, but the study of {path} declares no analysis: invariance, and "
                "no measures are named: --measures 'success;action accuracy', or --margin 'success=0.1'"
            )
        settings = replace(settings, margin=dict(declared.margin))
    elif declared is not None:
        say("family and margins as given here, not as the study declared them before the data", error=True)
    names = settings.family(())
    rows = measured_rows(path)
    _check_known(path, rows, names, settings)
    wanted = sorted(
        _wanted(rows, settings.agents, str(path)),
        key=lambda name: listed.index(name) if name in listed else len(listed),
    )
    kept = rows.where(rows.among("agent", wanted))
    level = declared.level if declared is not None else LEVEL
    found = in_order(compare_transforms(kept, margin=settings.margin, measures=names, level=level), wanted)
    size = counted(len(found) // len(wanted), "test")
    for agent in wanted:
        mine = [one for one in found if one.agent == agent]
        _show(means_table(mine), f"{agent}: transformed − original, paired by grid, a family of {size}")
        _show(grids_table(mine), f"{agent}: differences of single grids, a family of {size}")
    settings.files.write(contrast_records(found), level=level, family=f"{size} an agent", measures=names)


def _show(plain: Plain, title: str) -> None:
    """Print a table and the notes below it."""
    table(plain.headings, plain.rows, title=title, numbers=plain.numbers)
    for line in plain.notes:
        say(line)


def _check_known(path: Path, rows: Rows, measures: Sequence[str], settings: ComparisonSettings) -> None:
    option = "--margin" if settings.measures is None and settings.margin else "--measures"
    check_measures(measures, list(dict.fromkeys(rows.measure.tolist())), str(path), option)


def _wanted(rows: Rows, agents: Sequence[str], where: str) -> list[str]:
    """Return the agents that are compared, in the order of the rows: all, or those that were named."""
    there = list(dict.fromkeys(map(str, rows["agent"].tolist())))
    absent = [name for name in agents if name not in there]
    if absent:
        raise ValueError(f"--agents must name agents of {where} ({'; '.join(there)}), got {'; '.join(absent)}")
    return [name for name in there if not agents or name in agents]


def _sides(runs: Sequence[tuple[Path, Rows]], measures: Sequence[str], agents: Sequence[str]) -> list[list[Side]]:
    """Return the sides of each run: its agents, or those that were named; a name must be that of an agent somewhere."""
    every = Rows.concatenate([rows for _, rows in runs]) if len(runs) > 1 else runs[0][1]
    wanted = _wanted(every, agents, " or ".join(str(path) for path, _ in runs))
    found = []
    names = _run_names([path for path, _ in runs])
    for (_, rows), run_name in zip(runs, names, strict=True):
        kept = rows.where(rows.among("measure", measures))
        there = sorted(set(kept["agent"].tolist()) & set(wanted))
        found.append(
            [
                Side(
                    name=name if len(runs) == 1 else f"{run_name}: {name}",
                    rows=kept.where(kept.among("agent", [name])),
                )
                for name in there
            ]
        )
    return found


def _pairs(sides: Sequence[Sequence[Side]]) -> list[tuple[Side, Side]]:
    """Return what is compared: all agents of one run; of several runs the same agent, else every agent with every."""
    if len(sides) == 1:
        return list(combinations(sides[0], 2))
    pairs = []
    for one, other in combinations(sides, 2):
        crossed = list(product(one, other))
        same = [(first, second) for first, second in crossed if _agent(first) == _agent(second)]
        pairs += same or crossed
    return pairs


def _alone(sides: Sequence[Sequence[Side]], pairs: Sequence[tuple[Side, Side]]) -> str:
    """Return which agents of several runs are compared with nothing, and how to compare them; "" for none."""
    paired = {side.name for pair in pairs for side in pair}
    lone = [side for of_run in sides for side in of_run if side.name not in paired]
    if not lone:
        return ""
    names = ";".join(dict.fromkeys(_agent(side) for side in lone))
    return (
        f"not compared, since no other run has an agent of that name: {', '.join(side.name for side in lone)}: name "
        f"them to compare them, --agents '{names}'"
    )


def _copies(runs: Mapping[str, Path], pair: tuple[Side, Side]) -> frozenset[str]:
    """Return the ids of the episodes that stand on both sides of a pair, the same step by step."""
    first, second = pair
    common = set(first.rows.episode_id.tolist()) & set(second.rows.episode_id.tolist())
    if not common:
        return frozenset()
    ours, theirs = (_steps(runs[side.name], common) for side in pair)
    return frozenset(name for name in common if ours[name] == theirs[name])


def _steps(path: Path, episodes: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return what was done and said in each of some episodes of a run."""
    sql = (
        "SELECT steps.step, action, failure, text, output_tokens FROM steps JOIN episodes ON steps.episode = "
        "episodes.number WHERE episodes.id = ? ORDER BY steps.step"
    )
    with Store(path) as store:
        return {name: list(store.query(sql, (name,))) for name in sorted(episodes)}


def _between_runs(
    runs: Sequence[tuple[Path, Rows]],
    sides: Sequence[Sequence[Side]],
    pairs: Sequence[tuple[Side, Side]],
    shared: Sequence[tuple[Side, Side]],
    settings: ComparisonSettings,
    alone: str,
) -> list[tuple[Side, Side]]:
    """Check what only runs can have, other horizons and the same episodes, and return the pairs with what is the same.

    Raises:
        ValueError: other horizons that nobody asked for, or nothing but the same episodes.
    """
    whole: dict[str, Side] = {}
    path_of: dict[str, Path] = {}
    for (path, rows), own in zip(runs, sides, strict=True):
        single = rows.where(rows.episode_id != "")  # those of a group of episodes name none
        for side in own:
            whole[side.name] = replace(side, rows=single.where(single.among("agent", [_agent(side)])))
            path_of[side.name] = path
    full = [shared_worlds(whole[first.name], whole[second.name]) for first, second in pairs]
    _check_horizons(list(path_of.values()), full, allowed=settings.horizons)
    marked = []
    for pair, episodes in zip(shared, full, strict=True):
        copies = len(_copies(path_of, episodes))
        first, second = (
            replace(side, episodes=len(set(of.rows.episode_id.tolist())), copies=copies)
            for side, of in zip(pair, episodes, strict=True)
        )
        marked.append((first, second))
    if all(0 < side.copies == side.episodes for pair in marked for side in pair):
        raise ValueError(
            f"what is compared must be different episodes, but {' and '.join(str(path) for path, _ in runs)} hold the "
            f"same ones of {', '.join(dict.fromkeys(_agent(first) for first, _ in marked))}; "
            f"{alone or 'one is a copy of the other, or repeats it: name other agents or another run'}"
        )
    return marked


def _agent(side: Side) -> str:
    return str(side.rows["agent"][0])


def _check_horizons(paths: Sequence[Path], shared: Sequence[tuple[Side, Side]], *, allowed: bool) -> None:
    """Check that the episodes that are paired may last equally long, or say where they may not.

    Raises:
        ValueError: they may not, and nobody asked for that.
    """
    horizons: dict[str, int] = {}
    for path in paths:
        with Store(path) as store:
            horizons |= dict(store.query("SELECT id, horizon FROM episodes"))
    for first, second in shared:
        mine, theirs = ({key: horizons[name] for key, name in _episodes(side)} for side in (first, second))
        other = [(mine[key], theirs[key]) for key in mine if key in theirs and mine[key] != theirs[key]]
        if not other:
            continue
        text = (
            f"{first.name} and {second.name} differ in horizon on {counted(len(other), 'common world')} (the first: "
            f"at most {other[0][0]} steps against {other[0][1]})"
        )
        if not allowed:
            raise ValueError(
                f"what is compared must be given the same time, but {text}: give both studies the same horizon, or ask "
                "for the difference that more time makes with --other-horizons"
            )
        say(f"note: {text}", error=True)


def _episodes(side: Side) -> list[tuple[World, str]]:
    return list(zip(worlds_of(side.rows), side.rows.episode_id.tolist(), strict=True))


def _run_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest endings of the paths that tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
