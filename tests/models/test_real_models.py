"""Two small models that nobody here trained, on defaults: an instruct model through all commands, a base model."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from real_models import environment, gemma3, smollm2

from command_line import call
from goalscope.agents import ChatAgent
from goalscope.agents.models import LocalModel
from goalscope.agents.prompts import WORKED_RULE
from goalscope.runs import Store, Study, run
from goalscope.verdict import judging, page, subject_of
from goalscope.verdict.plan import prepare
from goalscope.verdict.playing import play
from goalscope.verdict.preflight.first_turns import Limits, ask_first_turns, most_turns
from goalscope.verdict.preflight.forecast import forecast

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

SMALL = ("--sizes", "7", "--densities", "0.4", "--trajectories", "1", "--set", "horizon={steps: 1}")


def test_an_instruct_model_goes_through_all_commands(tmp_path: Path) -> None:
    model, run = smollm2(tmp_path), tmp_path / "run"
    study = ("baseline", "--model", str(model), "--agents", "Theseus,random", "--count", "12", *SMALL)
    planned, ran = call("estimate", *study), call("run", *study, "--out", str(run))
    for said in (planned, ran):
        assert said.count("reasoning: none") == 1 and "Theseus" not in said.replace("agents Theseus,random", "")
    with Store(run) as store:
        descriptions = dict(store.agents().values())
        steps = [step for episode in store.episodes() if episode.agent == "smollm2" for step in episode.steps]
    assert descriptions["smollm2"]["model"]["reasoning"] == "none" and len(steps) == 12
    assert all(step.prompt_tokens and step.output_tokens for step in steps)
    assert "Action accuracy" in call("measure", str(run))
    # One layer and one random network: each network is a pass of 135 million weights.
    reads = "--reads cognitive-map --layers 15 --random-kinds permuted --random-seeds 1"
    small = "--set probes.epochs=2 --set probes.hidden=8"
    probed = call("probe", str(run), "--agent", "smollm2", *f"{reads} {small} --set by_size=false".split())
    assert probed.count("site post is left out") == 1 and "agent at its cell" in probed
    assert "MEG in nats" in call("meg", str(run), "--hypotheses", "goal")
    assert "Report: " in call("report", str(run))


def test_an_instruct_model_is_evaluated_on_the_settings_that_are_found_out(tmp_path: Path) -> None:
    """One grid of each size and density, one pair of each size, 64 tokens an answer: about as little as says something.

    On defaults the least size of the first arm alone takes a quarter of an hour.
    """
    found = subject_of(str(smollm2(tmp_path)))
    assert found.name == "smollm2" and found.parameters["reasoning"] == "none" and "reasoning" not in found.access
    subject = replace(found, parameters={**found.parameters, "max_tokens": 64})
    run = prepare(tmp_path / "evaluation", [subject], {"grids": 1, "patching": 1}, seed=7)
    play(run, lambda label: nullcontext(lambda *_: None))
    with judging.opened(run) as data:
        judged = judging.judge(run, data)
        page.write(judged, data, tmp_path / "page.html")
    [ledger] = judged.models
    arms = {one.name: one for one in ledger.arms}
    assert (arms["grids"].asked, arms["grids"].episodes, arms["grids"].worlds) == (True, 9, 9)
    # It is given a prompt that asks for an action alone, and its reasoning stands nowhere apart.
    assert "marks its reasoning" in arms["reasoning"].why and all(one.asked or one.why for one in ledger.arms)
    answers = {one.name: one.answer for one in ledger.claims}
    format_ = ledger.claim("answers hold actions")
    assert format_ is not None and format_.low is not None and format_.clusters == 9
    assert answers["acts optimally"] == "no" and answers["reaches the goal"] != "yes"
    # A model that seldom acts optimally twice has too few pairs for any claim about its inside.
    inside = [one.answer for one in ledger.claims if one.arm == "patching"]
    assert arms["patching"].why or inside == ["untestable"] * 2


TRIALS = (
    # Sizes of grids, grids of each, horizon as a multiple of the shortest way, trajectories on each.
    *(((7,), 2, 1.5, 3), ((5,), 6, 1.5, 2), ((7,), 4, 1.0, 2), ((5, 7), 3, 1.5, 2), ((9,), 2, 1.0, 3)),
    *(((5,), 10, 1.0, 3), ((7, 9), 2, 1.5, 2), ((5,), 4, 2.0, 4), ((7,), 6, 1.0, 1), ((5, 7, 9), 2, 1.2, 2)),
)


def expected_over_taken(
    entry: dict[str, Any], directory: Path, limit: float, times: int, clock: Callable[[], float]
) -> list[float]:
    """Run a study of each trial; return its expected time over the one that it took, the batch included.

    Args:
        entry: the model, as a study has it.
        directory: of the runs.
        limit: seconds of a batch.
        times: how many times as many grids as a trial names.
        clock: returns the time, seconds.
    """
    ratios = []
    for number, (sizes, count, factor, trajectories) in enumerate(TRIALS):
        worlds = {"kind": "grid", "sizes": list(sizes), "densities": [0.3], "count": times * count}
        study = Study.parse(
            {
                "seed": number,
                "worlds": [worlds],
                "agents": [entry],
                "horizon": {"factor": factor},
                "trajectories": trajectories,
            }
        )
        [agent], [own] = study.agents(), study.agents_
        assert isinstance(agent, ChatAgent) and isinstance(agent.model, LocalModel) and agent.model.model is not None
        began, out = clock(), directory / str(number)
        most = max(1, most_turns(study))
        first = ask_first_turns(study, agent, own.parameters, out, Limits(seconds=limit), most=most, clock=clock)
        expected = forecast(study, agent, own.parameters, first)
        run(study, out, agents=[agent])
        ratios.append(float(expected.seconds[1]) / (clock() - began))
    return ratios


@pytest.mark.parametrize("name", ["smollm2", "theseus"])
def test_what_is_expected_of_ten_studies_is_what_they_take(tmp_path: Path, name: str) -> None:
    entry: dict[str, Any] = {"kind": "chat", "model": "theseus", "max_tokens": 96}
    # A turn takes hundredths of a second: so many that each trial takes some seconds, by the clock, since its rows are
    # dealt to threads.
    times, clock = 10, time.perf_counter
    if name == "smollm2":
        folder = str(smollm2(tmp_path))
        entry = {"kind": "chat", "model": folder, "reasoning": "none", "reasoning_effort": None, "answer": "likelihood"}
        times, clock = 1, time.process_time
    ratios = expected_over_taken(entry, tmp_path, 12.0, times, clock)
    assert sum(1 / 1.5 <= ratio <= 1.5 for ratio in ratios) >= 8, [round(ratio, 2) for ratio in ratios]


def test_a_base_model_reads_worked_examples_from_its_gguf_file(tmp_path: Path) -> None:
    file, packages = gemma3(tmp_path)

    def goalscope(*arguments: str) -> str:
        command = [sys.executable, "-m", "goalscope", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(packages), check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = json.loads(goalscope("doctor", "--model", str(file), "--json"))
    assert (told["source"], told["quantisation"], told["chat_template"]) == ("GGUF file", "Q4_K_M", False)
    assert told["cell_problems"] == [] and told["parameters"] == 268_098_176
    assert sum(sample["valid"] for sample in told["samples"]) >= 2
    run = tmp_path / "run"
    study = ("baseline", "--model", str(file), "--agents", "Theseus", "--count", "6", *SMALL)
    assert "base model" in goalscope("run", *study, "--out", str(run))
    with Store(run) as store:
        [(name, description)] = store.agents().values()
        steps = [step for episode in store.episodes() for step in episode.steps]
    assert name == "gemma3-270m" and description["examples"] == WORKED_RULE
    assert description["model"]["files"]["quantisation"] == "Q4_K_M"
    assert description["model"]["files"] == LocalModel(file).describe()["files"]
    assert sum(step.action is not None for step in steps) >= 4
