"""A run directory is never stuck: run.db is there whole or not at all; what a start cut short left is taken over."""

import errno
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from run_agents import Dice, small_study
from test_kill import kill_at, start

from command_line import call
from families import long_after
from goalscope.agents import Observation, Turn
from goalscope.runs import Store, content_hash, opening, run
from goalscope.runs.runner import _Runner as Runner

STUDY = "name: small\nworlds: [{kind: grid, sizes: [5], densities: [0.5], count: 2}]\nagents: [{kind: optimal}]\n"


def nothing(folder: Path) -> None:
    folder.mkdir()


def empty(folder: Path) -> None:
    folder.mkdir()
    (folder / "run.db").touch()


def without_tables(folder: Path) -> None:
    """What a process leaves that dies while it makes the tables inside of the file: a log that was never committed."""
    folder.mkdir()
    aside = folder.with_name(f"{folder.name}-aside")
    aside.mkdir()
    connection = sqlite3.connect(aside / "run.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE info (value)")
    connection.executemany("INSERT INTO info VALUES (?)", [("x" * 4000,)] * 20)
    for path in aside.iterdir():
        shutil.copy(path, folder)
    connection.close()
    assert (folder / "run.db-wal").stat().st_size and (folder / "run.db-shm").exists()


LEFT = [nothing, empty, without_tables]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("left", long_after(1, LEFT))
def test_a_start_that_was_cut_short_is_taken_over(tmp_path: Path, left: Callable[[Path], None]) -> None:
    study, one = tmp_path / "study.yaml", tmp_path / "one"
    study.write_text(STUDY)
    left(one)
    with pytest.raises(FileNotFoundError, match=r"there is no run at|is empty"):
        Store(one)
    assert "run.db" in call("measure", one, status=2)
    call("run", study, "--out", one)
    call("measure", one)
    call("run", study, "--out", tmp_path / "other")
    with Store(one) as store, Store(tmp_path / "other") as other:
        assert store.query("PRAGMA journal_mode") == [("wal",)]
        assert store.query("PRAGMA integrity_check") == [("ok",)]
        assert store.episode_ids() == other.episode_ids() != set()


def foreign(folder: Path) -> None:
    """A database of another program that died with its last writes in the log."""
    folder.mkdir()
    aside = folder.with_name("aside")
    aside.mkdir()
    connection = sqlite3.connect(aside / "run.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE theirs (value)")
    for name in ("run.db", "run.db-wal"):
        shutil.copy(aside / name, folder)
    connection.close()


def marked(folder: Path) -> None:
    folder.mkdir()
    connection = sqlite3.connect(folder / "run.db")
    connection.execute("PRAGMA user_version = 6")
    connection.close()


def emptied(folder: Path) -> None:
    """All tables dropped: what they held may still be read out of the file."""
    folder.mkdir()
    connection = sqlite3.connect(folder / "run.db")
    connection.executescript("CREATE TABLE t (x); INSERT INTO t VALUES ('theirs'); DROP TABLE t")
    connection.close()


def text(folder: Path) -> None:
    folder.mkdir()
    (folder / "run.db").write_text("notes of mine")


def only_log(folder: Path) -> None:
    foreign(folder)
    (folder / "run.db").unlink()


def log_of_an_empty_file(folder: Path) -> None:
    foreign(folder)
    (folder / "run.db").write_bytes(b"")


@pytest.mark.parametrize("left", [foreign, marked, emptied, text, only_log, log_of_an_empty_file])
def test_what_another_program_wrote_is_refused_and_not_touched(tmp_path: Path, left: Callable[[Path], None]) -> None:
    left(tmp_path / "one")
    before = contents(tmp_path / "one")
    (tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(ValueError, match=r"not a run.db|not a SQLite file|missing or empty|is damaged|must be"):
        Store(tmp_path / "one", "w")
    shown = call("run", tmp_path / "study.yaml", "--out", tmp_path / "one", status=2)
    assert "run.db" in shown and "Traceback" not in shown
    after = contents(tmp_path / "one")
    after.pop("run.lock", None)
    after.pop("run.db-shm", None)  # made by whoever reads a log
    assert after == before


@pytest.mark.parametrize(
    ("left", "first", "every"), long_after(1, [(left, 1 + 2 * at, 6) for at, left in enumerate(LEFT)], names=3)
)
def test_a_start_killed_at_many_lines_leaves_nothing_in_the_way(
    tmp_path: Path, left: Callable[[Path], None], first: int, every: int
) -> None:
    check_killed(tmp_path, left, first, every)


@pytest.mark.full
@pytest.mark.parametrize("left", LEFT)
def test_a_start_killed_at_any_line_leaves_nothing_in_the_way(tmp_path: Path, left: Callable[[Path], None]) -> None:
    check_killed(tmp_path, left, 1, 1)


def check_killed(tmp_path: Path, left: Callable[[Path], None], first: int, every: int) -> None:
    def task(name: str, number: int) -> dict[str, Any]:
        left(tmp_path / name)
        return {"directory": str(tmp_path / name), "log": "", "fault": "making", "number": number}

    assert kill_at([task("whole", -1)]) == [0]
    lines = int((tmp_path / "whole" / "passed").read_text())
    assert lines > 40
    numbers = range(first, lines + 1, every)
    tasks = [task(str(number), number) for number in numbers]
    assert set(kill_at(tasks)) == {-signal.SIGKILL}
    found = 0
    for number in numbers:
        folder = tmp_path / str(number)
        if opening.unmade(folder / "run.db"):
            with pytest.raises(FileNotFoundError):
                Store(folder)
        else:
            found += 1
            with Store(folder) as store:
                assert store.episode_ids() == set()
        with Store(folder, "w") as store:
            assert store.query("PRAGMA integrity_check") == [("ok",)]
            assert store.info()["journal_mode"] == "write-ahead log"
        assert {path.name for path in folder.iterdir()} <= {"run.db", "run.db-wal", "run.db-shm", "run.lock"}
    assert 0 < found < len(numbers)


def no_room(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


CONNECT = sqlite3.connect


def full(path: Any, *arguments: Any, **options: Any) -> sqlite3.Connection:
    """A database that SQLite finds no room for after its second page."""
    connection: sqlite3.Connection = CONNECT(path, *arguments, **options)
    connection.execute("PRAGMA max_page_count = 2")
    return connection


FAULTS: list[tuple[str, Any, type[BaseException]]] = [
    ("sqlite3.connect", full, OSError),
    ("tempfile.mkdtemp", no_room, OSError),
    ("os.fsync", no_room, OSError),
    ("os.link", no_room, OSError),
    ("os.link", interrupted, KeyboardInterrupt),
    ("os.fsync", interrupted, KeyboardInterrupt),
]


@pytest.mark.parametrize(("name", "fault", "kind"), FAULTS)
@pytest.mark.parametrize("left", LEFT)
def test_a_full_disk_and_an_interrupt_leave_a_directory_that_can_be_used(
    tmp_path: Path, left: Callable[[Path], None], name: str, fault: Any, kind: type[BaseException]
) -> None:
    left(tmp_path / "one")
    if name == "os.link" and left is not nothing:
        name = "os.replace"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "wal_problem", lambda folder: None)
        patch.setattr(name, fault)
        with pytest.raises(kind) as caught:
            Store(tmp_path / "one", "w")
    if kind is OSError:
        assert "must have room to grow, but the disk is full" in str(caught.value)
    assert opening.unmade(tmp_path / "one" / "run.db") or fault is interrupted
    assert not list((tmp_path / "one").glob(".*"))
    assert run(small_study(), tmp_path / "one").episodes == 6


def test_where_a_disk_is_full_the_lock_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, *arguments: Any) -> None:
            self.file = os.fdopen(arguments[0], "r+b", buffering=0)
            self.fileno, self.read, self.close = self.file.fileno, self.file.read, self.file.close
            self.truncate, self.write = self.file.truncate, no_room

    with monkeypatch.context() as patch:
        patch.setattr("goalscope.runs.opening.FileIO", Full)
        with pytest.raises(OSError, match="writable"):
            Store(tmp_path, "w")
    Store(tmp_path, "w").close()


def test_a_file_system_without_links_gets_its_file_by_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("os.link", none)
    assert run(small_study(), tmp_path).episodes == 6


def test_a_store_that_another_put_there_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(small_study(), tmp_path / "other")
    with Store(tmp_path / "other") as store:
        expected = content_hash(store)
    link = os.link

    def late(source: str, target: str, **places: Any) -> None:
        shutil.copy(tmp_path / "other" / "run.db", tmp_path / "one" / target)
        link(source, target, **places)

    monkeypatch.setattr("os.link", late)
    with Store(tmp_path / "one", "w") as store:
        assert content_hash(store) == expected
    assert not list((tmp_path / "one").glob(".*"))


def test_of_two_that_start_at_the_same_moment_one_runs(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    rounds = 2
    process = start("together", str(tmp_path), str(rounds))
    process.communicate(timeout=120)
    assert process.returncode == 0
    for number in range(rounds):
        ends = [(tmp_path / f"{number}-{name}").read_text() for name in ("one", "two")]
        statuses = [end.split()[0] for end in ends]
        assert "0" in statuses and set(statuses) <= {"0", "2"}, ends
        for end in ends:
            assert end.startswith("0") or "already writing to" in end, end
        assert sum("20 episodes run" in end for end in ends) == 1, ends
        with Store(tmp_path / str(number)) as store:
            assert len(store.episode_ids()) == 20


class Slow(Dice):
    """So slow that progress is told about while it acts."""

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        time.sleep(0.02)
        return super().act(observations)


def renaming(folder: Path, to: Path) -> Callable[..., None]:
    """A listener to progress that renames the run directory when the first word of it comes."""

    def once(*_: Any) -> None:
        if folder.exists():
            folder.rename(to)

    return once


def test_a_directory_that_is_renamed_while_it_runs_holds_the_whole_run(tmp_path: Path) -> None:
    summary = run(small_study(), tmp_path / "clean")
    assert summary.directory == str(tmp_path / "clean")
    one, two = tmp_path / "one", tmp_path / "two"
    moved = run(small_study(trajectories=9), one, agents=[Slow()], progress=renaming(one, two), batch=3)
    assert moved.directory == str(two) and not one.exists()
    with Store(two) as store:
        assert len(store.episode_ids()) == moved.episodes == 18
    again = run(small_study(trajectories=9), two, agents=[Slow()])
    assert (again.episodes, again.reused) == (0, 18)


def test_the_command_says_where_a_renamed_run_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    flush = Runner._flush

    def renamed(runner: Runner) -> None:
        flush(runner)
        if (tmp_path / "one").exists():
            (tmp_path / "one").rename(tmp_path / "two")

    monkeypatch.setattr(Runner, "_flush", renamed)
    said = call("run", tmp_path / "study.yaml", "--out", tmp_path / "one")
    assert f"{tmp_path / 'one'} was renamed" in said and f"goalscope measure {tmp_path / 'two'}" in said


def test_a_directory_that_is_removed_while_it_runs_is_one_sentence(tmp_path: Path) -> None:
    def remove(*_: Any) -> None:
        shutil.rmtree(tmp_path / "one", ignore_errors=True)

    with pytest.raises((OSError, ValueError), match=r"renamed or removed|must be"):
        run(small_study(trajectories=9), tmp_path / "one", agents=[Slow()], progress=remove, batch=3)


@pytest.mark.parametrize(("begin", "named"), [(b"", "must be a journal"), (opening._JOURNAL, "cut short")])
def test_a_journal_beside_a_run_is_named_for_what_it_is_and_a_new_start_takes_a_real_one_back(
    tmp_path: Path, begin: bytes, named: str
) -> None:
    folder = tmp_path / "run"
    with Store(folder, "w"):
        pass
    before = (folder / "run.db").read_bytes()
    (folder / "run.db-journal").write_bytes(begin + b"strange" * 100)
    with pytest.raises(OSError, match="db-journal") as error, Store(folder):
        pass
    assert named in str(error.value) and "this place is read-only" not in str(error.value)
    assert (folder / "run.db").read_bytes() == before
    if begin:
        with Store(folder, "w"):
            pass
        with Store(folder) as store:
            assert store.episode_ids() == set()
