"""Things in grids: laws that hold for every registered kind, also of other packages, and known answers of each kind."""

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from goalscope.agents import Observation, Optimal
from goalscope.worlds import (
    Action,
    Grid,
    GridView,
    GridWorld,
    State,
    Transform,
    check_thing,
    initial_state,
    shown,
    step,
)
from goalscope.worlds.dynamics import solid_cells
from goalscope.worlds.planning import solve
from goalscope.worlds.thing_check import grid_with
from goalscope.worlds.things import RESERVED, Kind, kind_of, thing, with_digit
from thing_grids import all_names, names_to_try, plugin_things


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with plugin_things():
        yield


@pytest.mark.parametrize("name", names_to_try())
def test_each_kind_obeys_the_laws_of_all_things(name: str) -> None:
    check_thing(name)


class Attributes:
    """Attributes of a kind without faults."""

    symbol, name, legend = "%", "faulty", "a faulty thing"


class Moody(Attributes, Kind):
    """Moves the agent back every other time."""

    count = 0

    def act(self, grid, index, cell, parts, action):  # type: ignore[no-untyped-def]
        self.count += 1
        down, right = Action(action).delta
        return (cell if self.count % 2 else (cell[0] - down, cell[1] - right)), parts


class Hidden(Attributes, Kind):
    """Vanishes when it is entered for the first time, and sends back every later agent."""

    states = 2

    def act(self, grid, index, cell, parts, action):  # type: ignore[no-untyped-def]
        down, right = Action(action).delta
        return (cell[0] - down * parts[index], cell[1] - right * parts[index]), with_digit(parts, index, 1)


class Eastern(Attributes, Kind):
    """Can be entered by the move to the right alone, and does not turn."""

    def act(self, grid, index, cell, parts, action):  # type: ignore[no-untyped-def]
        down, right = Action(action).delta
        return (cell if action == Action.RIGHT else (cell[0] - down, cell[1] - right)), parts


class Uncounted(Attributes, Kind):
    """Sets a digit that it does not have."""

    def act(self, grid, index, cell, parts, action):  # type: ignore[no-untyped-def]
        return cell, with_digit(parts, index, 1)


class Ejecting(Attributes, Kind):
    """Moves the agent onto the outer wall."""

    def act(self, grid, index, cell, parts, action):  # type: ignore[no-untyped-def]
        return (0, 0), parts


class Homing(Attributes, Kind):
    """Lets only those pass who come from the rows above the goal."""

    def act(self, grid, index, cell, parts, action):  # type: ignore[no-untyped-def]
        down, right = Action(action).delta
        return (cell if cell[0] < grid.goal[0] else (cell[0] - down, cell[1] - right)), parts


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (Homing, "wherever the goal is"),
        (Moody, "randomness"),
        (Hidden, "look alike"),
        (Eastern, "rotated"),
        (Uncounted, "states"),
        (Ejecting, "open cell"),
    ],
)
def test_a_kind_that_breaks_a_law_is_told_which(kind: type[Kind], law: str) -> None:
    thing(kind)
    with pytest.raises(AssertionError, match=law) as error:
        check_thing(kind)
    assert "%" in str(error.value), "the grid is shown"
    if law == "rotated":
        check_thing(kind, symmetric=False)


def test_a_class_that_is_not_registered_is_told_to_register() -> None:
    with pytest.raises(ValueError, match="decorate"):
        check_thing(Hidden)


def test_an_agent_that_solves_what_it_sees_is_optimal_in_200_worlds() -> None:
    names, agent, carried = all_names(), Optimal(), 0
    for index in range(200):
        world = GridWorld(grid=grid_with(names[index % len(names)], 1000 + index, size=(7, 9)[index % 2]))
        paths, session = solve(world.grid), world.begin()
        left = paths.steps_from(session.state)
        while left > 0:
            chosen = agent.probabilities(Observation(view=session.view)) > 0
            assert (chosen == paths.optimal_in(session.state)).all()
            session.step(int(np.flatnonzero(chosen)[-1]))
            carried += bool(session.view.grid.held)
            left -= 1
            assert paths.steps_from(session.state) == left
        assert session.solved == (left == 0)
    assert carried > 100


def walk(text: str, moves: str) -> tuple[Grid, State]:
    grid = Grid.parse(text)
    state = initial_state(grid)
    for move in moves.split():
        state = step(grid, state, Action[move])
    return grid, state


@pytest.mark.parametrize(
    ("text", "moves", "cell", "symbols", "held"),
    [
        ("#######\n#ArR_G#\n#######", "RIGHT", (1, 2), "", "r"),
        ("#######\n#Ar_RG#\n#######", "RIGHT RIGHT", (1, 3), "", "r"),
        ("#######\n#A_RrG#\n#######", "RIGHT RIGHT", (1, 2), "Rr", ""),
        ("#######\n#Ab_RG#\n#######", "RIGHT RIGHT RIGHT", (1, 3), "R", "b"),
        ("#######\n#AT_TG#\n#######", "RIGHT", (1, 4), "TT", ""),
        ("#######\n#AL_G_#\n#######", "RIGHT RIGHT", (1, 2), "L", ""),
        ("#######\n#A>_G_#\n#######", "RIGHT", (1, 2), ">", ""),
        ("#######\n#A<_G_#\n#######", "RIGHT", (1, 1), "<", ""),
        ("#######\n#A>_G_#\n#######", "RIGHT RIGHT LEFT", (1, 3), ">", ""),
        ("#######\n#Ac_G_#\n#######", "RIGHT", (1, 2), "", "c"),
        ("#######\n#Ay_HG#\n#######", "RIGHT RIGHT RIGHT", (1, 4), "", ""),
        ("#######\n#A_H_G#\n#######", "RIGHT RIGHT", (1, 2), "H", ""),
        ("########\n#AoE_EG#\n########", "RIGHT RIGHT", (1, 3), "", ""),
        ("#######\n#A_E_G#\n#######", "RIGHT RIGHT", (1, 2), "E", ""),
        ("#######\n#A}_G_#\n#######", "RIGHT", (1, 3), "}", ""),
        ("#######\n#A}c_G#\n#######", "RIGHT", (1, 3), "c}", ""),
        ("#######\n#A}G__#\n#######", "RIGHT", (1, 3), "}", ""),
        ("#######\n#A}L_G#\n#######", "RIGHT RIGHT", (1, 3), "L}", ""),
        ("#######\n#A}}_G#\n#######", "RIGHT", (1, 3), "}}", ""),
        ("########\n#Ac}_tG#\n########", "RIGHT RIGHT", (1, 4), "}", "c"),
        ("#######\n#A}KDG#\n#######", "RIGHT", (1, 3), "}", "K"),
        ("#######\n#Act_G#\n#######", "RIGHT RIGHT", (1, 3), "", "c"),
        ("#######\n#A_tcG#\n#######", "RIGHT RIGHT", (1, 2), "ct", ""),
    ],
)
def test_known_walks(text: str, moves: str, cell: tuple[int, int], symbols: str, held: str) -> None:
    grid, state = walk(text, moves)
    picture = shown(grid, state)
    drawn = "".join(sorted((symbol for _, symbol in picture.things), key=str))
    assert (state.position, drawn, "".join(picture.held)) == (cell, "".join(sorted(symbols)), held)


def test_a_chest_uses_a_key_up_so_two_chests_need_two_keys() -> None:
    one = Grid.parse("#########\n#Ar_H_HG#\n#########")
    two = Grid.parse("#########\n#ArbHHG_#\n#########")
    assert solve(one).steps_from(initial_state(one)) == -1
    assert solve(two).steps_from(initial_state(two)) == 5


def test_lava_ends_the_episode_without_success() -> None:
    world = GridWorld(grid=Grid.parse("#####\n#ALG#\n#####"))
    session = world.begin()
    session.step(Action.RIGHT)
    assert session.done and not session.solved and session.state.position == (1, 2)
    assert solve(world.grid).steps_from(initial_state(world.grid)) == -1


def test_solid_things_block_the_view() -> None:
    world = GridWorld(grid=Grid.parse("########\n#Ao_E_G#\n########"), fog_radius=6)
    session = world.begin()
    before = session.view.grid
    assert before.fog is not None and before.fog[1, 5] and solid_cells(world.grid, session.state)[1, 4]
    session.step(Action.RIGHT)
    after = session.view.grid
    assert after.goal == (1, 6) and not solid_cells(world.grid, session.state)[1, 4]


def test_what_a_grid_with_things_refuses() -> None:
    with pytest.raises(ValueError, match="'%'"):
        Grid.parse("#A_G#").at(things=(((0, 2), "%"),))
    with pytest.raises(ValueError, match="cell to itself"):
        Grid.parse("#A_G#").at(things=(((0, 3), "L"),))
    with pytest.raises(ValueError, match="open cell"):
        Grid.parse("#A_G#").at(things=(((0, 0), "L"),))
    with pytest.raises(ValueError, match="without things"):
        Transform(swapped=True).grid(Grid.parse("#ALG#"))
    with pytest.raises(ValueError, match="carries nothing"):
        GridWorld(grid=Grid.parse("#A_G#").at(held=("r",)))
    many = Grid.parse("\n".join(["A" + "c" * 9 + "_" * 60, *["_" * 70] * 60, "_" * 69 + "G"]))
    with pytest.raises(ValueError, match="200,000 states"):
        solve(many)
    with pytest.raises(ValueError, match="together, got 60: use fewer"):
        GridWorld(grid=Grid.parse("A" + "c" * 60 + "G"))
    with pytest.raises(ValueError, match="flags from 0 to 11"):
        GridWorld(grid=Grid.parse("#ArG#")).check_state((0, 1, 12))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symbol": "G"}, "symbol"),
        ({"symbol": "7"}, "symbol"),
        ({"symbol": "r"}, "stands for 'red key'"),
        ({"legend": ""}, "legend"),
        ({"states": 11}, "states"),
        ({"name": "Crate"}, "lower-case"),
        ({"events": {"held": 2}}, "second state"),
        ({"events": {"held": 2}, "states": 2}, "events"),
        ({"shown": lambda self, own: True, "states": 2}, "determines its state"),
    ],
)
def test_what_a_kind_must_be(changes: dict[str, object], message: str) -> None:
    attributes = {"symbol": "%", "name": "crate", "legend": "a crate", **changes}
    with pytest.raises(ValueError, match=message):
        thing(type("Crate", (Kind,), attributes))
    assert kind_of("%") is None and "%" not in RESERVED


def test_the_symbol_of_a_built_in_kind_is_taken_even_for_a_module_that_is_imported_first() -> None:
    code = """
from goalscope.worlds import things
class Crown(things.Kind):
    symbol, name, legend = "c", "crown", "a crown"
try:
    things.thing(Crown)
except ValueError as error:
    print(error)
print(things.kind_of("c").name, "crown" in [kind.name for kind in things.kinds()])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    refusal, kind = result.stdout.splitlines()
    assert "'coin'" in refusal and kind == "coin False"


def test_the_view_names_what_is_under_the_agent() -> None:
    grid, state = walk("#######\n#AT_TG#\n#######", "RIGHT")
    view = GridView(grid=shown(grid, state))
    assert view.standing_on == "T" and view.text.count("T") == 1
