"""MEG with the exact policies of agents that tell them: against every action sequence, and against drawn actions."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from goal_tables import directed, finite, held_out
from goalscope._ground.rng import stream
from goalscope.goals.baselines import Invalid, Utility, random_utilities
from goalscope.goals.curves import process_of_episode
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.states import states_of
from goalscope.goals.results import EXACT_NOTE
from goalscope.measures import StepTable, measure_episodes, play
from goalscope.meg import RationalityCurve
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
    [counted], [exact] = (states_of(StepTable.from_episodes(part)) for part in (drawn, [told(one) for one in drawn]))
    assert exact.exact.all() and not counted.exact.any()
    for name in ("goal", "corner top-left", "corner bottom-right"):
        pays, arrival = parse(name).utility(counted.world), utility == "arrival"
        one, other = (states.utilities(pays, arrival=arrival) for states in (counted, exact))
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
    [one], [other] = (states_of(StepTable.from_episodes(part)) for part in (drawn, certain))
    assert other.exact.all()
    for name in ("goal", "corner top-left"):
        pays = parse(name).utility(one.world)
        assert one.utilities(pays) == pytest.approx(other.utilities(pays))
    world = finite(GRID, horizon=6)
    goal = parse("goal").utility(world)
    invalids: tuple[Invalid, ...] = ("no-op", "action")
    for invalid in invalids:
        curve = RationalityCurve(process_of_episode(world, goal, kind="steps", invalid=invalid))
        plain, exact = (
            random_utilities(world, {"goal": goal}, 50, 200, seed=0, kind="steps", invalid=invalid, exact=each)["goal"]
            for each in (False, True)
        )
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
    for episodes, exact in ((drawn, False), (uniform, True)):
        [estimate] = directed(episodes, "goal").estimates
        [held] = held_out(episodes)
        assert (EXACT_NOTE in estimate.note) == (EXACT_NOTE in held.note) == exact
    wrong = [replace(uniform[0], steps=tuple(replace(step, extra={"policy": [0.9] * 4}) for step in uniform[0].steps))]
    with pytest.raises(ValueError, match=r"3\.6"):
        directed(wrong, "goal")
    assert len(measure_episodes(wrong)), "measures of actions do not read policies"
