"""The command `compare`: agents, runs and evaluations on the worlds that they share."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.own import raised_by_a_check
from goalscope._ground.progress import TALLY, Stage, aloud, lines
from goalscope._ground.words import counted
from goalscope.cli.console import say, show, table
from goalscope.cli.generator import OutFile, Reads, Separated, prints
from goalscope.cli.measuring import measure_compared
from goalscope.goals import goal_measure
from goalscope.goals.decision import GOAL
from goalscope.measures.behaviour import COMPARED
from goalscope.measures.comparison import LEVEL, Compared, compare_transforms
from goalscope.measures.table import CONDITIONS
from goalscope.report.blocks import Table, number
from goalscope.report.comparison import (
    CheckpointCurve,
    ComparisonSettings,
    RunComparison,
    agents_among,
    as_json,
    check_known,
    compare_runs,
    comparison_records,
    comparison_table,
    curve_of,
    grids_table,
    varying_tags,
)
from goalscope.report.exports import write
from goalscope.report.figures import as_csv
from goalscope.report.ledger import MeasuredRows, Run
from goalscope.report.sections.meg import untold_in
from goalscope.runs import Store
from goalscope.runs.study_parts import check_margin
from goalscope.stats.records import Records
from goalscope.stats.rows import Rows
from goalscope.verdict.claims import Evaluation
from goalscope.verdict.compare import DIRECTED, aims_in_words, directed_rows
from goalscope.verdict.opening import is_evaluation, read_ledger, runs_by_arm
from goalscope.verdict.plan import LEDGER


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons(Records):
    """Paired comparisons of agents, runs, transforms of grids, or evaluations, as `compare` returns them.

    Attributes:
        families: name of a family ("" for runs) -> its comparisons, corrected together for multiple testing.
        by: what names the families: "arm" (part of an evaluation) for evaluations, "agent" for transforms, else "".
        level: error level of each family.
        left_out: name of an arm that could not be compared -> reason.
        directed: for evaluations: name of an arm -> its comparison of goal-directedness towards the goal
            (maximum-entropy goal-directedness, MEG, in nats).
        findings: for evaluations: the goal of each model in words, from the ledgers.
        curve: the curve of checkpoints over training, if requested; then there are no families.
    """

    families: Mapping[str, RunComparison]
    by: str = ""
    level: float = LEVEL
    left_out: Mapping[str, str] = field(default_factory=dict)
    directed: Mapping[str, RunComparison] = field(default_factory=dict)
    findings: Sequence[Mapping[str, str]] = ()
    curve: CheckpointCurve | None = None

    @property
    def named(self) -> list[tuple[str, RunComparison]]:
        """All families of comparisons (those corrected together) with their names; those of goal-directedness come
        first.
        """
        return [*self.directed.items(), *self.families.items()]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The comparisons as a list of dictionaries: the two sides, the difference with its interval, p values and
        notes.

        Those of goal-directedness come first. For a curve over training, there is one per measure and checkpoint.
        """
        if self.curve is not None:
            return self.curve.records
        return [
            {**({self.by: name} if self.by else {}), **record}
            for name, family in self.named
            for record in comparison_records(family.pairs)
        ]


def compare(
    *paths: Annotated[str | Path | Run | Evaluation, Reads("run", "evaluation")],
    measures: Annotated[Sequence[str] | None, Separated(";")] = None,
    agents: Annotated[Sequence[str] | None, Separated(";,")] = None,
    margin: Mapping[str, float] | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    between: str = "",
    transforms: bool = False,
    over: str = "",
    at: Sequence[float] | None = None,
    other_horizons: bool = False,
    stage: Stage = lines,
) -> Comparisons:
    """Compare agents or runs on the worlds they share; evaluations are compared part by part, goal-directedness first.

    Args:
        paths (RUN_A RUN_B ...): one run, to compare its agents, or several runs; or one evaluation, to compare its
            models, or several evaluations.
        measures (NAMES): measures to compare, separated by ';'. Default: those of --margin, else success;action
            accuracy.
        agents (NAMES): compare only these agents, separated by ';'.
        margin (MEASURE=NUMBER): also test equivalence within these margins, separated by ';'.
        where (TAG=VALUE): compare only rows with these tags, separated by ';', e.g. head=mlp for probes of this form.
        between (TAG): for one run: compare the values of this tag, e.g. site (where a probe reads), instead of agents.
        transforms: for one run: compare each agent on the original grids with itself on the transformed grids.
        over (TAG): draw a curve over training: the tag of episodes that gives their checkpoint, e.g. checkpoint.
        at (NUMBERS): draw a curve over training: the checkpoint number of each run, separated by ','.
        other_horizons: also compare runs whose episodes have different time limits.
        stage: shows the progress of a task.

    Returns:
        The comparisons in families, each corrected for multiple testing; or the curve over training.

    Raises:
        ValueError: if there is nothing to compare, a measure or agent is unknown, or no worlds are shared.
    """
    settings = ComparisonSettings(
        measures=measures,
        agents=agents or (),
        margin={name: check_margin(name, number) for name, number in (margin or {}).items()},
        horizons=other_horizons,
        where=where or {},
        between=between,
        transforms=transforms,
    )
    places = [
        place.path if isinstance(place, Run) else place.directory if isinstance(place, Evaluation) else Path(place)
        for place in paths
    ]
    with aloud():
        if not over and at is None:
            return _compared_places(places, settings, stage)
        if transforms or (over and at is not None):
            raise ValueError(
                "for a curve over training, give either --over TAG or --at NUMBERS, and leave out --transforms"
            )
        return Comparisons(families={}, curve=_curve(places, settings, over or "checkpoint", at or (), stage))


def _compared_places(paths: Sequence[Path], settings: ComparisonSettings, stage: Stage) -> Comparisons:
    """Compare runs or evaluations, given by directory; see `compare`."""
    if settings.transforms:
        return _transformed(paths, settings, stage)
    if len({path.resolve() for path in paths}) != len(paths):
        raise ValueError(f"the runs to compare must be different, got {', '.join(map(str, paths))}")
    whole = [path for path in paths if is_evaluation(path)]
    if not whole:
        return Comparisons(families={"": _compared(paths, settings, stage)})
    if len(whole) < len(paths):
        run_paths = ", ".join(str(path) for path in paths if path not in whole)
        raise ValueError(
            f"cannot compare an evaluation with the run {run_paths}: give only evaluations, or only runs of their arms"
        )
    runs = [runs_by_arm(path) for path in paths]
    common = [name for name in runs[0] if all(name in arms for arms in runs)]
    if not common:
        raise ValueError(f"these evaluations have no arm in common: {', '.join(map(str, paths))}")
    families, directed, left_out = dict[str, RunComparison](), dict[str, RunComparison](), dict[str, str]()
    for name in common:
        together = [number for number, arm_runs in enumerate(runs) for _ in arm_runs[name]]
        places = [run.path for arm_runs in runs for run in arm_runs[name]]
        for by_goal in (True, False) if name in DIRECTED else (False,):
            try:
                (directed if by_goal else families)[name] = _compared(
                    places, settings, stage, together, directed=by_goal
                )
            except ValueError as refusal:
                if not raised_by_a_check(refusal):
                    raise
                left_out[f"{name}, goal-directedness" if by_goal else name] = str(refusal)
    if not families and not directed:
        raise ValueError(next(iter(left_out.values())))
    judged = [(path, read_ledger(path)) for path in paths if Folder(path).has_file(LEDGER)]
    findings = [
        {"evaluation": str(path), "model": model.model, **words}
        for path, evaluation in judged
        for model in evaluation.tested
        if not settings.agents or model.model in settings.agents
        for words in aims_in_words(model)
    ]
    return Comparisons(families=families, by="arm", left_out=left_out, directed=directed, findings=findings)


def _compared(
    paths: Sequence[Path],
    settings: ComparisonSettings,
    stage: Stage,
    together: Sequence[int] | None = None,
    *,
    directed: bool = False,
) -> RunComparison:
    """Compare measured runs; with ``directed``, compare only goal-directedness, which is measured here."""
    if directed:
        settings = replace(settings, measures=[goal_measure(GOAL)], margin={})
    with _measured(paths, stage, directed_rows if directed else None) as (measured, untold):
        comparison = compare_runs(measured, settings, together=together)
        return replace(comparison, notes=[*comparison.notes, *untold(comparison.measures)])


@contextmanager
def _measured(
    paths: Sequence[Path], stage: Stage, rows_of: Callable[[Store], Rows] | None = None
) -> Iterator[tuple[list[tuple[Path, MeasuredRows]], Callable[[Sequence[str]], Iterable[str]]]]:
    """Open runs, measuring those that were not measured yet.

    Yields the runs with their rows, and a function that returns the notes on the goals among given measures.
    """
    for path in paths:
        measure_compared(path, stage)
    with ExitStack() as stack:
        stores = [stack.enter_context(Store(path)) for path in paths]
        rows = [MeasuredRows(store if rows_of is None else rows_of(store)) for store in stores]

        def untold(measures: Sequence[str]) -> Iterable[str]:
            goals = {name for measured_rows in rows for name in measured_rows.goals}
            return dict.fromkeys(line for store in stores for line in untold_in(store)) if goals & {*measures} else ()

        yield list(zip(paths, rows, strict=True)), untold


def _curve(
    paths: Sequence[Path], settings: ComparisonSettings, over: str, places: Sequence[float], stage: Stage
) -> CheckpointCurve:
    """Return the curve of a model's checkpoints over training, in the worlds that all checkpoints share.

    Args:
        over: tag of episodes that gives their checkpoint.
        places: with a checkpoint number for each run, ``over`` is the name of these numbers.
    """
    if settings.between or settings.margin:
        raise ValueError("a curve over training supports neither --between nor --margin: leave them out")
    if places and len(places) != len(paths):
        raise ValueError(f"--at must give a number for each run, got {len(places)} for {len(paths)}")
    measures = settings.family(COMPARED)
    with _measured(paths, stage) as (measured, untold):
        curve = curve_of(measured, settings, measures, over=over, places=places)
        return replace(curve, notes=[*curve.notes, *untold(measures)])


def _transformed(paths: Sequence[Path], settings: ComparisonSettings, stage: Stage) -> Comparisons:
    """Compare each agent of one run on the transformed grids with itself on the original grids."""
    if settings.where or settings.between:
        raise ValueError("--transforms compares transformed with original grids: leave out --where and --between")
    if len(paths) != 1:
        raise ValueError(f"--transforms compares the versions of one run's grids, got {len(paths)} runs")
    (path,) = paths
    with Store(path) as store:
        study = store.study()
        study_agents = store.agent_names() if study else []
    declared = study.analysis.invariance if study and study.analysis else None
    if not settings.margin and settings.measures is None:
        if declared is None:
            raise ValueError(
                f"the study of {path} declares no family of tests (analysis: invariance), so name the measures: "
                "--measures 'success;action accuracy', or --margin 'success=0.1'"
            )
        settings = replace(settings, margin=dict(declared.margin))
    elif declared is not None:
        TALLY.tell("measures and margins are those given here, not those declared in the study before the data")
    names = settings.family(())
    measure_compared(path, stage)
    with Store(path) as store:
        measured = MeasuredRows(store)
        check_known(path, measured.every_measure, names, settings)
        parts = [measured.distinct(["agent", *CONDITIONS]), measured.probed, measured.changed]
        outside = Rows.concatenate(parts)  # one row of other measures for each combination of agent and conditions
        rows = Rows.concatenate([outside.where(~outside.among("measure", names)), measured.every_of(*names)])
    order = {name: index for index, name in enumerate(study_agents)}
    present = agents_among(rows.numbered("agent")[1], settings.agents, str(path))
    agents = sorted(present, key=lambda name: order.get(name, len(order)))
    level = declared.level if declared is not None else LEVEL
    compared = compare_transforms(rows, margin=settings.margin, measures=names, agents=agents, level=level)
    families = {
        agent: RunComparison(
            pairs=[comparison for comparison in compared if comparison.tags["agent"] == agent], measures=names
        )
        for agent in agents
    }
    return Comparisons(families=families, by="agent", level=level)


@prints(compare)
def show_comparisons(
    comparisons: Comparisons, *, transforms: bool, svg: OutFile = None, json: OutFile = None, csv: OutFile = None
) -> None:
    """Compare agents or runs on the worlds they share, with paired differences and tests, corrected together.

    Args:
        svg: draw the curve over training to this file; its ending chooses the format (.svg, .pdf, .png, or .csv for the
            numbers of the curve).
        json: also write the numbers to this file as JSON.
        csv: also write the numbers to this file as CSV.

    Examples:
        goalscope compare runs/a runs/b --margin 'success=0.1'
        goalscope compare runs/demo --agents 'optimal;random'
        goalscope compare runs/iso --transforms --json iso.json
        goalscope compare runs/early runs/late --at 0,1000 --svg curve.svg
    """
    if svg is not None and comparisons.curve is None:
        raise ValueError("--svg draws a curve over training: add --over TAG or --at NUMBERS")
    if comparisons.curve is not None:
        _show_curve(comparisons.curve, svg)
        measures = list(dict.fromkeys(checkpoint.measure for checkpoint in comparisons.curve.checkpoints))
        _write(
            json,
            csv,
            comparisons.records,
            level=LEVEL,
            family=counted(comparisons.curve.tests, "test"),
            measures=measures,
        )
        return
    if comparisons.findings:
        columns = ("model", "evaluation", "worlds", "answer", "finding")
        table(
            columns,
            [tuple(finding[name] for name in columns) for finding in comparisons.findings],
            title="Goal of each model",
        )
    for name, family in comparisons.named:
        for note in family.notes:
            say(note, error=True)
        for block in _tables(name, family, transforms=transforms, directed=comparisons.directed.get(name) is family):
            show(block)
        if (shared_tags := _alike(family.pairs)) and not transforms:
            say(f"all at {shared_tags}")
        if family.without:
            say(f"no worlds in common: {'; '.join(family.without)}")
        if family.alone:
            say(family.alone)
    for arm, why in comparisons.left_out.items():
        say(f"{arm}: {why}", error=True)
    sizes = [counted(len(family.pairs), "test") for _, family in comparisons.named]
    size = f"{sizes[0]} per agent" if transforms else ", ".join(sizes)
    measures = list(dict.fromkeys(name for _, family in comparisons.named for name in family.measures))
    findings = {"findings": list(comparisons.findings)} if comparisons.findings else {}
    _write(json, csv, comparisons.records, level=comparisons.level, family=size, measures=measures, **findings)


def _write(json: Path | None, csv: Path | None, records: Sequence[Mapping[str, Any]], **metadata: Any) -> None:
    """Write the records to the given files."""
    for path, text in ((json, as_json(records, **metadata)), (csv, as_csv(records))):
        if path is not None:
            NamedFile(path).save_text(text)
            say(f"written: {path}", error=True)


def _show_curve(curve: CheckpointCurve, svg: Path | None) -> None:
    """Print the curve of the checkpoints over training, and draw it to a file if one is given."""
    for note in curve.notes:
        say(note, error=True)
    show(curve.table, f"By {curve.over}, in worlds that all share; p corrected for {counted(curve.tests, 'test')}")
    if svg is not None:
        write(curve.figure, svg)
        say(f"written: {svg}", error=True)


def _tables(name: str, family: RunComparison, *, transforms: bool, directed: bool) -> list[Table]:
    """Return the tables of a family with their titles."""
    if transforms:
        size = counted(len(family.pairs), "test")
        title = f"{name}: transformed − original, paired by grid, a family of {size}"
        grids = f"{name}: differences of single grids, a family of {size}"
        return [comparison_table(family.pairs, caption=title), grids_table(family.pairs, caption=grids)]
    single = len(family.pairs) == 1
    words = "a family of 1 test" if single else f"p (Holm) corrected for all {len(family.pairs)} tests of this table"
    subject = "goal-directedness, MEG towards the goal, in nats per episode. " if directed else ""
    title = f"{f'{name}: ' if name else ''}{subject}Paired by grid on common worlds; {words}"
    return [comparison_table(family.pairs, caption=title)]


def _alike(comparisons: Sequence[Compared]) -> str:
    """Return the tags that have the same value in all comparisons, as text."""
    varying = set(varying_tags(comparisons))
    return ", ".join(
        f"{name} {number(value)}"
        for comparison in comparisons[:1]
        for name, value in comparison.tags.items()
        if name not in varying and value != ""
    )
