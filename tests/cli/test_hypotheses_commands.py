"""The commands separate and design: what they print and write, and what they refuse."""

import json
from pathlib import Path

import pytest

from command_line import call
from families import long_after
from goalscope.goals.hypotheses import load_hypotheses
from goalscope.goals.hypotheses.design import design
from goalscope.goals.hypotheses.separability import ENOUGH, Separability, separability
from goalscope.runs import Store, Study, run

FEW = ("--sizes", "7", "--densities", "0.6", "--count", "8")
TRAINED = """
hypotheses: [goal, corner top-right, {name: fetch, is: "key if not key held, else goal"}]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_separate_prints_pairs_and_reasons(folder: Path) -> None:
    Path("mine.yaml").write_text(TRAINED, encoding="utf-8")
    shown = call("separate", "--hypotheses", "mine.yaml;beside goal", "--worlds", "grid", *FEW)
    assert "fetch: undefined in 8 of 8 worlds, this world has no key" in shown
    assert "goal – beside goal" in shown and "8 of 8" in shown
    assert "fetch: undefined in all of these worlds" in shown
    plain = json.loads(call("separate", "--hypotheses", "goal;beside goal", "--worlds", "grid", *FEW, "--json"))
    assert plain["worlds"] == 8 and {pair["worlds_apart"] for pair in plain["pairs"]} == {8}


@pytest.mark.parametrize(
    "worlds",
    long_after(
        3, ["key-door", "{kind: grid, sizes: [7], densities: [0.6], count: 3}", "[{kind: two-path, count: 3}]", "demo"]
    ),
)
def test_worlds_are_a_study_a_kind_or_entries(worlds: str) -> None:
    count = [] if worlds.startswith(("{", "[")) else ["--count", "2"]
    shown = call("separate", "--hypotheses", "goal;flee goal", "--worlds", worlds, *count)
    assert "goal – flee goal" in shown


PHASES = """
name: phases
worlds:
  - {kind: grid, sizes: [7], densities: [0.6], count: 8, goal: top-right, phase: trained}
  - {kind: grid, sizes: [7], densities: [0.6], count: 12, goal: not top-right, apart: 3, phase: shifted}
agents: [{kind: random}]
"""


def test_a_place_of_the_trained_phase_is_known_in_the_other_one(folder: Path) -> None:
    Path("phases.yaml").write_text(PHASES, encoding="utf-8")
    bank = ("--hypotheses", "goal;corner top-right;where the goal stood in phase trained", "--worlds", "phases.yaml")
    plain = json.loads(call("separate", *bank, "--phase", "shifted", "--json"))
    assert plain["worlds"] == 12 and plain["same"] == [["corner top-right", "where the goal stood in phase trained"]]
    nats = {(pair["hypothesis"], pair["rival"]): pair["nats_same_lapse"] for pair in plain["pairs"]}
    assert nats["goal", "where the goal stood in phase trained"] == nats["goal", "corner top-right"] > 1
    chosen = call("design", *bank, "--phase", "shifted", "--choose", "4", "--out", "chosen.yaml")
    assert "corner top-right or where the goal stood in phase trained: no candidate" in chosen
    alone = call("separate", *bank[:3], "{kind: grid, sizes: [7], densities: [0.6], count: 3, phase: shifted}")
    assert "where the goal stood in phase trained: undefined in all of these worlds" in alone


def test_task_maps_have_hypotheses_of_their_own() -> None:
    worlds = "{kind: task-map, presets: [high-small], count: 1, generator: {alpha: 1.5}}"
    assert "sub-goals" in call("separate", "--hypotheses", "task-maps", "--worlds", worlds)


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("--hypotheses", "gaol;goal", "--worlds", "grid"), "did you mean 'goal'"),
        (("--hypotheses", "goal", "--worlds", "grid"), "two hypotheses"),
        (("--hypotheses", "goal;goal", "--worlds", "grid"), "twice"),
        (("--hypotheses", "grids", "--worlds", "gird"), "study"),
        (("--hypotheses", "grids", "--worlds", "grid", "--lapse", "0"), "lapse"),
        (("--hypotheses", "none.yaml", "--worlds", "grid"), "none.yaml"),
    ],
)
def test_wrong_uses_are_refused(arguments: tuple[str, ...], fact: str) -> None:
    assert fact in call("separate", *arguments, status=2)


def test_a_design_is_a_study_that_run_takes(folder: Path) -> None:
    shown = call(
        "design", "--hypotheses", "grids", "--worlds", "grid", *FEW[:-1], "30", "--choose", "3", "--out", "study.yaml"
    )
    assert "random choices" in shown and "goalscope run study.yaml" in shown
    study = Study.load("study.yaml")
    assert study.size().worlds == 3 and study.size().agents == 6
    again = folder / "again.yaml"
    call("design", "--hypotheses", "grids", "--worlds", "grid", *FEW[:-1], "30", "--choose", "3", "--out", str(again))
    assert again.read_bytes() == Path("study.yaml").read_bytes()
    run(study, folder / "run")
    with Store(folder / "run") as store:
        ends = {(episode.agent, episode.outcome) for episode in store.episodes()}
    assert ("goal", "goal") in ends and ("corner top-left", "horizon") in ends


def _study(**changes: object) -> Study:
    entry = {"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.6], "count": 15, "minimum_distance": 3, **changes}
    return Study.parse({"worlds": [entry], "agents": [{"kind": "random"}]})


def test_the_chosen_worlds_gain_over_random_ones_and_by_brute_force() -> None:
    study, bank = _study(), load_hypotheses("grids;beside goal")
    found = design(bank, study.worlds(), 8, horizon=study.horizon.of)
    assert found.least > 1.5 * found.random.mean()
    alone: Separability = separability(bank, found.worlds, horizon=study.horizon.of)
    totals = {(alone.names[h], alone.names[k]): alone.least[:, h, k].sum() for h in range(6) for k in range(h + 1, 6)}
    assert (
        min(totals.values()) == pytest.approx(found.least) and min(totals, key=lambda pair: totals[pair]) == found.pair
    )
    assert found.chosen == design(bank, study.worlds(), 8, horizon=study.horizon.of, seed=3).chosen


def test_pairs_that_no_candidate_tells_apart_are_named() -> None:
    study = _study(count=6)
    worlds = [world for world in study.worlds() if world.grid.goal is not None]
    found = design(load_hypotheses("goal;corner top-left;goal +0,+0"), worlds, 4, horizon=study.horizon.of)
    assert found.hopeless == (("goal", "goal +0,+0"),) and found.found.least[:, 0, 2].max() < ENOUGH
    with pytest.raises(ValueError, match="apart"):
        design(load_hypotheses("goal;goal +0,+0"), worlds, 2, horizon=study.horizon.of)
    with pytest.raises(ValueError, match="24"):
        design(load_hypotheses("grids"), worlds, 40, horizon=study.horizon.of)


def test_a_design_of_other_worlds_than_grids_is_printed_but_not_written() -> None:
    worlds = "{kind: task-map, presets: [high-small], count: 2, generator: {alpha: 1.5}}"
    arguments = ("design", "--hypotheses", "goal;sub-goals", "--worlds", worlds, "--choose", "1")
    assert "world 0" in call(*arguments) or "world 1" in call(*arguments)
    assert "task-map" in call(*arguments, "--out", "study.yaml", status=2)
