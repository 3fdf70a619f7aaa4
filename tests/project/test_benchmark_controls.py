"""The script behind the figures of random networks: scores and probe by other means, worlds, planted codes."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.inside.activations import Activations
from goalscope.inside.probing import AGENT, GOAL, OPEN, WALL, Cells, FitSettings, ProbeInputs, Split

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


def test_no_two_worlds_have_the_same_walls_and_tested_ones_do_not_depend_on_the_others(script: ModuleType) -> None:
    few, many = list(script.worlds(7, 20, 10, 0)), list(script.worlds(7, 60, 10, 0))
    assert len({world.grid.walls.tobytes() for world in many}) == 70
    tested = [world.id for world in few if world.tags["part"] == "test"]
    assert tested == [world.id for world in many[:10]] and len(tested) == 10


def planted(count: int = 400, side: int = 4) -> tuple[Cells, dict[str, np.ndarray]]:
    """Return grids with walls, agent and goal anywhere, and vectors that hold them linearly, or do not."""
    rng = stream(0, "planted")
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
        cluster=names,
        reasoning=np.full(count, "", dtype=object),
    )
    code = np.concatenate([labels == label for label in (WALL, GOAL, AGENT)], axis=1).astype(float)
    mixed = code @ rng.standard_normal((code.shape[1], 60))
    return cells, {"code": mixed, **{name: rng.standard_normal((count, 60)) for name in ("0", "1")}}


def test_planted_codes_are_found_and_noise_is_not(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    cells, vectors = planted()
    places = np.zeros((len(cells), 3), dtype=np.int64)
    names = {name: getattr(cells, name) for name in ("episode_id", "step", "cluster", "shape")}
    given = {
        name: Activations(
            site="pre",
            layer=7,
            model=f"model-{name}",
            vectors=one.reshape(-1, 3, 20).astype(np.float32),
            world_id=cells.cluster,
            positions=places,
            tokens=places,
            reconstructed=np.zeros(len(cells), dtype=bool),
            **names,
        )
        for name, one in vectors.items()
    }
    train = np.arange(len(cells)) < 300
    data = ProbeInputs(
        activations=[given["code"]],
        cells=cells,
        split=Split(train=train, test=~train, cluster=cells.cluster),
        random={("permuted", seed): [given[str(seed)]] for seed in range(2)},
    )
    script.tables(script.scored(data, FitSettings()))
    levels, _, less = capsys.readouterr().out.partition("| Theseus less |")
    rows = [line.strip("| ").split(" | ") for line in levels.splitlines() if line.startswith("|")]
    table = {row[0]: row[1:] for row in rows}
    own, noise = ([float(cell.split(" ")[0]) for cell in table[name][-3:]] for name in ("Theseus", "permuted"))
    assert min(own) > 0.97 and table["permuted"][0] == "2"
    assert 0.45 < noise[0] < 0.55 and max(noise[1:]) < 0.2
    lines = {line.split(" | ")[0][2:]: line.split(" | ")[1:] for line in less.splitlines() if line.startswith("| p")}
    for cell, one, other in zip(lines["permuted"], own, noise, strict=True):
        assert float(cell.split(" ")[0]) == pytest.approx(one - other, abs=0.0011)
    assert set(lines) == {"permuted", "position alone"}


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
