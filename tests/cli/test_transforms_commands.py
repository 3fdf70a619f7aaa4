"""Transforms and equivalence on the command line and in the report; power of a planned study."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from command_line import call
from families import long_after
from goalscope.cli.generator import margins_of, split_names
from goalscope.report.figures import as_csv
from goalscope.runs import Store, Study, content_hash
from goalscope.verdict.preflight import study_files as studies
from goalscope.verdict.preflight.power import layout
from measured_runs import measured, small_study

MARGIN = {"success": 0.1, "action accuracy": 0.05}
ROOT = Path(__file__).parents[2]
BIASED = "side-biased(1.0, left)"


def biased_study(**changes: Any) -> Study:
    entry = {
        "kind": "grid",
        "sizes": [5],
        "densities": [0.0],
        "count": 8,
        "goal_side": "right",
        "transforms": ["identity", "reflect", "swap"],
    }
    plain: dict[str, Any] = {
        "worlds": [entry],
        "agents": [{"kind": "optimal"}, {"kind": "side-biased", "epsilon": 1.0}],
        "trajectories": 3,
        "analysis": {"invariance": {"margin": MARGIN}},
    }
    return small_study(**{**plain, **changes})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("transforms") / "run", biased_study())


def test_transforms_are_compared_as_the_study_declares(done: Path, tmp_path: Path) -> None:
    files = ("--json", tmp_path / "deep" / "a.json", "--csv", tmp_path / "a.csv")
    output = call("compare", done, "--transforms", *files)
    assert "a family of 4 tests" in output and "Reflection" in output and "Start/goal swap" in output
    assert "a: method: " in output
    found = json.loads((tmp_path / "deep" / "a.json").read_text(encoding="utf-8"))
    assert len(found["comparisons"]) == 8 and found["level"] == 0.05
    reflected = next(
        one
        for one in found["comparisons"]
        if (one["agent"], one["measure"], one["transform"]) == (BIASED, "action accuracy", "reflect")
    )
    assert reflected["reading"] == "differs" and reflected["effect"] == -1.0
    assert {"n", "grids", "low", "high", "method"} <= set(reflected)
    assert (reflected["n"], reflected["grids"], reflected["margin"]) == (48, 8, 0.05)
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["difference"] for line in lines] == [
        "" if one["difference"] is None else str(one["difference"]) for one in found["comparisons"]
    ]
    before = (tmp_path / "a.csv").read_bytes()
    call("compare", done, "--transforms", *files)
    assert (tmp_path / "a.csv").read_bytes() == before


@pytest.mark.parametrize("page", long_after(1, ["docs/results.md", "docs/studies.md"]))
def test_the_commands_that_the_pages_print_run_and_compare_measures_what_is_missing(page: str, tmp_path: Path) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    lines = re.compile(
        r"goalscope (run iso-difficulty(?: --count 5)? --out runs/iso).{,40}?goalscope (compare runs/iso --transforms)"
    )
    printed = lines.findall(text)
    assert len(printed) == 1
    run, compare = ([word.replace("runs/iso", str(tmp_path)) for word in words.split()] for words in printed[0])
    small = ("--sizes", "7", "--densities", "0,1", "--count", "2", "--trajectories", "1")
    call(*run, *small, "--agents", "optimal;epsilon-greedy(0.3)")
    output = call(*compare)
    assert f"{tmp_path}: measuring first, 40 of 40 are not measured" in output
    assert output.count("transformed − original, paired by grid, a family of 8 tests") == 2
    with Store(tmp_path) as store:
        stored, digest = store.rows(), content_hash(store)
    assert "measuring" not in call(*compare)
    call("measure", tmp_path)  # stores the same rows
    with Store(tmp_path) as store:
        assert content_hash(store) == digest and len(store.rows()) == len(stored) > 0


def test_agents_are_listed_in_the_order_of_the_study(done: Path, tmp_path: Path) -> None:
    agents = biased_study().dump()["agents"]
    turned = measured(tmp_path / "turned", biased_study(agents=agents[::-1], trajectories=1))
    for run, names in ((done, ["optimal", BIASED]), (turned, [BIASED, "optimal"])):
        lines = call("compare", run, "--transforms").splitlines()
        titles = [line.split(": transformed")[0] for line in lines if ": transformed − original" in line]
        assert titles == names


def test_other_margins_are_said_to_be_other_than_declared(done: Path) -> None:
    output = call("compare", done, "--transforms", "--margin", "success=0.9", "--agents", "optimal")
    assert "a family of 2 tests" in output
    assert "side-biased" not in output and " 0.9 " in output


def test_agents_are_tested_for_equivalence_within_margins(done: Path, tmp_path: Path) -> None:
    output = call("compare", done, "--margin", "success=0.2", "--json", tmp_path / "a.json")
    assert "a family of 1 test" in output and " 0.2 " in output and "equivalence" in output
    (only,) = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["comparisons"]
    assert only["p_equivalence"] is not None and only["first"] == "optimal"
    plain = call("compare", done, "--json", tmp_path / "b.json")
    assert "equivalence" not in plain and "corrected for all 2 tests" in plain
    assert json.loads((tmp_path / "b.json").read_text(encoding="utf-8"))["comparisons"][0]["margin"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--margin", "success=0"), "no number of grids can show that a difference is exactly 0"),
        (("--margin", "success=-1"), "finite number above 0"),
        (("--margin", "success"), "--margin must be MEASURE=NUMBER"),
        (("--margin", "success=nan"), "--margin must be MEASURE=NUMBER"),
        (("--margin", "success=.1;success=.2"), "--margin must be MEASURE=NUMBER"),
        (("--margin", "success=.1", "--measures", "action accuracy"), "got a margin for success"),
        (("--margin", "beauty=.1"), "has no measure 'beauty'"),
        (("--measures", ""), "--measures"),
        (("--transforms", "--agents", "nobody"), "has no agent 'nobody'"),
        (("--transforms", "--measures", "beauty"), "has no measure 'beauty'"),
        (("--transforms", "--measures", ""), "--measures"),
    ],
)
def test_wrong_use_is_refused_with_the_reason(done: Path, words: tuple[str, ...], said: str) -> None:
    output = call("compare", done, *words, status=2)
    assert said in " ".join(output.split()) and "Traceback" not in output


def test_transforms_need_one_run_a_family_and_transformed_grids(done: Path, tmp_path: Path) -> None:
    assert "one run's grids, got 2 runs" in call("compare", done, tmp_path, "--transforms", status=2)
    plain = measured(tmp_path / "plain", small_study(trajectories=1))
    assert "--margin" in call("compare", plain, "--transforms", status=2)
    said = call("compare", plain, "--transforms", "--margin", "success=0.1", status=2)
    assert "transforms: [identity, reflect" in said


def test_the_report_has_the_table_the_single_grids_and_the_figures(done: Path, tmp_path: Path) -> None:
    call("report", done, "--out", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    section = page[page.index('id="invariance"') :]
    section = section[: section.index("</section>")]
    assert section.count("<svg") == 2 and ">0.05</td>" in section
    assert "transformed − original, a family of 4 tests" in section
    for word in ("Reflection", "Start/goal swap", "root mean square difference", "differs", "skewness-corrected"):
        assert word in section, word
    # The same differences do not stand in another family, too.
    assert 'id="conditions"' not in page


def test_a_declared_comparison_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    given = biased_study(worlds=[{"kind": "grid", "sizes": [5], "densities": [0.0], "count": 2}], trajectories=1)
    call("report", measured(tmp_path / "run", given))
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Not done: " in page and "transforms: [identity, reflect" in page


def test_a_plan_says_what_can_be_shown(done: Path, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(biased_study().dump()), encoding="utf-8")
    output = call("estimate", path, "--power")
    assert "80% power, at level 0.013" in output
    assert "each transform (reflect, swap) against the original; 4 tests" in output
    assert "--pilot RUN" in output and "most calls" in output
    with Store(done, "w") as store:
        store.put_rows(store.rows().select(measure="success", agent="nobody"), source="behaviour")
    piloted = call("estimate", path, "--power", "--pilot", done)
    assert "measuring first" in piloted
    lines = [line for line in piloted.splitlines() if line.strip().startswith(BIASED) and " accuracy " in line]
    assert len(lines) == 1 and " 8 " in lines[0] and "Assumed" not in piloted
    with Store(done) as store:
        rows = store.rows().select(measure="action accuracy", agent=BIASED, transform="identity")
    assert f"{rows.value.mean():.3f}" in lines[0]


def test_a_plan_without_two_conditions_or_with_a_wrong_pilot_is_refused(tmp_path: Path, done: Path) -> None:
    alone = small_study(agents=[{"kind": "optimal"}])
    with pytest.raises(ValueError, match="transforms"):
        layout(alone)
    pairs = layout(small_study())
    assert (pairs.family, pairs.grids, pairs.conditions) == (3 * 2, 12, "agents, pair by pair")
    path = tmp_path / "study.yaml"
    declared = {"invariance": {"margin": {"path ratio": 0.5}}}
    path.write_text(yaml.safe_dump(biased_study(analysis=declared).dump()), encoding="utf-8")
    assert "variances can be assumed for success and action accuracy only" in call(
        "estimate", path, "--power", status=2
    )
    # Five grids with one trajectory show no difference at all, and equality within nearly everything alone.
    few = ("--power", "--count", "5", "--agents", "optimal;random")
    (line,) = [
        line.split()
        for line in call("estimate", "key-door", *few).splitlines()
        if line.split()[:1] == ["success"] and "5" in line.split()
    ]
    assert line[6] == "–" and float(line[7]) > 0.6
    assert "must lie between 0 and 1 (--assume-mean)" in call(
        "estimate", path, "--power", "--assume-mean", "2", status=2
    )


@pytest.mark.parametrize(
    ("margin", "words"),
    [
        ("{sucess: 0.1}", "'sucess'; did you mean success?"),
        ("{MEG of the goal: 0.1}", "'MEG of the goal'; did you mean MEG towards the goal?"),
        ("{success: 1}", "'success' must be below its range (1), got 1"),
    ],
)
def test_a_declared_margin_that_cannot_be_tested_is_refused_before_anything_is_run(
    margin: str, words: str, tmp_path: Path
) -> None:
    small = ("--sizes", "7", "--count", "1", "--agents", "optimal", "--set", f"analysis.invariance.margin={margin}")
    for command in (("estimate", "iso-difficulty"), ("run", "iso-difficulty", "--out", tmp_path / "run")):
        assert words in " ".join(call(*command, *small, status=2).split())
    assert not (tmp_path / "run").exists()


def test_margins_may_be_declared_for_meg_towards_known_and_own_hypotheses() -> None:
    own: dict[str, Any] = {"name": "the right side", "is": "goal +0,+2"}
    margin = {"MEG towards the goal": 0.1, "MEG towards the the right side": 0.2}
    declared = biased_study(analysis={"invariance": {"margin": margin}, "hypotheses": [own]})
    assert studies.load("iso-difficulty", lambda _: declared) is declared
    with pytest.raises(ValueError, match="right side"):
        studies.load("iso-difficulty", lambda _: biased_study(analysis={"invariance": {"margin": margin}}))


def test_one_grid_with_one_trajectory_says_undefined_in_every_cell(tmp_path: Path) -> None:
    one = biased_study(trajectories=1, agents=[{"kind": "optimal"}]).dump()
    one["worlds"][0]["count"] = 1
    output = call("compare", measured(tmp_path / "run", Study.parse(one)), "--transforms")
    lines = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in output.splitlines()]
    means = [line for line in lines if line[:3] == ["Success", "Reflection", "undefined"] and "0.1" in line]
    numbers = ["0.000", "undefined", "2", "1", "undefined", "undefined / 1.00", "0.1", "undefined", "a, b, c, d"]
    assert means == [["Success", "Reflection", "undefined", *numbers]]
    grids = [line for line in lines if line[:2] == ["Success", "Reflection"] and "0.1" not in line]
    assert grids == [["Success", "Reflection", "undefined", "undefined", "0", "0", "undefined / 1.00", "a, b, c"]]
    assert "a: method: no interval, no test" in output and "(none)" not in output


def test_the_shipped_study_is_the_design_of_the_paper() -> None:
    given = Study.parse(yaml.safe_load(studies.text("iso-difficulty")))
    found = layout(given)
    assert (found.grids, found.trajectories, found.family) == (300, 10, 8)
    assert found.margins == MARGIN
    assert {agent.name for agent in given.agents()} >= {"Theseus", "optimal", "side-biased(0.3, left)"}


def test_margins_are_read_and_formulas_are_none() -> None:
    assert margins_of("--margin", " success = 0.1 ; a=b=2;") == {"success": 0.1, "a=b": 2.0}
    for option in ("--margin", "--agents", "--measures"):
        for empty in ("", ";", " "):
            assert f"{option} has an empty value" in call("compare", "a", "b", option, empty, status=2)
    assert split_names("optimal,side-biased(0.3, left)") == split_names("optimal; side-biased(0.3, left)")
    assert as_csv([{"agent": "=1+1", "low": -0.5}, {"agent": "x", "high": None}]) == (
        "agent,low,high\n'=1+1,-0.5,\nx,,\n"
    )


def test_an_analysis_that_is_changed_after_the_run_was_begun_is_told(tmp_path: Path) -> None:
    path, out = tmp_path / "study.yaml", tmp_path / "run"
    given = {**biased_study(trajectories=1).dump(), "agents": [{"kind": "optimal"}]}
    path.write_text(yaml.safe_dump(given), encoding="utf-8")
    assert "--margin" not in call("run", path, "--out", out)
    given["analysis"]["invariance"]["margin"]["success"] = 0.9
    path.write_text(yaml.safe_dump(given), encoding="utf-8")
    assert "--margin" in " ".join(call("run", path, "--out", out).split())
    with Store(out) as store:
        stored = store.study()
    assert stored is not None and stored.analysis is not None and stored.analysis.invariance is not None
    assert stored.analysis.invariance.margin["success"] == 0.1
