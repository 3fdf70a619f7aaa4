"""Scripts of benchmarks/: each is documented and needs nothing beyond `dev`; peers compute what ours compute."""

import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.inside.activations import Activations
from goalscope.inside.probing import AGENT, GOAL, OPEN, WALL, Cells, FitSettings, ProbeInputs, Split
from goalscope.meg import meg_known
from goalscope.runs import Study
from goalscope.verdict.evidence import outcomes
from goalscope.worlds import generate_batch
from goalscope.worlds.planning import distances_batch, optimal_batch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
FAIR = {  # peer that flatters: the one that must stand beside it
    "Algorithm 1|gradient ascent": "Brent",
    "networkx": "csgraph",
    "MiniGrid": "without observations",
    "one `generate`": "in batches",
}
SCRIPTS = sorted(FOLDER.glob("*.py"))


def imported(script: Path) -> set[str]:
    """Return the top-level packages that a script imports anywhere."""
    nodes = list(ast.walk(ast.parse(script.read_text(encoding="utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    given = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in plain | given}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_can_import_what_it_needs_and_is_documented(script: Path) -> None:
    missing = [name for name in imported(script) if find_spec(name) is None and not (FOLDER / f"{name}.py").exists()]
    assert not missing
    assert f"`{script.name}`" in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("flattering", FAIR)
def test_a_page_that_names_a_flattering_peer_names_the_fair_one_too(flattering: str) -> None:
    pages = [ROOT / "README.md", FOLDER / "README.md", *(ROOT / "docs").glob("*.md")]
    ratio = r"\d (x|times as)|\| ratio"
    texts = {str(page): " ".join(page.read_text(encoding="utf-8").split()) for page in pages}
    naming = [page for page, text in texts.items() if re.search(flattering, text) and re.search(ratio, text)]
    assert naming and not [page for page in naming if FAIR[flattering] not in texts[page]]


def test_the_peers_compute_what_ours_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    meg, worlds = importlib.import_module("meg"), importlib.import_module("worlds")
    mdp, policy = meg.open_world(5, 12)
    wanted = meg_known(mdp, policy).value
    value, backups = meg.brent(mdp, policy, wanted)
    assert abs(value - wanted) <= meg.ACCURACY and backups > 3
    batch = generate_batch(worlds.SIZE, worlds.DENSITY, seed=3, count=6)
    ours = optimal_batch(distances_batch(batch.walls, batch.goal))
    for together in (True, False):
        found = np.concatenate(worlds.csgraph_search(batch, together)())
        np.testing.assert_array_equal(found.reshape(ours.shape), ours)


@pytest.mark.parametrize("shares", [(0.25, 0.25, 0.25, 0.25), (0.1, 0.5, 0.2, 0.2)])
def test_the_oracle_of_planted_agents_knows_the_exact_chances_at_keys_and_doors(
    monkeypatch: pytest.MonkeyPatch, shares: tuple[float, ...]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    oracle = importlib.import_module("planted_truth")
    study = Study.parse({"seed": 5, "worlds": [{"kind": "key-door", "count": 12}], "agents": [{"kind": "random"}]})
    for world in study.worlds():
        ours = outcomes(world, 30, np.array(shares))
        assert np.allclose(oracle._drifted(world.grid, 30, shares), ours, rtol=0, atol=1e-12)
        assert ours[1] >= ours[2] > 0


# The script behind the figures of random networks: scores and probe by other means, worlds, planted codes.


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
