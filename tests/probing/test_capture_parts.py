"""A capture in parts, by several processes: the same files and the same index as of one."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from replays import local, record
from test_capture import digests

from command_line import call
from goalscope.inside.activations import CaptureSettings, artifacts, capture, captures
from goalscope.runs import Store, Study, StudyShard, content_hash, run

SMALL: dict[str, Any] = {
    "sites": ["pre", "grid"],
    "layers": [0, 1],
    "settings": CaptureSettings(window=3, shard_bytes=1),
}


def index(directory: Path) -> tuple[str, list[Any]]:
    with Store(directory) as store:
        return content_hash(store), list(artifacts(store, "activations"))


def test_the_parts_of_a_capture_make_the_capture(tmp_path: Path) -> None:
    bare = record(tmp_path / "bare", local("gpt_oss"))
    for name in ("whole", "parts"):
        shutil.copytree(bare, tmp_path / name)
    done = capture(tmp_path / "whole", local("gpt_oss"), **SMALL)
    expected = digests(tmp_path / "whole")
    assert len(expected) > 4
    folder = tmp_path / "parts" / done.path
    held = []
    for number in (3, 1, 2):
        begun = capture(tmp_path / "parts", local("gpt_oss"), shard=StudyShard(number, 3), **SMALL)
        held.append({path.name for path in folder.iterdir()})
        assert begun.id == done.id and not begun.complete
    assert len(held[0]) < len(held[1]) < len(held[2]) == len(expected)
    assert captures(tmp_path / "parts") == [] and not index(tmp_path / "parts")[1]
    # One that is damaged is computed again, the others are taken over as they are.
    damaged, *sound = sorted(folder.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x00\x01")
    before = {path: path.stat().st_ino for path in sound}
    with pytest.warns(UserWarning, match="computed again"):
        merged = capture(tmp_path / "parts", local("gpt_oss"), **SMALL)
    assert merged == done and digests(tmp_path / "parts") == expected
    assert index(tmp_path / "parts") == index(tmp_path / "whole")
    assert before == {path: path.stat().st_ino for path in sound}


def test_wrong_uses_of_parts_are_refused(tmp_path: Path) -> None:
    directory = record(tmp_path / "run", local())
    assert "--executor" in call("capture", directory, "--workers", "2", status=2)
    assert "--shard" in call("capture", directory, "--shard", "1/2", "--executor", "processes", status=2)
    assert "--executor ray" in call("capture", directory, "--executor", "processes", "--gpus", "1", status=2)


@pytest.mark.full
@pytest.mark.parametrize("executor", ["processes", "ray"])
def test_two_workers_make_the_capture_that_one_process_makes(tmp_path: Path, executor: str) -> None:
    if executor == "ray" and find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install '.[ray]'")
    study = {
        "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 3}],
        "agents": [{"kind": "chat", "model": "theseus", "max_tokens": 96}],
        "trajectories": 1,
        "horizon": {"steps": 3},
    }
    run(Study.parse(study), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    call("capture", tmp_path / "whole", "--batch-tokens", "128")
    command = [sys.executable, "-m", "goalscope", "capture", str(tmp_path / "parts"), "--batch-tokens", "128"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAY_AUTH_MODE": "disabled"}
    subprocess.run([*command, "--executor", executor, "--workers", "2"], check=True, env=environment, timeout=600)
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")
    assert index(tmp_path / "parts") == index(tmp_path / "whole")
