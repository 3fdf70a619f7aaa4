"""The command `doctor`: which packages are installed, which are missing, and which extra installs them."""

import os
import platform
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from goalscope._ground.extras import how_to_install
from goalscope._ground.folder import Folder
from goalscope.cli.console import WRONG_INPUT, say, table
from goalscope.cli.generator import Reads, Writes

NEEDS = {
    "": ("numpy", "scipy", "pydantic", "PyYAML", "typer", "rich"),
    "report": ("matplotlib", "jinja2"),
    "export": ("pyarrow", "pandas"),
    "lm": ("torch", "transformers", "safetensors"),
    "api": ("openai",),
    "inspect": ("inspect-ai",),
}
"""Extra -> the packages that it installs; "" for those that goalscope always needs."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check of the installation.

    Attributes:
        what: what was checked.
        state: "installed", "missing", "ok" or "problem".
        detail: version, value, or advice.
        core: whether goalscope cannot work without it.
    """

    what: str
    state: str
    detail: str
    core: bool = False

    @property
    def fatal(self) -> bool:
        """Whether goalscope cannot work because of this result: something that it needs is missing or has a problem."""
        return self.core and self.state in ("missing", "problem")


def doctor(
    run: Annotated[Path | None, Reads("run")] = None,
    *,
    repair: bool = False,
    folder: Annotated[Path, Writes("directory")] = Path(),
    model: Annotated[str | None, Reads("model")] = None,
    device: str = "auto",
    chat_template: str | None = None,
    server: str | None = None,
    mode: str = "chat",
    tokenizer: Annotated[str | None, Reads("model")] = None,
    key_env: str | None = None,
    clear_cache: bool = False,
    as_json: bool = False,
) -> bool:
    """Check what is installed, what is missing and which extra installs it, and whether runs can be written.

    With RUN, report what is damaged and what can be rebuilt. With --model, load a model and report how it is prompted,
    how fast it is, three sample answers, and what that means for the commands run and probe. With --server, test the
    abilities of a server.

    Args:
        run ([RUN]): a run directory to check for damage.
        repair: with RUN: rebuild what can be rebuilt; the damaged file is kept beside it.
        folder: directory in which runs will be written.
        model (NAME): test this model: a folder, a GGUF file or a hub name; with --server, the name of a served model.
        device (NAME): with --model: auto, cpu, cuda or cuda:1.
        chat_template (NAME): with --model: which chat template to use, if the model has several.
        server (URL): test the abilities of this server; give its address up to /v1.
        mode: with --server: chat or completions.
        tokenizer (DIR): with --server: folder of the tokenizer, for --mode completions.
        key_env (VARIABLE): with --server: environment variable that holds its API key.
        clear_cache: remove the converted copies of GGUF files from the cache of goalscope, and do nothing else.
        as_json: with --model or --server: print one JSON object.

    Examples:
        goalscope doctor --folder /data/runs
        goalscope doctor runs/first --repair
        goalscope doctor --model models/mine
    """
    if clear_cache:
        from goalscope.agents.models import weight_files

        say(f"{weight_files.clear() / 1e6:,.0f} MB removed from {weight_files.cache().path}")
        return True
    if run is not None:
        from goalscope.cli.examining import doctor_run

        if server or model or as_json or device != "auto":
            raise ValueError("RUN goes only with --repair: leave out --model, --server, --device and --json")
        return doctor_run(run, write=repair)
    if repair:
        raise ValueError("--repair needs a run directory: goalscope doctor RUN --repair")
    if server is None and (tokenizer or key_env or mode != "chat"):
        raise ValueError("--mode, --tokenizer and --key-env need --server: add --server URL")
    if chat_template is not None and (model is None or server is not None):
        raise ValueError("--chat-template needs --model NAME, without --server: add --model, and leave out --server")
    if server is not None and device != "auto":
        raise ValueError("--device has no effect on a server: leave out --device or --server")
    if server is not None:
        from goalscope.cli.examining import doctor_server

        doctor_server(server, model, mode=mode, tokenizer=tokenizer, key_env=key_env, as_json=as_json)
    elif model is not None:
        from goalscope.cli.examining import doctor_model

        doctor_model(model, device=device, chat_template=chat_template, as_json=as_json)
    elif as_json or device != "auto":
        raise ValueError("--json and --device need --model NAME or --server URL: add one of them")
    elif not print_findings(folder):
        raise typer.Exit(WRONG_INPUT)
    return True


def print_findings(folder: Path) -> bool:
    """Check the installation, print the results as a table, and return whether goalscope can work.

    ``folder`` is the directory in which runs will be written.
    """
    findings = examine(folder)
    rows = [(finding.what, finding.state, finding.detail) for finding in findings]
    table(("what", "state", "detail"), rows, title="goalscope doctor")
    return not any(finding.fatal for finding in findings)


def examine(folder: Path) -> list[Diagnosis]:
    """Check Python, the dependencies, the machine, and whether SQLite works in the directory of future runs
    (``folder``).
    """
    from goalscope._ground.version import __version__

    detail = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    python = ("ok", detail) if sys.version_info >= (3, 11) else ("problem", f"{detail}: goalscope needs 3.11 or later")
    findings = [Diagnosis("python", *python, core=True), Diagnosis("goalscope", "ok", __version__, core=True)]
    for extra, name in ((extra, name) for extra, names in NEEDS.items() for name in names):
        try:
            detail, state = metadata.version(name), "installed"
        except metadata.PackageNotFoundError:
            detail, state = how_to_install(extra), "missing"
        findings.append(Diagnosis(f"{name} ({f'extra {extra}' if extra else 'core'})", state, detail, core=not extra))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    findings.append(Diagnosis("processor", "ok", f"{usable} of {os.cpu_count()} cores usable"))
    if hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(os.sysconf_names):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        findings.append(Diagnosis("memory", "ok", f"{memory:.1f} GiB"))
    return [*findings, Diagnosis("GPU", "ok", _gpu()), _sqlite(folder)]


def _gpu() -> str:
    try:
        import torch
    except ImportError:
        return "unknown: torch is not installed"
    if not torch.cuda.is_available():
        return "none that torch can use; models run on the processor"
    return ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def _sqlite(folder: Path) -> Diagnosis:
    """Check whether a small trial database can be created in a directory; it is removed again."""
    subject, version = f"run directory in {folder}", f"SQLite {sqlite3.sqlite_version}"
    if not Folder(folder).is_there():
        return Diagnosis(subject, "problem", "no such folder: create it, or choose another one with --folder")
    try:
        from goalscope.runs.opening import wal_problem
    except ImportError as error:
        return Diagnosis(subject, "problem", f"{version}: not tested, because goalscope cannot be loaded ({error})")
    try:
        with (
            Folder(folder).temporary(".goalscope-doctor-") as trial,
            closing(sqlite3.connect(trial.file("trial.db"))) as database,
            database,
        ):
            database.execute("CREATE TABLE trial (number INTEGER)")
            database.execute("INSERT INTO trial VALUES (1)")
        problem = wal_problem(folder)
    except (OSError, sqlite3.Error) as error:
        return Diagnosis(subject, "problem", f"{version}: no database can be written here ({error})")
    if problem is not None:
        return Diagnosis(subject, "ok", f"{version}: no write-ahead log ({problem}), a rollback journal works")
    return Diagnosis(subject, "ok", f"{version}: write-ahead log works")
