"""Null agents beside the sentences of papers: what an agent without the property also shows is uninformative."""

import importlib
from pathlib import Path
from typing import Any

import pytest
from planted_rows import item_of, rows_of

from goalscope.agents import Observation, ScriptedAgent
from goalscope.agents.scripted import EpsilonGreedy, Optimal, Uniform
from goalscope.papers import QuotedClaim, ReadAgents, find, items
from goalscope.papers.claims import (
    LAPSE,
    OPTIMAL,
    RANDOM,
    SCRIPTED,
    STATE_BLIND,
    TESTS,
    NullAgent,
    Tested,
    decide,
    lines_of,
    nulls_of,
)
from goalscope.papers.page import Reproduction
from goalscope.papers.readings import count_tested_grids
from goalscope.papers.working import _write, published_study, scale_of
from goalscope.runs import Store
from goalscope.stats.rows import Row, Rows
from measured_runs import measured, small_study

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
