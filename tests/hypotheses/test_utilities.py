"""Utilities without policies, hypotheses from Python functions, and how hypotheses are named."""

from typing import Any

import numpy as np
import pytest
from test_values import open_room, worlds_of_tasks

from goalscope.goals.hypotheses import (
    FiniteWorld,
    Hypothesis,
    Undefined,
    bind,
    finite_world,
    load_hypotheses,
    parse,
    read_hypotheses,
    write_hypotheses,
)
from goalscope.goals.hypotheses.written import check_names
from goalscope.meg import meg_known
from goalscope.runs import Study
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridView, GridWorld
from goalscope.worlds.planning.mdp import value_iteration
from goalscope.worlds.planning.process import Process


@pytest.mark.parametrize("text", ["goal", "corner top-left", "key held", "cell 2 2", "1 * goal + 0.5 * key held"])
def test_the_utility_is_that_of_the_solved_hypothesis(text: str) -> None:
    world = finite_world(open_room(key=(4, 4)), 12)
    paid = parse(text).utility(world)
    assert paid.dtype == np.float64 and paid.shape == (50,) and paid.sum() > 0
    assert np.array_equal(paid, np.asarray(parse(text).solved(world).utility))


@pytest.mark.parametrize("text", ["random", "keep right", "goal if key held, else random", "flee goal"])
def test_policies_tables_and_conditions_have_no_utility(text: str) -> None:
    with pytest.raises(Undefined):
        parse(text).utility(finite_world(open_room(key=(4, 4)), 12))


def test_a_place_out_of_reach_keeps_its_utility_and_has_no_policy() -> None:
    world = finite_world(open_room(walls=((0, 3), (1, 4))), 9)
    locked = Grid(walls=np.zeros((1, 4), dtype=bool), start=(0, 0), goal=(0, 2))
    behind = finite_world(GridWorld(grid=locked), 9)
    for place, at, cell in (("cell 0 4", world, 4), ("corner top-right", world, 4), ("corner top-right", behind, 3)):
        assert np.flatnonzero(parse(place).utility(at)).tolist() == [cell]
        with pytest.raises(Undefined, match=place):
            parse(place).solved(at)
    assert (
        parse("near corner top-right").utility(world).sum() == 1
        and not parse("near corner top-right").utility(world)[4]
    )
    with pytest.raises(Undefined, match="wall"):
        parse("corner top-right").utility(finite_world(open_room(walls=((0, 4),)), 9))


def centre_cell(world: FiniteWorld) -> tuple[int, int]:
    return world.grid.height // 2, world.grid.width // 2


def pays_for_moving_right(world: FiniteWorld) -> np.ndarray[Any, Any]:
    paid = np.zeros((world.process.states, world.process.actions))
    paid[:, 3] = 1.0
    return paid


def always_up(view: GridView) -> list[float]:
    return [1.0, 0.0, 0.0, 0.0]


def test_a_hypothesis_from_a_function_is_solved_like_a_registered_one() -> None:
    world = finite_world(open_room(), 9)
    place = Hypothesis.of("place", centre_cell, "the middle")
    same = parse("cell 2 2")
    assert np.array_equal(place.utility(world), same.utility(world))
    assert np.array_equal(place.solved(world).policy, same.solved(world).policy)
    event = Hypothesis.of("event", lambda world: same.where(world), "in the middle")
    assert np.array_equal(event.where(world), same.where(world))
    right = Hypothesis.of("utility", pays_for_moving_right, "moves right")
    assert right.utility(world).shape == (25, 4) and right.utility(world).sum() == 25
    assert right.solved(world).policy[0, 12].tolist() == [0, 0, 0, 1]
    up = Hypothesis.of("policy", always_up, "up")
    assert up.solved(world).policy[0, 12].tolist() == [1, 0, 0, 0]
    assert Hypothesis.of("place", centre_cell, "goal").cell(world) == (2, 2)  # the name of a form changes nothing


def test_hypotheses_from_functions_differ_by_name_and_are_not_stored() -> None:
    first, second = (Hypothesis.of("place", centre_cell, name) for name in ("draw 1", "draw 2"))
    assert first != second and len({first.text, second.text}) == 2 and first.name == "draw 1"
    with pytest.raises(ValueError, match="draw 1"):
        write_hypotheses({"draw 1": first})
    for kind, name in (("condition", "x"), ("goal", "x"), ("place", "a\nb"), ("place", " ")):
        wrong: Any = kind
        with pytest.raises(ValueError, match="must be"):
            Hypothesis.of(wrong, centre_cell, name)


@pytest.mark.parametrize("shape", [(3,), (25, 3), (25, 4, 24), ()])
def test_a_utility_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        Hypothesis.of("utility", lambda world: np.zeros(shape), "wrong").utility(finite_world(open_room(), 9))


FOUR = np.array([[0, 1], [0, 2], [3, 3], [3, 3]])


def four_states(**goals: list[float]) -> FiniteWorld:
    """Return a chain of four states whose goals are named as given."""
    named = {name.replace("_", " "): np.array(values) for name, values in goals.items()}
    process = Process(transitions=FOUR, start=np.eye(4)[0], number=None, goals=named)
    return FiniteWorld(world=open_room(), process=process, horizon=5)


@pytest.mark.parametrize("text", ["crate held", "random", "corner top-left", "key held", "event crate held", "goals"])
def test_a_name_that_the_world_gives_wins_over_every_form(text: str) -> None:
    name = text.removeprefix("event ")
    world = four_states(**{name.replace(" ", "_"): [0.0, 0.0, 1.0, 0.0]})
    assert parse(text).utility(world).tolist() == [0, 0, 1, 0]
    assert parse(text).where(world).tolist() == [False, False, True, False]
    assert parse(text).solved(world).policy[0, :2].tolist() == [[0, 1], [0, 1]]


def test_a_function_is_not_replaced_by_a_goal_of_its_name() -> None:
    world = four_states(crate_held=[0.0, 0.0, 1.0, 0.0])
    own = Hypothesis.of("event", lambda _: np.array([False, True, False, False]), "crate held")
    assert own.utility(world).tolist() == [0, 1, 0, 0] and own.where(world).tolist() == [False, True, False, False]


def test_names_of_worlds_stand_inside_other_forms() -> None:
    world = four_states(charger=[0.0, 1.0, 0.0, 0.0], crate_held=[0.0, 0.0, 0.0, 1.0])
    (bonus,) = read_hypotheses([{"name": "bonus", "utility": {"charger": 1, "crate held": 0.5}}]).values()
    assert bonus.utility(world).tolist() == [0, 1, 0, 0.5] and bonus.text == "1.0 * charger + 0.5 * crate held"
    other = parse("crate held if not charger, else charger").solved(world).policy[-1]
    assert other[0].tolist() == parse("crate held").solved(world).policy[0, 0].tolist()
    with pytest.raises(Undefined, match=r"charger.*crate held"):
        parse("crate hold").solved(world)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("sub-gaols", ["sub-goals", "node"]),
        ("gaol", ["'goal'", "node"]),
        ("top-right", ["'corner top-right'"]),
        ("goal if not lever, else key", ["lever"]),
        ("key whitin 5 steps", ["'key within 5 steps'"]),
    ],
)
def test_a_name_that_no_world_gives_is_refused_with_the_names_that_there_are(text: str, facts: list[str]) -> None:
    with pytest.raises(ValueError) as raised:
        check_names({"mine": parse(text)}, lambda: [worlds_of_tasks(), open_room()])
    assert all(fact in str(raised.value) for fact in facts)
    with pytest.raises(ValueError, match="none"):
        check_names({"mine": parse(text)}, lambda: [open_room()])
    known = {"a": parse("sub-goals"), "b": parse("goal"), "c": parse("random")}
    check_names(known, lambda: [open_room(), worlds_of_tasks()])


def test_a_study_whose_agent_follows_an_unknown_name_is_refused() -> None:
    grids = {"kind": "grid", "sizes": [5], "densities": [0.0], "count": 1}
    study = Study.parse({"worlds": [grids], "agents": [{"kind": "hypothesis", "hypothesis": "gaol"}]})
    with pytest.raises(ValueError, match="'goal'"):
        study.agents()


def test_task_maps_pay_their_sub_goals_and_nodes() -> None:
    world = finite_world(worlds_of_tasks(), 40)
    count = parse("sub-goals").utility(world)
    assert count.max() > 1 and np.array_equal(count, world.process.goals["sub-goals"])
    node = next(name for name in world.process.goals if name.startswith("node "))
    assert np.array_equal(parse(node).utility(world), world.process.goals[node])
    assert np.array_equal(parse(f"2 * sub-goals + 1 * {node}").utility(world), 2 * count + world.process.goals[node])
    mdp = world.process.mdp(count, 40, terminal=None)
    solved = parse("sub-goals").solved(world)
    assert ((solved.policy > 0) == value_iteration(mdp).optimal)[:, world.live].all()
    assert meg_known(mdp, policy=solved.policy).share > 0.99


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("goal", "the goal"),
        ("corner top-left", "the top-left corner"),
        ("near corner top-left", "the open cell nearest to the top-left corner"),
        ("beside goal", "the cell beside the goal"),
        ("key held", "holding the key"),
        ("goal +0,-1", "the cell 1 column to the left of the goal"),
        ("key +2,+1", "the cell 2 rows below and 1 column to the right of the key"),
        ("cell 2 3", "the cell in row 2, column 3"),
        ("nearest of goal, key, door", "the nearest of the goal, the key and the door"),
        ("flee mirror of goal", "“flee (mirror of goal)”"),
        ("where the goal stood in phase trained", "the place of the goal in phase “trained”"),
        ("crate held", "“crate held”"),
        ("event crate held", "“crate held”"),
        ("place mine:spot", "“place mine:spot”"),
        ("key if not key held, else goal", "“key if not key held, else goal”"),
        ("1 * goal + 0.5 * crate held", "“1.0 * goal + 0.5 * crate held”"),
    ],
)
def test_how_a_hypothesis_is_said(text: str, phrase: str) -> None:
    assert parse(text).says == phrase


def test_a_hypothesis_has_the_name_that_the_user_gives() -> None:
    bank = read_hypotheses(["goal", {"name": "fetch first", "is": "key if not key held, else goal"}])
    assert [one.name for one in bank.values()] == ["goal", "fetch first"]
    fetch = bank["fetch first"]
    assert fetch.says == "“fetch first”" and fetch == parse(fetch.text) and parse(fetch.text).name == fetch.text
    phase = next(iter(load_hypotheses("where the goal stood in phase x").values()))
    grid = GridWorld(grid=open_room().grid, tags={"phase": "x"})
    assert bind(phase, [grid]).name == phase.name and bind(phase, [grid]).text != phase.text
    assert Hypothesis.of("place", centre_cell, "draw 1").says == "“draw 1”"


def test_a_function_inside_another_form_is_not_stored_either() -> None:
    inside = parse("flee goal")
    loose = Hypothesis(form=inside.form, parts=(Hypothesis.of("place", centre_cell, "x"),), text="flee function x")
    assert loose.solved(finite_world(open_room(), 9)).policy.shape == (1, 25, 4)
    with pytest.raises(ValueError, match="mine"):
        write_hypotheses({"mine": loose})
