"""`goalscope reproduce`: exact items, runs, recorded logs, refusals, and the page that lists all items."""

import json
from pathlib import Path

import pytest

from command_line import call
from goalscope.agents.models.folders import folder_identity, model_folder
from goalscope.papers import find, items, reproduce
from goalscope.papers.exact import exact_value
from goalscope.papers.page import Reproduction, sentence
from goalscope.papers.working import _made_here

ROOT = Path(__file__).parents[2]
EXACT = [item.name for item in items().values() if item.exact]
STUDIED = [item.name for item in items().values() if item.study]
SMALL = ("--set", "worlds.0.sizes=[7,9]", "--set", "worlds.0.densities=[0,0.6]")
FEW = {
    "baseline": SMALL,
    "iso-difficulty": SMALL,
    "fog": ("--set", "worlds.0.sizes=[7]", "--set", "worlds.0.densities=[0]"),
    "cognitive-map": (*SMALL, "--set", "analysis.inside.probes.epochs=2"),
    "beliefs": (*SMALL, "--set", "analysis.inside.probes.epochs=2"),
    "plans": (*SMALL, "--set", "worlds.0.count=4", "--set", "analysis.inside.decoders.epochs=1"),
    "distance": (*SMALL, "--set", "analysis.inside.probes.epochs=2"),
    "patching": ("--set", "worlds.0.densities=[0.2]", "--set", "analysis.interventions.0.pairs.per_size=1"),
    "explore-exploit": ("--set", "worlds.0.presets=[high-small,medium-small]"),
    "harness": ("--set", "worlds.0.presets=[high-small,medium-small]"),
}


def told(folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads((folder / "reproduction.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] if "cliff" in items()[name].exact else []) for name in EXACT]
)
def test_exact_items_are_computed_and_written(name: str, tmp_path: Path) -> None:
    printed = call("reproduce", name, "--out", tmp_path)
    found = told(tmp_path)
    numbers = [line["ours"] for line in found["lines"]]
    assert name in printed or "written" in printed
    assert len(numbers) or len(list(tmp_path.glob("*.svg"))) > 0
    if name.startswith("exploration table"):
        pairs = [(line["published"]["paper"], line["ours"]["value"]) for line in found["lines"]]  # type: ignore[index]
        assert len(pairs) >= 5 and all(one == other for one, other in pairs)


def test_the_mouse_has_the_known_value_and_exact_numbers_have_no_interval(tmp_path: Path) -> None:
    call("reproduce", "meg figure 1", "--out", tmp_path)
    noisy, perfect = told(tmp_path)["lines"]
    assert noisy["ours"]["value"] == pytest.approx(0.192745, abs=1e-6)  # type: ignore[index]
    assert perfect["ours"]["value"] == pytest.approx(0.693147, abs=1e-6)  # type: ignore[index]
    assert [line["published"]["paper"] for line in (noisy, perfect)] == [0.19, 0.69]  # type: ignore[index]
    assert not exact_value(1.0, "nats").has_interval


def test_the_command_is_one_call_whose_lines_are_returned(tmp_path: Path) -> None:
    found = reproduce("meg figure 1", tmp_path)
    assert [line.published["paper"] for line in found.lines] == [0.19, 0.69]
    assert [record["printed, paper"] for record in found.records] == [0.19, 0.69]
    assert found.records[0]["ours"] == pytest.approx(0.192745, abs=1e-6) and "0.19" in found._repr_html_()
    with pytest.raises(ValueError, match="computed exactly"):
        reproduce("meg figure 1", tmp_path, scale=0.5)


def test_the_sentence_says_whose_worlds_they_are() -> None:
    item = find("telos table 1 rooms")
    own, given = (sentence(item, Reproduction.of(item, scale, agents=["Theseus"], made_here=True)) for scale in (1, 0))
    assert "not the source's own" in own and "key-door" in own and "at the published size" in own
    assert "that were given" in given and "key-door" not in given and "published" not in given
    other = sentence(item, Reproduction.of(item, 1, agents=["Theseus of somebody else"]))
    assert "Theseus, a small network of this project" in own and "small network" not in other


def test_a_model_is_of_this_project_by_its_files_and_not_by_its_name() -> None:
    folder = model_folder("theseus")
    assert folder is not None
    files = folder_identity(folder)
    of_theseus: dict[str, object] = {"files": files, "untrained": None}
    assert _made_here({"name": "anybody", "model": of_theseus})
    other = {**files, "model.safetensors": "0" * 64}
    for model in ({**of_theseus, "untrained": 0}, {**of_theseus, "files": other}, "theseus", None):
        assert not _made_here({"name": "Theseus", "model": model})


def test_all_items_are_listed_and_those_without_a_command_say_why() -> None:
    printed = " ".join(call("reproduce", "--list").split())
    assert all(name in printed for name in items())
    for item in items().values():
        if item.why_not:
            assert item.why_not[:30] in printed
            assert item.why_not in call("reproduce", item.name, "--out", "x", status=2).replace("\n ", "")


def test_what_does_not_fit_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    for words in (
        ("telos table 2",),
        ("telos table 99", "--out", tmp_path / "a"),
        ("meg table k", "--model", "theseus", "--out", tmp_path / "a"),
        ("telos figure 4", "--scale", "2", "--out", tmp_path / "a"),
        ("telos table 2", "--logs", ROOT / "docs", "--out", tmp_path / "a"),
    ):
        call("reproduce", *words, status=2)
        assert not (tmp_path / "a").exists()


def test_a_run_that_is_there_is_read_and_claims_are_tested_on_it(tmp_path: Path) -> None:
    sizes = ("--sizes", "7,9", "--densities", "0,0.6", "--count", "3", "--trajectories", "2")
    call("run", "baseline", *sizes, "--agents", "epsilon-greedy(0.3)", "--out", tmp_path / "run")
    printed = call("reproduce", "telos figure 4", "--logs", tmp_path / "run", "--out", tmp_path / "read")
    found = told(tmp_path / "read")
    assert (tmp_path / "read" / "report.html").is_file() and "epsilon-greedy(0.3)" in printed
    accuracy = [line for line in found["lines"] if "Acc. GT" in str(line["label"]) and line["value"] == 7]
    assert accuracy[0]["ours"]["clusters"] == 6 and accuracy[0]["within"] is None  # type: ignore[index]
    answers = {str(one["answer"]) for one in found["claims"]}
    assert answers <= {"yes", "no", "undecided"} and len(found["claims"]) == 16
    assert "said of GPT-OSS-20B, of which this run has none" in printed


@pytest.mark.full
@pytest.mark.parametrize("name", STUDIED)
def test_every_item_runs_at_a_small_scale(name: str, tmp_path: Path) -> None:
    item = items()[name]
    words = FEW.get(item.study, ())
    if name == "telos figure 15":  # grids of size 11 alone
        words = ("--set", "worlds.0.sizes=[11]", *words[2:])
    if item.study == "explore-exploit" and any("presets" in change for change in item.changes):
        words = ("--set", "worlds.0.presets=[high-small]")
    printed = call("reproduce", name, "--scale", "0.02", "--out", tmp_path, *words)
    found = told(tmp_path)
    there = [line for line in found["lines"] if line["ours"] is not None]
    assert there and (tmp_path / "report.html").is_file(), printed
    labels = {str(line["label"]) for line in found["lines"]} - {str(line["label"]) for line in there}
    assert not labels - {"Key Attraction Bias (%)"}, labels  # an agent that never errs has none
    without = [one for one in found["claims"] if one["answer"] == "untestable"]
    # Few grids: no other state of a size and density to compare beliefs with, no agents of equal success.
    allowed = ("no value", "it needs two")
    for one in without:  # a sentence on grids of size 15 needs such grids, which the small study leaves out
        named = str(one["why"]).startswith(allowed) or "key" in str(one["said"]) or "15×15" in str(one["quoted"])
        assert named, one
