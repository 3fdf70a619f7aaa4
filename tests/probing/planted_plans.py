"""Plans whose content is known, and activations that hold them or hold nothing."""

from typing import Any

import numpy as np
from planted import activations, cells_of

from goalscope._ground.rng import stream
from goalscope.inside.activations import Activations
from goalscope.inside.probing import AGENT, END, GOAL, OPEN, Cells, Plans, PlanSettings

WIDTH = 32
SMALL = PlanSettings(width=64, feedforward=64, epochs=12, rate=5e-3, validation=0.1)
QUICK = PlanSettings(width=16, feedforward=16, heads=4, epochs=2, rate=1e-3)


def worlds(grids: int = 60, steps: int = 1, frame: int = 5, seed: int = 0) -> Cells:
    """Open squares with an agent and a goal anywhere."""
    rng = stream(seed, "plan worlds")
    labels = np.full((grids * steps, frame * frame), OPEN)
    for row in labels:
        row[rng.permutation(frame * frame)[:2]] = AGENT, GOAL
    return cells_of(labels, steps, frame)


def random_plans(cells: Cells, seed: int = 0, horizon: int = 10, short: int = 3) -> Plans:
    """Plans of independent actions, between ``short`` actions and more than fit."""
    rng = stream(seed, "random plans")
    tokens = rng.integers(0, END, (len(cells), horizon)).astype(np.int8)
    length = rng.integers(short, horizon + 4, len(cells))
    tokens[np.arange(horizon) >= length[:, None]] = END
    return Plans(tokens=tokens, episode_id=cells.episode_id, step=cells.step, cluster=cells.cluster)


def run_plans(cells: Cells, seed: int = 0, horizon: int = 10) -> Plans:
    """Plans of two straight runs, as paths through a room are."""
    rng = stream(seed, "run plans")
    count = len(cells)
    turn, length = rng.integers(1, 9, (count, 1)), rng.integers(3, horizon + 4, (count, 1))
    first, second = rng.integers(0, END, (2, count, 1))
    places = np.arange(horizon)
    tokens = np.where(places < length, np.where(places < turn, first, second), END).astype(np.int8)
    return Plans(tokens=tokens, episode_id=cells.episode_id, step=cells.step, cluster=cells.cluster)


def encoded(cells: Cells, plans: Plans, **changes: Any) -> Activations:
    """Encode plans linearly, mixed at random over all directions of the three vectors and shifted."""
    code = np.eye(END + 1)[plans.tokens].reshape(len(plans), -1)
    rng = stream(0, "encoded plans")
    mixed = rng.standard_normal((code.shape[1], 3 * WIDTH))
    return activations(cells, code @ mixed + 3 * rng.standard_normal(3 * WIDTH), **changes)


def nothing(cells: Cells, seed: int = 0, **changes: Any) -> Activations:
    """Activations that have nothing to do with anything."""
    return activations(cells, stream(seed, "nothing").standard_normal((len(cells), 3 * WIDTH)), **changes)
