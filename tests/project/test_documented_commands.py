"""Every command line that the documentation or a help text shows is one that the program takes."""

import re

import pytest
from documented import (
    PAGES,
    PROGRAM,
    lines_of,
    messages,
    options_of,
    parts_of,
    problem,
    proposals,
    unknown_in,
    words_of,
)
from typer.testing import CliRunner

from goalscope._ground import registry
from goalscope.cli import app
from goalscope.cli.program import COMMANDS

# A sentence may name a command without all that it needs.
SHOWN = [
    (page.name, part, fenced or "&&" in line)
    for page in PAGES
    for line, fenced in lines_of(page.read_text(encoding="utf-8"))
    for part in parts_of(line)
]


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_every_command_line_of_a_page_is_one_that_the_program_takes(page: str) -> None:
    wrong = {line: said for name, line, whole in SHOWN if name == page and (said := problem(line, whole))}
    assert not wrong


def test_command_lines_are_found_at_all_and_every_command_is_documented() -> None:
    assert len(SHOWN) > 80 and sum(whole for _, _, whole in SHOWN) > 40
    shown = {words[0] for _, line, _ in SHOWN if (words := words_of(line))}
    assert set(COMMANDS) <= shown


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
        "goalscope plan baseline",
    ],
)
def test_a_wrong_line_is_found(line: str) -> None:
    assert problem(line) is not None
    assert lines_of(f"text `{line}` text\n") == [(line, False)]
    (found,) = lines_of(f"```sh\n{line} && {line} \\\n # so\n```\n")
    assert found == (f"{line} && {line}", True) and parts_of(found[0]) == [line, line]


def test_every_command_that_a_message_proposes_is_one_that_the_program_takes() -> None:
    proposed = [(file, *proposal) for file, text in messages() for proposal in proposals(text)]
    assert len(proposed) > 80 and len({name for _, name, _ in proposed}) > 15
    assert not [(file, name, wrong) for file, name, options in proposed if (wrong := unknown_in(name, options))]


# Options of the program itself, and of others: Inspect, vLLM, and the scripts of a clone.
OTHERS = {"--version", "--help", "--own-code", "--hours", "--log-dir", "--to", "--temperature", "--reasoning-parser"}
OTHERS |= {"--context-length", "--max-model-len", "--scorer", "--action"}  # of servers, and of Inspect


def test_every_option_that_a_message_names_is_one_of_some_command() -> None:
    known = {option for name in PROGRAM.commands for option in options_of(name)} | OTHERS
    known |= {option for parameter in PROGRAM.params for option in parameter.opts}
    pattern = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
    named = [(file, word) for file, text in messages() if " " in text for word in pattern.findall(text)]
    assert len(named) > 100 and not {(file, word) for file, word in named if word not in known}


@pytest.mark.parametrize(
    "text",
    [
        "there is none: `goalscope plan STUDY` says it",
        "next: goalscope mesure \0",
        "add it with goalscope run \0 --wrokers 2",
        "take goalscope probe \0 --reads x --layer 3, or leave it out",
    ],
)
def test_a_wrong_proposal_is_found(text: str) -> None:
    assert any(unknown_in(*proposal) for proposal in proposals(text))
    assert not proposals("goalscope needs 3.11 or later, which goalscope cannot know")


@pytest.mark.parametrize("name", sorted(COMMANDS))
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
    registered = set(registry.names("command"))
    assert {"organisms", "reproduce"} <= registered
    assert set(COMMANDS) == set(PROGRAM.commands) - registered
    assert not [sentence for _, sentence in COMMANDS.values() if sentence not in words]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_example_of_a_help_stands_on_a_line_of_its_own(name: str) -> None:
    lines = CliRunner().invoke(app, [name, "--help"]).output.splitlines()
    examples = PROGRAM.commands[name].epilog.splitlines()[2:]
    assert examples and all(f"  {line}" in lines for line in examples)
