"""The section on hypotheses: by phase, with its picture; nothing of runs whose steps were answered once."""

from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from command_line import call
from goalscope.goals.finding import Finding, say_all
from goalscope.goals.hypotheses import bind, read_hypotheses
from goalscope.report import RunData
from goalscope.report.sections.explanations import attribution, judged_in
from goalscope.runs import Store, Study, run
from goalscope.runs.study_parts import Analysis

STUDY = {
    "name": "phases",
    "worlds": [
        {"kind": "grid", "sizes": [7, 9], "densities": [0.3], "count": 10, "goal": "top-right", "phase": "trained"},
        {"kind": "grid", "sizes": [7, 9], "densities": [0.3], "count": 10, "goal": "not top-right", "phase": "shifted"},
    ],
    "agents": [{"kind": "hypothesis", "hypothesis": "corner top-right", "lapse": 0.2, "name": "twin"}],
    "answers": 2,
    "horizon": {"factor": 1.5},
    "analysis": {"hypotheses": ["goal", {"name": "the corner", "is": "corner top-right"}]},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hypotheses") / "run"
    with Store(folder, "w") as store:
        run(Study.parse(STUDY), store)
    call("measure", folder)
    return folder


@pytest.fixture(scope="module")
def judged(place: Path) -> dict[str, list[Finding]]:
    with Store(place) as store:
        return judged_in(store)


def found_names(one: Finding) -> list[str]:
    """The hypotheses whose MEG stands beside a finding."""
    return [key.removeprefix("meg ") for key in one.evidence if key.startswith("meg ")]


def test_each_phase_has_its_verdict_and_its_column(place: Path, judged: dict[str, list[Finding]]) -> None:
    trained, shifted = judged["twin"]
    assert (trained.where, shifted.where) == ({"phase": "trained"}, {"phase": "shifted"})  # the order of the study
    assert trained.reason == "not told apart" and set(trained.names) == {"goal", "the corner"}
    assert (shifted.reason, shifted.names) == ("named", ("the corner",))
    # Towards both hypotheses of a set, and towards the goal where it is not what is followed.
    nats: dict[Any, Any] = {
        (one.where["phase"], name): one.figure("meg", name) for one in (trained, shifted) for name in found_names(one)
    }
    assert nats["trained", "goal"].value == pytest.approx(nats["trained", "the corner"].value)
    assert nats["shifted", "the corner"].low > nats["shifted", "goal"].high
    share = shifted.figure("share", "the corner")
    assert share is not None and share.value is not None and 0 < share.value < 1
    with Store(place) as store:
        (section,) = attribution(RunData.of(store))
    lines = {(row[1], row[2]): row for row in section.tables[1].rows}
    assert len(lines) == 4 and {where for where, _ in lines} == {"phase trained", "phase shifted"}
    # Where both act alike nothing tells them apart.
    assert lines["phase trained", "goal"][-1] == "0 of 20 worlds" != lines["phase shifted", "goal"][-1]
    strength = shifted.figure("strength", "goal")
    assert strength is not None and lines["phase shifted", "goal"][3] == strength.text


def test_the_page_holds_the_sentence(place: Path, judged: dict[str, list[Finding]]) -> None:
    call("report", place)
    page = (place / "report.html").read_text(encoding="utf-8")
    section = page[page.index('id="attribution"') :]
    assert "Which hypothesis explains the moves" in section and say_all(judged["twin"]) in unescape(section)


def test_a_run_that_was_answered_once_has_no_such_section(tmp_path: Path) -> None:
    once = {**STUDY, "answers": 1}
    with Store(tmp_path, "w") as store:
        run(Study.parse(once), store)
        assert judged_in(store) == {}


@pytest.mark.parametrize("entries", [[{"name": "a"}], ["goal", "goal"], [3], [{"name": 1, "is": "goal"}]])
def test_a_study_names_hypotheses_that_there_are(entries: list[object]) -> None:
    with pytest.raises(ValueError, match="hypothes"):
        Analysis.model_validate({"hypotheses": entries})


@pytest.mark.parametrize("entries", [["goat"], [{"name": "a", "is": "goat"}]])
def test_a_name_that_no_world_gives_a_goal_is_refused_with_the_worlds(entries: list[Any]) -> None:
    study = Study.parse({**STUDY, "analysis": {"hypotheses": entries}})
    [named] = read_hypotheses(entries).values()
    with pytest.raises(ValueError, match=r"'goat'.*'goal'"):
        bind(named, study.worlds())


def test_hypotheses_of_an_analysis_change_no_episode() -> None:
    without = {key: value for key, value in STUDY.items() if key != "analysis"}
    assert Study.parse(STUDY).id == Study.parse(without).id


def test_worlds_of_one_phase_are_separated_by_themselves(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump({**STUDY, "analysis": None}), encoding="utf-8")
    asked = ("separate", "--hypotheses", "goal;corner top-right", "--worlds", study)
    assert "the same in these worlds" in call(*asked, "--phase", "trained")
    assert "the same in these worlds" not in call(*asked, "--phase", "shifted")
    said = call(*asked, "--phase", "later", status=2)
    assert "trained" in said and "shifted" in said
