"""Posteriors, decisions and their literal readings, for the tests of maps and beliefs."""

from typing import Any

import numpy as np

from goalscope._ground.rng import stream
from goalscope.inside.probing import AGENT, CLASSES, GOAL, OPEN, PADDING, WALL, Decisions, one_hot
from goalscope.worlds import Grid
from goalscope.worlds.planning import optimal_actions

FRAME = 7


def random_posterior(count: int, height: int = 5, width: int = 6, seed: int = 0) -> np.ndarray[Any, Any]:
    """Posteriors of which some classes win in many cells."""
    raw = stream(seed, "posterior", height, width).standard_exponential((count, height, width, len(CLASSES))) ** 3
    raw[..., OPEN] *= 4
    found: np.ndarray[Any, Any] = raw / raw.sum(axis=-1, keepdims=True)
    return found


def rooms(count: int, seed: int = 0, density: float = 0.25) -> np.ndarray[Any, Any]:
    """Labels ``[count, FRAME * FRAME]`` of grids with a border, an agent and a goal that it can reach."""
    rng = stream(seed, "rooms")
    found: list[np.ndarray[Any, Any]] = []
    while len(found) < count:
        grid = np.full((FRAME, FRAME), PADDING)
        grid[:6, :6] = WALL
        grid[1:5, 1:5] = np.where(rng.random((4, 4)) < density, WALL, OPEN)
        cells = np.argwhere(grid == OPEN)
        if len(cells) < 4:
            continue
        agent, goal = cells[rng.permutation(len(cells))[:2]]
        grid[tuple(agent)], grid[tuple(goal)] = AGENT, GOAL
        if literal_optimal((grid == WALL) | (grid == PADDING), tuple(agent), tuple(goal)):
            found.append(grid.ravel())
    return np.array(found)


def literal_optimal(closed: np.ndarray[Any, Any], agent: tuple[int, ...], goal: tuple[int, ...]) -> set[int]:
    """The optimal actions on one map, by the planner of whole grids; its two cells are opened first."""
    (a, b), (c, d) = map(int, agent), map(int, goal)
    if (a, b) == (c, d):
        return set()
    walls = closed.copy()
    walls[a, b] = walls[c, d] = False
    return {int(action) for action in optimal_actions(Grid(walls=walls, start=(a, b), goal=(c, d)), (a, b))}


def decide(labels: np.ndarray[Any, Any], action: Any, grid: Any, **changes: Any) -> Decisions:
    """Decisions at states ``[N, FRAME * FRAME]``; ``action`` None: the first optimal one."""
    square = labels.reshape(-1, FRAME, FRAME)
    count = len(square)
    place = np.array([np.argwhere(one == AGENT)[0] for one in square])
    goal = np.array([np.argwhere(one == GOAL)[0] for one in square])
    closed = (square == WALL) | (square == PADDING)
    sets = [literal_optimal(*each) for each in zip(closed, place, goal, strict=True)]
    optimal = np.array([[move in each for move in range(4)] for each in sets])
    text = np.empty(count, dtype=object)
    text[:] = [str(one) for one in grid]
    given: dict[str, Any] = {
        "action": optimal.argmax(axis=1) if action is None else np.asarray(action, dtype=np.int64),
        "optimal": optimal,
        "place": place,
        "goal": goal,
        "agent": np.full(count, "a", dtype=object),
        "shape": np.full((count, 2), 6),
        "density": np.full(count, 0.5),
        "episode_id": text,
        "step": np.arange(count),
        "cluster": text,
    }
    return Decisions(**(given | changes))


def certain(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return one_hot(labels, FRAME)
