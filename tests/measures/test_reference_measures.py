"""Measures against literal, slow readings of the paper's definitions, and their baselines against enumeration."""

import itertools
import math
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.agents import EpsilonGreedy
from goalscope.measures import (
    Measure,
    StepTable,
    action_accuracy,
    action_optimality,
    calibration_error,
    policy_divergence,
    policy_entropy,
    rare_states,
    roll_out,
    sample_episodes,
    state_overlap,
    visits,
    visits_per_state,
    wall_bumps,
)
from goalscope.measures.visits import (
    Visits,
    binomial,
    divergence,
    entropy,
    expected_divergence,
    expected_entropy,
)
from goalscope.runs import Episode
from goalscope.worlds import GridWorld, State, generate_batch, shown
from goalscope.worlds import step as move
from goalscope.worlds.planning import optimal_actions

Group = tuple[str, str, str]
Counts = dict[State, Counter[int]]

EPISODES = [
    *sample_episodes(seed=1, trajectories=7, invalid=0.2),
    *sample_episodes(seed=2, trajectories=2, invalid=0.0),
]
TABLE = StepTable.from_episodes(EPISODES)


def groups() -> dict[Group, list[Episode]]:
    found: dict[Group, list[Episode]] = defaultdict(list)
    for episode in EPISODES:
        found[episode.agent, episode.world.id, str(sorted(episode.world.tags.items()))].append(episode)
    return found


def counts(episodes: Iterable[Episode]) -> Counts:
    found: Counts = defaultdict(Counter)
    for episode in episodes:
        for turn in episode.steps:
            if turn.action is not None:
                found[turn.state][int(turn.action)] += 1
    return found


def best(episode: Episode, state: State) -> set[int]:
    """The optimal set, found by looking at the grid as it is shown in this state."""
    seen = shown(episode.world.grid, state)
    return {int(action) for action in optimal_actions(seen, state.position, state.carrying_key)}


def literal_entropy(probabilities: Sequence[float]) -> float:
    return -sum(p * math.log2(p) for p in probabilities if p > 0)


def jsd(one: Sequence[float], other: Sequence[float]) -> float:
    middle = [(p + q) / 2 for p, q in zip(one, other, strict=True)]
    kl = [sum(p * math.log2(p / m) for p, m in zip(side, middle, strict=True) if p > 0) for side in (one, other)]
    return sum(kl) / 2


def ece(entries: list[tuple[float, float, float]], bins: int = 10) -> float:
    """Entries are (confidence, accuracy, weight)."""
    total = sum(weight for _, _, weight in entries)
    error = 0.0
    for index in range(bins):
        low, high = index / bins, (index + 1) / bins
        inside = [e for e in entries if low <= round(e[0], 12) < high or (index == bins - 1 and e[0] == 1.0)]
        size = sum(weight for _, _, weight in inside)
        if size:
            accuracy = sum(a * w for _, a, w in inside) / size
            confidence = sum(c * w for c, _, w in inside) / size
            error += size / total * abs(accuracy - confidence)
    return error


def values(measure: Measure) -> np.ndarray:
    """One value a group, in the order in which groups appear."""
    rows = measure.rows(TABLE)
    assert len(rows) == len(groups())
    return rows.value


def close(found: np.ndarray, expected: Sequence[float]) -> None:
    np.testing.assert_allclose(found, np.array(expected, dtype=float), rtol=1e-9, atol=1e-9)


def test_the_sample_is_worth_the_comparison() -> None:
    assert len(groups()) == 2 * 6 * 10
    assert (TABLE.action < 0).sum() > 200
    assert set(TABLE.state[:, 2].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("least", [1, 5])
def test_entropy_and_divergence(least: int) -> None:
    entropies, divergences, rare, visits = list[float](), list[float](), list[float](), list[float]()
    for episodes in groups().values():
        found = counts(episodes)
        kept = {state: taken for state, taken in found.items() if taken.total() >= least}
        policies = {state: [taken[a] / taken.total() for a in range(4)] for state, taken in kept.items()}
        targets = {state: best(episodes[0], state) for state in kept}
        uniform = {s: [1 / len(t) if a in t else 0.0 for a in range(4)] for s, t in targets.items()}
        entropies.append(fmean([literal_entropy(p) for p in policies.values()]) if kept else math.nan)
        divergences.append(fmean([jsd(p, uniform[s]) for s, p in policies.items()]) if kept else math.nan)
        rare.append(1 - len(kept) / len(found))
        visits.append(sum(taken.total() for taken in found.values()) / len(found))
    close(values(policy_entropy(least_visits=least)), entropies)
    close(values(policy_divergence(least_visits=least)), divergences)
    close(values(rare_states(least_visits=least)), rare)
    close(values(visits_per_state), visits)


def test_calibration_error() -> None:
    by_step = list[float]()
    for episodes in groups().values():
        found = counts(episodes)
        steps: list[tuple[float, float, float]] = []
        for episode in episodes:
            for turn in episode.steps:
                if turn.action is not None:
                    taken = found[turn.state]
                    right = float(turn.action in best(episode, turn.state))
                    steps.append((taken[int(turn.action)] / taken.total(), right, 1.0))
        by_step.append(ece(steps, 10))
    close(values(calibration_error()), by_step)


def test_jaccard() -> None:
    expected = list[float]()
    for episodes in groups().values():
        sets = [{*(turn.state for turn in episode.steps), episode.final} for episode in episodes]
        pairs = [len(one & other) / len(one | other) for one, other in itertools.combinations(sets, 2)]
        expected.append(fmean(pairs))
    close(values(state_overlap), expected)


@pytest.mark.parametrize("pairs", [1, 10, 40])
def test_jaccard_of_few_pairs_at_a_time_is_the_same(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = values(state_overlap)
    monkeypatch.setattr(visits, "_PAIRS", pairs)
    close(values(state_overlap), expected.tolist())


def test_jaccard_of_many_trajectories_is_that_of_random_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = values(state_overlap)
    for name, number in (("_ALL_PAIRS", 1), ("_PAIRS", 1 << 15)):
        monkeypatch.setattr(visits, name, number)
    found = values(state_overlap)
    assert 0 < max(abs(found - expected)) < 0.014  # five standard errors at most


def test_jaccard_of_many_trajectories_takes_little_memory() -> None:
    present = np.random.default_rng(0).random((8192, 30)) < 0.5
    tracemalloc.start()
    exact = visits._mean_overlap(present)
    assert tracemalloc.get_traced_memory()[1] < 300e6  # all pairs at once: 67 million of them, above 3 GB
    tracemalloc.stop()
    assert visits._sampled_overlap(present) == pytest.approx(exact, abs=0.0003)


def test_accuracy_and_bumps() -> None:
    accuracy, bumps, single = list[float](), list[float](), list[float]()
    for episode in EPISODES:
        right = [turn.action is not None and int(turn.action) in best(episode, turn.state) for turn in episode.steps]
        taken = [(turn.state, turn.action) for turn in episode.steps if turn.action is not None]
        stuck = [move(episode.world.grid, state, action) == state for state, action in taken]
        accuracy.append(fmean(right))
        bumps.append(fmean(stuck) if stuck else math.nan)
        single += right
    close(action_accuracy.rows(TABLE).value, accuracy)
    close(wall_bumps.rows(TABLE).value, bumps)
    np.testing.assert_array_equal(action_optimality.rows(TABLE).value, single)


# What an optimal agent would show: closed forms against enumeration of every sequence of actions, and simulation.


SMALL = [(visits, options) for options in (1, 2, 3, 4) for visits in (1, 2, 3, 5, 6)]


def policies(visits: int, options: int) -> np.ndarray:
    """The empirical policy ``[k^n, 4]`` of each equally likely sequence of n optimal actions out of k."""
    found = [
        [Counter(sequence)[action] / visits for action in range(4)]
        for sequence in itertools.product(range(options), repeat=visits)
    ]
    return np.array(found)


@pytest.mark.parametrize(("visits", "options"), SMALL)
def test_expectations_equal_enumeration(visits: int, options: int) -> None:
    every = policies(visits, options)
    optimal = np.tile(np.arange(4) < options, (len(every), 1))
    one = np.array([visits]), np.array([options])
    assert expected_entropy(*one) == pytest.approx([entropy(every).mean()], abs=1e-12)
    assert expected_divergence(*one) == pytest.approx([divergence(every, optimal).mean()], abs=1e-12)


def test_known_values() -> None:
    number, options = np.array([1, 1, 2, 10**6]), np.array([2, 1, 2, 2])
    np.testing.assert_allclose(expected_divergence(number, options), [0.3112781, 0, 0.1556391, 0], atol=1e-6)
    np.testing.assert_allclose(expected_entropy(number, options), [0, 0, 0.5, 1], atol=1e-5)
    np.testing.assert_allclose(binomial(4, 2), np.array([1, 4, 6, 4, 1]) / 16)
    assert binomial(500, 3).sum() == pytest.approx(1)


@pytest.mark.parametrize("statistic", [expected_entropy, expected_divergence])
def test_expectations_of_many_visits_equal_simulation(statistic: Callable[..., np.ndarray]) -> None:
    rng = stream(0, "baseline", "simulation")
    for number, options in ((7, 2), (12, 3), (40, 4)):
        drawn = np.zeros((20000, 4))
        drawn[:, :options] = rng.multinomial(number, np.full(options, 1 / options), size=20000) / number
        optimal = np.tile(np.arange(4) < options, (len(drawn), 1))
        shown = {
            expected_entropy: entropy(drawn),
            expected_divergence: divergence(drawn, optimal),
        }[statistic]
        error = shown.std() / np.sqrt(len(shown))
        assert abs(statistic(np.array([number]), np.array([options]))[0] - shown.mean()) < 4 * error


def test_calibration_baseline_equals_simulation_with_the_same_visits() -> None:
    """Redraw every state's actions uniformly from its optimal set, as often as it was visited."""
    grid = generate_batch(7, 0.0, seed=6, count=1, minimum_distance=6)[0]
    episodes = roll_out(EpsilonGreedy(0.2), GridWorld(grid=grid), seed=1, trajectories=4)
    table = StepTable.from_episodes(episodes)
    visits = Visits.from_table(table)
    rng = stream(1, "calibration", "simulation")
    errors = []
    for _ in range(1500):
        counts = np.array(
            [rng.multinomial(n, row / row.sum()) for n, row in zip(visits.number, visits.optimal, strict=True)]
        )
        errors.append(reference_error(counts, visits.optimal))
    baseline = calibration_error(part="optimal baseline").rows(table).value
    assert len(baseline) == 1
    assert abs(baseline[0] - fmean(errors)) < 4 * np.std(errors) / np.sqrt(len(errors)) + 1e-12


def reference_error(counts: np.ndarray, optimal: np.ndarray) -> float:
    entries = []
    for taken, best in zip(counts, optimal, strict=True):
        entries += [(taken[a] / taken.sum(), float(best[a]), taken[a]) for a in np.flatnonzero(taken)]
    confidence, accuracy, weight = (np.array(column, dtype=float) for column in zip(*entries, strict=True))
    place = np.minimum(np.floor(confidence * 10 + 1e-9), 9).astype(int)
    gap = np.bincount(place, weights=weight * (accuracy - confidence), minlength=10)
    return float(np.abs(gap).sum() / weight.sum())
