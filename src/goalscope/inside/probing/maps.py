"""Predictions of probes: probabilities of classes and tokens, decoded maps, and optimal actions on many maps.

The layout has the likeliest class of each cell; the agent and the goal are at the cell where their class is likeliest,
and nowhere else. The posterior may come from a probe, from the true labels, or from a constructed belief.

Optimal actions come from a breadth-first search from the goal with one machine word for each row of cells, for all
maps and goals in parallel. This is six times as fast as `worlds.planning.distances_batch`, which also lacks distances
for a closed cell of the agent. An action is optimal in a cell if it leads to the cell that the search came from. The
cells of agent and goal count as open whatever the map says. A closed cell has optimal actions too, but no path leads
through it. Opening the agent's own cell changes no optimal set, because no shortest path returns to its start.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_distributions, check_shape
from goalscope.inside.activations.load import Columns
from goalscope.inside.probing.labels import (
    AGENT,
    CLASSES,
    END,
    GOAL,
    OPEN,
    PADDING,
    TOKENS,
    WALL,
    Cells,
    plan_length,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """Predicted probabilities of the K classes in the C cells of each of N states, ``[N, C, K]`` float32.

    ``balanced`` assumes that all classes are equally frequent, as the training is weighted; ``natural`` is the same
    evidence at the frequencies of the training split (prior-corrected).
    """

    balanced: npt.NDArray[np.float32]
    natural: npt.NDArray[np.float32]

    @classmethod
    def of(cls, scores: npt.NDArray[np.float32], prior: npt.NDArray[np.float64]) -> Self:
        """Build the prediction from scores ``[N, C, K]``, given the frequency of each class, ``[K]``."""
        with np.errstate(divide="ignore"):
            natural = scores.astype(np.float64) + np.log(prior)
        # A class that is absent from the training split has no evidence and is never predicted.
        balanced = scores.astype(np.float64) + np.where(prior > 0, 0.0, -np.inf)
        return cls(balanced=_softmax(balanced), natural=_softmax(natural))

    def reading(self, name: str) -> npt.NDArray[np.float32]:
        """Return the class probabilities in a reading: "balanced" (all classes equally frequent) or "natural"."""
        if name not in ("balanced", "natural"):
            raise ValueError(f"reading must be 'balanced' or 'natural', got {name!r}")
        probabilities: npt.NDArray[np.float32] = getattr(self, name)
        return probabilities

    def maps(self, name: str) -> npt.NDArray[np.float32]:
        """Return the probabilities of a reading as maps of the square frame, ``[N, n, n, K]``."""
        probabilities = self.reading(name)
        side = math.isqrt(probabilities.shape[1])
        return probabilities.reshape(len(probabilities), side, side, probabilities.shape[2])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanPrediction(Columns):
    """Plans that a decoder predicts at N steps.

    ``probabilities`` is a float32 array ``[N, T, 5]``: at each of T positions of a plan, the probability of each of the
    5 tokens (four actions and the end).
    """

    SHAPES: ClassVar = {"probabilities": "N T K"}

    probabilities: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        self._accept(K=len(TOKENS))
        check_distributions("probabilities", self.probabilities, tolerance=1e-4)

    @classmethod
    def of(cls, scores: npt.NDArray[np.float32]) -> Self:
        """Return the prediction of scores ``[N, T, 5]``."""
        import torch

        return cls(probabilities=torch.tensor(scores).softmax(dim=-1).numpy())

    @property
    def tokens(self) -> npt.NDArray[np.int8]:
        """The likeliest token at each position, ``[N, T]``."""
        return np.asarray(self.probabilities.argmax(axis=2), dtype=np.int8)

    @property
    def first(self) -> npt.NDArray[np.int8]:
        """The likeliest first action, without the end token, ``[N]``."""
        return np.asarray(self.probabilities[:, 0, :END].argmax(axis=1), dtype=np.int8)

    @property
    def length(self) -> npt.NDArray[np.int64]:
        """Number of positions before the first end token, T without one, ``[N]``."""
        return plan_length(self.tokens)


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


_SEARCHES: Final = 8192  # number of parallel searches whose words fit into the processor's cache
_MAX_COLUMNS: Final = 63
_SUM_TOLERANCE: Final = 1e-4  # tolerance for the sum of a cell's float32 probabilities
_SYMBOLS: Final = {WALL: "#", OPEN: "_", GOAL: "g", AGENT: "a", PADDING: " "}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedMaps(Columns):
    """The decoded maps of N states.

    Attributes:
        layout: ``[N, H, W]`` int8, the most likely class of each cell, an index in `CLASSES`; of ties the first.
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
        """``[N, H, W]`` bool, impassable cells: walls, and padding outside of the grid."""
        return np.asarray((self.layout == WALL) | (self.layout == PADDING))

    @property
    def manhattan(self) -> npt.NDArray[np.int64]:
        """Manhattan distance between agent and goal in cells, ``[N]``, ignoring walls."""
        return np.asarray(np.abs(self.agent.astype(np.int64) - self.goal).sum(axis=1))

    def text(self, index: int) -> tuple[str, ...]:
        """Return one map as lines of symbols: # wall, _ open, blank padding, A and G for the decoded agent and goal.

        Other cells whose most likely class is agent or goal are a and g; an agent and a goal in one cell are G.
        """
        lines = [[_SYMBOLS[int(label)] for label in row] for row in self.layout[index]]
        for symbol, cell in (("A", self.agent[index]), ("G", self.goal[index])):
            lines[int(cell[0])][int(cell[1])] = symbol
        return tuple("".join(line) for line in lines)


def decode_maps(posterior: npt.ArrayLike) -> DecodedMaps:
    """Return the decoded maps of posteriors.

    Args:
        posterior: ``[N, H, W, K]`` probabilities of the K classes of `CLASSES` in each cell, e.g. a reading of a
            `Prediction` with frame n as ``[N, n, n, K]``.

    Raises:
        ValueError: if these are not probabilities, or an agent or goal has probability 0 everywhere in some state.
    """
    checked = check_posterior(posterior)
    agent, goal = (
        np.stack(np.divmod(likeliest(checked, label, 1)[:, 0], checked.shape[2]), axis=1) for label in (AGENT, GOAL)
    )
    return DecodedMaps(layout=checked.argmax(axis=3).astype(np.int8), agent=agent, goal=goal)


def true_map(cells: Cells) -> DecodedMaps:
    """Return the true maps of the labelled states; a locked door is a wall."""
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
    """Return the cells in which a class is likeliest, ``[N, count]`` int64 ``row * W + col``, the likeliest first."""
    probabilities = posterior[..., label].reshape(len(posterior), -1)
    return np.argsort(-probabilities, axis=1, kind="stable")[:, :count].astype(np.int64)


def place_weights(posterior: npt.NDArray[Any], label: int) -> npt.NDArray[np.float64]:
    """Return the distribution of the agent's or goal's cell, ``[N, H * W]``: class probabilities, scaled to sum 1."""
    probabilities = posterior[..., label].reshape(len(posterior), -1).astype(np.float64)
    return np.asarray(probabilities / probabilities.sum(axis=1, keepdims=True))


def one_hot(labels: npt.NDArray[Any], frame: int) -> npt.NDArray[np.float32]:
    """Return the posterior ``[N, frame, frame, K]`` with probability 1 of these classes ``[N, frame^2]``."""
    certain = np.eye(len(CLASSES), dtype=np.float32)[np.asarray(labels, dtype=np.int64)]
    return certain.reshape(len(labels), frame, frame, len(CLASSES))


def check_posterior(posterior: npt.ArrayLike) -> npt.NDArray[Any]:
    """Check probabilities ``[N, H, W, K]``, including that agent and goal have some probability in each state."""
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
    """Return which actions are optimal for every pair of candidate cells of agent and goal.

    Args:
        closed: ``[N, H, W]`` impassable cells.
        agent, goal: ``[N, P]`` and ``[N, Q]`` candidate cells ``row * W + col``.

    Returns:
        ``[N, P, Q, 4]`` bool; no action if the goal cannot be reached or is the agent's own cell.
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
    """Return the probability that each action is optimal, ``[N, 4]``; pairs without a plan count as not optimal.

    Agent and goal are distributed independently over cells, ``[N, H * W]`` each.
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
