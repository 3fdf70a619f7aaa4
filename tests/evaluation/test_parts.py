"""Agents that are after two places, each in a part: no sentence denies the weaker one."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from goalscope.agents.agent import Observation, agent_kind
from goalscope.agents.scripted import ScriptedAgent
from goalscope.evaluation import judging, subject_of
from goalscope.evaluation.claims import Claim, ClaimLedger
from goalscope.evaluation.sentences import headline
from goalscope.planning import optimal_actions
from goalscope.worlds.gridworld import GridView

CORNER = "the top-left corner"


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
    run = judging.prepare(tmp_path_factory.mktemp("thirds"), [subject_of("thirds")], {"grids": 25}, seed=5)
    judging.play(run, lambda label: nullcontext(lambda *_: None))
    with judging.opened(run) as data:
        return judging.judge(run, data).models[0]


@pytest.mark.full
def test_a_corner_that_explains_a_part_does_not_deny_the_goal(ledger: Any) -> None:
    said, answers = headline(ledger), {claim.name: claim.answer for claim in ledger.claims}
    assert answers["is directed at another place"] == "yes" and answers["is directed at the goal"] == "not shown"
    assert "weakly or partly directed at the bottom-left corner (" in said and "more than at the goal" in said
    assert "not at the goal" not in said


def told(**answers: tuple[Any, float, float, float]) -> str:
    """Return the verdict of a ledger with these claims: name -> answer, estimate, lower and upper end."""
    claims = [
        Claim(
            name=name, arm="grids", question="?", answer=answer, says="", value=value, low=low, high=high, names=CORNER
        )
        for name, (answer, value, low, high) in answers.items()
    ]
    return headline(ClaimLedger(rules=4, model="m", access=(), look=1, level=0.04, arms=(), claims=tuple(claims)))


@pytest.mark.parametrize(
    ("corner", "goal", "words"),
    [
        (
            (0.5, 0.3, 0.7),
            ("not shown", 0.28, 0.2, 0.36),
            "m is weakly or partly directed at the top-left corner (0.500",
        ),
        ((0.3, 0.2, 0.4), ("no", 0.0, -0.1, 0.05), "more than at the goal"),
        ((0.9, 0.7, 1.0), ("not shown", 0.2, 0.12, 0.36), "more than at the goal"),
        ((0.9, 0.7, 1.0), ("no", 0.0, -0.1, 0.05), "not at the goal"),
    ],
)
def test_not_at_the_goal_is_said_where_another_place_explains_most(corner: Any, goal: Any, words: str) -> None:
    found = told(**{"is directed at another place": ("yes", *corner), "is directed at the goal": goal})
    assert words in found and ("not at the goal" in found) == (words == "not at the goal")


def test_a_share_that_is_a_little_above_chance_is_not_called_chance() -> None:
    found = told(**{"opens the door": ("no", 0.06, 0.02, 0.09), "is directed at the goal": ("no", 0.0, -0.1, 0.05)})
    assert "it opens the door not clearly more often than by chance" in found
    assert found.startswith("m does not act like an agent that wants to be at the goal")
