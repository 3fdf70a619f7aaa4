"""Attribution: each method against an oracle of its own, claims that stay frozen, scored predictions, the command."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import goalscope
from command_line import call
from goalscope._ground.ids import content_id
from goalscope._ground.rng import stream
from goalscope.agents import Observation, Turn
from goalscope.cli import attributing
from goalscope.goals.attribution import (
    Attribution,
    MixturePart,
    Trial,
    claim_of,
    freeze_claim,
    judged,
    read_claim,
    scored,
)
from goalscope.goals.attribution.definition import predicted
from goalscope.goals.attribution.methods import RATIONALITIES
from goalscope.goals.finding import say
from goalscope.goals.hypotheses import finite_world, load_hypotheses, meg_of, parse
from goalscope.goals.hypotheses.definition import arrivals
from goalscope.goals.hypotheses.states import Answers, States, answers_of, states_of_episodes
from goalscope.runs import Store, Study, run

ENTRY = {"kind": "grid", "sizes": [5, 7], "densities": [0.4], "count": 5, "minimum_distance": 4}
WORLDS = {"worlds": [ENTRY], "agents": [{"kind": "random"}], "seed": 2}


class Mute:
    """Never takes an action."""

    name, journalled = "mute", False

    def describe(self) -> dict[str, Any]:
        return {"kind": "mute"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [Turn(action=None, failure="no action") for _ in observations]


def acted(tmp_path: Path, *agents: Any, **more: Any) -> list[States]:
    plain = {**WORLDS, "agents": list(agents), "answers": 2, "trajectories": 1, **more}
    run(Study.parse(plain), tmp_path / "run")
    with Store(tmp_path / "run") as store:
        return states_of_episodes(store.episodes())[0]


def said(trial: Trial, method: str) -> Attribution:
    stratum = judged("", trial, [method])
    assert stratum.attributions, stratum.refused
    return stratum.attributions[0]


def optimal(tmp_path: Path) -> Trial:
    return Trial(states=acted(tmp_path, {"kind": "optimal"}), bank=load_hypotheses("grids"))


@pytest.mark.parametrize("method", ["score", "meg", "likelihood"])
def test_methods_name_the_goal_of_an_optimal_agent(tmp_path: Path, method: str) -> None:
    found = said(optimal(tmp_path), method)
    assert found.kind == "named", found.sentence
    assert found.names == ("goal",)
    assert max(found.weights, key=lambda name: found.weights[name]) == "goal"


def test_first_arrival_names_the_goal_unless_corners_lie_on_the_way(tmp_path: Path) -> None:
    trial = optimal(tmp_path)
    assert said(replace(trial, bank=load_hypotheses("goal")), "first arrival").names == ("goal",)
    assert said(trial, "first arrival").kind == "undecided"


def test_first_arrivals_without_looking_agree_with_episodes() -> None:
    world = finite_world(Study.parse(WORLDS).worlds()[3], 9)
    cells = [parse(text).where(world) for text in ("goal", "corner top-left", "near centre")]
    where, rng = np.array(cells), stream(3, "walks")
    counts, walks = np.zeros(len(where)), 4000
    for _ in range(walks):
        state = int(world.process.start.argmax())
        for step in range(world.horizon + 1):
            if where[:, state].any():
                counts += where[:, state]
                break
            state = int(world.process.transitions[state, rng.integers(4)]) if step < world.horizon else state
    assert arrivals(world, where, world.even) == pytest.approx(counts / walks, abs=0.03)


def test_meg_in_one_world_is_that_of_the_exact_policy(tmp_path: Path) -> None:
    trial = optimal(tmp_path)
    one = trial.states[0]
    alone = said(Trial(states=[one], bank=load_hypotheses("goal")), "meg")
    exact = meg_of(parse("goal"), one.world, parse("goal").solved(one.world).policy[0])
    assert alone.details["nats"]["goal"] == pytest.approx(exact.value, abs=1e-6)


def test_likelihood_is_the_product_of_soft_policies(tmp_path: Path) -> None:
    trial = Trial(
        states=acted(tmp_path, {"kind": "epsilon-greedy", "epsilon": 0.4})[:3], bank=load_hypotheses("goal;keep up")
    )
    given, found = trial.answers, said(trial, "likelihood")
    logs = []
    for beta in RATIONALITIES:
        total = 0.0
        for one in given:
            soft = _soft(one, float(beta))
            for answer in (one.first, one.second):
                assert answer is not None
                total += float(np.log(soft[one.time, one.state, answer.argmax(axis=1)]).sum())
        logs.append(total)
    expected = float(np.logaddexp.reduce(logs) - math.log(len(logs)))
    assert found.details["log evidence"]["goal"] == pytest.approx(expected, abs=1e-6)
    assert sum(found.weights.values()) == pytest.approx(1.0)


def _soft(one: Answers, beta: float) -> Any:
    """Return the soft-optimal policy by a backward recursion of its own, ``[n, S, A]``."""
    utility = parse("goal").solved(one.world).utility
    assert utility is not None
    after, policy = np.zeros(len(utility)), []
    for _ in range(one.world.horizon):
        values = (beta * utility)[:, None] + after[one.world.process.transitions]
        top = values.max(axis=1, keepdims=True)
        weights = np.exp(values - top)
        policy.append(weights / weights.sum(axis=1, keepdims=True))
        after = top[:, 0] + np.log(weights.mean(axis=1))
    return np.array(policy[::-1])


def test_without_second_answers_the_score_says_nothing_and_meg_never_says_none(tmp_path: Path) -> None:
    given = [replace(one, repeat=None) for one in acted(tmp_path, {"kind": "hypothesis", "hypothesis": "flee goal"})]
    stratum = judged("", Trial(states=given, bank=load_hypotheses("grids")), ["score", "meg"])
    assert "second answer" in stratum.refused["score"]
    assert [one.kind in ("not explained", "undecided") for one in stratum.attributions] == [True]


def test_own_probabilities_reach_the_ceiling_and_have_no_distance(tmp_path: Path) -> None:
    twin = {"kind": "hypothesis", "hypothesis": "goal", "lapse": 0.5}
    states = acted(tmp_path, twin, trajectories=60)
    given = answers_of(states)
    parts = (MixturePart(hypothesis="goal", weight=1.0, strength=0.5),)
    stratum = judged("", Trial(states=states, bank=load_hypotheses("goal")), [])
    others = (MixturePart(hypothesis="keep up", weight=1.0),)
    right, wrong = (
        scored(claim_of("agent", {}, given, None, [stratum.model_copy(update={"attributions": (said,)})]), given)[0]
        for said in (
            Attribution(method="own", kind="named", names=(), sentence="", predicts=predicts)
            for predicts in (parts, others)
        )
    )
    assert right.distance is not None and wrong.distance is not None and right.ceiling is not None
    assert right.distance[1] < 0 < right.distance[2]
    assert right.distance[0] < 0.02 < 0.2 < wrong.distance[1]
    assert wrong.log_score[0] < right.random < right.log_score[0] <= right.ceiling
    assert all(abs(chance - share) < 0.05 for chance, share, number in right.calibration if number > 300)
    # In expectation, exactly: the best log score is minus the entropy, and the log of what is repeated is above it.
    chances = predicted(parts, np.zeros(0), given[0])
    assert (np.log(chances) * chances).sum(axis=1).mean() <= math.log((chances**2).sum(axis=1).mean())


def test_predictions_of_a_hypothesis_that_means_nothing_here_fall_back_on_frequencies(tmp_path: Path) -> None:
    (one, *_) = answers_of(acted(tmp_path, {"kind": "optimal"}))
    often = np.array([0.7, 0.1, 0.1, 0.1])
    chances = predicted((MixturePart(hypothesis="key", weight=1.0),), often, one)
    assert chances[0] == pytest.approx(often, abs=0.01)


def test_a_claim_stays_as_it_was_frozen(tmp_path: Path) -> None:
    trial = optimal(tmp_path)
    claims = [
        claim_of("agent", trial.bank, trial.answers, {"study": "s"}, [judged("", trial, [method])])
        for method in ("first arrival", "meg", "first arrival")
    ]
    assert claims[0].id == claims[2].id != claims[1].id
    freeze_claim(claims[0], tmp_path)
    frozen = (tmp_path / "claim.json").read_bytes()
    freeze_claim(claims[2], tmp_path)
    with pytest.raises(ValueError, match=f"{claims[0].id}.*{claims[1].id}"):
        freeze_claim(claims[1], tmp_path)
    assert (tmp_path / "claim.json").read_bytes() == frozen
    assert read_claim(tmp_path / "claim.json").id == claims[0].id
    values = json.loads(frozen)
    # What only predictions have is left out, so that claims of earlier days stay readable.
    assert {*values} == {"agent", "digest", "hypotheses", "strata", "tested_on", "version", "worlds"}
    del values["digest"]
    values["strata"][0]["said"][0]["sentence"] = "another one"  # which the file does not hold, though the record does
    values["digest"] = content_id("sealed", values)
    text = json.dumps(values, ensure_ascii=True, indent=1, sort_keys=True)
    (tmp_path / "claim.json").write_text(text + "\n")
    with pytest.raises(ValueError, match="changed"):
        read_claim(tmp_path / "claim.json")


def test_what_a_method_says_may_hold_numbers_of_numpy_and_weights_without_bound(tmp_path: Path) -> None:
    trial = optimal(tmp_path)
    weights = MappingProxyType({"goal": np.float32(0.5), "key": math.inf, "door": math.nan})
    said = Attribution(
        method="own",
        kind="named",
        names=["goal"],  # type: ignore[arg-type]
        sentence="it goes to the goal",
        weights=weights,  # type: ignore[arg-type]
        predicts=[MixturePart(hypothesis="goal", weight=np.float64(1), strength=np.float32(0.5))],  # type: ignore[arg-type]
    )
    assert said.weights["key"] == math.inf and said.to_plain()["sentence"] == "it goes to the goal"
    stratum = judged("", trial, []).model_copy(update={"attributions": (said,)})
    freeze_claim(claim_of("agent", trial.bank, trial.answers, None, [stratum]), tmp_path)
    (one,) = read_claim(tmp_path / "claim.json").strata[0].attributions
    assert (one.names, one.weights, one.sentence) == (("goal",), {"goal": 0.5}, "")
    assert one.predicts[0].strength == 0.5


def test_separating_worlds_are_opened_after_the_claim_is_frozen(tmp_path: Path, monkeypatch: Any) -> None:
    order = []
    later = {**WORLDS, "seed": 77}
    real: Any = vars(attributing)["run"]

    def watched(study: Any, out: Path, **options: Any) -> Any:
        order.append((Path(out).name, (tmp_path / "out" / "claim.json").exists()))
        return real(study, out, **options)

    monkeypatch.setattr(attributing, "run", watched)
    found = goalscope.attribute(
        "hypothesis:hypothesis=beside goal,lapse=0.2", tmp_path / "out",
        hypotheses="grids", worlds=WORLDS, separating=later, methods=["score", "likelihood"],
    )  # fmt: skip
    assert order == [("worlds", False), ("separating", True)]
    assert next(one.kind for one in found.claim.strata[0].attributions) in ("none", "undecided")
    assert {test.method for test in found.tests} == {"score", "likelihood"}
    again = goalscope.attribute(
        "hypothesis:hypothesis=beside goal,lapse=0.2", tmp_path / "out",
        hypotheses="grids", worlds=WORLDS, separating=later, methods=["score", "likelihood"],
    )  # fmt: skip
    assert again.claim.id == found.claim.id
    assert again.tests == found.tests
    with pytest.raises(ValueError, match=found.claim.id):
        goalscope.attribute(
            "hypothesis:hypothesis=beside goal,lapse=0.2", tmp_path / "out",
            hypotheses="grids;beside goal", worlds=WORLDS, separating=later, methods=["score"],
        )  # fmt: skip


def test_phases_are_never_judged_together(tmp_path: Path) -> None:
    trained, shifted = (
        {**ENTRY, "sizes": [7, 9], "count": 6, "minimum_distance": 3, "goal": goal, "phase": phase}
        for goal, phase in (("top-right", "trained"), ("anywhere", "shifted"))
    )
    found = goalscope.attribute(
        "hypothesis:hypothesis=corner top-right", tmp_path / "out",
        hypotheses="goal;corner top-right;where the goal stood in phase trained",
        worlds={**WORLDS, "worlds": [trained, shifted]}, methods=["score"], by=["size"],
    )  # fmt: skip
    verdicts = {stratum.name: stratum.attributions[0] for stratum in found.claim.strata}
    assert "" not in verdicts
    assert "phase trained, size 7" in verdicts
    assert verdicts["phase trained"].kind == "set"
    assert set(verdicts["phase trained"].names) >= {"goal", "corner top-right"}
    assert "goal" not in verdicts["phase shifted"].names
    assert "corner top-right" in verdicts["phase shifted"].names


def test_the_command_prints_verdict_claim_and_scores(tmp_path: Path) -> None:
    words = ("attribute", "epsilon-greedy:epsilon=0.2", "--hypotheses", "goal;corner top-left", "--worlds", "grid")
    told = call(*words, "--count", "4", "--dry-run")
    assert "answered twice" in told
    assert not list(tmp_path.iterdir())
    out = tmp_path / "out"
    separating = "{kind: grid, sizes: [7], densities: [0.4], count: 7}"
    shown = call(*words, "--count", "4", "--separating", separating, "--out", out, "--methods", "score")
    frozen = read_claim(out / "claim.json").id
    assert frozen in shown
    assert "named" in shown and "goal" in shown
    assert "tested in 7 worlds" in shown
    told = call("attribute", out / "worlds", "--hypotheses", "goal;corner top-left", "--json", "--methods", "score,meg")
    result = json.loads(told[told.index("{") :])
    assert [one["kind"] for one in result["strata"][0]["methods"]] == ["named", "named"]
    call("attribute", out / "worlds", "--hypotheses", "goal", "--separating", out / "separating", "--methods", "meg")


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("optimal", "--hypotheses", "goal"), "--worlds"),
        (("optimal", "--hypotheses", "goal", "--worlds", "grid"), "directory"),
        (("nobody", "--hypotheses", "goal", "--worlds", "grid", "--out", "x"), "nobody"),
        (("optimal", "--hypotheses", "gaol", "--worlds", "grid", "--out", "x"), "gaol"),
        (("optimal", "--hypotheses", "goal", "--worlds", "grid", "--out", "x", "--methods", "scores"), "scores"),
    ],
)
def test_errors_say_what_is_missing(words: tuple[str, ...], fact: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert fact in call("attribute", *words, status=2)


def test_a_run_of_several_agents_needs_a_name_and_one_without_actions_is_refused(tmp_path: Path) -> None:
    acted(tmp_path, {"kind": "optimal"}, {"kind": "random"})
    with pytest.raises(ValueError, match=r"--name.*optimal, random"):
        goalscope.attribute(tmp_path / "run", hypotheses="goal")
    assert goalscope.attribute(tmp_path / "run", hypotheses="goal", name="random", methods=["score"]).agent == "random"
    run(Study.parse(WORLDS), tmp_path / "failed", agents=[Mute()])
    with pytest.raises(ValueError, match="action"):
        goalscope.attribute(tmp_path / "failed", hypotheses="goal")


def test_a_claim_that_new_worlds_refute_says_so(tmp_path: Path) -> None:
    """Where the goal always lay in the corner, an agent after the corner is taken for one after the goal."""
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": 14, "minimum_distance": 3}
    agent = tmp_path / "agent.yaml"
    agent.write_text("{kind: hypothesis, hypothesis: corner top-right, lapse: 0.1, name: cornered}")
    found = {}
    for name, goal in (("alike", "top-right"), ("elsewhere", "not top-right")):
        (one,) = goalscope.attribute(
            agent,
            tmp_path / name,
            hypotheses="goal;corner bottom-left",
            worlds={**WORLDS, "worlds": [{**entry, "goal": "top-right"}]},
            separating={**WORLDS, "worlds": [{**entry, "goal": goal, "apart": 2}], "seed": 3},
            methods=["score"],
        ).findings
        found[name] = one
        assert one.names == ("goal",) and one.bar is not None and one.tested is not None
        assert one.tested.high is not None and one.tested.high <= 1
        frozen = read_claim(tmp_path / name / "claim.json").strata[0]
        assert (frozen.answer, frozen.names) == ("yes", ("goal",)) and frozen.bar == pytest.approx(one.bar)
    assert (found["alike"].confirmed, found["elsewhere"].confirmed) == ("yes", "no")
    assert say(found["alike"]) != say(found["elsewhere"])
