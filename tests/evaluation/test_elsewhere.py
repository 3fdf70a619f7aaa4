"""What a page expects elsewhere, of agents whose behaviour is known: true where it is trusted, not said elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
from planted_answers import follow, played, stopping
from predicted_agents import Subject, lapsing

from goalscope import evaluate
from goalscope.goals.hypotheses import finite_world, parse
from goalscope.goals.hypotheses.definition import arrivals
from goalscope.goals.prediction.kinds import ELSEWHERE, KindsOfWorlds, places_in, with_none
from goalscope.goals.prediction.mixture import RuleTables
from goalscope.runs import Study
from goalscope.runs.study import Horizon
from goalscope.verdict.page import named_of, predicted_from, say_elsewhere
from goalscope.verdict.texts import TEXTS

KEYS = "grids with a key"
DESIGN = KindsOfWorlds.load(ELSEWHERE)
UNSEEN, TABLES = DESIGN.unseen(), RuleTables()


@pytest.fixture(scope="module")
def seen():
    """Return worlds as those in which an evaluation compares hypotheses."""
    entry = {"kind": "grid", "sizes": [7, 9], "densities": [0.2, 0.4, 0.6], "count": 7}
    study = Study.assemble({"worlds": [entry], "agents": [{"kind": "random"}], "seed": 8})
    return [finite_world(world, Horizon(factor=1.5).of(world)) for world in study.worlds()]


def prediction(act, seen):
    subject, rng = Subject(name="agent", group="", act=act), np.random.default_rng(6)
    return predicted_from([played(world, subject.table(world), rng) for world in seen], TABLES)


def share(act, kind, place):
    """Return the exact share of the worlds of a kind in which an agent reaches a place first."""
    subject, places = Subject(name="agent", group="", act=act), [parse(text) for text in DESIGN.places]
    worlds = UNSEEN[kind]
    reached = [with_none(arrivals(w, places_in(w, places), subject.table(w)[None])[0]) for w in worlds]
    return float(np.mean(reached, axis=0)[[*DESIGN.places].index(place)])


def test_what_is_trusted_of_a_goal_seeker_is_true(seen) -> None:
    act = lapsing("goal", 0.1)
    distance, kinds = prediction(act, seen)
    trusted = [kind for kind in kinds if kind.trust == "good"]
    assert "open rooms" in {kind.kind for kind in trusted}
    for kind in trusted:
        assert kind.main == "goal"
        assert kind.shares["goal"][0] == pytest.approx(share(act, kind.kind, "goal"), abs=0.1)
    text = say_elsewhere("agent", distance, kinds)
    assert f"{kinds[0].shares['goal'][0]:.0%}" in text
    assert text.startswith(say_elsewhere("agent", distance, trusted))
    assert KEYS not in say_elsewhere("agent", distance, trusted)
    poor = [kind for kind in kinds if kind.trust == "poor"]
    rounded = f"{distance:.2f}"
    assert say_elsewhere("agent", distance, poor) == TEXTS("elsewhere/good", model="agent", distance=rounded)


def test_an_agent_that_leaves_the_goal_for_a_key_is_not_trusted_where_there_are_keys(seen) -> None:
    """The sentence would be false of it: seen without keys, it is after the goal as any other agent."""

    def act(world, rng):
        return follow("goal" if world.grid.key is None else "key if not key held, else goal", world)

    distance, kinds = prediction(act, seen)
    keys = next(kind for kind in kinds if kind.kind == KEYS)
    assert keys.main == "goal"
    assert share(act, KEYS, "key") > 0.5
    assert keys.trust == "poor"
    good = [kind for kind in kinds if kind.trust == "good"]
    assert say_elsewhere("agent", distance, [*good, keys]).endswith(TEXTS("elsewhere/doubtful", kinds=KEYS))


def test_an_agent_that_no_rule_describes_is_not_trusted_anywhere(seen) -> None:
    distance, kinds = prediction(stopping(2), seen)
    assert {kind.trust for kind in kinds} == {"poor"}
    assert say_elsewhere("agent", distance, kinds) == TEXTS("elsewhere/poor", model="agent", distance=f"{distance:.2f}")


def test_without_second_answers_or_with_few_worlds_nothing_is_expected(seen) -> None:
    rng = np.random.default_rng(1)
    answers = [played(world, follow("goal", world)[None], rng) for world in seen]
    assert predicted_from(answers[:4], TABLES) is None
    assert predicted_from([replace(one, second=None) for one in answers], TABLES) is None


@pytest.mark.full
def test_the_page_shows_it_for_the_models_that_were_asked_twice(tmp_path) -> None:
    evaluate(["epsilon-greedy:epsilon=0.1", "random"], tmp_path / "found", arms=["hypotheses"], quick=True, seed=3)
    page = (tmp_path / "found" / "report.html").read_text()
    assert TEXTS("elsewhere/title") in page
    figure = named_of(tmp_path / "found")["elsewhere-figure-1"]
    kinds = {record["line"].partition(":")[0] for record in figure.drawn.records}
    assert kinds == {*UNSEEN}
    assert {record["series"] for record in figure.drawn.records} == {"epsilon-greedy(0.1)", "random"}
