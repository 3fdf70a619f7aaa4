"""Sentences of the papers as tests: on planted rows each holds where it must, and quotations stand in the sources."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from planted_rows import item_of, rows_of
from scipy.stats import binom

from goalscope._ground.rng import stream
from goalscope.papers import Item, QuotedClaim, ReadAgents, items
from goalscope.papers.claims import TEXTS, Verdict, decide, decide_exact, word_of
from goalscope.papers.exact import exact_value
from goalscope.papers.readings import ItemLine
from goalscope.stats.rows import Row, Rows

PAPERS = Path(__file__).parents[3] / "shared" / "papers"


def noisy(seed: int, means: dict[Any, float], tag: str, measure: str = "success", grids: int = 40) -> list[Row]:
    """Rows over independent grids for each value of a tag."""
    rng = stream(seed, "claims", tag)
    rows = []
    for value, mean in means.items():
        for at, one in enumerate(mean + 0.05 * rng.normal(size=grids)):
            tags = {"agent": "A", tag: value}
            rows.append(Row(measure=measure, unit="share", value=one, cluster=f"{value}-{at}", tags=tags))
    return rows


def answer_to(rows: list[Row], **claim: Any) -> str:
    item = item_of(claims=(QuotedClaim(said="s", measure="success", **claim),), readings=())
    (found,) = decide(item, Rows.from_rows(rows), ReadAgents(agents=("A",)))
    return found.answer


def test_monotone_claims_need_every_step() -> None:
    falling = {7: 0.9, 9: 0.8, 11: 0.6, 13: 0.5, 15: 0.3}
    assert answer_to(noisy(0, falling, "size"), test="falls", over="size") == "yes"
    assert answer_to(noisy(0, falling, "size"), test="rises", over="size") == "no"
    assert answer_to(noisy(0, {**falling, 13: 0.75}, "size"), test="falls", over="size") == "no"
    assert answer_to(noisy(0, dict.fromkeys(falling, 0.5), "size"), test="falls", over="size") == "undecided"
    assert answer_to(noisy(0, {7: 0.9}, "size"), test="falls", over="size") == "undecided"
    assert answer_to(noisy(0, falling, "size"), test="falls", over="density") == "untestable"


def test_not_monotone_needs_a_step_up_and_a_step_down() -> None:
    def decoders(*means: float) -> list[Row]:
        return noisy(1, {f"decoder-{at}": mean for at, mean in zip((1, 2, 4), means, strict=True)}, "head")

    assert answer_to(decoders(0.4, 0.6, 0.5), test="not monotone", over="head") == "yes"
    assert answer_to(decoders(0.4, 0.5, 0.6), test="not monotone", over="head") == "no"
    assert answer_to(decoders(0.5, 0.5, 0.5), test="not monotone", over="head") == "undecided"


def along(bend: float, slope: float = -0.02, seed: int = 0) -> list[Row]:
    rng = stream(seed, "linear")
    return [
        Row(
            measure="success",
            unit="share",
            value=0.9 + slope * at + bend * (at - 10) ** 2 + 0.05 * rng.normal(),
            cluster=f"g{grid}",
            tags={"agent": "A", "distance": at, "size": 7 + 2 * (grid % 2)},
        )
        for grid in range(40)
        for at in range(1, 26)
    ]


@pytest.mark.full
@pytest.mark.parametrize("studies", [40, pytest.param(1000, marks=pytest.mark.full)])
def test_a_line_is_told_from_a_bend_below_its_bound_as_often_as_the_level_says(studies: int) -> None:
    def said(seed: int, bend: float, slope: float = -0.02, **more: Any) -> str:
        return answer_to(along(bend, slope, seed), test="linear", over="distance", below=20, margin=0.05, **more)

    seeds = range(studies)
    most = binom.isf(0.001, len(seeds), 0.075)  # a bend by a test of .05, a slope above 0 by one end of it
    assert all(said(seed, 0.004) == "no" for seed in seeds[:40])
    assert sum(said(seed, 0.0) != "yes" for seed in seeds) <= most
    assert sum(said(seed, 0.0, slope=0.0) == "no" for seed in seeds) <= most
    assert sum(said(seed, 0.0, slope=0.0) == "yes" for seed in seeds) <= most
    # That no bend is shown is no line: a bend of .05 lies on the margin, and few noisy rows tell nothing.
    assert sum(said(seed, 0.05 * 4 / 18**2) == "yes" for seed in seeds) <= binom.isf(0.001, len(seeds), 0.025)
    thirds = set(range(3, 25, 3))
    few = [row for row in along(0.0, -0.02, 0) if row.cluster in ("g0", "g1", "g2") and row.tags["distance"] in thirds]
    assert answer_to(few, test="linear", over="distance", below=20, margin=0.05) == "undecided"
    assert sum(said(seed, 0.0, factors=["size"]) != "yes" for seed in seeds[:10]) <= binom.isf(0.001, 10, 0.075)


def by_factors(slope: Callable[[int], float], seed: int = 3, size_effect: float = -0.03) -> list[Row]:
    """Rows of 120 grids with five distances each; the slope of distance depends on the size."""
    rng = stream(seed, "interaction")
    rows = []
    for grid in range(120):
        size, density = 7 + 2 * (grid % 5), 0.2 * (grid % 6)
        for _ in range(5):
            distance = size + 3 * rng.normal()  # goes with size
            tags: dict[str, Any] = {"agent": "A", "size": size, "density": density, "distance": distance}
            value = 1 + size_effect * size - 0.2 * density + slope(size) * (distance - 11) + 0.02 * rng.normal()
            rows.append(Row(measure="success", unit="share", value=value, cluster=f"g{grid}", tags=tags))
    return rows


def test_an_interaction_needs_slopes_of_the_others_and_a_distance_that_counts_in_large_worlds_alone() -> None:
    def said(rows: list[Row]) -> str:
        return answer_to(rows, test="interaction", factors=["size", "density", "distance"], margin=0.005)

    seeds = range(12)
    assert all(said(by_factors(lambda size: -0.005 * (size - 7), seed)) == "yes" for seed in seeds)
    assert all(said(by_factors(lambda size: -0.02, seed)) == "no" for seed in seeds)  # in small ones, too
    assert all(said(by_factors(lambda size: 0.0, seed)) != "yes" for seed in seeds)  # it goes with size, does nothing
    assert said(by_factors(lambda size: -0.005 * (size - 7), size_effect=0.03)) == "no"


def test_sentences_have_their_tests_and_a_law_each() -> None:
    """Each test on rows for which it holds and on rows for which it does not."""
    up, down, flat = ({1: 0.4, 2: 0.6}, {1: 0.6, 2: 0.4}, {1: 0.5, 2: 0.5})
    for test, good, bad in (("rises", up, down), ("trend up", up, down), ("falls", down, up), ("trend down", down, up)):
        found = [answer_to(noisy(5, means, "t"), test=test, over="t") for means in (good, bad, flat)]
        assert found == ["yes", "no", "undecided"], test
    named = noisy(5, {"a": 0.6, "b": 0.4, "c": 0.9}, "t")  # "c" is not compared
    assert answer_to(named, test="falls", over="t", among=["a", "b"]) == "yes"
    assert answer_to(named, test="rises", over="t", among=["b", "a"]) == "yes"
    assert answer_to(named, test="falls", over="t", among=["a", "x"]) == "untestable"
    hill, valley = {7: 0.4, 15: 0.8, 23: 0.5}, {7: 0.8, 15: 0.4, 23: 0.5}
    assert [answer_to(noisy(6, one, "t"), test="peak", over="t") for one in (hill, valley)] == ["yes", "no"]
    for test, bound, wanted in (("above", 0.2, "yes"), ("above", 0.5, "no"), ("under", 0.5, "yes")):
        assert answer_to(rows_of("success", [0.3, 0.4] * 10), test=test, bound=bound) == wanted
    assert answer_to(rows_of("success", [0.0] * 60), test="under", bound=0.1) == "yes"  # an exact bound, no width of 0
    assert answer_to(rows_of("success", [0.0] * 6), test="under", bound=0.1, least=6) == "undecided"

    def spread(by: float) -> list[Row]:
        rng = stream(7, "spread")
        return [
            Row(
                measure="success",
                unit="share",
                value=0.5 + (0.05 + by * at) * rng.normal(),
                cluster=f"g{grid}",
                tags={"agent": "A", "distance": at},
            )
            for grid in range(60)
            for at in range(1, 15)
        ]

    found = [answer_to(spread(by), test="spread", over="distance") for by in (0.02, -0.003, 0.0)]
    assert found == ["yes", "no", "undecided"]


def test_a_crossing_needs_its_place() -> None:
    def said(crosses: int) -> str:
        rng = stream(8, "crossing")
        rows = [
            Row(
                measure="success",
                unit="share",
                value=0.5 + (0.1 if (n < crosses) == (site == "post") else 0.0) + 0.03 * rng.normal(),
                cluster=f"g{grid}",
                tags={"agent": "A", "site": site, "N": n},
            )
            for grid in range(40)
            for site in ("pre", "post")
            for n in range(1, 11)
        ]
        return answer_to(rows, test="crossing", over="site", among=["post", "pre"], at=5, to=7)

    assert [said(crosses) for crosses in (4, 5, 6)] == ["no", "yes", "no"]


def of_agents(success: dict[str, float], errors: dict[str, float], **tags: Any) -> list[Row]:
    rng = stream(9, "agents")
    rows = []
    for agent in success:
        for at in range(30):
            one = {"agent": agent, **tags}
            won = float(rng.random() < success[agent])
            rows.append(Row(measure="success", unit="share", value=won, cluster=f"g{at}", tags=one))
            for name, level in (("exploration error", errors[agent]), ("exploitation error", 0.1)):
                value = level * float(np.exp(0.2 * rng.normal()))
                rows.append(Row(measure=name, unit="share", value=value, cluster=f"g{at}", tags=one))
    return rows


def test_an_error_predicts_success_where_it_does_so_over_agents() -> None:
    names = [f"a{at}" for at in range(8)]
    success = {name: 0.1 + 0.11 * at for at, name in enumerate(names)}
    falling = {name: float(10 ** -(0.2 + success[name])) for name in names}
    claim = QuotedClaim(said="s", test="predicts", measure="exploration error", than="exploitation error")
    item = item_of(claims=(claim,), readings=())

    def said(errors: dict[str, float]) -> Any:
        return decide(item, Rows.from_rows(of_agents(success, errors)), ReadAgents(agents=("a0",)), names)[0]

    assert said(falling).answer == "yes" and "8 agents" in said(falling).why
    rising = {name: float(10 ** (success[name] - 2)) for name in names}
    assert said(rising).answer == "no"
    some = {name: float(10 ** -(0.2 + 0.5 * success[name] + 0.3 * (at % 2))) for at, name in enumerate(names)}
    assert said(some).answer == "undecided"  # half of the variance may be explained, or less


def test_a_sentence_on_two_models_needs_two_and_one_on_another_model_says_so() -> None:
    def rows(agent: str, change: float, noise: float = 0.05) -> list[Row]:
        rng = stream(10, agent)
        return [
            Row(
                measure="success",
                unit="share",
                value=0.5 + change * (name == "semantic") + noise * rng.normal(),
                cluster=f"g{at}",
                tags={"agent": agent, "names": name},
            )
            for at in range(30)
            for name in ("symbolic", "semantic")
        ]

    claim = QuotedClaim(
        quoted="q",
        place="p",
        said="s",
        test="moved differently",
        measure="success",
        over="names",
        among=("symbolic", "semantic"),
        about=("GPT-4.1",),
        margin=0.1,
    )
    item = item_of(claims=(claim,), readings=())
    both, same = [*rows("A", 0.3), *rows("B", -0.1)], [*rows("A", 0.3), *rows("B", 0.3)]
    unclear = [*rows("A", 0.3, 0.3), *rows("B", 0.3, 0.3)]
    for values, wanted in ((both, "yes"), (same, "no"), (unclear, "undecided")):
        assert decide(item, Rows.from_rows(values), ReadAgents(agents=("A", "B")))[0].answer == wanted
    three = [*same, *rows("C", 0.0)]  # the first two are alike, the third is not
    assert decide(item, Rows.from_rows(three), ReadAgents(agents=("A", "B", "C")))[0].answer == "yes"
    undefined = Rows.from_rows([*both, replace(both[0], value=np.nan, cluster="no step called for it")])
    assert decide(item, undefined, ReadAgents(agents=("A", "B")))[0].answer == "yes"
    (one,) = decide(item, Rows.from_rows(both), ReadAgents(agents=("A",)))
    assert one.answer == "untestable" and one.about == "GPT-4.1"
    (own,) = decide(item, Rows.from_rows(both), ReadAgents(agents=("A", "B"), model="GPT-4.1"))
    assert own.about == ""


def test_computed_sentences_are_decided_by_their_numbers() -> None:
    lines = [
        ItemLine(label=name, value=float(at), published={}, ours=exact_value(value, "nats"), percent=False)
        for name, values in (("known", (3.0, 2.0, 1.0)), ("unknown", (3.0, 4.0, 0.5)))
        for at, value in enumerate(values, 1)
    ]
    below: dict[str, Any] = {"test": "lower", "measure": "known", "than": "unknown"}
    claims = (
        QuotedClaim(said="s", test="falls", measure="known"),
        QuotedClaim(said="s", test="falls", measure="unknown"),
        QuotedClaim(said="s", among=(2,), **below),
        QuotedClaim(said="s", among=(2, 3), **below),
    )
    item = Item(name="meg table k", title="t", exact="cliff k", claims=claims)
    found = [one.answer for one in decide_exact(item, lines)]
    assert found == ["yes", "no", "yes", "no"]


@pytest.mark.skipif(not PAPERS.is_dir(), reason="the texts of the papers are not beside the checkout")
def test_quotations_stand_in_the_sources_and_every_finding_has_its_test() -> None:
    texts = {
        paper: " ".join(re.sub(r"(?<=\w)-\n(?=\w)", "", (PAPERS / f"{name}.txt").read_text(encoding="utf-8")).split())
        for paper, name in (
            ("telos", "behavioural-and-representational-evaluation"),
            ("exploration", "exploration-exploitation-errors"),
            ("meg", "measuring-goal-directedness"),
        )
    }
    quoted = {(item.name, claim.quoted) for item in items().values() for claim in item.claims if claim.quoted}
    assert len(quoted) > 40
    for name, words in quoted:
        assert words in texts[name.split()[0]], (name, words)
    findings = re.findall(r"Finding \d: ([^.]{30,90})", texts["exploration"])
    assert len(findings) == 5
    for finding in findings:
        assert any(words.startswith(finding[:30]) for _, words in quoted), finding


def test_a_lower_measure_is_compared_grid_by_grid() -> None:
    rng = stream(4, "lower")
    level = rng.normal(size=30)  # differences between grids far larger than the effect
    first = rows_of("success", level - 0.1 + 0.05 * rng.normal(size=30))
    second = rows_of("wall bumps", level)
    assert answer_to([*first, *second], test="lower", than="wall bumps") == "yes"
    same = rows_of("wall bumps", np.array([row.value for row in first]))
    assert answer_to([*first, *same], test="lower", than="wall bumps") == "undecided"


def test_each_answer_has_a_word_of_its_own() -> None:
    assert (
        len({word_of(answer) for answer in get_args(Verdict)}) == len(get_args(Verdict)) == len(TEXTS.keys("answers"))
    )


def test_a_measure_that_the_run_lacks_is_named_and_no_error_of_a_regression() -> None:
    rows = rows_of("success", [0.3, 0.4] * 10)
    claim = QuotedClaim(said="s", test="lower", measure="success", than="path ratio")
    (result,) = decide(item_of(claims=(claim,), readings=()), Rows.from_rows(rows), ReadAgents(agents=("A",)))
    assert result.answer == "untestable" and "path ratio" in result.why and "success" not in result.why


def test_a_tag_that_no_row_has_makes_a_sentence_untestable() -> None:
    """As of a memory, in a run of scripted agents."""
    claim = QuotedClaim(said="s", test="falls", measure="success", over="memory", among=(False, True))
    rows = Rows.from_rows(rows_of("success", [0.3, 0.4] * 10))
    (result,) = decide(item_of(claims=(claim,), readings=()), rows, ReadAgents(agents=("A",)))
    assert result.answer == "untestable"
