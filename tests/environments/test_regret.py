"""Regret in environments: what actions lose in expectation, with and without chance."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_worlds import Corridor, Slippery

from goalscope.measures import StepTable
from goalscope.measures.performance import regret
from goalscope.runs import Store, Study, run


def table_of(folder: Path, kind: str, agents: list[dict[str, Any]], steps: int, trajectories: int) -> StepTable:
    worlds = [{"kind": f"small_worlds:{kind}"}]
    given = {"worlds": worlds, "agents": agents, "horizon": {"steps": steps}, "trajectories": trajectories}
    run(Study.parse(given), folder)
    with Store(folder) as store:
        return StepTable.from_episodes(store.episodes())


def value(environment: Any, state: Any, left: int, memory: dict[Any, float]) -> float:
    """Return the expected decisions at the goal, by recursion over the environment itself."""
    if left == 0:
        return 0.0
    if (state, left) not in memory:
        here = float(environment.goal(state))
        over = environment.done(state) or environment.goal(state)
        actions = [after(environment, state, action, left, memory) for action in range(len(environment.actions))]
        memory[state, left] = here + (value(environment, state, left - 1, memory) if over else max(actions))
    return float(memory[state, left])


def after(environment: Any, state: Any, action: int, left: int, memory: dict[Any, float]) -> float:
    outcomes: dict[Any, float] = environment.step(state, action)
    return sum(chance * value(environment, following, left - 1, memory) for following, chance in outcomes.items())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(Path(__file__).parent)
    return tmp_path / "run"


@pytest.mark.parametrize("kind", ["Corridor", "Slippery"])
def test_regret_is_what_a_recursion_over_the_environment_says(folder: Path, kind: str) -> None:
    agents = [{"kind": "environment-optimal"}, {"kind": "random"}]
    table = table_of(folder, kind, agents, steps=9, trajectories=6)
    found = np.asarray(regret(table))
    environment: Any = {"Corridor": Corridor, "Slippery": Slippery}[kind]()
    states = table.worlds[0].believed.table.states
    memory: dict[Any, float] = {}
    for episode in range(len(table.length)):
        expected = 0.0
        for step in np.flatnonzero(table.episode == episode).tolist():
            left = 9 - int(table.step[step])
            state = states[table.codes[step, 0]]
            values = [after(environment, state, action, left, memory) for action in range(len(environment.actions))]
            expected += max(values) - values[table.action[step]]
        assert found[episode] == pytest.approx(expected, abs=1e-9)
    assert found[table.agent == "optimal"].max() == pytest.approx(0.0, abs=1e-9)
    assert found[table.agent == "random"].max() > 0.1
