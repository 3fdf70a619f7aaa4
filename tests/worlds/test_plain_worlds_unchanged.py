"""Ids, texts, rows and prompts of worlds without things stay what they were before grids could hold things."""

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from goalscope._ground.rng import stream
from goalscope.agents import ChatAgent, Observation
from goalscope.agents.models import Message, Reply, Request, Sampling
from goalscope.worlds import Grid, GridView, GridWorld, generate, layout
from goalscope.worlds.planning.shortest import oracle

STORED = Path(__file__).parents[1] / "data" / "plain_worlds.json"


class Silent:
    """A model that is never asked."""

    name = "silent"

    def describe(self) -> dict[str, Any]:
        return {"kind": "silent"}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        return None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        raise AssertionError("only prompts are compared")


def worlds() -> Iterator[GridWorld]:
    """Yield 300 worlds: 100 plain, 100 with a key, 100 with key and door; each third one lies under fog."""
    for index in range(100):
        size, density = (7, 9, 11, 15)[index % 4], (0.0, 0.4, 0.8, 1.0)[index // 4 % 4]
        grid = generate(size, density, rng=stream(index, "unchanged"))
        cells = [(int(row), int(col)) for row, col in np.argwhere(~grid.walls)]
        free = [cell for cell in cells if cell not in (grid.start, grid.goal)]
        for variant in (grid, grid.at(key=free[index % len(free)]), layout("key-door", seed=1, index=index)):
            yield GridWorld(grid=variant, fog_radius=3 if index % 3 == 0 else None)


def prompt_of(world: GridWorld, grid: Grid) -> str:
    keyed = grid.key is not None or grid.door is not None
    task = "fog" if world.fog_radius else "key-door" if keyed else "grid"
    agent = ChatAgent(model=Silent(), task=task)
    if world.fog_radius and keyed:  # the bundled template for fog does not explain keys
        return world.begin().view.text
    return str(agent.messages(Observation(view=world.begin().view, episode_id=world.id)))


def fingerprint(world: GridWorld) -> str:
    """Hash a world's id, text, prompt and tags, the texts and states of ten moves, and the optimal actions there."""
    session, states, texts = world.begin(), [], []
    for move in range(10):
        session.step((move * 7 + len(world.id) + world.grid.height) % 4)
        states.append(tuple(int(part) for part in session.state))
        view = session.view
        assert isinstance(view, GridView)
        texts += [view.text, str(dict(view.fields())), str(view.journalled(()))]
    exact = oracle(world)
    assert exact is not None
    chosen, left = exact.look_up(np.array([(row, col, state_phase(flags)) for row, col, flags in states]))
    content = [
        *(world.id, world.stored, str(world.grid), prompt_of(world, world.grid), states, texts),
        *(chosen.tolist(), left.tolist(), exact.length),
    ]
    return sha256(json.dumps(content).encode()).hexdigest()[:16]


def state_phase(flags: int) -> int:
    return (flags & 1) + (flags >> 1)


def test_300_worlds_without_things_are_what_they_were() -> None:
    assert [fingerprint(world) for world in worlds()] == json.loads(STORED.read_text(encoding="utf-8"))
