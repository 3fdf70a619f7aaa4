"""A run records the commit and changes of the working tree around it: no program that a repository names is run.

Filters, monitors, hooks, external diffs, remotes that fetch missing objects and settings of submodules are commands in
the configuration of a repository, which an unpacked archive brings along.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import call
from goalscope.runs.provenance import session

COMMANDS = (
    *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process"),
    *("diff.evil.textconv", "diff.evil.command", "diff.external", "merge.evil.driver"),
    *("core.fsmonitor", "core.sshCommand", "core.gitProxy", "core.pager", "core.editor", "core.askPass"),
    *("pager.status", "pager.config", "gpg.program", "credential.helper", "remote.origin.uploadpack"),
)
HOOKS = ("post-index-change", "fsmonitor-watchman", "reference-transaction", "pre-auto-gc", "post-checkout")


def git(repository: Path, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(repository.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *who, *words], cwd=repository, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def committed(repository: Path) -> Path:
    repository.mkdir()
    git(repository, "init", "-q")
    for name in ("one.txt", "two.txt"):
        (repository / name).write_text(f"{name}\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "first")
    return repository


def arm(repository: Path, marker: Path) -> None:
    """Let everything in a repository that can name a program name one that leaves a marker."""
    git(repository, "config", "alias.status", f"!touch {marker}-alias")
    git(repository, "config", "alias.rev-parse", f"!touch {marker}-alias")
    hooks = repository / ".git" / "hooks"
    shutil.rmtree(hooks, ignore_errors=True)
    hooks.mkdir()
    for name in HOOKS:
        (hooks / name).write_text(f"#!/bin/sh\ntouch {marker}-hook-{name}\n")
        (hooks / name).chmod(0o755)
    # The last, since git itself would run them.
    with (repository / ".git" / "config").open("a") as file:
        for name in COMMANDS:
            section, _, key = name.rpartition(".")
            head, _, rest = section.partition(".")
            named = f' "{rest}"' if rest else ""
            file.write(f'[{head}{named}]\n\t{key} = "touch {marker}-{name}; cat"\n')
        file.write(f"[core]\n\thooksPath = {hooks}\n")
        file.write('[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\tpromisor = true\n')
        file.write(f"\turl = {repository}\n[protocol]\n\tallow = always\n")


def filtered(repository: Path) -> None:
    (repository / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "attributes")


def touched(repository: Path) -> None:
    filtered(repository)
    os.utime(repository / "one.txt", (1, 1))


def racy(repository: Path) -> None:
    """An index that is older than its files, which git does not trust: it compares their content."""
    filtered(repository)
    for name in ("one.txt", "two.txt"):
        os.utime(repository / name, (2e9, 2e9))
    git(repository, "config", "core.checkStat", "minimal")
    git(repository, "config", "core.trustctime", "false")
    git(repository, "update-index", "--refresh")
    os.utime(repository / ".git" / "index", (1, 1))


def changed(repository: Path) -> None:
    filtered(repository)
    (repository / "one.txt").write_text("changed\n")


def changed_without_filter(repository: Path) -> None:
    (repository / "one.txt").write_text("changed\n")


def staged(repository: Path) -> None:
    changed(repository)
    git(repository, "add", ".")


def without_objects(repository: Path) -> None:
    """A partial clone: the tree of its commit is missing, and a remote is named that has it."""
    filtered(repository)
    tree = git(repository, "rev-parse", "HEAD^{tree}")
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()


def with_submodule(repository: Path) -> None:
    inner = committed(repository / "inner")
    git(repository, "add", "inner")
    git(repository, "commit", "-qm", "inner")
    filtered(inner)
    git(repository, "add", "inner")
    git(repository, "commit", "-qm", "inner again")
    arm(inner, repository.parent / "marker")
    os.utime(inner / "one.txt", (1, 1))


def elsewhere(repository: Path) -> None:
    filtered(repository)
    outside = repository.parent / "outside"
    shutil.copytree(repository, outside, ignore=shutil.ignore_patterns(".git"))
    git(repository, "config", "core.worktree", str(outside))


def including(repository: Path) -> None:
    filtered(repository)
    (repository / "more").write_text(f'[filter "evil"]\n\tclean = "touch {repository.parent}/marker-more; cat"\n')
    git(repository, "config", "include.path", str(repository / "more"))
    os.utime(repository / "one.txt", (1, 1))


STATES: list[tuple[Callable[[Path], None], bool | None]] = [
    (filtered, False),
    (touched, False),
    (racy, False),
    (changed, None),  # a filter says what counts as changed
    (changed_without_filter, True),
    (staged, True),
    (without_objects, None),
    (with_submodule, False),
    (elsewhere, False),
    (including, False),
]


@pytest.mark.parametrize(("state", "dirty"), STATES, ids=[state.__name__ for state, _ in STATES])
def test_a_repository_runs_nothing(tmp_path: Path, state: Callable[[Path], None], dirty: bool | None) -> None:
    repository = committed(tmp_path / "repository")
    state(repository)
    commit = git(repository, "rev-parse", "HEAD")
    arm(repository, tmp_path / "marker")
    before = {path: path.read_bytes() for path in (repository / ".git").rglob("*") if path.is_file()}
    with contextlib.chdir(repository):
        found = session()
    assert sorted(path.name for path in tmp_path.glob("marker*")) == []
    assert found["commit"] == commit
    assert found["dirty"] == dirty
    assert {path: path.read_bytes() for path in (repository / ".git").rglob("*") if path.is_file()} == before


def test_the_planted_commands_would_run(tmp_path: Path) -> None:
    """The case can fail: git itself runs what is planted."""
    repository = committed(tmp_path / "repository")
    touched(repository)
    arm(repository, tmp_path / "marker")
    subprocess.run(["git", "status"], cwd=repository, capture_output=True, check=False)
    assert list(tmp_path.glob("marker*"))


def test_commands_run_nothing_of_the_repository_around_them(tmp_path: Path) -> None:
    repository = committed(tmp_path / "repository")
    touched(repository)
    arm(repository, tmp_path / "marker")
    (repository / "study.yaml").write_text(
        "name: small\nworlds: [{kind: grid, sizes: [5], densities: [0.5], count: 2}]\nagents: [{kind: optimal}]\n"
        "trajectories: 1\n"
    )
    with contextlib.chdir(repository):
        call("run", "study.yaml", "--out", "whole")
        for number in (1, 2):
            call("run", "study.yaml", "--shard", f"{number}/2", "--out", f"part{number}")
        call("merge", "merged", "part1", "part2")
    assert list(tmp_path.glob("marker*")) == []


def test_a_repository_of_longer_hashes_and_one_without_a_commit(tmp_path: Path) -> None:
    longer = tmp_path / "longer"
    longer.mkdir()
    git(longer, "init", "-q", "--object-format=sha256")
    with contextlib.chdir(longer):
        assert (session()["commit"], session()["dirty"]) == (None, None)
    (longer / "one.txt").write_text("one\n")
    git(longer, "add", ".")
    git(longer, "commit", "-qm", "first")
    with contextlib.chdir(longer):
        found = session()
        assert (len(found["commit"]), found["dirty"]) == (64, False)
        (longer / "one.txt").write_text("two\n")
        assert session()["dirty"] is True


def test_settings_that_say_how_files_are_written_are_kept(tmp_path: Path) -> None:
    repository = committed(tmp_path / "repository")
    (repository / "one.txt").chmod(0o755)
    with contextlib.chdir(repository):
        assert session()["dirty"] is True
        git(repository, "config", "core.fileMode", "false")
        assert session()["dirty"] is False


def test_a_linked_working_tree_and_a_folder_inside(tmp_path: Path) -> None:
    repository = committed(tmp_path / "repository")
    git(repository, "worktree", "add", "-q", str(tmp_path / "second"))
    (tmp_path / "second" / "folder").mkdir()
    with contextlib.chdir(tmp_path / "second" / "folder"):
        assert session()["dirty"] is False
        (tmp_path / "second" / "one.txt").write_text("changed\n")
        assert session()["dirty"] is True
    with contextlib.chdir(repository):
        assert session()["dirty"] is False
