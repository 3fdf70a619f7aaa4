"""The error rate of a whole page: which of its answers still hold if all of them are tested together.

Each answer alone is wrong with a probability of at most the level of its ledger, so a page with many questions may
still contain a wrong one. Holm's correction over all questions that could have been answered bounds the probability
that any of the surviving answers is wrong. The p value of "the quantity equals its threshold" is computed from the
deciding interval by Student's t, with a standard error from the half of the interval that lies between estimate and
threshold.

Source: Holm, Scandinavian Journal of Statistics 6 (1979).
"""

from goalscope._ground.words import counted
from goalscope.stats.compare import corrected
from goalscope.verdict.claims import Claim, ClaimLedger
from goalscope.verdict.texts import TEXTS, percent


def hold_together(ledger: ClaimLedger) -> tuple[str, ...]:
    """Return the names of the claims whose yes or no survives Holm's correction over all claims of the page."""
    tests = corrected(_p_values(ledger), f"answers about {ledger.model}", level=ledger.level)
    answered = {claim.name for claim in ledger.claims if claim.answer in ("yes", "no")}
    return tuple(name for name, test in tests.items() if name in answered and test.rejected)


def page_level(ledger: ClaimLedger) -> str:
    """Return the sentences on the error rate of a page; "" if no question could have been answered."""
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
