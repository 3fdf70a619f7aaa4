"""Runs of the bundled model: batches change nothing, and a run that is stopped goes on without asking again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from determinism import MARGIN, grid_requests, measure_determinism, measure_likelihoods

from contents import hash_of
from families import long_after
from goalscope.agents import ChatAgent, Observation, Turn
from goalscope.agents.models import LocalModel, Sampling
from goalscope.runs import RunSummary, Store, Study, run
from goalscope.worlds import GridView, generate_batch

Call = tuple[str, int, int]


@dataclass
class Counting:
    """The bundled model as an agent that keeps what it was asked, and may be interrupted before a call."""

    agent: ChatAgent
    stop_before: int = -1
    asked: list[Call] = field(default_factory=list)
    calls: int = 0
    journalled: bool = True

    @property
    def name(self) -> str:
        return self.agent.name

    def describe(self) -> Any:
        return self.agent.describe()

    def prompt(self, observation: Observation) -> str:
        return self.agent.prompt(observation)

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        if self.calls == self.stop_before:
            raise KeyboardInterrupt
        self.calls += 1
        self.asked += [(seen.episode_id, seen.step, seen.attempt) for seen in observations]
        return self.agent.act(observations)


def study(**changes: Any) -> Study:
    return Study.parse(
        {
            "seed": 3,
            "worlds": [{"kind": "grid", "sizes": [7, 9], "densities": [0.0, 0.8], "count": 1}],
            "agents": [{"kind": "chat", "model": "theseus", "temperature": 0.0, "max_tokens": 96}],
            "trajectories": 1,
            "horizon": {"steps": 4},
            **changes,
        }
    )


def counting(like: Study, **options: Any) -> Counting:
    (agent,) = like.agents()
    assert isinstance(agent, ChatAgent)
    return Counting(agent, **options)


def committed(directory: Path) -> set[Call]:
    with Store(directory) as store:
        return set(store.query("SELECT episode_id, step, attempt FROM calls WHERE state = 'done'"))


def committed_by_now(directory: Path) -> set[Call]:
    """The calls of a run that another process is writing; none while it still makes its file."""
    try:
        return committed(directory) if (directory / "run.db").exists() else set()
    except ValueError:
        return set()


def resume(asked: Study, directory: Path, clean: Path) -> RunSummary:
    """Go on with a run, and check that it asks for nothing that it has and ends like one that nobody stopped."""
    before = committed(directory)
    agent = counting(asked)
    summary = run(asked, directory, agents=[agent])
    assert before and not before & set(agent.asked)
    assert len(set(agent.asked)) == len(agent.asked)
    assert committed(directory) == before | set(agent.asked)
    whole = counting(asked)
    run(asked, clean, agents=[whole])
    assert len(whole.asked) == len(before) + len(agent.asked)
    assert hash_of(directory) == hash_of(clean)
    return summary


@pytest.mark.full
def test_an_interrupted_run_goes_on_without_repeating_a_call(tmp_path: Path) -> None:
    asked = study()
    # Two episodes at a time, so that the batches before and after the interrupt have other shapes than those of the
    # clean run, which has all four in one.
    with pytest.raises(KeyboardInterrupt, match="run the same study on the same directory to go on"):
        run(asked, tmp_path / "run", agents=[counting(asked, stop_before=3)], batch=2)
    summary = resume(asked, tmp_path / "run", tmp_path / "clean")
    assert summary.replayed > 0 and summary.lost == 2, "the two calls under way at the interrupt"


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_run_that_is_stopped_from_outside_goes_on_without_repeating_a_call(
    number: signal.Signals, tmp_path: Path
) -> None:
    asked = study(trajectories=3, horizon={"steps": 12}, worlds=[{"kind": "key-door", "count": 4}], agents=[KEYED])
    path, directory = tmp_path / "study.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump(asked.dump()))
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from goalscope.cli import main; main()"
    command = [sys.executable, "-c", code, "run", str(path), "--out", str(directory)]
    for wanted in (15, 40):
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        deadline = time.monotonic() + 120
        while len(committed_by_now(directory)) < wanted:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 130), errors
        assert number == signal.SIGKILL or "Stopped:" in errors
    resume(asked, directory, tmp_path / "clean")


KEYED = {"kind": "chat", "model": "theseus", "task": "key-door", "temperature": 0.0, "max_tokens": 96}


@pytest.mark.parametrize("temperature", long_after(1, [0.0, 0.7]))
def test_a_batch_says_what_each_would_say_alone(temperature: float) -> None:
    model = LocalModel("theseus", device="cpu")
    agent = ChatAgent(model=model, sampling=Sampling(temperature=temperature, max_tokens=96))
    grids = [*generate_batch(7, 0.4, seed=1, count=2), *generate_batch(13, 0.8, seed=2, count=2)]
    observations = [
        Observation(view=GridView(grid=grid), episode_id=f"episode {index}") for index, grid in enumerate(grids)
    ]
    requests = [agent.request(observation) for observation in observations]
    found = measure_determinism(model, requests, agent.sampling)
    assert found.violations == 0
    assert found.equal + found.near_ties == len(requests) and found.equal >= len(requests) // 2
    assert found.repeatable


def test_likelihoods_of_a_part_are_those_of_all_but_for_their_last_bits() -> None:
    model = LocalModel("theseus", device="cpu")
    agent = ChatAgent(model=model)
    rng = np.random.default_rng(1)
    found = measure_likelihoods(model, grid_requests(agent, 4), agent.sampling, parts=4, rng=rng)
    assert found.answers > 50 and found.largest <= MARGIN and not found.other_order
