"""The shuffled control as a mean over draws: against a literal mean, a second solver, and its closed form."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.agents import EpsilonGreedy, Optimal
from goalscope.goals import GoalEstimate, RunDirectedness, directedness
from goalscope.goals.curves import process_of_episode
from goalscope.goals.directedness import HypothesisLine, MeasuredLines
from goalscope.goals.hypotheses import FiniteWorld, Hypothesis, Undefined, parse
from goalscope.goals.hypotheses.definition import Mask
from goalscope.goals.hypotheses.states import States, states_of
from goalscope.inside.beliefs import Belief, _elsewhere, measure_beliefs
from goalscope.measures import StepTable, roll_out
from goalscope.meg import RationalityCurve, SharedCurve
from goalscope.runs import Episode, GridWorld
from goalscope.worlds import Grid, Position, generate_batch


def rooms(count: int = 8, size: int = 5, trajectories: int = 2, density: float = 0.3) -> list[Episode]:
    worlds = [GridWorld(grid=grid) for grid in generate_batch(size, density, seed=3, count=count, minimum_distance=2)]
    return [e for world in worlds for e in roll_out(EpsilonGreedy(0.4), world, seed=2, trajectories=trajectories)]


def cells_drawn(episodes: list[Episode], draws: int) -> list[dict[str, Position]]:
    """Free cells of each world, other ones in each draw."""
    rng = stream(4, "cells")
    grids = {episode.world.id: episode.world.grid for episode in episodes}
    found = []
    for _ in range(draws):
        picked = {}
        for name, grid in grids.items():
            free = np.argwhere(~grid.walls)
            row, col = free[rng.integers(len(free))].tolist()
            picked[name] = (row, col)
        found.append(picked)
    return found


def states(episodes: list[Episode]) -> list[States]:
    return states_of(StepTable.from_episodes(episodes))


def at(cells: dict[str, Position]) -> Hypothesis:
    """Return a hypothesis with its own cell in each world, which may be a wall; worlds without one are left out."""

    def there(world: FiniteWorld) -> Mask:
        if world.world.id not in cells:
            raise Undefined("no cell was drawn in this world")
        return world.at(cells[world.world.id])

    return Hypothesis.of("event", there, "a drawn cell")


def measured(
    own: list[States], lines: dict[str, list[HypothesisLine]], less: dict[str, str] | None = None
) -> RunDirectedness:
    """Return what is measured of hypotheses with several draws."""
    found = MeasuredLines(own)
    found.measure(lines, less=less)
    return found.found(list(lines))


def drawn(cells: list[dict[str, Position]], own: list[States]) -> list[HypothesisLine]:
    """Return the lines of several draws."""
    return [HypothesisLine(at(draw), own, everywhere=True) for draw in cells]


def line(found: RunDirectedness, hypothesis: str) -> GoalEstimate:
    (estimate,) = (entry for entry in found.estimates if entry.hypothesis == hypothesis)
    return estimate


def test_a_drawn_hypothesis_is_the_mean_of_its_draws_measured_one_by_one() -> None:
    own_states, draws = states(rooms()), 4
    cells = cells_drawn(rooms(), draws)
    goal = {"goal": [HypothesisLine(parse("goal"), own_states)]}
    found = measured(own_states, {**goal, "elsewhere": drawn(cells, own_states)}, {"elsewhere": "x"})
    single = [measured(own_states, {**goal, "one": drawn([draw], own_states)}) for draw in cells]
    own, each = line(found, "elsewhere"), [line(one, "one") for one in single]
    for name in ("signed", "bound", "bound_lowest", "utility", "uniform_utility", "highest_utility", "cross_fitted"):
        assert getattr(own, name) == pytest.approx(np.mean([getattr(one, name) for one in each])), name
    assert math.isnan(own.beta) and own.low < 0 < own.high and own.n == each[0].n and own.grids == each[0].grids
    assert line(found, "goal") == line(single[0], "goal")
    assert f"mean of 4 draws, their standard deviation {np.std([o.signed for o in each], ddof=1):.2g} nats" in own.note
    rows = {name: found.rows.where(found.rows.measure == name).value for name in set(found.rows.measure.tolist())}
    parts = [one.rows.where(one.rows.measure == "MEG towards the one").value for one in single]
    assert rows["MEG towards the elsewhere"] == pytest.approx(np.mean(parts, axis=0))
    assert rows["MEG towards the goal less x"] == pytest.approx(
        rows["MEG towards the goal"] - rows["MEG towards the elsewhere"]
    )
    (contrast,) = found.contrasts
    # Draws differ by chance: they count as told apart in every world.
    assert contrast.grids == contrast.common and not contrast.same
    assert contrast.difference == pytest.approx(line(found, "goal").signed - own.signed)
    assert contrast.low <= contrast.difference <= contrast.high


def test_draws_have_the_supremum_that_another_solver_finds() -> None:
    own, cells = states(rooms()), cells_drawn(rooms(), 3)
    found = measured(own, {"x": drawn(cells, own)}).estimates[0]
    signed = []
    for draw in cells:
        utilities = [at(draw).utility(entry.world) for entry in own]
        curves = [
            RationalityCurve(process_of_episode(entry.world, utility, kind="steps", invalid="no-op"))
            for entry, utility in zip(own, utilities, strict=True)
        ]
        means = [float(entry.utilities(utility).mean()) for entry, utility in zip(own, utilities, strict=True)]
        signed.append(SharedCurve(curves).meg(means).signed)
    assert found.signed == pytest.approx(np.mean(signed), abs=2e-4 * found.bound)


def test_a_single_draw_is_the_hypothesis_itself_and_equal_draws_have_no_spread() -> None:
    episodes = rooms(16, size=7)
    own, cells = states(episodes), {e.world.id: e.world.grid.goal for e in episodes if e.world.grid.goal}
    plain = directedness(own, {"x": at(cells)})
    once = measured(own, {"x": drawn([cells], own)})
    assert once.estimates == plain.estimates and once.contrasts == plain.contrasts
    same = measured(own, {"x": drawn([cells] * 3, own)})
    for name in ("signed", "low", "high", "beta", "null", "null_p", "grids"):
        assert getattr(same.estimates[0], name) == pytest.approx(getattr(plain.estimates[0], name)), name
    assert math.isfinite(same.estimates[0].beta)
    assert same.estimates[0].note.endswith("mean of 3 draws, their standard deviation 0 nats")


def test_two_worlds_have_one_shuffle_whose_mean_is_that_of_the_swap() -> None:
    episodes = rooms(2)
    grids = {e.world.id: e.world.grid for e in episodes}
    first, second = grids
    goals = {name: grid.goal for name, grid in grids.items() if grid.goal}
    found = measure_beliefs(
        episodes,
        {name: Belief(walls=grid.walls, goal=goals[name]) for name, grid in grids.items()},
        label="two",
        draws=6,
    )
    swap = {first: goals[second], second: goals[first]}
    two_worlds = states(episodes)
    swapped = measured(two_worlds, {"x": drawn([swap], two_worlds)}).estimates[0]
    own = line(found, "believed goal, shuffled")
    assert own.signed == pytest.approx(swapped.signed) and own.bound == pytest.approx(swapped.bound)
    assert "mean of 6 draws, their standard deviation 0 nats" in own.note


def test_shuffles_take_beliefs_of_other_grids_and_draw_all_of_them() -> None:
    episodes = [*rooms(5), *rooms(1, 7)]
    grids = {e.world.id: (e.world.grid, e.world.cluster_id) for e in episodes}
    beliefs = {name: Belief(walls=grid.walls, goal=(1, at)) for at, (name, (grid, _)) in enumerate(grids.items())}
    alone = next(name for name, (grid, _) in grids.items() if grid.height == 7)
    seen: Counter[tuple[str, Position]] = Counter()
    drawn = [_elsewhere(beliefs, grids, 0, draw, on_map=False) for draw in range(60)]
    for one in drawn:
        assert set(one) == set(grids) - {alone}
        assert all(other.goal != beliefs[name].goal for name, other in one.items())
        assert sorted(other.goal for other in one.values()) == sorted(beliefs[name].goal for name in one)
        seen.update((name, other.goal) for name, other in one.items())
    assert len(seen) == 5 * 4 and max(seen.values()) < 40 and any(one != two for one, two in pairwise(map(repr, drawn)))
    start = next(iter(grids.values()))[0].start
    assert start is not None
    here = {name: Belief(walls=grid.walls, goal=start) for name, (grid, _) in grids.items()}
    starts = {name for name, (grid, _) in grids.items() if grid.start == start}
    with_map = _elsewhere(here, grids, 0, 0, on_map=True)
    assert starts and not starts & set(with_map)  # beneath the agent there is no map


def test_draws_that_stand_in_other_worlds_count_where_all_stand() -> None:
    episodes = rooms(5)
    names = sorted({e.world.id for e in episodes})
    grids = {e.world.id: e.world.grid for e in episodes}
    (cells,) = cells_drawn(episodes, 1)
    own = states(episodes)

    def on_maps(part: list[str]) -> HypothesisLine:
        """Return a draw that is measured on the maps of some worlds, which are the true ones here."""
        kept = [entry for entry in own if entry.world.world.id in part]
        there = [entry.in_world(entry.world.on_map(grids[entry.world.world.id])) for entry in kept]
        return HypothesisLine(at(cells), there, everywhere=True)

    goal = {"goal": [HypothesisLine(parse("goal"), own)]}
    found = measured(own, {**goal, "x": [on_maps(names[:4]), on_maps(names[1:])]})
    kept = {name: cells[name] for name in names[1:4]}
    plain = measured(own, {**goal, "x": drawn([kept], own)})
    assert line(found, "x").worlds == 3 and line(found, "x").signed == pytest.approx(line(plain, "x").signed)
    (one,), (other,) = found.contrasts, plain.contrasts
    assert (one.difference, one.low, one.high) == pytest.approx((other.difference, other.low, other.high))
    with_none = measured(own, {**goal, "x": [on_maps([name]) for name in names[:2]]})
    assert [entry.hypothesis for entry in with_none.estimates] == ["goal"] and not with_none.contrasts


def test_what_cannot_be_drawn_is_refused_in_words() -> None:
    episodes = rooms(2)
    grids: dict[str, Grid] = {e.world.id: e.world.grid for e in episodes}
    beliefs = {name: Belief(walls=grid.walls, goal=(1, 1)) for name, grid in grids.items()}
    for draws in (0, 1001, True, 2.5):
        with pytest.raises(ValueError, match="draws"):
            measure_beliefs(episodes, beliefs, label="x", draws=draws)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 of 2"):
        measure_beliefs(episodes, beliefs, label="x", random=("permuted", dict(list(beliefs.items())[:1])))


def test_optimal_agents_towards_true_beliefs_beat_the_shuffle_on_the_map_too() -> None:
    worlds = [GridWorld(grid=grid) for grid in generate_batch(5, 0.0, seed=1, count=12, minimum_distance=3)]
    episodes = [e for world in worlds for e in roll_out(Optimal(), world, seed=2, trajectories=1)]
    beliefs = {w.id: Belief(walls=w.grid.walls, goal=w.grid.goal) for w in worlds if w.grid.goal}
    found = measure_beliefs(episodes, beliefs, label="true", draws=8)
    for name in ("believed goal", "believed goal on the believed map"):
        (against,) = (one for one in found.contrasts if one.second == f"{name}, shuffled")
        assert against.first == name and against.low > 0 and line(found, name).beta == math.inf
