"""Probes whose fit is killed at any moment are those of a fit that nobody disturbed, and none is fitted twice."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from insides import recorded
from killed_probes import read_inside

from families import long_after
from goalscope.inside.probing import stored_probes
from goalscope.runs import Store, content_hash

SCRIPT = Path(__file__).with_name("killed_probes.py")


def kill_at(bare: Path, numbers: Sequence[int], *, files: bool = False) -> list[int]:
    """Kill readings of copies of a run before these events, or after these files; return how each process ended."""
    copies = [shutil.copytree(bare, bare.with_name(f"killed-{number}")) for number in numbers]
    tasks = [
        json.dumps({"directory": str(place), "number": at, "files": files})
        for place, at in zip(copies, numbers, strict=True)
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, input="\n".join(tasks), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def state(directory: Path) -> tuple[object, ...]:
    """The content hash of a run, its probes, and the bytes of all files beside run.db."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and not path.name.startswith("run.")]
    beside = {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    probes = sorted(str(key) for key, _ in stored_probes(directory))
    with Store(directory) as store:
        return content_hash(store), probes, beside


@pytest.mark.parametrize(
    ("kills", "files"),
    long_after(
        0, [(2, False), *(pytest.param(kills, kills is None, marks=pytest.mark.full) for kills in (110, None))], names=2
    ),
    ids=["2", "110", "after every probe"],
)
def test_probes_whose_fit_is_killed_are_those_of_a_fit_that_nobody_disturbed(
    tmp_path: Path, kills: int | None, files: bool
) -> None:
    bare, model, _ = recorded(tmp_path / "bare")
    assert kill_at(bare, [-1], files=files) == [0]
    whole = tmp_path / "killed--1"
    expected, events = state(whole), int((tmp_path / "killed--1.passed").read_text())
    every = read_inside(whole, model)
    assert every.fitted == 0 and every.reused > 2 and state(whole) == expected
    apart = max(1, events // (kills or events))
    numbers = range(max(1, apart // 2), events + 1, apart)
    assert kill_at(bare, numbers, files=files) == [-signal.SIGKILL] * len(numbers)
    kept = 0
    for number in numbers:
        place = tmp_path / f"killed-{number}"
        done = read_inside(place, model)
        assert done.fitted + done.reused == every.reused, number
        kept += done.reused > 0
        assert state(place) == expected, number
        shutil.rmtree(place)
    assert len(numbers) >= (kills or events) > 1 and kept > 0
