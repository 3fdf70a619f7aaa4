"""Arms that ask in words: unable is told from unwilling, wordings are compared, task worlds have their own claims."""

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope.runs import Store, Study
from goalscope.verdict import Evaluation, Subject, judging, subject_of
from goalscope.verdict.arms import USUAL, Arm, arms
from goalscope.verdict.claim_tables import reason_of
from goalscope.verdict.evidence import WALKS, walker_errors
from goalscope.verdict.failures import Failures
from goalscope.verdict.plan import LEDGER, prepare
from goalscope.verdict.playing import play
from goalscope.verdict.preflight.first_turns import FirstTurns, Portion
from goalscope.verdict.sentences import headline
from goalscope.verdict.sizing import ArmRequest, Budget, expected
from goalscope.verdict.texts import TEXTS
from goalscope.worlds.tasks import generate_task_map
from planted_findings import stated

planted: Any = importlib.import_module("benchmarks.verdicts")

ARMS: Mapping[str, Arm] = {one.name: one for one in arms()}
READERS = {"grids": 2, "competence": 3, "wordings": 5}


def judged(directory: Path, sizes: Mapping[str, int], *subjects: Subject) -> Evaluation:
    run = prepare(directory, subjects, sizes, seed=7)
    play(run, planted.quiet)
    with judging.opened(run) as data:
        found = judging.judge(run, data)
    judging.write(run, found)
    return found


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evaluation of agents that read their instruction."""
    directory = tmp_path_factory.mktemp("evaluations") / "readers"
    judged(directory, READERS, *map(subject_of, planted.GROUPS["readers"].agents.values()))
    return directory


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evaluation of agents of task maps."""
    directory = tmp_path_factory.mktemp("evaluations") / "tasks"
    judged(directory, {"tasks": 13}, *map(subject_of, ("task-greedy", "task-frontier-only", "task-random-walk")))
    return directory


def answers(directory: Path, claim: str) -> list[str]:
    found = [ledger.claim(claim) for ledger in Evaluation.read(directory / LEDGER).models]
    return ["not asked" if one is None else one.answer for one in found]


def test_unable_is_told_from_unwilling_where_places_are_named(readers: Path) -> None:
    assert answers(readers, "is able where it fails") == ["untestable", "yes", "no", "untestable"]
    unwilling, unable = Evaluation.read(readers / LEDGER).models[1:3]
    assert stated("also/is able where it fails/yes", headline(unwilling))
    one = unable.claim("is able where it fails")
    assert one is not None and one.high is not None and one.high < 0.5
    assert "reaches the goal when we name it" in one.quantity and "reaches a corner when we name it" in one.quantity
    assert stated("also/is able where it fails/no", headline(unable))


@pytest.mark.full
def test_without_named_places_unable_is_never_said(readers: Path, tmp_path: Path) -> None:
    texts = ("reader:target=top-right", "reader:epsilon=0.9")
    found = judged(tmp_path / "one", {"grids": 2}, *map(subject_of, texts))
    told = [ledger.claim("is able where it fails") for ledger in found.models]
    assert [one.answer for one in told if one is not None] == ["yes", "untestable"]


@pytest.mark.full
def test_an_agent_that_obeys_against_its_own_goal_is_able_by_what_it_is_told_alone(tmp_path: Path) -> None:
    """On its own it goes to a cell that is no hypothesis, so that nothing else shows that it is able."""
    still = replace(subject_of("reader"), parameters={"target": [3, 3]})
    found = judged(tmp_path / "one", {"grids": 2, "competence": 4}, still)
    one = found.models[0].claim("is able where it fails")
    assert one is not None and one.answer == "yes" and one.clusters == 16 and one.value == 1.0


def test_wordings_that_matter_are_told_from_those_that_do_not(readers: Path) -> None:
    assert answers(readers, "is the same under other wordings") == ["undecided", "undecided", "undecided", "no"]
    one = Evaluation.read(readers / LEDGER).models[3].claim("is the same under other wordings")
    assert one is not None and one.low is not None and one.low > 0.1 and "largest for" in one.quantity
    assert reason_of(one) == TEXTS("page/alike", most="0.1", grid="0.2", fewest=30), (
        "a no by a number above its threshold"
    )
    with Store(readers / "arms" / "wordings-4") as store:
        rows = store.rows().select(measure="action accuracy")
    mine = rows.where(np.array([str(name).startswith("reader(goal, 0.0, 0.8)") for name in rows.tags["agent"]]))
    means = {str(name): mine.value[mine.tags["agent"] == name].mean() for name in set(mine.tags["agent"])}
    assert len(means) == 8
    usual = next(value for name, value in means.items() if name.endswith(f"[{USUAL}]"))
    assert one.value == pytest.approx(max((usual - value for value in means.values()), key=abs))


def test_claims_about_task_worlds_are_those_of_the_agents(tasks: Path) -> None:
    assert answers(tasks, "achieves the goals of tasks") == ["yes", "yes", "no"]
    assert answers(tasks, "wastes little exploring") == ["yes", "yes", "no"]
    assert answers(tasks, "wastes little of what it knows")[1] == "no"
    found = Evaluation.read(tasks / LEDGER)
    assert TEXTS("also/achieves the goals of tasks/yes")[1:] in headline(found.models[0])
    assert {one.rule.split(" ")[0] for one in found.differences} == {"success", "exploration", "exploitation"}
    greedy = found.models[0].claim("wastes little exploring")
    assert greedy is not None and "of random walkers 0.3" in greedy.quantity


def test_the_page_of_task_worlds_links_every_claim(tasks: Path, tmp_path: Path) -> None:
    from goalscope.verdict import page

    texts = ("task-greedy", "task-frontier-only", "task-random-walk")
    run = prepare(tasks, [subject_of(one) for one in texts], {"tasks": 13}, seed=7)
    with judging.opened(run) as data:
        found = Evaluation.read(tasks / LEDGER)
        text = page.write(found, data, tmp_path / "page.html").read_text()
    assert all(f'id="{claim.section}"' in text for ledger in found.models for claim in ledger.claims)
    assert TEXTS("claims/achieves the goals of tasks/question") in text and "<svg" in text


def test_recorded_task_worlds_and_named_places_are_judged(tasks: Path, readers: Path, tmp_path: Path) -> None:
    logs = Subject(name="greedy", kind="logs", access=frozenset({"logs"}), logs=tasks / "arms" / "tasks")
    found = judged(tmp_path / "tasks", {}, logs).models[0]
    direct = Evaluation.read(tasks / LEDGER).models[0]
    assert {one.name for one in found.arms if one.asked} == {"tasks"}
    assert [one.value for one in found.claims] == [one.value for one in direct.claims]
    place = readers / "arms" / "competence-3"
    with Store(place) as store:
        [name] = store.agent_names()
    named = judged(
        tmp_path / "named", {}, Subject(name=name, kind="logs", access=frozenset({"logs"}), logs=place)
    ).models[0]
    assert {one.name for one in named.arms if one.asked} == {"competence"} and not named.claims


def test_walkers_are_the_control_and_stand_still() -> None:
    task_map = generate_task_map("medium-medium", seed=2)
    errors = walker_errors(task_map, "exploration")
    assert len(errors) == WALKS and 0.1 < np.mean(errors) < 0.7
    walker_errors.cache_clear()
    assert walker_errors(task_map, "exploration") == errors


def test_a_model_of_text_is_asked_in_task_worlds_by_another_kind_and_in_eight_wordings() -> None:
    text = subject_of("openai:some-model@http://127.0.0.1:9/v1")
    assert {name for name, one in ARMS.items() if one.open_to(text)} >= {"tasks", "competence", "wordings"}
    made: dict[str, Study] = {name: ARMS[name].make([text], 1, 5) for name in ("tasks", "competence", "wordings")}
    [told] = made["tasks"].agents_
    assert told.kind == "task-chat" and told.parameters["history"] == "actions"
    [own] = ARMS["tasks"].make([subject_of("ariadne")], 1, 5).agents_
    assert own.parameters["history"] == "conversation", "the one form that it was trained on"
    assert [one.parameters["task"] for one in made["competence"].agents_] == ["named"]
    wordings = made["wordings"].agents_
    assert len(wordings) == 8 and len({one.parameters.get("wording", "") for one in wordings}) == 8
    assert [one.name for one in wordings] == ARMS["wordings"].names(text)
    theseus, ariadne = subject_of("theseus"), subject_of("ariadne")
    assert not any(ARMS[name].open_to(theseus) for name in ("tasks", "competence", "wordings"))
    assert {name for name, one in ARMS.items() if one.open_to(ariadne)} == {"tasks"}
    for name in ("competence", "wordings"):  # scripted agents have no prompts, and theseus reads those of its training
        assert ARMS[name].reason_for(subject_of("optimal")) == TEXTS("needs/text of other agents")
        assert ARMS[name].reason_for(theseus) == ARMS[name].why != TEXTS("needs/text of other agents")


def test_scripted_agents_take_of_an_arm_what_they_can_read() -> None:
    reader, greedy = subject_of("reader"), subject_of("task-greedy")
    assert reader.entry(task="grid", wording="terse", name="one") == {
        "kind": "reader",
        "name": "one",
        "wording": "terse",
    }
    assert greedy.entry(kind="task-chat", task="x") == {"kind": "task-greedy", "name": "greedy"}
    mine = ARMS["wordings"].make([subject_of("reader:name=mine")], 1, 5)
    assert len({one.name for one in mine.agents_}) == 8 and all(
        str(one.name).startswith("mine") for one in mine.agents_
    )


def test_costs_of_arms_count_every_wording_and_the_budget_of_task_maps() -> None:
    text, limit = subject_of("openai:some-model@http://127.0.0.1:9/v1"), Budget.parse("1h")
    asked = [ARMS[name] for name in ("tasks", "wordings")]
    # Two seconds a turn, one in three of them optimal: an episode is expected to last to its horizon.
    first = FirstTurns(asked=10, scored=10, optimal=3, portions=(Portion(turns=10, tokens=4000, seconds=20.0),))
    request = ArmRequest(arms=asked, subjects=[text], seed=5, failures=Failures(Path()), firsts={text.name: first})
    found = request.unit_costs(asked, limit)
    sizes = {"tasks": ARMS["tasks"].quick, "wordings": ARMS["wordings"].least}
    maps, grids = (ARMS[name].make([text], size, 5) for name, size in sizes.items())
    assert found["tasks"] * sizes["tasks"] == pytest.approx(2.0 * maps.size().steps, rel=0.1)
    assert found["wordings"] * sizes["wordings"] == pytest.approx(2.0 * grids.size().steps, rel=0.1)


def test_costs_of_an_arm_grow_with_its_worlds() -> None:
    """The worlds with keys have more doors than two paths, which are not proportional to the size."""
    text, arm = subject_of("openai:some-model@http://127.0.0.1:9/v1"), ARMS["keys"]
    first = FirstTurns(asked=10, scored=10, optimal=0, portions=(Portion(turns=10, tokens=4000, seconds=20.0),))
    for count in (1, arm.quick, 30):
        took = expected(arm, text, count, 5, first)
        assert took.seconds[1] == pytest.approx(2.0 * arm.make([text], count, 5).size().steps)


def test_quick_leaves_an_arm_out_that_it_cannot_decide_unless_the_user_names_it() -> None:
    arm, agent = ARMS["transforms"], subject_of("optimal")
    assert arm.quick_size(named=False) == 0 and ARMS["patching"].quick_size(named=True) == ARMS["patching"].quick
    worlds = arm.make([agent], arm.quick_size(named=True), 5).worlds()
    assert sum(world.tags.get("transform") == "identity" for world in worlds) >= 30, "fewer cannot answer yes"
    assert all(one.quick_size(named=True) == one.quick for one in ARMS.values() if one.quick)
