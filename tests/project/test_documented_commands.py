"""Every command line that the documentation or a help text shows is one that the program takes."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from goalscope.cli.app import app
from goalscope.cli.shown import EXAMPLES, SUMMARY

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAM: Any = typer.main.get_command(app)
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```", re.DOTALL | re.MULTILINE)
# In the text and in tables: between single backticks, where a bar of a table is written \|.
INLINE = re.compile(r"(?<!`)`(goalscope [^`\n]+)`(?!`)")
PARTS = re.compile(r"\s*(?:&&|;|\|\||(?<!\\)\|)\s*(?=goalscope )")


def lines_of(text: str) -> list[tuple[str, bool]]:
    """Return the command lines of a page, each ``goalscope ...`` on its own, and whether it is to be typed as it is."""
    found = []
    for block in FENCED.findall(text):
        joined = block.replace("\\\n", " ")
        found += [(line.strip().removeprefix("$ "), True) for line in joined.splitlines()]
    # A sentence may name a command without all that it needs.
    found += [(line, "&&" in line) for line in INLINE.findall(FENCED.sub("", text))]
    return [(part, whole) for line, whole in found for part in PARTS.split(line) if part.startswith("goalscope ")]


def words_of(line: str) -> tuple[list[str], bool]:
    """Return the words after the program's name, and whether they are a form to fill in."""
    # Some blocks explain a line behind three blanks, without a #.
    line = re.split(r"\s{3,}(?![-\w]*=)(?=[a-z])", line.replace("\\|", "|"))[0]
    form = "[" in line or "..." in line
    bare = re.sub(r"[\[\]]|\.\.\.|\|\w+", " ", line) if form else line
    return shlex.split(bare, comments=True)[1:], form


def options_of(name: str) -> set[str]:
    """Return the options of a command."""
    parameters = PROGRAM.commands[name].params
    names = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in names if name.startswith("-")} | {"-h", "--help"}


def problem(line: str, whole: bool = True) -> str | None:
    """Say what the program does not take in a line; None where it takes it.

    Where the line is not whole, or a form, its names are all that can be checked.
    """
    words, form = words_of(line)
    if not words or words[0].startswith("-"):
        known = {name for parameter in PROGRAM.params for name in parameter.opts} | {"-h", "--help"}
        return None if words and set(words) <= known else f"no such option: {words}"
    command = PROGRAM.commands.get(words[0])
    if command is None:
        return f"no command {words[0]}"
    given = {word.split("=")[0] for word in words[1:] if word.startswith("-")}
    unknown = sorted(given - options_of(words[0]))
    if unknown:
        return f"{words[0]} has no option {', '.join(unknown)}"
    placeholders = any(re.fullmatch(r"[A-Z][A-Z_]*(=[A-Z]+)?", word) for word in words[1:])
    if form or placeholders or not whole or "--help" in words:
        return None
    try:
        command.make_context(words[0], list(words[1:]))
    except Exception as error:  # noqa: BLE001 - whatever the parser says is what the reader of the page would see
        return f"{type(error).__name__}: {error}"
    return None


SHOWN = [(page.name, *line) for page in PAGES for line in lines_of(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_every_command_line_of_a_page_is_one_that_the_program_takes(page: str) -> None:
    wrong = {line: said for name, line, whole in SHOWN if name == page and (said := problem(line, whole))}
    assert not wrong


def test_command_lines_are_found_at_all_and_every_command_is_documented() -> None:
    assert len(SHOWN) > 80 and sum(whole for _, _, whole in SHOWN) > 40
    shown = {words[0] for _, line, _ in SHOWN if (words := words_of(line)[0])}
    assert set(EXAMPLES) <= shown


@pytest.mark.parametrize(
    "line",
    [
        "goalscope rum x --out y",
        "goalscope run x --out y --wrokers 2",
        "goalscope run x --out y --workers many",
        "goalscope run x --out y z",
        "goalscope run x",
        "goalscope run STUDY --out DIR [--wrokers N]",
        "goalscope --verzion",
    ],
)
def test_a_wrong_line_is_found(line: str) -> None:
    assert problem(line) is not None
    assert lines_of(f"text `{line}` text\n") == [(line, False)]
    assert lines_of(f"```sh\n{line} && {line} \\\n # so\n```\n") == [(line, True), (f"{line}   # so", True)]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_help_of_every_command_shows_an_example_that_it_takes(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0 and "Example" in shown.output
    text = PROGRAM.commands[name].epilog or " ".join(shown.output[shown.output.index("Example") :].split())
    examples = re.findall(rf"goalscope {name} .*?(?=\s{{3,}}|$)", text)
    assert examples and not [said for line in examples if (said := problem(line)) is not None]


def test_the_help_of_the_program_shows_an_example_and_a_whole_sentence_on_each_command() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    words = " ".join(shown.output.split())
    assert "Examples: goalscope demo" in words and "..." not in words.replace("[ARGS]...", "")
    assert set(SUMMARY) == set(EXAMPLES) == set(PROGRAM.commands) - {"train-theseus"}
    assert not [sentence for sentence in SUMMARY.values() if sentence not in words]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_each_example_of_a_help_stands_on_a_line_of_its_own(name: str) -> None:
    lines = CliRunner().invoke(app, [name, "--help"]).output.splitlines()
    assert all(f"    {line}" in lines for line in EXAMPLES[name])
