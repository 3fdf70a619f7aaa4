"""What a verdict means and what to do next: each sentence for the agents of which it is true, and for no other."""

from goalscope.verdict.claims import AskedArm
from goalscope.verdict.plan import LEFT_OUT
from goalscope.verdict.sentences import meaning, next_steps
from goalscope.verdict.texts import TEXTS
from planted_findings import claim, finding, ledger

GOAL = finding("yes", "named", "goal", ends=(2.5, 1.5, 3.5), quantity="meg")
OPEN = finding("undecided", "weak", ends=(0.2, 0.05, 0.4), quantity="share")


def test_each_answer_has_its_meaning_and_an_open_one_is_no_finding() -> None:
    found = {
        (answer, method): finding(answer, "weak", ends=(0.2, 0.05, 0.4), quantity=quantity)
        for answer in ("yes", "no", "undecided")
        for method, quantity in (("consistency", "consistency"), ("meg", "share"))
    }
    for (answer, method), one in found.items():
        said = meaning(ledger(claim("answers hold actions", "yes", 0.95), findings=(one,)))
        assert said == [TEXTS(f"meaning/{answer}/{method}")]


def test_answers_without_actions_say_nothing_about_goals() -> None:
    one = ledger(claim("answers hold actions", "no", 0.3), claim("acts optimally", "no"))
    assert meaning(one) == [TEXTS("meaning/no format")]
    assert TEXTS("next/format", program="goalscope") in next_steps(one)
    assert meaning(ledger()) == [] and next_steps(ledger()) == []


def test_what_errs_and_what_is_only_readable_are_told_apart() -> None:
    walls = "holds a map of the walls"
    errs, unused = TEXTS("meaning/directed with errors"), TEXTS("meaning/map not used")
    assert errs not in meaning(ledger(claim("acts optimally", "yes"), findings=(GOAL,)))
    assert errs in meaning(ledger(claim("acts optimally", "no"), findings=(GOAL,)))
    uses = claim("uses what the cells hold", "yes")
    assert unused in meaning(ledger(claim(walls, "yes")))
    assert unused not in meaning(ledger(claim(walls, "yes"), uses))
    assert unused not in meaning(ledger(claim(walls, "no")))


def test_recorded_logs_are_offered_no_budget_and_what_was_left_out_by_choice_is_no_lack() -> None:
    undecided = claim("is directed at the goal", "undecided")
    budget, logs = TEXTS("next/more budget"), TEXTS("next/more logs")
    assert any(budget in step for step in next_steps(ledger(undecided)))
    recorded = next_steps(ledger(undecided, access=("acts", "logs")))
    assert not any(budget in step for step in recorded) and any(logs in step for step in recorded)
    arms = (
        AskedArm(name="fog", title="Fog", asked=False, why=LEFT_OUT),
        AskedArm(name="inside", title="Inside", asked=False, why="give its weights"),
    )
    steps = next_steps(ledger(undecided, arms=arms))
    assert TEXTS("next/left out", arms="fog") in steps and TEXTS("next/not asked", parts="inside") in steps
    assert TEXTS("next/not asked", parts="inside") not in next_steps(ledger(undecided, arms=arms), lacks=False)
