"""Interrupted runs lose no answer that arrived and ask for none twice, whenever the interrupt comes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from determinism import MARGIN
from stopped_runs import MODES, interrupted


def stopped(mode: str, moments: int = 0) -> dict[str, Any]:
    """What a process that was interrupted says of its run."""
    here = Path(__file__).parent
    words = [sys.executable, str(here / "stopped_runs.py"), mode, str(moments)]
    environment = {**os.environ, "PYTHONPATH": str(here), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=500)
    assert process.returncode == 0, process.stderr
    found: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return found


def check(found: dict[str, Any], moments: int) -> None:
    assert found["stops"] == moments and not found["lost"]
    assert found["said"] == found["kept"] == moments * 2 * 5 and not found["twice"] and found["same answers"]
    assert found["equal"] or found["mode"] == "likelihood"
    assert found["furthest"] <= MARGIN  # the last bits of a likelihood depend on what is asked in the same call


def test_interrupts_lose_no_answer_of_a_local_model(tmp_path: Path) -> None:
    """In this process: to start another one and to import PyTorch there takes ten times as long as the run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        found = interrupted("generated", tmp_path, 2)
    except KeyboardInterrupt:
        pytest.fail("an interrupt came when no run was going on")
    finally:
        signal.signal(signal.SIGINT, before)
    check(json.loads(json.dumps(found)), 2)


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_interrupts_at_twenty_moments_lose_no_answer(mode: str) -> None:
    check(stopped(mode, 20), 20)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["gone", "silent"])
def test_an_interrupt_ends_a_run_whose_server_stopped_and_loses_no_answer(kind: str) -> None:
    found = stopped(kind)
    assert not found["lost"] and found["said"] <= found["before"] and found["kept"] == 60
    assert found["replayed"] > 0 and found["waited"] < 100.0  # seconds; one request would take 600
    assert f"all answers that arrived ({found['before']} now)" in found["message"]
