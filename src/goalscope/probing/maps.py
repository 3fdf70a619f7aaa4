"""What probes say: probabilities of classes and tokens, decoded maps, and which actions are optimal on many maps.

The layout has the likeliest class of each cell; the agent and the goal stand where their class is likeliest, and
nowhere else. Whoever made the posterior: a probe, the truth itself, or a belief that was planted.

Optimal actions come from a breadth-first search from the goal with one machine word for each row of cells, all maps and
goals side by side (six times as fast as the distances of `goalscope.planning.distances_batch`, which a closed cell of
the agent has none of). An action is optimal in a cell if it leads to where the search came from. Cells of agent and
goal are open whatever the map says: a closed cell has optimal actions too, but no way leads through it. That the
agent's own cell is open changes no optimal set: no shortest way comes back to where it began.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope.checks import check_distributions, check_shape
from goalscope.probing.labels import AGENT, CLASSES, END, GOAL, OPEN, PADDING, TOKENS, WALL, Cells, Columns, plan_length


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """What a probe says of the C cells of each of N states, ``[N, C, K]`` float32 probabilities of the classes.

    ``balanced`` as if all were equally frequent, as the training is weighted; ``natural`` the same evidence at the
    frequencies of the training split (prior-corrected).
    """

    balanced: npt.NDArray[np.float32]
    natural: npt.NDArray[np.float32]

    @classmethod
    def of(cls, scores: npt.NDArray[np.float32], prior: npt.NDArray[np.float64]) -> Self:
        """Return what scores ``[N, C, K]`` say where the classes have the frequencies ``[K]``."""
        with np.errstate(divide="ignore"):
            natural = scores.astype(np.float64) + np.log(prior)
        # A class that the training split lacks has no evidence: it is never predicted.
        balanced = scores.astype(np.float64) + np.where(prior > 0, 0.0, -np.inf)
        return cls(balanced=_softmax(balanced), natural=_softmax(natural))

    def reading(self, name: str) -> npt.NDArray[np.float32]:
        """Return the probabilities of a reading."""
        if name not in ("balanced", "natural"):
            raise ValueError(f"a reading must be balanced or natural, got {name!r}")
        found: npt.NDArray[np.float32] = getattr(self, name)
        return found

    def maps(self, name: str) -> npt.NDArray[np.float32]:
        """Return the probabilities of a reading as maps of the square frame, ``[N, n, n, K]``."""
        found = self.reading(name)
        side = math.isqrt(found.shape[1])
        return found.reshape(len(found), side, side, found.shape[2])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanPrediction(Columns):
    """What a decoder says of N steps: ``probabilities`` ``[N, T, 5]`` float32 of each token at each place."""

    SHAPES: ClassVar = {"probabilities": "N T K"}

    probabilities: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        self._accept(K=len(TOKENS))
        check_distributions("probabilities", self.probabilities, tolerance=1e-4)

    @classmethod
    def of(cls, scores: npt.NDArray[np.float32]) -> Self:
        """Return what scores ``[N, T, 5]`` say."""
        import torch

        return cls(probabilities=torch.tensor(scores).softmax(dim=-1).numpy())

    @property
    def tokens(self) -> npt.NDArray[np.int8]:
        """The likeliest token of each place, ``[N, T]``."""
        return np.asarray(self.probabilities.argmax(axis=2), dtype=np.int8)

    @property
    def first(self) -> npt.NDArray[np.int8]:
        """The likeliest first action, the end token left aside, ``[N]``."""
        return np.asarray(self.probabilities[:, 0, :END].argmax(axis=1), dtype=np.int8)

    @property
    def length(self) -> npt.NDArray[np.int64]:
        """Places before the first end token, T without one, ``[N]``."""
        return plan_length(self.tokens)


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


_SEARCHES: Final = 8192  # searches side by side: their words stay near the processor
_WIDEST: Final = 63
_ROUNDING: Final = 1e-4  # how far the float32 probabilities of a cell may be from a sum of 1
_SYMBOLS: Final = {WALL: "#", OPEN: "_", GOAL: "g", AGENT: "a", PADDING: " "}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodedMaps(Columns):
    """The maps of N states.

    Attributes:
        layout: ``[N, H, W]`` int8, likeliest class of each cell, a place in `CLASSES`; the first of equals.
        agent, goal: ``[N, 2]`` int64, (row, col) where an agent and a goal are likeliest; the first of equals by row.
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
                raise ValueError(f"{name} must be whole numbers (row, col), got {cells.dtype}")
            if len(cells) and ((cells < 0) | (cells >= self.layout.shape[1:])).any():
                raise ValueError(f"{name} must lie inside of the frame {list(self.layout.shape[1:])}, got one outside")

    @property
    def closed(self) -> npt.NDArray[np.bool_]:
        """``[N, H, W]`` bool, cells where nobody can stand: walls, and what lies outside of the grid."""
        return np.asarray((self.layout == WALL) | (self.layout == PADDING))

    @property
    def manhattan(self) -> npt.NDArray[np.int64]:
        """Cells between agent and goal, rows and columns added, ``[N]``; walls count for nothing."""
        return np.asarray(np.abs(self.agent.astype(np.int64) - self.goal).sum(axis=1))

    def text(self, index: int) -> tuple[str, ...]:
        """Return one map as lines of symbols: # wall, _ open, blank padding, A and G where agent and goal are decoded.

        Other cells whose likeliest class is agent or goal are a and g; an agent and a goal in one cell are G.
        """
        lines = [[_SYMBOLS[int(label)] for label in row] for row in self.layout[index]]
        for symbol, cell in (("A", self.agent[index]), ("G", self.goal[index])):
            lines[int(cell[0])][int(cell[1])] = symbol
        return tuple("".join(line) for line in lines)


def decode_maps(posterior: npt.ArrayLike) -> DecodedMaps:
    """Return the maps that posteriors speak of.

    Args:
        posterior: ``[N, H, W, K]`` probabilities of the K classes of `CLASSES` in each cell, e.g. a reading of a
            `Prediction` of a frame n as ``[N, n, n, K]``.

    Raises:
        ValueError: no probabilities, or a state without any chance of an agent or of a goal.
    """
    given = check_posterior(posterior)
    agent, goal = (
        np.stack(np.divmod(likeliest(given, label, 1)[:, 0], given.shape[2]), axis=1) for label in (AGENT, GOAL)
    )
    return DecodedMaps(layout=given.argmax(axis=3).astype(np.int8), agent=agent, goal=goal)


def true_map(cells: Cells) -> DecodedMaps:
    """Return the true maps of the labelled states; a locked door is a wall."""
    found = {}
    for label in (AGENT, GOAL):
        mask, name = cells.labels == label, CLASSES[label]
        missing = ~mask.any(axis=1)
        if missing.any():
            at = int(np.argmax(missing))
            raise ValueError(f"a map must show its {name}, it does not at {cells.episode_id[at]} step {cells.step[at]}")
        found[name] = np.stack(np.divmod(mask.argmax(axis=1), cells.frame), axis=1)
    return DecodedMaps(layout=cells.labels.reshape(-1, cells.frame, cells.frame), **found)


def likeliest(posterior: npt.NDArray[Any], label: int, count: int) -> npt.NDArray[np.int64]:
    """Return the cells in which a class is likeliest, ``[N, count]`` int64 ``row * W + col``, the likeliest first."""
    chance = posterior[..., label].reshape(len(posterior), -1)
    return np.argsort(-chance, axis=1, kind="stable")[:, :count].astype(np.int64)


def place_weights(posterior: npt.NDArray[Any], label: int) -> npt.NDArray[np.float64]:
    """Return how likely the one agent or goal stands in each cell, ``[N, H * W]``: the class's chances, scaled to 1."""
    chance = posterior[..., label].reshape(len(posterior), -1).astype(np.float64)
    return np.asarray(chance / chance.sum(axis=1, keepdims=True))


def one_hot(labels: npt.NDArray[Any], frame: int) -> npt.NDArray[np.float32]:
    """Return the posterior ``[N, frame, frame, K]`` of somebody who is certain of these classes ``[N, frame^2]``."""
    certain = np.eye(len(CLASSES), dtype=np.float32)[np.asarray(labels, dtype=np.int64)]
    return certain.reshape(len(labels), frame, frame, len(CLASSES))


def check_posterior(posterior: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return probabilities ``[N, H, W, K]`` in which every state has some chance of an agent and of a goal."""
    given = np.asarray(posterior)
    check_shape("posterior", given, "N H W K", {"K": len(CLASSES)})
    if not np.issubdtype(given.dtype, np.floating):
        given = given.astype(np.float64)
    check_distributions("posterior", given, tolerance=_ROUNDING)
    for label in (AGENT, GOAL):
        lost = ~(given[..., label] > 0).any(axis=(1, 2))
        if lost.any():
            raise ValueError(
                f"every state must have some cell with a chance of class {CLASSES[label]}, state "
                f"{int(np.argmax(lost))} has none: leave the states out in which it is not shown, or train the probe "
                "on states that show it"
            )
    return given


def optimal_sets(
    closed: npt.NDArray[np.bool_], agent: npt.NDArray[np.integer], goal: npt.NDArray[np.integer]
) -> npt.NDArray[np.bool_]:
    """Return which actions are optimal for every pair of a candidate cell of the agent and one of the goal.

    ``[N, P, Q, 4]`` bool from cells that are closed ``[N, H, W]`` and candidates ``row * W + col`` ``[N, P]`` and ``[N,
    Q]``; no action where the goal cannot be reached or is the agent's own cell: no plan.
    """
    sizes = check_shape("closed", closed, "N H W")
    places = check_shape("agent", agent, "N P", sizes)
    check_shape("goal", goal, "N Q", sizes)
    width, goals = sizes["W"], goal.shape[1]
    found = np.zeros((sizes["N"], places["P"], goals, 4), dtype=bool)
    for some in _chunks(sizes["N"], goals):
        planes = _search(closed[some], goal[some])  # [4, H, M, Q]
        row, col = np.divmod(agent[some], width)  # [M, P]
        member = np.arange(len(row))[:, None]
        words = planes[:, row, member]  # [4, M, P, Q]
        bits = words >> col[..., None].astype(words.dtype) & words.dtype.type(1)
        found[some] = np.moveaxis(bits, 0, -1) != 0
    return found


def expected_optimality(
    closed: npt.NDArray[np.bool_], agent: npt.NDArray[np.floating], goal: npt.NDArray[np.floating]
) -> npt.NDArray[np.float64]:
    """Return how likely each action is optimal, ``[N, 4]``; pairs without a plan count as not optimal.

    Agent and goal stand in each cell with given chances ``[N, H * W]``, independent of one another.
    """
    sizes = check_shape("closed", closed, "N H W")
    height, width = sizes["H"], sizes["W"]
    cells = height * width
    for name, given in (("agent", agent), ("goal", goal)):
        check_shape(name, given, "N C", {"N": sizes["N"], "C": cells})
    found = np.zeros((sizes["N"], 4))
    for some in _chunks(sizes["N"], cells):
        count = len(closed[some])
        every = np.broadcast_to(np.arange(cells), (count, cells))
        planes = _search(closed[some], every)
        bits = planes.dtype.itemsize * 8
        octets = planes.astype(planes.dtype.newbyteorder("<"), copy=False).view(np.uint8)
        chance = np.zeros((count, height, bits))
        chance[:, :, :width] = agent[some].reshape(count, height, width)
        weight = goal[some].astype(np.float64)
        # Sums over a row of cells are looked up byte by byte: 256 sums for each byte of each row.
        pattern = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float64)
        sums = chance.reshape(count, height, bits // 8, 8) @ pattern.T  # [M, H, bytes, 256]
        octets = octets.reshape(4, height, count, cells, bits // 8)
        for member in range(count):
            part = octets[:, :, member]  # [4, H, Q, bytes]
            for at in range(height):
                for byte in range(bits // 8):
                    found_row = sums[member, at, byte][part[:, at, :, byte]]  # [4, Q]
                    found[some.start + member] += found_row @ weight[member]
    return np.minimum(found, 1.0)


def _search(closed: npt.NDArray[np.bool_], goal: npt.NDArray[np.integer]) -> npt.NDArray[Any]:
    """Return ``[4, H, N, Q]`` words: in which cells of a row each action is optimal."""
    count, height, width = closed.shape
    if width > _WIDEST:
        raise ValueError(f"decoded maps must have at most {_WIDEST} columns, got {width}")
    # One bit more than columns: what is shifted out of a row falls on it, so that several rows can share 64 bits.
    word = next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if np.dtype(kind).itemsize * 8 > width)
    weights = (np.uint64(1) << np.arange(width, dtype=np.uint64)).astype(word)
    goals = goal.shape[1]
    searches, each = count * goals, 8 // np.dtype(word).itemsize
    padded = -(-searches // each) * each
    passable = np.zeros((height, padded), dtype=word)
    opened = np.moveaxis((~closed * weights).sum(axis=2, dtype=word), 1, 0)  # [H, N]
    passable[:, :searches] = np.repeat(opened, goals, axis=1)
    front = np.zeros_like(passable)
    row, col = np.divmod(goal.ravel(), width)
    front[row, np.arange(searches)] = weights[col]
    unseen = np.full_like(passable, word(int(weights.sum(dtype=np.uint64))))
    unseen &= ~front
    planes = np.zeros((4, height, padded), dtype=word)
    _spread(front.view(np.uint64), unseen.view(np.uint64), passable.view(np.uint64), planes.view(np.uint64))
    return planes[:, :, :searches].reshape(4, height, count, goals)


def _spread(
    front: npt.NDArray[np.uint64],
    unseen: npt.NDArray[np.uint64],
    passable: npt.NDArray[np.uint64],
    planes: npt.NDArray[np.uint64],
) -> None:
    """Move all search fronts until none moves on; write where each action leads into the front, ``[4, H, words]``."""
    step, found, one = np.empty_like(front), np.empty_like(front), np.uint64(1)
    while np.bitwise_or.reduce(front, axis=0).any():  # `any` of all the words would take longer than a move
        found[...] = 0
        for action in range(4):
            # UP leads to the row above, DOWN to the one below, LEFT to the column before, RIGHT to the one after.
            if action == 0:
                step[0] = 0
                np.bitwise_and(front[:-1], unseen[1:], out=step[1:])
            elif action == 1:
                step[-1] = 0
                np.bitwise_and(front[1:], unseen[:-1], out=step[:-1])
            else:
                (np.left_shift if action == 2 else np.right_shift)(front, one, out=step)
                step &= unseen
            planes[action] |= step
            found |= step
        unseen &= ~found
        np.bitwise_and(found, passable, out=front)


def _chunks(count: int, goals: int) -> Iterator[slice]:
    size = max(1, _SEARCHES // max(1, goals))
    for begin in range(0, count, size):
        yield slice(begin, min(count, begin + size))
