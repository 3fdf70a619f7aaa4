"""An own instruct model by docs/start.md: one that was never trained, and one that acts and marks no reasoning."""

import json
from pathlib import Path

import pytest
from program import Program
from tiny_models import PLAIN_TEMPLATE, llama, tokenizer

from planted_findings import stated

SMALL = ("--sizes", 7, "--densities", "0,0.6", "--count", 2, "--trajectories", 2, "--agents", "Theseus,optimal")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    llama(positions=4096).save_pretrained(tmp_path / "mine")
    tokenizer(PLAIN_TEMPLATE, added=()).save_pretrained(tmp_path / "mine")
    return Program(tmp_path)


@pytest.mark.full
def test_an_own_model_by_the_first_page(program: Program, tmp_path: Path) -> None:
    run, verdict = "runs/mine", "runs/verdict"
    told = program("doctor", "--model", "./mine")
    assert "LlamaForCausalLM" in told and "0 of 3 sample answers held an action" in told
    estimated = program("estimate", "baseline", "--model", "./mine", *SMALL)
    assert "counted by the model's own tokenizer" in estimated
    assert "16 episodes run" in program("run", "baseline", "--model", "./mine", *SMALL, "--out", run)
    assert "held no action" in program("measure", run)
    assert "16 episodes" in program("show", run)
    program("compare", run)
    program("meg", run)
    program("report", run)
    program("figure", run, "results-table-1", "--out", "results.tex")
    # It never acts optimally, so there is nothing to patch, which is said with what would help.
    refused = program("patch", run, status=2)
    assert "acts optimally" in refused and "no option" not in refused
    judged = program("evaluate", "./mine", "--budget", "700k-tokens", "--out", verdict)
    # What it writes holds no action, which is said after its first turns; how likely it finds each action can be asked.
    assert "held an action" in judged and "--answer likelihood" in judged
    assert stated("plan/no move in any", program("card", verdict))
    verdict, likely = "runs/likely", ("--answer", "likelihood", "--set", "least_mass=0")
    program("evaluate", "./mine", "--arms", "grids", *likely, "--quick", "--out", verdict)
    assert json.loads(program("ledger", verdict, "--json"))["models"]
    assert "claims-table-1" in program("figure", verdict, "--list")
    program("figure", verdict, "claims-table-1", "--out", "claims.tex")
    for page in (run, verdict):
        assert (tmp_path / page / "report.html").stat().st_size > 10_000
    assert program.follow({})
