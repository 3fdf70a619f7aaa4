"""Servers that nobody here wrote, each in an environment of its own: see benchmarks/servers.py, which is the body."""

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
SEEN = {  # what each is known to do
    "transformers serve, Theseus": {"temperature": "no", "token ids": "no", "log-probabilities": "no"},
    "transformers serve, SmolLM2": {"temperature": "no", "token ids": "no", "prompts as token ids": "no"},
    "vLLM, Theseus": {"temperature": "yes", "seed": "yes", "token ids": "yes", "log-probabilities of prompts": "yes"},
    "vLLM, SmolLM2": {"temperature": "yes", "token ids": "yes", "constrained: json_schema": "yes"},
    "llama.cpp, SmolLM2 Q4_1": {"temperature": "yes", "seed": "yes", "token ids": "no", "prompts as token ids": "no"},
}


@pytest.fixture(scope="module")
def environments() -> Path:
    """Where the environments are made, kept from run to run; ``GOALSCOPE_SERVERS`` names another place."""
    return Path(os.environ.get("GOALSCOPE_SERVERS", ROOT / "build" / "servers"))


@pytest.mark.parametrize("name", SEEN)
def test_a_real_server_is_seen_as_it_is_agrees_and_is_gone_on_with(
    name: str, environments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    servers: Any = importlib.import_module("servers")
    kind = servers.KINDS[name]
    problem = servers.install(kind, environments)
    if problem:
        pytest.skip(problem)
    report, found, resumed = servers.try_kind(kind, environments, tmp_path, 300)
    assert {ability: report.state(ability) for ability in SEEN[name]} == SEEN[name]
    assert found.prompts == 300 and len(found.margins) == found.prompts - found.equal
    if kind.same:
        assert found.equal >= 297, found
        assert all(margin < 1e-2 for margin in found.margins), "every difference is a near tie"
    assert resumed.stored >= 7 and resumed.again == 0 and resumed.calls > resumed.stored
