"""`goalscope predict`: freeze a claim, look, and refuse what is no claim of a prediction or is about another agent."""

import json

import numpy as np
import pytest

import goalscope
from command_line import call
from goalscope._ground.sealed import seal
from goalscope.goals.attribution import read_claim
from goalscope.goals.attribution.claim import FILE, divergence
from goalscope.goals.prediction.expected import BASELINES

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
    claim = read_claim(place / "claim")
    assert claim.id in printed
    assert [kind.kind for kind in claim.kinds] == ["small", "keys", "moved"]
    assert set(claim.kinds[0].shares) == {"goal", "key", "none"}
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
    assert [test.stratum for test in looked.tests] == ["small", "keys", "moved"]
    for test, kind in zip(looked.tests, looked.claim.kinds, strict=True):
        assert sum(test.shares.values()) == pytest.approx(1)
        low, high = kind.shares[kind.main][1:]
        assert test.is_held == test.holds[kind.main]
        assert test.is_held or not low <= test.shares[kind.main] <= high
        assert test.divergences["predicted"] == pytest.approx(
            float(divergence(np.array([*test.shares.values()]), np.mean(kind.chances, axis=0)))
        )
        assert test.random < test.log_score[0] < 0
        assert test.distance is not None
    assert len(looked.records) == 9
    again = goalscope.predict(place / "claim", look=place / "claim" / "looked" / "2")
    assert [test.stratum for test in again.tests] == ["keys"]
    assert again.left_out == {"small": 5, "moved": 3}
    assert again.tests[0].shares == looked.tests[1].shares


def test_a_prediction_of_another_agent_does_not_look_at_this_one(frozen) -> None:
    place, _ = frozen
    with pytest.raises(ValueError, match="another agent"):
        goalscope.predict(place / "claim", place / "other", look="random")
    assert [folder.name for folder in (place / "other" / "looked").iterdir()] == ["1"]  # it is asked in no other kind


def test_a_changed_prediction_is_refused(frozen, tmp_path) -> None:
    place, _ = frozen
    text = (place / "claim" / FILE).read_text()
    claim = read_claim(place / "claim")
    damaged = tmp_path / FILE
    damaged.write_text(text.replace('"trust": "poor"', '"trust": "good"', 1))
    with pytest.raises(ValueError, match="changed since"):
        read_claim(damaged)
    kind = claim.kinds[0].model_copy(update={"moves": claim.kinds[1].moves})
    damaged.write_text(seal(claim.model_copy(update={"kinds": (kind, *claim.kinds[1:])})))
    with pytest.raises(ValueError, match="do not fit"):
        goalscope.predict(damaged, tmp_path / "out", look=AGENT)
    damaged.write_text(seal(claim.model_copy(update={"doubts": ()})))
    assert read_claim(damaged).id != claim.id
    other = claim.kinds[0].model_copy(update={"worlds": claim.kinds[1].worlds})
    for kinds in ((other, *claim.kinds[1:]), claim.kinds[:2], claim.kinds[::-1]):
        damaged.write_text(seal(claim.model_copy(update={"kinds": kinds})))
        with pytest.raises(ValueError, match="other worlds"):
            goalscope.predict(damaged, tmp_path / "out", look=AGENT)
    damaged.write_text(seal(claim.model_copy(update={"tested_on": {"study": "s"}})))
    with pytest.raises(ValueError, match="tested_on"):
        goalscope.predict(damaged, tmp_path / "out", look=AGENT)


def test_a_claim_of_attribute_and_a_prediction_of_an_earlier_version_are_refused_with_what_to_type(
    frozen, tmp_path
) -> None:
    place, _ = frozen
    goalscope.attribute(place / "claim" / "worlds", tmp_path / "after", hypotheses="goal", methods=["meg"])
    with pytest.raises(ValueError, match=r"goalscope attribute .* --separating"):
        goalscope.predict(tmp_path / "after", tmp_path / "out", look=AGENT)
    (tmp_path / "prediction.json").write_text("{}")
    for path in (tmp_path, tmp_path / "prediction.json"):
        with pytest.raises(ValueError, match="goalscope predict AGENT --worlds"):
            goalscope.predict(path, tmp_path / "out", look=AGENT)
    with pytest.raises(ValueError, match="goalscope predict AGENT --worlds"):
        goalscope.predict(place / "claim" / "worlds", tmp_path, kinds=place / "kinds.yaml")


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
