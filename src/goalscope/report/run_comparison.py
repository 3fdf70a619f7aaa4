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
from goalscope.report.comparison import Compared, Side, compare_pairs, shared_worlds, worlds_of
from goalscope.report.measured import MeasuredRows
from goalscope.report.sections.results import PAIRED
from goalscope.rows import Rows, Tag
from goalscope.runs import Store
from goalscope.runs.episode_columns import read_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSettings:
    """What is to be compared."""

    measures: Sequence[str] | None = None  # the family; None for those of the margins, else for what fits the runs
    agents: Sequence[str] = ()  # the agents to compare, all where empty
    margin: Mapping[str, float] = field(default_factory=dict)  # equivalence margin of each measure that has one
    horizons: bool = False  # compare episodes that may last differently long, too

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
    """The paired comparisons of runs."""

    pairs: Sequence[Compared]  # one for each pair of sides and measure
    measures: Sequence[str]  # the family
    without: Sequence[str]  # pairs without common worlds
    alone: str  # which agents are compared with nothing, and how to compare them; "" for none
    notes: Sequence[str]  # what a reader must know beforehand


@dataclass(frozen=True, slots=True)
class _Agent:
    """An agent of a run on one side of a comparison."""

    name: str
    run: Path
    side: Side
    episodes: Side  # the same with the rows of all measures, without those of groups of episodes


_Pair = tuple[_Agent, _Agent]


def compare_runs(runs: Sequence[tuple[Path, Rows | MeasuredRows]], settings: ComparisonSettings) -> RunComparison:
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
    measured = [(path, rows if isinstance(rows, MeasuredRows) else MeasuredRows(rows)) for path, rows in runs]
    tasks = [path for path, rows in measured if "exploration error" in rows.measures]
    if tasks and len(tasks) < len(runs):
        raise ValueError(
            f"runs that are compared must be of one kind, got task worlds in {', '.join(map(str, tasks))} and grids in "
            f"{', '.join(str(path) for path, _ in runs if path not in tasks)}: no world is in both"
        )
    measures = settings.family(PAIRED if tasks else COMPARED)
    for path, rows in measured:
        check_known(path, rows.every_measure, measures, settings)
    agents = _agents(measured, measures, settings.agents)
    pairs = _pairs(agents)
    if not pairs:
        raise ValueError(
            "a comparison needs two sides, got one agent in one run: name a second agent or a second run"
            if len(runs) == 1
            else "a comparison needs an agent on either side: see goalscope measure RUN for the names of the agents"
        )
    shared = [shared_worlds(first.side, second.side) for first, second in pairs]
    without = [f"{first.name} and {second.name}" for first, second in shared if not len(first.rows)]
    if len(without) == len(shared):
        raise ValueError(
            f"what is compared must share worlds, but {'; '.join(without[:5])} have none in common: run both on the "
            "same worlds (same seed, sizes, densities and count in their studies)"
        )
    alone, notes = _alone(agents, pairs), list[str]()
    if len(runs) > 1:
        full = [shared_worlds(first.episodes, second.episodes) for first, second in pairs]
        notes = _horizon_notes([path for path, _ in runs], full, allowed=settings.horizons)
        shared = [_marked(*each) for each in zip(pairs, shared, full, strict=True)]
        if all(side.copied for pair in shared for side in pair):
            raise ValueError(
                f"what is compared must be different episodes, but {' and '.join(str(path) for path, _ in runs)} hold "
                f"the same ones of {', '.join(dict.fromkeys(first.name for first, _ in pairs))}; "
                f"{alone or 'one is a copy of the other, or repeats it: name other agents or another run'}"
            )
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


def check_known(path: Path, known: Sequence[str], measures: Sequence[str], settings: ComparisonSettings) -> None:
    """Refuse measures that a run does not hold."""
    option = "--margin" if settings.measures is None and settings.margin else "--measures"
    check_measures(measures, known, str(path), option)


def agents_among(known: Iterable[Tag], agents: Sequence[str], where: str) -> list[str]:
    """Return the agents that are compared, in the order in which they are known: all, or those that were named."""
    there = list(dict.fromkeys(map(str, known)))
    absent = [name for name in agents if name not in there]
    if absent:
        raise ValueError(f"--agents must name agents of {where} ({'; '.join(there)}), got {'; '.join(absent)}")
    return [name for name in there if not agents or name in agents]


def _agents(
    runs: Sequence[tuple[Path, MeasuredRows]], measures: Sequence[str], agents: Sequence[str]
) -> list[list[_Agent]]:
    """Return the agents of each run, or those that were named; a name must be that of an agent somewhere."""
    every = [name for _, rows in runs for name in rows.values.get("agent", ())]
    wanted = agents_among(every, agents, " or ".join(str(path) for path, _ in runs))
    found = []
    for (path, rows), run_name in zip(runs, _run_names([path for path, _ in runs]), strict=True):
        kept, single = rows.every_of(*measures), rows.of("success")  # every episode that was measured has its success
        of_run = []
        for name in sorted(set(kept.numbered("agent")[1]) & set(wanted)):
            title = name if len(runs) == 1 else f"{run_name}: {name}"
            sides = (Side(title, each.where(each.among("agent", [name]))) for each in (kept, single))
            of_run.append(_Agent(name, path, *sides))
        found.append(of_run)
    return found


def _pairs(agents: Sequence[Sequence[_Agent]]) -> list[_Pair]:
    """Return what is compared: all agents of one run; of several runs the same agent, else every agent with every."""
    if len(agents) == 1:
        return list(combinations(agents[0], 2))
    pairs = []
    for one, other in combinations(agents, 2):
        crossed = list(product(one, other))
        pairs += [(first, second) for first, second in crossed if first.name == second.name] or crossed
    return pairs


def _alone(agents: Sequence[Sequence[_Agent]], pairs: Sequence[_Pair]) -> str:
    """Return which agents of several runs are compared with nothing, and how to compare them; "" for none."""
    paired = {one.side.name for pair in pairs for one in pair}
    lone = [one for of_run in agents for one in of_run if one.side.name not in paired]
    if not lone:
        return ""
    names = ";".join(dict.fromkeys(one.name for one in lone))
    return (
        f"not compared, since no other run has an agent of that name: {', '.join(one.side.name for one in lone)}: name "
        f"them to compare them, --agents '{names}'"
    )


def _marked(pair: _Pair, shared: tuple[Side, Side], full: tuple[Side, Side]) -> tuple[Side, Side]:
    """Return both sides with the number of their episodes, and of those that are the same step by step on the other."""
    ids = [set(side.rows.episode_id.tolist()) for side in full]
    common = ids[0] & ids[1]
    ours, theirs = (_steps(agent.run, common) if common else {} for agent in pair)
    copies = sum(ours[name] == theirs[name] for name in common)
    first, second = (replace(side, episodes=len(own), copies=copies) for side, own in zip(shared, ids, strict=True))
    return first, second


def _steps(path: Path, episodes: Iterable[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return what was done and said in each of some episodes of a run."""
    with Store(path) as store:
        return {
            one.id: [(step.index, step.action, step.failure, step.text, step.output_tokens) for step in one.steps]
            for one in store.episodes(sorted(episodes))
        }


def _horizon_notes(paths: Sequence[Path], shared: Sequence[tuple[Side, Side]], *, allowed: bool) -> list[str]:
    """Return where the episodes that are paired may not last equally long.

    Raises:
        ValueError: they may not, and nobody asked for that.
    """
    horizons: dict[str, int] = {}
    notes = []
    for path in paths:
        with Store(path) as store:
            horizons |= {one.id: one.horizon for one in read_heads(store)}
    for pair in shared:
        mine, theirs = (
            {world: horizons[name] for world, name in zip(worlds_of(side.rows), side.rows.episode_id, strict=True)}
            for side in pair
        )
        other = [(mine[world], theirs[world]) for world in mine if world in theirs and mine[world] != theirs[world]]
        if not other:
            continue
        text = (
            f"{pair[0].name} and {pair[1].name} differ in horizon on {counted(len(other), 'common world')} (the first: "
            f"at most {other[0][0]} steps against {other[0][1]})"
        )
        if not allowed:
            raise ValueError(
                f"what is compared must be given the same time, but {text}: give both studies the same horizon, or ask "
                "for the difference that more time makes with --other-horizons"
            )
        notes.append(f"note: {text}")
    return notes


def _run_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest endings of the paths that tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
