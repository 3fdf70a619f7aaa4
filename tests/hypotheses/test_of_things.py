"""Places and events of things as hypotheses, against a search that knows nothing but `step`."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from goalscope.goals.hypotheses import banks, bind, load_hypotheses, parse
from goalscope.goals.hypotheses.definition import Undefined, finite_world
from goalscope.goals.reading import IN_GRIDS, default_hypotheses
from goalscope.worlds import ACTIONS, Action, Grid, GridWorld, State, initial_state, step
from goalscope.worlds.dynamics import has_ended, state_number
from goalscope.worlds.thing_check import grid_with
from goalscope.worlds.things import Kind, arrangement_of, kinds
from thing_grids import all_names, plugin_things

TWO_KEYS = "#########\n#r_A__rG#\n#____R__#\n#########"


@pytest.fixture(autouse=True)
def _plugins() -> Iterator[None]:
    with plugin_things():
        yield


def searched(grid: Grid, holds: Callable[[State], bool]) -> dict[State, int]:
    """Return the number of steps from each reachable state to the nearest one in which something holds, -1 if none."""
    states, waiting = dict[State, list[State]](), [initial_state(grid)]
    while waiting:
        state = waiting.pop()
        if state not in states:
            states[state] = [] if has_ended(grid, state) else [step(grid, state, action) for action in ACTIONS]
            waiting += states[state]
    steps = {state: 0 if holds(state) else -1 for state in states}
    for _ in states:
        for state, after in states.items():
            near = [steps[other] for other in after if steps[other] >= 0]
            if steps[state] != 0 and near and (steps[state] < 0 or 1 + min(near) < steps[state]):
                steps[state] = 1 + min(near)
    return steps


def holding(grid: Grid, kind: Kind, word: str) -> Callable[[State], bool]:
    """Return whether an event of a kind has happened, or, for any other word, whether the agent is at such a thing."""
    arrangement = arrangement_of(grid.things, ())
    own = [index for index, (_, symbol) in enumerate(grid.things) if symbol == kind.symbol]
    cells = [grid.things[index][0] for index in own]
    if word not in kind.events:
        return lambda state: state.position in cells
    return lambda state: any(arrangement.unpack(state.things)[index] >= kind.events[word] for index in own)


@pytest.mark.parametrize("name", all_names())
def test_places_and_events_of_each_kind_are_those_of_a_plain_search(name: str) -> None:
    kind = next(kind for kind in kinds() if kind.name == name)
    for seed in range(2):
        grid = grid_with(name, seed)
        world = finite_world(GridWorld(grid=grid), 20)
        for text in kind.hypotheses:
            word = text.removeprefix(f"{name} ")
            expected = searched(grid, holding(grid, kind, word))
            try:
                hypothesis = parse(text)
                mask = hypothesis.where(world)
                policy = hypothesis.solved(world).policy[0]
            except Undefined:
                ends = [state for state, steps in expected.items() if steps == 0 and state.position != grid.goal]
                assert not ends
                continue
            if word in kind.events:
                for state, steps in expected.items():
                    assert mask[state_number(grid, state)] == (steps == 0)
                    if has_ended(grid, state):
                        continue
                    after = [expected[step(grid, state, action)] for action in ACTIONS]
                    best = [steps > 0 and value == steps - 1 for value in after]
                    if any(best):
                        assert ((policy[state_number(grid, state)] > 0) == best).all()
            elif world.targets(hypothesis).ndim == 1:
                assert expected[initial_state(grid)] == world.steps_to(mask)[state_number(grid, initial_state(grid))]
            else:
                moves = entering(grid, hypothesis.cell(world))
                before = searched(grid, lambda state, moves=moves: any(state == origin for origin, _ in moves))
                for state, steps in before.items():
                    after = [steps > 0 and before[step(grid, state, action)] == steps - 1 for action in ACTIONS]
                    best = after if steps else [(state, action) in moves for action in ACTIONS]
                    if any(best):
                        assert ((policy[state_number(grid, state)] > 0) == best).all()


def entering(grid: Grid, cell: tuple[int, int]) -> set[tuple[State, Action]]:
    """Return the moves that enter a cell, from all states that an agent can reach."""
    states = [state for state in searched(grid, lambda state: False) if not has_ended(grid, state)]
    return {
        (state, action)
        for state in states
        for action in ACTIONS
        if (state[0] + action.delta[0], state[1] + action.delta[1]) == cell and step(grid, state, action) != state
    }


@pytest.mark.parametrize("name", all_names())
def test_moves_that_enter_a_cell_are_those_of_a_plain_search(name: str) -> None:
    for seed in range(2):
        grid = grid_with(name, seed)
        world = finite_world(GridWorld(grid=grid), 20)
        for cell, _ in grid.things:
            numbers = {(state_number(grid, state), int(action)) for state, action in entering(grid, cell)}
            assert numbers == {(state, action) for state, action in np.argwhere(world.entering(cell)).tolist()}


def test_to_be_at_a_thing_that_moves_every_agent_on_means_to_enter_it() -> None:
    grid = Grid.parse("########\n#A_}_G_#\n#______#\n########")
    world = finite_world(GridWorld(grid=grid), 20)
    for text in ("at conveyor right", "cell 1 3"):
        solved = parse(text).solved(world)
        policy = {
            (row, col): solved.policy[0][row * 8 + col].tolist() for row, col in np.argwhere(~grid.walls).tolist()
        }
        assert policy[1, 1] == policy[1, 2] == [0, 0, 0, 1] and policy[2, 3] == [1, 0, 0, 0], "enter it"
        assert policy[1, 4] == [0, 1, 0, 0], "and once more; from the right it moves nobody"
        assert solved.utility is not None and solved.utility.sum() == 2 and solved.utility[1 * 8 + 2, Action.RIGHT] == 1
        assert world.steps_to(world.targets(parse(text)))[1 * 8 + 1] == 2
    near, even = (parse(f"at conveyor right within {steps} steps").solved(world).policy[0] for steps in (1, 0))
    assert near[1 * 8 + 2].tolist() == [0, 0, 0, 1] and near[1 * 8 + 1].tolist() == even[1 * 8 + 2].tolist()
    both = parse("1 * at conveyor right + 3 * cell 2 6").utility(world)
    assert both[1 * 8 + 2].tolist() == [0, 0, 0, 1] and both[2 * 8 + 6].tolist() == [3, 3, 3, 3]
    assert parse("(at conveyor right) +0,+1").cell(world) == (1, 4)
    assert parse("beside (at conveyor right)").cell(world) == (1, 2)
    blocked = finite_world(GridWorld(grid=Grid.parse("########\n#A_}#G_#\n#______#\n########")), 20)
    assert parse("at conveyor right").solved(blocked).policy is not None
    unopened = finite_world(GridWorld(grid=Grid.parse("########\n#A_}tG_#\n########")), 20)
    with pytest.raises(Undefined, match="cannot be reached"):
        parse("toll gate open").solved(unopened)
    behind = finite_world(GridWorld(grid=Grid.parse("########\n#AG}___#\n########")), 20)
    with pytest.raises(Undefined, match="passing the goal"):
        parse("at conveyor right").solved(behind)


def test_at_a_teleporter_is_where_the_agent_comes_out_of_the_nearest_one() -> None:
    world = finite_world(GridWorld(grid=Grid.parse("########\n#A_T_G_#\n#______#\n#_T____#\n########")), 20)
    assert parse("at teleporter").cell(world) == (3, 2), "the one that it enters in two steps leads there"


def test_the_nearest_of_equal_things_is_the_place_and_any_of_them_makes_the_event() -> None:
    world = finite_world(GridWorld(grid=Grid.parse(TWO_KEYS)), 20)
    assert parse("at red key").cell(world) == (1, 1)
    held = parse("red key held").where(world)
    assert held.sum() == held.size * 6 // 7, "all but the first configuration: the door opens only with a key"
    every = parse("every red key held").where(world)
    assert every.sum() == held.size * 2 // 7 and (held | ~every).all(), "both keys in hand, with the door shut or open"


def test_defaults_have_the_things_of_the_worlds_and_a_misspelt_one_is_named() -> None:
    worlds = [GridWorld(grid=Grid.parse(TWO_KEYS))]
    added = ["at red key", "red key held", "red key spent", "at red door", "red door open"]
    assert list(default_hypotheses(worlds)) == [*IN_GRIDS, *added]
    assert list(default_hypotheses([GridWorld(grid=Grid.parse("#A_G#"))])) == list(IN_GRIDS)
    assert {"toll gate open", "at conveyor up"} <= set(banks()["things"])
    assert list(load_hypotheses("things", worlds)) == ["goal", *added], "of these worlds alone"
    with pytest.raises(ValueError, match="worlds with things"):
        load_hypotheses("things", [GridWorld(grid=Grid.parse("#A_G#"))])
    with pytest.raises(ValueError, match="'red key held'"):
        bind(parse("red kee held"), worlds)
    with pytest.raises(Undefined, match="no coin"):
        parse("coin collected").where(finite_world(worlds[0], 5))


def test_the_key_of_the_paper_keeps_its_event_beside_things() -> None:
    grid = Grid.parse("########\n#AK_Dr_G\n########")
    world = finite_world(GridWorld(grid=grid), 20)
    for moves, expected in (("RIGHT", (True, False)), ("RIGHT RIGHT", (True, True)), ("LEFT", (False, False))):
        state = initial_state(grid)
        for move in moves.split():
            state = step(grid, state, Action[move])
        number = state_number(grid, state)
        assert tuple(bool(parse(text).where(world)[number]) for text in ("key held", "door open")) == expected
