"""The page of an evaluation: verdict and claims first, two pictures, then what is behind each answer, folded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from goalscope import registry
from goalscope.evaluation.arms import arms
from goalscope.evaluation.claims import Claim, ClaimLedger, Evaluation
from goalscope.evaluation.evidence import ArmData, ArmRun
from goalscope.evaluation.rules import ALPHA, RULES, SPENT
from goalscope.evaluation.verdict import verdict
from goalscope.report import Declared, Figure, FoldSpec, Group, RunData, lay_out, render_page, sections_of, write_page
from goalscope.report.blocks import Table, counted, listed
from goalscope.report.charts import Difference, forest
from goalscope.report.figures import short
from goalscope.stats import Estimate

if TYPE_CHECKING:
    from goalscope.evaluation.evaluate import EvaluationRun

SECTIONS: Final = ("results", "behaviour", "cognitive map", "transcripts")
"""Sections of the report of a run that stand folded on the page, where a run has them."""

SHOWN: Final = 4
"""Pictures of the look inside: true grids and decoded maps, in pairs."""

_RULE: Final = (
    "Yes: the interval of the quantity lies above its threshold. No: it lies below. Not shown: it holds the threshold, "
    "which is not “there is none”. Cannot be told: nothing that could be asked of this model answers it."
)
_STANDS: Final = (
    "0 is an agent that acts at random (exact), 1 the optimal one. Bars are the intervals that decide, over grids."
)
_TOWARDS: Final = (
    "How much better than chance each place predicts what the model does, as a share of what an agent shows that is "
    "after that place and nothing else; below 0: it avoids the place. Bars are intervals over grids."
)


def write(evaluation: "EvaluationRun", found: Evaluation, runs: Mapping[tuple[str, str], ArmRun], path: Path) -> Path:
    """Write the page of an evaluation; the same runs give the same bytes.

    Raises:
        ImportError: jinja2 or matplotlib is not installed (they come with the extra ``report``).
        OSError: the page cannot be written.
    """
    names = [one.model for one in found.models]
    sections = lay_out(
        [
            *(_verdict(ledger, several=len(names) > 1) for ledger in found.models),
            *_differences(found),
            *_pictures(names, runs),
            *_maps(names, runs),
            *(_behind(ledger, several=len(names) > 1) for ledger in found.models),
            _method(found),
        ]
    )
    whole: dict[tuple[str, Path], tuple[str, ArmRun]] = {}
    for (name, _), run in runs.items():
        if run.part is None:
            whole.setdefault((name, run.store.path), (name, run))
    titles = {one.name: one.title for one in arms()}
    groups = [Group(title=f"{titles[name]}: all results", sections=_whole(run, name)) for name, run in whole.values()]
    title = f"Is {names[0]} goal-directed?" if len(names) == 1 else f"{listed(names)}: are they goal-directed?"
    return write_page(path, render_page(title, [], sections, found.to_json(), groups))


def _verdict(ledger: ClaimLedger, *, several: bool) -> Declared:
    rows = tuple((one.question, one.answer, _estimate(one), str(one.clusters or "–")) for one in ledger.claims)
    table = Table(
        caption="Each question, the answer in a word, and the quantity that it follows from with its interval",
        headings=("question", "answer", "what it follows from", "worlds"),
        rows=rows,
        numbers=(3,),
    )
    return Declared(
        anchor="verdict",
        title=f"{ledger.model}: verdict" if several else "Verdict",
        paragraphs=verdict(ledger),
        tables=[table],
        closing=_RULE,
    )


def _estimate(claim: Claim) -> str:
    if claim.value is None or claim.low is None or claim.high is None or claim.threshold is None:
        return claim.says
    ends = f"[{short(claim.low, claim.unit)}, {short(claim.high, claim.unit)}]"
    return f"{short(claim.value, claim.unit)} {ends}, threshold {claim.threshold:g}: {claim.quantity}"


def _differences(found: Evaluation) -> Iterator[Declared]:
    if found.differences:
        rows = tuple(
            (
                f"{one.first} less {one.second}",
                one.says,
                f"{one.value:+.3f} [{one.low:+.3f}, {one.high:+.3f}]",
                f"{one.p:.3g}",
                str(one.clusters),
            )
            for one in found.differences
        )
        table = Table(
            caption="Differences on the worlds that both met, p after Holm's correction over this table",
            headings=("models", "what differs", "difference", "p", "worlds"),
            rows=rows,
            numbers=(2, 3, 4),
        )
        yield Declared(anchor="differences", title="Side by side", tables=[table])


def _pictures(names: Sequence[str], runs: Mapping[tuple[str, str], ArmRun]) -> Iterator[Declared]:
    stands, towards = [], []
    for style, name in enumerate(names):
        if ("grids", name) not in runs:
            continue
        data = ArmData.of(runs["grids", name], name)
        reached, acted, directed = data.above_chance(), data.share("action accuracy"), data.directed()
        chance = data.chance()
        scaled = [
            ("reaches the goal", _moved(reached.estimate, 0.0, 1 - chance)),
            ("optimal turns", acted.estimate),
            ("goal-directedness", directed.estimate),
        ]
        stands += [Difference(name, style, line, one) for line, one in scaled if one is not None]
        for one in data.goals.estimates:
            if one.agent == name and not one.cell:
                share = data.directed(one.hypothesis).estimate
                if share is not None:
                    towards.append(Difference(name, style, one.hypothesis, share))
    drawn = (
        (stands, "Between random and optimal", "0: random; 1: optimal", _STANDS),
        (towards, "Towards what it goes", "goal-directedness (share of the bound)", _TOWARDS),
    )
    figures = [
        Figure(forest(given, title=title, x_label=label), label=title, caption=caption)
        for given, title, label, caption in drawn
        if given
    ]
    yield Declared(anchor="pictures", title="Two pictures", figures=figures, figures_only=True)


def _maps(names: Sequence[str], runs: Mapping[tuple[str, str], ArmRun]) -> Iterator[Declared]:
    """Yield decoded maps beside the true grids, where activations were read."""
    for name in names:
        run = runs.get(("inside", name))
        for one in [] if run is None else sections_of(RunData.of(run.store), "decoded maps"):
            yield replace(one, title="A look inside", figures=one.figures[:SHOWN], figures_only=True)


def _moved(estimate: Estimate | None, by: float, over: float) -> Estimate | None:
    """Return an estimate less a number, over another one."""
    if estimate is None or not over > 0:
        return None
    value, low, high = ((getattr(estimate, name) - by) / over for name in ("value", "low", "high"))
    return replace(estimate, value=value, low=low, high=high)


def _behind(ledger: ClaimLedger, *, several: bool) -> Declared:
    columns = ("claim", "compared with", "n", "p", "method", "checked on")
    rows = tuple(
        (
            one.name,
            one.compared,
            f"{one.n:,}" if one.n else "–",
            "–" if one.p is None else f"{one.p:.3g}",
            "; ".join(filter(None, (one.method, one.note))) or "–",
            one.validity,
        )
        for one in ledger.claims
    )
    asked = tuple(
        (one.title, counted(one.worlds, "world") if one.worlds else "–", counted(one.episodes, "episode"))
        if one.asked and one.episodes
        else (one.title, "asked", "reads activations of the episodes in grids")
        if one.asked
        else (one.title, "not asked", one.why)
        for one in ledger.arms
    )
    return Declared(
        anchor="behind",
        title=f"{ledger.model}: what was asked" if several else "What was asked",
        tables=[Table(headings=("arm", "worlds", "episodes, or why it was not asked"), rows=asked)],
        folds=[FoldSpec("What each answer rests on", [Table(headings=columns, rows=rows, numbers=(2, 3))])],
    )


def _method(found: Evaluation) -> Declared:
    first = found.models[0]
    looks = (
        "This is the first look at the data."
        if first.look == 1
        else f"This is look {first.look} at the data: worlds were added after answers had been seen."
    )
    return Declared(
        anchor="method",
        title="How the answers follow",
        paragraphs=(
            _RULE,
            f"{looks} Intervals that decide cover {100 * (1 - first.level):.3g} %: each look spends "
            f"{100 * SPENT:.0f} % of the chance of a wrong answer that is left, all looks together at most "
            f"{100 * ALPHA:.0f} % a claim.",
            f"Decision rules: version {RULES}.",
        ),
    )


def _whole(run: ArmRun, name: str) -> list[Declared]:
    """Return the sections of the report of one run, their anchors after the name of its arm."""
    data = RunData.of(run.store)
    there = registry.names("section")
    kept = [one for one in SECTIONS if one in there]
    return [replace(one, anchor=f"{name}-{one.anchor}") for one in sections_of(data, *kept)]
