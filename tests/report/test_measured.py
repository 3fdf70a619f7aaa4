"""Rows read a measure at a time give what all rows at once give, to the last byte; memory stays where it is."""

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from goalscope._ground import registry
from goalscope._ground.own import PartWarning
from goalscope.measures import StepTable, behaviour, measure, measure_episodes, measure_store, sample_episodes
from goalscope.measures.behaviour import measured_parts
from goalscope.report import RunData, build_ledger, ledger, sections_of, split_probing
from goalscope.report.ledger import MeasuredRows
from goalscope.runs import Store, Study, run
from goalscope.runs.episode_columns import episode_column_parts
from goalscope.stats.rows import Rows
from registered import entries_of


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain grids, keys with controls, fog; with rows about activations beside those about behaviour."""
    folder = tmp_path_factory.mktemp("measured")
    with Store(folder, "w") as store:
        store.put_episodes(sample_episodes())
        store.put_rows(measured_parts(store, most=30), source="behaviour")
        beside = {"agent": "optimal", "head": "linear", "control": "none"}
        store.put_rows(Rows.from_columns(measure="recovery", unit="share", value=[0.5], cluster="g", tags=beside), "p")
    return folder


def lines(rows: Rows) -> list[str]:
    return sorted(
        repr((row.measure, row.value, row.cluster, row.episode_id, row.step, sorted(row.tags.items()))) for row in rows
    )


def test_a_measure_that_fails_late_has_the_rows_of_no_episode(
    sampled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def late(table: StepTable) -> npt.NDArray[np.float64]:
        sizes.append(len(table.length))
        if len(sizes) == 2:
            raise LookupError("late")
        return np.zeros(len(table.length))

    monkeypatch.setattr(behaviour, "measured_parts", partial(measured_parts, most=30))
    before = entries_of("measure")
    with Store(shutil.copytree(sampled, tmp_path / "run"), "w") as store:
        try:
            measure("a late one", unit="share", text="x")(late)
            with pytest.warns(PartWarning, match="'a late one'.*LookupError"):
                behaviour.put_measured(store)
            assert len(sizes) == 2, "it is not called again"
        finally:
            registry._entries["measure"] = before
        counts = store.row_counts("behaviour")
        assert "a late one" not in counts and counts["success"] == len(store.episode_ids())


def test_parts_of_whole_clusters_measure_what_all_episodes_together_do(sampled: Path) -> None:
    with Store(sampled) as store:
        parts = [columns for columns, _ in episode_column_parts(store, most=30)]
        seen: list[set[str]] = [{str(world.cluster_id) for world in columns.worlds} for columns in parts]
        assert len(parts) > 2 and sum(map(len, seen)) == len(set().union(*seen)), "no cluster is in two parts"
        pieces = Rows.concatenate(rows for _, rows in measured_parts(store, most=30))
        whole = measure_episodes(store.episodes())
        assert lines(pieces) == lines(measure_store(store)) == lines(whole)
        stored = store.rows_of("behaviour")
        assert list(dict.fromkeys(Rows.concatenate(stored).measure)) == list(dict.fromkeys(whole.measure))


def ledger_of(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(build_ledger(MeasuredRows(store)).to_json())
    return found


def test_the_ledger_is_the_same_however_rows_are_read(sampled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(sampled) as store:
        at_once = MeasuredRows(store)
        behaviour, probed = split_probing(store.rows())
        wanted = json.loads(build_ledger(behaviour).to_json())
        assert ledger_of(store) == wanted and len(at_once.probed) == len(probed) == 1
        page = [(one.anchor, one.tables) for one in sections_of(RunData.of(store), "results", "agents compared")]
        monkeypatch.setattr(ledger, "_MAX_CACHED_ROWS", 0)
        by_measure = MeasuredRows(store)
        assert ledger_of(store) == wanted
        again = [(one.anchor, one.tables) for one in sections_of(RunData.of(store), "results", "agents compared")]
        assert again == page
        for name in ("measures", "counts", "values", "order"):
            assert getattr(by_measure, name) == getattr(at_once, name)
        for measure in at_once.measures:
            assert lines(by_measure.of(measure)) == lines(behaviour.select(measure=measure))
            ((rows, counts),) = by_measure.condensed(measure)
            assert int(counts.sum()) == at_once.counts[measure] == len(behaviour.select(measure=measure))
            every = np.repeat(rows.value, counts)
            np.testing.assert_array_equal(np.sort(every), np.sort(behaviour.select(measure=measure).value))


MEASURE = """
import resource, sys
from goalscope.measures.behaviour import measured_parts
from goalscope.runs import Store
with Store(sys.argv[1], "w") as store:
    store.put_rows(measured_parts(store), source="behaviour")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.full
def test_measuring_four_times_as_many_episodes_takes_the_same_memory(tmp_path: Path) -> None:
    """Peak resident memory of a process of its own, in kilobytes on Linux."""
    peaks = []
    for count in (40, 160):
        study = {
            "seed": 1,
            "worlds": [{"kind": "grid", "sizes": [9, 11], "densities": [0.2, 0.6], "count": count}],
            "agents": [{"kind": "optimal"}, {"kind": "random"}],
            "trajectories": 20,
        }
        run(Study.parse(study), tmp_path / str(count))
        command = [sys.executable, "-c", MEASURE, str(tmp_path / str(count))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] < peaks[0] + 30_000, f"{peaks[0]:,} kB for 6,400 episodes, {peaks[1]:,} kB for 25,600"
