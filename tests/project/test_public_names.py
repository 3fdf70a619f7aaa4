"""What the docs and the package that serves as an example import is public: a name that a room or a face gathers."""

import ast
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

import goalscope

ROOT = Path(__file__).parents[2]
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


PAGES = [
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_import_public_names_alone(page: Path) -> None:
    assert [found for found in sorted(imports_in(page)) if not is_public(*found)] == []


def test_a_name_that_no_room_gathers_is_not_public() -> None:
    assert not is_public("goalscope.worlds.world", "View") and is_public("goalscope.worlds", "View")
    assert sum(len(imports_in(page)) for page in PAGES) > 100
