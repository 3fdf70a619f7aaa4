"""Worlds that tell two hypotheses apart, and no verdict where there are none."""

import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from goal_tables import directed, finite
from goalscope._ground.rng import stream
from goalscope.agents import Optimal, Uniform, WrongGoal
from goalscope.cli import app
from goalscope.goals.hypotheses import FiniteWorld, Undefined, parse
from goalscope.goals.hypotheses.separability import tells_apart
from goalscope.measures import roll_out
from goalscope.runs import GridWorld, Study, run
from goalscope.worlds import Grid, generate_batch

CORRIDOR = Grid.parse("#######\n#_A__G#\n#_#_#_#\n#_____#\n#######")
AT_CORNER = Grid.parse("######\n#___G#\n#_A__#\n#____#\n######")


def told_apart(world: FiniteWorld, *pair: str) -> bool:
    """Return whether a world tells two written hypotheses apart."""
    first, second = (parse(name) for name in pair)
    try:
        return tells_apart(world, first, second)
    except Undefined:
        return False


def test_one_cell_is_one_hypothesis_and_a_place_out_of_reach_tells_nothing() -> None:
    same = finite(AT_CORNER, horizon=9)
    assert np.array_equal(parse("goal").utility(same), parse("corner top-right").utility(same))
    assert not told_apart(same, "goal", "corner top-right")
    for horizon, apart in ((2, 0), (9, 1)):
        episodes = roll_out(Uniform(), GridWorld(grid=CORRIDOR), seed=1, trajectories=4, horizon=horizon)
        [contrast] = directed(episodes, "goal", "corner bottom-right").contrasts
        assert (contrast.grids, contrast.common) == (apart, 1)


def at_corner(count: int) -> list[Grid]:
    """Grids whose goal is moved to the top-right corner."""
    grids = [grid for grid in generate_batch(7, 0.4, seed=3, count=3 * count) if grid.start != grid.corner("top-right")]
    return [grid.at(goal=grid.corner("top-right")) for grid in grids][:count]


@pytest.mark.parametrize(("shifted", "word"), [(0, "same cell"), (3, "3 of 23"), (8, "")])
def test_a_place_is_named_only_where_enough_worlds_tell_it_from_its_rival(shifted: int, word: str) -> None:
    others = [grid for grid in generate_batch(7, 0.2, seed=11, count=60) if _apart(grid)][:shifted]
    grids = at_corner(20) + others
    episodes = [
        episode
        for number, grid in enumerate(grids)
        for agent in (Optimal(), WrongGoal("top-right"))
        for episode in roll_out(agent, GridWorld(grid=grid, cluster=str(number)), seed=2, trajectories=1, horizon=12)
    ]
    found = directed(episodes, "goal", "corner top-right")
    assert len(found.contrasts) == 2
    for contrast in found.contrasts:
        assert (contrast.grids, contrast.same, contrast.common) == (shifted, 20, 20 + shifted)
        assert contrast.told_apart == (word == "") and word in contrast.why_not
        assert math.isnan(contrast.difference) == (not shifted)
        # In the worlds that tell them apart the one is after the goal, the other is not, however few these are.
        if contrast.told_apart:
            assert (contrast.low > 0) == (contrast.agent == "optimal") and (contrast.high < 0) == (
                contrast.agent != "optimal"
            )
    backwards = found.contrasts[0].turned.turned
    assert backwards == found.contrasts[0] or math.isnan(backwards.difference)


def _apart(grid: Grid) -> bool:
    world = finite(grid, horizon=12)
    return told_apart(world, "goal", "corner top-right")


def test_random_worlds_mostly_tell_the_goal_from_a_corner() -> None:
    grids = generate_batch(9, 0.6, seed=int(stream(1, "worlds").integers(1000)), count=40)
    apart = [_apart(grid) for grid in grids]
    assert 0.4 < np.mean(apart) < 1.0


def test_commands_say_which_hypotheses_the_worlds_do_not_tell_apart(tmp_path: Path) -> None:
    texts = [grid.render() for grid in dict.fromkeys(at_corner(8))]
    study = {"name": "corner", "seed": 1, "worlds": [{"kind": "text", "grids": texts}], "horizon": {"steps": 12}}
    run(Study.parse({**study, "agents": [{"kind": "optimal"}, {"kind": "random"}]}), tmp_path / "run")
    for command in (["meg"], ["compare", "--measures", "MEG towards the goal"]):
        result = CliRunner().invoke(app, [command[0], str(tmp_path / "run"), *command[1:]])
        assert result.exit_code == 0, result.output
        assert "the goal and the top-right corner are the same cell" in " ".join(result.output.split())
    text = report_of(tmp_path / "run")
    assert "the goal and the top-right corner are the same cell" in text


def report_of(directory: Path) -> str:
    result = CliRunner().invoke(app, ["report", str(directory)])
    assert result.exit_code == 0, result.output
    return (directory / "report.html").read_text(encoding="utf-8")
