"""Prompt templates as data files, filled by plain substitution; nothing is ever executed.

Templates of task worlds are separate from those of grids, whose words the bundled model's vocabulary is built from.

Other wordings of the prompt for grids are five paraphrases, renamed symbols, and labels in another order. Each has the
same content as the usual prompt: the same facts, the same example grid, the same form of the answer. An agent that
follows the content acts alike under all of them. The texts of the paraphrases are in ``wordings``; the others are the
usual text with declared changes.

A base model continues a text. Its prompt is a list of records of the same form as the one to be completed: worked
examples, one per action, in an order independent of the world. All show the same grid, rotated or mirrored, and the
only optimal move there: the examples differ in the direction only. The last one shows the action that the example of a
chat prompt would show.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from goalscope._ground.checks import note_namesake
from goalscope._ground.folder import NamedFile, package_text
from goalscope.agents.agent import Past
from goalscope.agents.models.base import ANSWER_CUE, COMPLETION, TEMPLATE_FORMS
from goalscope.agents.printed_prompts import said_in, with_our_slots
from goalscope.worlds.grid import AGENT, GOAL, OPEN, WALL, Action, Grid
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.tasks.knowledge import RULES
from goalscope.worlds.world import View

TEMPLATES = ("grid", "key_door", "fog")
"""Names of the templates for grids that come with the package, each in all forms of `SUFFIXES`."""

ANY: Final = "text"
"""Name of the template for any world: the observation in words, and the names of the admissible actions."""

NAMED: Final = "named"
"""The task of grids in which the instruction names the place to go to."""

TASKS: Final = {"grid": "grid", "key-door": "key_door", "fog": "fog", NAMED: "grid", "text": ANY}
"""The tasks that come with the package, and the names of their templates."""

PASSAGES = (
    *("system", "paper", "summary", "exploration", "exploitation", "balance"),
    *("direct", "reasoned", "direct_example", "reasoned_example", "example"),
)
"""Names of the passages for task worlds: the system prompt, the same with the paper's facts alone, the note on the
memory summary, three strategies, two kinds of answer, both once more for an answer whose form is shown by an example,
and that example."""

SUFFIXES: Final = {"example": "_example", "schema": "", COMPLETION: "_completion"}
"""File name suffix of each form."""

STRATEGIES: Final = ("base", "exploration", "exploitation", "balance")
"""The strategy sentences of task worlds; "base" has none."""

PAPER: Final = "paper"
"""The system prompt with the content of the paper's base prompt only: neither axes nor a request for few steps."""

NOTHING: Final = "none"
"""Text for a missing action or an empty history."""

RULE: Final = "action (sha256(episode id) + step) mod admissible actions"
"""How the action of an example is chosen, as the descriptions of agents record it."""

EXAMPLES: Final = "examples"
"""Placeholder of worked examples; the text below it in a template is the form of each example."""

WORKED_RULE: Final = f"one an action, in their order, turned so that the last one is {RULE}"
"""How worked examples are ordered, as the descriptions of agents record it."""

OF_GRIDS: Final = ("grid", "carrying_key")
"""Placeholders that only a grid can fill."""

_IN_TEMPLATES: Final = (*OF_GRIDS, "aim", "history", "example", EXAMPLES, "view", "actions")
_IN_SYSTEM_PROMPTS: Final = ("rules", "summary", "strategy", "answer")
_OFFSETS: Final = 2520  # a multiple of 1 to 10: each number of admissible actions has all remainders equally often
ActionIndex = TypeVar("ActionIndex", bound=int)

_SECTION = re.compile(r"^\[([a-z]+)\]\n", re.MULTILINE)
_LEGEND = re.compile(rf"^([{WALL}{OPEN}{GOAL}{AGENT}]) (?=an? |the )", re.MULTILINE)
_ROW = re.compile(rf"^\d+(?: [{WALL}{OPEN}{GOAL}{AGENT}])+$", re.MULTILINE)
_TO_GOAL: Final = f"from {AGENT} to {GOAL}"
_PLACEHOLDER, _BRACES = re.compile(r"\{\{([a-z_]+)\}\}"), re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def template(name: str, form: str = "schema") -> str:
    """Return the text of a bundled template, without the newline that ends its file."""
    if form not in SUFFIXES:
        raise ValueError(f"the form of a bundled template must be one of {', '.join(SUFFIXES)}, got {form!r}")
    if name not in (*TEMPLATES, ANY):
        raise ValueError(f"a bundled template must be one of {', '.join((*TEMPLATES, ANY))}, got {name!r}")
    return bundled(f"{name}{SUFFIXES[form]}.txt")


def passage(name: str) -> str:
    """Return the text of a passage for task worlds, without the newline that ends its file."""
    if name not in PASSAGES:
        raise ValueError(f"a passage must be one of {', '.join(PASSAGES)}, got {name!r}")
    return bundled("tasks", f"{name}.txt")


_MOST_TEXT_BYTES: Final = 4_194_304
"""Maximum size of a text file that a study names."""


@cache
def bundled(*path: str) -> str:
    """Return the text of a file of this package, without the newline that ends it."""
    return package_text(__name__, *path).removesuffix("\n")


def read_text(path: str | Path, must: str) -> str:
    """Return the text of a study's own file."""
    file = NamedFile(Path(path).expanduser())
    if not file.is_there():
        raise FileNotFoundError(f"{must} the path of a text file, got {str(path)!r}, and there is no such file")
    try:
        return file.load_text(_MOST_TEXT_BYTES)
    except ValueError as error:
        raise ValueError(f"a template must be a UTF-8 text, {path} is none: {error}") from None


def check_placeholders(text: str, known: Sequence[str], source: str | Path) -> set[str]:
    """Return the placeholders of a template."""
    names = placeholders(text)
    for placeholder in names:
        if placeholder not in known:
            raise ValueError(
                f"a placeholder of a template must be one of {', '.join(f'{{{{{name}}}}}' for name in known)}, written "
                f"without blanks; {source} holds {{{{{placeholder}}}}}"
            )
    return set(names)


def passages(text: str) -> list[str]:
    """Return the fixed passages of a template: the text before, between and after its placeholders."""
    return _PLACEHOLDER.split(text)[::2]


def placeholders(text: str) -> list[str]:
    """Return every text between double braces in a template, in order, valid name or not."""
    return _BRACES.findall(text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a template with each ``{{name}}`` replaced by its value; values are not filled again."""
    names = set(_PLACEHOLDER.findall(text))
    if names != set(values):
        raise ValueError(f"values must be those of the template's placeholders {sorted(names)}, got {sorted(values)}")
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def read_template(task: str | Path, form: str = "schema", wording: str = "") -> str:
    """Return the template of a task, in another wording where one is named."""
    if wording:
        if task != "grid":
            raise ValueError(f"a wording is one of the task grid, got {wording!r} for the task {task}: leave it out")
        return worded(wording, form)
    if task in TASKS:
        note_namesake(str(task), "template", only_files=True)
        text = template(TASKS[str(task)], form)
        return _naming(text) if task == NAMED else text
    text = with_our_slots(read_text(task, f"a task must be one of {', '.join(TASKS)} or").removesuffix("\n"))
    if not {"grid", "view"} & check_placeholders(text, _IN_TEMPLATES, task):
        raise ValueError(f"a template must show the grid: put {{{{grid}}}} where it belongs in {task}")
    return text


def template_text(template: str = "") -> str:
    """Return the text of a system prompt with its placeholders: `PAPER`, a file of one's own, or ours for ""."""
    if template in ("", PAPER):
        note_namesake(template, "template", only_files=True)
        text = passage(template or "system")
    else:
        must = f"a template of task worlds must be {PAPER}, {', '.join(TEMPLATE_FORMS)} or"
        text = read_text(template, must).strip("\n")
    check_placeholders(text, _IN_SYSTEM_PROMPTS, template)
    return text


def system_prompt(template: str, strategy: str, reasoned: bool, memory: bool, *, form: str) -> str:
    """Return the system prompt; a paragraph that is empty in this arm leaves no gap.

    Args:
        template: as in `template_text`.
        strategy, reasoned, memory: as in `TaskChatAgent`.
        form: form of the passage on the answer, one of `TEMPLATE_FORMS`.
    """
    text = template_text(template)
    names = set(placeholders(text))
    if strategy in STRATEGIES:
        note_namesake(strategy, "strategy", only_files=True)
        sentence = "" if strategy == "base" else passage(strategy)
    else:
        sentence = read_text(strategy, f"a strategy must be one of {', '.join(STRATEGIES)} or").strip("\n")
    values = {
        "rules": RULES,
        "summary": passage("summary") if memory else "",
        "strategy": sentence,
        "answer": passage(f"{'reasoned' if reasoned else 'direct'}{SUFFIXES[form]}"),
    }
    needed = {*(["strategy"] if sentence else []), *(["summary"] if memory else [])}
    for name in sorted(needed - names - said_in(text, strategy, memory, reasoned)):
        raise ValueError(f"a template must have a place for the {name}: put {{{{{name}}}}} where it belongs")
    filled = fill(text, {name: value for name, value in values.items() if name in names})
    return re.sub(r"\n{3,}", "\n\n", filled).strip()


def render_history(history: Sequence[Past]) -> str:
    """Return the earlier steps, one a line, the oldest first: where the agent was and what it did there.

    Lines such as ``(3,4) UP`` on grids; "none" where there are no steps yet, or in place of a missing action. A
    ValueError for a grid that shows no agent.
    """
    names = [NOTHING if past.action is None else past.view.actions[past.action] for past in history]
    return "\n".join(past.view.line(name) for past, name in zip(history, names, strict=True)) or NOTHING


def example_action(episode_id: str, step: int, admissible: Sequence[ActionIndex]) -> ActionIndex:
    """Return the action that the example in the prompt of one step shows: balanced, and blind to the world.

    The content id of the episode sets where the actions begin, and from step to step they follow each other. In any
    four consecutive steps of an episode on a grid each action is shown once. Neither the grid nor the place of the
    agent enters but through the id, a hash: the action is independent of the optimal ones.

    Args:
        episode_id: content id of the episode.
        step: number of the step, 0-based.
        admissible: the actions that may be shown, in their order.

    Raises:
        ValueError: no action is admissible.
    """
    if not admissible:
        raise ValueError("an example needs an admissible action, got none")
    offset = int.from_bytes(sha256(episode_id.encode()).digest()) % _OFFSETS
    return admissible[(offset + step) % len(admissible)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One wording.

    Attributes:
        paraphrase: name of the text in ``prompts/wordings``, "" for the usual one.
        symbols: symbol of a cell -> its replacement, in the grid and in the text.
        reversed: whether the symbols of the legend and the names of the moves stand in the opposite order.
    """

    paraphrase: str = ""
    symbols: Mapping[str, str] = field(default_factory=dict)
    reversed: bool = False


PARAPHRASES: Final = ("terse", "formal", "question", "list", "spoken")
"""The paraphrases, by the names of their files."""

WORDINGS: Final[Mapping[str, Wording]] = MappingProxyType(
    {
        **{name: Wording(paraphrase=name) for name in PARAPHRASES},
        "symbols": Wording(symbols=MappingProxyType({WALL: "X", OPEN: ".", GOAL: "T", AGENT: "P"})),
        "order": Wording(reversed=True),
    }
)
"""All wordings but the usual one, by name."""


def wording(name: str) -> Wording:
    """Return a wording by name; the usual one for "".

    Raises:
        ValueError: an unknown name.
    """
    if name and name not in WORDINGS:
        raise ValueError(f"a wording must be one of {', '.join(WORDINGS)}, got {name!r}")
    return WORDINGS[name] if name else Wording()


@cache
def worded(name: str, form: str) -> str:
    """Return the template of the task grid in a wording.

    Args:
        name: one of `WORDINGS`, "" for the usual one.
        form: one of the forms of bundled templates.

    Raises:
        ValueError: an unknown name or form.
    """
    chosen = wording(name)
    text = _paraphrase(chosen.paraphrase, form) if chosen.paraphrase else template("grid", form)
    if chosen.symbols:
        text = _renamed(text, chosen.symbols)
    return _reversed(text) if chosen.reversed else text


def drawn_in(name: str, grid: str) -> str:
    """Return the text of a grid in the symbols of a wording."""
    return grid.translate(_table(wording(name).symbols))


def _naming(text: str) -> str:
    """Return the template of the task grid with ``{{aim}}`` for the place to go to."""
    if text.count(_TO_GOAL) != 1:
        raise ValueError(f"a template must say {_TO_GOAL!r} once for a place to be named, got {text.count(_TO_GOAL)}")
    return text.replace(_TO_GOAL, f"from {AGENT} to {{{{aim}}}}")


def _paraphrase(name: str, form: str) -> str:
    """Return a paraphrase: its text for chats with the answer in that form, or its text for base models."""
    if form not in SUFFIXES:
        raise ValueError(f"the form of a bundled template must be one of {', '.join(SUFFIXES)}, got {form!r}")
    parts = _SECTION.split(bundled("wordings", f"{name}.txt"))
    sections = {title: text.strip("\n") for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    return sections[form] if form == "completion" else f"{sections['chat']}\n\n{sections[form]}"


def _renamed(text: str, symbols: Mapping[str, str]) -> str:
    """Return a text with other symbols where it means cells: in legend, task and example, not in its words."""
    table = _table(symbols)
    text = _LEGEND.sub(lambda match: match.group().translate(table), text)
    text = _ROW.sub(lambda match: match.group().translate(table), text)
    return text.replace(_TO_GOAL, f"from {symbols[AGENT]} to {symbols[GOAL]}")


def _table(symbols: Mapping[str, str]) -> dict[int, str]:
    return {ord(symbol): replacement for symbol, replacement in symbols.items()}


def _reversed(text: str) -> str:
    """Return a text with the lines of its legend, and the names of the moves wherever they are listed, turned round."""
    text = _blocks_reversed(text, _LEGEND)
    text = _blocks_reversed(text, re.compile(r"^(?:UP|DOWN|LEFT|RIGHT) to ", re.MULTILINE))
    for usual, reversed_order in (
        ("UP|DOWN|LEFT|RIGHT", "RIGHT|LEFT|DOWN|UP"),
        ("UP, DOWN, LEFT or RIGHT", "RIGHT, LEFT, DOWN or UP"),
    ):
        text = text.replace(usual, reversed_order)
    return text


def _blocks_reversed(text: str, pattern: re.Pattern[str]) -> str:
    """Return a text with its lines that match a pattern, which are consecutive, in the opposite order."""
    lines = text.split("\n")
    indices = [number for number, line in enumerate(lines) if pattern.match(line)]
    for index, line in zip(indices, [lines[number] for number in indices[::-1]], strict=True):
        lines[index] = line
    return "\n".join(lines)


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
    names = ", ".join(view.actions[offered] for offered in view.offered)
    values = {"view": "(left out)", "actions": names, "history": NOTHING}
    if isinstance(view, GridView):
        example_view = GridView(grid=turned(Action(index)))
        values |= {**example_view.fields(), "grid": drawn(example_view.text), "view": drawn(example_view.text)}
    answer = json.dumps({"action": view.actions[index]}, ensure_ascii=False)
    values_in_block = {name: values[name] for name in placeholders(block)}
    return f"{fill(block, values_in_block)}{ANSWER_CUE}{answer}"


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
