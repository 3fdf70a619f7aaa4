"""The golden figures of the engine for goals, recomputed; to the last bit they are those of the command alone."""

import math
from pathlib import Path

import golden_figures
import pytest
from golden_figures import CLOSE, Figures, counts, differences, figures_of_goals, read, to_text
from golden_runs import MAKERS, make_runs

CHANGED = ("estimates", ("grids", "as evaluated", "noisy", "phase trained", "goal"), "signed")
"""Kind, key and field of one value of the golden figures."""


@pytest.fixture(scope="module")
def golden() -> Figures:
    return read()


def test_figures_are_the_recorded_ones(golden: Figures, tmp_path: Path) -> None:
    found = figures_of_goals(make_runs(tmp_path))
    assert list(differences(golden, found, CLOSE)) == []


def test_the_recorded_figures_hold_enough_with_their_intervals(golden: Figures) -> None:
    assert counts(golden)["estimates"] >= 60 and counts(golden)["contrasts"] >= 40
    runs = set(MAKERS)
    assert {key[0] for key in golden["estimates"]} == {key[0] for key in golden["findings"]} == runs
    assert {key[0] for key in golden["verdicts"]} == runs - {"log"}  # a log with one answer has no verdict of the score
    assert {record["kind"] for record in golden["verdicts"].values()} >= {"named", "set", "random", "undecided"}


def test_figures_are_read_as_they_were_written(golden: Figures, tmp_path: Path) -> None:
    (tmp_path / "again.json").write_text(to_text(golden), encoding="utf-8")
    assert list(differences(golden, read(tmp_path / "again.json"))) == []


def test_the_last_bit_is_a_difference_and_within_the_tolerance_none(golden: Figures) -> None:
    kind, key, field = CHANGED
    value = golden[kind][key][field]
    assert isinstance(value, float)

    def found(changed: float) -> list[list[str]]:
        figures = {**golden, kind: {**golden[kind], key: {**golden[kind][key], field: changed}}}
        return [list(differences(golden, figures, tolerance)) for tolerance in (0.0, CLOSE)]

    exact, close = found(math.nextafter(value, math.inf))
    assert len(exact) == 1 and " | ".join(key) in exact[0] and close == []
    assert all(len(lines) == 1 for lines in found(value * 1.001))
    fewer = {kind: {other: record for other, record in golden[kind].items() if other != key}}
    assert len(list(differences(golden, fewer))) == 1 and len(list(differences({kind: {}}, fewer))) == len(fewer[kind])


def test_the_command_ends_with_one_where_a_figure_differs(
    golden: Figures, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, key, field = CHANGED
    changed = {**golden, kind: {**golden[kind], key: {**golden[kind][key], field: 0.0}}}
    monkeypatch.setattr(golden_figures, "make_runs", lambda folder: {})
    monkeypatch.setattr(golden_figures, "ENGINES", {"goals": lambda runs: golden, "other": lambda runs: changed})
    assert golden_figures.main(["--compare"]) == 0
    assert golden_figures.main(["--compare", "--engine", "other", "--kinds", "contrasts"]) == 0
    assert golden_figures.main(["--compare", "--engine", "other"]) == 1
    assert "1 differences" in capsys.readouterr().out
