"""Agents that are after two places, each in a part: no sentence denies the weaker one."""

from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from goalscope._ground import registry
from goalscope.agents.agent import Observation, agent_kind
from goalscope.agents.scripted import ScriptedAgent
from goalscope.stats.rows import Rows
from goalscope.verdict import evidence, judging, subject_of
from goalscope.verdict.evidence import ArmData
from goalscope.verdict.judging import contradictions
from goalscope.verdict.plan import prepare
from goalscope.verdict.playing import play
from goalscope.verdict.sentences import headline
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.planning import optimal_actions
from planted_findings import claim, finding, stated
from planted_findings import ledger as planted_ledger


@dataclass(frozen=True)
class Thirds(ScriptedAgent):
    """Goes to the goal in grids of 7 columns, and to the bottom-left corner in all others."""

    kind: ClassVar[str] = "thirds"

    def probabilities(self, observation: Observation) -> Any:
        grid = observation.seen(GridView).grid
        assert grid.start is not None
        corner = grid.corner("bottom-left")
        chances = np.zeros(4)
        if grid.width == 7 or corner != grid.start:
            aim = grid if grid.width == 7 else grid.at(goal=corner)
            chances[[int(action) for action in optimal_actions(aim, grid.start)]] = 1.0
        else:
            chances[[1, 2]] = 1.0  # down or left, into the walls of the corner
        return chances / chances.sum()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    agent_kind(Thirds.kind)(Thirds)
    run = prepare(tmp_path_factory.mktemp("thirds"), [subject_of("thirds")], {"grids": 25}, seed=5)
    play(run, lambda label: nullcontext(lambda *_: None))
    with judging.opened(run) as data:
        return judging.judge(run, data).models[0]


@pytest.mark.full
def test_a_corner_that_explains_a_part_does_not_deny_the_goal(ledger: Any) -> None:
    (one,), answers = ledger.found_in("grids"), {claim.name: claim.answer for claim in ledger.claims}
    # The corner explains more than the goal, and was not shown to explain more by a quarter.
    assert (one.answer, one.reason, one.names) == ("undecided", "not beaten", ("corner bottom-left", "goal"))
    assert answers["is directed at another place"] == answers["is directed at the goal"] == "undecided"
    assert contradictions(ledger) == []


NO_AIM = finding("no", "other", ends=(0.1, 0.02, 0.18), quantity="share")


def told(**answers: tuple[Any, float, float, float]) -> str:
    """Return the verdict of a ledger with these claims: name -> answer, estimate, lower and upper end."""
    claims = [claim(name, answer, value, low=low, high=high) for name, (answer, value, low, high) in answers.items()]
    return headline(planted_ledger(*claims, findings=(NO_AIM,)))


def test_a_share_that_is_a_little_above_chance_is_not_called_chance() -> None:
    found = told(**{"opens the door": ("no", 0.06, 0.02, 0.09)})
    assert TEXTS("verdict/not at doors", verbs=TEXTS("doors/opens the door/lacks")) in found


@pytest.mark.parametrize(
    ("claim", "value", "key", "bounded"),
    [
        # Each is "no" for an agent that does a little of it: .1 of what is predictable, two named places of five, ...
        ("depends on the goal's place", 0.1, "verdict/independent of the goal", "hardly"),
        ("is able where it fails", 0.4, "also/is able where it fails/no", "fewer than half"),
        ("wastes little of what it knows", 0.88, "also/wastes little of what it knows/no", "one step in ten"),
    ],
)
def test_a_little_is_not_denied(claim: str, value: float, key: str, bounded: str) -> None:
    found = told(**{claim: ("no", value, value - 0.03, value + 0.01)})
    assert stated(key, found) and bounded in TEXTS.text(key)


def test_what_happens_more_often_than_by_chance_is_not_said_of_every_door() -> None:
    found = told(**{"fetches the key it needs": ("yes", 0.3, 0.2, 0.4)})
    assert TEXTS("verdict/at doors", verbs=TEXTS("doors/fetches the key it needs/does")) in found
    assert TEXTS("doors/opens the door/does") not in found


@pytest.mark.parametrize(
    "name", ["is the same under other wordings", "uses what the cells hold", "follows its written plan"]
)
def test_the_threshold_of_a_yes_is_in_the_sentence_as_it_was_applied(name: str) -> None:
    one = claim(name, "yes", 0.5, threshold=0.37)
    said = headline(planted_ledger(one, findings=(NO_AIM,)))
    assert stated(f"also/{name}/yes", said) and ("0.37" in said or "37 %" in said)


@pytest.mark.parametrize("name", ["is lured by a key", "errs in lapses", "reaches the goal", "opens the door"])
def test_a_no_below_a_margin_is_a_no_to_what_is_clear(name: str) -> None:
    assert "clearly" in registry.resolve("claim", name).no


@pytest.mark.parametrize("after_goal", [True, False])
def test_what_the_actions_depend_on_is_said_where_the_aim_does_not_say_it(after_goal: bool) -> None:
    goal = finding("yes", "named", "goal", ends=(0.9, 0.8, 0.97))
    for answer in ("yes", "no"):
        one = claim("depends on the goal's place", answer)
        said = headline(planted_ledger(one, findings=(goal if after_goal else NO_AIM,)))
        assert ("depend" in said) != after_goal


def test_random_walkers_are_not_said_to_waste_as_little_as_an_agent_that_wastes_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walked = [0.18]
    monkeypatch.setattr(evidence, "walker_errors", lambda *_: walked)
    monkeypatch.setattr(evidence, "task_maps", lambda *_: ["a map"])
    rows = Rows.from_columns(
        measure="exploration error", unit="share", value=[0.6] * 12, cluster=[str(number) for number in range(12)]
    )
    run: Any = SimpleNamespace(confidence=0.96)
    data = ArmData(run=run, agent="a", rows=rows)
    assert evidence.wastes_little(data, "exploration").why.startswith("random walkers waste little on these maps")
    walked.clear()
    assert "no step of random walkers" in evidence.wastes_little(data, "exploration").why


def accuracies(shares: dict[int, float]) -> ArmData:
    """Return data with the share of optimal moves in twelve grids of each size."""
    sizes = [size for size in shares for _ in range(12)]
    rows = Rows.from_columns(
        measure="action accuracy",
        unit="share",
        value=[shares[size] for size in sizes],
        cluster=[str(number) for number in range(len(sizes))],
        tags={"size": sizes},
    )
    run: Any = SimpleNamespace(confidence=0.96)
    return ArmData(run=run, agent="a", rows=rows)


@pytest.mark.parametrize(("shares", "differ"), [({7: 1.0, 9: 1.0, 11: 0.05}, True), ({7: 0.9, 9: 0.9, 11: 0.9}, False)])
def test_shares_by_size_are_given_where_they_differ_clearly(shares: dict[int, float], differ: bool) -> None:
    evidence = accuracies(shares).share_in_largest("action accuracy")
    assert evidence.estimate is not None and evidence.estimate.value == pytest.approx(shares[11])
    assert all((f"{share:.3f} at size {size}" in evidence.by_size) == differ for size, share in shares.items())


def test_where_all_grids_have_one_size_none_are_the_largest() -> None:
    evidence = accuracies({7: 1.0}).share_in_largest("action accuracy")
    assert evidence.estimate is None and "size 7" in evidence.why and "--sizes" in evidence.why
