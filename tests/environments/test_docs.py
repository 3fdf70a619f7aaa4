"""What docs/environments.md shows is true: its environment, its agent and its search."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import goalscope
from goal_tables import directed
from goalscope.runs import Store, Study, run
from goalscope.worlds.environments.environment import build
from goalscope.worlds.environments.world import EnvironmentWorld
from goalscope.worlds.planning import expected_utility

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
PYTHON, YAML = (re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) for language in ("python", "yaml"))


def executed(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "environments.md", "exec"), names)
    return names


def test_the_environment_of_the_page_is_measured_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sum(bool(line.strip()) for line in PYTHON[0].splitlines()) < 48, "some forty lines"
    Path("warehouse.py").write_text(PYTHON[0], encoding="utf-8")
    study = Study.parse(yaml.safe_load(YAML[0]))
    run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        found = {(one.agent, one.hypothesis): one for one in directed(store.episodes()).estimates}
    assert {name for _, name in found} == {"goal", "office", "charger", "crate lifted"}
    for agent, goal in (("optimal", "goal"), ("wrong-goal(charger)", "charger")):
        assert found[agent, goal].signed > 0.8 * found[agent, goal].bound and found[agent, goal].n == 30
        assert all(found[agent, other].signed < found[agent, goal].signed for _, other in found if other != goal)
    assert found["wrong-goal(charger)", "goal"].signed < 0.1
    assert found["random", "goal"].low <= 0
    executed(block("meg_known"))
    states, steps, share = capsys.readouterr().out.split()
    assert int(states) > 20 and float(steps) > 5 and float(share) == pytest.approx(1)


def test_the_agent_of_the_page_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("warehouse.py").write_text(PYTHON[0], encoding="utf-8")
    Path("agents_of_the_page.py").write_text(block("class Framework"), encoding="utf-8")
    given = {**yaml.safe_load(YAML[0]), "agents": [{"kind": "agents_of_the_page:Framework"}], "trajectories": 1}
    run(Study.parse(given), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        steps = [step for one in store.episodes() for step in one.steps]
    assert {(step.action, step.text) for step in steps} == {(0, "north")}


def test_the_class_of_gymnasium_of_the_page_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    monkeypatch.chdir(tmp_path)
    Path("river.py").write_text(block("class Ferry"), encoding="utf-8")
    table = EnvironmentWorld.make("river:Ferry", {}).believed.table
    assert len(table.states) == 42 and {"goal", "end with reward 0"} == set(table.goals)


def test_the_levels_of_the_page_can_be_made() -> None:
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    (entry,) = yaml.safe_load(YAML[2])["worlds"]
    assert all(build("minigrid", {"level": level}).actions for level in entry["levels"])


def test_the_search_of_the_page_counts_down_to_the_goal(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    executed(block("believe_visited"))
    distances = [int(line.split()[0]) for line in capsys.readouterr().out.splitlines() if line[:1].isdigit()]
    assert distances == list(range(22, 0, -1))


def block(word: str) -> str:
    """Return the only block of Python of the page that has a word."""
    (code,) = (code for code in PYTHON if word in code)
    return str(code)


def test_the_tables_of_the_page_are_read_by_others_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("warehouse.py").write_text(PYTHON[0], encoding="utf-8")
    believed = goalscope.table("warehouse:Warehouse", "warehouse.npz")
    goalscope.table("warehouse:Warehouse:row=0,col=2", "corner.npz")
    assert executed(block("csr_matrix"))["P"].shape == (len(believed.table.states) * 5, len(believed.table.states))
    state, value = capsys.readouterr().out.rsplit(maxsplit=1)
    expected = expected_utility(believed.table.mdp(horizon=20), believed.solved.policy(20))
    assert state == "['(1, 4, False)']" and float(value.strip("[]")) == pytest.approx(expected)
    executed(block("walk.npz"))
    assert capsys.readouterr().out == block("walk.npz").rpartition("# ")[2]
    (worlds,) = (text for text in YAML if "source: table" in text)
    agents = [{"kind": "environment-optimal"}]
    study = Study.parse({"name": "tables", **yaml.safe_load(worlds), "agents": agents, "trajectories": 1})
    run(study, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        assert all(one.outcome == "goal" or len(one.steps) > 10 for one in store.episodes())


def test_imitation_learns_from_the_table_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("imitation", reason="imitation is not installed; another test computes with its arrays")
    monkeypatch.chdir(tmp_path)
    Path("warehouse.py").write_text(PYTHON[0], encoding="utf-8")
    goalscope.table("warehouse:Warehouse", "warehouse.npz")
    executed(block("mce_irl"))
    assert capsys.readouterr().out.split() == ["(3,", "0,", "True)"]
