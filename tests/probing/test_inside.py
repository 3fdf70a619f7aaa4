"""From episodes to probes that are kept, end to end on the bundled model; what a second run does not repeat."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from insides import DECLARED, STUDY
from typer.testing import CliRunner

from goalscope.cli import app, running
from goalscope.cli.measuring import measure_run
from goalscope.inside.activations import artifacts, captures
from goalscope.inside.activations.shards import place
from goalscope.inside.probing import InsideSummary, Probe, score_cells, stored_probes, study_inside
from goalscope.inside.probing.pipeline import AnalysisReader, probe_dataset
from goalscope.inside.probing.probe import DECODER, PROBE
from goalscope.report.sections.probing import probing_facts
from goalscope.runs import Store, content_hash
from goalscope.runs.study_parts import READS, Inside
from goalscope.stats.rows import Rows
from tampered import tampered


def call(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the tiny study with everything read, as `goalscope run` leaves it."""
    folder = tmp_path_factory.mktemp("inside")
    study = folder / "tiny.yaml"
    study.write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    reported: list[Path] = []

    def written(path: Path, stage: Any) -> Path:
        reported.append(path)
        return path / "report.html"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "write_page_of", written)
        told = call("run", study, "--out", folder / "run")
    assert "tested on 2" in told
    assert reported == [folder / "run"]
    measure_run(folder / "run")
    return folder / "run"


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def source(path: Path, name: str) -> Rows:
    with Store(path) as store:
        return Rows.concatenate(store.rows_of(name))


def test_everything_that_is_declared_is_read_and_stored_under_its_name(finished: Path) -> None:
    with Store(finished) as store:
        counts = store.row_sources()
        info = store.info()
        agents = {row[0] for row in store.query("SELECT DISTINCT agent FROM episodes")}
    assert set(counts) == {*READS, "behaviour"}
    assert agents == {"Theseus", "random"}
    for name in READS:
        rows = source(finished, name)
        assert set(rows["agent"].tolist()) == {"Theseus"}
        assert set(rows["site"].tolist()) >= {"pre", "post"} and set(rows["layer"].tolist()) >= {2, 5}
        assert {"none", "permuted"} <= set(rows["control"].tolist())
        assert info["inside"][name]["training grids"] == 3 and info["inside"][name]["test grids"] == 2
        assert len(set(rows.cluster.tolist())) == 2
    assert info["beliefs"]["maps"]
    general = source(finished, "cognitive-map")
    middle = general.where(general["layer"] == 5)
    assert {"additive", "percell", "mlp"} <= set(middle["head"].tolist())
    assert "shuffled" in set(middle["control"].tolist())
    assert set(general.where(general["layer"] == 2)["head"].tolist()) == {"percell", "mlp"}
    assert {"general", "7x7"} == set(general["scope"].tolist())
    decoders = source(finished, "plans")
    assert {"decoder-1", "decoder-2", "planner", "text", "commonest"} <= set(decoders["head"].tolist())


def test_no_row_stands_there_twice(finished: Path) -> None:
    for name in READS:
        rows = source(finished, name)
        keys = list(
            zip(*(column.tolist() for label, column in rows.columns().items() if label != "value"), strict=True)
        )
        assert len(set(keys)) == len(keys)


def test_behaviour_is_left_as_it_was(copied: Path) -> None:
    before = source(copied, "behaviour")
    study_inside(copied, Inside.parse({**DECLARED, "reads": ["distance"], "seed": 1}))
    after = source(copied, "behaviour")
    assert [tuple(row.tags.items()) for row in before] == [tuple(row.tags.items()) for row in after]
    assert np.array_equal(before.value, after.value, equal_nan=True)


def test_probes_come_back_from_the_store_and_predict_the_same(finished: Path) -> None:
    declared = Inside.parse(DECLARED)
    checked = 0
    with Store(finished) as store:
        dataset = probe_dataset(store, networks(store), (2, 5), declared)
        reader = AnalysisReader(store, dataset, declared, lambda label: nullcontext(lambda done, total: None), "cpu")
        rows = source(finished, "cognitive-map")
        for kept in artifacts(store, PROBE, target="cells"):
            path = place(store, kept)
            assert path.parent.name == "probes" and path.stat().st_size == kept.size
            probe = Probe.load(path)
            assert probe.id == kept.tags["content"]
            if kept.tags["control"] not in ("none", "permuted") or kept.tags["head"] == "majority":
                continue
            if not str(kept.tags["fit"]).endswith("general"):
                continue
            read = reader.inputs((probe.source.site, probe.source.layer))
            drawn = kept.tags.get("draw")
            (given,) = read.activations if drawn is None else read.random["permuted", int(drawn)]
            given = given.where(dataset.split.test)
            again = score_cells(probe.predict(given), dataset.cells.where(dataset.split.test), {})
            stored = rows.where(rows["probe"] == probe.id)
            known = {_key(row): row.value for row in stored}
            for row in again:
                assert known[_key(row)] == pytest.approx(row.value, abs=1e-6, nan_ok=True)
            checked += 1
    for kept, made in stored_probes(finished):
        assert made.id == kept.tags["content"] and made.source.site == kept.tags["site"]
    ((_, one),) = stored_probes(finished, head="linear", control="none", site="post", layer=5)
    assert one.target == "distance"
    assert {made.target for _, made in stored_probes(finished, head="decoder-2")} == {"plan"}
    assert checked >= 12
    assert {one for one in rows["probe"].tolist() if one} <= set(_contents(finished))


def test_no_grid_is_on_both_sides(finished: Path) -> None:
    with Store(finished) as store:
        dataset = probe_dataset(store, networks(store), (2, 5), Inside.parse(DECLARED))
        probes = [Probe.load(place(store, one)) for one in artifacts(store, PROBE)]
    train = set(dataset.cells.cluster[dataset.split.train].tolist())
    test = set(dataset.cells.cluster[dataset.split.test].tolist())
    assert len(train) == 3 and len(test) == 2 and not train & test
    for name in READS:
        assert set(source(finished, name).cluster.tolist()) == test
    folds = {str(probe.tags.get("scope", "")).startswith("fold"): probe.tags["grids"] for probe in probes}
    assert folds == {False: 3, True: 2}  # of the three training grids each is a fold


def test_a_second_run_repeats_nothing_and_changes_nothing(copied: Path) -> None:
    with Store(copied) as store:
        before = content_hash(store)
    written = {path: path.stat().st_mtime_ns for path in copied.rglob("*.safetensors")}
    done = study_inside(copied)
    assert done.fitted == 0 and done.reused > 30
    assert written == {path: path.stat().st_mtime_ns for path in copied.rglob("*.safetensors")}
    with Store(copied) as store:
        assert content_hash(store) == before


def networks(store: Store) -> dict[Any, Any]:
    """The captures of the model and of its random networks, by kind and seed."""
    return {
        ("none", None) if one.untrained is None else (one.random_weights, one.untrained): one for one in captures(store)
    }


class StopError(Exception):
    pass


@pytest.mark.full
def test_an_interrupted_run_goes_on_where_it_stopped(finished: Path, tmp_path: Path) -> None:
    """Probes are kept one by one; those of a reading that was not finished are not fitted again."""
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    shutil.rmtree(run / "probes")
    with tampered(run / "run.db") as database:
        database.execute("DELETE FROM row_groups WHERE source != 'behaviour'")
        database.execute("DELETE FROM artifacts WHERE kind IN (?, ?)", (PROBE, DECODER))

    @contextmanager
    def stage(label: str) -> Iterator[Any]:
        if label == "plans at post, layer 2":
            raise StopError
        yield lambda done, total: None

    with pytest.raises(StopError):
        study_inside(run, stage=stage)
    left = len(list((run / "probes").glob("*.safetensors")))
    assert left > 20
    done = study_inside(run)
    whole = len(list((finished / "probes").glob("*.safetensors")))
    assert done.fitted == whole - left > 0
    with Store(run) as store, Store(finished) as other:
        assert content_hash(store) == content_hash(other)


def test_a_lost_file_is_fitted_again_and_a_wrong_one_is_refused(copied: Path) -> None:
    declared = Inside.parse({**DECLARED, "reads": ["distance"]})
    with Store(copied) as store:
        first, second, *_ = (place(store, one) for one in artifacts(store, PROBE, target="distance"))
    first.unlink()
    assert study_inside(copied, declared).fitted == 1
    shutil.copy(first, second)
    with pytest.raises(ValueError, match="delete"):
        study_inside(copied, declared)


def test_another_study_of_the_same_worlds_shares_the_run(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "can_report", lambda: False)
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    study = tmp_path / "beliefs.yaml"
    other = {**STUDY, "name": "Beliefs", "analysis": {"inside": {**DECLARED, "reads": ["beliefs"]}}}
    study.write_text(yaml.safe_dump(other), encoding="utf-8")
    told = call("run", study, "--out", run)
    assert "10 episodes stored before" in told and "0 probes fitted, " in told and "there already" in told
    assert "the analysis that" not in told and f"next: goalscope report {run}" in told


def test_the_complete_table_adds_what_is_missing(copied: Path) -> None:
    told = call("probe", copied, "--reads", "distance", "--sites", "post", "--full")
    assert "4 probes fitted" in told  # shuffled labels and the control task, two heads, at the other layer
    assert f"next: goalscope report {copied}" in told
    rows = source(copied, "distance")
    assert set(rows.where(rows["control"] == "shuffled")["layer"].tolist()) == {2, 5}


@pytest.mark.full
def test_the_report_of_what_is_stored_needs_no_torch(finished: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from goalscope.cli import main\n"
        f"sys.argv = ['goalscope', 'report', {str(finished)!r}, '--out', {str(page)!r}]\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert page.stat().st_size > 10_000


def test_the_summary_says_what_was_read(copied: Path) -> None:
    done = study_inside(copied, Inside.parse({**DECLARED, "reads": ["distance"], "random": None, "sites": ["pre"]}))
    assert isinstance(done, InsideSummary)
    with Store(copied) as store:
        ((_, told),) = [fact for fact in probing_facts(store)[0].facts if fact[0] == "Decoded distance to the goal"]
    assert f"tested on {done.steps['test grids']} grids ({done.steps['test steps']} steps)" in told
    assert (done.agent, done.layers, done.sites) == ("Theseus", (2, 5), ("pre",))
    assert set(done.rows) == {"distance"} and 0 <= done.known_walls <= 1
    assert set(done.rows["distance"]["control"].tolist()) == {"none", "shuffled", "control-task", "true map"}
    assert done.steps["training steps"] + done.steps["test steps"] == done.steps["steps"]


def _key(row: Any) -> tuple[Any, ...]:
    return row.measure, row.cluster, row.tags.get("reading"), row.tags.get("class")


def _contents(path: Path) -> list[str]:
    with Store(path) as store:
        return [str(one.tags["content"]) for one in artifacts(store, PROBE)]
