"""Items: each figure and table has one, what they declare is there, and what each number was measured on."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from planted_rows import item_of, rows_of

from goalscope._ground import registry
from goalscope.cli.overrides import StudyOptions, load_study
from goalscope.inside.probing import beliefs
from goalscope.papers import Item, ItemReading, ReadAgents, find, items, read, scaled
from goalscope.papers.claims import TESTS
from goalscope.papers.page import Reproduction, declarations_of, sections
from goalscope.papers.readings import COUNTED, FIELDS, UNKNOWN, Term, blocks, declare, differences, ours_of
from goalscope.papers.working import as_printed, published_study
from goalscope.runs import Study
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
    load_study(item.study, StudyOptions(settings=item.changes))
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
    inside = scaled(load_study("cognitive-map", StudyOptions(settings=["analysis.inside.steps=null"])), 0.1, least=2)
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
        changed = load_study(study, StudyOptions(model=find_out("GPT-OSS-20B", network=False)))
        agent = next(entry for entry in changed.agents_ if entry.kind == "chat")
        assert agent.parameters["server"]["mode"] == "completions" and agent.parameters["top_p"] == 0.95
        named = [] if changed.analysis is None else [one.agent for one in changed.analysis.interventions]
        assert set(named) <= {"GPT-OSS-20B"}
    for study in ("cognitive-map", "beliefs", "plans", "distance"):
        changed = load_study(study, StudyOptions(agents="GPT-OSS-120B"))
        assert changed.analysis is not None and changed.analysis.inside is not None
        assert changed.analysis.inside.agent == "GPT-OSS-120B" and len(changed.agents_) == 1
    harness = load_study("harness", StudyOptions(model=find_out("Claude Haiku 4.5", network=False)))
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
        study = load_study(name, StudyOptions(model=find_out("GPT-4.1", network=False)))
        assert [at for at, entry in enumerate(study.agents_) if entry.parameters.get("model") == "gpt-4.1"] == numbers


# What printed numbers and ours were measured on: both declarations, their differences, and when "within" is said.


REPRODUCED = [item.name for item in items().values() if not item.why_not]
COMPARED = [item.name for item in items().values() if any(reading.published for reading in item.readings)]
PLACES = ("section", "appendix", "appendices", "table", "figure", "theorem", "not printed", "authors' code")
EVEN = Rows.from_rows(rows_of("success", [0, 1] * 6))


def test_every_item_declares_each_field_with_its_place() -> None:
    assert len(REPRODUCED) == 58 and {items()[name].basis for name in REPRODUCED} == set(blocks())
    for name in REPRODUCED:
        item = items()[name]
        for reading in (None, *item.readings):
            declared = declare(item, {}, reading)
            assert declared and [entry.field for entry in declared] == sorted(
                (entry.field for entry in declared), key=FIELDS.index
            )
            assert all(entry.printed and entry.ours and entry.place.startswith(PLACES) for entry in declared)
            wanted = {"model", "worlds", "layout", "prompt", COUNTED} if item.name.startswith("telos") else {"worlds"}
            assert not item.study or wanted <= {entry.field for entry in declared}


@pytest.mark.parametrize("name", REPRODUCED)
def test_the_page_of_an_item_has_both_declarations_and_what_differs(name: str) -> None:
    item = items()[name]
    declared = declare(item, {"model": "Theseus"})
    (first, *_) = sections(item, Reproduction.of(item, 1, declared=declared, agents=["Theseus"], made_here=True))
    rows = first.tables[-1].rows
    assert [row[1:4] for row in rows] == [(entry.printed, entry.place, entry.ours) for entry in declared]
    same = [entry.field for entry, row in zip(declared, rows, strict=True) if row[-1] == rows_of_equality("same")]
    assert same == [entry.field for entry in declared if entry.equal]


def rows_of_equality(key: str) -> object:
    """Return the last cell of the row of one term that is or is not equal."""
    term = Term(field="label", printed="x", place="section 1", ours="x" if key == "same" else "y")
    return declarations_of([term]).rows[0][-1]


def comparable(item: Item) -> tuple[Item, dict[str, str]]:
    """Return an item with one line whose printed number was measured on known things, and ours on the same."""
    terms = declare(item, {"model": item.model})
    texts = {entry.field: entry.printed.removeprefix(UNKNOWN) or "known" for entry in terms}
    basis: dict[str, Any] = {entry.field: (texts[entry.field], entry.place) for entry in terms}
    reading = ItemReading(label="x", measure="success", percent=True, published=50.0, basis=basis)
    return item.model_copy(update={"readings": (reading,), "where": {}}), texts


def compared(item: Item, ours: Mapping[str, str]) -> tuple[bool | None, tuple[str, ...]]:
    (line,) = read(item, EVEN, ReadAgents(agents=("A",), model=ours.get("model", ""), ours=ours))
    return line.within, line.differs


@pytest.mark.parametrize("name", [name for name in COMPARED if items()[name].study])
def test_one_field_that_differs_or_is_not_known_makes_within_disappear(name: str) -> None:
    item, ours = comparable(items()[name])
    assert compared(item, ours) == (True, ())
    for field in set(ours) - {COUNTED}:
        without = {key: text for key, text in ours.items() if key != field}
        for changed in (ours | {field: "something else"}, ours | {field: UNKNOWN}, without):
            within, differs = compared(item, changed)
            assert within is None and [text.partition(":")[0] for text in differs] == [field]
    assert compared(item, ours | {COUNTED: "another"}) == (True, ())  # fewer grids make the interval wider


def test_two_unknown_values_are_not_the_same() -> None:
    item, ours = comparable(find("telos figure 4"))
    (reading,) = item.readings
    unknown = reading.model_copy(update={"basis": {**reading.basis, "label": (f"{UNKNOWN}: x", "not printed")}})
    terms = declare(item.model_copy(update={"readings": (unknown,)}), ours | {"label": f"{UNKNOWN}: x"}, unknown)
    assert [text.partition(":")[0] for text in differences(terms, unknown)] == ["label"]


def test_p_values_need_the_same_n() -> None:
    item, ours = comparable(find("telos table 3"))
    for how, fields in (("mean", []), ("p-value", [COUNTED]), ("effect", [COUNTED])):
        reading = item.readings[0].model_copy(update={"how": how})
        terms = declare(item, ours | {COUNTED: "half"}, reading)
        assert [text.partition(":")[0] for text in differences(terms, reading)] == fields


def test_a_number_of_several_models_is_compared_with_that_of_the_model_that_was_run() -> None:
    item = find("exploration table 2")
    for model, same in (("GPT-4.1", True), (item.model, True), ("Claude Opus 4.6", False), ("", False)):
        (term,) = (entry for entry in declare(item, {"model": model}, item.readings[0]) if entry.field == "model")
        assert term.equal == same


def fields_that_differ(item: Item, study: Study, printed: str = "", **sampling: Any) -> set[str]:
    """Return the fields that differ for GPT-OSS-20B, as the authors sampled it, on a study."""
    drawn = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 10_000, "reasoning_effort": "low", **sampling}
    described = {"A": {"kind": "chat", "sampling": drawn, "printed": printed}}
    inside = study.analysis.inside.complete() if study.analysis is not None and study.analysis.inside else None
    ours = ours_of(item, study, described, "GPT-OSS-20B", inside)
    return {entry.field for entry in declare(item, ours) if not entry.equal}


def test_ours_is_declared_from_the_study_and_the_agents_of_a_run() -> None:
    item = find("telos figure 4")
    baseline = published_study(item, 1)
    assert fields_that_differ(item, baseline, "telos G.2") == set()
    assert fields_that_differ(item, baseline) == {"prompt"}
    assert fields_that_differ(item, published_study(item, 0.1), "telos G.2") == {COUNTED}
    for change, field in (
        ("worlds.0.sizes=[7,9]", "worlds"),
        ("worlds.0.densities=[0]", "worlds"),
        ("horizon.factor=2", "horizon"),
        ("worlds.0.goal_side=left", "generator"),
        ("trajectories=5", COUNTED),
    ):
        changed = StudyOptions(settings=[change]).apply(baseline)
        assert fields_that_differ(item, changed, "telos G.2") == {field}, change
    for name, value in (("max_tokens", 96), ("reasoning_effort", "high"), ("temperature", 0.0), ("top_p", None)):
        assert fields_that_differ(item, baseline, "telos G.2", **{name: value}) == {name}
    scripted = ours_of(item, baseline, {"optimal": {"kind": "optimal"}})
    assert "prompt" not in scripted and "temperature" not in scripted
    assert set(ours_of(item, None, {"A": {}}, "GPT-OSS-20B")) == {"model"}  # imported logs


def test_what_stands_in_the_way_of_gpt_oss_at_the_published_size_with_the_printed_prompt() -> None:
    # The paper does not say which steps and grids its map probes saw, nor how long its decoders were fitted.
    expected = {
        "telos figure 6": {"training", "test", "subset", COUNTED},
        "telos table 2": {"training", "test", COUNTED},
        "telos table 4": {"training", "test", "probe", "subset", COUNTED},
        "telos figure 10": {"probe", COUNTED},
        "telos table 5": {"probe", COUNTED},
        "telos table 1 rooms": {"generator", "reasoning_effort", COUNTED},
        "telos appendix f": {"worlds", COUNTED},
    }
    for name, fields in expected.items():
        item = find(name)
        assert fields_that_differ(item, published_study(item, 1), item.prompts[0]) == fields, name


def test_maps_have_training_grids_of_their_own_and_small_scales_test_two_grids_of_each_kind() -> None:
    for name in ("telos figure 6", "telos table 2", "telos table 4", "telos figure 10"):
        item = find(name)
        whole = ours_of(item, (study := published_study(item, 1)), {}, inside=study.analysis.inside)  # type: ignore[union-attr]
        assert whole["test"] == "300 trajectories" and int(whole["training"].split()[0]) >= 2880
        small = published_study(item, 0.02)
        assert small.analysis is not None and small.analysis.inside is not None
        assert small.dump()["worlds"][0]["count"] == 4 and small.analysis.inside.test == 0.5


def test_plans_follow_the_rule_of_the_authors() -> None:
    for scale in (1, 0.02):
        study = published_study(find("telos figure 10"), scale)
        assert study.analysis is not None and study.analysis.inside is not None
        assert study.analysis.inside.decoders.longer == "dropped" == study.analysis.inside.complete().decoders.longer
    assert load_study("plans").analysis.inside.decoders.longer == "cut"  # type: ignore[union-attr]


def test_the_sampling_of_a_paper_is_that_of_its_declaration() -> None:
    for name in ("telos figure 4", "exploration table 2"):
        item = find(name)
        study = as_printed(item, published_study(item, 1), [])
        declared = {field: float(blocks()[item.basis][field][0]) for field in ("temperature", "top_p")}
        entries = [entry for entry in study.dump()["agents"] if entry["kind"] in ("chat", "task-chat")]
        assert entries and all(declared.items() <= entry.items() for entry in entries)
