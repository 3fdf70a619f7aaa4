"""MEG from runs: how long 300 grids with three agents take, and how often its intervals cover.

    python benchmarks/meg_runs.py             time, 300 grids x 3 agents x 10 episodes
    python benchmarks/meg_runs.py --coverage  coverage of plain percentile intervals, expanded ones, and what is stored

Coverage: a population of 120 worlds; each agent's mean utility in each of them, and so its true MEG, is that of a bank
of 300 episodes. A draw takes grids and episodes from these with replacement.
"""

import sys
import time

import numpy as np
import numpy.typing as npt

from goalscope._ground.folder import Spill
from goalscope._ground.rng import stream
from goalscope.agents import EpsilonGreedy, Optimal, Uniform
from goalscope.agents.agent import Agent
from goalscope.goals import directedness
from goalscope.goals.curves import Curves, interval, process_of_episode, weigh, with_random
from goalscope.goals.hypotheses import FiniteWorld, parse
from goalscope.goals.hypotheses.states import states_of
from goalscope.goals.reading import default_hypotheses
from goalscope.measures import StepTable
from goalscope.measures.testing import roll_out
from goalscope.meg import RationalityCurve
from goalscope.runs import GridWorld
from goalscope.worlds.dynamics import initial_state
from goalscope.worlds.generate import generate_batch
from goalscope.worlds.grid import Grid
from goalscope.worlds.planning import solve
from goalscope.worlds.planning.process import grid_process
from goalscope.worlds.planning.shortest import shortest_length

BANK, DRAWS, NULLS = 300, 200, 200


def timing() -> None:
    """Print the time of `directedness` at the size of a study."""
    agents: tuple[Agent, ...] = (Optimal(), EpsilonGreedy(0.3), Uniform())
    episodes = []
    for size in (7, 9, 11, 13, 15):
        for density in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
            for index, grid in enumerate(generate_batch(size, density, seed=1, count=10, minimum_distance=2)):
                world = GridWorld(grid=grid, tags={"size": size, "density": density, "index": index})
                for agent in agents:
                    episodes += roll_out(agent, world, seed=1, trajectories=10)
    usual, goal = default_hypotheses(episode.world for episode in episodes), {"goal": parse("goal")}
    for what, hypotheses, by in (
        ("five hypotheses", usual, ()),
        ("five hypotheses, also by size and density", usual, ("size", "density")),
        ("the goal alone", goal, ()),
    ):
        began, worked = time.perf_counter(), time.process_time()
        directedness(states_of(StepTable.from_episodes(episodes), by=by), hypotheses, by=by)
        print(f"{what}: {time.perf_counter() - began:.1f} s ({time.process_time() - worked:.1f} s of one core)")


def coverage() -> None:
    """Print the coverage of three intervals for the signed MEG towards the goal."""
    grids = [
        grid
        for size in (7, 9, 11)
        for density in (0.0, 0.4, 0.8, 1.0)
        for grid in generate_batch(size, density, seed=3, count=10, minimum_distance=3)
    ]
    horizons = [int(np.ceil(1.5 * shortest_length(grid))) for grid in grids]
    curves = []
    for grid, horizon in zip(grids, horizons, strict=True):
        world = _finite(grid, horizon)
        episode = process_of_episode(world, parse("goal").utility(world), kind="steps", invalid="no-op")
        curves.append(Curves.of(RationalityCurve(episode)))
    rng = stream(7, "coverage")
    banks = {
        epsilon: np.stack([_bank(grid, horizon, epsilon, rng) for grid, horizon in zip(grids, horizons, strict=True)])
        for epsilon in (1.0, 0.95, 0.7, 0.3, 0.0)
    }
    whole = Curves.joined(curves)
    uniform = whole.uniform
    print("epsilon grids episodes  truth  percentile  expanded  stored   width")
    for epsilon, bank in banks.items():
        means = bank.mean(axis=1) - uniform
        share = np.full((1, len(curves)), 1 / len(curves))
        truth = 0.0 if epsilon == 1 else float(whole.mixed(share).fit(share @ means)[0][0])
        for count, episodes in ((5, 5), (10, 5), (20, 5), (20, 1), (60, 10)):
            hits, widths = np.zeros(3), 0.0
            for _ in range(DRAWS):
                drawn: npt.NDArray[np.int64] = rng.integers(0, len(curves), count)
                table = Curves.joined([curves[index] for index in drawn])
                got = bank[drawn[:, None], rng.integers(0, BANK, (count, episodes))].mean(axis=1) - uniform[drawn]
                weights = weigh([str(index) for index in range(count)], seed=0, spill=Spill())
                value = float(table.mixed(weights.whole).fit(weights.whole @ got)[0][0])
                values = table.mixed(weights.resampled).fit(weights.resampled @ got)[0]
                random = banks[1.0][drawn[None, :, None], rng.integers(0, BANK, (NULLS, count, episodes))]
                null = table.mixed(weights.whole).fit((random.mean(axis=2) - uniform[drawn]).mean(axis=1))[0]
                plain = np.quantile(values, [0.025, 0.975])
                low, high = interval(values, count, 0.95)
                wide = with_random((low, high), value, null, 0.95)
                for index, ends in enumerate(((plain[0], plain[1]), (low, high), wide)):
                    hits[index] += ends[0] - 1e-9 <= truth <= ends[1] + 1e-9
                widths += wide[1] - wide[0]
            plain_share, expanded, hull = hits / DRAWS
            print(
                f"{epsilon:7.2f} {count:5d} {episodes:8d} {truth:6.3f} {plain_share:11.3f} {expanded:9.3f} {hull:7.3f} "
                f"{widths / DRAWS:7.3f}"
            )


def _finite(grid: Grid, horizon: int) -> FiniteWorld:
    return FiniteWorld(world=GridWorld(grid=grid), process=grid_process(grid), horizon=horizon)


def _bank(grid: Grid, horizon: int, epsilon: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return the utilities of many episodes of an epsilon-greedy agent in one world."""
    world = _finite(grid, horizon)
    table, utility = np.asarray(world.process.transitions), parse("goal").utility(world)
    best = solve(grid).optimal.reshape(len(table), 4)
    count = best.sum(axis=1, keepdims=True)
    greedy = np.where(count > 0, best / np.maximum(count, 1), 0.25)
    chances = np.cumsum((1 - epsilon) * greedy + epsilon / 4, axis=1)
    first = initial_state(grid).position
    state = np.full(BANK, first[0] * grid.width + first[1])
    total = np.zeros(BANK)
    for _ in range(horizon):
        total += utility[state]
        action = np.minimum((rng.random(BANK)[:, None] >= chances[state]).sum(axis=1), 3)
        state = table[state, action]
    return total


if __name__ == "__main__":
    coverage() if "--coverage" in sys.argv else timing()
