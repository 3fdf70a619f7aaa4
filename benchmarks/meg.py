"""Print the cost of maximum-entropy goal-directedness beside its peers, measured in one run.

    python benchmarks/meg.py

All compute the MEG of the same agent in the same world, to the same accuracy. Two peers: Brent's method (SciPy) on the
score of one rationality, with a plain backup over the table of following states, the shortest honest program; and the
paper's Algorithm 1, gradient ascent with a fixed step and dense backups over all S * A * S chances. The step of the
latter comes from the greatest curvature of W, which it is not charged for; Brent's method is stopped as soon as it is
within the accuracy, which it would not know. Figures are processor seconds of one core.
"""

import argparse
import contextlib
import math
import os
import time
from collections.abc import Callable
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before numpy: one core for both sides

import numpy as np  # noqa: E402
from scipy.optimize import minimize_scalar  # noqa: E402

from goalscope._ground.rng import stream  # noqa: E402
from goalscope.meg import meg_known, meg_unknown  # noqa: E402
from goalscope.worlds import generate  # noqa: E402
from goalscope.worlds.planning import TabularMDP, expected_utility, from_grid, value_iteration  # noqa: E402

SEED, DENSITY, SLIP = 0, 0.6, 0.3
ACCURACY = 1e-6  # nats
STEPS = (1.0, 1.8)  # step sizes that Algorithm 1 is tried with, over the greatest curvature; from 2 on it may diverge
LONGEST = 150
PAIRS = 7  # of ours and Brent's method, in turns


def world(size: int, horizon: int) -> tuple[TabularMDP, Any]:
    """Return a world with its goal and an agent that takes a random action with chance `SLIP`."""
    mdp = from_grid(generate(size, DENSITY, rng=stream(SEED, "meg benchmark", size)), horizon=horizon)
    optimal = value_iteration(mdp).optimal
    best = optimal / optimal.sum(axis=-1, keepdims=True)
    return mdp, (1 - SLIP) * best + SLIP / mdp.actions


def open_world(size: int, horizon: int) -> tuple[TabularMDP, Any]:
    """Return an empty room in which every state can be reached, with the same agent."""
    row, col = np.divmod(np.arange(size * size), size)
    moves = ((-1, 0), (1, 0), (0, -1), (0, 1))
    successor = np.stack(
        [np.clip(row + down, 0, size - 1) * size + np.clip(col + right, 0, size - 1) for down, right in moves], axis=1
    )
    goal = size * size - 1
    successor[goal] = goal
    states = np.eye(size * size)
    mdp = TabularMDP.deterministic(successor, utility=states[goal], horizon=horizon, start=states[0])
    optimal = value_iteration(mdp).optimal
    return mdp, (1 - SLIP) * optimal / optimal.sum(axis=-1, keepdims=True) + SLIP / 4


def timed(work: Callable[[], Any], repetitions: int = 3) -> tuple[float, Any]:
    """Return the least processor time in seconds and the result."""
    best, result = math.inf, None
    for _ in range(repetitions):
        begin = time.process_time()
        result = work()
        best = min(best, time.process_time() - begin)
    return best, result


def dense_tables(mdp: TabularMDP) -> Any:
    """Return the transitions ``[S * A, S]``: one product with a vector, faster than ``[S, A, S]`` state by state."""
    table = np.asarray(mdp.transitions)
    return np.ascontiguousarray((np.eye(mdp.states)[table] if table.ndim == 2 else table).reshape(-1, mdp.states))


def algorithm_1(mdp: TabularMDP, chances: Any, policy: Any, wanted: float, step: float) -> tuple[float, int]:
    """Climb with a fixed step until `wanted` is met to `ACCURACY`; return the last value and the number of steps."""
    utility, beta, value = expected_utility(mdp, policy), 0.0, 0.0
    n, reward, actions = mdp.horizon, mdp.reward, mdp.actions
    for count in range(1, LONGEST + 1):
        soft, to_come = np.empty((n, mdp.states, actions)), beta * mdp.final
        for t in reversed(range(n)):
            q = beta * reward + (chances @ to_come).reshape(reward.shape)
            top = q.max(axis=1)
            to_come = top + np.log(np.exp(q - top[:, None]).mean(axis=1))
            soft[t] = np.exp(q - to_come[:, None]) / actions
        gained, values = 0.0, mdp.final
        for t in reversed(range(n)):
            values = (soft[t] * (reward + (chances @ values).reshape(reward.shape))).sum(axis=1)
        gained = float(mdp.start @ values)
        value = beta * utility - float(mdp.start @ to_come)
        if abs(value - wanted) <= ACCURACY:
            return value, count
        beta += step * (utility - gained)
        if not math.isfinite(beta) or abs(beta) > 1e6:
            break
    return value, LONGEST + 1


class WithinAccuracyError(Exception):
    """The search is within the accuracy."""


def brent(mdp: TabularMDP, policy: Any, wanted: float) -> tuple[float, int]:
    """Maximise ``beta U - W(beta)`` by Brent's method until `wanted` is met; return the best value and the backups."""
    utility, after = expected_utility(mdp, policy), np.asarray(mdp.transitions)
    backups, best = 0, 0.0

    def loss(beta: float) -> float:
        nonlocal backups, best
        backups += 1
        to_come, scaled = beta * mdp.final, beta * mdp.reward
        for _ in range(mdp.horizon):
            q = scaled + to_come[after]
            top = q.max(axis=1)
            to_come = top + np.log(np.exp(q - top[:, None]).mean(axis=1))
        best = max(best, beta * utility - float(mdp.start @ to_come))
        if abs(best - wanted) <= ACCURACY:
            raise WithinAccuracyError
        return float(mdp.start @ to_come) - beta * utility

    with contextlib.suppress(WithinAccuracyError):
        minimize_scalar(loss, method="brent")
    return best, backups


def beside_brent(mdp: TabularMDP, policy: Any, wanted: float) -> None:
    """Print the times of ours and of Brent's method, in turns, and the median and range of their ratios."""
    spent: dict[str, list[float]] = {"ours": [], "brent": []}
    for _ in range(PAIRS):
        for name, work in (("ours", lambda: meg_known(mdp, policy)), ("brent", lambda: brent(mdp, policy, wanted))):
            begin = time.process_time()
            found = work()
            spent[name].append(time.process_time() - begin)
    value, backups = found if isinstance(found, tuple) else (math.nan, 0)
    ratios = np.array(spent["brent"]) / np.array(spent["ours"])
    done = f"{backups} backups" if abs(value - wanted) <= ACCURACY else f"NOT THERE, {value:.6f}"
    print(
        f"  Brent's method: {np.median(spent['brent']):.3f} s beside {np.median(spent['ours']):.3f} s, {done}: "
        f"{np.median(ratios):.2f} x [{ratios.min():.2f}, {ratios.max():.2f}] in {PAIRS} pairs",
        flush=True,
    )


def compare(size: int, horizon: int, make: Callable[[int, int], tuple[TabularMDP, Any]], name: str) -> None:
    """Print one line: our time, Algorithm 1's, their ratio."""
    mdp, policy = make(size, horizon)
    ours, found = timed(lambda: meg_known(mdp, policy))
    backups = found.curve.backups
    beside_brent(mdp, policy, found.value)
    chances = dense_tables(mdp)
    curvature = max(found.curve.at(beta).curvature for beta in np.linspace(0, found.beta, 60))
    print(f"{name}: {found.value:.6f} nats in {ours:.3f} s, {backups} backups")
    for factor in STEPS:
        begin = time.process_time()
        _, count = algorithm_1(mdp, chances, policy, found.value, factor / curvature)
        spent = time.process_time() - begin
        done = f"{count} steps" if count <= LONGEST else f"not there after {LONGEST} steps"
        over = "" if count <= LONGEST else "over "
        print(
            f"  Algorithm 1, step {factor} / greatest W'': {spent:.2f} s, {done}: {over}{spent / ours:.0f} x",
            flush=True,
        )


def main() -> None:
    """Print all figures."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"known utility; the peers stop within {ACCURACY:g} nats of the exact value")
    compare(15, 100, world, "15x15 world, 100 decisions")
    compare(15, 100, open_world, "15x15 room, 100 decisions")
    for size, horizon, target in ((15, 100, 0.3), (50, 200, 5.0)):
        mdp, policy = open_world(size, horizon)
        spent, found = timed(lambda mdp=mdp, policy=policy: meg_known(mdp, policy))  # type: ignore[misc]
        print(
            f"{size}x{size} room, {horizon} decisions: {spent:.3f} s, target {target} s, {found.curve.backups} backups"
        )
        beside_brent(mdp, policy, found.value)
        curve = found.curve
        mixes = np.linspace(0.05, 0.95, 40)
        begin, before = time.process_time(), curve.backups
        utilities = [curve.utility_of(mix * policy + (1 - mix) / 4) for mix in mixes]
        evaluation = (time.process_time() - begin) / len(mixes)
        for utility in utilities:
            curve.meg(utility)
        first, begin = curve.backups - before, time.process_time()
        for mix in mixes:
            curve.meg_of(mix * policy + (1 - mix) / 4)
        again = (time.process_time() - begin) / len(mixes)
        print(
            f"  40 more policies: {first} backups in all; then {1e3 * again:.1f} ms each, of which evaluating the "
            f"policy takes {1e3 * evaluation:.1f} ms"
        )
    mdp, policy = world(15, 100)
    spent, best = timed(lambda: meg_unknown(mdp, policy), 1)
    print(
        f"unknown utility, 15x15 world, 100 decisions: {spent:.2f} s, {best.evaluations} passes, "
        f"{best.value:.6f} nats, gap {best.gap:.1e}"
    )


if __name__ == "__main__":
    main()
