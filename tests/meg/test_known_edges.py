"""Degenerate worlds, extreme numbers, and MEG from samples of returns: 0, a limit or a clear error, never NaN."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meg_worlds import random_policy, worlds

from goalscope._ground.rng import stream
from goalscope.goals.meg._fast import Knots
from goalscope.meg import RationalityCurve, meg_known
from goalscope.worlds import generate
from goalscope.worlds.planning import TabularMDP, from_grid, value_iteration
from goalscope.worlds.planning import soft as soft_module


def chain(utility: Any = (0.0, 1.0), horizon: int = 3) -> TabularMDP:
    """Stay or go; once gone, gone."""
    return TabularMDP.deterministic(
        np.array([[0, 1], [1, 1]]),
        utility=np.asarray(utility, dtype=float),
        horizon=horizon,
        start=np.array([1.0, 0.0]),
    )


def test_decisions_without_consequence_add_exactly_nothing() -> None:
    policy = np.array([[0.25, 0.75], [0.5, 0.5]])
    plain = meg_known(chain(horizon=2), policy)
    for more in range(1, 5):
        inert = np.array([[0, 1], [1, 1]])
        mdp = TabularMDP.deterministic(
            inert, utility=np.array([0.0, 0.0]), horizon=1 + more, start=np.array([0.0, 1.0])
        )
        assert meg_known(mdp, policy).value == 0.0
    late = TabularMDP.deterministic(
        np.array([[1, 2], [1, 1], [2, 2]]), utility=np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]), horizon=40,
        start=np.eye(3)[0], terminal_utility=np.array([0.0, 0.0, 1.0]),
    )  # fmt: skip
    one = replace(late, horizon=1)
    acts = np.array([[0.25, 0.75], [0.9, 0.1], [0.3, 0.7]])
    assert meg_known(late, acts).value == meg_known(one, acts).value == pytest.approx(plain.value, abs=1e-12)


def test_the_last_decision_changes_nothing_where_utility_is_of_states() -> None:
    first = np.tile(np.array([[0.5, 0.5], [0.5, 0.5]]), (3, 1, 1))
    last = first.copy()
    last[2] = [[1.0, 0.0], [0.0, 1.0]]
    curve = RationalityCurve(chain())
    assert curve.meg_of(first).value == curve.meg_of(last).value
    assert curve.reachable_bound == 2 * math.log(2) and curve.naive_bound == 3 * math.log(2)
    assert curve.policy(5.0)[2] == pytest.approx(np.full((2, 2), 0.5))


def test_what_nothing_reaches_has_no_say() -> None:
    """A wall of utility 1e300 that nothing leads to, and one that only the last decision leads to."""
    plain = chain()
    walled = TabularMDP.deterministic(
        np.array([[0, 1], [1, 1], [2, 0]]), utility=np.array([0.0, 1.0, 1e300]), horizon=3, start=np.eye(3)[0]
    )
    policy = np.array([[0.3, 0.7], [0.5, 0.5]])
    padded = np.concatenate([policy, [[0.5, 0.5]]])
    one, two = meg_known(plain, policy), meg_known(walled, padded)
    assert one.value == two.value and one.beta == two.beta and one.bound == two.bound
    far = TabularMDP.deterministic(  # three steps away: reached only after the last decision
        np.array([[0, 1], [1, 2], [2, 3], [3, 3]]),
        utility=np.array([0.0, 1.0, 1.0, -1e300]),
        horizon=3,
        start=np.eye(4)[0],
    )
    found = meg_known(far, np.full((4, 2), 0.5))
    assert found.value == pytest.approx(0.0, abs=1e-12) and found.highest_utility == 2.0


def test_forced_utilities_of_any_size_leave_no_trace() -> None:
    for size in (0.0, 1.0, 1e9, -1e12):
        mdp = TabularMDP.deterministic(  # a forced first step worth `size`, then stay or go
            np.array([[1, 1], [1, 2], [2, 2]]), utility=np.array([size, 0.0, 1.0]), horizon=4, start=np.eye(3)[0]
        )
        found = meg_known(mdp, np.array([[0.5, 0.5], [0.3, 0.7], [0.5, 0.5]]))
        assert found.value == pytest.approx(meg_known(chain(), np.array([[0.3, 0.7], [0.5, 0.5]])).value, abs=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e-9, 1e9, 1e150, 1e300])
def test_scales_near_the_ends_of_floating_point(size: float) -> None:
    policy = np.array([[0.3, 0.7], [0.5, 0.5]])
    found = meg_known(chain((0.0, size)), policy)
    assert found.value == pytest.approx(meg_known(chain(), policy).value, abs=1e-10)
    assert math.isfinite(found.utility) and found.beta * size == pytest.approx(meg_known(chain(), policy).beta)


def test_ranges_beyond_ordinary_numbers_are_refused_and_chances_as_small_are_not() -> None:
    for size in (5e-324, 1e-310, 1e308):
        with pytest.raises(ValueError, match="utilit"):
            meg_known(chain((-size, size), horizon=9), np.full((2, 2), 0.5))
    rest: dict[str, Any] = {"utility": np.array([0.0, 1.0]), "horizon": 3}
    policy = np.array([[0.3, 0.7], [0.5, 0.5]])
    hardly = TabularMDP.deterministic(np.array([[0, 1], [1, 1]]), start=np.array([1e-300, 1.0]), **rest)
    assert meg_known(hardly, policy).value == pytest.approx(0.0, abs=1e-12)  # in all but one of 1e300 episodes
    slow = np.array([[[1.0, 1e-300], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    faster = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    found = meg_known(TabularMDP(transitions=slow, start=np.array([1.0, 0.0]), **rest), policy)
    other = meg_known(TabularMDP(transitions=faster, start=np.array([1.0, 0.0]), **rest), policy)
    assert math.isfinite(found.beta) and found.signed < 0 < found.value and other.signed < 0


def test_offsets_are_forgotten() -> None:
    policy = np.array([[0.3, 0.7], [0.5, 0.5]])
    found = meg_known(chain((1e9, 1e9 + 1)), policy)
    assert found.value == pytest.approx(meg_known(chain(), policy).value, abs=1e-9)


def test_nearly_optimal_agents_run_into_the_limit() -> None:
    curve = RationalityCurve(chain(horizon=6))
    values = []
    for slip in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-15, 0.0):
        found = curve.meg_of(np.array([[slip, 1 - slip], [0.5, 0.5]]))
        assert found.value <= curve.bound and not math.isnan(found.beta)
        values.append(found.value)
    assert values == sorted(values)
    assert len(set(values[:5])) == 5 and values[4] < curve.bound - 1e-10  # none is taken for optimal that is not
    assert values[-3] == pytest.approx(curve.bound, abs=1e-9) and values[-1] == curve.bound


@given(worlds(), st.integers(0, 999), st.floats(0, 1))
def test_nothing_is_ever_nan_between_uniform_and_optimal(arguments: dict[str, Any], seed: int, share: float) -> None:
    mdp = TabularMDP(**arguments)
    best = np.eye(mdp.actions)[value_iteration(mdp, minimise=seed % 2 == 0).optimal.argmax(axis=-1)]
    found = meg_known(mdp, share * best + (1 - share) / mdp.actions)
    assert math.isfinite(found.value) and not math.isnan(found.beta) and math.isfinite(found.signed)
    assert np.isfinite(found.policy()).all()


def test_errors_say_what_must_hold() -> None:
    curve = RationalityCurve(chain())
    good = np.full((2, 2), 0.5)
    with pytest.raises(ValueError, match="sum to 1"):
        meg_known(curve, np.array([[0.5, 0.4], [0.5, 0.5]]))
    with pytest.raises(ValueError, match=r"policy .*>= 0"):
        meg_known(curve, np.array([[1.5, -0.5], [0.5, 0.5]]))
    with pytest.raises(ValueError, match=r"\[S, A\]"):
        meg_known(curve, np.full((3, 2), 0.5))
    with pytest.raises(ValueError, match=r"\[n, S, A\]"):
        meg_known(curve, np.full((2, 2, 2), 0.5))
    with pytest.raises(ValueError, match="finite"):
        meg_known(curve, np.full((2, 2), np.nan))
    with pytest.raises(ValueError, match="real numbers"):
        meg_known(curve, np.full((2, 2), "x"))
    with pytest.raises(ValueError, match="policy, returns, mean_return"):
        meg_known(curve)
    with pytest.raises(ValueError, match="got policy, returns"):
        meg_known(curve, good, [1.0])
    with pytest.raises(ValueError, match=r"0 to 2.*3"):
        meg_known(curve, mean_return=3.0)
    with pytest.raises(ValueError, match="finite number"):
        meg_known(curve, mean_return=math.nan)
    with pytest.raises(ValueError, match="beta"):
        curve.at(math.inf)
    with pytest.raises(ValueError, match="NaN"):
        curve.policy(math.nan)
    with pytest.raises(ValueError, match="confidence"):
        meg_known(curve, returns=[0.0, 1.0], confidence=1.0)
    for horizon in (0, -3):
        with pytest.raises(ValueError, match="horizon"):
            chain(horizon=horizon)
    with pytest.raises(ValueError, match="sum to 1"):
        TabularMDP(transitions=np.full((2, 2, 2), 0.4), utility=np.zeros(2), horizon=2, start=np.array([1.0, 0.0]))


def test_returns_are_bad_returns() -> None:
    curve = RationalityCurve(chain())
    for bad, words in (
        ([], "episode"),
        ([[1.0]], "shape"),
        ([math.inf], "finite"),
        (["a"], "real numbers"),
        ([40.0, 41.0, 40.5], "40.5"),
    ):
        with pytest.raises(ValueError, match=words):
            meg_known(curve, returns=bad)


def test_an_interval_goes_through_the_conjugate() -> None:
    from scipy import stats

    curve = RationalityCurve(chain(horizon=6))
    returns = stream(1, "returns").choice([2.0, 3.0, 4.0, 5.0], size=40)
    found = meg_known(curve, returns=returns)
    ends = stats.t.interval(0.95, 39, loc=returns.mean(), scale=stats.sem(returns))
    assert curve.uniform > ends[0] or found.low == pytest.approx(curve.meg(ends[0]).value)
    assert found.high == pytest.approx(max(curve.meg(end).value for end in ends), abs=1e-9)
    assert (found.signed_low, found.signed_high) == pytest.approx([curve.meg(end).signed for end in ends], abs=1e-9)
    assert found.n == 40 and found.low <= found.value <= found.high and found.method.startswith("t of")
    assert found.bias == pytest.approx(returns.var(ddof=1) / (80 * curve.at(found.beta).curvature))
    even = meg_known(curve, returns=curve.uniform + np.array([-1.0, 1.0, -0.5, 0.6]))
    assert even.low == 0.0 < even.high and even.signed_low < 0 < even.signed_high


def test_few_or_equal_returns() -> None:
    curve = RationalityCurve(chain())
    single = meg_known(curve, returns=[1.0])
    assert math.isnan(single.low) and single.note == "one return: undefined interval" and single.n == 1
    same = meg_known(curve, returns=np.full(20, 2.0))
    assert same.value == same.high == curve.bound and 0 < same.low < curve.bound and "agreement" in same.method
    idle = TabularMDP.deterministic(np.array([[0]]), utility=np.array([3.0]), horizon=2, start=np.array([1.0]))
    flat = meg_known(idle, returns=[6.0, 6.0])
    assert flat.value == 0.0 and math.isnan(flat.low) and "no policy changes" in flat.note
    lucky = TabularMDP(
        transitions=np.array([[[0.5, 0.5], [0.6, 0.4]], [[0.0, 1.0], [0.0, 1.0]]]),
        utility=np.array([0.0, 1.0]),
        horizon=2,
        start=np.array([1.0, 0.0]),
    )
    found = meg_known(lucky, returns=[1.0, 1.0, 0.0])
    assert found.value == RationalityCurve(lucky).bound and found.beta == math.inf and "beyond" in found.note


def test_the_interval_of_returns_covers() -> None:
    """A biased walker, 40 episodes: the signed interval holds the exact figure in about 95 of 100 samples."""
    mdp = chain(horizon=6)
    curve = RationalityCurve(mdp)
    stay = 0.35
    exact = curve.meg_of(np.array([[stay, 1 - stay], [0.5, 0.5]])).signed
    waits = stream(2, "cover").geometric(1 - stay, size=(300, 40))
    hits = 0
    for sample in np.maximum(6.0 - waits, 0.0):
        found = meg_known(curve, returns=sample)
        hits += found.signed_low <= exact <= found.signed_high
    assert 0.91 <= hits / 300 <= 0.985


def test_many_policies_cost_no_more_backups() -> None:
    rng = stream(5, "many")
    mdp = from_grid(generate(size=9, density=0.4, rng=rng), horizon=30)
    curve = RationalityCurve(mdp)
    best = value_iteration(mdp).optimal.argmax(axis=-1)
    utilities = rng.uniform(curve.uniform, curve.highest, size=300)
    found = [curve.meg(utility) for utility in utilities]
    assert curve.backups < 100  # about one in three cost one; the next 300 below cost hardly any
    for utility, one in list(zip(utilities, found, strict=True))[::15]:
        fresh = RationalityCurve(mdp).meg(utility)
        assert one.value == pytest.approx(fresh.value, abs=1e-8) and one.beta == pytest.approx(fresh.beta, rel=1e-4)
        point = curve.at(one.beta)
        assert one.value == pytest.approx(one.beta * utility - point.log_normaliser, abs=1e-8)
    before = curve.backups
    for utility in rng.uniform(curve.uniform, curve.highest, size=300):
        curve.meg(utility)
    assert curve.backups - before < 30
    before = curve.backups
    curve.meg_of(0.5 * np.eye(4)[best] + 0.125)
    assert curve.backups - before <= 2


def test_worlds_too_large_to_keep_their_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = from_grid(generate(size=7, density=0.4, rng=stream(6, "keep")), horizon=20)
    policy = random_policy(mdp, 2)
    kept = meg_known(mdp, policy)
    monkeypatch.setattr(soft_module, "_KEEP", 0)
    anew = meg_known(mdp, policy)
    assert (anew.value, anew.beta, anew.bound) == (kept.value, kept.beta, kept.bound)
    assert RationalityCurve(mdp).soft._stored is None


def test_a_goal_that_chance_hardly_ever_finds() -> None:
    """A corridor of 40 steps where one wrong action ends all: uniform actions arrive with chance 2**-40."""
    steps = 40
    successor = np.array([[s + 1, steps + 1] for s in range(steps)] + [[steps, steps], [steps + 1, steps + 1]])
    curve = RationalityCurve(
        TabularMDP.deterministic(
            successor,
            utility=np.zeros(steps + 2),
            horizon=steps,
            start=np.eye(steps + 2)[0],
            terminal_utility=np.eye(steps + 2)[steps],
        )
    )
    assert curve.bound == pytest.approx(steps * math.log(2)) and curve.bound_lowest < 1e-11
    q = 2.0**-steps  # the outcome is a Bernoulli variable of chance q under uniform actions
    for share in (0.0, 0.01, 0.3, 0.5, 0.6, 0.9, 0.99, 1.0):
        p = (0.5 + share / 2) ** steps
        found = curve.meg_of(np.tile([0.5 + share / 2, 0.5 - share / 2], (steps + 2, 1)))
        exact = p * math.log(p / q) + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)
        assert found.value == pytest.approx(exact, abs=1e-9) and found.signed >= 0
    for p in stream(4, "rare").random(200) ** 8:
        exact = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
        assert curve.meg(p).value == pytest.approx(exact, abs=1e-7)


@given(worlds(), st.lists(st.floats(-20, 20), min_size=3, max_size=12))
def test_interpolated_curves_are_the_backups_to_their_tolerance(arguments: dict[str, Any], asked: list[float]) -> None:
    soft = RationalityCurve(TabularMDP(**arguments)).soft
    knots = Knots(lambda b: np.stack(soft.backup([b])), 1e-9)
    for rationality in (-20.0, 20.0, *asked, *(b + 1e-3 for b in asked)):
        found, plain = knots(rationality, 1e-4)[:, 0], np.concatenate(soft.backup([rationality]))
        assert found[0] == pytest.approx(plain[0], abs=1e-7) and found[1] == pytest.approx(plain[1], abs=1e-3)


def lottery(chance: float = 0.5, horizon: int = 10) -> TabularMDP:
    """A ticket that wins with a chance, and one that wins with a tenth; who has won is paid in all that follow."""
    table = np.zeros((3, 2, 3))
    table[0] = [[0, chance, 1 - chance], [0, 0.1, 0.9]]
    table[1, :, 1] = table[2, :, 2] = 1
    return TabularMDP(transitions=table, utility=np.eye(3)[1], horizon=horizon, start=np.eye(3)[0])


@pytest.mark.parametrize("seed", range(6))
def test_single_episodes_lie_in_the_range_of_all_histories(seed: int) -> None:
    rng = stream(seed, "range of episodes")
    states, actions, horizon = 4, 2, 3
    table = rng.dirichlet(np.full(states, 0.3), size=(states, actions)) * (rng.random((states, actions, states)) < 0.6)
    table[..., 0] += 1 - table.sum(axis=-1)
    offered = rng.random((states, actions)) < 0.7
    offered[:, 1] |= ~offered[:, 0]
    shape = [(states,), (states, actions), (states, actions, states)][seed % 3]
    start = np.array([0.5, 0.5, 0, 0])
    mdp = TabularMDP(
        transitions=table,
        utility=rng.normal(size=shape),
        horizon=horizon,
        start=start,
        terminal_utility=rng.normal(size=states),
        offered=offered,
    )
    gained = []
    for visited in itertools.product(range(states), repeat=horizon + 1):
        for taken in itertools.product(range(actions), repeat=horizon):
            moves = list(zip(visited, taken, visited[1:], strict=False))
            if start[visited[0]] and all(table[move] > 0 and offered[move[:2]] for move in moves):
                paid = sum(float(mdp.utility[move[: len(shape)]]) for move in moves)
                gained.append(paid + float(mdp.final[visited[-1]]))
    rows, to = np.nonzero(table.reshape(-1, states))
    possible = np.column_stack([rows // actions, rows % actions, to])
    rest = {name: getattr(mdp, name) for name in ("utility", "horizon", "start", "terminal_utility", "offered")}
    same = TabularMDP.sparse(possible, table.reshape(-1, states)[rows, to], actions=actions, **rest)
    for one in (mdp, same):
        assert RationalityCurve(one).episode_range == pytest.approx((min(gained), max(gained)))


def test_episodes_with_luck_may_agree_beyond_what_policies_attain_in_expectation() -> None:
    mdp = lottery()  # from 0.9 to 4.5 in expectation, 0 or 9 in an episode
    lost = meg_known(mdp, returns=[0.0] * 10)
    # A share of .69 of all episodes loses at least; the others may all win: 2.78 is possible, 4.5 is not.
    most = 9 * (1 - 0.025 ** (1 / 10))
    assert lost.signed_high == pytest.approx(meg_known(mdp, mean_return=most).signed)
    assert lost.signed == pytest.approx(-lost.bound_lowest)
    won = meg_known(mdp, returns=[9.0, 9.0])
    assert won.value == pytest.approx(won.bound) and "mean return" in won.note
    with pytest.raises(ValueError, match=r"returns.*11"):
        meg_known(mdp, returns=[11.0, 11.0])
