"""The reading path of docs/architecture.md exists, hangs together, and is short enough to be read."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "goalscope"
MOST_LINES = 2000


def steps_of_path() -> list[tuple[list[Path], list[str]]]:
    """Return the files and the definitions of each step of the page."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## Reading path", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[2:4] for line in section.splitlines() if line.startswith("| ") and "`" in line]
    quoted = re.compile(r"`([\w./]+)`")
    return [([SOURCE / name for name in quoted.findall(files)], quoted.findall(names)) for files, names in rows]


def definitions(files: list[Path]) -> dict[str, ast.ClassDef | ast.FunctionDef]:
    return {
        node.name: node
        for file in files
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }


def words_in(node: ast.AST) -> set[str]:
    """Return the names and attributes that a definition uses, those of annotations included."""
    nodes = list(ast.walk(node))
    return {each.id for each in nodes if isinstance(each, ast.Name)} | {
        each.attr for each in nodes if isinstance(each, ast.Attribute)
    }


def test_the_path_is_there_hangs_together_and_is_short() -> None:
    steps = steps_of_path()
    assert len(steps) >= 15
    named = [{name: definitions(files)[name] for name in names} for files, names in steps]
    lines = sum((node.end_lineno or 0) - node.lineno + 1 for each in named for node in each.values())
    assert 1000 < lines <= MOST_LINES, lines
    used = [set[str]().union(*map(words_in, each.values())) for each in named]
    for number, each in enumerate(named):
        others = set[str]().union(*(used[other] for other in range(len(named)) if other != number))
        elsewhere = {name for other, names in enumerate(named) if other != number for name in names}
        assert set(each) & others or used[number] & elsewhere, f"nothing on the path leads to {sorted(each)}"
