"""Learned fall-backs: policies for agents that follow no written rule, fitted to the answers.

- *learned moves*: a softmax over the actions, with a ridge, on what each action does: the steps it saves towards each
  place and on each side of it, how that changes with the distance, the time and the key, whether it changes the state,
  and the log probabilities of a few rules;
- *similar states*: the frequencies of the actions in states with the same surroundings, backed off to coarser ones;
- *move frequencies*: how often each action was taken.

Whatever is fitted is judged on clusters of worlds that it was not fitted to (`FOLDS`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from goalscope.goals.hypotheses.definition import FAR, Array, FiniteWorld, Hypothesis, Mask, Numbers
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import parse
from goalscope.goals.prediction.rules import RuleTables
from goalscope.worlds.grid import DELTAS

FOLDS: Final = 5
NAMES: Final = ("learned moves", "similar states", "move frequencies")
"""The fall-backs; none is the name of a rule."""

_RIDGE: Final = 1.0
_BACK_OFF: Final = 2.0  # answers that the coarser frequencies count for
_HINTS: Final = ("follow the wall", "open moves", "beside goal", "flee goal", "near (mirror of goal)", "top row")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Described:
    """What the fall-backs see in N states of a world with A actions.

    Attributes:
        even: ``[N, A]`` the uniform policy over the offered actions.
        actions: ``[N, A, F]`` what each action does; what a world lacks is 0.
        surroundings: keys of the states from coarse to fine: nothing, then walls, then the sides of a place.
    """

    even: Array
    actions: Array
    surroundings: tuple[list[tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fallbacks:
    """Fitted fall-backs of processes with A actions.

    Attributes:
        weights: ``[F]`` weights of the features of *learned moves*.
        tables: from coarse to fine, surroundings -> ``[A]`` counts.
    """

    weights: Array
    tables: Sequence[dict[tuple[int, ...], Array]]

    def at(self, described: Described) -> Array:
        """Return their policies in N states, ``[3, N, A]``; only offered actions have a probability."""
        offered = described.even > 0
        scores = described.actions @ self.weights
        moves = np.exp(np.where(offered, scores - scores.max(axis=1, keepdims=True), -np.inf))
        levels, nothing = [described.even], np.zeros(described.even.shape[1])
        for table, keys in zip(self.tables, described.surroundings, strict=True):
            counts = np.stack([table.get(key, nothing) for key in keys]) + _BACK_OFF * levels[-1]
            levels.append(counts / counts.sum(axis=1, keepdims=True))
        policies = np.where(offered, np.stack([moves, levels[-1], levels[1]]), 0.0)
        return np.asarray(policies / policies.sum(axis=2, keepdims=True))


def fit(samples: Sequence[tuple[Described, Array]]) -> Fallbacks:
    """Fit the fall-backs to samples: descriptions of N states, and counts of answers ``[N, A]`` there."""
    weights = _softmax_fit(
        np.concatenate([described.actions for described, _ in samples]),
        np.concatenate([counts for _, counts in samples]),
        np.concatenate([described.even > 0 for described, _ in samples]),
    )
    tables: list[dict[tuple[int, ...], Array]] = [{} for _ in samples[0][0].surroundings]
    for described, counts in samples:
        for table, keys in zip(tables, described.surroundings, strict=True):
            for key, row in zip(keys, counts, strict=True):
                table[key] = table.get(key, 0.0) + row
    return Fallbacks(weights=weights, tables=tables)


def _softmax_fit(inputs: Array, counts: Array, offered: Mask) -> Array:
    """Return the weights ``[F]`` that maximise the penalised likelihood of counts ``[N, A]``, by Newton's method."""
    weights, total = np.zeros(inputs.shape[2]), counts.sum(axis=1, keepdims=True)
    ridge = _RIDGE * np.eye(len(weights))
    for _ in range(25):
        scores = np.where(offered, inputs @ weights, -np.inf)
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        gradient = np.einsum("na,naf->f", counts - total * chances, inputs) - ridge @ weights
        centred = inputs - np.einsum("na,naf->nf", chances, inputs)[:, None]
        scaled = (centred * np.sqrt(total * chances)[:, :, None]).reshape(-1, len(weights))
        step = np.linalg.solve(scaled.T @ scaled + ridge, gradient)
        size = float(np.abs(step).max())
        weights = weights + step * min(1.0, 2.0 / max(size, 1e-12))
        if size < 1e-3:
            break
    return weights


@lru_cache(maxsize=1)
def _hints() -> tuple[Hypothesis, ...]:
    return tuple(parse(text) for text in _HINTS)


def describe(
    world: FiniteWorld, states: Numbers, times: Numbers, places: Sequence[Hypothesis], tables: RuleTables
) -> Described:
    """Describe N states of a world at given times, by places and by the rules of `_HINTS`."""
    shape = len(states), world.process.actions
    after = world.process.transitions[states] if not world.process.chance else np.tile(states[:, None], shape[1])
    columns = [
        *np.broadcast_to(np.eye(shape[1])[:, None], (shape[1], *shape)),
        (after != states[:, None]).astype(float),
    ]
    late, keys = np.minimum(times, 20)[:, None] / 20, _keys(world, states)
    for number, place in enumerate(places):
        gain, steps, offset = _gain(world, place, states, after)
        columns += [gain, gain * (steps <= 3)]
        if number < 2:
            columns += [gain * late, gain * np.minimum(steps, 16) / 8, gain * keys[0], gain * keys[1]]
            if shape[1] == len(DELTAS):
                ahead = np.sign(offset)
                columns += [ahead[:, [axis]] * DELTAS[:, by] for axis in (0, 1) for by in (0, 1)]
                columns += [gain * (offset[:, [axis]] * sign > 0) for axis, sign in ((0, -1), (0, 1), (1, -1), (1, 1))]
    for hint in _hints():
        table = tables.of(world, hint).policies[0]
        policy = table[np.minimum(times, len(table) - 1), states]
        columns.append(np.log(0.05 * world.even[states] + 0.95 * policy + 1e-12) - np.log(0.25))
    sides = np.sign(_gain(world, places[0], states, states[:, None])[2])
    keys_by_level = [
        np.zeros((len(states), 1)),
        after != states[:, None],
        np.concatenate([after != states[:, None], sides, keys[1]], axis=1),
    ]
    return Described(
        even=world.even[states],
        actions=np.stack(columns, axis=2),
        surroundings=tuple([*map(tuple, level.astype(np.int64).tolist())] for level in keys_by_level),
    )


def _keys(world: FiniteWorld, states: Numbers) -> tuple[Array, Array]:
    """Return for N states whether a key lies in the grid and whether it is held, ``[N, 1]`` each."""
    if "grid" not in world.world.offers or world.grid.key is None:
        return np.zeros((len(states), 1)), np.zeros((len(states), 1))
    has_key = (states >= world.grid.walls.size)[:, None].astype(float)
    return 1 - has_key, has_key


def _gain(world: FiniteWorld, place: Hypothesis, states: Numbers, after: Numbers) -> tuple[Array, Array, Array]:
    """Return the steps to a place that each action saves ``[N, A]``, the steps ``[N, 1]``, the offset ``[N, 2]``."""
    nothing = np.zeros(after.shape), np.full((len(states), 1), 99.0), np.zeros((len(states), 2))
    try:
        steps = world.steps_to(place.where(world))
    except Undefined:
        return nothing
    on_grid = place.kind == "place" and "grid" in world.world.offers
    offset = world.further(place.cell(world))[states] if on_grid else nothing[2]
    reached = steps[states] < FAR
    gain = np.where(reached[:, None] & (steps[after] < FAR), steps[states][:, None] - steps[after], 0)
    return np.clip(gain, -2, 2).astype(float), np.where(reached, steps[states], 99.0)[:, None], offset
