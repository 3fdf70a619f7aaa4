"""Worlds that differ from a given one in exactly one thing, and the kinds of worlds that put them into studies.

A grid is changed in one of these ways:

- Agent, goal or key are moved to another cell; the door is opened; a key is added or removed.
- One thing of a kind, such as a red key, is moved to another cell, or removed (`of_kinds`).
- Wall: one cell beside the agent, or on or beside one of its shortest paths, is closed or opened. Walls elsewhere would
  not be informative.
- Corner: the outermost open rows and columns around it become walls, so that a corner of the smallest rectangle that
  contains all open cells moves. Agent, objects and optimal actions stay the same.

The goal remains reachable in all of these grids.

A state after earlier turns also has a *walk*, the cells and moves that led the agent to its cell. Changes keep the
cells that the walk passed or bumped into, so that it leads through the changed grid in the same way. An agent that
stands elsewhere came there by a walk of its own.

In a study, the kinds are states of grids or environments, and versions of them in which one thing is changed. An entry
is ``{kind: changed, of: [{kind: grid, ...}], moved: [goal, wall], changes: 2}``. Each world of the entries ``of``
defines a state, with the agent at its start. A state and its versions share a cluster, and their prompts share the
example, so that prompts differ only in the grid. With ``horizon: {steps: 1}`` and two trajectories the agent answers
twice in each, and an answer depends only on its prompt.

An agent may act otherwise in its fifth turn than in its first. With ``turns: [1, 2, 3]`` each state has one of these
turns, and a walk of earlier moves that leads to it: the agent is told the turn, and sees the walk if it is shown its
history. ``walks`` lists the walks themselves, such as those on which an agent came to the states of a run.

The kind ``changed-environment`` does the same for environments, whose method ``elsewhere()`` names the things that can
be changed. A walk there leads through states that the changed environment has as well, by the same actions.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import product
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field, StrictInt, TypeAdapter, field_validator

from goalscope._ground.checks import near_miss
from goalscope._ground.ids import canonical_json
from goalscope._ground.rng import stream
from goalscope.agents.prompts import PARAPHRASES
from goalscope.goals.hypotheses.definition import ById
from goalscope.runs import study_parts as kinds
from goalscope.stats.rows import Tag
from goalscope.worlds import things
from goalscope.worlds.dynamics import State, settle, step
from goalscope.worlds.environments.environment import changes_of
from goalscope.worlds.environments.world import Believed, EnvironmentView, EnvironmentWorld
from goalscope.worlds.grid import DELTAS, OPEN, Action, Grid, Position, symbols
from goalscope.worlds.gridworld import GridSession, GridView, GridWorld, WordedView
from goalscope.worlds.planning.shortest import distances_to, optimal_actions
from goalscope.worlds.world import Offer, World, read_plain

Thing = Literal["agent", "goal", "key", "door", "added key", "removed key", "wall", "corner", "names", "order", "words"]
"""What is changed. The last three change only the prompt of a language model, not the grid (`WORDED`)."""
THINGS: Final[tuple[Thing, ...]] = get_args(Thing)
WORDED: Final[Mapping[str, tuple[str, ...]]] = {"names": ("symbols",), "order": ("order",), "words": PARAPHRASES}
"""Change of the prompt -> its wordings, see `goalscope.agents.prompts.WORDINGS`: the symbols of the cells, the order of
legend and moves, or all words of the prompt."""

REMOVED: Final = "removed "
"""Begin of the name of a change that takes a thing away."""

_NAMES: Final[Mapping[str, str]] = {"agent": "start", "goal": "goal", "key": "key", "added key": "key"}


Walk = tuple[tuple[int, int, int | None], ...]
"""Earlier turns of an agent: row and column of its cell, and its move; None for a turn without a valid move."""


MOVED: Final = "moved"
"""Tag that names the changed thing."""
TURN: Final = "turn"
"""Tag that holds the turn of a state, counted from 1."""
NOTHING: Final = "nothing"
"""Value of the tag in the unchanged world."""
_CANDIDATES: Final = 12
"""Number of changes of a thing of an environment from which those of a state are chosen; each is enumerated."""
_ENOUGH_STATES: Final = 6
"""Number of states in which a thing decides what is optimal, from which the other states are not asked about it."""
_MOST_STATES: Final = 100_000
"""Number of states of all changed environments together above which there are fewer candidates."""
USUAL: Final[tuple[Thing, ...]] = ("goal", "key", "door", "wall", "corner", "agent")
"""Default list of things to change; things that the worlds lack are skipped."""
TURNS: Final = tuple(range(1, 11))
"""Turns in which agents are asked, unless a study says otherwise: as many as most agents take to the goal."""
_MOST_TURNS: Final = 1000
_StoredTurn = Annotated[
    tuple[StrictInt, StrictInt, Annotated[int, Field(strict=True, ge=0, le=3)] | None], Field(strict=False)
]
_StoredWalk = Annotated[tuple[_StoredTurn, ...], Field(strict=False, max_length=_MOST_TURNS)]
_WALK: Final = TypeAdapter[Walk](_StoredWalk)
Moves = tuple[tuple[int, int], ...]
"""A walk in an environment: numbers of states in its table, and of the actions that were taken there."""
_Number = Annotated[int, Field(strict=True, ge=0)]
_MOVES: Final = TypeAdapter[Moves](
    Annotated[
        tuple[Annotated[tuple[_Number, _Number], Field(strict=False)], ...],
        Field(strict=False, max_length=_MOST_TURNS),
    ]
)


def walk_to(grid: Grid, moves: int, rng: np.random.Generator) -> Walk:
    """Draw a random walk of a given number of moves that ends at the agent's cell and passes no goal and no object.

    It serves as the history of a state: the turns before the one in which the agent is asked. The walk is empty if no
    free cell lies beside the agent's cell.
    """
    assert grid.start is not None  # worlds show their agent
    cell, walk = grid.start, list[tuple[int, int, int | None]]()
    closed = {cell for cell in (grid.goal, grid.key, grid.door, *(cell for cell, _ in grid.things)) if cell is not None}
    for _ in range(moves):
        free = [origin for origin in grid.open_around(cell) if origin not in closed]
        if not free:
            return ()
        origin = free[int(rng.integers(len(free)))]
        move = DELTAS.tolist().index([cell[0] - origin[0], cell[1] - origin[1]])
        walk.append((*origin, move))
        cell = origin
    return tuple(walk[::-1])


def check_walk(grid: Grid, walk: Walk) -> None:
    """Check that a walk (the turns before a state) leads through a grid to the agent's cell.

    Raises:
        ValueError: it leaves the grid or the open cells, it does not end at the agent's cell, or it passes the goal or
            the key.
    """
    assert grid.start is not None  # worlds show their agent
    cells = [*((row, col) for row, col, _ in walk), grid.start]
    for turn, ((*cell, move), after) in enumerate(zip(walk, cells[1:], strict=True), 1):
        state = settle(grid, grid.check_cell((cell[0], cell[1])))
        leads = state if move is None else step(grid, state, move)
        if state.position == grid.goal or state.phase or leads != State(after):
            name = "no move" if move is None else Action(move).name
            raise ValueError(
                f"turn {turn} of a walk must lead from {state.position} to {after} without passing the goal or the "
                f"key, but {name} does not in the grid\n{grid}"
            )


def _cells_of(grid: Grid, walk: Walk) -> set[Position]:
    """Return the cells of a grid that a walk passed or bumped into."""
    cells = {(row, col) for row, col, _ in walk}
    cells |= {(row + int(DELTAS[move][0]), col + int(DELTAS[move][1])) for row, col, move in walk if move is not None}
    return {(row, col) for row, col in cells if 0 <= row < grid.height and 0 <= col < grid.width}


def of_kinds(grid: Grid | None = None) -> tuple[str, ...]:
    """Return the names of all changes that move or remove an object of a registered kind, such as "red key".

    Args:
        grid: only for the kinds of objects in this grid; None for all registered kinds.

    Returns:
        For each kind its name, which means that such an object is moved; then the names of the removals, such as
        "removed red key".
    """
    names = [kind.name for kind in (things.kinds() if grid is None else things.kinds_in([grid]))]
    return *names, *(f"{REMOVED}{name}" for name in names)


def check_changes(names: Sequence[str]) -> None:
    """Check that each name stands for a known change of a world.

    Valid are the names in `THINGS`, such as "goal" (the goal is moved), and those of `of_kinds`, such as "red key" (a
    red key is moved) or "removed red key".

    Raises:
        ValueError: a name is none of these.
    """
    for name in names:
        if name not in (valid := (*THINGS, *of_kinds())):
            raise ValueError(
                f"what is changed must be one of {', '.join(THINGS)}, or a kind of thing, such as red key or removed "
                f"red key, got {name!r}{near_miss(name, valid)}"
            )


def changed_grids(grid: Grid, thing: str, count: int, *, rng: np.random.Generator, walk: Walk = ()) -> list[Grid]:
    """Return grids that differ from a given one in one thing only, such as the cell of the goal.

    The goal remains reachable. The most informative grids come first: those in which no previously optimal action is
    still optimal (for a wall: in which the optimal actions change). Changes of a corner always keep the optimal
    actions.

    Args:
        grid: grid without fog that shows its agent and a reachable goal.
        thing: what to change: one of `THINGS` except `WORDED`, or of `of_kinds`.
        count: maximum number of grids, drawn without replacement. The list is empty if the grid lacks the thing.
        rng: random number generator of the draw.
        walk: the agent's earlier turns. They lead through all returned grids to the agent's cell, except where the
            agent is what changes.
    """
    walked_cells = _cells_of(grid, walk) if thing != "agent" else set[Position]()
    changes = (
        _walls(grid, walked_cells)
        if thing == "wall"
        else _corners(grid, walked_cells)
        if thing == "corner"
        else elsewhere(grid, thing, walked_cells)
    )
    candidates, first, less_telling = list(dict.fromkeys(changes)), list[Grid](), list[Grid]()
    optimal = best_actions(grid)
    for index in rng.permutation(len(candidates)):
        after = best_actions(candidates[index])
        if after:
            telling = after != optimal if thing == "wall" else thing == "corner" or not after & optimal
            (first if telling else less_telling).append(candidates[index])
        if len(first) == count:
            break
    return [*first, *less_telling][:count]


def best_actions(grid: Grid) -> frozenset[Action]:
    """Return the optimal actions from the agent's cell in a grid; empty if the goal cannot be reached."""
    assert grid.start is not None  # worlds show their agent
    return optimal_actions(grid, grid.start)


def elsewhere(grid: Grid, thing: str, walked_cells: Collection[Position] = ()) -> Iterator[Grid]:
    """Yield all copies of a grid in which one thing is changed, whether or not the goal remains reachable.

    The thing is moved to each other empty cell, or the door is opened, a key is added at each empty cell, or a key or
    object is removed.

    Args:
        grid: the grid.
        thing: what to change: one of `THINGS` except "wall", "corner" and `WORDED`, or of `of_kinds`.
        walked_cells: cells that the agent has walked on, which stay as they are.
    """
    if thing not in THINGS:
        yield from _things(grid, thing, walked_cells)
        return
    if thing in ("door", "removed key"):
        name = thing.removeprefix(REMOVED)
        exists = getattr(grid, name) not in (None, *walked_cells)
        if exists and (thing == "door" or grid.door is None):
            yield grid.at(**{name: None})
        return
    name = _NAMES[thing]
    if (getattr(grid, name) is None) != (thing == "added key"):
        return
    for cell in _empty_cells(grid, walked_cells):
        changed = grid.at(**{name: cell})
        if thing != "agent" or settle(changed, cell).door_open is False:
            yield changed


def _things(grid: Grid, change: str, walked_cells: Collection[Position]) -> Iterator[Grid]:
    """Yield all grids with one thing of a kind removed or moved; neither it nor its new cell is walked on."""
    by_name = {kind.name: kind.symbol for kind in things.kinds()}
    for entry in grid.things:
        if entry[1] != by_name[change.removeprefix(REMOVED)] or entry[0] in walked_cells:
            continue
        others = tuple(other for other in grid.things if other != entry)
        if change not in by_name:
            yield grid.at(things=others)
            continue
        for cell in _empty_cells(grid, walked_cells):
            yield grid.at(things=(*others, (cell, entry[1])))


def _object_cells(grid: Grid) -> set[Position]:
    """Return the cells of agent, goal, key, door and things."""
    return {cell for cell in (*grid.objects.values(), *(cell for cell, _ in grid.things)) if cell is not None}


def _empty_cells(grid: Grid, walked_cells: Collection[Position]) -> list[Position]:
    """Return the open cells without agent, object or thing, except walked cells."""
    cells = [(row, col) for row, col in np.argwhere(symbols(grid) == OPEN).tolist()]
    return [cell for cell in cells if cell not in walked_cells]


def _walls(grid: Grid, walked_cells: Collection[Position]) -> Iterator[Grid]:
    """Yield the grids in which one cell on or beside a shortest path is closed or opened.

    Walked cells are not changed.
    """
    objects = {*_object_cells(grid), *walked_cells}
    way = _around(_on_shortest_paths(grid))
    for row, col in zip(*np.nonzero(way), strict=True):
        inside = 0 < row < grid.height - 1 and 0 < col < grid.width - 1  # the outer walls stay
        if inside and (row, col) not in objects:
            walls = grid.walls.copy()
            walls[row, col] = not walls[row, col]
            yield grid.at(walls=walls)


def _on_shortest_paths(grid: Grid) -> npt.NDArray[np.bool_]:
    """Return the cells of the shortest paths between agent and goal, ``[H, W]``; doors and things count as open."""
    assert grid.start is not None and grid.goal is not None  # worlds show both
    before, after = (distances_to(grid.walls, [cell]) for cell in (grid.start, grid.goal))
    on_path: npt.NDArray[np.bool_] = (before >= 0) & (after >= 0) & (before + after == after[grid.start])
    return on_path


def _around(cells: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the given cells and their neighbours, ``[H, W]``."""
    padded = np.pad(cells, 1)
    near: npt.NDArray[np.bool_] = cells | padded[2:, 1:-1] | padded[:-2, 1:-1] | padded[1:-1, 2:] | padded[1:-1, :-2]
    return near


def _corners(grid: Grid, walked_cells: Collection[Position]) -> Iterator[Grid]:
    """Yield for each corner the grid in which as many rows and columns around it as possible become walls.

    The cells of agent and objects and the walked cells stay as they are, and so do the optimal actions.
    """
    optimal = best_actions(grid)
    objects = [cell for cell in (*_object_cells(grid), *walked_cells) if not grid.walls[cell]]
    sides = []
    for axis in (0, 1):
        lines, object_lines = np.flatnonzero(~grid.walls.all(axis=1 - axis)), [cell[axis] for cell in objects]
        before, after = lines[lines < min(object_lines)], lines[lines > max(object_lines)][::-1]
        sides.append([[side[:count] for count in range(len(side) + 1)] for side in (before, after)])
    for rows, cols in product(*sides):
        deepest = sorted(product(rows, cols), key=lambda closed: -len(closed[0]) - len(closed[1]))
        for closed_rows, closed_cols in deepest[:-1]:  # the last one closes nothing
            walls = grid.walls.copy()
            walls[closed_rows] = True
            walls[:, closed_cols] = True
            changed = grid.at(walls=walls)
            if best_actions(changed) == optimal:
                yield changed
                break


@dataclass(frozen=True, kw_only=True)
class ChangedWorld(GridWorld):
    """A state of a grid in which an agent is asked for a move, or a version of this state with one thing changed.

    Attributes:
        grid: the grid, with the agent at its current cell.
        original: content id of the unchanged state.
        moved: the changed thing, `NOTHING` for the unchanged state.
        wording: name of the prompt wording, "" for the agent's own.
        walk: the turns before the state.
        cluster, tags: as in `World`.

    Raises:
        ValueError: the walk does not lead through the grid to the agent's cell.
    """

    kind: ClassVar[str] = "changed"
    offers: ClassVar[frozenset[Offer]] = GridWorld.offers | {"changed"}
    original: str
    moved: str = NOTHING
    wording: str = ""
    walk: Walk = ()

    def __post_init__(self) -> None:
        GridWorld.__post_init__(self)
        check_walk(self.grid, self.walk)

    # GridWorld stores an older form without the kind; this class does not.
    described, stored = World.described, World.stored

    @property
    def shared_examples(self) -> str:
        """Id of the unchanged state. Worlds with the same id have the same solved example in their prompts.

        Prompts for a state and its changed versions therefore differ only in the grid.
        """
        return self.original

    def begin(self, rng: np.random.Generator | None = None) -> GridSession:
        """Begin an episode in this state; its prompts have the world's own wording if it has one."""
        session = super().begin(rng)
        if self.wording:
            session.present = lambda view: WordedView(grid=view.grid, wording=self.wording)
        return session

    @cached_property
    def earlier(self) -> tuple[tuple[GridView, int | None], ...]:
        """What the agent saw and did in the turns before the state, as pairs of a view and a move (None for no valid
        move).
        """
        grids = [(self.grid.at(start=(row, col)), move) for row, col, move in self.walk]
        if self.wording:
            return tuple((WordedView(grid=grid, wording=self.wording), move) for grid, move in grids)
        return tuple((GridView(grid=grid), move) for grid, move in grids)

    def to_plain(self) -> dict[str, Any]:
        """Return the world as a dictionary of JSON values, from which `from_plain` restores it."""
        further = {"wording": self.wording} if self.wording else {}
        walked = {"walk": [list(turn) for turn in self.walk]} if self.walk else {}
        return {"grid": self.grid.render(), "original": self.original, "moved": self.moved, **further, **walked}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Restore the world from the dictionary that `to_plain` returned.

        Args:
            plain: the dictionary.
            cluster: id shared by the versions of a world.
            tags: named facts about the world, such as its size.

        Raises:
            ValueError: a key is unknown or missing, or a value is invalid.
        """
        optional = {"wording": str, "walk": list}
        further = {key: kind for key, kind in optional.items() if isinstance(plain, Mapping) and key in plain}
        values = read_plain(plain, "a changed world", grid=str, original=str, moved=str, **further)
        walk = _WALK.validate_python(values.pop("walk", ()))
        return cls(grid=Grid.parse(values.pop("grid")), **values, walk=walk, cluster=cluster, tags=tags or {})


@kinds.world_kind("changed", world=ChangedWorld)
class ChangedWorlds(kinds.StudyPart):
    """Entry of a study's list ``worlds``: states of grids, each followed by versions in which one thing is changed.

    Attributes:
        of: entries of the key ``worlds``, all of them grids without fog. The state of a grid is its start.
        moved: what to change, see `THINGS` and `of_kinds`; by default all of `USUAL` and of the worlds' own things.
        changes: number of versions of a state for each thing, more where a thing is asked about in fewer states.
        states: maximum number of states in which a thing is changed, None for all. If there are more, those in which a
            thing decides what is optimal are preferred.
        turns: turns of the states, counted from 1 and drawn evenly; before a later turn lies a random walk. A state
            that cannot be walked to has turn 1.
        walks: for each world of ``of`` in order, the turns before its state; empty to draw walks.
    """

    kind: Literal["changed"]
    of: kinds.Entries
    moved: tuple[str, ...] = kinds.sequence(default=())
    changes: int = Field(default=2, ge=1, le=100)
    turns: tuple[Annotated[int, Field(ge=1, le=_MOST_TURNS)], ...] = kinds.sequence(default=(1,), min_length=1)
    walks: tuple[_StoredWalk, ...] = kinds.sequence(default=())

    @field_validator("of", mode="before")
    @classmethod
    def _flat(cls, entries: Any) -> Any:
        listed = entries if isinstance(entries, list | tuple) else []
        if any(isinstance(entry, Mapping) and entry.get("kind") == "changed" for entry in listed):
            raise ValueError("must list unchanged grids, got an entry of kind changed")
        return entries

    @field_validator("of")
    @classmethod
    def _grids(cls, entries: Any) -> Any:
        for entry in entries:
            world = kinds.world_class(entry)
            if not world.offers >= {"grid", "seen state"}:
                raise ValueError(f"must list worlds that are grids, got an entry of kind {entry.kind}")
            if getattr(entry, "fog_radius", None) is not None:
                raise ValueError("must list grids without fog, got fog_radius: leave fog_radius out")
        return entries

    @field_validator("moved")
    @classmethod
    def _different(cls, moved: Any) -> Any:
        check_changes(moved)
        return kinds.listed(moved) if moved else moved

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[ChangedWorld]:
        """Generate the worlds of the entry: each state, followed by its changed versions.

        Args:
            seed: root seed of the study.
            path: position of the entry in the study, from which random numbers and error messages are derived.
            taken: ids of worlds that the study has already.

        Raises:
            ValueError: no world has one of the named things, or no world has any changeable thing; or a walk does not
                lead to the state of its world.
        """
        changed, turns = set[str](), _turns_of(self.turns, seed, path)
        worlds = list(kinds.expand(self.of, seed))
        if self.walks and len(self.walks) != len(worlds):
            raise ValueError(
                f"walks of {path} must have an entry for each of the {len(worlds)} worlds, got {len(self.walks)}: "
                "use [] for a world without earlier turns"
            )
        for number, world in enumerate(worlds):
            shared: dict[str, Any] = {"original": GridWorld(grid=world.grid).id, "cluster": world.cluster_id}
            before = next(turns) - 1
            walk = self.walks[number] if self.walks else self._walk(world.grid, before, seed)
            versions: list[tuple[str, Grid, str, Walk]] = [(NOTHING, world.grid, "", walk)]
            for thing in self.moved or (*USUAL, *of_kinds(world.grid)):
                rng = stream(seed, "changed", shared["original"], thing)
                if thing in WORDED:
                    drawn = rng.permutation(WORDED[thing])[: self.changes].tolist()
                    versions += [(thing, world.grid, wording, walk) for wording in drawn]
                    continue
                for grid in changed_grids(world.grid, thing, self.changes, rng=rng, walk=walk):
                    own_walk = self._walk(grid, len(walk), seed) if thing == "agent" else walk
                    if len(own_walk) == len(walk):
                        versions.append((thing, grid, "", own_walk))
            changed.update(thing for thing, *_ in versions[1:])
            if len(versions) > 1:
                for moved, grid, wording, own_walk in versions:
                    tags = {**world.tags, "kind": "changed", MOVED: moved, TURN: len(walk) + 1}
                    yield ChangedWorld(grid=grid, moved=moved, wording=wording, walk=own_walk, **shared, tags=tags)
        if lacking := [thing for thing in self.moved if thing not in changed]:
            names = ", ".join(lacking)
            advice = f"leave {names} out of --moved" if changed else f"name in --moved some of {', '.join(USUAL)}"
            raise ValueError(f"{path} has no grid in which {names} can be changed: {advice}, or use other worlds")
        if not changed:
            raise ValueError(f"{path} has no grid in which any of {', '.join(THINGS)} can be changed: use other worlds")

    @staticmethod
    def _walk(grid: Grid, moves: int, seed: int) -> Walk:
        return walk_to(grid, moves, stream(seed, "walk", GridWorld(grid=grid).id))


def _turns_of(turns: Sequence[int], seed: int, path: str) -> Iterator[int]:
    """Yield for each state the turn in which this state is asked; all turns are used equally often."""
    rng = stream(seed, "turns of states", path)
    while True:
        yield from rng.permutation(turns).tolist()


@dataclass(frozen=True, kw_only=True)
class ChangedEnvironment(EnvironmentWorld):
    """A state of an environment in which an agent is asked for an action, or a version of it with one thing elsewhere.

    Attributes:
        original: content id of the unchanged world, which begins in the state.
        moved: the changed thing, `NOTHING` for the unchanged state.
        walk: the turns before the state.
        source, parameters, description, limit, depth, start, goal_name, cluster, tags: as in `EnvironmentWorld`.
    """

    kind: ClassVar[str] = "changed-environment"
    offers: ClassVar[frozenset[Offer]] = EnvironmentWorld.offers | {"changed"}
    further_values: ClassVar[Mapping[str, Any]] = {"original": str, "moved": str}
    optional_values: ClassVar[Mapping[str, Any]] = {**EnvironmentWorld.optional_values, "walk": list | tuple}
    original: str
    moved: str = NOTHING
    walk: Moves = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "walk", _MOVES.validate_python(self.walk))

    @property
    def shared_examples(self) -> str:
        """Id of the unchanged world. Worlds with the same id have the same solved example in their prompts.

        Prompts for a world and its changed versions therefore differ only in the state.
        """
        return self.original

    @cached_property
    def earlier(self) -> tuple[tuple[EnvironmentView, int | None], ...]:
        """What the agent saw and did in the turns before the state, as pairs of a view and the number of an action.

        Raises:
            ValueError: the walk does not lead to the state in this version of the environment.
        """
        believed, end = self.believed, int(self.believed.table.start.argmax())
        ways = [*(number for number, _ in self.walk[1:]), end] if self.walk else []
        if any(not _leads(believed, *move, after) for move, after in zip(self.walk, ways, strict=True)):
            raise ValueError(
                f"the walk of a changed environment must lead through {self.source} to the state in which it begins: "
                "the run was made in another version of it"
            )
        return tuple((believed.view(number), action) for number, action in self.walk)

    def planned(self, horizon: int) -> int:
        """Return the number of steps for which a planning agent should look ahead, although it is asked for one move
        only.

        It is twice the expected number of steps to the goal from here, and at least ``horizon``.
        """
        return max(horizon, int(2 * self.believed.solved.expected_steps) + 1)

    @classmethod
    def version(cls, of: EnvironmentWorld, world: EnvironmentWorld, moved: str, start: int | None, walk: Moves) -> Self:
        """Return a world as a changed version of another one, with which it shares cluster and tags.

        Args:
            of: the unchanged world.
            world: the same environment with one thing elsewhere.
            moved: the changed thing.
            start: number of the state, in the table of ``world``, in which the version begins.
            walk: the turns before this state.
        """
        values = {entry.name: getattr(world, entry.name) for entry in fields(EnvironmentWorld)}
        tags = {**of.tags, "kind": "changed", MOVED: moved, TURN: len(walk) + 1}
        values |= {"start": start, "cluster": of.cluster_id, "tags": tags}
        return cls(**values, original=of.id, moved=moved, walk=walk)


@kinds.world_kind("changed-environment", world=ChangedEnvironment)
class ChangedEnvironments(kinds.StudyPart):
    """Entry of a study's list ``worlds``: states of environments, each followed by versions with one thing elsewhere.

    Attributes:
        of: entries of the key ``worlds``, all of them environments with a method ``elsewhere``. We change their first
            state.
        moved: names of things to change; by default all that the environments name.
        changes: maximum number of versions of a state for each thing.
        turns: turns of the states, counted from 1 and drawn evenly; before a later turn lies a random walk, which is
            shorter where no other state leads to its first one.
    """

    kind: Literal["changed-environment"]
    of: kinds.Entries
    moved: tuple[str, ...] = kinds.sequence(default=())
    changes: int = Field(default=2, ge=1, le=100)
    states: int | None = Field(default=None, ge=1, le=100_000)
    turns: tuple[Annotated[int, Field(ge=1, le=_MOST_TURNS)], ...] = kinds.sequence(default=(1,), min_length=1)

    @field_validator("of")
    @classmethod
    def _environments(cls, entries: Any) -> Any:
        for entry in entries:
            offers = kinds.world_class(entry).offers
            if "environment" not in offers or "changed" in offers:
                raise ValueError(f"must list worlds that are environments, got an entry of kind {entry.kind}")
        return entries

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[ChangedEnvironment]:
        """Generate the worlds of the entry: each state, followed by its changed versions.

        Args:
            seed: root seed of the study.
            path: position of the entry in the study, from which random numbers and error messages are derived.
            taken: ids of worlds that the study has already.

        Raises:
            ValueError: no environment has one of the named things, or has any thing that can be changed.
        """
        known, turns = set[str](), _turns_of(self.turns, seed, path)
        states = list[tuple[EnvironmentWorld, int, Moves, dict[str, list[_ChangedStart]]]]()
        for world in kinds.expand(self.of, seed):
            assert isinstance(world, EnvironmentWorld)  # see `_environments`
            begins = int(world.believed.table.start.argmax())
            walk = _walk_in(world.believed, begins, next(turns) - 1, stream(seed, "walk", world.id))
            possible = changes_of(world.believed.environment)
            known.update(possible)
            versions = dict[str, list[_ChangedStart]]()
            count = _MOST_STATES // len(world.believed.table.states) // max(len(possible), 1)
            count = max(min(count, _CANDIDATES), self.changes)
            for thing in self.moved or possible:
                # The same few candidates for all states of an environment, so that few environments are enumerated.
                draw = stream(seed, "changed", world.source, thing).permutation(len(possible.get(thing, ())))
                drawn = [possible[thing][index] for index in draw[:count]]
                chosen = _elsewhere(ById(world.id, world), tuple(map(canonical_json, drawn)))
                versions[thing] = [
                    _ChangedStart(other, number, own_walk, telling)
                    for other, number, telling in chosen
                    if (own_walk := _same_walk(world.believed, other.believed, walk, number)) is not None
                ]
            states.append((world, begins, walk, versions))
        changed = set[str]()
        chosen_versions = {
            thing: self._chosen([versions.get(thing, []) for *_, versions in states]) for thing in self.moved or known
        }
        for number, (world, begins, walk, versions) in enumerate(states):
            changed_worlds = [
                ChangedEnvironment.version(world, version.world, thing, version.start, version.walk)
                for thing in versions
                for version in chosen_versions[thing][number]
            ]
            changed.update(version.moved for version in changed_worlds)
            if changed_worlds:
                yield ChangedEnvironment.version(world, world, NOTHING, begins, walk)
                yield from changed_worlds
        if lacking := [thing for thing in self.moved or [""] if thing not in changed and (thing or not changed)]:
            what = ", ".join(lacking) or "a thing"
            advice = (
                f"those that elsewhere() names are {', '.join(sorted(known))}"
                if known
                else ("give the environment a method elsewhere() that returns changed parameters for each thing")
            )
            raise ValueError(f"{path} has no environment in which {what} can be changed: {advice}")

    def _chosen(self, states: Sequence[Sequence["_ChangedStart"]]) -> list[Sequence["_ChangedStart"]]:
        """Return for each state the versions of a thing that are asked, given all of them, the telling ones first.

        Where the thing decides what is optimal in enough states, the others are left out, and their versions go to
        these states: a dock matters only to a forklift that is loaded.
        """
        most = self.states or len(states)
        telling = [[version for version in versions if version.telling] for versions in states]
        n_telling = sum(map(bool, telling))
        if n_telling < _ENOUGH_STATES:
            return [versions[: self.changes] if number < most else [] for number, versions in enumerate(states)]
        limit, left = max(self.changes, self.changes * most // n_telling), most
        chosen = list[Sequence[_ChangedStart]]()
        for versions in telling:
            chosen.append(versions[:limit] if left else [])
            left -= bool(chosen[-1])
        return chosen


@dataclass(frozen=True, slots=True)
class _ChangedStart:
    """A changed environment, its first state and the walk there, and whether no action is optimal in both versions."""

    world: EnvironmentWorld
    start: int
    walk: Moves
    telling: bool


def _walk_in(believed: Believed, state: int, moves: int, rng: np.random.Generator) -> Moves:
    """Draw a random walk to a state, backwards, through other states that are no goals; ends lead nowhere.

    It has fewer moves where no such state leads to its first one.
    """
    table, walk = believed.table, list[tuple[int, int]]()
    before, actions, after = table.triples.T
    possible = (before != after) & ~table.goal[before]
    for _ in range(moves):
        ways = np.flatnonzero(possible & (after == state))
        if not len(ways):
            break
        chosen = int(rng.choice(ways))
        state = int(before[chosen])
        walk.append((state, int(actions[chosen])))
    return tuple(walk[::-1])


def _leads(believed: Believed, state: int, action: int, after: int) -> bool:
    """Return whether an action can lead from a state, which is no goal, to another one."""
    table = believed.table
    if state >= len(table.states) or action >= len(table.actions) or table.goal[state]:
        return False
    return bool((table.triples[table.outcomes(state, action), 2] == after).any())


def _same_walk(believed: Believed, other: Believed, walk: Moves, end: int) -> Moves | None:
    """Return a walk by the numbers of the states in another environment; None if it does not lead to a state there."""
    states = [believed.table.states[number] for number, _ in walk]
    if any(state not in other.table.index for state in states):
        return None
    numbers = [other.table.index[state] for state in states]
    own_walk = tuple((number, action) for number, (_, action) in zip(numbers, walk, strict=True))
    ways = zip(own_walk, [*numbers[1:], end], strict=False)
    return own_walk if all(_leads(other, *move, after) for move, after in ways) else None


@lru_cache(maxsize=4096)
def _elsewhere(
    key: ById[EnvironmentWorld], candidates: tuple[str, ...]
) -> tuple[tuple[EnvironmentWorld, int, bool], ...]:
    """Return the changed environments that can be solved from the first state of a world, its number in each, and
    whether the change is telling: no action is optimal both before and after it.

    The telling ones come first. The candidates are changed parameters, a JSON text each.
    """
    world, versions = key.world, list[tuple[EnvironmentWorld, int, bool]]()
    first, best = world.believed.table.states[int(world.believed.table.start.argmax())], world.believed.best_at_first
    for parameters in candidates:
        other = EnvironmentWorld.construct(
            world.source, {**world.parameters, **json.loads(parameters)}, limit=world.limit, depth=world.depth
        )
        if other.description == world.description:
            continue  # the thing is there already
        states = other.believed.table.states
        number = states.index(first) if first in states else -1
        if number in other.believed.starts:
            telling = not other.believed.starting_at(number).best_at_first & best
            versions.append((other, number, telling))
    return tuple(sorted(versions, key=lambda version: not version[2]))
