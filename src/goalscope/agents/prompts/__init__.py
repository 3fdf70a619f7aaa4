"""Prompt templates stored as data files and filled by plain substitution; nothing is ever executed.

Templates for task worlds are separate from templates for grids, because the vocabulary of the bundled model is built
from the words of the latter.

The prompt for grids has other wordings: five paraphrases, renamed symbols, and labels in another order. Each has the
same content as the default prompt: the same facts, the same example grid, and the same form of the answer. An agent
that follows the content therefore acts the same under all wordings. The texts of the paraphrases are in ``wordings``;
the other wordings are the default text with declared changes.

A base model continues a text. Its prompt is a list of records of the same form as the record that it completes: worked
examples, one per action, in an order that does not depend on the world. All examples show the same grid, rotated or
mirrored, and its only optimal move, so they differ only in the direction. The last example shows the action that the
example of a chat prompt would show.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from goalscope._ground.checks import check_choice, note_namesake
from goalscope._ground.folder import NamedFile, package_text
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.agents.agent import Past
from goalscope.agents.models.base import ANSWER_CUE, COMPLETION, TEMPLATE_FORMS
from goalscope.worlds.grid import AGENT, DOOR, GOAL, KEY, LISTS, OPEN, WALL, Action, Grid, check_encoding, written
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.tasks.knowledge import RULES
from goalscope.worlds.things import kinds
from goalscope.worlds.world import View

# Recognise prompts that the papers print by the hash of their words, so that users can supply their own copy.
#
# The texts belong to their authors and are not part of the package. Two texts count as equal if they have the same
# words and symbols in the same order. Line breaks, blanks, hyphens inside words (a printed line may end in a
# hyphen), ligatures, the kind of quotation marks (including the backtick) and the names of slots are ignored. A slot
# is any ``{{name}}``, such as ``{{grid_state}}``.

_QUOTES: Final = str.maketrans({**dict.fromkeys("“”„‟«»″", '"'), **dict.fromkeys("‘’‚‛′`´", "'")})
_SLOT: Final = re.compile(r"\{\{[^{}]*\}\}")
_HYPHEN: Final = re.compile(r"(?<=[^\W\d_])[-\u2010\u2011\u00ad]\s*(?=[^\W\d_])")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedPrompt:
    """A prompt that a paper prints, recognised by the hash of its words.

    Attributes:
        name: the paper and the section, such as "telos G.3".
        title: what the prompt is for.
        strategy: strategy of the task-world agents whose whole system prompt this is; "" for prompts of grids.
        memory: whether those agents are shown the memory summary; False for prompts of grids.
    """

    name: str
    title: str
    strategy: str = ""
    memory: bool = False


PRINTED: Final[Mapping[str, PrintedPrompt]] = {
    words: PrintedPrompt(**entry)
    for words, entry in read_yaml_text(package_text(__name__, "printed.yaml"), "printed.yaml").items()
}
"""Hash of a prompt's words -> the prompt."""


def normalised(text: str) -> str:
    """Return the words of a prompt, separated by single blanks, in a form in which copies of the same prompt are equal.

    Line breaks, hyphens inside words, ligatures, kinds of quotation marks and names of placeholders are removed or
    unified.
    """
    text = unicodedata.normalize("NFKC", _SLOT.sub("{{}}", text)).translate(_QUOTES)
    return " ".join(_HYPHEN.sub("", text).split())


def hash_of(text: str) -> str:
    """Return the hash that identifies a prompt by its words, whatever its line breaks and quotation marks."""
    return sha256(normalised(text).encode()).hexdigest()


@lru_cache(maxsize=64)
def recognised(text: str) -> PrintedPrompt | None:
    """Return the prompt of a paper that a text is a copy of; None if it is no copy of a known prompt."""
    return PRINTED.get(hash_of(text))


def with_our_slots(text: str) -> str:
    """Return a template in which placeholders that are named as in a paper have the names that goalscope uses."""
    return text.replace("{{grid_state}}", "{{grid}}")


def printed_entry(text: str) -> dict[str, str]:
    """Return ``{"printed": name}`` for an agent's description if the prompt is one that a paper prints, else ``{}``."""
    printed = recognised(text)
    return {} if printed is None else {"printed": printed.name}


def said_in(text: str, strategy: str, memory: bool, reasoned: bool) -> set[str]:
    """Return which placeholders a system prompt for task maps may lack, because its own words already say the same.

    Args:
        text: the system prompt.
        strategy: name of the agent's strategy.
        memory: whether the agent is shown a summary of all reports so far.
        reasoned: whether the answer must contain reasoning.

    Returns:
        Names of placeholders for a prompt that a paper prints; empty for any other prompt.

    Raises:
        ValueError: the text is a printed prompt of an agent with other settings.
    """
    printed = recognised(text)
    if printed is None:
        return set()
    if (printed.strategy, printed.memory, False) != (strategy, memory, reasoned):
        raise ValueError(
            f"the printed prompt {printed.name} belongs to agents with strategy: {printed.strategy}, memory: "
            f"{str(printed.memory).lower()} and reasoned: false, got strategy: {strategy}, memory: "
            f"{str(memory).lower()} and reasoned: {str(reasoned).lower()}: set the agent to the former values, "
            "or use another template"
        )
    return {"strategy", "summary"}


TEMPLATES = ("grid", "key_door", "fog")
"""Names of the bundled templates for grids, each available in all forms of `SUFFIXES`."""

THINGS: Final = "things"
"""Name of the task and of the template for grids with things, whose legend and rules are filled in for each view."""

ANY: Final = "text"
"""Name of the template for any world: the observation in words, and the names of the valid actions."""

NAMED: Final = "named"
"""Name of the task for grids whose instruction names the target cell."""

TASKS: Final = {"grid": "grid", "key-door": "key_door", "fog": "fog", NAMED: "grid", THINGS: THINGS, "text": ANY}
"""Bundled task -> name of its template."""

PASSAGES = (
    *("system", "paper", "summary", "exploration", "exploitation", "balance"),
    *("direct", "reasoned", "direct_example", "reasoned_example", "example"),
)
"""Names of the passages for task worlds: the system prompt, a version of it with only the paper's facts, the note on
the memory summary, three strategies, instructions for two kinds of answers, the same two instructions for prompts that
show an example, and that example."""

SUFFIXES: Final = {"example": "_example", "schema": "", COMPLETION: "_completion"}
"""Form of a template -> suffix of its file name."""

STRATEGIES: Final = ("base", "exploration", "exploitation", "balance")
"""Names of the strategies for task worlds; "base" adds no sentence to the prompt."""

PAPER: Final = "paper"
"""Name of the system prompt with only the content of the paper's base prompt: it neither explains the coordinates
nor asks for few steps."""

NOTHING: Final = "none"
"""Text that stands for a missing action or an empty history."""

RULE: Final = "action (sha256(episode id) + step) mod admissible actions"
"""The rule that chooses the action of an example, as descriptions of agents record it."""

EXAMPLES: Final = "examples"
"""Placeholder for worked examples; the text below it in a template is the form of each example."""

WORKED_RULE: Final = f"one an action, in their order, turned so that the last one is {RULE}"
"""The rule that orders worked examples, as descriptions of agents record it."""

OF_THINGS: Final = ("legend", "rules", "carried")
"""Placeholders that explain the objects of a grid, see `object_texts`."""

OF_GRIDS: Final = ("grid", "carrying_key", *OF_THINGS)
"""Placeholders that only a grid can fill."""

_IN_TEMPLATES: Final = (*OF_GRIDS, "aim", "history", "example", EXAMPLES, "view", "actions")
_IN_SYSTEM_PROMPTS: Final = ("rules", "summary", "strategy", "answer")
_KEY_AND_DOOR: Final = (
    (KEY, "a key, which can open the locked door D", "The agent picks up the key K by itself when it enters its cell."),
    (
        DOOR,
        "a locked door",
        "The locked door D cannot be entered. It opens by itself and vanishes as soon as the agent stands on a cell "
        "next to it and carries the key K.",
    ),
)
_OFFSETS: Final = 2520  # a multiple of 1 to 10, so that all remainders of up to 10 actions are equally frequent
ActionIndex = TypeVar("ActionIndex", bound=int)

_SECTION = re.compile(r"^\[([a-z]+)\]\n", re.MULTILINE)
_LEGEND = re.compile(rf"^([{WALL}{OPEN}{GOAL}{AGENT}]) (?=an? |the )", re.MULTILINE)
_ROW = re.compile(rf"^\d+(?: [{WALL}{OPEN}{GOAL}{AGENT}])+$", re.MULTILINE)
_TO_GOAL: Final = f"from {AGENT} to {GOAL}"
_PLACEHOLDER, _BRACES = re.compile(r"\{\{([a-z_]+)\}\}"), re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def template(name: str, form: str = "schema") -> str:
    """Return the text of a prompt template that comes with goalscope, without the final newline of its file.

    Args:
        name: one of `TEMPLATES`, `THINGS` or `ANY`.
        form: how the template shows the form of the answer, one of `SUFFIXES`.

    Raises:
        ValueError: the name or the form is unknown.
    """
    check_choice("the form of a bundled template", form, SUFFIXES)
    check_choice("a bundled template", name, (*TEMPLATES, THINGS, ANY))
    return bundled(f"{name}{SUFFIXES[form]}.txt")


def passage(name: str) -> str:
    """Return a passage of the prompts for task maps, such as the text of a strategy, without its final newline.

    Args:
        name: one of `PASSAGES`.

    Raises:
        ValueError: the name is unknown.
    """
    check_choice("a passage", name, PASSAGES)
    return bundled("tasks", f"{name}.txt")


_MOST_TEXT_BYTES: Final = 4_194_304
"""Maximum size of a text file that a study names."""


@cache
def bundled(*path: str) -> str:
    """Return the text of a file among the prompts that come with goalscope, without its final newline."""
    return package_text(__name__, *path).removesuffix("\n")


def read_text(path: str | Path, must: str) -> str:
    """Return the text of a prompt file that a study names.

    Args:
        path: the file.
        must: beginning of the error message if there is no such file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not UTF-8 text or too large.
    """
    file = NamedFile(Path(path).expanduser())
    if not file.is_there():
        raise FileNotFoundError(f"{must} the path of a text file, got {str(path)!r}, and no such file exists")
    try:
        return file.load_text(_MOST_TEXT_BYTES)
    except ValueError as error:
        raise ValueError(f"a template must be UTF-8 text, but {path} is not: {error}; save it as UTF-8") from None


def check_placeholders(text: str, known: Sequence[str], source: str | Path) -> set[str]:
    """Check that a template has only known placeholders ``{{name}}``, and return their names.

    Args:
        text: the template.
        known: the valid names.
        source: file of the template, for the error.

    Raises:
        ValueError: a placeholder is unknown.
    """
    names = placeholders(text)
    for placeholder in names:
        if placeholder not in known:
            raise ValueError(
                f"a placeholder of a template must be one of {', '.join(f'{{{{{name}}}}}' for name in known)}, written "
                f"without blanks, but {source} contains {{{{{placeholder}}}}}: correct or remove it"
            )
    return set(names)


def passages(text: str) -> list[str]:
    """Return the fixed passages of a template: the texts before, between and after its placeholders."""
    return _PLACEHOLDER.split(text)[::2]


def placeholders(text: str) -> list[str]:
    """Return every text between double braces in a template, in order, whether it is a valid name or not."""
    return _BRACES.findall(text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace each placeholder ``{{name}}`` of a template by its value; placeholders inside values are not replaced.

    Raises:
        ValueError: a placeholder has no value, or a value has no placeholder.
    """
    names = set(_PLACEHOLDER.findall(text))
    if names != set(values):
        raise ValueError(
            f"values must be given for exactly the template's placeholders {sorted(names)}, got {sorted(values)}"
        )
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def object_texts(view: GridView) -> dict[str, str]:
    """Return the texts that explain the objects of a grid in a prompt, by the names of their placeholders.

    ``legend`` has a line for the agent and for each kind of object, ``rules`` says what the objects do, and ``carried``
    lists what the agent carries. Only kinds that stand in the grid or are carried are explained. The line of the agent
    says on which thing it stands, because the agent hides that thing in the text of the grid.
    """
    grid, lines = view.grid, {symbol: (text, rule) for symbol, text, rule in _KEY_AND_DOOR}
    lines |= {kind.symbol: (kind.legend, kind.rule) for kind in kinds()}
    symbols = {*grid.held, *(symbol for _, symbol in grid.things)}
    symbols |= {symbol for symbol, cell in ((KEY, grid.key), (DOOR, grid.door)) if cell is not None}
    present = [symbol for symbol in lines if symbol in symbols]
    under = f", on {lines[view.standing_on][0]}" if view.standing_on else ""
    legend = [f"{AGENT} the agent, where it stands now{under}", *(f"{symbol} {lines[symbol][0]}" for symbol in present)]
    return {
        "legend": "\n".join(legend),
        "rules": "\n".join(dict.fromkeys(lines[symbol][1] for symbol in present if lines[symbol][1])) or NOTHING,
        "carried": ", ".join(lines[symbol][0] for symbol in grid.held) or "nothing",
    }


def read_template(task: str | Path, form: str = "schema", wording: str = "") -> str:
    """Return the prompt template of a task, with its placeholders.

    Args:
        task: name of a bundled task, one of `TASKS`, or the path of a template file.
        form: how a bundled template shows the form of the answer, one of `SUFFIXES`.
        wording: name of another wording of the task grid; "" for the default wording.

    Raises:
        FileNotFoundError: the task is neither known nor a file.
        ValueError: the template has an unknown placeholder or shows no grid, or the wording does not fit the task.
    """
    if wording:
        if task != "grid":
            raise ValueError(f"wording works only with the task grid, got {wording!r} for task {task}: leave it out")
        return worded(wording, form)
    if task in TASKS:
        note_namesake(str(task), "template", only_files=True)
        text = template(TASKS[str(task)], form)
        return _naming(text) if task == NAMED else text
    text = with_our_slots(read_text(task, f"a task must be one of {', '.join(TASKS)} or").removesuffix("\n"))
    if not {"grid", "view"} & check_placeholders(text, _IN_TEMPLATES, task):
        raise ValueError(
            f"a template must show the grid, but {task} has no placeholder {{{{grid}}}}: add it where the grid belongs"
        )
    return text


def template_text(template: str = "") -> str:
    """Return a system prompt for task maps, with its placeholders.

    Args:
        template: "" for the default prompt, `PAPER` for one that states only what the exploration paper's prompt
            states, or the path of a file of the user.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a placeholder is unknown.
    """
    if template in ("", PAPER):
        note_namesake(template, "template", only_files=True)
        text = passage(template or "system")
    else:
        must = f"a template of task worlds must be {PAPER}, {', '.join(TEMPLATE_FORMS)} or"
        text = read_text(template, must).strip("\n")
    check_placeholders(text, _IN_SYSTEM_PROMPTS, template)
    return text


def system_prompt(template: str, strategy: str, reasoned: bool, memory: bool, *, form: str) -> str:
    """Return the system prompt of an agent on a task map; paragraphs that are empty under its settings leave no gap.

    Args:
        template: "" for the default prompt, `PAPER` for one that states only what the exploration paper's prompt
            states, or the path of a file of the user.
        strategy: one of `STRATEGIES`, or the path of a text file with a sentence that states a strategy.
        reasoned: whether the answer must contain reasoning before the direction.
        memory: whether the agent is shown a summary of all reports so far.
        form: form of the passage about the answer, one of `TEMPLATE_FORMS`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: the template has an unknown placeholder, or lacks one that these settings need.
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
        raise ValueError(
            f"a template must show the {name}, but has no placeholder {{{{{name}}}}}: add it where {name} belongs"
        )
    filled = fill(text, {name: value for name, value in values.items() if name in names})
    return re.sub(r"\n{3,}", "\n\n", filled).strip()


def render_history(history: Sequence[Past]) -> str:
    """Return the earlier steps as text, one per line, oldest first: where the agent was and what it did there.

    On grids, lines look like ``(3,4) UP``. The word "none" stands for an empty history or for a missing action.

    Raises:
        ValueError: a grid of the history shows no agent.
    """
    names = [NOTHING if past.action is None else past.view.actions[past.action] for past in history]
    return "\n".join(past.view.line(name) for past, name in zip(history, names, strict=True)) or NOTHING


def example_action(episode_id: str, step: int, admissible: Sequence[ActionIndex]) -> ActionIndex:
    """Return the action that the example in the prompt of one step shows, balanced over actions and blind to the world.

    The content id of the episode selects the first action, and later steps cycle through the actions. In any four
    consecutive steps of an episode on a grid, each action is shown once. The grid and the agent's position affect the
    choice only through the id, which is a hash, so the shown action is independent of the optimal actions.

    Args:
        episode_id: content id of the episode.
        step: 0-based index of the step.
        admissible: the actions that may be shown, in order.

    Raises:
        ValueError: there is no valid action.
    """
    if not admissible:
        raise ValueError("an example needs at least one valid action, got none")
    offset = int.from_bytes(sha256(episode_id.encode()).digest()) % _OFFSETS
    return admissible[(offset + step) % len(admissible)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One wording of the prompt for grids: a paraphrase, other symbols or another order, with the same content.

    Attributes:
        paraphrase: name of the text in ``prompts/wordings``, "" for the default text.
        symbols: symbol of a cell -> its replacement, in the grid and in the text.
        reversed: whether the symbols of the legend and the names of the moves are listed in reverse order.
    """

    paraphrase: str = ""
    symbols: Mapping[str, str] = field(default_factory=dict)
    reversed: bool = False


PARAPHRASES: Final = ("terse", "formal", "question", "list", "spoken")
"""Names of the paraphrases, which are also the names of their files."""

WORDINGS: Final[Mapping[str, Wording]] = MappingProxyType(
    {
        **{name: Wording(paraphrase=name) for name in PARAPHRASES},
        "symbols": Wording(symbols=MappingProxyType({WALL: "X", OPEN: ".", GOAL: "T", AGENT: "P"})),
        "order": Wording(reversed=True),
    }
)
"""Name -> wording, for all wordings except the default."""


def wording(name: str) -> Wording:
    """Return the wording of the prompt for grids with the given name; the default wording for "".

    Raises:
        ValueError: the name is unknown.
    """
    if name:
        check_choice("a wording", name, WORDINGS)
    return WORDINGS[name] if name else Wording()


@cache
def worded(name: str, form: str) -> str:
    """Return the prompt template of the task grid in a wording, a variant of the prompt with the same content.

    Args:
        name: one of `WORDINGS`, "" for the default wording.
        form: how the template shows the form of the answer, one of `SUFFIXES`.

    Raises:
        ValueError: the name or the form is unknown.
    """
    chosen = wording(name)
    text = _paraphrase(chosen.paraphrase, form) if chosen.paraphrase else template("grid", form)
    if chosen.symbols:
        text = _renamed(text, chosen.symbols)
    return _reversed(text) if chosen.reversed else text


def drawn_in(name: str, grid: str) -> str:
    """Return the text of a grid with its symbols replaced by those of the named wording of the prompt."""
    return grid.translate(_table(wording(name).symbols))


def _naming(text: str) -> str:
    """Return the template of the task grid with the placeholder ``{{aim}}`` for the target."""
    if text.count(_TO_GOAL) != 1:
        raise ValueError(
            f"to name a target, a template must contain {_TO_GOAL!r} exactly once, got {text.count(_TO_GOAL)} times"
        )
    return text.replace(_TO_GOAL, f"from {AGENT} to {{{{aim}}}}")


def _paraphrase(name: str, form: str) -> str:
    """Return a paraphrase in a given form: its text for chats with that form of answer, or for base models."""
    check_choice("the form of a bundled template", form, SUFFIXES)
    parts = _SECTION.split(bundled("wordings", f"{name}.txt"))
    sections = {title: text.strip("\n") for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    return sections[form] if form == "completion" else f"{sections['chat']}\n\n{sections[form]}"


def _renamed(text: str, symbols: Mapping[str, str]) -> str:
    """Return a text with other symbols for cells: in the legend, the task and the example, but not inside words."""
    table = _table(symbols)
    text = _LEGEND.sub(lambda match: match.group().translate(table), text)
    text = _ROW.sub(lambda match: match.group().translate(table), text)
    return text.replace(_TO_GOAL, f"from {symbols[AGENT]} to {symbols[GOAL]}")


def _table(symbols: Mapping[str, str]) -> dict[int, str]:
    return {ord(symbol): replacement for symbol, replacement in symbols.items()}


def _reversed(text: str) -> str:
    """Return a text with the lines of its legend and every list of moves in reverse order."""
    text = _blocks_reversed(text, _LEGEND)
    text = _blocks_reversed(text, re.compile(r"^(?:UP|DOWN|LEFT|RIGHT) to ", re.MULTILINE))
    for usual, reversed_order in (
        ("UP|DOWN|LEFT|RIGHT", "RIGHT|LEFT|DOWN|UP"),
        ("UP, DOWN, LEFT or RIGHT", "RIGHT, LEFT, DOWN or UP"),
    ):
        text = text.replace(usual, reversed_order)
    return text


def _blocks_reversed(text: str, pattern: re.Pattern[str]) -> str:
    """Return a text in which consecutive lines that match a pattern are in reverse order."""
    lines = text.split("\n")
    indices = [number for number, line in enumerate(lines) if pattern.match(line)]
    for index, line in zip(indices, [lines[number] for number in indices[::-1]], strict=True):
        lines[index] = line
    return "\n".join(lines)


_UP: Final = ("#####", "#_G_#", "#___#", "#_A_#", "#####")
"""Grid in which UP is the only optimal move."""


def worked_examples(template: str, view: View, episode_id: str, step: int, drawn: Callable[[str], str] = str) -> str:
    """Return the text of the worked examples in the prompt of one step, for base models, which continue a text.

    Args:
        template: the text of a template that contains ``{{examples}}``.
        view: what the agent sees; only the names of its actions, and which of them are valid, affect the result.
        episode_id: content id of the episode.
        step: 0-based index of the step.
        drawn: function that rewrites the text of a grid in other symbols.

    Returns:
        One example per valid action, separated by empty lines.
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
        text = drawn(example_view.text)
        values |= {**example_view.fields(), **object_texts(example_view), "grid": text, "view": text}
    answer = json.dumps({"action": view.actions[index]}, ensure_ascii=False)
    values_in_block = {name: values[name] for name in placeholders(block)}
    return f"{fill(block, values_in_block)}{ANSWER_CUE}{answer}"


@lru_cache(maxsize=len(Action))
def turned(action: Action) -> Grid:
    """Return the grid of the worked examples in prompts, turned so that the given action is its only optimal move."""
    rows = [list(row) for row in _UP]
    mirrored = [list(row) for row in zip(*rows, strict=True)]  # rows become columns: UP becomes LEFT
    turns = {
        Action.UP: rows,
        Action.DOWN: rows[::-1],
        Action.LEFT: mirrored,
        Action.RIGHT: [row[::-1] for row in mirrored],
    }
    return Grid.parse(["".join(row) for row in turns[action]])


# Bundled templates that show grids in another encoding: one sentence and the example differ from the usual ones.

_MATRIX: Final = (
    "ymbols are separated by blanks. The first line numbers the columns, and every further line begins with the number "
    "of its row"
)
_LIST: Final = (
    "is a list of its cells, row by row. The first line says how many rows and columns there are, and every further "
    "line is one cell: its symbol, and then its position (row,col)"
)
_READING: Final = {
    "coordinates": _LIST,
    "adjacency": f"{_LIST}, and after the colon the positions of the cells next to it that are no walls, where the "
    "cell itself is none",
}
_EXAMPLE: Final = re.compile(r"^ +0 1.*(?:\n\d.*)+", re.MULTILINE)


def encoded_template(text: str, encoding: str) -> str:
    """Rewrite a bundled template, which explains a grid written as a matrix, for another encoding of grids.

    Args:
        text: the template.
        encoding: one of `goalscope.worlds.grid.ENCODINGS`.

    Raises:
        ValueError: the encoding is unknown, or the text does not explain how to read the matrix.
    """
    if check_encoding(encoding) not in LISTS:
        return text  # what it says of the matrix holds for the compact one, too
    for begin, subject in (("s", "it"), ("S", "Each grid")):
        if begin + _MATRIX in text:
            text = text.replace(begin + _MATRIX, f"{subject} {_READING[encoding]}")
            return _EXAMPLE.sub(lambda match: written(encoding, match.group()), text)
    raise ValueError(
        "encoding works only with prompts that show a grid as a matrix (tasks grid, key-door, fog, named, things), "
        f"got {encoding!r} for another text: leave encoding out"
    )
