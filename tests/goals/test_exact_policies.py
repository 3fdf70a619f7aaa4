"""MEG with the exact policies of agents that tell them: against every action sequence, and against drawn actions."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from goal_tables import held_out
from goalscope.measures import StepTable, measure_episodes, play
from goalscope.measures.goals import GoalSettings, measure_goals
from goalscope.measures.goals.random_agents import random_returns
from goalscope.measures.goals.results import EXACT_NOTE
from goalscope.measures.goals.returns import Unit, episode_returns
from goalscope.measures.goals.settings import Invalid, Utility, place, process
from goalscope.meg import RationalityCurve
from goalscope.rng import stream
from goalscope.runs import Episode, GridWorld
from goalscope.worlds import ACTIONS, Grid, generate_batch

GRID = Grid.parse(["#####", "#__A#", "#G#_#", "#___#", "#####"])
HORIZON = 4


def policy(row: int, col: int) -> list[float]:
    """Some policy of a state; it never rules an action out."""
    weights = stream(5, "policy", row, col).random(4) + 0.1
    return [float(one) for one in weights / weights.sum()]


def told(episode: Episode) -> Episode:
    """Return an episode whose steps tell the policy of their state."""
    steps = (replace(step, extra={"policy": policy(*step.state.position)}) for step in episode.steps)
    return replace(episode, steps=tuple(steps))


def chance(episode: Episode) -> float:
    return float(
        math.prod(policy(*step.state.position)[step.action] for step in episode.steps if step.action is not None)
    )


@pytest.mark.parametrize("utility", ["steps", "arrival"])
def test_expectations_over_all_action_sequences_are_those_of_the_drawn_actions(utility: Utility) -> None:
    played: dict[tuple[object, ...], Episode] = {}
    for taken in itertools.product(ACTIONS, repeat=HORIZON):
        episode = play(GridWorld(grid=GRID), taken, horizon=HORIZON)
        played.setdefault(tuple(step.action for step in episode.steps), episode)  # the goal ends some of them early
    drawn, chances = list(played.values()), np.array([chance(one) for one in played.values()])
    assert chances.sum() == pytest.approx(1)
    for name in ("goal", "top-left", "bottom-right"):
        counted, exact = (
            episode_returns(StepTable.from_episodes(part), (name,), utility=utility)
            for part in (drawn, [told(one) for one in drawn])
        )
        assert exact.exact.all() and not counted.exact.any()
        one, other = counted.values[name], exact.values[name]
        assert chances @ other == pytest.approx(chances @ one, abs=1e-12)
        assert chances @ other**2 < chances @ one**2, "the chance of the last draw is gone"


def test_a_policy_that_is_certain_changes_nothing_and_random_agents_keep_their_mean() -> None:
    walks = ((1, 1, 2, 2), (2, 2, 1, None), (3, 0, 2, 1))
    taken = [[None if one is None else ACTIONS[one] for one in walk] for walk in walks]
    drawn = [play(GridWorld(grid=GRID), actions, horizon=HORIZON) for actions in taken]
    certain = [
        replace(
            episode,
            steps=tuple(
                replace(step, extra={} if step.action is None else {"policy": np.eye(4)[step.action].tolist()})
                for step in episode.steps
            ),
        )
        for episode in drawn
    ]
    tables = [StepTable.from_episodes(part) for part in (drawn, certain)]
    one, other = (episode_returns(table, ("goal", "top-left"), utility="steps") for table in tables)
    assert other.exact.all()
    assert all(one.values[name].tolist() == pytest.approx(other.values[name].tolist()) for name in one.values)
    mask = place("goal", GRID, None)
    assert mask is not None
    unit = Unit(world_id="w", cluster="g", grid=GRID, horizon=6, masks={"goal": mask})
    invalids: tuple[Invalid, ...] = ("no-op", "action")
    for invalid in invalids:
        curve = RationalityCurve(process(GRID, mask, 6, utility="steps", invalid=invalid))
        settings = GoalSettings(invalid=invalid)
        plain, exact = (random_returns(unit, 50, 200, settings, exact=kind)["goal"] for kind in (False, True))
        assert abs(exact.mean() - curve.uniform) < 4 * exact.std(ddof=1) / np.sqrt(200)
        assert exact.std() < plain.std()


def test_what_is_measured_with_exact_policies_says_so() -> None:
    rng = np.random.default_rng(3)
    worlds = [GridWorld(grid=grid) for grid in generate_batch(5, 0.0, seed=1, count=3)]
    drawn = [
        play(world, [ACTIONS[one] for one in rng.integers(4, size=5)], trajectory=number, horizon=5)
        for world in worlds
        for number in range(2)
    ]
    uniform = [
        replace(episode, steps=tuple(replace(step, extra={"policy": [0.25] * 4}) for step in episode.steps))
        for episode in drawn
    ]
    settings = GoalSettings(hypotheses=("goal",))
    for episodes, exact in ((drawn, False), (uniform, True)):
        [estimate] = measure_goals(episodes, settings).estimates
        [held] = held_out(episodes, settings)
        assert (EXACT_NOTE in estimate.note) == (EXACT_NOTE in held.note) == exact
    wrong = [replace(uniform[0], steps=tuple(replace(step, extra={"policy": [0.9] * 4}) for step in uniform[0].steps))]
    with pytest.raises(ValueError, match=r"policies .*sum to 1.*got 3\.6"):
        measure_goals(wrong, settings)
    assert len(measure_episodes(wrong)), "measures of actions do not read policies"
