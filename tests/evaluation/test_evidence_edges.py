"""Whatever is measured, each question has an answer: degenerate numbers are no error, and no interval of width 0."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families import examples
from goalscope._ground.registry import names, resolve
from goalscope._ground.rng import stream
from goalscope.goals import GoalContrast
from goalscope.goals.decision import by_single_answers
from goalscope.goals.finding import Finding, say
from goalscope.goals.hypotheses import finite_world, parse
from goalscope.goals.hypotheses.states import States, walked
from goalscope.runs import Study
from goalscope.stats import Estimate
from goalscope.stats.rows import Rows
from goalscope.verdict import aims
from goalscope.verdict.aims import lapses
from goalscope.verdict.evidence import ArmData, ArmRun, Evidence
from goalscope.verdict.judging import contradictions
from goalscope.verdict.rules import Rule, decide, level
from planted_findings import ledger

AGENT = "model"
NONE = Rows.from_rows([])
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-17, 1e-320, math.nan, math.inf, -math.inf])
WIDTHS = st.sampled_from([0.0, 0.1, 1e-17, math.nan, math.inf])
MEASURES = (
    *("success", "action accuracy", "invalid turns", "errors towards the key", "prefers the key path"),
    *("redundant backtracking", "moves into known dead ends", "repeated wall bumps"),
)
TAGS: tuple[dict[str, Any], ...] = (
    *({}, {"transform": "identity"}, {"transform": "rotate"}, {"wording": "terse"}, {"kind": "two-path"}),
    *({"kind": "key-door"}, {"kind": "key-no-door", "control": False}, {"kind": "key-no-door", "control": True}),
    *({"named": "goal"}, {"named": "rival"}),
)
RIVALS = ("top-left", "top-right", "bottom-left", "bottom-right")
RULES: list[Rule] = [resolve("claim", name) for name in names("claim")]


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from([(-math.inf, math.inf), (-1.0, 1.0), (0.0, 1.0)]))
def test_an_estimate_of_any_ends_has_an_interval_that_holds_it_or_none(
    value: float, low: float, high: float, bounds: tuple[float, float]
) -> None:
    found = Estimate.of_ends(value, low, high, bounds=bounds, n=3, clusters=3, method="given", unit="share", note="so")
    assert found.note.startswith("so") and (math.isnan(value) or bounds[0] <= found.value <= bounds[1])
    if found.has_interval:
        assert bounds[0] <= found.low <= found.value <= found.high <= bounds[1] and found.low < found.high
    else:
        assert math.isnan(found.high) and ((math.isnan(low) and math.isnan(high)) or "no interval" in found.note)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(1e-6, 1))
def test_a_moved_estimate_is_moved_with_its_ends(first: float, second: float, by: float, over: float) -> None:
    low, high = sorted((first, second))
    if high - low < 1e-6:
        return
    one = Estimate(value=low, low=low, high=high, n=5, clusters=4, method="m", unit="share", undefined=2, without=1)
    moved = one.moved(by=by, over=over)
    assert moved.high == pytest.approx((high - by) / over) and moved.value == pytest.approx((low - by) / over)
    assert replace(moved, value=one.value, low=one.low, high=one.high) == one


def rows_of(seed: int, count: int, clusters: int) -> Rows:
    """Rows of all measures under all tags: ordinary, equal, undefined, of one grid."""
    rng, parts = stream(seed, "edges", count), []
    for measure in MEASURES:
        for tags in TAGS:
            drawn = [rng.random(count), rng.integers(0, 2, count), np.full(count, rng.choice([0, 1, 0.5, np.nan]))]
            value = np.asarray(drawn[rng.integers(3)], dtype=float)
            value[rng.random(count) < rng.choice([0, 0.5])] = np.nan
            parts.append(
                Rows.from_columns(
                    measure=measure,
                    unit="share",
                    value=value,
                    cluster=[f"grid {one}" for one in rng.integers(0, clusters, count)],
                    episode_id=[f"episode {one}" for one in range(count)],
                    tags={"agent": AGENT, "size": 7, **tags},
                )
            )
    return Rows.concatenate(parts)


def turns(seed: int, episodes: int) -> Any:
    """Turns some of which are errors, in runs, and some of which have no optimal action."""
    rng = stream(seed, "turns", episodes)
    length = rng.integers(1, 6, episodes)
    episode = np.repeat(np.arange(episodes), length)
    lapse = np.repeat(rng.random(episodes) < 0.3, length)
    optimal = np.zeros((len(episode), 4), dtype=bool)
    optimal[:, 0] = rng.random(len(episode)) < rng.choice([1.0, 0.6])
    cluster = np.array([f"grid {one // 2}" for one in range(episodes)])
    return SimpleNamespace(
        optimal=optimal, agent=np.full(episodes, AGENT), episode=episode, is_optimal=~lapse, cluster=cluster, worlds=()
    )


def data_of(rows: Rows = NONE, **parts: Any) -> ArmData:
    run = ArmRun(store=cast(Any, None), rows=rows, probed=NONE, changed=NONE, confidence=1 - level(1))
    vars(run).update(parts)
    data = ArmData(run=run, agent=AGENT, rows=rows)
    return replace(data, other_arms={"competence": data})


def measured(estimate: tuple[float, float, float], contrasts: list[tuple[float, float, float, float]]) -> Any:
    value, width, bound = estimate
    common: dict[str, Any] = {"agent": AGENT, "cell": {}, "confidence": 0.96, "method": "m", "note": ""}
    ends = {"signed": value, "low": value - width, "high": value + width, "bound": bound}
    ends |= {"share_low": value - width, "share_high": value + width, "share": value, "worlds": 9, "out_of_reach": 0}
    more = {"n": 9, "grids": 9, "state_blind": 0.0}
    return SimpleNamespace(
        estimates=[SimpleNamespace(hypothesis=name, **common, **ends, **more) for name in ("goal", *RIVALS)],
        contrasts=[
            GoalContrast(
                agent=AGENT,
                cell={},
                first="goal",
                second=rival,
                difference=number,
                low=number - wide,
                high=number + shift,
                p_value=p,
                grids=9 - at,
                common=9,
            )
            for at, (rival, (number, wide, shift, p)) in enumerate(zip(RIVALS, contrasts, strict=False))
        ],
    )


def states_in_grids() -> list[States]:
    """One episode in each of nine grids."""
    entry = {"kind": "grid", "sizes": [5], "densities": [0.0], "count": 9}
    worlds = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}]}).worlds()
    found, steps = [], np.array([0, 1], dtype=np.int64)
    for world in (finite_world(world, 6) for world in worlds):
        found.append(walked(AGENT, world, steps, last=2, first=np.zeros(2, dtype=np.int64)))
    return found


STATES = states_in_grids()
BANK = {name: parse("goal" if name == "goal" else f"corner {name}") for name in ("goal", *RIVALS)}


@settings(max_examples=examples(100), deadline=None)
@given(
    st.tuples(NUMBERS, WIDTHS, NUMBERS),
    st.lists(st.tuples(NUMBERS, WIDTHS, WIDTHS, st.sampled_from([0.0, 1e-9, 1.0, math.nan])), max_size=4),
)
def test_whatever_was_measured_there_is_one_finding_that_holds_together(
    estimate: tuple[float, float, float], contrasts: list[tuple[float, float, float, float]]
) -> None:
    found = by_single_answers(STATES, BANK, measured(estimate, contrasts))
    assert found.answer != "yes" or found.names
    told = [one for one in contradictions(ledger(findings=(found,))) if "share above 1" not in one]
    assert told == [], say(found)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 2**31),
    st.integers(1, 12),
    st.integers(1, 6),
    st.tuples(NUMBERS, WIDTHS, NUMBERS),
    st.lists(st.tuples(NUMBERS, WIDTHS, WIDTHS, st.sampled_from([0.0, 1e-9, 1.0, math.nan])), max_size=3),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_every_question_about_behaviour_has_an_answer_whatever_was_measured(
    seed: int,
    count: int,
    clusters: int,
    estimate: tuple[float, float, float],
    contrasts: list[tuple[float, float, float, float]],
    chance: float,
) -> None:
    data = data_of(rows_of(seed, count, clusters), goals=measured(estimate, contrasts), table=turns(seed, 3 * count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArmData, "chances", lambda *_: (chance, 0.0))
        patch.setattr(ArmData, "ended", lambda _, rows, stage: rows.value)
        patch.setattr("goalscope.verdict.aims.found_in", lambda _: ())  # tests/counterfactual has its edges
        untold = Finding(agent=AGENT, answer="untestable", reason="no process", why="fog")  # decided above
        patch.setattr("goalscope.verdict.aims.aims_in", lambda *_: (untold,))
        for rule in RULES:
            if rule.arm != "tasks":
                for claim in decide(rule, data):
                    assert claim.says and (claim.value is None or math.isfinite(claim.value))


def test_a_correlation_lies_in_its_range_with_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors in runs, and episodes without any: one grid's part, and the ratio of sums, may lie beyond 1."""
    for seed in range(20):
        rng = stream(seed, "pairs")
        length = np.concatenate([np.full(14, 6), np.full(40, 4)])
        wrong = np.repeat(np.concatenate([np.ones(14), np.zeros(40)]), length) > 0
        wrong[:84] &= (np.arange(84) % 6 < 3) & (rng.random(84) < 0.95)
        episode, count = np.repeat(np.arange(54), length), int(length.sum())
        optimal = np.zeros((count, 4), dtype=bool)
        optimal[:, 0] = True
        cluster = np.array([f"grid {one % 14}" for one in range(54)])
        agents = np.full(54, AGENT)
        table = SimpleNamespace(optimal=optimal, agent=agents, episode=episode, is_optimal=~wrong, cluster=cluster)
        monkeypatch.setattr(aims, "is_after_goal", lambda *_: {"": Evidence(side="yes")})
        found = lapses(data_of(table=table))
        if found.estimate is not None:
            assert -1 <= found.estimate.low <= found.estimate.value <= found.estimate.high <= 1
