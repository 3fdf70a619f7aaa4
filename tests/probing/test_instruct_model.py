"""An ordinary instruct model, without marked reasoning, goes through the whole package on defaults."""

from pathlib import Path
from typing import Any

import pytest
from tiny_models import PLAIN_TEMPLATE, llama, tokenizer

from command_line import call
from goalscope.runs import Store

SMALL = (
    *("--reads", "cognitive-map", "--layers", "1", "--random-kinds", "none"),
    *("--set", "probes.epochs=1", "--set", "probes.hidden=4", "--set", "by_size=false"),
)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of a model that lies in a folder, with no key but its place and a limit of its output."""
    folder = tmp_path_factory.mktemp("instruct")
    model: Any = llama(positions=4096)
    model.save_pretrained(folder / "model")
    tokenizer(PLAIN_TEMPLATE, added=()).save_pretrained(folder / "model")
    path = folder / "study.yaml"
    path.write_text(
        "worlds: [{kind: grid, sizes: [7], densities: [0.3], count: 12}]\n"
        f"agents: [{{kind: chat, model: {folder / 'model'}, max_tokens: 3}}]\n"
        "horizon: {steps: 1}\n"
    )
    return path


@pytest.mark.full
@pytest.mark.filterwarnings("default::UserWarning")
def test_plan_run_and_probe_need_no_further_key(study: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert "own tokenizer" in call("estimate", study)
    ran = call("run", study, "--out", run)
    assert ran.count("does not mark reasoning") == 1 and "Notice: " in ran
    with Store(run) as store:
        (description,) = [description for _, description in store.agents().values()]
        assert all(step.text == "" or step.output_tokens for episode in store.episodes() for step in episode.steps)
    assert description["model"]["reasoning"] == "auto" and "example" in description
    probed = call("probe", run, *SMALL)
    assert probed.count("site post is left out") == 1 and "reasoning: none" in probed
    assert "agent at its cell" in probed and " pre " in probed
    captured = call("capture", run, "--layers", "1")
    assert captured.count("site post is left out") == 1


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_site_that_the_user_names_must_be_there(study: Path, tmp_path: Path) -> None:
    run, small = tmp_path / "run", study.with_name("small.yaml")
    small.write_text(study.read_text().replace("count: 12", "count: 4"))
    call("run", small, "--out", run)
    for command in ("probe", "capture"):
        refused = call(command, run, "--sites", "pre,post", "--layers", "1", status=2)
        assert "site post" in refused and "leave the site out" in refused
    # Without --sites patching chooses, and fails for the answers of a random model alone.
    assert "post" in call("patch", run, "--sites", "pre,post", "--layers", "1", status=2)
    refused = call("patch", run, "--layers", "1", status=2)
    assert "leaves out site post, site action" in refused and "acts optimally on both sides" in refused
