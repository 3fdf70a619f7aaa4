"""The page of an evaluation: verdict and claims first, two pictures, then what is behind each answer, folded."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from goalscope.evaluation.arms import arms
from goalscope.evaluation.claims import Claim, ClaimLedger, Evaluation
from goalscope.evaluation.compare import differences_table
from goalscope.evaluation.evidence import ArmData, ArmRun
from goalscope.evaluation.evidence_asked import above_walker, walker_success
from goalscope.evaluation.evidence_goals import GOAL, shares
from goalscope.evaluation.identity import paragraphs, weights
from goalscope.evaluation.judging import Opened, opened, reopen
from goalscope.evaluation.rules import ALPHA, RULES, SPENT
from goalscope.measures.definition import ratio
from goalscope.report import Declared, Figure, FoldSpec, Group, RunData, lay_out, render_page, sections_of, write_page
from goalscope.report.blocks import Cell, Phrase, Table, counted, listed
from goalscope.report.charts import DifferenceBar, Forest
from goalscope.report.exports import Named, drawn, named
from goalscope.runs.server_checks import noted_of_answers
from goalscope.stats import Estimate, estimate_mean
from goalscope.yaml_text import write_yaml

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

SECTIONS: Final = (
    *("results", "task results", "size and density", "maps", "relation", "progress"),
    *("cognitive map", "beliefs", "plans", "patching", "steering"),
    "transcripts",
)
"""Sections of the report of a run that stand folded on the page, where a run has what they need."""

_EVIDENCE: Final = "evidence"
"""Anchor of the table that claims link to; the second model's ends with -1, and so on, as `lay_out` numbers them."""

SHOWN: Final = 4
"""Pictures of the look inside: true grids and decoded maps, in pairs."""

_RULE: Final = (
    "Yes: the interval of the quantity lies above its threshold. No: it lies below. Not shown: it holds the threshold, "
    "which is not “there is none”. Cannot be told: nothing that could be asked of this model answers it."
)
_STANDS: Final = (
    "0 is an agent that acts at random (exact; for turns, in the states that the model met), 1 the optimal one. Bars "
    "are the intervals that decide, over grids."
)
_TOWARDS: Final = (
    "How much better than chance each place predicts what the model does, as a share of what an agent shows that is "
    "after that place and nothing else; below 0: it avoids the place. Bars are intervals over grids."
)
_ENDS: Final = {0.0: "random", 1.0: "optimal"}
_BOUND: Final = {0.0: "chance", 1.0: "nothing else"}


def write(evaluation: Evaluation, runs: Opened, path: Path) -> Path:
    """Write the page of an evaluation; the same runs give the same bytes.

    Raises:
        ImportError: jinja2 or matplotlib is not installed (they come with the extra ``report``).
        OSError: the page cannot be written.
    """
    names = [ledger.model for ledger in evaluation.models]
    title = f"Is {names[0]} goal-directed?" if len(names) == 1 else f"{listed(names)}: are they goal-directed?"
    sections, groups = contents(evaluation, runs)
    return write_page(path, render_page(title, [], sections, evaluation.to_json(), groups, package="evaluation"))


def contents(evaluation: Evaluation, runs: Opened) -> tuple[list[Declared], list[Group]]:
    """Return the sections of the page of an evaluation, and the groups that are folded below them."""
    names = [model.model for model in evaluation.models]
    evidence = {name: f"{_EVIDENCE}-{number}" if number else _EVIDENCE for number, name in enumerate(names)}

    def each(declare: Callable[[ClaimLedger], Declared]) -> Iterator[Declared]:
        for model, declared in zip(evaluation.models, map(declare, evaluation.models), strict=True):
            title = f"{model.model}: {declared.title[:1].lower()}{declared.title[1:]}"
            yield replace(declared, title=title) if len(names) > 1 else declared

    titles = {arm.name: arm.title for ledger in evaluation.models for arm in ledger.arms}
    by_path: dict[Path, tuple[str, ArmRun, str]] = {}  # an arm that looks inside has the run of another one
    for (name, model), run in runs.items():
        if run.part is None:
            title = titles[name] if len(names) == 1 else f"{titles[name]}, {model}"
            by_path.setdefault(run.store.path, (title, run, name))
    groups = [_group(run, title, name) for title, run, name in by_path.values()]
    there = {section.anchor for group in groups for section in group.sections}
    notes = sorted({line for _, run, _ in by_path.values() for line in noted_of_answers(run.store)})
    sections = lay_out(
        [
            *each(
                lambda model: Declared(
                    anchor="verdict", title="Verdict", paragraphs=paragraphs(model, beside=len(names) > 1)
                )
            ),
            *_side_by_side(evaluation, evidence),
            *_pictures(names, runs),
            *each(partial(_claims, evidence=evidence)),
            *_maps(names, runs),
            *each(_behind),
            *each(partial(_evidence, there=there)),
            _method(evaluation, notes),
        ]
    )
    return sections, groups


def named_of(directory: str | Path) -> Named:
    """Return the figures and tables of the page of an evaluation that was judged, without its models.

    Raises:
        FileNotFoundError: no evaluation lies there, or the logs that it judged are elsewhere.
        ValueError: it was not judged since it grew, or a file is none of goalscope's.
    """
    evaluation, ledgers = reopen(directory)
    with opened(evaluation) as runs:
        sections, groups = contents(ledgers, runs)
    return named([*sections, *(section for group in groups for section in group.sections)])


def figure(directory: str | Path, name: str) -> "MatplotlibFigure":
    """Draw a figure of the page of an evaluation.

    Args:
        directory: the directory of the evaluation.
        name: the name of the figure, see `goalscope.report.figure`.

    Raises:
        FileNotFoundError: no evaluation lies there, or the logs that it judged are elsewhere.
        ValueError: an unknown name, or that of a table; or it was not judged since it grew.
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    return drawn(named_of(directory), name)


def _claims(ledger: ClaimLedger, evidence: Mapping[str, str]) -> Declared:
    table = Table(
        caption="Each question, the answer in a word, and the estimate that it follows from with its interval",
        headings=("question", "answer", "estimate", "threshold", "worlds"),
        rows=tuple(_line(claim, evidence[ledger.model]) for claim in ledger.claims),
        numbers=(2, 3, 4),
    )
    return Declared(anchor="claims", title="Claims", tables=[table], closing=_RULE)


def _line(claim: Claim, target: str) -> tuple[Phrase | Cell | str, ...]:
    """Return the table row of a claim; its question links to what it rests on."""
    estimate = _estimate(claim)
    subtitle = claim.quantity if estimate.estimate is not None else claim.says
    return (
        Phrase(claim.question, below=subtitle, target=target),
        Phrase(claim.answer, strong=claim.answer in ("yes", "no")),
        estimate,
        "–" if estimate.estimate is None or claim.threshold is None else f"{claim.threshold:g}",
        str(claim.clusters or "–"),
    )


def _estimate(claim: Claim) -> Cell:
    if None in (claim.value, claim.low, claim.high, claim.confidence):
        return Cell(value="–", hint=claim.says)
    names = ("value", "low", "high", "confidence", "n", "clusters", "method", "unit", "note")
    return Cell.of(Estimate(**{name: getattr(claim, name) for name in names}), "world")


def _side_by_side(evaluation: Evaluation, evidence: Mapping[str, str]) -> Iterator[Declared]:
    """Yield the answers of several models question by question, and beside them what differs between the models."""
    questions = evaluation.by_question()
    if len(evaluation.models) == 1 or not questions:
        return
    matrix = Table(
        caption=f"Answer and estimate on each question, intervals of {100 * (1 - evaluation.models[0].level):.3g} %",
        headings=("question", *(model.model for model in evaluation.models)),
        rows=tuple(
            (
                next(Phrase(one.question, below=_decides(one)) for one in claims if one is not None),
                *(_answer(one, evidence[model.model]) for one, model in zip(claims, evaluation.models, strict=True)),
            )
            for claims in questions
        ),
    )
    shown, others = ([one for one in evaluation.differences if one.shown is side] for side in (True, False))
    caption = f"Differences on the worlds that both met, p after Holm's correction over all {len(shown + others):,}"
    none = "" if shown or not others else f"None of {counted(len(others), 'comparison')} shows a difference."
    yield Declared(
        anchor="matrix",
        title="Side by side",
        paragraphs=(none,) if none else (),
        tables=[matrix, *([differences_table(shown, caption)] if shown else [])],
        folds=[FoldSpec("Comparisons that show no difference", [differences_table(others, caption)])] if others else [],
    )


def _decides(claim: Claim) -> str:
    return "" if claim.threshold is None else f"threshold {claim.threshold:g}"


def _answer(claim: Claim | None, target: str) -> Phrase | str:
    """Return the cell of the matrix for a claim; it links to what it rests on."""
    if claim is None:
        return "not asked"
    found = _estimate(claim)
    below = f"{found.value} {found.interval}" if found.estimate is not None else ""
    return Phrase(claim.answer, below=below, target=target, strong=claim.answer in ("yes", "no"))


def _pictures(names: Sequence[str], runs: Opened) -> Iterator[Declared]:
    standings, directions = [], []
    for style, name in enumerate(names):
        standings += _in_tasks(name, style, runs)
        if ("grids", name) not in runs:
            continue
        data = ArmData.of(runs["grids", name], name)
        reached, acted, goals = data.above_chance(), data.share("action accuracy"), shares(data)
        turns = _chance_of_turns(data)
        scaled = [
            ("reaches the goal", _moved(reached.estimate, 0.0, 1 - max(data.chances(data.among("success"))))),
            ("optimal turns", _moved(acted.estimate, turns, 1 - turns)),
            ("goal-directedness", goals.get(GOAL)),
        ]
        standings += [DifferenceBar(name, style, line, estimate) for line, estimate in scaled if estimate is not None]
        directions += [DifferenceBar(name, style, place, share) for place, share in goals.items()]
    both = (
        (standings, "Between random and optimal", "share of the way from random to optimal", _STANDS, _ENDS),
        (directions, "Towards what it goes", "goal-directedness (share of the bound)", _TOWARDS, _BOUND),
    )
    figures = [
        Figure(Forest(differences, title=title, x_label=label, levels=levels), label=title, caption=caption)
        for differences, title, label, caption, levels in both
        if differences
    ]
    if figures:
        title = "Where it stands, and towards what it goes"
        yield Declared(anchor="pictures", title=title, figures=figures, figures_only=True)


def _in_tasks(name: str, style: int, runs: Opened) -> list[DifferenceBar]:
    """Return a model's success in task worlds on the scale from a random walker (0) to the maximum (1)."""
    if ("tasks", name) not in runs:
        return []
    data = ArmData.of(runs["tasks", name], name)
    estimate = above_walker(data).estimate
    scaled = None if estimate is None else _moved(estimate, 0.0, 1 - walker_success(data))
    return [] if scaled is None else [DifferenceBar(name, style, "achieves the goal of a task", scaled)]


def _maps(names: Sequence[str], runs: Opened) -> Iterator[Declared]:
    """Yield decoded maps with the true grids, where activations were read."""
    for name in names:
        run = runs.get(("inside", name))
        for section in [] if run is None else sections_of(RunData.of(run.store), "decoded maps"):
            title = "A look inside" if len(names) == 1 else f"A look inside {name}"
            yield replace(section, title=title, figures=section.figures[:SHOWN], figures_only=True)


def _chance_of_turns(data: ArmData) -> float:
    """Return the exact action accuracy of a random agent in the states that a model met: mean over grids."""
    table = data.run.table
    of_agent = table.agent == data.agent
    actions = table.optimal.shape[1]
    counts = np.sum(
        [table.per_episode(table.optimal[:, action]) for action in range(actions)], axis=0
    )  # of optimal actions
    chance = ratio(counts / actions, table.per_episode(np.any(table.optimal, axis=1)))
    return estimate_mean(chance[of_agent], table.cluster[of_agent], unit="share", bounds=(0.0, 1.0)).value


def _moved(estimate: Estimate | None, by: float, over: float) -> Estimate | None:
    """Return ``(estimate - by) / over``."""
    if estimate is None or not over > 0:
        return None
    return estimate.moved(by=by, over=over)


def _evidence(ledger: ClaimLedger, there: Collection[str]) -> Declared:
    """Return the table that each claim links to; its lines link on to the section of the run, where the page has it."""
    columns = ("claim", "estimate", "of what", "compared with", "worlds", "n", "p", "method", "checked on")
    rows = tuple(
        (
            Phrase(claim.name, target=claim.section if claim.section in there else ""),
            _estimate(claim),
            claim.quantity if claim.value is not None else claim.says,
            claim.compared,
            str(claim.clusters or "–"),
            f"{claim.n:,}" if claim.n else "–",
            "–" if claim.p is None else f"{claim.p:.3g}",
            "; ".join(filter(None, (claim.method, claim.note, claim.by_size))) or "–",
            claim.validity,
        )
        for claim in ledger.claims
    )
    table = Table(
        caption="The estimate that decides each claim, with the parts that it is made of; results of its run behind it",
        headings=columns,
        rows=rows,
        numbers=(1, 4, 5, 6),
    )
    return Declared(anchor=_EVIDENCE, title="What each answer rests on", tables=[table] if rows else [])


def _behind(ledger: ClaimLedger) -> Declared:
    descriptions = {claim.name: claim.looks.what for claim in arms() if claim.looks is not None}
    arm_rows = tuple(
        (claim.title, counted(claim.worlds, "world") if claim.worlds else "–", counted(claim.episodes, "episode"))
        if claim.asked and claim.episodes
        else (claim.title, "asked", descriptions.get(claim.name, "–"))
        if claim.asked
        else (claim.title, "not asked", claim.why)
        for claim in ledger.arms
    )
    return Declared(
        anchor="behind",
        title="What was asked",
        tables=[Table(headings=("arm", "worlds", "episodes, or why it was not asked"), rows=arm_rows)],
    )


def _method(evaluation: Evaluation, notes: Sequence[str]) -> Declared:
    first = evaluation.models[0]
    look_sentence = (
        "This is the first look at the data."
        if first.look == 1
        else f"This is look {first.look} at the data: worlds were added after answers had been seen."
    )
    return Declared(
        anchor="method",
        title="How the answers follow",
        paragraphs=(
            f"{look_sentence} Intervals that decide cover {100 * (1 - first.level):.3g} %: each look spends "
            f"{100 * SPENT:.0f} % of the chance of a wrong answer that is left, all looks together at most "
            f"{100 * ALPHA:.0f} % a claim.",
            f"Decision rules: version {RULES}.",
            *notes,
        ),
        tables=_origin(evaluation),
    )


def _origin(evaluation: Evaluation) -> list[Table]:
    """Return the table of what judged, and of the runs that were judged."""
    origin = evaluation.origin
    if origin is None:
        return []
    changed = {True: ", with changes", False: "", None: ", changes unknown"}[origin.dirty]
    rows = [
        ("goalscope", origin.goalscope),
        ("commit", f"{origin.commit}{changed}" if origin.commit else "no repository"),
        ("command", write_yaml(origin.arguments, default_flow_style=True, width=10_000).strip()),
        ("seed of the worlds", str(origin.seed)),
        *((f"content hash of {name}", digest) for name, digest in origin.runs.items()),
        *(
            (f"{ledger.model}: {name}", digest)
            for ledger in evaluation.models
            for name, digest in weights(ledger.agent).items()
        ),
    ]
    return [Table(caption="Judged by, and from", headings=("what", "value"), rows=tuple(rows))]


def _group(run: ArmRun, title: str, name: str) -> Group:
    """Return the sections of the report of one run, their anchors after the name of its directory."""
    own = next((arm.sections for arm in arms() if arm.name == name), ())
    sections = sections_of(RunData.of(run.store), *(own or SECTIONS))
    parts = lay_out(replace(each, anchor=f"{run.store.path.name}-{each.anchor}") for each in sections)
    return Group(title=f"{title}: all results", sections=parts)
