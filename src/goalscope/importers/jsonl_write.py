"""Episodes to the JSON lines format, the inverse of reading it."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from goalscope.runs.record import Episode, Step, World


def write_jsonl(episodes: Iterable[Episode], path: str | Path) -> int:
    """Write episodes as JSON lines: each world once, before its first episode; then an episode line and its steps.

    What `read_jsonl` gives back is equal: specification ids, worlds with cluster and tags, all steps, outcome, final
    state and tags. (Tuples among the ``extra`` values of steps come back as lists, and agents by id and name alone.)
    The file appears under its name when it is complete.

    Args:
        episodes: gone through once.
        path: the file to write.

    Returns:
        Number of episodes written.

    Raises:
        ValueError: a number that is not finite; one world with two clusters or sets of tags; a task world.
        TypeError: an ``extra`` value that JSON cannot hold.
    """
    path = Path(path)
    unfinished = path.with_name(f"{path.name}.part")
    worlds: dict[str, World] = {}
    count = 0
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as stream:
            for episode in episodes:
                world = episode.world
                if world.id not in worlds:
                    worlds[world.id] = world
                    stream.write(_line(_world(world)))
                elif worlds[world.id] != world:
                    raise ValueError(
                        f"a world must have one cluster and one set of tags, got other ones for {world.id}"
                    )
                stream.write(_line(_episode(episode, count)))
                for step in episode.steps:
                    stream.write(_line({"episode": f"{count}", **_step(step)}))
                count += 1
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _line(value: dict[str, Any]) -> str:
    plain = {key: item for key, item in value.items() if item is not None or key == "action"}
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def _world(world: World) -> dict[str, Any]:
    if world.kind != "grid":  # its grid alone would read back as another world
        raise ValueError(f"a log of this format must hold episodes on grids, got the {world.kind} {world.id}")
    return {
        "type": "world",
        "id": world.id,
        "grid": world.grid.render(),
        "fog_radius": world.fog_radius,
        "cluster": world.cluster or None,
        "tags": dict(world.tags) or None,
    }


def _episode(episode: Episode, number: int) -> dict[str, Any]:
    spec = episode.spec
    return {
        "type": "episode",
        "episode": f"{number}",
        "world": spec.world_id,
        "agent": episode.agent,
        "agent_id": spec.agent_id,
        "trajectory": spec.trajectory,
        "seed": spec.seed,
        "horizon": spec.horizon,
        "rules": spec.rules or None,
        "outcome": episode.outcome,
        "tags": dict(episode.tags) or None,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "step": step.index,
        "position": list(step.state.position),
        "action": None if step.action is None else step.action.name,
        "failure": step.failure,
        "carrying_key": step.state.carrying_key or None,
        "door_open": step.state.door_open or None,
        "text": step.text,
        "reasoning": step.reasoning,
        "prompt_tokens": None if step.prompt_tokens is None else list(step.prompt_tokens),
        "output_tokens": None if step.output_tokens is None else list(step.output_tokens),
        "reward": step.reward,
        "extra": dict(step.extra) or None,
    }
