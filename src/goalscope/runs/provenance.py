"""Provenance of a run: versions, state of the code, machine, arguments and servers, without secrets.

A server is checked before the first call of a run. The check is stored with the run and counts towards its caps.
"""

import os
import platform
import re
import sqlite3
import subprocess
import sys
from collections import Counter
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
from goalscope.agents.agent import ANSWERED_BY, REDRAWS, WITHHELD
from goalscope.agents.models.http_errors import hide, other_names
from goalscope.agents.models.http_settings import BELIEVED, DOUBTED
from goalscope.agents.parse import CALLED, IN_REASONING, remedy
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.worlds.things import kinds_in

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
    """Describe the process that works on a run, for the record: time, versions of software, machine, commit and
    arguments.

    Args:
        arguments: the user's arguments and their defaults, from which secrets are removed; None for the program's name.
    """
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
    """Return the installed versions of packages that can change the numbers of a run, such as torch, by name.

    They are not imported.
    """
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
    """Record in a run which versions of packages a part of the work used, such as the capture of activations.

    Versions recorded earlier are kept.

    Args:
        store: the run.
        work: the part of the work: "capture", "probes".
        parts: (kind, name) of the registered extensions that it uses, see `note_packages`.
    """
    note_packages(store, parts)
    name = f"libraries of {work}"
    earlier, current = store.info().get(name, []), libraries()
    if current not in earlier:
        store.put_info(name, [*earlier, current])


def note_packages(store: Store, parts: Iterable[tuple[str, str]], *, anew: str = "") -> None:
    """Record in a run which extensions of other packages it uses, with the package and version of each.

    Args:
        store: the run.
        parts: (kind, name) of each registered extension that the run uses, such as ("agent", "mine"); those that come
            with goalscope are left out.
        anew: kind of extensions whose earlier records are replaced; all other records are kept.
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
    """Yield (kind, name) of each registered extension that a study names, such as ("agent", "optimal").

    The kinds include worlds, environments, things, agents, models, interventions, probes ("head") and analyses.
    """
    for kind in kinds_in(world.grid for world in study.worlds() if "grid" in world.offers):
        yield "thing", kind.name
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
    """Return the extensions of other packages that a run uses: (kind, name) -> package and version, as recorded."""
    parts = {tuple(part.split(" ", 1)): package for part, package in noted(store, _PACKAGES).items()}
    return {(part[0], part[1]): str(package) for part, package in parts.items() if len(part) == 2}


def missing_packages(store: Store) -> str:
    """Return a sentence on the packages that a run used and that are not installed here; "" if all are installed."""
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
    """Return the mapping that was stored with a run under a name by `note`; empty if there is none."""
    entries = store.info().get(name)
    return entries if isinstance(entries, dict) else {}


def note(store: Store, name: str, entries: Mapping[str, Any]) -> None:
    """Add entries to a mapping that is stored with a run under a name; an entry with the same key is replaced."""
    store.put_info(name, {**noted(store, name), **entries})


def scrub(value: Any) -> Any:
    """Return a copy of a value (mapping, list or text) in which secrets are replaced by "(hidden)", to store or print
    it.

    Hidden are values whose name is that of a secret, credentials inside texts, and secrets of the environment
    (``OPENAI_API_KEY``, ``HF_TOKEN``, ...) in every form that `goalscope.agents.models.http_errors` lists.
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


# Servers

SERVERS: Final = "servers"
"""Key of the setting with the checks of servers, one entry per trial."""

_ANSWERS: Final = f"""
    SELECT name, count(*), total(doubted IS NOT NULL AND doubted), total(redraws > 0), total(redraws),
        total(failure = '{WITHHELD}'), total(failure = 'empty' AND reasoned), total(failure = '{CALLED}')
    FROM (
        SELECT CASE WHEN json_valid(extra) THEN json_extract(extra, '$.{ANSWERED_BY}') END AS name,
            CASE WHEN json_valid(usage) THEN json_extract(usage, '$.{DOUBTED}') END AS doubted,
            CASE WHEN json_valid(extra) AND json_type(extra, '$.{REDRAWS}') = 'integer'
                THEN max(0, json_extract(extra, '$.{REDRAWS}')) END AS redraws,
            failure, coalesce(reasoning, '') != '' AS reasoned
        FROM calls WHERE agent_id = ? AND state = 'done'
    ) GROUP BY name"""
"""The model names that a server reported to an agent, and the number of answers for each sentence of `_NOTES`."""

_NOTES: Final = (
    "{0} of {total} answers report numbers of tokens that their requests should not have: 0, which counts at the most "
    f"that a call can take, or more than that, which counts up to {BELIEVED} times it",
    "{0} of {total} answers were drawn again ({redraws} earlier replies to the same requests were lost, broken off or "
    "unreadable): if that depended on what the model wrote, the answers are a selection",
    "{0} of {total} answers were withheld by the server (a content filter, or a refusal): they are turns without an "
    "action, and no failures of the model to keep to the form",
    "{0} of {total} answers were empty, although the server's field for reasoning held text. If the answer stands "
    "there: {parser}",
    "{0} of {total} answers were calls of a tool, which are turns without an action: {tools}",
)
"""What is said of some answers, if there are any."""


def spent_on_checks(store: Store, identity: str) -> dict[str, float]:
    """Return what testing an agent's server has cost in a run: name of the cost -> requests, tokens or USD.

    An interrupted test counts with its maximum cost.

    Args:
        store: the run.
        identity: the agent's content id.
    """
    total: dict[str, float] = {}
    for entry in checks_of(store):
        if entry.get("agent") == identity:
            for name, value in entry.get("usage", {}).items():
                total[name] = total.get(name, 0.0) + value
    return total


def noted_of_answers(store: Store) -> list[str]:
    """Return warnings about the answers that each agent got from its server, one line per agent and fact.

    The facts are answers by another model, implausible token counts, answers that were drawn again, answers that the
    server withheld, and answers that came in the field for reasoning or as a tool call; each comes with advice.
    """
    lines = []
    for identity, (agent, description) in sorted(store.agents().items()):
        model = description.get("model")
        if not isinstance(model, Mapping) or model.get("kind") != "http":
            continue
        names, columns = Counter[str](), Counter[int]()
        for name, count, *counts in store.query(_ANSWERS, (identity,)):
            names[printable(str(name or ""))] += count
            columns.update(dict(enumerate(map(int, counts))))
        doubted, redrawn, redraws, *further_columns = (columns[column] for column in range(len(_NOTES) + 1))
        facts = {"total": names.total(), "redraws": redraws, "parser": remedy(IN_REASONING), "tools": remedy(CALLED)}
        pairs = zip((doubted, redrawn, *further_columns), _NOTES, strict=True)
        notes = [note.format(count, **facts) for count, note in pairs if count]
        lines += [f"{agent}: {line}" for line in (other_names(str(model.get("model")), names), *notes) if line]
    return lines


def checks_of(store: Store) -> list[Mapping[str, Any]]:
    """Return what a run has stored about the tests of its servers, one mapping per test."""
    entries = store.info().get(SERVERS, [])
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
