"""The script behind the figures of random networks: scores and probe by other means, worlds, planted codes."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from goalscope.probing import AGENT, GOAL, OPEN, WALL, Cells
from goalscope.rng import stream

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "controls.py"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("benchmark_of_controls", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_area_is_the_share_of_pairs_in_order(script: ModuleType) -> None:
    rng = stream(0, "area")
    scores, positive = np.round(rng.random(40), 1), rng.random(40) < 0.4
    pairs = [(one > other) + (one == other) / 2 for one in scores[positive] for other in scores[~positive]]
    assert script.area(scores, positive) == pytest.approx(np.mean(pairs))
    assert script.area(positive.astype(float), positive) == 1 and np.isnan(script.area(scores, positive | True))


def test_the_ridge_is_the_least_penalised_squared_error(script: ModuleType) -> None:
    rng = stream(0, "ridge")
    inputs, targets = rng.standard_normal((30, 5)) * 3 + 2, rng.standard_normal((30, 2))
    given = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    # The same as plain least squares with one row more for each weight.
    for penalty in (0.1, 10.0):
        rows = np.concatenate([given, np.sqrt(penalty) * np.eye(5)])
        wanted = np.linalg.lstsq(rows, np.concatenate([targets - targets.mean(axis=0), np.zeros((5, 2))]), rcond=None)
        np.testing.assert_allclose(
            script.Ridge(inputs, targets).predict(inputs, penalty), given @ wanted[0] + targets.mean(axis=0)
        )


def test_no_two_worlds_have_the_same_walls_and_tested_ones_do_not_depend_on_the_others(script: ModuleType) -> None:
    few, many = list(script.worlds(7, 20, 10, 0)), list(script.worlds(7, 60, 10, 0))
    assert len({world.grid.walls.tobytes() for world in many}) == 70
    tested = [world.id for world in few if world.tags["part"] == "test"]
    assert tested == [world.id for world in many[:10]] and len(tested) == 10


@pytest.mark.parametrize("least", [1.0, 1e-9])
def test_planted_codes_are_found_and_noise_is_not(script: ModuleType, least: float) -> None:
    rng = stream(0, "planted")
    count, side = 400, 4
    labels = np.where(rng.random((count, side * side)) < 0.4, WALL, OPEN).astype(np.int8)
    labels[:, 0] = WALL
    places = np.argsort(rng.random((count, side * side - 1)), axis=1)[:, :2] + 1
    labels[np.arange(count), places[:, 0]], labels[np.arange(count), places[:, 1]] = AGENT, GOAL
    names = np.array([f"grid-{at}" for at in range(count)], dtype=object)
    cells = Cells(
        frame=side,
        labels=labels,
        shape=np.full((count, 2), side),
        density=np.full(count, np.nan),
        episode_id=names,
        step=np.zeros(count, dtype=np.int64),
        grid_id=names,
        reasoning=np.full(count, "", dtype=object),
    )
    train = np.arange(count) < 300
    code = np.concatenate([labels == label for label in (WALL, GOAL, AGENT)], axis=1).astype(float)
    found = script.probe(code @ rng.standard_normal((code.shape[1], 60)), cells, train, 0, least)
    assert {name: np.nanmean(values) for name, values in found.items() if not np.nanmean(values) > 0.99} == {}
    nothing = script.probe(rng.standard_normal((count, 60)), cells, train, 0, least)
    walls, *others = (np.nanmean(values) for values in nothing.values())
    assert 0.45 < walls < 0.55 and max(others) < 0.2


@pytest.mark.full
def test_the_script_runs_as_documented(tmp_path: Path) -> None:
    import subprocess

    sizes = ["--train", "30", "--test", "12", "--size", "7", "--seeds", "1", "--work", str(tmp_path)]
    first, again = (
        subprocess.run([sys.executable, str(SCRIPT), *sizes], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == again and "30 training and 12 tested grids" in first
    assert [line.split(" | ")[0] for line in first.splitlines() if line.startswith("| permuted")] == ["| permuted"] * 4
