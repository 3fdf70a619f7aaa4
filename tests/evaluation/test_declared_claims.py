"""A claim of a package is checked where it is declared, and what its function returns where it is judged."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from goalscope._ground import registry
from goalscope._ground.own import PartWarning
from goalscope.goals.finding import Answer
from goalscope.stats import Estimate, estimate_mean
from goalscope.verdict import ArmData, Claim, claim
from goalscope.verdict.claim_tables import reason_of
from goalscope.verdict.claims import worlds_to_decide
from goalscope.verdict.evidence import Evidence
from goalscope.verdict.rules import decide
from goalscope.verdict.texts import TEXTS
from registered import entries_of

DECLARED: Mapping[str, Any] = {
    "arm": "grids",
    "question": "Does it go straight?",
    "yes": "It goes straight.",
    "no": "It does not go straight.",
    "quantity": "share of straight moves",
    "threshold": 0.5,
    "compared": "a straight way (1)",
}


class Data(ArmData):
    """No data, for claims that read none."""

    speechless = False

    def __init__(self) -> None:
        pass


@pytest.fixture(autouse=True)
def claims(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.names("claim"), registry.names("arm")
    monkeypatch.setitem(registry._entries, "claim", entries_of("claim"))


@pytest.mark.parametrize(
    ("changed", "error", "named"),
    [
        ({"question": None}, TypeError, "question"),
        ({"threshold": "half"}, TypeError, "threshold"),
        ({"about_goals": "yes"}, TypeError, "about_goals"),
        ({"limit": 0.5}, ValueError, "limit"),
        ({"arm": "gridz"}, ValueError, "gridz"),
    ],
)
def test_what_is_declared_wrongly_is_refused(changed: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        claim("goes straight", **{**DECLARED, **changed})(lambda data: data.share("success"))
    assert "goes straight" not in registry.names("claim")


@pytest.mark.parametrize("field", DECLARED)
def test_a_field_that_is_missing_is_named(field: str) -> None:
    with pytest.raises(ValueError, match=f"missing: {field}"):
        claim("goes straight", **{name: value for name, value in DECLARED.items() if name != field})


def test_a_function_that_returns_no_evidence_leaves_the_claim_untestable() -> None:
    wrong: Any = lambda data: 0.7  # noqa: E731
    claim("goes straight", **DECLARED)(wrong)

    with pytest.warns(PartWarning, match="Evidence"):
        (found,) = decide(registry.resolve("claim", "goes straight"), Data())
    assert found.answer == "untestable"


@pytest.mark.parametrize("side", [None, "yes", "no", "undecided"])
def test_an_answer_that_the_shown_interval_does_not_give_alone_has_a_reason(side: Answer | None) -> None:
    ends = {"value": 0.8, "low": 0.7, "high": 0.9}
    evidence = Evidence(
        estimate=Estimate(**ends, confidence=0.95, n=9, clusters=9, method="t", unit="share"), side=side
    )
    claim("goes straight", **DECLARED)(lambda _: evidence)
    (found,) = decide(registry.resolve("claim", "goes straight"), Data())
    assert found.answer == (side or "yes")
    assert reason_of(found) == ("" if found.answer == "yes" else TEXTS("page/several"))


def test_the_worlds_that_would_decide_an_open_claim_decide_it_in_four_of_five_evaluations() -> None:
    rng, rule = np.random.default_rng(3), registry.resolve("claim", "opens the door")

    def claim_of(shares: np.ndarray[Any, np.dtype[np.float64]]) -> Claim:
        end = stats.t.interval(0.95, len(shares) - 1, shares.mean(), stats.sem(shares))
        ends = {"value": float(shares.mean()), "low": float(end[0]), "high": float(end[1])}
        estimate = Estimate(**ends, confidence=0.95, n=len(shares), clusters=len(shares), method="t", unit="share")
        return decide(replace(rule, threshold=0.5, evidence=lambda _: Evidence(estimate=estimate)), Data())[0]

    for truth in (0.58, 0.45):
        # A first evaluation whose mean and deviation are exactly the true ones, so that its estimate is the truth.
        noise = np.repeat([-0.3, 0.3], 10)
        first = claim_of(truth + noise)
        enough = worlds_to_decide(first)
        assert first.answer == "undecided" and enough is not None
        later = [claim_of(truth + rng.choice(noise, enough)).answer for _ in range(600)]
        right = "yes" if truth > 0.5 else "no"
        assert 0.75 < later.count(right) / len(later) < 0.87
        assert worlds_to_decide(claim_of(truth + np.tile(noise, 60))) is None, "it is decided"
    assert worlds_to_decide(claim_of(0.5 + noise)) is None, "no number of worlds decides it"


def test_of_equal_worlds_a_number_is_given_that_decides_and_is_near_the_least() -> None:
    def answer_of(worlds: int) -> Claim:
        estimate = estimate_mean(np.ones(worlds), [str(world) for world in range(worlds)], unit="share", bounds=(0, 1))
        rule = replace(registry.resolve("claim", "opens the door"), threshold=0.9)
        return decide(replace(rule, evidence=lambda _: Evidence.of(estimate)), Data())[0]

    enough = worlds_to_decide(answer_of(18))
    assert enough is not None and answer_of(enough).answer == "yes"
    assert answer_of(int(enough * 0.8)).answer == "undecided"
