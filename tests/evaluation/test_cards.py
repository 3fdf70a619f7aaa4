"""Cards of a verdict: nothing of the ledger is lost, what is absent is named, and the schema is kept."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from killed_evaluations import quiet

from command_line import call
from goalscope.agents import Optimal
from goalscope.verdict import Evaluation, judging, page, subject_of
from goalscope.verdict.cards import SCHEMA, absent_of, check_record, eval_record, model_card
from goalscope.verdict.failures import FAILURES
from goalscope.verdict.plan import LEDGER, PAGE, prepare
from goalscope.verdict.playing import play
from goalscope.verdict.texts import TEXTS


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation of two agents, one of which fails in the arm with keys."""
    directory = tmp_path_factory.mktemp("cards") / "broken"
    sound: Callable[..., Any] = Optimal.act

    def act(self: Optimal, observations: Any) -> Any:
        if any(getattr(observation.view, "grid", None) and observation.view.grid.key for observation in observations):
            raise RuntimeError("the | agent *fell* over")
        return sound(self, observations)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimal, "act", act)
        subjects = [subject_of("optimal"), subject_of("random")]
        run = prepare(directory, subjects, {"grids": 1, "keys": 1}, seed=7)
        run.failures.begin()
        play(run, quiet)
    with judging.opened(run) as data:
        evaluation = judging.judge(run, data)
        judging.write(run, evaluation)
        page.write(evaluation, data, directory / PAGE)
    return directory


def evaluated(directory: Path) -> Evaluation:
    return Evaluation.read(directory / LEDGER).kept_in(directory)


def test_a_record_has_every_claim_with_its_interval_and_every_hash(broken: Path) -> None:
    evaluation = evaluated(broken)
    for ledger in evaluation.models:
        record = eval_record(evaluation, ledger, seconds=1.0)
        results = {result["metric_config"]["metric_name"]: result for result in record["evaluation_results"]}
        assert set(results) == {claim.name for claim in ledger.claims if claim.value is not None}
        for claim in ledger.claims:
            if claim.value is None:
                continue
            result = results[claim.name]
            interval = result["score_details"]["uncertainty"]["confidence_interval"]
            assert (result["score_details"]["score"], interval["lower"], interval["upper"]) == (
                claim.value,
                claim.low,
                claim.high,
            )
            assert result["score_details"]["uncertainty"]["num_samples"] == claim.n
            assert result["metric_config"]["metric_parameters"]["worlds"] == claim.clusters
            assert result["metric_config"]["additional_details"]["answer"] == claim.answer
        details = record["source_metadata"]["additional_details"]
        assert evaluation.origin is not None
        assert all(details[f"content hash of run {name}"] == run for name, run in evaluation.origin.runs.items())
        stored = json.loads((broken / LEDGER).read_text(encoding="utf-8"))
        assert details["ledger"] == stored["digest"] and details["plan"] == evaluation.origin.plan
        assert record["eval_library"]["version"] == evaluation.origin.goalscope and record["schema_version"] == SCHEMA


def test_a_card_of_an_evaluation_that_failed_in_parts_names_what_is_absent(broken: Path) -> None:
    evaluation = evaluated(broken)
    optimal, random = evaluation.models
    absent = absent_of(evaluation, optimal)
    assert "fell" in absent["arm keys"] and FAILURES in absent["parts that failed"]
    assert "arm keys" not in absent_of(evaluation, random)
    untestable = [claim for claim in random.claims if claim.value is None]
    assert untestable and all(absent_of(evaluation, random)[f"claim {claim.name}"] == claim.why for claim in untestable)
    details = eval_record(evaluation, optimal)["source_metadata"]["additional_details"]
    assert {f"absent: {name}": why for name, why in absent.items()}.items() <= details.items()
    text = model_card(evaluation, optimal)
    assert TEXTS("card/absent") in text and all(f"* {name}".replace("_", "\\_") in text for name in absent)
    assert r"the \| agent \*fell\* over" in text  # what a stranger wrote is no markup


def test_a_record_keeps_the_rules_of_the_schema_that_need_no_package(broken: Path) -> None:
    def walk(value: Any, path: str = "") -> None:
        if isinstance(value, dict):
            for name, entry in value.items():
                if path.endswith("additional_details"):
                    assert isinstance(entry, str), f"{path}.{name}"
                walk(entry, f"{path}.{name}")
        elif isinstance(value, list):
            for entry in value:
                walk(entry, path)
        elif isinstance(value, float):
            assert math.isfinite(value)

    evaluation = evaluated(broken)
    for ledger in evaluation.models:
        record = json.loads(json.dumps(eval_record(evaluation, ledger)))
        walk(record)
        assert set(record) == {
            *("schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "eval_library"),
            *("model_info", "evaluation_results"),
        }
        assert {"deployment_type", "model_availability"} <= record["model_info"]["additional_details"].keys()


def test_a_record_is_valid_by_the_schema_of_the_package_and_a_wrong_one_is_not(broken: Path) -> None:
    pytest.importorskip("every_eval_ever", reason="the extra cards is not installed")
    evaluation = evaluated(broken)
    for ledger in evaluation.models:
        record = eval_record(evaluation, ledger)
        check_record(record)
        changes: list[dict[str, Any]] = [{"seed": 1}, {"eval_library": {"name": "x"}}, {"evaluation_results": [{}]}]
        for change in changes:
            with pytest.raises(ValueError, match="every-eval-ever"):
                check_record({**record, **change})


def test_the_command_writes_both_formats_and_refuses_what_it_cannot_do(broken: Path, tmp_path: Path) -> None:
    text = call("card", broken, "--name", "random")
    assert TEXTS("card/title", model="random") in text and "| Do its answers contain valid moves? |" in text
    out = tmp_path / "card.json"
    call("card", broken, "--name", "optimal", "--format", "every-eval-ever", "--out", out)
    assert json.loads(out.read_text(encoding="utf-8"))["model_info"]["name"] == "optimal"
    for words, named in (((), "--name"), (("--name", "optmal"), "optimal"), (("--format", "html"), "--format")):
        assert named in call("card", broken, *words, status=2)
