"""Where recorded data lies. Without it the test files named ``*_recorded.py`` are left out, and the summary says so."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import typer.main
import typer.testing

# No deadline: machines are shared and slow at times. Derandomised: what is red is red on every machine.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, max_examples=20)
hypothesis.settings.register_profile("full", deadline=None, derandomize=True)

# The tests start many processes. Where bytecode may not be written, each would compile PyTorch and Transformers anew,
# which takes longer than most of the tests: theirs is written beside the cache of pytest instead.
if sys.dont_write_bytecode:
    bytecode = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    sys.dont_write_bytecode, sys.pycache_prefix = False, bytecode
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = bytecode

# Converted copies of GGUF files are made by the tests themselves, and not taken from earlier work.
os.environ["GOALSCOPE_CACHE"] = tempfile.mkdtemp(prefix="goalscope-cache-")
atexit.register(shutil.rmtree, os.environ["GOALSCOPE_CACHE"], ignore_errors=True)

# One process of tests runs for each core: threads of the numeric libraries in each of them would wait for one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    for library in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(library, "1")


_programs: dict[Any, Any] = {}


def _program_of(app: typer.Typer) -> Any:
    """Return the commands of an application, made once: that takes as long as most of the commands of the tests."""
    key = (id(app), len(app.registered_commands))
    if key not in _programs:
        program = typer.main.get_command(app)
        _programs[key] = app, program, getattr(program, "commands", None)
    _, program, commands = _programs[key]
    if commands is not None:  # those that a package registers come in when they are asked for, and belong to one test
        program.commands = dict(commands)
    return program


typer.testing._get_command = _program_of  # type: ignore[assignment, attr-defined]


_goals: dict[Any, Any] = {}


@pytest.fixture(autouse=True, scope="module")
def goals_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compute what a run says of goals once for all tests of the gate that open, judge or draw the same evaluation."""
    if request.path.parent.name != "evaluation" or request.config.option.markexpr != "not full":
        yield
        return
    from goalscope.runs import content_hash
    from goalscope.verdict import evidence

    compute: Any = evidence.ArmRun.goals

    def once(run: evidence.ArmRun) -> Any:
        part = None if run.part is None else tuple(sorted(run.part))
        key = (
            vars(evidence)["directedness"],
            content_hash(run.store),
            part,
            run.confidence,
        )  # a test may replace the function
        if key not in _goals:
            _goals[key] = compute.func(run)
        return _goals[key]

    kept = cached_property(once)
    kept.__set_name__(evidence.ArmRun, "goals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence.ArmRun, "goals", kept)
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of each law where the long tests are left out."""
    hypothesis.settings.load_profile("gate" if config.option.markexpr == "not full" else "full")


def pytest_collection_finish() -> None:
    """Leave what is imported by now to no further collection: PyTorch and Transformers are a million objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 10)


def recorded_folder() -> Path | None:
    """Return the folder of recorded data: from GOALSCOPE_RECORDED, else beside the repository; None without one."""
    stated = os.environ.get("GOALSCOPE_RECORDED")
    folder = Path(stated) if stated else Path(__file__).parents[2] / "shared" / "data"
    found = folder / "gpt-oss-20b"
    return found if found.is_dir() else None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    left_out = collection_path.name.endswith("_recorded.py") and recorded_folder() is None
    return True if left_out else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if recorded_folder() is None:
        terminalreporter.write_line(
            "not run: the tests on recorded data, which is not there (set GOALSCOPE_RECORDED to its folder)",
            yellow=True,
        )


@pytest.fixture(scope="session")
def recorded() -> Path:
    """The folder ``gpt-oss-20b`` of the recorded data."""
    folder = recorded_folder()
    assert folder is not None
    return folder
