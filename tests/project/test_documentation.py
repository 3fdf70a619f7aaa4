"""Links lead somewhere, command lines are taken by the program, imports are public, and what pages say stands."""

import ast
import contextlib
import io
import json
import re
from importlib import import_module
from pathlib import Path

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

import goalscope
from goalscope._ground import registry
from goalscope.cli import app
from goalscope.cli.program import COMMANDS

ROOT = Path(__file__).parents[2]
LINKED_PAGES = [ROOT / name for name in ("README.md", "benchmarks/README.md", "benchmarks/papers.md")]
LINKED_PAGES += [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(
    ROOT.glob("docs/*.md")
)
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the names that links to the headings of a page have: small letters, blanks as hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the files and headings that a page links to; addresses on the web are left out."""
    found = (target.partition("#") for target in LINK.findall(prose(page)) if not target.startswith("http"))
    return [((page.parent / file).resolve() if file else page, heading) for file, _, heading in found]


@pytest.mark.parametrize("page", LINKED_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    assert not [target for target, _ in links(page) if not target.exists()]
    assert not [f"{target.name}#{name}" for target, name in links(page) if name and name not in anchors(target)]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, ahead = set[Path](), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            ahead += [target for target, _ in links(page)]
    assert set(LINKED_PAGES) == reached


def test_the_line_that_two_pages_explain_is_one_that_is_printed() -> None:
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    block = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(block, "statistics.md", "exec"), {})
    stated = re.search(r"^# (0\.85 .*)$", block, re.MULTILINE)
    assert stated and stated.group(1) == shown.getvalue().splitlines()[0]
    assert f"`{stated.group(1)}`" in (ROOT / "docs" / "start.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", [page for page in LINKED_PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name
)
def test_no_page_says_that_training_made_something_readable(page: Path) -> None:
    """The control of the studies is the library's default initialisation, which cannot show that."""
    text = " ".join(prose(page).split()).lower()
    assert not re.findall(r"training (?:put|gives|has no part)[^.]*\.|untrained (?:model|twin)[^.|]*", text)


def claims_of_use(text: str) -> list[str]:
    """The sentences that say of something read by a probe that the model uses it, but for what is denied or asked."""
    sentences = re.split(r"(?<=[.:;!?|])\s+", " ".join(text.split()))
    subject = r"(?:theseus|ariadne|model|agent|network)s?"
    used = rf"\b{subject}\b (?:\w+ly )?(?:uses?|used|relies on|acts? on|is guided by)\b|\bused by (?:the )?{subject}\b"
    read = r"\b(?:probes?|decod\w+|readable|activations?|vectors?|represent\w*|beliefs?)\b"
    denied = r"\b(?:not|never|whether|no|nothing|alone can|would|if)\b"
    return [
        one
        for one in map(str.lower, sentences)
        if re.search(used, one) and re.search(read, one) and not re.search(denied, one)
    ]


def test_what_is_a_claim_of_use_is_seen() -> None:
    assert claims_of_use("The probe shows that the model uses its map of the walls.")
    assert claims_of_use("Its beliefs are decoded; these activations are used by Theseus to plan.")
    assert not claims_of_use("That a probe succeeds does not show that Theseus uses it. The agent uses tools.")


SAID = [
    *LINKED_PAGES,
    *sorted((ROOT / "src" / "goalscope" / "report").rglob("*.py")),
    *sorted((ROOT / "src").rglob("card*.md")),
]


@pytest.mark.parametrize("page", SAID, ids=lambda page: str(page.relative_to(ROOT)))
def test_nowhere_is_it_said_of_what_a_probe_reads_that_it_is_used(page: Path) -> None:
    """Interventions alone show that."""
    assert claims_of_use(prose(page) if page.suffix == ".md" else page.read_text(encoding="utf-8")) == []


# Every command line that the documentation or a help text shows is one that the program takes.


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


# What the docs and the package that serves as an example import is public: a name that a room or a face gathers.


SATELLITES = ("integrations", "organisms", "papers")
"""Their modules are surfaces of their own."""


def code_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    if path.suffix == ".ipynb":
        cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
        return ["".join(line for line in cell["source"] if not line.startswith(("%", "!"))) for cell in cells]
    return [text]


def imports_in(path: Path) -> set[tuple[str, str]]:
    """Return (module, name) of what is imported from goalscope; "" for a module itself."""
    found = set[tuple[str, str]]()
    for code in code_of(path):
        try:
            tree = ast.parse(code)
        except SyntaxError:
            continue  # a piece with ellipses; what it imports stands in whole pieces, too
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "goalscope":
                found |= {(str(node.module), alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "goalscope"}
    return found


IMPORTING_PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.py")),
    *sorted((ROOT / "docs").rglob("*.ipynb")),
    ROOT / "README.md",
    *sorted((ROOT / "tests" / "plugin" / "goalscope_compass").rglob("*.py")),
]


def is_public(module: str, name: str) -> bool:
    parts = module.split(".")
    if parts[1:2] and parts[1] in SATELLITES:
        return True
    if module == "goalscope":
        return name == "" or hasattr(goalscope, name)
    gathered = getattr(import_module(module), "__all__", ())
    return name in gathered if name else bool(gathered)


@pytest.mark.parametrize("page", IMPORTING_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_import_public_names_alone(page: Path) -> None:
    assert [found for found in sorted(imports_in(page)) if not is_public(*found)] == []


def test_a_name_that_no_room_gathers_is_not_public() -> None:
    assert not is_public("goalscope.worlds.world", "View") and is_public("goalscope.worlds", "View")
    assert sum(len(imports_in(page)) for page in IMPORTING_PAGES) > 100
