"""Evaluations killed at any moment end in the ledger of those that were not; a larger one repeats no call."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from killed_evaluations import evaluated
from server import Loopback, speaker

from goalscope.runs import Store
from goalscope.verdict import Evaluation
from goalscope.verdict.plan import LEDGER

SCRIPT = Path(__file__).with_name("killed_evaluations.py")
ONE: Sequence[str] = ("epsilon-greedy:epsilon=0.3",)
LOOKS: Sequence[Mapping[str, int]] = ({"keys": 1}, {"keys": 2})
FILES = {"arms", "keys", "evaluation.json", "ledger.json"}


def files(folder: Path) -> set[str]:
    """The names of all that an evaluation holds, but for what SQLite keeps."""
    return {path.name for path in folder.rglob("*") if not path.name.startswith("run.")}


def kill_at(tasks: Sequence[Mapping[str, Any]]) -> list[int]:
    """Run each task in a process that kills itself; return how the processes ended."""
    command, environment = [sys.executable, str(SCRIPT)], {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    lines = "".join(f"{json.dumps(task)}\n" for task in tasks)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def task(directory: Path, number: int, texts: Sequence[str] = ONE, fault: str = "event") -> dict[str, Any]:
    return {"directory": str(directory), "texts": texts, "looks": LOOKS, "fault": fault, "number": number}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """The ledger of an evaluation that nobody disturbs, and the number of events that it takes."""
    folder = tmp_path_factory.mktemp("evaluations") / "whole"
    assert kill_at([task(folder, -1)]) == [0]
    assert files(folder) == FILES
    return (folder / LEDGER).read_bytes(), int(Path(f"{folder}.passed").read_text())


def check_resumed(folder: Path, numbers: Sequence[int], expected: bytes) -> None:
    tasks = [task(folder / str(number), number) for number in numbers]
    assert kill_at(tasks) == [-signal.SIGKILL] * len(tasks)
    for one in tasks:
        path = evaluated(Path(one["directory"]), ONE, LOOKS)
        assert path.read_bytes() == expected, f"killed before event {one['number']}"
        assert files(Path(one["directory"])) == FILES, f"killed before event {one['number']}"


@pytest.mark.full
def test_an_evaluation_killed_at_a_hundred_moments_resumes_to_the_same_ledger(
    whole: tuple[bytes, int], tmp_path: Path
) -> None:
    expected, events = whole
    assert events > 200
    spread, ends = range(1, events + 1, max(1, events // 110)), (*range(1, 12), *range(events - 9, events + 1))
    check_resumed(tmp_path, sorted({*spread, *ends}), expected)


@pytest.mark.full
def test_a_larger_evaluation_of_a_model_behind_a_server_repeats_no_call(tmp_path: Path) -> None:
    # Before the first call, a check sends a prompt of about 6,700 tokens, which must fit into the context.
    with Loopback(speaker(positions=16_384)) as server:
        texts = (f"openai:speaker@{server.url}",)
        assert kill_at([task(tmp_path / "one", 5, texts, "answer")]) == [-signal.SIGKILL]
        evaluated(tmp_path / "one", texts, LOOKS[:1])
        first = len(server.log)
        evaluated(tmp_path / "one", texts, LOOKS)
        tags = [entry.tag for entry in server.log]
    with Store(tmp_path / "one" / "arms" / "keys") as store:
        calls = store.query("SELECT state, count(*), sum(lost) FROM calls GROUP BY state")
        steps = store.query("SELECT sum(length) FROM episodes")[0][0]
    # The fifth answer was committed before the process died: nothing was in flight, and no call was made twice.
    answers = [tag for tag in tags if not tag.startswith("check")]
    assert calls == [("done", len(answers), 0)] and len(set(answers)) == len(answers) >= steps > 0
    assert 0 < first < len(tags) and not any(tag.startswith("check") for tag in tags[first:])
    found = Evaluation.read(tmp_path / "one" / LEDGER).models[0]
    assert found.look == 2 and found.claims
    unasked = {one.name: one.why for one in found.arms if not one.asked}
    assert "weights" in unasked["inside"] and "larger --budget" in unasked["reasoning"]
