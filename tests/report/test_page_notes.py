"""What a page says besides its numbers: few grids, turns without an action, and transcripts without markup."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from goalscope.agents import Observation, Turn
from goalscope.cli.measuring import across, headline
from goalscope.measures import measure_episodes
from goalscope.report import RunData, sections_of, write_report
from goalscope.report.blocks import SPARSE, estimates_table, numbers_table
from goalscope.report.charts import HeatMap, Lines, Series
from goalscope.report.definitions import FORMAT_SHARE
from goalscope.report.ledger import episodes_by_agent
from goalscope.report.sections.about import format_lines
from goalscope.report.texts import TEXTS
from goalscope.runs import Store, run
from goalscope.stats import Estimate, estimate_mean, estimate_rows
from goalscope.stats.rows import Row, Rows, Tag
from goalscope.worlds import Action
from measured_runs import HOSTILE, Talker, measured, run_of, small_study
from planted_findings import stated

OFTEN = "JSD from optimal, excess, 5+ visits"


def rows_of(behind: int, grids: int = 10) -> Rows:
    tags: dict[str, Tag] = {"agent": "model", "size": 7, "density": 0.0}
    listed = [
        Row(measure=measure, unit=unit, value=0.3 + 0.01 * index, cluster=f"grid {index}", tags=tags)
        for measure, unit, count in (("success", "share", grids), (OFTEN, "bits", behind))
        for index in range(count)
    ]
    return Rows.from_rows(listed)


def estimate(clusters: int, without: int, value: float = 0.4) -> Estimate:
    low, high = value - 0.1, value + 0.1
    return Estimate(
        value=value, low=low, high=high, n=clusters, clusters=clusters, method="t", unit="share", without=without
    )


@pytest.mark.parametrize(
    ("behind", "few", "sparse"), [(4, "only 4 of 10 grids", True), (5, "5 of 10 grids", False), (10, "", False)]
)
def test_a_cell_says_how_many_of_the_grids_are_behind_it(behind: int, few: str, sparse: bool) -> None:
    data = run_of(rows_of(behind))
    [section] = sections_of(data, "uncertainty")
    [(_, *shown)] = section.tables[0].rows
    assert [(cell.few, cell.sparse) for cell in shown] == [(few, sparse), ("", False)]
    assert shown[-1].value == "10"
    assert section.tables[0].notes == ((SPARSE,) if sparse else ())
    [line] = [cells for cells in numbers_table(data.ledger.tables["agent"].listed).rows if cells[0] == OFTEN]
    assert line[-1].endswith(few) and ("of 10 grids" in line[-1]) is bool(few)


def test_a_row_counts_the_grids_of_its_group_and_never_those_of_its_cells_alone() -> None:
    [(label, *cells)] = estimates_table("", [], [("agent", [estimate(3, 7), None])], "map").rows
    assert label == "agent" and [cell.value for cell in cells] == ["0.400", "–", "10"]
    assert cells[0].few == "only 3 of 10 maps" and cells[0].hint.startswith("3 of 10 maps")


def test_curves_are_pale_where_few_grids_are_and_count_them_below() -> None:
    def drawn(*estimates: Estimate) -> str:
        x = tuple(float(index) for index in range(len(estimates)))
        return Lines(
            [Series(label="a", style=0, points=dict(zip(x, estimates, strict=True)))],
            title="t",
            x_label="x",
            y_label="y",
        ).svg

    whole, sparse = drawn(estimate(9, 1), estimate(5, 5)), drawn(estimate(9, 1), estimate(4, 6))
    assert "pale: less than 50 % of the grids" in sparse and ">grids<" in sparse
    assert "pale" not in whole and ">grids<" not in whole


def test_a_map_has_no_colour_where_few_grids_are_and_counts_them() -> None:
    def drawn(one: Estimate) -> str:
        return HeatMap(
            [[one]], rows=("7",), columns=("0",), title="t", row_label="r", column_label="c", bounds=(0.0, 1.0)
        ).svg

    sparse, whole = drawn(estimate(4, 6)), drawn(estimate(5, 5))
    assert ">4/10 grids<" in sparse and "without colour: less than 50 % of the grids" in sparse
    assert "/10 grids" not in whole and "without colour" not in whole
    assert 'fill="#f0f0f0"' in sparse and 'fill="#f0f0f0"' not in whole


def test_the_page_of_a_run_with_few_visits_warns_and_its_numbers_stay(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.5], "count": 12}]
    run(
        small_study(
            trajectories=2, worlds=worlds, agents=[{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.5}]
        ),
        directory,
    )
    with Store(directory, "w") as store:
        rows = measure_episodes(store.episodes())
        store.put_rows(rows, source="behaviour")
        write_report(store, tmp_path / "page.html", ledger_path=tmp_path / "ledger.json")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    table = json.loads((tmp_path / "ledger.json").read_text(encoding="utf-8"))["tables"]["agent"]
    checked = 0
    for values in table["rows"]:
        one = dict(zip(table["columns"], values, strict=True))
        visits = [row for row in rows.select(measure=one["measure"], agent=one["agent"]) if not math.isnan(row.value)]
        if one["measure"] == OFTEN:
            assert (one["grids"], one["without"]) == (len(visits), 12 - len(visits))
            checked += 0 < len(visits) < 6
    assert checked and 'class="sparse">only ' in page and SPARSE in page


def test_printed_tables_warn_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    headline(rows_of(4), ["model"], "title")
    assert "only" not in capsys.readouterr().out
    across(rows_of(4), OFTEN, ["model"], "size")
    printed = " ".join(capsys.readouterr().out.split())
    assert "(only 4 of 10 grids)" in printed and "A value marked “only” comes from less than 50 %" in printed
    run(small_study(trajectories=2), tmp_path / "run")
    shown = call("measure", tmp_path / "run", "--all")
    with Store(tmp_path / "run") as store:
        found = {(g.key["agent"], g.key["measure"]): g.estimate for g in estimate_rows(store.rows(), by=("agent",))}
    few = {key: one for key, one in found.items() if one.sparse}
    for (agent, measure), one in few.items():
        [line] = [line for line in shown.splitlines() if line.split()[:1] == [agent] and f" {measure}  " in line]
        assert f"only {one.clusters} of 12" in line
    assert few and "A value marked" in shown


def test_a_table_without_such_cells_says_nothing() -> None:
    assert not estimates_table("", [], [("agent", [estimate(5, 5)])]).notes


def test_a_curve_of_one_agent_among_several_names_it() -> None:
    alone = rows_of(4)
    other = Rows.from_rows([Row(measure="success", unit="share", value=1.0, cluster="g", tags={"agent": "other"})])
    for rows, title in (
        (alone, ">Excess JSD (5+ visits) by size<"),
        (Rows.concatenate([alone, other]), "size, model<"),
    ):
        [section] = sections_of(run_of(rows), "uncertainty")
        assert title in section.figures[0].svg


def test_a_map_of_few_grids_a_cell_says_so_once_and_keeps_its_numbers() -> None:
    def drawn(grids: int) -> tuple[str, int]:
        cells = [[estimate_mean([1.0] * grids, range(grids), unit="share", bounds=(0.0, 1.0))] * 6] * 5
        names = [str(at) for at in range(6)]
        chart = HeatMap(
            *(cells,), rows=names[:5], columns=names, title="t", row_label="r", column_label="c", bounds=(0.0, 1.0)
        )
        assert all(one["low"] == pytest.approx(cells[0][0].low, rel=1e-6) for one in chart.records)
        return chart.svg, len(chart.records)

    few, many = drawn(5), drawn(30)
    assert few[1] == many[1] == 30
    assert few[0].count("too few grids") == 1 and " to 1.00" not in few[0] and few[0].count(">1.00</text>") == 30
    assert "too few" not in many[0] and many[0].count(" to 1.00</text>") == 30


def test_a_failure_the_longest_and_a_success_of_agents_that_write(tmp_path: Path) -> None:
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 6}]
    study = small_study(worlds=worlds, trajectories=1, horizon={"steps": 20})
    measured(tmp_path, study, [Talker(), *study.agents()[:1]])
    with Store(tmp_path) as store:
        (told,) = sections_of(RunData.of(store), "transcripts")
        mine = [one for one in store.episodes() if one.agent == HOSTILE]
        page = write_report(store, tmp_path / "page.html").read_text()
    titles = [fold.title for fold in told.folds]
    assert all(HOSTILE in title for title in titles) and 2 <= len(titles) <= 3  # a scripted agent writes nothing
    failed, succeeded = ([one for one in mine if one.success is won] for won in (False, True))
    assert failed and succeeded and "first failure" in titles[0] and "first success" in titles[-1]
    longest = max(len(one.steps) for one in mine)
    assert any("longest" in title and f"{longest} steps" in title for title in titles)
    [text] = told.folds[0].code
    assert "verdict: invalid, no action (" in text and "  | <script>" in text and text.endswith("8 steps more")
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page


def test_agents_that_write_nothing_have_none(tmp_path: Path) -> None:
    measured(tmp_path, small_study(trajectories=1))
    with Store(tmp_path) as store:
        assert sections_of(RunData.of(store), "transcripts") == []


class Mute:
    """An agent whose every turn in some twentieths of all steps holds no action."""

    journalled = False

    def __init__(self, twentieths: int) -> None:
        self.name, self._silent = f"silent {twentieths}", twentieths

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "mute", "silent": self._silent}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [
            Turn(action=None, failure="no JSON")
            if observation.step % 20 < self._silent
            else Turn(action=Action(observation.step % 2))
            for observation in observations
        ]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = small_study(horizon={"steps": 20}, trajectories=1)
    return measured(tmp_path_factory.mktemp("run") / "mute", study, [Mute(share) for share in (0, 2, 3, 20)])


def test_agents_above_the_share_are_named_the_worst_first(directory: Path) -> None:
    with Store(directory) as store:
        lines = format_lines(episodes_by_agent(store))
        turns = [(step.action is None) for one in store.episodes() if one.agent == "silent 3" for step in one.steps]
    assert [line.partition(":")[0] for line in lines] == ["silent 20", "silent 3"]
    assert lines[0].startswith("silent 20: 100 % [") and "12 worlds" in lines[0]
    share = 100 * sum(turns) / len(turns)
    assert share > 100 * FORMAT_SHARE and f"silent 3: {share:.0f} % [" in lines[1]
    assert f"of {len(turns)} turns " in lines[1]
    assert all(stated("summary/mostly format", line, TEXTS) for line in lines)


def test_page_and_screen_begin_with_them(directory: Path, tmp_path: Path) -> None:
    with Store(directory) as store:
        lines = format_lines(episodes_by_agent(store))
        page = write_report(store, tmp_path / "report.html").read_text(encoding="utf-8")
    header = unescape(page.partition("<header>")[2].partition("</header>")[0])
    assert re.findall(r"<p>(.*)</p>", header)[:2] == lines
    shown = " ".join(call("measure", directory, "--measures", "success").split())
    assert shown.index("silent 20: 100 %") < shown.index("Estimates") and "silent 2:" not in shown
