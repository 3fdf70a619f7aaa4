"""The vocabulary of Ariadne: the sentences of task worlds in few tokens.

A cell is one token, a name two, what a step tells of a cell without a state one; and all that stands between two
observations of a conversation, the markers around an answer included, is one token for each answer. So a step of an
earlier turn takes three tokens. The output is made of single markers, as any model of this class writes them.
"""

from functools import cache
from itertools import combinations
from typing import Final

from goalscope.agents.prompts import passage
from goalscope.worlds.grid import ACTIONS, Action
from goalscope.worlds.tasks.generate import DIGITS, LETTERS
from goalscope.worlds.tasks.knowledge import RULES
from goalscope.worlds.tasks.taskmap import MOVES, Cell
from training.tokens import CHANNEL, END, MESSAGE, RETURN, ROLES, SPECIAL, START, Vocabulary

VOCABULARY_SIZE: Final = 1824
POSITIONS: Final = 2048
REACH: Final = (-1, 10)
"""Least and greatest coordinate whose cells are one token: those of all presets and the cells around them."""
OPENING = "You are Ariadne, a small language model that finds its way through task worlds told in words."
AT, TO, COLON = "at", " to", ":"
ANSWER, CLOSE = '{"action": "', '"}'
GOING, THEN = "I go to", ". "
"""How a reasoned answer begins, and what stands between its target and the JSON object."""
ACTION_NAMES: Final = tuple(action.name.lower() for action in ACTIONS)
STEPS: Final = tuple(f" {name}" for name in ACTION_NAMES)
ASKED: Final = f"{END}{START}assistant"
"""How a prompt ends; one token there, three in an output."""

_ANSWERED = f"{ASKED}{CHANNEL}final{MESSAGE}"
_NEXT = f"{RETURN}{START}user{MESSAGE}OBSERVATION: "
_HERE = "You are at"
_BLOCKED = f"No way leads there, so you stayed. {_HERE}"
_UNNAMED = f"You named no direction, so you stayed. {_HERE}"


def cell_piece(cell: Cell) -> str:
    """Return the token of a cell (x, y), the blank before it included."""
    return f" [{cell[0]}, {cell[1]}]"


@cache
def pieces() -> tuple[str, ...]:
    """Return all pieces in the order of their ids, the special tokens first."""
    coordinates = range(REACH[0], REACH[1] + 1)
    found: list[str] = [*SPECIAL, *ROLES, *STEPS, *ACTION_NAMES, AT, TO, COLON, ANSWER, CLOSE, GOING, THEN, ASKED]
    found += [cell_piece((x, y)) for y in coordinates for x in coordinates]
    found += _system()
    found += _conversation()
    found += _told()
    found += _summary()
    found += [first + second for first in LETTERS + DIGITS for second in LETTERS + DIGITS]
    return tuple(dict.fromkeys(found))


@cache
def vocabulary() -> Vocabulary:
    """Return the vocabulary of Ariadne."""
    return Vocabulary(size=VOCABULARY_SIZE, positions=POSITIONS, pieces=pieces(), opening=OPENING)


def _system() -> list[str]:
    told = next(part for part in passage("system").split("\n\n") if "{{" not in part)
    parts = ["summary", "exploration", "exploitation", "balance", "direct", "reasoned"]
    return [f"{START}system{MESSAGE}", f"{RULES}\n\n{told}", *(f"\n\n{passage(name)}" for name in parts), OPENING]


def _conversation() -> list[str]:
    """Return what stands between the end of an observation and the cell of the next one."""
    found = [f"{END}{START}user{MESSAGE}OBSERVATION: {_HERE}", _ANSWERED, f"{_ANSWERED}{GOING}", _NEXT, RETURN + START]
    for following in (_HERE, _BLOCKED, _UNNAMED):
        found.append(_NEXT + following)
        for name in ACTION_NAMES:
            said = f"{ANSWER}{name}{CLOSE}"
            found += [f"{_ANSWERED}{said}{_NEXT}{following}", f"{THEN}{said}{_NEXT}{following}"]
            found.append(f"\nACTION: {name}\nOBSERVATION: {following}")
    return [*found, f"OBSERVATION: {_HERE}", _HERE, _BLOCKED, _UNNAMED]


def _told() -> list[str]:
    """Return what an observation tells of a cell."""
    ways = [
        f" You can go {', '.join(names)}."
        for count in range(1, 5)
        for names in combinations(ACTION_NAMES, count)  # in the order of `Action`, as reports list them
    ]
    status = ["You have just activated it", "It is active", "It is not active yet"]
    return [
        *(f". There is nothing here.{way}" for way in ways),
        *(f"{before}. {one}.{way}" for before in ('"', "") for one in status for way in ways),
        '. This is the state "',
    ]


def _summary() -> list[str]:
    """Return the sentences of the summary, and those that it shares with observations."""
    axes = [f"{Action(action).name.lower()} = {_change(change)}" for action, change in MOVES.items()]
    none = " none"
    needs, leads = "It needs", "It leads to"
    return [
        "\n\nSUMMARY:\nMoves seen so far:",
        " none yet",
        *(f" {axis}" for axis in axes),
        *(f", {axis}" for axis in axes),
        ".\nGoal: not found yet.\nVisited:",
        '.\nGoal: "',
        '".\nVisited:',
        ".\nOpen and not visited:",
        ".\nOpen and not visited: none",
        ".\nImpassable:",
        ".\nImpassable: none",
        '.\nState "',
        '" at',
        *(f"{state} {needs}{what}" for state in (": active.", ": not active yet.") for what in (" nothing. ", ' "')),
        f'". {needs} nothing. {leads} "',
        f'". {needs} "',
        '" and "',
        '" or "',
        '", "',
        f'". {leads} "',
        f'". {leads} nothing further: it is the goal',
        f'{leads} "',
        f"{leads} nothing further: it is the goal",
        '".\nState "',
        *(f"{before}.\nActive:{what}" for before in ('"', "") for what in (none, ' "')),
        *(f"{before}.\nCan be activated now:{what}" for before in ('"', "") for what in (f"{none}.", ' "')),
        '".',
        '"',
        ".",
        " ",
        "\n",
        "\n\n",
    ]


def _change(change: Cell) -> str:
    axis, amount = ("x", change[0]) if change[0] else ("y", change[1])
    return f"{axis} {'+' if amount > 0 else '-'} {abs(amount)}"
