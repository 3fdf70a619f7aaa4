"""MEG of runs in the class that plans on what was seen: literal scores, planted agents, the command, refusals."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from command_line import call
from goal_tables import restricted
from goalscope.agents import EpsilonGreedy, Optimal, Uniform
from goalscope.goals import RunDirectedness
from goalscope.goals.curves import KNOTS, Array
from goalscope.goals.random_agents import Invalid
from goalscope.goals.restricted import restricted_name, score_walks
from goalscope.hypotheses.states import states_of
from goalscope.measures import StepTable, roll_out
from goalscope.meg.restricted import Unseen
from goalscope.rng import stream
from goalscope.runs import Episode, GridWorld
from goalscope.worlds import ACTIONS, Fog, Grid, Position, generate


def fogged(count: int, size: int = 7) -> list[GridWorld]:
    return [GridWorld(grid=generate(size, 0.6, rng=stream(at, "restricted")), fog_radius=2) for at in range(count)]


def episodes(count: int = 12) -> list[Episode]:
    agents = (Optimal(), EpsilonGreedy(0.4), Uniform())
    return [
        one for world in fogged(count) for agent in agents for one in roll_out(agent, world, seed=3, trajectories=2)
    ]


@pytest.fixture(scope="module")
def found() -> RunDirectedness:
    return restricted(episodes(), "known")


def test_explorers_have_the_bound_of_their_class_and_random_walkers_nothing(found: RunDirectedness) -> None:
    by_agent = {estimate.agent: estimate for estimate in found.estimates}
    best, noisy, random = (by_agent[name] for name in ("optimal", "epsilon-greedy(0.4)", "random"))
    assert best.share > 0.95 and best.low > 0 and best.utility == pytest.approx(best.highest_utility, rel=0.15)
    assert 0.1 < noisy.share < best.share and math.isnan(random.share)
    assert all(
        one.hypothesis == restricted_name("known") == "goal, restricted class (known)" for one in by_agent.values()
    )
    assert all("restricted class" in one.note for one in by_agent.values())
    assert best.n == 24 and best.grids == 12


def test_rows_have_the_signed_figure_as_their_mean(found: RunDirectedness) -> None:
    for estimate in found.estimates:
        mine = found.rows.select(measure="MEG towards the goal, restricted class (known)", agent=estimate.agent)
        assert np.mean([row.value for row in mine]) == pytest.approx(estimate.signed, abs=1e-9)


def scores_of(episode: Episode, unseen: Unseen, invalid: Invalid = "no-op") -> Array:
    """Return ``[B]`` the nats of one episode at each rationality."""
    states = states_of(StepTable.from_episodes([episode]))
    _, [scores], _ = score_walks(states, unseen, kind="steps", invalid=invalid, seed=0)
    return np.asarray(scores)


def test_scores_are_sums_of_literal_choices() -> None:
    """Each turn anew: the view, all action sequences on what it is taken for, the share of those with the action."""

    def literal(grid: Grid, cells: list[Position], actions: list[int], horizon: int, beta: float) -> float:
        fog, total = Fog.start(grid, 2), 0.0
        for turn, (cell, action) in enumerate(zip(cells, actions, strict=True)):
            fog = fog.look(cell)
            hidden = ~fog.seen
            targets = {grid.goal} if fog.seen[grid.goal] else {tuple(map(int, one)) for one in np.argwhere(hidden)}
            parts: list[list[float]] = [[], [], [], []]
            for taken in itertools.product(range(4), repeat=horizon - turn):
                at, gained = cell, 0.0
                for each in taken:
                    gained += at in targets
                    near = at[0] + ACTIONS[each].delta[0], at[1] + ACTIONS[each].delta[1]
                    inside = 0 <= near[0] < grid.height and 0 <= near[1] < grid.width
                    if at not in targets and inside and not (grid.walls[near] and fog.seen[near]):
                        at = near
                parts[taken[0]].append(math.exp(beta * gained))
            total += math.log(np.mean(parts[action]) / np.mean([np.mean(part) for part in parts]))
        return total

    world = fogged(1, size=5)[0]
    played = [
        one for agent in (Optimal(), Uniform()) for one in roll_out(agent, world, seed=1, trajectories=2, horizon=5)
    ]
    for episode in played:
        scores = scores_of(episode, "open")
        cells = [step.state.position for step in episode.steps]
        actions = [int(step.action) for step in episode.steps if step.action is not None]
        for knot in (10, 40, 60):
            expected = literal(world.grid, cells, actions, 5, float(KNOTS[knot]))
            assert scores[knot] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("invalid", ["no-op", "action"])
def test_turns_without_an_action_are_passed_over_or_scored_as_an_action(invalid: Invalid) -> None:
    world = fogged(1)[0]
    played = roll_out(Optimal(), world, seed=2, trajectories=3, invalid=0.5)
    scores = [scores_of(episode, "known", invalid) for episode in played]
    assert all(any(step.action is None for step in episode.steps) for episode in played)
    # To stand still is never what the most rational member does while it has a use for its decisions.
    assert (min(nats[-1] for nats in scores) < -20) == (invalid == "action")
    assert all(nats[KNOTS == 0] == pytest.approx(0, abs=1e-12) for nats in scores)


def test_the_command_prints_and_stores_what_is_restricted(tmp_path: Path) -> None:
    small = ("--set", "worlds.0.sizes=[7]", "--set", "worlds.0.densities=[0.6]", "--set", "worlds.0.count=3")
    call("run", "fog", *small, "--agents", "optimal;random", "--trajectories", "1", "--out", tmp_path / "fog")
    printed = call("meg", tmp_path / "fog", "--hypotheses", "goal", "--seen", "known", "--json")
    told = json.loads(printed[printed.index("{") :])
    names = [one["hypothesis"] for one in told["estimates"]]
    for one in told["estimates"]:
        assert ("restricted class" in one["note"]) != ("sees the whole maze" in one["note"])
    assert names.count("goal") == names.count("goal, restricted class (known)") == 2
    call("meg", tmp_path / "fog", "--seen", "everything", status=2)


def test_worlds_without_fog_are_refused() -> None:
    plain = GridWorld(grid=fogged(1)[0].grid)
    played = roll_out(Uniform(), plain, seed=0, trajectories=1)
    with pytest.raises(ValueError, match="leave --seen out"):
        restricted(played, "open")
