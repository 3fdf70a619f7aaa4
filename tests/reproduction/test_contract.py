"""What printed numbers and ours were measured on: both declarations, their differences, and when "within" is said."""

from collections.abc import Mapping
from typing import Any

import pytest
from planted_rows import rows_of

from goalscope.cli.overrides import Overrides, load_study
from goalscope.papers import Item, ItemReading, ReadAgents, find, items, read
from goalscope.papers.page import Reproduction, declarations_of, sections
from goalscope.papers.readings import COUNTED, FIELDS, UNKNOWN, Term, blocks, declare, differences, ours_of
from goalscope.papers.working import as_printed, published_study
from goalscope.runs import Study
from goalscope.stats.rows import Rows

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
        changed = Overrides(settings=[change]).apply(baseline)
        assert fields_that_differ(item, changed, "telos G.2") == {field}, change
    for name, value in (("max_tokens", 96), ("reasoning_effort", "high"), ("temperature", 0.0), ("top_p", None)):
        assert fields_that_differ(item, baseline, "telos G.2", **{name: value}) == {name}
    scripted = ours_of(item, baseline, {"optimal": {"kind": "optimal"}})
    assert "prompt" not in scripted and "temperature" not in scripted
    assert set(ours_of(item, None, {"A": {}}, "GPT-OSS-20B")) == {"model"}  # imported logs


def test_what_stands_in_the_way_of_gpt_oss_at_the_published_size_with_the_printed_prompt() -> None:
    # The paper does not say which steps and grids its map probes saw, nor how wide and how long some were fitted.
    expected = {
        "telos figure 6": {"training", "test", "probe", "subset", COUNTED},
        "telos table 2": {"training", "test", "probe", COUNTED},
        "telos table 4": {"training", "test", "probe", "subset", COUNTED},
        "telos figure 10": {"probe", COUNTED},
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
