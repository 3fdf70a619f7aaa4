"""A directory that a stranger made holds links, pipes, second names of files: nothing outside is changed or read.

Each kind of thing is planted at each path that goalscope reads or writes. What it leads to stays as it was, byte by
byte, and the command ends at once: with its result, or with one clear error.
"""

import errno
import importlib
import os
import shutil
import signal
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from typer.testing import CliRunner

from command_line import call
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.untrusted import UntrustedError
from goalscope._ground.yaml_text import write_yaml
from goalscope.cli import app
from goalscope.report.blocks import Table
from goalscope.report.exports import write, write_all
from goalscope.report.page import write_page
from goalscope.runs import Store, Study, content_hash, export_parquet, merge, run
from goalscope.runs.importers import import_path, write_jsonl
from goalscope.runs.opening import DirectoryLock
from goalscope.runs.repair import repair
from goalscope.runs.shards import grow
from goalscope.verdict import Evaluation, judging, subject_of
from goalscope.verdict.claims import ClaimLedger, Origin
from goalscope.verdict.plan import Plan, prepare
from goalscope.verdict.playing import play
from goalscope.verdict.rules import RULES
from goalscope.verdict.subject import Subject

quiet: Any = importlib.import_module("benchmarks.verdicts").quiet

STUDY = """name: small
worlds: [{kind: grid, sizes: [5], densities: [0.5], count: 2}]
agents: [{kind: optimal}, {kind: random}]
trajectories: 1
"""


@pytest.fixture(autouse=True)
def _ends_at_once() -> Iterator[None]:
    """Interrupt a test that waits for the other end of a pipe."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError("a pipe was opened")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is not measured yet, beside its study and its two shards."""
    folder = tmp_path_factory.mktemp("received")
    (folder / "study.yaml").write_text(STUDY)
    study = Study.load(folder / "study.yaml")
    run(study, folder / "run")
    for number in (1, 2):
        call("run", folder / "study.yaml", "--shard", f"{number}/2", "--out", folder / f"shard{number}")
    return folder


@pytest.fixture(scope="module")
def home(received: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the user owns: a sound run.db, a text and a pipe. Each test leaves it as it was."""
    folder = tmp_path_factory.mktemp("owned") / "home"
    shutil.copytree(received / "run", folder / "precious")
    (folder / "victim").write_bytes((received / "run" / "run.db").read_bytes())
    os.mkfifo(folder / "pipe")
    return folder


def contents(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else oct(path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
    }


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "link to a file": lambda path, home: path.symlink_to(home / "victim"),
    "link to a folder": lambda path, home: path.symlink_to(home / "precious"),
    "link to nothing": lambda path, home: path.symlink_to(home / "new"),
    "link to a pipe": lambda path, home: path.symlink_to(home / "pipe"),
    "link to a device": lambda path, home: path.symlink_to("/dev/null"),
    "link to itself": lambda path, home: path.symlink_to(path.name),
    "hard link": lambda path, home: path.hardlink_to(home / "victim"),
    "pipe": lambda path, home: os.mkfifo(path),
    "folder": lambda path, home: path.mkdir(),
}
LINKS = [name for name in PLANTED if name.startswith("link")]


def plant(kind: str, path: Path, home: Path) -> None:
    """Put a thing at a path, in place of what is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    PLANTED[kind](path, home)


def tried(work: Callable[[], object]) -> str:
    """Return the error of some work, "" where it succeeds."""
    try:
        work()
    except (ValueError, OSError) as error:
        return str(error) or type(error).__name__
    return ""


def written(directory: Path) -> None:
    with Store(directory, "w") as store:
        store.put_info("touched", 1)


def hashed(directory: Path) -> None:
    with Store(directory) as store:
        content_hash(store)


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("name", ["run.lock", "run.db", "run.db-wal", "run.db-shm", "run.db-journal"])
@pytest.mark.parametrize("work", [hashed, written])
def test_files_of_a_store(
    received: Path, home: Path, tmp_path: Path, work: Callable[[Path], None], name: str, kind: str
) -> None:
    directory = shutil.copytree(received / "run", tmp_path / "run")
    plant(kind, directory / name, home)
    before = contents(home)
    said = tried(lambda: work(directory))
    assert contents(home) == before
    if name == "run.lock" and work is hashed:
        assert not said  # readers need no lock
    elif (name, kind) != ("run.db", "hard link") or work is written:
        assert name in said and ("must be a file of its own" in said or "must hold run.db" in said), said
    else:
        assert not said  # a copy of a folder may share its files with it, and reading changes none


def journal_naming(path: Path, victim: Path) -> bytes:
    """Return a journal of a transaction over several databases; SQLite removes the file it names after a rollback."""
    magic, octets = bytes.fromhex("d9d505f920a163d7"), path.read_bytes()
    size = int.from_bytes(octets[16:18], "big")
    head = magic + struct.pack(">5I", 0, 0, len(octets) // size, 512, size)
    name = str(victim).encode()
    return (
        head.ljust(512, b"\0")
        + struct.pack(">I", 2**30 // size + 1)
        + name
        + struct.pack(">II", len(name), sum(name))
        + magic
    )


def test_a_journal_that_names_a_file_elsewhere_removes_nothing(received: Path, home: Path, tmp_path: Path) -> None:
    def make(name: str) -> Path:
        directory = shutil.copytree(received / "run", tmp_path / name)
        with closing(sqlite3.connect(directory / "run.db")) as database:
            database.execute("PRAGMA journal_mode = DELETE")
        (directory / "run.db-journal").write_bytes(journal_naming(directory / "run.db", home / "victim"))
        return directory

    directory, before = make("run"), contents(home)
    for work in (hashed, written, lambda path: subject_of(str(path)), lambda path: repair(path, write=True)):
        assert "run.db-journal must be the journal of one database" in tried(lambda work=work: work(directory))
        assert contents(home) == before and (directory / "run.db-journal").exists()
    with closing(sqlite3.connect(make("plain") / "run.db")) as database:
        database.execute("SELECT * FROM sqlite_schema")
    assert not (home / "victim").exists()  # SQLite itself removes it
    (home / "victim").write_bytes((received / "run" / "run.db").read_bytes())  # for other tests


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((".run-new-repair", kind) for kind in PLANTED),
        *(
            (name, kind)
            for name in (".run-new-x", ".wal-probe-x", "run.db.damaged")
            for kind in ("link to a folder", "link to a pipe", "hard link", "pipe")
        ),
    ],
)
def test_folders_of_a_start_and_of_a_repair(received: Path, home: Path, tmp_path: Path, name: str, kind: str) -> None:
    directory = shutil.copytree(received / "run", tmp_path / "run")
    plant(kind, directory / name, home)
    before = contents(home)
    tried(lambda: written(directory))
    with Store(directory, "w") as store, store.transaction() as database:
        database.execute("UPDATE agents SET name = 'best' WHERE name = 'optimal'")
    said = tried(lambda: repair(directory, write=True))
    assert contents(home) == before
    assert not said or name in said, said


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("work", ["merge", "grow"])
def test_folders_of_a_run_that_is_merged_or_grows(
    received: Path, home: Path, tmp_path: Path, work: str, kind: str
) -> None:
    directory, shards = tmp_path / "out", [received / "shard1", received / "shard2"]
    place = tmp_path / ".out.merging"
    if work == "grow":
        shutil.copytree(received / "run", directory)
        shutil.rmtree(directory / "activations", ignore_errors=True)
        place = directory / "activations"
    plant(kind, place, home)
    before = contents(home)
    if work == "merge":
        said = tried(lambda: merge(shards, directory))
    else:
        changed = {**Study.load(received / "study.yaml").dump(), "trajectories": 7}
        with Store(directory, "w") as store:
            said = tried(lambda: grow(store, Study.parse(changed)))
    assert contents(home) == before
    assert not said or place.name in said, said
    if kind in LINKS:
        assert "link" in said


TABLE = Table(headings=("a",), rows=(("b",),))


def _episodes(received: Path) -> Iterator[Any]:
    with Store(received / "run") as store:
        yield from list(store.episodes())


def _tables(received: Path, folder: Path) -> None:
    with Store(received / "run") as store:
        export_parquet(store, folder)


OUTPUTS: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "page": ("report.html", lambda received, folder: write_page(folder / "report.html", "page")),
    "text": ("result.json", lambda received, folder: NamedFile(folder / "result.json").save_text("{}")),
    "table": ("table.csv", lambda received, folder: write(TABLE, folder / "table.csv")),
    "tables": ("one.tex", lambda received, folder: write_all({"one": TABLE}, folder)),
    "parquet": ("episodes.parquet", _tables),
    "json lines": (
        "log.jsonl",
        lambda received, folder: write_jsonl(_episodes(received), folder / "log.jsonl"),
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("what", OUTPUTS)
def test_results_that_are_written(
    received: Path, home: Path, tmp_path: Path, what: str, partial: bool, kind: str
) -> None:
    name, work = OUTPUTS[what]
    (tmp_path / "out").mkdir()
    place = tmp_path / "out" / (f".{name}.partial" if partial else name)
    plant(kind, place, home)
    before = contents(home)
    said = tried(lambda: work(received, tmp_path / "out"))
    assert contents(home) == before
    assert not said or name in said, said
    if not said:
        result = tmp_path / "out" / name
        assert result.is_file() and not result.is_symlink() and result.stat().st_size
        assert not os.path.lexists(tmp_path / "out" / f".{name}.partial")


def test_what_a_user_names_may_be_a_link(received: Path, tmp_path: Path) -> None:
    shutil.copytree(received / "run", tmp_path / "data" / "run")
    (tmp_path / "runs").symlink_to("data")
    (tmp_path / "latest").symlink_to("data/run")
    for directory in (tmp_path / "runs" / "run", tmp_path / "latest"):
        written(directory)
        hashed(directory)
        write_page(directory / "report.html", "page")
    assert (tmp_path / "data" / "run" / "report.html").read_text() == "page"
    NamedFile("/dev/null").save_text("text")
    assert Path("/dev/null").is_char_device()


def test_a_lock_that_is_exchanged_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the file that is open, not the one that was looked at."""
    (tmp_path / "victim").write_text("gold")
    opened = os.open

    def exchange(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("run.lock"):
            (tmp_path / "run.lock").unlink(missing_ok=True)
            (tmp_path / "run.lock").hardlink_to(tmp_path / "victim")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", exchange)
    with pytest.raises(UntrustedError, match=r"run\.lock.*2 names"):
        DirectoryLock(tmp_path)
    assert (tmp_path / "victim").read_text() == "gold"


@pytest.mark.parametrize("below", ["../victim", "/etc/passwd", "folder/../../victim", "link/file"])
def test_a_path_in_a_directory_stays_in_it(tmp_path: Path, below: str) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(UntrustedError, match="inside"):
        Folder(tmp_path).file(below)
    (tmp_path / "elsewhere").mkdir()
    assert Folder(tmp_path / "link").file("file") == tmp_path / "link" / "file"


@pytest.mark.parametrize(
    "number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO, errno.EACCES, errno.ESTALE]
)
def test_locks_that_fail_as_on_network_file_systems(
    received: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    directory = shutil.copytree(received / "run", tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError(number, os.strerror(number))))
        assert "must lie on a file system with locks" in tried(lambda: written(directory))
        hashed(directory)  # readers need no lock
    written(directory)


# Evaluations


@pytest.mark.parametrize("name", ["evaluation.json", "ledger.json", "arms", "arms/grids", "arms/grids/run.db"])
@pytest.mark.parametrize("kind", LINKS)
def test_parts_of_an_evaluation(home: Path, tmp_path: Path, name: str, kind: str) -> None:
    directory = tmp_path / "evaluation"
    prepare(directory, [subject_of("optimal")], {"grids": 1}, seed=7)
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    plant(kind, directory / name, home)
    before = contents(home)

    def work() -> None:
        evaluation = prepare(directory, [subject_of("optimal")], {"grids": 1}, seed=7)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("goalscope.verdict.playing.run", lambda study, store, **_: None)
            patch.setattr("goalscope.verdict.playing._measure", lambda *_: None)
            play(evaluation, quiet)
        judging.reopen(directory)

    said = tried(work)
    assert name in said and "link" in said, said
    assert contents(home) == before
    if name == "ledger.json":
        assert "link" in call("ledger", directory, status=2)


@pytest.mark.parametrize("kind", LINKS)
def test_a_run_deep_in_an_evaluation_is_looked_at_before_anything_is_said(
    received: Path, home: Path, tmp_path: Path, kind: str
) -> None:
    directory = tmp_path / "evaluation"
    prepare(directory, [subject_of("optimal")], {"grids": 1}, seed=7)
    for name in ("grids", "keys-2"):
        shutil.copytree(received / "run", directory / "arms" / name)
        plant(kind, directory / "arms" / name / "run.db", home)
        before = contents(home)
        said = call("evaluate", "optimal", "--quick", "--out", directory, status=2)
        assert f"{name}/run.db" in "".join(said.split()) and "budget" not in said and "What is asked" not in said
        assert "run.db" in tried(lambda: judging.reopen(directory)) and contents(home) == before
        shutil.rmtree(directory / "arms" / name)


@pytest.mark.parametrize("name", ["..", ".", "", "../run", "/etc", "a/..", "linked", 3, None])
def test_the_logs_of_an_evaluation_lie_beside_it_under_a_plain_name(
    received: Path, tmp_path: Path, name: object
) -> None:
    """Its ledger names them: nothing above it and nothing behind a link is read."""
    out, logs = tmp_path / "folder" / "verdict", tmp_path / "folder" / "logs"
    shutil.copytree(received / "run", logs)
    (tmp_path / "folder" / "linked").symlink_to("logs")
    for each in (tmp_path, tmp_path / "folder"):
        shutil.copy(received / "run" / "run.db", each / "run.db")
    subject = Subject(name="optimal", kind="", access=frozenset({"logs"}), logs=logs)
    prepare(out, [subject], {}, seed=7)

    def judged(folder: object) -> None:
        described = write_yaml({"kind": "", "run": folder, "agent": "optimal"}, default_flow_style=True).strip()
        fields: dict[str, Any] = {"rules": RULES, "access": ("logs",), "look": 1, "level": 0.05}
        ledger = ClaimLedger(model="optimal", described=described, arms=(), claims=(), **fields)
        origin = Origin(goalscope="0", seed=7, plan=Plan.read(out / "evaluation.json").id)
        (out / "ledger.json").write_text(Evaluation(models=(ledger,), differences=(), origin=origin).to_json())

    judged("logs")
    assert judging.reopen(out)[0].logs == [logs.resolve()]
    judged(name)
    said = tried(lambda: judging.reopen(out))
    assert "ledger.json must name the folder of the logs" in said or "link" in said


# Folders of logs


@pytest.mark.parametrize("kind", ["link to a file", "link to a folder", "link to a pipe", "link to nothing", "pipe"])
def test_links_in_a_folder_of_logs(received: Path, tmp_path: Path, kind: str) -> None:
    owned = tmp_path / "owned"
    for path in (owned / "victim", owned / "precious" / "secret.jsonl", tmp_path / "logs" / "own.jsonl"):
        path.parent.mkdir(exist_ok=True)
        write_jsonl(_episodes(received), path)
    os.mkfifo(owned / "pipe")
    plant(kind, tmp_path / "logs" / "planted.jsonl", owned)
    result = import_path(tmp_path / "logs")
    assert len(list(result.episodes)) == 4
    assert ["planted.jsonl" in str(problem) for problem in result.problems] == [True]


# Commands


COMMANDS: dict[str, tuple[object, ...]] = {
    "show": ("show", "RUN"),
    "verify": ("verify", "RUN"),
    "measure": ("measure", "RUN"),
    "compare": ("compare", "RUN", "OTHER"),
    "report": ("report", "RUN"),
    "figure": ("figure", "RUN", "--list"),
    "export": ("export", "RUN", "--out", "OUT"),
    "meg": ("meg", "RUN"),
    "run": ("run", "STUDY", "--out", "RUN"),
    "merge": ("merge", "OUT", "RUN", "OTHER"),
    "import": ("import", "LOG", "--out", "RUN"),
    "score": ("score", "LOG", "--report", "RUN"),
    "doctor": ("doctor", "RUN"),
    "doctor --repair": ("doctor", "RUN", "--repair"),
    "capture": ("capture", "RUN", "--model", "theseus"),
    "probe": ("probe", "RUN"),
    "patch": ("patch", "RUN", "--model", "theseus"),
    "evaluate": ("evaluate", "RUN", "--out", "OUT"),
}
LOCKING = ("measure", "compare", "report", "figure", "meg", "run", "doctor", "doctor --repair")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["run.lock", "run.db", "run.db-wal"])
def test_every_command(received: Path, home: Path, tmp_path: Path, command: str, name: str) -> None:
    directory = shutil.copytree(received / "run", tmp_path / "run")
    write_jsonl(_episodes(received), tmp_path / "log.jsonl")
    plant("link to a file", directory / name, home)
    paths = {
        "RUN": directory,
        "OTHER": shutil.copytree(received / "run", tmp_path / "other"),
        "OUT": tmp_path / "out",
        "STUDY": received / "study.yaml",
        "LOG": tmp_path / "log.jsonl",
    }
    before = contents(home)
    words = [str(paths.get(str(word), word)) for word in COMMANDS[command]]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "400"})
    assert contents(home) == before
    assert "Traceback" not in result.output and isinstance(result.exception, SystemExit | None), result.output
    if name != "run.lock" or command in LOCKING:
        assert result.exit_code == 2, result.output
        assert f"{name} must be a file of its own, got a link to" in " ".join(result.output.split()), result.output
