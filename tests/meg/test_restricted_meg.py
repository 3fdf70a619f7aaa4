"""The class that plans on what was seen: against all action sequences, the exact class, and Gibbs' inequality."""

import itertools
import math

import numpy as np
import pytest

from families import long_after
from goalscope.meg import HiddenWorlds, InformationProcess, RationalityCurve, information_process, meg_shared
from goalscope.meg.restricted import LARGEST, Assumed, FoggedMaze, Unseen, own_member, soft_gains, walk_scores
from goalscope.planning import TabularMDP, from_grid
from goalscope.worlds import Fog, Grid

BETAS = np.array([-2.0, -0.3, 0.0, 0.7, 3.0])


def mazes(count: int, seed: int, *, walls: float = 0.3) -> list[Grid]:
    """Return mazes with 5x5 cells inside of a border, the agent in the middle, the goal anywhere."""
    rng = np.random.default_rng(seed)
    found: list[Grid] = []
    while len(found) < count:
        solid = np.ones((7, 7), dtype=bool)
        solid[1:-1, 1:-1] = rng.random((5, 5)) < walls
        solid[3, 3] = False
        free = [(int(row), int(col)) for row, col in np.argwhere(~solid) if (row, col) != (3, 3)]
        if len(free) > 4:
            found.append(Grid(walls=solid, start=(3, 3), goal=free[int(rng.integers(len(free)))]))
    return found


@pytest.mark.parametrize("arrival", [False, True])
def test_gains_are_those_of_all_action_sequences_and_of_the_soft_policy(arrival: bool) -> None:
    rng = np.random.default_rng(3)
    following = rng.integers(0, 6, size=(6, 3))
    targets = np.array([False, False, True, False, False, True])
    following[targets] = np.flatnonzero(targets)[:, None]
    world = Assumed(key=0, next=following, targets=targets, at=0)
    asked = [(left, state) for left in range(1, 6) for state in range(6)]
    found = soft_gains(world, asked, BETAS, arrival=arrival)
    worth = targets.astype(float)
    mdp = TabularMDP.deterministic(
        following,
        utility=worth * (not arrival),
        horizon=5,
        start=np.full(6, 1 / 6),
        terminal_utility=worth if arrival else None,
    )
    curve = RationalityCurve(mdp)
    for (left, state), gains in zip(asked, found, strict=True):
        gained: dict[int, list[float]] = {0: [], 1: [], 2: []}
        for actions in itertools.product(range(3), repeat=left):
            states = [state]
            for action in actions:
                states.append(int(following[states[-1], action]))
            gained[actions[0]].append(float(worth[states[-1]] if arrival else worth[states[:-1]].sum()))
        for beta, gain in zip(BETAS, gains, strict=True):
            parts = [np.exp(beta * np.array(gained[action])).mean() for action in range(3)]
            assert gain == pytest.approx(np.log(np.array(parts) / np.mean(parts)), abs=1e-10)
            assert np.exp(gain).sum() == pytest.approx(3)
            assert np.exp(gain) / 3 == pytest.approx(curve.policy(float(beta))[5 - left, state], abs=1e-9)


@pytest.mark.parametrize("unseen", ["open", "known"])
def test_where_the_world_is_seen_the_class_is_the_exact_one(unseen: Unseen) -> None:
    """Rooms without walls inside, all in sight: each walk, W and both bounds agree with those of the exact class."""
    rng = np.random.default_rng(0)
    room = np.ones((7, 7), dtype=bool)
    room[1:-1, 1:-1] = False
    grids = [Grid(walls=room, start=(3, 3), goal=goal) for goal in ((1, 1), (3, 4), (5, 2))]
    curve = RationalityCurve(information_process(HiddenWorlds.of_grids(grids, horizon=7, radius=9)).mdp)
    ends = []
    for grid in grids:
        maze, alone = FoggedMaze(grid, 9, unseen), from_grid(grid, horizon=7)
        moves = rng.integers(0, 4, size=(20, 7))
        scores = walk_scores(maze.begin, list(np.eye(4)[moves]), moves.tolist(), horizon=7, rationalities=BETAS)
        single = RationalityCurve(alone)
        for actions, score in zip(moves.tolist(), scores, strict=True):
            at, gained = int(alone.start.argmax()), 0.0
            for action in actions:
                gained += float(alone.utility[at])
                at = int(np.asarray(alone.transitions)[at, action])
            exact = [beta * gained - single.at(float(beta)).log_normaliser for beta in BETAS]
            assert score == pytest.approx(exact, abs=1e-9)
        ends.append(
            [own_member(maze.begin, horizon=7, most=10**6, rng=rng, rationality=sign * LARGEST) for sign in (1.0, -1.0)]
        )
        assert all(member.exact for member in ends[-1])
    means = [np.mean([[member.nats, member.utility] for member in side], axis=0) for side in zip(*ends, strict=True)]
    assert means[0] == pytest.approx([curve.bound, curve.highest], abs=1e-9)
    assert means[1] == pytest.approx([curve.bound_lowest, curve.lowest], abs=1e-9)


def shown_by_the_class(
    process: InformationProcess, grids: list[Grid], policy: np.ndarray, unseen: Unseen, betas: np.ndarray, radius: int
) -> np.ndarray:
    """Score an agent of the exact class by the restricted one, over all that it may do in each world of the prior."""
    total = np.zeros(len(betas))
    for world, grid in enumerate(grids):
        maze = FoggedMaze(grid, radius, unseen)
        first = process._first(world)
        ahead = {(first, int(process.worlds.start[world]), maze.begin().state): (1.0, maze.begin())}
        for turn, chances in enumerate(policy):
            following: dict[tuple[object, ...], tuple[float, object]] = {}
            for (at, state, _), (mass, walk) in ahead.items():
                if walk.done:
                    continue
                known = walk.assumed()
                gains = soft_gains(known, [(len(policy) - turn, known.at)], betas)[0]
                total += mass * gains @ chances[at] / len(grids)
                for action in np.flatnonzero(chances[at]).tolist():
                    led, after = int(process.worlds.next[world, state, action]), walk.after(action)
                    to = process._after(at, action, int(process.worlds.shown[world, led]))
                    key = (to, led, after.state)
                    before = following.get(key, (0.0, after))[0]
                    following[key] = before + mass * float(chances[at, action]), after
            ahead = following  # type: ignore[assignment]
    return total


@pytest.mark.parametrize("unseen", long_after(1, ["open", "known"]))
def test_of_agents_of_the_exact_class_the_restricted_one_never_shows_more(unseen: Unseen) -> None:
    """Gibbs' inequality, on an enumerated prior; the class's own bound is another matter, see below."""
    grids = mazes(6, 5)
    process = information_process(HiddenWorlds.of_grids(grids, horizon=6, radius=1))
    curve = RationalityCurve(process.mdp)
    betas = np.array([0.2, 1.0, 4.0, LARGEST])
    for rationality in (0.5, 2.0, math.inf):
        policy = curve.policy(rationality)
        exact = curve.bound
        if math.isfinite(rationality):
            point = curve.at(rationality)
            exact = rationality * point.utility - point.log_normaliser
        shown = shown_by_the_class(process, grids, policy, unseen, betas, radius=1)
        assert (shown <= exact + 1e-9).all() and shown.max() > 0


def test_a_class_that_plans_worse_may_still_have_the_larger_bound() -> None:
    """Its member arrives later than the best explorer, so that more of its decisions count: bounds have no order."""
    grids = mazes(30, 7)
    curve = RationalityCurve(information_process(HiddenWorlds.of_grids(grids, horizon=8, radius=1)).mdp)
    rng = np.random.default_rng(0)
    own = [own_member(FoggedMaze(grid, 1, "known").begin, horizon=8, most=10**6, rng=rng) for grid in grids]
    assert np.mean([member.utility for member in own]) < curve.highest - 1
    assert np.mean([member.nats for member in own]) > curve.bound
    seeing = [RationalityCurve(from_grid(grid, horizon=8)) for grid in grids]
    gained = [member.utility for member in own]
    assert meg_shared(seeing, gained).value < meg_shared(seeing, [one.highest for one in seeing]).value


def test_drawn_ties_leave_the_expectation_as_it_is() -> None:
    maze = FoggedMaze(mazes(1, 4, walls=0.0)[0], 1, "open")
    whole = own_member(maze.begin, horizon=7, most=10**6, rng=np.random.default_rng(0), rationality=0.4)
    parts = [
        own_member(maze.begin, horizon=7, most=5, rng=np.random.default_rng(seed), rationality=0.4)
        for seed in range(40)
    ]
    assert whole.exact and not any(part.exact for part in parts)
    for name in ("nats", "utility"):
        drawn = np.array([getattr(part, name) for part in parts])
        assert abs(drawn.mean() - getattr(whole, name)) < 4 * drawn.std() / math.sqrt(len(drawn)) + 1e-9


def test_what_is_assumed_is_what_the_views_of_the_world_tell() -> None:
    """Against the views that agents are shown: walls that were seen, targets that were not, the goal once it is."""
    rng = np.random.default_rng(8)
    for grid in mazes(6, 2):
        for unseen in ("open", "known"):
            walk = FoggedMaze(grid, 2, unseen).begin()
            fog, place = Fog.start(grid, 2), grid.at()
            for action in rng.integers(0, 4, size=12).tolist():
                view, world = fog.view(place), walk.assumed()
                assert view.fog is not None and divmod(world.at, 7) == place.start
                targets = world.targets.reshape(7, 7)
                if unseen == "open" and view.goal is not None:
                    assert np.argwhere(targets).tolist() == [list(view.goal)]
                elif view.goal is None:
                    assert (targets == view.fog).all()
                assert (world.next[targets.reshape(-1)] == np.flatnonzero(targets)[:, None]).all()
                walk = walk.after(action)
                if walk.done:
                    break
                cell = divmod(walk.assumed().at, 7)
                fog, place = fog.look(cell), place.at(start=cell)


def test_mazes_with_a_key_are_refused() -> None:
    keyed = Grid.parse("\n".join(" ".join(line) for line in ("#####", "#AKG#", "#####")))
    with pytest.raises(ValueError, match="without key and door"):
        FoggedMaze(keyed, 3, "open")
