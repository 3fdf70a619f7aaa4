"""Work that is ended anywhere (killed, terminated, Ctrl-C twice) is done by the same command once more."""

import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from http_studies import check_nothing_twice, journalled, study, template
from killed_runs import SERVED, WORK
from run_agents import Dice, small_study
from server import Loopback, speaker
from test_kill import check_resumed, kill_at

from contents import hash_of
from goalscope.agents import Optimal
from goalscope.cli.measuring import measure_run
from goalscope.runs import Store, run
from stored_steps import steps_as_table

ENDS = {"kill": {-signal.SIGKILL}, "term": {-signal.SIGTERM}, "interrupt": {130, 0, -signal.SIGINT}}
"""How a process that was ended so may end: Ctrl-C may come too late, while nothing can be raised, or at the exit."""

_TOGETHER = 40  # tasks of one process that forks


def run_dice(directory: Path) -> None:
    run(small_study(), directory, agents=[Dice(), Optimal()])


def repaired(directory: Path) -> None:
    """Repair a run, and measure it: rows that are damaged are left out."""
    WORK["repair"](directory)
    measure_run(directory)


@dataclass(frozen=True)
class Work:
    """What is ended: the run that it begins with, none for one that makes its own, and what is done once more."""

    begin: str
    again: Callable[[Path], Any]


WORKS: Mapping[str, Work] = {
    "making": Work("", run_dice),
    **dict.fromkeys(("statement", "answer", "journalled"), Work("", run_dice)),
    **{name: Work("", WORK[name]) for name in ("local", "http")},
    "measure": Work("run", WORK["measure"]),
    "capture": Work("answered", WORK["capture"]),
    "report": Work("measured", WORK["report"]),
    "repair": Work("damaged", repaired),
}


def damage(directory: Path) -> None:
    with sqlite3.connect(directory / "run.db") as database:
        with steps_as_table(database):
            database.execute("UPDATE steps SET col = 6 - col WHERE episode = 2")
        database.execute("UPDATE row_groups SET data = substr(data, 2) WHERE number = 0")
    database.close()


def state(directory: Path) -> tuple[object, ...]:
    """The content hash of a run and the bytes of all files beside run.db, those that a kill leaves behind included."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    own = ("run.db", "run.lock", "passed")
    beside = {str(path.relative_to(directory)): path.read_bytes() for path in files if not path.name.startswith(own)}
    return hash_of(directory), beside


@dataclass
class Clean:
    """Work that nobody disturbed.

    Attributes:
        folder: where the runs lie that it begins with.
        server: behind which the model of some runs is.
        state: what each work ends with.
        points: how many points each passes at which it could be ended.
    """

    folder: Path
    server: Loopback
    state: dict[str, tuple[object, ...]]
    points: dict[str, int]

    def task(self, work: str, name: str, number: int, how: str) -> dict[str, Any]:
        """Put the run in place that a work begins with, and return where it is to be ended."""
        place = self.folder / name
        if begin := WORKS[work].begin:
            shutil.copytree(self.folder / begin, place)
        log = str(place.with_suffix(".log"))
        return {"directory": str(place), "log": log, "fault": work, "number": number, "how": how}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Clean]:
    """The works that the parameter names, done by nobody disturbed."""
    works: tuple[str, ...] = request.param
    folder = tmp_path_factory.mktemp("clean")
    with Loopback(speaker()) as server:
        (folder / SERVED).write_text(yaml.safe_dump(study(server.url, template(folder)).dump()), encoding="utf-8")
        run(small_study(), folder / "run")
        if "capture" in works:
            WORK["local"](folder / "answered")
        shutil.copytree(folder / "run", folder / "measured")
        measure_run(folder / "measured")
        shutil.copytree(folder / "measured", folder / "damaged")
        damage(folder / "damaged")
        found = Clean(folder, server, {}, {})
        tasks = {work: found.task(work, f"clean-{work}", -1, "kill") for work in works}
        assert kill_at(list(tasks.values())) == [0] * len(tasks)
        for work, task in tasks.items():
            place = Path(task["directory"])
            found.points[work] = int((place / "passed").read_text())
            WORKS[work].again(place)
            found.state[work] = state(place)
        assert all(number > 10 for number in found.points.values())
        assert found.state["repair"][0] == found.state["measure"][0] == hash_of(folder / "measured")
        assert len({found.state[work][0] for work in works if WORKS[work].again is run_dice}) <= 1
        yield found


@pytest.mark.parametrize(
    ("clean", "points"),
    [
        pytest.param(("measure", "report", "repair"), 6, id="6"),  # runs that are killed: see test_kill.py
        pytest.param(tuple(WORKS), 240, marks=pytest.mark.full, id="240"),
    ],
    indirect=["clean"],
)
def test_work_that_is_ended_at_random_points_is_done_by_the_same_command(clean: Clean, points: int) -> None:
    draw, ends, works = random.Random(points), list(ENDS), list(clean.points)
    for begun in range(0, points, _TOGETHER):
        tasks = []
        for index in range(begun, min(begun + _TOGETHER, points)):
            work, how = works[index % len(works)], ends[(index + index // len(works)) % len(ends)]
            tasks.append(clean.task(work, f"{points}-{index}", draw.randint(1, clean.points[work]), how))
        for task, ended in zip(tasks, kill_at(tasks), strict=True):
            # How many points threads pass depends a little on the clock: one that was drawn late may not be reached.
            passed = int((Path(task["directory"]) / "passed").read_text()) if ended == 0 else task["number"]
            late = 0.9 * clean.points[task["fault"]] < passed < task["number"]
            assert ended in ENDS[task["how"]] or late, task
            check_again(clean, task)
            shutil.rmtree(task["directory"])


def check_again(clean: Clean, task: dict[str, Any]) -> None:
    """Give the command once more that was ended, and check that it ends like one that was not."""
    place, work = Path(task["directory"]), task["fault"]
    expected = clean.state[work]
    if (page := place / "report.html").exists():
        assert expected[1] == {page.name: page.read_bytes()}, "a page is there whole or not at all"
    if work in ("statement", "answer", "journalled"):
        check_resumed(place, Path(task["log"]), place.with_suffix(".again"), str(expected[0]))
    else:
        before, since = journalled(place) if (place / "run.db").exists() else set(), len(clean.server.log)
        WORKS[work].again(place)
        check_nothing_twice(clean.server, before, since)
    assert state(place) == expected, task
    with Store(place) as store:
        assert store.query("PRAGMA integrity_check") == [("ok",)]
    assert not list(place.glob(".run-new*")), task
