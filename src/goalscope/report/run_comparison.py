"""Comparison of runs, or of the agents of one run, on the worlds that they share: who is paired with whom."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

from goalscope.checks import did_you_mean
from goalscope.measures.behaviour import COMPARED
from goalscope.measures.invariance import check_family
from goalscope.report.blocks import counted
from goalscope.report.comparison import Compared, Side, World, compare_pairs, shared_worlds, worlds_of
from goalscope.report.run_data import on_tasks
from goalscope.report.sections.results import PAIRED
from goalscope.rows import Rows
from goalscope.runs import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings:
    """What is to be compared.

    Attributes:
        measures: the family of tests; None for the measures of the margins, else for what fits the runs.
        agents: the agents to compare, all where empty.
        margin: equivalence margin of each measure that has one.
        horizons: compare episodes that may last differently long, too.
    """

    measures: Sequence[str] | None = None
    agents: Sequence[str] = ()
    margin: Mapping[str, float] = field(default_factory=dict)
    horizons: bool = False

    def family(self, otherwise: Sequence[str]) -> list[str]:
        """Return the measures of the family: those named, else those with margins, else others; checked.

        Raises:
            ValueError: no measure or one twice, or a margin of a measure outside of the family.
        """
        names = list(self.measures if self.measures is not None else self.margin or otherwise)
        check_family(names, self.margin)
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """The paired comparisons of runs.

    Attributes:
        pairs: one for each pair of sides and measure.
        measures: the family.
        without: pairs without common worlds.
        alone: which agents are compared with nothing, and how to compare them; "" for none.
        notes: what a reader must know beforehand.
    """

    pairs: Sequence[Compared]
    measures: Sequence[str]
    without: Sequence[str]
    alone: str
    notes: Sequence[str]


def compare_runs(runs: Sequence[tuple[Path, Rows]], settings: ComparisonSettings) -> RunComparison:
    """Compare runs, or the agents of one run.

    Without measures the family is success and action accuracy; success, both errors and steps of successful episodes
    for runs in task worlds.

    Args:
        runs: the run directories, each with its rows.
        settings: what is to be compared.

    Raises:
        ValueError: unknown measures or agents, runs without common worlds or with other horizons there, nothing to
            compare.
    """
    tasks = [path for path, rows in runs if on_tasks(rows)]
    if tasks and len(tasks) < len(runs):
        raise ValueError(
            f"runs that are compared must be of one kind, got task worlds in {', '.join(map(str, tasks))} and grids in "
            f"{', '.join(str(path) for path, _ in runs if path not in tasks)}: no world is in both"
        )
    measures = settings.family(PAIRED if tasks else COMPARED)
    for path, rows in runs:
        check_known(path, rows, measures, settings)
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
    alone, notes = _alone(sides, pairs), list[str]()
    if len(runs) > 1:
        shared, notes = _between_runs(runs, sides, pairs, shared, settings, alone)
    listed = compare_pairs(shared, measures, margin=settings.margin)
    return RunComparison(pairs=listed, measures=measures, without=without, alone=alone, notes=notes)


def check_measures(names: Sequence[str], known: Sequence[str], where: str, option: str = "--measures") -> None:
    """Refuse names of measures that are not there.

    Raises:
        ValueError: names them, and what they may have been meant to be.
    """
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    if all(part.strip() in known for part in unknown[0].split(",") if part.strip()):
        close = ": names are separated by ';', not by ','"
    else:
        close = did_you_mean(unknown[0], known)
    raise ValueError(f"{option} must name measures of {where} ({'; '.join(known)}), got {'; '.join(unknown)}{close}")


def check_known(path: Path, rows: Rows, measures: Sequence[str], settings: ComparisonSettings) -> None:
    """Refuse measures that a run does not hold."""
    option = "--margin" if settings.measures is None and settings.margin else "--measures"
    check_measures(measures, list(dict.fromkeys(rows.measure.tolist())), str(path), option)


def agents_among(rows: Rows, agents: Sequence[str], where: str) -> list[str]:
    """Return the agents that are compared, in the order of the rows: all, or those that were named."""
    there = list(dict.fromkeys(map(str, rows["agent"].tolist())))
    absent = [name for name in agents if name not in there]
    if absent:
        raise ValueError(f"--agents must name agents of {where} ({'; '.join(there)}), got {'; '.join(absent)}")
    return [name for name in there if not agents or name in agents]


def _sides(runs: Sequence[tuple[Path, Rows]], measures: Sequence[str], agents: Sequence[str]) -> list[list[Side]]:
    """Return the sides of each run: its agents, or those that were named; a name must be that of an agent somewhere."""
    every = Rows.concatenate([rows for _, rows in runs]) if len(runs) > 1 else runs[0][1]
    wanted = agents_among(every, agents, " or ".join(str(path) for path, _ in runs))
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
) -> tuple[list[tuple[Side, Side]], list[str]]:
    """Return the pairs with the number of episodes that are the same on both sides, and what to note of horizons.

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
    notes = _horizon_notes(list(path_of.values()), full, allowed=settings.horizons)
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
    return marked, notes


def _agent(side: Side) -> str:
    return str(side.rows["agent"][0])


def _horizon_notes(paths: Sequence[Path], shared: Sequence[tuple[Side, Side]], *, allowed: bool) -> list[str]:
    """Return where the episodes that are paired may not last equally long.

    Raises:
        ValueError: they may not, and nobody asked for that.
    """
    horizons: dict[str, int] = {}
    notes = []
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
        notes.append(f"note: {text}")
    return notes


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
