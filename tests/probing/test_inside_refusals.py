"""What a reading of activations refuses, before it computes anything, and steps that lack a site."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from insides import STUDY, recorded, rooms, silent_at
from replays import local, record
from test_inside import call

from goalscope.inside.activations import capture, captures, load_activations
from goalscope.inside.activations.sites import ReplayTarget
from goalscope.inside.probing import Inside, study_inside
from goalscope.runs import Store, Study, run

SMALL: dict[str, Any] = {
    "test": 0.4,
    "layers": [0, 1],
    "probes": {"hidden": 4, "epochs": 1},
    "random": {"kinds": ["permuted"], "seeds": 1},
}


def given(model: Any) -> Any:
    """The random networks of a run whose model is given: the same one for every kind and seed."""
    return lambda kind, seed: model


def small(**changes: Any) -> Inside:
    return Inside.parse({**SMALL, "reads": ["cognitive-map", "distance"], **changes})


@pytest.mark.full
def test_steps_that_lack_a_site_are_left_out_at_all_of_them(tmp_path: Path) -> None:
    path, model, control = recorded(tmp_path / "run", change=silent_at(1))
    done = study_inside(path, small(reads=["distance"]), model=model, random=given(control))
    assert done.steps["steps left out"] == 12  # step 1 of six grids with two trajectories each
    assert done.steps["steps"] == 36
    alone = study_inside(path, small(reads=["distance"], sites=["pre"]), model=model, random=given(control))
    assert alone.steps["steps left out"] == 0 and alone.steps["steps"] == 48


@pytest.mark.full
def test_the_steps_of_each_grid_can_be_bounded(tmp_path: Path) -> None:
    path, model, control = recorded(tmp_path / "run", change=silent_at(1))
    done = study_inside(path, small(steps=3), model=model, random=given(control))
    assert done.steps["steps"] + done.steps["steps left out"] == 18  # three steps of six grids
    assert done.steps["training grids"] + done.steps["test grids"] == 6
    captured = captures(path)
    assert {one.scope for one in captured} == {"3:0"} and {one.steps for one in captured} == {18}
    own, other = (load_activations(path, site="pre", layer=0, capture=one.id) for one in captured)
    assert np.array_equal(own.step, other.step) and np.array_equal(own.episode_id, other.episode_id)
    assert {own.cluster[at] for at in np.flatnonzero(own.step == 0)} == set(own.cluster.tolist())
    again = study_inside(path, small(steps=3), model=model, random=given(control))
    assert again.fitted == 0
    assert study_inside(path, small(steps=99), model=model, random=given(control)).steps["steps"] == 36
    # Of several captures of one model the one with most steps is read.
    assert len(load_activations(path, site="pre", layer=0, model=model.name)) == 48
    with pytest.raises(ValueError, match="'0:3'"):
        capture(path, model, scope="0:3")


@pytest.mark.full
def test_it_works_without_random_networks_and_without_reasoning_sites(tmp_path: Path) -> None:
    model = local(style="none")
    path = record(tmp_path / "run", model, style="none", grids=rooms(6))
    done = study_inside(path, small(sites=["pre"], random=None), model=model)
    controls = {"none", "shuffled", "control-task", "wall-count", "input"}
    assert set(done.rows["cognitive-map"]["control"].tolist()) == controls
    assert np.isfinite(done.rows["distance"].value).all()


@pytest.mark.full
def test_a_learning_curve_comes_with_the_cognitive_map_at_the_middle_layer(tmp_path: Path) -> None:
    path, model, _ = recorded(tmp_path / "run", grids=rooms(8))
    wanted = {"reads": ["cognitive-map"], "random": None, "curve": [2, 4]}
    rows = study_inside(path, small(**wanted), model=model).rows["cognitive-map"]
    curve = rows.where(rows.known("training grids"))
    assert set(curve["training grids"]) == {2, 4} and set(curve["scope"]) == {"learning curve"}
    assert {(row.tags["head"], row.tags.get("site")) for row in curve} == {
        ("position", None),
        *((head, site) for head in ("percell", "mlp") for site in ("pre", "post")),
    }
    keys = [(row.measure, row.cluster, tuple(sorted(row.tags.items()))) for row in curve]
    assert len(set(keys)) == len(keys)
    with pytest.raises(ValueError, match=r"1 .*4.*\[2, 99\]"):
        study_inside(path, small(**(wanted | {"curve": [2, 99]})), model=model)


def test_worlds_with_doors_have_maps_and_distances_but_no_beliefs(tmp_path: Path) -> None:
    path, model, control = recorded(tmp_path / "run", grids=rooms(6, door=True), text="{{grid}}{{carrying_key}}\nGo: ")
    with pytest.raises(ValueError, match=r"6 worlds .*--reads cognitive-map"):
        study_inside(path, small(reads=["cognitive-map", "beliefs"]), model=model, random=given(control))
    assert not (path / "activations").exists()
    done = study_inside(path, small(), model=model, random=given(control))
    assert set(done.rows) == {"cognitive-map", "distance"}
    with Store(path) as store:
        assert store.info()["beliefs"]["maps"] == []


def test_task_worlds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = {"worlds": [{"kind": "cooking"}], "agents": [{"kind": "task-random-walk"}], "trajectories": 1}
    run(Study.parse(study), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        ((identity, (name, description)),) = store.agents().items()
    # A scripted agent has no token ids; a language model in task worlds would.
    target = ReplayTarget(agent=name, agent_id=identity, description=description, steps=1)
    monkeypatch.setattr("goalscope.inside.probing.pipeline.find_target", lambda *given: target)
    with pytest.raises(ValueError, match="task worlds"):
        study_inside(tmp_path / "run")


def test_too_few_grids_are_refused_before_anything_is_fitted(tmp_path: Path) -> None:
    path, model, control = recorded(tmp_path / "run", grids=rooms(3))
    with pytest.raises(ValueError, match=r"shuffling .* 5 x 7"):
        study_inside(path, small(), model=model, random=given(control))
    assert not (path / "probes").exists()


def test_a_given_model_needs_its_control_or_none(tmp_path: Path) -> None:
    path, model, _ = recorded(tmp_path / "run")
    with pytest.raises(ValueError, match=r"random=.*random: null"):
        study_inside(path, small(), model=model)
    for other, said in (
        (local("gpt2", seed=1), "gpt2 of 3 blocks"),
        (local(seed=1, num_hidden_layers=6), "llama of 6"),
    ):
        with pytest.raises(ValueError, match=rf"llama of 3 .* got {said}"):
            study_inside(path, small(), model=model, random=given(other))
    with pytest.raises(ValueError, match="llama-0"):
        study_inside(path, small())
    with pytest.raises(ValueError, match=r"layers.*0\.\.\d"):
        study_inside(path, small(layers=[99]), model=model, random=given(local(seed=1)))
    with pytest.raises(ValueError, match=r"agent .*\(llama-0\), got 'nobody'"):
        study_inside(path, small(agent="nobody"), model=model)


def test_runs_without_token_ids_are_refused_with_the_setting(tmp_path: Path) -> None:
    plain = {**STUDY, "agents": [{"kind": "random"}]}
    del plain["analysis"]
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump(plain), encoding="utf-8")
    call("run", study, "--out", tmp_path / "run")
    told = call("probe", tmp_path / "run", status=2)
    assert "Only language models have token ids" in told
    assert "analysis: inside:" in call("run", study, "--out", tmp_path / "run", "--full", status=2)


def test_the_agent_that_is_read_must_be_run(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    told = call("run", study, "--out", tmp_path / "run", "--agents", "random", status=2)
    assert "analysis.inside.agent" in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--reads", "map"), "reads: no analysis is registered under the name 'map'"),
        (("--sites", "grid"), "sites[0]: must be 'pre', 'post' or 'action'"),
        (("--layers", "1;2"), "--layers must be"),
        (("--random-kinds", "no"), "random.kinds[0]: must be 'default-init', 'initial' or 'permuted', got 'no'"),
        (("--set", "random.seeds=0"), "random.seeds: must be greater than or equal to 1"),
        (("--set", "probes.hiden=3"), "probes.hiden: unknown key; did you mean hidden?"),
        (("--set", "probes"), "--set must be KEY=VALUE"),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    with Store(tmp_path / "run", "w"):
        pass
    assert said in call("probe", tmp_path / "run", *options, status=2)
