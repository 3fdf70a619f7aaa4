"""Where recorded data lies. Without it the test files named ``*_recorded.py`` are left out, and the summary says so."""

import atexit
import contextlib
import gc
import importlib
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


_kept: dict[Any, Any] = {}


def _once(key: Any, compute: Any, *arguments: Any, **options: Any) -> Any:
    """Return what was computed under a key, or compute it."""
    if key not in _kept:
        _kept[key] = compute(*arguments, **options)
    return _kept[key]


@pytest.fixture(autouse=True, scope="session")
def code_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ask git for the state of this repository once for all runs of the gate that tests start in it."""
    if request.config.option.markexpr != "not full":
        yield
        return
    from goalscope.runs import provenance

    compute: Any = provenance._code
    with pytest.MonkeyPatch.context() as patch:
        root = request.config.rootpath
        patch.setattr(provenance, "_code", lambda: _once("code", compute) if Path.cwd() == root else compute())
        yield


@pytest.fixture(autouse=True, scope="module")
def evaluations_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compute what a run says of goals, and what worlds are enough for, once for all evaluations of the gate."""
    if request.config.option.markexpr != "not full":
        yield
        return
    from goalscope.runs import content_hash
    from goalscope.verdict import evidence, plan

    goals: Any = evidence.ArmRun.goals
    told: Any = vars(plan)["told_beforehand"]

    def goals_once(run: evidence.ArmRun) -> Any:
        part = None if run.part is None else tuple(sorted(run.part))
        place = vars(evidence)["directedness"], content_hash(run.store), part, run.confidence
        return _once(("goals", *place), goals.func, run)  # a test may replace the function

    def told_once(study: Any, *, level: float) -> Any:
        if study.analysis is not None and study.analysis.hypotheses:  # which may be functions of a test
            return told(study, level=level)
        worlds = tuple(world.id for world in study.worlds())
        return _once(("told", worlds, repr(study.horizon), study.trajectories, level), told, study, level=level)

    kept = cached_property(goals_once)
    kept.__set_name__(evidence.ArmRun, "goals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence.ArmRun, "goals", kept)
        patch.setattr(plan, "told_beforehand", told_once)
        yield


@pytest.fixture(autouse=True, scope="module")
def pages_equal_ledgers() -> Iterator[None]:
    """Compare the numbers on each page that the tests of a file write with the ledger or record that decided."""
    from goalscope.report import page as report
    from goalscope.verdict import page
    from page_numbers import deviations, study_deviations

    write: Any = page.write
    write_page: Any = report.write_page
    different = dict[Path, list[str]]()

    def write_compared(evaluation: Any, runs: Any, path: Path) -> Path:
        written: Path = write(evaluation, runs, path)
        if found := deviations(written.read_text(), evaluation):
            different[path] = found
        return written

    def write_report_compared(path: Path, text: str) -> Path:
        if text.startswith("<") and (found := study_deviations(text)):
            different[path] = found
        written: Path = write_page(path, text)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "write", write_compared)
        patch.setattr(report, "write_page", write_report_compared)
        yield
    assert not different


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of each law where the long tests are left out."""
    hypothesis.settings.load_profile("gate" if config.option.markexpr == "not full" else "full")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have each second process import the modules of tests from the last one on.

    In a fresh checkout, assertions are rewritten and bytecode is written at the first import. All processes collect the
    same modules in the same order, so each would do all of that; from both ends each does a half.
    """
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:] not in ("1", "3", "5", "7"):
        return
    if session.config.args != session.config.getini("testpaths"):
        return  # some of the tests
    for path in sorted(Path(__file__).parent.glob("**/test_*.py"), reverse=True):
        if pytest_ignore_collect(path) is None:
            sys.path.insert(0, str(path.parent)) if str(path.parent) not in sys.path else None
            with contextlib.suppress(BaseException):  # which collecting it tells
                importlib.import_module(path.stem)


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
