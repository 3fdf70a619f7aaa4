"""Families of agents that the predictor is evaluated on in the end: neither they nor the rules change unnoticed."""

import predicted_agents
import pytest

from goalscope.goals.hypotheses import parse
from goalscope.goals.prediction import expected, mixture


def test_the_families_and_the_rules_are_those_that_were_sealed() -> None:
    assert len(predicted_agents.sealed()) == 8
    predicted_agents.check_seals()


def test_another_agent_breaks_the_seal_of_the_agents(monkeypatch) -> None:
    sealed = predicted_agents.sealed()
    sealed[3] = predicted_agents.Subject(sealed[3].name, "sealed", predicted_agents.lapsing("goal", 0.1))
    monkeypatch.setattr(predicted_agents, "sealed", lambda: sealed)
    with pytest.raises(ValueError, match="the agents changed"):
        predicted_agents.check_seals()


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (predicted_agents, "usual_rules", lambda: (parse("goal"),)),
        (mixture, "CONCENTRATION", 2.0),
        (expected, "SLACK", 0.03),
        (expected, "calibration", lambda: (0.2, {"good": 1.2, "poor": 1.53})),
    ],
)
def test_other_rules_or_constants_break_the_seal_of_the_rules(monkeypatch, module, name, value) -> None:
    monkeypatch.setattr(module, name, value)
    with pytest.raises(ValueError, match="the rules changed"):
        predicted_agents.check_seals()
