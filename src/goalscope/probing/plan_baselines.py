"""What can be guessed of a plan or a distance without reading it out of activations.

* a guess among four actions at every place, ``0.25^N`` (the baseline of the paper);
* ``marginal``: drawn from how often each token stands at each place of the training plans;
* ``commonest``: the commonest first N tokens of the training plans, the best guess that sees nothing;
* repeat the first action; and its stronger form, the commonest continuation of the first action in the training plans;
* a planner on a map: decoded, or (labelled) the true one;
* the actions that the written reasoning names;
* for distances the mean, and a line from the Manhattan distance between agent and goal on such a map.

How common something is in the training plans is counted in the weights of the scores: for each subset of plans and
each N all grids weigh alike, and so do the plans of one grid that are scored there.

Source: behavioural and representational evaluation, section 5.3 (the first one; the others are ours).
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_finite, check_shape
from goalscope.planning import distances_batch, optimal_batch
from goalscope.probing.labels import END, TOKENS, UNKNOWN, Plans, check_tokens
from goalscope.probing.maps import DecodedMaps
from goalscope.probing.plan_scores import Subset, chance_matches, in_subset
from goalscope.worlds.grid import ACTIONS, DELTAS

_NAMES: Final = {name: token for token, name in enumerate(TOKENS[:END])}
_NAMED: Final = re.compile(r"[^\W\d_]+")
_LINKS: Final = frozenset(("and", "then", "move", "go", "to"))  # may stand between the actions of one list


def guess(number: int) -> float:
    """Return the chance that a guess among four actions at each of N places is right everywhere, ``0.25^N``."""
    return float(len(ACTIONS)) ** -number


def marginal_matches(train: Plans, tokens: npt.NDArray[np.int8], plans: Subset = "all") -> npt.NDArray[np.float64]:
    """Return the chance that tokens drawn place by place at their frequency in the training plans are right.

    ``[N, T]`` for the first 1 to T tokens, NaN where unknown; at each N the frequencies are those of the training plans
    that are scored there (of a subset), all grids weighing alike.
    """
    _check(train, tokens)
    given, found = np.maximum(tokens, 0).astype(np.int64), np.zeros(tokens.shape)
    for number in range(1, train.horizon + 1):
        used, counts = _scored_at(train, number, plans)
        frequency = [
            np.bincount(train.tokens[used, place], 1 / counts, minlength=len(TOKENS)) for place in range(number)
        ]
        total = max(float(np.sum(frequency[0])), 1.0)
        drawn = [share[given[:, place]] / total for place, share in enumerate(frequency)]
        found[:, number - 1] = np.prod(drawn, axis=0)
    return np.where(tokens == UNKNOWN, np.nan, found)


def commonest_matches(
    train: Plans, tokens: npt.NDArray[np.int8], first: npt.NDArray[Any] | None = None, plans: Subset = "all"
) -> npt.NDArray[np.float64]:
    """Return whether the commonest first N tokens of the training plans are right, ``[N, T]`` 1, 0 or NaN: unknown.

    No guess that is the same at every step has a higher prefix accuracy on the training plans of the subset. With the
    ``first`` token ``[N]`` (decoded) the commonest continuation of it is taken. Among equally common ones the first in
    the order of tokens is taken; a first token that no training plan begins with has no continuation and is wrong from
    N = 2 on.
    """
    _check(train, tokens)
    begins = np.full(len(tokens), UNKNOWN) if first is None else np.asarray(first)
    check_shape("first", begins, "N", {"N": len(tokens)})
    found = np.zeros(tokens.shape)
    for number in range(1, tokens.shape[1] + 1):
        best = _commonest(train, number, None if first is None else sorted(set(begins.tolist())), plans)
        for begin, plan in best.items():
            rows = np.flatnonzero(begins == begin)
            found[rows, number - 1] = (tokens[rows, :number] == plan).all(axis=1)
    return np.where(tokens == UNKNOWN, np.nan, found)


def _commonest(train: Plans, number: int, begins: Sequence[int] | None, plans: Subset) -> dict[int, tuple[int, ...]]:
    """Return the commonest first N tokens by their first token, or of all plans (under `UNKNOWN`)."""
    used, counts = _scored_at(train, number, plans)
    # Weights 1 / count as whole numbers: sums are exact, and equally common plans are found equal.
    whole = math.lcm(*counts.tolist())
    totals: dict[int, Counter[tuple[int, ...]]] = {}
    for plan, count in zip(map(tuple, train.tokens[used, :number].tolist()), counts.tolist(), strict=True):
        totals.setdefault(UNKNOWN if begins is None else plan[0], Counter())[plan] += whole // count
    best = {begin: min(total, key=lambda plan: (-total[plan], plan)) for begin, total in totals.items()}
    # The first token is given: nothing must be known of it from the training plans.
    return best if begins is None or number > 1 else {begin: (begin,) for begin in begins}


def _scored_at(train: Plans, number: int, subset: Subset) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return which plans are scored at N, and how many of them are of the same grid: one over it weighs."""
    used = np.flatnonzero(in_subset(train, number, subset))
    grids, counts = np.unique(train.grid_id[used], return_inverse=True, return_counts=True)[1:]
    return used, counts[grids]


def _check(train: Plans, tokens: npt.NDArray[np.int8]) -> None:
    check_tokens("tokens", tokens)
    if not len(train) or train.horizon != tokens.shape[1]:
        raise ValueError(
            f"training plans must be there and have the {tokens.shape[1]} places of the others, got "
            f"{list(train.tokens.shape)}"
        )


def repeated(first: npt.NDArray[Any], horizon: int) -> npt.NDArray[np.int8]:
    """Return plans that repeat their first token ``[N]``, ``[N, T]``."""
    return np.repeat(np.asarray(first, dtype=np.int8)[:, None], horizon, axis=1)


def planner_matches(
    maps: DecodedMaps, tokens: npt.NDArray[np.int8], *, ties: Literal["uniform", "best"] = "uniform"
) -> npt.NDArray[np.float64]:
    """Return how well a planner that has a map foretells the executed plans, ``[N, T]``, NaN where unknown.

    With ties "uniform" the chance that a planner which takes any of the best actions alike says the first N tokens;
    with "best" whether some shortest path begins so, the most that any rule for ties can reach. A goal that cannot be
    reached, or lies on the agent, gives no plan: 0.
    """
    check_tokens("tokens", tokens)
    check_shape("tokens", tokens, "N T", {"N": len(maps)})
    rows, (distance, ahead) = np.arange(len(tokens)), _distance(maps)
    optimal = optimal_batch(distance)
    at, alive = maps.agent.astype(np.int64), ahead > 0
    chances = np.zeros(tokens.shape)
    for number in range(tokens.shape[1]):
        token = tokens[:, number].astype(np.int64)
        best = optimal[rows, at[:, 0], at[:, 1]]  # [N, 4]
        arrived = (at == maps.goal).all(axis=1)
        moves = (token >= 0) & (token < END)
        action = np.where(moves, token, 0)
        right = np.where(moves, best[rows, action], arrived & (token == END)) & alive
        share = 1 / np.maximum(best.sum(axis=1), 1) if ties == "uniform" else 1.0
        chances[:, number] = right * np.where(moves, share, 1.0)
        alive = right
        at = np.where((moves & right)[:, None], at + DELTAS[action], at)
    return chance_matches(chances, tokens)


def planner_length(maps: DecodedMaps, horizon: int) -> npt.NDArray[np.float64]:
    """Return the length of a shortest path on each map, at most T, ``[N]``; NaN where there is no plan."""
    ahead = _distance(maps)[1]
    return np.where(ahead > 0, np.minimum(ahead, horizon).astype(np.float64), np.nan)


def _distance(maps: DecodedMaps) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the steps to the goal from each cell ``[N, H, W]``, -1 where there is no way, and from the agent's."""
    rows, walls = np.arange(len(maps)), maps.closed
    for cell in (maps.agent, maps.goal):
        walls[rows, cell[:, 0], cell[:, 1]] = False
    distance = distances_batch(walls, maps.goal)
    return distance, distance[rows, maps.agent[:, 0], maps.agent[:, 1]]


def named_plans(reasoning: Sequence[str] | npt.NDArray[np.object_], horizon: int) -> npt.NDArray[np.int8]:
    """Return the plans that N texts name, ``[N, T]``: the longest list of actions in each, the last of several.

    A list is names of actions (any case) with nothing but signs, numbers and words such as "then" between them. A
    shorter list is filled with the end token.
    """
    found = np.full((len(reasoning), horizon), END, dtype=np.int8)
    for row, text in enumerate(reasoning):
        best: list[int] = []
        run: list[int] = []
        for word in _NAMED.findall(text):
            token = _NAMES.get(word.upper())
            if token is not None:
                run.append(token)
            elif word.lower() not in _LINKS:
                run = []
            if len(run) >= len(best):
                best = run  # the list itself: it grows with the run
        found[row, : min(len(best), horizon)] = best[:horizon]
    return found


def fit_line(x: npt.ArrayLike, y: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> tuple[float, float]:
    """Return slope and offset of the line of least squares; where x does not vary, 0 and the mean of y."""
    given, target = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    check_shape("y", target, "N", check_shape("x", given, "N"))
    check_finite("x", given)
    check_finite("y", target)
    if not len(given):
        raise ValueError("a line must be fitted to points, got none")
    share = np.ones(len(given)) if weights is None else np.asarray(weights, dtype=np.float64)
    middle, mean = float(np.average(given, weights=share)), float(np.average(target, weights=share))
    centred = given - middle
    spread = float(share @ centred**2)
    slope = float((share * centred) @ (target - mean)) / spread if spread > 0 else 0.0
    return slope, mean - slope * middle
