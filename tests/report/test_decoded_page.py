"""The sections on what probes decode: beliefs from rows and maps kept with a run, plans and distances from rows."""

import html
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.inside.probing import Cells, Decisions, belief_rows, decisions_at, label_cells, one_hot, read_beliefs
from goalscope.inside.probing.beliefs import DECODED, SHUFFLED, SOURCE, VERDICTS, ShownMap, choose_maps, pooled_share
from goalscope.inside.probing.scores import AREA
from goalscope.report import Declared, RunData, lay_out, sections_of, short, split_probing, write_report
from goalscope.report.definitions import MADE_RULE, USED_RULE
from goalscope.report.figures import map_picture
from goalscope.report.sections.decoded import beliefs_section, distance_section, plans_section
from goalscope.runs import Store
from goalscope.stats import DRAW, crossed_difference, estimate_mean, paired_difference
from goalscope.stats.rows import COLUMNS, Row, Rows
from measured_runs import measured, small_study


def steps_of(episodes: list[Any]) -> Any:
    """All steps of some episodes, as far as labels ask for them."""
    listed = [(one, step) for one in episodes for step in one.steps]

    class Steps(SimpleNamespace):
        def __len__(self) -> int:
            return len(listed)

    def text(values: list[str]) -> np.ndarray[Any, Any]:
        return np.array(values, dtype=object)

    return Steps(
        episode_id=text([one.id for one, _ in listed]),
        cluster=text([one.world.cluster_id for one, _ in listed]),
        step=np.array([step.index for _, step in listed]),
        shape=np.array([one.world.grid.walls.shape for one, _ in listed]),
    )


def areas(values: dict[str, float], cells: Cells) -> Rows:
    """How well walls are read from each network, on each grid."""
    common: dict[str, Any] = {"measure": AREA, "unit": "share"}
    tags: dict[str, Any] = {
        "class": "wall",
        "head": "mlp",
        "site": "pre",
        "layer": 3,
        "reading": "natural",
        "scope": "general",
    }
    draws = stream(1, "areas").uniform(-0.05, 0.05, (len(values), 400))
    return Rows.from_rows(
        [
            Row(**common, value=value + draws[at, grid], cluster=cluster, tags={**tags, "control": control, **seed})
            for at, (control, value) in enumerate(values.items())
            for seed in [dict[str, Any]() if control == "none" else {DRAW: 0}]
            for grid, cluster in enumerate(sorted(set(cells.cluster.tolist())))
        ]
    )


TWO = [{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.5}]


@pytest.fixture(scope="module")
def believed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Cells, Decisions]:
    """A measured run whose second agent is read with the truth, blurred by noise."""
    path = measured(tmp_path_factory.mktemp("believed") / "run", small_study(agents=TWO))
    with Store(path, "w") as store:
        episodes = [one for one in store.episodes() if one.agent.startswith("epsilon")]
        cells = label_cells(steps_of(episodes), episodes, frame=9)
        decisions = decisions_at(cells, episodes)
        noise = stream(0, "blur").standard_exponential((len(cells), 9, 9, 5))
        blurred = one_hot(cells.labels, 9) + 0.3 * noise
        posterior = blurred / blurred.sum(axis=-1, keepdims=True)
        parts, maps = [], []
        for layer in (1, 3):
            tags = {"head": "mlp", "control": "none", "site": "pre", "layer": layer}
            beliefs = read_beliefs(posterior if layer == 3 else posterior[::-1])
            parts.append(belief_rows(beliefs, decisions, tags))
            maps += choose_maps(beliefs, decisions, tags) if layer == 3 else []
        store.put_rows(type(parts[0]).concatenate(parts), source="beliefs")
        store.put_rows(areas({"none": 0.9, "permuted": 0.6, "initial": 0.6}, cells), source="cognitive-map")
        store.put_info(SOURCE, {"maps": [one.model_dump(mode="json") for one in maps]})
    return path, cells, decisions


def test_a_page_shows_tables_curves_and_maps(believed: Any, tmp_path: Path) -> None:
    path, _, decisions = believed
    with Store(path) as store:
        page = write_report(store, tmp_path / "page.html", ledger_path=tmp_path / "page.json").read_text(
            encoding="utf-8"
        )
        rows, inside = split_probing(store.rows())
        data = RunData.of(store)
        (beliefs,), (maps,) = (sections_of(data, name) for name in ("beliefs", "decoded maps"))
    assert "Actions against decoded beliefs" in page
    assert "Decoded maps beside the true grid" in page
    assert len(maps.figures) == 2 * len(VERDICTS)
    first = beliefs.tables[0]
    assert [row[0] for row in first.rows] == ["all", "n = 5", "n = 7", "d = 0", "d = 1"]
    assert first.rows[0][1].interval
    # By size, by density, and over the layers: on the map, recovery.
    assert len(beliefs.figures) == 4
    assert "minus shuffled beliefs" in " ".join(name for name, _ in beliefs.facts)
    # The tables of behaviour know nothing of them.
    assert '"recovery"' not in (tmp_path / "page.json").read_text(encoding="utf-8")
    assert not set(rows.measure.tolist()) & set(inside.measure.tolist())
    # The pooled share is the share of all actions, as counted by hand.
    mine = inside.select(layer=3)
    pooled = pooled_share(mine, "accuracy against truth")
    assert pooled.value == pytest.approx(decisions.is_optimal[decisions.taken].mean())
    assert pooled.n == decisions.taken.sum() and pooled.clusters == len(set(decisions.cluster.tolist()))
    control = mine.select(measure=DECODED + SHUFFLED).value
    assert np.nanmean(control) < np.nanmean(mine.select(measure=DECODED).value)


def test_maps_that_are_no_more_than_those_of_random_networks_are_not_drawn(believed: Any) -> None:
    path, cells, _ = believed
    with Store(path, "w") as store:
        before = store.rows().select(measure=AREA)
        for values, said in (
            ({"none": 0.6, "permuted": 0.6}, "not shown to be made"),
            ({"none": 0.9}, "nothing here says"),
        ):
            store.put_rows(areas(values, cells), source="cognitive-map")
            (section,) = sections_of(RunData.of(store), "decoded maps")
            assert not section.figures and said in section.paragraphs[0] and "are not shown" in section.paragraphs[0]
        store.put_rows(before, source="cognitive-map")


def test_a_run_without_beliefs_has_no_section(tmp_path: Path) -> None:
    with Store(measured(tmp_path / "run", small_study())) as store:
        rows, inside = split_probing(store.rows())
        assert len(rows) and not len(inside)
        assert lay_out(beliefs_section(inside)) == sections_of(RunData.of(store), "decoded maps") == []


def test_maps_that_cannot_be_ours_are_refused(believed: Any) -> None:
    path, _, _ = believed
    with Store(path, "w") as store:
        kept, data = store.info()[SOURCE], RunData.of(store)
        bad: Any
        for bad in (
            {"maps": [{**kept["maps"][0], "lines": ["<script>"]}]},
            {"maps": [{**kept["maps"][0], "lines": ["##", "#"]}]},
            {"maps": [{**kept["maps"][0], "verdict": "fine"}]},
            {"maps": [{**kept["maps"][0], "step": "0"}]},
            {"maps": [{}]},
            {"other": 1},
            [],
        ):
            store.put_info(SOURCE, bad)
            with pytest.raises(ValueError, match="beliefs"):
                sections_of(data, "decoded maps")
        gone = {**kept["maps"][0], "episode_id": "episode-gone"}
        store.put_info(SOURCE, {"maps": [gone, *kept["maps"][1:]]})
        assert "1 more are not shown" in sections_of(data, "decoded maps")[0].paragraphs[2]
        store.put_info(SOURCE, kept)


def test_a_picture_of_a_map_escapes_its_label() -> None:
    svg = map_picture(("#A", "G "), 'a "<b>"').svg
    assert "&lt;b&gt;" in svg and "<b>" not in svg
    assert html.unescape(svg).count("<rect") == 4
    assert ">A</text>" in svg and ">G</text>" in svg


def test_shown_maps_go_there_and_back() -> None:
    one = ShownMap(episode_id="e", step=2, verdict=VERDICTS[1], lines=("#A", "G "), tags={"layer": 3})
    assert ShownMap.model_validate(one.model_dump(mode="json")) == one


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
