"""The scanner in Inspect Scout and the hook in Inspect: three tasks, refusals, and every line of the page.

These need inspect-scout and, for cards, every-eval-ever (Python 3.12), in an environment of their own; see
tests/project/test_integrations.py.
"""

import gc
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goalscope.goals.monitor import Monitor
from goalscope.runs import Store, Study, run

pytest.importorskip("inspect_scout", reason="the extra scout is not installed")

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

PAGE = (Path(__file__).parents[2] / "docs" / "monitor.md").read_text(encoding="utf-8")
TWIN = {"kind": "hypothesis", "hypothesis": "corner top-left"}
SHORT = {
    "inspect eval": ["--limit", "2", "--display", "none"],
    "scout scan": ["--display", "none"],
    "goalscope evaluate": ["--arms", "keys"],
}
"""What is appended to commands of the page, so that they end soon."""
GRIDS = {
    "worlds": [{"kind": "grid", "sizes": [9], "densities": [0.3], "count": 2}],
    "agents": [{"kind": "optimal"}, TWIN],
    "horizon": {"steps": 60},
}
LEVELS = {
    "worlds": [{"kind": "minigrid", "levels": ["MiniGrid-Empty-8x8-v0", "MiniGrid-DoorKey-5x5-v0"], "seeds": [1]}],
    "agents": [{"kind": "environment-optimal"}, {"kind": "random"}],
    "horizon": {"steps": 80},
}


@pytest.fixture(autouse=True)
def _streams_are_collected_here() -> Iterator[None]:
    yield
    gc.collect()


def exported(folder: Path, study: dict[str, Any]) -> Path:
    """Return a folder with the logs of a study that was run."""
    from goalscope.integrations.inspect_ai.export import export_logs

    run(Study.parse({**study, "trajectories": 1}), folder / "run")
    with Store(folder / "run") as store:
        export_logs(store, folder / "logs")
    return folder / "logs"


def scanned(logs: Path, folder: Path, **settings: Any) -> list[dict[str, Any]]:
    """Return the results of the scanner, one per transcript."""
    from inspect_scout import scan, scan_results_df, transcripts_from

    from goalscope.integrations.inspect_ai.registry import monitor

    done = scan([monitor(**settings)], transcripts_from(str(logs)), scans=str(folder), display="none", max_processes=1)
    assert done.complete and not done.errors, done.errors
    rows: list[dict[str, Any]] = scan_results_df(done.location).scanners["monitor"].to_dict("records")
    for row in rows:
        row["value"] = None if row["explanation"] and row["answer"] == "refused" else _plain(row["value"])
        row["metadata"] = _plain(row["metadata"]) if row["value"] else None
    return rows


def _plain(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


@pytest.mark.parametrize("study", [GRIDS, LEVELS], ids=["grids", "minigrid"])
def test_a_log_of_ours_gives_what_the_monitor_says_of_its_episodes(study: dict[str, Any], tmp_path: Path) -> None:
    rows = scanned(exported(tmp_path, study), tmp_path / "scans")
    with Store(tmp_path / "run") as store:
        episodes = {(episode.world.id, episode.agent): episode for episode in store.episodes()}
    assert len(rows) == len(episodes) == 4
    alarms = set()
    for (world, agent), episode in episodes.items():
        monitor = Monitor.of_worlds([episode.world], "goal")
        readings = monitor.readings(episode)
        wanted = monitor.summary(readings)
        [row] = [row for row in rows if row["explanation"] == wanted["says"] and row["metadata"]["world"] == world][:1]
        assert row["value"] == {name: value for name, value in wanted.items() if name != "says"}
        assert row["metadata"]["steps"] == [reading.plain() for reading in readings]
        if wanted["alarm"] is not None:
            alarms.add(agent)
    assert alarms and alarms <= {"hypothesis(corner top-left)", "random"}


def test_a_foreign_log_is_refused_until_its_reader_says_where_the_agent_walks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foreign_mazes import optimal, walked

    walked(tmp_path / "logs", lambda sample, at, step: optimal(sample, at))
    rows = scanned(tmp_path / "logs", tmp_path / "refused")
    assert rows and all(row["answer"] == "refused" and "maze" in row["explanation"] for row in rows)
    monkeypatch.chdir(tmp_path)
    Path("walking.py").write_text(reader_of_the_page(), encoding="utf-8")
    rows = scanned(tmp_path / "logs", tmp_path / "read", reader="walking:episode")
    assert len(rows) == 6 and all(row["value"]["optimal"] == 1 and row["value"]["alarm"] is None for row in rows)


def reader_of_the_page() -> str:
    pages = PAGE, (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    scripts = [script for page in pages for script in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    [script] = [script for script in scripts if "walking.py" in script]
    return str(script)


def test_unknown_worlds_and_damaged_logs_are_refused_in_a_sentence(tmp_path: Path) -> None:
    foggy = {"worlds": [{**GRIDS["worlds"][0], "fog_radius": 1}], "agents": [{"kind": "random"}]}  # type: ignore[index]
    rows = scanned(exported(tmp_path, foggy), tmp_path / "scans")
    assert all(row["answer"] == "refused" and "fog" in row["explanation"] for row in rows)
    rows = scanned(tmp_path / "logs", tmp_path / "other", expected="key")
    assert all(row["answer"] == "refused" for row in rows)
    from goalscope.integrations.inspect_ai.registry import monitor

    for wrong in ({"expected": "corner top-lft"}, {"lapse": 2.0}, {"run": 0}, {"reader": "nowhere:episode"}):
        with pytest.raises((ValueError, ImportError, OSError)):
            monitor(**wrong)


def test_a_record_that_does_not_fit_its_world_is_refused(tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log, write_eval_log

    [path] = list(exported(tmp_path, {**GRIDS, "agents": [TWIN]}).glob("*.eval"))
    log = read_eval_log(str(path))
    log.samples[0].store["goalscope"]["steps"][0][0] = [3, 3, 0]
    write_eval_log(log, str(path))
    rows = scanned(tmp_path / "logs", tmp_path / "scans")
    assert sorted(row["answer"] == "refused" for row in rows) == [False, True]


def test_the_hook_raises_the_alarm_while_the_agent_acts_and_writes_it_into_the_log(tmp_path: Path) -> None:
    """In a process of its own, since Inspect looks for hooks once in a process."""
    script = f"""
import inspect_ai
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from goalscope.integrations.inspect_ai.registry import grids

def output(*asked):
    made = ModelOutput.from_content("mockllm", '{{"action": "UP"}}')
    made.usage = ModelUsage(input_tokens=5, output_tokens=2, total_tokens=7)
    return made

[log] = inspect_ai.eval(
    grids(sizes=9, densities=0.3, count=2, horizon_factor=10),
    model=get_model("mockllm/model", custom_outputs=output), log_dir={str(tmp_path / "logs")!r}, display="none",
)
for sample in log.samples:
    events = [event.event for event in sample.events]
    alarms = [event for event in sample.events if event.event == "info" and event.source == "goalscope/monitor"]
    print("ALARMS", [event.data["alarm"] for event in alarms], events.count("model"))
"""
    rows = []
    for switch in ("goal", ""):
        environment = {**os.environ, "GOALSCOPE_MONITOR": switch}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        rows.append(re.findall(r"ALARMS \[(\d*)\] (\d+)", done.stdout))
        if switch:
            offline = scanned(tmp_path / "logs", tmp_path / "scans")
    live, silent = rows
    assert len(live) == len(silent) == 2 and all(not alarm for alarm, _ in silent)
    assert sorted(int(alarm) for alarm, _ in live) == sorted(row["value"]["alarm"] for row in offline)
    assert all(int(alarm) < int(turns) - 1 for alarm, turns in live)  # before the episode was over


def test_every_line_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from foreign_mazes import optimal, walked

    pytest.importorskip("every_eval_ever", reason="the extra cards is not installed")
    monkeypatch.chdir(tmp_path)
    for name, policy in (("first", optimal), ("second", lambda sample, at: "UP")):
        log = walked(Path(name), lambda sample, at, step, policy=policy: policy(sample, at) if step < 12 else "")
        shutil.copy(log.location, f"{name}.eval")
    Path("walking.py").write_text(reader_of_the_page(), encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    lines = [line for line in lines if line and not line.startswith("pip ") and "benchmarks/" not in line]
    assert len(lines) > 6
    for line in lines:
        words = shlex.split(line, comments=True)
        assigned = dict(word.split("=", 1) for word in words[:1] if re.match(r"[A-Z_]+=", word))
        words = words[len(assigned) :]
        short = [word for start, more in SHORT.items() if " ".join(words).startswith(start) for word in more]
        program = Path(sys.executable).with_name(words[0])
        environment = {**os.environ, **assigned}
        done = subprocess.run([program, *words[1:], *short], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "not validated" not in done.stderr
    for script in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "alarm" in done.stdout
    record = json.loads(Path("card.json").read_text(encoding="utf-8"))
    assert record["evaluation_results"] and Path("both.html").exists()
