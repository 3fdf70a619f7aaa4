"""Where goal and start lie by rule, and the phase of worlds as a condition of rows and comparisons."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import call
from goalscope.measures import measure_episodes
from goalscope.report.sections.explanations import judged_in
from goalscope.runs import Store, Study, run
from goalscope.runs.builtin_worlds import fits, placed
from goalscope.worlds import Grid
from goalscope.worlds.planning.shortest import distances_to, shortest_length
from goalscope.worlds.world import World

GRIDS = {"kind": "grid", "sizes": [7, 9], "densities": [0.3, 0.6], "count": 15}


def worlds_of(*entries: dict[str, Any], seed: int = 0) -> list[World]:
    return Study.parse({"worlds": list(entries), "agents": [{"kind": "random"}], "seed": seed}).worlds()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("goal", "start"),
    [
        ("top-right", None),
        ("not top-right", None),
        ("left", "right"),
        ("anywhere", "not bottom"),
        (None, "bottom-left"),
    ],
)
def test_goal_and_start_lie_where_the_rule_says_and_apart(goal: str | None, start: str | None, seed: int) -> None:
    entry = {**GRIDS, "apart": 3, **({"goal": goal} if goal else {}), **({"start": start} if start else {})}
    worlds = worlds_of(entry, seed=seed)
    assert len(worlds) == 60
    for world in worlds:
        grid = world.grid
        assert shortest_length(grid) >= 3
        for rule, cell in ((goal, grid.goal), (start, grid.start)):
            assert rule is None or fits(grid, rule)[cell]
        if goal == "not top-right":
            steps = distances_to(grid.walls, [grid.corner("top-right")])
            assert steps[grid.goal] >= 3 and steps[grid.start] >= 3


def test_a_key_lies_where_its_rule_says_and_changes_no_other_place() -> None:
    entry = {**GRIDS, "goal": "not top-right", "apart": 3}
    plain, keyed = worlds_of(entry), worlds_of({**entry, "key": "left", "phase": "keys"})
    for world in keyed:
        grid = world.grid
        assert grid.start is not None and grid.goal is not None
        assert grid.key is not None and grid.door is None and fits(grid, "left")[grid.key]
        assert distances_to(grid.walls, [grid.start, grid.goal])[grid.key] >= 3
        assert world.tags["phase"] == "keys" and shortest_length(grid) == shortest_length(grid.at(key=None))
    # Grids that have room for such a key have start and goal where they are without it: both are one cluster.
    same = {(one.tags["size"], one.tags["density"], one.tags["index"]): one for one in plain}
    pairs = [
        (same[at], one) for one in keyed if (at := (one.tags["size"], one.tags["density"], one.tags["index"])) in same
    ]
    assert len(pairs) > 40
    assert all(a.grid == b.grid.at(key=None) and a.cluster == b.cluster for a, b in pairs)
    with pytest.raises(ValueError, match="key"):
        worlds_of({**GRIDS, "sizes": [5], "key": "top", "apart": 7})
    with pytest.raises(ValueError, match="placement"):
        worlds_of({**GRIDS, "key": "middle"})


@pytest.mark.full
def test_an_agent_after_the_key_is_told_from_one_after_the_goal(tmp_path: Path) -> None:
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 20, "key": "anywhere", "apart": 3}
    agents = [{"kind": "hypothesis", "hypothesis": text, "name": text} for text in ("key", "goal")]
    plain = {"worlds": [entry], "agents": agents, "answers": 2, "analysis": {"hypotheses": ["goal", "key"]}}
    run(Study.parse({**plain, "horizon": {"factor": 2.0}}), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        for name, (group,) in judged_in(store).items():
            assert (group.reason, group.names) == ("named", (name,))


def test_rules_admit_the_cells_that_their_words_say() -> None:
    grid = Grid.parse("_ _ _\nA _ _\n_ _ G")
    assert np.argwhere(fits(grid, "top-right")).tolist() == [[0, 2]]
    assert fits(grid, "left").tolist() == [[True, False, False]] * 3
    assert fits(grid, "not left").tolist() == [[False, True, True]] * 3
    assert fits(grid, "bottom").tolist() == [[False] * 3, [False] * 3, [True] * 3]
    assert fits(grid, "anywhere").all() and not fits(grid, "not top-right")[0, 2]
    rng = np.random.default_rng(0)
    drawn = [placed(grid, goal="anywhere", start=None, apart=3, rng=rng) for _ in range(60)]
    assert {one.goal for one in drawn if one is not None} == {(0, 2), (2, 2)}
    assert placed(grid, goal="top-right", start="top-right", apart=1, rng=rng) is None


def test_the_worlds_of_a_seed_are_the_same_and_a_prefix_of_more_of_them() -> None:
    entry = {**GRIDS, "goal": "anywhere", "start": "anywhere", "apart": 2}
    few, many = worlds_of({**entry, "count": 4}), worlds_of({**entry, "count": 9})
    assert {world.id for world in few} <= {world.id for world in many}


def test_studies_without_placement_are_what_they_were() -> None:
    plain = Study.parse({"worlds": [GRIDS], "agents": [{"kind": "optimal"}]})
    assert not {"goal", "start", "apart", "phase"} & set(plain.dump()["worlds"][0])
    named = Study.parse({"worlds": [{**GRIDS, "goal": "left", "phase": "a"}], "agents": [{"kind": "optimal"}]})
    assert Study.parse(named.dump()).id == named.id != plain.id


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"goal": "top-rigth"}, "top-right"),
        ({"goal": "not anywhere"}, "anywhere"),
        ({"start": "middle"}, "corners and sides"),
        ({"apart": 0}, "apart"),
        ({"phase": ""}, "phase"),
        ({"sizes": [5], "apart": 30}, "apart"),
        ({"goal": "left", "goal_side": "right"}, "goal_side"),
    ],
)
def test_wrong_placements_are_refused(change: dict[str, Any], fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        worlds_of({**GRIDS, **change})


PHASES: dict[str, Any] = {
    "worlds": [
        {**GRIDS, "goal": "top-right", "apart": 3, "phase": "trained"},
        {**GRIDS, "goal": "not top-right", "start": "anywhere", "apart": 3, "phase": "shifted"},
    ],
    "agents": [{"kind": "optimal"}, {"kind": "hypothesis", "hypothesis": "corner top-right", "name": "corner"}],
    "trajectories": 1,
}


def test_phases_are_conditions_of_rows_and_paired_by_grid(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(json.dumps(PHASES), encoding="utf-8")
    run(Study.parse(PHASES), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        rows = measure_episodes(store.episodes())
    success = {
        phase: rows.select(measure="success", agent="corner", phase=phase).value.mean()
        for phase in ("trained", "shifted")
    }
    assert success["trained"] == 1 and success["shifted"] < 0.1
    shown = call("measure", tmp_path / "run")
    assert "by phase" in shown
    compared = call("compare", tmp_path / "run", "--between", "phase")
    assert "corner, phase shifted" in compared and "corner, phase trained" in compared
    # Agents are compared in each phase, never over both.
    between_agents = call("compare", tmp_path / "run", "--agents", "optimal;corner", "--measures", "success")
    lines = [line for line in between_agents.splitlines() if line.strip().startswith("Success")]
    assert len(lines) == 2 and ["shifted" in line for line in lines] == [True, False]
    one = call("compare", tmp_path / "run", "--agents", "optimal;corner", "--where", "phase=shifted")
    assert "trained" not in one


@pytest.mark.full
def test_hypotheses_know_where_the_goal_stood(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(json.dumps(PHASES), encoding="utf-8")
    bank = "goal;corner top-right;where the goal stood in phase trained"
    shown = call("separate", "--hypotheses", bank, "--worlds", tmp_path / "study.yaml")
    assert "corner top-right or where the goal stood in phase trained: the same in these worlds" in shown
    alone = tmp_path / "trained.yaml"
    alone.write_text(json.dumps({**PHASES, "worlds": PHASES["worlds"][:1]}), encoding="utf-8")
    assert "goal or corner top-right" in call("separate", "--hypotheses", bank, "--worlds", alone)


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "key-door", "count": 2},
        {"kind": "text", "grids": ["A_G"]},
        {"kind": "named-place", "sizes": [7], "densities": [0.2], "count": 1},
        {"kind": "task-map", "presets": ["high-small"], "count": 1},
        {"kind": "small_worlds:Corridor", "parameters": [{"length": 5}]},
    ],
)
def test_all_kinds_of_worlds_have_phases(entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1] / "environments")
    plain, late = worlds_of(entry), worlds_of({**entry, "phase": "late"})
    assert {world.tags["phase"] for world in late} == {"late"} and "phase" not in plain[0].tags
    assert [world.id for world in plain] == [world.id for world in late]
    agents = [{"kind": "random"}]
    dumped = Study.parse({"worlds": [entry], "agents": agents}).dump()["worlds"][0]
    assert "phase" not in dumped and Study.parse({"worlds": [dumped], "agents": agents}).worlds()


def test_phases_of_environments_reach_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1] / "environments")
    entries = [
        {"kind": "small_worlds:Corridor", "parameters": [{"length": length}], "phase": phase}
        for length, phase in ((5, "short"), (9, "long"))
    ]
    agents = [{"kind": "environment-optimal"}]
    run(Study.parse({"worlds": entries, "agents": agents, "trajectories": 1}), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        assert set(measure_episodes(store.episodes()).numbered("phase")[1]) == {"short", "long"}
