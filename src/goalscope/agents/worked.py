"""Worked examples in the prompts of base models: one an action, in an order that is blind to the world.

A base model goes on with a text. What it is shown is a list of records that all look like the one it is to complete.
The grid of each example is the same one, turned, and its answer the only move that is best there: nothing but the
direction tells the examples apart. The last one shows the action that the example of a chat prompt would show.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from goalscope.agents.prompts import NOTHING, RULE, example_action, fill, placeholders
from goalscope.models.base import ANSWER_CUE
from goalscope.worlds.grid import Action, Grid
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.world import View

EXAMPLES: Final = "examples"
"""Placeholder of the examples; what stands below it in a template is the form of each of them."""

WORKED_RULE: Final = f"one an action, in their order, turned so that the last one is {RULE}"
"""How worked examples are ordered, as the descriptions of agents record it."""

_UP: Final = ("#####", "#_G_#", "#___#", "#_A_#", "#####")
"""The only best move is UP."""


def worked_examples(template: str, view: View, episode_id: str, step: int, drawn: Callable[[str], str] = str) -> str:
    """Return the text of the examples in the prompt of one step.

    Args:
        template: the text of a template that holds ``{{examples}}``.
        view: what the agent sees; of it only the names of its actions, and which it offers, enter.
        episode_id: content id of the episode.
        step: number of the step, 0-based.
        drawn: writes the text of a grid in other symbols.

    Returns:
        As many examples as there are actions to choose from, separated by an empty line.
    """
    block = template.partition(f"{{{{{EXAMPLES}}}}}")[2].strip("\n")
    offered = list(view.offered)
    last = offered.index(example_action(episode_id, step, view.offered))
    return "\n\n".join(_example(block, view, index, drawn) for index in (*offered[last + 1 :], *offered[: last + 1]))


def _example(block: str, view: View, index: int, drawn: Callable[[str], str]) -> str:
    names = ", ".join(view.actions[one] for one in view.offered)
    values = {"view": "(left out)", "actions": names, "history": NOTHING}
    if isinstance(view, GridView):
        shown = GridView(grid=turned(Action(index)))
        values |= {**shown.fields(), "grid": drawn(shown.text), "view": drawn(shown.text)}
    answer = json.dumps({"action": view.actions[index]}, ensure_ascii=False)
    wanted = {name: values[name] for name in placeholders(block)}
    return f"{fill(block, wanted)}{ANSWER_CUE}{answer}"


@lru_cache(maxsize=len(Action))
def turned(action: Action) -> Grid:
    """Return the grid of the examples turned so that one action alone is best in it."""
    rows = [list(row) for row in _UP]
    mirrored = [list(row) for row in zip(*rows, strict=True)]  # rows become columns: UP becomes LEFT
    turns = {
        Action.UP: rows,
        Action.DOWN: rows[::-1],
        Action.LEFT: mirrored,
        Action.RIGHT: [row[::-1] for row in mirrored],
    }
    return Grid.parse(["".join(row) for row in turns[action]])
