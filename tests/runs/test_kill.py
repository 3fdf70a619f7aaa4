import atexit
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from run_agents import Dice, requests, small_study

from contents import hash_of
from goalscope.agents import Optimal
from goalscope.runs import RunSummary, Store, run

SCRIPT = Path(__file__).with_name("killed_runs.py")


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)


@cache
def killer() -> subprocess.Popen[str]:
    """The process that forks those that are to be killed: one for all tests, as its imports take seconds."""
    process = start("kill", env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})

    def end() -> None:
        process.kill()  # between two calls it only waits
        process.communicate()

    atexit.register(end)
    return process


def kill_at(tasks: list[dict[str, Any]]) -> list[int]:
    """Run each task in a process that kills itself; return how the processes ended. None may be stuck."""
    process = killer()
    assert process.stdin is not None and process.stdout is not None
    stuck = threading.Timer(1800, process.kill)
    stuck.daemon = True
    stuck.start()
    ended = []
    for task in tasks:
        process.stdin.write(f"{json.dumps(task)}\n")
        process.stdin.flush()
        ended.append(int(process.stdout.readline()))
    stuck.cancel()
    return ended


def resume(directory: Path, log: Path) -> RunSummary:
    return run(small_study(), directory, agents=[Dice(log=log), Optimal()], batch=5)


def check_resumed(directory: Path, first: Path, second: Path, expected: str, at_most_lost: int = 1) -> RunSummary:
    """Resume a run that was killed, and check that it ends like one that was not, with nothing asked twice."""
    answered: set[str] = set()
    if (directory / "run.db").exists():
        with Store(directory, "w") as store:
            done = store.query("SELECT episode_id, step, attempt FROM calls WHERE state = 'done'")
            answered = {f"{episode} {step} {attempt}" for episode, step, attempt in done}
            stored = store.episode_ids()
    else:
        stored = set()
    summary = resume(directory, second)
    assert summary.reused == len(stored)
    asked_before, asked_now = requests(first), requests(second)
    assert not answered & set(asked_now)
    assert len(set(asked_now)) == len(asked_now)
    twice = set(asked_before) & set(asked_now)
    assert len(twice) <= summary.lost <= at_most_lost
    assert hash_of(directory) == expected
    return summary


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, int]]:
    """Hash of a run that nobody disturbs, and how many points of each kind it passes."""
    folder = tmp_path_factory.mktemp("whole")
    faults = ("statement", "answer", "journalled")
    tasks = [
        {"directory": str(folder / fault), "log": str(folder / f"{fault}.log"), "fault": fault, "number": -1}
        for fault in faults
    ]
    assert kill_at(tasks) == [0, 0, 0]
    hashes = {hash_of(folder / fault) for fault in faults}
    assert len(hashes) == 1
    return hashes.pop(), {fault: int((folder / fault / "passed").read_text()) for fault in faults}


def test_a_run_killed_at_random_points_resumes_to_the_same_store(
    whole: tuple[str, dict[str, int]], tmp_path: Path
) -> None:
    expected, points = whole
    assert points["statement"] > 100 and points["answer"] > 20
    draw = random.Random(7)
    faults = ["statement"] * 4 + ["answer"] * 2 + ["journalled"] * 2
    tasks = [
        {
            "directory": str(tmp_path / str(index)),
            "log": str(tmp_path / f"{index}.log"),
            "fault": fault,
            "number": draw.randint(1, points[fault]),
        }
        for index, fault in enumerate(faults)
    ]
    assert kill_at(tasks) == [-signal.SIGKILL] * len(tasks)
    summaries = [
        check_resumed(tmp_path / str(index), tmp_path / f"{index}.log", tmp_path / f"{index}.again", expected)
        for index in range(len(tasks))
    ]
    # A request that went out and was never answered is counted; one that was committed is not.
    assert [summary.lost for summary in summaries[4:6]] == [1] * 2
    assert [summary.lost for summary in summaries[6:]] == [0] * 2
    assert all(summary.replayed > 0 for summary in summaries[6:] if summary.reused < 6)


@pytest.mark.full
def test_a_run_killed_at_every_statement_resumes_to_the_same_store(
    whole: tuple[str, dict[str, int]], tmp_path: Path
) -> None:
    expected, points = whole
    cases = [(fault, number) for fault in points for number in range(1, points[fault] + 1)]
    tasks = [
        {"directory": str(tmp_path / str(i)), "log": str(tmp_path / f"{i}.log"), "fault": fault, "number": number}
        for i, (fault, number) in enumerate(cases)
    ]
    assert set(kill_at(tasks)) == {-signal.SIGKILL}
    for index in range(len(tasks)):
        check_resumed(tmp_path / str(index), tmp_path / f"{index}.log", tmp_path / f"{index}.again", expected)


def wait_for_requests(log: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while len(requests(log)) < count:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.full
def test_a_run_killed_from_outside_resumes_to_the_same_store(whole: tuple[str, dict[str, int]], tmp_path: Path) -> None:
    draw = random.Random(11)
    for index in range(3):
        directory, log = tmp_path / str(index), tmp_path / f"{index}.log"
        process = start("slow", str(directory), str(log), "0.005")
        wait_for_requests(log, draw.randint(1, 30), process)
        process.kill()
        process.communicate()
        check_resumed(directory, log, tmp_path / f"{index}.again", whole[0])


def test_ctrl_c_stores_what_is_finished_and_says_how_to_go_on(
    whole: tuple[str, dict[str, int]], tmp_path: Path
) -> None:
    directory, log = tmp_path / "run", tmp_path / "log"
    process = start("slow", str(directory), str(log), "0.02")
    wait_for_requests(log, 26, process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    with Store(directory) as store:
        finished = len(store.episode_ids())
        done = store.query("SELECT count(*) FROM calls WHERE state = 'done'")[0][0]
    assert 0 < finished < 12
    assert f"stopped with {finished} of 12 episodes stored" in out and "same directory to go on" in out
    assert done >= 25
    summary = check_resumed(directory, log, tmp_path / "again", whole[0])
    assert summary.reused == finished and summary.replayed == done - sum_of_calls(directory, finished, done)


def sum_of_calls(directory: Path, finished: int, done: int) -> int:
    """Return how many of the first calls belong to the episodes that were stored first."""
    with Store(directory) as store:
        rows = store.query(
            "SELECT count(*) FROM (SELECT episode_id FROM calls ORDER BY done LIMIT ?) WHERE episode_id IN "
            "(SELECT id FROM episodes ORDER BY number LIMIT ?)",
            (done, finished),
        )
    return int(rows[0][0])


def test_a_second_process_is_refused_by_name(tmp_path: Path) -> None:
    with Store(tmp_path, "w"):
        process = start("refused", str(tmp_path))
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 3
        assert f"process {os.getpid()} " in out and f"writing to {tmp_path}" in out
        with pytest.raises(BlockingIOError, match="process"):
            Store(tmp_path, "w")
    assert run(small_study(), tmp_path).episodes == 6


def test_a_lock_does_not_outlive_its_process_in_a_forked_child(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        store = Store(tmp_path, "w")
        if os.fork() == 0:
            os.write(writing, str(os.getpid()).encode())
            time.sleep(20)
            os._exit(0)
        time.sleep(20)
        store.close()
        os._exit(0)
    os.close(writing)
    orphan = int(os.read(reading, 32))
    os.close(reading)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        Store(tmp_path, "w").close()
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_a_finished_store_can_be_read_where_nothing_can_be_written() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        run(small_study(), folder)
        process = start("read-only", str(folder))
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "6\n")
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
