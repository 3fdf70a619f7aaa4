"""The answers of a page that hold together: p values are those of the t test, and whole pages are rarely wrong."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from goalscope._ground.rng import stream
from goalscope.stats import estimate_mean
from goalscope.verdict.claim_tables import hold_together, page_level
from goalscope.verdict.claims import Claim, ClaimLedger

LEVEL = 0.04


def claim(values: Any, name: str, **changes: Any) -> Claim:
    """Return the claim that the mean of some values lies above 0, as the rules decide it."""
    found = estimate_mean(values, np.arange(len(values)), unit="nats", confidence=1 - LEVEL)
    answer = "yes" if found.low > 0 else "no" if found.high < 0 else "undecided"
    figures = {field: float(getattr(found, field)) for field in ("value", "low", "high", "confidence")}
    counts = {"clusters": found.clusters, "n": found.n}
    given = {"answer": answer, "threshold": 0.0, **figures, **counts, **changes}
    return Claim(name=name, arm="grids", question=f"{name}?", says="", **given)


def ledger(claims: list[Claim]) -> ClaimLedger:
    return ClaimLedger(rules=8, model="m", access=("acts",), look=1, level=LEVEL, arms=(), claims=tuple(claims))


def test_one_answer_holds_exactly_where_its_t_test_rejects_at_the_corrected_level() -> None:
    rng, seen = stream(3, "page level"), set()
    for shift in np.linspace(0.2, 1.2, 60):
        values = rng.normal(shift, 1.0, size=12)
        found = ttest_1samp(values, 0.0)
        low, high = map(float, found.confidence_interval(1 - LEVEL))
        shifted = claim(values, "shifted", answer="yes" if low > 0 else "undecided", low=low, high=high)
        others = [claim(rng.normal(0, 1, size=12), f"open {index}", answer="undecided") for index in range(4)]
        hold = hold_together(ledger([shifted, *others]))
        assert bool(hold) == bool(found.pvalue <= LEVEL / 5)
        seen.add(bool(hold))
    assert seen == {True, False}


def test_pages_whose_every_answer_is_wrong_keep_one_no_more_often_than_the_level() -> None:
    rng, pages, alone, together = stream(5, "page level"), 400, 0, 0
    for _ in range(pages):
        page = ledger([claim(rng.normal(0, 1, size=15), f"claim {index}") for index in range(12)])
        alone += any(one.answer != "undecided" for one in page.claims)
        together += bool(hold_together(page))
    assert alone > 0.3 * pages  # 1 - .96^12 is .39
    assert together < (LEVEL + 3 * (LEVEL * (1 - LEVEL) / pages) ** 0.5) * pages


def test_questions_that_cannot_be_told_are_no_part_of_the_family() -> None:
    values = stream(7, "page level").normal(1.0, 1.0, size=12)
    p = ttest_1samp(values, 0.0).pvalue
    silent = Claim(name="silent", arm="grids", question="silent?", answer="untestable", says="", why="none asked")
    assert p < LEVEL
    assert hold_together(ledger([claim(values, "shifted"), *[silent]])) == ("shifted",)
    assert page_level(ledger([silent])) == ""


def test_a_claim_with_a_corrected_p_value_of_its_own_is_not_made_surer() -> None:
    values = stream(9, "page level").normal(3.0, 1.0, size=12)
    assert hold_together(ledger([claim(values, "shifted")])) == ("shifted",)
    assert hold_together(ledger([claim(values, "shifted", p=0.05)])) == ()


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_the_page_names_the_answers_that_hold_only_alone(answer: str) -> None:
    weak = claim(np.linspace(-0.2, 1.0, 8) * (1 if answer == "yes" else -1), "weak")
    strong = claim(np.linspace(0.9, 1.0, 8), "strong")
    rest = [claim(np.linspace(-1, 1, 8), f"open {index}") for index in range(9)]
    page = ledger([weak, strong, *rest])
    assert weak.answer == answer
    assert hold_together(page) == ("strong",)
    assert weak.question in page_level(page)
    assert strong.question not in page_level(page)
