"""Sentences of a paper as tests on the rows of a run, with the verdict on each.

Every test is a regression over clusters in which each cluster weighs alike (`goalscope.stats.regress`); differences of
neighbours have simultaneous intervals (Bonferroni), so that one lucky step is not reported as "monotone".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from goalscope.reproduction.items import Claim, Item
from goalscope.reproduction.readings import Subject, selected
from goalscope.rows import Rows, Tag
from goalscope.stats import Estimate, Regression, indicators, regress

Verdict = Literal["shown", "contradicted", "not shown", "not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """A claim and its verdict on a run.

    Attributes:
        said: the sentence.
        verdict: "shown" where every part has an interval on the claimed side; "contradicted" where one has an interval
            on the other; "not shown" otherwise; "not measured" without rows.
        parts: name and estimate of each part.
        why: reason or caveat, "" for none.
    """

    said: str
    verdict: Verdict
    parts: tuple[tuple[str, Estimate], ...] = ()
    why: str = ""


def decide(item: Item, rows: Rows, subject: Subject) -> list[Tested]:
    """Test each claim of an item on a run.

    Args:
        item: with claims.
        rows: all rows of the run.
        subject: the agents that are read.
    """
    return [_tested(item, claim, rows, subject) for claim in item.claims]


def _tested(item: Item, claim: Claim, rows: Rows, subject: Subject) -> Tested:
    measures = (claim.measure, *([claim.than] if claim.than else []))
    selected_rows = selected(item, claim.where, rows, subject, measures)
    selected_rows = selected_rows.where(~np.isnan(selected_rows.value))
    needed = [name for name in (claim.over, *claim.factors) if name]
    for name in needed:
        selected_rows = selected_rows.where(selected_rows.known(name))
    if not len(selected_rows):
        return Tested(said=claim.said, verdict="not measured", why="the run has no such rows")
    try:
        return _TESTS[claim.test](claim, selected_rows)
    except ValueError as error:
        return Tested(said=claim.said, verdict="not shown", why=str(error))


def _order(value: Tag) -> tuple[int, float, str]:
    number = isinstance(value, int | float)
    return (0, float(value), "") if number else (1, 0.0, str(value))  # type: ignore[arg-type]


def _steps(claim: Claim, rows: Rows) -> list[tuple[str, Estimate]]:
    """Return the difference between each value of a tag and the one before it, with simultaneous intervals."""
    values = sorted(dict.fromkeys(rows[claim.over].tolist()), key=_order)
    if len(values) < 2:
        raise ValueError(f"a trend must have at least 2 values of {claim.over}, got {len(values)}")
    fitted = _fit(rows, indicators(rows[claim.over].tolist()))
    confidence = 1 - 0.05 / (len(values) - 1)
    return [
        (f"{claim.over} {later:g} less {earlier:g}" if _order(later)[0] == 0 else f"{later} less {earlier}", estimate)
        for earlier, later in pairwise(values)
        for estimate in [fitted.estimate({str(later): 1.0, str(earlier): -1.0}, confidence=confidence)]
    ]


def _monotone(sign: int) -> Callable[[Claim, Rows], Tested]:
    """Return the test that a measure falls (-1) or rises (1) from each value of a tag to the next."""

    def test(claim: Claim, rows: Rows) -> Tested:
        parts = _steps(claim, rows)
        slope = _slope(claim, rows)
        return Tested(
            said=claim.said, verdict=_verdict([estimate for _, estimate in parts], sign), parts=(*parts, *slope)
        )

    return test


def _slope(claim: Claim, rows: Rows) -> list[tuple[str, Estimate]]:
    """Return the slope over a numeric tag: more power than differences of neighbours, a weaker statement."""
    values = rows[claim.over].tolist()
    if not all(_order(value)[0] == 0 for value in values):
        return []
    fitted = _fit(rows, {"constant": np.ones(len(rows)), claim.over: np.array(values, dtype=np.float64)})
    return [(f"straight line: for one more of {claim.over}", fitted.estimate({claim.over: 1.0}))]


def _not_monotone(claim: Claim, rows: Rows) -> Tested:
    """Test that a measure neither rises nor falls throughout: it needs a step up and a step down, both shown."""
    parts = _steps(claim, rows)
    up, down = any(estimate.low > 0 for _, estimate in parts), any(estimate.high < 0 for _, estimate in parts)
    one_direction = all(estimate.low > 0 for _, estimate in parts) or all(estimate.high < 0 for _, estimate in parts)
    verdict: Verdict = "shown" if up and down else "contradicted" if one_direction else "not shown"
    return Tested(said=claim.said, verdict=verdict, parts=tuple(parts))


def _linear(claim: Claim, rows: Rows) -> Tested:
    """Test a straight fall below a bound: the slope is below 0, and the bend lies inside of the declared margin.

    The bend is the greatest distance of the fitted parabola from the straight line through its ends, ``curvature
    (last - first)**2 / 4``. That its interval holds 0 shows nothing: it must lie inside of the margin.

    Size and density are held fixed where the rows have them, so that the mix of worlds at each distance is not read as
    a bend.
    """
    limit = float("inf") if claim.below is None else claim.below
    rows = rows.where(np.array([float(value) < limit for value in rows[claim.over].tolist()], dtype=bool))
    numbers = np.array(rows[claim.over].tolist(), dtype=np.float64)
    centred = numbers - numbers.mean() if len(numbers) else numbers
    columns = {"constant": np.ones(len(rows)), "slope": centred, "curvature": centred**2 - (centred**2).mean()}
    fitted = _fit(rows, {**columns, **_factors(rows, claim.factors)})
    slope = fitted.estimate({"slope": 1.0})
    bend = fitted.estimate({"curvature": float(np.ptp(numbers)) ** 2 / 4})
    parts, margin = (("slope", slope), ("bend, at its greatest", bend)), claim.margin or 0.0
    bent, straight = bend.low > margin or bend.high < -margin, -margin < bend.low and bend.high < margin
    verdict: Verdict = "contradicted" if slope.low > 0 or bent else "not shown"
    if straight and slope.high < 0:
        verdict = "shown"
    found = "a bend beyond" if bent else "a bend inside of" if straight else "a bend that may lie beyond"
    return Tested(said=claim.said, verdict=verdict, parts=parts, why=f"{found} the declared margin of {margin:g}")


def _controlled(claim: Claim, rows: Rows) -> Tested:
    """Test that a measure falls with each factor while the others are held fixed, one regression over clusters."""
    columns = {"constant": np.ones(len(rows)), **_factors(rows, claim.factors)}
    fitted = _fit(rows, columns)
    parts = tuple((f"for one more of {name}, the others fixed", fitted.estimate({name: 1.0})) for name in claim.factors)
    return Tested(said=claim.said, verdict=_verdict([estimate for _, estimate in parts], -1), parts=parts)


def _lower(claim: Claim, rows: Rows) -> Tested:
    """Test that a measure is lower than another, cluster by cluster."""
    fitted = _fit(rows, indicators(rows.measure.tolist()))
    difference = fitted.estimate({claim.measure: 1.0, claim.than: -1.0})
    return Tested(
        said=claim.said, verdict=_verdict([difference], -1), parts=((f"{claim.measure} less {claim.than}", difference),)
    )


def _factors(rows: Rows, names: Sequence[str]) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    return {name: np.array(rows[name].tolist(), dtype=np.float64) for name in names}


def _fit(rows: Rows, columns: Mapping[str, np.ndarray[tuple[int], np.dtype[np.float64]]]) -> Regression:
    units = list(dict.fromkeys(rows.unit.tolist()))
    return regress(rows.value, columns, rows.cluster.tolist(), unit=units[0] if units else "")


def _verdict(parts: Sequence[Estimate], sign: int) -> Verdict:
    sides = [(estimate.low, estimate.high) if sign > 0 else (-estimate.high, -estimate.low) for estimate in parts]
    if any(high < 0 for _, high in sides):
        return "contradicted"
    return "shown" if all(low > 0 for low, _ in sides) else "not shown"


_TESTS: Final[Mapping[str, Callable[[Claim, Rows], Tested]]] = {
    "falls": _monotone(-1),
    "rises": _monotone(1),
    "not monotone": _not_monotone,
    "linear": _linear,
    "controlled": _controlled,
    "lower": _lower,
}


def lines_of(tested: Tested) -> Iterator[str]:
    """Yield the printed lines of a claim, then those of its parts."""
    yield f"{tested.said}: {tested.verdict}{f' ({tested.why})' if tested.why else ''}"
    for name, estimate in tested.parts:
        yield f"  {name}: {estimate}"
