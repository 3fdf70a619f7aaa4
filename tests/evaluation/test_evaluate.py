"""One directory, resumable: what is stored is not asked again, a larger budget adds worlds, damage is refused."""

import contextlib
import importlib
import json
import re
import shutil
import sqlite3
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import PLAIN_TEMPLATE, llama, tokenizer
from typer.testing import CliRunner

import goalscope
from command_line import call
from goalscope._ground.progress import aloud
from goalscope._ground.registry import resolve
from goalscope.cli import app, claims
from goalscope.goals.finding import say
from goalscope.report.blocks import Table
from goalscope.report.exports import drawn
from goalscope.runs import Store, content_hash
from goalscope.stats.rows import Row, Rows
from goalscope.verdict import Evaluation, Subject, judging, sizing, subject_of
from goalscope.verdict.arms import Arm, arms
from goalscope.verdict.claims import runs_in, worlds_to_decide
from goalscope.verdict.evidence import ArmRun
from goalscope.verdict.failures import Failures
from goalscope.verdict.opening import Checked
from goalscope.verdict.plan import LEDGER, PLAN, Plan, prepare
from goalscope.verdict.playing import play
from goalscope.verdict.sentences import headline
from goalscope.verdict.sizing import ArmRequest, Budget, divide
from goalscope.verdict.texts import TEXTS
from planted_findings import stated

quiet: Any = importlib.import_module("benchmarks.verdicts").quiet

SMALL = {"grids": 2, "keys": 2}


def judged(directory: Path, sizes: dict[str, int], *texts: str) -> Evaluation:
    run = prepare(directory, [subject_of(text) for text in texts], sizes, seed=7)
    play(run, quiet)
    with judging.opened(run) as data:
        found = judging.judge(run, data)
    judging.write(run, found)
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evaluation of two scripted agents."""
    directory = tmp_path_factory.mktemp("evaluations") / "two"
    judged(directory, SMALL, "optimal", "random")
    return directory


@pytest.fixture(scope="module")
def text(small: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of that evaluation."""
    from goalscope.verdict import page

    run = prepare(small, [subject_of("optimal"), subject_of("random")], SMALL, seed=7)
    with judging.opened(run) as data:
        out = tmp_path_factory.mktemp("pages") / "page.html"
        return page.write(Evaluation.read(small / LEDGER), data, out).read_text()


@pytest.fixture(scope="module")
def named(small: Path) -> dict[str, Any]:
    """What its page shows, by name, made again from the directory."""
    from goalscope.verdict import page

    return dict(page.named_of(small))


def test_the_ledger_on_disk_is_the_ledger(small: Path) -> None:
    found = Evaluation.read(small / LEDGER)
    assert [one.model for one in found.models] == ["optimal", "random"]
    first = found.models[0]
    assert {one.name for one in first.arms if one.asked} == set(SMALL)
    assert all(one.why for one in first.arms if not one.asked)
    directed = first.claim("is directed at the goal")
    assert directed is not None and directed.answer == "yes" and 6 <= directed.clusters <= 18  # those that tell apart
    (aim,) = first.findings
    assert (aim.answer, aim.names, aim.worlds) == ("yes", ("goal",), 18)
    assert aim.estimate is not None and (directed.value, directed.threshold) == (aim.estimate.value, aim.threshold)
    assert found.models[1].claim("acts optimally").answer == "no"  # type: ignore[union-attr]
    assert any(one.p < 0.05 and one.value > 0 for one in found.differences)


def test_a_verdict_that_rests_on_few_worlds_says_so(small: Path) -> None:
    ledger = Evaluation.read(small / LEDGER).models[0]
    assert stated("verdict/few worlds", headline(ledger)) and "20" in headline(ledger)
    many = [one.model_copy(update={"worlds": one.worlds * 5}) for one in ledger.findings]
    assert not stated("verdict/few worlds", headline(ledger.model_copy(update={"findings": tuple(many)})))


def test_the_same_evaluation_asks_nothing_again_and_says_the_same(small: Path) -> None:
    before = (small / LEDGER).read_bytes()
    with Store(small / "arms" / "grids") as store:
        sessions = len(store.info()["sessions"])
    judged(small, SMALL, "optimal", "random")
    assert (small / LEDGER).read_bytes() == before
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
    again = prepare(tmp_path / "one", [subject_of("epsilon-greedy:epsilon=0.5")], {"grids": 1}, seed=7)
    assert again.plan.sizes == {"grids": 2} and again.plan.look == 2


def test_another_model_or_a_damaged_plan_is_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose another directory"):
        prepare(small, [subject_of("optimal")], SMALL, seed=7)
    with pytest.raises(ValueError, match="seed 7 stored, not given; seed 8 given"):
        prepare(small, [subject_of("optimal"), subject_of("random")], SMALL, seed=8)
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / PLAN).write_text('{"version": 1, "models": [], "seed": 7, "looks": [{}]}')
    with pytest.raises(ValueError, match=r"version 4.*got 1.*another directory"):
        prepare(tmp_path / "plan", [subject_of("optimal")], SMALL, seed=7)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match="directory of its own"):
        prepare(tmp_path / "full", [subject_of("optimal")], SMALL, seed=7)


@pytest.mark.parametrize("change", [{"version": 1}, {"models": []}, {"stranger": 1}])
def test_a_ledger_that_is_none_is_refused(small: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    plain = json.loads((small / LEDGER).read_text()) | change
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match=next(iter(change))):
        Evaluation.read(path)


@pytest.mark.parametrize(
    ("tags", "found"), [([{}], False), ([{"transform": "swap"}], False), ([{}, {"transform": "swap"}], True)]
)
def test_logs_tell_of_an_arm_whose_worlds_differ_in_a_tag_that_they_have(
    tags: list[dict[str, Any]], found: bool
) -> None:
    rows = [Row(measure="success", unit="share", value=1.0, cluster="g", tags={"agent": "A", **one}) for one in tags]
    none: Any = Rows.from_rows([])
    run = ArmRun(store=none, rows=Rows.from_rows(rows), probed=none, changed=none, confidence=0.95)
    assert run.has_agent("A", "transform") is found and run.has_agent("A") and not run.has_agent("B")


def test_an_edited_ledger_or_plan_is_refused_and_evaluating_again_mends_the_ledger(small: Path, tmp_path: Path) -> None:
    place = shutil.copytree(small, tmp_path / "one")
    ledger, plan = place / LEDGER, place / PLAN
    sound = ledger.read_text()
    ledger.write_text(sound.replace('"answer": "yes"', '"answer": "no"', 1))
    with pytest.raises(ValueError, match=r"ledger\.json.*changed since.*goalscope evaluate"):
        Evaluation.read(ledger)
    said = call("ledger", place, status=2)
    assert "changed since" in said and "is directed" not in said
    judged(place, SMALL, "optimal", "random")
    assert ledger.read_text() == sound
    plan.write_text(plan.read_text().replace('"keys": 2', '"keys": 1'))
    with pytest.raises(ValueError, match=r"evaluation\.json.*changed since.*another directory"):
        prepare(place, [subject_of("optimal"), subject_of("random")], SMALL, seed=7)


def test_logs_whose_worlds_no_arm_takes_are_no_verdict(small: Path, tmp_path: Path) -> None:
    """The same episodes under a tag of one's own: which kinds there are is said, and which tag an arm misses."""
    logs = shutil.copytree(small / "arms" / "grids", tmp_path / "logs")
    with Store(logs, "w") as store:
        rows = store.rows()
        rows = rows.where(rows.measure == "success")
        store.put_rows(rows.tagged({"kind": np.full(len(rows), "labyrinth", dtype=object)}), source="behaviour")
    said = " ".join(call("evaluate", logs, "--out", tmp_path / "out", status=1).split())
    assert "goals of optimal: the logs contain no such episodes" in said and "kind labyrinth" in said
    assert "two values of the tag transform" in said
    found = Evaluation.read(tmp_path / "out" / LEDGER)
    assert all("labyrinth" in arm.why for model in found.models for arm in model.arms)
    assert not any(model.claims for model in found.models)


def test_recorded_logs_are_judged_as_far_as_they_go(small: Path, tmp_path: Path) -> None:
    logs = small / "arms" / "keys"
    subjects = [Subject(name="optimal", kind="logs", access=frozenset({"logs"}), logs=logs)]
    run = prepare(tmp_path / "logs", subjects, {}, seed=7)
    play(run, quiet)
    with judging.opened(run) as data:
        found = judging.judge(run, data).models[0]
    assert {one.name for one in found.arms if one.asked} == {"keys"}
    assert all("docs/import.md" in one.why for one in found.arms if not one.asked)
    direct = Evaluation.read(small / LEDGER).models[0]
    for one in found.claims:
        assert one.value == direct.claim(one.name).value  # type: ignore[union-attr]


def test_the_page_opens_with_the_verdict(small: Path, text: str) -> None:
    question = TEXTS("claims/answers hold actions/question")
    matrix, first = text.index(question), text.index("optimal is directed at the goal")
    claims = text.rindex(question, 0, text.index('class="group"'))
    # Several models: what differs between them comes first, then the verdict on each, their episodes, and the claims.
    assert matrix < first < text.index('id="episodes"') < claims
    found = Evaluation.read(small / LEDGER)
    assert all(f'id="{claim.section}"' in text for ledger in found.models for claim in ledger.claims)
    assert all(say(one) in unescape(text) for ledger in found.models for one in ledger.findings)


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

    listed = arms()
    cost = {one.name: 10.0 for one in listed}
    whole = sum(10.0 * one.full for one in listed)
    assert divide(listed, cost, whole) == {one.name: one.full for one in listed}
    most = {one.name: (4 if one.looks is None else 1) * one.full for one in listed}
    assert divide(listed, cost, 100 * whole) == most
    half = divide(listed, cost, whole / 2)
    assert all(one.quick <= half.get(one.name, 0) <= -(-(one.full + one.quick) // 2) for one in listed)
    assert sum(10.0 * count for count in half.values()) <= whole / 2
    least = sum(10.0 * one.quick for one in listed)
    assert divide(listed, cost, least) == {one.name: one.quick for one in listed if one.quick}
    assert divide(listed, cost, least - 1) != divide(listed, cost, least)
    assert list(divide(listed, cost, 10.0 * listed[0].quick)) == [listed[0].name]
    assert divide(listed, cost, 1.0) == {}


def test_no_budget_asks_a_question_with_too_few_worlds_for_a_yes() -> None:
    listed = [one for one in arms() if one.least]
    assert {one.name for one in listed} == {"transforms", "wordings"}
    cost = {one.name: 1.0 for one in arms()}
    divided = [divide(arms(), cost, limit) for limit in range(900)]
    asked = {one.name: {sizes.get(one.name, 0) for sizes in divided} for one in listed}
    for one in listed:
        assert {0, one.least} <= asked[one.name] and not asked[one.name] & {*range(1, one.least)}
        assert one.quick_size(named=True) >= one.least
    alone = listed[0]
    assert divide([alone], {alone.name: 1.0}, alone.least - 1) == {}, "a larger budget is asked for"


@pytest.mark.parametrize(
    ("text", "words"),
    [("thesus", "theseus"), ("openai:gpt", "NAME@URL"), ("epsilon-greedy:epsilon", "key=value"), ("random:x=1", "x")],
)
def test_what_cannot_be_meant_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        subject_of(text)


def test_a_folder_that_holds_neither_a_model_nor_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json.*run\.db"):
        subject_of(str(tmp_path))


@pytest.mark.parametrize(("prefix", "mode"), [("openai", "chat"), ("completions", "completions")])
def test_a_model_behind_a_server_is_sent_messages_or_tokens(prefix: str, mode: str) -> None:
    found = subject_of(f"{prefix}:owner/name@http://127.0.0.1:1/v1")
    assert found.name == "name" and found.parameters["server"].get("mode", "chat") == mode
    assert "reasoning" in found.access and "weights" not in found.access


def test_weights_say_by_their_tokenizer_how_they_are_asked_and_whether_they_reason(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path / "small")
    tokenizer(PLAIN_TEMPLATE, added=()).save_pretrained(tmp_path / "small")
    found = subject_of(str(tmp_path / "small"))
    assert found.name == "small" and "weights" in found.access and "reasoning" not in found.access
    assert found.parameters["reasoning"] == "none" and found.parameters["temperature"] == 0.7
    edits = resolve("arm", "reasoning")
    assert not edits.open_to(found) and "marks its reasoning" in edits.why and edits.open_to(subject_of("theseus"))


def request_of(listed: list[Arm]) -> ArmRequest:
    return ArmRequest(arms=listed, subjects=[subject_of("optimal")], seed=1, failures=Failures(Path()))


def test_the_default_budget_has_room_for_the_first_arm_and_a_named_one_may_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [resolve("arm", name) for name in ("grids", "keys")]
    monkeypatch.setattr(ArmRequest, "unit_costs", lambda *_: {"grids": 200.0, "keys": 200.0})
    limit = Budget.parse(sizing.DEFAULT)
    with aloud():
        assert request_of(listed).choose_sizes(limit, named=False)[0] == {"grids": listed[0].quick}
    assert "--budget gives them room" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ValueError, match="grids"):
        request_of(listed).choose_sizes(Budget.parse("14m"), named=True)


def test_a_plan_of_hours_is_proposed_in_parts_instead_of_started(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [resolve("arm", name) for name in ("grids", "keys", "depends")]
    monkeypatch.setattr(
        ArmRequest, "unit_costs", lambda _, arms, limit: {arm.name: 3600.0 / len(arms) ** 6 for arm in arms}
    )
    small = {"--sizes 7": listed[2:]}
    with pytest.raises(ValueError, match="--budget 120m") as refusal:
        request_of(listed[:1]).choose_sizes(Budget.parse(sizing.DEFAULT), named=False, smaller=small)
    assert stated("plan/proposal of nothing", str(refusal.value))
    sizes, proposals = request_of(listed).choose_sizes(Budget.parse("4m"), named=True)
    assert set(sizes) == {"grids", "keys", "depends"}
    assert [line.split(":")[0].split(" ")[1] for line in proposals] == ["10m", "30m", "120m"]
    assert "--arms grids,depends" in proposals[0] and "--arms" not in proposals[1]
    assert all(stated("plan/all questions", line) for line in proposals)
    assert request_of(listed).choose_sizes(Budget.parse("20h"), named=True)[1] == ()


def test_the_command_line_says_the_verdict_and_the_ledger_again(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = CliRunner().invoke(app, ["evaluate", "optimal", "--quick", "--dry-run", "--out", str(tmp_path / "dry")])
    assert dry.exit_code == 0 and "Mirrored and rotated worlds" in dry.output and not (tmp_path / "dry").exists()
    shown = CliRunner().invoke(app, ["ledger", str(small)])
    assert shown.exit_code == 0 and "optimal is directed at the goal" in shown.output
    sound = Checked(deviations=(), changed=(), added=(), failed=())
    monkeypatch.setattr("goalscope.verdict.opening.judged_again", lambda directory: sound)  # as they just were
    plain = CliRunner().invoke(app, ["ledger", str(small), "--json"])
    assert json.loads(plain.output)["models"][0]["model"] == "optimal"
    both = CliRunner().invoke(app, ["evaluate", "optimal", "--quick", "--budget", "1m", "--out", str(tmp_path / "x")])
    assert both.exit_code == 2


def test_a_limit_that_nothing_comes_near_is_refused(tmp_path: Path) -> None:
    listed = [resolve("arm", name) for name in ("grids", "keys")]
    with pytest.raises(ValueError, match=r"optimal takes no usd.*limit of time"):
        request_of(listed).choose_sizes(Budget.parse("1usd"), named=True)


def test_a_folder_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no evaluation at .*no ledger\.json"):
        claims.ledger(tmp_path)


def test_what_a_budget_cannot_change_is_not_offered_for_logs(small: Path, tmp_path: Path) -> None:
    logs = shutil.copytree(small / "arms" / "grids", tmp_path / "logs")
    dry = CliRunner().invoke(app, ["evaluate", str(logs), "--dry-run", "--out", str(tmp_path / "out")])
    assert "recorded logs are judged as they are" in dry.output
    done = CliRunner().invoke(app, ["evaluate", str(logs), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0 and "--budget" not in done.output


@pytest.mark.full
def test_the_figures_of_a_page_are_drawn_again_without_the_models(
    small: Path, text: str, named: dict[str, Any], tmp_path: Path
) -> None:
    tables = ["matrix-table-1", "matrix-table-2", "matrix-table-3"]  # answers, differences, the others folded
    # An episode is drawn once. The worst episode of the optimal agent is also its typical one.
    episodes = ["episodes-figure-1", "episodes-figure-2", *(f"episodes-1-figure-{number}" for number in (1, 2, 3))]
    figures = [*episodes, "pictures-figure-1", "pictures-figure-2"]
    assert list(named)[: len(tables + figures) + 1] == [*tables, *figures, "claims-table-1"]
    assert all(f'id="{name}"' in text for name in named)
    lines = re.findall(r"<code>(from goalscope\.verdict import figure; .*?)</code>", text)
    assert len(lines) == text.count("<figure ")
    with contextlib.chdir(tmp_path):
        Path("RUN").symlink_to(small)
        exec(unescape(lines[0]), {})
    assert (tmp_path / f"{figures[0]}.pdf").read_bytes().startswith(b"%PDF")
    assert all(drawn(named, name).axes for name in figures)
    shown = CliRunner().invoke(app, ["figure", str(small), "--list"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0 and "claims-1-table-1" in shown.output and "Between random and optimal" in shown.output


def test_a_random_agent_stands_at_0_and_the_optimal_one_at_1(named: dict[str, Any]) -> None:
    stands = named["pictures-figure-1"]
    assert not isinstance(stands, Table)
    for one in stands.drawn.records:
        at = {"optimal": 1.0, "random": 0.0}[one["series"]]
        # The optimal agent may tie with others: goal-directedness reaches its bound but for rounding.
        assert one["low"] - 0.05 <= at <= one["high"] + 0.05, one


def test_claims_link_to_what_is_behind_them_and_keep_their_numbers(small: Path, named: dict[str, Any]) -> None:
    ledger = Evaluation.read(small / LEDGER).models[0]
    tables = [table for name, table in named.items() if name.startswith("claims-table-")]
    rows = [row for table in tables for row in table.rows]
    by_arm = [claim for arm in ledger.arms for claim in ledger.claims if claim.arm == arm.name]
    assert len(by_arm) == len(ledger.claims)
    for claim, (question, answer, estimate, _, worlds) in zip(by_arm, rows, strict=True):
        assert (question.text, question.target, answer.text) == (claim.question, "evidence", claim.answer)
        assert worlds.value == str(claim.clusters or "–")
        assert bool(worlds.note) == (worlds_to_decide(claim) is not None)
        if claim.value is not None:
            assert (estimate.estimate.value, estimate.estimate.low) == (claim.value, claim.low)


def test_an_evaluation_that_grew_or_lost_its_logs_is_not_drawn(small: Path, tmp_path: Path) -> None:
    from goalscope.verdict import page

    shutil.copytree(small, tmp_path / "grown")
    prepare(tmp_path / "grown", [subject_of("optimal"), subject_of("random")], {"grids": 3}, seed=7)
    with pytest.raises(ValueError, match="added since"):
        page.named_of(tmp_path / "grown")
    logs = tmp_path / "logs"
    shutil.copytree(small / "arms" / "keys", logs)
    subjects = [Subject(name="optimal", kind="logs", access=frozenset({"logs"}), logs=logs)]
    run = prepare(tmp_path / "judged", subjects, {}, seed=7)
    with judging.opened(run) as data:
        judging.write(run, judging.judge(run, data))
    assert "claims-table-1" in page.named_of(tmp_path / "judged")
    logs.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="must lie beside"):
        page.named_of(tmp_path / "judged")


def runs_of(directory: Path) -> dict[str, tuple[str, int]]:
    """The content hash of each run of an evaluation, and the number of sessions that worked on it."""
    found = {}
    for name, run in runs_in(directory).items():
        with Store(run.path) as store:
            found[name] = content_hash(store), len(store.info()["sessions"])
    return found


@pytest.mark.full
def test_a_model_and_an_arm_are_added_and_nothing_is_asked_again(tmp_path: Path) -> None:
    place = tmp_path / "one"
    options: dict[str, Any] = {"quick": True, "sizes": [5], "seed": 7}
    first = goalscope.evaluate("optimal", place, arms=["grids"], **options)
    before = runs_of(place)
    both = goalscope.evaluate(["random", "optimal"], place, arms=["grids"], **options)
    assert both.models[0] == first.models[0] and [one.model for one in both.models] == ["optimal", "random"]
    more = goalscope.evaluate(["optimal", "random"], place, arms=["grids", "fog"], **options)
    after = runs_of(place)
    assert {*after} == {"grids", "grids-2", "fog", "fog-2"} and after["grids"][0] == before["grids"][0]
    assert {claim.look for claim in more.models} == {1} and more.models[0].claims[:5] == first.models[0].claims[:5]
    whole = goalscope.evaluate(["optimal", "random"], tmp_path / "two", arms=["grids", "fog"], **options)
    assert (whole.models, whole.differences) == (more.models, more.differences)
    with pytest.raises(ValueError, match="kind: random} stored, not given"):
        goalscope.evaluate(["optimal", "wrong-goal"], place, arms=["grids", "fog"], **options)
    with pytest.raises(ValueError, match="--arms fog,grids stored, not given"):
        goalscope.evaluate(["optimal", "random"], place, arms=["grids"], **options)


PLANNED = ("optimal", "epsilon-greedy:epsilon=0.5", "--quick", "--arms", "grids", "--sizes", "5", "--seed", "7")


def planned(path: Path) -> dict[str, Any]:
    """Print the plan of an evaluation into a file, and return it as plain values."""
    path.write_text(call("evaluate", *PLANNED, "--dry-run", "--json", "--out", path.parent / "x"))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_plan_is_printed_kept_and_run(tmp_path: Path) -> None:
    edited = planned(tmp_path / "plan.json")
    plan = Plan.read(tmp_path / "plan.json")
    assert plan.sizes == {"grids": 6} and plan.names == ["optimal", "epsilon-greedy(0.5)"]
    call("evaluate", "--plan", tmp_path / "plan.json", "--out", tmp_path / "one")
    assert Plan.read(tmp_path / "one" / PLAN) == plan
    edited["looks"] = [{"grids": 1}]
    (tmp_path / "plan.json").write_text(json.dumps(edited))
    assert "changed since" in call("evaluate", "--plan", tmp_path / "plan.json", "--out", tmp_path / "3", status=2)
    del edited["digest"]
    (tmp_path / "plan.json").write_text(json.dumps(edited))
    assert Plan.read(tmp_path / "plan.json", edited=True).sizes == {"grids": 1}
    assert "--plan FILE" in call("evaluate", "--out", tmp_path / "4", status=2)
    refused = call("evaluate", "--plan", tmp_path / "plan.json", "--quick", "--out", tmp_path / "4", status=2)
    assert "already contains budget" in refused


@pytest.mark.full
def test_a_plan_gives_the_verdict_of_its_words_and_may_be_edited(tmp_path: Path) -> None:
    edited = planned(tmp_path / "plan.json")
    call("evaluate", "--plan", tmp_path / "plan.json", "--out", tmp_path / "one")
    call("evaluate", *PLANNED, "--out", tmp_path / "two")
    first, second = (Evaluation.read(tmp_path / name / LEDGER) for name in ("one", "two"))
    assert (first.models, first.differences) == (second.models, second.differences)
    assert Plan.read(tmp_path / "one" / PLAN) == Plan.read(tmp_path / "two" / PLAN)
    edited["looks"] = [{"grids": 1}]
    del edited["digest"]
    (tmp_path / "plan.json").write_text(json.dumps(edited))
    found = goalscope.evaluate(Plan.read(tmp_path / "plan.json", edited=True), tmp_path / "3")
    assert found.models[0].arms[0].worlds == 3, "one of each density"


@pytest.mark.full
def test_evaluations_of_one_plan_are_merged_and_judged_together(tmp_path: Path) -> None:
    options: dict[str, Any] = {"arms": ["grids"], "quick": True, "sizes": [5], "seed": 7}
    both = goalscope.evaluate(["optimal", "random"], tmp_path / "both", **options)
    for model in ("optimal", "random"):
        goalscope.evaluate(model, tmp_path / model, **options)
    said = call("merge", tmp_path / "out", tmp_path / "optimal", tmp_path / "random")
    assert "Side by side" in said
    found = goalscope.open(tmp_path / "out")
    assert isinstance(found, Evaluation)
    assert (found.models, found.differences) == (both.models, both.differences)
    assert {name: one[0] for name, one in runs_of(tmp_path / "out").items()} == {
        name: one[0] for name, one in runs_of(tmp_path / "both").items()
    }
    assert "all claims agree" in call("verify", tmp_path / "out")
    before = runs_of(tmp_path / "out")
    again = goalscope.evaluate(["optimal", "random"], tmp_path / "out", **options)
    assert again.models == found.models and {n: one[0] for n, one in before.items()} == {
        name: one[0] for name, one in runs_of(tmp_path / "out").items()
    }
    other = goalscope.evaluate("wrong-goal", tmp_path / "other", **{**options, "seed": 8})
    refusals = {
        "seed 7 stored, not given": (tmp_path / "optimal", other.directory),
        "different models": (tmp_path / "optimal", tmp_path / "both"),
        "at least two": (tmp_path / "optimal",),
        "shards": (tmp_path / "optimal", tmp_path / "optimal" / "arms" / "grids"),
    }
    for reason, given in refusals.items():
        assert reason in " ".join(call("merge", tmp_path / "new", *given, status=2).split())
        assert not (tmp_path / "new").exists()
    assert "new directory" in call("merge", tmp_path / "both", tmp_path / "optimal", tmp_path / "random", status=2)
    database = tmp_path / "optimal" / "arms" / "grids" / "run.db"
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE checksums SET value = value + 1 WHERE kind = 'rows'")
    refusal = call("merge", tmp_path / "new", tmp_path / "optimal", tmp_path / "random", status=2)
    assert f"{database} is damaged: rows" in " ".join(refusal.split()) and not (tmp_path / "new").exists()
