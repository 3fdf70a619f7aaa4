"""The sections on the cognitive map: numbers of the rows, missing controls, hostile names, numbers of grids."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.inside.probing import CLASSES
from goalscope.report import Declared, lay_out, render_page, short
from goalscope.report.definitions import RULES
from goalscope.report.sections import cognitive_map
from goalscope.report.sections.probing import ProbeRows, probing_facts
from goalscope.report.texts import TEXTS
from goalscope.runs import Store
from goalscope.stats import crossed_difference, estimate_mean
from goalscope.stats.rows import Rows
from measured_runs import HOSTILE

GRIDS = [f"grid-{at}" for at in range(12)]
SIZES = [7 if at % 2 else 9 for at in range(12)]
ONCE = ("cell accuracy", "cell accuracy without padding", "cell accuracy without padding and border")
BY_CLASS = ("recall", "precision", "average precision", "area under the curve")


def map_sections(rows: Rows) -> list[Declared]:
    return lay_out(cognitive_map.declared(rows))


def scored(head: str, control: str, site: str | None, layer: int | None, level: float, **tags: Any) -> list[Rows]:
    """Rows as `score_cells` writes them, near a level, in both readings."""
    rng = stream(0, "probes page", head, control, str(site), str(layer))
    found = []
    for reading in ("balanced", "natural"):
        about: dict[str, Any] = {
            "agent": "a",
            "head": head,
            "control": control,
            "site": site,
            "layer": layer,
            "scope": "general",
        }
        about |= {"reading": reading, "size": SIZES, "density": [0.0, 0.5] * 6, **tags}
        parts = [*((name, None) for name in ONCE), *((name, label) for name in BY_CLASS for label in CLASSES)]
        for name, label in parts:
            value = np.clip(level + 0.02 * rng.standard_normal(12), 0, 1)
            found.append(
                Rows.from_columns(
                    measure=name, unit="share", value=value, cluster=GRIDS, tags={**about, "class": label}
                )
            )
    return found


@cache
def made(**tags: Any) -> Rows:
    """The whole matrix at pre, layer 4; the MLP and two networks with permuted weights elsewhere."""
    parts = scored("majority", "none", None, None, 0.1, **tags) + scored("position", "none", None, None, 0.4, **tags)
    for head, level in (("additive", 0.3), ("percell", 0.9), ("mlp", 0.8)):
        parts += scored(head, "none", "pre", 4, level, **tags)
        parts += scored(head, "shuffled", "pre", 4, 0.4, **tags)
        for kind, worse in (("permuted", 0.0), ("initial", 0.1), ("default-init", 0.3)):
            for seed in (0, 1):
                parts += scored(head, kind, "pre", 4, 0.5 - worse + 0.01 * seed, draw=seed, **tags)
    for site, layer in (("pre", 2), ("pre", 7), ("post", 4)):
        parts += scored("mlp", "none", site, layer, 0.6, **tags)
        parts += scored("mlp", "permuted", site, layer, 0.6, draw=0, **tags)
    return Rows.concatenate(parts)


@pytest.fixture(scope="module")
def sections() -> list[Declared]:
    return map_sections(made())


def words(sections: list[Declared]) -> str:
    """The page without its figures: its texts and tables alone."""
    return render_page("page", [], [replace(one, figures=()) for one in sections], "{}")


def cell(section: Declared, table: int, label: str, heading: str) -> Any:
    found = section.tables[table]
    column = found.headings.index(heading)
    return next(row for row in found.rows if row[0] == label)[column]


def test_the_place_with_most_controls_is_in_front() -> None:
    rows = ProbeRows(made())
    assert rows.main_point() == ("pre", 4)
    assert rows.points() == [("pre", 2), ("pre", 4), ("pre", 7), ("post", 4)]


def test_tables_hold_the_numbers_of_the_rows(sections: list[Declared]) -> None:
    first = sections[0]
    rows = made().select(head="mlp", control="none", site="pre", layer=4, reading="natural")
    mine = rows.where((rows.measure == "average precision") & (rows["class"] == "wall"))
    wanted = estimate_mean(mine.value, mine.cluster, unit="share", bounds=(0, 1))
    assert cell(first, 0, "MLP", "average precision: wall").value == short(wanted.value, "share")
    assert "12 grids" in cell(first, 0, "MLP", "average precision: wall").hint
    mine = rows.where((rows.measure == "area under the curve") & (rows["class"] == "wall"))
    assert cell(first, 0, "MLP", "area under the curve: wall").value == short(mine.value.mean(), "share")
    other = made().select(head="mlp", control="permuted", site="pre", layer=4, reading="natural")
    less = other.where((other.measure == "area under the curve") & (other["class"] == "wall"))
    difference = crossed_difference(
        mine.value, mine.cluster, less.value, less.cluster, less["draw"], unit="share", bounds=(0, 1)
    )
    shown = cell(first, 1, "MLP minus permuted weights", "area under the curve: wall")
    assert shown.value == short(difference.value, "share")
    assert shown.interval == f"[{short(difference.low, 'share')}, {short(difference.high, 'share')}]"
    facts = dict(first.facts)
    made_so = facts["MLP: made more readable by training"]
    assert made_so.startswith("made more readable by training for walls")
    assert f"walls (permuted: +{shown.value} {shown.interval})" in made_so
    # Without the count of walls and the bag of cells, two of the floors, nothing is called readable.
    assert facts["MLP: readable"].startswith("it cannot be said for walls (position alone: +")
    assert facts["MLP minus per-cell linear"].startswith("lower for walls")
    assert facts["MLP, layer 4: pre minus post"].startswith("higher for walls")
    assert facts["MLP minus shuffled labels"].startswith("higher for walls")


def test_words_rest_on_the_area_under_the_curve(sections: list[Declared]) -> None:
    first = sections[0]
    rule = TEXTS("cognitive map/rule", area="area under the curve", point="pre, layer 4")
    assert rule in " ".join(first.folds[0].paragraphs)
    assert dict(first.facts)["MLP: made more readable by training"].startswith("made more readable")


def test_what_is_said_of_training_needs_permuted_weights_and_rules_stand_beside_it(
    sections: list[Declared],
) -> None:
    rows = made()
    for kinds, said in ((("none", "permuted"), "made more readable"), (("none", "default-init"), "it cannot be said")):
        (first, *_) = map_sections(rows.where(rows.among("control", kinds)))
        assert dict(first.facts)["MLP: made more readable by training"].startswith(said)
        assert RULES in " ".join(first.folds[0].paragraphs)
    text = words(sections)
    assert "training put" not in text.lower() and "untrained" not in text


def test_the_caveats_stand_beside_the_comparison(sections: list[Declared]) -> None:
    text = " ".join((*sections[0].folds[0].paragraphs, *sections[0].paragraphs))
    assert TEXTS("cognitive map/additive") in text and TEXTS("cognitive map/recall") in text
    for floor in ("number of walls", "prompt's cells"):
        assert f"“{floor}” for additive linear, per-cell linear and MLP" in text.partition("Not in this run: ")[2]
    without = made().where(made()["head"] != "additive")
    (first, *_) = map_sections(without)
    assert "scattered walls" not in " ".join((*first.folds[0].paragraphs, *first.paragraphs))
    assert "the head “additive linear”" in " ".join(first.paragraphs)


def test_curves_are_drawn_over_layers_sizes_and_densities(sections: list[Declared]) -> None:
    assert [one.anchor for one in sections] == ["cognitive-map", "cognitive-map-layers", "cognitive-map-sizes"]
    layers, sizes = sections[1:]
    drawn = {one.anchor: [figure.svg for figure in one.figures] for one in sections}
    assert any("Area under the curve of wall by layer, pre" in svg for svg in drawn[layers.anchor])
    assert any("Recall by class and size" in svg for svg in drawn[sizes.anchor])
    assert any("by density" in svg for svg in drawn[sizes.anchor])


def test_parts_without_rows_are_left_out() -> None:
    assert map_sections(made().where(np.zeros(len(made()), dtype=bool))) == []
    only = made().select(head="majority")
    (section,) = [one for one in map_sections(only) if one.anchor == "cognitive-map"]
    assert not section.facts and not section.figures
    assert TEXTS("cognitive map/silence") in " ".join(section.paragraphs)
    place = made().select(head="mlp", site="pre", layer=4)
    found = map_sections(Rows(**columns(place), tags={k: v for k, v in place.tags.items() if k != "agent"}))
    assert [one.anchor for one in found] == ["cognitive-map", "cognitive-map-sizes"]


def columns(rows: Rows) -> dict[str, Any]:
    return {name: column for name, column in rows.columns().items() if name not in rows.tags}


def test_what_could_not_be_computed_is_said() -> None:
    rows = made()
    gone = (rows.measure == "precision") & (rows["class"] == "agent") & (rows["head"] == "mlp")
    empty = Rows(**{**columns(rows), "value": np.where(gone, math.nan, rows.value)}, tags=rows.tags)
    (first, *_) = map_sections(empty)
    fold = next(one for one in first.folds if one.title.startswith("What is undefined"))
    assert ("precision, agent", "MLP", TEXTS("cognitive map/called")) in fold.tables[0].rows


def test_several_agents_and_hostile_names_stay_text() -> None:
    found = map_sections(Rows.concatenate([made(), made(agent=HOSTILE)]))
    assert len({one.anchor for one in found}) == len(found) == 6
    text = words(found)
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text


def test_hostile_tags_stay_text_in_figures_and_tables() -> None:
    parts = [*scored("mlp", "none", "pre", 4, 0.8), *scored(HOSTILE, "none", "pre", 4, 0.8)]
    parts += [*scored("mlp", HOSTILE, "pre", 4, 0.8), *scored("mlp", "none", HOSTILE, 4, 0.8)]
    text = words(map_sections(Rows.concatenate(parts)))
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text


def test_controls_without_their_probe_are_shown_and_not_compared() -> None:
    rows = made()
    for control in ("permuted", "shuffled"):
        (first, *_) = map_sections(rows.where(rows["control"] == control))
        assert not first.facts and TEXTS("cognitive map/silence") in " ".join(first.paragraphs)
        assert first.tables or first.folds
    own = (rows["control"] == "none") & np.isin(rows.cluster.astype(str), GRIDS[:4])
    other = (rows["control"] != "none") & np.isin(rows.cluster.astype(str), GRIDS[4:])
    (first, *_) = map_sections(rows.where(own | other))
    assert not [name for name, _ in first.facts if "training" in name or "shuffled" in name]


ABOUT: dict[str, Any] = {
    "agent": "Theseus",
    "sites": ["pre", "post"],
    "layers": [2, 4, 7],
    "known walls": 0.19,
    "training grids": 210,
    "training steps": 2009,
    "test grids": 90,
    "test steps": 968,
    "steps left out": 0,
}


def told(directory: Path, stored: Any) -> Any:
    with Store(directory, "w") as store:
        store.put_info("inside", stored)
        return probing_facts(store)


def test_grids_and_steps_of_both_parts_are_said(tmp_path: Path) -> None:
    (section,) = told(
        tmp_path / "run", {"plans": ABOUT, "cognitive-map": {**ABOUT, "layers": [4], "steps left out": 1}}
    )
    assert [name for name, _ in section.facts] == ["Cognitive map", "Decoded plans"]
    assert section.facts[1][1] == (
        "Theseus: pre and post, layers 2, 4 and 7. Fitted on 210 grids (2,009 steps), tested on 90 grids (968 steps). "
        "19 % of the test grids have the same wall map as a training grid."
    )
    assert "layer 4. " in section.facts[0][1] and TEXTS("inside/left out", steps="1 step") in section.facts[0][1]


def test_a_run_that_was_not_read_says_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "run", "w") as store:
        assert probing_facts(store) == []


@pytest.mark.parametrize(
    "change",
    [
        {"test grids": -1},
        {"test grids": True},
        {"known walls": 1.5},
        {"known walls": "x"},
        {"layers": ["<b>"]},
        {"sites": 3},
    ],
)
def test_what_goalscope_did_not_write_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="activations"):
        told(tmp_path / "run", {"plans": {**ABOUT, **change}})
    with pytest.raises(ValueError, match="did not write"):
        told(tmp_path / "run", {"plans": 3})
