"""Under fog the training shows what an agent would be shown, word for word, and plans over what has been seen."""

import hashlib
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from goalscope._ground.rng import stream
from goalscope.agents import ChatAgent, Observation, Past
from goalscope.agents.models import LocalModel
from goalscope.worlds import ACTIONS, Action, Fog, Grid, GridView, Position
from training import fogged
from training.data import SIZES, Batch, Mixture, block, draw_worlds, plan, sequences
from training.fogged import MOST_STEPS, State, Walks, draw_steps, reached, solid, walk
from training.layout import MOST_MOVES
from training.network import Shape
from training.theseus import main
from training.train import Run, Settings
from training.vocabulary import SYMBOLS, ids, pieces

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
