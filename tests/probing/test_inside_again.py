"""Readings of one run that differ in their places, sizes or device: nothing of one stands in the way of the next."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from insides import recorded, rooms
from planted import cells_of, noise
from replays import episode, local

from goalscope.agents import ChatAgent, agent_id
from goalscope.cli.inside import _compared
from goalscope.inside.activations import load_activations
from goalscope.inside.probing import (
    CORE,
    Cells,
    Inside,
    ProbeInputs,
    probe_cells_by_size,
    split_by_grid,
    stored_probes,
    study_inside,
    summarise,
)
from goalscope.inside.probing.heads import check_device, trains_on
from goalscope.report.sections.probing import ProbeRows
from goalscope.runs import EpisodeSpec, GridWorld, Store
from goalscope.stats.rows import Rows
from goalscope.worlds import Grid

SMALL: dict[str, Any] = {
    "test": 0.4,
    "probes": {"hidden": 4, "epochs": 1},
    "decoders": {"layers": [1], "width": 8, "feedforward": 8, "epochs": 1},
    "random": None,
    "by_size": False,
}


@pytest.mark.full
def test_a_reading_of_other_places_is_not_stopped_by_what_an_earlier_one_kept(tmp_path: Path) -> None:
    path, model, _ = recorded(tmp_path / "run")

    def read(**wanted: Any) -> Any:
        return study_inside(path, Inside.parse({**SMALL, **wanted}), model=model)

    first = read(reads=["cognitive-map"], sites=["pre", "post"], layers=[0, 1, 2])
    for wanted in (
        {"reads": ["cognitive-map"], "sites": ["post", "pre"], "layers": [0, 1, 2]},
        {"reads": ["cognitive-map", "beliefs"], "sites": ["pre", "post"], "layers": [0, 2]},
        {"reads": ["beliefs"], "sites": ["post"], "layers": [0]},
    ):
        done = read(**wanted)
        assert done.reused > 0  # what reads activations is what it was
    again = read(reads=["cognitive-map"], sites=["pre", "post"], layers=[0, 1, 2])
    assert again.fitted == 0
    assert np.array_equal(again.rows["cognitive-map"].value, first.rows["cognitive-map"].value, equal_nan=True)
    kept = [probe for _, probe in stored_probes(path, head="position", control="none")]
    assert {(probe.source.site, probe.source.layer) for probe in kept} == {
        ("pre", 1),
        ("post", 1),
        ("pre", 2),
        ("post", 0),
    }


def mixed(densities: tuple[float, ...]) -> Cells:
    """Grids of 5 x 5, six of one density, and of 3 x 3, one of each of some densities, in a frame of 5."""
    rng = np.random.default_rng(0)
    small, large = len(densities), 6
    labels = np.full((small + large, 5, 5), 4)
    labels[:small, :3, :3] = rng.integers(0, 4, (small, 3, 3))
    labels[small:] = rng.integers(0, 4, (large, 5, 5))
    shapes = np.array([(3, 3)] * small + [(5, 5)] * large)
    cells = cells_of(labels.reshape(len(labels), 25), 1, 5, shapes)
    given = {name: getattr(cells, name) for name in ("labels", "shape", "episode_id", "step", "cluster", "reasoning")}
    return Cells(frame=5, density=np.array([*densities, *[0.5] * large]), **given)


def test_probes_of_one_size_need_grids_of_it_in_both_parts() -> None:
    cells = mixed((0.0, 1.0))  # one grid of each kind: both are trained on
    with pytest.raises(ValueError, match=r"3 x 3: .* \(by_size: false\)"):
        probe_cells_by_size(
            ProbeInputs(
                activations=[noise(cells)],
                cells=cells,
                split=split_by_grid(cells),
                random={("permuted", 0): [noise(cells)]},
            ),
            suite=CORE,
        )


def test_a_size_that_is_not_tested_is_refused_before_anything_is_fitted(tmp_path: Path) -> None:
    model = local()
    template = tmp_path / "template.txt"
    template.write_text("{{grid}}\nGo: ", encoding="utf-8")
    agent = ChatAgent(model=model, task=template)
    identity = agent_id(agent)
    worlds = [GridWorld(grid=Grid.parse(text), tags={"density": 0.5}) for text in rooms(6)]
    worlds += [
        GridWorld(grid=Grid.parse(f"#####\n#A_{row[0]}#\n#__{row[1]}#\n#####"), tags={"density": density})
        for density, row in ((0.0, "G_"), (1.0, "_G"))
    ]
    with Store(tmp_path / "run", "w") as store:
        store.put_agents([(identity, agent.name, agent.describe())])
        for world in worlds:
            spec = EpisodeSpec(world_id=world.id, agent_id=identity, trajectory=0, seed=0, horizon=2)
            store.put_episodes([episode(agent, world, spec, "harmony")])
    wanted = {**SMALL, "reads": ["cognitive-map"], "sites": ["pre"], "layers": [0]}
    with pytest.raises(ValueError, match="4 x 5"):
        study_inside(tmp_path / "run", Inside.parse({**wanted, "by_size": True}), model=model)
    assert not (tmp_path / "run" / "probes").exists()
    assert study_inside(tmp_path / "run", Inside.parse(wanted), model=model).fitted > 0


def shares(values: list[float]) -> Rows:
    return Rows.from_columns(
        measure="localisation", unit="share", value=values, cluster=[f"grid-{at}" for at in range(len(values))], tags={}
    )


def beside(own: Rows, control: Rows) -> ProbeRows:
    """A probe and the same on one random network."""
    count = len(own)
    return ProbeRows(
        Rows.concatenate(
            one.changed(tags={name: np.full(count, value, dtype=object) for name, value in tags.items()})
            for one, tags in ((own, {"control": "none"}), (control, {"control": "permuted", "draw": 3}))
        )
    )


def test_the_interval_of_a_difference_reaches_below_0_where_no_grid_does() -> None:
    own, control = shares([0.25] + [0.0] * 7), shares([0.0] * 8)
    told, random, less, grids = _compared(beside(own, control))
    assert random.startswith("permuted 0.000 [")
    assert told.startswith("0.031 [0.0") and grids == "8"
    assert less.startswith("0.031 [−0.") and less.endswith("]")
    _, _, none, _ = _compared(beside(control, control))
    low, high = none.removeprefix("0.000 [−").removesuffix("]").split(", ")
    assert low == high == f"{1 - 0.025 ** (1 / 8):.3f}"  # all of 8 grids agree


def test_differences_of_differences_reach_twice_as_far() -> None:
    rows = Rows.from_columns(
        measure="recovery less shuffled less permuted",
        unit="share",
        value=[2.0, -2.0, 1.5],
        cluster=["a", "b", "c"],
        tags={"differences": [2] * 3},
    )
    (one,) = summarise(rows, by=())
    assert math.isclose(one.estimate.value, 0.5) and one.estimate.low >= -2 and one.estimate.high <= 2


@pytest.mark.parametrize("device", ["banana", "auto", "cuda:x", "", 3])
def test_a_device_that_is_none_is_refused_by_name(device: Any) -> None:
    with pytest.raises(ValueError, match="device"):
        check_device(device)


def test_a_device_is_checked_before_anything_is_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path, model, _ = recorded(tmp_path / "run")
    for device, said in (("banana", "device must be auto, cpu"), ("cuda", "GPU")):
        with pytest.raises(ValueError, match=said):
            study_inside(path, Inside.parse({**SMALL, "layers": [0]}), model=model, device=device)
        assert not (path / "activations").exists()
    assert trains_on("auto") == "cpu"
    done = study_inside(path, Inside.parse({**SMALL, "reads": ["plans"], "sites": ["pre"], "layers": [0]}), model=model)
    assert done.fitted > 0
    given = load_activations(path, site="pre", layer=0)
    kept = [made for _, made in stored_probes(path, site="pre")]
    assert {made.target for made in kept} == {"cells", "plan"}
    for made in kept:
        with pytest.raises(ValueError, match="GPU"):
            made.outputs(given, "cuda")
