"""The section on sets of places: what the search saw is apart, each set stands beside noise and random sets."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from goalscope.interventions.experiment import INFO
from goalscope.interventions.patching import CHANGED, FOLLOWS
from goalscope.interventions.place_sets import ALL, FOUND, KIND, PLACE, RANDOM
from goalscope.report import Declared, lay_out, render_page, sections_of
from goalscope.report.blocks import Cell
from goalscope.report.verdicts import CARRIES
from goalscope.rng import stream
from goalscope.rows import Row, Rows
from goalscope.stats import estimate_mean
from measured_runs import HOSTILE, run_of

BEST = f"{FOUND}: changed 2, pre 5"
GRIDS = 24
ABOUT: dict[str, Any] = {
    "agent": "A",
    "model": "planted",
    "layers": [1, 2, 5],
    "left out": 3,
    "pairs of the search": 24,
    "by thing moved": {"goal": {"pairs": 24, "asked for": 24}},
    "settings": {
        "sites": ["changed", "pre"],
        "spans": {},
        "share": 0.9,
        "random": 5,
        "sets": {"mine": [["post", 7]]},
    },
}


def planted(found: float, mine: float = 0.1, *, searched: float = 1.0, name: str = "mine") -> Rows:
    """Rows as the experiment keeps them: half of the grids were searched, where the found set does `searched`."""
    rng = stream(35, "place sets")
    rows = [Row(measure="success", unit="share", value=1.0, cluster="g0", tags={"agent": "A"})]
    for at in range(GRIDS):
        half = "searched" if at % 2 else "held out"
        levels = {BEST: searched if at % 2 else found, ALL: searched if at % 2 else 0.95, name: mine}
        for direction in ("original into counterfactual", "counterfactual into original"):
            for each, level in levels.items():
                for patch, share in (("source", level), ("isotropic", 0.02), (RANDOM, 0.1)):
                    if (each, patch) == (ALL, RANDOM):
                        continue
                    value = float(rng.random() < share)
                    tags: dict[str, Any] = {
                        "intervention": KIND,
                        "agent": "A",
                        "moved": "goal",
                        "pairs": "counterfactual",
                    }
                    tags |= {"half": half, "direction": direction, "set": each, "patch": patch, "places": 2}
                    rows += [
                        Row(measure=measure, unit="share", value=value, cluster=f"g{at}", tags=tags)
                        for measure in (FOLLOWS, CHANGED)
                    ]
    rows += [
        Row(
            measure=PLACE,
            unit="share",
            value=1.0,
            cluster="search",
            tags={"intervention": KIND, "agent": "A", "site": site, "layer": layer},
        )
        for site, layer in (("changed", 2), ("pre", 5))
    ]
    return Rows.from_rows(rows)


def section_of(rows: Rows, about: dict[str, Any] | None = None) -> Declared:
    facts = {INFO: {KIND: ABOUT if about is None else about}}
    (found,) = sections_of(run_of(rows, store=SimpleNamespace(info=lambda: facts)), KIND)
    return found


def said(section: Declared) -> dict[str, str]:
    return dict(section.facts)


@pytest.mark.parametrize(("found", "words"), [(0.9, CARRIES.above), (0.05, CARRIES.none)])
def test_a_set_carries_the_action_by_the_half_that_the_search_did_not_see(found: float, words: str) -> None:
    """On the half searched it always follows the source; what is said is of the other half alone."""
    about = said(section_of(planted(found)))
    assert about["found by the search"].startswith(words)
    assert about["mine"].startswith(CARRIES.none) and about[ALL].startswith(CARRIES.above)


def test_the_tables_are_means_over_the_grids_that_may_be_judged() -> None:
    rows = planted(0.6)
    section = section_of(rows)
    shown = {str(row[0]): row for row in section.tables[0].rows}
    titles = {"found by the search": BEST, "mine": "mine", ALL: ALL}
    assert list(shown) == list(titles)
    for title, name in titles.items():
        for column, patch in enumerate(("source", "isotropic", RANDOM), start=1):
            cell = shown[title][column]
            kept = [
                row
                for row in rows
                if (row.measure, row.tags.get("set"), row.tags.get("patch")) == (FOLLOWS, name, patch)
                and (name == "mine" or row.tags["half"] == "held out")
            ]
            if not kept:
                assert (title, patch) == (ALL, RANDOM) and cell.estimate is None
                continue
            wanted = estimate_mean(
                np.array([row.value for row in kept]), [row.cluster for row in kept], unit="share", bounds=(0.0, 1.0)
            )
            assert cell.estimate.value == pytest.approx(wanted.value)
            assert (cell.estimate.low, cell.estimate.high) == pytest.approx((wanted.low, wanted.high))
            assert cell.estimate.clusters == (GRIDS if name == "mine" else GRIDS // 2)
    paired = {str(row[0]): row for row in section.tables[1].rows}["found by the search"]
    values = [shown["found by the search"][at].estimate.value for at in (1, 2, 3)]
    differences = [cell.estimate for cell in paired[1:3] if isinstance(cell, Cell)]
    assert [one.value for one in differences if one is not None] == pytest.approx(
        [values[0] - values[1], values[0] - values[2]]
    )


def test_the_places_stand_in_words_and_in_the_picture() -> None:
    section = section_of(planted(0.9))
    assert said(section)["found"] == "the cells that differ, layer 2; the tokens before the reasoning, layer 5"
    (figure,) = section.figures
    inside = {(one["set"], one["site"], one["layer"]) for one in figure.drawn.records if one["in the set"]}
    assert inside == {
        ("found by the search", "changed", 2),
        ("found by the search", "pre", 5),
        ("mine", "post", 7),
    }
    outside = {(one["set"], one["site"]) for one in figure.drawn.records if not one["in the set"]}
    assert outside == {("found by the search", "changed"), ("found by the search", "pre"), ("mine", "post")}


def test_another_agents_settings_are_not_taken_for_this_ones_and_a_name_is_text() -> None:
    rows = planted(0.9, name=HOSTILE)
    other = section_of(rows, {**ABOUT, "agent": "B"})
    assert "model" not in said(other) and said(other)["found"] and not other.figures
    settings = {**ABOUT["settings"], "sets": {HOSTILE: [["pre", 1]]}}
    page = render_page("page", [], lay_out([section_of(rows, {**ABOUT, "settings": settings})]), "{}")
    assert "<script>alert" not in page and "\u202e" not in page


def test_named_sets_without_a_search_need_no_halves() -> None:
    rows = planted(0.9)
    named = rows.where(rows.among("set", ["mine"]) | (rows.measure == "success"))
    alone = Rows.from_rows(replace(row, tags={**row.tags, "half": "all"}) for row in named)
    section = section_of(alone, {key: value for key, value in ABOUT.items() if key != "pairs of the search"})
    assert [str(row[0]) for row in section.tables[0].rows] == ["mine"]
    assert "found" not in said(section) and "searched" not in said(section)
