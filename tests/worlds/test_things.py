"""Things in grids: laws that hold for every registered kind, also of other packages, and known answers of each kind."""

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from goalscope.agents import Observation, Optimal
from goalscope.worlds import ACTIONS, Action, Grid, GridView, GridWorld, State, Transform, initial_state, shown, step
from goalscope.worlds.dynamics import has_ended, opaque_cells, seen_state, state_number, transitions
from goalscope.worlds.encodings import ENCODINGS, cell_offsets, written
from goalscope.worlds.environments.solution import solve_table
from goalscope.worlds.environments.table import enumerate_states
from goalscope.worlds.planning import solve
from goalscope.worlds.things import RESERVED, Kind, arrangement_of, kind_of, kinds, thing
from tests.thing_grids import GridEnvironment, all_names, grid_with, plugin_things

SYMMETRIES = [Transform(turns=turns, reflected=reflected) for turns in range(4) for reflected in (False, True)]
GRIDS = 8


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with plugin_things():
        yield


def reachable(grid: Grid) -> list[State]:
    states, waiting = set[State](), [initial_state(grid)]
    while waiting:
        state = waiting.pop()
        if state not in states:
            states.add(state)
            if not has_ended(grid, state):
                waiting += [step(grid, state, action) for action in ACTIONS]
    return sorted(states)


@pytest.mark.parametrize("name", all_names())
def test_the_solution_is_that_of_environments(name: str) -> None:
    for seed in range(GRIDS):
        grid = grid_with(name, seed)
        table = enumerate_states(GridEnvironment(grid))
        expected, paths, numbers = solve_table(table), solve(grid), transitions(grid)
        assert expected.distance is not None and expected.optimal is not None
        for index, state in enumerate(table.states):
            assert paths.steps_from(state) == expected.distance[index]
            assert (paths.optimal_in(state) == expected.optimal[index]).all()
            if not has_ended(grid, state):
                after = [state_number(grid, step(grid, state, action)) for action in ACTIONS]
                assert numbers[state_number(grid, state)].tolist() == after


@pytest.mark.parametrize("name", all_names())
def test_a_kind_is_pure_and_its_digits_stay_within_its_states(name: str) -> None:
    kind = next(kind for kind in kinds() if kind.name == name)
    for seed in range(GRIDS):
        grid = grid_with(name, seed)
        arrangement = arrangement_of(grid.things, grid.held)
        for state in reachable(grid):
            parts = arrangement.unpack(state.things)
            assert arrangement.pack(parts) == state.things
            for index, (cell, symbol) in enumerate(grid.things):
                if symbol == kind.symbol and not kind.solid(parts[index]):
                    for action in ACTIONS:
                        row, col = cell[0] - action.delta[0], cell[1] - action.delta[1]
                        if not grid.walls[row, col]:  # only such moves lead there
                            once = kind.act(grid, index, cell, parts, action)
                            assert once == kind.act(grid, index, cell, parts, action)
                            assert all(
                                0 <= digit < k.states for digit, k in zip(once[1], arrangement.kinds, strict=True)
                            )


@pytest.mark.parametrize("name", all_names())
def test_the_text_leads_back_to_the_grid_in_every_encoding(name: str) -> None:
    for seed in range(GRIDS):
        grid = grid_with(name, seed)
        assert Grid.parse(grid.render()) == grid
        assert GridWorld.from_plain(GridWorld(grid=grid).to_plain()).grid == grid
        for encoding in ENCODINGS:
            text = written(encoding, grid.render())
            offsets = cell_offsets(grid.render(), text)
            assert offsets is not None and all(text[offsets[cell]] == symbol for cell, symbol in grid.things)
        assert GridWorld(grid=grid).id != GridWorld(grid=grid.at(things=())).id


@pytest.mark.parametrize("name", all_names())
def test_what_is_seen_determines_the_future(name: str) -> None:
    for seed in range(GRIDS):
        grid = grid_with(name, seed)
        paths, pictures = solve(grid), dict[Grid, tuple[int, list[bool]]]()
        for state in reachable(grid):
            future = paths.steps_from(state), paths.optimal_in(state).tolist()
            picture = shown(grid, state)
            assert pictures.setdefault(picture, future) == future
            seen = seen_state(grid, picture)
            assert (paths.steps_from(seen), paths.optimal_in(seen).tolist()) == future
            for action in ACTIONS:
                assert shown(grid, step(grid, seen, action)) == shown(grid, step(grid, state, action))
            if not has_ended(grid, state):
                believed = solve(picture)
                assert (
                    believed.steps_from(initial_state(picture)),
                    believed.optimal[believed.first][state.position].tolist(),
                ) == future


@pytest.mark.parametrize("name", all_names())
def test_the_eight_symmetries_of_the_square_turn_steps_and_solutions(name: str) -> None:
    for seed in range(GRIDS // 4):
        grid = grid_with(name, seed)
        for symmetry in SYMMETRIES:
            turned = symmetry.grid(grid)
            assert symmetry.inverse().grid(turned) == grid
            if sum(symbol == "T" for _, symbol in grid.things) > 2:
                continue  # three teleporters lead on in reading order, which a turn changes
            for state in reachable(grid):
                other = symmetry.state(grid, state)
                assert solve(turned).steps_from(other) == solve(grid).steps_from(state)
                for action in ACTIONS:
                    after = step(turned, other, symmetry.action(action))
                    before_turn = step(grid, state, action)
                    assert after.position == symmetry.position(before_turn.position, grid.walls.shape)
                    assert shown(turned, after) == symmetry.grid(shown(grid, before_turn))


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
    assert before.fog is not None and before.fog[1, 5] and opaque_cells(world.grid, session.state) == [(1, 4)]
    session.step(Action.RIGHT)
    after = session.view.grid
    assert after.goal == (1, 6) and not opaque_cells(world.grid, session.state)


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
        ({"events": {"held": 2}}, "events"),
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


def test_a_thing_that_moves_the_agent_into_a_wall_is_refused() -> None:
    class Broken(Kind):
        symbol, name, legend = "%", "broken mover", "a broken mover"

        def act(self, grid, index, cell, parts, action):  # type: ignore[no-untyped-def]
            return (0, 0), parts

    thing(Broken)
    grid = Grid.parse("#####\n#A%G#\n#####")
    with pytest.raises(ValueError, match="broken mover"):
        step(grid, initial_state(grid), Action.RIGHT)


def test_the_view_names_what_is_under_the_agent() -> None:
    grid, state = walk("#######\n#AT_TG#\n#######", "RIGHT")
    view = GridView(grid=shown(grid, state))
    assert view.standing_on == "T" and view.text.count("T") == 1
