"""A claim of a package is checked where it is declared, and what its function returns where it is judged."""

from collections.abc import Mapping
from typing import Any

import pytest

from goalscope._ground import registry
from goalscope._ground.parts import PartWarning
from goalscope.goals.finding import Answer
from goalscope.stats import Estimate
from goalscope.verdict import ArmData, claim
from goalscope.verdict.claim_tables import reason_of
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
    evidence = Evidence(estimate=Estimate(value=0.8, low=0.7, high=0.9), side=side)
    claim("goes straight", **DECLARED)(lambda _: evidence)
    (found,) = decide(registry.resolve("claim", "goes straight"), Data())
    assert found.answer == (side or "yes")
    assert reason_of(found) == ("" if found.answer == "yes" else TEXTS("page/several"))
