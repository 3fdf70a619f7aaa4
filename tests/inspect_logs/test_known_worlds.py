"""Logs of somebody else's task in worlds whose rules are known: judged as a run of ours in the same worlds is."""

import gc
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from foreign_mazes import MAZES, optimal, walked

from command_line import call
from goalscope._ground.untrusted import UntrustedError
from goalscope.cli.goals import towards
from goalscope.environments import EnvironmentWorld
from goalscope.integrations.inspect_ai import RecordedEpisode, RecordedTurn
from goalscope.integrations.inspect_ai.record import recorded_episode
from goalscope.runs import Store, Study, run
from goalscope.worlds import Grid, GridWorld
from goalscope.worlds.planning import shortest_length

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
ROOM = GridWorld(grid=Grid.parse("A _ _\n_ # _\n_ _ G"))


def made(*turns: tuple[str, Any], world: Any = ROOM, **more: Any) -> Any:
    """Return the episode of turns (action, state)."""
    recorded = [RecordedTurn(action=action, state=state) for action, state in turns]
    sample, header = SimpleNamespace(id="a", epoch=2), SimpleNamespace(eval=SimpleNamespace(model="m", task="t"))
    return recorded_episode(RecordedEpisode(turns=recorded, world=world, **more), sample, header)[0]


def test_actions_are_taken_in_the_world_and_recorded_states_are_compared() -> None:
    whole = made(("right", (0, 0)), ("RIGHT", [0, 1]), ("down", None), ("down", (1, 2, 0)))
    assert (whole.outcome, whole.spec.horizon, whole.spec.trajectory, whole.final) == ("goal", 6, 1, (2, 2, 0))
    assert [step.state[:2] for step in whole.steps] == [(0, 0), (0, 1), (0, 2), (1, 2)]
    strange = made(("jump", None), success=False)
    assert (strange.outcome, strange.steps[0].failure, strange.final) == ("ended", "unknown action", (0, 0, 0))
    assert made(("down", None)).outcome == "stopped"
    with pytest.raises(UntrustedError, match="state"):
        made(("right", (0, 0)), ("right", (0, 0)))
    with pytest.raises(UntrustedError, match="success"):
        made(("right", None), success=True)
    with pytest.raises(UntrustedError, match="further turn"):
        made(*[("right", None)] * 2, *[("down", None)] * 3)
    with pytest.raises(ValueError, match="actions and cluster"):
        made(("right", None), cluster="other")


def test_environments_of_others_are_known_worlds_too_and_chance_is_refused() -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    lake, wet = (
        EnvironmentWorld.make("gymnasium", {"name": "FrozenLake-v1", **more})
        for more in ({"options": {"is_slippery": False}}, {})
    )
    path = [("down", 0), ("down", 4), ("right", 8), ("down", 9), ("right", 13), ("right", 14)]
    assert made(*path, world=lake).outcome == "goal"
    assert made(("down", 0), ("right", 4), world=lake).outcome == "ended"
    with pytest.raises(UntrustedError, match=r"state .*4"):
        made(("down", 0), ("down", 8), world=lake)
    with pytest.raises(UntrustedError, match="chance"):
        made(("down", 0), world=wet)


def test_recorded_runs_in_environments_are_evaluated_with_their_worlds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    monkeypatch.chdir(tmp_path)
    lake = "worlds: [{kind: gymnasium, environments: [FrozenLake-v1], options: {is_slippery: false}}]\n"
    Path("lake.yaml").write_text(f"name: lake\n{lake}agents: [{{kind: random}}]\nhorizon: {{factor: 2}}\n")
    world = EnvironmentWorld.make(
        "gymnasium", {"name": "FrozenLake-v1", "options": {"is_slippery": False}}, tags={"kind": "gymnasium"}
    )
    path = [("down", 0), ("down", 4), ("right", 8), ("down", 9), ("right", 13), ("right", 14)]
    whole = made(*path, world=world)
    with Store(tmp_path / "log", "w") as store:
        store.put_episodes([replace(whole, spec=replace(whole.spec, trajectory=n)) for n in range(8)])
        store.put_agents([(whole.spec.agent_id, "m", {"recorded": "m"})])
        store.put_info("import", {"source": "log", "counts": {}, "problems": 0})
    call("evaluate", "log", "--worlds", "lake.yaml", "--out", "verdict")
    assert '"asked":true' in re.sub(r"\s", "", Path("verdict/ledger.json").read_text())


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function from a policy to the imported run of its log, read by the script of the page."""
    pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")
    monkeypatch.chdir(tmp_path)
    [script] = [one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "walking.py" in one]
    assert len(script.splitlines()) <= 30
    Path("walking.py").write_text(script, encoding="utf-8")
    commands = [line for line in PAGE.splitlines() if line.startswith("goalscope") and "runs/maze" in line]

    def play(policy: Any) -> list[list[str]]:
        walked(tmp_path / "log", policy)
        [log] = (tmp_path / "log").glob("*.eval")
        log.rename("maze.eval")
        return [shlex.split(line)[1:] for line in commands]

    yield play
    gc.collect()  # what Inspect leaves open belongs to these tests


@pytest.mark.full
@pytest.mark.filterwarnings("default")
def test_a_log_of_somebody_elses_task_is_evaluated_in_its_worlds(logged: Any, tmp_path: Path) -> None:
    brought, judged = logged(lambda sample, at, number: optimal(sample, at))
    call(*brought)
    grids = [Grid.parse(text) for text in MAZES.values()]
    with Store(tmp_path / "runs/maze") as store:
        episodes = list(store.episodes())
    assert [one.outcome for one in episodes] == ["goal"] * len(grids)
    assert sorted(len(one.steps) for one in episodes) == sorted(map(shortest_length, grids))
    worlds = [{"kind": "text", "grids": list(MAZES.values())}]
    agents = {"agents": [{"kind": "optimal"}], "trajectories": 1, "horizon": {"factor": 1.5}}
    run(Study.parse({"worlds": worlds, **agents}), tmp_path / "own")
    found, own = (towards(tmp_path / name, hypotheses=("goal",)).estimates[0] for name in ("runs/maze", "own"))
    assert found.n == own.n and found.signed == pytest.approx(own.signed, rel=1e-9) and found.low > 0
    call(*judged)
    assert "towards the goal" in (tmp_path / "runs/maze-verdict/ledger.json").read_text()
