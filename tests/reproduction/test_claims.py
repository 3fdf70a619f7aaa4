"""Sentences of the papers, on planted rows and agents, and on null agents that make them uninformative."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from planted_rows import item_of, rows_of
from scipy.stats import binom

from goalscope._ground.rng import stream
from goalscope.agents import Observation, ScriptedAgent
from goalscope.agents.scripted import EpsilonGreedy, KeyLured, Optimal, SideBiased, Uniform
from goalscope.measures.exploration.errors import ONLY_EXPLORATION, PROGRESS_SHARE
from goalscope.papers import Item, QuotedClaim, ReadAgents, find, items
from goalscope.papers.claims import (
    LAPSE,
    OPTIMAL,
    RANDOM,
    SCRIPTED,
    STATE_BLIND,
    TESTS,
    TEXTS,
    NullAgent,
    Tested,
    Verdict,
    decide,
    decide_exact,
    lines_of,
    nulls_of,
    word_of,
)
from goalscope.papers.claims import Tested as Said
from goalscope.papers.exact import exact_value
from goalscope.papers.page import Reproduction
from goalscope.papers.readings import ItemLine, count_tested_grids
from goalscope.papers.working import _write, published_study, scale_of
from goalscope.runs import Store
from goalscope.stats.rows import Row, Rows
from goalscope.worlds import Action
from measured_runs import measured, small_study

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


# Sentences of the papers on agents for which we know whether they are so: true, false, and not to be told.


BEST_AGENT = Optimal()


class Hesitant(ScriptedAgent):
    """Acts at random where a best move is UP: of another construction than the side-biased agent."""

    kind = "hesitant"

    def probabilities(self, observation: Observation) -> Any:
        best = BEST_AGENT.probabilities(observation)
        return np.full(4, 0.25) if best[Action.UP] else best


def said_of(item_name: str, rows: Rows, agents: Sequence[str]) -> dict[tuple[str, str], Said]:
    """The sentences of an item on some agents, by kind of test and measure."""
    item = find(item_name)
    found = decide(item, rows, ReadAgents(agents=tuple(agents)))
    return {(claim.test, claim.measure): one for claim, one in zip(item.claims, found, strict=True)}


def transformed(out: Path, grids: int, trajectories: int, **world: Any) -> Rows:
    """Rows of three agents on grids and their transforms."""
    agents = [BEST_AGENT, SideBiased(epsilon=0.6, side="left"), Hesitant()]
    entry = {"kind": "grid", "sizes": [7], "densities": [0.4], "count": grids, **world}
    transforms = ["identity", "reflect", "rotate", "transpose", "swap"]
    study = small_study(
        worlds=[{**entry, "transforms": transforms}], trajectories=trajectories, horizon={"factor": 1.5}
    )
    with Store(measured(out / "run", study, agents)) as store:
        return store.rows()


@pytest.fixture(scope="module")
def sided(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Goals in the right half of each original grid."""
    return transformed(tmp_path_factory.mktemp("sided"), 150, 2, goal_side="right")


@pytest.fixture(scope="module")
def unsided(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The design of the paper: goals anywhere."""
    return transformed(tmp_path_factory.mktemp("unsided"), 40, 6)


NAMES = {
    "optimal": BEST_AGENT.name,
    "side-biased": SideBiased(epsilon=0.6, side="left").name,
    "hesitant": Hesitant().name,
}
MEAN, EACH = ("unmoved", "action accuracy"), ("unmoved on each", "action accuracy")


def test_a_mean_moves_where_goals_lie_on_one_side(sided: Rows) -> None:
    said = {name: said_of("telos table 3", sided, [agent]) for name, agent in NAMES.items()}
    assert said["optimal"][MEAN].answer == said["optimal"]["unmoved", "success"].answer == "yes"
    assert said["side-biased"][MEAN].answer == said["side-biased"]["unmoved", "success"].answer == "no"
    assert said["hesitant"][MEAN].answer == "no"
    parts = dict(said["hesitant"][MEAN].parts)
    rotated, reflected = parts["rotate less original"], parts["reflect less original"]
    assert rotated.high < -0.05 and reflected.low < 0 < reflected.high  # a reflection leaves the moves up as many
    assert rotated.confidence == pytest.approx(1 - 0.05 / 4)


@pytest.mark.full
def test_a_mean_over_random_grids_hides_what_single_grids_show(unsided: Rows) -> None:
    said = {name: said_of("telos table 3", unsided, [agent]) for name, agent in NAMES.items()}
    for name in ("side-biased", "hesitant"):
        assert said[name][MEAN].answer != "no"
        assert said[name][EACH].answer == "no", name
    assert said["optimal"][EACH].answer != "no"


def test_few_grids_tell_nothing(sided: Rows) -> None:
    few = sided.where(np.isin(sided.cluster, sorted(set(sided.cluster.tolist()))[:3]))
    for name, agent in NAMES.items():
        said = said_of("telos table 3", few, [agent])
        assert said[MEAN].answer == said[EACH].answer == "few", name
    originals = said_of("telos table 3", sided.select(transform="identity"), [NAMES["optimal"]])
    assert originals[MEAN].answer == "undecided" and "transformed" in originals[MEAN].why


def test_single_grids_alike_need_many_trajectories_and_their_root_mean_square_is_that_of_the_rows() -> None:
    """Rows whose true differences are known: +-.3 on each grid, or none."""

    def rows(apart: float, noise: float) -> Rows:
        rng, found = stream(42, "unmoved on each", str(apart)), []
        for grid in range(200):
            sign = 1 if grid % 2 else -1
            for name, change in (("identity", 0.0), ("reflect", apart * sign)):
                for _ in range(10):
                    value = float(np.clip(0.5 + change + noise * rng.normal(), 0, 1))
                    tags = {"agent": "A", "transform": name}
                    one = Row(measure="success", unit="share", value=value, cluster=f"g{grid}", tags=tags)
                    found.append(one)
        return Rows.from_rows(found)

    def said(test: str, values: Rows) -> Said:
        claim = QuotedClaim(said="s", test=test, measure="success", margin=0.2)
        (one,) = decide(item_of(claims=(claim,), readings=()), values, ReadAgents(agents=("A",)))
        return one

    assert said("unmoved on each", rows(0.0, 0.05)).answer == "yes"
    apart = said("unmoved on each", rows(0.3, 0.05))
    assert apart.answer == "no" and apart.parts[0][1].value == pytest.approx(0.3, abs=0.01)
    assert said("unmoved", rows(0.3, 0.05)).answer == "yes"  # it cancels


def explorers(out: Path, agents: Sequence[Mapping[str, Any]], maps: int, preset: str) -> Rows:
    worlds = [{"kind": "task-map", "presets": [preset], "count": maps}]
    study = small_study(worlds=worlds, agents=[dict(agent) for agent in agents], trajectories=1)
    with Store(measured(out / "run", study)) as store:
        return store.rows()


GREEDY, FIRST = {"kind": "task-greedy"}, {"kind": "task-explore-first"}


def finding_2(rows: Rows) -> Said:
    names = list(dict.fromkeys(rows["agent"].tolist()))
    return said_of("exploration figure 4", rows, names)["equal but different", ONLY_EXPLORATION]


@pytest.mark.full
def test_agents_of_equal_success_that_explore_otherwise_are_told_from_those_that_do_not(tmp_path: Path) -> None:
    """One goes to what it can achieve at once, the other explores first: both always succeed."""
    found = finding_2(explorers(tmp_path / "other", [GREEDY, FIRST], 24, "paper-low-large"))
    assert found.answer == "yes" and found.parts[0][1].high < -0.1
    nearly = {"kind": "task-noisy-greedy", "epsilon": 0.002}
    assert finding_2(explorers(tmp_path / "same", [GREEDY, nearly], 80, "paper-high-small")).answer == "no"
    assert finding_2(explorers(tmp_path / "few", [GREEDY, FIRST], 4, "paper-low-large")).answer == "undecided"
    walk = {"kind": "task-oscillator"}
    assert finding_2(explorers(tmp_path / "never", [GREEDY, walk], 4, "paper-low-large")).answer == "untestable"


def test_it_is_the_named_share_that_is_compared() -> None:
    """Two agents that enter new cells at another pace, and call for exploration alone equally often."""
    rng, rows = stream(4, "named share"), []
    for agent, pace in (("A", 0.2), ("B", 0.8)):
        for at in range(100):
            one: dict[str, Any] = {"unit": "share", "cluster": f"map {at}", "episode_id": f"{agent} {at}"}
            rows.append(Row(measure="success", value=1.0, tags={"agent": agent}, **one))
            for tenth in range(1, 11):
                tags: dict[str, Any] = {"agent": agent, "progress": tenth / 10}
                rows.append(Row(measure=PROGRESS_SHARE, value=pace, tags=tags, **one))
                alone = float(np.clip(0.5 + 0.05 * rng.normal(), 0, 1))
                rows.append(Row(measure=ONLY_EXPLORATION, value=alone, tags=tags, **one))
    assert finding_2(Rows.from_rows(rows)).answer == "no"


def sized(own: Mapping[int, float], seed: int = 0, grids: int = 30) -> Rows:
    """Rows of figure 16: the general probe at .6 on each grid, that of one size apart by `own`, on the same grids."""
    rng, rows = stream(seed, "one size"), []
    for size, change in own.items():
        for at in range(grids):
            level = 0.6 + 0.1 * rng.normal()  # grids differ by more than the probes do
            for scope, value in (("general", level), (f"{size}x{size}", level + change + 0.02 * rng.normal())):
                for measure, of_class in (
                    ("cell accuracy without padding", None),
                    *((name, label) for name in ("recall", "precision") for label in ("agent", "goal")),
                ):
                    tags: dict[str, Any] = {
                        "agent": "A",
                        "site": "pre",
                        "layer": 15,
                        "reading": "balanced",
                        "control": "none",
                    }
                    tags |= {"head": "mlp", "scope": scope, "size": size, "class": of_class}
                    share = float(np.clip(value, 0, 1))
                    rows.append(Row(measure=measure, unit="share", value=share, cluster=f"{size} {at}", tags=tags))
    return Rows.from_rows(rows)


SIZES = (7, 9, 11, 13, 15)
ACCURACY = "cell accuracy without padding"


def test_probes_of_one_size_are_compared_with_the_general_one_grid_by_grid() -> None:
    as_printed = {size: 0.1 if size < 10 else 0.0 for size in SIZES}
    changes = {
        "as printed": as_printed,
        "lower": dict.fromkeys(SIZES, -0.15),
        "alike": dict.fromkeys(SIZES, 0.0),
        "one other": {**as_printed, 13: 0.1},
    }
    said = {name: said_of("telos figure 16", sized(change), ["A"]) for name, change in changes.items()}
    wanted = {
        ("one size higher", ACCURACY): ("yes", "no", "undecided", "yes"),
        ("one size equal", ACCURACY): ("yes", "no", "yes", "no"),
        ("one size higher", "precision"): ("undecided", "no", "undecided", "undecided"),
        ("one size lower", "recall"): ("no", "yes", "no", "no"),
    }
    for key, verdicts in wanted.items():
        assert tuple(said[name][key].answer for name in changes) == verdicts, key
    parts = dict(said["as printed"]["one size higher", ACCURACY].parts)
    assert list(parts) == [f"size {size}: probe of that size less general" for size in (7, 9)]
    assert all(part.value == pytest.approx(0.1, abs=0.02) and part.clusters == 30 for part in parts.values())
    few = said_of("telos figure 16", sized(dict.fromkeys(SIZES, 0.0), grids=3), ["A"])
    assert few["one size equal", ACCURACY].answer == "few"
    rows = sized(as_printed)
    general = said_of("telos figure 16", rows.select(scope="general"), ["A"])
    assert general["one size equal", ACCURACY].answer == "untestable"
    assert "size 11" in general["one size equal", ACCURACY].why


# Null agents beside the sentences of papers: what an agent without the property also shows is uninformative.


BEST = Optimal()
FLAT = [0.5, 0.4, 0.6, 0.5, 0.4, 0.6] * 4


class Lost(ScriptedAgent):
    """Errs more often the larger the grid is: an agent that has what the sentences about difficulty claim."""

    kind = "lost"

    def probabilities(self, observation: Observation) -> Any:
        size = observation.view.grid.walls.shape[0]  # type: ignore[attr-defined]
        return EpsilonGreedy(min(0.9, 0.15 * (size - 7) + 0.02)).probabilities(observation)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    worlds = [{"kind": "grid", "sizes": [7, 9, 11], "densities": [0.0, 0.4, 0.8], "count": 8}]
    study = small_study(worlds=worlds, trajectories=4, horizon={"factor": 1.5})
    agents = [BEST, EpsilonGreedy(0.3), Uniform(), Lost()]
    return measured(tmp_path_factory.mktemp("nulls") / "run", study, agents)


def sentences(path: Path, agent: str, item: str = "telos figure 4") -> list[Tested]:
    with Store(path) as store:
        rows = store.rows()
    return decide(find(item), rows, ReadAgents(agents=(agent,)), (), nulls_of(find(item), path, rows, [agent]))


@pytest.mark.parametrize("agent", [BEST.name, EpsilonGreedy(0.3).name, Uniform().name])
def test_no_sentence_about_difficulty_holds_for_an_agent_without_it(played: Path, agent: str) -> None:
    tested = sentences(played, agent)
    assert len(tested) == 16 and "yes" not in {result.answer for result in tested}
    assert all([null.said for null in result.nulls] == [OPTIMAL, LAPSE, RANDOM, STATE_BLIND] for result in tested)


@pytest.mark.parametrize("name", ["telos table 1 rooms", "telos table 1 paths"])
def test_no_sentence_about_keys_holds_for_an_agent_without_it(name: str, tmp_path: Path) -> None:
    item = find(name)
    agents = [BEST, EpsilonGreedy(0.3), Uniform(), KeyLured()]
    path = measured(tmp_path / "run", published_study(item, 0.3), agents)
    for agent in agents[:3]:
        assert "yes" not in {result.answer for result in sentences(path, agent.name, name)}, agent.name
    assert "yes" in {result.answer for result in sentences(path, KeyLured().name, name)}  # it goes to the key


def test_what_an_agent_has_and_no_null_agent_has_still_holds(played: Path) -> None:
    by_statement = {result.said: result for result in sentences(played, Lost().name)}
    assert by_statement["it falls with every step of size"].answer == "yes"
    assert by_statement["it falls with size"].answer == "yes"
    density = by_statement["it falls with density"]  # in dense grids fewer moves are optimal, for a random agent too
    assert density.answer != "yes" and "yes" in {null.answer for null in density.nulls}


def test_null_agents_play_the_same_worlds_as_often(played: Path) -> None:
    with Store(played) as store:
        rows = store.rows()
    own = rows.select(measure="success", agent=Lost().name)
    for null in (
        null for null in nulls_of(find("telos figure 4"), played, rows, [Lost().name]) if null.name != SCRIPTED
    ):
        part = null.rows.select(measure="success")
        assert len(part) == len(own) and set(part.cluster.tolist()) == set(own.cluster.tolist())
    lapse = next(null for null in nulls_of(find("telos figure 4"), played, rows, [BEST.name]) if null.name == LAPSE)
    assert (lapse.rows.select(measure="action accuracy").value == 1).all()  # an agent that never errs has no lapses


def beside(claim: QuotedClaim, own: Rows, **nulls: Rows) -> Tested:
    agents = [NullAgent(name=name, agents=("A",), rows=rows) for name, rows in nulls.items()]
    return decide(item_of(claims=(claim,), readings=()), own, ReadAgents(agents=("A",)), (), agents)[0]


def test_a_sentence_is_uninformative_if_a_null_agent_satisfies_it_or_cannot_be_told_from_the_agent() -> None:
    claim = QuotedClaim(said="s", test="above", measure="success", bound=0.3)
    own = Rows.from_rows(rows_of("success", FLAT))
    high, low = (Rows.from_rows(rows_of("success", [value] * 24)) for value in (0.9, 0.1))
    wide = Rows.from_rows(rows_of("success", [0.0, 1.0] * 4))  # not shown, and not apart
    assert beside(claim, own).answer == "yes"
    assert beside(claim, own, optimal=low).answer == "yes"
    assert beside(claim, own, optimal=low, random=high).answer == "uninformative"
    assert beside(claim, own, random=wide).answer == "uninformative"
    assert "random" in beside(claim, own, random=wide).why
    other = Rows.from_rows(rows_of("path ratio", FLAT))
    assert beside(claim, own, optimal=other).answer == "undecided"  # no null agent has a number of it
    assert beside(claim, own, optimal=other, random=low).answer == "yes"
    assert beside(claim, low, random=high).answer == "no"  # what does not hold needs no null agent
    only = claim.model_copy(update={"nulls": ("optimal",)})
    assert beside(only, own, optimal=low, random=high).answer == "yes"
    text = "\n".join(lines_of(beside(claim, own, optimal=low, random=high)))
    assert "0.1" in text and "0.9" in text


def test_too_few_grids_are_said_and_not_tested() -> None:
    claim = QuotedClaim(said="s", test="falls", measure="success", over="t")
    rows = [
        Row(measure="success", unit="share", value=1 / t - 0.01 * at, cluster=f"{t} {at}", tags={"agent": "A", "t": t})
        for t in (1, 2)
        for at in range(5)
    ]
    assert beside(claim, Rows.from_rows(rows)).answer == "yes"
    fewer = beside(claim, Rows.from_rows(rows[1:] + [row for row in rows if row.tags["t"] == 2]))
    assert fewer.answer == "few" and not fewer.parts
    assert (
        beside(claim.model_copy(update={"least": 9}), Rows.from_rows(rows[1:])).answer == "few"
    )  # 4 grids where t is 1
    assert beside(claim.model_copy(update={"least": 8}), Rows.from_rows(rows[1:])).answer == "yes"


def test_sentences_on_activations_are_tested_on_random_networks_and_patches_on_noise() -> None:
    for item in items().values():
        if item.claims and item.study:
            assert bool(item.nulls) == (item.needs == "weights"), item.name
        for tags in item.nulls:
            assert set(tags) <= {"control", "patch"}
    claim = QuotedClaim(said="s", test="above", measure="success", bound=0.3)
    rows = Rows.from_rows([*rows_of("success", FLAT, control="none"), *rows_of("success", FLAT, control="initial")])
    item = item_of(claims=(claim,), readings=(), where={"control": "none"})
    null = NullAgent(name="initial", agents=("A",), rows=rows, tags={"control": "initial"})
    (result,) = decide(item, rows, ReadAgents(agents=("A",)), (), [null])
    assert result.answer == "uninformative" and result.nulls[0].answer == "yes"


def test_sentences_that_compare_agents_are_tested_on_the_scripted_agents_of_the_run() -> None:
    claim = QuotedClaim(said="s", test="equal but different", measure="exploration-only share by progress", margin=0.1)
    null = NullAgent(name=SCRIPTED, agents=("B", "C"), rows=Rows.from_rows(rows_of("success", FLAT)))
    other = NullAgent(name=RANDOM, agents=("A",), rows=null.rows)
    rows = Rows.from_rows(rows_of("success", FLAT))
    (result,) = decide(item_of(claims=(claim,), readings=()), rows, ReadAgents(agents=("A",)), (), [null, other])
    assert [entry.said for entry in result.nulls] == [SCRIPTED] and claim.test in TESTS


def test_a_scale_says_beforehand_which_sentences_it_cannot_test() -> None:
    for name, scale, grids in (
        ("telos table 2", "small", 60),
        ("telos figure 4", "small", 30),
        ("telos figure 4", "1", 300),
        ("exploration table 2", "small", 9),
        ("exploration table 3", "1", 4),
    ):
        item = find(name)
        assert count_tested_grids(item, published_study(item, scale_of(item, scale))) == grids, name
    assert min(claim.least for item in items().values() for claim in item.claims) == 10


def test_central_sentences_are_testable_at_the_small_scale() -> None:
    """At two tested grids of each size and density there is another one whose beliefs stand in."""
    item = find("telos table 2")
    study = published_study(item, scale_of(item, "small"))
    assert study.analysis is not None and study.analysis.inside is not None
    worlds = study.dump()["worlds"][0]
    assert round(study.analysis.inside.test * worlds["count"]) == item.tested == 2
    central = [claim for claim in item.claims if "less shuffled" in claim.measure]
    assert len(central) == 2 and all(claim.least <= count_tested_grids(item, study) for claim in central)


def test_the_table_of_trivial_findings_is_written_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    script = importlib.import_module("trivial_findings")
    few = {name: find(name) for name in ("telos figure 4", "telos table 1 rooms", "exploration table 2")}
    monkeypatch.setattr(script, "items", lambda: few)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{script._MARKS[0]}previous table\n{script._MARKS[1]}after\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["x", "--markdown", str(page), "--scale", "0.05"])
    script.main()
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{script._MARKS[0]}") and text.endswith(f"{script._MARKS[1]}after\n")
    assert "previous table" not in text and "falls with density" in text and "random" in text
    answers = list(script.answers_of(few["exploration table 2"], 0.4, None))
    assert len(answers) == 4 and all(len(by_agent) == 3 for _, _, by_agent in answers)

    item = find("telos table 2")
    assert list(script.answers_of(item, 1, None)) == [] == list(script.answers_of(item, 1, tmp_path))
    null = Tested(said="initial", answer="yes")
    tested = [Tested(said="s", place="section 5.2", answer="uninformative", nulls=(null,))]
    folder = tmp_path / "items" / "telos-table-2"
    folder.mkdir(parents=True)
    _write(Reproduction.of(item, 0.02, claims=tested, agents=["Theseus"], made_here=True), folder)
    assert list(script.answers_of(item, 1, tmp_path)) == [("section 5.2", "s", [("initial", "yes")])]
