"""Held-out evaluation during training: the policy of every cell from one reading of a grid, and rollouts under it.

The plan is read at the colon after the stated position, once for every cell of a grid, as branches that share one
prompt. So these figures leave out what goes wrong in the answer's form; the full evaluation of a finished model goes
through the same agent as every other model.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.worlds.dynamics import step_batch, transitions_batch
from goalscope.worlds.grid import WALL
from goalscope.worlds.planning.shortest import distances_batch, optimal_batch
from training.data import SIZES, Goal, Ints, draw_worlds, plan, sequences
from training.layout import MOST_MOVES
from training.network import Parameters, Places, Shape, forward
from training.vocabulary import MOVES, SYMBOLS, encode

CELL_DENSITIES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Densities of the evaluation, with the sizes the 30 cells of the table."""
TEMPERATURE = 0.7
SERIES = "theseus-held-out"
"""Name of the held-out series of worlds. There are only 192 different 7x7 mazes, so at that size a held-out maze may
well have been seen, with other starts and goals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What was measured on the grids of one size and density.

    Attributes:
        size: rows and columns n.
        density: share of interior walls kept.
        greedy: share of cells whose likeliest planned move is optimal.
        sampled: probability of an optimal first planned move at `TEMPERATURE`, mean over cells.
        valid: probability that a move follows the colon at all, mean over cells.
        accuracy: share of optimal steps in rollouts, mean over trajectories, then grids.
        success: share of trajectories that arrive within the horizon ceil(1.5 L).
        stated: share of grids whose target and agent are written down correctly, each read greedily.
    """

    size: int
    density: float
    greedy: float
    sampled: float
    valid: float
    accuracy: float
    success: float
    stated: float


def read_policy(
    parameters: Parameters, shape: Shape, symbols: Ints, target: Ints, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Ints, float]:
    """Return the first planned move from every cell of each grid.

    Args:
        parameters: parameters of the model.
        shape: its shape.
        symbols: ``[B, n, n]`` grids without an agent.
        target: ``[B, 2]``.
        rng: chooses the cell at which the agent is shown.

    Returns:
        Log-probabilities ``[B, n * n, 4]`` of the moves (0 where there is nothing to move), those ``[B, n * n]`` of
        all else together as a probability, the agent's cell ``[B]``, and the share of correctly stated coordinates.
    """
    import torch

    batch, size, _ = symbols.shape
    count = (size - 2) ** 2 - 1
    plans = plan(symbols, target, count + 1, MOST_MOVES, rng)
    made = sequences(plans, 1)
    where = made.layout
    colons = np.concatenate([[where.fork + 3], where.branches[:, 2]])
    stating = np.array([where.fork - 3, where.fork - 2, where.fork, where.fork + 1])
    device = str(parameters["lm_head.weight"].device)
    places = Places.of(where.allowed, where.positions, np.concatenate([stating, colons]), device)
    with torch.no_grad():
        logits = forward(parameters, shape, torch.from_numpy(made.tokens).to(device), places)[0].double().cpu()
    said = logits[:, : len(stating)].argmax(dim=-1).numpy()
    stated = float((said == made.tokens[:, stating + 1]).all(axis=1).mean())
    found = torch.log_softmax(logits[:, len(stating) :], dim=-1)[..., encode(MOVES)].numpy()
    policy = np.zeros((batch, size * size, 4))
    other = np.zeros((batch, size * size))
    cells = plans.origin[..., 0] * size + plans.origin[..., 1]
    np.put_along_axis(policy, cells[..., None], found, axis=1)
    np.put_along_axis(other, cells, 1 - np.exp(found).sum(axis=-1), axis=1)
    return policy, other, cells[:, 0], stated


def score(
    parameters: Parameters,
    shape: Shape,
    size: int,
    density: float,
    *,
    grids: int,
    seed: int = 0,
    first: int = 0,
    goal: Goal = "goal",
) -> Score:
    """Measure a model on held-out grids of one size and density.

    Args:
        parameters: parameters of the model.
        shape: its shape.
        size: rows and columns n.
        density: share of interior walls kept.
        grids: number of grids.
        seed: root seed of the held-out worlds.
        first: index of the first world.
        goal: what the model was trained to go for.
    """
    rng = stream(seed, SERIES, size, density, first)
    symbols, target = draw_worlds(size, density, grids, seed=seed, first=first, goal=goal, name=SERIES)
    walls = symbols == SYMBOLS.index(WALL)
    distance = distances_batch(walls, target)
    optimal = optimal_batch(distance).reshape(grids, -1, 4)
    policy, other, start, stated = read_policy(parameters, shape, symbols, target, rng)
    known = policy.min(axis=-1) < 0
    best = np.take_along_axis(optimal, policy.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    warm = np.exp(policy / TEMPERATURE) * known[..., None]
    # What is no move keeps its share: it counts as a wrong step.
    total = warm.sum(axis=-1) + np.maximum(other, 0.0) ** (1 / TEMPERATURE)
    warm /= np.where(total > 0, total, 1)[..., None]
    accuracy, success = _roll(walls, distance.reshape(grids, -1), optimal, warm, start, rng)
    return Score(
        size=size,
        density=density,
        greedy=float(best[known].mean()),
        sampled=float((warm * optimal).sum(axis=-1)[known].mean()),
        valid=float(1 - other[known].mean()),
        accuracy=accuracy,
        success=success,
        stated=stated,
    )


def _roll(
    walls: npt.NDArray[np.bool_],
    distance: npt.NDArray[np.integer],
    optimal: npt.NDArray[np.bool_],
    policy: npt.NDArray[np.float64],
    start: Ints,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Return accuracy and success of ten trajectories on each grid."""
    grids = np.repeat(np.arange(len(walls)), 10)
    place = start[grids]
    horizon = np.ceil(1.5 * distance[grids, place]).astype(int)
    tables = transitions_batch(walls)
    right, taken = np.zeros(len(grids)), np.zeros(len(grids))
    for step in range(int(horizon.max())):
        live = (step < horizon) & (distance[grids, place] > 0)
        # The fifth outcome is an answer without a move: the agent stays.
        draws = rng.random(len(grids))
        action = (policy[grids, place].cumsum(axis=-1) <= draws[:, None]).sum(axis=-1)
        moved = np.minimum(action, 3)
        hit = optimal[grids, place, moved] & (action < 4)
        right += live & hit
        taken += live
        place = np.where(live & (action < 4), step_batch(tables, grids, place, moved), place)
    arrived = distance[grids, place] == 0
    return float((right / np.maximum(taken, 1)).mean()), float(arrived.mean())


def table(
    parameters: Parameters, shape: Shape, *, grids: int, seed: int = 0, first: int = 0, goal: Goal = "goal"
) -> list[Score]:
    """Measure a model on all 30 cells; see `score`."""
    return [
        score(parameters, shape, size, density, grids=grids, seed=seed, first=first, goal=goal)
        for size in SIZES
        for density in CELL_DENSITIES
    ]


def summary(scores: list[Score]) -> Mapping[str, object]:
    """Return means over all cells, by size, by density, and over mazes up to 11x11."""

    def mean(name: str, chosen: list[Score]) -> float:
        return round(float(np.mean([getattr(one, name) for one in chosen])), 4)

    names = ("greedy", "sampled", "valid", "accuracy", "success", "stated")
    mazes = [one for one in scores if one.density == 1 and one.size <= 11]
    return {
        **{name: mean(name, scores) for name in names},
        "maze_accuracy_to_11": mean("accuracy", mazes),
        "by_size": {size: mean("accuracy", [one for one in scores if one.size == size]) for size in SIZES},
        "by_density": {
            density: mean("accuracy", [one for one in scores if one.density == density]) for density in CELL_DENSITIES
        },
        "sampled_by_size": {size: mean("sampled", [one for one in scores if one.size == size]) for size in SIZES},
        "sampled_by_density": {
            density: mean("sampled", [one for one in scores if one.density == density]) for density in CELL_DENSITIES
        },
    }
