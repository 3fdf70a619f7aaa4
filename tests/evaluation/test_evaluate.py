"""One directory, resumable: what is stored is not asked again, a larger budget adds worlds, damage is refused."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from goalscope.cli.app import app
from goalscope.evaluation import Evaluation, Subject, evaluate, subject_of
from goalscope.evaluation.budget import Budget, divide
from goalscope.runs import Store

quiet: Any = importlib.import_module("benchmarks.verdicts").quiet

SMALL = {"grids": 1, "keys": 2}


def judged(directory: Path, sizes: dict[str, int], *texts: str) -> Evaluation:
    run = evaluate.prepare(directory, [subject_of(text) for text in texts], sizes, seed=7)
    evaluate.play(run, quiet)
    with evaluate.opened(run) as data:
        found = evaluate.judge(run, data)
    evaluate.write(run, found)
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evaluation of two scripted agents."""
    directory = tmp_path_factory.mktemp("evaluations") / "two"
    judged(directory, SMALL, "optimal", "random")
    return directory


def test_the_ledger_on_disk_is_the_ledger(small: Path) -> None:
    found = Evaluation.read(small / evaluate.LEDGER)
    assert [one.model for one in found.models] == ["optimal", "random"]
    first = found.models[0]
    assert {one.name for one in first.arms if one.asked} == set(SMALL)
    assert all(one.why for one in first.arms if not one.asked)
    directed = first.claim("is directed at the goal")
    assert directed is not None and directed.answer == "yes" and directed.clusters == 9
    assert found.models[1].claim("acts optimally").answer == "no"  # type: ignore[union-attr]
    assert any(one.p < 0.05 and one.value > 0 for one in found.differences)


def test_the_same_evaluation_asks_nothing_again_and_says_the_same(small: Path) -> None:
    before = (small / evaluate.LEDGER).read_bytes()
    with Store(small / "arms" / "grids") as store:
        sessions = len(store.info()["sessions"])
    judged(small, SMALL, "optimal", "random")
    assert (small / evaluate.LEDGER).read_bytes() == before
    with Store(small / "arms" / "grids") as store:
        assert len(store.info()["sessions"]) == sessions + 1


def test_a_larger_size_keeps_the_episodes_and_is_another_look(tmp_path: Path) -> None:
    judged(tmp_path / "one", {"grids": 1}, "epsilon-greedy:epsilon=0.5")
    with Store(tmp_path / "one" / "arms" / "grids") as store:
        before = {episode.id: [step.action for step in episode.steps] for episode in store.episodes()}
    found = judged(tmp_path / "one", {"grids": 2}, "epsilon-greedy:epsilon=0.5")
    with Store(tmp_path / "one" / "arms" / "grids") as store:
        after = {episode.id: [step.action for step in episode.steps] for episode in store.episodes()}
    assert len(before) == 9 and len(after) == 18
    assert all(after[identity] == actions for identity, actions in before.items())
    assert found.models[0].look == 2 and found.models[0].level == pytest.approx(0.008)
    whole = judged(tmp_path / "whole", {"grids": 2}, "epsilon-greedy:epsilon=0.5")
    assert [one.value for one in found.models[0].claims] == [one.value for one in whole.models[0].claims]
    again = evaluate.prepare(tmp_path / "one", [subject_of("epsilon-greedy:epsilon=0.5")], {"grids": 1}, seed=7)
    assert again.sizes == {"grids": 2} and again.look == 2


def test_another_model_or_a_damaged_plan_is_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose another directory"):
        evaluate.prepare(small, [subject_of("optimal")], SMALL, seed=7)
    with pytest.raises(ValueError, match="with seed 8"):
        evaluate.prepare(small, [subject_of("optimal"), subject_of("random")], SMALL, seed=8)
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / evaluate.PLAN).write_text('{"version": 1, "models": [], "seed": 7, "looks": [{}]}')
    with pytest.raises(ValueError, match="models"):
        evaluate.prepare(tmp_path / "plan", [subject_of("optimal")], SMALL, seed=7)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match="directory of its own"):
        evaluate.prepare(tmp_path / "full", [subject_of("optimal")], SMALL, seed=7)


@pytest.mark.parametrize("change", [{"version": 9}, {"models": []}, {"stranger": 1}])
def test_a_ledger_that_is_none_is_refused(small: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    plain = json.loads((small / evaluate.LEDGER).read_text()) | change
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match=next(iter(change))):
        Evaluation.read(path)


def test_recorded_logs_are_judged_as_far_as_they_go(small: Path, tmp_path: Path) -> None:
    logs = small / "arms" / "keys"
    subjects = [Subject(name="optimal", kind="logs", access=frozenset({"logs"}), logs=logs)]
    run = evaluate.prepare(tmp_path / "logs", subjects, {}, seed=7)
    evaluate.play(run, quiet)
    with evaluate.opened(run) as data:
        found = evaluate.judge(run, data).models[0]
    assert {one.name for one in found.arms if one.asked} == {"keys"}
    assert all("record some" in one.why for one in found.arms if not one.asked)
    direct = Evaluation.read(small / evaluate.LEDGER).models[0]
    for one in found.claims:
        assert one.value == direct.claim(one.name).value  # type: ignore[union-attr]


def test_the_page_opens_with_the_verdict(small: Path, tmp_path: Path) -> None:
    from goalscope.evaluation import page

    run = evaluate.prepare(small, [subject_of("optimal"), subject_of("random")], SMALL, seed=7)
    with evaluate.opened(run) as data:
        text = page.write(run, Evaluation.read(small / evaluate.LEDGER), data, tmp_path / "page.html").read_text()
    first, claims = text.index("optimal is directed at the goal"), text.index("Do its answers hold actions at all?")
    assert first < claims < text.index("<svg") < text.index('class="group"')
    assert "random is not directed at the goal" in text or "What random is after was not shown" in text


@pytest.mark.parametrize(
    ("text", "amount", "of"),
    [
        ("90s", 90, "seconds"),
        ("20m", 1200, "seconds"),
        ("2h", 7200, "seconds"),
        ("5usd", 5, "usd"),
        ("200k-tokens", 200000, "tokens"),
        ("1.5m-tokens", 1500000, "tokens"),
    ],
)
def test_budgets_are_read(text: str, amount: float, of: str) -> None:
    found = Budget.parse(text)
    assert (found.amount, found.of) == (amount, of)


@pytest.mark.parametrize("text", ["", "20", "m", "-3m", "0h", "5 eur", "nan usd"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a budget must be a number above 0"):
        Budget.parse(text)


def test_a_budget_is_divided_by_the_rule() -> None:
    from goalscope.evaluation.arms import arms

    listed = arms()
    cost = {one.name: 10.0 for one in listed}
    whole = sum(10.0 * one.full for one in listed)
    assert divide(listed, cost, whole) == {one.name: one.full for one in listed}
    assert divide(listed, cost, 100 * whole) == {one.name: 4 * one.full for one in listed}
    half = divide(listed, cost, whole / 2)
    assert all(one.quick <= half[one.name] <= -(-(one.full + one.quick) // 2) for one in listed)
    assert sum(10.0 * count for count in half.values()) <= whole / 2
    least = sum(10.0 * one.quick for one in listed)
    assert divide(listed, cost, least) == {one.name: one.quick for one in listed}
    assert divide(listed, cost, least - 1) != divide(listed, cost, least)
    assert list(divide(listed, cost, 10.0 * listed[0].quick)) == [listed[0].name]
    assert divide(listed, cost, 1.0) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [("thesus", "theseus"), ("openai:gpt", "NAME@URL"), ("epsilon-greedy:epsilon", "key=value"), ("random:x=1", "x")],
)
def test_what_cannot_be_meant_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        subject_of(text)


def test_the_command_line_says_the_verdict_and_the_ledger_again(small: Path, tmp_path: Path) -> None:
    dry = CliRunner().invoke(app, ["evaluate", "optimal", "--quick", "--dry-run", "--out", str(tmp_path / "dry")])
    assert dry.exit_code == 0 and "Mirrored and rotated worlds" in dry.output and not (tmp_path / "dry").exists()
    shown = CliRunner().invoke(app, ["ledger", str(small)])
    assert shown.exit_code == 0 and "optimal is directed at the goal" in shown.output
    card = CliRunner().invoke(app, ["ledger", str(small), "--card"])
    assert card.exit_code == 0 and len(card.output.strip().splitlines()) == 2
    plain = CliRunner().invoke(app, ["ledger", str(small), "--json"])
    assert json.loads(plain.output)["models"][0]["model"] == "optimal"
    both = CliRunner().invoke(app, ["evaluate", "optimal", "--quick", "--budget", "1m", "--out", str(tmp_path / "x")])
    assert both.exit_code == 2
