"""The study of patching end to end on the bundled model, as small as it can be."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import call
from goalscope.agents.models import LocalModel
from goalscope.cli.inside import show_intervention
from goalscope.inside.interventions.experiment import intervention, study_interventions
from goalscope.inside.interventions.patching import CHANGED, EQUAL, FOLLOWS, RECOVERY, WHOLE, Patching
from goalscope.inside.probing.scores import chosen
from goalscope.report import RunData, sections_of
from goalscope.runs import Store, Study, content_hash, run
from goalscope.runs.hashing import ordered_rows
from goalscope.stats.rows import Rows

SETTINGS: dict[str, Any] = {
    "kind": "patching",
    "pairs": {"per_size": 1, "controls": 0, "moved": ["goal"]},
    "sites": ["changed", "action"],
    "layers": [-1, 7],
    "windows": [],
    "components": ["residual"],
}
STUDY: dict[str, Any] = {
    "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 2}],
    "agents": [{"kind": "chat", "model": "theseus", "max_tokens": 64}],
    "trajectories": 1,
    "horizon": {"steps": 1},
    "analysis": {"interventions": [SETTINGS]},
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run alone."""
    out = tmp_path_factory.mktemp("bare") / "run"
    run(Study.parse(STUDY), out)
    return out


@pytest.fixture(scope="module")
def patched(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = Path(shutil.copytree(bare, tmp_path_factory.mktemp("patched") / "run"))
    study_interventions(out)
    return out


def test_the_embedding_swap_moves_the_action_and_what_must_be_equal_is(patched: Path) -> None:
    with Store(patched) as store:
        rows = store.rows()
    free = chosen(rows, intervention="patching", reading="free", pairs="counterfactual")
    swap = chosen(free, measure=FOLLOWS, site="changed", layers="-1", patch="source")
    assert swap.value.tolist() == [1.0, 1.0]  # both directions
    assert set(chosen(free, measure=EQUAL).value.tolist()) == {1.0}
    assert set(chosen(free, measure=CHANGED, patch="identity").value.tolist()) == {0.0}
    null = chosen(free, site="changed", layers="7", patch="source")
    assert set(null["structural"].tolist()) == {True} and not null.value.any()
    last = chosen(free, measure=FOLLOWS, site="action", layers="7", patch="source")
    assert last.value.tolist() == [1.0, 1.0]  # the logits are a function of this vector alone


def test_the_forced_reading_has_its_bias_beside_it(patched: Path) -> None:
    with Store(patched) as store:
        forced = chosen(store.rows(), intervention="patching", reading="forced")
    assert len(chosen(forced, measure=RECOVERY, site=WHOLE)) == 2
    swap = chosen(forced, measure=RECOVERY, site="changed", layers="-1", patch="source")
    assert swap.value.tolist() == chosen(forced, measure=RECOVERY, site=WHOLE).value.tolist()  # the same prompt


def test_what_is_stored_is_not_done_again_and_other_settings_replace_it(
    patched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(patched) as store:
        before = content_hash(store)
    with monkeypatch.context() as patch:
        patch.setattr("goalscope.inside.interventions.patching.generate", None)
        study_interventions(patched)
    with Store(patched) as store:
        assert content_hash(store) == before


@pytest.mark.full
@pytest.mark.filterwarnings("default::UserWarning")
def test_a_model_that_marks_no_reasoning_is_patched_before_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Theseus stands for a model without marks: those that it writes count as text.
    monkeypatch.setattr("goalscope.agents.parse.left_over", lambda text: False)
    out = tmp_path / "run"
    agents = [{**STUDY["agents"][0], "reasoning": "none"}]
    run(Study.parse({name: value for name, value in STUDY.items() if name != "analysis"} | {"agents": agents}), out)
    small = [word for name in ("windows", "controls") for word in ("--set", f"{name}=[]")]
    few = ("--pairs", 1, "--layers", "-1,7", "--set", "pairs.controls=0", *small, "--set", "components=[residual]")
    shown = call("patch", out, *few)
    (notice,) = [line for line in shown.splitlines() if "leaves out" in line]
    assert all(what in notice for what in ("site post", "site action", "the forced reading"))
    with Store(out) as store:
        rows = chosen(store.rows(), intervention="patching")
    assert set(rows["site"].tolist()) == {"grid", "changed", "pre"} and set(rows["reading"].tolist()) == {"free"}
    refused = call("patch", out, *few, "--sites", "pre,action", status=2)
    assert "sites action" in refused and "answer_after" not in refused


KILLED = """
import os, signal, sys
from goalscope.inside.interventions import experiment
from goalscope.inside.interventions.experiment import study_interventions

keep, left = experiment.ExperimentSubject.keep, [int(sys.argv[2])]

def doomed(subject, unit, rows):
    left[0] -= 1
    if left[0] == 0 and sys.argv[3] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    keep(subject, unit, rows)
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)

experiment.ExperimentSubject.keep = doomed
study_interventions(sys.argv[1])
"""


@pytest.mark.full
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_study_killed_midway_resumes_to_the_same_rows(
    patched: Path, number: int, moment: str, tmp_path: Path
) -> None:
    run(Study.parse(STUDY), tmp_path / "run")
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), str(number), moment]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    with Store(tmp_path / "run") as store:
        stored = len(store.row_sources())
    assert stored == number - (moment == "before")
    study_interventions(tmp_path / "run")
    with Store(tmp_path / "run") as again, Store(patched) as whole:
        assert list(ordered_rows(again)) == list(ordered_rows(whole))


def test_the_report_says_it_by_the_thing_moved_and_pools_nothing(patched: Path, tmp_path: Path) -> None:
    from goalscope.measures import measure_store

    with Store(Path(shutil.copytree(patched, tmp_path / "run")), "w") as store:
        done = chosen(store.rows(), intervention="patching")
        still = Rows.from_columns(
            measure=done.measure.tolist(),
            unit=done.unit.tolist(),
            value=np.zeros(len(done)),
            cluster=[f"{cluster} again" for cluster in done.cluster],
            tags={**dict(done.tags), "moved": ["agent"] * len(done)},
        )
        store.put_rows(still, source="patching/other")
        store.put_rows(measure_store(store), source="behaviour")
    with Store(tmp_path / "run") as store:
        sections = {one.title: one for one in sections_of(RunData.of(store))}
    shown = {
        thing: [
            cell for row in sections[f"Patched activations, {thing} moved"].tables[0].rows for cell in map(str, row)
        ]
        for thing in ("agent", "goal")
    }
    assert any("1.0" in cell for cell in shown["goal"]) and not any("1.0" in cell for cell in shown["agent"])
    assert ("pairs", "1 pair, goal moved") in sections["Patched activations, goal moved"].facts


def test_too_few_pairs_are_said_on_the_screen_and_on_the_page(
    bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from goalscope.measures import measure_store

    asked = {**SETTINGS, "pairs": {"per_size": 8, "controls": 0, "moved": ["goal", "key"]}, "sites": ["changed"]}
    run_of = Path(shutil.copytree(bare, tmp_path / "run"))
    settings = Patching.model_validate({**asked, "layers": [-1], "forced": False, "controls": []})
    for done in study_interventions(run_of, [settings]):
        show_intervention(done)
    said = " ".join(capsys.readouterr().out.split())
    assert "of 4 pairs with the goal moved" in said and "0 of 4 pairs with the key moved" in said
    with Store(run_of, "w") as store:
        store.put_rows(measure_store(store), source="behaviour")
        (section,) = (one for one in sections_of(RunData.of(store)) if one.title.startswith("Patched"))
    assert section.facts[1][0] == "pairs" and "goal moved, of 4 requested" in section.facts[1][1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"layers": [-1, 8]}, r"-1\.\.7.* got \[-1, 8\]"),
        ({"layers": []}, r"-1\.\.7"),
        ({"spans": {"rules": "no such text"}}, "span 'rules' .* is not in it"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(patched: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        study_interventions(patched, [Patching.model_validate({**SETTINGS, **changed})])


def test_wrong_keys_models_and_kinds_are_refused(patched: Path) -> None:
    wrong = {**STUDY, "analysis": {"interventions": [{**SETTINGS, "site": ["grid"]}]}}
    with pytest.raises(ValueError, match=r"interventions\[0\]\.site: .*sites"):
        Study.parse(wrong)
    with pytest.raises(ValueError, match=r"interventions\[0\]\.kind: .*patching"):
        Study.parse({**STUDY, "analysis": {"interventions": [{"kind": "patchng"}]}})
    with pytest.raises(ValueError, match=r"tokenizer|weights"):
        study_interventions(patched, model=LocalModel("ariadne"))
    with pytest.raises(TypeError, match="headline"):
        intervention("nothing")(type("Nothing", (), {}))


def test_the_screen_has_a_line_a_site_where_no_last_layer_was_patched(
    bare: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {**SETTINGS, "sites": ["changed"], "layers": [-1], "forced": False, "controls": []}
    shutil.copytree(bare, tmp_path / "run")
    for done in study_interventions(tmp_path / "run", [Patching.model_validate(asked)]):
        show_intervention(done)
    assert re.search(r"changed +-1 +1\.0", capsys.readouterr().out)
