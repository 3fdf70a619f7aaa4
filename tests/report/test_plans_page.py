"""The sections on decoded plans and distances: every number from rows, nothing where there are none."""

from typing import Any

import numpy as np

from goalscope._ground.rng import stream
from goalscope.report import Declared, lay_out, short, split_probing
from goalscope.report.definitions import MADE_RULE, USED_RULE
from goalscope.report.sections.decoded import distance_section, plans_section
from goalscope.stats import crossed_difference, estimate_mean, paired_difference
from goalscope.stats.rows import COLUMNS, Rows

GRIDS = [f"grid-{at}" for at in range(12)]


def plan_sections(given: Rows) -> list[Declared]:
    return lay_out(plans_section(given))


def distance_sections(given: Rows) -> list[Declared]:
    return lay_out(distance_section(given))


def rows(measure: str, unit: str, value: Any, **tags: Any) -> Rows:
    return Rows.from_columns(measure=measure, unit=unit, value=value, cluster=GRIDS, tags={"agent": "a", **tags})


def made() -> Rows:
    rng = stream(0, "plans page")
    parts = []
    for head, control, site in (
        ("decoder-1", "none", "pre"),
        ("decoder-2", "none", "pre"),
        ("decoder-2", "shuffled", "pre"),
        ("decoder-2", "permuted 0", "pre"),
        ("decoder-2", "permuted 1", "pre"),
        ("commonest", "none", None),
        ("planner", "none", "pre"),
        ("text", "none", None),
        ("decoder-2", "none", "post"),
    ):
        control, _, seed = control.partition(" ")
        tags = {"head": head, "control": control, "site": site, "layer": None if site is None else 4}
        tags |= {"draw": int(seed)} if seed else {}
        if head.startswith("decoder-"):
            tags |= {"decoder_layers": int(head.removeprefix("decoder-")), "stepwise": False}
        for number in (1, 2, 3):
            for plans in ("all", "long"):
                parts.append(rows("prefix accuracy", "share", rng.random(12), **tags, N=number, plans=plans))
        parts.append(rows("length match", "share", rng.random(12), **tags))
        parts.append(rows("median length error", "steps", rng.integers(0, 3, 12), **tags))
    for head, control, site in (("linear", "none", "pre"), ("mean", "none", None), ("manhattan", "true map", None)):
        tags = {"head": head, "control": control, "site": site, "layer": None if site is None else 4}
        parts.append(rows("distance error", "steps", rng.random(12), **tags))
        parts.append(rows("squared distance error", "steps^2", rng.random(12), **tags))
        parts.append(rows("squared distance deviation", "steps^2", 1 + rng.random(12), **tags))
        for distance in (1, 2):
            parts.append(rows("distance error", "steps", rng.random(12), **tags, distance=distance))
    return Rows.concatenate(parts)


def test_a_run_without_such_rows_has_no_such_section() -> None:
    behaviour = rows("success", "share", np.ones(12))
    for found in split_probing(behaviour):
        assert plan_sections(found) == distance_sections(found) == []


def test_decoders_step_by_step_stand_beside_the_one_shot_ones_with_their_random_networks() -> None:
    tags = {"head": "one of a stranger's name", "decoder_layers": 2, "stepwise": True, "site": "pre", "layer": 4}
    tags |= {"N": 1, "plans": "all"}
    own = rows("prefix accuracy", "share", np.full(12, 0.75), **tags, control="none")
    random = rows("prefix accuracy", "share", np.full(12, 0.25), **tags, control="permuted", draw=0)
    (plans,) = plan_sections(Rows.concatenate([made(), own, random]))
    titles = [str(row[0]) for row in plans.tables[0].rows]
    assert any("decoder of 2 layers, given the earlier tokens" in title for title in titles)
    assert any("given the earlier tokens, permuted" in title for title in titles)


def test_curves_and_tables_hold_the_numbers_of_the_rows() -> None:
    given = made()
    (plans,), (distance,) = plan_sections(given), distance_sections(given)
    assert (plans.anchor, distance.anchor) == ("plans", "distance-inside")
    titles = [figure.svg for figure in plans.figures]
    assert len(titles) == 4 and "0.25^N" in titles[0]
    assert "named in the text" not in titles[1] and "named in the text" in titles[3]
    assert all(name in titles[1] for name in ("permuted weights", "commonest plan", "planner on decoded map"))
    table = plans.tables[0]
    line = next(row for row in table.rows if row[0] == "pre, layer 4: decoder of 2 layers")
    wanted = given.select(head="decoder-2", control="none", site="pre", N=2, plans="all")
    estimate = estimate_mean(wanted.value, wanted.cluster, unit="share", bounds=(0, 1))
    assert line[2].value == short(estimate.value, "share")
    assert line[2].interval and line[0] in [row[0] for row in plans.tables[2].rows]
    long = plans.folds[1].tables[0].rows
    assert len(long) == len(table.rows) == 8
    kinds = {row[0]: row for row in distance.tables[0].rows}
    assert set(kinds) == {
        "pre, layer 4: linear",
        "mean of the training grids",
        "line on the Manhattan distance, true map",
    }
    squares = [
        given.select(measure=f"squared distance {name}", head="linear").value.mean() for name in ("error", "deviation")
    ]
    assert kinds["pre, layer 4: linear"][2].value == short(1 - squares[0] / squares[1], "share")
    assert len(distance.figures) == 1


def test_differences_are_paired_by_grid_and_said_in_words() -> None:
    given = made()
    (plans,), (distance,) = plan_sections(given), distance_sections(given)
    own, other = (
        given.select(head="decoder-2", control=control, site="pre", N=1, plans="all")
        for control in ("none", "permuted")
    )
    wanted = crossed_difference(
        own.value, own.cluster, other.value, other.cluster, other["draw"], unit="share", bounds=(0, 1)
    )
    line = next(row for row in plans.tables[1].rows if row[0] == "pre, layer 4: minus permuted weights")
    assert line[1].value == short(wanted.value, "share")
    assert line[1].interval == f"[{short(wanted.low, 'share')}, {short(wanted.high, 'share')}]"
    facts = dict(plans.facts)
    assert (
        wanted.low <= 0 <= wanted.high
        and "not shown to be made more readable by training for N = 1 (permuted"
        in (facts["pre, layer 4: made more readable by training"])
    )
    assert "commonest plan" in facts["pre, layer 4: readable"]
    assert MADE_RULE in " ".join(plans.folds[0].paragraphs) and USED_RULE in " ".join(plans.folds[0].paragraphs)
    assert "post, layer 4 minus the same before the reasoning" in dict(plans.facts)
    rows = given.where(np.array([value is None for value in given["distance"]]))
    own, other = (rows.select(measure="distance error", head=head) for head in ("linear", "mean"))
    wanted = paired_difference(own.value, own.cluster, other.value, other.cluster, unit="steps").difference
    (line,) = distance.tables[1].rows
    at = distance.tables[1].headings.index("minus the mean of the training grids")
    assert line[at].value == short(wanted.value, "steps")
    assert list(dict(distance.facts)) == ["pre, layer 4: linear: readable", "pre, layer 4: linear"]


def test_rows_without_an_agent_or_of_one_kind_alone_are_shown_too() -> None:
    given = made()
    bare = Rows(
        **{name: given[name] for name in COLUMNS},
        tags={name: column for name, column in given.tags.items() if name != "agent"},
    )
    assert [one.anchor for one in (*plan_sections(bare), *distance_sections(bare))] == ["plans", "distance-inside"]
    only = given.where(given.measure == "prefix accuracy")
    assert [one.anchor for one in plan_sections(only)] == ["plans"] and distance_sections(only) == []
    assert plan_sections(only)[0].tables[0].rows
