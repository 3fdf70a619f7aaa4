"""An agent's actions against what it seems to believe: optimal on the decoded map, in truth, in both or in neither.

Every number arrives beside the same number with shuffled beliefs: the decoded map of another state of equal size and
density, of another grid. Recovery and the likeliest candidates explain many actions by chance alone, so that only the
difference says something. It is no draw but the exact mean over all such states.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_shape, freeze
from goalscope.probing.cells import grid_tags, ratio
from goalscope.probing.decisions import Decisions, chosen
from goalscope.probing.maps import DecodedMaps, check_posterior, decode_maps, likeliest, place_weights
from goalscope.probing.optimal_actions_batch import expected_optimality, optimal_sets
from goalscope.probing.probe import AGENT, GOAL
from goalscope.rows import Rows, Tag
from goalscope.stats import LESS, Estimate, estimate_pooled
from goalscope.stats.estimate import factorize

TOPS: Final = (1, 3, 5, 10)
"""How many candidate cells of agent and goal are looked at."""

TRUTH: Final = "accuracy against truth"
DECODED: Final = "accuracy against decoded beliefs"
OVERLAP: Final = "agreement, policies overlap"
BOTH: Final = "agreement, both optimal"
VERDICT: Final = "agreement, same verdict"
RECOVERY: Final = "recovery"
INVERSE: Final = "inverse recovery"
EXPECTED: Final = "expected optimality under beliefs"
NO_PLAN: Final = "no plan"
SHARES: Final = (DECODED, OVERLAP, BOTH, VERDICT, RECOVERY, INVERSE, EXPECTED, NO_PLAN)
"""Shares that depend on the decoded map; with those of `top_name` they have a control."""
ACTIONS: Final = "actions"
WRONG: Final = "actions wrong in truth"
WRONG_ON_MAP: Final = "actions wrong on the decoded map"
SHUFFLED: Final = ", shuffled beliefs"
DIFFERENCE: Final = f"{LESS}shuffled"
UNTRAINED: Final = f"{DIFFERENCE}{LESS}untrained"
"""What the differences of a probe exceed those of the same probe on an untrained model by."""

_ROUNDING: Final = 1e-12
_POWERS: Final = np.array([1, 2, 4, 8])  # a set of actions as a number below 16
_SETS: Final = (np.arange(16)[:, None] & _POWERS) != 0  # [16, 4]


def top_name(count: int) -> str:
    """Return the name of the accuracy against some candidate pair of the likeliest cells."""
    return f"accuracy against top-{count} beliefs"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beliefs:
    """What the decoded maps of N states call optimal.

    Attributes:
        maps: the maps.
        optimal: ``[N, 4]`` bool; no action where the map holds no plan: the goal cannot be reached or is the agent's
            own cell.
        tops: numbers of candidate cells, ascending.
        top: ``[N, T, 4]`` bool, whether an action is optimal for some pair of one of the k likeliest cells of the agent
            and one of those of the goal, for each k of `tops`.
        expected: ``[N, 4]`` chance that an action is optimal, agent and goal standing where the posterior says.

    Raises:
        ValueError: arrays that do not fit one another.
    """

    maps: DecodedMaps
    optimal: npt.NDArray[np.bool_]
    tops: tuple[int, ...]
    top: npt.NDArray[np.bool_]
    expected: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        sizes = {"N": len(self.maps), "T": len(self.tops)}
        for name, shape in (("optimal", "N 4"), ("top", "N T 4"), ("expected", "N 4")):
            check_shape(name, getattr(self, name), shape, sizes)
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.maps)

    @property
    def no_plan(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the map calls no action optimal."""
        found: npt.NDArray[np.bool_] = np.logical_not(self.optimal.any(axis=1))
        return found


def read_beliefs(posterior: npt.ArrayLike, *, tops: tuple[int, ...] = TOPS) -> Beliefs:
    """Return what posteriors over the classes of cells call optimal.

    The layout is the likeliest class of each cell; candidate cells of agent and goal are passable whatever it says.

    Args:
        posterior: ``[N, H, W, K]``, see `decode_maps`.
        tops: numbers of candidate cells, ascending.

    Raises:
        ValueError: no probabilities, a state without any chance of an agent or goal, or numbers that do not ascend.
    """
    given = check_posterior(posterior)
    if not tops or min(tops) < 1 or list(tops) != sorted(set(tops)):
        raise ValueError(f"numbers of candidates must be >= 1 and ascend, got {tops}")
    maps = decode_maps(given)
    closed = maps.closed
    pairs = optimal_sets(closed, likeliest(given, AGENT, tops[-1]), likeliest(given, GOAL, tops[-1]))
    return Beliefs(
        maps=maps,
        optimal=pairs[:, 0, 0],
        tops=tops,
        top=np.stack([pairs[:, :count, :count].any(axis=(1, 2)) for count in tops], axis=1),
        expected=expected_optimality(closed, place_weights(given, AGENT), place_weights(given, GOAL)),
    )


def belief_rows(beliefs: Beliefs, decisions: Decisions, tags: Mapping[str, Tag] | None = None) -> Rows:
    """Return how the actions of N steps fit the beliefs that were decoded there, one row for each measure and grid.

    Args:
        beliefs: of N states.
        decisions: what was done there. Turns without an action enter nothing but "turns without an action".
        tags: kept with every row: head, control, site, layer, scope, reading, ...

    Returns:
        Rows tagged by agent, size and density, over all states of a grid; by shape too where grids are not square:
        turned versions of one grid are rows of their own. Shares: those of `SHARES` and of `top_name`,
        each also with shuffled beliefs and as the difference of both; "accuracy against truth", "decoded agent at its
        cell", "decoded goal at its cell". Distances: "decoded agent's distance" and "decoded goal's distance" (cells,
        Manhattan). Counts (steps): "actions", "actions wrong in truth", "actions wrong on the decoded map", "turns
        without an action". NaN where a denominator is empty, or where no other grid of that size and density is there
        to take beliefs from.

    Raises:
        ValueError: other numbers of beliefs and decisions.
    """
    if len(beliefs) != len(decisions):
        raise ValueError(f"beliefs and decisions must be of the same steps, got {len(beliefs)} and {len(decisions)}")
    kinds, grids = _groups(decisions)
    first = np.unique(grids, return_index=True)[1]
    agent = decisions.agent[first].tolist()
    common: dict[str, Any] = {**(tags or {}), "agent": agent, **grid_tags(decisions.shape, decisions.density, first)}
    sides = decisions.shape[first]
    if (sides[:, 0] != sides[:, 1]).any():  # a turned grid is a row of its own
        common["shape"] = [f"{height}x{width}" for height, width in sides.tolist()]
    return Rows.concatenate(
        Rows.from_columns(measure=measure, unit=unit, value=value, grid_id=decisions.grid_id[first], tags=common)
        for measure, unit, value in _measures(beliefs, decisions, kinds, grids)
    )


def _measures(
    beliefs: Beliefs, decisions: Decisions, kinds: npt.NDArray[np.int64], grids: npt.NDArray[np.int64]
) -> Iterator[tuple[str, str, npt.NDArray[np.float64]]]:
    """Yield measure, unit and the value of each of G grids, ``[G]``."""
    count = int(grids.max(initial=-1)) + 1
    taken = decisions.taken

    def share(above: npt.NDArray[np.float64], below: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return ratio(*(np.bincount(grids[taken], part[taken], count) for part in (above, below)))

    one = np.ones(len(decisions))
    true = decisions.is_optimal
    yield TRUTH, "share", share(true.astype(np.float64), one)
    own = _judge(_certain(beliefs), decisions)
    mixed = _judge(_shuffled(beliefs, kinds, grids), decisions)
    for name, pair in own.items():
        values, control = share(*pair), share(*mixed[name])
        yield name, "share", values
        yield name + SHUFFLED, "share", control
        yield name + DIFFERENCE, "share", values - control
    for who, decoded, real in (
        ("agent", beliefs.maps.agent, decisions.place),
        ("goal", beliefs.maps.goal, decisions.goal),
    ):
        distance = np.abs(decoded - real).sum(axis=1).astype(np.float64)
        yield f"decoded {who} at its cell", "share", share((distance == 0).astype(np.float64), one)
        yield f"decoded {who}'s distance", "cells", share(distance, one)
    wrong = ~chosen(beliefs.optimal, decisions.action)
    for name, mask in (
        (ACTIONS, taken),
        (WRONG, taken & ~true),
        (WRONG_ON_MAP, taken & wrong),
        ("turns without an action", ~taken),
    ):
        yield name, "steps", np.bincount(grids, mask, count).astype(np.float64)


def pooled_share(rows: Rows, measure: str) -> Estimate:
    """Return a share over all actions of all grids together, as the paper counts, with an interval over grids.

    Args:
        rows: from `belief_rows`, of one probe.
        measure: "accuracy against truth", or one of the shares that depend on the decoded map.

    Source: behavioural and representational evaluation, Table 2.
    """
    below = {RECOVERY: WRONG, INVERSE: WRONG_ON_MAP}.get(measure, ACTIONS)
    shares, counts = rows.select(measure=measure), rows.select(measure=below)
    if shares.grid_id.tolist() != counts.grid_id.tolist():
        raise ValueError(f"rows must hold {measure!r} and {below!r} of the same grids in the same order, they do not")
    above = np.where(counts.value > 0, shares.value * counts.value, 0.0)
    return estimate_pooled(above, counts.value, counts.grid_id, unit="share", bounds=(0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Weighed:
    """Beliefs of each of N steps as weights: of each set of actions that may be the optimal one, and of each action.

    Attributes:
        sets: ``[N, 16]`` weights of sets of actions, in the order of `_SETS`; they sum to 1.
        tops: k -> ``[N, 4]`` weight with which an action is optimal for some of the k likeliest pairs.
        expected: ``[N, 4]``.
    """

    sets: npt.NDArray[np.float64]
    tops: Mapping[int, npt.NDArray[np.float64]]
    expected: npt.NDArray[np.float64]


def _certain(beliefs: Beliefs) -> _Weighed:
    return _Weighed(
        sets=_as_sets(beliefs),
        tops={count: beliefs.top[:, at].astype(np.float64) for at, count in enumerate(beliefs.tops)},
        expected=beliefs.expected,
    )


def _as_sets(beliefs: Beliefs) -> npt.NDArray[np.float64]:
    sets: npt.NDArray[np.float64] = np.eye(16)[beliefs.optimal @ _POWERS]
    return sets


def _shuffled(beliefs: Beliefs, kinds: npt.NDArray[np.int64], grids: npt.NDArray[np.int64]) -> _Weighed:
    """Return the mean over all states of the same kind and of other grids, NaN where there are none."""
    whole = np.bincount(kinds, minlength=1).astype(np.float64)[kinds]
    others = whole - np.bincount(grids, minlength=1)[grids]

    def mean(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        total, inside = (np.zeros((int(codes.max(initial=0)) + 1, values.shape[1])) for codes in (kinds, grids))
        np.add.at(total, kinds, values)
        np.add.at(inside, grids, values)
        found: npt.NDArray[np.float64] = np.full(values.shape, np.nan)
        np.divide(total[kinds] - inside[grids], others[:, None], out=found, where=others[:, None] > 0)
        return found

    certain = _certain(beliefs)
    return _Weighed(
        sets=mean(certain.sets),
        tops={count: mean(values) for count, values in certain.tops.items()},
        expected=mean(certain.expected),
    )


def _judge(
    weighed: _Weighed, decisions: Decisions
) -> dict[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Return for each share what each step adds above and below the line, ``[N]`` each."""
    true = decisions.is_optimal.astype(np.float64)
    best = weighed.sets @ _SETS.astype(np.float64)  # [N, 4]: weight with which an action is optimal on the map
    decoded = chosen(best, decisions.action)
    wrong = np.where(decoded > 1 - _ROUNDING, 0.0, 1 - decoded)
    overlap = (_SETS[None] & decisions.optimal[:, None]).any(axis=2)  # [N, 16]
    # Where there are no beliefs to judge by, the step is in no denominator.
    one = np.where(np.isnan(decoded), 0.0, 1.0)
    found = {
        DECODED: (decoded, one),
        OVERLAP: ((weighed.sets * overlap).sum(axis=1), one),
        BOTH: (decoded * true, one),
        VERDICT: (decoded * true + wrong * (1 - true), one),
        RECOVERY: (decoded * (1 - true), (1 - true) * one),
        INVERSE: (wrong * true, wrong),
        EXPECTED: (chosen(weighed.expected, decisions.action), one),
        NO_PLAN: (weighed.sets[:, 0], one),
        **{top_name(count): (chosen(values, decisions.action), one) for count, values in weighed.tops.items()},
    }
    return {name: (np.nan_to_num(above), np.nan_to_num(below)) for name, (above, below) in found.items()}


def _groups(decisions: Decisions) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number the kinds of states (agent, shape, density) and the grids within them, ``[N]`` each."""
    shape = map(tuple, decisions.shape.tolist())
    density = [None if np.isnan(one) else one for one in decisions.density.tolist()]
    kinds = factorize(list(zip(decisions.agent.tolist(), shape, density, strict=True)))[0]
    grids = factorize(list(zip(kinds.tolist(), decisions.grid_id.tolist(), strict=True)))[0]
    return kinds, grids
