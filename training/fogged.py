"""Fogged states for the training data: noised explorers walk plain grids, and what they have seen by then is shown.

The teacher goes to the goal once it knows a way of seen cells there; until then to the nearest hidden cell that can be
entered from a seen one, among several to one with the most hidden cells around it. The outermost cells are walls in
every world and never worth a walk. On 60 grids of each of the 30 cells (5 sizes, 6 densities) this teacher arrives
within the horizon of 1.5 L in .70 of the episodes, with ties at random it is .65.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.worlds.dynamics import step_batch, transitions_batch
from goalscope.worlds.fog import visible_batch
from goalscope.worlds.grid import DELTAS, FOG, GOAL, OPEN, WALL
from goalscope.worlds.planning.shortest import distances_batch, optimal_batch
from training.vocabulary import SYMBOLS

RADIUS = 3
"""Radius of sight in steps."""
MOST_STEPS = 40
"""Longest history."""
NO_HISTORY = 0.15
"""Share of the batches that show the first step of an episode."""
AROUND = 2
"""Steps around a hidden cell within which the other hidden ones count."""
NOISE = (0.0, 0.1, 0.3, 0.6)
"""Shares of steps that are not the teacher's; each walk draws one of them."""
Ints = npt.NDArray[np.int64]
_BACK = np.array([next(i for i, there in enumerate(DELTAS) if (there == -here).all()) for here in DELTAS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """Episodes under fog, one in each of E worlds.

    Attributes:
        symbols: ``[E, n, n]`` index into `SYMBOLS` of each cell of the whole world, without an agent.
        place: ``[E, T + 1]`` flat cell of the agent before each step.
        action: ``[E, T]`` what it did there.
        lasting: ``[E]`` steps after which the episode still goes on; later entries of the other two mean nothing.
    """

    symbols: Ints
    place: Ints
    action: Ints
    lasting: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What B agents have seen after some steps, and where the teacher goes from there.

    Attributes:
        view: ``[B, n, n]`` index into `SYMBOLS` of each cell, without the agent.
        place: ``[B]`` flat cell of each agent.
        target: ``[B, 2]`` the goal, or the hidden cell to look at.
        history: ``[B, h, 3]`` row, column and action of each step so far.
    """

    view: Ints
    place: Ints
    target: Ints
    history: Ints


def draw_steps(rng: np.random.Generator) -> int:
    """Draw the length of a history: none at times, else roughly uniform in its logarithm."""
    if rng.random() < NO_HISTORY:
        return 0
    return int(np.exp(rng.uniform(0, np.log(MOST_STEPS + 1))))


def walk(symbols: Ints, steps: int, rng: np.random.Generator) -> Walks:
    """Let a noised teacher walk each world from a cell of its own, until it arrives or has made so many steps.

    Args:
        symbols: ``[E, n, n]`` worlds without an agent.
        steps: most steps T.
        rng: where the first cells, the teacher's choices and the noise come from.
    """
    count, size, _ = symbols.shape
    walls = symbols == SYMBOLS.index(WALL)
    flat = symbols.reshape(count, -1)
    goal = (flat == SYMBOLS.index(GOAL)).argmax(axis=1)
    usable = distances_batch(walls, _cells(goal, size)).reshape(count, -1) > 0
    tables = transitions_batch(walls)
    noise = rng.choice(NOISE, size=count)
    place = np.zeros((count, steps + 1), dtype=np.int64)
    action = np.zeros((count, steps), dtype=np.int64)
    place[:, 0] = np.where(usable, rng.random(usable.shape), -1.0).argmax(axis=1)
    lasting = np.full(count, steps)
    each = np.arange(count)
    seen = visible_batch(walls, _cells(place[:, 0], size), RADIUS)
    live = np.arange(count)
    for step in range(steps):
        if len(live) == 0:
            break
        here = place[live, step]
        view = np.where(seen[live], symbols[live], SYMBOLS.index(FOG))
        aim = targets(view, here, rng)
        good = optimal_batch(distances_batch(solid(view, aim), aim)).reshape(len(live), -1, 4)
        options = good[each[: len(live)], here]
        taught = np.where(options, rng.random(options.shape), -1.0).argmax(axis=1)
        # Half of the noise goes on as before or straight back: so do agents that are stuck.
        last = action[live, step - 1] if step else rng.integers(4, size=len(live))
        strays = np.stack([rng.integers(4, size=len(live)), rng.integers(4, size=len(live)), last, _BACK[last]])
        stray = strays[rng.integers(4, size=len(live)), each[: len(live)]]
        action[live, step] = np.where(rng.random(len(live)) < noise[live], stray, taught)
        place[live, step + 1] = after = step_batch(tables, live, here, action[live, step])
        lasting[live[after == goal[live]]] = step
        live = live[after != goal[live]]
        seen[live] |= visible_batch(walls[live], _cells(place[live, step + 1], size), RADIUS)
    return Walks(symbols=symbols, place=place, action=action, lasting=lasting)


def reached(walks: Walks, steps: int, count: int, rng: np.random.Generator) -> State:
    """Draw walks that go on after so many steps and return where they are then.

    Args:
        walks: at least as many walks as wanted.
        steps: length of the history; shorter where too few walks last that long.
        count: number of states B, no two of them from the same walk.
        rng: chooses the walks, and the teacher's target in each.
    """
    steps = min(steps, int(np.sort(walks.lasting)[-count]))
    chosen = rng.choice(np.flatnonzero(walks.lasting >= steps), size=count, replace=False)
    symbols, place = walks.symbols[chosen], walks.place[chosen, : steps + 1]
    size = symbols.shape[-1]
    walls = np.repeat(symbols == SYMBOLS.index(WALL), steps + 1, axis=0)
    sight = visible_batch(walls, _cells(place.ravel(), size), RADIUS)
    view = np.where(sight.reshape(count, steps + 1, size, size).any(axis=1), symbols, SYMBOLS.index(FOG))
    return State(
        view=view,
        place=place[:, -1],
        target=targets(view, place[:, -1], rng),
        history=np.concatenate(
            [_cells(place[:, :steps], size), walks.action[chosen, :steps, None]],
            axis=-1,
        ),
    )


def targets(view: Ints, place: Ints, rng: np.random.Generator) -> Ints:
    """Return where the teacher goes.

    Args:
        view: ``[B, n, n]`` what has been seen, without the agent; the goal must be in reach, seen or not.
        place: ``[B]`` flat cell of each agent.
        rng: chooses among equals.

    Returns:
        ``[B, 2]`` (row, col): the goal where a way of seen cells to it is known, else a hidden cell.
    """
    count, size, _ = view.shape
    hidden = view == SYMBOLS.index(FOG)
    steps = distances_batch(hidden | (view == SYMBOLS.index(WALL)), _cells(place, size))
    far = size * size
    reach = np.where(steps >= 0, steps, far)
    near = np.full(view.shape, far)
    for down, right in DELTAS.tolist():
        beside = reach[:, 1 + down : size - 1 + down, 1 + right : size - 1 + right]
        near[:, 1:-1, 1:-1] = np.minimum(near[:, 1:-1, 1:-1], beside)
    # Nearer comes first; how much is hidden around only decides between equals.
    cost = np.where(hidden & (near < far), near * far - _around(hidden), far * far)
    cost[(view == SYMBOLS.index(GOAL)) & (steps >= 0)] = -far
    cost = cost.reshape(count, -1)
    least = cost == cost.min(axis=1, keepdims=True)
    return _cells(np.where(least, rng.random(cost.shape), -1.0).argmax(axis=1), size)


def solid(view: Ints, target: Ints) -> npt.NDArray[np.bool_]:
    """Return where a plan to a target may not lead: anywhere but to seen open cells and the target itself."""
    closed: npt.NDArray[np.bool_] = view != SYMBOLS.index(OPEN)
    closed[np.arange(len(view)), target[:, 0], target[:, 1]] = False
    return closed


def _around(hidden: npt.NDArray[np.bool_]) -> Ints:
    """Return how many hidden cells lie within `AROUND` steps of each cell; the outermost do not count."""
    size = hidden.shape[-1]
    inner = np.zeros((len(hidden), size + 2 * AROUND, size + 2 * AROUND), dtype=np.int64)
    inner[:, AROUND + 1 : -AROUND - 1, AROUND + 1 : -AROUND - 1] = hidden[:, 1:-1, 1:-1]
    found = np.zeros(hidden.shape, dtype=np.int64)
    for down in range(2 * AROUND + 1):
        for right in range(2 * AROUND + 1):
            if abs(down - AROUND) + abs(right - AROUND) <= AROUND:
                found += inner[:, down : down + size, right : right + size]
    return found


def _cells(place: npt.NDArray[np.integer], size: int) -> Ints:
    """Return flat cells as (row, col)."""
    return np.stack(np.divmod(place, size), axis=-1).astype(np.int64)
