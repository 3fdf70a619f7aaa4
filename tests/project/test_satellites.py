"""Where the satellites are deleted, every other module is imported, and a study is run, measured and judged."""

import shutil
from pathlib import Path

import pytest

from goalscope import __version__
from goalscope.verdict import Evaluation
from in_turn import Done, in_turn

SOURCE = Path(__file__).parents[2] / "src" / "goalscope"
SATELLITES = ("organisms", "papers", "integrations")
COMMANDS = (
    ["run", "scripted", "--count", "1", "--sizes", "7", "--out", "run"],
    ["measure", "run"],
    ["report", "run"],
    ["evaluate", "optimal", "--arms", "grids", "--sizes", "7", "--quick", "--out", "verdict"],
    ["--help"],
)
EVERY_MODULE = """
import pathlib
root = pathlib.Path(goalscope.__path__[0])
for path in sorted(root.rglob("*.py")):
    name = ".".join(("goalscope", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    if not name.endswith(("__main__", "_process")):
        importlib.import_module(name)
pathlib.Path("imported").write_text(str(root))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a place to which the package is installed without its satellites and their entry points."""
    place = tmp_path_factory.mktemp("alone")
    shutil.copytree(SOURCE, place / "goalscope")  # with its bytecode, which is that of files of equal time and size
    for satellite in SATELLITES:
        shutil.rmtree(place / "goalscope" / satellite)
    information = place / f"goalscope-{__version__}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: goalscope\nVersion: {__version__}\n")
    (information / "entry_points.txt").write_text("[goalscope]\nstudies = goalscope.verdict.studies\n")
    return place


@pytest.fixture(scope="module")
def used(alone: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Done]]:
    """Return the folder in which every module was imported and the commands ran, and how these ended."""
    folder = tmp_path_factory.mktemp("used")
    return folder, in_turn(COMMANDS, cwd=folder, environment={"PYTHONPATH": str(alone)}, first=EVERY_MODULE)


@pytest.mark.full
def test_every_module_is_imported_without_the_satellites(used: tuple[Path, list[Done]], alone: Path) -> None:
    assert (used[0] / "imported").read_text() == str(alone / "goalscope")


@pytest.mark.full
def test_a_study_is_run_measured_and_judged_without_the_satellites(used: tuple[Path, list[Done]]) -> None:
    folder, done = used
    assert all(one.status == 0 for one in done), done
    (ledger,) = Evaluation.read(folder / "verdict" / "ledger.json").models
    assert [finding.names for finding in ledger.findings] == [("goal",)]
    listed = done[-1].stdout
    assert "evaluate" in listed and not any(name in listed for name in ("organisms", "reproduce"))
