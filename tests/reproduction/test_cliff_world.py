"""Cliff World: worked values, an independent slow computation, the off-by-one and its smallest case."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.special import logsumexp
from typer.testing import CliRunner

from families import long_after
from goalscope.cli import app
from goalscope.meg import RationalityCurve, meg_known, meg_unknown
from goalscope.papers.cliff_world import (
    GOAL_LENGTHS,
    HORIZON,
    PRINTED,
    CliffCase,
    CliffStudy,
    cliff_study,
    cliff_world,
    greedy,
    off_by_one,
)
from goalscope.worlds.planning import TabularMDP, value_iteration

Array = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def study() -> CliffStudy:
    return cliff_study()


def by_setting(cases: tuple[CliffCase, ...]) -> dict[float, CliffCase]:
    return {case.setting: case for case in cases}


# The literal version: a world written cell by cell, one backup for each rationality.


def slow_world(goal_length: int) -> tuple[Array, Array]:
    moves, utility = np.zeros((40, 4, 40)), np.zeros(40)
    for row in range(4):
        for col in range(10):
            here = 10 * row + col
            goal = (row == 0 and col > 9 - goal_length) or (col == 9 and row < goal_length)
            utility[here] = 10 if goal else -10 if row == 0 and col > 0 else -1
            for action, (left, up) in enumerate([(True, True), (False, True), (True, False), (False, False)]):
                for blown in (False, True):
                    down = row + (-1 if up else 1) - (1 if blown else 0)
                    right = col + (-1 if left else 1)
                    there = 10 * min(max(down, 0), 3) + min(max(right, 0), 9)
                    moves[here, action, there] += 0.3 if blown else 0.7
    return moves, utility


def slow_greedy(moves: Array, utility: Array) -> Array:
    values, chosen = np.zeros(40), []
    for _ in range(HORIZON):
        table = utility[:, None] + moves @ values
        chosen.append(np.eye(4)[table.argmax(axis=1)])
        values = table.max(axis=1)
    return np.array(chosen[::-1])


def slow_soft(moves: Array, scaled: Array) -> tuple[float, Array]:
    """Return W and the soft policy for utilities in nats."""
    values, chosen = np.zeros(40), []
    for _ in range(HORIZON):
        table = scaled[:, None] + moves @ values
        values = logsumexp(table, axis=1) - np.log(4)
        chosen.append(np.exp(table - values[:, None]) / 4)
    return float(values[0]), np.array(chosen[::-1])


def slow_occupancy(moves: Array, policy: Array) -> Array:
    """Return the distribution of the state at times 1 to horizon + 1."""
    states = [np.eye(40)[0]]
    for chances in policy:
        states.append(np.einsum("s,sa,sax->x", states[-1], chances, moves))
    return np.array(states)


def test_the_world_is_the_one_written_out_cell_by_cell() -> None:
    for goal_length in GOAL_LENGTHS:
        moves, utility = slow_world(goal_length)
        mdp = cliff_world(goal_length)
        np.testing.assert_allclose(np.asarray(mdp.transitions), moves, atol=1e-15)
        np.testing.assert_array_equal(mdp.utility, utility)
        assert int((utility == 10).sum()) == 2 * goal_length - 1


def test_worked_values(study: CliffStudy) -> None:
    rows = by_setting(study.by_goal_length)
    assert [round(rows[k].known, 4) for k in GOAL_LENGTHS] == [40.2025, 21.3672, 19.4146, 18.8806]
    assert [round(rows[k].unknown, 4) for k in GOAL_LENGTHS] == [40.2025, 37.8046, 40.2025, 40.2025]
    assert rows[1].known == pytest.approx(29 * math.log(4), abs=1e-9)  # the last decision changes nothing
    rows = by_setting(study.by_epsilon)
    assert [round(rows[epsilon].known, 4) for epsilon in (0.1, 0.5, 0.9)] == [23.7886, 2.0113, 0.0888]
    assert rows[0.9].beta < 0 and rows[0.9].signed == -rows[0.9].known


def test_known_utility_against_a_plain_search(study: CliffStudy) -> None:
    moves, utility = slow_world(1)
    best = slow_greedy(moves, utility)
    for case in study.by_epsilon:
        policy = (1 - case.setting) * best + case.setting / 3 * (1 - best)
        expected = float((slow_occupancy(moves, policy)[:-1] @ utility).sum())
        found = minimize_scalar(
            lambda beta, expected=expected: slow_soft(moves, beta * utility)[0] - beta * expected,
            bounds=(-0.3, 0.6),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert case.utility == pytest.approx(expected, abs=1e-8)
        assert case.known == pytest.approx(-found.fun, abs=1e-6)
    for case in study.by_goal_length:  # optimal: the limit, from below
        moves, utility = slow_world(int(case.setting))
        expected = float((slow_occupancy(moves, slow_greedy(moves, utility))[:-1] @ utility).sum())
        assert case.known == pytest.approx(200 * expected - slow_soft(moves, 200 * utility)[0], abs=1e-6)


@pytest.mark.parametrize("epsilon", long_after(1, [0.3, 0.9]))
def test_unknown_utility_against_a_plain_quasi_newton_search(study: CliffStudy, epsilon: float) -> None:
    moves, utility = slow_world(1)
    best = slow_greedy(moves, utility)
    counts = slow_occupancy(moves, (1 - epsilon) * best + epsilon / 3 * (1 - best))[:-1].sum(axis=0)

    def loss(weights: Array) -> tuple[float, Array]:
        height, soft = slow_soft(moves, weights)
        return height - float(weights @ counts), slow_occupancy(moves, soft)[:-1].sum(axis=0) - counts

    options = {"maxiter": 3000, "maxfun": 6000, "ftol": 1e-16, "gtol": 1e-8, "maxcor": 40}
    search: Any = minimize
    found = search(loss, np.zeros(40), jac=True, method="L-BFGS-B", options=options)
    case = by_setting(study.by_epsilon)[epsilon]
    assert case.unknown == pytest.approx(-found.fun, abs=1e-6)


def test_unknown_limits_against_the_literal_score(study: CliffStudy) -> None:
    """No finite utility attains the values of optimal policies; the ones that are returned come within 2e-6 of them."""
    rows = by_setting(study.by_goal_length)
    for goal_length in GOAL_LENGTHS:
        moves, utility = slow_world(goal_length)
        counts = slow_occupancy(moves, slow_greedy(moves, utility))[:-1].sum(axis=0)
        mdp = cliff_world(goal_length)
        found = meg_unknown(mdp, greedy(mdp))
        score = float(found.utility @ counts) - slow_soft(moves, found.utility)[0]
        assert score <= found.upper + 1e-8 and score == pytest.approx(rows[goal_length].unknown, abs=2e-6)


@pytest.mark.full
def test_the_gap_to_unknown_utility_is_mostly_the_tie_break_as_the_page_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "worlds.md").read_text(encoding="utf-8")
    table = page[page.index("| k | known, every optimal policy") :].split("\n\n")[0].splitlines()[2:]
    for goal_length, line in zip(GOAL_LENGTHS, table, strict=True):
        mdp = cliff_world(goal_length)
        curve, best = RationalityCurve(mdp), value_iteration(mdp).optimal
        first, at_random = greedy(mdp), best / best.sum(axis=-1, keepdims=True)
        known = meg_known(curve, first).value
        assert meg_known(curve, at_random).value == pytest.approx(known, abs=1e-6)  # both are optimal
        unknown = [meg_unknown(mdp, policy).tabular for policy in (first, at_random)]
        figures = [known, *unknown, *(value - known for value in unknown)]
        stated = [float(cell) for cell in line.split("|")[2:-1]]
        np.testing.assert_allclose(stated, figures, atol=1.0001e-4)
    assert f"makes {unknown[0] - unknown[1]:.1f} of the {unknown[0] - known:.1f} nats" in " ".join(page.split())


def test_laws_of_both_tables(study: CliffStudy) -> None:
    for case in (*study.by_epsilon, *study.by_goal_length):
        assert 0 <= case.known <= case.unknown + 1e-9  # the class of all utilities contains this one
        assert case.known <= case.bound + 1e-9 and case.unknown <= 29 * math.log(4) + 1e-6
        assert case.off_by_one <= case.known + 1e-9  # a score that is not the maximum
        assert case.occupancy.sum() == pytest.approx(HORIZON) and case.occupancy.shape == (4, 10)
    values = [case.unknown for case in study.by_epsilon[:8]]
    assert values == sorted(values, reverse=True)


def test_the_off_by_one_gives_the_printed_row(study: CliffStudy) -> None:
    for case in study.by_goal_length:
        assert case.off_by_one == pytest.approx(case.printed_known, abs=0.05)
        off = abs(case.known - case.printed_known) > 0.05
        assert off == (case.setting in (1, 3))  # and the exact values do so for the others alone
    digits = {0.1: 0.05, 0.2: 0.05, 0.3: 0.005, 0.4: 0.005, 0.5: 0.005}
    for case in study.by_epsilon[:5]:  # the slip of a factor of ten, to the digits printed
        assert case.printed_known == pytest.approx(case.known / 10, abs=digits[case.setting])


def test_the_off_by_one_against_a_literal_version(study: CliffStudy) -> None:
    for case in study.by_goal_length:
        moves, utility = slow_world(int(case.setting))
        policy = slow_greedy(moves, utility)
        longer = float((slow_occupancy(moves, policy) @ utility).sum())

        def difference(beta: float, moves: Array = moves, utility: Array = utility, longer: float = longer) -> float:
            soft = slow_soft(moves, beta * utility)[1]
            return longer - float((slow_occupancy(moves, soft) @ utility).sum())

        beta = float(brentq(difference, 0, 20, xtol=1e-13)) if difference(20) < 0 else 50.0
        value = beta * case.utility - slow_soft(moves, beta * utility)[0]
        assert case.off_by_one == pytest.approx(value, abs=1e-6)


def test_the_smallest_case_of_the_off_by_one() -> None:
    # Two places, two decisions, one nat of difference: the policy goes to the good place, then its last, inert
    # decision leads away. Over horizon states it is optimal, over horizon + 1 states it looks like chance.
    mdp = TabularMDP.deterministic(
        np.array([[0, 1], [0, 1]]), utility=np.array([0.0, 1.0]), horizon=2, start=np.array([1.0, 0.0])
    )
    policy = greedy(mdp)
    np.testing.assert_array_equal(policy[:, 0], [[0, 1], [1, 0]])
    curve = RationalityCurve(mdp)
    assert meg_known(curve, policy).value == pytest.approx(math.log(2), abs=1e-12)
    assert off_by_one(curve, policy) == pytest.approx(0, abs=1e-9)
    stays = policy.copy()
    stays[1] = [0, 1]  # the same policy but for the decision that changes nothing
    assert meg_known(curve, stays).value == pytest.approx(math.log(2), abs=1e-12)
    assert off_by_one(curve, stays) == pytest.approx(math.log(2), abs=1e-12)


def test_true_ties_are_those_of_rational_arithmetic(study: CliffStudy) -> None:
    mdp = cliff_world(1)
    moves = [[[Fraction(round(10 * chance), 10) for chance in row] for row in state] for state in mdp.transitions]
    values, chosen = [Fraction(0)] * 40, []
    for _ in range(HORIZON):
        table = [
            [
                Fraction(int(mdp.utility[state]))
                + sum(chance * values[there] for there, chance in enumerate(row) if chance)
                for row in moves[state]
            ]
            for state in range(40)
        ]
        chosen.append([row.index(max(row)) for row in table])
        values = [max(row) for row in table]
    np.testing.assert_array_equal(greedy(mdp, ties="true").argmax(axis=-1), chosen[::-1])
    rows = by_setting(study.by_epsilon)
    assert rows[0.5].known_true_ties == pytest.approx(2.0094, abs=5e-5)
    assert rows[0.9].known_true_ties == pytest.approx(0.0836, abs=5e-5)


def test_bad_input_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="goal"):
        cliff_world(5)
    with pytest.raises(ValueError, match="wind"):
        cliff_world(1, wind=-0.1)
    with pytest.raises(ValueError, match="epsilon"):
        greedy(cliff_world(1), 1.1)
    mdp = TabularMDP.deterministic(np.array([[0, 0]]), utility=np.array([[0.0, 1.0]]), horizon=2, start=np.ones(1))
    with pytest.raises(ValueError, match="utilities"):
        off_by_one(RationalityCurve(mdp), np.array([[0.5, 0.5]]))


def test_the_command_prints_the_tables_and_writes_figures(
    study: CliffStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goalscope.papers.cliff_world.cliff_study", lambda: study)
    result = CliRunner().invoke(app, ["reproduce", "meg table k", "--out", str(tmp_path / "cliff")])
    assert result.exit_code == 0, result.output
    for shown in ("40.2", "37.8", "16.8", "off by one"):
        assert shown in result.output
    for name in ("meg.png", "meg.svg", "occupancy.png", "occupancy.svg"):
        assert (tmp_path / "cliff" / name).stat().st_size > 5000
    stored = json.loads((tmp_path / "cliff" / "cliff-world.json").read_text(encoding="utf-8"))
    assert [row["printed_known"] for row in stored["by_goal_length"]] == [
        PRINTED["goal length"][k][0] for k in GOAL_LENGTHS
    ]
    assert stored["by_goal_length"][0]["beta"] == "inf" and len(stored["by_epsilon"]) == 9


@pytest.mark.full
def test_networks_stay_below_the_tabular_optimum() -> None:
    study = cliff_study(neural_seeds=2)
    for case in (*study.by_epsilon, *study.by_goal_length):
        assert 0 <= case.neural <= case.unknown + 1e-6
        assert case.neural >= 0.5 * case.unknown
