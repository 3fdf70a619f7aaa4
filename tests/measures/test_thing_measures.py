"""Measures of things: known episodes, pictures of random ones, agents that are after a thing, and kinds of others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope.agents import Optimal, Uniform
from goalscope.measures import (
    behaviour_measures,
    check_measure,
    measure_episodes,
    measure_store,
    play,
    roll_out,
)
from goalscope.runs import Store, Study, run
from goalscope.worlds import Action, Grid, GridWorld
from goalscope.worlds.dynamics import shown
from goalscope.worlds.planning import shortest_length
from goalscope.worlds.thing_check import grid_with
from goalscope.worlds.things import Kind, kinds, known_kind
from thing_grids import all_names, names_to_try, plugin_things

MOVES = {"U": Action.UP, "D": Action.DOWN, "L": Action.LEFT, "R": Action.RIGHT}


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with plugin_things():
        yield


def shares(rows: Any) -> dict[str, list[float]]:
    names = [name for name in rows.numbered("measure")[1] if name.endswith((" visited", " used"))]
    return {name: rows.where(rows.among("measure", [name])).value.tolist() for name in names}


@pytest.mark.parametrize(
    ("text", "moves", "expected"),
    [
        ("A_cG", "R", {"coin visited": [0], "coin used": [0], "thing visited": [0], "thing used": [0]}),
        ("A_cG", "RR", {"coin visited": [1], "coin used": [1], "thing visited": [1], "thing used": [1]}),
        ("ALG", "R", {"lava visited": [1], "thing visited": [1]}),
        ("A_}_G", "RR", {"conveyor right visited": [1], "thing visited": [1]}),
        ("A_}_G", "R", {"conveyor right visited": [0], "thing visited": [0]}),
        ("AT_T_G", "R", {"teleporter visited": [1], "thing visited": [1]}),
        ("A_t_G", "R", {"toll gate visited": [0], "toll gate used": [0], "thing visited": [0], "thing used": [0]}),
        (
            "Ar_R_G",
            "RR",
            {
                "red key visited": [1],
                "red key used": [1],
                "red door visited": [0],
                "red door used": [1],
                "thing visited": [1],
                "thing used": [1],
            },
        ),
        ("A__G", "RRR", {}),
    ],
)
def test_known_episodes(text: str, moves: str, expected: dict[str, list[float]]) -> None:
    episode = play(GridWorld(grid=Grid.parse([text])), [MOVES[move] for move in moves])
    assert shares(measure_episodes([episode])) == expected


@pytest.mark.parametrize("name", names_to_try())
def test_the_shares_are_those_of_the_pictures(name: str) -> None:
    grids = [grid for seed in range(6) if shortest_length(grid := grid_with(name, seed)) > 0]
    episodes = [episode for grid in grids for episode in roll_out(Uniform(), GridWorld(grid=grid), seed=1, horizon=30)]
    found = shares(measure_episodes(episodes))
    kinds = sorted({symbol for grid in grids for _, symbol in grid.things})
    assert kinds
    for symbol in kinds:
        visited, used = list[float](), list[float]()
        for episode in episodes:
            grid: Any = episode.world.grid
            cells = {cell for cell, other in grid.things if other == symbol}
            if cells:
                pictures = [shown(grid, state) for state in episode.path()]
                path, actions = list(episode.path()), [step.action for step in episode.steps]
                entered = {
                    (before[0] + Action(action).delta[0], before[1] + Action(action).delta[1])
                    for before, action, after in zip(path, actions, path[1:], strict=False)
                    if action is not None and after != before
                }
                visited.append(bool(entered & cells) or any(picture.start in cells for picture in pictures))
                drawn = [sum(other == symbol for _, other in picture.things) for picture in pictures]
                used.append(min(drawn) < len(cells))
        assert found[f"{known_kind(symbol).name} visited"] == visited
        assert found.get(f"{known_kind(symbol).name} used", [0] * len(used)) == used


def test_an_agent_that_is_after_coins_uses_one_in_every_episode_and_one_at_random_does_not(tmp_path: Path) -> None:
    worlds = {"kind": "grid", "sizes": [7], "densities": [0.2], "count": 8, "things": ["coin"]}
    agents = [{"kind": "hypothesis", "hypothesis": "coin collected"}, {"kind": "random"}]
    run(Study.parse({"worlds": [worlds], "agents": agents, "horizon": {"steps": 20}}), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        rows = measure_store(store)
    found = {agent: shares(rows.select(agent=agent))["coin used"] for agent in set(rows.tags["agent"].tolist())}
    assert np.mean(found["hypothesis(coin collected)"]) == 1
    assert 0.05 < np.mean(found["random"]) < 0.9


@pytest.mark.parametrize("name", all_names())
def test_every_kind_has_its_measures_and_they_obey_the_laws(name: str) -> None:
    kind = next(kind for kind in kinds() if kind.name == name)
    words = {"visited", "used"} if kind.events else {"visited"}
    measures = {measure.name: measure for measure in behaviour_measures()}
    assert {word for word in ("visited", "used") if f"{name} {word}" in measures} == words
    worlds = [GridWorld(grid=grid) for seed in range(6) if shortest_length(grid := grid_with(name, seed)) > 0]
    agents = Uniform(), Optimal()
    episodes = [
        episode
        for agent in agents
        for world in worlds[:2]
        for episode in roll_out(agent, world, seed=1, trajectories=2)
    ]
    for word in words:
        check_measure(measures[f"{name} {word}"], episodes, invariant=not is_directed(kind))


def is_directed(kind: Kind) -> bool:
    return any(kind.turned(lambda action, by=by: action ^ by) != kind.symbol for by in range(4))
