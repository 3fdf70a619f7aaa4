"""Scores of plans and their baselines, each against a slow literal version."""

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from planted import map_of
from planted_plans import random_plans, worlds

from families import long_after
from goalscope._ground.rng import stream
from goalscope.inside.probing import (
    END,
    UNKNOWN,
    Cells,
    DecodedMaps,
    Plans,
    decode_maps,
    one_hot,
    paired_rows,
    summarise_plans,
    true_map,
)
from goalscope.inside.probing.plans import (
    PREFIX,
    SUBSETS,
    Subset,
    commonest_matches,
    marginal_matches,
    median_over_grids,
    named_plans,
    planner_length,
    planner_matches,
    prefix_matches,
    repeated,
    score_lengths,
    score_prefixes,
)
from goalscope.inside.probing.scores import chosen
from goalscope.stats.rows import Rows, Tag
from goalscope.worlds import ACTIONS, Grid, generate
from goalscope.worlds.planning import optimal_actions

TAGS: dict[str, Tag] = {"head": "decoder-1", "control": "none", "site": "pre", "layer": 1}


def some(grids: int = 12, steps: int = 4, seed: int = 0) -> Plans:
    """Plans among which some end and some are cut off."""
    cells = worlds(grids, steps)
    plans = random_plans(cells, seed, horizon=6, short=0)
    tokens = plans.tokens.copy()
    for row in range(0, len(tokens), 3):
        cut = 1 + row % 5
        if END not in tokens[row, :cut]:
            tokens[row, cut:] = UNKNOWN
    return Plans(tokens=tokens, episode_id=cells.episode_id, step=cells.step, cluster=cells.cluster)


def near(plans: Plans, seed: int = 1) -> np.ndarray[Any, Any]:
    """Predictions that are often right."""
    rng = stream(seed, "near")
    drawn = rng.integers(0, END + 1, plans.tokens.shape)
    return np.where(rng.random(plans.tokens.shape) < 0.8, np.maximum(plans.tokens, 0), drawn)


def test_prefix_accuracy_is_what_counting_by_hand_gives() -> None:
    plans, cells = some(), worlds(12, 4)
    predicted = near(plans)
    rows = score_prefixes(prefix_matches(predicted, plans.tokens), plans, cells, TAGS)
    seen = set()
    for row in rows:
        number, values = int(str(row.tags["N"])), []
        for at in range(len(plans)):
            prefix = plans.tokens[at][:number].tolist()
            if plans.cluster[at] != row.cluster or UNKNOWN in prefix:
                continue
            if row.tags["plans"] == "long" and END in prefix:
                continue
            values.append(Fraction(int(predicted[at][:number].tolist() == prefix)))
        wanted = float(sum(values) / len(values)) if values else np.nan
        np.testing.assert_allclose(row.value, wanted)
        seen.add((row.cluster, number, row.tags["plans"]))
    assert len(seen) == len(rows) == 12 * 6 * 2
    assert 0 < np.nanmean(rows.value) < 1 and np.isnan(rows.value).any()
    found = {(one.key["N"], one.key["plans"]): one.estimate for one in summarise_plans(rows, horizon=6)}
    for (shown, subset), estimate in found.items():
        assert estimate.value == pytest.approx(np.nanmean(rows.select(N=shown, plans=subset).value))
        assert estimate.has_interval


def test_lengths_are_compared_where_both_are_known() -> None:
    plans, cells = some(), worlds(12, 4)
    predicted = near(plans)
    length = np.array([next((at for at, token in enumerate(row) if token == END), 6) for row in predicted])
    rows = score_lengths(length, plans, cells, TAGS)
    for grid in sorted(set(cells.cluster.tolist())):
        errors = []
        for at in np.flatnonzero(cells.cluster == grid):
            tokens = plans.tokens[at].tolist()
            if UNKNOWN not in tokens:
                errors.append(int(length[at]) - sum(token != END for token in tokens))
        wanted = {
            "length match": np.mean([error == 0 for error in errors]),
            "length error": np.mean(errors),
            "median length error": np.median(np.abs(errors)),
        }
        for name, value in wanted.items():
            assert rows.select(measure=name, cluster=grid).value == pytest.approx([value])
    mean = {name: np.nanmean(chosen(rows, measure=name).value) for name in ("predicted length", "executed length")}
    bias = np.nanmean(rows.select(measure="length error").value)
    assert bias == pytest.approx(mean["predicted length"] - mean["executed length"])
    found = {one.key["measure"]: one.estimate for one in summarise_plans(rows, horizon=6)}
    assert found["median length error"].value == np.median(rows.select(measure="median length error").value)


def test_the_interval_of_a_median_covers_as_the_binomial_says() -> None:
    rng = stream(0, "median")
    hits = sum(
        one.low <= 0 <= one.high
        for _ in range(400)
        if (one := median_over_grids(rng.standard_normal(15), np.arange(15), unit="steps")).has_interval
    )
    # 15 grids: the ends are the 4th and the 12th value, coverage 0.965.
    assert 370 <= hits <= 398
    values = np.arange(15.0)
    assert (median_over_grids(values, values, unit="").low, median_over_grids(values, values, unit="").high) == (3, 11)
    assert not median_over_grids(np.arange(5.0), np.arange(5), unit="").has_interval
    assert "both ends" in median_over_grids(np.ones(30), np.arange(30), unit="steps").note
    assert np.isnan(median_over_grids([np.nan], ["a"], unit="").value)


def uneven(seed: int = 5, *, ended: bool = False) -> tuple[Plans, Cells]:
    """Plans half of which are of one grid and alike, as where an agent is stuck; known to the end or not."""
    plans, cells = some(seed=seed), worlds(12, 4)
    tokens = np.where(ended & (plans.tokens == UNKNOWN), END, plans.tokens)
    stuck = plans.cluster == plans.cluster[0]
    tokens[stuck] = tokens[1]
    rows = np.repeat(np.arange(len(plans)), np.where(stuck, 11, 1))
    given = Plans(tokens=tokens, episode_id=plans.episode_id, step=plans.step, cluster=plans.cluster)
    return given.where(rows), cells.where(rows)


def scored(plans: Plans, number: int, subset: str) -> Plans:
    """Return the plans that are scored at N, by the words of the documentation."""
    kept = [UNKNOWN not in row[:number] and (subset == "all" or END not in row[:number]) for row in plans.tokens]
    return plans.where(np.array(kept))


def shares(plans: Plans, begin: int, end: int) -> dict[tuple[int, ...], Fraction]:
    """Return the mean over grids of how often each part, from place begin to end, stands in a grid's plans."""
    by_grid: dict[str, Counter[tuple[int, ...]]] = {}
    for grid, row in zip(plans.cluster, plans.tokens.tolist(), strict=True):
        by_grid.setdefault(grid, Counter())[tuple(row[begin:end])] += 1
    found: Counter[tuple[int, ...]] = Counter()
    for counts in by_grid.values():
        for part, count in counts.items():
            found[part] += Fraction(count, counts.total() * len(by_grid))  # type: ignore[assignment]
    return dict(found)  # type: ignore[arg-type]


def most(found: dict[tuple[int, ...], Fraction]) -> tuple[int, ...]:
    return min(found, key=lambda plan: (-found[plan], plan), default=())


@pytest.mark.parametrize("subset", SUBSETS)
def test_blind_baselines_are_what_counting_by_hand_gives(subset: Subset) -> None:
    plans, (train, _) = some(), uneven()
    tokens = plans.tokens
    first = np.array([at % 4 for at in range(len(tokens))])
    marginal, common = marginal_matches(train, tokens, subset), commonest_matches(train, tokens, plans=subset)
    further = commonest_matches(train, tokens, first, subset)
    for number in range(1, 7):
        used = scored(train, number, subset)
        whole, alone = shares(used, 0, number), [shares(used, place, place + 1) for place in range(number)]
        for at, row in enumerate(tokens.tolist()):
            prefix, matches = tuple(row[:number]), [m[at, number - 1] for m in (marginal, common, further)]
            if UNKNOWN in prefix:
                assert np.isnan(matches).all()
                continue
            drawn = [float(alone[place].get((token,), 0)) for place, token in enumerate(prefix)]
            assert marginal[at, number - 1] == pytest.approx(np.prod(drawn))
            assert common[at, number - 1] == (most(whole) == prefix)
            begun = {plan: share for plan, share in whole.items() if plan[0] == first[at]}
            assert further[at, number - 1] == ((most(begun) or tuple(first[[at]][:number])) == prefix)
    assert common[:, 0].sum() > 0 and np.nansum(further[:, 1:]) > 0


def test_guesses_that_no_plan_is_needed_for() -> None:
    train = uneven()[0]
    assert repeated(np.array([2, 0]), 3).tolist() == [[2, 2, 2], [0, 0, 0]]
    one = train.where(np.arange(3))
    ups = Plans(tokens=np.ones((3, 2), np.int8), episode_id=one.episode_id, step=one.step, cluster=one.cluster)
    assert commonest_matches(ups, np.array([[0, 1]], dtype=np.int8), np.array([0])).tolist() == [[1, 0]]


@pytest.mark.parametrize("ended", long_after(2, [True, False]))
@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.parametrize("seed", long_after(1, range(3)))
def test_no_guess_that_sees_nothing_scores_higher_than_the_commonest_plan(
    seed: int, subset: Subset, ended: bool
) -> None:
    """Every beginning that occurs is tried as the guess; the scores' own code and counting by hand judge it."""
    train, cells = uneven(seed, ended=ended)

    def score(matches: npt.NDArray[np.float64], kept: npt.NDArray[np.bool_] | None = None) -> list[float]:
        kept = np.ones(len(train), dtype=bool) if kept is None else kept
        rows = score_prefixes(matches[kept], train.where(kept), cells.where(kept), TAGS)
        return [float(np.nanmean(rows.select(N=number, plans=subset).value)) for number in range(1, 7)]

    by_hand = [shares(scored(train, number, subset), 0, number) for number in range(1, 7)]
    common = commonest_matches(train, train.tokens, plans=subset)
    found = score(common)
    for number, whole in enumerate(by_hand, start=1):
        tried = []
        for guessed in whole:
            full = np.array([*guessed, *[END] * (6 - number)], dtype=np.int8)
            tried.append(score(prefix_matches(np.tile(full, (len(train), 1)), train.tokens))[number - 1])
        assert tried == pytest.approx([float(share) for share in whole.values()])
        assert found[number - 1] == pytest.approx(max(tried))
    # One token more is never guessed more often, among the plans that are scored with it.
    for number in range(1, 6):
        token = train.tokens[:, number]
        kept = (token != UNKNOWN) & ((token != END) | (subset == "all"))
        best = commonest_matches(train.where(kept), train.tokens, plans=subset)
        shorter, longer = score(best, kept)[number - 1 : number + 1]
        assert longer <= shorter + 1e-12 and longer == pytest.approx(found[number])
    continued = score(commonest_matches(train, train.tokens, train.tokens[:, 0], subset))
    # The best guess that is told the first token: of each first token its best plan.
    assert continued == pytest.approx(
        [
            float(sum(max(one for plan, one in whole.items() if plan[0] == token) for token in {p[0] for p in whole}))
            for whole in by_hand
        ]
    )
    assert score(marginal_matches(train, train.tokens, subset))[0] <= found[0] + 1e-12


def layouts(count: int = 12) -> tuple[list[Grid], DecodedMaps]:
    grids = [generate(size=7, density=0.4, rng=stream(0, "planner", at)) for at in range(count)]
    return grids, map_of(
        np.stack([grid.walls for grid in grids]),
        np.array([grid.start for grid in grids]),
        np.array([grid.goal for grid in grids]),
    )


def test_the_planner_is_enumeration_of_all_shortest_paths() -> None:
    grids, layout = layouts()
    horizon = 6
    rng = stream(1, "planner plans")
    every: list[list[tuple[list[int], float]]] = []
    for grid in grids:
        paths: list[tuple[list[int], float]] = [([], 1.0)]
        ends = [grid.start or (0, 0)]
        for _ in range(horizon):
            grown, places = [], []
            for (path, chance), cell in zip(paths, ends, strict=True):
                if cell == grid.goal:
                    grown.append(([*path, END], chance))
                    places.append(cell)
                    continue
                best = optimal_actions(grid, cell)
                for action in sorted(best):
                    grown.append(([*path, int(action)], chance / len(best)))
                    down, right = action.delta
                    places.append((cell[0] + down, cell[1] + right))
            paths, ends = grown, places
        every.append(paths)
    tokens = np.stack([np.array(paths[rng.integers(len(paths))][0]) for paths in every]).astype(np.int8)
    for row in range(0, len(tokens), 3):  # some that are no shortest path
        tokens[row, 1] = (tokens[row, 1] + 1) % 4
    kinds: tuple[Literal["uniform", "best"], ...] = ("uniform", "best")
    for ties in kinds:
        found = planner_matches(layout, tokens, ties=ties)
        for at, number in itertools.product(range(len(grids)), range(1, horizon + 1)):
            prefix = tokens[at, :number].tolist()
            chances = [chance for path, chance in every[at] if path[:number] == prefix]
            wanted = sum(chances) if ties == "uniform" else float(bool(chances))
            assert found[at, number - 1] == pytest.approx(wanted)
    length = [next((at for at, token in enumerate(paths[0][0]) if token == END), horizon) for paths in every]
    assert planner_length(layout, horizon).tolist() == length


def test_a_map_without_a_way_gives_no_plan() -> None:
    walls = np.zeros((3, 3, 3), dtype=bool)
    walls[0, 1] = True
    layout = map_of(walls, np.array([[0, 0], [1, 1], [0, 0]]), np.array([[2, 2], [1, 1], [0, 1]]))
    assert np.isnan(planner_length(layout, 9)).tolist() == [True, True, False]
    tokens = np.array([[1, 1], [END, END], [3, END]], dtype=np.int8)
    assert planner_matches(layout, tokens).tolist() == [[0, 0], [0, 0], [1, 1]]
    np.testing.assert_array_equal(planner_length(layout, 2), [np.nan, np.nan, 1])
    assert layout.manhattan.tolist() == [4, 0, 1]
    # What stands on a decoded wall is passable.
    blocked = map_of(np.ones((1, 1, 2), dtype=bool), np.array([[0, 0]]), np.array([[0, 1]]))
    assert planner_matches(blocked, np.array([[3]], dtype=np.int8)).tolist() == [[1.0]]
    with pytest.raises(ValueError, match="the frame"):
        map_of(walls, np.full((3, 2), 3), np.zeros((3, 2), dtype=int))
    cells = worlds(4)
    seen = true_map(cells)
    assert (cells.labels[np.arange(4), seen.goal @ (5, 1)] == 1).all() and not seen.closed.any()
    # Maps decoded by somebody who is certain of the truth read the same.
    again = decode_maps(one_hot(cells.labels, 5))
    for name in ("layout", "agent", "goal"):
        np.testing.assert_array_equal(getattr(again, name), getattr(seen, name))


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("to (1,2) from (3,3): UP UP LEFT", [0, 0, 2]),
        ("I could go left. No: up, then 2) right and down.", [0, 3, 1]),
        ("UP LEFT is blocked, DOWN RIGHT it is", [1, 3]),
        ("leftover upright", []),
        ("", []),
        ("right " * 9, [3, 3, 3, 3, 3, 3]),
    ],
)
def test_the_actions_that_a_text_names(text: str, plan: list[int]) -> None:
    assert named_plans([text], 6)[0].tolist() == (plan + [END] * 6)[:6]
    assert len(ACTIONS) == END


def test_paired_rows_meet_grid_by_grid() -> None:
    def rows(values: list[float], **tags: object) -> Rows:
        return Rows.from_columns(measure=PREFIX, unit="share", value=values, cluster=["a", "b"], tags={"N": 1, **tags})

    own = rows([0.5, 1.0], site="pre", layer=1)
    found = paired_rows(own, rows([0.25, np.nan], site=None, layer=None), name="marginal", by=("site", "layer", "N"))
    assert found.measure.tolist() == [f"{PREFIX} less marginal"] * 2
    np.testing.assert_array_equal(found.value, [0.25, np.nan])
    with pytest.raises(ValueError, match=r"'x' .*site, layer, N"):
        paired_rows(own, rows([0, 0], site="post", layer=1), name="x", by=("site", "layer", "N"))
    with pytest.raises(ValueError, match="'x' must be unique"):
        paired_rows(own, Rows.concatenate([own, own]), name="x", by=("site",))
