"""Captures, fits of probes and making organisms, killed: the same content afterwards, and nothing is done twice.

What was in flight may be done again: of a capture the file that was being written and the one that was computed
meanwhile, of probes one stack with its choice of a penalty, of organisms the one that learned.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / name) for name in ("probing", "models", "runs")]

from insides import recorded  # noqa: E402
from killed_work import WORKS  # noqa: E402
from replays import local, record  # noqa: E402

from goalscope.runs import Store, content_hash  # noqa: E402

KILLS: Final = 40
IN_FLIGHT: Final = {"capture": 2, "probe": 1, "organisms": 1}


def kill_at(work: str, bare: Path, numbers: Sequence[int], log: str = "log") -> list[int]:
    """Do a work in copies of a directory, killed before these events (-1: never); return how each ended."""
    tasks = []
    for number in numbers:
        place = bare.with_name(f"killed-{number}")
        if not place.exists():
            shutil.copytree(bare, place)
        tasks.append({"directory": str(place), "log": f"{place}.{log}", "number": -1 if log != "log" else number})
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_work.py"), work],
        input="\n".join(map(json.dumps, tasks)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def state(directory: Path) -> tuple[object, ...]:
    """The content of a run, and the bytes of all files beside its store: what a kill leaves behind would be there."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and not path.name.startswith("run.")]
    beside = {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    if not (directory / "run.db").exists():
        return ("", beside)
    with Store(directory) as store:
        return content_hash(store), beside


def units(path: Path) -> Counter[str]:
    """The units of work that a process began."""
    return Counter(path.read_text(encoding="utf-8").split("\n")[:-1]) if path.exists() else Counter()


@pytest.mark.full
@pytest.mark.parametrize("work", WORKS)
def test_killed_work_ends_with_the_same_content_and_repeats_what_was_in_flight_alone(work: str, tmp_path: Path) -> None:
    kills, bare = KILLS, tmp_path / "bare"
    if work == "organisms":
        bare.mkdir()
    else:
        recorded(bare) if work == "probe" else record(bare, local("gpt_oss"))
    assert kill_at(work, bare, [-1]) == [0]
    expected, whole = state(tmp_path / "killed--1"), units(tmp_path / "killed--1.log")
    events = int((tmp_path / "killed--1.passed").read_text())
    assert events > kills and len(whole) > 2
    # Points spread over the work: neither the first alone, where nothing is done, nor the last, where all is.
    numbers = [round((index + 0.5) * events / kills) + 1 for index in range(kills)]
    assert kill_at(work, bare, numbers) == [-signal.SIGKILL] * kills
    left = [state(tmp_path / f"killed-{number}") for number in numbers]
    assert kill_at(work, bare, numbers, log="again") == [0] * kills
    repeated = Counter[int]()
    for number in numbers:
        place = tmp_path / f"killed-{number}"
        assert state(place) == expected, number
        twice = units(Path(f"{place}.log")) + units(Path(f"{place}.again")) - whole
        repeated[len(twice)] += 1
        assert len(twice) <= IN_FLIGHT[work], (number, twice)
    assert len(set(map(str, left))) > min(kills, 5) / 2
    sys.stdout.write(
        f"{work}: {kills} kills among {events} events; units done again: {dict(sorted(repeated.items()))}\n"
    )
