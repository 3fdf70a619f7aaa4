"""The verdicts and claims of an evaluation on the terminal, and the command `ledger`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

from goalscope._ground.arguments import Reads
from goalscope._ground.folder import Folder
from goalscope._ground.progress import duration
from goalscope._ground.words import counted
from goalscope.cli.console import console, say, table
from goalscope.cli.console import show as show_table
from goalscope.verdict import Announcement, Evaluation, judging
from goalscope.verdict.claim_tables import coverage, reason_of, thresholds_of
from goalscope.verdict.claims import Claim, ClaimLedger, Difference
from goalscope.verdict.compare import differences_table
from goalscope.verdict.failures import FAILURES
from goalscope.verdict.identity import paragraphs
from goalscope.verdict.opening import check_claims, read_ledger
from goalscope.verdict.own_environment import twin_sentences
from goalscope.verdict.texts import TEXTS

_WIDEST: Final = 26  # letters of a model's column
_QUESTION: Final = 46
_TITLE: Final = "claims with the intervals that decide"


def announce(announcement: Announcement, *, as_json: bool = False) -> None:
    """Print the planned arms and their expected time and cost, or the plan as JSON."""
    if as_json and announcement.plan is not None:
        say(announcement.plan.to_json())
        return
    if announcement.table is not None:
        show_table(announcement.table)
    if announcement.expected:
        say(announcement.expected)
    for line in announcement.proposals:
        say(line)
    for line in announcement.plan.beforehand if announcement.plan is not None else ():
        say(line)


def show_whole(result: Evaluation, seconds: float) -> None:
    """Print an evaluation, the path of its report, suggested next steps, and its failures."""
    show(result)
    directory = result.directory
    if Folder(directory).has_file(judging.PAGE):
        page = (directory / judging.PAGE).resolve()
        say(f"Report: {page} (the whole evaluation took {duration(seconds)})")
    has_asked_arms = any(arm.asked for model in result.models if "logs" not in model.access for arm in model.arms)
    hint = "; or repeat the command with a larger --budget to decide more questions" if has_asked_arms else ""
    say(f"next: print everything with goalscope ledger {quote(str(directory))} --json{hint}")
    for text in result.failed:
        say(text, error=True)
    if result.failed:
        say(
            f"{counted(len(result.failed), 'failure')}, with tracebacks in {directory / FAILURES}; run the same "
            "command again to retry only the failed parts",
            error=True,
        )


def show(result: Evaluation) -> None:
    """Print the verdicts and claims, the parts that were left out and why, and the differences between models."""
    for ledger in result.tested:
        for text in paragraphs(ledger, beside=len(result.tested) > 1):
            say(text)
        if len(result.tested) == 1 and ledger.claims:
            columns = ("question", "answer", "estimate", "threshold", "worlds")
            lines = [
                (claim.question, claim.answer, claim.estimate or "–", threshold(claim), str(claim.clusters or "–"))
                for claim in ledger.claims
            ]
            table(columns, lines, title=f"{ledger.model}: {_TITLE}", numbers=(2, 3, 4))
            say(coverage([ledger]))
            _reasons(ledger)
    for text in twin_sentences(result):
        say(text)
    if len(result.tested) > 1:
        _matrix(result)
    reasons: dict[tuple[str, str], list[str]] = {}
    for ledger in result.models:
        of_model: dict[str, list[str]] = {}
        for arm in ledger.arms:
            if not arm.asked:
                of_model.setdefault(arm.why, []).append(arm.title)
        for why, titles in of_model.items():
            reasons.setdefault(("; ".join(titles), why), []).append(ledger.model)
    if reasons:
        rows = [(titles, why, "; ".join(names)) for (titles, why), names in reasons.items()]
        table(("not asked", "reason", "model"), rows, title="What was not asked")
    _differences(result.differences)


def _reasons(ledger: ClaimLedger, of: str = "") -> None:
    """Say why answers do not follow from the numbers and thresholds that were printed."""
    for claim in ledger.claims:
        if why := reason_of(claim):
            say(of + TEXTS("page/reason", question=claim.question, answer=claim.answer.capitalize(), why=why))


def _matrix(result: Evaluation) -> None:
    """Print the answers by question, with as many models side by side as fit the terminal."""
    questions = result.by_question()
    together = max(2, (console().width - _QUESTION) // _WIDEST)
    for start in range(0, len(result.models) if questions else 0, together):
        models = result.models[start : start + together]
        lines = []
        for claims in questions:
            first_claim = next(claim for claim in claims if claim is not None)
            among, thresholds = claims[start : start + together], thresholds_of(claims)
            answered = [claim for claim in among if claim is not None]
            counts = sorted({claim.clusters for claim in answered if claim.clusters})
            worlds = f"  {'–'.join(dict.fromkeys(f'{count:,}' for count in (*counts[:1], *counts[-1:])))} worlds"
            lines.append(
                (
                    first_claim.question,
                    threshold(first_claim) if len(thresholds) == 1 else "",
                    *("not asked" if claim is None else claim.answer for claim in among),
                )
            )
            lines.append(
                (
                    worlds if counts else "",
                    "",
                    *("" if claim is None else _measured(claim, several=len(thresholds) > 1) for claim in among),
                )
            )
        headings = ("question", "threshold", *(ledger.model for ledger in models))
        table(headings, lines, title=f"Side by side: {_TITLE}", numbers=(1,))
    if questions:
        say(coverage(result.models))
    for ledger in result.models:
        _reasons(ledger, f"{ledger.model}: ")


def _measured(claim: Claim, *, several: bool) -> str:
    """Return the estimate of a claim, with its threshold where several were applied to its question."""
    return f"{claim.estimate} against {threshold(claim)}" if several and claim.estimate else claim.estimate or "–"


def _differences(differences: Sequence[Difference]) -> None:
    """Print the significant differences between models, and count the other comparisons by outcome."""
    shown_differences = [difference for difference in differences if difference.shown]
    if shown_differences:
        show_table(
            differences_table(
                shown_differences, f"Differences, p after Holm's correction over all {len(differences):,}"
            )
        )
    for why, count in Counter(difference.outcome for difference in differences if not difference.shown).items():
        say(f"{counted(count, 'further comparison' if shown_differences else 'comparison')}: {why}")


def threshold(claim: Claim) -> str:
    """Return the threshold of a claim as text, or a dash if it has none."""
    return "–" if claim.threshold is None else f"{claim.threshold:.3g}"


def ledger(
    path: Annotated[Path, Reads("evaluation")],
    *,
    as_json: bool = False,
    card: bool = False,
) -> None:
    """Print the claims of an evaluation: question, answer, estimate with interval, threshold and number of worlds.

    Args:
        path (DIR): the directory of an evaluation, or its ledger.json.
        as_json: print everything as JSON.
        card: print one paragraph for a model card.

    Examples:
        goalscope ledger runs/theseus
        goalscope ledger runs/theseus --card
    """
    if as_json and card:
        raise ValueError("--json prints everything and --card one paragraph: give only one of them")
    result = read_ledger(path)
    if Folder(path).is_there() and (left := check_claims(path)):
        say(left, error=True)
    if as_json:
        say(result.to_json())
    elif card:
        for model in result.tested:
            say(" ".join(paragraphs(model)))
    else:
        show(result)
        say(f"{counted(len(result.models), 'model')}; --json prints everything, --card one paragraph for a model card")
