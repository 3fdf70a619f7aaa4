"""The page of an evaluation: verdict and claims, two pictures, and then, folded, the evidence for each answer."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from goalscope._ground import own
from goalscope._ground.folder import Folder
from goalscope._ground.version import __version__
from goalscope._ground.words import counted, listed
from goalscope._ground.yaml_text import write_yaml
from goalscope.goals.decision import GOAL
from goalscope.measures.definition import ratio
from goalscope.report import Declared, Figure, Group, RunData, lay_out, render_page, sections_of, write_page
from goalscope.report.blocks import Table
from goalscope.report.charts import Forest, ForestBar
from goalscope.report.exports import Named, drawn, named
from goalscope.runs.server_checks import noted_of_answers
from goalscope.stats import Estimate, estimate_mean
from goalscope.verdict.advice import meaning, next_steps
from goalscope.verdict.arms import arms
from goalscope.verdict.claim_tables import EVIDENCE, claims_of, deciding, evidence_of, side_by_side
from goalscope.verdict.claims import Claim, ClaimLedger, Evaluation
from goalscope.verdict.elsewhere import elsewhere
from goalscope.verdict.evidence import ArmData, ArmRun
from goalscope.verdict.evidence_asked import above_walker, walker_success
from goalscope.verdict.evidence_goals import shares
from goalscope.verdict.identity import paragraphs, weights
from goalscope.verdict.judging import Opened, Reopened, reopened
from goalscope.verdict.page_head import deciding_finding, episodes_of, tiles_of
from goalscope.verdict.plan import PAGE
from goalscope.verdict.rules import ALPHA, RULES, SPENT
from goalscope.verdict.texts import TEXTS, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

SECTIONS: Final = (
    *("results", "task results", "size and density", "maps", "relation", "progress"),
    *("cognitive map", "beliefs", "plans", "patching", "steering"),
    "transcripts",
)
"""Sections of a run's report that the page shows folded if the run has their data."""

MAP_CLAIM: Final = "holds a map of the walls"
"""The claim that must be answered yes before decoded maps are shown."""

SHOWN: Final = 4
"""Number of pictures from inside the model: pairs of a true grid and a decoded map."""

_ENDS: Final = {0.0: "random", 1.0: "optimal"}
_BOUND: Final = {0.0: "chance", 1.0: "all of it"}


def write(evaluation: Evaluation, runs: Opened, path: Path) -> Path:
    """Write the page of an evaluation; the same runs give the same bytes.

    Raises:
        ImportError: jinja2 is not installed (it comes with the extra ``report``).
        OSError: the page cannot be written.
    """
    return write_page(path, text_of(evaluation, runs))


def with_digest(evaluation: Evaluation, page: Path) -> Evaluation:
    """Return an evaluation with the digest of its page."""
    digest = sha256(Folder(page.parent).load_bytes(page.name)).hexdigest()
    return evaluation.model_copy(update={"page": digest})


def text_of(evaluation: Evaluation, runs: Opened) -> str:
    """Return the page of an evaluation as HTML; the same runs give the same text."""
    names = [ledger.model for ledger in evaluation.tested]
    title = f"Is {names[0]} goal-directed?" if len(names) == 1 else f"{listed(names)}: are they goal-directed?"
    sections, groups = contents(evaluation, runs)
    numbers = evaluation.model_copy(update={"page": ""}).to_json()  # a page cannot hold its own digest
    return render_page(title, [], sections, numbers, groups, package="verdict")


class CheckedPage(NamedTuple):
    """Result of checking the page of an evaluation.

    Attributes:
        deviation: what is wrong with it, or "".
        basis: what it was compared with.
    """

    deviation: str
    basis: str


def compare_page(evaluation: Reopened, *, rebuild: bool = True, added: bool = False) -> CheckedPage:
    """Compare the page of an evaluation with the digest in its ledger, and with the page that ledger and runs give now.

    The digest reveals any changed byte. But whoever changes a page can also change its digest in the ledger and
    recompute the ledger's seal. Therefore, if this version of goalscope wrote the page, it is also built again in
    memory and compared, with numbers up to rounding differences between machines.

    Args:
        evaluation: the reopened evaluation.
        rebuild: whether ledger and runs agree, so that the page can be built again.
        added: whether rows, activations or probes were added to the runs, which may change their pictures on the page.
    """
    directory, ledgers = evaluation.run.directory, evaluation.ledger
    place, basis = Folder(directory), "the digest in the ledger"
    if not place.has_file(PAGE):
        missing = f"{directory / PAGE} is missing, though the ledger has its digest" if ledgers.page else ""
        return CheckedPage(missing, "nothing: no page was written")
    octets = place.load_bytes(PAGE)
    if sha256(octets).hexdigest() != ledgers.page:
        return CheckedPage(f"{directory / PAGE} was changed since it was written: the ledger has another digest", basis)
    version = ledgers.origin.goalscope if ledgers.origin is not None else "an unknown version"
    if version != __version__:
        return CheckedPage("", f"{basis}, and not written anew, since goalscope {version} wrote it")
    if not rebuild:
        return CheckedPage("", f"{basis}, and not written anew, since ledger and runs do not agree")
    try:
        expected = text_of(ledgers, evaluation.runs)
    except ImportError as error:
        return CheckedPage("", f"{basis}, and not written anew: {error}")
    if same_text(octets.decode("utf-8", "replace"), expected):
        return CheckedPage("", f"{basis}, and the page that the ledger and the runs give")
    if added:
        return CheckedPage("", f"{basis} alone, since rows, activations or probes that were added change what it shows")
    return CheckedPage(f"{directory / PAGE} is not the page that the ledger and the runs give", basis)


_NUMBER: Final = re.compile(r"(-?\d+\.\d+(?:e[+-]?\d+)?)")
_ROUNDED: Final = 1e-6


def same_text(first: str, second: str) -> bool:
    """Return whether two texts are equal, with decimal numbers up to rounding differences between machines."""
    if first == second:
        return True
    parts = _NUMBER.split(first), _NUMBER.split(second)
    if len(parts[0]) != len(parts[1]):
        return False
    return all(
        first_part == other
        or (at % 2 == 1 and math.isclose(float(first_part), float(other), rel_tol=_ROUNDED, abs_tol=_ROUNDED))
        for at, (first_part, other) in enumerate(zip(*parts, strict=True))
    )


def contents(evaluation: Evaluation, runs: Opened) -> tuple[list[Declared], list[Group]]:
    """Return the sections of an evaluation's page, and the groups of results that are folded below them."""
    names = [model.model for model in evaluation.tested]
    evidence = {name: f"{EVIDENCE}-{number}" if number else EVIDENCE for number, name in enumerate(names)}

    def each(declare: Callable[[ClaimLedger], Declared]) -> Iterator[Declared]:
        for model, declared in zip(evaluation.tested, map(declare, evaluation.tested), strict=True):
            title = f"{model.model}: {declared.title[:1].lower()}{declared.title[1:]}"
            yield replace(declared, title=title) if len(names) > 1 else declared

    titles = {arm.name: arm.title for ledger in evaluation.models for arm in ledger.arms}
    by_path: dict[Path, tuple[str, ArmRun, str]] = {}  # an arm that looks inside has the run of another one
    for (name, model), run in runs.items():
        if run.part is None and model in names:  # of the agents with planted goals, the answers alone are shown
            title = titles[name] if len(names) == 1 else f"{titles[name]}, {model}"
            by_path.setdefault(run.store.path, (title, run, name))
    claims = [claim for model in evaluation.tested for claim in model.claims]
    groups = [_group(run, title, name, claims) for title, run, name in by_path.values()]
    anchors = {section.anchor for group in groups for section in group.sections}
    notes = sorted({line for _, run, _ in by_path.values() for line in noted_of_answers(run.store)})
    sections = lay_out(
        [
            *(side_by_side(evaluation, evidence) if len(names) > 1 else ()),
            *each(partial(_verdict, beside=len(names) > 1, program=own.program_for(_studies(runs)))),
            *_episodes(evaluation, runs),
            *(side_by_side(evaluation, evidence) if len(names) == 1 and evaluation.twins else ()),
            *_pictures(evaluation, runs),
            *elsewhere(evaluation, runs),
            *each(partial(claims_of, evidence=evidence, folded=len(names) > 1)),
            *_maps(evaluation, runs),
            *each(_behind),
            *each(partial(evidence_of, anchors=anchors)),
            _method(evaluation, notes),
        ]
    )
    return sections, groups


def named_of(directory: str | Path) -> Named:
    """Return the figures and tables of a judged evaluation's page by name; models are not loaded.

    Raises:
        FileNotFoundError: there is no evaluation, or the logs that it judged have been moved.
        ValueError: runs were added since it was last judged, or a file was not written by goalscope.
    """
    with reopened(directory) as (_, ledgers, runs):
        sections, groups = contents(ledgers, runs)
    return named([*sections, *(section for group in groups for section in group.sections)])


def figure(directory: str | Path, name: str) -> "MatplotlibFigure":
    """Draw a figure of the page of an evaluation.

    Args:
        directory: the directory of the evaluation.
        name: name of the figure, see `goalscope.report.figure`.

    Raises:
        FileNotFoundError: there is no evaluation, or the logs that it judged have been moved.
        ValueError: the name is unknown or belongs to a table, or runs were added since the evaluation was last judged.
        ImportError: matplotlib is not installed (it comes with the extra ``report``).
    """
    return drawn(named_of(directory), name)


def _studies(runs: Opened) -> list[dict[str, Any]]:
    """Return the studies of the runs as plain values."""
    studies = (run.store.study() for run in runs.values())
    return [study.dump() for study in studies if study is not None]


def _verdict(ledger: ClaimLedger, *, beside: bool, program: str) -> Declared:
    """Return the verdict: its sentences, what they mean, what to do next, and which arms were asked."""
    first, *others = paragraphs(ledger, beside=beside)
    means, steps = meaning(ledger), next_steps(ledger, lacks=beside, program=program)
    facts = [
        *(("" if at else "What it means", text) for at, text in enumerate(means)),
        *(("" if at else "What to do next", text) for at, text in enumerate(steps)),
        *(("" if at else "What was asked", text) for at, text in enumerate(others)),
    ]
    return Declared(anchor="verdict", title="Verdict", tiles=tiles_of(ledger), paragraphs=[first], facts=facts)


def _episodes(evaluation: Evaluation, runs: Opened) -> Iterator[Declared]:
    """Yield the figures of a typical, the best and the worst episode of each model."""
    for ledger in evaluation.tested:
        declared = episodes_of(ledger, runs)
        if declared is not None:
            several = len(evaluation.tested) > 1
            yield replace(declared, title=f"{ledger.model}: {declared.title.lower()}") if several else declared


def _pictures(evaluation: Evaluation, runs: Opened) -> Iterator[Declared]:
    """Yield figures: each model between a random and an optimal agent, and its directedness towards each goal
    in grids.
    """
    standings, directions = [], []
    in_other_worlds = (
        False  # whether a verdict was decided in another part of the evaluation than the grids of the figure
    )
    for style, ledger in enumerate(evaluation.tested):
        name = ledger.model
        standings += _in_tasks(name, style, runs)
        if ("grids", name) not in runs:
            continue
        data = ArmData.of(runs["grids", name], name)
        reached, acted, goals = data.above_chance(), data.share("action accuracy"), shares(data)
        turns, strength = _chance_of_turns(data), goals.get(GOAL)
        decided = deciding_finding(ledger)
        if decided is not None and decided.arm != "grids" and (share := decided.figure("share", GOAL)) is not None:
            strength, in_other_worlds = share.estimate, True
        scaled = [
            ("reaches the goal", _moved(reached.estimate, 0.0, 1 - max(data.chances(data.among("success"))))),
            ("optimal turns", _moved(acted.estimate, turns, 1 - turns)),
            ("goal-directedness", strength),
        ]
        standings += [ForestBar(name, style, line, estimate) for line, estimate in scaled if estimate is not None]
        directions += [ForestBar(name, style, place, share) for place, share in goals.items()]
    towards = [TEXTS("page/towards"), *([TEXTS("page/towards elsewhere")] if in_other_worlds else [])]
    scale, strength_label = "share of the way from random to optimal", "goal-directedness (share of an optimal agent's)"
    charts = (
        (standings, "Between random and optimal", scale, TEXTS("page/standing"), _ENDS),
        (directions, "Where it heads", strength_label, " ".join(towards), _BOUND),
    )
    figures = [
        Figure(Forest(differences, title=title, x_label=label, levels=levels), label=title, caption=caption)
        for differences, title, label, caption, levels in charts
        if differences
    ]
    if figures:
        title = "Performance and direction in grids"
        yield Declared(anchor="pictures", title=title, figures=figures, figures_only=True)


def _in_tasks(name: str, style: int, runs: Opened) -> list[ForestBar]:
    """Return a model's success in task worlds on the scale from a random walker (0) to the maximum (1)."""
    if ("tasks", name) not in runs:
        return []
    data = ArmData.of(runs["tasks", name], name)
    estimate = above_walker(data).estimate
    scaled = None if estimate is None else _moved(estimate, 0.0, 1 - walker_success(data))
    return [] if scaled is None else [ForestBar(name, style, "achieves the goal of a task", scaled)]


def _maps(evaluation: Evaluation, runs: Opened) -> Iterator[Declared]:
    """Yield decoded maps beside the true grids if the claim on maps is answered yes, otherwise the reason why not.

    A probe also decodes maps from random networks. Unless the model's maps are better than these, pictures of them
    would look like a finding that does not exist.
    """
    for model in evaluation.tested:
        run, claim = runs.get(("inside", model.model)), model.claim(MAP_CLAIM)
        title = "A look inside" if len(evaluation.tested) == 1 else f"A look inside {model.model}"
        if run is None or claim is None:
            continue
        if claim.answer != "yes":
            why = TEXTS("page/maps hidden", question=claim.question, answer=claim.answer)
            yield Declared(anchor="decoded-maps", title=title, paragraphs=(why, claim.says))
            continue
        for section in sections_of(RunData.of(run.store), "decoded maps"):
            # The claim decided: facts of other probes of the run stand in its own report.
            yield replace(section, title=title, paragraphs=(claim.says,), facts=(), figures=section.figures[:SHOWN])


def _chance_of_turns(data: ArmData) -> float:
    """Return the exact action accuracy of a random agent in the states that a model visited, averaged over grids."""
    table = data.run.table
    of_agent = table.agent == data.agent
    actions = table.optimal.shape[1]
    counts = np.sum(
        [table.per_episode(table.optimal[:, action]) for action in range(actions)], axis=0
    )  # of optimal actions
    chance = ratio(counts / actions, table.per_episode(np.any(table.optimal, axis=1)))
    return estimate_mean(chance[of_agent], table.cluster[of_agent], unit="share", bounds=(0.0, 1.0)).value


def _moved(estimate: Estimate | None, by: float, over: float) -> Estimate | None:
    """Return an estimate on another scale, ``(estimate - by) / over``.

    None if there is none, or ``over`` is not positive.
    """
    if estimate is None or not over > 0:
        return None
    return estimate.moved(by=by, over=over)


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
        folded=True,
        tables=[Table(headings=("arm", "worlds", "episodes, or the reason why it was not asked"), rows=arm_rows)],
    )


def _method(evaluation: Evaluation, notes: Sequence[str]) -> Declared:
    first = evaluation.models[0]
    look_sentence = TEXTS("page/first look") if first.look == 1 else TEXTS("page/later look", look=first.look)
    budget = TEXTS("page/budget", level=percent(first.level), alpha=percent(ALPHA), spent=percent(SPENT))
    return Declared(
        anchor="method",
        title="How the answers follow",
        folded=True,
        paragraphs=(
            f"{look_sentence} {budget}",
            TEXTS("page/rules", version=RULES),
            *notes,
        ),
        tables=_origin(evaluation),
    )


def _origin(evaluation: Evaluation) -> list[Table]:
    """Return the table of the version of goalscope and of the runs that were judged."""
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


def _group(run: ArmRun, title: str, name: str, claims: Sequence[Claim]) -> Group:
    """Return the report sections of one run; their anchors carry the name of the run's directory."""
    section_names = next((arm.sections for arm in arms() if arm.name == name), ())
    sections = sections_of(RunData.of(run.store), *(section_names or SECTIONS))
    # What decides a claim stands first in the section that it names.
    anchors = [f"{run.store.path.name}-{section.anchor}" for section in sections]
    parts = lay_out(
        replace(section, anchor=anchor, facts=(*deciding(claims, anchor), *section.facts))
        for section, anchor in zip(sections, anchors, strict=True)
    )
    return Group(title=f"{title}: all results", sections=parts)
