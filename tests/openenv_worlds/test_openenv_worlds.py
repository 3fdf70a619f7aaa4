"""Worlds in OpenEnv itself: served by its server, played by its client, with exact rewards."""

import re
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openenv.core", reason="the extra openenv is not installed")

import yaml

from goalscope.runs import Study
from goalscope.worlds import Grid
from goalscope.worlds.planning import shortest_length, solve

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
(SCRIPT,) = (one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "openenv" in one)
STUDY = """
name: mazes
worlds: [{kind: grid, sizes: [5, 7], densities: [0.3], count: 1}]
agents: [{kind: optimal}]
trajectories: 1
horizon: {factor: 2}
"""
MOVES = ("UP", "DOWN", "LEFT", "RIGHT")


def optimal(question: str) -> str:
    """Answer with an optimal move in the last grid of a question, whose rows begin with their number."""
    last = re.findall(r"(?:^[ ]*\d+(?: [#_AG])+[ ]*$\n?)+", question, re.MULTILINE)[-1]
    grid = Grid.parse("\n".join(" ".join(line.split()[1:]) for line in last.splitlines()))
    assert grid.start is not None
    return f'{{"action": "{MOVES[int(np.flatnonzero(solve(grid).optimal[(0, *grid.start)])[0])]}"}}'


def test_models_whose_behaviour_is_known_get_the_rewards_that_are_due(tmp_path: Path) -> None:
    assert len(SCRIPT.splitlines()) <= 30
    (tmp_path / "mazes.yaml").write_text(STUDY, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names: dict[str, Any] = {}
    exec(compile(SCRIPT, "integrations.md", "exec"), names)
    server = names["serve"](str(tmp_path / "mazes.yaml"), port)
    for number, world in enumerate(Study.parse(yaml.safe_load(STUDY)).worlds()):
        length = shortest_length(world.grid)
        reward, episode = names["play"](port, optimal, number)
        assert reward == 1 and episode["rewards"] == {"goal": 1, "progress": 1}
        assert episode["metrics"] == {"steps": length, "invalid turns": 0, "accuracy": 1, "path ratio": 1}
        assert [one["distance"] for one in episode["turns"]] == list(range(length, 0, -1))
        reward, episode = names["play"](port, lambda question: "I do not know.", number)
        assert reward == 0 and episode["metrics"]["invalid turns"] == 1 and episode["metrics"]["accuracy"] == 0
    server.should_exit = True


def test_a_step_after_the_end_or_before_the_beginning_is_refused() -> None:
    from goalscope.integrations.openenv import WorldAction, WorldsEnvironment

    env = WorldsEnvironment()
    with pytest.raises(ValueError, match="call reset"):
        env.step(WorldAction(text="UP"))
    first, again, later = env.reset(), env.reset(seed=0), env.reset(seed=10**6)
    assert first.text == again.text and later.text and env.state.step_count == 0
