"""Grids in which the instruction names the place to go to: as far as the goal, the same picture, one way to be told."""

from typing import Any

import numpy as np
import pytest

from goalscope.agents import ChatAgent, Observation, build_agent
from goalscope.agents.models import TEMPLATE_FORMS
from goalscope.runs import Study
from goalscope.runs.codec import decode_world, encode_world
from goalscope.worlds import Action, Grid, GridWorld, NamedView, NamedWorld
from goalscope.worlds.planning import distances_to

GRID = Grid.parse("#######\n#A___G#\n#_###_#\n#_____#\n#######")
RIVAL = (3, 3)


def named_worlds(seed: int, count: int = 2, **settings: Any) -> list[Any]:
    entry = {"kind": "named-place", "sizes": [7, 9], "densities": [0.2, 0.8], "count": count, **settings}
    return Study.parse({"seed": seed, "worlds": [entry], "agents": [{"kind": "random"}]}).worlds()


class Silent:
    """A model that is never asked."""

    name = "silent"

    def describe(self) -> dict[str, Any]:
        return {"kind": "silent"}


@pytest.mark.parametrize("seed", range(6))
def test_goal_and_rival_of_a_grid_are_as_far_from_the_start_and_the_rival_is_a_corner(seed: int) -> None:
    worlds = named_worlds(seed)
    assert len(worlds) == 3 * 8
    for usual, goal, rival in zip(worlds[::3], worlds[1::3], worlds[2::3], strict=True):
        assert [one.tags["named"] for one in (usual, goal, rival)] == ["no", "goal", "rival"]
        assert usual.cluster == goal.cluster == rival.cluster
        assert len({usual.id, goal.id, rival.id}) == 3
        size = usual.grid.height
        steps = distances_to(usual.grid.walls, [usual.grid.start])
        assert steps[usual.grid.goal] == steps[rival.grid.goal] >= 4
        assert usual.grid == goal.grid and rival.marker == goal.grid.goal != rival.grid.goal
        assert set(rival.grid.goal) <= {1, size - 2}
        assert np.array_equal(usual.grid.walls, rival.grid.walls)


def test_what_is_shown_differs_by_the_instruction_alone() -> None:
    usual = NamedWorld(grid=GRID, named=False)
    goal, rival = NamedWorld(grid=GRID), NamedWorld(grid=GRID.at(goal=RIVAL), marker=GRID.goal)
    views: list[Any] = [one.begin().view for one in (usual, goal, rival)]
    assert views[0].grid == views[1].grid == views[2].grid == GRID
    assert [view.aim for view in views] == ["G", "the cell (1,5)", "the cell (3,3)"]


def test_an_episode_ends_at_the_place_that_is_named_and_not_at_g() -> None:
    session = NamedWorld(grid=GRID.at(goal=RIVAL), marker=GRID.goal).begin()
    for action in (Action.RIGHT,) * 4:
        session.step(action)
    assert session.state.position == GRID.goal and not session.done and session.view.grid.goal is None
    for action in (Action.DOWN, Action.DOWN, Action.LEFT, Action.LEFT):
        session.step(action)
    assert session.done and session.solved and session.state.position == RIVAL
    usual = NamedWorld(grid=GRID, named=False).begin()
    for action in (Action.RIGHT,) * 4:
        usual.step(action)
    assert usual.done


@pytest.mark.parametrize("seed", range(3))
def test_a_stored_world_comes_back_as_it_was(seed: int) -> None:
    for world in named_worlds(seed, count=1):
        again = decode_world(encode_world(world))
        assert type(again) is NamedWorld and again.id == world.id
        assert (again.grid, again.marker, again.named, again.tags) == (
            *(world.grid, world.marker, world.named),
            world.tags,
        )
    assert NamedWorld(grid=GRID).id != GridWorld(grid=GRID).id


@pytest.mark.parametrize(
    "change",
    [
        {"marker": [0, 0]},
        {"marker": [9, 9]},
        {"marker": [1, 1]},
        {"marker": "15"},
        {"marker": [1, True]},
        {"named": 1},
        {"named": False},
        {"grid": 7},
        {"stranger": 1},
    ],
)
def test_what_is_no_such_world_is_refused(change: dict[str, Any]) -> None:
    plain = NamedWorld(grid=GRID.at(goal=RIVAL), marker=GRID.goal).to_plain()
    with pytest.raises(ValueError, match=r"must|needs"):
        NamedWorld.from_plain(plain | change)


def test_keys_doors_and_fog_have_no_named_place() -> None:
    for world in ({"grid": GRID.at(key=(2, 1))}, {"grid": GRID, "fog_radius": 2}):
        with pytest.raises(ValueError, match="fog, key or door"):
            NamedWorld(**world)


def test_grids_without_a_corner_that_far_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="minimum_distance"):
        named_worlds(1, minimum_distance=60)


@pytest.mark.parametrize("form", [*TEMPLATE_FORMS, "completion"])
def test_the_usual_instruction_is_the_prompt_of_grids_letter_by_letter(form: str) -> None:
    told = ChatAgent(model=Silent(), task="named", template=form)  # type: ignore[arg-type]
    usual = ChatAgent(model=Silent(), task="grid", template=form)  # type: ignore[arg-type]
    view = NamedWorld(grid=GRID, named=False).begin().view
    assert told.messages(Observation(view=view)) == usual.messages(Observation(view=view))
    named = told.messages(Observation(view=NamedView(grid=GRID, named=RIVAL)))[0].content
    plain = usual.messages(Observation(view=view))[0].content
    assert named == plain.replace("from A to G", "from A to the cell (3,3)")
    assert told.needs is NamedView


def test_a_prompt_that_names_a_place_is_refused_where_none_is_told() -> None:
    with pytest.raises(ValueError, match="instruction"):
        Study.parse(
            {
                "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 1}],
                "agents": [{"kind": "chat", "model": "theseus", "task": "named"}],
            }
        )


def test_a_reader_goes_where_it_is_told_and_else_where_it_likes() -> None:
    world = NamedWorld(grid=GRID.at(goal=RIVAL), marker=GRID.goal)
    unwilling, willing = build_agent("reader", {"target": "top-right"}), build_agent("reader", {})
    told = Observation(view=world.begin().view)
    plain = Observation(view=NamedWorld(grid=GRID.at(goal=(3, 5), start=(3, 1)), named=False).begin().view)
    down = [0.0, 1.0, 0.0, 0.0]
    assert unwilling.probabilities(told).tolist() == down == willing.probabilities(told).tolist()  # type: ignore[attr-defined]
    assert willing.probabilities(plain).tolist() == [0.0, 0.0, 0.0, 1.0]  # type: ignore[attr-defined]
    assert unwilling.probabilities(plain).tolist() == [1.0, 0.0, 0.0, 0.0]  # type: ignore[attr-defined]
    assert build_agent("reader", {"epsilon": 1.0}).probabilities(told).tolist() == [0.25] * 4  # type: ignore[attr-defined]
