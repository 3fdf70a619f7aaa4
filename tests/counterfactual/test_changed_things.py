"""Grids in which one thing is elsewhere or gone, and whether moves depend on it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import goalscope
from goalscope._ground.rng import stream
from goalscope.goals.counterfactual.worlds import changed_grids, elsewhere, of_kinds
from goalscope.runs import Study
from goalscope.worlds import Grid, initial_state
from goalscope.worlds.planning import solve
from goalscope.worlds.thing_check import grid_with
from goalscope.worlds.things import kinds
from thing_grids import all_names, plugin_things

BEHIND = (
    "#########\n#r__A___#\n#######R#\n#G______#\n#########",
    "#########\n#____A_r#\n#R#######\n#____G__#\n#########",
    "#########\n#A__b__r#\n###R#####\n#_____G_#\n#########",
    "#########\n#r_b___A#\n###R#####\n#__G____#\n#########",
    "###########\n#A___b___r#\n#####R#####\n#____G____#\n###########",
    "###########\n#r___b___A#\n#####R#####\n#_____G___#\n###########",
    "#########\n#r__b_A_#\n#####R###\n#G______#\n#########",
    "#########\n#_A_b__r#\n#R#######\n#_____G_#\n#########",
)


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with plugin_things():
        yield


@pytest.mark.parametrize("name", all_names())
def test_exactly_one_thing_is_changed_and_the_goal_remains_reachable(name: str) -> None:
    symbol = next(kind.symbol for kind in kinds() if kind.name == name)
    for seed in range(3):
        grid = grid_with(name, seed)
        own = [thing for thing in grid.things if thing[1] == symbol]
        assert set(of_kinds(grid)) >= {name, f"removed {name}"}
        removed = list(elsewhere(grid, f"removed {name}"))
        assert sorted(set(grid.things) - set(after.things) for after in removed) == sorted({thing} for thing in own)
        for change in (name, f"removed {name}"):
            for after in changed_grids(grid, change, 5, rng=stream(seed, "test")):
                gone, new = set(grid.things) - set(after.things), set(after.things) - set(grid.things)
                assert len(gone) == 1 and {kind for _, kind in gone | new} == {symbol}
                assert len(new) == (change == name) and after.at(things=()) == grid.at(things=())
                assert solve(after).steps_from(initial_state(after)) > 0
                assert Grid.parse(after.render()) == after


def test_objects_are_never_put_onto_things() -> None:
    grid = Grid.parse("#######\n#A_rR_#\n#c___G#\n#K____#\n#######")
    for change in ("goal", "key", "agent", "wall", "corner"):
        for after in changed_grids(grid, change, 50, rng=stream(0, "test")):
            assert after.things == grid.things


def test_an_optimal_agent_depends_on_the_key_of_the_door_alone(tmp_path: Path) -> None:
    worlds = [{"kind": "text", "grids": list(BEHIND)}]
    found = goalscope.depends("optimal", tmp_path / "run", worlds=worlds, changes=4)
    moved = {dependence.moved for dependence in found.found}
    assert moved >= {"goal", "red key", "red door", "removed red door", "blue key", "removed blue key"}
    assert "removed red key" not in moved, "without its key the goal is out of reach"
    shares = {dependence.moved: dependence.share.value for dependence in found.found}
    assert shares["red key"] > 0.2 > 0.05 > max(abs(shares["blue key"]), abs(shares["removed blue key"])), shares


def test_a_change_that_is_unknown_is_named_with_the_nearest_one() -> None:
    entry = {"kind": "changed", "of": [{"kind": "text", "grids": [BEHIND[0]]}]}
    with pytest.raises(ValueError, match=re.escape("'red kee'")) as error:
        Study.parse({"worlds": [{**entry, "moved": ["red kee"]}], "agents": [{"kind": "optimal"}]})
    assert "did you mean red key?" in str(error.value)
    with pytest.raises(ValueError, match="coin"):
        Study.parse({"worlds": [{**entry, "moved": ["coin"]}], "agents": [{"kind": "optimal"}]}).worlds()
