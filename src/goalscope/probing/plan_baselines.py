"""What a plan can be guessed from without reading a plan out of activations.

* a guess among four actions at every place, ``0.25^N`` (the baseline of the paper);
* ``marginal``: drawn from how often each token stands at each place of the training plans;
* ``commonest``: the commonest first N tokens of the training plans, the best guess that sees nothing;
* repeat the first action; and its stronger form, the commonest continuation of the first action in the training plans;
* a planner on a map: decoded, or (labelled) the true one;
* the actions that the written reasoning names.

How common something is in the training plans is counted in the weights of the scores: at each N all grids weigh alike,
and so do the known plans of one grid.

Source: behavioural and representational evaluation, section 5.3 (the first one; the others are ours).
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape
from goalscope.planning import distances_batch, optimal_batch
from goalscope.probing.maps import Layouts
from goalscope.probing.plan_scores import chance_matches
from goalscope.probing.plans import END, TOKENS, UNKNOWN, Plans, check_tokens
from goalscope.worlds.grid import ACTIONS, DELTAS

Ties = Literal["uniform", "best"]

_NAMES: Final = {name: token for token, name in enumerate(TOKENS[:END])}
_NAMED: Final = re.compile(r"[^\W\d_]+")
_LINKS: Final = frozenset(("and", "then", "move", "go", "to"))
"""Words that may stand between the actions of one list."""


def guess(number: int) -> float:
    """Return the chance that a guess among four actions at each of N places is right everywhere, ``0.25^N``."""
    return float(len(ACTIONS)) ** -number


def marginal_matches(train: Plans, tokens: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    """Return the chance that tokens drawn place by place at their frequency in the training plans are right.

    Args:
        train: M training plans; all grids weigh alike.
        tokens: ``[N, T]`` executed plans.

    Returns:
        ``[N, T]`` for the first 1 to T tokens, NaN where unknown.
    """
    _check(train, tokens)
    frequency = np.zeros((len(TOKENS), train.horizon))
    for place in range(train.horizon):
        known, counts = _known(train, place)
        frequency[:, place] = np.bincount(train.tokens[known, place], 1 / counts, minlength=len(TOKENS))
    frequency /= np.maximum(frequency.sum(axis=0), 1)
    return chance_matches(np.take_along_axis(frequency, np.maximum(tokens, 0).astype(np.int64), axis=0), tokens)


def commonest_matches(
    train: Plans, tokens: npt.NDArray[np.int8], first: npt.NDArray[Any] | None = None
) -> npt.NDArray[np.float64]:
    """Return whether the commonest first N tokens of the training plans are right.

    No guess that is the same at every step has a higher prefix accuracy on the training plans. Where all of them are
    known to their end, this accuracy does not rise with N.

    Args:
        train: M training plans; all grids weigh alike.
        tokens: ``[N, T]`` executed plans.
        first: ``[N]`` the first token where it is known (decoded): the commonest continuation of it is taken.

    Returns:
        ``[N, T]`` 1 or 0, NaN where unknown. Among equally common ones the first in the order of tokens is taken; a
        first token that no training plan begins with has no continuation and is wrong from N = 2 on.
    """
    _check(train, tokens)
    begins = np.full(len(tokens), UNKNOWN) if first is None else np.asarray(first)
    check_shape("first", begins, "N", {"N": len(tokens)})
    found = np.zeros(tokens.shape)
    for number in range(1, tokens.shape[1] + 1):
        best = _commonest(train, number, None if first is None else sorted(set(begins.tolist())))
        for begin, plan in best.items():
            rows = np.flatnonzero(begins == begin)
            found[rows, number - 1] = (tokens[rows, :number] == plan).all(axis=1)
    found[tokens == UNKNOWN] = np.nan
    return found


def _commonest(train: Plans, number: int, begins: Sequence[int] | None) -> dict[int, tuple[int, ...]]:
    """Return the commonest first N tokens by their first token, or of all plans (under `UNKNOWN`)."""
    known, counts = _known(train, number - 1)
    # Weights 1 / count as whole numbers: sums are exact, and equally common plans are found equal.
    whole = math.lcm(*counts.tolist())
    totals: dict[int, Counter[tuple[int, ...]]] = {}
    for plan, count in zip(map(tuple, train.tokens[known, :number].tolist()), counts.tolist(), strict=True):
        totals.setdefault(UNKNOWN if begins is None else plan[0], Counter())[plan] += whole // count
    best = {begin: min(total, key=lambda plan: (-total[plan], plan)) for begin, total in totals.items()}
    # The first token is given: nothing must be known of it from the training plans.
    return best if begins is None or number > 1 else {begin: (begin,) for begin in begins}


def _known(train: Plans, place: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return which plans are known up to a place, and how many of them are of the same grid: one over it weighs."""
    known = np.flatnonzero(train.tokens[:, place] != UNKNOWN)
    grids, counts = np.unique(train.grid_id[known], return_inverse=True, return_counts=True)[1:]
    return known, counts[grids]


def repeated(first: npt.NDArray[Any], horizon: int) -> npt.NDArray[np.int8]:
    """Return plans that repeat their first token ``[N]``, ``[N, T]``."""
    return np.repeat(np.asarray(first, dtype=np.int8)[:, None], horizon, axis=1)


def planner_matches(
    layout: Layouts, tokens: npt.NDArray[np.int8], *, ties: Ties = "uniform"
) -> npt.NDArray[np.float64]:
    """Return how well a planner that has a map foretells the executed plans.

    Args:
        layout: N maps, e.g. decoded ones.
        tokens: ``[N, T]`` executed plans.
        ties: "uniform": the chance that a planner which takes any of the best actions alike says the first N tokens;
            "best": whether some shortest path begins so, the most that any rule for ties can reach.

    Returns:
        ``[N, T]``, NaN where unknown. A goal that cannot be reached, or lies on the agent, gives no plan: 0.
    """
    check_tokens("tokens", tokens)
    check_shape("tokens", tokens, "N T", {"N": len(layout)})
    rows, distance = np.arange(len(tokens)), _distance(layout)
    optimal = optimal_batch(distance)
    at, alive = layout.agent.astype(np.int64), _from_agent(layout, distance) > 0
    chances = np.zeros(tokens.shape)
    for number in range(tokens.shape[1]):
        token = tokens[:, number].astype(np.int64)
        best = optimal[rows, at[:, 0], at[:, 1]]  # [N, 4]
        arrived = (at == layout.goal).all(axis=1)
        moves = (token >= 0) & (token < END)
        action = np.where(moves, token, 0)
        right = np.where(moves, best[rows, action], arrived & (token == END)) & alive
        share = 1 / np.maximum(best.sum(axis=1), 1) if ties == "uniform" else 1.0
        chances[:, number] = right * np.where(moves, share, 1.0)
        alive = right
        at = np.where((moves & right)[:, None], at + DELTAS[action], at)
    return chance_matches(chances, tokens)


def planner_length(layout: Layouts, horizon: int) -> npt.NDArray[np.float64]:
    """Return the length of a shortest path on each map, at most T, ``[N]``; NaN where there is no plan."""
    ahead = _from_agent(layout, _distance(layout))
    return np.where(ahead > 0, np.minimum(ahead, horizon).astype(np.float64), np.nan)


def unplanned(layout: Layouts) -> npt.NDArray[np.bool_]:
    """Return on which maps there is no plan: the goal cannot be reached, or lies on the agent's cell, ``[N]``."""
    found: npt.NDArray[np.bool_] = _from_agent(layout, _distance(layout)) <= 0
    return found


def named_plans(reasoning: Sequence[str] | npt.NDArray[np.object_], horizon: int) -> npt.NDArray[np.int8]:
    """Return the plans that texts name: the longest list of actions in each, the last one of equally long ones.

    A list is names of actions (any case) with nothing but signs, numbers and words such as "then" between them.

    Args:
        reasoning: N texts.
        horizon: places T; a shorter list is filled with the end token.

    Returns:
        ``[N, T]``; a text that names no action gives end tokens alone.
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


def _distance(layout: Layouts) -> npt.NDArray[np.int32]:
    """Return the steps from each cell to the goal, ``[N, H, W]``, -1 where it cannot be reached."""
    rows = np.arange(len(layout))
    walls = layout.walls.copy()
    for cell in (layout.agent, layout.goal):
        walls[rows, cell[:, 0], cell[:, 1]] = False
    return distances_batch(walls, layout.goal)


def _from_agent(layout: Layouts, distance: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return the steps from the agent's cell to the goal, ``[N]``: no plan where they are not above 0."""
    found: npt.NDArray[np.int32] = distance[np.arange(len(layout)), layout.agent[:, 0], layout.agent[:, 1]]
    return found


def _check(train: Plans, tokens: npt.NDArray[np.int8]) -> None:
    check_tokens("tokens", tokens)
    if not len(train) or train.horizon != tokens.shape[1]:
        raise ValueError(
            f"training plans must be there and have the {tokens.shape[1]} places of the others, got "
            f"{list(train.tokens.shape)}"
        )
