"""Studies of a model on a loopback server, for tests."""

from pathlib import Path
from typing import Any

from server import Loopback

from goalscope.agents import ChatAgent
from goalscope.agents.models import LocalModel
from goalscope.runs import Store, Study

TEMPLATE = "{{grid}}\nGo: "
MOST_TOKENS = 3


def template(folder: Path) -> Path:
    path = folder / "template.txt"
    path.write_text(TEMPLATE, encoding="utf-8")
    return path


def study(url: str, task: Path, *, count: int = 2, trajectories: int = 2, steps: int = 5, **changes: Any) -> Study:
    """A study of small grids; ``server`` and other keys of the agent can be changed."""
    server = {
        "base_url": url,
        "preflight": False,  # the trials of a server have tests of their own
        "timeout": 20.0,  # far above what an answer takes on a busy machine; tests of hangs set a shorter one
        "backoff": 0.02,
        "retries": 20,
        "patience": 30,
        **changes.pop("server", {}),
    }
    return Study.parse(
        {
            "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": count, "minimum_distance": 3}],
            "agents": [
                {
                    "kind": "chat",
                    "model": "speaker",
                    "task": str(task),
                    "temperature": 0.0,
                    "max_tokens": MOST_TOKENS,
                    "reasoning_effort": None,
                    "server": server,
                    **changes,
                }
            ],
            "trajectories": trajectories,
            "horizon": {"steps": steps},
        }
    )


def local_agent(model: LocalModel, like: Study) -> ChatAgent:
    """The same agent on the model itself."""
    (served,) = like.agents()
    assert isinstance(served, ChatAgent)
    return ChatAgent(model=model, task=served.task, sampling=served.sampling)


def trajectories(directory: Path) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """What was done and said in each episode, by world and trajectory."""
    with Store(directory) as store:
        return {
            (episode.spec.world_id, episode.spec.trajectory): [
                (step.state, step.action, step.failure, step.text, step.reasoning) for step in episode.steps
            ]
            for episode in store.episodes()
        }


def tokens(directory: Path) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """The token ids of each episode, by world and trajectory."""
    with Store(directory) as store:
        return {
            (episode.spec.world_id, episode.spec.trajectory): [
                (step.prompt_tokens, step.output_tokens) for step in episode.steps
            ]
            for episode in store.episodes()
        }


def extras(directory: Path) -> list[dict[str, Any]]:
    with Store(directory) as store:
        return [dict(step.extra) for episode in store.episodes() for step in episode.steps]


def journalled(directory: Path) -> set[str]:
    """The calls whose answers are committed, by the tags that their server sees."""
    with Store(directory) as store:
        rows = store.query("SELECT episode_id, step, attempt FROM calls WHERE state = 'done'")
    return {f"{episode}-{step}-{attempt}" for episode, step, attempt in rows}


def check_nothing_twice(server: Loopback, before: set[str], since: int) -> None:
    """No answer that was committed before entry ``since`` of the server's log was asked for after it."""
    assert not before & {entry.tag for entry in server.log[since:]}
