"""What is wasted under fog: by hand, against a literal reading of the definitions, and for agents with known habits."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from families import long_after
from goalscope.agents import Agent, EpsilonGreedy, Forgetful, Optimal, Uniform
from goalscope.measures import Measure, StepTable, play, roll_out
from goalscope.measures.fog import dead_end_moves, redundant_moves, repeated_bumps
from goalscope.runs import Episode, GridWorld
from goalscope.stats import paired_difference
from goalscope.worlds import Action, Fog, Grid, State, generate, generate_batch, layout
from goalscope.worlds.dynamics import solid_cells
from goalscope.worlds.planning import distances

MOVES = {"U": Action.UP, "D": Action.DOWN, "L": Action.LEFT, "R": Action.RIGHT, ".": None}
MEASURES: tuple[Measure, ...] = (redundant_moves, dead_end_moves, repeated_bumps)
# Under fog with radius 2: a dead end to the left of the start, a corridor to the goal on the right.
FORK = GridWorld(grid=Grid.parse(["#########", "#__A____#", "#######G#", "#########"]), fog_radius=2)
LOCKED = GridWorld(grid=Grid.parse(["#######", "#K_A_D#", "#####_#", "#####G#", "#######"]), fog_radius=6)


def played(moves: str, world: GridWorld = FORK) -> Episode:
    return play(world, [MOVES[move] for move in moves])


def share(measure: Measure, episode: Episode) -> float:
    (value,) = measure.rows(StepTable.from_episodes([episode])).value.tolist()
    return float(value)


@pytest.mark.parametrize(
    ("moves", "redundant", "dead", "bumps"),
    [
        # The wall left of (1, 1) is hidden at first: the step to (1, 2) shows it. The way back is not redundant at
        # (1, 3), where less was known before, although nothing new is seen on it.
        ("LRRRRRD", 0, 0, 0),
        # At (1, 2) all of (1, 1) is seen: going there is a known dead end. Back at (1, 2) nothing is new.
        ("LLRRRRRRD", 1, 1, 0),
        # To and fro with the same knowledge: every move but the two that came there with less is redundant. The cell
        # (1, 2) is a known dead end once it has been looked into.
        ("LRLRLR", 4, 2, 0),
        # Bumps are no moves. The first one into each wall, from each cell, is not a repeated one.
        ("UUDU", 0, 0, 2),
        # A turn without an action is neither a move nor an action.
        ("..L.R", 0, 0, 0),
    ],
)
def test_shares_by_hand(moves: str, redundant: int, dead: int, bumps: int) -> None:
    actions = len(moves.replace(".", ""))
    episode = played(moves)
    assert share(redundant_moves, episode) == redundant / actions
    assert share(dead_end_moves, episode) == dead / actions
    assert share(repeated_bumps, episode) == bumps / actions


def test_keys_and_doors_make_a_place_worth_a_visit() -> None:
    # To the left lies the key, to the right a locked door, which is a wall for who has no key.
    assert share(dead_end_moves, played("L", LOCKED)) == 0
    assert share(dead_end_moves, played("R", LOCKED)) == 1
    # With the key the door is a reason to go there; the cell of the key holds nothing any more.
    assert share(dead_end_moves, played("LLRRRRDD", LOCKED)) == 0
    assert share(dead_end_moves, played("LLRLRRRRDD", LOCKED)) == 1 / 10
    # The same cell with the key is another state: only the second way left is redundant.
    assert share(redundant_moves, played("LLR", LOCKED)) == 0
    assert share(redundant_moves, played("LLRLR", LOCKED)) == 2 / 5


def test_rows_are_for_fog_alone_and_undefined_without_actions() -> None:
    plain = GridWorld(grid=FORK.grid, tags={"kind": "plain"})
    for measure in MEASURES:
        assert len(measure.rows(StepTable.from_episodes([played("LR", plain)]))) == 0
        assert np.isnan(share(measure, played("..")))


@pytest.mark.parametrize("radius", [1, 2, 3])
def test_a_wall_that_was_not_seen_cannot_be_bumped_into(radius: int) -> None:
    grid = generate(size=9, density=0.7, rng=np.random.default_rng(3))
    for row, col in np.argwhere(~grid.walls):
        seen = Fog.start(grid.at(start=(int(row), int(col)), goal=None), radius).seen
        assert all(seen[row + down, col + right] for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0)))


def literal(episode: Episode) -> tuple[int, int, int]:
    """The numbers of redundant moves, dead ends and repeated bumps, with sets, step by step, all anew each time."""
    world, states = episode.world, [*(turn.state for turn in episode.steps), episode.final]
    assert world.fog_radius is not None
    fog = Fog.start(world.grid, world.fog_radius)
    known = []
    for state in states:
        fog = fog.look(state.position, solid_cells(world.grid, state))
        known.append((state, frozenset((row, col) for row, col in np.argwhere(fog.seen).tolist())))
    useful = {
        cell
        for cell in np.ndindex(world.grid.walls.shape)
        if not world.grid.walls[cell]
        or any(abs(cell[0] - row) + abs(cell[1] - col) == 1 for row, col in np.argwhere(~world.grid.walls).tolist())
    }
    info = [(state, seen & useful) for state, seen in known]
    redundant = dead = bumps = 0
    for index, turn in enumerate(episode.steps):
        if turn.action is None:
            continue
        if states[index + 1] == turn.state:
            earlier = episode.steps[:index]
            bumps += any(
                other.action == turn.action and other.state == turn.state and states[at + 1] == turn.state
                for at, other in enumerate(earlier)
            )
            continue
        redundant += info[index + 1] in info[: index + 1]
        dead += nothing_behind(world.grid, known[index][1], turn.state, states[index + 1].position)
    return redundant, dead, bumps


def nothing_behind(grid: Grid, seen: frozenset[tuple[int, int]], state: State, entered: tuple[int, int]) -> bool:
    """Whether nothing is worth a visit beyond a cell: by distances where the cell that is left is solid."""
    solid = grid.walls.copy()
    solid |= ~np.array([[(row, col) in seen for col in range(grid.width)] for row in range(grid.height)])
    solid[state.position] = True
    if grid.door is not None and not state.door_open:
        solid[grid.door] = True
    field = distances(Grid(walls=solid, goal=entered))  # [H, W] or [P, H, W], -1 where it cannot be reached
    behind = [(int(row), int(col)) for row, col in np.argwhere(np.asarray(field).reshape(-1, *solid.shape)[0] >= 0)]
    for row, col in behind:
        if (row, col) == grid.goal or ((row, col) == grid.key and not state.carrying_key):
            return False
        for near in ((row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)):
            inside = 0 <= near[0] < grid.height and 0 <= near[1] < grid.width
            if inside and near not in seen:
                return False
            if near == grid.door and state.carrying_key and not state.door_open:
                return False
    return True


def fogged(radius: int, count: int = 3) -> list[GridWorld]:
    mazes = [
        GridWorld(grid=grid, fog_radius=radius)
        for density in (0.3, 0.8, 1.0)
        for grid in generate_batch(9, density, seed=5, count=count, minimum_distance=5)
    ]
    return [
        *mazes,
        *(GridWorld(grid=layout("key-door", seed=2, index=index), fog_radius=radius) for index in range(count)),
    ]


def rolled(agent: Agent, worlds: Sequence[GridWorld], invalid: float = 0.0) -> list[Episode]:
    return [
        episode
        for world in worlds
        for episode in roll_out(agent, world, seed=4, trajectories=3, horizon=60, invalid=invalid)
    ]


@pytest.mark.parametrize(
    ("agent", "radius"), long_after(2, [*product((Uniform(), EpsilonGreedy(0.4), Forgetful(0.4, 5)), (1, 3))], names=2)
)
def test_the_literal_reading_gives_the_same(agent: Agent, radius: int) -> None:
    episodes = rolled(agent, fogged(radius), invalid=0.1)
    counts = [sum(turn.action is not None for turn in episode.steps) for episode in episodes]
    wanted = np.array([literal(episode) for episode in episodes]) / np.array(counts)[:, None]
    table = StepTable.from_episodes(episodes)
    for column, measure in enumerate(MEASURES):
        assert measure.rows(table).value.tolist() == pytest.approx(wanted[:, column].tolist(), abs=1e-15)
    assert (wanted[:, :2].sum(axis=0) > 0).all()


def test_an_optimal_explorer_wastes_nothing_and_a_forgetful_one_does() -> None:
    worlds = fogged(3, count=6)
    explorer, forgetful = (StepTable.from_episodes(rolled(agent, worlds)) for agent in (Optimal(), Forgetful(0.5, 6)))
    for measure in MEASURES:
        calm, rash = measure.rows(explorer), measure.rows(forgetful)
        assert (calm.value == 0).all()
        found = paired_difference(rash.value, rash.cluster, calm.value, calm.cluster, unit="share", bounds=(0, 1))
        assert found.difference.low > 0, measure.name
