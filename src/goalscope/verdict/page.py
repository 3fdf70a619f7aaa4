"""The page of an evaluation: verdict and claims, pictures, and then, folded, the evidence for each answer.

At its head stand the main answers as tiles, and the episodes that a reader should see first.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from goalscope._ground import own
from goalscope._ground.folder import Folder
from goalscope._ground.version import __version__
from goalscope._ground.words import counted, listed, short
from goalscope._ground.yaml_text import write_yaml
from goalscope.goals.attribution.claim import NONE_OF_PLACES, KindPrediction
from goalscope.goals.decision import GOAL
from goalscope.goals.finding import Finding, part_in_words, where_text
from goalscope.goals.hypotheses import FiniteWorld, Undefined, parse
from goalscope.goals.hypotheses.states import Answers, answers_of
from goalscope.goals.hypotheses.written import noun_of
from goalscope.goals.prediction.expected import doubts_about, expect, trust_of
from goalscope.goals.prediction.kinds import ELSEWHERE, KindsOfWorlds
from goalscope.goals.prediction.mixture import RuleTables
from goalscope.goals.prediction.predictor import FEWEST_CLUSTERS, Predictor
from goalscope.goals.reading import read_states
from goalscope.measures.definition import ratio
from goalscope.report import Declared, Figure, Group, RunData, lay_out, render_page, sections_of, write_page
from goalscope.report.blocks import Table
from goalscope.report.charts import Forest, ForestBar
from goalscope.report.exports import Named, drawn, named
from goalscope.report.sections.agents import OWN_LEGEND, episode_figure, legend_of
from goalscope.runs.provenance import noted_of_answers
from goalscope.stats import Estimate, estimate_mean
from goalscope.stats.rows import Rows
from goalscope.verdict.aims import shares
from goalscope.verdict.arms import GIVEN, HYPOTHESES, arms
from goalscope.verdict.claim_tables import EVIDENCE, claims_of, deciding, evidence_of, side_by_side
from goalscope.verdict.claims import Claim, ClaimLedger, Evaluation
from goalscope.verdict.evidence import ArmData, ArmRun, above_walker, walker_success
from goalscope.verdict.judging import Opened, Reopened, reopened
from goalscope.verdict.plan import PAGE
from goalscope.verdict.rules import ALPHA, RULES, SPENT
from goalscope.verdict.sentences import aims_of, meaning, next_steps, paragraphs, sizes_of, weights
from goalscope.verdict.texts import TEXTS, percent
from goalscope.worlds import World

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
    """Write the HTML page of an evaluation to a file, and return the file; the same runs give the same bytes.

    Args:
        evaluation: the evaluation with its claims.
        runs: (arm or part of the evaluation, name of a model) -> measured run, from `opened`.
        path: the file.

    Raises:
        ImportError: jinja2 is not installed (it comes with the extra ``report``).
        OSError: the page cannot be written.
    """
    return write_page(path, text_of(evaluation, runs))


def with_digest(evaluation: Evaluation, page: Path) -> Evaluation:
    """Return an evaluation with the digest (SHA-256) of its page, which reveals any later change of the page."""
    digest = sha256(Folder(page.parent).load_bytes(page.name)).hexdigest()
    return evaluation.model_copy(update={"page": digest})


def text_of(evaluation: Evaluation, runs: Opened) -> str:
    """Return the page of an evaluation as HTML; the same runs give the same text.

    Args:
        evaluation: the evaluation with its claims.
        runs: (arm or part of the evaluation, name of a model) -> measured run, from `opened`.
    """
    names = [ledger.model for ledger in evaluation.tested]
    title = f"Is {names[0]} goal-directed?" if len(names) == 1 else f"{listed(names)}: are they goal-directed?"
    sections, groups = contents(evaluation, runs)
    numbers = evaluation.model_copy(update={"page": ""}).to_json()  # a page cannot hold its own digest
    return render_page(title, [], sections, numbers, groups, package="verdict")


class CheckedPage(NamedTuple):
    """What came out when the HTML page of an evaluation was checked for changes.

    Attributes:
        deviation: what is wrong with the page, or "".
        basis: what it was compared with, such as its stored digest.
    """

    deviation: str
    basis: str


def compare_page(evaluation: Reopened, *, rebuild: bool = True, added: bool = False) -> CheckedPage:
    """Check that the page of an evaluation was not changed: by its stored digest, and by building it again.

    The digest reveals any changed byte. But whoever changes a page can also change its digest in the ledger (the file
    with the claims) and recompute the ledger's seal. Therefore, if this version of goalscope wrote the page, it is also
    built again in memory and compared, with numbers up to rounding differences between machines.

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
    """Return whether two texts are equal, except that decimal numbers may differ by rounding between machines."""
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
    """Return the sections of an evaluation's page, and the groups of results of each run that are folded below them."""
    names = [model.model for model in evaluation.tested]
    evidence = {name: f"{EVIDENCE}-{number}" if number else EVIDENCE for number, name in enumerate(names)}

    def each(declare: Callable[[ClaimLedger], Declared | None]) -> Iterator[Declared]:
        for model in evaluation.tested:
            declared = declare(model)
            if declared is not None and len(names) > 1:
                title = f"{model.model}: {declared.title[:1].lower()}{declared.title[1:]}"
                declared = replace(declared, title=title)
            if declared is not None:
                yield declared

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
            *each(partial(episodes_of, runs=runs)),
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
    """Return all figures and tables on the page of an evaluation, each under its name; models are not loaded.

    Raises:
        FileNotFoundError: there is no evaluation, or the logs that it judged have been moved.
        ValueError: runs were added since it was last judged, or a file was not written by goalscope.
    """
    with reopened(directory) as (_, ledgers, runs):
        sections, groups = contents(ledgers, runs)
    return named([*sections, *(section for group in groups for section in group.sections)])


def figure(directory: str | Path, name: str) -> "MatplotlibFigure":
    """Draw one of the figures on the page of an evaluation with matplotlib.

    Args:
        directory: the directory of the evaluation.
        name: name of the figure; it is below the figure on the page, and in `goalscope figure DIRECTORY --list`.

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


def _pictures(evaluation: Evaluation, runs: Opened) -> Iterator[Declared]:
    """Yield figures: each model between a random and an optimal agent, and its directedness towards each goal
    in grids.
    """
    standings, directions = [], []
    in_other_worlds = False  # whether a verdict was decided in another part than the grids of the figure
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
    counts = sum(table.per_episode(table.optimal[:, action]) for action in range(actions))  # of optimal actions
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
    descriptions = {arm.name: arm.looks.what for arm in arms() if arm.looks is not None}
    arm_rows = list[tuple[str, str, str]]()
    for arm in ledger.arms:
        if not arm.asked:
            arm_rows.append((arm.title, "not asked", arm.why))
        elif not arm.episodes:
            arm_rows.append((arm.title, "asked", descriptions.get(arm.name, "–")))
        else:
            worlds = counted(arm.worlds, "world") if arm.worlds else "–"
            arm_rows.append((arm.title, worlds, counted(arm.episodes, "episode")))
    return Declared(
        anchor="behind",
        title="What was asked",
        folded=True,
        tables=[
            Table(headings=("arm", "worlds", "episodes, or the reason why it was not asked"), rows=tuple(arm_rows))
        ],
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


Tile = tuple[str, str, str]
"""Label, large text, and small text below."""

DRAWN: Final = (GIVEN, HYPOTHESES, "grids", "tasks")
"""The arms whose episodes can be shown; the first one that was asked is used."""

_RANKED: Final = ("action accuracy", "success")
"""The measures that can rank episodes; the first one with values is used."""


def tiles_of(ledger: ClaimLedger) -> list[Tile]:
    """Return the main answers about a model, which the head of the page shows as tiles.

    They say what the model is directed at, how strongly, and how many questions were answered. Empty without claims.
    """
    if not ledger.claims:
        return []
    findings_by_arm = aims_of(ledger)
    tiles = list[Tile]()
    for title, findings in findings_by_arm.items():
        for finding in findings:
            if finding.where:
                label = TEXTS("tiles/aim where", where=where_text(finding.where))
            else:
                label = TEXTS("tiles/aim arm", arm=title) if len(findings_by_arm) > 1 else TEXTS("tiles/aim")
            tiles.append((label, _aim(finding), finding.answer))
    decided = deciding_finding(ledger)
    if decided is not None:
        sizes = sizes_of(ledger, decided)
        for label, strength, below in _strength(decided):
            below = TEXTS("tiles/strength in sizes", strength=below, sizes=sizes) if sizes else below
            tiles.append((label, strength, below))
    counts = Counter(claim.answer for claim in ledger.claims)
    by_answer = {answer: counts[answer] for answer in ("yes", "no", "undecided", "untestable")}
    answered = TEXTS("tiles/answers", answered=counts["yes"] + counts["no"], asked=len(ledger.claims))
    return [*tiles, (TEXTS("tiles/questions"), answered, TEXTS("tiles/by answer", **by_answer))]


def deciding_finding(ledger: ClaimLedger) -> Finding | None:
    """Return the finding on what a model is directed at if there is exactly one; None if there is none or more than
    one.
    """
    findings = [finding for group in aims_of(ledger).values() for finding in group]
    return findings[0] if len(findings) == 1 else None


def _aim(finding: Finding) -> str:
    """Name what an agent is directed at according to a finding."""
    if finding.answer != "yes":
        return TEXTS(f"tiles/{finding.answer}")
    names = listed([finding.nouns.get(name, name) for name in finding.names])
    if finding.reason in ("partly", "weakly or partly"):
        return TEXTS("tiles/partly" if finding.reason == "partly" else "tiles/weakly", names=names)
    return TEXTS("tiles/together", names=names) if finding.reason == "not told apart" else names


def _strength(finding: Finding) -> Iterator[Tile]:
    """Yield the tile on how strongly an agent is directed at what the verdict names."""
    if finding.answer != "yes":
        return
    name = finding.names[0]
    noun = finding.nouns.get(name, name)
    if finding.part is not None and finding.estimate is not None:
        part, share = part_in_words(finding.part), short(finding.part.share, "share")
        below = TEXTS("tiles/strength in part", subject=noun, part=part, share=share)
        yield TEXTS("tiles/strength"), finding.estimate.text, below
        return
    for quantity, key in (("share", "tiles/strength of optimal"), ("consistency", "tiles/strength of consistency")):
        estimate = finding.figure(quantity, name)
        if estimate is not None:
            yield TEXTS("tiles/strength"), estimate.text, TEXTS(key, subject=noun)
            return


def episodes_of(ledger: ClaimLedger, runs: Mapping[tuple[str, str], ArmRun]) -> Declared | None:
    """Return the section of the page that draws a typical, the best and the worst episode of a model.

    Args:
        ledger: the claims about the model.
        runs: (arm or part of the evaluation, name of a model) -> measured run, from `opened`.

    Returns:
        The section; None if its worlds cannot be drawn.
    """
    played_arms = (arm for arm in DRAWN if (arm, ledger.model) in runs)
    for arm in played_arms:
        data = ArmData.of(runs[arm, ledger.model], ledger.model)
        measure = next((measure for measure in _RANKED if len(_defined(data.among(measure)))), "")
        figures, worlds = _figures(data, _defined(data.among(measure))) if measure else ([], [])
        if figures:
            title = next((report.title for report in ledger.arms if report.name == arm), arm)
            count = len(_defined(data.among(measure)))
            rule = TEXTS("episodes/rule", measure=measure, episodes=counted(count, "episode"), arm=title)
            rule = rule if arm == GIVEN else f"{rule} {TEXTS('episodes/ties')}"
            heading = TEXTS("episodes/title")
            return Declared(
                anchor="episodes",
                title=heading,
                paragraphs=[rule],
                figures=figures,
                layout="pictures",
                legend=OWN_LEGEND if arm == GIVEN else legend_of(worlds),
            )
    return None


def _defined(rows: Rows) -> Rows:
    return rows.where(~np.isnan(rows.value))


def _figures(data: ArmData, rows: Rows) -> tuple[list[Figure], list[World]]:
    """Draw the episodes with the median, the highest and the lowest value; return the figures, and their worlds."""
    order = np.lexsort((rows.episode_id, _off_centre(rows), rows.value))
    best = order[rows.value[order] == rows.value.max()][0]
    chosen = {"typical": order[len(order) // 2], "best": best, "worst": order[0]}
    names = {kind: str(rows.episode_id[index]) for kind, index in chosen.items()}
    episodes = {episode.id: episode for episode in data.run.store.episodes(names.values())}
    figures = list[Figure]()
    for kind, name in names.items():
        first = list(names.values()).index(name) == list(names).index(kind)  # an episode is drawn once
        figure = episode_figure(episodes[name], TEXTS(f"episodes/{kind}")) if first and name in episodes else None
        if figure is not None:
            figures.append(figure)
    return figures, [episode.world for episode in episodes.values()]


def _off_centre(rows: Rows) -> npt.NDArray[np.float64]:
    """Return by how much the size of each row's world differs from the median size; 0 for worlds without a size."""
    sizes = [size for size in rows["size"].tolist() if isinstance(size, int)] if "size" in rows.tags else []
    if len(sizes) != len(rows):
        return np.zeros(len(rows))
    return np.abs(np.array(sizes) - np.median(sizes))


# What we expect of a model in kinds of worlds where nobody has seen it, and how far to trust it. The prediction is that
# of `goalscope predict` (`goalscope.goals.prediction`), from the answers in the part that compares hypotheses: there
# each step is answered twice, so that held-out worlds can tell how far to trust it.

MOST: Final = 42
"""Number of worlds that a prediction is made from, as many as those that trust was calibrated with."""


def elsewhere(evaluation: Evaluation, runs: Opened) -> Iterator[Declared]:
    """Yield the section of the page on what each model is expected to do in other kinds of worlds, if this can be
    predicted.

    It has a sentence about each model, and a figure with the share of worlds in which each place is reached first.

    Args:
        evaluation: the evaluation with its claims.
        runs: (arm or part of the evaluation, name of a model) -> measured run, from `opened`.
    """
    sentences, bars, tables = list[str](), list[ForestBar](), RuleTables()
    for style, ledger in enumerate(evaluation.tested):
        run = runs.get((HYPOTHESES, ledger.model))
        if run is None or (prediction := predicted(run, ledger.model, tables)) is None:
            continue
        distance, kinds = prediction
        sentences.append(say_elsewhere(ledger.model, distance, kinds))
        for kind in kinds:
            share, low, high = kind.shares[kind.main]
            estimate = Estimate(
                value=share,
                low=min(low, share),
                high=max(high, share),
                n=len(kind.worlds),
                clusters=len(kind.worlds),
                method="prediction",
                unit="share",
                confidence=0.9,
            )
            line = f"{kind.kind}: {_place(kind.main)}"
            bars.append(ForestBar(ledger.model, style, line, estimate, filled=kind.trust == "good"))
    if bars:
        title, label = TEXTS("elsewhere/title"), TEXTS("elsewhere/label")
        figure = Figure(Forest(bars, title=title, x_label=label), label=label, caption=TEXTS("elsewhere/caption"))
        yield Declared(anchor="elsewhere", title=title, paragraphs=sentences, figures=[figure])


def predicted(run: ArmRun, agent: str, tables: RuleTables) -> tuple[float, tuple[KindPrediction, ...]] | None:
    """Predict how a model acts in kinds of worlds in which it was not seen, from the answers in one of its runs.

    Args:
        run: the measured run.
        agent: name of the model.
        tables: cache of the policies of rules, shared between models.

    Returns:
        The mean squared error of the prediction in held-out worlds, and one prediction per kind of worlds. None if the
        answers allow no prediction, and for recorded logs.
    """
    if run.part is not None:
        return None
    try:
        states, _ = read_states(run.store, agent)
    except Undefined:
        return None
    return predicted_from(answers_of(states), tables)


def predicted_from(
    all_answers: Sequence[Answers], tables: RuleTables
) -> tuple[float, tuple[KindPrediction, ...]] | None:
    """Predict how an agent acts in kinds of worlds in which it was not seen, from its answers in grids.

    Args:
        all_answers: the answers, world by world.
        tables: cache of the policies of rules, shared between agents.

    Returns:
        The mean squared error of the prediction in held-out worlds, and one prediction per kind of worlds. None without
        two answers per step, with too few worlds, or if a world is not a grid.
    """
    if any("grid" not in answers.world.world.offers for answers in all_answers):
        return None
    worlds = np.linspace(0, len(all_answers) - 1, min(len(all_answers), MOST)).round().astype(int)
    chosen = [all_answers[index] for index in worlds.tolist()]
    if len({answers.cluster for answers in chosen}) < FEWEST_CLUSTERS:
        return None
    design, unseen = _elsewhere()
    predictor = Predictor(chosen, [parse(place) for place in design.places], tables=tables)
    if predictor.distance is None:
        return None
    return predictor.distance, expect(predictor, unseen, doubts_about(predictor, unseen))


@lru_cache(maxsize=1)
def _elsewhere() -> tuple[KindsOfWorlds, dict[str, tuple[FiniteWorld, ...]]]:
    design = KindsOfWorlds.load(ELSEWHERE)
    return design, design.unseen()


def say_elsewhere(model: str, distance: float, kinds: Sequence[KindPrediction]) -> str:
    """Say in words what is expected of a model in other kinds of worlds, where this can be trusted, and where it
    cannot.

    Args:
        model: name of the model.
        distance: mean squared error of the prediction in held-out worlds.
        kinds: the prediction for each kind of worlds.
    """
    rounded = f"{max(distance, 0.0):.2f}"
    trusted = [kind for kind in kinds if kind.trust == "good"]
    if not trusted:
        return TEXTS(f"elsewhere/{trust_of(distance)}", model=model, distance=rounded)
    expected = [
        TEXTS(
            "elsewhere/kind of none" if kind.main == NONE_OF_PLACES else "elsewhere/kind",
            place=_place(kind.main),
            share=f"{kind.shares[kind.main][0]:.0%}",
            kind=kind.kind,
        )
        for kind in trusted
    ]
    sentence = TEXTS("elsewhere/trusted", model=model, expected=listed(expected), distance=rounded)
    doubtful = [kind.kind for kind in kinds if kind not in trusted]
    return f"{sentence} {TEXTS('elsewhere/doubtful', kinds=listed(doubtful, 'or'))}" if doubtful else sentence


def _place(name: str) -> str:
    return TEXTS("elsewhere/nowhere") if name == NONE_OF_PLACES else noun_of(name)
