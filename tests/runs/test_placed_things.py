"""Things that a study places at random in generated grids."""

from collections import Counter
from typing import Any

import pytest

from goalscope.runs import Study
from goalscope.worlds import initial_state
from goalscope.worlds.grid import CORNERS
from goalscope.worlds.planning import solve


def study(things: Any, **changes: Any) -> Study:
    entry = {"kind": "grid", "sizes": [7], "densities": [0.2], "count": 12, "things": things}
    return Study.parse({"seed": 3, "worlds": [{**entry, **changes}], "agents": [{"kind": "optimal"}]})


def test_each_grid_has_the_things_where_their_rules_allow_them_and_its_goal_can_be_reached() -> None:
    asked = study(["coin at top-right", "red key", "red key", "chest at left", "lava at not left"], key="anywhere")
    plain = {world.cluster_id for world in study(None, key="anywhere").worlds()}
    worlds = asked.worlds()
    assert len(worlds) == 12 and len({world.cluster_id for world in worlds} & plain) > 6, "phases are paired"
    for world in worlds:
        grid = world.grid
        assert Counter(symbol for _, symbol in grid.things) == {"c": 1, "r": 2, "H": 1, "L": 1}
        cells = {symbol: cell for cell, symbol in grid.things}
        assert cells["c"] == grid.corner("top-right") and "top-right" in CORNERS
        assert cells["H"][1] < 3 <= cells["L"][1]
        assert len({*grid.objects.values(), *(cell for cell, _ in grid.things)} - {None}) == 3 + 5
        assert solve(grid).steps_from(initial_state(grid)) > 0


@pytest.mark.parametrize("density", [0.2, 0.6])
def test_what_stands_on_the_way_is_passed_or_gone_around_by_every_shortest_path(density: float) -> None:
    worlds = study(["gate on the way", "button"], densities=[density], minimum_distance=3).worlds()
    longer = 0
    for world in worlds:
        plain = world.grid.at(things=())
        ((gate, _),) = [entry for entry in world.grid.things if entry[1] == "E"]
        walls = plain.walls.copy()
        walls[gate] = True
        around, shortest = solve(plain.at(walls=walls)), solve(plain)
        assert around.steps_from(initial_state(plain)) not in range(shortest.steps_from(initial_state(plain)) + 1)
        longer += solve(world.grid).steps_from(initial_state(world.grid)) > shortest.steps_from(initial_state(plain))
    assert len(worlds) == 12 and longer > 6


def test_studies_without_things_are_what_they_were() -> None:
    assert "things" not in study(None).dump()["worlds"][0]
    assert study(["coin", "coin"]).dump()["worlds"][0]["things"] == ["coin", "coin"]


@pytest.mark.parametrize(
    ("things", "changes", "message"),
    [
        (["coim"], {}, "did you mean coin"),
        (["coin at topright"], {}, "did you mean top-right"),
        (["coin at top on the way"], {}, "one place"),
        ([], {}, "at least 1"),
        (["lava"] * 21, {}, "at most 20"),
        (["coin"], {"transforms": ["identity", "swap"]}, "must not include swap"),
    ],
)
def test_what_is_refused(things: list[str], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study(things, **changes)


def test_things_that_never_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="things"):
        study(["red door at top-left", "red door at top-left"]).worlds()
