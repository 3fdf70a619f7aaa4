"""Every recorded grid text is read, and rendered again as it was recorded."""

import json
from pathlib import Path
from typing import Any

from goalscope.worlds import Grid


def recorded_texts(recorded: Path) -> list[tuple[Any, tuple[int, int] | None]]:
    """Each grid text or layout with the agent's recorded cell, None where the record does not repeat it."""
    found: list[tuple[Any, tuple[int, int] | None]] = []
    for path in sorted(recorded.glob("grids_*.jsonl")):
        for record in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            cell = (record["start_y"], record["start_x"])
            found += [(record["grid_text"], cell), (record["layout"], cell)]
    for path in sorted(recorded.glob("trajectories/*.json")):
        found += [(step["grid_state"], None) for step in json.loads(path.read_text(encoding="utf-8"))["steps"]]
    for record in json.loads((recorded / "keydoor_labelled_states.json").read_text(encoding="utf-8")):
        found.append((record["grid_text"], (record["current_position"][1], record["current_position"][0])))
    return found


def test_recorded_layouts_are_read(recorded: Path) -> None:
    texts = recorded_texts(recorded)
    assert len(texts) > 100
    for text, start in texts:
        grid = Grid.parse(text)
        assert start is None or grid.start == start
        lines = text.splitlines() if isinstance(text, str) else text
        if isinstance(lines[0], str):
            assert grid.render().splitlines() == [line.rstrip() for line in lines]
