"""The architecture holds: files import from lower floors only, and importing loads nothing heavy."""

import ast
import functools
import json
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from goalscope._ground import registry

SOURCE = Path(__file__).parents[2] / "src" / "goalscope"

ROOMS = (
    "_ground",
    "stats",
    "worlds",
    "agents",
    "runs",
    "measures",
    "goals",
    "inside",
    "report",
    "verdict",
    "cli",
    "organisms",
    "papers",
    "integrations",
)
FACES = ("_parts", "environments", "meg", "__init__", "__main__")
"""Modules above all rooms, which no room imports: what a user finds under `goalscope`, and where parts are."""
FLOORS = {name: floor for floor, name in enumerate((*ROOMS, *FACES))}

HEAVY = (
    "torch",
    "transformers",
    "matplotlib",
    "pandas",
    "ray",
    "scipy.stats",
    "openai",
    "pyarrow",
    "jinja2",
    "networkx",
    "gymnasium",
    "minigrid",
    "textworld",
    "inspect_ai",
)
LIGHT_ROOMS = ROOMS[: ROOMS.index("goals") + 1]


def part(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


@functools.cache
def imports_and_classes(text: str) -> tuple[tuple[ast.Import | ast.ImportFrom, ...], tuple[str, ...]]:
    """Return all imports of a file, those inside functions too, and the names of its public classes."""
    tree = ast.parse(text)
    imports = tuple(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    return imports, classes


def imported(text: str) -> list[str]:
    """Return the goalscope packages that a file imports anywhere, inside functions too."""
    names = []
    for node in imports_and_classes(text)[0]:
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "imports are absolute"
            names.append(node.module)
            if node.module == "goalscope":
                names.extend(f"goalscope.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
    return [name.split(".")[1] for name in names if name.startswith("goalscope.")]


def violations(path: Path, text: str) -> list[str]:
    own = part(path)
    found = []
    for other in imported(text):
        if other == own or FLOORS[other] < FLOORS[own]:
            continue
        found.append(f"{own} (floor {FLOORS[own]}) imports {other} (floor {FLOORS[other]})")
    return found


FILES = sorted(SOURCE.rglob("*.py"))
BY_NAME = {str(path): path for path in FILES}


def test_files_import_from_lower_floors_only() -> None:
    assert {part(path) for path in FILES} <= set(FLOORS), "a new room needs its floor"
    found = {str(path.relative_to(SOURCE)): violations(path, path.read_text(encoding="utf-8")) for path in FILES}
    assert not {name: problems for name, problems in found.items() if problems}


def test_the_check_itself_finds_a_violation() -> None:
    assert violations(SOURCE / "worlds" / "x.py", "from goalscope.agents import Agent")
    assert violations(SOURCE / "agents" / "x.py", "def f():\n    import goalscope.runs.study")
    assert not violations(SOURCE / "goals" / "x.py", "from goalscope.worlds import Grid")


@pytest.mark.parametrize("package", ["papers", "organisms", "verdict.studies", "integrations"])
def test_nothing_of_the_core_names_what_registers_like_a_package_of_others(package: str) -> None:
    naming = [
        path
        for path in FILES
        if part(path) not in (package, *FACES) and f"goalscope.{package}" in path.read_text(encoding="utf-8")
    ]
    assert not naming
    groups = (registry.GROUP, *(f"{registry.GROUP}.{kind}" for kind in registry.KINDS))
    points = [
        point
        for group in groups
        for point in entry_points(group=group)
        if point.value.startswith(f"goalscope.{package}")
    ]
    assert points and all(point.load() for point in points)


def test_a_class_name_stands_for_one_thing() -> None:
    places = defaultdict[str, list[str]](list)
    for path in FILES:
        for name in imports_and_classes(path.read_text(encoding="utf-8"))[1]:
            places[name].append(str(path.relative_to(SOURCE)))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}


@functools.cache
def file_of(module: str) -> Path | None:
    """Return the file of a module or package below `goalscope`, None where that is none."""
    place = "/".join((str(SOURCE), *module.split(".")[1:]))
    return BY_NAME.get(f"{place}.py") or BY_NAME.get(f"{place}/__init__.py")


def modules_imported(path: Path) -> set[Path]:
    """Return the files of the package that a file imports anywhere: in functions and for types alone, too."""
    names = set[str]()
    for node in imports_and_classes(path.read_text(encoding="utf-8"))[0]:
        if isinstance(node, ast.ImportFrom) and node.module:
            within = {f"{node.module}.{alias.name}" for alias in node.names}
            # A submodule that is imported from its package is not an import of what the package gathers.
            names |= within | ({node.module} if any(file_of(name) is None for name in within) else set())
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    files = {file_of(name) for name in names if name.split(".")[0] == "goalscope"}
    return {file for file in files if file is not None and file != path}


def test_there_are_at_most_14_rooms_and_6_files() -> None:
    folders = {path.relative_to(SOURCE).parts[0] for path in FILES if path.parent != SOURCE}
    assert sorted(folders) == sorted(ROOMS) and len(folders) <= 14
    assert len([path for path in SOURCE.iterdir() if path.is_file()]) <= 6


def circles(graph: dict[Path, set[Path]]) -> list[set[Path]]:
    """Return the sets of files that import each other in a loop."""

    def reached(start: Path) -> set[Path]:
        seen, ahead = set[Path](), [start]
        while ahead:
            new = graph[ahead.pop()] - seen
            seen |= new
            ahead.extend(new)
        return seen

    beyond = {path: reached(path) for path in graph}
    return [{other for other in beyond[path] if path in beyond[other]} for path in graph if path in beyond[path]]


IMPORTS_BY_NAME = """
import importlib, json, sys
found = []
by_itself = importlib.import_module
def recorded(name, package=None):
    found.append((sys._getframe(1).f_code.co_filename, name))
    return by_itself(name, package)
importlib.import_module = recorded
import goalscope
from goalscope._ground import registry
for kind in registry.KINDS:
    registry.names(kind)
for name in {faces!r}:
    face = by_itself(name)
    for part in face.__all__ if hasattr(face, "__all__") else dir(face):
        getattr(face, part)
print(json.dumps([edge for edge in found if edge[1].startswith("goalscope")]))
"""


def imported_by_name() -> dict[Path, set[Path]]:
    """Return what files import by a name that is made while the program runs: each such place is made to do so."""
    makers = [path for path in FILES if "import_module(" in path.read_text(encoding="utf-8")]
    faces = [
        ".".join(("goalscope", *path.parent.relative_to(SOURCE).parts)) for path in makers if path.name == "__init__.py"
    ]
    code = IMPORTS_BY_NAME.replace("{faces!r}", repr(faces))
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    graph = defaultdict[Path, set[Path]](set)
    for importing, name in json.loads(result.stdout):
        if (file := file_of(name)) is not None:
            graph[Path(importing)].add(file)
    return graph


def test_no_files_import_each_other_in_a_circle() -> None:
    by_name = imported_by_name()
    assert {path.name for path in by_name} >= {"__init__.py", "_parts.py"}
    graph = {path: modules_imported(path) | by_name[path] for path in FILES}
    assert not [sorted(str(path.relative_to(SOURCE)) for path in circle) for circle in circles(graph)]
    first, second = FILES[:2]
    assert circles({first: {second}, second: {first}}) == [{first, second}] * 2


def test_importing_floors_0_to_5_and_measures_loads_nothing_heavy() -> None:
    modules = [
        ".".join(("goalscope", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in FILES
        if part(path) in (*LIGHT_ROOMS, "__init__") and path.stem != "__main__"
    ]
    assert len(modules) > 20
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_name_that_is_imported_later_is_not_that_of_a_module_of_its_package() -> None:
    """Python sets a module that was imported as an attribute of its package, where it would hide the name."""
    packages = [path for path in SOURCE.rglob("__init__.py") if "_LATER: Final" in path.read_text(encoding="utf-8")]
    for path in packages:
        package = ".".join(path.parent.relative_to(SOURCE.parent).parts)
        later = import_module(package)._LATER
        assert not set(later) & {module.stem for module in path.parent.glob("*.py")}, package
    assert packages
