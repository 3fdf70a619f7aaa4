"""Success against the logarithm of an error, and where two agents part: literal versions with loops over maps."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.measures.exploration.errors import DRAWS, PROGRESS_SHARE, divergences, log_relation
from goalscope.stats.rows import Row, Rows, Tag

ERROR = "exploration error"
Values = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def rows_of(values: Values) -> Rows:
    """Rows of agent -> map -> (success, error) of each episode."""
    return Rows.from_rows(
        Row(
            measure=name, unit="share", value=value, cluster=grid, episode_id=f"{agent}{grid}{i}", tags={"agent": agent}
        )
        for agent, maps in values.items()
        for grid, episodes in maps.items()
        for i, pair in enumerate(episodes)
        for name, value in zip(("success", ERROR), pair, strict=True)
    )


def made(agents: int, maps: int) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Two episodes on each map; some errors are 0 or undefined."""
    rng = stream(4, "relations", agents)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for agent in range(agents):
        found[f"agent {agent}"] = {}
        for grid in range(maps):
            errors = [float(rng.choice([0.0, math.nan, 0.05, 0.2]) * (agent + 1)) for _ in range(2)]
            found[f"agent {agent}"][f"map {grid}"] = [(float(rng.random() < 0.9 - agent / 9), e) for e in errors]
    return found


def literal_r_squared(values: Values, drawn: Sequence[str]) -> float:
    """The squared correlation over the agents that have an error above 0 on the drawn maps; NaN below three."""
    points = []
    for maps in values.values():
        errors, successes = [], []
        for grid in drawn:
            defined = [error for _, error in maps[grid] if not math.isnan(error)]
            errors += [np.mean(defined)] if defined else []
            successes.append(np.mean([success for success, _ in maps[grid]]))
        if errors and np.mean(errors) > 0:
            points.append((math.log10(np.mean(errors)), float(np.mean(successes))))
    x, y = zip(*points, strict=True) if points else ((), ())
    flat = len(points) < 3 or np.ptp(x) < 1e-12 or np.ptp(y) < 1e-12
    return math.nan if flat else float(np.corrcoef(x, y)[0, 1] ** 2)


@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_the_interval_is_that_of_a_literal_bootstrap_over_maps(confidence: float) -> None:
    values = made(5, 4)
    found = log_relation(rows_of(values), ERROR, list(values), confidence=confidence)
    grids = [f"map {grid}" for grid in range(4)]
    assert found.r_squared.value == pytest.approx(literal_r_squared(values, grids))
    counts = stream(0, "relation", ERROR).multinomial(4, [1 / 4] * 4, size=DRAWS)
    known = {row: literal_r_squared(values, np.repeat(grids, row).tolist()) for row in set(map(tuple, counts.tolist()))}
    drawn = [known[tuple(row)] for row in counts.tolist()]
    ends = np.nanquantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    assert (found.r_squared.low, found.r_squared.high) == pytest.approx(tuple(ends))
    assert found.r_squared.confidence == confidence and (found.r_squared.n, found.r_squared.clusters) == (5, 4)


def test_three_agents_make_a_line_and_one_map_no_interval() -> None:
    values = made(3, 4)
    whole = log_relation(rows_of(values), ERROR, list(values))
    assert whole.r_squared.value == pytest.approx(literal_r_squared(values, [f"map {grid}" for grid in range(4)]))
    assert whole.r_squared.note == "" and len(whole.agents) == 3
    single = {
        name: {"only": [(success, error)]} for name, success, error in (("a", 1, 0.1), ("b", 0, 0.5), ("c", 1, 0.2))
    }
    found = log_relation(rows_of(single), ERROR, ["a", "b", "c"])
    assert found.errors == (0.1, 0.5, 0.2) and found.success == (1.0, 0.0, 1.0)
    assert not found.r_squared.has_interval and not math.isnan(found.slope)
    # Rows of agents that were not asked for change nothing.
    more = rows_of({**single, "d": {"only": [(0.0, 0.9)], "another": [(1.0, 0.3)]}})
    again = log_relation(more, ERROR, ["a", "b", "c"])
    assert (again.slope, again.intercept, again.r_squared.value) == (
        found.slope,
        found.intercept,
        found.r_squared.value,
    )


def test_pairs_are_agents_that_succeed_often_and_alike_on_maps_that_both_solve() -> None:
    """Each agent explores at a pace of its own where it succeeds; where it fails, its curve is 1 and must not count."""
    solved = {
        "all": (range(32), 0.3),
        "but one": (range(1, 32), 0.5),  # 1/32 below: as good
        "but two": (range(2, 32), 0.6),  # 2/32 below the first: not as good
        "half": (range(16), 0.2),
        "other half": (range(15, 31), 0.9),  # shares one map with half: too few
        "middle": (range(14, 30), 0.7),  # shares two
        "fewer": (range(15), 0.1),  # succeeds in less than half
    }
    rows = []
    for agent, (maps, pace) in solved.items():
        for number in range(32):
            shares = [pace if number in maps else 1.0]
            if agent == "all":  # two episodes on each map, whose mean counts
                shares = [pace - 0.1, pace + 0.1]
            for episode, share in enumerate(shares):
                base: dict[str, Tag] = {"agent": agent}
                name, grid = f"{agent} {number} {episode}", f"map {number}"
                one = {"unit": "share", "cluster": grid, "episode_id": name}
                rows.append(Row(measure="success", value=float(number in maps), tags=base, **one))  # type: ignore[arg-type]
                for tenth in range(1, 11):
                    tags = {**base, "progress": tenth / 10}
                    value = share + (0.05 if tenth == 10 and agent == "but one" and number in maps else 0.0)
                    rows.append(Row(measure=PROGRESS_SHARE, value=value, tags=tags, **one))  # type: ignore[arg-type]
    found = {(one.first, one.second): one for one in divergences(Rows.from_rows(rows), ["absent", *solved])}
    shared = {pair: entry.maps for pair, entry in found.items()}
    assert shared == {
        ("all", "but one"): 31,
        ("but one", "but two"): 30,
        ("half", "middle"): 2,
        ("other half", "middle"): 15,
    }
    first = found["all", "but one"]
    assert first.apart == pytest.approx((9 * 0.2 + 0.25) / 10)
    assert [tenth.value for tenth in first.tenths] == pytest.approx([-0.2] * 9 + [-0.25])
    assert all(tenth.confidence == pytest.approx(0.995) and tenth.clusters == 31 for tenth in first.tenths)
    assert [curve[0].value for curve in first.curves] == pytest.approx([0.3, 0.5])
    assert first.curves[1][9].value == pytest.approx(0.55) and first.curves[0][0].confidence == 0.95
    assert found["half", "middle"].begins is None  # two maps show nothing


def test_success_rates_five_hundredths_apart_are_compared_whatever_floats_make_of_them() -> None:
    rows = []
    for agent, solved in (
        ("all", 20),
        ("one less", 19),
        ("two less", 18),
    ):  # 1 - .95 is a hair more than .05, .95 - .9 a hair less
        for number in range(20):
            one: dict[str, Any] = {
                "unit": "share",
                "cluster": f"map {number}",
                "episode_id": f"{agent} {number}",
            }
            rows.append(Row(measure="success", value=float(number < solved), tags={"agent": agent}, **one))
            for tenth in range(1, 11):
                rows.append(
                    Row(measure=PROGRESS_SHARE, value=0.5, tags={"agent": agent, "progress": tenth / 10}, **one)
                )
    found = divergences(Rows.from_rows(rows), ["all", "one less", "two less"])
    assert [(one.first, one.second) for one in found] == [("all", "one less"), ("one less", "two less")]
