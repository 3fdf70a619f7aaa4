"""The sentences on a prediction, before and after somebody looked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from goalscope.goals.attribution.claim import FrozenClaim
from goalscope.goals.attribution.scores import PredictionScore
from goalscope.goals.prediction.doubts import TEXTS

_LISTED: Final = 0.05  # share of a place that a sentence mentions


def say_expected(claim: FrozenClaim) -> Iterator[str]:
    """Yield what is expected in each kind of worlds, how far to trust it, and what the data cannot decide."""
    for kind in claim.kinds:
        shares = sorted(kind.shares.items(), key=lambda item: -item[1][0])
        places = [
            TEXTS("expected/place", place=place, **_ends(*ends))
            for place, ends in shares
            if ends[0] >= _LISTED or place == shares[0][0]
        ]
        yield TEXTS("expected/kind", kind=kind.kind, places=", ".join(places), trust=kind.trust)
    if claim.distance is None:
        yield TEXTS("expected/trust unknown")
    else:
        yield TEXTS(f"expected/trust {claim.trust}", distance=f"{max(claim.distance, 0.0):.2f}")
    weights = ", ".join(f"“{name}” {weight:.0%}" for name, weight in claim.weights.items())
    yield TEXTS("expected/weights", weights=weights)
    for doubt in claim.doubts:
        yield TEXTS("expected/doubt", doubt=doubt)


def say_seen(claim: FrozenClaim, scores: Sequence[PredictionScore], missing: Mapping[str, int]) -> Iterator[str]:
    """Yield for each kind of worlds whether the prediction was held; `missing` counts worlds without an answer."""
    expected = {kind.kind: kind for kind in claim.kinds}
    for score in scores:
        kind = expected[score.stratum]
        yield TEXTS(
            f"looked/kind {'held' if score.is_held else 'missed'}",
            kind=kind.kind,
            place=kind.main,
            seen=f"{score.shares[kind.main]:.2f}",
            worlds=len(kind.worlds),
            **_ends(*kind.shares[kind.main]),
        )
    for name, number in missing.items():
        yield TEXTS("looked/missing", kind=name, missing=number)
    holds = [held for score in scores for held in score.holds.values()]
    held = sum(score.is_held is True for score in scores)
    yield TEXTS("looked/all", held=held, kinds=len(scores), intervals=sum(holds), places=len(holds))


def _ends(share: float, low: float, high: float) -> dict[str, str]:
    return {"share": f"{share:.2f}", "low": f"{low:.2f}", "high": f"{high:.2f}"}
