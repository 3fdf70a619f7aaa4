"""`goalscope meg RUN`: tables, stored rows and figures, the section of the report."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from families import long_after
from goalscope.agents import Observation, Optimal, Turn
from goalscope.cli import app
from goalscope.runs import Store, content_hash
from measured_runs import Talker, measured, small_study


def call(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return str(result.output if status else result.stdout)  # stderr has progress where the machine is slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("meg") / "run", small_study())


def test_tables_rows_and_the_same_bytes_twice(run: Path) -> None:
    words = ("meg", run, "--by", "size", "--hypotheses", "goal,corner top-right", "--unknown")
    first = call(*words)
    for text in (
        "optimal",
        "top-right",
        "interval",
        "bound",
        "share",
        "beta",
        "null",
        "worlds",
        "grids, beta refitted",
    ):
        assert text in first
    assert "size 5" in first and "goal − corner top-right" in first and "held-out" in first
    with Store(run) as store:
        before, info = content_hash(store), store.info()["meg"]
        rows = store.rows()
    assert len(rows.select(measure="MEG towards the goal", agent="optimal")) == 12
    assert "success" in set(rows.measure) and info["settings"]["hypotheses"] == ["goal", "corner top-right"]
    again = call(*words)
    assert [line for line in again.splitlines() if "measured in" not in line] == [
        line for line in first.splitlines() if "measured in" not in line
    ]
    with Store(run) as store:
        assert content_hash(store) == before and store.info()["meg"] == info
    table = call("compare", run, "--measures", "MEG towards the goal", "--agents", "optimal;random")
    assert "MEG towards the goal" in table


def test_json_and_the_section_of_the_report(tmp_path: Path) -> None:
    worlds = [{"kind": "grid", "sizes": [5], "densities": [0.0, 1.0], "count": 2}]
    agents = [{"kind": "optimal"}, {"kind": "random"}]
    run = measured(tmp_path / "run", small_study(worlds=worlds, agents=agents, trajectories=2))
    result = CliRunner().invoke(app, ["meg", str(run), "--json", "--by", "density", "--utility", "arrival"])
    plain = json.loads(result.stdout)
    assert plain["settings"]["utility"] == "arrival" and plain["episodes"] == 16
    best = next(e for e in plain["estimates"] if e["agent"] == "optimal" and e["hypothesis"] == "goal")
    assert best["share"] == pytest.approx(1.0) and best["beta"] == "inf" and best["low"] <= best["signed"]
    pages = [tmp_path / "first.html", tmp_path / "second.html"]
    for page in pages:
        call("report", run, "--out", page)
    text = pages[0].read_text(encoding="utf-8")
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert "What the agents are after" in text and "MEG by hypothesis" in text and "By density (2 cells)" in text
    with Store(run, "w") as store:
        store.put_info("meg", {"estimates": [{"agent": 3}], "contrasts": [], "held_out": []})
    assert "stored results on goals" in call("report", run, "--out", pages[0], status=2)


def test_turns_without_action_and_hostile_names_do_no_harm(tmp_path: Path) -> None:
    path = measured(tmp_path / "run", small_study(agents=[{"kind": "random"}]), [Talker()])
    text = call("meg", path, "--invalid", "action")
    assert "\x1b[31m" not in text and "MEG in nats" in text
    call("report", path, "--out", tmp_path / "page.html")
    assert "<script>alert" not in (tmp_path / "page.html").read_text(encoding="utf-8")


class Silent:
    """An agent whose every turn is without an action; where it begins in a corner it never leaves it."""

    name = "silent"
    journalled = False

    def describe(self) -> dict[str, str]:
        return {"kind": "silent"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [Turn(action=None, failure="no answer", text="") for _ in observations]


@pytest.mark.parametrize("invalid", long_after(1, ["no-op", "action"]))
def test_an_agent_without_a_valid_turn_has_no_meg_anywhere_and_that_is_said(invalid: str, tmp_path: Path) -> None:
    worlds = [{"kind": "grid", "sizes": [5], "densities": [0.0], "count": 4}]
    study = small_study(agents=[{"kind": "optimal"}], worlds=worlds, trajectories=2)
    path = measured(tmp_path / "run", study, [Silent(), Optimal()])
    plain = json.loads(call("meg", path, "--invalid", invalid, "--unknown", "--json"))
    words = "no turn of the agent held an action: no MEG"
    for entry in plain["estimates"]:
        silent = entry["agent"] == "silent"
        assert (entry["note"] == words) == silent and (entry["signed"] is None) == silent
        if silent:
            assert not any(entry[name] is not None for name in ("low", "high", "share", "beta", "cross_fitted"))
            # Two episodes in each world within reach of the hypothesis.
            assert entry["n"] == 2 * entry["grids"] and entry["grids"] + entry["out_of_reach"] == 4
            assert entry["out_of_reach"] == 0 or entry["hypothesis"] != "goal"
    assert {entry["agent"] for entry in plain["contrasts"]} == {"optimal"}
    assert {(entry["agent"], entry["value"] is None) for entry in plain["held_out"]} == {
        ("silent", True),
        ("optimal", False),
    }
    with Store(path) as store:
        stored = store.rows().select(measure="MEG towards the goal")
    assert np.isnan(stored.select(agent="silent").value).all() and len(stored.select(agent="silent")) == 4
    assert np.isfinite(stored.select(agent="optimal").value).all()
    shown = call("meg", path, "--invalid", invalid)
    assert f"note: {words} (5 lines: silent, goal; silent, corner top-left; silent, corner top-right; ...)" in shown
    call("report", path, "--ledger", tmp_path / "ledger.json")
    assert words in (path / "report.html").read_text(encoding="utf-8")
    table = json.loads((tmp_path / "ledger.json").read_text(encoding="utf-8"))["tables"]["agent"]
    lines = [dict(zip(table["columns"], line, strict=True)) for line in table["rows"]]
    (line,) = (one for one in lines if (one["measure"], one["agent"]) == ("MEG towards the goal", "silent"))
    assert line["value"] is None and line["n"] == 0 and line["undefined"] == 4


def test_a_random_agent_is_given_no_share_and_no_rationality_in_any_output(run: Path, tmp_path: Path) -> None:
    shown = call("meg", run, "--hypotheses", "goal,corner top-right")
    cells = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]
    random = [line for line in cells if line[0] == "random"][:2]
    assert [line[1] for line in random] == ["goal", "corner top-right"]
    assert all(line[5:7] == ["–", "–"] for line in random), random
    assert "note: cannot be told from chance, the interval holds 0: no share and no beta" in shown
    call("report", run, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    section = page[page.index('id="goals"') :]
    section = section[: section.index("</section>")]
    assert "cannot be told from chance, the interval holds 0: no share and no beta" in section
    assert "−∞" not in section


def test_options_that_do_not_fit_are_refused(run: Path, tmp_path: Path) -> None:
    assert "--by" in call("meg", tmp_path / "x.json", "--by", "size", status=2)
    assert "'gaol'; did you mean 'goal'?" in call("meg", run, "--hypotheses", "gaol", status=2)
    assert "must name tags" in call("meg", run, "--by", "colour", status=2)
    (tmp_path / "empty").mkdir()
    assert "run.db" in call("meg", tmp_path / "empty", status=2)
