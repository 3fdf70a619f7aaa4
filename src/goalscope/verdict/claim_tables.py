"""Tables on the page of an evaluation: claims, models side by side, and the evidence for each answer; and which answers
still hold if all of them are tested together.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from goalscope._ground.words import counted, listed
from goalscope.goals.decision import RULES
from goalscope.report import Declared, FoldSpec
from goalscope.report.blocks import Bar, Cell, Footnotes, Phrase, Table
from goalscope.stats import Estimate
from goalscope.stats.compare import corrected
from goalscope.verdict.claims import Claim, ClaimLedger, Evaluation, worlds_to_decide
from goalscope.verdict.compare import differences_table
from goalscope.verdict.own_environment import twin_sentences
from goalscope.verdict.texts import TEXTS, percent

EVIDENCE: Final = "evidence"
"""Anchor of the evidence table to which claims link; `lay_out` appends -1 for the second model, and so on."""


def claims_of(ledger: ClaimLedger, evidence: Mapping[str, str], *, folded: bool) -> Declared:
    """Return the section of the page with all claims (answers to questions) about a model, one table per arm.

    An arm is a part of the evaluation. Each claim links to the evidence for it.

    Args:
        ledger: the claims about the model.
        evidence: name of a model -> anchor of its table of evidence.
        folded: whether the section is folded at first.
    """
    headings = ("question", "answer", "estimate", "threshold", "worlds")
    tables = [
        Table(
            caption=TEXTS("page/claims of arm", arm=report.title),
            headings=headings,
            rows=tuple(_line(claim, evidence[ledger.model]) for claim in claims),
            numbers=(2, 3, 4),
        )
        for report in ledger.arms
        if (claims := [claim for claim in ledger.claims if claim.arm == report.name])
    ]
    return Declared(
        anchor="claims",
        title="Claims",
        paragraphs=[TEXTS("page/claims")],
        tables=tables,
        closing=" ".join(filter(None, (TEXTS("page/rule"), coverage([ledger]), page_level(ledger)))),
        folded=folded,
    )


def _line(claim: Claim, target: str) -> tuple[Phrase | Cell | str, ...]:
    """Return the table row of a claim; the question links to the evidence for the answer."""
    estimate = _estimate(claim)
    subtitle = claim.quantity if estimate.estimate is not None else claim.says
    return (
        Phrase(claim.question, below=subtitle, target=target),
        _phrase(claim, (claim,)),
        estimate,
        "–" if estimate.estimate is None or claim.threshold is None else _threshold(claim),
        _worlds(claim),
    )


def _worlds(claim: Claim) -> Cell:
    """Return the number of worlds behind an answer; if it is open, also how many would probably decide it."""
    more = worlds_to_decide(claim)
    return Cell(
        value=str(claim.clusters or "–"), note="" if more is None else TEXTS("page/would decide", worlds=f"{more:,}")
    )


def _estimate(claim: Claim) -> Cell:
    if None in (claim.value, claim.low, claim.high, claim.confidence):
        return Cell(value="–", hint=claim.says)
    names = ("value", "low", "high", "confidence", "n", "clusters", "method", "unit", "note")
    cell = Cell.of(Estimate(**{name: getattr(claim, name) for name in names}), "world")
    if claim.attributed_estimate == claim.estimate:
        return cell
    return replace(cell, interval=TEXTS("claim/estimate of", estimate=cell.interval, subject=claim.subject))


def side_by_side(evaluation: Evaluation, evidence: Mapping[str, str]) -> Iterator[Declared]:
    """Yield the section of the page that compares several models; nothing for a single model.

    It has a table of answers, one row per question and one column per model, and a table of differences.

    Args:
        evaluation: the evaluation.
        evidence: name of a model -> anchor of its table of evidence.
    """
    questions = evaluation.by_question()
    if len(evaluation.models) == 1 or not questions:
        return
    notes = Footnotes()
    matrix = Table(
        caption=TEXTS("page/matrix"),
        headings=("question", *(model.model for model in evaluation.models)),
        rows=tuple(
            (
                next(Phrase(claim.question, below=_decides(claims)) for claim in claims if claim is not None),
                *(
                    _answer(claim, evidence.get(model.model, ""), claims, notes)
                    for claim, model in zip(claims, evaluation.models, strict=True)
                ),
            )
            for claims in questions
        ),
    )
    matrix = replace(matrix, notes=notes.lines)
    significant, insignificant = (
        [difference for difference in evaluation.differences if difference.shown is side] for side in (True, False)
    )
    caption = TEXTS("page/differences", tests=counted(len(evaluation.differences), "test"))
    none = (
        ""
        if significant or not insignificant
        else f"None of {counted(len(insignificant), 'comparison')} shows a difference."
    )
    yield Declared(
        anchor="matrix",
        title=TEXTS("twins/title") if len(evaluation.tested) == 1 else "Side by side",
        paragraphs=tuple(filter(None, (none, " ".join(twin_sentences(evaluation)), coverage(evaluation.models)))),
        tables=[matrix, *([differences_table(significant, caption)] if significant else [])],
        folds=[FoldSpec("Comparisons that show no difference", [differences_table(insignificant, caption)])]
        if insignificant
        else [],
    )


def _threshold(claim: Claim) -> Cell | str:
    """Return the applied threshold, with the rule that determined it if it differs between models."""
    text = f"{claim.threshold:.3g}"
    return Cell(value=text, note=claim.threshold_rule) if claim.threshold_rule else text


def _decides(claims: Sequence[Claim | None]) -> str:
    """Return the threshold of the first answer to a question; other thresholds are shown beside their answers."""
    first = next((claim.threshold for claim in claims if claim is not None), None)
    rest = " unless stated" if len(thresholds_of(claims)) > 1 else ""
    return "" if first is None else f"threshold {first:g}{rest}"


def reason_of(claim: Claim) -> str:
    """Return why a claim's answer does not follow from the number and the threshold that are shown; "" if it does."""
    if claim.low is None or claim.high is None or claim.threshold is None:
        return ""
    side = "yes" if claim.low > claim.threshold else "no" if claim.high < claim.threshold else "undecided"
    described = claim.threshold_rule.startswith(tuple(RULES.values()))  # only what the threshold is a share of
    return "" if side == claim.answer or described else claim.threshold_rule


def coverage(ledgers: Sequence[ClaimLedger]) -> str:
    """Return sentences that state the coverage of the claims' intervals: that of most claims, then those that
    differ.
    """
    usual = 1 - ledgers[0].level
    further = dict[float, dict[str, None]]()
    for ledger in ledgers:
        for claim in ledger.claims:
            if claim.confidence is not None and abs(claim.confidence - usual) > _SAME:
                further.setdefault(claim.confidence, {})[f"“{claim.question}”"] = None
    sentences = [TEXTS("page/coverage", coverage=percent(usual))]
    for confidence, questions in further.items():
        fields = {"coverage": percent(confidence), "questions": listed([*questions])}
        one_end = abs(confidence - (1 - 2 * ledgers[0].level)) < _SAME
        key = "page/coverage of one end" if one_end else "page/coverage of some"
        sentences.append(TEXTS(key, **fields, **({"end": percent(ledgers[0].level)} if one_end else {})))
    return " ".join(sentences)


_SAME: Final = 1e-6


def thresholds_of(claims: Sequence[Claim | None]) -> list[float]:
    """Return the distinct thresholds that were applied to one question, in ascending order.

    Args:
        claims: the claim about each model; None for a model that was not asked.
    """
    return sorted({claim.threshold for claim in claims if claim is not None and claim.threshold is not None})


MARKS: Final = {"yes": "✓", "no": "✗", "undecided": "~", "untestable": "?"}
"""The symbol for each answer. It accompanies the word, so that neither depends on colour."""


def _bar(claim: Claim, neighbours: Sequence[Claim | None]) -> Bar | None:
    """Draw the interval of a claim on a scale that includes the other claims, 0, its threshold and, for shares, 1."""
    estimate = _estimate(claim).estimate
    if estimate is None:
        return None
    ends = [
        end
        for claim_beside in neighbours
        if claim_beside is not None
        for end in (claim_beside.value, claim_beside.low, claim_beside.high, claim_beside.threshold)
        if end is not None
    ]
    scale = (min(0.0, *ends), max(1.0 if claim.unit == "share" else 0.0, *ends))
    label = f"{claim.estimate} {claim.unit}, threshold {claim.threshold}; scale {scale[0]:.3g} to {scale[1]:.3g}"
    return Bar.of(estimate, claim.threshold, scale, label)


def _phrase(claim: Claim, neighbours: Sequence[Claim | None]) -> Phrase:
    """Return the answer in words, with its symbol and its interval."""
    strong, mark = claim.answer in ("yes", "no"), MARKS[claim.answer]
    return Phrase(claim.answer, strong=strong, mark=mark, bar=_bar(claim, neighbours))


def _answer(claim: Claim | None, target: str, neighbours: Sequence[Claim | None], notes: Footnotes) -> Phrase | str:
    """Return the cell of the matrix for a claim. The cell links to the evidence; reasons are notes below the matrix."""
    if claim is None:
        return "not asked"
    estimate = _estimate(claim)
    below = f"{estimate.value} {estimate.interval}" if estimate.estimate is not None else ""
    first = next(beside.threshold for beside in neighbours if beside is not None)
    if below and claim.threshold is not None and claim.threshold != first:
        below += f" vs {claim.threshold:g}"
    if reason := reason_of(claim):
        below += f" ({notes.mark(reason)})"
    return replace(_phrase(claim, neighbours), below=below, target=target)


def evidence_of(ledger: ClaimLedger, anchors: Collection[str]) -> Declared:
    """Return the section of the page with the evidence for each claim about a model, to which the claims link.

    Args:
        ledger: the claims about the model.
        anchors: anchors of the sections on the page. A row links on to the results of a run if they are on the page.
    """
    columns = ("claim", "estimate", "of what", "compared with", "worlds", "n", "p", "method", "checked on")
    rows = tuple(
        (
            Phrase(claim.name, target=claim.section if claim.section in anchors else ""),
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
        caption="The estimate that decides each claim, and how it was obtained; claims link to their results",
        headings=columns,
        rows=rows,
        numbers=(1, 4, 5, 6),
    )
    return Declared(anchor=EVIDENCE, title="What each answer rests on", tables=[table] if rows else [], folded=True)


def deciding(claims: Sequence[Claim], anchor: str) -> Iterator[tuple[str, str]]:
    """Yield the claims whose details stand in a given section of the page, so that the section can show them.

    Args:
        claims: the claims about a model.
        anchor: anchor of the section.

    Yields:
        The name of a claim; and its quantity, estimate, threshold and answer in words.
    """
    for claim in claims:
        if claim.section == anchor and claim.estimate:
            words = f"{claim.estimate} {claim.unit}, threshold {claim.threshold}: {MARKS[claim.answer]} {claim.answer}"
            yield claim.name, f"{claim.quantity}: {words}"


# The error rate of a whole page. Each answer alone is wrong with a probability of at most the level of its ledger, so a
# page with many questions may still contain a wrong one. Holm's correction over all questions that could have been
# answered bounds the probability that any of the surviving answers is wrong. The p value of "the quantity equals its
# threshold" is computed from the deciding interval by Student's t, with a standard error from the half of the interval
# that lies between estimate and threshold. Source: Holm, Scandinavian Journal of Statistics 6 (1979).


def hold_together(ledger: ClaimLedger) -> tuple[str, ...]:
    """Return the names of the claims whose yes or no still holds if all claims about the model are tested together.

    The test is Holm's correction over all claims that could have been answered.
    """
    tests = corrected(_p_values(ledger), f"answers about {ledger.model}", level=ledger.level)
    answered = {claim.name for claim in ledger.claims if claim.answer in ("yes", "no")}
    return tuple(name for name, test in tests.items() if name in answered and test.rejected)


def page_level(ledger: ClaimLedger) -> str:
    """Return the sentences on how many answers of a page still hold if all are tested together; "" without answers."""
    family, hold = _p_values(ledger), hold_together(ledger)
    answered = [claim for claim in ledger.claims if claim.answer in ("yes", "no")]
    if not family:
        return ""
    sentence = TEXTS(
        "page/level",
        level=percent(ledger.level),
        questions=counted(len(family), "question"),
        remaining=len(hold),
        answered=len(answered),
    )
    alone = [f"“{claim.question}”" for claim in answered if claim.name not in hold]
    return " ".join([sentence, *([TEXTS("page/alone", questions="; ".join(alone))] if alone else [])])


def _p_values(ledger: ClaimLedger) -> dict[str, float]:
    return {claim.name: p for claim in ledger.claims if (p := _p_value(claim)) is not None}


def _p_value(claim: Claim) -> float | None:
    """Return the two-sided p value of a claim against its threshold.

    None if no interval could exclude the threshold.
    """
    from scipy.special import stdtr, stdtrit

    if claim.answer == "untestable" or claim.threshold is None or claim.confidence is None:
        return None
    if claim.value is None or claim.low is None or claim.high is None:
        return None
    if claim.answer == "undecided":  # also where another interval than the one that is shown left it open
        return 1.0
    distance = abs(claim.value - claim.threshold)
    half = claim.value - claim.low if claim.value > claim.threshold else claim.high - claim.value
    if half <= 0:
        return claim.p or 0.0
    freedom = max(claim.clusters - 1, 1)
    spread = half / stdtrit(freedom, (1 + claim.confidence) / 2)
    return max(2 * float(stdtr(freedom, -distance / spread)), claim.p or 0.0)
