"""A killed capture goes on and ends with the same bytes; memory does not grow with the run."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from killed_captures import ARGUMENTS
from replays import GRIDS, local, record
from test_capture import digests

from contents import hash_of
from goalscope.inside.activations import Capture, capture, captures, load_activations

HERE = Path(__file__).parent


def finished(tmp_path: Path) -> tuple[Path, Path, Capture]:
    """A run, and a copy of it whose capture was never interrupted."""
    model = local("gpt_oss")
    bare = record(tmp_path / "bare", model)
    shutil.copytree(bare, tmp_path / "whole")
    done = capture(tmp_path / "whole", model, **ARGUMENTS)
    assert len(digests(tmp_path / "whole")) > 4
    return bare, tmp_path / "whole", done


def kill_at(bare: Path, numbers: Sequence[int]) -> list[bool]:
    """Kill captures of copies of a run at these events; return which were killed."""
    tasks = []
    for number in numbers:
        directory = shutil.copytree(bare, bare.with_name(f"killed-{number}"))
        tasks.append(json.dumps({"directory": str(directory), "number": number}))
    result = subprocess.run(
        [sys.executable, str(HERE / "killed_captures.py")],
        input="\n".join(tasks),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.split()]


@pytest.mark.full
def test_a_capture_killed_at_any_event_goes_on_to_identical_files(tmp_path: Path) -> None:
    bare, whole, done = finished(tmp_path)
    expected, content = digests(whole), hash_of(whole)
    assert kill_at(bare, [-1]) == [False]
    events = int((tmp_path / "killed--1.passed").read_text())
    numbers = range(1, events + 1, max(1, events // 150))
    assert kill_at(bare, numbers) == [True] * len(numbers)
    model, half = local("gpt_oss"), 0
    for number in numbers:
        directory = tmp_path / f"killed-{number}"
        left = digests(directory)
        half += 0 < len(left) < len(expected)
        for name, digest in left.items():  # a file under its own name is whole, whenever the process died
            assert name.endswith(".partial") or expected[name] == digest
        if any(not one.complete for one in captures(directory)):
            with pytest.raises(ValueError, match="complete"):
                load_activations(directory, site="pre", layer=0)
        assert capture(directory, model, **ARGUMENTS) == done
        assert digests(directory) == expected
        assert hash_of(directory) == content
    assert events > 150 and half > 20


def test_an_interrupted_capture_goes_on(tmp_path: Path) -> None:
    _, whole, done = finished(tmp_path)
    model = local("gpt_oss")
    calls = []

    def stop(steps: int, total: int) -> None:
        calls.append((steps, total))
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture(tmp_path / "bare", model, progress=stop, **ARGUMENTS)
    assert 0 < len(digests(tmp_path / "bare")) < len(digests(whole))
    assert capture(tmp_path / "bare", model, **ARGUMENTS) == done
    assert digests(tmp_path / "bare") == digests(whole) and hash_of(tmp_path / "bare") == hash_of(whole)
    assert calls == sorted(calls) and calls[0][1] == 24


# The peak that the operating system keeps is inherited from the parent process: memory in use is sampled instead.
_MEASURE = """
import resource, sys, threading, tracemalloc
sys.path[:0] = {paths!r}
from pathlib import Path
from replays import local
from goalscope.inside.activations import CaptureSettings, capture, stream_activations

def in_use():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024

def sample():
    while not over.wait(0.002):  # a list of all samples would be memory, too, and the more the slower the machine
        seen[:] = max(seen[0], in_use()), seen[1] + 1

model = local("llama")
settings = CaptureSettings(window=200, shard_bytes=200_000)
capture(sys.argv[1], model, sites=["pre", "post", "grid"], layers=[0], settings=settings)
before, seen, over = in_use(), [0, 0], threading.Event()
watcher = threading.Thread(target=sample)
watcher.start()
tracemalloc.start()
done = capture(sys.argv[2], model, sites=["pre", "post", "grid"], layers=[0, 1, 2], settings=settings)
pieces = sum(len(piece) for piece in stream_activations(sys.argv[2], site="grid", layer=1))
over.set()
watcher.join()
print(done.captured, pieces, seen[0] - before, seen[1], tracemalloc.get_traced_memory()[1] // 1024)
"""


@pytest.mark.full
def test_peak_memory_does_not_grow_with_the_number_of_steps(tmp_path: Path) -> None:
    model = local("llama")
    record(tmp_path / "warm", model, grids=GRIDS[:1])
    grown = {}
    for trajectories in (240, 720):  # both fill the pages of the store and the windows of the plan
        directory = record(tmp_path / str(trajectories), model, trajectories=trajectories, steps=10)
        code = _MEASURE.format(paths=[str(HERE), str(HERE.parent / "models")])
        result = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "warm"), str(directory)],
            capture_output=True,
            text=True,
            check=True,
        )
        captured, pieces, kilobytes, samples, traced = map(int, result.stdout.split())
        assert samples > 100 and captured == pieces == 3 * trajectories * 10
        grown[captured] = (kilobytes, traced)
        size = sum(path.stat().st_size for path in (directory / "activations").rglob("*.safetensors"))
    (few, small), (many, large) = grown.items()
    for what, at in (("in use by the process, above the loaded model", 0), ("allocated by Python and numpy", 1)):
        sys.stdout.write(f"peak memory {what}: {small[at]} kB at {few} steps, {large[at]} kB at {many} steps\n")
    assert size > 180e6
    # A step has 10 kB of activations; what threads hold at the same moment differs from run to run by less than 1 MB.
    assert large[1] - small[1] < (many - few) * 100 / 1024
    # An allocator keeps for a while what it was given back; what was written would show many times over if kept.
    assert large[0] - small[0] < size / 1024 / 16
