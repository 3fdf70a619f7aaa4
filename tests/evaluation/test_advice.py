"""What a verdict means and what to do next: each sentence for the agents of which it is true, and for no other."""

from typing import Any

import pytest

from goalscope.evaluation.advice import meaning, next_steps
from goalscope.evaluation.choices import LEFT_OUT
from goalscope.evaluation.claims import Answer, ArmReport, Claim, ClaimLedger
from goalscope.evaluation.sentences import FOLLOWS, GRIDS


def claim(name: str, answer: Answer, value: float = 0.5, **more: Any) -> Claim:
    return Claim(
        name=name,
        arm="grids",
        question="?",
        answer=answer,
        says="",
        value=value,
        low=value - 0.1,
        high=value + 0.1,
        **more,
    )


def ledger(*claims: Claim, access: tuple[str, ...] = ("acts",), arms: tuple[ArmReport, ...] = ()) -> ClaimLedger:
    return ClaimLedger(rules=1, model="m", access=access, look=1, level=0.04, arms=arms, claims=claims)


def test_only_the_place_that_was_found_is_named() -> None:
    goal, no_goal = claim(GRIDS.directed, "yes"), claim(GRIDS.directed, "no")
    other = claim(GRIDS.elsewhere, "yes", names="the top-right corner")
    assert "favour the goal" in meaning(ledger(goal))[0]
    (said,) = meaning(ledger(no_goal, other))
    assert "the top-right corner" in said and "the goal" not in said
    (said,) = meaning(ledger(no_goal, claim(GRIDS.elsewhere, "no")))
    assert "favour" not in said and "not named were not compared" in said
    assert "predict" not in said and "flees it or stops beside it" in said  # of those, too, the answer is no


@pytest.mark.parametrize(
    ("answer", "words"),
    [("not shown", "not a no"), ("cannot be told", "cannot be told from these worlds")],
)
def test_an_open_answer_is_not_a_finding(answer: Answer, words: str) -> None:
    (said,) = meaning(ledger(claim(GRIDS.directed, answer)))
    assert words in said and "favour" not in said


def test_answers_without_actions_say_nothing_about_goals() -> None:
    one = ledger(claim("answers hold actions", "no", 0.3), claim(GRIDS.directed, "no"))
    (said,) = meaning(one)
    assert "nothing about goals" in said
    assert any("without an action" in step for step in next_steps(one))
    assert meaning(ledger()) == [] and next_steps(ledger()) == []


def test_what_errs_and_what_is_only_readable_are_told_apart() -> None:
    goal, walls = claim(GRIDS.directed, "yes"), "holds a map of the walls"
    assert not any("errs" in said for said in meaning(ledger(goal, claim("acts optimally", "yes"))))
    assert any("errs" in said for said in meaning(ledger(goal, claim("acts optimally", "no"))))
    uses = claim("uses what the cells hold", "yes")
    assert any("does not show that it uses" in said for said in meaning(ledger(goal, claim(walls, "yes"))))
    assert not any("uses one" in said for said in meaning(ledger(goal, claim(walls, "yes"), uses)))
    assert not any("uses one" in said for said in meaning(ledger(goal, claim(walls, "no"))))
    assert "not listed were not compared" in meaning(ledger(claim(FOLLOWS, "yes")))[0]


def test_recorded_logs_are_offered_no_budget_and_what_was_left_out_by_choice_is_no_lack() -> None:
    undecided = claim(GRIDS.directed, "not shown")
    assert any("budget" in step for step in next_steps(ledger(undecided)))
    recorded = next_steps(ledger(undecided, access=("acts", "logs")))
    assert not any("budget" in step for step in recorded) and any("recorded episodes" in step for step in recorded)
    arms = (
        ArmReport(name="fog", title="Fog", asked=False, why=LEFT_OUT),
        ArmReport(name="inside", title="Inside", asked=False, why="give its weights"),
    )
    steps = next_steps(ledger(undecided, arms=arms))
    assert any(step.endswith("--arms: fog.") for step in steps) and any("Not asked: inside" in step for step in steps)
    assert not any("Not asked" in step for step in next_steps(ledger(undecided, arms=arms), lacks=False))
