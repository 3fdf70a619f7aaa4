"""States of every world come in their author's form; numbers of states are never handed out as coordinates."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import goalscope
from goalscope.integrations.inspect_ai.record import RecordedEpisode, RecordedTurn, recorded_episode
from goalscope.measures import StepTable, check_measure
from goalscope.measures.definition import StepMeasure
from goalscope.measures.testing import sample_episodes
from goalscope.runs import Store, Study
from goalscope.worlds import Grid, GridWorld

# Cells as the author counts them: from (10, 20) on, so that no number of a state can be taken for one.
FIELD = """
from goalscope.environments import Observed

class Field:
    actions = ("down", "right")

    def __init__(self, side=4):
        self.side = side

    def initial(self):
        return {(10, 20): 1.0}

    def step(self, state, action):
        row, col = state
        to = (row + 1, col) if action == 0 else (row, col + 1)
        return {to if to[0] < 10 + self.side and to[1] < 20 + self.side else state: 1.0}

    def done(self, state):
        return self.goal(state)

    def goal(self, state):
        return state == (9 + self.side, 19 + self.side)

    def observe(self, state):
        return Observed(text=str(state))

    def describe(self):
        return {"name": "field", "side": self.side}
"""


def _greatest_sums(table: StepTable) -> Any:
    return np.array([max(row + col for row, col, *_ in table.path(episode)) for episode in range(len(table.length))])


def _greatest_rows(table: StepTable) -> Any:
    rows = np.full(len(table.length), -1)
    np.maximum.at(rows, table.episode, table.state[:, 0])
    return rows


# Not registered: other tests go through all registered measures.
row_plus_column, by_coordinates = (
    StepMeasure(
        name=name, unit="cells", bounds=(0, 1000), text="greatest of an episode", per="episode", function=function
    )
    for name, function in (("row plus column", _greatest_sums), ("row by coordinates", _greatest_rows))
)


@pytest.fixture
def fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the episodes of a run in fields of two sizes."""
    (tmp_path / "field_of_mine.py").write_text(FIELD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    study = {
        "name": "fields",
        "worlds": [{"kind": "field_of_mine:Field", "parameters": [{"side": 3}, {"side": 4}]}],
        "agents": [{"kind": "environment-optimal"}],
        "trajectories": 2,
    }
    goalscope.run(Study.parse(study), "run")
    with Store("run") as store:
        return list(store.episodes())


def test_states_of_an_own_environment_are_the_authors(fields: list[Any]) -> None:
    table = StepTable.from_episodes(fields)
    assert row_plus_column.rows(table).value.tolist() == [30 + 2 * one.world.parameters["side"] - 2 for one in fields]
    for index, episode in enumerate(fields):
        path = table.path(index)
        assert path == episode.path() and path[0] == (10, 20)
        steps = np.flatnonzero(table.episode == index)
        assert [table.states[step] for step in steps] == path[:-1]
        for before, action, after in zip(path[:-1], table.action[steps].tolist(), path[1:], strict=True):
            assert after == ((before[0] + 1, before[1]) if action == 0 else (before[0], before[1] + 1))


@pytest.mark.parametrize("name", ["state", "final", "following"])
def test_coordinates_of_an_own_environment_are_refused_with_the_accessor(fields: list[Any], name: str) -> None:
    table = StepTable.from_episodes(fields)
    with pytest.raises(AttributeError, match=rf"table\.{name} .*table\.states.*table\.path"):
        getattr(table, name)
    with pytest.raises(AttributeError, match=r"table\.states"):
        by_coordinates.rows(table)
    check_measure(row_plus_column, fields, invariant=False)


def test_grids_and_task_maps_give_states_of_cells() -> None:
    [grid, *_] = sample_episodes(trajectories=1)
    table = StepTable.from_episodes([grid])
    assert table.path(0) == grid.path() == [*(step.state for step in grid.steps), grid.final]
    assert [state.position for state in table.states] == [tuple(cell) for cell in table.state[:, :2].tolist()]
    tasks = sample_episodes(trajectories=1, tasks=True)
    tabled = StepTable.from_episodes(tasks, tasks=True)
    assert [tabled.path(index) for index in range(len(tasks))] == [one.path() for one in tasks]
    assert tabled.state.shape == (len(tabled.action), 3)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ({"kind": "minigrid", "levels": ["MiniGrid-Empty-5x5-v0"]}, (1, 1, 0)),
        ({"kind": "gymnasium", "environments": ["CliffWalking-v1"]}, 36),
    ],
)
def test_states_of_levels_and_tables_are_those_of_their_transitions(
    kind: dict[str, Any], key: Any, tmp_path: Path
) -> None:
    pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
    study = {"name": "x", "worlds": [kind], "agents": [{"kind": "environment-optimal"}], "trajectories": 1}
    goalscope.run(Study.parse(study), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        [episode] = store.episodes()
    table, world = StepTable.from_episodes([episode]), episode.world
    path = table.path(0)
    first = path[0][0] if isinstance(key, tuple) else path[0]
    assert first == key and tuple(path[:-1]) == table.states
    for before, action, after in zip(path, table.action.tolist(), path[1:], strict=False):
        assert world.believed.environment.step(before, action) == {after: 1.0}
    with pytest.raises(AttributeError, match=r"table\.path"):
        _ = table.state


def test_replayed_logs_have_the_states_of_their_world_and_others_have_none(fields: list[Any]) -> None:
    sample = SimpleNamespace(id="one", epoch=1, events=[])
    header = SimpleNamespace(eval=SimpleNamespace(model="model", task="task"))
    world = fields[0].world
    turns = [RecordedTurn(action="down", state=(10, 20)), RecordedTurn(action="right", state=(11, 20))]
    replayed, _ = recorded_episode(RecordedEpisode(turns=turns, world=world), sample, header)
    assert replayed.path() == [(10, 20), (11, 20), (11, 21)] == StepTable.from_episodes([replayed]).path(0)
    wrong = [turns[0], RecordedTurn(action="right", state=(10, 21))]
    with pytest.raises(ValueError, match="state"):
        recorded_episode(RecordedEpisode(turns=wrong, world=world), sample, header)
    in_grid = RecordedEpisode(
        turns=[RecordedTurn(action="right", state=(1, 1))], world=GridWorld(grid=Grid.parse("####\n#AG#\n####"))
    )
    assert [state.position for state in recorded_episode(in_grid, sample, header)[0].path()] == [(1, 1), (1, 2)]
    unknown, _ = recorded_episode(RecordedEpisode(turns=turns, actions=["down", "right"]), sample, header)
    table = StepTable.from_episodes([unknown])
    with pytest.raises(ValueError, match=r"RecordedEpisode\(world="):
        table.path(0)
    with pytest.raises(AttributeError, match="actions taken"):
        _ = table.state


def test_a_run_of_another_version_of_an_environment_is_named(fields: list[Any]) -> None:
    [world] = {one.world.id: one.world for one in fields if one.world.parameters["side"] == 3}.values()
    with pytest.raises(ValueError, match="99"):
        world.restore_state((99,))
