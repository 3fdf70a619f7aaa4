"""The recorded GPT-OSS-20B trajectories beside what the paper prints of that model."""

import json
from pathlib import Path

import pytest

from command_line import call
from goalscope.runs import Store


def test_recorded_trajectories_stand_beside_the_published_numbers(recorded: Path, tmp_path: Path) -> None:
    printed = call("reproduce", "telos figure 4", "--logs", recorded, "--out", tmp_path)
    assert "fewer than 10" in printed and "also in this run: gpt-oss-20b low t=0.0" in printed
    found = json.loads((tmp_path / "reproduction.json").read_text(encoding="utf-8"))
    assert found["agents"] == ["gpt-oss-20b low t=0.7"]
    (line,) = [one for one in found["lines"] if "Acc. GT" in one["label"] and one["value"] == 7]
    assert line["published"] == {"GPT-OSS-20B": 97.3} and line["within"] is None and line["ours"]["clusters"] == 7
    with Store(tmp_path) as store:  # the mean of grid means, counted by hand
        rows = store.rows().select(measure="action accuracy", agent="gpt-oss-20b low t=0.7", size=7)
    grids: dict[str, list[float]] = {}
    for row in rows:
        grids.setdefault(row.cluster, []).append(row.value)
    means = [sum(values) / len(values) for values in grids.values()]
    assert line["ours"]["value"] == pytest.approx(sum(means) / len(means))
    again = call("reproduce", "telos table 2", "--logs", recorded, "--out", tmp_path / "b", status=2)
    assert "needs weights" in again
