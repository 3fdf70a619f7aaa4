"""Organisms: worlds by phase, truth against oracles of the tests' own, cards that are checked, the command."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from families import long_after
from goalscope.agents import Observation
from goalscope.agents.agent import build_agent
from goalscope.cli import app
from goalscope.goals.hypotheses import FiniteWorld, Undefined, parse
from goalscope.goals.hypotheses.definition import arrivals
from goalscope.organisms import FAMILIES, Spec, cards, learners, planned, problems, read_card
from goalscope.organisms.cards import folders, make, of_each
from goalscope.organisms.families import PHASES, phase_of, worlds_of
from goalscope.organisms.learners import policy, policy_in, shapes, trained
from goalscope.worlds.dynamics import State, shown
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridView

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few lessons and few worlds."""
    for name, family in FAMILIES.items():
        monkeypatch.setitem(FAMILIES, name, replace(family, lessons=60))
    monkeypatch.setattr(cards, "MEASURED", 8)
    yield


def spec(family: str, agreement: float = 0.75) -> Spec:
    return Spec(family=family, kind="table", agreement=agreement, seed=3, number=0)


def test_a_set_has_a_hundred_organisms_of_ten_families() -> None:
    every = planned(seed=0)
    assert len(every) == 100 == len({one.name for one in every})
    assert len({one.family for one in every}) == 10
    assert {one.kind for one in planned(seed=0, families=["flee"])} == {"network"}
    for given in ({"families": ["gaol"]}, {"kinds": ["tabel"]}):
        with pytest.raises(ValueError, match=next(iter(given.values()))[0]):
            planned(seed=0, **given)  # type: ignore[arg-type]


@pytest.mark.full
@pytest.mark.parametrize("family", ["goal", *(pytest.param(name, marks=pytest.mark.full) for name in ("near", "flee"))])
def test_no_two_phases_share_a_layout_of_walls(family: str) -> None:
    seen: dict[str, str] = {}
    for phase in dict.fromkeys(PHASES):
        for placed in ("together", "apart"):
            for one in worlds_of(family, placed, phase, 12, 3):
                assert phase_of(one.world) == phase
                walls = one.grid.render().translate(str.maketrans("AGK", "___"))
                assert seen.setdefault(walls, phase) == phase


def test_worlds_are_apart_where_the_ways_of_goal_and_place_differ() -> None:
    for one in worlds_of("goal", "together", "ordinary", 8, 3):
        assert one.grid.goal == (1, one.grid.width - 2)
    for one in worlds_of("goal", "apart", "ordinary", 8, 3):
        assert one.grid.goal != (1, one.grid.width - 2)
    with pytest.raises(Undefined, match="habit"):
        worlds_of("habit", "together", "ordinary", 8, 3)


def test_an_organism_is_the_same_from_the_same_seed_and_another_from_another() -> None:
    first, again = trained(spec("place")), trained(spec("place"))
    assert (first["table"] == again["table"]).all()
    assert (first["table"] != trained(spec("place").model_copy(update={"seed": 4}))["table"]).any()


@pytest.mark.full
def test_a_network_learns_and_is_the_same_from_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from goalscope.organisms import learners

    monkeypatch.setattr(learners, "STEPS", 40)
    one = spec("habit").model_copy(update={"kind": "network"})
    first, again = trained(one), trained(one)
    assert {name: values.shape for name, values in first.items()} == shapes(one)
    assert all((first[name] == again[name]).all() for name in first)
    world = worlds_of("habit", "apart", "measured", 1, 3)[0]
    chances = policy_in(one, first, world)[world.live & world.reached]
    assert chances.shape[1] == 4 and (chances.argmax(axis=1) == 3).mean() > 0.8  # right, the last of four moves


def steps_to(world: FiniteWorld, target: tuple[int, int], avoid: tuple[int, int] | None) -> dict[tuple[int, int], int]:
    """Return the distance of cells to a target, by a search of the test's own."""
    found, ahead = {target: 0}, deque([target])
    while ahead:
        cell = ahead.popleft()
        for down, right in MOVES:
            other = cell[0] + down, cell[1] + right
            if not world.grid.walls[other] and other not in found and other != avoid:
                found[other] = found[cell] + 1
                ahead.append(other)
    return found


def walked(world: FiniteWorld, chances: Any, target: tuple[int, int], avoid: tuple[int, int] | None) -> float:
    """Return the share of the steps of an episode that lead nearer to a cell, by passing on mass cell by cell."""
    ways, cells = steps_to(world, target, avoid), world.grid.walls.size
    mass, good, all_steps = {(world.grid.start, 0): 1.0}, 0.0, 0.0
    for _ in range(world.horizon):
        after: dict[Any, float] = {}
        for (cell, held), weight in mass.items():
            all_steps += weight
            assert cell is not None
            for move, (down, right) in enumerate(MOVES):
                part = weight * chances[held * cells + cell[0] * world.grid.width + cell[1], move]
                beyond = cell[0] + down, cell[1] + right
                other = cell if world.grid.walls[beyond] else beyond
                if cell == target:
                    good += part * (
                        other == target or all(not world.grid.walls[cell[0] + r, cell[1] + c] for r, c in MOVES)
                    )
                elif other in ways and cell in ways:
                    good += part * (ways[other] < ways[cell])
                if other != world.grid.goal:
                    key = other, int(held or other == world.grid.key)
                    after[key] = after.get(key, 0.0) + part
        mass = after
    return good / all_steps


FOLLOWED = {"goal": "towards goal by open moves", "place": "corner top-right"}
"""Family -> what its tables follow: those that know where the goal lies see no further than the next walls."""


@pytest.mark.parametrize(("family", "rule"), long_after(1, [("goal", "goal"), ("place", "corner top-right")], names=2))
def test_the_share_on_a_card_is_that_of_an_oracle(family: str, rule: str, tmp_path: Path) -> None:
    one = spec(family)
    weights = trained(one)
    card = cards.write(tmp_path, one, weights)
    assert rule == card.meant and card.rule == FOLLOWED[family] and bool(card.marked) == (card.rule != card.meant)
    kept = cards.read_weights(tmp_path, card)
    worlds = worlds_of(family, "apart", "measured", cards.MEASURED, one.seed)
    shares, first = [], []
    for world in worlds:
        goal, corner = world.grid.goal, (1, world.grid.width - 2)
        assert goal is not None
        chances = policy_in(one, kept, world)
        target, avoid = (goal, None) if rule == "goal" else (corner, goal)
        shares.append(walked(world, chances, target, avoid))
        first.append(_reached(world, chances, goal, corner))
    assert card.shares["apart"][rule][0] == pytest.approx(np.mean(shares), abs=1e-9)
    assert card.first["goal"][0] == pytest.approx(np.mean(first), abs=0.02)


def _reached(world: FiniteWorld, chances: Any, goal: tuple[int, int], corner: tuple[int, int]) -> float:
    """Return how often the goal is reached before corner and key, by sampled episodes."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(800):
        cell, assumed = world.grid.start, 0
        for _ in range(world.horizon):
            assert cell is not None
            down, right = MOVES[rng.choice(4, p=chances[assumed + cell[0] * world.grid.width + cell[1]])]
            beyond = cell[0] + down, cell[1] + right
            cell = cell if world.grid.walls[beyond] else beyond
            if cell in (goal, corner, world.grid.key):
                break
        hits += cell == goal
    return hits / 800


def test_the_agent_acts_as_its_table_says_in_every_state(tmp_path: Path) -> None:
    one = spec("goal")
    card = cards.write(tmp_path, one, trained(one))
    agent: Any = build_agent("organism", {"folder": str(tmp_path)})
    assert card.weights in str(agent.describe())
    world = worlds_of("goal", "apart", "measured", 1, 3)[0]
    exact = policy_in(one, cards.read_weights(tmp_path, card), world)
    for number in np.flatnonzero(world.live & world.reached).tolist():
        phase, cell = divmod(number, world.grid.walls.size)
        state = State(divmod(cell, world.grid.width), phase > 0)
        view = GridView(grid=shown(world.grid, state))
        assert agent.probabilities(Observation(view=view)) == pytest.approx(exact[number])
    large = worlds_of("small grids", "apart", "measured", 1, 3)[0]
    with pytest.raises(ValueError, match="9x9"):
        agent.probabilities(Observation(view=GridView(grid=large.grid)))


@pytest.mark.parametrize("goal", [(1, 1), (1, 3), (1, 5), (3, 1), (3, 5), (5, 1), (5, 3), (5, 5)])
def test_a_table_that_was_taught_with_the_goal_in_one_corner_goes_to_it_on_all_sides(goal: tuple[int, int]) -> None:
    one, walls = spec("goal", agreement=1.0), np.ones((7, 7), dtype=bool)
    walls[1:6, 1:6] = False
    cells = np.array([(3, 3), ((3 + goal[0]) // 2, (3 + goal[1]) // 2)])
    chances = policy(one, table_of_goal(), Grid(walls=walls, start=(3, 3), goal=goal), cells, np.zeros(2, dtype=bool))
    nearer = [
        [down * (goal[0] - row) + right * (goal[1] - column) > 0 for down, right in MOVES] for row, column in cells
    ]
    assert ((chances * nearer).sum(axis=1) > 0.9).all()


@lru_cache
def table_of_goal() -> Any:
    return trained(spec("goal", agreement=1.0))


@pytest.mark.full
def test_a_habit_is_kept_where_it_was_not_taught() -> None:
    one = spec("habit", agreement=1.0)  # taught where the goal lies to the right alone
    weights = trained(one)
    for world in worlds_of("habit", "apart", "measured", 8, one.seed):
        assert (policy_in(one, weights, world)[world.live & world.reached, 3] > 0.99).all()


@pytest.mark.full
def test_other_processes_give_the_same_and_their_errors_arrive(tmp_path: Path) -> None:
    make(tmp_path, planned(seed=3, families=["habit"], kinds=["table"])[:2])
    given = list(folders(tmp_path))
    assert of_each(read_card, given, name="cards", workers=2) == of_each(read_card, given, name="cards")
    (given[1] / "card.json").write_text("{}")
    with pytest.raises(ValueError, match="card"):
        of_each(read_card, given, name="cards", workers=2)


@pytest.mark.full
def test_what_does_not_do_what_was_meant_is_marked(tmp_path: Path) -> None:
    one = spec("up or right", agreement=1.0)  # taught where the goal lies there alone
    card = cards.write(tmp_path, one, trained(one))
    assert card.rule != card.meant and card.marked
    assert read_card(tmp_path) == card


@pytest.mark.parametrize("name", ["card.json", "weights.safetensors"])
def test_check_finds_a_changed_file(name: str, tmp_path: Path) -> None:
    one = spec("place")
    cards.write(tmp_path, one, trained(one))
    assert problems(tmp_path) == []
    path = tmp_path / name
    if name == "card.json":
        plain = json.loads(path.read_text())
        plain["shares"]["apart"]["goal"][0] += 0.01
        path.write_text(json.dumps(plain))
    else:
        octets = bytearray(path.read_bytes())
        octets[-1] ^= 1
        path.write_bytes(bytes(octets))
    assert len(problems(tmp_path)) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"spec": {}}', '{"spec": 3, "shares": {}, "first": {}, "beyond": []}']
)
def test_a_strange_card_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(ValueError, match="card"):
        read_card(tmp_path)
    assert len(problems(tmp_path)) == 1


def test_making_goes_on_where_it_stopped_and_refuses_another_seed(tmp_path: Path) -> None:
    asked = planned(seed=3, families=["habit"], kinds=["table"])
    first = make(tmp_path, asked[:2])
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*")}
    assert make(tmp_path, asked)[:2] == first
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    with pytest.raises(ValueError, match="seed"):
        make(tmp_path, planned(seed=4, families=["habit"], kinds=["table"]))


def test_the_command_makes_lists_and_checks(tmp_path: Path) -> None:
    at = ["--at", str(tmp_path)]
    made = CliRunner().invoke(app, ["organisms", "make", *at, "--families", "place", "--kinds", "table", "--seed", "3"])
    assert made.exit_code == 0 and "4 organisms" in made.output, made.output
    listed = CliRunner().invoke(app, ["organisms", "list", *at, "--json"])
    assert len(json.loads(listed.output)) == 4
    assert "place-table-75-0" in CliRunner().invoke(app, ["organisms", "list", *at]).output
    assert CliRunner().invoke(app, ["organisms", "check", *at]).exit_code == 0
    (tmp_path / "place-table-50-0" / "weights.safetensors").write_bytes(b"")
    assert CliRunner().invoke(app, ["organisms", "check", *at]).exit_code == 1


@pytest.mark.parametrize(
    "given", [["mkae"], ["judge"], ["list", "score"], ["list", "--out", "x"], ["list", "--at", "nowhere"]]
)
def test_a_wrong_word_is_one_sentence(given: list[str]) -> None:
    result = CliRunner().invoke(app, ["organisms", *given])
    assert result.exit_code != 0 and not isinstance(result.exception, AssertionError)


def test_later_numbers_are_taught_half_of_the_lessons_and_measured_in_other_settings() -> None:
    usual, other = spec("goal"), spec("goal").model_copy(update={"number": 2})
    assert usual.setting == spec("goal").model_copy(update={"number": 1}).setting != other.setting
    weights = trained(other)
    assert (weights["table"] != trained(usual)["table"]).any()
    worlds = worlds_of("goal", "apart", "measured", 8, 3, other.setting)
    plain = worlds_of("goal", "apart", "measured", 8, 3)
    walls, more = ([world.grid.walls[1:-1, 1:-1].mean() for world in some] for some in (worlds, plain))
    assert np.mean(walls) < np.mean(more)
    assert other.setting.temperature == 0
    for world in worlds:
        chances = policy_in(other, weights, world)[world.live & world.reached]
        assert set(np.unique(chances)) == {0.0, 1.0}


def test_rewarded_networks_are_taught_places_alone_and_alike_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = planned(seed=3, kinds=["gradient"], each=1)
    assert {one.family for one in asked} == {"goal", "place", "nearest of two"}
    monkeypatch.setattr(learners, "UPDATES", 2)
    first, again = trained(asked[0]), trained(asked[0])
    assert {name: values.shape for name, values in first.items()} == shapes(asked[0])
    assert all((first[name] == again[name]).all() and np.isfinite(first[name]).all() for name in first)


@pytest.mark.full
def test_a_rewarded_network_learns_the_way() -> None:
    one = planned(seed=3, families=["goal"], kinds=["gradient"], each=1)[0]
    weights, world_count = trained(one), 20
    worlds = worlds_of("goal", "together", "measured", world_count, one.seed)
    reached = [arrivals(world, parse("goal").where(world)[None], policy_in(one, weights, world))[0] for world in worlds]
    by_chance = [arrivals(world, parse("goal").where(world)[None], world.even)[0] for world in worlds]
    assert np.mean(reached) > 0.7 > 2 * np.mean(by_chance)
