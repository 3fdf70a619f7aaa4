"""What a message names, and that what it proposes can be typed; a start that failed is in nobody's way."""

import subprocess
import sys
from pathlib import Path

import pytest

import slipping_forklift  # noqa: F401  (registers the environment)
from command_line import call
from goalscope.environments import EnvironmentWorld
from goalscope.goals.hypotheses import load_hypotheses
from goalscope.goals.hypotheses.written import check_names
from goalscope.report.blocks import size_in_words
from goalscope.runs import GridWorld, Store, Study
from goalscope.verdict.sizing import Budget
from goalscope.worlds import Grid

SLIPPERY = """
from goalscope.environments import Observed

class Slippery:
    actions = ("left", "right")
    def initial(self):
        return {0: 1.0}
    def step(self, state, action):
        to = min(max(state + (1 if action else -1), 0), 3)
        return {to: 0.8, state: 0.2} if to != state else {state: 1.0}
    def done(self, state):
        return state == 3
    def goal(self, state):
        return state == 3
    def observe(self, state):
        return Observed(text=str(state))
    def describe(self):
        return {"name": "slippery"}
"""
GRIDS = "worlds: [{kind: grid, sizes: [5], densities: [0.0], count: 2}]\ntrajectories: 1\nagents: "
MUTE = "[{kind: chat, model: m, server: {base_url: 'http://127.0.0.1:9/v1', timeout: 1, retries: 0}}]"


def test_a_horizon_by_factor_in_a_stochastic_world_is_a_multiple_of_the_expected_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slippery_here.py").write_text(SLIPPERY)
    study = "worlds: [{kind: 'slippery_here:Slippery'}]\nagents: [{kind: random}]\ntrajectories: 1\n"
    Path("study.yaml").write_text(study + "horizon: {factor: 2}\n")
    call("run", "study.yaml", "--out", "out")
    loaded = Study.load("study.yaml")
    # Three moves, each of which succeeds with the chance 0.8: 2 * 3.75, rounded up.
    assert [loaded.horizon.of(world) for world in loaded.worlds()] == [8]


@pytest.mark.parametrize(
    ("entries", "number", "proposed"),
    [
        ("[goal, crate hold]", 2, "crate held"),
        ("[cornor top-left]", 1, "corner top-left"),
        ("[goal, start, {name: x, is: keyheld}]", 3, "key held"),
        ("[goal, {nme: y}]", 2, ""),
        ("[xyzzy]", 1, ""),
        ("[goal, corner top-rigth]", 2, "top-right"),
    ],
)
def test_a_misspelt_hypothesis_of_a_file_is_found_by_its_number(
    tmp_path: Path, entries: str, number: int, proposed: str
) -> None:
    path = tmp_path / "bank.yaml"
    path.write_text(entries)
    worlds = EnvironmentWorld.make("slipping forklift", {"seed": 1}), GridWorld(grid=Grid.parse("A_G"))
    with pytest.raises(ValueError) as raised:
        check_names(load_hypotheses(str(path)), lambda: worlds)
    told = str(raised.value)
    assert f"entry {number}" in told and told.count("{") <= 1
    assert ("did you mean" in told) == bool(proposed) and proposed in told


@pytest.mark.parametrize(
    ("octets", "words"),
    [(0, "0 bytes"), (1, "1 byte"), (812, "812 bytes"), (8_100, "8 kB"), (1_440_000, "1.4 MB"), (25 * 10**6, "25 MB")],
)
def test_sizes_of_files_have_the_unit_that_fits(octets: int, words: str) -> None:
    assert size_in_words(octets) == words


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        GRIDS.replace("count: 2", "count: 40").replace("[5]", "[9]") + "[{kind: random}]"
    )
    code = (
        "import resource, signal, sys; from goalscope.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); main()"
    )
    command = [sys.executable, "-c", code, "run", "study.yaml", "--set", "trajectories=50", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    told = " ".join(done.stderr.split())
    assert done.returncode == 2 and "100,000 bytes" in told and "ulimit -f" in told
    assert "permissions" not in told and "Traceback" not in told


def test_a_start_without_answers_does_not_refuse_the_corrected_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mute.yaml").write_text(GRIDS + MUTE)
    Path("mended.yaml").write_text(GRIDS + "[{kind: random}]")
    call("run", "mute.yaml", "--out", "out", status=2)
    call("run", "mended.yaml", "--out", "out")
    call("verify", "out")
    with Store("out") as store:
        assert store.agent_names() and store.holds_answers()
    refused = call("run", "mute.yaml", "--out", "out", status=2)
    assert "another directory" in refused, "answers are never given up"


@pytest.mark.parametrize(
    ("limit", "least", "words"),
    [("1k-tokens", 179_034.0, "179,000 tokens"), ("1m", 7_800.0, "2 h 10 min"), ("1usd", 4.5, "4.50 USD")],
)
def test_a_budget_that_is_too_small_names_one_that_is_enough(limit: str, least: float, words: str) -> None:
    budget = Budget.parse(limit)
    assert budget.in_words(least) == words
    enough = Budget.parse(budget.enough(least))
    assert enough.of == budget.of and least < enough.amount < 1.3 * least
