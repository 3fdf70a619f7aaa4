"""MEG where the agent does not see the state: information sets against whole histories, and the laws of the measure."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from goalscope.meg import HiddenWorlds, RationalityCurve, information_process, meg_known, meg_shared
from goalscope.planning import TabularMDP, value_iteration
from goalscope.planning.tasks import TaskProcess
from goalscope.worlds import Grid
from goalscope.worlds.tasks import TaskState, generate_task_map, plan_task

History = tuple[Any, ...]


def random_worlds(seed: int, *, horizon: int = 4) -> HiddenWorlds:
    rng = np.random.default_rng(seed)
    count, states, actions = int(rng.integers(2, 5)), int(rng.integers(2, 5)), 2
    return HiddenWorlds(
        next=rng.integers(0, states, size=(count, states, actions)),
        shown=rng.integers(0, 3, size=(count, states)),
        start=rng.integers(0, states, size=count),
        utility=rng.normal(size=(count, states)),
        horizon=horizon,
        prior=rng.dirichlet(np.ones(count)),
        terminal_utility=rng.normal(size=(count, states)) if seed % 2 else None,
    )


def literal_w(worlds: HiddenWorlds, beta: float) -> float:
    """Soft backup over whole histories: what was shown and done, with the posterior computed from the prior anew."""
    prior = np.asarray(worlds.prior)

    def state(world: int, history: History) -> int | None:
        """The state of a world after a history, None where the world would have shown something else."""
        at = int(worlds.start[world])
        for number, entry in enumerate(history):
            if number % 2:
                at = int(worlds.next[world, at, entry])
            elif worlds.shown[world, at] != entry:
                return None
        return at

    def fits(history: History) -> dict[int, int]:
        places = {world: state(world, history) for world in range(len(prior))}
        return {world: at for world, at in places.items() if at is not None}

    @cache
    def w(history: History) -> float:
        there = fits(history)
        mass = sum(prior[world] for world in there)
        if len(history) == 2 * worlds.horizon + 1:
            last = worlds.terminal_utility
            return 0.0 if last is None else float(beta * sum(prior[i] / mass * last[i, at] for i, at in there.items()))
        q = []
        for action in range(worlds.next.shape[2]):
            total = beta * sum(prior[i] / mass * worlds.utility[i, at] for i, at in there.items())
            for seen in {int(worlds.shown[i, worlds.next[i, at, action]]) for i, at in there.items()}:
                after = (*history, action, seen)
                total += sum(prior[i] for i in fits(after)) / mass * w(after)
            q.append(total)
        return math.log(sum(map(math.exp, q)) / len(q))

    firsts = {int(worlds.shown[world, worlds.start[world]]) for world in range(len(prior))}
    return float(sum(sum(prior[i] for i in fits((seen,))) * w((seen,)) for seen in firsts))


@pytest.mark.parametrize("seed", range(8))
def test_information_sets_are_as_good_as_whole_histories(seed: int) -> None:
    worlds = random_worlds(seed)
    curve = RationalityCurve(information_process(worlds).mdp)
    for beta in (-3.0, -0.4, 0.0, 0.7, 2.5):
        assert curve.at(beta).log_normaliser == pytest.approx(literal_w(worlds, beta), abs=1e-9)


def mazes(count: int, seed: int) -> list[Grid]:
    """Return mazes with 5x5 cells inside of a border, the agent in the middle, the goal anywhere."""
    rng = np.random.default_rng(seed)
    found: list[Grid] = []
    while len(found) < count:
        walls = np.ones((7, 7), dtype=bool)
        walls[1:-1, 1:-1] = rng.random((5, 5)) < 0.3
        walls[3, 3] = False
        free = [(int(row), int(col)) for row, col in np.argwhere(~walls) if (row, col) != (3, 3)]
        if len(free) > 4:
            found.append(Grid(walls=walls, start=(3, 3), goal=free[int(rng.integers(len(free)))]))
    return found


@pytest.mark.parametrize(("count", "horizon"), [(30, 8), pytest.param(200, 14, marks=pytest.mark.full)])
def test_the_policy_optimal_for_the_prior_reaches_its_bound_and_random_actions_have_none(
    count: int, horizon: int
) -> None:
    process = information_process(HiddenWorlds.of_grids(mazes(count, 7), horizon=horizon, radius=1))
    curve = RationalityCurve(process.mdp)
    optimal = value_iteration(process.mdp).optimal
    best = process.returns(optimal / optimal.sum(axis=-1, keepdims=True))  # played in the worlds themselves
    found = meg_known(curve, mean_return=float(best.mean()))
    assert found.value == pytest.approx(curve.bound, abs=1e-9) and found.beta == math.inf
    uniform = process.returns(np.full((process.mdp.states, 4), 0.25))
    random = meg_known(curve, mean_return=float(uniform.mean()))
    assert random.value == pytest.approx(0, abs=1e-9) and abs(uniform.mean() - curve.uniform) < 1e-12


def test_who_sees_everything_is_held_to_more() -> None:
    """The best explorer has all of the bound of what it can know, and a part of that of an agent that sees the map."""
    grids = mazes(30, 7)
    hidden = HiddenWorlds.of_grids(grids, horizon=8, radius=1)
    process = information_process(hidden)
    optimal = value_iteration(process.mdp).optimal
    best = process.returns(optimal / optimal.sum(axis=-1, keepdims=True))
    starts = np.eye(hidden.next.shape[1])[hidden.start]
    seen = [
        RationalityCurve(
            TabularMDP.deterministic(hidden.next[i], utility=hidden.utility[i], horizon=8, start=starts[i])
        )
        for i in range(30)
    ]
    shared = meg_shared(seen, best)
    assert shared.value < 0.9 * shared.bound and np.isfinite(shared.beta)
    assert meg_known(process.mdp, mean_return=float(best.mean())).share == pytest.approx(1)


def test_a_prior_of_one_world_or_a_view_of_everything_is_the_process_itself() -> None:
    worlds = random_worlds(3)
    states = worlds.next.shape[1]
    for index in range(len(worlds.start)):
        parts: dict[str, Any] = {
            name: getattr(worlds, name)[index : index + 1] for name in ("next", "start", "utility")
        }
        last = worlds.terminal_utility
        tail: dict[str, Any] = {} if last is None else {"terminal_utility": last[index : index + 1]}
        alone = HiddenWorlds(**parts, **tail, shown=np.zeros((1, states), dtype=int), horizon=4)
        literal = TabularMDP.deterministic(
            worlds.next[index],
            utility=worlds.utility[index],
            horizon=4,
            start=np.eye(states)[worlds.start[index]],
            terminal_utility=None if last is None else last[index],
        )
        one, other = RationalityCurve(information_process(alone).mdp), RationalityCurve(literal)
        assert one.at(1.3).log_normaliser == pytest.approx(other.at(1.3).log_normaliser, abs=1e-12)


def test_states_of_task_maps_follow_the_world() -> None:
    for seed in range(4):
        task_map = generate_task_map("medium-small", seed=seed)
        process, rng = TaskProcess(task_map), np.random.default_rng(seed)
        truth, at, total = TaskState(task_map), 0, 0.0
        actions = list[int | None]()
        while truth.ending is None:
            assert process.achieved()[at] == 0 and process.states[at][0] == truth.position
            names = [name for name in task_map.nodes if process.achieved(name)[at]]
            assert sorted(names) == list(truth.achieved_names)
            action = None if rng.random() < 0.1 else int(rng.integers(4))
            actions.append(action)
            truth.move(action)
            at = at if action is None else int(process.next[at, action])
        total = process.utility_of(actions)
        assert total == (task_map.budget - truth.steps if truth.ending == "goal" else 0)
        curve = RationalityCurve(process.process())
        plan = plan_task(task_map)
        assert process.utility_of([*map(int, plan.actions)]) == task_map.budget - plan.length
        assert curve.highest == pytest.approx(task_map.budget - plan.length)
        assert meg_known(curve, mean_return=curve.highest).share == pytest.approx(1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"next": np.zeros((201, 2, 2), dtype=int)}, "at most 200 worlds"),
        ({"next": np.full((1, 2, 2), 2)}, "next must be states below 2"),
        ({"prior": np.array([0.5])}, "prior"),
        ({"shown": np.zeros((1, 3), dtype=int)}, "shown"),
        ({"utility": np.array([[0.0, np.inf]])}, "utility"),
        ({"start": np.array([0.0])}, "start must hold whole numbers"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_what_is_no_prior_over_worlds_is_refused(changes: dict[str, Any], words: str) -> None:
    parts: dict[str, Any] = {
        "next": np.zeros((1, 2, 2), dtype=int),
        "shown": np.zeros((1, 2), dtype=int),
        "start": np.array([0]),
        "utility": np.zeros((1, 2)),
        "horizon": 2,
    }
    with pytest.raises(ValueError, match=words):
        HiddenWorlds(**{**parts, **changes})


def test_too_many_information_sets_and_mazes_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope.meg.hidden.MOST_SETS", 20)
    with pytest.raises(ValueError, match="at most 20 information sets, got more within"):
        information_process(HiddenWorlds.of_grids(mazes(5, 1), horizon=10, radius=1))
    with pytest.raises(ValueError, match="grids of one shape"):
        HiddenWorlds.of_grids(
            [*mazes(1, 1), Grid(walls=np.zeros((3, 3), dtype=bool), start=(0, 0), goal=(2, 2))], horizon=3
        )
