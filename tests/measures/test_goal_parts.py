"""MEG of a run whose steps are held of some worlds at a time: the same figures as of all steps together."""

from pathlib import Path

import pytest

from goalscope.measures.goals import GoalSettings, HypothesisDraw, goal_settings, measure_goals, measure_goals_by_parts
from goalscope.measures.table import StepTable
from goalscope.measures.testing import sample_episodes
from goalscope.rows import Rows
from goalscope.runs import Store
from goalscope.runs.walks import parts_of


def lines(rows: Rows) -> list[str]:
    return [repr((row.measure, row.value, row.grid_id, sorted(row.tags.items()))) for row in rows]


def test_goals_by_parts_are_those_of_all_steps_together(tmp_path: Path) -> None:
    with Store(tmp_path, "w") as store:
        store.put_episodes(sample_episodes(trajectories=2))
        whole = StepTable.from_episodes(store.episodes())
        settings = goal_settings(whole.worlds, by=("size",))
        parts = list(parts_of(store, most=20))
        tables = [StepTable.from_episodes(store.episodes(worlds=worlds)) for worlds in parts]
        assert len(tables) > 2 and sum(len(table.length) for table in tables) == len(whole.length)
        wanted, found = measure_goals(whole, settings), measure_goals_by_parts(iter(tables), settings)
        assert found.to_plain() == wanted.to_plain()
        assert lines(found.rows) == lines(wanted.rows) and len(found.rows)
    drawn = GoalSettings(hypotheses=("goal",), drawn={"goal": (HypothesisDraw(cells={}),)})
    with pytest.raises(ValueError, match="use measure_goals"):
        measure_goals_by_parts(iter(tables), drawn)
    with pytest.raises(ValueError, match="got none"):
        measure_goals_by_parts(iter([]), settings)
