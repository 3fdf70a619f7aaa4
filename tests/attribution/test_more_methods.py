"""Methods that ask for more, that read texts, that can reject their bank; and what all say together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_attribution import said

import goalscope
from goalscope.goals.attribution import (
    Asking,
    Attribution,
    MixturePart,
    Trial,
    attribution,
    joint,
    judged,
    usual_methods,
)
from goalscope.goals.hypotheses import FiniteWorld, Undefined, finite_world, load_hypotheses, parse
from goalscope.goals.hypotheses.states import States, answers_of
from goalscope.runs import Study
from two_answers import play

CORNERED = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 12, "minimum_distance": 3, "goal": "top-right"}
ANYWHERE = {**CORNERED, "goal": "anywhere"}
BANK = "goal;corner top-right;corner bottom-left;keep right"


@lru_cache(maxsize=8)
def worlds(goal: str, key: str = "") -> tuple[FiniteWorld, ...]:
    entry = {**CORNERED, "goal": goal, **({"key": key} if key else {})}
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "seed": 5})
    return tuple(finite_world(world, 12) for world in study.worlds())


def policy_of(rule: str, world: FiniteWorld) -> Any:
    """Return the policy of a rule, even where it cannot be come to."""
    try:
        return parse(rule).solved(world).policy[0]
    except Undefined:
        return world.even


def twin(rule: str, lapse: float = 0.05) -> Callable[[FiniteWorld], Any]:
    return lambda world: (1 - lapse) * policy_of(rule, world) + lapse * world.even


def trial_of(given: Sequence[FiniteWorld], policy: Callable[[FiniteWorld], Any], bank: str = BANK) -> Trial:
    ask = Asking(first_turns=lambda asked: answers_of(play(asked, policy, 1)))
    return Trial(states=play(given, policy), bank=load_hypotheses(bank), ask=ask)


@pytest.mark.parametrize("rule", ["goal", "corner top-right"])
def test_a_moved_goal_tells_what_episodes_cannot(rule: str) -> None:
    trial = trial_of(worlds("top-right"), twin(rule))
    assert said(trial, "score").kind == "set"
    found = said(trial, "counterfactual")
    assert (found.kind, found.names) == ("named", (rule,))
    assert found.turns == 2 * 3 * 12 and "the goal's place" in found.sentence
    assert (found.details["depends"]["goal"]["answer"] == "yes") == (rule == "goal")


def test_a_habit_and_a_random_agent_depend_on_nothing() -> None:
    for rule, kinds in (("keep right", {"named", "set", "habit"}), ("random", {"random", "undecided"})):
        found = said(trial_of(worlds("anywhere"), twin(rule, 0.0)), "counterfactual")
        assert found.kind in kinds and found.details["depends"]["goal"]["answer"] != "yes", found.sentence


def test_asking_needs_an_agent_that_can_be_asked_and_is_not_done_by_default(tmp_path: Path) -> None:
    trial = replace(trial_of(worlds("anywhere"), twin("goal")), ask=None)
    assert "counterfactual" in judged("", trial, ["counterfactual"]).refused
    assert "counterfactual" not in usual_methods() and "written reasoning" in usual_methods()
    with pytest.raises(ValueError, match="turns"):
        attribution("of a third kind", asks="money")  # type: ignore[arg-type]


def test_the_command_asks_the_agent_keeps_its_answers_and_counts_them(tmp_path: Path) -> None:
    given = {"worlds": [{**CORNERED, "count": 8}], "agents": [{"kind": "random"}], "seed": 2}
    words: dict[str, Any] = {"hypotheses": "goal;corner top-right", "worlds": given, "methods": ["counterfactual"]}
    agent = "hypothesis:hypothesis=corner top-right"
    found = goalscope.attribute(agent, tmp_path / "out", **words)
    [one] = found.claim.strata[0].attributions
    assert one.kind in ("named", "set") and "corner top-right" in one.names and "goal" not in one.names
    assert one.turns == 2 * 3 * 8
    asked = list((tmp_path / "out" / "asked").iterdir())
    assert goalscope.attribute(agent, tmp_path / "out", **words).claim.id == found.claim.id
    assert len(asked) == 1 == len(list((tmp_path / "out" / "asked").iterdir()))
    run = goalscope.attribute(tmp_path / "out" / "worlds", hypotheses="goal", methods=["counterfactual"])
    assert "counterfactual" in run.claim.strata[0].refused


def writing(given: Sequence[States], named: str, planned: str) -> list[States]:
    """Return states with a text for each step that names a place and plans a way to another one."""
    found, moves = [], ("UP", "DOWN", "LEFT", "RIGHT")
    for one in given:
        cell, width = parse(named).cell(one.world), one.world.grid.width
        policy, ends, texts = parse(planned).solved(one.world).policy[0], parse(planned).where(one.world), list[str]()
        for state in one.state.tolist():
            at, plan = state, list[str]()
            while not ends[at]:
                move = int(policy[at].argmax())
                plan.append(moves[move])
                at = int(one.world.process.transitions[at, move])
            row, col = divmod(state % one.world.grid.walls.size, width)
            texts.append(f"to ({cell[0]},{cell[1]}) from ({row},{col}): {' '.join(plan)}")
        found.append(replace(one, written=tuple(texts)))
    return found


def first_of(rule: str) -> Callable[[FiniteWorld], Any]:
    return lambda world: np.eye(4)[policy_of(rule, world).argmax(axis=1)]


def test_texts_are_read_for_the_cell_that_they_name_and_that_their_plans_lead_to() -> None:
    trial = trial_of(worlds("anywhere"), first_of("goal"))
    honest = said(replace(trial, states=writing(trial.states, "goal", "goal")), "written reasoning")
    assert (honest.kind, honest.names) == ("named", ("goal",)) and honest.details["first move taken"] == 1.0
    hidden = said(replace(trial, states=writing(trial.states, "corner bottom-left", "goal")), "written reasoning")
    assert hidden.names == ("goal",) and "texts name corner bottom-left; plans lead to goal" in hidden.sentence


def test_a_plan_that_is_not_taken_names_nothing_and_without_a_text_nothing_is_said() -> None:
    trial = trial_of(worlds("anywhere"), first_of("corner bottom-left"))
    empty = said(replace(trial, states=writing(trial.states, "goal", "goal")), "written reasoning")
    assert (empty.kind, empty.names) == ("undecided", ())
    assert "writes none" in judged("", trial, ["written reasoning"]).refused["written reasoning"]
    idle = [replace(one, written=("I go on.",) * len(one.state)) for one in trial.states]
    refused = judged("", replace(trial, states=idle), ["written reasoning"]).refused
    assert "a cell or a plan" in refused["written reasoning"]


def test_texts_that_name_one_of_two_places_which_coincide_name_both() -> None:
    trial = trial_of(worlds("top-right"), first_of("goal"))
    found = said(replace(trial, states=writing(trial.states, "goal", "goal")), "written reasoning")
    assert (found.kind, found.names) == ("set", ("goal", "corner top-right"))


def test_the_likelihood_says_none_where_nothing_of_its_bank_fits() -> None:
    bank = "corner top-left;corner bottom-left;goal"
    outside = said(trial_of(worlds("anywhere"), twin("beside goal"), bank), "likelihood")
    assert outside.kind == "none" and outside.predicts, outside.sentence
    fled = said(trial_of(worlds("anywhere"), twin("flee goal"), bank), "likelihood")
    assert fled.kind == "not explained", fled.sentence  # actions that look at nothing explain it better
    noisy = said(trial_of(worlds("anywhere"), twin("goal", 0.5), bank), "likelihood")
    assert (noisy.kind, noisy.names) == ("named", ("goal",)), noisy.sentence
    fixed = said(trial_of(worlds("anywhere"), first_of("goal"), bank), "likelihood")
    assert (fixed.kind, fixed.names) == ("named", ("goal",)), fixed.sentence  # ties that are always broken alike


def test_the_likelihood_does_not_choose_between_hypotheses_that_act_alike_wherever_the_agent_was_seen() -> None:
    found = said(trial_of(worlds("top-right"), twin("goal", 0.3)), "likelihood")
    assert (found.kind, set(found.names)) == ("set", {"goal", "corner top-right"}), found.sentence


def test_the_likelihood_names_nothing_of_an_agent_that_repeats_nothing() -> None:
    found = said(trial_of(worlds("anywhere"), twin("random", 0.0), "goal;corner top-left;flee goal"), "likelihood")
    assert found.kind in ("undecided", "not explained"), found.sentence


def test_a_name_of_the_likelihood_is_held_to_the_worlds_in_which_a_rival_acts_differently() -> None:
    def half(world: FiniteWorld) -> Any:
        """Go to the goal at the top right, and where it is another cell to the corner bottom-left."""
        rule = "goal" if parse("goal").cell(world) == parse("corner top-right").cell(world) else "corner bottom-left"
        return twin(rule)(world)

    given = [*worlds("top-right"), *worlds("anywhere")]
    found = said(trial_of(given, half, "goal;corner top-right"), "likelihood")
    assert found.kind in ("partly", "none"), found.sentence


def claim(method: str, kind: Any, *names: str) -> Attribution:
    parts = tuple(MixturePart(hypothesis=name, weight=1 / len(names)) for name in names)
    return Attribution(method=method, kind=kind, names=names, sentence="", predicts=parts)


GOAL, CORNER = "goal", "corner top-right"


@pytest.mark.parametrize(
    ("claims", "kind", "names"),
    [
        ([("score", "set", GOAL, CORNER), ("x", "named", GOAL), ("y", "undecided")], "named", (GOAL,)),
        ([("x", "named", CORNER), ("y", "named", GOAL)], "undecided", ()),
        ([("x", "named", CORNER), ("score", "named", GOAL)], "named", (GOAL,)),
        ([("x", "named", GOAL), ("score", "none")], "none", ()),
        ([("x", "named", GOAL), ("likelihood", "none")], "none", ()),
        ([("score", "named", GOAL), ("likelihood", "none")], "undecided", ()),
        ([("likelihood", "named", "keep right"), ("score", "habit", "open moves")], "named", ("keep right",)),
        ([("likelihood", "named", GOAL), ("score", "habit", "open moves")], "habit", ("open moves",)),
        (
            [("likelihood", "named", "goal within 5 steps"), ("score", "partly", GOAL)],
            "named",
            ("goal within 5 steps",),
        ),
        ([("likelihood", "named", GOAL), ("score", "partly", GOAL)], "partly", (GOAL,)),
        ([("x", "undecided"), ("y", "not explained")], "undecided", ()),
        ([("likelihood", "named", GOAL), ("score", "undecided", CORNER)], "undecided", ()),
        (
            [("likelihood", "named", GOAL), ("counterfactual", "named", GOAL), ("score", "partly", GOAL)],
            "named",
            (GOAL,),
        ),
    ],
)
def test_together_they_say_what_no_strict_method_contradicts(claims: Any, kind: str, names: Any) -> None:
    trial = trial_of(worlds("anywhere"), twin("goal"), f"{BANK};goal within 5 steps")
    found = joint([claim(*one) for one in claims], trial)
    assert (found.kind, found.names) == (kind, names)


def test_together_they_name_nothing_that_another_hypothesis_did_as_well_wherever_the_agent_was_seen() -> None:
    trial = trial_of(worlds("top-right"), twin("goal"))
    alike = joint([claim("x", "named", GOAL), claim("y", "named", GOAL)], trial)
    assert (alike.kind, alike.names) == ("set", (GOAL, CORNER))
    moved = joint([said(trial, method) for method in ("score", "counterfactual", "likelihood")], trial)
    assert (moved.kind, moved.names) == ("named", (GOAL,)) and moved.turns > 0
