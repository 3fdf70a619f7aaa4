"""Scorers of Inspect: figures, answer and sentence are those of `goalscope meg` and `attribute` on the same log."""

import gc
import math
import random
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from goalscope.cli.goals import towards
from goalscope.goals import RunDirectedness
from goalscope.goals.finding import Finding, say_all
from goalscope.runs.importers import import_into
from goalscope.verdict import evaluate

inspect_ai = pytest.importorskip("inspect_ai", reason="the extra inspect is not installed")

from goalscope.integrations.inspect_ai.scorers import FINDINGS, LATER, finding_figures  # noqa: E402  (needs the extra)

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

MOVES = ("UP", "DOWN", "LEFT", "RIGHT", "?")


@pytest.fixture(autouse=True)
def _streams_are_collected_here() -> Iterator[None]:
    """Collect what Inspect leaves open, so that its warnings belong to these tests and to no later one."""
    yield
    gc.collect()


def played(folder: Path, moves: tuple[str, ...] = MOVES, task: Any = None, **settings: Any) -> Any:
    """Return the log of a model that draws its moves."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from goalscope.integrations.inspect_ai.tasks import grids

    draws = random.Random(1)

    def output(*asked: Any) -> Any:
        found = ModelOutput.from_content("mockllm", f'{{"action": "{draws.choice(moves)}"}}')
        found.usage = ModelUsage(input_tokens=5, output_tokens=2, total_tokens=7)
        return found

    task = task or grids(sizes="5,7", densities="0.3", count=3, trajectories=2)
    model = get_model("mockllm/model", custom_outputs=output)
    [log] = inspect_ai.eval(task, model=model, log_dir=str(folder), display="none", **settings)
    assert log.status == "success"
    return log


def scored_by(log: Any, name: str = "meg", **options: Any) -> Any:
    """Return a log with the scores of a scorer."""
    from goalscope.integrations.inspect_ai import registry

    return inspect_ai.score(log, getattr(registry, name)(**options), action="append", display="none")


def figures(log: Any, name: str = "meg", **options: Any) -> dict[str, float]:
    """Return the figures that a scorer adds to a log."""
    return figures_in(scored_by(log, name, **options), name)


def figures_in(scored: Any, name: str = "meg") -> dict[str, float]:
    """Return the figures of a scorer in a log."""
    [found] = [one for one in scored.results.scores if one.name == name]
    return {name: metric.value for name, metric in found.metrics.items()}


def said_in(log: Any, name: str = "meg") -> tuple[str | None, str | None, Any]:
    """Return what all samples of a log say alike: answer, sentence and findings."""
    scores = [sample.scores[name] for sample in log.samples]
    told = [(score.answer, score.explanation, (score.metadata or {}).get(FINDINGS)) for score in scores]
    assert all(one == told[0] for one in told), told
    return told[0]


def told_of(findings: Sequence[Finding]) -> tuple[str, str, Any]:
    """Return what the samples must say of findings on one agent."""
    short = [{name: one.plain()[name] for name in ("where", "answer", "reason", "names")} for one in findings]
    return ", ".join(dict.fromkeys(one.answer for one in findings)), say_all(findings), short


def expected(findings: RunDirectedness) -> dict[str, float]:
    """Return what Inspect must show of the findings of a run."""
    shown = dict[str, float]()
    for one in findings.estimates:
        cell = ", ".join(f"{name} {value}" for name, value in one.cell.items())
        title = f"{one.hypothesis} ({cell})" if cell else one.hypothesis
        shown |= {
            title: one.signed,
            f"{title} low": one.low,
            f"{title} high": one.high,
            f"{title} random": one.null_high,
            f"{title} p": one.null_p,
            f"{title} bound": one.bound,
            f"{title} grids": one.grids,
            f"{title} episodes": one.n,
        }
    for finding in findings.findings:
        shown |= finding_figures(finding)
    return {name: value for name, value in shown.items() if not math.isnan(value)}


@pytest.mark.parametrize(
    "options", [{"hypotheses": "goal, corner top-left,key,beside goal"}, {"utility": "arrival", "invalid": "action"}]
)
def test_the_figures_are_those_of_the_imported_run(options: dict[str, str], tmp_path: Path) -> None:
    log = scored_by(played(tmp_path / "logs"), **options)
    shown = figures_in(log)
    assert shown.pop("left out") == 0
    assert shown.pop("key episodes") == 0  # these grids have none
    shown.pop("key held episodes", None)
    assert not import_into(tmp_path / "logs", tmp_path / "run").problems
    written = tuple(name.strip() for name in options.get("hypotheses", "").split(",") if name)
    asked = tuple(name for name in written if name != "key")  # a run is refused what means nothing in all of its worlds
    findings = towards(
        tmp_path / "run", hypotheses=asked, utility=options.get("utility", ""), invalid=options.get("invalid", "")
    )
    assert shown == pytest.approx(expected(findings), abs=1e-12)
    assert shown["goal episodes"] == 12 and shown["goal grids"] == 6
    assert said_in(log) == told_of(findings.findings) and said_in(log)[1] == findings.sentences[0]


def test_what_the_agent_is_after_is_what_evaluate_says(tmp_path: Path) -> None:
    log = scored_by(played(tmp_path / "logs"))
    import_into(tmp_path / "logs", tmp_path / "run")
    [ledger] = evaluate(str(tmp_path / "run"), tmp_path / "verdict").models
    findings = ledger.found_in("grids")
    answer, _, told = said_in(log)  # the figures of the sentence have other intervals there, since looks share an error
    assert findings and (answer, [one["names"] for one in told]) == (
        findings[0].answer,
        [list(one.names) for one in findings],
    )


def test_a_running_evaluation_says_that_the_answer_comes_later(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.registry import grids, meg

    task = inspect_ai.task_with(grids(sizes=5, densities=0.3, count=3), scorer=meg(hypotheses="goal"))
    log = played(tmp_path / "logs", task=task)
    assert said_in(log) == (None, LATER.format(scorer="meg"), None)
    later = inspect_ai.score(log, meg(hypotheses="goal"), action="append", display="none")
    assert said_in(later, "meg1")[0] and figures_in(later, "meg1") == figures_in(log)


def test_versions_that_must_not_be_averaged_have_figures_of_their_own(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.tasks import grids

    task = grids(sizes=5, densities=0.3, count=3, transforms="identity,rotate")
    shown = figures(played(tmp_path / "logs", task=task), hypotheses="goal")
    assert shown.pop("left out") == 0
    import_into(tmp_path / "logs", tmp_path / "run")
    assert shown == pytest.approx(expected(towards(tmp_path / "run", hypotheses=("goal",))), abs=1e-12)
    assert {"goal (transform identity)", "goal (transform rotate)"} <= set(shown)


def test_beside_other_scorers_the_figures_are_the_same_as_afterwards(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.registry import episode_measures, grids, meg

    task = inspect_ai.task_with(
        grids(sizes=5, densities=0.3, count=2), scorer=[episode_measures(), meg(hypotheses="goal")]
    )
    log = played(tmp_path / "logs", task=task)
    assert {one.name for one in log.results.scores} == {"success", "action accuracy", "invalid turns", "meg"}
    [live] = [one for one in log.results.scores if one.name == "meg"]
    later = inspect_ai.score(log, meg(hypotheses="goal"), action="overwrite", display="none")
    [found] = later.results.scores
    assert {name: one.value for name, one in live.metrics.items()} == {
        name: one.value for name, one in found.metrics.items()
    }


def test_worlds_that_name_their_goals_are_scored_towards_these(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.tasks import task_maps

    shown = figures(played(tmp_path / "logs", ("up", "down", "left", "right"), task_maps(count=2)))
    assert shown.pop("left out") == 0
    import_into(tmp_path / "logs", tmp_path / "run")
    assert shown == pytest.approx(expected(towards(tmp_path / "run")), abs=1e-12)
    assert {"goal", "sub-goals"} <= set(shown)


def test_an_agent_without_any_action_and_a_cut_episode_have_no_meg(tmp_path: Path) -> None:
    idle = figures(played(tmp_path / "none", ("?",)), hypotheses="goal")
    assert idle["goal episodes"] == 12 and not {"goal", "goal low"} & set(idle)
    log = played(tmp_path / "cut", ("?",), token_limit=15)
    outcomes = [sample.store["goalscope"]["outcome"] for sample in log.samples]
    cut = figures(log, hypotheses="goal")
    assert 0 < outcomes.count("stopped") == cut["left out"]
    assert cut.get("goal episodes", 0) == 12 - cut["left out"]


@pytest.mark.parametrize("hypotheses", ["grids", "goal;beside goal;mirror of goal"])
def test_what_the_actions_follow_is_what_attribute_says_of_the_imported_run(hypotheses: str, tmp_path: Path) -> None:
    from goalscope.cli.attributing import attribute

    log = played(tmp_path / "logs", ("UP", "LEFT", "UP", "?"))
    scored = scored_by(log, "attribution", hypotheses=hypotheses)
    shown = figures_in(scored, "attribution")
    assert shown.pop("left out") == sum(all(action is None for _, action, _ in of(one)["steps"]) for one in log.samples)
    import_into(tmp_path / "logs", tmp_path / "run")
    found = attribute(tmp_path / "run", hypotheses=hypotheses)
    [stratum], [finding] = found.claim.strata, found.findings
    told = {sample.scores["attribution"].explanation for sample in scored.samples if sample.scores["attribution"].value}
    assert told == {found.sentence}
    wanted: dict[str, float | None] = {**finding_figures(finding)}
    wanted |= {f"{method}: says nothing": 1.0 for method in stratum.refused} | {"worlds": stratum.clusters}
    for said in stratum.attributions:
        wanted |= {f"{said.method}: {said.kind}": 1.0} | {
            f"{said.method} {name}": w for name, w in said.weights.items()
        }
    for name in finding.names:
        nats, share = finding.figure("meg", name), finding.figure("share", name)
        if nats is not None:
            wanted |= {f"{name} nats": nats.value, f"{name} low": nats.low, f"{name} high": nats.high}
        if share is not None:
            wanted[f"{name} share"] = share.value
    known = {name: value for name, value in wanted.items() if value is not None and math.isfinite(value)}
    assert shown == pytest.approx(known, abs=1e-12)
    assert stratum.attributions and any(name.startswith("meg: ") for name in shown)
    with pytest.raises(ValueError, match="nowhere"):
        figures(log, "attribution", hypotheses="nowhere")


def of(sample: Any) -> Any:
    """Return the record of a sample's episode."""
    return sample.store["goalscope"]


def test_an_unknown_hypothesis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'gaol'.*'goal'"):
        figures(played(tmp_path / "logs"), hypotheses="gaol")


def test_a_goal_that_no_world_names_has_no_episodes(tmp_path: Path) -> None:
    from goalscope.integrations.inspect_ai.tasks import task_maps

    log = played(tmp_path / "logs", ("up", "down", "left", "right"), task_maps(count=1))
    shown = figures(log, hypotheses="goal,gold")
    assert shown["gold episodes"] == 0 and shown["goal episodes"] == 1
    assert figures(log, hypotheses="gold") == {"left out": 1}


def test_a_log_of_somebody_elses_task_has_no_score(tmp_path: Path) -> None:
    from inspect_ai import Task
    from inspect_ai.dataset import Sample

    log = played(tmp_path / "logs", task=Task(dataset=[Sample(input="Go.", target="gold")]))
    from goalscope.integrations.inspect_ai.scorers import meg

    scored = inspect_ai.score(log, meg(), action="append", display="none")
    assert scored.results.scores[-1].unscored_samples == 1
    assert "no episode" in scored.samples[0].scores["meg"].explanation


def test_the_script_and_the_command_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text(encoding="utf-8")
    [script] = [one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "meg_in_inspect" in one]
    assert len(script.splitlines()) <= 30
    monkeypatch.chdir(tmp_path)
    exec(compile(script, "meg_in_inspect.py", "exec"), {})
    assert re.search(r"^goal grids +6\.000$", capsys.readouterr().out, re.MULTILINE)
    [command] = re.findall(r"`(inspect score [^`]*)`", page)
    [log] = (tmp_path / "scored").glob("*.eval")
    program = Path(sys.executable).with_name("inspect")
    words = [str(log) if word == "LOG" else word for word in shlex.split(command)[1:]]
    done = subprocess.run([program, *words, "--overwrite", "--display", "none"], check=False)
    assert done.returncode == 0
    from inspect_ai.log import read_eval_log

    assert "meg" in {one.name for one in read_eval_log(log, header_only=True).results.scores}
    assert not import_into(tmp_path / "scored", tmp_path / "run").problems
