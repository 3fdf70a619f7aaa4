"""Steering, alignment search and ablation on null models: the report's positives stay below the nominal level.

In the models of `hand_pairs.Null` every change of the site changes some actions and none does so towards a source's
action, or in a direction of its own. What is counted is the verdict that the page prints, of the rows that the
experiments make. In the planted model beside it the site decides the action, along the direction that probes read.
"""

from collections.abc import Callable

import pytest
from hand_pairs import Null, Obvious, Planted, SiteFinder, verdicts
from scipy.stats import binom

from goalscope.interventions import reading
from goalscope.interventions.ablation import Ablation, ablate
from goalscope.interventions.alignment import (
    COMPONENTS,
    DIFFERENCES,
    FOUND,
    ODDS,
    RANDOM,
    SHUFFLED,
    WHOLE,
    Alignment,
    search,
)
from goalscope.interventions.reading import FOLLOWS
from goalscope.interventions.steering import Steering, steer
from goalscope.rows import Rows

ABOVE, BELOW = "above", "below"
"""What is printed as "turns the action"; as "needed for the action"."""


def steered(made: Null) -> dict[str, str]:
    """Return what is said of the probe's direction and of the mean difference."""
    settings = Steering(doses=(1.0,), random=3)
    rows = steer(made.agent, made.found(), made.seen(), settings, "changed", 1)
    return {title.partition(",")[0]: word for (title, _), word in verdicts("steering", rows).items()}


def searched(made: Null) -> dict[str, str]:
    pairs = made.found()
    half = len(pairs) // 2
    settings = Alignment(ranks=(4,), steps=30, rate=0.1)
    rows = search(made.agent, made.model, pairs[:half], pairs[half:], settings, "changed", 1)
    return {title: word for (title, _), word in verdicts("alignment", rows).items()}


def ablated(made: Null) -> dict[str, str]:
    """Return what is said of the goal's cell; nothing where a probe does not find it."""
    rows = ablate(made.agent, made.found(), made.seen(), Ablation(random=3), "goal", "grid", 1)
    return {title: word for (title, _), word in verdicts("ablation", rows).items()}


KINDS: dict[str, tuple[Callable[[Null], dict[str, str]], int, float, str]] = {
    "steering": (steered, 36, 2.5, ABOVE),
    "alignment": (searched, 48, 2.5, ABOVE),
    "ablation": (ablated, 48, 20.0, BELOW),
}
"""What is asked, of how many pairs, at which sway, and the word that is positive."""

each_kind = pytest.mark.parametrize("kind", list(KINDS))


@pytest.fixture(autouse=True)
def _site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the experiments find the site of prompts that hold no grid."""
    monkeypatch.setattr(reading, "finder_of", lambda *_: SiteFinder())


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


@pytest.mark.parametrize(("whole", "word"), [(1.0, ABOVE), (0.0, "none")])
def test_a_found_subspace_counts_only_where_the_whole_stream_does(whole: float, word: str) -> None:
    """What a part of the stream does and all of it does not is a dormant pathway."""
    values = {WHOLE: whole, FOUND: 1.0, RANDOM: 0.0, COMPONENTS: 0.0, DIFFERENCES: 0.0, SHUFFLED: 0.0}
    tags = {"site": "changed", "layer": 1, "network": "own"}
    rows = Rows.concatenate(
        Rows.from_columns(
            measure=FOLLOWS,
            unit="share",
            value=[value] * 12,
            cluster=[f"grid {at}" for at in range(12)],
            tags={
                **tags,
                "rank": None if name == WHOLE else 1,
                "subspace": name,
                "pair": [f"pair {at}" for at in range(12)],
            },
        )
        for name, value in values.items()
    )
    assert list(verdicts("alignment", rows).values()) == [word]


def test_a_search_that_finds_no_more_than_the_components_of_the_differences_is_not_positive() -> None:
    made = Obvious(0, 36)
    pairs = made.found()
    settings = Alignment(ranks=(1,), steps=30, rate=0.1)
    rows = search(made.agent, made.model, pairs[::2], pairs[1::2], settings, "changed", 1)
    shares = {
        name: rows.where(rows["subspace"] == name).select(measure=FOLLOWS).value.mean()
        for name in (COMPONENTS, DIFFERENCES)
    }
    assert shares[DIFFERENCES] > 0.8 > 0.5 > shares[COMPONENTS], shares
    assert ABOVE not in verdicts("alignment", rows).values()


def test_a_search_that_an_untrained_network_answers_as_well_is_not_positive() -> None:
    def rows(network: str, name: str, value: float) -> Rows:
        return Rows.from_columns(
            measure=FOLLOWS if network == "own" else ODDS,
            unit="share",
            value=[value] * 12,
            cluster=[f"grid {at}" for at in range(12)],
            tags={
                "site": "changed",
                "layer": 1,
                "network": network,
                "subspace": name,
                "rank": None if name == WHOLE else 1,
                "pair": [f"pair {at}" for at in range(12)],
            },
        )

    def said(**networks: float) -> list[str]:
        own = [rows("own", name, float(name in (WHOLE, FOUND))) for name in (WHOLE, FOUND, RANDOM, DIFFERENCES)]
        others = [rows(network, FOUND, value) for network, value in networks.items()]
        return list(verdicts("alignment", Rows.concatenate([*own, *others])).values())

    assert said() == said(permuted=0.0) == [ABOVE]
    assert said(permuted=0.5, initial=1.0) == ["none"]


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
