"""Learning curves, capacity curves and online codes, on activations whose content is known."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from planted import half_walls, noise, rooms, wall_map

from goalscope._ground.rng import stream
from goalscope.inside.probing import PADDING, FitSettings, ProbeInputs, split_by_grid
from goalscope.inside.probing.suite import (
    CURVE,
    compression,
    curve_ends,
    description_length,
    learning_curve,
    nested_order,
)
from goalscope.stats import estimate_rows
from goalscope.stats.rows import Rows

SETTINGS = FitSettings(epochs=25, hidden=32, rate=1e-2)


def inputs(cells: Any, given: Any) -> ProbeInputs:
    return ProbeInputs(activations=[given], cells=cells, split=split_by_grid(cells))


def mean(rows: Rows, **tags: Any) -> float:
    return float(np.nanmean(rows.select(**tags).value))


def test_orders_are_nested_by_kind_and_drawn_by_seed() -> None:
    cells = rooms(grids=40, steps=2)
    grids = sorted(set(cells.cluster.tolist()))
    size = dict(zip(cells.cluster.tolist(), cells.shape[:, 0].tolist(), strict=True))
    first = nested_order(cells, grids, "curve", 0)
    assert sorted(first) == grids and first == nested_order(cells, reversed(grids), "curve", 0)
    assert len({tuple(nested_order(cells, grids, "curve", seed)) for seed in range(4)}) == 4
    for count in range(4, 41, 4):  # of each size the same share, but for one grid
        counted = Counter(size[one] for one in first[:count])
        assert abs(counted[4] - counted[5]) <= 2


@pytest.mark.full
def test_a_learning_curve_of_a_planted_map_rises_and_flattens_and_noise_stays_where_it_is() -> None:
    cells = half_walls(grids=280)
    for given, planted in ((wall_map(cells), True), (noise(cells), False)):
        rows = learning_curve(
            inputs(cells, given), (8, 80, 180), heads=("position", "percell"), seeds=(0, 1, 2), settings=SETTINGS
        )
        assert set(rows["scope"]) == {CURVE} and set(rows["reading"]) == {"natural"} and set(rows["draw"]) == {0, 1, 2}
        walls = rows.select(measure="area under the curve", **{"class": "wall"})
        level = [mean(walls, head="percell", **{"training grids": one}) for one in (8, 80, 180)]
        if planted:
            assert level[0] < level[1] - 0.02 and level[2] > 0.98
        else:
            assert all(abs(one - 0.5) < 0.03 for one in level)
        assert all(abs(mean(walls, head="position", **{"training grids": one}) - 0.5) < 0.04 for one in (8, 180))
        ends = {(one.key["head"], one.key["class"]): one for one in curve_ends(walls)}
        assert ends["percell", "wall"].grids == (80, 180)
        gain = level[2] - level[1]
        assert ends["percell", "wall"].gain.value == pytest.approx(gain)


def test_whether_a_curve_has_flattened_is_whether_the_interval_of_its_last_gain_is_below_the_margin() -> None:
    def rows(levels: dict[int, float], spread: float) -> Rows:
        rng = stream(0, "ends")
        parts = []
        for draw in range(3):
            for count, level in levels.items():
                value = level + spread * rng.standard_normal(60)
                tags: Any = {"training grids": count, "draw": draw, "site": "pre", "layer": 1, "head": "percell"}
                names = [f"grid-{at}" for at in range(60)]
                parts.append(
                    Rows.from_columns(
                        measure="area under the curve",
                        unit="share",
                        value=value.clip(0, 1),
                        cluster=names,
                        tags={**tags, "class": "wall"},
                    )
                )
        return Rows.concatenate(parts)

    def flat(levels: dict[int, float], spread: float = 0.004, **more: Any) -> list[bool]:
        return [one.flattened for one in curve_ends(rows(levels, spread), **more)]

    assert flat({50: 0.6, 100: 0.9, 200: 0.902}) == [True]
    assert flat({50: 0.6, 100: 0.85, 200: 0.9}) == [False]
    assert flat({50: 0.6, 100: 0.85, 200: 0.9}, margin=0.2) == [True]
    assert flat({100: 0.9, 200: 0.9}, spread=0.2) == [False]  # too few grids to tell
    assert flat({150: 0.9, 200: 0.9}) == []  # no doubling
    assert flat({100: 0.9, 200: 0.8}) == [True]  # falling
    with pytest.raises(ValueError, match=r"margin.*> 0"):
        curve_ends(rows({1: 0.5}, 0.1), margin=0.0)
    assert curve_ends(rows({1: 0.5}, 0.1)) == []


def test_numbers_of_grids_that_are_not_there_are_refused() -> None:
    data = inputs(*(lambda cells: (cells, noise(cells)))(half_walls(grids=16)))
    for wanted in ((), (4, 4), (8, 4), (0, 4), (4, 13)):
        with pytest.raises(ValueError, match=r"to 12.*, got"):
            learning_curve(data, wanted)


def literal_position_code(data: ProbeInputs, order: list[str], ends: list[int]) -> dict[str, float]:
    """Code grid by grid from counted frequencies: log frequency in the cell, half a count of the overall ones."""
    cells, found = data.cells, {}
    rows = {grid: np.flatnonzero(cells.cluster == grid) for grid in order}
    for begin, end in zip([0, *ends], ends, strict=False):
        before = [cells.labels[at] for grid in order[:begin] for at in rows[grid]]
        for grid in order[begin:end]:
            bits = []
            for at in rows[grid]:
                total = 0.0
                for cell, label in enumerate(cells.labels[at].tolist()):
                    if label == PADDING:
                        continue
                    if not before:
                        total += 2
                        continue
                    overall = [sum(list(one).count(kind) for one in before) for kind in range(5)]
                    share = [one / sum(overall) for one in overall]
                    weight = [
                        (sum(one[cell] == kind for one in before) + share[kind] / 2) / (len(before) + 0.5)
                        for kind in range(4)
                    ]
                    total -= np.log2(0.999 * weight[label] / sum(weight) + 0.001 / 4)
                bits.append(total)
            found[grid] = float(np.mean(bits))
    return found


def test_the_code_of_the_position_alone_is_that_of_counting() -> None:
    cells = rooms(grids=16, steps=1)
    data = inputs(cells, noise(cells))
    rows = description_length(data, heads=("position",), blocks=3, orders=(0, 5))
    assert set(rows.measure) == {"description length"} and set(rows.unit) == {"bits"} and len(rows) == 2 * 16
    for seed in (0, 5):
        order = nested_order(cells, set(cells.cluster.tolist()), "online code", seed)
        wanted = literal_position_code(data, order, [4, 8, 16])
        mine = rows.select(order=seed)
        found = dict(zip(mine.cluster.tolist(), mine.value.tolist(), strict=True))
        assert found == pytest.approx(wanted, rel=1e-5)


def test_a_map_that_activations_hold_has_a_short_code_and_noise_has_none() -> None:
    cells = half_walls(grids=256)
    for given, planted in ((wall_map(cells), True), (noise(cells), False)):
        rows = description_length(
            inputs(cells, given), heads=("position", "percell"), blocks=5, orders=(0, 1), settings=SETTINGS
        )
        bits = {str(one.key["head"]): one.estimate for one in estimate_rows(rows, by=("head",))}
        # 25 cells, half of them walls: 25 bits, and those of the first block, which learns nothing yet.
        assert 25 < bits["position"].value < 25 * 17 / 16 + 1.5
        (shorter,) = compression(rows)
        assert shorter.key["head"] == "percell" and shorter.key["measure"] == "compression"
        assert shorter.estimate.value == pytest.approx(bits["position"].value / bits["percell"].value)
        assert (shorter.estimate.low > 1.5) if planted else (shorter.estimate.high < 1.02)
    with pytest.raises(ValueError, match="position"):
        compression(rows.select(head="percell"))
    with pytest.raises(ValueError, match="512 grids"):
        description_length(inputs(cells, noise(cells)), blocks=9)
