"""The section on decoded beliefs of a page, from rows and maps that are kept with a run."""

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
from goalscope.report import RunData, lay_out, sections_of, split_probing, write_report
from goalscope.report.figures import map_picture
from goalscope.report.sections.decoded import beliefs_section
from goalscope.runs import Store
from goalscope.stats import DRAW
from goalscope.stats.rows import Row, Rows
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
