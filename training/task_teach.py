"""What the teachers of Ariadne do: where they go from a cell, given what was told so far, and all that is equally good.

The greedy and the explore-first teacher are those of `goalscope.agents.scripted`; here they name all of their
targets and moves, not one. The third one goes to whichever target of both is nearer.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from goalscope.agents.prompts import STRATEGIES
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.knowledge import AgentKnowledge
from goalscope.worlds.tasks.taskmap import MOVES, Cell

Teacher = Literal["greedy", "explore-first", "nearer"]
TEACHERS: Final[tuple[Teacher, ...]] = get_args(Teacher)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a teacher does from a cell.

    Attributes:
        origin: the cell.
        options: the moves that lead nearer to a nearest target.
        move: one of them.
        targets: the nearest targets that this move leads nearer to.
        target: one of them.
    """

    origin: Cell
    options: tuple[Action, ...]
    move: Action
    targets: tuple[Cell, ...]
    target: Cell


def teacher_of(strategy: str, rng: np.random.Generator) -> Teacher:
    """Return whose moves a strategy sentence asks for.

    Exploration asks for explore-first, exploitation for greedy, balance for the nearer target of both. No sentence
    leaves it open: one of the two is drawn.

    Raises:
        ValueError: an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"a strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}")
    if strategy == "base":
        return "greedy" if rng.random() < 0.5 else "explore-first"
    fixed: Mapping[str, Teacher] = {"exploration": "explore-first", "exploitation": "greedy", "balance": "nearer"}
    return fixed[strategy]


def aims(memory: AgentKnowledge, teacher: Teacher) -> set[Cell]:
    """Return the cells that a teacher wants to go to; it takes the nearest of them."""
    if goals := set(memory.pending_goals.values()):
        return goals
    cells, new = set(memory.pending.values()), set(memory.frontier)
    if teacher == "greedy":
        return cells or new
    return (new or cells) if teacher == "explore-first" else cells | new


def fields(memory: AgentKnowledge, sources: Collection[Cell]) -> dict[Cell, int]:
    """Return the number of moves over known cells from each cell to the nearest of some."""
    visited, frontier = memory.visited, memory.frontier
    found = dict.fromkeys(sources, 0)
    wave = list(sources)
    steps = 0
    while wave:
        steps += 1
        following = []
        for x, y in wave:
            for near in ((x, y + 1), (x, y - 1), (x - 1, y), (x + 1, y)):
                if near not in found and (near in visited or near in frontier):
                    found[near] = steps
                    following.append(near)
        wave = following
    return found


def good_moves(away: Mapping[Cell, int], here: Cell) -> tuple[Action, ...]:
    """Return the moves from a cell that lead nearer to where a field is 0."""
    nearer = away[here] - 1
    return tuple(
        action for action, (right, up) in MOVES.items() if away.get((here[0] + right, here[1] + up), -1) == nearer
    )


def decide(memory: AgentKnowledge, teacher: Teacher, origin: Cell, rng: np.random.Generator) -> Decision | None:
    """Return what a teacher does from a visited cell with the agent's memory.

    Args:
        memory: what was told so far.
        teacher: who decides.
        origin: any visited cell; the agent need not stand there.
        rng: chooses among equals.

    Returns:
        The decision; None where there is no target, or the cell is one.
    """
    wanted = aims(memory, teacher)
    steps = fields(memory, [origin])
    reach = sorted((steps[cell], cell) for cell in wanted if cell in steps)
    if not reach or reach[0][0] == 0:
        return None
    far = reach[0][0]
    nearest = [cell for steps_there, cell in reach if steps_there == far]
    options = good_moves(fields(memory, nearest), origin)
    move = options[int(rng.integers(len(options)))]
    right, up = MOVES[move]
    ahead = fields(memory, [(origin[0] + right, origin[1] + up)])
    targets = tuple(cell for cell in nearest if ahead[cell] == far - 1)
    target = targets[int(rng.integers(len(targets)))]
    return Decision(origin=origin, options=options, move=move, targets=targets, target=target)
