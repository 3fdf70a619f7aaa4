"""Held-out evaluation on task maps during training: what is read off traces that the teacher has written so far.

It leaves out what goes wrong in an answer's form and how errors add up over an episode; the full evaluation of a
finished model goes through the same agent as every other model.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from goalscope._ground.rng import stream
from goalscope.worlds.tasks.generate import generate_task_map
from training.network import Parameters, Places, Shape, forward
from training.task_data import HELD_OUT, TaskMixture, Walk
from training.task_tree import FIRST_CELL, SIDE, TaskBatch
from training.task_vocabulary import AT, STEPS, vocabulary

_STRATEGIES = ("exploration", "exploitation", "balance")
"""Those whose teacher is known; without a sentence one of two is right."""


def held_out(mixture: TaskMixture, maps: int, *, memory: bool) -> list[TaskBatch]:
    """Return sequences of walks through held-out maps.

    Args:
        mixture: presets and how often a walk is asked about.
        maps: maps of each preset.
        memory: whether prompts hold the summary.
    """
    found = []
    for preset in mixture.presets:
        for index in range(maps):
            rng = stream(mixture.seed, "ariadne-held-out", preset, index, int(memory))
            task_map = generate_task_map(preset, seed=HELD_OUT + index)
            strategy = _STRATEGIES[index % len(_STRATEGIES)]
            walk = Walk(task_map, mixture, rng, strategy=strategy, reasoned=index % 2 > 0, memory=memory)
            batch = walk.batch()
            if batch is not None:
                found.append(batch)
    return found


def task_table(parameters: Parameters, shape: Shape, mixture: TaskMixture, maps: int) -> Mapping[str, object]:
    """Return the shares of right targets and first moves, each the likeliest one, from the agent's own cell.

    Args:
        parameters: parameters of the model.
        shape: its shape.
        mixture: presets and how often a walk is asked about.
        maps: held-out maps of each preset, without and with the summary.
    """
    told: dict[str, object] = {}
    for memory, name in ((False, "plain"), (True, "memory")):
        scores = [_score(parameters, shape, batch) for batch in held_out(mixture, maps, memory=memory)]
        for part in ("move", "target", "stated"):
            told[f"{name}_{part}"] = _share([score[part] for score in scores])
    return told


def _score(parameters: Parameters, shape: Shape, batch: TaskBatch) -> dict[str, list[bool]]:
    import torch

    device = str(parameters["lm_head.weight"].device)
    places = Places.packed(batch.allowed, batch.positions, batch.wanted, device)
    with torch.no_grad():
        logits = forward(parameters, shape, torch.from_numpy(batch.tokens).to(device), places)[0][0].float().cpu()
    best = logits.argmax(dim=-1).numpy()
    cell = best - FIRST_CELL
    aiming = batch.own & batch.targets.any(axis=-1)
    inside = (cell >= 0) & (cell < SIDE * SIDE)
    right = inside & batch.targets[np.arange(len(best)), np.where(inside, cell, 0)]
    moving = batch.own & (batch.moves.sum(axis=-1) > 0)
    steps = np.array(vocabulary().encode(STEPS))
    good = (batch.moves * (steps[None] == best[:, None])).sum(axis=-1) > 0
    stating = np.isin(batch.tokens[0, batch.wanted], vocabulary().encode([AT]))
    return {
        "target": right[aiming].tolist(),
        "move": good[moving].tolist(),
        "stated": (best == batch.labels)[stating].tolist(),
    }


def _share(parts: Sequence[list[bool]]) -> float | None:
    whole = [one for part in parts for one in part]
    return round(float(np.mean(whole)), 4) if whole else None
