"""What cannot be asked, or fails, is said with its reason; the other arms, models, claims and the page stay."""

import errno
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from killed_evaluations import quiet
from tiny_models import PLAIN_TEMPLATE, llama, tokenizer

from command_line import call
from families import long_after
from goalscope._ground import registry
from goalscope._ground.extras import how_to_install
from goalscope._ground.registry import resolve
from goalscope.agents import Observation, Optimal, Turn
from goalscope.measures.behaviour import put_measured
from goalscope.runs import Store
from goalscope.runs.tables import damaged
from goalscope.verdict import Evaluation, evaluating, judging, page, subject_of
from goalscope.verdict.arms import SEED, arms
from goalscope.verdict.evidence import ArmData, Evidence
from goalscope.verdict.failures import FAILURES, does_not_fit
from goalscope.verdict.plan import LEDGER, PAGE, EvaluationRun, prepare
from goalscope.verdict.playing import play
from goalscope.verdict.rules import claim
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.gridworld import GridView
from planted_findings import stated

SIZES = {"grids": 1, "keys": 1, "fog": 1}
KEPT = {"optimal": {"grids", "fog"}, "random": {"grids", "keys", "fog"}}


def judged(directory: Path, sizes: dict[str, int] = SIZES, *subjects: Any) -> tuple[EvaluationRun, Evaluation]:
    """Evaluate optimal and random, or other subjects, as the command does; write ledger and page."""
    run = prepare(directory, subjects or [subject_of("optimal"), subject_of("random")], sizes, seed=7)
    play(run, quiet)
    with judging.opened(run) as data:
        found = judging.judge(run, data)
        judging.write(run, found)
        page.write(found, data, directory / PAGE)
    return run, found


def asked(found: Evaluation) -> dict[str, set[str]]:
    return {model.model: {arm.name for arm in model.arms if arm.asked} for model in found.models}


def why(found: Evaluation, arm: str, model: int = 0) -> str:
    return {one.name: one.why for one in found.models[model].arms}[arm]


def lost_with_keys(broken: Callable[[], Exception]) -> Callable[..., list[Turn]]:
    """An agent's `act` that raises where a grid has a key."""
    sound = Optimal.act

    def act(self: Optimal, observations: Sequence[Observation]) -> list[Turn]:
        if any(isinstance(one.view, GridView) and one.view.grid.key is not None for one in observations):
            raise broken()
        return sound(self, observations)

    return act


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    """The evaluation of which nothing fails."""
    run, found = judged(tmp_path_factory.mktemp("whole") / "one")
    assert not run.failures.failed and not (run.directory / FAILURES).exists()
    return found


@pytest.mark.full
def test_an_agent_that_raises_in_one_kind_of_world_is_not_asked_there_and_everybody_else_is(
    whole: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Optimal, "act", lost_with_keys(lambda: RuntimeError("no key\nfits")))
        run, found = judged(tmp_path / "one")
    assert asked(found) == KEPT and why(found, "keys") == "it failed: RuntimeError: no key fits"
    assert len(run.failures.failed) == 1 and "optimal" in run.failures.failed[0]
    text = (tmp_path / "one" / FAILURES).read_text()
    assert text.startswith(run.failures.failed[0]) and "in act" in text and "no key" in text
    assert "RuntimeError: no key fits" in (tmp_path / "one" / PAGE).read_text()
    for mine, theirs in zip(found.models, whole.models, strict=True):
        kept = [claim for claim in theirs.claims if claim.arm in KEPT[mine.model]]
        assert list(mine.claims) == kept, "what could be asked has the answers that it has alone"
    assert not [one for one in found.differences if "keys" in one.rule]
    assert page.named_of(tmp_path / "one"), "the page is drawn again from the directory"
    with Store(run.path("grids", run.subjects[1])) as store:
        before = len(store.info()["sessions"])
    again, mended = judged(tmp_path / "one")
    assert mended == whole and not (tmp_path / "one" / FAILURES).exists()
    with Store(again.path("grids", again.subjects[1])) as store:
        assert len(store.episode_ids()) == 9 and len(store.info()["sessions"]) == before + 1


@pytest.mark.full
def test_a_server_that_does_not_answer_is_not_asked_in_every_arm_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def act(self: Optimal, observations: Sequence[Observation]) -> list[Turn]:
        tried.append(len(observations))
        raise ConnectionError("nobody there")

    monkeypatch.setattr(Optimal, "act", act)
    run, found = judged(tmp_path / "one")
    assert len(tried) == len(run.failures.failed) == 1 and asked(found) == {"optimal": set(), "random": set(SIZES)}
    assert "nobody there" in why(found, "fog") and "server" in why(found, "fog")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), BlockingIOError("locked")]
)
def test_what_ends_everything_is_not_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(Optimal, "act", lost_with_keys(lambda: error))  # type: ignore[return-value,arg-type]
    with pytest.raises(type(error)):
        judged(tmp_path / "one")


def test_a_measure_a_claim_a_comparison_and_a_look_that_raise_are_kept_apart(
    whole: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise KeyError("mine")

    def measured(store: Store, *rest: Any) -> None:
        (fail if store.path.name.startswith("fog") else put_measured)(store, *rest)

    monkeypatch.setattr("goalscope.verdict.playing.put_measured", measured)
    monkeypatch.setattr("goalscope.verdict.questions.lapses", fail)
    monkeypatch.setattr("goalscope.inside.interventions.experiment.study_interventions", fail)
    monkeypatch.setattr(
        "goalscope.verdict.compare._behaviour",
        lambda data, *, measure, tags: fail() if measure == "action accuracy" else data.among(measure, **tags),
    )
    seen = [replace(subject_of(one), access=frozenset({"grids", "weights"})) for one in ("optimal", "random")]
    run, found = judged(tmp_path / "one", {**SIZES, "patching": 1}, *seen)
    assert asked(found) == {"optimal": {"grids", "keys"}, "random": {"grids", "keys"}}
    assert why(found, "fog") == why(found, "patching") == "it failed: KeyError: 'mine'"
    lapses = found.models[0].claim("errs in lapses")
    assert lapses is not None and lapses.answer == "untestable" and FAILURES in lapses.says
    assert "success (grids)" in {one.rule for one in found.differences}
    assert not [one for one in found.differences if "accuracy" in one.rule]
    for what in ("Fog", "errs in lapses", "action accuracy (grids)", "Inside: activations"):
        assert [text for text in run.failures.failed if what in text and "KeyError: 'mine'" in text], what
    assert why(found, "beliefs") == TEXTS("plan/no room")


def small(folder: Path, positions: int) -> Any:
    llama(positions=positions).save_pretrained(folder)
    tokenizer(PLAIN_TEMPLATE, added=()).save_pretrained(folder)
    found = subject_of(str(folder))
    return replace(found, parameters={**found.parameters, "max_tokens": 2, "device": "cpu"})


@pytest.mark.full
def test_prompts_that_do_not_fit_are_not_asked_and_nothing_is_spent_on_them(tmp_path: Path) -> None:
    model = small(tmp_path / "small", 1700)
    run, found = judged(tmp_path / "one", {**SIZES, "beliefs": 1}, model, subject_of("random"))
    assert asked(found)["random"] == set(SIZES) and "grids" in asked(found)["small"]
    assert "2,095 tokens" in why(found, "keys") and "has 1,700" in why(found, "keys")
    assert "has 1,700" in why(found, "fog") and "fog" in why(found, "beliefs")
    with Store(run.path("keys", run.subjects[1])) as store:
        assert store.agent_names() == ["random"]
    assert not run.path("keys", model).exists()
    assert not run.failures.failed, "a declared reason is no failure"
    assert "2,095 tokens" in (tmp_path / "one" / PAGE).read_text()
    alone, none = judged(tmp_path / "two", {"keys": 1, "fog": 1}, model)
    assert asked(none)["small"] == set() and not none.models[0].claims and not alone.path("keys", model).exists()


def test_what_fits_is_known_by_the_model_s_own_tokenizer_alone(tmp_path: Path) -> None:
    keys, grids = resolve("arm", "keys"), resolve("arm", "grids")
    model = small(tmp_path / "small", 2048)
    assert "has 2,048" in does_not_fit(keys, model, 1, 7) and not does_not_fit(grids, model, 1, 7)
    served = subject_of("openai:small@http://127.0.0.1:1/v1")
    assert not any(does_not_fit(arm, served, 1, 7) for arm in arms() if arm.looks is None)
    assert not does_not_fit(keys, subject_of("optimal"), 1, 7) and not does_not_fit(keys, subject_of("theseus"), 1, 7)


def test_the_command_says_what_was_not_asked_before_it_asks_and_after(tmp_path: Path) -> None:
    small(tmp_path / "small", 1200)
    said = " ".join(call("evaluate", tmp_path / "small", "--quick", "--out", tmp_path / "out").split())
    assert "Nothing can be said about the goals of small: its longest prompt" in said and "has 1,200" in said
    assert "has 1,200" in (tmp_path / "out" / PAGE).read_text()
    assert not (tmp_path / "out" / "arms").exists(), "nothing was asked"


def test_worlds_that_cannot_be_made_are_refused_without_a_traceback(tmp_path: Path) -> None:
    study = tmp_path / "own.yaml"
    study.write_text("worlds: [{kind: environment, source: gymnasium, name: None-v0}]\nagents: [{kind: random}]\n")
    words = ("evaluate", "random", "--worlds", study, "--quick", "--out", tmp_path / "out")
    said = call(*words, status=2)
    assert "worlds[0]" in said and "name" in said and "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_the_exit_status_tells_a_failure_and_the_verdict_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [resolve("arm", name) for name in ("grids", "keys")]
    monkeypatch.setattr(evaluating, "arms", lambda: listed)
    monkeypatch.setattr("goalscope.verdict.plan.arms", lambda: listed)
    words = ("evaluate", "optimal", "--quick", "--sizes", 5, "--out", tmp_path / "one")
    with monkeypatch.context() as patch:
        patch.setattr(Optimal, "act", lost_with_keys(lambda: RuntimeError("no key fits")))
        said = " ".join(call(*words, status=1).split())
    assert "optimal is directed at the goal" in said and "it failed: RuntimeError: no key fits" in said
    assert f"tracebacks in {tmp_path}" in said.replace("one/ ", "one/") and "1 failure" in said
    assert (tmp_path / "one" / LEDGER).exists() and (tmp_path / "one" / PAGE).exists()
    with monkeypatch.context() as patch:
        patch.setattr(page, "contents", lambda *_: 1 / 0)
        said = call(*words, status=1)
    assert "ZeroDivisionError" in said and "optimal is directed at the goal" in said
    assert stated("failed/retry", " ".join(said.split()))
    with monkeypatch.context() as patch:  # what occurs again whenever the same runs are judged
        patch.setattr(judging, "contradictions", lambda _: ["it says both"])
        said = " ".join(call(*words, status=1).split())
    assert "it says both" in said and stated("failed/lasting", said) and not stated("failed/retry", said)
    assert "failure" not in call(*words)
    monkeypatch.setattr("goalscope.verdict.opening.SOON", 0)  # its claims were decided just now
    assert "optimal is directed at the goal" in call("ledger", tmp_path / "one")


def test_a_missing_package_for_servers_ends_the_command_before_anything_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    said = call("evaluate", "openai:some@http://127.0.0.1:9/v1", "--quick", "--out", tmp_path / "out", status=2)
    assert said.count("pip install") == 1 and how_to_install("api") in " ".join(said.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name", ["evaluation.json", "ledger.json", "report.html", "arms", "arms/keys", "arms/grids/run.db"]
)
def test_a_link_in_the_directory_ends_the_command_before_anything_is_asked(tmp_path: Path, name: str) -> None:
    place = tmp_path / "one" / name
    prepare(tmp_path / "one", [subject_of("optimal")], {"grids": 1}, seed=SEED)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(tmp_path / "victim")
    said = call("evaluate", "optimal", "--quick", "--out", tmp_path / "one", status=2)
    assert name in said and "link to" in said and "failed" not in said
    assert not (tmp_path / "victim").exists() and not list((tmp_path / "one").glob("arms/*/run.lock"))


@pytest.mark.parametrize("damage", long_after(1, [False, True]))
@pytest.mark.filterwarnings("ignore::goalscope._ground.own.PartWarning")
def test_a_claim_of_another_package_is_left_out_and_damage_that_it_meets_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bool
) -> None:
    names = registry.names("claim")
    assert all(registry.built_in("claim", name) for name in names if "another" not in name), "also partial objects"
    monkeypatch.setattr(registry, "_entries", {kind: dict(entries) for kind, entries in registry._entries.items()})
    texts = dict.fromkeys(("question", "yes", "no", "quantity", "compared"), "x")

    @claim("another", arm="grids", threshold=0.5, **texts)
    def another(data: ArmData) -> Evidence:
        raise damaged(Path("run.db"), "hold what was written") if damage else LookupError("mine")

    run, found = judged(tmp_path / "one", {"grids": 1}, subject_of("optimal"))
    told = found.models[0].claim("another")
    assert told is not None and told.answer == "untestable"
    if damage:
        assert ["run.db" in text and "doctor" in text for text in run.failures.failed] == [True]
        assert "left out" not in run.failures.failed[0] and FAILURES in told.says
    else:
        assert f"of {__name__}" in told.says and "LookupError: mine" in told.says and not run.failures.failed
