"""`make bench` runs every script of benchmarks/: each is documented and needs no package that `dev` does not bring."""

import ast
import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

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
