"""The vectorised measures against literal, slow readings of the paper's definitions."""

import itertools
import math
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

import numpy as np
import pytest

from goalscope.measures import (
    Measure,
    StepTable,
    action_accuracy,
    action_optimality,
    calibration_error,
    policy_divergence,
    policy_entropy,
    rare_states,
    sample_episodes,
    state_overlap,
    visits,
    visits_per_state,
    wall_bumps,
)
from goalscope.runs import Episode
from goalscope.worlds import State, shown
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


def entropy(probabilities: Sequence[float]) -> float:
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
        entropies.append(fmean([entropy(p) for p in policies.values()]) if kept else math.nan)
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
