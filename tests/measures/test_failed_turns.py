"""Turns without an action: whose failure they are, and how they count, by a declared setting."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from goalscope.agents.agent import WITHHELD
from goalscope.cli.program import app
from goalscope.measures import (
    invalid_turns,
    measure_episodes,
    roll_out,
    sample_episodes,
    valid_action_accuracy,
    withheld_turns,
)
from goalscope.measures.behaviour import measure_store
from goalscope.measures.table import StepTable
from goalscope.report.definitions import FAILED_TURNS
from goalscope.runs import Store, Study
from goalscope.runs.record import Episode

FEW = 12


def with_failures(episodes: tuple[Episode, ...]) -> tuple[Episode, ...]:
    """Have each second turn without an action be one that the server withheld."""
    number, changed = 0, []
    for episode in episodes:
        steps = []
        for step in episode.steps:
            if step.action is None:
                number += 1
                step = replace(step, failure=WITHHELD if number % 2 else "no JSON", text="x")
            steps.append(step)
        changed.append(replace(episode, steps=tuple(steps)))
    assert number > 4
    return tuple(changed)


@pytest.fixture(scope="module")
def episodes() -> tuple[Episode, ...]:
    return with_failures(tuple(sample_episodes(seed=3, invalid=0.3))[:FEW])


def test_withheld_turns_are_apart_from_invalid_ones_in_a_run_and_in_episodes(
    episodes: tuple[Episode, ...], tmp_path: Path
) -> None:
    table = StepTable.from_episodes(episodes)
    withheld = [sum(step.failure == WITHHELD for step in episode.steps) for episode in episodes]
    invalid = [sum(step.failure == "no JSON" for step in episode.steps) for episode in episodes]
    lengths = np.array([len(episode.steps) for episode in episodes])
    (rows,) = [measure_episodes(episodes, [withheld_turns])]
    assert rows.value.tolist() == pytest.approx((np.array(withheld) / lengths).tolist())
    rows = measure_episodes(episodes, [invalid_turns])
    assert rows.value.tolist() == pytest.approx((np.array(invalid) / (lengths - np.array(withheld))).tolist())
    optimal = [int(table.is_optimal[table.episode == index].sum()) for index in range(len(episodes))]
    rows = measure_episodes(episodes, [valid_action_accuracy])
    valid = lengths - np.array(withheld) - np.array(invalid)
    assert rows.value.tolist() == pytest.approx((np.array(optimal) / valid).tolist())
    with Store(tmp_path / "run", "w") as store:
        store.put_episodes(episodes)
    with Store(tmp_path / "run") as store:
        stored = measure_store(store)
    for name in ("withheld turns", "invalid turns", "action accuracy of valid turns"):
        expected = measure_episodes(episodes)
        of_store = sorted(stored.where(stored.measure == name).value.tolist())
        assert of_store == pytest.approx(sorted(expected.where(expected.measure == name).value.tolist()))


STUDY = {
    "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 6}],
    "agents": [{"kind": "random"}],
    "trajectories": 1,
}


@pytest.mark.parametrize("setting", FAILED_TURNS)
def test_the_setting_decides_which_accuracy_is_shown_and_stands_beside_it(setting: str, tmp_path: Path) -> None:
    study = Study.parse({**STUDY, "analysis": {"failed_turns": setting}})
    plain = Study.parse(STUDY)
    assert study.id == plain.id, "the setting changes no result"
    (agent,) = study.agents()
    with Store(tmp_path / "run", "w") as store:
        store.put_study(study)
        played = [roll_out(agent, world, seed=0, trajectories=2, invalid=0.4) for _, world, _ in study.specs([agent])]
        store.put_episodes(with_failures(tuple(episode for part in played for episode in part)))
    printed = CliRunner().invoke(app, ["measure", str(tmp_path / "run")], env={"COLUMNS": "240"}).output
    assert f"analysis.failed_turns: {setting}" in " ".join(printed.split())
    (heading,) = [line.lower() for line in printed.splitlines() if "success" in line.lower()]
    assert heading.count("accuracy") == len(FAILED_TURNS[setting])
    assert ("of valid turns" in heading) == (setting != "wrong")


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match="failed_turns"):
        Study.parse({**STUDY, "analysis": {"failed_turns": "ignored"}})
