"""Traces are optimal, labels are what follows, and side branches see nothing but the prompt and themselves."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.worlds import ACTIONS, Action, Grid, settle, shown
from goalscope.worlds import step as take
from goalscope.worlds.planning import optimal_actions
from training.data import DENSITIES, GOALS, Goal, Mixture, block, draw_worlds, plan, sequences
from training.keys import KINDS, key_plan, key_worlds
from training.layout import MOST_MOVES, layout
from training.vocabulary import MOVES, SYMBOLS, encode, pieces

SMALL = Mixture(steps=4, tokens=1200)


def text_of(tokens: np.ndarray) -> str:
    return "".join(pieces()[token] for token in tokens)


def shown_grid(text: str) -> Grid:
    return Grid.parse(text.split("The grid as it is now:\n\n")[1].split("\n\nThe moves:")[0])


@pytest.mark.parametrize("size", [7, 11, 15])
def test_traces_state_the_cells_and_walk_a_shortest_path(size: int) -> None:
    rng = stream(5, "data", size)
    symbols, target = draw_worlds(size, 0.7, 12, seed=5, first=0, goal="goal", name="test")
    made = sequences(plan(symbols, target, 4, MOST_MOVES, rng), 2)
    where = made.layout
    for row in made.tokens:
        main = text_of(row[: where.branches.min()]).split("<|endoftext|>")[0]
        grid = shown_grid(main)
        said = re.search(
            r"analysis<\|message\|>to \((\d+),(\d+)\) from \((\d+),(\d+)\):([A-Z ]+)<\|end\|>"
            r"<\|start\|>assistant<\|channel\|>final<\|message\|>(.*)<\|return",
            main,
        )
        assert said is not None
        goal, start = (int(said[1]), int(said[2])), (int(said[3]), int(said[4]))
        assert (grid.goal, grid.start) == (goal, start)
        moves = [Action[name] for name in said[5].split()]
        assert json.loads(said[6]) == {"action": moves[0].name}
        place = start
        for action in moves:
            assert action in optimal_actions(grid, place)
            place = (place[0] + action.delta[0], place[1] + action.delta[1])
        assert len(moves) == MOST_MOVES or place == goal


def test_branches_ask_for_all_optimal_moves_of_other_cells() -> None:
    rng = stream(6, "data")
    symbols, target = draw_worlds(9, 0.5, 8, seed=6, first=0, goal="goal", name="test")
    made = sequences(plan(symbols, target, 10, MOST_MOVES, rng), 2)
    where = made.layout
    checked = 0
    for number, row in enumerate(made.tokens):
        grid = shown_grid(text_of(row[: where.branches.min()]))
        for places in where.branches:
            stated = re.fullmatch(r"\((\d+),(\d+)\):.*", text_of(row[places]))
            assert stated is not None
            cell = (int(stated[1]), int(stated[2]))
            asked = places[2] - where.prompt + 1
            wanted = optimal_actions(grid, cell)
            spread = made.moves[number, asked]
            assert {action for action in ACTIONS if spread[action]} == wanted
            assert spread.sum() == pytest.approx(1)
            if made.weights[number, asked + 1]:
                first = Action[text_of(row[places[3:4]]).strip()]
                beyond = (cell[0] + first.delta[0], cell[1] + first.delta[1])
                assert first in wanted
                assert {a for a in ACTIONS if made.moves[number, asked + 1][a]} == optimal_actions(grid, beyond)
                checked += 1
    assert checked > 40


def test_labels_are_the_next_tokens_wherever_something_is_trained() -> None:
    for made in block(SMALL, 0):
        where = made.layout
        main = where.branches.min() - where.prompt
        trained = made.weights[:, :main] > 0
        following = made.tokens[:, where.prompt : where.prompt + main]
        single = trained & (made.moves[:, :main].sum(axis=-1) == 0)
        assert np.array_equal(made.labels[:, :main][single], following[single])
        planned = trained & (made.moves[:, :main].sum(axis=-1) > 0)
        chosen = np.array([encode(MOVES).index(token) for token in following[planned]])
        assert (made.moves[:, :main][planned][np.arange(len(chosen)), chosen] > 0).all()
        assert (made.weights[:, main:] > 0).any()


@pytest.mark.parametrize("size", [7, 13])
def test_a_branch_sees_the_prompt_and_itself(size: int) -> None:
    where = layout(size, 3, 2)
    for places in where.branches:
        for step, place in enumerate(places):
            seen = set(np.flatnonzero(where.allowed[place]).tolist())
            assert seen == {*range(where.fork + 1), *places[: step + 1].tolist()}
            assert where.positions[place] == where.fork + 1 + step
    main = np.arange(where.branches.min())
    assert np.array_equal(where.allowed[: len(main)], np.tri(len(main), len(where.template), dtype=bool))
    assert np.array_equal(where.positions[: len(main)], main)


def test_batches_depend_on_the_seed_and_the_number_alone() -> None:
    first, again = block(SMALL, 3), block(SMALL, 3)
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(first, again, strict=True))
    other, reseeded = block(SMALL, 4), block(replace(SMALL, seed=1), 3)
    for changed in (other, reseeded):
        pairs = zip(first, changed, strict=True)
        assert not all(a.tokens.shape == b.tokens.shape and np.array_equal(a.tokens, b.tokens) for a, b in pairs)


def test_training_covers_all_densities_and_sizes_of_its_mixture() -> None:
    batches = block(replace(SMALL, steps=24, sizes=(7, 9)), 0)
    assert {len(made.layout.cells) for made in batches} == {49, 81}
    assert DENSITIES[0] == 0 and DENSITIES[-1] == 1
    for made in batches:
        assert made.tokens.size <= 1200


@pytest.mark.parametrize("goal", GOALS)
def test_planted_goals_lead_where_they_say(goal: Goal) -> None:
    symbols, target = draw_worlds(9, 0.6, 20, seed=7, first=0, goal=goal, name="test")
    at_target = symbols[np.arange(20), target[:, 0], target[:, 1]]
    corner = (target == [1, 7]).all(axis=1)
    goals = (symbols == SYMBOLS.index("G")).sum(axis=(1, 2))
    keys = (symbols == SYMBOLS.index("K")).sum(axis=(1, 2))
    assert (goals == 1).all()
    assert (keys == (goal == "key")).all()
    if goal == "goal":
        assert (at_target == SYMBOLS.index("G")).all() and not corner.all()
    elif goal == "key":
        assert (at_target == SYMBOLS.index("K")).all()
    elif goal == "corner":
        assert corner.all() and not (at_target == SYMBOLS.index("G")).all()
    else:
        assert corner.all() and (at_target == SYMBOLS.index("G")).all()
    plans = plan(symbols, target, 3, MOST_MOVES, stream(8, "data"))
    assert (plans.moves[:, 0, 0] >= 0).all()
    assert (plans.symbols == SYMBOLS.index("A")).sum() == 20


def test_an_unknown_goal_is_an_error() -> None:
    with pytest.raises(ValueError, match="goal"):
        draw_worlds(7, 0.5, 1, seed=0, first=0, goal="door", name="test")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_plans_with_keys_are_optimal_in_every_phase(kind: str) -> None:
    rng = stream(9, "keys", kind)
    size = 9
    for grid in key_worlds(kind, size, 8, rng):
        found = key_plan(grid, 6, MOST_MOVES, rng)
        view = Grid.parse([[SYMBOLS[code] for code in row] for row in found.symbols.tolist()])
        locked = {False: view.key, True: view.door}[found.carrying] if view.door else view.goal
        assert locked == tuple(found.target) and view.start == tuple(found.origin[0])
        assert not (found.carrying and view.key)
        for origin, moves, spread in zip(found.origin, found.moves, found.optimal, strict=True):
            cell = (int(origin[0]), int(origin[1]))
            state = settle(view, cell, found.carrying)
            for move, options in zip(moves[moves >= 0], spread, strict=False):
                here = shown(view, state)
                wanted = optimal_actions(here.at(start=None), state.position, state.carrying_key)
                assert {action for action in ACTIONS if options[action]} == wanted
                assert Action(move) in wanted
                state = take(view, state, Action(move))
            ended = view.door != shown(view, state).door if found.carrying else state.position == view.key
            assert (moves >= 0).all() or (ended if view.door else state.position == view.goal)


def test_batches_with_keys_say_whether_the_key_is_carried() -> None:
    batches = block(replace(SMALL, key_share=1.0, steps=12), 0)
    carried = 0
    for made in batches:
        for row in made.tokens:
            text = text_of(row[: made.layout.branches.min()])
            said = re.search(r"The agent carries the key: (yes|no)\n", text)
            assert said is not None and text.startswith("<|start|>system") and "D a locked door" in text
            grid = shown_grid(text.split("\n\nThe agent carries")[0] + "\n\nThe moves:")
            assert not (said[1] == "yes" and grid.key is not None)
            carried += said[1] == "yes"
    assert carried > 0
    assert len({len(made.layout.cells) for made in batches}) > 1


def test_an_enlarged_mixture_keeps_the_plain_grids() -> None:
    batches = block(replace(SMALL, key_share=0.5, steps=16), 1)
    plain = [made for made in batches if "The agent carries" not in text_of(made.tokens[0][: made.layout.prompt])]
    assert 0 < len(plain) < 16
