"""Several models on the same worlds: one matrix, the differences that matter beside it, their notes."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from goalscope.report.blocks import Table
from goalscope.verdict import Difference, Evaluation, judging, page
from goalscope.verdict.claim_tables import side_by_side
from goalscope.verdict.compare import differences, differences_table
from goalscope.verdict.plan import LEDGER
from goalscope.verdict.texts import TEXTS

NAMES = ("optimal", "random", "epsilon-greedy(0.5)")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evaluation of three agents in grids of one size."""
    out = tmp_path_factory.mktemp("evaluations") / "three"
    call(
        "evaluate",
        "optimal",
        "random",
        "epsilon-greedy:epsilon=0.5",
        "--arms",
        "grids",
        "--sizes",
        7,
        "--quick",
        "--out",
        out,
    )
    return out


def test_the_matrix_has_a_row_a_question_and_a_column_a_model(place: Path) -> None:
    found = Evaluation.read(place / LEDGER)
    table = dict(page.named_of(place))["matrix-table-1"]
    assert isinstance(table, Table) and table.headings == ("question", *NAMES)
    assert [row[0].text for row in table.rows] == [claim.question for claim in found.models[0].claims]
    for row, claims in zip(table.rows, found.by_question(), strict=True):
        assert [cell.text for cell in row[1:]] == [claim.answer for claim in claims if claim is not None]
    directed = next(row for row in table.rows if row[0].text == TEXTS("claims/is directed at the goal/question"))
    claim = found.models[0].claim("is directed at the goal")
    assert claim is not None and directed[1].below.startswith(f"{claim.value:.3f} [") and directed[1].strong


def test_a_question_that_was_not_asked_of_a_model_says_so(place: Path) -> None:
    found = Evaluation.read(place / LEDGER)
    less = found.models[1].model_copy(update={"claims": found.models[1].claims[:1]})
    fewer = found.model_copy(update={"models": (found.models[0], less)})
    assert [claims[1] is None for claims in fewer.by_question()] == [False, *[True] * (len(found.models[0].claims) - 1)]
    [section] = side_by_side(fewer, dict.fromkeys([model.model for model in fewer.models], "evidence"))
    assert [row[2] == "not asked" for row in section.tables[0].rows][1:] == [True] * (len(found.models[0].claims) - 1)


def test_goal_directedness_is_compared_in_nats_and_is_the_difference_of_both(place: Path) -> None:
    found = Evaluation.read(place / LEDGER)
    by_pair = {(one.first, one.second): one for one in found.differences if one.unit == "nats"}
    assert len(by_pair) == 3
    evaluation, _ = judging.reopen(place)
    with judging.opened(evaluation) as runs:
        goals = [goal for name in NAMES for goal in runs["grids", name].goals.estimates]
    signed = {goal.agent: goal.signed for goal in goals if goal.hypothesis == "goal" and not goal.cell}
    for (first, second), one in by_pair.items():
        assert one.value == pytest.approx(signed[first] - signed[second], abs=1e-6)
        assert one.low < one.value < one.high
    assert by_pair["optimal", "random"].shown and by_pair["optimal", "random"].low > 0


def test_the_terminal_shows_all_models_whatever_its_width_and_the_differences_that_matter(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Evaluation.read(place / LEDGER)
    said = call("ledger", place)
    assert said.count("Side by side") == 1 and said.count(TEXTS("claims/is directed at the goal/question")) == 1
    shown = [one for one in found.differences if one.shown]
    assert shown and all(one.outcome in said for one in shown)
    others = len(found.differences) - len(shown)
    assert f"{others} further comparison" in said and "few clusters" in said
    from goalscope.cli import claims

    class Narrow:
        width = 80

    monkeypatch.setattr(claims, "console", Narrow)
    monkeypatch.setattr("goalscope.verdict.opening.SOON", 0)  # the claims were decided again just now
    assert call("ledger", place).count("Side by side") == 2, "two models at a time"


def test_a_note_stands_below_and_too_few_worlds_are_said(place: Path) -> None:
    evaluation, _ = judging.reopen(place)
    with judging.opened(evaluation) as runs:
        found = differences(NAMES, runs, 1e-6, lambda text: contextlib.nullcontext())
    assert all("cannot reach the level" in one.outcome for one in found if one.clusters < 20) and not any(
        one.shown for one in found
    )
    table = differences_table(found, "")
    marks: Any = [row[-1] for row in table.rows]
    assert all(bool(mark) == bool(one.note) for mark, one in zip(marks, found, strict=True)) and any(marks)
    assert any("few clusters" in line for line in table.notes)


def test_what_is_said_is_the_quantity_and_the_outcome() -> None:
    fields: dict[str, Any] = {"first": "A", "second": "B", "value": 1.0, "low": 0.5, "high": 2.0, "p": 0.01}
    one = Difference(**fields, rule="success (grids)", outcome="higher for A", clusters=9, unit="share")
    assert one.says == f"{one.rule}: {one.outcome}" and not one.shown


def test_one_model_alone_has_its_claims_and_no_matrix(tmp_path: Path) -> None:
    said = call("evaluate", "optimal", "--arms", "grids", "--sizes", 7, "--quick", "--out", tmp_path / "one")
    assert "Side by side" not in said and "optimal: claims with" in said
    assert not [name for name in page.named_of(tmp_path / "one") if "matrix" in name]
