"""Items: every figure and table has one, what they declare is there, scales, readings."""

import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from planted_rows import item_of, rows_of

from goalscope._ground import registry
from goalscope.cli.overrides import Overrides, load_study
from goalscope.inside.probing import beliefs
from goalscope.papers import ItemReading, ReadAgents, find, items, read, scaled
from goalscope.papers.claims import TESTS
from goalscope.stats.rows import Rows
from goalscope.verdict.subject import find_out, ready_models, ready_name

NUMBERS: dict[str, dict[str, Iterable[int | str]]] = {
    "telos": {"figure": range(1, 17), "table": range(1, 7)},
    "exploration": {"figure": range(1, 21), "table": range(1, 10)},
    "meg": {"figure": range(1, 6), "table": ("k", "epsilon")},
}
PROBED = {"prefix accuracy", "distance error", "R^2", "length match", "predicted length", "executed length"}
PROBED |= {"length error", "median length error", "cell accuracy without padding", "recall", "precision"}
PROBED |= {"localisation", "localisation distance", "action changed", beliefs.TRUTH, *beliefs.SHARES}
PROBED |= {f"{name} less shuffled" for name in (beliefs.DECODED, beliefs.RECOVERY)}
PROBED |= {beliefs.top_name(count) + end for count in beliefs.TOPS for end in ("", beliefs.SHUFFLED)}


def test_every_figure_and_table_of_the_papers_has_an_entry() -> None:
    names = set(items())
    for paper, kinds in NUMBERS.items():
        for kind, numbers in kinds.items():
            for number in numbers:
                name = f"{paper} {kind} {number}"
                assert any(one == name or one.startswith(f"{name} ") for one in names), name


@pytest.mark.parametrize("name", [item.name for item in items().values() if item.study])
def test_what_an_item_declares_is_there(name: str) -> None:
    item = items()[name]
    load_study(item.study, Overrides(settings=item.changes))
    known = {*registry.names("measure"), *PROBED}
    asked = {one.measure for one in item.readings} | {one.measure for one in item.claims}
    asked |= {one.than for one in item.claims if one.than}
    assert asked <= known and item.readings and item.section
    assert all(one.test in TESTS and bool(one.quoted) == bool(one.place) for one in item.claims)
    assert item.model and (item.model in ready_models() or item.model == "all thirteen models")


def test_items_are_found_by_the_words_of_readers() -> None:
    assert find("Telos Fig. 12").name == "telos figure 12" and find("telos  table 2").name == "telos table 2"
    with pytest.raises(ValueError, match="telos table 2"):
        find("telos table 22")


def test_a_scale_takes_worlds_then_trajectories_and_keeps_every_cell() -> None:
    whole = load_study("baseline")
    assert scaled(whole, 1) is whole
    for scale, count, trajectories in ((0.5, 5, 10), (0.1, 1, 10), (0.02, 1, 2), (0.001, 1, 1)):
        part = scaled(whole, scale).dump()
        assert (part["worlds"][0]["count"], part["trajectories"]) == (count, trajectories)
        assert part["worlds"][0]["sizes"] == [7, 9, 11, 13, 15]
    inside = scaled(load_study("cognitive-map", Overrides(settings=["analysis.inside.steps=null"])), 0.1, least=2)
    assert inside.analysis is not None and inside.analysis.inside is not None
    assert inside.analysis.inside.steps == 3 and inside.analysis.inside.random is not None
    assert inside.analysis.inside.random.seeds == 1 and inside.dump()["worlds"][0]["count"] == 2
    for wrong in (0, -1, 1.5, math.nan):
        with pytest.raises(ValueError, match="scale"):
            scaled(whole, wrong)


def test_the_models_of_the_papers_are_ready_in_every_study_with_a_language_model() -> None:
    assert len(ready_models()) == 2 + 1 + 13
    assert ready_name("openai/gpt-oss-20b") == "GPT-OSS-20B" and ready_name("gpt-4.1") == "GPT-4.1"
    assert ready_name("someone/else") is None
    for study in ("baseline", "iso-difficulty", "key-door", "two-path", "fog", "patching", "steering"):
        changed = load_study(study, Overrides(model=find_out("GPT-OSS-20B", network=False)))
        agent = next(entry for entry in changed.agents_ if entry.kind == "chat")
        assert agent.parameters["server"]["mode"] == "completions" and agent.parameters["top_p"] == 0.95
        named = [] if changed.analysis is None else [one.agent for one in changed.analysis.interventions]
        assert set(named) <= {"GPT-OSS-20B"}
    for study in ("cognitive-map", "beliefs", "plans", "distance"):
        changed = load_study(study, Overrides(agents="GPT-OSS-120B"))
        assert changed.analysis is not None and changed.analysis.inside is not None
        assert changed.analysis.inside.agent == "GPT-OSS-120B" and len(changed.agents_) == 1
    harness = load_study("harness", Overrides(model=find_out("Claude Haiku 4.5", network=False)))
    chat = [entry for entry in harness.agents_ if entry.kind == "task-chat"]
    assert [entry.parameters["server"]["key_env"] for entry in chat] == ["ANTHROPIC_API_KEY"] * 2
    assert chat[0].parameters["temperature"] == 0.0 and chat[1].parameters["memory"] is True


def test_a_reading_stands_beside_what_is_printed_and_says_what_is_not_there() -> None:
    reading = ItemReading(label="x", measure="success", by="size", percent=True, published={7: 50.0, 9: 95.0, 11: 40.0})
    rows = Rows.from_rows(
        [
            *rows_of("success", [0, 1, 0, 1, 1, 0] * 2, size=7),
            *rows_of("success", [0, 0, 0, 0, 1, 0] * 2, size=9),
            *rows_of("success", [1, 1, 1], size=11, transform="rotate"),
        ]
    )
    item = item_of(readings=(reading,), where={"transform": None})
    lines = read(item, rows, ReadAgents(agents=("A",), model="GPT-OSS-20B"))
    assert [line.value for line in lines] == [7, 9, 11]
    assert [line.within for line in lines] == [True, False, None] and lines[2].ours is None
    assert lines[0].ours is not None and lines[0].ours.value == 0.5 and lines[0].ours.clusters == 12
    few = read(
        item, Rows.from_rows(rows_of("success", [0, 1, 0], size=7)), ReadAgents(agents=("A",), model="GPT-OSS-20B")
    )
    assert few[0].within is None and few[0].differs == ("fewer than 10 grids",)
    other = read(item, rows, ReadAgents(agents=("A",), model=""))
    assert [line.within for line in other] == [None] * 3  # another model's numbers are not compared
    assert [line.ours for line in read(item, rows, ReadAgents(agents=("B",)))] == [None] * 3


def test_several_arms_never_share_a_line_and_values_have_the_names_of_the_paper() -> None:
    plain, with_memory = (rows_of("success", [1, 0] * 6, arm=name) for name in ("x", "y"))
    for row in with_memory:
        row.tags["agent"] = "B"  # type: ignore[index]
    both = Rows.from_rows([*plain, *with_memory])
    subject = ReadAgents(agents=("A", "B"), model="GPT-OSS-20B")
    (pooled,) = (ItemReading(label="s", measure="success"),)
    assert [line.label for line in read(item_of(readings=(pooled,)), both, subject)] == ["s, A", "s, B"]
    by = ItemReading(label="s", measure="success", by="arm", called={"x": "without", "y": "with"})
    lines = read(item_of(readings=(by,)), both, subject)
    assert [(line.label, line.value) for line in lines] == [("s", "without"), ("s", "with")]


def test_the_page_numbers_the_language_models_of_each_study_as_the_study_does() -> None:
    page = (Path(__file__).parents[2] / "docs" / "papers.md").read_text(encoding="utf-8")
    assert "in `explore-exploit` they are 13 to 20, in `harness` and `semantic` 4 and 5, and in\n`demand` 4" in page
    wanted = {
        "explore-exploit": [*range(13, 21)],
        "harness": [4, 5],
        "semantic": [4, 5],
        "demand": [4],
        "baseline": [0],
    }
    for name, numbers in {**wanted, "baseline": [0]}.items():
        study = load_study(name, Overrides(model=find_out("GPT-4.1", network=False)))
        assert [at for at, entry in enumerate(study.agents_) if entry.parameters.get("model") == "gpt-4.1"] == numbers
