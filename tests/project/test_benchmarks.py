"""`make bench` runs every script of benchmarks/: each is documented and needs no package that `dev` does not bring."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def imported(script: Path) -> set[str]:
    """Return the top-level packages that a script imports anywhere."""
    nodes = list(ast.walk(ast.parse(script.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    given = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in plain | given}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_can_import_what_it_needs_and_is_documented(script: Path) -> None:
    missing = [name for name in imported(script) if find_spec(name) is None and not (FOLDER / f"{name}.py").exists()]
    assert not missing
    assert f"`{script.name}`" in (FOLDER / "README.md").read_text(encoding="utf-8")
