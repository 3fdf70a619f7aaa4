"""What README and docs show: command lines, and blocks of Python, YAML and JSON, as a reader would copy them."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import typer

from goalscope.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM: Any = typer.main.get_command(app)
PROGRAM.list_commands(None)  # loads those that packages register
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", re.DOTALL | re.MULTILINE)
# In the text and in tables: between single backticks, over the end of a line too; a bar of a table is written \|.
_INLINE = re.compile(r"(?<!`)`(goalscope (?:[^`\n]|\n(?!\n))+)`(?!`)")
_PROPOSED = re.compile(r"(?<![\w.`/-])(`?)goalscope ([a-z][\w-]*)([^`;\n]*)")
_NAMES_ITS_ARGUMENTS = re.compile(r" (--|[A-Z_]{2,}\b)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_PARTS = re.compile(r"\s*(?:&&|;|\|\||(?<!\\)\|)\s*(?=goalscope )")
_FORM = re.compile(r"[\[\]]|\.\.\.")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*(=[A-Z]+|\.[a-z]+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, its language ("" for none), its number among those of that language, its text."""

    page: str
    language: str
    number: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.page} {self.language} {self.number}"


def blocks() -> list[Block]:
    """Return all fenced blocks of all pages."""
    found: list[Block] = []
    for page in PAGES:
        for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
            number = 1 + sum((block.page, block.language) == (page.name, language) for block in found)
            found.append(Block(page.name, language, number, text))
    return found


def lines_of(text: str) -> list[tuple[str, bool]]:
    """Return the lines with commands of a page, chains whole, and whether each stands in a block to be typed from."""
    found = []
    for language, block in _BLOCK.findall(text):
        if language in ("", "sh"):
            lines = block.replace("\\\n", " ").splitlines()
            shell = (line.strip().removeprefix("$ ") for line in lines)
            found += [(line, True) for line in shell if language or line.startswith("goalscope ")]
    found += [(line, False) for line in _INLINE.findall(FENCED.sub("", text))]
    return [(" ".join(bare(line).split()), fenced) for line, fenced in found if bare(line)]


def bare(line: str) -> str:
    """Return a line without the words that explain it."""
    # Some blocks explain a line behind three blanks, without a #.
    line = re.split(r"\s{3,}(?![-\w]*=)(?=[a-z])", line.replace("\\|", "|"))[0]
    return re.split(r"(?:^|\s)#", line)[0].strip()


def parts_of(line: str) -> list[str]:
    """Return the commands of a chain, each ``goalscope ...`` on its own."""
    return [part for part in _PARTS.split(line) if part.startswith("goalscope ")]


def is_form(command: str) -> bool:
    """Return whether a command is one to fill in: brackets, dots, or a name in capitals."""
    return bool(_FORM.search(command)) or any(_PLACEHOLDER.fullmatch(word) for word in shlex.split(command))


def words_of(command: str) -> list[str]:
    """Return the words after the program's name, those of a form without what marks it as one."""
    text = re.sub(r"[\[\]]|\.\.\.|\|\w+", " ", command) if _FORM.search(command) else command
    return shlex.split(text, comments=True)[1:]


def options_of(name: str) -> set[str]:
    """Return the options of a command."""
    parameters = PROGRAM.commands[name].params
    names = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in names if name.startswith("-")} | {"-h", "--help"}


def problem(line: str, whole: bool = True) -> str | None:
    """Say what the program does not take in a command; None where it takes it.

    Where the command is not whole, or a form, its names are all that can be checked.
    """
    words = words_of(line)
    known = {name for parameter in PROGRAM.params for name in parameter.opts} | {"-h", "--help"}
    while len(words) > 1 and words[0] in known:
        words = words[1:]
    if not words or words[0].startswith("-"):
        return None if words and set(words) <= known else f"no such option: {words}"
    command = PROGRAM.commands.get(words[0])
    if command is None:
        return f"no command {words[0]}"
    given = {word.split("=")[0] for word in words[1:] if word.startswith("-")}
    unknown = sorted(given - options_of(words[0]))
    if unknown:
        return f"{words[0]} has no option {', '.join(unknown)}"
    if is_form(line) or not whole or "--help" in words:
        return None
    try:
        command.make_context(words[0], list(words[1:]))
    except Exception as error:  # noqa: BLE001 - whatever the parser says is what the reader of the page would see
        return f"{type(error).__name__}: {error}"
    return None


@cache
def messages() -> tuple[tuple[str, str], ...]:
    """Return file and text of each string of the package that is not a docstring; what is filled in is a zero byte."""
    return tuple(_messages())


def _messages() -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / "src" / "goalscope").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):  # a whole comes before its parts
            if id(node) in skipped:
                continue
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in ast.walk(node)}
                texts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                yield str(file.relative_to(ROOT)), "".join(map(str, texts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(file.relative_to(ROOT)), node.value
    for file in sorted((ROOT / "src" / "goalscope" / "verdict" / "studies").glob("*.yaml")):
        yield str(file.relative_to(ROOT)), re.sub(r"\n# ?", " ", file.read_text(encoding="utf-8"))


def proposals(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands that a message proposes, each with the options that it names.

    Another word behind the program's name, as in "goalscope needs", is taken for prose unless it stands in backticks,
    is nearly a command, or arguments follow it.
    """
    return [
        (name, _OPTION.findall(rest))
        for tick, name, rest in _PROPOSED.findall(text)
        if tick or get_close_matches(name, PROGRAM.commands, cutoff=0.8) or _NAMES_ITS_ARGUMENTS.match(rest)
    ]


def unknown_in(name: str, options: list[str]) -> list[str]:
    """Return what the program does not have of a proposed command: its name, or options of it."""
    command = PROGRAM.commands.get(name)
    if command is None or command.hidden:
        return [name]
    return [option for option in options if option not in options_of(name)]
