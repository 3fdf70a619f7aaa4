"""Probes that are kept with a run are used again before the first action; what is missing is fitted, or said."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from insides import recorded, rooms, silent_at
from replays import local

from goalscope.agents.models import LocalModel
from goalscope.cli.console import progress
from goalscope.inside.activations import capture, load_activations
from goalscope.inside.beliefs import FirstSteps, read_first_steps
from goalscope.inside.probing import (
    FitSettings,
    Inside,
    ProbeInputs,
    label_cells,
    probe_cells,
    split_by_grid,
    stored_probes,
    study_inside,
)
from goalscope.runs import Store

PROBES = {"hidden": 4, "epochs": 2, "rate": 0.01, "batch": 16}
DECLARED = {
    "reads": ["cognitive-map"],
    "sites": ["pre"],
    "layers": [1],
    "test": 0.4,
    "probes": PROBES,
    "random": {"kinds": ["permuted"], "seeds": 1},
    "by_size": False,
}


def random_weights() -> LocalModel:
    """The same architecture with other weights, which says of itself that they are random."""
    model = local(seed=1)
    model._untrained, model._random_weights = 0, "permuted"
    return model


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose cognitive map was read at one place, with one random network."""
    path, model, _ = recorded(tmp_path_factory.mktemp("first") / "run", trajectories=1)
    declared = Inside.parse({**DECLARED, "by_size": False, "table": "complete"})
    study_inside(path, declared, model=model, random=lambda kind, seed: random_weights())
    return path


@pytest.fixture
def copied(read: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(read, tmp_path / "copy"))


def first(path: Path, site: str = "pre", layer: int = 1) -> FirstSteps:
    return read_first_steps(path, site=site, layer=layer, stage=progress)


def files(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in (path / "probes").iterdir()}


def test_what_was_fitted_before_is_used_again_and_is_what_a_fresh_fit_gives(read: Path, copied: Path) -> None:
    before = files(copied)
    again = first(copied)
    assert again.fitted == () and again.missing == "" and files(copied) == before
    assert again.settings["test"] == 0.4 and again.settings["probes"]["hidden"] == 4
    assert set(again.posteriors) == set(again.probes) == {"none", "permuted"}
    kept = {row.tags["control"]: made.id for row, made in stored_probes(read, head="mlp", site="pre", layer=1)}
    assert again.probes == {name: kept[name] for name in again.probes} and len(set(again.probes.values())) == 2
    shutil.rmtree(copied / "probes")
    fresh = first(copied)
    assert fresh.fitted == ("none", "permuted") and fresh.probes == again.probes
    for name, said in again.posteriors.items():
        assert fresh.posteriors[name].tobytes() == said.tobytes()
    written = files(copied)
    assert written == {name: before[name] for name in written} and len(written) == 2
    assert first(copied).fitted == ()


def test_it_reads_the_first_steps_of_grids_that_were_not_trained_on(read: Path) -> None:
    """Literally: the probe that the study of beliefs fits, asked about these steps alone."""
    found = first(read)
    with Store(read) as store:
        own = load_activations(store, site="pre", layer=1)
        control = load_activations(store, site="pre", layer=1, untrained=0, random_weights="permuted")
        cells = label_cells(own, store.episodes())
        grids = {one.id: one.world.cluster_id for one in store.episodes()}
    settings = FitSettings(hidden=4, epochs=2, rate=0.01, batch=16)  # those of PROBES
    places = ProbeInputs(
        activations=[own], random={("permuted", 0): [control]}, cells=cells, split=split_by_grid(cells, test=0.4)
    )
    fitted = probe_cells(places, suite=[("mlp", "none"), ("mlp", "permuted")], settings=settings)
    mask = places.split.test & (places.cells.step == 0)
    for name, draw, (one,) in (("none", None, [own]), ("permuted", 0, [control])):
        probe = fitted.probe("mlp", one, control=name, draw=draw)
        said = probe.predict(one.where(mask)).natural.reshape(found.posteriors[name].shape)
        assert np.array_equal(found.posteriors[name], said) and probe.id == found.probes[name]
    assert found.episode_id.tolist() == places.cells.episode_id[mask].tolist()
    tested = {grids[name] for name in found.episode_id.tolist()}
    assert len(tested) == found.settings["test grids"] == 2 and found.settings["training grids"] == 4


@pytest.mark.full
def test_without_a_random_network_it_says_how_to_make_one(tmp_path: Path) -> None:
    path, model, _ = recorded(tmp_path / "run", trajectories=1)
    capture(path, model, sites=["pre", "post"], layers=[1, 2])
    found = first(path, layer=2)
    assert set(found.posteriors) == {"none"} and found.fitted == ("none",)
    command = found.missing.partition("to have it: ")[2].split()
    assert command[:3] == ["goalscope", "capture", str(path)]
    assert command[3:] == [
        "--sites",
        "pre",
        "--agent",
        found.agent,
        "--layers",
        "2",
        "--untrained",
        "0",
        "--random-weights",
        "permuted",
    ]
    capture(path, random_weights(), sites=["pre"], layers=[2], agent=found.agent)  # that command
    after = first(path, layer=2)
    assert after.missing == "" and after.fitted == ("permuted",) and after.probes["none"] == found.probes["none"]
    assert not np.array_equal(after.posteriors["permuted"], after.posteriors["none"])
    for site, layer in (("pre", 0), ("action", 1)):
        with pytest.raises(ValueError, match=f"goalscope capture .* --sites {site} --layers {layer}"):
            first(path, site, layer)


def test_settings_are_those_of_the_last_reading_of_the_place(copied: Path) -> None:
    own = load_activations(copied, site="pre", layer=1, untrained=None)
    with Store(copied, "w") as store:
        told: dict[str, Any] = store.info()["inside"]
        about = told["cognitive-map"]
        about["settings"]["seed"] = 7
        store.put_info("inside", told)
    other = first(copied)
    assert other.settings["seed"] == 7 and other.fitted == ("none", "permuted")
    assert len(own) and set(other.probes.values()).isdisjoint(first_ids(copied, "seed", 0))
    for wrong in ({"settings": None}, {"settings": {"seed": "x"}}, {"sites": 3}, {"agent": 4}):
        with Store(copied, "w") as store:
            store.put_info("inside", {"cognitive-map": about | wrong})
        with pytest.raises(ValueError, match=r"the last reading .*goalscope probe"):
            first(copied)


def first_ids(path: Path, name: str, value: Any) -> set[str]:
    return {made.id for _, made in stored_probes(path) if made.tags.get(name) == value}


def test_worlds_with_doors_and_first_steps_without_the_site_are_refused(tmp_path: Path) -> None:
    text = "{{grid}}{{carrying_key}}\nGo: "
    path, model, _ = recorded(tmp_path / "doors", grids=rooms(6, door=True), trajectories=1, text=text)
    capture(path, model, sites=["pre"], layers=[1])
    with pytest.raises(ValueError, match="a door"):
        first(path)
    path, model, _ = recorded(tmp_path / "later", trajectories=1, change=silent_at(0))
    capture(path, model, sites=["post"], layers=[1])
    with pytest.raises(ValueError, match="first action"):
        first(path, "post")
