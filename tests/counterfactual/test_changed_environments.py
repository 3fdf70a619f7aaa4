"""Environments in which one thing is elsewhere: which worlds are compared, and what the moves of agents depend on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope._ground.own import allowed
from goalscope.environments import Observed
from goalscope.goals.counterfactual.dependence import asked_of, dependences
from goalscope.goals.counterfactual.worlds import MOVED, NOTHING, TURN, ChangedEnvironment
from goalscope.runs import Store, Study, run
from goalscope.runs.study_parts import world_class
from goalscope.worlds.environments.environment import changes_of

MODULE = '''
"""A line of cells with a goal, a lamp that matters to nobody, and a state that only counts the cell."""

from goalscope.environments import Observed


class Line:
    actions = ("left", "right", "wait")

    def __init__(self, goal=0, lamp=4, length=9, start=4, things="all"):
        self.here = {"goal": goal, "lamp": lamp, "length": length, "start": start, "things": things}

    def initial(self):
        return {self.here["start"]: 1.0}

    def step(self, state, action):
        return {min(max(state + (-1, 1, 0)[action], 0), self.here["length"] - 1): 1.0}

    def done(self, state):
        return self.goal(state)

    def goal(self, state):
        return state == self.here["goal"]

    def goals(self):
        return {"lamp": lambda state: state == self.here["lamp"]}

    def elsewhere(self):
        if self.here["things"] == "none":
            return {}
        if self.here["things"] == "out of reach":
            return {"length": [{"length": 3, "start": 1}]}
        return {"goal": [{"goal": cell} for cell in (0, 8)], "lamp": [{"lamp": cell} for cell in (0, 8)]}

    def observe(self, state):
        return Observed(text=f"{self.here} at {state}")

    def describe(self):
        return self.here


class Stairs(Line):
    """A line on which every action leads up."""

    def step(self, state, action):
        return {min(state + 1, self.here["length"] - 1): 1.0}
'''
LINE = "line_of_cells:Line"


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "line_of_cells.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def entry(starts: int | None = 6, parameters: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    line = {"kind": LINE, "parameters": [dict(parameters or {})], **({} if starts is None else {"starts": starts})}
    return {"kind": "changed-environment", "of": [line], **more}


def study_of(worlds: dict[str, Any], *agents: dict[str, Any]) -> Study:
    listed = list(agents) or [{"kind": "random"}]
    return Study.parse(
        {"name": "x", "seed": 3, "worlds": [worlds], "agents": listed, "trajectories": 2, "horizon": {"steps": 1}}
    )


def worlds_of(worlds: dict[str, Any]) -> list[Any]:
    return list(study_of(worlds).worlds())


def test_versions_begin_in_the_same_state_and_differ_in_one_parameter() -> None:
    worlds = worlds_of(entry())
    originals = {world.original: world for world in worlds if world.moved == NOTHING}
    assert len(originals) == 6 and {world.moved for world in worlds} == {NOTHING, "goal", "lamp"}
    for world in worlds:
        original = originals[world.original]
        first, before = (w.believed.table.states[int(w.believed.table.start.argmax())] for w in (world, original))
        assert first == before and world.cluster_id == original.cluster_id
        differing = {key for key, value in world.description.items() if original.description[key] != value}
        assert differing == ({world.moved} if world.moved != NOTHING else set())


def test_a_thing_is_changed_in_no_more_states_than_asked_for() -> None:
    worlds = worlds_of(entry(starts=7, states=6))
    asked = {thing: {world.original for world in worlds if world.moved == thing} for thing in ("goal", "lamp")}
    assert {thing: len(states) for thing, states in asked.items()} == {"goal": 6, "lamp": 6}
    assert {world.original for world in worlds if world.moved == NOTHING} == asked["goal"] | asked["lamp"]


def test_informative_changes_come_first() -> None:
    for world in worlds_of(entry(changes=1)):
        if world.moved == "goal":  # of the cells 0 and 8 the one on the other side, where no move stays optimal
            assert world.description["goal"] == 8


def test_before_a_later_turn_lies_a_walk_that_is_the_same_in_all_versions() -> None:
    worlds = worlds_of(entry(starts=6, turns=[4, 1]))
    assert {world.tags[TURN] for world in worlds} == {1, 4}
    walks = dict[str, list[tuple[str, int | None]]]()
    for world in worlds:
        assert len(world.earlier) == world.tags[TURN] - 1
        cells = [int(view.text.rpartition(" ")[2]) for view, _ in world.earlier]
        moves = [action for _, action in world.earlier]
        end = world.believed.table.states[int(world.believed.table.start.argmax())]
        assert [cell + (-1, 1, 0)[move] for cell, move in zip(cells, moves, strict=True)] == [*cells[1:], end][
            : len(cells)
        ]
        assert world.description["goal"] not in cells
        assert walks.setdefault(world.original, [*zip(cells, moves, strict=True)]) == [*zip(cells, moves, strict=True)]
    assert len({*map(str, walks.values())}) > 2, "walks are drawn anew for each state"


def test_a_walk_is_no_longer_than_the_way_to_the_state() -> None:
    stairs = {"kind": "line_of_cells:Stairs", "parameters": [{"start": 0, "goal": 8, "lamp": 7}], "starts": 4}
    worlds = worlds_of({"kind": "changed-environment", "of": [stairs], "turns": [3], "moved": ["lamp"]})
    begins = {int(world.believed.table.start.argmax()): len(world.earlier) for world in worlds}
    assert begins[0] == 0 and max(begins.values()) == 2
    assert all(walked == min(2, number) for number, walked in begins.items())


def test_a_walk_of_another_environment_is_refused() -> None:
    world = next(world for world in worlds_of(entry(turns=[3])) if world.walk)
    for walk in ([[0, 0], [0, 9]], [[99, 0]], [[-1, 0]], [[True, 0]], [[0]], "x"):
        with pytest.raises(ValueError):
            ChangedEnvironment.from_plain({**world.to_plain(), "walk": walk}).earlier  # noqa: B018


def test_a_changed_world_is_stored_and_restored_with_its_id() -> None:
    for world in worlds_of(entry(starts=2, turns=[1, 3])):
        restored = ChangedEnvironment.from_plain(world.to_plain(), cluster=world.cluster, tags=world.tags)
        assert restored.id == world.id and (restored.moved, restored.original) == (world.moved, world.original)
    with pytest.raises(ValueError, match="moved"):
        ChangedEnvironment.from_plain({k: v for k, v in world.to_plain().items() if k != "moved"})


def test_ids_differ_from_those_of_plain_worlds_and_between_versions() -> None:
    worlds = worlds_of(entry())
    assert len({world.id for world in worlds}) == len(worlds)
    assert not {world.id for world in worlds} & {world.original for world in worlds}


@pytest.mark.parametrize(
    ("worlds", "says"),
    [
        (entry(parameters={"things": "none"}), "elsewhere"),
        (entry(starts=1, parameters={"things": "out of reach"}), "length"),
        (entry(moved=["door"]), "door"),
        (
            {"kind": "changed-environment", "of": [{"kind": "grid", "sizes": [7], "densities": [0.2], "count": 1}]},
            "grid",
        ),
        ({"kind": "changed-environment", "of": [entry()]}, "changed-environment"),
    ],
    ids=["no things", "no same state", "unknown thing", "grids", "changed twice"],
)
def test_what_cannot_be_changed_is_refused_by_name(worlds: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        worlds_of(worlds)


class _Own:
    """An environment whose `elsewhere` returns what a test says."""

    actions = ("wait",)

    def __init__(self, returned: Any) -> None:
        self.elsewhere = lambda: returned

    def observe(self, state: Any) -> Observed:
        return Observed(text="")


@pytest.mark.parametrize(
    "returned",
    [["dock"], {"dock": {"row": 1}}, {"a, b": [{}]}, {3: [{}]}, {"dock": [("row", 1)]}, {"dock": [{"row": {1, 2}}]}],
    ids=["list", "mapping", "comma", "number", "pairs", "set"],
)
def test_other_returns_of_elsewhere_are_refused(returned: Any) -> None:
    with pytest.raises(ValueError, match="elsewhere"):
        changes_of(_Own(returned))  # type: ignore[arg-type]


def test_moves_depend_on_the_thing_that_an_agent_seeks(tmp_path: Path) -> None:
    lengths = [{"length": length, "lamp": 1} for length in range(9, 57)]  # only different worlds make intervals narrow
    worlds = {"kind": "changed-environment", "of": [{"kind": LINE, "parameters": lengths}]}
    study = study_of(
        worlds,
        {"kind": "environment-optimal"},
        {"kind": "environment-wrong-goal", "target": "lamp"},
        {"kind": "random"},
    )
    with allowed():
        run(study, tmp_path / "run")
        with Store(tmp_path / "run") as store:
            found = dependences(asked_of(store.episodes()))
    answers = {(one.agent, one.moved): one.answer for one in found}
    assert (answers["optimal", "goal"], answers["optimal", "lamp"]) == ("yes", "no")
    assert (answers["wrong-goal(lamp)", "goal"], answers["wrong-goal(lamp)", "lamp"]) == ("no", "yes")
    assert "yes" not in {answers["random", thing] for thing in ("goal", "lamp")}


def test_a_scripted_agent_plans_beyond_the_one_move_that_is_asked() -> None:
    world = worlds_of(entry(starts=1))[0]
    assert world.planned(1) > world.believed.solved.expected_steps > 1
    assert replace(world, cluster="x").planned(1000) == 1000


def test_the_kind_is_one_of_environments() -> None:
    (part,) = study_of(entry()).worlds_
    assert world_class(part) is ChangedEnvironment and "environment" in ChangedEnvironment.offers
    assert MOVED in worlds_of(entry(starts=1))[0].tags and np.isfinite(part.changes)
