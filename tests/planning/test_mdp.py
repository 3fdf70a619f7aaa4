"""Tabular processes: three forms of one process, values against enumeration, random walkers against simulated ones."""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.worlds import Action, Grid, initial_state, layout, step, transitions
from goalscope.worlds.planning import (
    TabularMDP,
    at_cell,
    expected_utility,
    from_grid,
    occupancy,
    shortest_length,
    value_iteration,
)
from goalscope.worlds.planning.process import random_walk_success
from goalscope.worlds.tasks import TaskMap, TaskState, generate_task_map
from known_policies import uniform_optimal


def random_process(
    seed: int, states: int, actions: int, horizon: int, utility: str, terminal: bool, deterministic: bool = False
) -> dict[str, Any]:
    """Arguments of a random process with dense transitions."""
    rng = stream(seed, "mdp")
    chances = rng.dirichlet(np.full(states, 0.5), size=(states, actions))
    if deterministic:
        chances = np.eye(states)[rng.integers(0, states, (states, actions))]
    shape = {"S": (states,), "S A": (states, actions), "S A S": (states, actions, states)}[utility]
    return {
        "transitions": chances,
        "utility": rng.normal(size=shape),
        "horizon": horizon,
        "start": rng.dirichlet(np.ones(states)),
        "terminal_utility": rng.normal(size=states) if terminal else None,
    }


processes = st.builds(
    random_process,
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["S", "S A", "S A S"]),
    st.booleans(),
)


def random_policy(mdp: TabularMDP, seed: int, by_time: bool) -> npt.NDArray[np.float64]:
    shape = (mdp.horizon, mdp.states) if by_time else (mdp.states,)
    return stream(seed, "policy").dirichlet(np.ones(mdp.actions), size=shape)


def enumerated(arguments: dict[str, Any], policy: npt.NDArray[np.float64]) -> float:
    """Expected utility by running through every history."""
    table, utility, n = arguments["transitions"], arguments["utility"], arguments["horizon"]
    states, actions, _ = table.shape
    policy = np.broadcast_to(policy, (n, states, actions))
    final = arguments["terminal_utility"]
    total = 0.0
    for visited in itertools.product(range(states), repeat=n + 1):
        for taken in itertools.product(range(actions), repeat=n):
            chance, gained = arguments["start"][visited[0]], 0.0
            for t, (s, a, after) in enumerate(zip(visited, taken, visited[1:], strict=False)):
                chance *= policy[t, s, a] * table[s, a, after]
                gained += utility[(s, a, after)[: utility.ndim]]
            total += chance * (gained + (0.0 if final is None else final[visited[-1]]))
    return float(total)


def sparse_form(arguments: dict[str, Any], rng: np.random.Generator) -> TabularMDP:
    """The same process from triplets in any order, some of them split in two."""
    where = np.argwhere(arguments["transitions"] > 0)
    chance = arguments["transitions"][tuple(where.T)]
    where, chance = np.concatenate([where, where]), np.concatenate([0.25 * chance, 0.75 * chance])
    order = rng.permutation(len(where))
    rest = {name: value for name, value in arguments.items() if name != "transitions"}
    actions = arguments["transitions"].shape[1]
    return TabularMDP.sparse(where[order], chance[order], actions=actions, **rest)


@given(processes, st.integers(0, 999), st.booleans())
def test_expected_utility_is_that_of_all_histories(arguments: dict[str, Any], seed: int, by_time: bool) -> None:
    mdp = TabularMDP(**arguments)
    policy = random_policy(mdp, seed, by_time)
    assert expected_utility(mdp, policy) == pytest.approx(enumerated(arguments, policy), abs=1e-9)


@given(processes, st.integers(0, 999), st.booleans())
def test_the_three_forms_are_one_process(arguments: dict[str, Any], seed: int, deterministic: bool) -> None:
    rng = stream(seed, "forms")
    if deterministic:
        states, actions, _ = arguments["transitions"].shape
        successor = rng.integers(0, states, (states, actions))
        arguments = arguments | {"transitions": np.eye(states)[successor]}
    rest = {name: value for name, value in arguments.items() if name != "transitions"}
    dense = TabularMDP(**arguments)
    others = [sparse_form(arguments, rng)]
    if deterministic:
        others.append(TabularMDP.deterministic(successor, **rest))
    values = rng.normal(size=dense.states)
    several = rng.normal(size=(dense.states, 5))
    mass = rng.random((dense.states, dense.actions))
    policy = random_policy(dense, seed, True)
    for other in others:
        assert (other.states, other.actions) == (dense.states, dense.actions)
        assert np.allclose(other.reward, dense.reward, atol=1e-12)
        assert np.allclose(other.expect(values), dense.expect(values), atol=1e-12)
        assert np.allclose(other.expect(several), dense.expect(several), atol=1e-12)
        assert np.allclose(other.flow(mass), dense.flow(mass), atol=1e-12)
        assert np.allclose(value_iteration(other).values, value_iteration(dense).values, atol=1e-12)
        assert np.allclose(occupancy(other, policy), occupancy(dense, policy), atol=1e-12)
    assert dense.expect(several).shape == (dense.states, dense.actions, 5)
    assert (mass * dense.expect(values)).sum() == pytest.approx(dense.flow(mass) @ values)  # they are adjoint


@given(processes, st.integers(0, 999))
def test_no_policy_beats_value_iteration_and_its_sets_reach_it(arguments: dict[str, Any], seed: int) -> None:
    mdp = TabularMDP(**arguments)
    for minimise, sign in ((False, 1), (True, -1)):
        solved = value_iteration(mdp, minimise=minimise)
        best = float(mdp.start @ solved.values[0])
        assert sign * expected_utility(mdp, random_policy(mdp, seed, True)) <= sign * best + 1e-9
        among = solved.optimal / solved.optimal.sum(axis=2, keepdims=True)
        assert expected_utility(mdp, among) == pytest.approx(best, abs=1e-8)
        assert solved.optimal.any(axis=2).all()
        assert (solved.values[-1] == mdp.final).all()


@given(processes, st.integers(0, 999))
def test_occupancy_carries_the_expected_utility(arguments: dict[str, Any], seed: int) -> None:
    mdp = TabularMDP(**arguments)
    policy = random_policy(mdp, seed, True)
    state = occupancy(mdp, policy)
    assert state.shape == (mdp.horizon + 1, mdp.states)
    assert np.allclose(state.sum(axis=1), 1)
    gained = (state[:-1, :, None] * policy * mdp.reward).sum() + state[-1] @ mdp.final
    assert gained == pytest.approx(expected_utility(mdp, policy), abs=1e-9)


def test_from_grid_is_the_world_with_its_goal_absorbing() -> None:
    grid = layout("key-door", seed=0, index=3)
    mdp = from_grid(grid, horizon=40)
    table = transitions(grid)
    assert (mdp.states, mdp.actions) == (3 * 81, 4)
    assert isinstance(mdp.transitions, np.ndarray)
    assert grid.goal is not None
    at_goal = at_cell(grid, grid.goal) == 1
    assert at_goal.sum() == 3
    assert (mdp.transitions[~at_goal] == table[~at_goal]).all()
    assert (mdp.transitions[at_goal] == np.flatnonzero(at_goal)[:, None]).all()
    first = initial_state(grid)
    assert np.argmax(mdp.start) == first.phase * 81 + first.position[0] * 9 + first.position[1]
    # One unit for every step spent at the goal: the best policy arrives after L steps and stays for the other 40 - L.
    best = float(mdp.start @ value_iteration(mdp).values[0])
    assert best == 40 - shortest_length(grid)
    optimal = uniform_optimal(grid).reshape(-1, 4)
    assert expected_utility(mdp, optimal) == pytest.approx(best)


def test_a_world_s_start_may_already_hold_the_key() -> None:
    grid = Grid.parse("_A_DG").at(key=None)
    mdp = from_grid(grid, horizon=3, terminal_utility=at_cell(grid, (0, 4)))
    assert expected_utility(mdp, np.full((15, 4), 0.25)) == 0.0
    plain = grid.at(door=None)
    right = np.zeros((5, 4))
    right[:, Action.RIGHT] = 1
    mdp = from_grid(plain, np.zeros(5), horizon=3, terminal_utility=at_cell(plain, (0, 4)))
    assert expected_utility(mdp, right) == 1.0
    assert step(plain, initial_state(plain), Action.RIGHT).position == (0, 2)


VALID = random_process(0, 3, 2, 2, "S A", True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number of decisions >= 1, got 0"),
        ({"horizon": True}, "horizon must be a whole number"),
        ({"horizon": 2.0}, "horizon must be a whole number"),
        ({"start": np.array([0.5, 0.2, 0.2])}, r"start must sum to 1 .* got 0\.8999"),
        ({"start": np.array([1.5, -0.5, 0])}, "start must hold probabilities >= 0"),
        ({"start": np.array([1.0, 0.0])}, r"transitions must have shape \[S, A, S\] with S = 2, got \[3, 2, 3\]"),
        ({"start": np.ones((1, 3))}, r"start must have shape \[S\], got \[1, 3\]"),
        ({"transitions": np.full((3, 2, 3), 0.5)}, r"transitions must sum to 1 .* got 1\.5 for state 0 and action 0"),
        ({"transitions": np.full((3, 2, 2), 0.5)}, r"transitions must have shape \[S, A, S\]"),
        ({"transitions": np.full((3, 2, 3), np.nan)}, "transitions must be finite everywhere"),
        ({"transitions": np.array([["a"]])}, "transitions must be an array of real numbers"),
        ({"transitions": np.array([[0, 1], [2, 3], [0, 0]])}, r"states from 0 to 2, got 3 at index \(1, 1\)"),
        ({"utility": np.zeros(4)}, r"utility must have shape \[S\] with S = 3, got \[4\]"),
        ({"utility": np.zeros((2, 3))}, r"utility must have shape \[S, A\] with S = 3, A = 2, got \[2, 3\]"),
        ({"utility": np.zeros((3, 2, 3, 1))}, r"utility must have shape \[S, A, S\]"),
        ({"utility": np.array([0, np.inf, 0])}, r"utility must be finite everywhere, got inf at index \(1,\)"),
        ({"utility": np.array([None, 1, 2])}, "utility must be an array of real numbers"),
        ({"terminal_utility": np.zeros(2)}, r"terminal_utility must have shape \[S\]"),
        ({"terminal_utility": np.array([0, np.nan, 0])}, "terminal_utility must be finite everywhere"),
    ],
)
def test_what_a_process_refuses(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TabularMDP(**VALID | changes)


def test_what_the_other_forms_refuse() -> None:
    rest = {name: value for name, value in VALID.items() if name != "transitions"}
    with pytest.raises(ValueError, match=r"next .*\[S, A\].*float64"):
        TabularMDP.deterministic(np.zeros((3, 2)), **rest)
    with pytest.raises(ValueError, match=r"got -1 at index \(0, 0\)"):
        TabularMDP.deterministic(np.full((3, 2), -1), **rest)
    every = np.array([(state, action, state) for state in range(3) for action in range(2)])
    with pytest.raises(ValueError, match=r"0\.5 for state 0 and action 0"):
        TabularMDP.sparse(every, [0.5, 1, 1, 1, 1, 1], actions=2, **rest)
    with pytest.raises(ValueError, match="probabilities >= 0"):
        TabularMDP.sparse(every, [-1.0, 1, 1, 1, 1, 1], actions=2, **rest)
    with pytest.raises(ValueError, match=r"below 3 .*below 2"):
        TabularMDP.sparse(every + 1, np.ones(6), actions=2, **rest)
    with pytest.raises(ValueError, match=r"chance.*\[N\] with N = 6, got \[5\]"):
        TabularMDP.sparse(every, np.ones(5), actions=2, **rest)


def test_what_policies_and_grids_are_refused() -> None:
    mdp = TabularMDP(**VALID)
    with pytest.raises(ValueError, match=r"policy.*\[S, A\] with S = 3, A = 2, got \[2, 2\]"):
        expected_utility(mdp, np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match=r"policy.*\[n, S, A\] with n = 2"):
        occupancy(mdp, np.full((3, 3, 2), 0.5))
    with pytest.raises(ValueError, match=r"policy.*sum to 1"):
        expected_utility(mdp, np.full((3, 2), 0.4))
    with pytest.raises(ValueError, match="its goal"):
        from_grid(Grid.parse("A_"), horizon=1)
    with pytest.raises(ValueError, match="its agent"):
        from_grid(Grid.parse("_G"), horizon=1)
    with pytest.raises(ValueError, match="fog"):
        from_grid(Grid.parse("A_G*"), horizon=1)
    with pytest.raises(ValueError, match="1x3"):
        at_cell(Grid.parse("A_G"), (1, 0))


def test_a_process_is_read_only_and_leaves_its_arguments_alone() -> None:
    arguments = random_process(1, 3, 2, 2, "S", True)
    mdp = TabularMDP(**arguments)
    arguments["start"][:] = 0
    assert mdp.start.sum() == pytest.approx(1)
    for name in ("transitions", "utility", "start", "terminal_utility", "reward"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(mdp, name)[...] = 0
    sparse = sparse_form(random_process(1, 3, 2, 2, "S", True), stream(0, "x"))
    assert not isinstance(sparse.transitions, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        sparse.transitions.data[...] = 0


def line(alpha: float) -> TaskMap:
    nodes = {"A": {"cell": (0, 0), "options": []}, "G": {"cell": (2, 0), "options": [["A"]]}}
    return TaskMap(cells=[(0, 0), (1, 0), (2, 0)], start=(1, 0), goal="G", nodes=nodes, alpha=alpha)


@pytest.mark.parametrize(("alpha", "chance"), [(1, 1 / 4), (2, 1 / 2 * 3 / 4 + 1 / 4 * 1 / 2)])
def test_the_chance_on_three_cells_is_that_by_hand(alpha: float, chance: float) -> None:
    """A is met at step 1, 3, ... with 1/2, 1/4, ...; from it G after 2, 4, ... steps likewise; 3 or 6 steps in all."""
    assert random_walk_success(line(alpha)) == pytest.approx(chance)


@pytest.mark.parametrize("preset", ["high-small", "medium-medium", "high-large"])
def test_the_exact_chance_is_that_of_simulated_walkers(preset: str) -> None:
    task_map, rng, count, done = generate_task_map(preset, seed=11), stream(3, preset), 800, 0
    for _ in range(count):
        state = TaskState(task_map)
        while state.ending is None:
            ways = task_map.available(state.board.cell(state.position))
            state.move(ways[int(rng.integers(len(ways)))])
        done += state.ending == "goal"
    exact = random_walk_success(task_map)
    assert abs(done / count - exact) < 4 * math.sqrt(max(exact * (1 - exact), 1e-3) / count)


def test_alternatives_and_sets_of_prerequisites_count() -> None:
    cells = [(x, 0) for x in range(4)]
    nodes = {"A": {"cell": (0, 0), "options": []}, "B": {"cell": (2, 0), "options": []}}
    chances = [
        random_walk_success(
            TaskMap(
                cells=cells,
                start=(1, 0),
                goal="G",
                nodes={**nodes, "G": {"cell": (3, 0), "options": options}},
                alpha=3,
            )
        )
        for options in ([["A", "B"]], [["A"], ["B"]])
    ]
    assert 0 < chances[0] < chances[1] < 1
    assert chances[1] == pytest.approx(1 - _missed(12)), "B lies on every way to G: one of both is always met"


def _missed(steps: int) -> float:
    """Return the chance of a walk on cells 0 to 3 that begins at 1 not to come to 3 in so many steps."""
    mass = {1: 1.0}
    for _ in range(steps):
        after: dict[int, float] = {}
        for here, chance in mass.items():
            ways = [there for there in (here - 1, here + 1) if 0 <= there <= 3]
            for there in ways:
                after[there] = after.get(there, 0.0) + chance / len(ways)
        after.pop(3, None)
        mass = after
    return math.fsum(mass.values())
