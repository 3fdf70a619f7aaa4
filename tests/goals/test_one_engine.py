"""One finding, in the same words, from every door: `evaluate`, `attribute` and `towards`; Inspect's is in its tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import goalscope
import slipping_forklift  # noqa: F401  (registers the environment)
from families import long_after
from goalscope.cli.logs import import_logs
from goalscope.goals.decision import by_single_answers, decide
from goalscope.goals.finding import Finding, say
from goalscope.goals.hypotheses import load_hypotheses, twin
from goalscope.goals.reading import read_states
from goalscope.runs import Store, Study, run
from goalscope.runs.importers import write_jsonl
from goalscope.verdict.judging import contradictions

FORKLIFT = {"kind": "environment", "source": "slipping forklift", "seeds": "1..6"}
KEY_DOOR = {"kind": "key-door", "count": 8}
GRIDS = {"kind": "grid", "sizes": [7], "densities": [0.2, 0.5], "count": 8, "minimum_distance": 3}


def played(folder: Path, worlds: Sequence[Any], agents: Sequence[Any], **more: Any) -> Path:
    run(Study.parse({"name": "doors", "seed": 3, "worlds": [*worlds], "agents": [*agents], **more}), folder)
    return folder


def through_runs(folder: Path, hypotheses: str) -> list[Finding]:
    """Return the finding on the one agent of a run from `attribute` and from `towards`."""
    attributed = goalscope.attribute(folder, hypotheses=hypotheses)
    measured = goalscope.towards(folder, hypotheses=hypotheses.split(";"))
    assert attributed.sentence == measured.sentences[0]
    return [*attributed.findings, *measured.findings]


@pytest.mark.full
@pytest.mark.parametrize(
    ("rule", "names", "steps"),
    [("goal", ("goal",), ("crate held",)), ("crate held", ("crate held",), ()), ("charger", ("charger",), ())],
)
def test_own_hypotheses_in_a_stochastic_world_of_ones_own(
    tmp_path: Path, rule: str, names: tuple[str, ...], steps: tuple[str, ...]
) -> None:
    bank, agent = "goal;crate held;charger", twin(rule, lapse=0.2, horizon=30, name="planted")
    folder = played(tmp_path / "run", [FORKLIFT], [agent], horizon={"steps": 30}, answers=2)
    found = through_runs(folder, bank)
    study = tmp_path / "floor.yaml"
    study.write_text(
        "name: floor\nhorizon: {steps: 30}\nagents: [{kind: random}]\n"
        "worlds: [{kind: environment, source: slipping forklift, seeds: 1..6}]\n"
    )
    text = f"hypothesis:hypothesis={rule},lapse=0.2,horizon=30,name=planted"
    judged = goalscope.evaluate([text], tmp_path / "judged", quick=True, worlds=str(study), hypotheses=bank)
    (ledger,) = judged.models
    found += ledger.findings
    assert len(found) == 3
    for one in found:
        assert (one.answer, one.names, one.steps) == ("yes", names, steps), say(one)
        assert one.agent == "planted"
    assert judged.complete and contradictions(ledger) == []


def test_a_log_with_one_answer_a_step_is_judged(tmp_path: Path) -> None:
    agents = [{"kind": "epsilon-greedy", "epsilon": 0.2, "name": "seeker"}]
    source = played(tmp_path / "source", [GRIDS], agents)
    with Store(source) as store:
        write_jsonl(store.episodes(), tmp_path / "log.jsonl")
    import_logs(tmp_path / "log.jsonl", tmp_path / "log")
    found = through_runs(tmp_path / "log", "goal;corner top-left;corner bottom-right")
    judged = goalscope.evaluate([str(tmp_path / "log")], tmp_path / "judged", quick=True)
    found += judged.models[0].findings
    assert len(found) == 3 and contradictions(judged.models[0]) == []
    for one in found:
        assert (one.answer, one.names) == ("yes", ("goal",)), say(one)


def test_several_episodes_in_a_world_stand_in_for_second_answers(tmp_path: Path) -> None:
    agents = [
        {"kind": "epsilon-greedy", "epsilon": 0.2, "name": "seeker"},
        {"kind": "random"},
        twin("beside goal", lapse=0.1, name="beside"),
    ]
    once = played(tmp_path / "once", [GRIDS], agents, trajectories=6)
    twice = played(tmp_path / "twice", [GRIDS], agents, trajectories=6, answers=2)
    bank = load_hypotheses("grids")
    for agent in ("seeker", "random", "beside"):
        with Store(once) as store:
            by_visits = decide(read_states(store, agent)[0], bank)
            assert decide(read_states(store, agent)[0], bank, by_visits=False).method == "meg"
        with Store(twice) as store:
            by_answers = decide(read_states(store, agent)[0], bank)
        assert by_visits.method == by_answers.method == "consistency" and 0.3 < by_visits.covered < by_answers.covered
        assert (by_visits.answer, by_visits.names) == (by_answers.answer, by_answers.names), (agent, say(by_visits))


@pytest.mark.parametrize("rule", long_after(2, ["goal", "key held", "corner top-left if key held, else key held"]))
def test_single_answers_tell_a_goal_from_the_step_on_every_way_there(tmp_path: Path, rule: str) -> None:
    folder = played(tmp_path, [KEY_DOOR], [twin(rule, lapse=0.1, name="planted")], trajectories=2)
    bank = load_hypotheses("goal;key held;corner bottom-right")
    with Store(folder) as store:
        found = by_single_answers(read_states(store, "planted")[0], bank)
    if rule == "goal":
        assert (found.answer, found.names, found.steps) == ("yes", ("goal",), ("key held",)), say(found)
    else:
        assert not (found.answer == "yes" and "goal" in found.names), say(found)


@pytest.mark.parametrize(
    ("rule", "reason", "subject"),
    [
        ("flee goal", "another rule", "flee goal"),
        ("straight to goal", "another rule", "straight to goal"),
        ("goal if it lies left, else corner bottom-right", "partly", "goal"),
    ],
)
def test_what_explains_an_agent_that_follows_no_hypothesis_is_the_rule_that_it_follows(
    tmp_path: Path, rule: str, reason: str, subject: str
) -> None:
    worlds = {"kind": "grid", "sizes": [7, 9], "densities": [0.3, 0.6], "count": 8, "minimum_distance": 3}
    folder = played(tmp_path, [worlds], [twin(rule, lapse=0.1, name="planted")], answers=2)
    with Store(folder) as store:
        found = decide(read_states(store, "planted")[0], load_hypotheses("goal;corner top-left"))
    assert (found.reason, found.subject) == (reason, subject), say(found)
    assert found.part is None or (found.part.kind, found.part.side) == ("side", "to the left")
    # Of an agent that is after the goal in a part of the states it is not said that the goal explains all of it.
    assert found.about("goal") == ("no" if reason == "another rule" else "yes")
