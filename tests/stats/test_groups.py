"""Estimates by group against a literal slow version; results with records as text."""

import math
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.stats import clusters_of, distinct, estimate_mean, estimate_pooled, estimate_rows, paired_difference
from goalscope.stats.records import Records
from goalscope.stats.rows import Row, Rows, Tag


def _rows(count: int = 400) -> Rows:
    rng = np.random.default_rng(0)
    return Rows.from_columns(
        measure=rng.choice(["success", "entropy"], count).tolist(),
        unit="share",
        value=np.where(rng.random(count) < 0.1, np.nan, rng.random(count)),
        cluster=[f"grid {index}" for index in rng.integers(0, 12, count)],
        tags={"agent": rng.choice(["zeta", "alpha"], count).tolist(), "size": rng.choice([11, 7, 9], count).tolist()},
    )


def test_groups_agree_with_a_literal_loop() -> None:
    rows = _rows()
    groups: dict[tuple[object, ...], tuple[list[float], list[str]]] = {}
    whole: dict[tuple[object, ...], set[str]] = {}
    for row in rows:
        whole.setdefault((row.tags["agent"], row.tags["size"]), set()).add(row.cluster)
        values, grids = groups.setdefault((row.measure, row.tags["agent"], row.tags["size"]), ([], []))
        values.append(row.value)
        grids.append(row.cluster)
    found = estimate_rows(rows)
    assert len(found) == len(groups) == 12
    for group in found:
        values, grids = groups[tuple(group.key.values())]
        expected = estimate_mean(values, grids, unit="share", bounds=(0, 1))
        without = len(whole[group.key["agent"], group.key["size"]]) - expected.clusters
        assert group.estimate == replace(expected, without=without)
        assert list(group.key) == ["measure", "agent", "size"]
    assert sum(group.estimate.undefined for group in found) == int(np.isnan(rows.value).sum())


def _on(count: int, measure: str, **tags: Tag) -> list[Row]:
    return [
        Row(measure=measure, unit="bits", value=0.1 * index, cluster=f"{tags['size']}/{index}", tags=tags)
        for index in range(count)
    ]


@pytest.mark.parametrize(("behind", "sparse"), [(1, True), (4, True), (5, False), (10, False)])
def test_grids_without_a_value_are_counted_and_less_than_half_are_few(behind: int, sparse: bool) -> None:
    listed = [*_on(10, "success", agent="a", size=7), *_on(30, "success", agent="a", size=9)]
    rows = Rows.from_rows([*listed, *_on(behind, "entropy", agent="a", size=7)])
    alone = rows.select(measure="entropy")
    for found in (estimate_rows(rows), estimate_rows(alone, whole=rows)):
        [estimate] = [one.estimate for one in found if one.key["measure"] == "entropy"]
        assert (estimate.clusters, estimate.without, estimate.all_clusters) == (behind, 10 - behind, 10)
        assert estimate.sparse is sparse
    assert estimate_rows(alone)[0].estimate.without == 0
    assert estimate_rows(alone, by=("agent",), whole=rows)[0].estimate.all_clusters == 40


def test_parts_of_an_episode_choose_no_grids() -> None:
    steps = [*_on(10, "entropy", agent="a", size=7, distance=1), *_on(3, "entropy", agent="a", size=7, distance=9)]
    near, far = (found.estimate for found in estimate_rows(Rows.from_rows(steps), by=("agent", "size", "distance")))
    assert (near.clusters, near.without, near.sparse) == (10, 0, False)
    assert (far.clusters, far.without, far.sparse) == (3, 7, True)


def test_grids_without_a_denominator_are_counted() -> None:
    found = estimate_pooled([1.0, 0.0, 0.0], [2.0, 0.0, 0.0], ["a", "b", "c"], unit="share", bounds=(0, 1))
    assert (found.value, found.clusters, found.without, found.sparse) == (0.5, 1, 2, True)


def test_order_is_natural_and_stable() -> None:
    found = estimate_rows(_rows())
    first = _rows()["agent"][0]
    measures = list(dict.fromkeys(group.key["measure"] for group in found))
    assert measures[0] == _rows().measure[0]
    assert [group.key["size"] for group in found[:3]] == [7, 9, 11]
    assert [group.key["agent"] for group in found[:6]] == [first] * 3 + [found[3].key["agent"]] * 3


def test_order_of_mixed_labels() -> None:
    labels = ["b", 10, None, 9, "a", 9.5]
    rows = Rows.from_columns(measure="m", unit="bits", value=np.ones(6), cluster=["g"] * 6, tags={"kind": labels})
    assert [group.key["kind"] for group in estimate_rows(rows, by=("kind",))] == [None, 9, 9.5, 10, "a", "b"]


def test_a_tag_that_no_row_has_is_none() -> None:
    rows = Rows.from_rows([Row(measure="m", unit="bits", value=1.0, cluster="g")])
    assert estimate_rows(rows)[0].key == {"measure": "m", "agent": None, "size": None}
    assert estimate_rows(rows.where(np.array([False]))) == []


def test_bounds_given_or_by_unit() -> None:
    rows = Rows.from_columns(
        measure=["rate"] * 4 + ["change"] * 4 + ["entropy"] * 4,
        unit=["share"] * 8 + ["bits"] * 4,
        value=[1.0] * 4 + [-0.25] * 4 + [2.0] * 4,
        cluster=["a", "b", "c", "d"] * 3,
    )
    rate, change, entropy = (group.estimate for group in estimate_rows(rows, by=()))
    agreeing = 0.025 ** (1 / 4)
    assert [rate.low, rate.high] == pytest.approx([agreeing, 1.0])
    assert [change.low, change.high] == pytest.approx(
        [-0.25 * agreeing - (1 - agreeing), -0.25 * agreeing + 1 - agreeing]
    )
    assert math.isnan(entropy.low)
    bounded = estimate_rows(rows, by=(), bounds={"entropy": (0.0, 2.0)})[2].estimate
    assert [bounded.low, bounded.high] == pytest.approx([2 * agreeing, 2.0])
    with pytest.raises(ValueError, match=r"lie in \[0, 1\]"):
        estimate_rows(rows, by=(), bounds={"entropy": (0.0, 1.0)})


def test_a_measure_less_another_is_a_paired_difference() -> None:
    rng = np.random.default_rng(1)
    grids = [f"grid {index}" for index in range(30)]
    own, other = rng.random(30), (rng.random(30) < 0.5).astype(float)
    columns: dict[str, Any] = {"measure": "success", "unit": "share", "value": own - other, "cluster": grids}
    rows = Rows.from_columns(**columns, tags={"differences": 1})
    ((estimate,),) = [[one.estimate for one in estimate_rows(rows, by=())]]
    assert estimate == paired_difference(own, grids, other, grids, unit="share", bounds=(0, 1)).difference
    assert estimate.method.startswith("wider of t")
    (plain,) = estimate_rows(Rows.from_columns(**columns | {"measure": "success less shuffled"}), by=())
    assert not plain.estimate.method.startswith("wider of t")


def test_a_difference_reaches_as_far_as_it_can_whatever_the_grids_show() -> None:
    def interval(differences: int, values: list[float]) -> tuple[float, float]:
        tags = {"differences": differences}
        rows = Rows.from_columns(measure="success", unit="share", value=values, cluster=list("abcd"), tags=tags)
        (found,) = estimate_rows(rows, by=())
        return found.estimate.low, found.estimate.high

    low, high = interval(1, [0.5, 0.0, 0.0, 0.0])
    assert low < 0 < high <= 1
    low, high = interval(2, [1.0, 1.0, 1.0, 0.5])
    assert low < 0.875 < 1 < high <= 2


def test_mixed_units_and_repeated_names_are_refused() -> None:
    rows = Rows.from_columns(measure="m", unit=["bits", "nats"], value=[1.0, 2.0], cluster=["a", "b"])
    with pytest.raises(ValueError, match="unit"):
        estimate_rows(rows, by=())
    with pytest.raises(ValueError, match="once"):
        estimate_rows(rows, by=("size", "size"))


def test_import_loads_no_scipy_stats() -> None:
    code = "import sys, goalscope.stats; print([m for m in sys.modules if m.startswith('scipy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("seed", range(5))
def test_one_row_of_each_kind_tells_the_grids_of_every_group(seed: int) -> None:
    rng = stream(seed, "distinct")
    count = 200
    drawn = {name: rng.integers(0, high, count) for name, high in (("agent", 3), ("size", 4), ("grid", 30))}
    rows = Rows.from_columns(
        measure=rng.choice(["a", "b"], count).tolist(),
        unit="share",
        value=rng.random(count),
        cluster=[f"g{at}" for at in drawn["grid"]],
        tags={
            "agent": [f"x{at}" for at in drawn["agent"]],
            "size": drawn["size"].tolist(),
            "distance": list(range(count)),
        },
    )
    few = distinct(rows, ("agent", "size", "distance", "cluster"))
    assert len(few) == len(set(zip(*(drawn[name].tolist() for name in drawn), strict=True))) < count
    for by in ((), ("agent",), ("size", "agent"), ("agent", "distance")):
        wanted: dict[tuple[Tag, ...], set[str]] = {}
        for row in rows:
            wanted.setdefault(tuple(row.tags[name] for name in by if name != "distance"), set()).add(row.cluster)
        assert clusters_of(few, by) == {key: len(grids) for key, grids in wanted.items()}
        assert clusters_of(rows, by) == clusters_of(few, by)


@dataclass(frozen=True)
class Result(Records):
    """A result with a part that no reader wants to see."""

    worlds: tuple[str, ...] = ("world-0123456789",) * 50

    @property
    def records(self) -> list[dict[str, Any]]:
        return [{"measure": "success", "value": 0.123456, "note": None}, {"measure": "a", "value": 2, "note": "few"}]


def test_a_printed_result_is_the_table_of_its_records() -> None:
    heading, first, second = str(Result()).split("\n")
    assert heading.split() == ["measure", "value", "note"]
    assert first.split() == ["success", "0.1235"] and second.split() == ["a", "2", "few"]
    assert heading.index("value") == first.index("0.1235") == second.index("2"), "columns are aligned"
