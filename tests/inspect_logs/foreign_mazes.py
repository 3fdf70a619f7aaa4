"""A task of Inspect that knows nothing of goalscope: mazes and a lake, walked with a tool that answers where one is."""

from pathlib import Path
from typing import Any

import numpy as np

from goalscope.worlds import Grid, generate
from goalscope.worlds.planning import solve

MOVES = {"UP": (-1, 0), "DOWN": (1, 0), "LEFT": (0, -1), "RIGHT": (0, 1)}
MAZES = {f"maze-{seed}": generate(7, 0.3, rng=np.random.default_rng(seed)).render() for seed in range(6)}


def optimal(sample: str, at: tuple[int, int]) -> str:
    """Return an optimal move."""
    return list(MOVES)[int(np.flatnonzero(solve(Grid.parse(MAZES[sample])).optimal[(0, *at)])[0])]


def walking() -> Any:
    """Return the tool: it keeps its place in the sample's store."""
    from inspect_ai.tool import Tool, tool
    from inspect_ai.util import store

    @tool  # type: ignore[untyped-decorator, unused-ignore]
    def walk() -> Tool:
        async def execute(direction: str) -> str:
            """Walk one cell.

            Args:
                direction: up, down, left or right.
            """
            kept = store()
            grid = Grid.parse(kept.get("maze"))
            row, col = kept.get("at", grid.start)
            to = tuple(np.add((row, col), MOVES[direction.upper()]).tolist())
            if min(to) >= 0 and to[0] < grid.height and to[1] < grid.width and not grid.walls[to]:
                row, col = to
            kept.set("at", [row, col])
            return "You found it." if (row, col) == grid.goal else f"You are at {row} {col}."

        return execute

    return walk()


def mazes() -> Any:
    """Return the task."""
    from inspect_ai import Task, task
    from inspect_ai.agent import react
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes
    from inspect_ai.solver import TaskState, solver

    @solver  # type: ignore[untyped-decorator, unused-ignore]
    def placed() -> Any:
        async def solve_it(state: TaskState, generate: Any) -> TaskState:
            state.store.set("maze", MAZES[str(state.sample_id)])
            return state

        return solve_it

    @task  # type: ignore[untyped-decorator, unused-ignore]
    def maze() -> Any:
        samples = [Sample(id=name, input=text, target="done", metadata={"maze": text}) for name, text in MAZES.items()]
        return Task(dataset=samples, solver=[placed(), react(tools=[walking()])], scorer=includes(), message_limit=80)

    return maze()


def walked(folder: Path, policy: Any) -> Any:
    """Return the log of a model that walks by a policy of (sample, place) and submits at the goal."""
    import inspect_ai
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def output(messages: list[Any], *asked: Any) -> Any:
        [sample] = [name for name, text in MAZES.items() if any(message.text == text for message in messages)]
        told = [message.text for message in messages if message.role == "tool"]
        start = Grid.parse(MAZES[sample]).start
        at = tuple(int(word) for word in told[-1].rstrip(".").split()[-2:]) if told and "at" in told[-1] else start
        move = "" if told and "found" in told[-1] else policy(sample, at, len(told))
        named = ("walk", {"direction": move.lower()}) if move else ("submit", {"answer": "done"})
        found = ModelOutput.for_tool_call("mockllm", *named)
        found.usage = ModelUsage(input_tokens=5, output_tokens=2, total_tokens=7)
        return found

    model = get_model("mockllm/model", custom_outputs=output)
    [log] = inspect_ai.eval(mazes(), model=model, log_dir=str(folder), display="none", max_samples=1)
    assert log.status == "success", log.error
    return log
