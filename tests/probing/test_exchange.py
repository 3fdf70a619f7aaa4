"""Activations for others: the vectors of a capture under the names of other libraries, and equal to theirs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet
from replays import local, record
from safetensors.numpy import load_file

from command_line import call
from goalscope.inside.activations import Activations, capture, export_activations, hook_name, load_activations
from goalscope.runs import Store, Study, run

CHECK = Path(__file__).with_name("other_libraries.py")
PACKAGES = ("transformer_lens==4.3.0", "nnsight==0.8.1", "datasets")


def test_exported_vectors_are_those_of_the_capture(tmp_path: Path) -> None:
    directory = record(tmp_path / "run", local("gpt_oss"))
    done = capture(directory, local("gpt_oss"), sites=["pre", "post", "grid"], layers=[0, 1])
    said = call("export", directory, "--out", tmp_path / "out", "--activations", "parquet,safetensors")
    assert "described in README.json" in said and "steps.parquet" in said
    folder = tmp_path / "out" / "activations" / done.id
    about = json.loads((folder / "README.json").read_text())
    assert set(about["names"]) == {"blocks.0.hook_resid_post", "blocks.1.hook_resid_post"}
    assert set(about["files"]) == {path.name for path in folder.iterdir()} - {"README.json"}
    for layer in (0, 1):
        check_site(folder, load_activations(directory, site="post", layer=layer), "post")
        for height, width in ((3, 5), (5, 6), (4, 5)):
            shaped = load_activations(directory, site="grid", layer=layer, shape=(height, width))
            check_site(folder, shaped, f"grid-{height}x{width}")


def check_site(folder: Path, expected: Activations, name: str) -> None:
    """Compare the rows of a Parquet file, and those of the tensors beside it, with what is loaded here."""
    table = parquet.read_table(folder / f"{name}.parquet")
    _, places, width = expected.vectors.shape
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert features["vectors"] == {"shape": [places, width], "dtype": "float32", "_type": "Array2D"}
    found = {(row["episode_id"], row["step"]): row for row in table.to_pylist() if row["layer"] == expected.layer}
    assert len(found) == len(expected)
    tensors: dict[tuple[str, int], Any] = {}
    for path in folder.glob(f"{name.partition('-')[0]}-*.safetensors"):
        held = load_file(path)
        episodes = json.loads(metadata(path)["goalscope"])["episodes"]
        for number, step, one in zip(held["episode"], held["step"], held[hook_name(expected.layer)], strict=True):
            tensors[episodes[number], int(step)] = one
    for at in range(len(expected)):
        key = (expected.episode_id[at], int(expected.step[at]))
        row = found[key]
        assert row["hook"] == hook_name(expected.layer) and row["tokens"] == expected.tokens[at].tolist()
        assert row["positions"] == expected.positions[at].tolist() and row["cluster"] == expected.cluster[at]
        np.testing.assert_array_equal(np.array(row["vectors"], dtype=np.float32), expected.vectors[at])
        np.testing.assert_array_equal(tensors[key], expected.vectors[at])


def metadata(path: Path) -> dict[str, str]:
    raw = path.read_bytes()
    found: dict[str, str] = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
    return found


def test_what_cannot_be_exported_is_named(tmp_path: Path) -> None:
    directory = record(tmp_path / "run", local())
    with Store(directory) as store:
        with pytest.raises(ValueError, match="goalscope capture"):
            export_activations(store, tmp_path)
        with pytest.raises(ValueError, match=r"parquet.*safetensors.*got csv"):
            export_activations(store, tmp_path, formats=["csv"])
    assert "--activations" in call("export", directory, "--out", tmp_path, "--capture", "x", status=2)


@pytest.mark.full
def test_vectors_of_the_bundled_model_equal_those_of_other_libraries(tmp_path: Path) -> None:
    made = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    [packages] = made.glob("lib/python*/site-packages")
    # What is installed here is there, too; what is missing comes from the registry.
    (packages / "outer.pth").write_text("\n".join(filter(None, sys.path)))
    install = [sys.executable, "-m", "pip", "--python", str(made / "bin" / "python"), "install", "--quiet", *PACKAGES]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{', '.join(PACKAGES)} cannot be installed: {done.stderr.strip()[-200:]}")
    study = {
        "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 2}],
        "agents": [{"kind": "chat", "model": "theseus", "max_tokens": 96}],
        "trajectories": 1,
        "horizon": {"steps": 2},
    }
    run(Study.parse(study), tmp_path / "run")
    capture(tmp_path / "run", sites=["pre", "post"], layers=[0, 2, 7])
    with Store(tmp_path / "run") as store:
        (folder,) = export_activations(store, tmp_path / "out")
    (tmp_path / "cache").mkdir()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    command = [str(made / "bin" / "python"), str(CHECK), str(tmp_path / "run"), str(folder)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    found = json.loads(said.splitlines()[-1])
    assert found["datasets"] == "equal"
    assert max(found["transformer_lens"], found["nnsight"]) < 1e-5, found
