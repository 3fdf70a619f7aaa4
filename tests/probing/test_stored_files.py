"""Files of probes that are kept under `tests/data/probes`: they are read, and written again alike."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.inside.probing import Features, Probe, Source

FILES = Path(__file__).parents[1] / "data" / "probes"
NATURAL = {  # sum over 12 steps and 4 cells of the probabilities of each class
    "majority": [12.0, 14.0, 6.0, 7.0, 9.0],
    "position": [12.0, 14.0, 6.0, 7.0, 9.0],
    "additive": [11.9968, 14.004, 5.9987, 7.0023, 8.9983],
    "percell": [11.9983, 13.998, 5.9992, 6.999, 9.0055],
    "mlp": [17.815, 20.2138, 2.3231, 4.5891, 3.059],
}


def given() -> Features:
    names = np.array([f"grid-{at // 2}" for at in range(12)], dtype=object)
    return Features(
        source=Source(site="pre", layer=1, model="model-stored", width=6),
        vectors=stream(0, "stored probes").standard_normal((12, 6), dtype=np.float32),
        episode_id=names,
        step=np.arange(12) % 2,
        cluster=names,
        positions=3,
    )


def contents(path: Path) -> tuple[bytes, Any]:
    """Return the tensors of a file and goalscope's part of its header."""
    octets = path.read_bytes()
    length = int.from_bytes(octets[:8], "little")
    return octets[8 + length :], json.loads(json.loads(octets[8 : 8 + length])["__metadata__"]["goalscope"])


@pytest.mark.parametrize("name", [*NATURAL, "linear", "decoder"])
def test_a_stored_probe_is_read_and_says_what_it_said(name: str, tmp_path: Path) -> None:
    path = FILES / f"{name}.safetensors"
    probe = Probe.load(path)
    probe.save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(path)
    if name == "decoder":
        assert probe.predict_plan(given()).tokens.tolist()[:2] == [[3, 2, 4], [3, 2, 4]]
    elif name == "linear":
        np.testing.assert_allclose(probe.predict_number(given())[:3], [8.85833372, 8.83727568, 8.86002553], rtol=1e-5)
    else:
        said = probe.predict(given()).natural.astype(np.float64).sum(axis=(0, 1))
        np.testing.assert_allclose(said, NATURAL[name], atol=1e-3)
