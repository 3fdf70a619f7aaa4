"""What follows from hypotheses in worlds, against agents of another construction, by hand, and in environments."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import planted_agents as planted
import pytest
from worlds_of_any_shape import lottery

from goalscope._ground.own import consent
from goalscope.agents import Observation
from goalscope.environments import EnvironmentWorld
from goalscope.goals.hypotheses import Undefined, bind, finite_world, hypothesis, meg_of, parse
from goalscope.goals.hypotheses.definition import number_of, view_of
from goalscope.meg import meg_known
from goalscope.runs import Study
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.planning import from_grid
from goalscope.worlds.planning.mdp import value_iteration
from goalscope.worlds.world import World
from known_policies import epsilon_greedy

GRIDS = {"kind": "grid", "sizes": [7, 9], "densities": [0.0, 0.3, 0.8], "count": 3, "minimum_distance": 3}
KEYS = [{"kind": kind, "count": 3} for kind in ("key-no-door", "two-path", "key-door")]


def worlds_of(*entries: dict[str, Any]) -> list[World]:
    return Study.parse({"worlds": list(entries), "agents": [{"kind": "random"}], "horizon": {"steps": 20}}).worlds()


def worlds_of_tasks() -> World:
    maps = {"kind": "task-map", "presets": ["high-small"], "count": 1}
    return Study.parse({"worlds": [maps], "agents": [{"kind": "random"}]}).worlds()[0]


def open_room(*, walls: tuple[tuple[int, int], ...] = (), **objects: tuple[int, int]) -> GridWorld:
    closed = np.zeros((5, 5), dtype=bool)
    for cell in walls:
        closed[cell] = True
    return GridWorld(grid=Grid(walls=closed).at(**{"start": (4, 0), "goal": (0, 2), **objects}))


def states(world: World) -> Iterator[tuple[int, Any]]:
    """Yield each state in which the agent decides, and what a planted agent sees there."""
    finite = finite_world(world, 20)
    for state in np.flatnonzero(finite.live & finite.reached).tolist():
        view: Any = view_of(world, state)
        observation = Observation(view=view, world=world)
        assert number_of(observation) == state
        yield state, planted.Seen(view.grid.at(start=None), view.grid.start, view.carrying_key, observation)


SAME = {
    "goal": "seeker",
    "corner bottom-left": "corner",
    "flee goal": "flee",
    "open moves": "wander",
    "follow the wall": "wall",
    "straight to goal": "manhattan",
    "goal within 5 steps": "near-5",
    "goal if it lies up or right, else random": "up-right",
    "near (mirror of goal)": "mirror",
    "near (point mirror of goal)": "point",
    "near centre": "centre",
    "random": "random",
    "key if not key held, else open moves": "key-wander",
}


@pytest.mark.parametrize(("text", "family"), SAME.items())
def test_policies_are_those_of_agents_of_another_construction(text: str, family: str) -> None:
    entries = KEYS if text in ("goal", "key if not key held, else open moves", "open moves") else [GRIDS]
    compared = 0
    for world in worlds_of(*entries, *([GRIDS] if text == "goal" else [])):
        try:
            policy = parse(text).solved(finite_world(world, 20)).policy[0]
        except Undefined:
            continue
        for state, seen in states(world):
            np.testing.assert_allclose(policy[state], planted.FAMILIES[family](seen), err_msg=f"{text} at {seen.cell}")
            compared += 1
    assert compared > 200


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("goal +0,+2", (0, 4)),
        ("mirror of goal +2,+1", (2, 1)),
        ("point mirror of goal", (4, 2)),
        ("corner top-right", (0, 4)),
        ("centre", (2, 2)),
        ("near cell 1 1", (1, 0)),
        ("beside goal", (1, 2)),
        ("nearest of corner top-right, corner top-left, cell 3 2", (3, 2)),
        ("nearest of cell 1 1, goal", (0, 2)),
        ("top row", (0, 0)),
        ("cell 3 4", (3, 4)),
        ("start", (4, 0)),
    ],
)
def test_places_by_rule(text: str, cell: tuple[int, int]) -> None:
    world = open_room(walls=((1, 1), (0, 1)))
    assert parse(text).cell(finite_world(world, 9)) == cell


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("goal +0,+9", "5x5"),
        ("goal +0,+1", "wall"),
        ("corner top-right", "wall"),
        ("cell 3 4", "cell 3 4"),
        ("key", "no key"),
        ("key held", "no key"),
        ("door open", "no door"),
        ("keep jump", "jump"),
        ("event lever", "lever"),
        ("beside corner top-right", "wall"),
        ("key held if it lies up", "key held"),
    ],
)
def test_what_means_nothing_in_a_world_is_undefined_with_a_reason(text: str, fact: str) -> None:
    walls = ((0, 3), (0, 4), (2, 4), (3, 3), (4, 4))
    with pytest.raises(Undefined, match=fact):
        parse(text).solved(finite_world(open_room(walls=walls), 9))


def test_the_goal_is_a_wall_for_every_other_place_and_the_corner_that_is_the_goal_is_the_goal() -> None:
    corridor = GridWorld(grid=Grid(walls=np.zeros((1, 4), dtype=bool), start=(0, 0), goal=(0, 2)))
    with pytest.raises(Undefined, match="corner top-right"):
        parse("corner top-right").solved(finite_world(corridor, 9))
    finite = finite_world(open_room(goal=(0, 4)), 9)
    same = [parse(text).solved(finite) for text in ("goal", "corner top-right")]
    assert np.array_equal(same[0].policy, same[1].policy)
    beside = parse("cell 0 3").solved(finite).policy[0]
    assert beside[3].tolist() == [1, 0, 0, 0]  # at its place it bumps, and does not step into the goal
    inner = parse("cell 2 2").solved(finite).policy[0]
    assert inner[12].tolist() == [0.25] * 4  # no wall beside it: every step aside leads back at once


def test_a_utility_is_solved_by_decision_and_an_event_that_cannot_be_lost_says_nothing_afterwards() -> None:
    world = open_room(key=(4, 4))
    finite = finite_world(world, 12)
    bonus = parse("1 * goal + 0.5 * key held").solved(finite)
    mask = (parse("goal").where(finite) + 0.5 * parse("key held").where(finite)).astype(float)
    exact = value_iteration(finite.process.mdp(mask, 12, terminal=None)).optimal
    live = finite.live & finite.reached
    assert bonus.policy.shape == (12, 50, 4) and ((bonus.policy > 0) == exact)[:, live].all()
    held = parse("key held").solved(finite).policy[0]
    assert (held[25:][finite.live[25:]] == 0.25).all() and (held[20] == [0, 0, 0, 1]).all()


def test_what_is_too_large_by_decision_is_undefined_and_said() -> None:
    with pytest.raises(Undefined, match="20,000,000"):
        parse("1 * goal + 0.5 * cell 2 2").solved(finite_world(open_room(), 10**6))


def test_meg_is_that_of_the_mask_and_a_policy_has_none() -> None:
    world = worlds_of(GRIDS)[4]
    finite = finite_world(world, 15)
    policy = epsilon_greedy(world.grid, 0.3).reshape(-1, 4)
    assert meg_of(parse("goal"), finite, policy).value == pytest.approx(
        meg_known(from_grid(world.grid, horizon=15), policy=policy).value
    )
    with pytest.raises(Undefined, match="likelihood"):
        meg_of(parse("keep right"), finite, policy)


def test_task_maps_and_environments_name_goals_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    task = finite_world(worlds_of_tasks(), 50)
    for text, decisions in (("goal", 1), ("sub-goals", 50)):  # a count is worth more the more of it is left
        assert parse(text).solved(task).policy.shape == (decisions, task.process.states, 4)
    with pytest.raises(Undefined, match="grid"):
        parse("centre").solved(task)
    monkeypatch.chdir(Path(__file__).parents[1] / "environments")
    for source, deterministic in (("small_worlds:Corridor", True), ("small_worlds:Slippery", False)):
        world = EnvironmentWorld.make(source, {"length": 5})
        finite = finite_world(world, 8)
        lever = parse("event lever").solved(finite)
        if deterministic:
            state = world.believed.table.states.index((2, False))
            assert lever.policy[0, state].tolist() == [1, 0, 0, 0]
        else:
            exact = value_iteration(finite.process.mdp(finite.process.goals["lever"], 8, terminal=None)).optimal
            assert ((lever.policy > 0) == exact)[:, finite.live].all()
            with pytest.raises(Undefined, match="outcomes"):
                parse("flee goal").solved(finite)
        assert parse("keep pull").solved(finite).policy[0, 0].tolist() == [0, 0, 1, 0]
        assert (parse("goal").where(finite) == world.believed.table.goal).all()
        with pytest.raises(Undefined, match="grid"):
            parse("corner top-left").solved(finite)


@pytest.mark.parametrize(
    ("table", "fact"),
    [([[0.5, 0.5]], "shape|axes"), ([[0.5, 0.4, 0.0]] * 4, "sum"), ([[0.0, 0.0, 1.0]] * 4, "offered")],
)
def test_a_policy_of_ones_own_must_be_one(table: list[list[float]], fact: str) -> None:
    world = lottery(np.random.default_rng(3))
    assert world.known.offered is not None
    world.known.offered[:, 2] = False
    world.known.offered[:, 0] = True
    name = f"a table of {len(table)} and {table[0]} in this test"
    hypothesis(name, kind="table")(lambda world: np.array(table))
    with pytest.raises(ValueError, match=fact):
        parse(name).solved(finite_world(world, 3))


def test_functions_of_ones_own_and_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "habits_here.py").write_text(
        "import numpy as np\n"
        "def upward(view):\n    return [0.7, 0.1, 0.1, 0.1] if view.grid.goal else [0.25] * 4\n"
        "def second(world):\n    return 0, 1\n"
        "def pays(world):\n    return np.where(world.at((4, 4)), 1.0, 0.0)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    consent([f"habits_here:{name}" for name in ("upward", "second", "pays", "nothing")])
    finite = finite_world(open_room(), 9)
    assert parse("policy habits_here:upward").solved(finite).policy[0, 20].tolist() == [0.7, 0.1, 0.1, 0.1]
    assert parse("mirror of (place habits_here:second)").cell(finite) == (0, 3)
    assert len(parse("utility habits_here:pays").solved(finite).policy) == 9
    with pytest.raises(ValueError, match="habits_here"):
        parse("place habits_here:nothing").solved(finite)

    @hypothesis("{whole} below {place} of this test", kind="place")
    def below(world: Any, rows: int, place: Any) -> tuple[int, int]:
        row, col = place.value(world)
        return row + rows, col

    assert parse("2 below goal of this test").cell(finite) == (2, 2)

    @hypothesis("left of this test", kind="policy")
    def left(view: Any) -> list[float]:
        return [0.0, 0.0, 1.0, 0.0]

    assert parse("left of this test").solved(finite).policy[0, 24].tolist() == [0, 0, 1, 0]
    with pytest.raises(ValueError, match="taken"):
        hypothesis("goal", kind="place")(lambda world: (0, 0))
    with pytest.raises(ValueError, match="kind"):
        hypothesis("something", kind="colour")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "gives", "fact"),
    [
        ("place", "None", "row"),
        ("place", "(2.5, 3.0)", "row"),
        ("mirror of (place", "(1, 2, 3)", "row"),
        ("event", "[1.0] * 25", "True or False"),
        ("event", "[True]", "25"),
        ("utility", "'much'", "numbers"),
        ("utility", "[1.0, 2.0]", "25"),
        ("table", "{1}", "numbers"),
        ("policy", "[1.0]", "4"),
        ("policy", "[2.0, -1.0, 0.0, 0.0]", ">= 0"),
    ],
)
def test_what_a_function_of_ones_own_gives_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, gives: str, fact: str
) -> None:
    module = f"gives_{abs(hash((kind, gives)))}"
    (tmp_path / f"{module}.py").write_text(f"def it(given):\n    return {gives}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    consent(f"{module}:it")
    one = parse(f"{kind} {module}:it" + ")" * kind.count("("))
    with pytest.raises(ValueError, match=fact):
        one.solved(finite_world(open_room(), 3))


def test_conditions_on_what_is_there_and_on_the_size_of_the_grid() -> None:
    plain = finite_world(open_room(), 12)
    with_key = finite_world(open_room(key=(2, 2)), 12)
    for condition, holds, fails in (
        ("there is a key", with_key, plain),
        ("the grid has at most 5 rows", plain, finite_world(worlds_of(GRIDS)[0], 12)),
    ):
        one = parse(f"goal if {condition}, else corner top-right")
        assert (one.solved(holds).policy == parse("goal").solved(holds).policy).all()
        assert (one.solved(fails).policy == parse("corner top-right").solved(fails).policy).all()
        assert parse(one.text) == one
    with pytest.raises(ValueError, match="there is a lamp"):
        bind(parse("goal if there is a lamp"), worlds_of(GRIDS))
