"""What is installed, what is missing, and which extra brings it."""

import os
import platform
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from goalscope.extras import how_to_install

NEEDS = {
    "": ("numpy", "scipy", "pydantic", "PyYAML", "typer", "rich"),
    "report": ("matplotlib", "jinja2"),
    "export": ("pyarrow", "pandas"),
    "lm": ("torch", "transformers", "safetensors"),
    "api": ("openai",),
}
"""Extra -> the distributions it brings; "" is what goalscope cannot do without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: its name.
        state: "installed", "missing", "ok" or "problem".
        detail: version, figure, or how to mend it.
        core: whether goalscope cannot work without it.
    """

    what: str
    state: str
    detail: str
    core: bool = False

    @property
    def fatal(self) -> bool:
        """Whether goalscope cannot work as things stand."""
        return self.core and self.state in ("missing", "problem")


def examine(folder: Path) -> list[Finding]:
    """Look at the Python, the dependencies, the machine and whether SQLite works in a folder.

    Args:
        folder: where runs are to be written; a small trial database is made there and removed.
    """
    return [*_python(), *_dependencies(), *_machine(), _sqlite(folder)]


def _python() -> list[Finding]:
    from goalscope import __version__

    enough = sys.version_info >= (3, 11)
    detail = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    return [
        Finding(
            what="python",
            state="ok" if enough else "problem",
            detail=detail if enough else f"{detail}: goalscope needs 3.11 or later",
            core=True,
        ),
        Finding(what="goalscope", state="ok", detail=__version__, core=True),
    ]


def _dependencies() -> list[Finding]:
    found = []
    for extra, names in NEEDS.items():
        bring = how_to_install(extra)
        group = f"extra {extra}" if extra else "core"
        for name in names:
            try:
                detail, state = metadata.version(name), "installed"
            except metadata.PackageNotFoundError:
                detail, state = bring, "missing"
            found.append(Finding(what=f"{name} ({group})", state=state, detail=detail, core=not extra))
    return found


def _machine() -> list[Finding]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = [Finding(what="processor", state="ok", detail=f"{usable} of {os.cpu_count()} cores usable")]
    if hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(os.sysconf_names):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        found.append(Finding(what="memory", state="ok", detail=f"{memory:.1f} GiB"))
    found.append(_gpu())
    return found


def _gpu() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding(what="GPU", state="ok", detail="not asked: torch is not installed")
    if not torch.cuda.is_available():
        return Finding(what="GPU", state="ok", detail="none that torch can use; models run on the processor")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Finding(what="GPU", state="ok", detail=", ".join(names))


def _sqlite(folder: Path) -> Finding:
    version = f"SQLite {sqlite3.sqlite_version}"
    what = f"run directory in {folder}"
    if not folder.is_dir():
        return Finding(what=what, state="problem", detail="no such folder: make it, or name another one with --folder")
    try:
        from goalscope.runs.opening import wal_problem
    except ImportError as error:
        return Finding(what=what, state="problem", detail=f"{version}: not tried, goalscope cannot be loaded ({error})")
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".goalscope-doctor-", dir=folder) as trial,
            closing(sqlite3.connect(Path(trial) / "trial.db")) as database,
            database,
        ):
            database.execute("CREATE TABLE trial (number INTEGER)")
            database.execute("INSERT INTO trial VALUES (1)")
        problem = wal_problem(folder)
    except (OSError, sqlite3.Error) as error:
        return Finding(what=what, state="problem", detail=f"{version}: no database can be written here ({error})")
    if problem is not None:
        return Finding(
            what=what, state="ok", detail=f"{version}: no write-ahead log ({problem}), a rollback journal works"
        )
    return Finding(what=what, state="ok", detail=f"{version}: write-ahead log works")
