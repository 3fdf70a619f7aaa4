"""MEG by simulation: the exact value lies within the bounds, which rest on enough episodes or are refused."""

from typing import Any

import numpy as np
import pytest

from families import long_after
from goalscope.meg import meg_known, meg_simulated
from goalscope.planning import TabularMDP, expected_utility, from_grid
from goalscope.worlds import generate


class Table:
    """A decision process that can only be run."""

    def __init__(self, mdp: TabularMDP) -> None:
        self.actions, self.horizon = mdp.actions, mdp.horizon
        self._first = np.cumsum(mdp.start).tolist()
        self._reward = mdp.reward.tolist()
        table = np.asarray(mdp.transitions)
        self._next = table.tolist() if table.ndim == 2 else None
        self._cumulated = None if table.ndim == 2 else np.cumsum(table, axis=2).tolist()
        self.visited = 0

    def start(self, rng: np.random.Generator) -> str:
        return f"state {self._draw(self._first, rng)}"

    def step(self, state: str, action: int, rng: np.random.Generator) -> tuple[str, float]:
        self.visited += 1
        at = int(state.split()[1])
        after = self._next[at][action] if self._next else self._draw(self._cumulated[at][action], rng)  # type: ignore[index]
        return f"state {after}", self._reward[at][action]

    @staticmethod
    def _draw(cumulated: list[float], rng: np.random.Generator) -> int:
        drawn = rng.random()
        return next((index for index, end in enumerate(cumulated) if drawn < end), len(cumulated) - 1)


def random_case(seed: int) -> tuple[TabularMDP, Any]:
    """Return a process with chance in every transition, and a policy of any quality."""
    rng = np.random.default_rng(seed)
    states, actions, horizon = int(rng.integers(3, 8)), int(rng.integers(2, 4)), int(rng.integers(3, 9))
    mdp = TabularMDP(
        transitions=rng.dirichlet(np.full(states, 0.4), size=(states, actions)),
        utility=rng.normal(size=(states, actions)) * 10.0 ** rng.integers(-2, 3),
        horizon=horizon,
        start=rng.dirichlet(np.ones(states)),
    )
    return mdp, rng.dirichlet(np.full(actions, 0.5), size=states)


def maze_case(seed: int) -> tuple[TabularMDP, Any]:
    """Return a 9x9 maze with 30 decisions whose goal random walks hardly find, and an agent of some noise."""
    grid = generate(9, (0.6, 0.8, 1.0)[seed % 3], rng=np.random.default_rng(seed), minimum_distance=8)
    mdp = from_grid(grid, horizon=30)
    epsilon = (0.0, 0.1, 0.3, 0.6)[seed % 4]
    best = meg_known(mdp, mean_return=meg_known(mdp, np.full((mdp.states, 4), 0.25)).highest_utility).policy()
    return mdp, (1 - epsilon) * best + epsilon / 4


def check(case: tuple[TabularMDP, Any], seed: int, **settings: Any) -> None:
    mdp, policy = case
    exact = meg_known(mdp, policy)
    found = meg_simulated(
        Table(mdp), mean_return=exact.utility, rng=np.random.default_rng(seed), confidence=0.999, **settings
    )
    assert found.low - 1e-6 <= exact.value <= found.high + 1e-6
    assert found.effective_size >= 100 and found.high <= mdp.horizon * np.log(mdp.actions)
    assert found.high - found.low <= 0.5 * max(exact.bound, exact.bound_lowest), "the bounds say something"


@pytest.mark.parametrize("seed", long_after(1, range(3)))
def test_the_exact_value_lies_within_the_bounds_where_there_is_chance(seed: int) -> None:
    check(random_case(seed), seed, episodes=400, learning=300)


@pytest.mark.full
def test_the_exact_value_lies_within_the_bounds_in_a_maze_with_a_rare_goal() -> None:
    check(maze_case(1), 1, episodes=200, learning=400)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(30))
def test_the_exact_value_lies_within_the_bounds_of_thirty_processes(seed: int) -> None:
    check(random_case(100 + seed), seed, episodes=1000)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
def test_the_exact_value_lies_within_the_bounds_of_twenty_mazes(seed: int) -> None:
    check(maze_case(seed), seed, episodes=500, learning=600)


def test_the_bounds_widen_with_the_interval_of_the_returns() -> None:
    mdp, policy = random_case(0)
    utility = expected_utility(mdp, policy)
    spread = np.tile([-1.0, 1.0], 20)
    narrow, wide = (
        meg_simulated(Table(mdp), utility + scale * spread, rng=np.random.default_rng(5), episodes=200, learning=200)
        for scale in (1e-6, 1.0)
    )
    assert wide.low <= narrow.low <= narrow.high <= wide.high and wide.high - wide.low > narrow.high - narrow.low


def test_a_model_that_knows_too_little_is_refused_by_its_effective_sample_size() -> None:
    rng = np.random.default_rng(3)
    table = rng.dirichlet(np.full(12, 0.3), size=(12, 3))
    steep = TabularMDP(transitions=table, utility=8 * rng.normal(size=(12, 3)), horizon=12, start=np.eye(12)[0])
    exact = meg_known(steep, mean_return=0.6 * meg_known(steep, np.full((12, 3), 1 / 3)).highest_utility)
    with pytest.raises(ValueError, match=r"effective sample size of at least 100, got .* of 100 episodes"):
        meg_simulated(Table(steep), mean_return=exact.utility, rng=np.random.default_rng(1), episodes=100, learning=2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "exactly one"),
        ({"returns": [1.0], "mean_return": 1.0}, "exactly one"),
        ({"returns": [1.0]}, "two episodes or more"),
        ({"returns": [1.0, np.nan]}, "returns"),
        ({"mean_return": 0.0, "episodes": 99}, "episodes"),
    ],
)
def test_what_bounds_cannot_be_made_of_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        meg_simulated(Table(random_case(0)[0]), rng=np.random.default_rng(0), **given)
