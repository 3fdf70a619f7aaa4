"""Provenance of a run: versions, state of the code, machine and arguments, without secrets."""

import os
import platform
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from goalscope._ground import registry
from goalscope._ground.folder import temporary_folder
from goalscope._ground.untrusted import printable, shorten
from goalscope._ground.version import __version__
from goalscope.agents.models.http_errors import hide
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.worlds.things import name_of

HIDDEN = "(hidden)"
_PACKAGES = "packages"
FIRST_TURNS: Final = "first turns"
"""Key of a run's note on the timed first moves of each agent, see `verdict.preflight.first_turns`."""
LIBRARIES = ("numpy", "scipy", "torch", "transformers", "tokenizers", "safetensors", "openai")
"""Packages that can change the numbers of a run: computation, a model's answers, tokenisation."""
_SECRET_NAME = re.compile(r"(?i)(^|[_\-. ])(api[_\-]?key|key|token|secret|password|passwd|authorization|credential)s?$")
_SECRET_TEXT = re.compile(
    r"(?<=://)[^/@\s]+@"  # name and password of a URL
    r"|(?<=[?&])[^=&\s]*(?:key|token|secret|signature)[^=&\s]*=[^&\s#]+"  # parameters of a URL
    r"|\bsk-[\w-]{16,}|(?i:(?<=bearer )\S+)"
)

_PLAIN_SETTING = re.compile(r"^core\.(filemode|symlinks|autocrlf) (true|false|input)$", re.MULTILINE)


def session(arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the provenance of the process that works on a run: time, versions, machine, commit, arguments."""
    commit, dirty = _code()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "goalscope": __version__,
        "python": platform.python_version(),
        **libraries(),
        "sqlite": sqlite3.sqlite_version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "commit": commit,
        "dirty": dirty,
        "arguments": scrub(arguments or {"program": Path(sys.argv[0]).name}),
    }


def _code() -> tuple[str | None, bool | None]:
    """Return the git commit of the current directory, and whether files were changed since; None if unknown."""
    commit = _git(["rev-parse", "HEAD"])
    return commit, None if commit is None else _differs(commit)


def libraries() -> dict[str, str]:
    """Return the versions of the installed packages that can change numbers, by name, without importing them."""
    versions = {name: _version(name) for name in LIBRARIES}
    return {name: version for name, version in versions.items() if version is not None}


@cache
def _version(name: str) -> str | None:
    """Return the version of an installed package, or None; it is looked up once per process."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def note_libraries(store: Store, work: str, parts: Iterable[tuple[str, str]] = ()) -> None:
    """Store the versions of the packages used for a part of the work on a run, after those stored before.

    Args:
        store: the run.
        work: the part of the work: "capture", "probes".
        parts: kind and name of the registered parts that it uses, see `note_packages`.
    """
    note_packages(store, parts)
    name = f"libraries of {work}"
    earlier, current = store.info().get(name, []), libraries()
    if current not in earlier:
        store.put_info(name, [*earlier, current])


def note_packages(store: Store, parts: Iterable[tuple[str, str]], *, anew: str = "") -> None:
    """Store the package and version of each registered part (kind, name) that a run uses from another package.

    Earlier records are kept, except for parts of the kind ``anew``, which are replaced.
    """
    used_by_kind = {
        f"{kind} {name}": registry.package_with(kind, name)
        for kind, name in parts
        if registry.registered(kind, name) and not registry.built_in(kind, name)
    }
    before = noted(store, _PACKAGES)
    now = {
        part: package for part, package in before.items() if not anew or not part.startswith(f"{anew} ")
    } | used_by_kind
    if now != before:
        store.put_info(_PACKAGES, now)


def parts_of(study: Study) -> Iterator[tuple[str, str]]:
    """Yield kind and name of each part that a study names."""
    for symbol in {symbol for world in study.worlds() if "grid" in world.offers for _, symbol in world.grid.things}:
        yield "thing", name_of(symbol)
    for world in study.worlds_:
        yield from (("world", world.kind), ("environment", str(getattr(world, "source", ""))))
    for agent in (*study.agents_, *study.further_agents_):
        yield from (("agent", agent.kind), ("model", str(agent.parameters.get("backend", ""))))
    if study.analysis is not None:
        yield from (("intervention", settings.kind) for settings in study.analysis.interventions)
        if study.analysis.inside is not None:
            yield from (("head", name) for name in study.analysis.inside.heads)
            yield from (("analysis", name) for name in study.analysis.inside.reads)


def packages_of(store: Store) -> dict[tuple[str, str], str]:
    """Return the parts from other packages that a run uses, as (kind, name), each with its package and version."""
    parts = {tuple(part.split(" ", 1)): package for part, package in noted(store, _PACKAGES).items()}
    return {(part[0], part[1]): str(package) for part, package in parts.items() if len(part) == 2}


def missing_packages(store: Store) -> str:
    """Return a sentence on the parts of a run whose packages are not installed here, "" if all are."""
    missing: dict[str, list[str]] = {}
    for (kind, name), package in packages_of(store).items():
        if not registry.registered(kind, name):
            missing.setdefault(package, []).append(f"the {printable(kind)} {shorten(name)}")
    return "; ".join(
        f"this run has {', '.join(parts)} of the package {printable(package)}, which is not installed here: install it "
        "for what needs its code"
        for package, parts in missing.items()
    )


def noted(store: Store, name: str) -> dict[str, Any]:
    """Return the mapping that a run stores under a name; empty if it stores none."""
    entries = store.info().get(name)
    return entries if isinstance(entries, dict) else {}


def note(store: Store, name: str, entries: Mapping[str, Any]) -> None:
    """Add entries to the mapping that a run stores under a name. Entries with equal keys are replaced."""
    store.put_info(name, {**noted(store, name), **entries})


def scrub(value: Any) -> Any:
    """Return plain values without secrets: values with a secret's name, and credentials inside texts, are hidden.

    Secrets in the environment (``OPENAI_API_KEY``, ``HF_TOKEN``, ...) are hidden in every form that
    `goalscope.agents.models.http_errors` lists.
    """
    if isinstance(value, Mapping):
        return {
            str(name): HIDDEN if isinstance(item, str) and item and _SECRET_NAME.search(str(name)) else scrub(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    if isinstance(value, str):
        for name, secret in os.environ.items():
            value = hide(value, secret.strip()) if _SECRET_NAME.search(name) else value
        return _SECRET_TEXT.sub(HIDDEN, value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return scrub(str(value))


def _differs(commit: str) -> bool | None:
    """Return whether tracked files of the working tree differ from its commit; None if that is unknown.

    The repository may come from a stranger: filters, monitors, remotes that fetch missing objects, and submodule
    settings in
    its configuration are commands. The state is therefore determined with another configuration, which contains none:
    git gets the index, objects and commit of the repository, and an empty directory as its `.git`.
    """
    git_output = _git(["rev-parse", "--show-toplevel", "--git-path", "index", "--git-path", "objects"])
    places = [] if git_output is None else git_output.splitlines()
    if len(places) != 3:
        return None
    # Three values of the repository's configuration are kept, which describe how files are written and name no
    # command.
    core = _git(["config", "--get-regexp", r"^core\.(filemode|symlinks|autocrlf)$"]) or ""
    settings = [f"{name} = {value}" for name, value in _PLAIN_SETTING.findall(core)]
    sha256 = len(commit) == 64
    with temporary_folder() as directory:
        folder = str(directory.path)
        directory.save_text(f"{commit}\n", "HEAD")
        directory.make("refs")
        core_section = "\n".join(["[core]", f"repositoryformatversion = {sha256:d}", *settings, ""])
        directory.save_text(core_section + ("[extensions]\nobjectFormat = sha256\n" if sha256 else ""), "config")
        top, index, objects = (str(Path(place).absolute()) for place in places)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": folder,  # the user's own filters are not run on untrusted files either
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_DIR": folder,
            "GIT_WORK_TREE": top,
            "GIT_INDEX_FILE": index,
            "GIT_OBJECT_DIRECTORY": objects,
        }
        status = ["status", "--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty"]
        changes = _git(status, env=environment, cwd=top)
        if not changes:
            return None if changes is None else False
        entries = changes.split("\0")
        if any(entry[:1].strip() for entry in entries):
            return True  # the index differs from the commit
        paths = "".join(f"{entry[3:]}\0" for entry in entries if entry)
        filters = _git(["check-attr", "-z", "--stdin", "filter"], env=environment, cwd=top, input=paths)
    if filters is None:
        return None
    # Only a filter could decide whether the content counts as changed, and no filter is run.
    return True if {"unspecified", "unset"} & set(filters.split("\0")[2::3]) else None


def _git(arguments: Sequence[str], **options: Any) -> str | None:
    """Return the output of git, or None if it fails."""
    # Hooks and monitors of an untrusted repository are not run, and nothing is locked.
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks", *arguments]
    try:
        finished: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="surrogateescape", timeout=10, check=True, **options
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout.rstrip("\n")
