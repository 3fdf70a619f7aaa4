"""Worlds in verifiers itself: tasks, episodes through its harness, exact rewards."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("verifiers.v1", reason="the extra verifiers is not installed")

from goalscope.runs import Study
from goalscope.worlds import Grid
from goalscope.worlds.planning import solve

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

PAGE = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
MODULE, SCRIPT = (one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "WorldsEnv" in one)
STUDY = """
name: mazes
seed: 1
worlds: [{kind: grid, sizes: [5, 7], densities: [0.3], count: 1}]
agents: [{kind: optimal}]
trajectories: 1
horizon: {factor: 2}
"""
MOVES = ("UP", "DOWN", "LEFT", "RIGHT")


def grid_of(question: str) -> Grid:
    """Return the grid that a question shows, the last one in it: rows that begin with their number."""
    row = r"[ ]*\d+(?: [#_AG])+[ ]*"
    last = re.findall(rf"(?:^{row}$\n?)+", question, re.MULTILINE)[-1]
    return Grid.parse("\n".join(" ".join(line.split()[1:]) for line in last.splitlines()))


class Answers(BaseHTTPRequestHandler):
    """A server whose model answers by a rule, given as an attribute of the server."""

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = body["messages"][-1]["content"]
        text = last if isinstance(last, str) else "".join(part["text"] for part in last)
        said = self.server.rule(text)  # type: ignore[attr-defined]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        about = {"id": "x", "created": 0, "model": "m"}
        message = {"role": "assistant", "content": said}
        if body.get("stream"):
            parts: list[dict[str, Any]] = [{"delta": message, "finish_reason": None}]
            parts.append({"delta": {}, "finish_reason": "stop"})
            chunks = [{**about, "object": "chat.completion.chunk", "choices": [{"index": 0, **one}]} for one in parts]
            chunks[-1]["usage"] = usage
            lines = [f"data: {json.dumps(one)}\n\n" for one in chunks]
            data, kind = "".join([*lines, "data: [DONE]\n\n"]), "text/event-stream"
        else:
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            data, kind = json.dumps({**about, "object": "chat.completion", "choices": [choice], "usage": usage}), ""
        octets = data.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Content-Length", str(len(octets)))
        self.end_headers()
        self.wfile.write(octets)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function from a rule to the episodes of the page's script."""
    if shutil.which("uv") is None:
        pytest.skip("verifiers starts its harness with uv, which is not installed")
    (tmp_path / "mazes.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "mazes.yaml").write_text(STUDY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MY_KEY", "none")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    names: dict[str, Any] = {}
    exec(compile(SCRIPT, "integrations.md", "exec"), names)

    def play(rule: Any) -> list[Any]:
        server.rule = rule  # type: ignore[attr-defined]
        episodes = names["evaluate"](str(tmp_path / "mazes.yaml"), f"http://127.0.0.1:{server.server_port}/v1")
        assert all(episode.ok for episode in episodes)
        return [episode.traces[0] for episode in episodes]

    yield play
    server.shutdown()
    thread.join()
    server.server_close()


def optimal(question: str) -> str:
    grid = grid_of(question)
    assert grid.start is not None
    action = int(np.flatnonzero(solve(grid).optimal[(0, *grid.start)])[0])
    return f'{{"action": "{MOVES[action]}"}}'


def test_models_whose_behaviour_is_known_get_the_rewards_that_are_due(played: Any) -> None:
    assert len(SCRIPT.splitlines()) <= 30
    lengths = [solve(world.grid).distance[(0, *world.grid.start)] for world in worlds()]
    for trace, length in zip(played(optimal), lengths, strict=True):
        assert trace.reward == 1 and trace.rewards["progress"].score == 1
        assert trace.metrics == {"steps": length, "invalid turns": 0, "accuracy": 1, "path ratio": 1}
        turns = trace.info["goalscope"]["turns"]
        assert [one["distance"] for one in turns] == list(range(length, 0, -1)) and all(one["right"] for one in turns)
    for trace, length in zip(played(lambda question: "I do not know."), lengths, strict=True):
        assert trace.reward == 0 and trace.rewards["progress"].score == 0
        assert trace.metrics == {"steps": 2 * length, "invalid turns": 1, "accuracy": 0}


def worlds() -> list[Any]:
    import yaml

    return list(Study.parse(yaml.safe_load(STUDY)).worlds())
