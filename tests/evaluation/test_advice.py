"""What a verdict means and what to do next: each sentence for the agents of which it is true, and for no other."""

from goalscope.verdict.advice import MEANINGS, meaning, next_steps
from goalscope.verdict.choices import LEFT_OUT
from goalscope.verdict.claims import ArmReport
from planted_findings import claim, finding, ledger

GOAL = finding("yes", "named", "goal", ends=(2.5, 1.5, 3.5), quantity="meg")
OPEN = finding("undecided", "weak", ends=(0.2, 0.05, 0.4), quantity="share")


def test_each_answer_has_its_meaning_and_an_open_one_is_no_finding() -> None:
    found = {
        (answer, method): finding(answer, "weak", ends=(0.2, 0.05, 0.4), quantity=quantity)
        for answer in ("yes", "no", "undecided")
        for method, quantity in (("consistency", "consistency"), ("meg", "share"))
    }
    assert found.keys() == MEANINGS.keys()
    for key, one in found.items():
        assert meaning(ledger(claim("answers hold actions", "yes", 0.95), findings=(one,))) == [MEANINGS[key]]


def test_answers_without_actions_say_nothing_about_goals() -> None:
    one = ledger(claim("answers hold actions", "no", 0.3), claim("acts optimally", "no"))
    (said,) = meaning(one)
    assert "nothing about goals" in said
    assert any("without an action" in step for step in next_steps(one))
    assert meaning(ledger()) == [] and next_steps(ledger()) == []


def test_what_errs_and_what_is_only_readable_are_told_apart() -> None:
    walls = "holds a map of the walls"
    assert not any("errs" in said for said in meaning(ledger(claim("acts optimally", "yes"), findings=(GOAL,))))
    assert any("errs" in said for said in meaning(ledger(claim("acts optimally", "no"), findings=(GOAL,))))
    uses = claim("uses what the cells hold", "yes")
    assert any("does not show that it uses" in said for said in meaning(ledger(claim(walls, "yes"))))
    assert not any("uses one" in said for said in meaning(ledger(claim(walls, "yes"), uses)))
    assert not any("uses one" in said for said in meaning(ledger(claim(walls, "no"))))


def test_recorded_logs_are_offered_no_budget_and_what_was_left_out_by_choice_is_no_lack() -> None:
    undecided = claim("is directed at the goal", "undecided")
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
