"""Steering and ablation on null models: the report's positives stay below the nominal level.

In the models of `hand_pairs.Null` every change of the site changes some actions and none does so towards a source's
action, or in a direction of its own. What is counted is the verdict that the page prints, of the rows that the
experiments make. In the planted model beside it the site decides the action, along the direction that probes read.
"""

from collections.abc import Callable

import pytest
from hand_pairs import Null, Planted, SiteFinder, verdicts
from scipy.stats import binom

from goalscope.inside.interventions import reading
from goalscope.inside.interventions.directions import Ablation, Steering, ablate, steer

ABOVE, BELOW = "above", "below"
"""What is printed as "turns the action"; as "needed for the action"."""


def steered(made: Null) -> dict[str, str]:
    """Return what is said of the probe's direction and of the mean difference."""
    settings = Steering(doses=(1.0,), random=3)
    rows = steer(made.agent, made.found(), made.seen(), settings, "changed", 1)
    return {title.partition(",")[0]: word for (title, _), word in verdicts("steering", rows).items()}


def ablated(made: Null) -> dict[str, str]:
    """Return what is said of the goal's cell; nothing where a probe does not find it."""
    rows = ablate(made.agent, made.found(), made.seen(), Ablation(random=3), "goal", "grid", 1)
    return {title: word for (title, _), word in verdicts("ablation", rows).items()}


KINDS: dict[str, tuple[Callable[[Null], dict[str, str]], int, float, str]] = {
    "steering": (steered, 36, 2.5, ABOVE),
    "ablation": (ablated, 48, 20.0, BELOW),
}
"""What is asked, of how many pairs, at which sway, and the word that is positive."""

each_kind = pytest.mark.parametrize("kind", list(KINDS))


@pytest.fixture(autouse=True)
def _site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the experiments find the site of prompts that hold no grid."""
    monkeypatch.setattr(reading, "SiteFinder", lambda *_: SiteFinder())


def _null(kind: str, seed: int) -> dict[str, str]:
    ask, pairs, sway, _ = KINDS[kind]
    return ask(Null(seed, pairs, sway=sway))


@each_kind
def test_a_planted_direction_is_positive(kind: str) -> None:
    ask, _, _, positive = KINDS[kind]
    said = ask(Planted(0, 36))
    assert said and set(said.values()) == {positive}


@each_kind
def test_a_null_model_is_not_positive(kind: str) -> None:
    positive = KINDS[kind][3]
    said = _null(kind, 0)
    assert said and positive not in said.values()


@pytest.mark.full
@each_kind
def test_over_200_null_models_positives_stay_at_the_nominal_level(kind: str) -> None:
    """A 95 % interval lies on one side of 0 in 2.5 % of the cases at most; each sentence is counted apart."""
    positive = KINDS[kind][3]
    said = [_null(kind, seed) for seed in range(200)]
    for name in dict.fromkeys(name for one in said for name in one):
        words = [one[name] for one in said if name in one]
        assert len(words) >= 190 and words.count("unknown") == 0
        assert words.count(positive) <= binom.ppf(0.999, len(words), 0.025)
