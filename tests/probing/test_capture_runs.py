"""Capture of generated runs: the same vectors behind a server as here, the study's own model, the command line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from replays import local, record
from server import SGLANG, VLLM, Loopback, speaker
from typer.testing import CliRunner

from goalscope.agents import ChatAgent
from goalscope.agents.models import LocalModel
from goalscope.cli import app
from goalscope.inside.activations import capture, captures, load_activations
from goalscope.runs import Study, run
from goalscope.runs.study import Horizon
from tampered import tampered

TEMPLATE = "{{grid}}\nGo: "


def study(url: str, folder: Path, **changes: Any) -> Study:
    (folder / "template.txt").write_text(TEMPLATE, encoding="utf-8")
    agent: dict[str, Any] = {
        "kind": "chat",
        "model": "speaker",
        "task": str(folder / "template.txt"),
        "temperature": 0.0,
        "max_tokens": 3,
        "reasoning_effort": None,
        "reasoning": "none",
        "server": {"base_url": url, "mode": "completions", "tokenizer": str(folder / "tokenizer"), "timeout": 60},
        **changes,
    }
    agent["server"]["preflight"] = False
    worlds = {"kind": "grid", "sizes": [5, 7], "densities": [0.3], "count": 2, "minimum_distance": 2}
    return Study.parse({"worlds": [worlds], "agents": [agent], "trajectories": 2, "horizon": {"steps": 3}})


@pytest.mark.full
def test_a_run_behind_a_server_captures_to_the_vectors_of_the_local_run(tmp_path: Path) -> None:
    model = speaker()
    model.tokenizer.save_pretrained(str(tmp_path / "tokenizer"))
    with Loopback(model) as server:
        asked = study(server.url, tmp_path)
        run(asked, tmp_path / "served", workers=2)
    with Loopback(model, ids="") as server:  # returns no ids: they are made again from the text, and marked
        run(study(server.url, tmp_path), tmp_path / "again")
    (served,) = asked.agents()
    assert isinstance(served, ChatAgent)
    here = ChatAgent(model=model, task=served.task, sampling=served.sampling)
    run(asked, tmp_path / "local", agents=[here])
    marked = 0
    for site in ("pre", "grid", "action"):
        found = {}
        for name in ("local", "served", "again"):
            if site == "pre":
                done = capture(tmp_path / name, model, sites=["pre", "grid", "action"], layers=[0, 1])
                assert done.complete and done.steps > 10
                marked = done.reconstructed if name == "again" else marked
            found[name] = load_activations(
                tmp_path / name, site=site, layer=1, shape=(7, 7) if site == "grid" else None
            )
        order = {name: _by_world(one) for name, one in found.items()}
        assert len(found["local"]) > 5
        for name in ("served", "again"):
            assert np.array_equal(found["local"].tokens[order["local"]], found[name].tokens[order[name]])
            ours, theirs = found["local"].vectors[order["local"]], found[name].vectors[order[name]]
            assert np.array_equal(ours, theirs)
            assert found[name].model == found["local"].model
        assert found["again"].reconstructed.any() and not found["served"].reconstructed.any()
    assert marked
    with pytest.raises(ValueError, match="a server"):
        capture(tmp_path / "served")


def _by_world(found: Any) -> Any:
    """The order of the rows by world, tokens and step, since episodes of other agents have other ids."""
    keys = [
        (str(world), int(step), vector.tobytes())
        for world, step, vector in zip(found.world_id, found.step, found.vectors, strict=True)
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__))


def test_a_chat_run_without_ids_is_refused_with_the_setting(tmp_path: Path) -> None:
    model = speaker()
    with Loopback(model) as server:
        asked = study(server.url, tmp_path, server={"base_url": server.url, "timeout": 60})
        run(asked, tmp_path / "chat")
    with pytest.raises(ValueError, match="mode: completions"):
        capture(tmp_path / "chat", model, sites=["pre"])


@pytest.mark.parametrize("kind", [VLLM, pytest.param(SGLANG, marks=pytest.mark.full)], ids=["vllm", "sglang"])
def test_a_chat_run_whose_server_returns_ids_captures_to_the_vectors_of_the_local_run(
    kind: dict[str, Any], tmp_path: Path
) -> None:
    model = LocalModel("theseus", device="cpu")
    served = {"model": "theseus", "task": "grid", "template": "schema", "max_tokens": 96, "reasoning": "auto"}
    with Loopback(model, models=("theseus",), **kind) as server:
        asked = study(server.url, tmp_path, **served, server={"base_url": server.url, "timeout": 60})
        asked = asked.model_copy(update={"trajectories": 1, "horizon": Horizon(steps=2)})
        run(asked, tmp_path / "chat")
    (agent,) = asked.agents()
    assert isinstance(agent, ChatAgent)
    run(asked, tmp_path / "local", agents=[ChatAgent(model=model, task="grid", sampling=agent.sampling)])
    vectors = []
    for name in ("chat", "local"):
        done = capture(tmp_path / name, model, sites=["pre", "post", "action"], layers=[3])
        assert done.complete and done.steps > 5 and not done.reconstructed
        found = [load_activations(tmp_path / name, site=site, layer=3) for site in ("pre", "post", "action")]
        vectors.append([one.vectors[_by_world(one)] for one in found])
    assert all(np.array_equal(*pair) for pair in zip(*vectors, strict=True))
    with tampered(tmp_path / "chat" / "run.db") as database:
        database.execute('UPDATE steps SET text = \'{"action": "up"}\'')
    with pytest.raises(ValueError, match="was served"):
        capture(tmp_path / "chat", model, sites=["pre"], layers=[2])


@pytest.mark.full
def test_the_study_names_the_model_and_the_command_line_shows_what_was_captured(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.5], "count": 1, "minimum_distance": 2}],
        "agents": [{"kind": "chat", "model": "theseus", "max_tokens": 60, "temperature": 0.0}, {"kind": "optimal"}],
        "trajectories": 1,
        "horizon": {"steps": 2},
    }
    directory = tmp_path / "run"
    run(Study.parse(settings), directory)
    shell = CliRunner()
    result = shell.invoke(app, ["capture", str(directory), "--layers", "1,3", "--sites", "pre,post,grid,action"])
    assert result.exit_code == 0, result.output
    assert "2 of 2" in result.output and "theseus" in result.output and "1, 3" in result.output
    result = shell.invoke(app, ["capture", str(directory), "--layers", "1", "--untrained", "4"])
    assert result.exit_code == 0, result.output
    trained, control = captures(directory)[0], captures(directory)[1]
    if trained.untrained is not None:
        trained, control = control, trained
    assert (trained.untrained, control.untrained) == (None, 4) and trained.model != control.model
    ours = load_activations(directory, site="post", layer=1)
    theirs = load_activations(directory, site="post", layer=1, untrained=4)
    assert np.array_equal(ours.tokens, theirs.tokens) and not np.allclose(ours.vectors, theirs.vectors)
    permuted = ["--layers", "1", "--untrained", "4", "--random-weights", "permuted"]
    result = shell.invoke(app, ["capture", str(directory), *permuted])
    assert result.exit_code == 0, result.output
    assert sorted((one.untrained, one.random_weights) for one in captures(directory) if one.untrained) == [
        (4, "default-init"),
        (4, "permuted"),
    ]
    mixed = load_activations(directory, site="post", layer=1, untrained=4, random_weights="permuted")
    assert np.array_equal(mixed.tokens, theirs.tokens) and not np.allclose(mixed.vectors, theirs.vectors)
    assert np.array_equal(load_activations(directory, site="post", layer=1, untrained=4).vectors, theirs.vectors)
    with pytest.raises(ValueError, match="--untrained 4 --random-weights initial"):
        load_activations(directory, site="post", layer=1, untrained=4, random_weights="initial")
    for arguments, message in (
        (["--random-weights", "permuted"], "set untrained"),
        (["--random-weights", "permuted", "--layers", "all"], "set untrained"),
        (["--layers", "x"], "--layers must be thirds, all, or block numbers >= 0"),
        (["--sites", "here"], "site must be one of"),
        (["--layers", "8"], "in 0..7"),
        (["--device", "cpu"], "give --model"),
        (["--agent", "optimal"], "Only language models have token ids"),
    ):
        result = shell.invoke(app, ["capture", str(directory), *arguments])
        assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output


@pytest.mark.full
def test_the_study_names_the_model_of_task_worlds_too(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "worlds": [{"kind": "task-map", "presets": ["high-small"], "count": 1}],
        "agents": [{"kind": "task-chat", "model": "ariadne", "temperature": 0.0, "max_tokens": 64}],
        "trajectories": 1,
    }
    run(Study.parse(settings), tmp_path / "run")
    done, control = (
        capture(tmp_path / "run", sites=["pre", "action"], layers=[0], untrained=seed, scope="first")
        for seed in (None, 1)
    )
    assert done.steps > 0 and done.captured == control.captured == done.steps
    assert (done.untrained, control.untrained) == (None, 1) and done.model != control.model


def test_all_layers_of_a_model_that_is_given_by_its_folder(tmp_path: Path) -> None:
    model = local("qwen3", "think")
    model.model.save_pretrained(str(tmp_path / "model"))
    model.tokenizer.save_pretrained(str(tmp_path / "model"))
    directory = record(tmp_path / "run", model, style="think", trajectories=1)
    arguments = ["capture", str(directory), "--model", str(tmp_path / "model"), "--layers", "all", "--scope", "first"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    (done,) = captures(directory)
    assert done.layers == (0, 1, 2) and done.captured == 3 and done.scope == "first"
