"""MEG from runs against slow literal versions: every action sequence of tiny worlds, and exact curves."""

import itertools
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from goal_tables import directed, finite, utilities_of, utility_in
from goalscope._ground.folder import Spill
from goalscope._ground.rng import stream
from goalscope.agents import EpsilonGreedy, Uniform, WrongGoal
from goalscope.goals import baselines
from goalscope.goals.baselines import Invalid, Utility, random_utilities
from goalscope.goals.curves import TOP, Curves, Ensemble, process_of_episode, weigh
from goalscope.goals.heldout import _fit, _normaliser
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.states import states_of
from goalscope.goals.meg.unknown import OccupancyDual
from goalscope.goals.reading import IN_GRIDS
from goalscope.measures import StepTable, roll_out
from goalscope.meg import RationalityCurve, SharedCurve, meg_known
from goalscope.runs import Episode, GridWorld, begin
from goalscope.worlds import ACTIONS, Grid, Position, State, generate_batch, step
from goalscope.worlds.planning import TabularMDP

Array = npt.NDArray[np.float64]


def drawn(*lines: str) -> Grid:
    return Grid.parse("\n".join(" ".join(line) for line in lines))


KEYED = drawn("#####", "#A_K#", "#_#_#", "#__G#", "#####")
PLAIN = drawn("#####", "#__A#", "#G#_#", "#___#", "#####")
DOOR = drawn("######", "#AKDG#", "######")


def literal_places(grid: Grid) -> dict[str, Position]:
    """Where the hypotheses of these small worlds are, read off the pictures."""
    if grid == KEYED:
        return {
            "goal": (3, 3),
            "key": (1, 3),
            "corner top-left": (1, 1),
            "corner top-right": (1, 3),
            "corner bottom-left": (3, 1),
        }
    if grid == PLAIN:
        return {"goal": (2, 1), "corner top-left": (1, 1), "corner bottom-left": (3, 1), "corner bottom-right": (3, 3)}
    return {
        "goal": (1, 4),
        "key": (1, 2),
        "corner top-left": (1, 1),
        "corner top-right": (1, 4),
        "corner bottom-left": (1, 1),
    }


def literal_utility(grid: Grid, states: list[State], name: str, utility: Utility) -> float:
    def fulfilled(state: State) -> bool:
        return state.carrying_key if name == "key held" else state.position == literal_places(grid)[name]

    return float(fulfilled(states[-1]) if utility == "arrival" else sum(map(fulfilled, states[:-1])))


def literal_walks(grid: Grid, horizon: int, actions: int) -> list[list[State]]:
    """The n + 1 states of every action sequence; the fifth action does nothing, the goal ends the episode."""
    walks = []
    for taken in itertools.product(range(actions), repeat=horizon):
        states = [begin(GridWorld(grid=grid))]
        for action in taken:
            here = states[-1]
            ended = here.position == grid.goal
            states.append(here if ended or action == 4 else step(grid, here, ACTIONS[action]))
        walks.append(states)
    return walks


@pytest.mark.parametrize("episodes", [1, 3, 7])
@pytest.mark.parametrize(("utility", "invalid"), [("steps", "no-op"), ("arrival", "no-op"), ("steps", "action")])
def test_random_agents_are_the_same_in_parts(
    episodes: int, utility: Utility, invalid: Invalid, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid.parse("A____\n_##__\nG_#__\n_____\n___#_")
    world = finite(grid, horizon=11)
    asked = {"goal": parse("goal").utility(world)}

    def simulated(exact: bool) -> Array:
        found = random_utilities(world, asked, episodes, 200, seed=0, kind=utility, invalid=invalid, exact=exact)
        return found["goal"]

    for exact in (False, True):
        whole = simulated(exact)
        monkeypatch.setattr(baselines, "_MOST_WALKS", 5 * episodes)
        parts = simulated(exact)
        monkeypatch.undo()
        assert whole.std() > 0 and whole.tobytes() == parts.tobytes()


@pytest.mark.parametrize("grid", [KEYED, PLAIN, DOOR], ids=["key", "plain", "door"])
@pytest.mark.parametrize(("utility", "invalid"), [("steps", "no-op"), ("arrival", "no-op"), ("steps", "action")])
def test_w_is_the_log_mean_over_all_action_sequences(grid: Grid, utility: Utility, invalid: Invalid) -> None:
    horizon, actions = (4, 5) if invalid == "action" else (5, 4)
    walks = literal_walks(grid, horizon, actions)
    names = [*literal_places(grid), *(["key held"] if grid.key else [])]
    for name in names:
        gained = np.array([literal_utility(grid, states, name, utility) for states in walks])
        world = finite(grid, horizon=horizon)
        curve = RationalityCurve(process_of_episode(world, parse(name).utility(world), kind=utility, invalid=invalid))
        assert curve.uniform == pytest.approx(gained.mean(), abs=1e-12)
        assert curve.highest == pytest.approx(gained.max(), abs=1e-9)
        table = Curves.of(curve)
        for beta in (-2.0, -0.3, 0.0, 0.4, 1.7, 6.0):
            literal = float(np.log(np.exp(beta * gained).mean()))
            assert curve.at(beta).log_normaliser == pytest.approx(literal, abs=1e-9)
            term = table.terms(beta, np.array([0.5]))[0]
            assert term == pytest.approx(beta * (0.5 + curve.uniform) - literal, abs=1e-4)
        assert curve.bound == pytest.approx(
            -np.log((gained == gained.max()).mean()) if np.ptp(gained) else 0.0, abs=1e-9
        )


def test_hypotheses_without_a_meaning_are_none_and_a_corner_is_that_cell_or_nothing() -> None:
    plain = finite(PLAIN)
    assert utility_in(plain, "key") is None and utility_in(finite(PLAIN, key=(1, 1)), "key held") is None
    assert utility_in(plain, "cell 0 0") is None and utility_in(plain, "cell 9 9") is None
    found = utility_in(plain, "cell 3 2")
    assert found is not None and np.flatnonzero(found).tolist() == [3 * 5 + 2]
    twin = utility_in(finite(PLAIN, key=(1, 2)), "key")
    assert twin is not None and np.flatnonzero(twin).tolist() == [7]
    behind = utility_in(finite(DOOR), "corner top-right")
    assert behind is not None and set((np.flatnonzero(behind) % 18).tolist()) == {1 * 6 + 4}, "the goal's cell"
    # A corner that is entered only through the goal, which ends the episode, is that cell, and out of reach.
    grids = (drawn("#####", "#AG_#", "#####"), drawn("#####", "#GA_#", "#####"))
    episodes = [one for grid in grids for one in roll_out(Uniform(), GridWorld(grid=grid), seed=1, trajectories=2)]
    [corner] = directed(episodes, "corner top-right").estimates
    assert (corner.worlds, corner.out_of_reach) == (1, 1)


@pytest.mark.parametrize("utility", ["steps", "arrival"])
def test_utilities_of_episodes_are_what_a_literal_count_gives(utility: Utility) -> None:
    episodes: list[Episode] = []
    for grid in (KEYED, PLAIN, DOOR):
        for agent in (Uniform(), EpsilonGreedy(0.4), WrongGoal("bottom-left")):
            episodes += roll_out(agent, GridWorld(grid=grid), seed=3, trajectories=4, horizon=9, invalid=0.2)
    states = states_of(StepTable.from_episodes(episodes))
    found = {name: utilities_of(states, name, arrival=utility == "arrival") for name in IN_GRIDS}
    checked = 0
    for episode in episodes:
        walked = [turn.state for turn in episode.steps]
        walked += [episode.final] * (9 + 1 - len(walked))
        for name in literal_places(episode.world.grid):
            assert found[name][episode.id] == literal_utility(episode.world.grid, walked, name, utility)
            checked += 1
    assert checked > 100 and episodes[len(episodes) // 2].id not in found["key"]


def test_random_agents_have_the_mean_of_the_curve() -> None:
    world = finite(PLAIN, horizon=6)
    goal = parse("goal").utility(world)
    invalids: tuple[Invalid, ...] = ("no-op", "action")
    for invalid in invalids:
        curve = RationalityCurve(process_of_episode(world, goal, kind="steps", invalid=invalid))
        drawn = random_utilities(world, {"goal": goal}, 50, 200, seed=0, kind="steps", invalid=invalid)["goal"]
        assert drawn.shape == (200,)
        error = drawn.std(ddof=1) / np.sqrt(200)
        assert abs(drawn.mean() - curve.uniform) < 4 * error


def test_tables_agree_with_exact_curves_over_several_worlds() -> None:
    curves = []
    for size, density in ((7, 0.0), (9, 0.6), (11, 1.0)):
        for grid in generate_batch(size, density, seed=4, count=3, minimum_distance=4):
            world = finite(grid, horizon=14)
            goal = parse("goal").utility(world)
            curves.append(RationalityCurve(process_of_episode(world, goal, kind="steps", invalid="no-op")))
    table = Curves.joined([Curves.of(curve) for curve in curves])
    rng = stream(0, "weights")
    for share in (-0.9, -0.2, 1e-4, 0.02, 0.3, 0.7, 0.97, 1.0, 1.2):
        end = np.array([curve.highest if share > 0 else curve.lowest for curve in curves])
        utilities = table.uniform + abs(min(share, 1.0)) * (end - table.uniform)
        counts = rng.integers(0, 3, len(curves)) + 1.0
        exact = SharedCurve(curves).meg(utilities, counts)
        relative = utilities - table.uniform
        weights = (counts / counts.sum())[None]
        signed, beta = table.mixed(weights).fit(weights @ relative * max(share, 1.0))
        assert signed[0] == pytest.approx(exact.signed, abs=2e-4 * max(1.0, exact.bound))
        assert beta[0] == pytest.approx(exact.beta, rel=0.02) or abs(beta[0]) >= TOP
        terms = table.terms(float(beta[0]), relative)
        assert float(weights[0] @ terms) == pytest.approx(abs(exact.signed), abs=2e-4 * max(1.0, exact.bound))


def test_one_world_is_meg_known_with_returns() -> None:
    world = GridWorld(grid=PLAIN)
    episodes = roll_out(EpsilonGreedy(0.5), world, seed=1, trajectories=20, horizon=8)
    found = directed(episodes, "goal", "corner bottom-right")
    for estimate in found.estimates:
        at = finite(PLAIN, horizon=8)
        mdp = process_of_episode(at, parse(estimate.hypothesis).utility(at), kind="steps", invalid="no-op")
        returns = utilities_of(states_of(StepTable.from_episodes(episodes)), estimate.hypothesis)
        known = meg_known(mdp, returns=list(returns.values()))
        assert (estimate.signed, estimate.low, estimate.high) == (known.signed, known.signed_low, known.signed_high)
        assert estimate.beta == known.beta and estimate.method == known.method and estimate.n == 20
        assert estimate.bound == pytest.approx(known.bound)
        # Of an agent that does worse than a random one no share is given.
        assert estimate.share == pytest.approx(known.share if known.signed > 0 else np.nan, nan_ok=True)
    assert np.isnan(found.contrasts[0].low) and found.contrasts[0].adjusted == 1.0


def test_unknown_utilities_have_the_normaliser_of_all_sequences_and_a_stationary_fit() -> None:
    horizon = 4
    mdp = process_of_episode(finite(PLAIN, horizon=horizon), np.zeros(25), kind="steps", invalid="no-op")
    dual = OccupancyDual(mdp, np.full((25, 4), 0.25), terminal=False)
    walks = literal_walks(PLAIN, horizon, 4)
    counts = np.zeros((len(walks), 25))
    for row, states in enumerate(walks):
        for state in states[:-1]:
            counts[row, state.position[0] * 5 + state.position[1]] += 1
    weights = stream(0, "weights").normal(size=len(dual.reached.kept))
    scores = counts[:, dual.reached.kept] @ weights
    log_normaliser, occupancy = _normaliser(dual, weights)
    assert log_normaliser == pytest.approx(float(np.log(np.exp(scores).mean())), abs=1e-12)
    soft = np.exp(scores) @ counts[:, dual.reached.kept] / np.exp(scores).sum()
    assert occupancy == pytest.approx(soft, abs=1e-12)
    observed = counts[:7, dual.reached.kept].mean(axis=0)
    fitted = _fit(dual, observed, 0.25)
    assert _normaliser(dual, fitted)[1] + 0.25 * fitted == pytest.approx(observed, abs=1e-4)


def test_an_episode_that_a_failure_ended_stands_still_and_a_stopped_one_is_left_out() -> None:
    episodes = roll_out(WrongGoal("bottom-right"), GridWorld(grid=PLAIN), seed=1, trajectories=3, horizon=9)
    cut = episodes[0].steps[:6]
    ended = replace(episodes[0], steps=cut, final=episodes[0].steps[6].state, outcome="failure")
    stopped = replace(episodes[1], steps=episodes[1].steps[:6], final=episodes[1].steps[6].state, outcome="stopped")
    [found] = states_of(StepTable.from_episodes([ended, stopped, episodes[2]]))
    assert utilities_of([found], "corner bottom-right") == {ended.id: 7.0, episodes[2].id: 7.0}
    assert found.failed == 1 and found.complete.tolist() == [True, False, True]


@pytest.mark.parametrize("lucky", [False, True])
def test_cross_fitted_scores_of_two_worlds_by_hand(lucky: bool) -> None:
    """Either half is one world; the utility of the first lies beyond what any policy attains in expectation."""
    curves = []
    for chance in (0.4, 0.6):
        table = np.zeros((3, 2, 3))
        table[0] = [[0, chance, 1 - chance], [0, 0.1, 0.9]]
        table[1, :, 1] = table[2, :, 2] = 1
        curves.append(
            RationalityCurve(TabularMDP(transitions=table, utility=np.eye(3)[1], horizon=10, start=np.eye(3)[0]))
        )
    got, count = np.array([4.5, 4.0]), 20  # at most 3.6 and 5.4 in expectation
    scores = []
    for fitted, held in ((0, 1), (1, 0)):
        one, other = curves[fitted], curves[held]
        inside = min(got[fitted], one.highest) - one.uniform
        beta = one.meg(one.uniform + inside * count / (count + 1)).beta
        scored = got[held] if lucky else min(got[held], other.highest)
        scores.append(beta * scored - other.at(beta).log_normaliser)
    joined = Curves.joined([Curves.of(one) for one in curves])
    ensemble = Ensemble([(slice(0, 2), joined)], weigh(["a", "b"], seed=0, spill=Spill()))
    relative = got - np.array([one.uniform for one in curves])
    found = ensemble.cross_fitted(relative, np.array([count, count]), lucky=lucky)
    assert found == pytest.approx(np.mean(scores), abs=1e-6)
