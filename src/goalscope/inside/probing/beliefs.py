"""Decoded maps, the optimal actions on them, and an agent's actions compared with these apparent beliefs.

The layout has the likeliest class of each cell; the agent and the goal are at the cell where their class is likeliest,
and nowhere else. The posterior may come from a probe, from the true labels, or from a constructed belief.

Optimal actions come from a breadth-first search from the goal with one machine word for each row of cells, for all
maps and goals in parallel. This is six times as fast as `worlds.planning.distances_batch`, which also lacks distances
for a closed cell of the agent. An action is optimal in a cell if it leads to the cell that the search came from. The
cells of agent and goal count as open whatever the map says. A closed cell has optimal actions too, but no path leads
through it. Opening the agent's own cell changes no optimal set, because no shortest path returns to its start.

The agent's actions are compared with those that are optimal on the decoded map and on the true map.
Every number comes with the same number for shuffled beliefs, which are the decoded maps of states of other grids with
equal size and density. Recovery and the most likely candidates explain many actions by chance, so only the difference
is informative. The number for shuffled beliefs is the exact mean over all such grids with equal weight, not a random
draw.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, field_validator

from goalscope._ground.checks import check_distributions, check_shape
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.inside.activations.shards import Activations, Columns
from goalscope.inside.probing.heads import COUNTED
from goalscope.inside.probing.inputs import NOWHERE, ProbeInputs
from goalscope.inside.probing.labels import (
    AGENT,
    CLASSES,
    GOAL,
    OPEN,
    PADDING,
    WALL,
    Cells,
    Decisions,
)
from goalscope.inside.probing.probe import ProbeKey
from goalscope.inside.probing.scores import READINGS, Grids, Measured, difference_rows
from goalscope.inside.probing.suite import Entry, FittedProbes
from goalscope.stats import DIFFERENCES, LESS, Estimate, estimate_pooled
from goalscope.stats.estimate import factorize
from goalscope.stats.rows import Rows, Tag

_SEARCHES: Final = 8192  # number of parallel searches whose words fit into the processor's cache
_MAX_COLUMNS: Final = 63
_SUM_TOLERANCE: Final = 1e-4  # tolerance for the sum of a cell's float32 probabilities
_SYMBOLS: Final = {WALL: "#", OPEN: "_", GOAL: "g", AGENT: "a", PADDING: " "}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedMaps(Columns):
    """The maps of N grid states as a probe decodes them from activations.

    Attributes:
        layout: ``[N, H, W]`` int8 (states, rows, columns), the most likely class of each cell, an index in `CLASSES`;
            of ties the first.
        agent, goal: ``[N, 2]`` int64, (row, col) of the most likely cells of agent and goal; of ties the first by row.
            Both cells count as passable.
    """

    SHAPES: ClassVar = {"layout": "N H W", "agent": "N 2", "goal": "N 2"}

    layout: npt.NDArray[np.int8]
    agent: npt.NDArray[np.int64]
    goal: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        self._accept()
        for name in ("agent", "goal"):
            cells = getattr(self, name)
            if not np.issubdtype(cells.dtype, np.integer):
                raise ValueError(f"{name} must be integers (row, col), got {cells.dtype}")
            if len(cells) and ((cells < 0) | (cells >= self.layout.shape[1:])).any():
                raise ValueError(
                    f"{name} must lie inside the frame {list(self.layout.shape[1:])}, but some cell is outside"
                )

    @property
    def closed(self) -> npt.NDArray[np.bool_]:
        """``[N, H, W]`` bool (states, rows, columns), True for impassable cells: walls, and padding outside of the
        grid.
        """
        return np.asarray((self.layout == WALL) | (self.layout == PADDING))

    @property
    def manhattan(self) -> npt.NDArray[np.int64]:
        """Manhattan distance in cells between the decoded agent and the decoded goal on each of N maps, ``[N]``,
        ignoring walls.
        """
        return np.asarray(np.abs(self.agent.astype(np.int64) - self.goal).sum(axis=1))

    def text(self, index: int) -> tuple[str, ...]:
        """Draw one of the maps (``index``) as lines of symbols, one line per row of the grid.

        The symbols are # (wall), _ (open), blank (padding), and A and G for the decoded agent and goal. Other cells
        whose most likely class is agent or goal are a and g; an agent and a goal in one cell are G.
        """
        lines = [[_SYMBOLS[int(label)] for label in row] for row in self.layout[index]]
        for symbol, cell in (("A", self.agent[index]), ("G", self.goal[index])):
            lines[int(cell[0])][int(cell[1])] = symbol
        return tuple("".join(line) for line in lines)


def decode_maps(posterior: npt.ArrayLike) -> DecodedMaps:
    """Return the most likely map of each state, given probabilities of the classes of its cells.

    Args:
        posterior: ``[N, H, W, K]`` probabilities (states, rows, columns, classes in the order of `CLASSES`), e.g. the
            result of `Prediction.maps`.

    Raises:
        ValueError: if these are not probabilities, or an agent or goal has probability 0 everywhere in some state.
    """
    checked = check_posterior(posterior)
    agent, goal = (
        np.stack(np.divmod(likeliest(checked, label, 1)[:, 0], checked.shape[2]), axis=1) for label in (AGENT, GOAL)
    )
    return DecodedMaps(layout=checked.argmax(axis=3).astype(np.int8), agent=agent, goal=goal)


def true_map(cells: Cells) -> DecodedMaps:
    """Return the true maps of labelled grid states, in the form in which decoded maps are compared with them.

    A locked door counts as a wall.

    Raises:
        ValueError: if a state shows no agent or no goal.
    """
    cell_of = {}
    for label in (AGENT, GOAL):
        mask, name = cells.labels == label, CLASSES[label]
        missing = ~mask.any(axis=1)
        if missing.any():
            row = int(np.argmax(missing))
            raise ValueError(
                f"the map at {cells.episode_id[row]} step {cells.step[row]} shows no {name}: leave this step out"
            )
        cell_of[name] = np.stack(np.divmod(mask.argmax(axis=1), cells.frame), axis=1)
    return DecodedMaps(layout=cells.labels.reshape(-1, cells.frame, cells.frame), **cell_of)


def likeliest(posterior: npt.NDArray[Any], label: int, count: int) -> npt.NDArray[np.int64]:
    """Return the ``count`` cells of each state in which a class is likeliest, the likeliest first.

    Args:
        posterior: ``[N, H, W, K]`` probabilities: states, rows, columns, classes.
        label: the class, an index in `CLASSES`.
        count: number of cells to return.

    Returns:
        ``[N, count]`` int64, cells as ``row * W + col``.
    """
    probabilities = posterior[..., label].reshape(len(posterior), -1)
    return np.argsort(-probabilities, axis=1, kind="stable")[:, :count].astype(np.int64)


def place_weights(posterior: npt.NDArray[Any], label: int) -> npt.NDArray[np.float64]:
    """Return the probability that the agent or the goal is in each cell, from the class probabilities of the cells.

    Args:
        posterior: ``[N, H, W, K]`` probabilities: states, rows, columns, classes.
        label: the class, `AGENT` or `GOAL`.

    Returns:
        ``[N, H * W]`` probabilities with sum 1 per state, cells by row.
    """
    probabilities = posterior[..., label].reshape(len(posterior), -1).astype(np.float64)
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


def one_hot(labels: npt.NDArray[Any], frame: int) -> npt.NDArray[np.float32]:
    """Return class probabilities that are 1 for the given classes of cells and 0 for all others.

    Args:
        labels: ``[N, frame * frame]`` classes, states by cells (by row).
        frame: number of rows and columns of the map.

    Returns:
        ``[N, frame, frame, K]``: states, rows, columns, classes.
    """
    certain = np.eye(len(CLASSES), dtype=np.float32)[np.asarray(labels, dtype=np.int64)]
    return certain.reshape(len(labels), frame, frame, len(CLASSES))


def check_posterior(posterior: npt.ArrayLike) -> npt.NDArray[Any]:
    """Check class probabilities of cells ``[N, H, W, K]`` (states, rows, columns, classes), and return them as an
    array.

    Raises:
        ValueError: for another shape, values that are no probabilities with sum 1, or a state in which the agent or the
            goal has probability 0 in every cell.
    """
    probabilities = np.asarray(posterior)
    check_shape("posterior", probabilities, "N H W K", {"K": len(CLASSES)})
    if not np.issubdtype(probabilities.dtype, np.floating):
        probabilities = probabilities.astype(np.float64)
    check_distributions("posterior", probabilities, tolerance=_SUM_TOLERANCE)
    for label in (AGENT, GOAL):
        absent = ~(probabilities[..., label] > 0).any(axis=(1, 2))
        if absent.any():
            raise ValueError(
                f"class {CLASSES[label]} has probability 0 in every cell of state {int(np.argmax(absent))}: "
                "leave out states that do not show it, or train the probe on states that do"
            )
    return probabilities


def optimal_sets(
    closed: npt.NDArray[np.bool_], agent: npt.NDArray[np.integer], goal: npt.NDArray[np.integer]
) -> npt.NDArray[np.bool_]:
    """Return which actions are optimal on a map for every pair of a candidate cell of the agent and one of the goal.

    Args:
        closed: ``[N, H, W]`` impassable cells: maps, rows, columns.
        agent, goal: ``[N, P]`` and ``[N, Q]`` candidate cells ``row * W + col``.

    Returns:
        ``[N, P, Q, 4]`` bool (maps, agent cells, goal cells, actions); no action if the goal cannot be reached or is
        the agent's own cell.
    """
    sizes = check_shape("closed", closed, "N H W")
    agent_sizes = check_shape("agent", agent, "N P", sizes)
    check_shape("goal", goal, "N Q", sizes)
    width, goals = sizes["W"], goal.shape[1]
    optimal = np.zeros((sizes["N"], agent_sizes["P"], goals, 4), dtype=bool)
    for chunk in _chunks(sizes["N"], goals):
        planes = _search(closed[chunk], goal[chunk])  # [4, H, M, Q]
        row, col = np.divmod(agent[chunk], width)  # [M, P]
        member = np.arange(len(row))[:, None]
        words = planes[:, row, member]  # [4, M, P, Q]
        bits = words >> col[..., None].astype(words.dtype) & words.dtype.type(1)
        optimal[chunk] = np.moveaxis(bits, 0, -1) != 0
    return optimal


def expected_optimality(
    closed: npt.NDArray[np.bool_], agent: npt.NDArray[np.floating], goal: npt.NDArray[np.floating]
) -> npt.NDArray[np.float64]:
    """Return the probability that each action is optimal when the cells of agent and goal are uncertain.

    Args:
        closed: ``[N, H, W]`` impassable cells: maps, rows, columns.
        agent, goal: ``[N, H * W]`` probabilities of the cells; agent and goal are independent.

    Returns:
        ``[N, 4]`` probabilities, maps by actions; where no path leads to the goal, no action is optimal.
    """
    sizes = check_shape("closed", closed, "N H W")
    height, width = sizes["H"], sizes["W"]
    cells = height * width
    for name, distribution in (("agent", agent), ("goal", goal)):
        check_shape(name, distribution, "N C", {"N": sizes["N"], "C": cells})
    probabilities = np.zeros((sizes["N"], 4))
    for chunk in _chunks(sizes["N"], cells):
        count = len(closed[chunk])
        all_cells = np.broadcast_to(np.arange(cells), (count, cells))
        planes = _search(closed[chunk], all_cells)
        bits = planes.dtype.itemsize * 8
        octets = planes.astype(planes.dtype.newbyteorder("<"), copy=False).view(np.uint8)
        agent_rows = np.zeros((count, height, bits))
        agent_rows[:, :, :width] = agent[chunk].reshape(count, height, width)
        weight = goal[chunk].astype(np.float64)
        # Sums over a row of cells are looked up per byte, with 256 sums for each byte of each row.
        pattern = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float64)
        sums = agent_rows.reshape(count, height, bits // 8, 8) @ pattern.T  # [M, H, bytes, 256]
        octets = octets.reshape(4, height, count, cells, bits // 8)
        for member in range(count):
            member_octets = octets[:, :, member]  # [4, H, Q, bytes]
            for row in range(height):
                for byte in range(bits // 8):
                    contribution = sums[member, row, byte][member_octets[:, row, :, byte]]  # [4, Q]
                    probabilities[chunk.start + member] += contribution @ weight[member]
    return np.minimum(probabilities, 1.0)


def _search(closed: npt.NDArray[np.bool_], goal: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
    """Return words whose bits mark the cells of a row in which an action is optimal, ``[4, H, N, Q]``.

    The axes are 4 actions, H rows, N maps and Q goals per map.
    """
    count, height, width = closed.shape
    if width > _MAX_COLUMNS:
        raise ValueError(f"decoded maps must have at most {_MAX_COLUMNS} columns, got {width}")
    # One bit more than columns: it receives the bit shifted out of a row, so that several rows can share 64 bits.
    word = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if np.dtype(kind).itemsize * 8 > width)
    weights = (np.uint64(1) << np.arange(width, dtype=np.uint64)).astype(word)
    goals = goal.shape[1]
    searches, per_uint64 = count * goals, 8 // np.dtype(word).itemsize
    padded = -(-searches // per_uint64) * per_uint64
    passable = np.zeros((height, padded), dtype=word)
    open_words = np.moveaxis((~closed * weights).sum(axis=2, dtype=word), 1, 0)  # [H, N]
    passable[:, :searches] = np.repeat(open_words, goals, axis=1)
    front = np.zeros_like(passable)
    row, col = np.divmod(goal.ravel(), width)
    front[row, np.arange(searches)] = weights[col]
    unseen = np.full_like(passable, word(int(weights.sum(dtype=np.uint64))))
    unseen &= ~front
    planes = np.zeros((4, height, padded), dtype=word)
    _expand_fronts(front.view(np.uint64), unseen.view(np.uint64), passable.view(np.uint64), planes.view(np.uint64))
    return planes[:, :, :searches].reshape(4, height, count, goals)


def _expand_fronts(
    front: npt.NDArray[np.uint64],
    unseen: npt.NDArray[np.uint64],
    passable: npt.NDArray[np.uint64],
    planes: npt.NDArray[np.uint64],
) -> None:
    """Expand all search fronts until they are empty; set the bits of ``planes[a]`` where action a leads into one."""
    step, reached, first_bit = np.empty_like(front), np.empty_like(front), np.uint64(1)
    while np.bitwise_or.reduce(front, axis=0).any():  # `any` of all the words would take longer than a move
        reached[...] = 0
        for action in range(4):
            # UP leads to the row above, DOWN to the one below, LEFT to the column before, RIGHT to the one after.
            if action == 0:
                step[0] = 0
                np.bitwise_and(front[:-1], unseen[1:], out=step[1:])
            elif action == 1:
                step[-1] = 0
                np.bitwise_and(front[1:], unseen[:-1], out=step[:-1])
            else:
                (np.left_shift if action == 2 else np.right_shift)(front, first_bit, out=step)
                step &= unseen
            planes[action] |= step
            reached |= step
        unseen &= ~reached
        np.bitwise_and(reached, passable, out=front)


def _chunks(count: int, goals: int) -> Iterator[slice]:
    size = max(1, _SEARCHES // max(1, goals))
    for begin in range(0, count, size):
        yield slice(begin, min(count, begin + size))


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

SOURCE: Final = "beliefs"
"""The source under which a store keeps the rows, and the name under which it keeps the maps that are drawn."""

BELIEF_SUITE: Final[tuple[Entry, ...]] = (
    *((head, control) for head in ("mlp", "percell") for control in ("none", *RANDOM_WEIGHTS)),
    ("position", "none"),
)
"""Probes whose maps are read by default: the paper's and the linear one, also on random networks; position alone."""

Verdict = Literal["optimal in truth", "wrong in truth, optimal on the decoded map", "wrong in truth and on the map"]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
"""Kinds of actions that are shown."""
RULE: Final = (
    "Of each kind of action one: among the states nearest to the middle size and the middle density the first by "
    "content id of the episode."
)

_ROUNDING: Final = 1e-12
_POWERS: Final = np.array([1, 2, 4, 8])  # a set of actions as a number below 16
_SETS: Final = (np.arange(16)[:, None] & _POWERS) != 0  # [16, 4]
_Share = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def beyond(kind: str) -> str:
    """Return the suffix of the names of measures that compare the agent's model with random networks of a kind.

    Such a measure is the difference between decoded and shuffled maps in the agent's model, minus the same difference
    in the random network; see `compare_beliefs`.
    """
    return f"{DIFFERENCE}{LESS}{kind}"


def top_name(count: int) -> str:
    """Return the name of the measure "accuracy against top-``count`` beliefs".

    It counts an action as right if it is optimal for at least one pair of an agent cell and a goal cell, where each is
    among the ``count`` likeliest cells that the probe decodes.
    """
    return f"accuracy against top-{count} beliefs"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beliefs(Columns):
    """The optimal actions on the maps that a probe decodes in N states.

    The decoded probabilities may leave open where the agent and the goal are, so there are three answers: for the
    likeliest cells, for any of the k likeliest cells, and in expectation.

    Attributes:
        maps: the maps.
        optimal: ``[N, 4]`` bool (states by actions), whether an action is optimal for the likeliest cells of agent and
            goal; no action if the goal cannot be reached on the map or is the agent's own cell.
        tops: T ascending numbers k of candidate cells.
        top: ``[N, T, 4]`` bool, whether an action is optimal for at least one pair of an agent cell and a goal cell
            among the k likeliest cells of each.
        expected: ``[N, 4]`` probability that an action is optimal, with agent and goal drawn from the decoded
            probabilities.
    """

    SHAPES: ClassVar = {"optimal": "N 4", "top": "N T 4", "expected": "N 4"}

    maps: DecodedMaps
    optimal: npt.NDArray[np.bool_]
    tops: tuple[int, ...]
    top: npt.NDArray[np.bool_]
    expected: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        self._accept(N=len(self.maps), T=len(self.tops))


def read_beliefs(posterior: npt.ArrayLike, *, tops: tuple[int, ...] = TOPS) -> Beliefs:
    """Return the maps that decoded class probabilities of cells imply, and the optimal actions on these maps.

    Each cell of a map has its most likely class. As it is uncertain where the agent and the goal are, optimal actions
    are also computed for several candidates: the k cells with the highest probability of holding the agent, and
    likewise for the goal, for each k in ``tops``. These cells count as passable.

    Args:
        posterior: ``[N, H, W, K]`` probabilities: N states, H rows and W columns of cells, and K classes such as wall.
        tops: numbers k of candidate cells, ascending; the result has one entry for each.

    Raises:
        ValueError: if these are not probabilities, agent or goal have probability 0 in some state, or numbers do not
            ascend.
    """
    probabilities = check_posterior(posterior)
    if not tops or min(tops) < 1 or list(tops) != sorted(set(tops)):
        raise ValueError(f"tops must be ascending numbers >= 1, got {tops}")
    maps = decode_maps(probabilities)
    closed = maps.closed
    pairs = optimal_sets(closed, likeliest(probabilities, AGENT, tops[-1]), likeliest(probabilities, GOAL, tops[-1]))
    return Beliefs(
        maps=maps,
        optimal=pairs[:, 0, 0],
        tops=tops,
        top=np.stack([pairs[:, :count, :count].any(axis=(1, 2)) for count in tops], axis=1),
        expected=expected_optimality(closed, place_weights(probabilities, AGENT), place_weights(probabilities, GOAL)),
    )


def belief_rows(beliefs: Beliefs, decisions: Decisions, tags: Mapping[str, Tag] | None = None) -> Rows:
    """Compare an agent's actions with those that are optimal on the maps decoded from its activations (its beliefs).

    Args:
        beliefs: the maps decoded in N states, with the optimal actions on them.
        decisions: the agent's actions in the same states. Turns without an action count only in the measure "turns
            without an action".
        tags: named facts to keep with every row: head (the form of the probe, e.g. "linear"), control, site, layer,
            scope, reading, ...

    Returns:
        One row for each measure and grid, over all states of the grid, tagged by agent, size and density; if grids are
        not square, also by shape, since turned versions of one grid have rows of their own. The measures are shares of
        actions that depend on the decoded map (`SHARES`, such as "recovery", and `top_name`), each also with shuffled
        beliefs (the maps of other grids) and as the difference of both; "accuracy against truth", "decoded agent at its
        cell", "decoded goal at its cell"; the distances "decoded agent's distance" and "decoded goal's distance"
        (cells, Manhattan); and counts of steps: "actions", "actions wrong in truth", "actions wrong on the decoded
        map", "turns without an action". NaN if a denominator is 0, or if there is no other grid of that size and
        density from which to take shuffled beliefs.

    Raises:
        ValueError: other numbers of beliefs and decisions.
    """
    if len(beliefs) != len(decisions):
        raise ValueError(f"beliefs and decisions must refer to the same steps, got {len(beliefs)} and {len(decisions)}")
    kinds, codes = _groups(decisions)
    grids, first = Grids.of(decisions, codes), np.unique(codes, return_index=True)[1]
    common: dict[str, Any] = {**(tags or {}), "agent": decisions.agent[first].tolist()}
    sides = decisions.shape[first]
    if (sides[:, 0] != sides[:, 1]).any():  # a rotated grid gets its own row
        common["shape"] = [f"{height}x{width}" for height, width in sides.tolist()]
    return grids.rows(_measures(beliefs, decisions, kinds, grids), common)


def _measures(beliefs: Beliefs, decisions: Decisions, kinds: npt.NDArray[np.int64], grids: Grids) -> Iterator[Measured]:
    taken_actions, true = decisions.taken, decisions.is_optimal

    def share(above: npt.NDArray[Any], below: npt.NDArray[Any] = taken_actions) -> npt.NDArray[np.float64]:
        return grids.ratio_of_sums(above * taken_actions, below * taken_actions)

    yield TRUTH, "share", share(true), {}
    weights = _weights(beliefs)
    shuffled = _judge(_shuffled(weights, kinds, grids.codes), beliefs.tops, decisions)
    for name, pair in _judge(weights, beliefs.tops, decisions).items():
        values, control = share(*pair), share(*shuffled[name])
        yield name, "share", values, {}
        yield name + SHUFFLED, "share", control, {}
        yield name + DIFFERENCE, "share", values - control, {DIFFERENCES: 1}
    for thing, true_cell in (("agent", decisions.place), ("goal", decisions.goal)):
        distance = np.abs(getattr(beliefs.maps, thing) - true_cell).sum(axis=1)
        yield f"decoded {thing} at its cell", "share", share(distance == 0), {}
        yield f"decoded {thing}'s distance", "cells", share(distance), {}
    wrong = taken_actions & ~decisions.chosen(beliefs.optimal)
    masks = {
        ACTIONS: taken_actions,
        WRONG: taken_actions & ~true,
        WRONG_ON_MAP: wrong,
        "turns without an action": ~taken_actions,
    }
    for name, mask in masks.items():
        yield name, "steps", grids.sums(mask), {}


def pooled_share(rows: Rows, measure: str) -> Estimate:
    """Estimate a share over all actions of all grids together, as the paper counts, with an interval over grids.

    Args:
        rows: result of `belief_rows` for one probe.
        measure: "accuracy against truth", or one of the shares that depend on the decoded map, such as "recovery".

    Returns:
        The estimate; ``n`` counts the actions in the denominator: all actions, or the wrong ones for a recovery.

    Raises:
        ValueError: if the rows lack the counts of actions of the same grids.

    Source: behavioural and representational evaluation, Table 2.
    """
    count_measure = {RECOVERY: WRONG, INVERSE: WRONG_ON_MAP}.get(measure, ACTIONS)
    shares, counts = rows.select(measure=measure), rows.select(measure=count_measure)
    if shares.cluster.tolist() != counts.cluster.tolist():
        raise ValueError(
            f"rows must contain {measure!r} and {count_measure!r} for the same grids in the same order: "
            "pass the rows of one call of belief_rows"
        )
    sums = np.where(counts.value > 0, shares.value * counts.value, 0.0)
    estimate = estimate_pooled(sums, counts.value, counts.cluster, unit="share", bounds=(0.0, 1.0))
    return replace(estimate, n=round(float(counts.value[~np.isnan(sums)].sum())))


def _weights(beliefs: Beliefs) -> npt.NDArray[np.float64]:
    """Return beliefs as weights, ``[N, 16 + 4 T + 4]``: of each set of actions that may be the optimal one (as
    `_SETS`), of each action for each of the tops, and of each action with agent and goal drawn from the posterior.
    """
    sets = np.eye(16)[beliefs.optimal @ _POWERS]
    return np.concatenate([sets, beliefs.top.reshape(len(sets), -1), beliefs.expected], axis=1)


def _shuffled(
    weights: npt.NDArray[np.float64], kinds: npt.NDArray[np.int64], grids: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return for each step the mean belief over the other grids of the same kind; NaN if there are none.

    The belief of a grid is the mean over its states.
    """
    grid_codes, first = np.unique(grids, return_index=True)
    grid_means, total = (np.zeros((int(codes.max(initial=0)) + 1, weights.shape[1])) for codes in (grids, kinds))
    np.add.at(grid_means, grids, weights / np.bincount(grids)[grids][:, None])
    np.add.at(total, kinds[first], grid_means[grid_codes])
    n_others = np.bincount(kinds[first], minlength=1)[kinds][:, None] - 1
    other_sum = total[kinds] - grid_means[grids]
    return np.asarray(np.divide(other_sum, n_others, out=np.full(weights.shape, np.nan), where=n_others > 0))


def _judge(weights: npt.NDArray[np.float64], tops: tuple[int, ...], decisions: Decisions) -> dict[str, _Share]:
    """Return, by the name of a share, what each of N steps adds to its numerator and its denominator, ``[N]`` each."""
    sets = np.ascontiguousarray(weights[:, : len(_SETS)])
    by_action = weights[:, len(_SETS) :].reshape(len(weights), -1, 4)  # [N, T + 1, 4]
    true = decisions.is_optimal.astype(np.float64)
    decoded = decisions.chosen(sets @ _SETS.astype(np.float64))  # weight with which the action is optimal on the map
    wrong = np.where(decoded > 1 - _ROUNDING, 0.0, 1 - decoded)
    overlap = (_SETS[None] & decisions.optimal[:, None]).any(axis=2)  # [N, 16]
    # A step without shuffled beliefs is in no denominator.
    has_belief = np.where(np.isnan(decoded), 0.0, 1.0)
    shares = {
        DECODED: (decoded, has_belief),
        OVERLAP: ((sets * overlap).sum(axis=1), has_belief),
        BOTH: (decoded * true, has_belief),
        VERDICT: (decoded * true + wrong * (1 - true), has_belief),
        RECOVERY: (decoded * (1 - true), (1 - true) * has_belief),
        INVERSE: (wrong * true, wrong),
        EXPECTED: (decisions.chosen(by_action[:, -1]), has_belief),
        NO_PLAN: (sets[:, 0], has_belief),
        **{top_name(count): (decisions.chosen(by_action[:, index]), has_belief) for index, count in enumerate(tops)},
    }
    return {
        name: (np.nan_to_num(numerator), np.nan_to_num(denominator))
        for name, (numerator, denominator) in shares.items()
    }


def _groups(decisions: Decisions) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return for N steps the number of the kind of state (agent, shape, density) and of the grid, ``[N]`` each."""
    shape = map(tuple, decisions.shape.tolist())
    density = [None if np.isnan(value) else value for value in decisions.density.tolist()]
    kinds = factorize(list(zip(decisions.agent.tolist(), shape, density, strict=True)))[0]
    grids = factorize(list(zip(kinds.tolist(), decisions.cluster.tolist(), strict=True)))[0]
    return kinds, grids


class ShownMap(BaseModel):
    """A map that a probe decoded from an agent's activations in one state, stored to be drawn beside the true grid.

    ``lines`` has one text per row of the grid, in the symbols of `DecodedMaps.text`. ``verdict`` says whether the
    agent's action was optimal in the true grid and on the map. ``tags`` names the probe.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    episode_id: str
    step: int
    verdict: Verdict
    lines: Annotated[
        tuple[Annotated[str, Field(pattern="^[#_ agAG]{1,63}$")], ...], Field(strict=False, min_length=1, max_length=63)
    ]
    tags: dict[str, Tag] = Field(default_factory=dict)

    @field_validator("lines")
    @classmethod
    def _equal(cls, lines: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(map(len, lines))) > 1:
            raise ValueError("all lines of a shown map must have the same length")
        return lines


def compare_beliefs(
    data: ProbeInputs,
    decisions: Decisions,
    fitted: FittedProbes,
    *,
    suite: Sequence[Entry] = BELIEF_SUITE,
    device: str = "cpu",
) -> tuple[Rows, list[ShownMap]]:
    """Compare the agent's actions on the test grids with those that are optimal on the maps that each probe decodes
    there.

    Args:
        data: the activations, with the split into training and test grids.
        decisions: the agent's actions at the same steps.
        fitted: the fitted probes.
        suite: pairs of a head (the form of the probe) and a control whose maps are decoded.
        device: where to compute, "cpu" or "cuda".

    Returns:
        First, the rows of all probes (see `belief_rows`), with the tag ``reading`` for the assumed class frequencies:
        "balanced" (all classes equally frequent) or "natural" (as in training). If there are random networks, further
        rows say, by grid and seed, how much larger each difference between decoded and shuffled maps is in the agent's
        model than in the random network. Second, the maps to draw, from the first probe of the suite.
    """
    tested = decisions.where(data.split.test)
    layers = sorted({activations.layer for activations in data.activations})
    middle = layers[len(layers) // 2]
    parts, maps = [], []
    for entry, tags, posteriors in maps_of(data, fitted, suite, device):
        for reading, posterior in posteriors.items():
            beliefs = read_beliefs(posterior)
            map_tags: Mapping[str, Tag] = {**tags, "reading": reading}
            parts.append(belief_rows(beliefs, tested, map_tags))
            if entry == suite[0] and reading == "natural" and tags["layer"] in (middle, None):
                maps += choose_maps(beliefs, tested, map_tags)
    rows = Rows.concatenate(parts)
    differences = rows.where(rows.known(DIFFERENCES))
    kinds = [kind for kind in RANDOM_WEIGHTS if any(control == kind for _, control in suite)]
    return Rows.concatenate([rows, *(difference_rows(differences, kind) for kind in kinds)]), maps


def maps_of(
    data: ProbeInputs, fitted: FittedProbes, suite: Sequence[Entry], device: str = "cpu"
) -> Iterator[tuple[Entry, dict[str, Tag], dict[str, npt.NDArray[np.float32]]]]:
    """Decode maps of the test grids with each probe of a suite.

    Args:
        data: the activations, with the split into training and test grids.
        fitted: the fitted probes.
        suite: pairs of a head (the form of the probe, such as "mlp") and a control ("none" or a kind of random
            network).
        device: where to compute, "cpu" or "cuda".

    Yields:
        The pair of head and control; named facts (tags) about the probe, such as its site and layer; and, for the class
        frequencies "balanced" and "natural", the decoded probabilities ``[N, n, n, K]``: states, rows, columns,
        classes.

    Raises:
        ValueError: for another control, or one whose activations are missing.
    """
    for entry in suite:
        head, control = entry
        if control != "none" and control not in RANDOM_WEIGHTS:
            raise ValueError(
                f"maps can be decoded only for the controls none, {', '.join(RANDOM_WEIGHTS)}, got {control!r}"
            )
        networks: list[tuple[int | None, Sequence[Activations]]] = [(None, data.activations)]
        if control != "none":
            networks = [(seed, group) for (kind, seed), group in data.random.items() if kind == control]
        if not networks:
            raise ValueError(
                f"the control {control} needs activations of a model with random weights: capture with --untrained "
                f"SEED --random-weights {control}"
            )
        for draw, group in networks:
            # heads that read no activations occur only once
            for activations in group[:1] if head in COUNTED else group:
                probe = fitted.probe(head, activations, control=control, draw=draw)
                prediction = probe.predict(activations.where(data.split.test), device=device)
                site, layer = NOWHERE if head in COUNTED else activations.place
                key = ProbeKey(head=head, target="cells", control=control, draw=draw, site=site, layer=layer)
                tags = {**key.tags, "scope": key.scope, "probe": probe.id}
                yield entry, tags, {name: prediction.maps(name) for name in READINGS}


def choose_maps(beliefs: Beliefs, decisions: Decisions, tags: Mapping[str, Tag] | None = None) -> list[ShownMap]:
    """Choose the decoded maps that a report shows, one for each kind of action that occurs.

    The kinds are: optimal in truth, optimal only on the decoded map, and optimal in neither. Among the states with an
    action of a kind, one of middle grid size and wall density is taken (`RULE`).

    Args:
        beliefs: the decoded maps with the optimal actions on them.
        decisions: the agent's actions in the same states.
        tags: named facts about the probe, stored with the maps.
    """
    taken_actions, true, decoded = decisions.taken, decisions.is_optimal, decisions.chosen(beliefs.optimal)
    size, density = decisions.shape.max(axis=1), decisions.density
    middle = [_middle(size), _middle(density[~np.isnan(density)])]
    gap = np.where(np.isnan(density), np.inf, np.abs(density - middle[1]))
    # The last key counts most.
    ranked = np.lexsort((decisions.step, decisions.episode_id.astype(str), gap, np.abs(size - middle[0])))
    chosen_maps = []
    masks = (taken_actions & true, taken_actions & ~true & decoded, taken_actions & ~true & ~decoded)
    for verdict, mask in zip(VERDICTS, masks, strict=True):
        for index in ranked[mask[ranked]][:1]:
            episode, step = str(decisions.episode_id[index]), int(decisions.step[index])
            lines, map_tags = beliefs.maps.text(index), dict(tags or {})
            chosen_maps.append(ShownMap(episode_id=episode, step=step, verdict=verdict, lines=lines, tags=map_tags))
    return chosen_maps


def _middle(values: npt.NDArray[np.generic]) -> float:
    return float(np.median(np.unique(values))) if len(values) else 0.0
