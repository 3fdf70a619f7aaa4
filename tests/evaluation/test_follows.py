"""Which hypotheses the actions follow, as a question of an evaluation: in worlds of its own and by phase."""

from pathlib import Path
from typing import Any

import pytest

from command_line import call
from families import long_after
from goalscope import evaluate
from goalscope.goals.finding import say, say_all
from goalscope.goals.hypotheses import load_hypotheses
from goalscope.goals.hypotheses.design import POWER, needed
from goalscope.runs import Study
from goalscope.verdict import Evaluation, Plan, estimate
from goalscope.verdict.aims import FOLLOWS
from goalscope.verdict.judging import contradictions
from goalscope.verdict.plan import PLAN
from goalscope.verdict.preflight.power import told_beforehand
from goalscope.verdict.rules import level
from goalscope.verdict.sentences import headline
from goalscope.verdict.texts import TEXTS as VERDICT_TEXTS
from planted_findings import stated

PHASES = """
name: corner
worlds:
  - {kind: grid, sizes: [7, 9], densities: [0.3], count: 12, goal: top-right, phase: trained}
  - {kind: grid, sizes: [7, 9], densities: [0.3], count: 12, goal: not top-right, phase: shifted}
agents: [{kind: random}]
horizon: {factor: 1.5}
"""
TWIN = "hypothesis:hypothesis=corner top-right,lapse=0.2,name=misgeneraliser"


def asked(folder: Path, *agents: str, **options: Any) -> Evaluation:
    return evaluate(list(agents), folder, quick=True, **options)


@pytest.mark.full
def test_agents_are_told_apart_in_grids_of_its_own(tmp_path: Path) -> None:
    agents = ("optimal", "epsilon-greedy:epsilon=0.3,name=noisy", "hypothesis:hypothesis=near centre,name=centre")
    found = asked(tmp_path, *agents, TWIN, arms=["hypotheses"])
    told = [one for ledger in found.models for one in ledger.found_in("hypotheses")]
    assert [one.answer for one in told] == ["yes", "yes", "no", "yes"]
    assert [one.names for one in told] == [("goal",), ("goal",), (), ("corner top-right",)]
    optimal, noisy = (one.figure("strength", "goal") for one in told[:2])
    assert optimal is not None and noisy is not None
    assert optimal.value == pytest.approx(1) and optimal.low is not None and optimal.low < 1  # never errs: no spread
    assert noisy.low is not None and noisy.high is not None and noisy.low < 0.7 < noisy.high  # 1 - epsilon
    claims = [ledger.claim(FOLLOWS) for ledger in found.models]
    assert [claim.answer for claim in claims if claim] == [one.answer for one in told]
    assert all(headline(ledger) == say(one) for ledger, one in zip(found.models, told, strict=True))
    assert found.complete and [contradictions(ledger) for ledger in found.models] == [[], [], [], []]


def test_a_misgeneraliser_is_judged_by_phase(tmp_path: Path) -> None:
    (tmp_path / "corner.yaml").write_text(PHASES, encoding="utf-8")
    given = {"worlds": str(tmp_path / "corner.yaml"), "hypotheses": "goal;corner top-right;corner top-left"}
    found = asked(tmp_path / "found", TWIN, "epsilon-greedy:epsilon=0.2,name=seeker", **given)
    for ledger, after in zip(found.models, ("corner top-right", "goal"), strict=True):
        trained, shifted = ledger.findings
        assert (trained.where, shifted.where) == ({"phase": "trained"}, {"phase": "shifted"})
        assert (trained.answer, trained.reason) == ("yes", "not told apart")
        assert {*trained.names} == {"goal", "corner top-right"}
        assert (shifted.answer, shifted.reason, shifted.names) == ("yes", "named", (after,))
        assert [one.answer for one in ledger.claims] == ["yes", "yes"] and ledger.claims[1].clusters == 24
        assert headline(ledger) == say_all(ledger.findings)
        assert contradictions(ledger) == []
    page = (tmp_path / "found" / "report.html").read_text(encoding="utf-8")
    assert "Which hypothesis explains the moves" in page and "consistency" in page
    with pytest.raises(ValueError, match="hypotheses"):  # other hypotheses are another evaluation
        asked(tmp_path / "found", TWIN, **{**given, "hypotheses": "goal"})


@pytest.mark.full
def test_hypotheses_that_coincide_everywhere_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "corner.yaml").write_text(PHASES.replace("not top-right", "top-right"), encoding="utf-8")
    found = asked(tmp_path / "found", TWIN, worlds=str(tmp_path / "corner.yaml"), hypotheses="goal;corner top-right")
    for one in found.models[0].findings:
        assert one.reason == "not told apart" and {*one.names} == {"goal", "corner top-right"}
        assert one.about("goal") == one.about("corner top-right") == "untestable"


def test_what_the_planned_worlds_are_enough_for_is_said_and_kept_before_they_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PHASES.replace("count: 12, goal: not top-right", "count: 10, apart: 3, goal: not top-right")
    (tmp_path / "corner.yaml").write_text(text, encoding="utf-8")
    given: dict[str, Any] = {"worlds": str(tmp_path / "corner.yaml"), "hypotheses": "goal;corner top-right"}
    dry = estimate([TWIN], tmp_path / "found", quick=True, **given)
    assert dry.plan is not None and not (tmp_path / "found" / PLAN).exists()
    told = dry.plan.beforehand
    assert set(told) <= set(dry.lines())
    trained = [line for line in told if "phase trained" in line]
    assert (
        len(trained) == 1 and stated("plan/never told apart", trained[0]) and "from the top-right corner" in trained[0]
    )
    study = Study.parse({**Study.load(tmp_path / "corner.yaml").dump(), "seed": dry.plan.seed})
    shifted = [world for world in study.worlds() if world.tags["phase"] == "shifted"]
    bank = load_hypotheses(given["hypotheses"])
    found = needed(bank, shifted, horizon=study.horizon.of, level=level(1))
    short = {one.name for one in found if one.worlds > 20}
    few = [line for line in told if stated("plan/too few", line)]
    nouns = {"goal": "the goal", "corner top-right": "the top-right corner"}
    assert short and {name for name in bank if any(f"name {nouns[name]} " in line for line in few)} == short
    assert all(f"{POWER:.0%}".replace("%", " %") in line for line in few), "fewer worlds name it less often"
    needs = [f"{one.worlds:.0f} at {100 * one.lapse:g} % random moves" for one in found if one.worlds > 20]
    assert all(need in str(few) for need in needs)
    assert any(stated("plan/enough", line) for line in told) == (len(short) < len(bank))

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("goalscope.verdict.evaluating.play", interrupt)
    with pytest.raises(KeyboardInterrupt):
        asked(tmp_path / "found", TWIN, **given)
    assert Plan.read(tmp_path / "found" / PLAN).beforehand == told


def test_the_bank_of_things_has_those_of_the_worlds_alone(tmp_path: Path) -> None:
    coin = PHASES.replace("count: 12", "count: 2, things: [coin]")
    (tmp_path / "coin.yaml").write_text(coin, encoding="utf-8")
    dry = estimate([TWIN], tmp_path / "out", quick=True, worlds=str(tmp_path / "coin.yaml"), hypotheses="things")
    assert dry.plan is not None and dry.plan.choices.hypotheses == ("goal", "at coin", "coin collected")
    with pytest.raises(ValueError, match="worlds with things"):
        estimate([TWIN], tmp_path / "out", quick=True, hypotheses="things")


def test_nothing_is_said_before_where_computing_it_would_take_minutes() -> None:
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.3], "count": 8}]
    plain = {"name": "long", "worlds": worlds, "agents": [{"kind": "random"}], "answers": 2}
    assert told_beforehand(Study.parse({**plain, "horizon": {"steps": 10}}), level=level(1))
    assert not told_beforehand(Study.parse({**plain, "horizon": {"steps": 50_000}}), level=level(1))


@pytest.mark.full
def test_where_the_planned_worlds_are_enough_that_is_said(tmp_path: Path) -> None:
    text = PHASES.replace("count: 12, goal: not top-right", "count: 120, apart: 3, goal: not top-right")
    (tmp_path / "corner.yaml").write_text(text, encoding="utf-8")
    given: dict[str, Any] = {"worlds": str(tmp_path / "corner.yaml"), "hypotheses": "goal;corner top-right"}
    often = estimate([TWIN], tmp_path / "often", quick=True, **given).plan
    assert often is not None
    (told_of_many,) = [line for line in often.beforehand if "phase shifted" in line]
    assert "240 worlds are enough to name the goal and the top-right corner" in told_of_many


@pytest.mark.parametrize(
    ("entry", "why"),
    long_after(
        1,
        [
            ("{kind: grid, sizes: [7], densities: [0.3], count: 8, fog_radius: 2}", "no process"),
            ("{kind: grid, sizes: [7], densities: [0.3], count: 1}", "few worlds"),
        ],
        names=2,
    ),
)
def test_worlds_that_can_tell_nothing_end_in_a_page_that_says_so(tmp_path: Path, entry: str, why: str) -> None:
    text = f"name: few\nworlds: [{entry}]\nagents: [{{kind: random}}]\n"
    (tmp_path / "few.yaml").write_text(text, encoding="utf-8")
    found = asked(tmp_path / "found", "optimal", worlds=str(tmp_path / "few.yaml"))
    (claim,), (one,) = found.models[0].claims, found.models[0].findings
    assert claim.answer not in ("yes", "no") and found.complete
    assert one.reason == why and headline(found.models[0]) == say(one)
    assert (tmp_path / "found" / "report.html").exists()


def test_hypotheses_that_do_not_fit_are_refused_and_those_of_ones_own_files_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = call("evaluate", "optimal", "--arms", "fog", "--hypotheses", "goal", "--quick", "--out", tmp_path, status=2)
    assert "--hypotheses" in said
    said = call("evaluate", "optimal", "--hypotheses", "goat", "--quick", "--out", tmp_path, status=2)
    assert "goat" in said
    (tmp_path / "mine_here.py").write_text(
        "def up(view):\n    return [1.0, 0, 0, 0]\ndef half(view):\n    return [0.5]\n"
    )
    monkeypatch.chdir(tmp_path)
    for name, status, fact in (("up", 0, "mine_here:up"), ("half", 1, "shape [A]")):
        (tmp_path / "mine.yaml").write_text(f"[goal, 'policy mine_here:{name}']", encoding="utf-8")
        words = ("optimal", "--arms", "hypotheses", "--hypotheses", "mine.yaml", "--quick", "--out", tmp_path / name)
        assert fact in call("evaluate", *words, status=status)
    # What is expected elsewhere is on the page of every agent that was asked twice: see test_elsewhere.py.
    assert VERDICT_TEXTS("elsewhere/title") in (tmp_path / "up" / "report.html").read_text(encoding="utf-8")
    (tmp_path / "long.yaml").write_text(f"- {{name: {'k' * 1000}, is: goal}}", encoding="utf-8")
    named = ("--hypotheses", tmp_path / "long.yaml", "--quick", "--out", tmp_path / "never")
    assert "at most 200 characters" in " ".join(call("evaluate", "optimal", *named, status=2).split())
