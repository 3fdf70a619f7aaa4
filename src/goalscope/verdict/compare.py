"""Comparison of two models: paired differences by world, with Holm's correction over all of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import combinations
from typing import Any, Final

import numpy as np

from goalscope.goals import goal_measure
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import say_all
from goalscope.measures.comparison import LEVEL, Compared, SideRows, contrast, in_family
from goalscope.report.blocks import Footnotes, Table, TextColumns, plain_table
from goalscope.runs.store import Store
from goalscope.stats import UNBOUNDED
from goalscope.stats.rows import Rows, Tag
from goalscope.verdict import evidence_inside as inside
from goalscope.verdict.arms import GIVEN, MOVED
from goalscope.verdict.claims import ClaimLedger, Difference
from goalscope.verdict.evidence import ArmData, ArmRun
from goalscope.verdict.evidence_inside import FIRST
from goalscope.verdict.sentences import aims_of

COMPARED: Final[tuple[tuple[str, str, Mapping[str, Tag]], ...]] = (
    ("grids", "success", {}),
    ("grids", "action accuracy", {}),
    ("grids", "invalid turns", {}),
    ("keys", "errors towards the key", {"control": False}),
    ("keys", "success", {"kind": "key-door"}),
    ("transforms", "action accuracy", {}),
    ("fog", "success", {}),
    ("fog", "redundant backtracking", {}),
    ("tasks", "success", {}),
    ("tasks", "exploration error", {}),
    ("tasks", "exploitation error", {}),
    ("worlds", "success", {}),
    ("worlds", "action accuracy", {}),
)
"""The declared family of comparisons of behaviour: arm, measure, and the worlds that are compared."""

DIRECTED: Final = ("grids", GIVEN)
"""The arms in which goal-directedness is compared: those that determine what an agent is after."""

_Inside = tuple[str, str, Callable[[ArmData], Rows]]


def _decoded(arm: str, what: str, read: Callable[[ArmData], inside.Quantity]) -> _Inside:
    return arm, f"{what}, minus permuted weights", lambda data: read(data).by_grid()


INSIDE: Final[tuple[_Inside, ...]] = (
    _decoded("inside", "walls decoded", lambda data: inside.map_read(data, "wall")),
    _decoded("inside", "goal's place decoded", lambda data: inside.map_read(data, "goal")),
    *(
        (
            "patching",
            f"actions that follow {tokens}, {thing} moved, minus noise",
            partial(inside.patch_by_grid, site=site, moved=thing),
        )
        for site, tokens in (("grid", "the cells"), ("pre", "the tokens before the reasoning"))
        for thing in MOVED
    ),
    *(
        (
            "reasoning",
            f"actions that follow exchanged moves, {thing} moved, minus its own moves",
            partial(inside.plan_followed_by_grid, moved=thing),
        )
        for thing in MOVED
    ),
    _decoded("plans", f"first {FIRST} actions decoded", lambda data: inside.plan_read(data, FIRST)),
    _decoded("beliefs", "walls seen in fog decoded", lambda data: inside.map_read(data, "wall", seen=True)),
    _decoded("beliefs", "actions that fit the decoded map", inside.beliefs_read),
)
"""The comparisons of what is inside the models: arm, name, and a function that returns for each grid a value minus that
of a control.
"""


def differences(
    names: Sequence[str],
    runs: Mapping[tuple[str, str], ArmRun],
    level: float,
    kept_apart: Callable[[str], AbstractContextManager[object]] = nullcontext,
) -> tuple[Difference, ...]:
    """Compare each pair of models on the worlds that both played, in all measures for which this is declared.

    Args:
        names: names of the models.
        runs: (arm, name of a model) -> the measured run with its episodes; an arm is a part of the evaluation.
        level: family-wise level of all differences together.
        kept_apart: context manager, entered with the name of each comparison; a comparison that fails inside it is left
            out.

    Returns:
        The differences that have an interval, with p values after Holm's correction over all of them.
    """
    comparisons: list[Compared] = []
    for arm, measure, rows_of, unit, bounds in _quantities():
        for pair in combinations(names, 2):
            if any((arm, name) not in runs for name in pair):
                continue
            with kept_apart(f"comparing {measure} ({arm}) of {pair[0]} and {pair[1]}"):
                first, second = (SideRows(name, rows_of(ArmData.of(runs[arm, name], name))) for name in pair)
                if len(first.rows) and len(second.rows):
                    scale: dict[str, Any] = {"unit": unit, "bounds": bounds, "confidence": 1 - level}
                    comparisons.append(contrast(f"{measure} ({arm})", first, second, level=level, **scale))
    defined = [comparison for comparison in comparisons if comparison.paired.difference.has_interval]
    return tuple(map(_recorded, in_family(defined, "differences of models", level)))


def _recorded(comparison: Compared) -> Difference:
    """Return a comparison of two models in the form of the ledger."""
    direction = (
        comparison.paired.direction if comparison.test.rejected else comparison.test.note or "no difference was shown"
    )
    outcome = direction + (f" for {comparison.first} than for {comparison.second}" if comparison.test.rejected else "")
    names = ("value", "low", "high", "clusters", "unit", "note")
    fields: dict[str, Any] = {name: getattr(comparison.paired.difference, name) for name in names}
    fields |= {"first": comparison.first, "second": comparison.second, "rule": comparison.measure, "outcome": outcome}
    return Difference(**fields, p=comparison.test.adjusted, shown=comparison.test.rejected)


def directed_rows(store: Store) -> Rows:
    """Return the results of a measured run as rows, with goal-directedness measured as an evaluation does.

    The rows of MEG (maximum-entropy goal-directedness) towards the goal are replaced by the contribution of each world
    at the agent's common rationality.
    """
    run = ArmRun.of(store, 1 - LEVEL)
    agents = dict.fromkeys(map(str, run.rows["agent"].tolist()))
    behaviour = run.rows.where(run.rows.measure != goal_measure(GOAL))
    return Rows.concatenate([behaviour, *(_goal_directedness(ArmData.of(run, agent)) for agent in agents)])


def aims_in_words(ledger: ClaimLedger) -> list[dict[str, str]]:
    """Return in words what the verdict says that a model is after.

    Args:
        ledger: the claims about the model.

    Returns:
        One dictionary for each arm (part of the evaluation) that asks this, with the keys "worlds", "answer" and
        "finding" (a sentence).
    """
    return [
        {
            "worlds": title,
            "answer": ", ".join(dict.fromkeys(finding.answer for finding in findings)),
            "finding": say_all(findings),
        }
        for title, findings in aims_of(ledger).items()
    ] or [{"worlds": "", "answer": "", "finding": f"We did not ask what {ledger.model} is directed at."}]


def differences_table(differences: Sequence[Difference], caption: str) -> Table:
    """Return a table of differences between models, with one row per difference and caveats as notes below it."""
    notes = Footnotes()
    columns: TextColumns[Difference] = [
        ("quantity", lambda difference: difference.rule),
        ("what differs", lambda difference: difference.outcome),
        (
            "first minus second",
            lambda difference: (
                f"{difference.value:+.3f} [{difference.low:.3f}, {difference.high:.3f}]".replace("-", "−")
                + f" {difference.unit}"
            ),
        ),
        ("p", lambda difference: f"{difference.p:.3g}"),
        ("worlds", lambda difference: str(difference.clusters)),
        ("note", lambda difference: notes.mark(difference.note)),
    ]
    return plain_table(differences, columns, (2, 3, 4), caption=caption, footnotes=notes)


_Quantity = tuple[str, str, Callable[[ArmData], Rows], str, tuple[float, float]]


def _quantities() -> Iterator[_Quantity]:
    """Yield the compared quantities: arm, name, rows, unit and bounds; a difference to a control may be negative."""
    for arm in DIRECTED:
        yield arm, "goal-directedness in nats", _goal_directedness, "nats", UNBOUNDED
    for arm, measure, tags in COMPARED:
        yield arm, measure, partial(_behaviour, measure=measure, tags=tags), "share", (0.0, 1.0)
    for arm, measure, rows_of in INSIDE:
        yield arm, measure, rows_of, "share", (-1.0, 1.0)


def _behaviour(data: ArmData, *, measure: str, tags: Mapping[str, Tag]) -> Rows:
    return data.among(measure, **tags)


def _goal_directedness(data: ArmData) -> Rows:
    """Return each world's contribution to the signed MEG towards the goal, at the model's best-fitting rationality.

    The mean over worlds is the MEG. Since the rationality maximises it, a small error of the rationality hardly changes
    it.
    """
    rows = data.run.goals.rows.select(measure=goal_measure(GOAL), agent=data.agent)
    return rows.where(np.full(len(rows), not data.speechless))
