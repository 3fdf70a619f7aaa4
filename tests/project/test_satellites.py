"""Where the satellites are deleted, every other module is imported, and a study is run, measured and judged."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from goalscope import __version__
from goalscope.verdict import Evaluation

SOURCE = Path(__file__).parents[2] / "src" / "goalscope"
SATELLITES = ("organisms", "papers", "integrations")
EVERY_MODULE = """
import importlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
for path in sorted(root.rglob("*.py")):
    name = ".".join(("goalscope", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    if not name.endswith(("__main__", "_process")):
        importlib.import_module(name)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a place to which the package is installed without its satellites and their entry points."""
    place = tmp_path_factory.mktemp("alone")
    shutil.copytree(SOURCE, place / "goalscope", ignore=shutil.ignore_patterns("__pycache__"))
    for satellite in SATELLITES:
        shutil.rmtree(place / "goalscope" / satellite)
    information = place / f"goalscope-{__version__}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: goalscope\nVersion: {__version__}\n")
    (information / "entry_points.txt").write_text("[goalscope]\nstudies = goalscope.verdict.studies\n")
    return place


def python(place: Path, folder: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(place), "COLUMNS": "200"}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_module_is_imported_without_the_satellites(alone: Path, tmp_path: Path) -> None:
    python(alone, tmp_path, "-c", EVERY_MODULE, str(alone / "goalscope"))


def test_a_study_is_run_measured_and_judged_without_the_satellites(alone: Path, tmp_path: Path) -> None:
    def goalscope(*words: str) -> str:
        return python(alone, tmp_path, "-c", "from goalscope.cli import main; main()", *words)

    goalscope("run", "scripted", "--count", "1", "--sizes", "7", "--out", "run")
    goalscope("measure", "run")
    goalscope("report", "run")
    goalscope("evaluate", "optimal", "--arms", "grids", "--quick", "--out", "verdict")
    (ledger,) = Evaluation.read(tmp_path / "verdict" / "ledger.json").models
    assert [finding.names for finding in ledger.findings] == [("goal",)]
    assert not any(name in goalscope("--help") for name in ("organisms", "reproduce"))
