"""The report of a run in task worlds: tables, success against errors, divergences, and example episodes."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from task_run_agents import TaskDice, task_study

from goalscope._ground.rng import stream
from goalscope.cli.measuring import measured_rows
from goalscope.cli.measuring import report as report_run
from goalscope.cli.overrides import load_study
from goalscope.measures.exploration import score as scoring
from goalscope.measures.exploration.errors import ONLY_EXPLORATION, PROGRESS_SHARE, divergences, log_relation
from goalscope.report import build_ledger, lay_out
from goalscope.report.sections.tasks import MOST_BANDS, error_tables, progress
from goalscope.report.texts import TEXTS
from goalscope.runs import Store, run
from goalscope.stats.rows import Row, Rows, Tag
from goalscope.verdict.preflight import study_files as studies
from measured_runs import run_of

TASK_STUDIES = ("demand", "explore-exploit", "harness", "semantic")


def made(values: dict[str, dict[str, tuple[float, float]]], error: str = "exploration error") -> Rows:
    """Return rows of success and error: agent -> map -> (success, error)."""
    rows = []
    for agent, maps in values.items():
        for grid, (success, share) in maps.items():
            for name, value in (("success", success), (error, share)):
                rows.append(
                    Row(
                        measure=name,
                        unit="share",
                        value=value,
                        cluster=grid,
                        episode_id=agent + grid,
                        tags={"agent": agent},
                    )
                )
    return Rows.from_rows(rows)


def test_r_squared_is_the_squared_correlation_and_agents_without_logarithm_are_named() -> None:
    rng = stream(5, "relation test")
    values = {
        f"agent {number}": {
            f"map {grid}": (float(rng.random() < 1 - number / 9), float(rng.uniform(0.01, 0.1) * (number + 1)))
            for grid in range(12)
        }
        for number in range(8)
    }
    values["perfect"] = {f"map {grid}": (1.0, 0.0) for grid in range(12)}
    values["never asked"] = {f"map {grid}": (0.0, math.nan) for grid in range(12)}
    rows = made(values)
    found = log_relation(rows, "exploration error", list(values))
    kept = [agent for agent in values if agent.startswith("agent")]
    assert found.agents == tuple(kept)
    assert found.left_out == {"perfect": "its error is exactly 0", "never asked": "no step called for it"}
    x = [math.log10(np.mean([share for _, share in values[agent].values()])) for agent in kept]
    y = [np.mean([success for success, _ in values[agent].values()]) for agent in kept]
    assert found.r_squared.value == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    assert (found.slope, found.intercept) == pytest.approx(tuple(np.polyfit(x, y, 1)))
    assert found.r_squared.has_interval and found.r_squared.clusters == 12
    assert log_relation(rows, "exploration error", list(values)) == found


def test_the_relation_of_two_agents_is_undefined_and_says_so() -> None:
    rows = made({name: {"a": (1.0, share), "b": (0.0, share)} for name, share in (("x", 0.1), ("y", 0.2))})
    found = log_relation(rows, "exploration error", ["x", "y"])
    assert math.isnan(found.slope) and math.isnan(found.r_squared.value) and "fewer than 3" in found.r_squared.note


def test_divergence_is_zero_for_equal_curves_and_found_where_it_was_planted() -> None:
    def curve(agent: str, grid: str, shares: list[float]) -> list[Row]:
        def row(name: str, value: float, **more: float) -> Row:
            tags: dict[str, Tag] = {"agent": agent, **more}
            return Row(measure=name, unit="share", value=value, cluster=grid, episode_id=agent + grid, tags=tags)

        return [row("success", 1.0), *(row(PROGRESS_SHARE, s, progress=(i + 1) / 10) for i, s in enumerate(shares))]

    rng = stream(6, "divergence test")
    rows = []
    for grid in map(str, range(20)):
        base = rng.uniform(0.2, 0.4, size=10)
        rows += curve("one", grid, base.tolist()) + curve("same", grid, base.tolist())
        late = base + np.where(np.arange(10) >= 6, 0.3, 0.0) + rng.uniform(-0.05, 0.05, size=10)
        rows += curve("late", grid, late.tolist())
    found = {(entry.first, entry.second): entry for entry in divergences(Rows.from_rows(rows), ["one", "same", "late"])}
    same, late_one = found["one", "same"], found["one", "late"]
    assert (same.maps, same.apart, same.begins) == (20, 0.0, None)
    assert late_one.begins == 7 and late_one.apart == pytest.approx(0.12, abs=0.02)
    assert late_one.tenths[9].value == pytest.approx(-0.3, abs=0.03)
    for tenth, (first, second) in enumerate(zip(*late_one.curves, strict=True)):
        assert first.value - second.value == pytest.approx(late_one.tenths[tenth].value)
        assert first.clusters == second.clusters == 20 and first.has_interval


def test_a_measured_run_becomes_a_page_with_all_its_parts(tmp_path: Path) -> None:
    agents = [
        {"kind": "task-greedy"},
        {"kind": "task-explore-first"},
        {"kind": "task-noisy-greedy", "epsilon": 0.2},
        {"kind": "task-noisy-greedy", "epsilon": 0.5},
        {"kind": "task-random-walk"},
    ]
    study = task_study(
        name="<script>alert(1)</script>",
        worlds=[{"kind": "task-map", "presets": ["low-small", "high-small", "low-medium", "high-medium"], "count": 2}],
        agents=agents,
        trajectories=1,
        analysis={"pairs": [["noisy-greedy(0.2)", "noisy-greedy(0.5)"], ["greedy", "not run"]]},
    )
    run(study, tmp_path)
    report_run(tmp_path, ledger=tmp_path / "ledger.json")
    text = (tmp_path / "report.html").read_text()
    anchors = re.findall(r'<section id="([^"]+)">', text)
    assert anchors == ["results", "pairs", "relation", "demand", "progress", "examples", "run"]
    folded = re.findall(r'<section><details class="folded">.*<div id="([^"]+)">', text)
    assert folded == ["undefined", "definitions", "numbers"]
    assert "<script>alert" not in text and "optimal policies" not in text
    assert "noisy-greedy(0.5) against noisy-greedy(0.2): success:" in text
    report_run(tmp_path, out=tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == text
    with Store(tmp_path) as store:
        rows = store.rows()
    for name in dict.fromkeys(rows.measure.tolist()):
        assert f">{name}</td>" in text
    assert "see where its rows were made" not in text


def test_twins_are_compared_with_each_other_and_never_averaged(tmp_path: Path) -> None:
    study = task_study(
        worlds=[{"kind": "cooking", "starts": 2}], agents=[{"kind": "task-greedy"}, {"kind": "task-random-walk"}]
    )
    run(study, tmp_path)
    report_run(tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "Success and errors – semantic names" in text and "Success and errors – symbolic names" in text
    # Greedy reads no names: nothing differs between twins.
    assert "greedy, semantic against greedy, symbolic: success: the same on each of 4 maps" in text


def test_prompts_are_tabled_by_their_sentence(tmp_path: Path) -> None:
    class Told(TaskDice):
        @property
        def tags(self) -> dict[str, str]:
            return {"prompt": self.name}

        def describe(self) -> dict[str, object]:
            return {"kind": "task-chat", "name": self.name, "model": {"model": "dice"}}

    agents = [Told(name=name) for name in ("exploration", "base")]
    run(task_study(), tmp_path, agents=agents)
    report_run(tmp_path)
    text = (tmp_path / "report.html").read_text()
    table = text[text.index("dice by strategy sentence") :]
    assert table.index(">base<") < table.index(">exploration<")


def test_pooled_ratios_and_those_of_valid_moves_stand_with_their_counts(tmp_path: Path) -> None:
    run(task_study(), tmp_path, agents=[TaskDice()])
    rows = measured_rows(tmp_path)
    with Store(tmp_path) as store:
        episodes = list(store.episodes())
    pooled, valid = error_tables(rows, build_ledger(rows, agents=["dice"]), ["dice"], {}, suffix="", noun="map")
    summaries = [scoring.score_recorded(episode).summary for episode in episodes]
    for offset, kind in enumerate(("exploration", "exploitation")):
        for shown, first, prefix in ((pooled, 2 * offset, ""), (valid, 3 * offset + 1, "valid_")):
            errors = sum(getattr(summary, f"{prefix}{kind}_errors") for summary in summaries)
            steps = sum(getattr(summary, f"{prefix}{kind}_steps") for summary in summaries)
            _, *cells = shown.rows[0]
            assert cells[first].value == f"{errors / steps:.3f}" and cells[first + 1].value == f"{errors:,} / {steps:,}"
            if kind == "exploration":  # the other kind was called for on one of the three maps only
                assert cells[first].interval.startswith("[") and "3 maps, n = 6" in cells[first].hint
    assert pooled.caption == TEXTS("tasks/pooled", noun="map")
    assert valid.caption == TEXTS("tasks/of valid moves", noun="map")
    assert any(summary.invalid_actions for summary in summaries)
    only = [row for row in rows if not row.measure.endswith("of valid moves")]
    same = [replace(row, measure=f"{row.measure} of valid moves") for row in only]
    clean = Rows.from_rows([*only, *same])
    (alone,) = error_tables(clean, build_ledger(clean, agents=["dice"]), ["dice"], {}, suffix="", noun="map")
    assert alone == pooled, "without an invalid action the second table would say the same"


def test_steps_have_no_interval_below_zero(tmp_path: Path) -> None:
    study = task_study(agents=[{"kind": "task-random-walk"}, {"kind": "task-greedy"}])
    run(study, tmp_path)
    ledger = build_ledger(measured_rows(tmp_path), agents=["random-walk", "greedy"])
    found = [grouped.estimate for grouped in ledger.tables["agent"].listed if grouped.estimate.unit == "steps"]
    assert len(found) > 10 and all(not estimate.low < 0 for estimate in found)


@pytest.mark.full
def test_strategies_with_and_without_the_summary_are_never_averaged(tmp_path: Path) -> None:
    class Told(TaskDice):
        @property
        def tags(self) -> dict[str, Tag]:
            return {"prompt": self.name.split()[0], "memory": self.name.endswith("memory")}

        def describe(self) -> dict[str, object]:
            return {"kind": "task-chat", "name": self.name, "model": {"model": "dice"}}

    agents = [Told(name=f"{name}{after}") for name in ("base", "balance") for after in ("", " memory")]
    run(task_study(), tmp_path, agents=agents)
    report_run(tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "dice by strategy sentence" in text and "dice with the memory summary by strategy sentence" in text
    assert text.count('aria-label="Exploration error of dice by strategy sentence"') == 2


@pytest.mark.parametrize("agents", [2, 7])
def test_figures_of_many_agents_are_drawn_without_bands_and_tabled(agents: int) -> None:
    rows = []
    for number in range(agents):
        for grid in ("a", "b", "c"):
            tags: dict[str, Tag] = {"agent": f"agent {number}"}
            one = {"unit": "share", "cluster": grid, "episode_id": f"{number}{grid}"}
            rows.append(Row(measure="success", value=1.0, tags=tags, **one))  # type: ignore[arg-type]
            for tenth in range(1, 11):
                of = {**tags, "progress": tenth / 10}
                share = (number + len(grid) + ord(grid) % 3) / 20
                rows.append(Row(measure=PROGRESS_SHARE, value=share, tags=of, **one))  # type: ignore[arg-type]
                rows.append(Row(measure=ONLY_EXPLORATION, value=1 - share, tags=of, **one))  # type: ignore[arg-type]
    found = Rows.from_rows(rows)
    (section,) = lay_out(progress(run_of(found)))
    banded = "fill-opacity" in section.figures[0].svg
    assert banded == (agents <= MOST_BANDS) and ("drawn without" in section.legend) == (not banded)
    assert "Exploration-only steps (Fig. 4a)" in section.figures[1].svg
    (tables,) = (fold.tables for fold in section.folds if fold.tables)
    assert len(tables) == 2
    for table in tables:
        assert len(table.rows) == agents and all(cell.interval for _, *cells, _ in table.rows for cell in cells)
    first, second = ([cell.estimate.value for _, *cells, _ in table.rows for cell in cells] for table in tables)
    assert [1 - value for value in first] == pytest.approx(second)


@pytest.mark.parametrize("name", TASK_STUDIES)
def test_the_shipped_studies_are_sound_and_declare_agents_that_they_have(name: str) -> None:
    assert name in studies.names()
    study = load_study(name)
    names = {agent.name for agent in study.agents()} | {entry.build().name for entry in study.further_agents_}
    assert "horizon" not in study.dump() and study.further_agents_
    for pair in study.analysis.pairs if study.analysis else ():
        assert set(pair) <= names
    sizes = {"demand": (160, 3), "explore-exploit": (27, 1), "harness": (27, 1), "semantic": (40, 1)}
    assert (study.size().worlds, study.trajectories) == sizes[name]
    if name == "explore-exploit":
        prompts = {agent.tags["prompt"] for entry in study.further_agents_ if hasattr(agent := entry.build(), "tags")}
        assert prompts == {"base", "exploration", "exploitation", "balance"}


def test_more_noise_makes_more_error_on_the_main_maps(tmp_path: Path) -> None:
    noisy = [{"kind": "task-noisy-greedy", "epsilon": epsilon} for epsilon in (0.0, 0.2, 0.5, 1.0)]
    study = task_study(
        agents=noisy,
        worlds=[{"kind": "task-map", "presets": ["low-small", "medium-medium"], "count": 6}],
    )
    run(study, tmp_path)
    rows = measured_rows(tmp_path)
    errors = rows.select(measure="exploration error")
    means = [errors.select(agent=agent.name).value.mean() for agent in study.agents()]
    assert means[0] == 0 and all(low < high for low, high in pairwise(means))
