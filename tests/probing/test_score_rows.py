"""Rows of scores: which grid, size, density and unit each of them has, and what their intervals may hold."""

from typing import Any

import numpy as np
import pytest
from planted import cells_of

from goalscope.inside.probing import (
    AGENT,
    END,
    GOAL,
    OPEN,
    PADDING,
    UNKNOWN,
    WALL,
    Cells,
    Plans,
    Prediction,
    difference_rows,
    paired_rows,
    plan_differences,
    score_cells,
    score_distance,
    summarise,
    summarise_distance,
    summarise_plans,
)
from goalscope.inside.probing.plans import (
    PREFIX,
    median_over_grids,
    prefix_matches,
    score_lengths,
    score_prefixes,
)
from goalscope.inside.probing.scores import chosen, confusion_rows
from goalscope.stats.rows import Rows, Tag

WHO: dict[str, Tag] = {"head": "mlp", "control": "none", "site": "pre", "layer": 1, "scope": "general"}


def three() -> Cells:
    """Six steps of three grids in turn, each of a shape and density of its own."""
    labels = np.full((6, 9), OPEN)
    labels[:, :2] = AGENT, GOAL
    labels[[0, 2]] = [AGENT, WALL, PADDING, GOAL, WALL, PADDING, PADDING, PADDING, PADDING]
    cells = cells_of(labels, 1, 3, np.array([(2, 2), (3, 3), (2, 2), (1, 3), (3, 3), (1, 3)]))
    names = {name: getattr(cells, name) for name in ("frame", "labels", "shape", "episode_id", "step", "reasoning")}
    grid = np.array(["x", "y", "x", "z", "y", "z"], dtype=object)
    return Cells(**names, cluster=grid, density=np.array([0.5, np.nan, 0.5, 0.25, np.nan, 0.25]))


def said(called: list[list[int]]) -> Prediction:
    sure = np.full((len(called), 9, 5), 0.1, dtype=np.float32)
    for state, labels in enumerate(called):
        sure[state, np.arange(9), labels] = 0.6
    return Prediction(balanced=sure[:, :, ::-1], natural=sure)


def plans(cells: Cells, tokens: list[list[int]]) -> Plans:
    names = {name: getattr(cells, name) for name in ("episode_id", "step", "cluster")}
    return Plans(tokens=np.array(tokens, dtype=np.int8), **names)


def kinds(rows: Rows) -> set[tuple[Any, ...]]:
    return set(zip(rows.cluster.tolist(), rows["size"].tolist(), rows["density"].tolist(), strict=True))


def test_every_row_has_the_size_and_density_of_its_grid() -> None:
    cells = three()
    wanted = {("x", 2, 0.5), ("y", 3, None), ("z", 3, 0.25)}
    prediction = said(cells.labels.tolist())
    tokens = np.array([[0, END], [1, 2], [3, 3], [1, END], [0, 0], [2, END]])
    one = plans(cells, tokens.tolist())
    distances = np.array([1.0, 2, 1, 4, 2, 3])
    for rows in (
        score_cells(prediction, cells, WHO),
        confusion_rows(prediction, cells, WHO),
        score_prefixes(prefix_matches(tokens, one.tokens), one, cells, WHO),
        score_lengths(one.length, one, cells, WHO),
        score_distance(distances, distances, cells, WHO),
    ):
        assert kinds(rows) == wanted
        assert set(rows["head"].tolist()) == {"mlp"} and set(rows["layer"].tolist()) == {1}


def test_units_of_scores() -> None:
    cells = three()
    rows = score_cells(said(cells.labels.tolist()), cells, WHO)
    cellwise = rows.measure == "localisation distance"
    assert set(rows.unit[cellwise].tolist()) == {"cells"} and set(rows.unit[~cellwise].tolist()) == {"share"}
    assert set(confusion_rows(said(cells.labels.tolist()), cells, WHO).unit.tolist()) == {"share"}
    one = plans(cells, [[0, END]] * 6)
    lengths = score_lengths(one.length, one, cells, WHO)
    assert {unit for name, unit in zip(lengths.measure, lengths.unit, strict=True) if name == "length match"} == {
        "share"
    }
    assert set(lengths.unit[lengths.measure != "length match"].tolist()) == {"steps"}


def test_what_is_called_what_is_counted_grid_by_grid() -> None:
    cells = three()
    called = cells.labels.astype(int)
    called[0, 1] = OPEN  # one of the two walls of x in its first state, none in its second
    called[2, 4] = PADDING
    called[0, 5:] = AGENT  # what is called in the padding is not counted
    called[3, 2:5] = WALL
    rows = confusion_rows(said(called.tolist()), cells, WHO).select(reading="natural")

    def share(truth: str, name: str) -> dict[str, float]:
        kept = chosen(rows, measure=f"called {name}", **{"class": truth})
        return dict(zip(kept.cluster.tolist(), kept.value.tolist(), strict=True))

    assert share("wall", "open") == pytest.approx({"x": 1 / 4, "y": np.nan, "z": np.nan}, nan_ok=True)
    assert share("wall", "padding") == pytest.approx({"x": 1 / 4, "y": np.nan, "z": np.nan}, nan_ok=True)
    assert share("wall", "wall") == pytest.approx({"x": 2 / 4, "y": np.nan, "z": np.nan}, nan_ok=True)
    assert share("open", "wall") == pytest.approx({"x": np.nan, "y": 0, "z": 3 / 14}, nan_ok=True)
    assert share("agent", "agent") == {"x": 1, "y": 1, "z": 1}
    assert len(rows) == 3 * 4 * 5 and "padding" not in rows["class"].tolist()


def test_intervals_of_scores_stay_where_scores_can_be() -> None:
    def rows(measure: str, unit: str, values: list[float], **tags: Tag) -> Rows:
        return Rows.from_columns(measure=measure, unit=unit, value=values, cluster=list("abcd"), tags={**WHO, **tags})

    (share,) = summarise(rows("recall", "share", [1, 1, 1, 0.2]), by=("head",))
    assert share.estimate.high <= 1
    (cells,) = summarise(rows("localisation distance", "cells", [0, 0, 0, 9]), by=("head",))
    assert cells.estimate.low >= 0 and cells.estimate.high > 9
    (less,) = summarise(rows("recall less permuted", "share", [0, 0, 0, -0.9], differences=1), by=("head",))
    assert less.estimate.low < less.estimate.value < 0
    (wide,) = summarise(rows("recall", "share", [0.9, 0.5, 0.6, 0.2]), by=("head",), confidence=0.99)
    (slim,) = summarise(rows("recall", "share", [0.9, 0.5, 0.6, 0.2]), by=("head",), confidence=0.5)
    assert wide.estimate.low < slim.estimate.low < slim.estimate.high < wide.estimate.high
    (match,) = summarise_plans(rows(PREFIX, "share", [1, 1, 1, 0.2]), horizon=4)
    assert match.estimate.high <= 1 and match.key["head"] == "mlp"
    (length,) = summarise_plans(rows("predicted length", "steps", [4, 4, 4, 0.5]), horizon=4)
    assert 1 < length.estimate.high <= 4 and length.estimate.low >= 0
    (bias,) = summarise_plans(rows("length error", "steps", [-4, 3, 0, 0]), horizon=4)
    assert -4 <= bias.estimate.low < 0 < bias.estimate.high <= 4
    with pytest.raises(ValueError, match="must be"):
        summarise_plans(rows("predicted length", "steps", [5, 4, 4, 4]), horizon=4)


def test_differences_are_of_one_prefix_subset_and_control() -> None:
    cells = three()
    one = plans(cells, [[0, 1], [1, 2], [3, END], [1, END], [0, 0], [UNKNOWN, UNKNOWN]])
    right, wrong = one.tokens.copy(), one.tokens.copy()
    right[5], wrong[5] = 0, 0
    wrong[:, 1] = (wrong[:, 1] + 1) % 5
    parts = [
        score_prefixes(prefix_matches(right, one.tokens), one, cells, WHO),
        score_prefixes(prefix_matches(wrong, one.tokens), one, cells, {**WHO, "control": "permuted"}),
        score_lengths(one.length, one, cells, WHO),
        score_lengths(one.length, one, cells, {**WHO, "control": "permuted"}),
    ]
    rows = Rows.concatenate(parts)
    found = plan_differences(rows, "mlp", "none", {"head": "mlp", "control": "permuted"}, name="permuted")
    assert set(found.measure.tolist()) == {f"{PREFIX} less permuted"}
    assert set(found["control"].tolist()) == {"none"}
    value = {(row.cluster, row.tags["N"], row.tags["plans"]): row.value for row in found if row.tags["plans"] == "all"}
    assert value == {(grid, n, "all"): float(n - 1) for grid in "xyz" for n in (1, 2)}
    long = chosen(found, plans="long", N=2)
    assert dict(zip(long.cluster.tolist(), long.value.tolist(), strict=True)) == pytest.approx(
        {"x": 1, "y": 1, "z": np.nan}, nan_ok=True
    )


def test_partners_that_read_nothing_stand_against_every_place_and_only_those() -> None:
    def rows(value: float, **tags: Any) -> Rows:
        return Rows.from_columns(measure="m", unit="share", value=[value], cluster=["a"], tags=tags)

    own = Rows.concatenate([rows(0.9, site="pre", layer=1, n=1), rows(0.5, site="post", layer=2, n=2)])
    other = Rows.concatenate([rows(0.25, site=None, layer=None, n=1), rows(0.125, site="pre", layer=1, n=2)])
    found = paired_rows(own, other, name="x", by=("site", "layer", "n"))
    assert found.value.tolist() == pytest.approx([0.65]) and found["site"].tolist() == ["pre"]
    assert found.measure.tolist() == ["m less x"] and found.unit.tolist() == ["share"]
    assert found["differences"].tolist() == [1]
    # Its own place comes before one that stands for all.
    both = Rows.concatenate([rows(0.25, site=None, layer=None, n=1), rows(0.5, site="pre", layer=1, n=1)])
    assert paired_rows(own, both, name="x", by=("site", "layer", "n")).value.tolist() == pytest.approx([0.4])
    assert len(chosen(own, n=1, head=None)) == 1 and not len(chosen(own, n=1, head="mlp"))
    assert len(chosen(own)) == 2
    with pytest.raises(ValueError, match="none, permuted"):
        difference_rows(Rows.concatenate([rows(0.1, control="permuted"), rows(0.1, control="none")]), "text")


def test_lengths_that_are_not_said_or_not_known_enter_nothing() -> None:
    cells = three()
    one = plans(cells, [[0, END], [1, 2], [3, UNKNOWN], [1, END], [0, 0], [2, END]])
    rows = score_lengths(np.array([2, np.nan, 1, 0, 1, 1]), one, cells, WHO)
    wanted = {
        "length match": (0, 0, 0.5),
        "predicted length": (2, 1, 0.5),
        "executed length": (1, 2, 1),
        "length error": (1, -1, -0.5),
        "median length error": (1, 1, 0.5),
    }
    for measure, values in wanted.items():
        assert rows.select(measure=measure).value.tolist() == list(values), measure
    nothing = score_lengths(np.full(6, np.nan), one, cells, WHO)
    assert np.isnan(nothing.value).all() and len(nothing) == len(rows)


def test_a_median_is_that_of_the_medians_of_grids_and_says_what_it_rests_on() -> None:
    values = [1, 2, 9, 4, np.nan, 7, np.nan]
    found = median_over_grids(values, list("aaabbcd"), unit="steps")
    assert (found.value, found.n, found.clusters, found.undefined) == (4, 5, 3, 2)  # of 2, 4 and 7
    assert found.method == "none" and found.note == "too few grids for an interval of a median"
    many = median_over_grids(np.arange(9.0), np.arange(9), unit="steps", confidence=0.9)
    # P(Binomial(9, 1/2) <= 1) = 10 / 512 is below 0.05, with 2 it is 46 / 512.
    assert (many.low, many.high, many.confidence, many.unit) == (1, 7, 0.9, "steps")
    assert many.method == "order statistics (sign test) of the median" and many.note == ""
    edge = median_over_grids(np.arange(6.0), np.arange(6), unit="steps")
    assert (edge.low, edge.high) == (0, 5)  # 1 / 64 is below 0.025
    exact = median_over_grids(np.arange(6.0), np.arange(6), unit="steps", confidence=1 - 2 / 64)
    assert (exact.low, exact.high) == (0, 5)  # no less than was asked for
    assert not median_over_grids(np.arange(6.0), np.arange(6), unit="steps", confidence=0.97).has_interval


def test_errors_by_distance_and_r_squared_are_kept_apart() -> None:
    cells = three().where(np.arange(5))  # two steps of x and y, one of z: grids count alike, not steps
    true, guess = np.array([1.0, 2, 1, 4, 2]), np.array([2.0, 2, 1, 1, 4])
    parts = [score_distance(guess, true, cells, {**WHO, "control": name}) for name in ("none", "permuted")]
    rows = Rows.concatenate(parts)
    found = {(one.key["measure"], one.key["control"]): one.estimate for one in summarise_distance(rows)}
    assert set(found) == {(name, one) for name in ("distance error", "R^2") for one in ("none", "permuted")}
    mean = (1 + 2 + 4) / 3
    above = (1 / 2 + 4 / 2 + 9) / 3
    below = ((1 - mean) ** 2 + (2 - mean) ** 2 + (4 - mean) ** 2) / 3
    assert found["R^2", "none"].value == pytest.approx(1 - above / below)
    assert found["R^2", "none"].unit == "share" and found["R^2", "none"].clusters == 3
    assert found["distance error", "none"].value == pytest.approx((0.5 + 1 + 3) / 3)
    assert found["distance error", "none"].low >= 0 and found["distance error", "none"].unit == "steps"
    curve = {one.key["distance"]: one.estimate.value for one in summarise_distance(parts[0], by=("distance",))}
    assert curve == {1: 0.5, 2: 1, 4: 3}
