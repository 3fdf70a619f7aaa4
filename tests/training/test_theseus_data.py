"""Theseus' training data and tokenizer: optimal traces, what an agent would be shown, fog included; no text is lost."""

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from goalscope._ground.rng import stream
from goalscope.agents import ChatAgent, Observation, Past
from goalscope.agents.models import LocalModel
from goalscope.agents.prompts import TEMPLATES, fill, passages, template
from goalscope.worlds import ACTIONS, Action, Fog, Grid, GridView, Position, generate, settle, shown
from goalscope.worlds import step as take
from goalscope.worlds.grid import symbols
from goalscope.worlds.planning import optimal_actions
from training import fogged
from training.data import DENSITIES, GOALS, SIZES, Batch, Goal, Mixture, block, draw_worlds, plan, sequences
from training.fogged import MOST_STEPS, State, Walks, draw_steps, reached, solid, walk
from training.keys import KINDS, key_plan, key_worlds
from training.layout import MOST_MOVES, layout, prompt_layout
from training.network import Shape
from training.theseus import main
from training.tokens import SPECIAL
from training.train import Run, Settings
from training.vocabulary import (
    MOVES,
    SYMBOLS,
    VOCABULARY_SIZE,
    cell_piece,
    cell_width,
    encode,
    ids,
    pieces,
    vocabulary,
)

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


# Under fog the training shows what an agent would be shown, word for word, and plans over what has been seen.


UNDER_FOG = Mixture(steps=4, tokens=1200, fog_share=1.0)


@cache
def agent() -> ChatAgent:
    return ChatAgent(model=LocalModel("theseus"), task="fog")


@cache
def walks(size: int, count: int = 40, noise: tuple[float, ...] = fogged.NOISE, steps: int = MOST_STEPS) -> Walks:
    parts = [
        draw_worlds(size, density, count // 4, seed=3, first=0, goal="goal", name="test")[0]
        for density in (0.0, 0.3, 0.7, 1.0)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fogged, "NOISE", noise)
        return walk(np.concatenate(parts), steps, stream(3, "walks", size))


def only(whole: Walks, number: int) -> Walks:
    part = slice(number, number + 1)
    return Walks(
        symbols=whole.symbols[part],
        place=whole.place[part],
        action=whole.action[part],
        lasting=whole.lasting[part],
    )


def world_of(whole: Walks, number: int) -> Grid:
    rows = [[SYMBOLS[code] for code in row] for row in whole.symbols[number].tolist()]
    row, col = divmod(int(whole.place[number, 0]), len(rows))
    return Grid.parse(rows).at(start=(row, col))


def replayed(world: Grid, actions: list[int]) -> tuple[Grid, tuple[Past, ...]]:
    """Return what an agent sees after some actions, and its history, step by step as a run makes them."""
    assert world.start is not None
    place, fog, past = world.start, Fog.start(world, 3), []
    for action in actions:
        past.append(Past(view=GridView(grid=fog.view(world.at(start=place))), action=Action(action)))
        there = (place[0] + Action(action).delta[0], place[1] + Action(action).delta[1])
        place = place if world.walls[there] else there
        fog = fog.look(place)
    return fog.view(world.at(start=place)), tuple(past)


def tokens_of(state: State, branches: int = 3) -> Batch:
    closed = solid(state.view, state.target)
    plans = plan(
        state.view, state.target, branches + 1, MOST_MOVES, stream(4, "plan"), closed=closed, first=state.place
    )
    return sequences(replace(plans, history=state.history), 2)


@pytest.mark.parametrize("size", [7, 9, 11, 15])
@pytest.mark.parametrize("steps", [0, 1, 12])
def test_the_prompt_is_the_agents_own_after_the_same_walk(size: int, steps: int) -> None:
    whole = walks(size)
    lasting = np.flatnonzero(whole.lasting >= steps)[:6].tolist()
    assert len(lasting) >= 4
    model = agent().model
    assert isinstance(model, LocalModel)
    for number in lasting:
        made = tokens_of(reached(only(whole, number), steps, 1, stream(5, "reached")))
        seen, past = replayed(world_of(whole, number), whole.action[number, :steps].tolist())
        prompt = agent().prompt(Observation(view=GridView(grid=seen), history=past, history_as="actions", step=steps))
        assert made.tokens[0, : made.layout.prompt].tolist() == model.tokenizer.encode(prompt, add_special_tokens=False)


def search(view: Grid, begin: Position, target: Position) -> dict[Position, int]:
    """Return the steps from one cell to each seen open one, and to the target, which no way leads through."""
    hidden = np.zeros_like(view.walls) if view.fog is None else view.fog
    found, queue = {begin: 0}, deque([begin])
    while queue:
        here = queue.popleft()
        for action in ACTIONS:
            there = (here[0] + action.delta[0], here[1] + action.delta[1])
            inside = 0 <= there[0] < view.height and 0 <= there[1] < view.width
            if not inside or there in found or view.walls[there] or here == target != begin:
                continue
            if there == target or not (hidden[there] or there == view.goal):
                found[there] = found[here] + 1
                queue.append(there)
    return found


def wanted_targets(view: Grid) -> set[Position]:
    """Return the targets that the teacher may choose, found by one search for each candidate."""
    assert view.start is not None
    if view.goal is not None and view.goal in search(view, view.start, view.goal):
        return {view.goal}
    assert view.fog is not None
    hidden = {(int(row), int(col)) for row, col in np.argwhere(view.fog)}
    hidden = {cell for cell in hidden if 0 < cell[0] < view.height - 1 and 0 < cell[1] < view.width - 1}
    steps = {cell: search(view, view.start, cell).get(cell, 999) for cell in hidden}
    nearest = [cell for cell in hidden if steps[cell] == min(steps.values()) < 999]
    around = {cell: sum(abs(cell[0] - row) + abs(cell[1] - col) <= 2 for row, col in hidden) for cell in nearest}
    return {cell for cell in nearest if around[cell] == max(around.values())}


@pytest.mark.parametrize("size", [7, 11, 15])
def test_plans_are_shortest_over_what_has_been_seen(size: int) -> None:
    whole, rng = walks(size), stream(6, "plans", size)
    to_the_goal = 0
    for steps in (0, 3, 14):
        state = reached(whole, steps, 8, rng)
        closed = solid(state.view, state.target)
        plans = plan(state.view, state.target, 5, MOST_MOVES, rng, closed=closed, first=state.place)
        for number in range(8):
            view = Grid.parse([[SYMBOLS[code] for code in row] for row in plans.symbols[number].tolist()])
            target = (int(plans.target[number, 0]), int(plans.target[number, 1]))
            assert view.start == divmod(int(state.place[number]), size) == tuple(plans.origin[number, 0].tolist())
            assert target in wanted_targets(view)
            to_the_goal += target == view.goal
            back = search(view, target, target)
            for origin, moves, spread in zip(
                plans.origin[number].tolist(), plans.moves[number], plans.optimal[number], strict=True
            ):
                place = (origin[0], origin[1])
                assert place != target and place != view.goal and not view.walls[place]
                assert view.fog is None or not view.fog[place]
                for move, options in zip(moves[moves >= 0], spread, strict=False):
                    shorter = {
                        action
                        for action in ACTIONS
                        if back.get((place[0] + action.delta[0], place[1] + action.delta[1]), 999) == back[place] - 1
                    }
                    assert {action for action in ACTIONS if options[action]} == shorter
                    assert options.sum() == pytest.approx(1)
                    assert Action(move) in shorter
                    place = (place[0] + Action(move).delta[0], place[1] + Action(move).delta[1])
                assert (moves >= 0).all() or place == target
    assert 0 < to_the_goal < 24


@pytest.mark.parametrize("size", [7, 11])
def test_without_noise_the_teacher_arrives(size: int) -> None:
    whole = walks(size, noise=(0.0,), steps=200)
    assert (whole.lasting < 200).all()
    for number in range(len(whole.lasting)):
        world = world_of(whole, number)
        last = int(whole.lasting[number])
        end, _ = replayed(world.at(goal=None), whole.action[number, : last + 1].tolist())
        assert end.start == world.goal


def test_noise_walks_into_walls_now_and_then() -> None:
    def bumps(whole: Walks) -> float:
        valid = np.arange(MOST_STEPS) < whole.lasting[:, None]
        return float(((whole.place[:, 1:] == whole.place[:, :-1]) & valid).sum() / valid.sum())

    assert 0.01 < bumps(walks(9)) < 0.4
    assert bumps(walks(9, noise=(0.0,))) == 0


def test_histories_have_all_lengths_and_at_times_none() -> None:
    rng = stream(7, "steps")
    drawn = np.array([draw_steps(rng) for _ in range(4000)])
    assert set(drawn.tolist()) == set(range(MOST_STEPS + 1))
    assert (drawn == 0).mean() == pytest.approx(0.15, abs=0.02)
    # Uniform in the logarithm of 1..41: the lengths 1 to 5 have ln 6 / ln 41 of it.
    assert (drawn[drawn > 0] <= 5).mean() == pytest.approx(np.log(6) / np.log(41), abs=0.03)


def test_too_long_a_history_is_cut_to_what_enough_walks_reach() -> None:
    whole = walks(7, noise=(0.0,))
    state = reached(whole, MOST_STEPS, 10, stream(8, "cut"))
    longest = np.sort(whole.lasting)[::-1]
    assert state.history.shape == (10, longest[9], 3) and longest[9] < MOST_STEPS


def test_batches_state_a_shown_goal_or_a_hidden_cell() -> None:
    goals = hidden = 0
    for made in block(replace(UNDER_FOG, steps=10), 2):
        assert made.tokens.size <= 1200 and made.tokens.shape[1] < 600
        for row in made.tokens:
            text = "".join(pieces()[token] for token in row[: made.layout.branches.min()])
            shown = Grid.parse(text.split("The grid as it is now:\n\n")[1].split("\n\nThe moves:")[0])
            said = re.search(r"message\|>to \((\d+),(\d+)\) from \((\d+),(\d+)\):( UP| DOWN| LEFT| RIGHT)+<", text)
            assert said is not None
            target, begin = (int(said[1]), int(said[2])), (int(said[3]), int(said[4]))
            assert shown.start == begin
            goals += target == shown.goal
            hidden += shown.fog is not None and bool(shown.fog[target])
            assert target == shown.goal or (shown.fog is not None and shown.fog[target])
    assert goals and hidden


@pytest.mark.full
def test_blocks_under_fog_depend_on_seed_and_number_alone() -> None:
    mixture = replace(UNDER_FOG, fog_share=0.5, key_share=0.2, steps=8)
    first, again = block(mixture, 1), block(mixture, 1)
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(first, again, strict=True))
    assert digest(block(replace(mixture, seed=1), 1)) != digest(first) != digest(block(mixture, 2))
    named = [re.search("carries|so far", "".join(pieces()[token] for token in made.tokens[0])) for made in first]
    assert {None if found is None else found[0] for found in named} == {None, "carries", "so far"}


def digest(batches: Iterable[Batch]) -> str:
    found = hashlib.sha256()
    for made in batches:
        where = made.layout
        for array in (
            where.template,
            where.positions,
            where.wanted,
            made.tokens,
            made.labels,
            made.weights,
            made.moves,
        ):
            found.update(str((array.dtype, array.shape)).encode() + array.tobytes())
        found.update(str((where.allowed.dtype, where.allowed.shape)).encode() + where.allowed.tobytes())
    return found.hexdigest()[:16]


def test_without_a_share_of_fog_the_blocks_are_those_from_before_there_was_any() -> None:
    plain, keyed = Mixture(steps=6, tokens=1200), Mixture(steps=6, tokens=1200, key_share=0.4, seed=2)
    assert [digest(block(mixture, number)) for mixture in (plain, keyed) for number in (0, 7)] == [
        "f20bf4d992297bcd",
        "aa269091e2a9d82b",
        "dd3577bf09e63b2a",
        "3d84c31918ff152f",
    ]


def test_shares_must_fit_together() -> None:
    with pytest.raises(ValueError, match="together at most 1"):
        Mixture(key_share=0.6, fog_share=0.5)
    with pytest.raises(ValueError, match="each at least 0"):
        Mixture(fog_share=-0.1)
    with pytest.raises(ValueError, match="under fog the goal must be"):
        Mixture(fog_share=0.1, goal="corner")


def test_training_takes_batches_under_fog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    shape = Shape(width=32, layers=2, heads=2, key_heads=1, head_width=16, expert_width=16)
    settings = Settings(shape=shape, mixture=replace(UNDER_FOG, tokens=600, sizes=SIZES[:2]), small_steps=0)
    run = Run(settings, tmp_path / "run")
    assert all(np.isfinite(run.train_step(1.0)["loss"]) for _ in range(6))
    assert Settings.parse(asdict(settings)).mixture == settings.mixture
    with pytest.raises(SystemExit):
        main([str(tmp_path / "other"), "--fog-share", "0.3", "--goal", "key", "--steps", "1"])
    assert "under fog the goal must be" in capsys.readouterr().err


def test_the_shipped_tokenizer_has_the_same_numbers() -> None:
    model = agent().model
    assert isinstance(model, LocalModel)
    assert {piece: model.tokenizer.convert_tokens_to_ids(piece) for piece in pieces()} == ids()


# The tokenizer keeps every text, and cells, labels and passages are the tokens that the data is made of.


@cache
def tokenizer() -> Any:
    return vocabulary().tokenizer()


def encoded(text: str) -> list[int]:
    found: list[int] = tokenizer().encode(text, add_special_tokens=False)
    return found


def prompt(grid: Grid, name: str = "grid", **values: str) -> str:
    return fill(template(name), {"grid": grid.render(), **values})


def test_the_pieces_fit_into_the_vocabulary_beside_the_bytes() -> None:
    assert len(set(pieces())) == len(pieces()) <= VOCABULARY_SIZE - 256
    assert len(tokenizer()) == VOCABULARY_SIZE


@given(st.text(max_size=60))
def test_any_text_survives(text: str) -> None:
    assert tokenizer().decode(encoded(text)) == text


@given(st.lists(st.one_of(st.sampled_from(pieces()), st.text(max_size=5)), max_size=12).map("".join))
def test_any_mixture_of_pieces_and_text_survives(text: str) -> None:
    assert tokenizer().decode(encoded(text)) == text


def test_every_piece_is_one_token_with_its_own_number() -> None:
    for piece in pieces():
        assert encoded(piece) == encode([piece])


@pytest.mark.parametrize("size", [5, 7, 9, 11, 13, 15])
def test_each_cell_of_a_prompt_is_one_token_in_its_place(size: int) -> None:
    grid = generate(size, 0.6, rng=stream(1, "test", size))
    rendered = tokenizer().apply_chat_template(
        [{"role": "user", "content": prompt(grid)}], add_generation_prompt=True, tokenize=False
    )
    found = encoded(rendered)
    assert tokenizer().decode(found) == rendered
    expected, places = prompt_layout(size)
    filled = np.array(expected)
    width = cell_width(size)
    filled[places] = encode([cell_piece(str(symbol), width) for symbol in symbols(grid).ravel()])
    assert found == filled.tolist()


@pytest.mark.parametrize("size", [7, 15])
def test_row_labels_are_other_tokens_than_column_labels(size: int) -> None:
    found, places = prompt_layout(size)
    rows = {found[place - 1] for place in places[::size]}
    assert len(rows) == size
    labels = {encoded(f" {label:>{cell_width(size)}}")[0] for label in range(size)}
    assert not rows & labels


def test_fixed_passages_are_short() -> None:
    for name in TEMPLATES:
        *before, after = passages(template(name))
        assert all(len(encoded(part)) == 1 for part in before)
        assert len(encoded(after)) == 8
    assert len(prompt_layout(15)[0]) == 261


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("key_door", {"carrying_key": "yes"}),
        ("key_door", {"carrying_key": "no"}),
        ("fog", {"history": "(1,1) UP\n(1,1) RIGHT"}),
        ("fog", {"history": "none"}),
    ],
)
def test_the_other_prompts_survive_and_stay_short(name: str, values: dict[str, str]) -> None:
    grid = generate(9, 0.5, rng=stream(2, "test"))
    found = encoded(prompt(grid, name, **values))
    assert tokenizer().decode(found) == prompt(grid, name, **values)
    assert len(found) < 9 * 10 + 25


def test_special_tokens_are_those_of_the_harmony_format() -> None:
    assert {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>"} <= set(SPECIAL)
    assert [tokenizer().convert_tokens_to_ids(token) for token in SPECIAL] == list(range(len(SPECIAL)))
    assert tokenizer().decode(encode(["<|end|>", " UP"]), skip_special_tokens=True) == " UP"


def test_a_conversation_is_rendered_turn_by_turn() -> None:
    found = tokenizer().apply_chat_template(
        [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U"},
            {"role": "assistant", "thinking": "T", "content": '{"action": "UP"}'},
            {"role": "user", "content": "V"},
        ],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert found == (
        "<|start|>system<|message|>S<|end|><|start|>user<|message|>U<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>T<|end|>"
        '<|start|>assistant<|channel|>final<|message|>{"action": "UP"}<|return|>'
        "<|start|>user<|message|>V<|end|><|start|>assistant"
    )


def test_a_saved_tokenizer_is_loaded_like_any_other(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    vocabulary().save(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = prompt(generate(7, 1.0, rng=stream(3, "test"))) + " é\u0000 <0x41>"
    assert loaded.encode(text, add_special_tokens=False) == encoded(text)
    assert loaded.decode(encoded(text)) == text
    assert loaded.chat_template == tokenizer().chat_template


def test_every_symbol_has_a_token_for_both_widths() -> None:
    assert len({number for width in (1, 2) for number in encode([cell_piece(s, width) for s in SYMBOLS])}) == 14


def test_templates_are_filled_by_plain_substitution() -> None:
    assert fill("a {{grid}} b", {"grid": "{{grid}} {x}"}) == "a {{grid}} {x} b"
    with pytest.raises(ValueError, match="placeholders"):
        fill("a {{grid}}", {})
    with pytest.raises(ValueError, match="placeholders"):
        fill("a", {"grid": ""})
    with pytest.raises(ValueError, match="bundled template"):
        template("nothing")
