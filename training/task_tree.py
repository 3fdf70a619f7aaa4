"""A conversation with answers at many of its turns as one training sequence.

The trunk is the conversation; behind an observation hangs what is asked there (the summary, where there is one, and
the begin of the answer), and behind that the trace from the agent's cell and, as further branches, from other cells.
A branch sees the trunk up to its observation and itself. So one reading of an episode trains many decisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.generate import LETTERS
from goalscope.worlds.tasks.taskmap import Cell
from training.task_teach import Decision
from training.task_vocabulary import (
    ACTION_NAMES,
    ANSWER,
    ASKED,
    AT,
    CLOSE,
    COLON,
    GOING,
    REACH,
    STEPS,
    THEN,
    TO,
    cell_piece,
    vocabulary,
)
from training.tokens import CHANNEL, END, MESSAGE, RETURN, START

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
HEAD = (ASKED, CHANNEL, "analysis", MESSAGE, AT)
SIDE = REACH[1] - REACH[0] + 1
FIRST_CELL = vocabulary().ids[cell_piece((REACH[0], REACH[0]))]
"""Id of the first cell; the cells' ids are consecutive, row by row from below."""


FIRST_NAME = vocabulary().ids[LETTERS[0] * 2]
"""Id of the first half of a name; these ids are the last ones, and no name can be foretold."""


def _observed(token: int) -> bool:
    """Return whether a token is a cell, or what is told of one."""
    return FIRST_CELL <= token < FIRST_CELL + SIDE * SIDE or "You can go" in vocabulary().pieces[token]


def cell_id(cell: Cell) -> int:
    """Return the token of a cell (x, y).

    Raises:
        ValueError: a cell without a token of its own.
    """
    x, y = cell[0] - REACH[0], cell[1] - REACH[0]
    if not (0 <= x < SIDE and 0 <= y < SIDE):
        raise ValueError(f"a cell must lie between {REACH[0]} and {REACH[1]} in both directions, got {list(cell)}")
    return FIRST_CELL + y * SIDE + x


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskBatch:
    """Sequences that stand one behind the other, with all that is trained on them.

    Attributes:
        tokens: ``[1, S]``.
        positions: ``[S]`` rotary positions.
        allowed: for each sequence ``[s, s]`` bool, which column a row may look at; no sequence sees another one.
        wanted: ``[R]`` places whose next token is trained.
        labels: ``[R]`` that token; where several are right, one of them.
        weights: ``[R]`` weight of each in the loss.
        moves: ``[R, 4]`` where the next token is a move: uniform over the good ones, else 0.
        targets: ``[R, 144]`` bool where the next token is a target: the cells that are right, else False.
        own: ``[R]`` bool, targets and first moves of the agent's own cell.
        turns: ``[T]`` places of the last token of each observation, and of the end of each prompt.
        beside: ``[T, 4]`` what lies in each direction: 0 nothing, 1 a visited cell, 2 a new one.
        ways: ``[T, 2, 4]`` moves of the greedy and of the explore-first teacher, uniform over equals, 0 where none.
    """

    tokens: Ints
    positions: Ints
    allowed: tuple[npt.NDArray[np.bool_], ...]
    wanted: Ints
    labels: Ints
    weights: Floats
    moves: Floats
    targets: npt.NDArray[np.bool_]
    own: npt.NDArray[np.bool_]
    turns: Ints
    beside: Ints
    ways: Floats


def pack(batches: Sequence[TaskBatch]) -> TaskBatch:
    """Return sequences one behind the other."""
    begins = np.cumsum([0, *(batch.tokens.shape[1] for batch in batches)])[:-1].tolist()
    joined = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("positions", "labels", "weights", "moves", "targets", "own", "beside", "ways")
    }
    shifted = {
        name: np.concatenate([getattr(batch, name) + begin for batch, begin in zip(batches, begins, strict=True)])
        for name in ("wanted", "turns")
    }
    return TaskBatch(
        tokens=np.concatenate([batch.tokens for batch in batches], axis=1),
        allowed=tuple(mask for batch in batches for mask in batch.allowed),
        **joined,
        **shifted,
    )


class Tree:
    """A training sequence that grows turn by turn.

    Args:
        reasoned: whether answers state their target.
    """

    def __init__(self, *, reasoned: bool) -> None:
        self.reasoned = reasoned
        self._tokens: list[int] = []
        self._places: list[tuple[int, int, int]] = []  # position, branch at a turn, branch of a cell
        self._wanted: list[int] = []
        self._labels: list[int] = []
        self._weights: list[float] = []
        self._moves: dict[int, list[int]] = {}
        self._targets: dict[int, list[int]] = {}
        self._own: list[int] = []
        self._length = self._asked = self._branches = 0
        self._told = -1  # place of the trunk's last token
        self._turns: list[int] = []
        self._beside: list[Sequence[int]] = []
        self._ways: list[Floats] = []

    def __len__(self) -> int:
        """Return the number of tokens so far."""
        return len(self._tokens)

    @property
    def decisions(self) -> int:
        """Number of targets asked for so far."""
        return len(self._targets)

    def told(self, tokens: Sequence[int]) -> None:
        """Add tokens to the trunk, up to the end of an observation; they are trained a little themselves."""
        for token in tokens:
            if self._told >= 0:
                self._foretell(self._told, token, 1.0)
            self._told = len(self._tokens)
            self._tokens.append(token)
            self._places.append((self._length, 0, 0))
            self._length += 1

    def observed(self, beside: Sequence[int], ways: Floats) -> None:
        """Say what the last observation means; see `TaskBatch`."""
        self._turns.append(len(self._tokens) - 1)
        self._beside.append(beside)
        self._ways.append(ways)

    def ask(self, summary: Sequence[int], own: Decision, others: Sequence[Decision], *, whole: bool) -> None:
        """Add what is asked after the last observation and the teacher's answers.

        Args:
            summary: tokens of the summary, none where there is none.
            own: the decision from the agent's own cell.
            others: decisions from other cells.
            whole: whether the answer is trained behind the first one's trace.
        """
        self._asked += 1
        for number, token in enumerate(summary[1:]):
            if number:
                self._foretell(len(self._tokens) + number, token, 0.5)
            else:  # behind a long summary the agent's cell is far away: its first token is to hold it
                self._want(len(self._tokens), cell_id(own.origin), 1.0)
        end = self._add(self._length, (*summary, *vocabulary().encode(HEAD)), 0)
        if self._turns:  # where the answer begins, all that the observation means is needed again
            self._turns.append(len(self._tokens) - len(HEAD))
            self._beside.append(self._beside[-1])
            self._ways.append(self._ways[-1])
        for place, weight in ((-4, 0.1), (-3, 0.1), (-2, 0.1), (-1, 0.1)):
            self._want(len(self._tokens) + place - 1, self._tokens[place], weight)
        self._want(len(self._tokens) - 1, cell_id(own.origin), 2.0 if summary else 0.5)
        self._answer(end, own, own=True, whole=whole)
        for other in others:
            self._answer(end, other, own=False, whole=False)

    def _answer(self, begin: int, decision: Decision, *, own: bool, whole: bool) -> None:
        self._branches += 1
        to, colon, end = vocabulary().encode((TO, COLON, END))
        first, move = len(self._tokens), vocabulary().ids[STEPS[decision.move]]
        target = cell_id(decision.target)
        trace = (cell_id(decision.origin), colon, move, to, target) if own else (cell_id(decision.origin), colon)
        begin = self._add(begin, trace, self._branches)
        self._want(first, colon, 0.1)
        self._move(first + 1, decision.move, decision.options, 3.0 if own else 1.0)
        if own:
            self._own += [first + 1, first + 3]
            self._want(first + 2, to, 0.1)
            self._right(first + 3, target, decision.targets, 0.5)
            self._want(first + 4, end, 0.1)
        if whole:
            tail = self.answer(decision)
            place = len(self._tokens) - 1
            self._add(begin, tail[:-1], self._branches)
            for number, token in enumerate(tail[1:]):
                named = token in (target, vocabulary().ids[ACTION_NAMES[decision.move]])
                self._want(place + 1 + number, token, 1.0 if named else 0.25)

    def answer(self, decision: Decision) -> list[int]:
        """Return the tokens of an output behind its trace."""
        said = [GOING, cell_piece(decision.target), THEN] if self.reasoned else []
        ending = [ANSWER, ACTION_NAMES[decision.move], CLOSE, RETURN]
        return vocabulary().encode([END, START, "assistant", CHANNEL, "final", MESSAGE, *said, *ending])

    def _add(self, position: int, tokens: Sequence[int], branch: int) -> int:
        for number, token in enumerate(tokens):
            self._tokens.append(token)
            self._places.append((position + number, self._asked, branch))
        return position + len(tokens)

    def _want(self, place: int, label: int, weight: float) -> None:
        self._wanted.append(place)
        self._labels.append(label)
        self._weights.append(weight)

    def _foretell(self, place: int, token: int, weight: float) -> None:
        """Ask for a token of the prompt: where the agent is now, what it saw there before, what the summary says."""
        if token < FIRST_NAME:
            self._want(place, token, weight * (0.1 if _observed(token) else 0.03))

    def _right(self, place: int, label: int, cells: Sequence[Cell], weight: float) -> None:
        self._want(place, label, weight)
        self._targets[len(self._wanted) - 1] = [cell_id(cell) - FIRST_CELL for cell in cells]

    def _move(self, place: int, taken: Action, options: Sequence[Action], weight: float) -> None:
        self._want(place, vocabulary().ids[STEPS[taken]], weight)
        self._moves[len(self._wanted) - 1] = [int(option) for option in options]

    def batch(self) -> TaskBatch:
        """Return the sequence; it must hold at least one answer."""
        position, asked, branch = np.array(self._places).T
        row, column = np.s_[:, None], np.s_[None, :]
        allowed = np.tri(len(position), dtype=bool)
        allowed &= (asked[column] == 0) | (asked[row] == asked[column])
        allowed &= (branch[column] == 0) | (branch[row] == branch[column])
        moves = np.zeros((len(self._wanted), 4), dtype=np.float32)
        for wanted, options in self._moves.items():
            moves[wanted, options] = 1 / len(options)
        targets = np.zeros((len(self._wanted), SIDE * SIDE), dtype=bool)
        for wanted, cells in self._targets.items():
            targets[wanted, cells] = True
        places = np.array(self._wanted)
        return TaskBatch(
            tokens=np.array([self._tokens]),
            positions=position,
            allowed=(allowed,),
            wanted=places,
            labels=np.array(self._labels),
            weights=np.array(self._weights, dtype=np.float32),
            moves=moves,
            targets=targets,
            own=np.isin(places, self._own),
            turns=np.array(self._turns, dtype=np.int64),
            beside=np.array(self._beside, dtype=np.int64).reshape(-1, 4),
            ways=np.array(self._ways, dtype=np.float32).reshape(-1, 2, 4),
        )
