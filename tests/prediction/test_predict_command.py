"""`goalscope predict`: freeze a prediction, look, and refuse what is not a prediction or another agent."""

import json

import numpy as np
import pytest

import goalscope
from command_line import call
from goalscope._ground.sealed import seal
from goalscope.goals.prediction.claim import FILE, read_prediction
from goalscope.goals.prediction.expected import BASELINES, divergence

AGENT = "epsilon-greedy:epsilon=0.2"
WORLDS = "{kind: grid, sizes: [7], densities: [0.4], count: 12}"
KINDS = {
    "kinds": [
        {"name": "small", "worlds": [{"kind": "grid", "sizes": [5], "densities": [0.2], "count": 5}]},
        {"name": "keys", "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.4], "key": "anywhere", "count": 5}]},
        {
            "name": "moved",
            "worlds": [{"kind": "changed", "of": [{"kind": "grid", "sizes": [7], "densities": [0.4], "count": 4}]}],
            "tags": {"moved": "goal"},
            "count": 3,
        },
    ],
    "places": ["goal", "key"],
}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """Return the directory of a prediction, that of its kinds, and what was printed."""
    place = tmp_path_factory.mktemp("predict")
    (place / "kinds.yaml").write_text(json.dumps(KINDS))
    words = ("--worlds", WORLDS, "--kinds", str(place / "kinds.yaml"), "--out", str(place / "claim"))
    return place, call("predict", AGENT, *words)


def test_a_prediction_is_frozen_and_says_beforehand_what_the_data_cannot_decide(frozen) -> None:
    place, printed = frozen
    claim = read_prediction(place / "claim")
    assert claim.id in printed
    assert [kind.kind for kind in claim.kinds] == ["small", "keys", "moved"]
    assert claim.places == ("goal", "key", "none")
    for kind in claim.kinds:
        assert np.sum(kind.chances, axis=1) == pytest.approx(np.ones(len(kind.worlds)), abs=1e-3)
        assert set(kind.baselines) == set(BASELINES)
    for kind in claim.kinds[:2]:
        assert kind.trust == "poor"  # sizes and keys that were not seen
    assert any(doubt in printed for doubt in claim.doubts)
    assert claim.weights["goal"] > 0.3


def test_looking_opens_the_worlds_and_says_for_each_kind_whether_it_was_held(frozen) -> None:
    place, _ = frozen
    looked = goalscope.predict(place / "claim", look=AGENT)
    assert [kind.claim.kind for kind in looked.kinds] == ["small", "keys", "moved"]
    for kind in looked.kinds:
        assert sum(kind.shares.values()) == pytest.approx(1)
        low, high = kind.claim.shares[kind.main][1:]
        assert kind.is_held or not low <= kind.shares[kind.main] <= high
        assert kind.divergences["predicted"] == pytest.approx(
            float(divergence(kind.chances.mean(axis=0), np.mean(kind.claim.chances, axis=0)))
        )
        assert kind.random < kind.nats < 0
    assert len(looked.records) == 9
    again = goalscope.predict(place / "claim", look=place / "claim" / "looked" / "2")
    assert [kind.claim.kind for kind in again.kinds] == ["keys"]
    assert again.missing == {"small": 5, "moved": 3}
    assert again.kinds[0].shares == looked.kinds[1].shares


def test_a_prediction_of_another_agent_does_not_look_at_this_one(frozen) -> None:
    place, _ = frozen
    with pytest.raises(ValueError, match="another agent"):
        goalscope.predict(place / "claim", place / "other", look="random")


def test_a_changed_prediction_is_refused(frozen, tmp_path) -> None:
    place, _ = frozen
    text = (place / "claim" / FILE).read_text()
    claim = read_prediction(place / "claim")
    damaged = tmp_path / FILE
    damaged.write_text(text.replace('"trust": "poor"', '"trust": "good"', 1))
    with pytest.raises(ValueError, match="changed since"):
        read_prediction(damaged)
    kind = claim.kinds[0].model_copy(update={"moves": claim.kinds[1].moves})
    damaged.write_text(seal(claim.model_copy(update={"kinds": (kind, *claim.kinds[1:])})))
    with pytest.raises(ValueError, match="do not fit"):
        goalscope.predict(damaged, tmp_path / "out", look=AGENT)
    damaged.write_text(seal(claim.model_copy(update={"seen": ()})))
    assert read_prediction(damaged).id != claim.id


def test_options_that_do_not_apply_are_refused_by_name(frozen, tmp_path) -> None:
    place, _ = frozen
    with pytest.raises(ValueError, match="--look"):
        goalscope.predict(place / "claim")
    with pytest.raises(ValueError, match="--worlds"):
        goalscope.predict(AGENT)
    with pytest.raises(ValueError, match="--worlds"):
        goalscope.predict(place / "claim" / "worlds", worlds=WORLDS)
    with pytest.raises(ValueError, match="--worlds"):
        goalscope.predict(place / "claim", worlds=WORLDS, look=AGENT)
