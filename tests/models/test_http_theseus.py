"""The bundled model behind a server acts as it does in this process: the same study, three ways."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from http_studies import local_agent
from server import Loopback

from contents import hash_of
from goalscope.agents.agent import ANSWERED_BY
from goalscope.agents.models import LocalModel
from goalscope.runs import Step, Store, Study, run

GRIDS = {"kind": "grid", "sizes": [7, 11], "densities": [0.6], "count": 1}
KEYS = {"kind": "key-door", "count": 2}


def study(url: str, mode: str, worlds: dict[str, Any], steps: int) -> Study:
    return Study.parse(
        {
            "seed": 5,
            "worlds": [worlds],
            "agents": [
                {
                    "kind": "chat",
                    "model": "theseus",
                    "task": worlds["kind"],
                    "template": "schema",  # the card lies beside the weights, and a server in mode chat shows neither
                    "temperature": 0.0,
                    "max_tokens": 96,
                    "server": {"base_url": url, "mode": mode, "timeout": 60, "preflight": False},
                }
            ],
            "trajectories": 1,
            "horizon": {"steps": steps},
        }
    )


def contents(directory: Path, *, tokens: bool) -> dict[tuple[str, int], tuple[Any, ...]]:
    """All that is recorded of each episode but who acted; without tokens and their marks where no server tells them."""

    def kept(step: Step) -> Step:
        if not tokens:
            return replace(step, prompt_tokens=None, output_tokens=None, extra={})
        # The name that a server gives its model: weights that are here have none.
        return replace(step, extra={name: value for name, value in step.extra.items() if name != ANSWERED_BY})

    with Store(directory) as store:
        return {
            (episode.world.id, episode.spec.trajectory): (
                tuple(kept(step) for step in episode.steps),
                episode.final,
                episode.outcome,
            )
            for episode in store.episodes()
        }


@pytest.mark.full
@pytest.mark.parametrize(
    ("worlds", "count", "steps"),
    [(GRIDS, 2, 2), pytest.param(KEYS, 2, 3, marks=pytest.mark.full)],
    ids=["grids", "key-door"],
)
def test_the_bundled_model_acts_the_same_here_and_behind_a_server(
    worlds: dict[str, Any], count: int, steps: int, tmp_path: Path
) -> None:
    model = LocalModel("theseus", device="cpu")
    with Loopback(model, models=("theseus",)) as server:
        chat = study(server.url, "chat", worlds, steps)
        calls = run(chat, tmp_path / "chat", workers=2).calls
        assert calls == sum(entry.tag.startswith("episode") for entry in server.log), "the others are trials"
        run(study(server.url, "completions", worlds, steps), tmp_path / "completions", workers=3)
        assert set(server.outcomes()) == {"answered"}
        # Behind another address and with another number of calls at the same time: the same run to the last byte.
        with Loopback(model, models=("theseus",)) as other:
            other._said = server._said
            for mode in ("chat", "completions"):
                run(study(other.url, mode, worlds, steps), tmp_path / f"other {mode}")
                assert hash_of(tmp_path / f"other {mode}") == hash_of(tmp_path / mode)
    run(chat, tmp_path / "local", agents=[local_agent(model, chat)])
    # Content hashes of a served and a local run differ, since they hold who acted: a name behind a server is no proof
    # of the weights there. So every episode is compared.
    expected = contents(tmp_path / "local", tokens=True)
    assert len(expected) == count and sum(len(part[0]) for part in expected.values()) > count
    assert contents(tmp_path / "completions", tokens=True) == expected
    assert contents(tmp_path / "chat", tokens=False) == contents(tmp_path / "local", tokens=False)
    assert hash_of(tmp_path / "completions") != hash_of(tmp_path / "local")
    with Store(tmp_path / "chat") as store:
        assert {step.output_tokens for episode in store.episodes() for step in episode.steps} == {None}
