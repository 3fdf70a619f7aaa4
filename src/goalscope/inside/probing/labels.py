"""Labels for the steps of some activations: the true class of every cell, the action, the plan and the distance.

A plan of horizon T is the next T actions that the agent executed. If it arrives sooner, the end token fills the rest.
If the recording stops before (at the horizon of the episode, or at a failure that ends it), the remaining tokens are
unknown: they are neither learned nor scored. A turn without a valid move executes nothing and is not part of a plan.

Source: behavioural and representational evaluation, section 5.3.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_shape, check_whole
from goalscope.inside.activations.shards import Activations, Columns
from goalscope.inside.activations.sites import grids_seen
from goalscope.runs import Episode
from goalscope.worlds.dynamics import shown
from goalscope.worlds.grid import ACTIONS, Grid
from goalscope.worlds.planning import solve

CLASSES: Final = ("agent", "goal", "wall", "open", "padding")
"""Classes of cells; the index in this tuple is the label."""
AGENT, GOAL, WALL, OPEN, PADDING = range(len(CLASSES))
FRAME: Final = 15
"""Side of the square that smaller grids are padded to, right and bottom."""
NO_ACTION: Final = -1
"""Action of a turn without one."""
HORIZON: Final = 10
"""Actions T of a plan in the paper."""
TOKENS: Final = (*(action.name for action in ACTIONS), "end")
"""Names of the tokens at the positions of a plan; the index in this tuple is the token."""
END: Final = len(ACTIONS)
UNKNOWN: Final = -1


_STEP: Final = {"episode_id": "N", "step": "N", "cluster": "N"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps(Columns):
    """Base class of data with one row for each of N recorded steps: it names the step of each row.

    Attributes:
        episode_id: ``[N]`` text, content id of the episode.
        step: ``[N]`` int64, number of the step in its episode.
        cluster: ``[N]`` text, the grid. Rows of one grid are never divided by a split, and intervals resample grids.
    """

    SHAPES: ClassVar = _STEP

    episode_id: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells(Steps):
    """The true classes (wall, goal, ...) of a grid's cells at N steps; row i belongs to row i of the activations.

    Attributes:
        frame: side of the square that grids are padded to, right and bottom.
        labels: ``[N, frame * frame]`` int8, indices in `CLASSES`, cells by row.
        shape: ``[N, 2]`` int64, height and width of the grid.
        density: ``[N]`` float64, wall density with which the world was generated, NaN if unknown.
        reasoning: ``[N]`` text before the answer, "" if there is none.
    """

    SHAPES: ClassVar = {"labels": "N C", "shape": "N 2", "density": "N", "reasoning": "N", **_STEP}

    frame: int
    labels: npt.NDArray[np.int8]
    shape: npt.NDArray[np.int64]
    density: npt.NDArray[np.float64]
    reasoning: npt.NDArray[np.object_]

    def __post_init__(self) -> None:
        self._accept(C=self.frame**2)
        if len(self.shape) and (self.shape.min() < 1 or self.shape.max() > self.frame):
            raise ValueError(
                f"grids must fit into a frame of {self.frame} x {self.frame}, got sides from "
                f"{self.shape.min()} to {self.shape.max()}: use a larger frame"
            )

    def framed(self, frame: int) -> Self:
        """Return a copy with the grids padded to a square of another size, e.g. their own size for a probe of one
        size.
        """
        square = np.full((len(self), frame, frame), PADDING, dtype=np.int8)
        side = min(frame, self.frame)
        square[:, :side, :side] = self.labels.reshape(-1, self.frame, self.frame)[:, :side, :side]
        return replace(self, frame=frame, labels=square.reshape(len(self), frame * frame))

    def shapes(self) -> Iterator[tuple[tuple[int, int], npt.NDArray[np.bool_]]]:
        """Yield each (height, width) of grids that occurs, with a mask ``[N]`` of the steps in such grids."""
        for height, width in np.unique(self.shape, axis=0).tolist():
            yield (height, width), (self.shape == (height, width)).all(axis=1)

    def inside(self, edge: int = 0) -> npt.NDArray[np.bool_]:
        """Return which of the C cells of the padded map belong to the grid itself, ``[N, C]``: steps by cells.

        ``edge`` is the number of outermost rings of the grid to leave out, e.g. 1 for the border walls.
        """
        along = np.arange(self.frame)
        row, col = ((along >= edge) & (along < self.shape[:, axis, None] - edge) for axis in (0, 1))
        return np.asarray((row[:, :, None] & col[:, None, :]).reshape(len(self), -1))

    def check_aligned(self, other: Activations | Steps, what: str = "activations") -> None:
        """Check that other data belong to the same steps in the same order; ``what`` names these data in the error.

        Raises:
            ValueError: if they do not; the message names the first step that differs.
        """
        if len(other) != len(self):
            raise ValueError(f"{what} must belong to the {len(self)} steps of the labels, got {len(other)}")
        differs = np.any([getattr(other, name) != getattr(self, name) for name in _STEP], axis=0)
        if differs.any():
            first = int(np.argmax(differs))
            raise ValueError(
                f"{what} must belong to the same steps as the labels, but {other.episode_id[first]} step "
                f"{other.step[first]} stands where the labels have {self.episode_id[first]} step "
                f"{self.step[first]}"
            )


Undetermined = Mapping[tuple[int, int], npt.NDArray[np.bool_]]
"""Height and width of a grid -> ``[C, K]``, see `undetermined`."""


def undetermined(cells: Cells, train: npt.NDArray[np.bool_]) -> dict[tuple[int, int], npt.NDArray[np.bool_]]:
    """Return which cells have a class in some training states but not in others, by shape of the grid.

    Border and regular pillars follow from the position alone, so a score over them would only measure the position.

    Args:
        cells: N steps.
        train: ``[N]`` which of them are for training.

    Returns:
        (height, width) -> ``[C, K]`` bool, cells of the padded map (by row) by classes in the order of `CLASSES`.
        Shapes without a training state are missing.
    """
    check_shape("train", train, "N", {"N": len(cells)})
    by_shape = {}
    for shape, mask in cells.shapes():
        if (train & mask).any():
            masks = [cells.labels[train & mask] == label for label in range(len(CLASSES))]
            by_shape[shape] = np.stack([present.any(axis=0) & ~present.all(axis=0) for present in masks], axis=1)
    return by_shape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decisions(Steps):
    """The actions that agents took at N steps, with the true states in which they were taken.

    Attributes:
        action: ``[N]`` int64 number of the action, `NO_ACTION` for a turn without a valid move.
        optimal: ``[N, 4]`` bool, whether each of the four actions is optimal in the true grid.
        place, goal: ``[N, 2]`` int64, true (row, col) of the agent and of the goal.
        agent: ``[N]`` text, short name of the agent.
        shape: ``[N, 2]`` int64, height and width of the grid.
        density: ``[N]`` float64, wall density of the grid, NaN if unknown.
    """

    SHAPES: ClassVar = {
        "action": "N",
        "optimal": "N 4",
        "place": "N 2",
        "goal": "N 2",
        "agent": "N",
        "shape": "N 2",
        "density": "N",
        **_STEP,
    }

    action: npt.NDArray[np.int64]
    optimal: npt.NDArray[np.bool_]
    place: npt.NDArray[np.int64]
    goal: npt.NDArray[np.int64]
    agent: npt.NDArray[np.object_]
    shape: npt.NDArray[np.int64]
    density: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        self._accept()
        if len(self.action) and (self.action.min() < NO_ACTION or self.action.max() > 3):
            raise ValueError(f"an action must be 0 to 3, or {NO_ACTION} for no action, got {np.unique(self.action)}")

    @property
    def taken(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the agent's turn at each step contains a valid action."""
        return np.asarray(self.action != NO_ACTION)

    @property
    def is_optimal(self) -> npt.NDArray[np.bool_]:
        """``[N]`` whether the agent's turn at each step contains an action that is optimal in the true grid."""
        return np.asarray(self.taken & self.chosen(self.optimal))

    def chosen(self, of_actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Select, for each of N steps, the value of the action that was taken.

        A step without an action gets the value of action 0.

        Args:
            of_actions: ``[N, 4]`` a value for each action: steps by actions.

        Returns:
            ``[N]`` values.
        """
        return np.asarray(of_actions[np.arange(len(self)), np.maximum(self.action, 0)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plans(Steps):
    """What the agent did after each of N steps: its next T moves, called its plan.

    Row i belongs to row i of the activations.

    Attributes:
        tokens: ``[N, T]`` int8 (steps by positions), indices in `TOKENS`: the moves; after the agent's last action of
            the episode the end token, or -1 where the recording stops earlier.

    Raises:
        ValueError: for other tokens, or a plan that goes on after its end.
    """

    SHAPES: ClassVar = {"tokens": "N T", **_STEP}

    tokens: npt.NDArray[np.int8]

    def __post_init__(self) -> None:
        check_tokens("tokens", self.tokens)
        self._accept()
        invalid = np.isin(self.tokens[:, :-1], (END, UNKNOWN)) & (self.tokens[:, :-1] != self.tokens[:, 1:])
        if invalid.any():
            row = int(np.argmax(invalid.any(axis=1)))
            raise ValueError(
                "after its end token or an unknown position, a plan must not change, got "
                f"{self.tokens[row].tolist()} at {self.episode_id[row]} step {self.step[row]}"
            )

    @property
    def horizon(self) -> int:
        """Number T of moves of a plan, the end token included."""
        return int(self.tokens.shape[1])

    @property
    def length(self) -> npt.NDArray[np.float64]:
        """``[N]`` number of moves in each plan (the agent's next T moves from one of N steps onwards).

        It is T, or less if the episode ended before; NaN if the recording stops within the T moves.
        """
        return np.where((self.tokens == UNKNOWN).any(axis=1), np.nan, plan_length(self.tokens))


def plan_length(tokens: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the number of moves of each of N plans ``[N, T]``, before its first end token; T if it has none."""
    ended = tokens == END
    return np.asarray(np.where(ended.any(axis=1), ended.argmax(axis=1), tokens.shape[1]))


def check_tokens(name: str, tokens: npt.NDArray[Any]) -> None:
    """Check that an array holds plans: ``[N, T]`` integers (steps by positions), T >= 1, indices in `TOKENS` or -1.

    Raises:
        ValueError: if it does not; ``name`` names the array in the message.
    """
    check_shape(name, tokens, "N T")
    if not np.issubdtype(tokens.dtype, np.integer) or tokens.shape[1] < 1:
        raise ValueError(f"{name} must be integers at one place or more, got {tokens.dtype} {list(tokens.shape)}")
    if len(tokens) and (tokens.min() < UNKNOWN or tokens.max() > END):
        raise ValueError(f"{name} must be tokens from {UNKNOWN} to {END}, got {tokens.min()} to {tokens.max()}")


def label_grid(grid: Grid, frame: int = FRAME) -> npt.NDArray[np.int8]:
    """Return the class of each cell of a grid, ``[frame, frame]`` whole numbers (rows by columns, padded).

    Classes are indices in `CLASSES`. A key counts as an open cell, a locked door as a wall, and a goal beneath the
    agent as the agent.

    Raises:
        ValueError: if the grid does not fit.
    """
    if max(grid.height, grid.width) > frame:
        raise ValueError(f"a grid must fit into a frame of {frame} x {frame}, got {grid.height} x {grid.width}")
    labels = np.full((frame, frame), PADDING, dtype=np.int8)
    labels[: grid.height, : grid.width] = np.where(grid.walls, WALL, OPEN)
    for cell, label in ((grid.door, WALL), (grid.goal, GOAL), (grid.start, AGENT)):
        if cell is not None:
            labels[cell] = label
    return labels


def label_cells(activations: Activations, episodes: Iterable[Episode], *, frame: int = FRAME) -> Cells:
    """Return the true classes of all cells of the grid at the steps of some activations, in their order.

    The truth is the whole grid in the state of the step, also if the agent saw only a part of it.

    Args:
        activations: the steps.
        episodes: the run's episodes, e.g. ``store.episodes()``; read once.
        frame: side of the square that grids are padded to.

    Raises:
        ValueError: a step is not among the episodes, or a grid does not fit into the frame.
    """
    count = len(activations)
    labels = np.full((count, frame * frame), PADDING, dtype=np.int8)
    density = np.full(count, np.nan)
    reasoning = np.full(count, "", dtype=object)
    for row, episode, number in steps_of(activations, episodes):
        step, world_density = episode.steps[number], episode.world.tags.get("density")
        labels[row] = label_grid(shown(episode.world.grid, step.state), frame).ravel()
        density[row] = float(world_density) if isinstance(world_density, int | float) else np.nan
        reasoning[row] = step.reasoning or ""
    shared_columns = {name: getattr(activations, name) for name in ("shape", *_STEP)}
    return Cells(frame=frame, labels=labels, density=density, reasoning=reasoning, **shared_columns)


def seen_cells(cells: Cells, episodes: Iterable[Episode]) -> npt.NDArray[np.bool_]:
    """Return which cells the agent had seen by each step, ``[N, C]`` bool: steps by cells of the padded map.

    All cells of the grid count as seen if the agent's view is not limited (no fog). ``episodes`` are those of the run.
    """
    seen = np.zeros((len(cells), cells.frame, cells.frame), dtype=bool)
    for row, episode, number in steps_of(cells, episodes):
        grid = next(islice(grids_seen(episode), number, None))
        seen[row, : grid.height, : grid.width] = True if grid.fog is None else ~grid.fog
    return seen.reshape(len(cells), -1)


def decisions_at(cells: Cells, episodes: Iterable[Episode]) -> Decisions:
    """Return the agent's actions at the steps of some labels, with the true states and the optimal actions there.

    Args:
        cells: the steps.
        episodes: the run's episodes, e.g. ``store.episodes()``; read once.

    Raises:
        ValueError: a step is not among the episodes, or its world has a door. No class of cells represents doors, so
            decoded maps do not define optimal actions there.
    """
    count = len(cells)
    action = np.full(count, NO_ACTION, dtype=np.int64)
    optimal = np.zeros((count, 4), dtype=bool)
    place, goal = np.zeros((2, count, 2), dtype=np.int64)
    agent = np.full(count, "", dtype=object)
    for row, episode, number in steps_of(cells, episodes):
        grid, step = episode.world.grid, episode.steps[number]
        if grid.door is not None:
            raise ValueError(
                f"decoded beliefs can be compared only in worlds without a door, but {episode.id} has one at "
                f"{grid.door}: leave the steps of such worlds out"
            )
        action[row] = NO_ACTION if step.action is None else int(step.action)
        optimal[row] = solve(grid).optimal_in(step.state)
        place[row], goal[row], agent[row] = step.state.position, np.array(grid.goal), episode.agent
    shared_columns = {name: getattr(cells, name) for name in ("shape", "density", *_STEP)}
    return Decisions(action=action, optimal=optimal, place=place, goal=goal, agent=agent, **shared_columns)


def label_plans(cells: Cells, episodes: Iterable[Episode], *, horizon: int = HORIZON, dropped: bool = False) -> Plans:
    """Return what the agent did from each step onwards: its next T = ``horizon`` moves, called its plan.

    Args:
        cells: the steps.
        episodes: the run's episodes, e.g. ``store.episodes()``; read once.
        horizon: number T of moves.
        dropped: how to treat a step after which the agent made more than T moves: False to keep the first T moves, True
            to count its plan as unknown, so that it is neither trained on nor scored.

    Returns:
        ``[N, T]`` moves as tokens, in the order of the steps.
    """
    tokens = np.full((len(cells), check_whole("the horizon of plans", horizon, 1)), UNKNOWN, dtype=np.int8)
    for row, episode, number in steps_of(cells, episodes):
        actions = [step.action for step in episode.steps[number:] if step.action is not None]
        if len(actions) > horizon and dropped:
            continue
        actions = actions[:horizon]
        tokens[row, : len(actions)] = actions
        tokens[row, len(actions) :] = END if episode.success else UNKNOWN
    return Plans(tokens=tokens, **{name: getattr(cells, name) for name in _STEP})


def label_distances(cells: Cells, episodes: Iterable[Episode]) -> npt.NDArray[np.float64]:
    """Return the length in moves of a shortest path from the state at each step to the goal, ``[N]``.

    Keys and doors count: if a door requires the key, the path includes it. NaN if the goal cannot be reached.
    ``episodes`` are those of the run.
    """
    distances = np.full(len(cells), np.nan)
    for row, episode, number in steps_of(cells, episodes):
        length = solve(episode.world.grid).steps_from(episode.steps[number].state)
        distances[row] = length if length >= 0 else np.nan
    return distances


def steps_of(labelled: Activations | Cells, episodes: Iterable[Episode]) -> Iterator[tuple[int, Episode, int]]:
    """Find the recorded step behind each row of activations or labels; yield the row, the episode and the step's
    number.

    Rows come in the order of the episodes, which are read once.

    Raises:
        ValueError: if a step is not among the episodes.
    """
    rows: dict[str, list[int]] = {}
    for index, identity in enumerate(labelled.episode_id.tolist()):
        rows.setdefault(identity, []).append(index)
    for episode in episodes:
        for row in rows.pop(episode.id, ()):
            number = int(labelled.step[row])
            if not 0 <= number < len(episode.steps):
                raise ValueError(f"episode {episode.id} has no step {number}, which the labels name")
            yield row, episode, number
    if rows:
        raise ValueError(
            f"{len(rows)} episodes of the labelled steps are missing, e.g. {next(iter(rows))}: give the "
            "episodes of the run that was captured"
        )
