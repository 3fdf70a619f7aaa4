"""Agents whose behaviour is known, predicted in worlds of other kinds."""

from dataclasses import replace

import numpy as np
import pytest
from planted_answers import follow, played
from predicted_agents import ORDINARY, worlds_of

from goalscope.goals.attribution.claim import NONE_OF_PLACES
from goalscope.goals.hypotheses import Undefined, parse
from goalscope.goals.hypotheses.definition import arrivals
from goalscope.goals.prediction.expected import doubts_about, expect, trust_of
from goalscope.goals.prediction.kinds import KindsOfWorlds, places_in, with_none
from goalscope.goals.prediction.mixture import RuleTables, length_of, usual_rules
from goalscope.goals.prediction.predictor import Predictor, best_alone

SMALLER = {**ORDINARY, "sizes": [7]}
GRIDS = {"kind": "grid", "sizes": [7], "densities": [0.4], "goal": "bottom-left", "start": "not bottom-left"}
DESIGN = KindsOfWorlds.read(
    {
        "kinds": [
            {"name": "goal bottom left", "worlds": [{**GRIDS, "apart": 4, "key": "anywhere", "count": 8}]},
            {"name": "no key", "worlds": [{**GRIDS, "apart": 4, "count": 8}]},
            {"name": "small", "worlds": [{**GRIDS, "sizes": [5], "apart": 2, "key": "anywhere", "count": 8}]},
        ],
        "places": ["goal", "key", "corner top-right"],
    },
    "design",
)
PLACES = [parse(place) for place in DESIGN.places]


@pytest.fixture(scope="module")
def shared():
    """Return tables, ordinary worlds, worlds with the goal top right, and unseen worlds."""
    return (
        RuleTables(),
        worlds_of(SMALLER, 5, 5),
        worlds_of({**SMALLER, "goal": "top-right"}, 5, 5),
        DESIGN.unseen(),
    )


def predicted(table_of, seen, tables):
    rng = np.random.default_rng(4)
    return Predictor([played(world, table_of(world), rng) for world in seen], PLACES, tables=tables)


def lapsing(text, rate):
    def table_of(world):
        try:
            policy = follow(text, world)
        except Undefined:
            policy = world.even
        return ((1 - rate) * policy + rate * world.even)[None]

    return table_of


def true_shares(table_of, worlds):
    return np.mean([with_none(arrivals(w, places_in(w, PLACES), table_of(w)[None])[0]) for w in worlds], axis=0)


def expected_of(predictor, unseen):
    return expect(predictor, unseen, doubts_about(predictor, unseen))


@pytest.mark.parametrize(("text", "rate"), [("goal", 0.1), ("key if not key held, else goal", 0.1)])
def test_an_agent_that_follows_a_rule_is_predicted_in_a_kind_it_was_not_seen_in(shared, text, rate) -> None:
    tables, ordinary, _, unseen = shared
    predictor = predicted(lapsing(text, rate), ordinary, tables)
    moved, *_ = expected_of(predictor, unseen)
    assert next(iter(predictor.weights)) == text
    assert list(moved.shares) == ["goal", "key", "corner top-right", NONE_OF_PLACES]
    share, low, high = np.transpose([*moved.shares.values()])
    assert share == pytest.approx(true_shares(lapsing(text, rate), unseen[moved.kind]), abs=0.12)
    assert (low <= share).all()
    assert (share <= high).all()
    assert np.shape(moved.baselines["optimal"]) == np.shape(moved.chances) == (8, 4)
    assert np.sum(moved.chances, axis=1) == pytest.approx(np.ones(8), abs=1e-3)


def test_where_two_goals_always_coincided_both_are_expected(shared) -> None:
    tables, _, confounded, unseen = shared
    predictor = predicted(lapsing("goal", 0.05), confounded, tables)
    moved, *_ = expected_of(predictor, unseen)
    _, low, high = moved.shares["goal"]
    assert high - low > 0.5
    assert moved.trust == "poor"
    doubts = doubts_about(predictor, unseen)
    assert any("“goal”" in doubt.sentence and "corner top-right" in doubt.sentence for doubt in doubts)
    alone = predictor.foresee(unseen[moved.kind][0], best_alone(predictor))
    assert alone.reached.shape == (1, 4)


def test_doubts_name_the_kinds_of_worlds_where_they_matter(shared) -> None:
    tables, ordinary, _, unseen = shared
    predictor = predicted(lapsing("goal", 0.05), ordinary, tables)
    kinds = {kind for doubt in doubts_about(predictor, unseen) for kind in doubt.kinds}
    assert {"no key", "small"} <= kinds  # all worlds seen had a key, and 7 rows
    trust = {kind.kind: kind.trust for kind in expected_of(predictor, unseen)}
    assert trust["no key"] == trust["small"] == "poor"


def test_an_agent_outside_the_rules_is_predicted_by_a_fall_back(shared) -> None:
    tables, _, _, unseen = shared
    seen = worlds_of(SMALLER, 6, 6)

    def exchanged(world):
        return lapsing("key", 0.05)(world)[:, :, [0, 1, 3, 2]]

    predictor = predicted(exchanged, seen, tables)
    assert next(iter(predictor.weights)) == "learned moves"
    moved = unseen["goal bottom left"]
    shares = np.mean([predictor.foresee(world).reached.mean(axis=0) for world in moved], axis=0)
    assert shares == pytest.approx(true_shares(exchanged, moved), abs=0.15)


def test_without_second_answers_nothing_is_trusted(shared) -> None:
    tables, ordinary, _, unseen = shared
    rng = np.random.default_rng(4)
    answers = [replace(played(w, lapsing("goal", 0.1)(w), rng), second=None) for w in ordinary]
    predictor = Predictor(answers, PLACES, tables=tables)
    assert predictor.distance is None
    assert trust_of(None) == expected_of(predictor, {"no key": unseen["no key"]})[0].trust == "poor"


def test_too_few_worlds_are_refused(shared) -> None:
    tables, ordinary, _, _ = shared
    with pytest.raises(ValueError, match="at least 6"):
        predicted(lapsing("goal", 0.1), ordinary[:4], tables)


def test_worlds_with_other_actions_than_those_seen_are_refused_by_the_name_of_their_kind(shared) -> None:
    tables, ordinary, _, _ = shared
    lakes = [{"kind": "gymnasium", "environments": ["FrozenLake-v1"], "options": {"is_slippery": False}}]
    design = KindsOfWorlds.read({"kinds": [{"name": "lakes", "worlds": lakes}], "places": ["goal"]}, "design")
    predictor = predicted(lapsing("goal", 0.1), ordinary, tables)
    with pytest.raises(ValueError, match=r"'lakes' must have the actions .*UP, DOWN"):
        expected_of(predictor, design.unseen())
    lake = design.unseen()["lakes"][0]
    mixed = [*predictor.answers, played(lake, lake.even[None], np.random.default_rng(4))]
    with pytest.raises(ValueError, match="the same actions, got UP, DOWN"):
        Predictor(mixed, PLACES, tables=tables)


def test_a_prediction_does_not_depend_on_what_was_predicted_before(shared) -> None:
    tables, ordinary, _, unseen = shared
    first, second = (predicted(lapsing("key", 0.2), ordinary, tables) for _ in range(2))
    first.foresee(unseen["no key"][0])
    world = unseen["small"][0]
    assert np.array_equal(first.foresee(world).reached, second.foresee(world).reached)


def test_rules_are_longer_the_more_parts_they_have() -> None:
    assert length_of(parse("goal")) == length_of(parse("corner top-left")) == 1
    assert length_of(parse("goal within 5 steps")) == 3
    assert length_of(parse("goal if key held, else corner top-left")) == 4
    assert len({rule.text for rule in usual_rules()}) == len(usual_rules())
