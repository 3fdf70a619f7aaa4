"""Unknown utilities with a free value of the last state: enumerated action sequences, the bound, the record."""

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from meg_worlds import random_policy
from scipy.optimize import minimize

from goalscope._ground.rng import stream
from goalscope.meg import meg_unknown
from goalscope.worlds.planning import TabularMDP, occupancy


def world(seed: int, states: int = 3, horizon: int = 3) -> TabularMDP:
    successor = stream(seed, "terminal world").integers(0, states, (states, 2))
    return TabularMDP.deterministic(successor, utility=np.zeros(states), horizon=horizon, start=np.eye(states)[0])


def visits(mdp: TabularMDP) -> npt.NDArray[np.float64]:
    """Visits of each state at a decision, then of each state after the last one, for every action sequence."""
    table, rows = np.asarray(mdp.transitions), []
    for taken in itertools.product(range(mdp.actions), repeat=mdp.horizon):
        state, row = 0, np.zeros(2 * mdp.states)
        for action in taken:
            row[state] += 1
            state = int(table[state, action])
        row[mdp.states + state] += 1
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("seed", range(6))
def test_both_values_together_are_the_optimum_over_enumerated_sequences(seed: int) -> None:
    mdp = world(seed)
    policy = random_policy(mdp, seed)
    counts, occupied = visits(mdp), occupancy(mdp, policy)
    observed = np.concatenate([occupied[:-1].sum(axis=0), occupied[-1]])

    def negative(w: npt.NDArray[np.float64]) -> float:
        scores = counts @ w
        return float(scores.max() + np.log(np.exp(scores - scores.max()).mean()) - w @ observed)

    found = meg_unknown(mdp, policy, terminal=True)
    oracle = minimize(negative, np.zeros(len(observed)), method="BFGS", options={"gtol": 1e-9})
    assert found.value == pytest.approx(-float(oracle.fun), abs=1e-6)
    assert found.terminal_utility is not None and found.terminal_utility.shape == (3,)
    reached = -negative(np.concatenate([found.utility, found.terminal_utility]))
    assert reached == pytest.approx(found.value, abs=1e-6)
    assert found.bound == pytest.approx(3 * math.log(2)) and found.value <= found.upper <= found.bound + 1e-12
    assert found.gap == found.upper - found.value and found.tabular == found.value
    without = meg_unknown(mdp, policy)
    assert without.terminal_utility is None and without.bound == pytest.approx(2 * math.log(2))
    assert without.value <= found.value + 1e-6


def test_states_that_nothing_reaches_have_no_utility() -> None:
    successor = np.array([[0, 1], [1, 0], [2, 2]])
    mdp = TabularMDP.deterministic(successor, utility=np.zeros(3), horizon=4, start=np.eye(3)[0])
    found = meg_unknown(mdp, np.array([[0.2, 0.8], [0.6, 0.4], [0.5, 0.5]]), terminal=True)
    assert found.terminal_utility is not None
    assert found.utility[2] == found.terminal_utility[2] == 0.0 and found.utility[:2].any()
    assert found.attained and found.residual < 1e-4 and math.isnan(found.spread) and not len(found.seed_values)
    with pytest.raises(ValueError, match="read-only"):
        found.utility[0] = 1.0
