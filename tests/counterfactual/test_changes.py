"""Changed grids differ in one thing; prompts of a state and its versions in the grid alone, answers in nothing else."""

import re

import numpy as np
import pytest
from server import speaker

from families import long_after
from goalscope.agents import ChatAgent
from goalscope.agents.models.base import Sampling
from goalscope.agents.prompts import PARAPHRASES, WORDINGS, drawn_in
from goalscope.goals.counterfactual.worlds import (
    MOVED,
    NOTHING,
    THINGS,
    TURN,
    WORDED,
    ChangedWorld,
    Thing,
    Walk,
    best_actions,
    changed_grids,
)
from goalscope.runs import EpisodeSpec, Study
from goalscope.runs.episode import LiveEpisode
from goalscope.worlds.generate import layout
from goalscope.worlds.grid import Grid

KEYS: dict[str, Thing] = {"start": "agent", "goal": "goal", "key": "key", "door": "door"}


def grids(count: int = 8) -> list[Grid]:
    entry = {"kind": "grid", "sizes": [5, 7, 9], "densities": [0.0, 0.4, 1.0], "count": count, "minimum_distance": 2}
    study = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}]})
    keyed = [layout(kind, seed=1, index=index) for kind in ("key-door", "key-no-door") for index in range(count)]
    return [*(world.grid for world in study.worlds()), *keyed]


def changed_study(**more: object) -> Study:
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 3, "minimum_distance": 3}
    return Study.parse(
        {
            "worlds": [{"kind": "changed", "of": [entry], **more}],
            "agents": [{"kind": "optimal"}],
            "trajectories": 2,
            "horizon": {"steps": 1},
        }
    )


@pytest.mark.parametrize("thing", long_after(3, [thing for thing in THINGS if thing not in WORDED]))
def test_a_changed_grid_differs_in_one_thing_and_its_goal_can_be_come_to(thing: Thing) -> None:
    met = 0
    for number, grid in enumerate(grids()):
        found = changed_grids(grid, thing, 3, rng=np.random.default_rng(number))
        assert len(found) <= 3 and len(set(found)) == len(found) and grid not in found
        for changed in found:
            met += 1
            assert best_actions(changed), "the goal can be come to"
            moved = {name for name, cell in grid.objects.items() if changed.objects[name] != cell}
            walls = int((grid.walls != changed.walls).sum())
            if thing in ("wall", "corner"):
                assert not moved and (walls == 1 if thing == "wall" else walls > 0)
            else:
                assert not walls and {KEYS[name] for name in moved} == {thing.split()[-1]}
            if thing == "corner":
                assert best_actions(changed) == best_actions(grid) and not (grid.walls & ~changed.walls).any()
                corners = [
                    [np.flatnonzero(mask.any(axis=axis))[[0, -1]].tolist() for axis in (0, 1)]
                    for mask in (~grid.walls, ~changed.walls)
                ]
                assert corners[0] != corners[1]
    assert met


def test_those_that_tell_most_come_first() -> None:
    """One goal is drawn for each grid: other actions are optimal wherever any place of the goal makes them so."""
    for number, grid in enumerate(grids(4)[:24]):
        drawn = changed_grids(grid, "goal", 1, rng=np.random.default_rng(number))
        every = changed_grids(grid, "goal", 10_000, rng=np.random.default_rng(number))
        telling = [one for one in every if not best_actions(one) & best_actions(grid)]
        assert every[: len(telling)] == telling and (not telling or drawn[0] in telling)


def test_a_wall_lies_beside_the_way() -> None:
    grid = Grid.parse("#########\n#A_G____#\n#_______#\n#_______#\n#_______#\n#_______#\n#########")
    found = changed_grids(grid, "wall", 100, rng=np.random.default_rng(0))
    cells = {tuple(np.argwhere(one.walls != grid.walls)[0].tolist()) for one in found}
    assert cells == {(1, 2), (1, 4), (2, 1), (2, 2), (2, 3)}


def test_the_states_and_their_versions_are_worlds_of_a_study_that_is_read_back() -> None:
    study = changed_study(changes=2)
    worlds = study.worlds()
    assert Study.parse(study.dump()).id == study.id and len({world.id for world in worlds}) == len(worlds)
    clusters = {world.cluster_id for world in worlds}
    assert len(clusters) == 3 == sum(world.tags[MOVED] == NOTHING for world in worlds)
    for world in worlds:
        assert isinstance(world, ChangedWorld)
        again = ChangedWorld.from_plain(world.to_plain(), cluster=world.cluster, tags=world.tags)
        assert again.id == world.id and again.tags == world.tags
    assert {world.tags[MOVED] for world in worlds} == {NOTHING, "agent", "goal", "wall", "corner"}


def test_prompts_differ_in_the_grid_alone() -> None:
    study, agent = changed_study(), ChatAgent(model=speaker(), sampling=Sampling(temperature=0.7), template="example")
    prompts: dict[str, list[tuple[str, str]]] = {}
    keys = set()
    for spec, world, _ in study.specs([agent]):
        observation = LiveEpisode(spec, world, study).observe()
        assert isinstance(world, ChangedWorld)
        text = agent.messages(observation)[-1].content
        assert world.grid.render() in text
        prompts.setdefault(world.original, []).append((world.id, text.replace(world.grid.render(), "GRID")))
        keys.add(agent.request(observation).key)
    assert len(prompts) == 3 and len(keys) == 2 * len(study.worlds()), "each answer has random numbers of its own"
    for of_state in prompts.values():
        assert len({text for _, text in of_state}) == 1 and len(of_state) > 8
    assert len({of_state[0][1] for of_state in prompts.values()}) > 1, "the example differs from state to state"


def test_prompts_in_other_words_show_the_same_grid_and_example() -> None:
    study = changed_study(moved=["names", "order", "words"], changes=5)
    agent = ChatAgent(model=speaker(), sampling=Sampling(temperature=0.7), template="example")
    for world in study.worlds():
        assert isinstance(world, ChangedWorld)
        assert type(world).from_plain(world.to_plain(), cluster=world.cluster, tags=world.tags).id == world.id
    texts: dict[tuple[str, str], tuple[str, ChangedWorld]] = {}
    for spec, world, _ in study.specs([agent]):
        assert isinstance(world, ChangedWorld)
        observation = LiveEpisode(spec, world, study).observe()
        texts[world.original, world.wording] = agent.messages(observation)[-1].content, world
    states = {original for original, _ in texts}
    assert {wording for _, wording in texts} == {"", *WORDINGS} and len(texts) == 8 * len(states)
    for original in states:
        usual, state = texts[original, ""]
        grid = state.grid.render()
        for name in (*PARAPHRASES, "order"):
            text, world = texts[original, name]
            assert world.grid == state.grid and grid in text and text != usual
        names, _ = texts[original, "symbols"]
        assert drawn_in("symbols", grid) in names and grid not in names
        assert sorted(texts[original, "order"][0].replace(",", "").split("\n")) != sorted(names.split("\n"))
        # The same move stands in every example.
        [example] = {
            re.findall(r'"action": "([A-Z]+)"', text)[-1] for (of, _), (text, _) in texts.items() if of == original
        }
        assert example in ("UP", "DOWN", "LEFT", "RIGHT")


@pytest.mark.parametrize("settings", [{"task": "key-door"}, {"wording": "terse"}, {"encoding": "coordinates"}])
def test_words_of_another_prompt_are_not_changed(settings: dict[str, str]) -> None:
    study = changed_study(moved=["order"])
    agent = ChatAgent(model=speaker(), template="example", **settings)  # type: ignore[arg-type]
    spec, world, _ = next(one for one in study.specs([agent]) if getattr(one[1], "wording", ""))
    with pytest.raises(ValueError, match="order"):
        agent.messages(LiveEpisode(spec, world, study).observe())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"of": [{"kind": "task-map", "presets": ["low-small"], "count": 1}]}, "grids"),
        ({"of": [{"kind": "grid", "sizes": [7], "densities": [0.2], "count": 1, "fog_radius": 2}]}, "fog_radius"),
        ({"of": []}, "entry"),
        ({"of": [{"kind": "changed", "of": [{"kind": "changed"}]}]}, "changed"),
        ({"of": [{"kind": "grid", "sizes": [7], "densities": [0.2], "count": 0}]}, "count.*greater"),
        ({"moved": ["gaol"]}, "goal"),
        ({"moved": ["goal", "goal"]}, "twice"),
        ({"changes": 0}, "changes"),
    ],
)
def test_what_cannot_be_changed_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        changed_study(**changes)


def test_a_thing_that_no_world_has_is_refused() -> None:
    with pytest.raises(ValueError, match="key"):
        changed_study(moved=["goal", "key"]).worlds()


def test_every_state_and_version_is_come_to_by_a_walk_of_its_turn() -> None:
    worlds = changed_study(turns=[1, 2, 6, 11], moved=["goal", "wall", "corner", "agent"]).worlds()
    walks = {world.original: world.walk for world in worlds if world.moved == NOTHING}
    turns = [len(walk) + 1 for walk in walks.values()]
    assert len(set(turns)) == len(turns) == 3 and set(turns) <= {1, 2, 6, 11}, "each turn as often as the others"
    for world in worlds:
        assert isinstance(world, ChangedWorld) and world.tags[TURN] == len(world.walk) + 1
        assert len(world.walk) == len(walks[world.original])
        assert world.moved == "agent" or world.walk == walks[world.original]
        cells = [*((row, col) for row, col, _ in world.walk), world.grid.start]
        for (row, col, move), after in zip(world.walk, cells[1:], strict=True):
            assert move is not None and not world.grid.walls[row, col] and (row, col) != world.grid.goal
            down, right = ((-1, 0), (1, 0), (0, -1), (0, 1))[move]
            assert (row + down, col + right) == after
        again = ChangedWorld.from_plain(world.to_plain())
        assert again.id == world.id and again.walk == world.walk


def test_an_agent_is_told_the_turn_and_its_earlier_moves() -> None:
    for world in changed_study(turns=[4], moved=["goal", "agent", "order"]).worlds():
        assert isinstance(world, ChangedWorld)
        spec = EpisodeSpec(agent_id="one", world_id=world.id, seed=0, horizon=1, trajectory=0)
        seen = LiveEpisode(spec, world, None, "actions").observe()
        assert seen.step == 3 and [past.action for past in seen.history] == [move for _, _, move in world.walk]
        shown = [past.view for past in seen.history]
        assert [(view.grid.start, view.grid.at(start=None)) for view in shown] == [
            ((row, col), world.grid.at(start=None)) for row, col, _ in world.walk
        ]
        assert {type(view) for view in shown} == {type(seen.view)}
        assert LiveEpisode(spec, world, None).observe().history == ()
        spoken = LiveEpisode(spec, world, None, "conversation").observe().history
        assert [past.text for past in spoken] == [("UP", "DOWN", "LEFT", "RIGHT")[past.action] for past in spoken]


ROOM = Grid.parse("######\n#___G#\n#A__K#\n######")


@pytest.mark.parametrize(
    ("walk", "message"),
    [
        ([[2, 2, 3]], "turn 1"),  # away from the agent
        ([[1, 1, 1], [2, 1, 3]], "turn 2"),  # past the agent
        ([[1, 4, 2], [1, 3, 2], [1, 2, 2], [1, 1, 1]], "turn 1"),  # from the goal
        ([[2, 4, 2], [2, 3, 2], [2, 2, 2]], "turn 1"),  # from the key
        ([[0, 1, 1]], "wall"),
        ([[9, 1, 0]], "9"),
        ([[1, 1, 4]], "4"),
        ([[1, 1, True]], "walk|integer"),
        ([[1, 1]], "walk|Field|tuple"),
        ("UP", "walk"),
    ],
)
def test_a_walk_that_does_not_lead_to_the_agent_is_refused(walk: object, message: str) -> None:
    plain = {"grid": ROOM.render(), "original": "w", "moved": NOTHING, "walk": [[1, 1, None], [1, 1, 2], [1, 1, 1]]}
    assert ChangedWorld.from_plain(plain).walk == ((1, 1, None), (1, 1, 2), (1, 1, 1)), "it may bump and pause"
    with pytest.raises(ValueError, match=message):
        ChangedWorld.from_plain({**plain, "walk": walk})


def test_changes_keep_what_a_walk_passed_or_bumped_into() -> None:
    """The agent bumped into the wall at (3, 1); through an open cell the walk would lead elsewhere."""
    grid = Grid.parse("#######\n#_____#\n#A___G#\n###_###\n#_____#\n#######")
    walk = ((1, 1, 3), (1, 2, 2), (1, 1, 1), (2, 1, 1))

    def found(thing: Thing, walk: Walk = ()) -> set[Grid]:
        return set(changed_grids(grid, thing, 1000, rng=np.random.default_rng(0), walk=walk))

    assert any(not changed.walls[3, 1] for changed in found("wall"))
    assert any(changed.goal == (1, 2) for changed in found("goal"))
    things: tuple[Thing, ...] = ("wall", "goal", "corner")
    for thing in things:
        kept = found(thing, walk)
        assert kept and (kept <= found(thing) or thing == "corner"), "corners are closed as far as the walk allows"
        for changed in kept:
            assert not changed.walls[1, 1] and not changed.walls[1, 2] and changed.walls[3, 1]
            assert changed.goal not in ((1, 1), (1, 2))


def test_walks_that_a_study_lists_must_fit_its_worlds() -> None:
    entry = {"kind": "text", "grids": [ROOM.render()]}
    listed = changed_study(of=[entry], walks=[[[1, 1, 1]]], moved=["goal"]).worlds()
    assert listed and all(world.walk == ((1, 1, 1),) for world in listed)
    with pytest.raises(ValueError, match="walks"):
        changed_study(of=[entry], walks=[[], []]).worlds()
    with pytest.raises(ValueError, match="turn 1"):
        changed_study(of=[entry], walks=[[[1, 2, 0]]]).worlds()
