"""Policies and exact outlooks, against enumeration of all episodes and against closed forms."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.worlds import ACTIONS, Action, Grid, State, generate, initial_state, layout, phases, step
from goalscope.worlds.planning import expected_utility, from_grid, shortest_length, solve
from known_policies import episode_outlook, epsilon_greedy, expected_accuracy, uniform, uniform_optimal

CORRIDOR = Grid.parse("A__G")


def random_policy(grid: Grid, seed: int) -> npt.NDArray[np.float64]:
    return stream(seed, "policy").dirichlet(np.ones(4), size=(phases(grid), grid.height, grid.width))


def every_episode(grid: Grid, policy: npt.NDArray[np.float64], horizon: int) -> Iterator[tuple[float, int, int, bool]]:
    """Chance, actions, optimal actions and success of every episode."""
    optimal = solve(grid).optimal
    waiting: list[tuple[float, State, int, int]] = [(1.0, initial_state(grid), 0, 0)]
    while waiting:
        chance, state, taken, good = waiting.pop()
        if state.position == grid.goal or taken == horizon:
            yield chance, taken, good, state.position == grid.goal
            continue
        for action in ACTIONS:
            here = (state.phase, *state.position, action)
            after = step(grid, state, action)
            waiting.append((chance * policy[here], after, taken + 1, good + int(optimal[here])))


@pytest.mark.parametrize("text", ["A__G", "A_\nK_\n_G", "AK_DG", "A#G\n_K_", "G_\n_A"])
@pytest.mark.parametrize("seed", [0, 1])
def test_outlooks_are_those_of_all_episodes(text: str, seed: int) -> None:
    grid = Grid.parse(text)
    policy = random_policy(grid, seed)
    for horizon in (1, 2, 5):
        outlook = episode_outlook(grid, policy, horizon)
        episodes = list(every_episode(grid, policy, horizon))
        assert sum(chance for chance, *_ in episodes) == pytest.approx(1)
        assert outlook.success == pytest.approx(sum(chance * won for chance, _, _, won in episodes))
        assert outlook.steps == pytest.approx(sum(chance * taken for chance, taken, _, _ in episodes))
        assert outlook.optimal_steps == pytest.approx(sum(chance * good for chance, _, good, _ in episodes))
        assert outlook.accuracy == pytest.approx(sum(chance * good / taken for chance, taken, good, _ in episodes))
        for step_number in range(horizon + 1):
            exact = sum(chance for chance, taken, _, won in episodes if won and taken == step_number)
            assert outlook.arrival[step_number] == pytest.approx(exact, abs=1e-12)


grids = st.one_of(
    st.tuples(st.sampled_from([5, 7]), st.sampled_from([0.0, 0.6, 1.0]), st.integers(0, 10**6)).map(
        lambda drawn: generate(drawn[0], drawn[1], rng=stream(drawn[2], "policy worlds"))
    ),
    st.tuples(st.sampled_from(["key-door", "key-no-door", "two-path"]), st.integers(0, 300)).map(
        lambda drawn: layout(drawn[0], seed=2, index=drawn[1])
    ),
)


@given(grids)
def test_an_optimal_agent_arrives_with_every_action_right(grid: Grid) -> None:
    length = shortest_length(grid)
    outlook = episode_outlook(grid, uniform_optimal(grid), length + 3)
    assert outlook.success == pytest.approx(1)
    assert outlook.steps == pytest.approx(length)
    assert outlook.accuracy == pytest.approx(1)
    assert outlook.arrival[length] == pytest.approx(1)
    assert episode_outlook(grid, uniform_optimal(grid), length - 1).success == 0 if length > 1 else True


@given(grids, st.floats(0, 1), st.integers(1, 25))
def test_laws_of_an_outlook(grid: Grid, epsilon: float, horizon: int) -> None:
    policy = epsilon_greedy(grid, epsilon)
    outlook = episode_outlook(grid, policy, horizon)
    assert outlook.arrival.sum() == pytest.approx(outlook.success)
    assert outlook.visits.sum() == pytest.approx(outlook.steps)
    assert (outlook.visits[solve(grid).distance == 0] == 0).all()
    right = expected_accuracy(grid, policy)
    taken = outlook.visits > 0
    assert (outlook.visits[taken] * right[taken]).sum() == pytest.approx(outlook.optimal_steps)
    assert outlook.steps <= horizon + 1e-9
    assert 0 <= outlook.accuracy <= 1 + 1e-9
    # The same chance of success from the decision process of the world.
    mdp = from_grid(
        grid, np.zeros(policy.size // 4), horizon=horizon, terminal_utility=from_grid(grid, horizon=1).utility
    )
    assert expected_utility(mdp, policy.reshape(-1, 4)) == pytest.approx(outlook.success, abs=1e-9)


def test_epsilon_greedy_has_its_closed_form() -> None:
    grid = Grid.parse("#####\n#A__#\n#__G#\n#####")
    for epsilon in (0.0, 0.3, 1.0):
        accuracy = expected_accuracy(grid, epsilon_greedy(grid, epsilon))
        assert accuracy[0, 1, 1] == pytest.approx(1 - epsilon * (1 - 2 / 4))
        assert accuracy[0, 1, 3] == pytest.approx(1 - epsilon * (1 - 1 / 4))
        assert np.isnan(accuracy[0, 2, 3])
        assert np.isnan(accuracy[0, 0, 0])
    assert (epsilon_greedy(grid, 1.0) == uniform(grid)).all()
    assert (epsilon_greedy(grid, 0.0) == uniform_optimal(grid)).all()


def test_a_corridor_walked_with_a_bias_is_a_binomial_walk() -> None:
    right = np.zeros((1, 4, 4))
    right[..., Action.RIGHT], right[..., Action.UP] = 0.5, 0.5  # forward or a bump, half and half
    outlook = episode_outlook(CORRIDOR, right, 6)
    # Negative binomial: the third success at step t has chance C(t - 1, 2) / 2^t.
    assert outlook.arrival.tolist() == pytest.approx([0, 0, 0, 1 / 8, 3 / 16, 6 / 32, 10 / 64])
    assert outlook.success == pytest.approx(42 / 64)
    assert outlook.visits[0, 0, 0] == pytest.approx(sum(0.5**t for t in range(6)))


@given(grids)
def test_policies_are_distributions_over_the_optimal_sets(grid: Grid) -> None:
    optimal = solve(grid).optimal
    policy = uniform_optimal(grid)
    assert policy.shape == optimal.shape
    assert np.allclose(policy.sum(axis=-1), 1)
    some = optimal.any(axis=-1)
    assert ((policy > 0) == optimal)[some].all()
    assert (policy[~some] == 0.25).all()
    assert (expected_accuracy(grid, policy)[some] == 1).all()
    assert np.allclose(expected_accuracy(grid, uniform(grid))[some], optimal.sum(axis=-1)[some] / 4)


def test_a_policy_over_cells_alone_holds_in_every_phase() -> None:
    grid = layout("key-door", seed=0, index=1)
    cells = random_policy(grid, 5)[0]
    whole = np.broadcast_to(cells, (3, *cells.shape))
    one, other = episode_outlook(grid, cells, 12), episode_outlook(grid, whole, 12)
    assert (one.visits == other.visits).all()
    assert one.accuracy == other.accuracy


def test_what_policies_refuse() -> None:
    with pytest.raises(ValueError, match=r"policy.*\[P, H, W, 4\] with P = 1, H = 1, W = 4, got"):
        episode_outlook(CORRIDOR, np.full((2, 1, 4, 4), 0.25), 3)
    with pytest.raises(ValueError, match=r"policy.*\[H, W, 4\]"):
        expected_accuracy(CORRIDOR, np.full((4, 1, 4), 0.25))
    with pytest.raises(ValueError, match=r"policy.*sum to 1"):
        episode_outlook(CORRIDOR, np.full((1, 4, 4), 0.3), 3)
    for horizon in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match=r"horizon.*>= 1"):
            episode_outlook(CORRIDOR, uniform(CORRIDOR), horizon)  # type: ignore[arg-type]
    for epsilon in (-0.1, 1.1, float("nan"), True):
        with pytest.raises(ValueError, match=r"epsilon.*\[0, 1\]"):
            epsilon_greedy(CORRIDOR, epsilon)
    with pytest.raises(ValueError, match="its goal"):
        uniform_optimal(Grid.parse("A_"))
