"""The tables and figures of the paper: same rows, known answers, every number with its counts, nothing disappears."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope.cli.overrides import StudyOptions, load_study
from goalscope.measures import measure_episodes
from goalscope.measures.exploration import score_fogged_episode
from goalscope.report import AgentGroups, Declared, RunData, definition_of, sections_of
from goalscope.report.blocks import Table
from goalscope.report.definitions import KEY_POOLED, KEY_STEPWISE
from goalscope.report.sections.behaviour import FIGURE_12, WASTE
from goalscope.runs import Store, run

Run = tuple[Path, RunData]


def made(folder: Path, name: str, **changes: Any) -> Run:
    study = load_study(name, StudyOptions(**changes))
    run(study, folder)
    with Store(folder, "w") as store:
        store.put_rows(measure_episodes(store.episodes()), source="behaviour")
    with Store(folder) as store:
        return folder, RunData.of(store)


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "rooms"
    return made(folder, "key-door", count=12, agents="key-lured;optimal;wrong-goal(top-right);random")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made(tmp_path_factory.mktemp("runs") / "paths", "two-path", count=16, agents="key-lured;optimal")


@pytest.fixture(scope="module")
def fog(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "fog"
    return made(folder, "fog", count=2, agents="forgetful(0.3, 6);optimal;random")


@pytest.fixture(scope="module")
def grids(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "grids"
    changes = {"sizes": (7, 9), "densities": (0.0, 1.0), "count": 3, "trajectories": 3}
    return made(folder, "baseline", agents="epsilon-greedy(0.3);optimal", **changes)


def cells(table: Table) -> dict[str, list[str]]:
    return {label: [cell.value for cell in shown] for label, *shown in table.rows}


def test_table_1_has_the_papers_rows_and_the_known_answers(rooms: Run) -> None:
    _, data = rooms
    (section,) = sections_of(data, "goals")
    lured, _ = section.tables
    assert lured.caption == "key-lured" == data.groups.subjects[0]
    shown = cells(lured)
    assert list(shown) == [
        "Success",
        "Action accuracy",
        "Accuracy to the key",
        "Accuracy to the door",
        "Accuracy to the goal",
        "Key pickup",
        "Key attraction bias",
        "Errors towards the key",
        "Trajectories",
        "Grids",
    ]
    assert list(lured.headings[1:]) == [
        "KeyDoorEnv",
        "KeyNoDoorEnv, with key",
        "KeyNoDoorEnv, control without key",
    ]
    assert shown["Success"] == ["1.000"] * 3 and shown["Grids"] == ["12"] * 3
    assert shown["Key attraction bias"] == ["–", "1.000", "undefined"]
    assert shown["Errors towards the key"][2] == "0.000" and float(shown["Errors towards the key"][1]) > 0.2
    assert shown["Accuracy to the key"] == ["1.000", "–", "–"] and shown["Key pickup"][:2] == ["1.000", "1.000"]
    known = {table.caption: cells(table) for table in section.folds[1].tables if table.units}
    assert known["optimal"]["Key attraction bias"] == ["–", "undefined", "undefined"]
    # In one of the twelve worlds the goal stands in that corner.
    assert known["wrong-goal(top-right)"]["Success"] == ["0.083"] * 3
    assert float(known["wrong-goal(top-right)"]["Action accuracy"][1]) < 0.5


def test_every_cell_carries_its_counts_and_method(rooms: Run, paths: Run, fog: Run, grids: Run) -> None:
    sections: list[Declared] = []
    for (_, data), name in ((rooms, "goals"), (paths, "goals"), (fog, "fog"), (grids, "figures 4 and 12")):
        sections += sections_of(data, name)
    seen = 0
    for section in sections:
        for table in (*section.tables, *(table for fold in section.folds for table in fold.tables)):
            for label, *shown in table.rows if table.units else ():
                for cell in shown:
                    plain = label in ("Trajectories", "Grids") or cell is shown[-1]
                    if not plain and cell.value not in ("–",):
                        seen += 1
                        assert re.search(r"\d+ grids?, n = \d+, ", cell.hint) or "no non-optimal action" in cell.hint
                        assert cell.interval or cell.note or cell.value == "undefined"
    assert seen > 150


def test_the_control_is_compared_pair_by_pair_and_nothing_disappears(rooms: Run, paths: Run) -> None:
    for (_, data), measures in ((rooms, 5), (paths, 7)):
        (section,) = sections_of(data, "goals")
        plain = section.tables[-1]
        column = {
            name: plain.headings.index(name) for name in ("measure", "first − second", "p / Holm", "grids", "notes")
        }
        marked = dict(line.split(": ", 1) for line in plain.notes)
        assert len(plain.rows) == measures and f"all {measures} tests" in plain.caption
        by = {row[0]: row for row in plain.rows}
        undefined = by["Key attraction bias by grid"]
        assert undefined[column["grids"]] == "0" and undefined[column["first − second"]] == "undefined"
        said = [marked[mark] for mark in undefined[column["notes"]].split(", ")]
        assert any("never rejected" in text for text in said)
        assert any("no common grid" in text for text in said) and "method: no interval, no test" in said
        success = by["Success"]
        assert success[column["first − second"]] == "0.000"
        assert any("no variance between clusters" in marked[mark] for mark in success[column["notes"]].split(", "))
    lure = by["Key path taken"]
    assert float(lure[column["first − second"]]) > 0.2 and lure[column["p / Holm"]].split(" / ")[1] < "0.05"


def test_the_choice_of_path_stands_in_the_lower_half(paths: Run) -> None:
    _, data = paths
    (section,) = sections_of(data, "goals")
    lured, optimal = cells(section.tables[0]), cells(section.folds[1].tables[0])
    assert lured["Key path taken"][0] == "1.000" and lured["Key pickup"][0] == "1.000"
    low, high = section.folds[1].tables[0].rows[list(optimal).index("Key path taken")][1].interval[1:-1].split(", ")
    assert float(low) < 0.5 < float(high)
    assert float(lured["Jaccard similarity of pairs"][0]) < 1 and lured["Jaccard similarity of pairs"][1] == "–"


def test_the_pooled_bias_is_a_ratio_of_sums(rooms: Run) -> None:
    _, data = rooms
    mine = data.rows.select(measure=KEY_STEPWISE, agent="random", kind="key-no-door", control=False)
    found = data.ledger.find("agent", KEY_POOLED, agent="random", kind="key-no-door", control=False)
    assert found is not None and found.value == pytest.approx(mine.value.mean())
    assert (found.n, found.clusters) == (len(mine), len(set(mine.cluster)))


def test_the_arms_under_fog(fog: Run) -> None:
    _, data = fog
    (section,) = sections_of(data, "fog")
    table, tests = section.tables
    shown = cells(table)
    assert list(shown) == ["forgetful(0.3, 6)", "optimal", "random"]
    columns = table.headings[1:]
    for name in ("Redundant backtracking", "Known dead ends", "Repeated bumps"):
        values = {agent: float(shown[agent][columns.index(name)]) for agent in shown}
        assert values["optimal"] == 0 < values["forgetful(0.3, 6)"] < values["random"]
    assert len(tests.rows) == 2 * 4 and "forgetful(0.3, 6) against every other agent" in tests.caption
    assert all(definition_of(name) for name in WASTE)


def test_the_errors_under_fog_stand_in_a_section_of_their_own(fog: Run) -> None:
    folder, data = fog
    (section,) = sections_of(data, "errors under fog")
    means, pooled, valid = section.tables
    shown = cells(means)
    assert list(shown) == ["forgetful(0.3, 6)", "optimal", "random"]
    assert shown["optimal"][:2] == ["0.000", "0.000"] and float(shown["forgetful(0.3, 6)"][0]) > 0
    assert float(shown["forgetful(0.3, 6)"][0]) < float(shown["random"][0])
    with Store(folder) as store:
        summaries = [score_fogged_episode(e).summary for e in store.episodes() if e.agent == "random"]
    for table, offset, prefix in ((pooled, 0, ""), (valid, 1, "valid_")):
        errors = sum(getattr(summary, f"{prefix}exploration_errors") for summary in summaries)
        steps = sum(getattr(summary, f"{prefix}exploration_steps") for summary in summaries)
        assert cells(table)["random"][offset : offset + 2] == [f"{errors / steps:.3f}", f"{errors:,} / {steps:,}"]
    assert "pooled" in pooled.caption and "mean over" in means.caption
    names = {name for name in data.ledger.measures if name.endswith(" under fog")}
    assert len(names) == 12 and all(definition_of(name) for name in names)


def test_models_are_told_with_the_history_that_they_are_shown(fog: Run) -> None:
    _, data = fog
    arms = AgentGroups(models=("random",), scripted=("forgetful(0.3, 6)", "optimal"), history={"random": "reasoning"})
    (section,) = sections_of(replace(data, groups=arms), "fog")
    assert section.tables[0].rows[0][0] == "random (whole conversation with reasoning)"
    assert arms.others == arms.scripted and arms.subjects == ("random",)


def test_figures_4_and_12_hold_the_means_over_grids(grids: Run) -> None:
    _, data = grids
    four, twelve = sections_of(data, "figures 4 and 12")
    assert (
        four.title.startswith("Accuracy by size") and len(four.figures) == 2 and len(twelve.figures) == len(FIGURE_12)
    )
    tables = {table.caption: cells(table) for fold in twelve.folds for table in fold.tables}
    shown = tables["Success (share) of epsilon-greedy(0.3)"]
    assert list(shown) == ["7", "9"]
    mine = data.rows.select(measure="success", agent="epsilon-greedy(0.3)", size=9, density=1.0)
    by_grid = [mine.value[mine.cluster == grid].mean() for grid in sorted(set(mine.cluster.tolist()))]
    assert float(shown["9"][1]) == pytest.approx(np.mean(by_grid), abs=5e-4) and len(by_grid) == 3
    near = {table.caption: cells(table) for fold in four.folds for table in fold.tables}
    by_size = near["Accuracy (share) of optimal by size and distance to the goal in steps"]
    assert {value for line in by_size.values() for value in line} <= {"1.000", "–"}
