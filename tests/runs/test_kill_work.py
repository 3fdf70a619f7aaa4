"""Work on a run that is ended anywhere (killed, terminated, Ctrl-C twice) is done by the same command once more."""

import random
import shutil
import signal
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from killed_runs import report
from run_agents import small_study
from test_kill import check_resumed, hash_of, kill_at

from goalscope.cli.measuring import measure_run
from goalscope.runs import Store, run
from goalscope.runs.repair import repair

ENDS = {"kill": {-signal.SIGKILL}, "term": {-signal.SIGTERM}, "interrupt": {130, 0}}
"""How a process that was ended so may end: Ctrl-C may come too late, or while nothing can be raised."""


def finish(directory: Path, *, page: bool) -> None:
    """Do all work on a finished run, as far as it is not done."""
    repair(directory, write=True)
    measure_run(directory)
    if page:
        report(directory)


_TOGETHER = 40  # tasks of one process that forks


def damage(directory: Path) -> None:
    with sqlite3.connect(directory / "run.db") as database:
        database.execute("UPDATE steps SET col = 6 - col WHERE episode = 2")
        database.execute("UPDATE rows SET value = value + 1 WHERE number = 3")
    database.close()


def prepared(folder: Path, works: Sequence[str]) -> dict[str, Any]:
    """What each work begins with, hash and page of the finished run, and the number of statements of each work."""
    run(small_study(), folder / "run")
    shutil.copytree(folder / "run", folder / "measured")
    measure_run(folder / "measured")
    shutil.copytree(folder / "measured", folder / "damaged")
    damage(folder / "damaged")
    found: dict[str, Any] = {"hash": hash_of(folder / "measured"), "page": b""}
    if "report" in works:
        shutil.copytree(folder / "measured", folder / "whole")
        report(folder / "whole")
        found["page"] = (folder / "whole" / "report.html").read_bytes()
    names = {"measure": "run", "report": "measured", "repair": "damaged"}
    begin = {work: folder / names[work] if work in names else None for work in works}
    tasks = []
    for work, source in begin.items():
        place = folder / f"try-{work}"
        if source is not None:
            shutil.copytree(source, place)
        log = str(folder / f"{work}.log")
        tasks.append({"directory": str(place), "log": log, "fault": work, "number": -1, "how": "kill"})
    assert kill_at(tasks) == [0] * len(tasks)
    points = {work: int((folder / f"try-{work}" / "passed").read_text()) for work in works}
    assert all(number > 10 for number in points.values())
    return {**found, "dice": hash_of(folder / "try-statement"), "begin": begin, "points": points}


def attack(folder: Path, works: Sequence[str], points: int, seed: int) -> None:
    clean, draw = prepared(folder, works), random.Random(seed)
    for begun in range(0, points, _TOGETHER):
        attack_some(clean, folder, range(begun, min(begun + _TOGETHER, points)), draw)


def attack_some(clean: dict[str, Any], folder: Path, numbers: range, draw: random.Random) -> None:
    works, tasks = list(clean["points"]), list[dict[str, Any]]()
    for index in numbers:
        work, how = works[index % len(works)], list(ENDS)[index // len(works) % len(ENDS)]
        place = folder / str(index)
        if (source := clean["begin"][work]) is not None:
            shutil.copytree(source, place)
        number = draw.randint(1, clean["points"][work])
        log = str(folder / f"{index}.log")
        tasks.append({"directory": str(place), "log": log, "fault": work, "number": number, "how": how})
    for task, ended in zip(tasks, kill_at(tasks), strict=True):
        assert ended in ENDS[task["how"]], task
        place = Path(task["directory"])
        if (page := place / "report.html").exists():
            assert page.read_bytes() == clean["page"], "a page is there whole or not at all"
        if task["fault"] == "statement":
            check_resumed(place, Path(task["log"]), place.with_suffix(".again"), clean["dice"])
        else:
            finish(place, page=task["fault"] == "report")
            assert hash_of(place) == clean["hash"], task
            assert not page.exists() or page.read_bytes() == clean["page"], task
        with Store(place) as store:
            assert store.query("PRAGMA integrity_check") == [("ok",)]
        assert not list(place.glob(".run-new*")), task
        shutil.rmtree(place)


def test_work_that_is_ended_at_random_points_is_done_by_the_same_command(tmp_path: Path) -> None:
    attack(tmp_path, ("statement", "measure", "repair"), points=9, seed=1)


@pytest.mark.full
def test_work_that_is_ended_at_many_points_is_done_by_the_same_command(tmp_path: Path) -> None:
    attack(tmp_path, ("statement", "measure", "report", "repair"), points=500, seed=2)
