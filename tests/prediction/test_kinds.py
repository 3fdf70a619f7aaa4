"""Kinds of unseen worlds: what their requirements mean, and that a wrong file is refused with the key and value."""

import pytest

import slipping_forklift  # noqa: F401  (registers the environment)
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.definition import FAR
from goalscope.goals.prediction.kinds import SHIPPED, KindsOfWorlds, places_in
from goalscope.worlds.planning.shortest import distances_to

GRIDS = {
    "kind": "grid",
    "sizes": [7, 9],
    "densities": [0.4],
    "start": "anywhere",
    "goal": "anywhere",
    "apart": 1,
    "count": 20,
}


def design(**kind):
    return KindsOfWorlds.read({"kinds": [{"name": "test", "worlds": [GRIDS], "count": 6, **kind}]}, "kinds.yaml")


def test_steps_are_those_of_a_search_of_its_own() -> None:
    (worlds,) = design(steps=[{"first": "start", "second": "goal", "least": 3, "most": 6}]).unseen().values()
    lengths = [int(distances_to(w.grid.walls, [w.grid.goal])[w.grid.start]) for w in worlds]
    assert len(lengths) == 6
    assert all(3 <= length <= 6 for length in lengths)


def test_places_in_conflict_share_no_first_action() -> None:
    (worlds,) = design(conflict=["goal", "corner top-right"]).unseen().values()
    for world in worlds:
        start = int(world.process.start.argmax())
        for action in range(4):
            after = int(world.process.transitions[start, action])
            nearer = []
            for place in ("goal", "corner top-right"):
                steps = world.steps_to(parse(place).where(world))
                nearer.append(steps[after] < steps[start] < FAR)
            assert not all(nearer)


def test_tags_choose_the_changed_worlds_of_another_kind_of_worlds() -> None:
    entry = {"kind": "changed", "of": [GRIDS], "moved": ["goal"], "changes": 1}
    unseen = KindsOfWorlds.read(
        {"kinds": [{"name": "moved", "worlds": [entry], "tags": {"moved": "goal"}}]}, "k"
    ).unseen()
    assert {world.world.tags["moved"] for world in unseen["moved"]} == {"goal"}


def test_worlds_in_which_the_agent_was_seen_are_left_out() -> None:
    (worlds,) = design().unseen().values()
    seen = {world.world.id for world in worlds}
    (others,) = design().unseen(seen).values()
    assert not seen & {world.world.id for world in others}


def test_worlds_of_a_kind_are_found_again_by_their_ids() -> None:
    plan = design()
    (worlds,) = plan.unseen().values()
    ids = [world.world.id for world in reversed(worlds)]
    again = plan.named(plan.kinds[0], [*ids, ids[0], "no such world"])
    assert [world.world.id for world in again] == [*ids, ids[0]]
    assert [world.horizon for world in again[:-1]] == [world.horizon for world in reversed(worlds)]


def test_the_worlds_are_spread_over_all_that_fit() -> None:
    (worlds,) = design().unseen().values()
    assert {world.grid.height for world in worlds} == {7, 9}


@pytest.mark.parametrize(
    ("entry", "places"),
    [
        ({"kind": "environment", "source": "slipping forklift", "seeds": "1..3"}, ["event dock", "event charger"]),
        ({"kind": "task-map", "presets": ["medium-small"], "count": 3}, ["goal"]),
    ],
)
def test_environments_and_task_maps_are_worlds_like_any_others(entry, places) -> None:
    plain = {"kinds": [{"name": "others", "worlds": [entry]}], "places": places, "horizon": {"steps": 9}}
    (worlds,) = KindsOfWorlds.read(plain, "k").unseen().values()
    assert len(worlds) == 3
    for world in worlds:
        assert places_in(world, [parse(place) for place in places]).any()


def test_a_horizon_of_the_kind_goes_before_that_of_the_design() -> None:
    (worlds,) = design(horizon={"steps": 13}).unseen().values()
    assert {world.horizon for world in worlds} == {13}


def test_a_kind_without_worlds_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="test"):
        design(steps=[{"first": "start", "second": "goal", "least": 400}]).unseen()


def test_a_kind_under_fog_is_refused_with_the_reason() -> None:
    fog = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 3, "fog_radius": 1}
    with pytest.raises(ValueError, match="fog"):
        design(worlds=[fog]).unseen()


def test_the_shipped_kinds_have_worlds_and_survive_writing() -> None:
    shipped = KindsOfWorlds.load(SHIPPED)
    assert KindsOfWorlds.read(shipped.plain(), "again") == shipped
    kinds = shipped.unseen()
    assert sum(map(len, kinds.values())) >= 250
    assert max(world.grid.height for worlds in kinds.values() for world in worlds) <= 9
    beside = kinds["start beside the goal"]
    assert all(abs(w.grid.start[0] - w.grid.goal[0]) + abs(w.grid.start[1] - w.grid.goal[1]) == 1 for w in beside)


@pytest.mark.parametrize(
    ("plain", "named"),
    [
        (["goal moved"], "kinds"),
        ({}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"kinds": [{"name": "x", "worlds": [GRIDS], "stepps": []}]}, "stepps"),
        ({"kinds": [{"name": "x", "worlds": [{"kind": "grd"}]}]}, "grd"),
        ({"kinds": [{"name": "x\n", "worlds": [GRIDS]}]}, "name"),
        ({"kinds": [{"name": "x", "worlds": [GRIDS]}, {"name": "x", "worlds": [GRIDS]}]}, "x"),
        ({"kinds": [{"name": "x", "worlds": [GRIDS], "count": 0}]}, "count"),
        ({"kinds": [{"name": "x", "worlds": [GRIDS], "conflict": ["corner top"]}]}, "corner top"),
        ({"kinds": [{"name": "x", "worlds": [GRIDS]}], "places": ["keep left"]}, "keep left"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(plain, named) -> None:
    with pytest.raises(ValueError, match=named):
        KindsOfWorlds.read(plain, "kinds.yaml")
