"""Where the satellites are deleted, every other module is imported, and a study is run, measured and judged."""

import json
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
COMMANDS = (
    ["run", "scripted", "--count", "1", "--sizes", "7", "--out", "run"],
    ["measure", "run"],
    ["report", "run"],
    ["evaluate", "optimal", "--arms", "grids", "--quick", "--out", "verdict"],
    ["--help"],
)
EVERY_MODULE_AND_COMMANDS = """
import importlib, json, os, pathlib, sys
from goalscope.cli import main
root = pathlib.Path(sys.argv[1])
for path in sorted(root.rglob("*.py")):
    name = ".".join(("goalscope", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
    if not name.endswith(("__main__", "_process")):
        importlib.import_module(name)
pathlib.Path("imported").touch()
for words in json.loads(sys.argv[2]):
    child = os.fork()
    if not child:
        sys.argv[1:] = words
        main()
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        sys.exit(f"{words}: exit status {status}")
"""
"""Imports every module, then forks a process for each command: to import the package anew takes seconds each time."""


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


@pytest.fixture(scope="module")
def used(alone: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the folder in which every module was imported and the commands ran, and all that was printed."""
    folder = tmp_path_factory.mktemp("used")
    environment = {**os.environ, "PYTHONPATH": str(alone), "COLUMNS": "200"}
    command = [sys.executable, "-c", EVERY_MODULE_AND_COMMANDS, str(alone / "goalscope"), json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


def test_every_module_is_imported_without_the_satellites(used: tuple[Path, str]) -> None:
    assert (used[0] / "imported").exists()


def test_a_study_is_run_measured_and_judged_without_the_satellites(used: tuple[Path, str]) -> None:
    folder, printed = used
    (ledger,) = Evaluation.read(folder / "verdict" / "ledger.json").models
    assert [finding.names for finding in ledger.findings] == [("goal",)]
    listed = printed[printed.rindex("Usage:") :]
    assert "evaluate" in listed and not any(name in listed for name in ("organisms", "reproduce"))
