import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from run_agents import Dice, small_study

from goalscope.runs import Episode, EpisodeSpec, GridWorld, Step, Store, export_parquet, run
from goalscope.runs.export import write_checksums
from goalscope.stats.rows import Rows
from goalscope.worlds import Action, Grid, State


def test_parquet_holds_everything_with_types(tmp_path: Path) -> None:
    run(small_study(), tmp_path / "run", agents=[Dice(), *small_study().agents()])
    with Store(tmp_path / "run", "w") as store:
        tags = {"size": [7, 7], "mixed": [1, "x"], "flag": [True, None], "real": [1, 0.5]}
        store.put_rows(Rows.from_columns(measure="m", unit="u", value=[1, float("nan")], cluster="gh", tags=tags), "s")
        episodes = list(store.episodes())
        paths = export_parquet(store, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in paths.values())
    table = parquet.read_table(paths["episodes"])
    assert table["episode_id"].to_pylist() == [episode.id for episode in episodes]
    assert table["steps"].to_pylist() == [len(episode.steps) for episode in episodes]
    steps = parquet.read_table(paths["steps"])
    assert steps.schema.field("output_tokens").type == pyarrow.list_(pyarrow.uint32())
    expected = [step for episode in episodes for step in episode.steps]
    assert steps["text"].to_pylist() == [step.text for step in expected]
    assert steps["action"].to_pylist() == [step.action.name if step.action is not None else None for step in expected]
    assert [tuple(tokens) if tokens else None for tokens in steps["output_tokens"].to_pylist()] == [
        step.output_tokens for step in expected
    ]
    worlds = parquet.read_table(paths["worlds"])
    assert Grid.parse(worlds["grid"][0].as_py()) in [episode.world.grid for episode in episodes]
    assert worlds.schema.field("tag.size").type == pyarrow.int64()
    rows = parquet.read_table(paths["rows"])
    kinds = {name: str(rows.schema.field(f"tag.{name}").type) for name in tags}
    assert kinds == {"size": "int64", "mixed": "string", "flag": "bool", "real": "double"}
    assert rows["tag.mixed"].to_pylist() == ["1", "x"] and rows["tag.flag"].to_pylist() == [True, None]


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum is not installed")
def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    names = ["plain.csv", "with blank.csv", "back\\slash.csv", "line\nend.csv", "inner/a.parquet", "inner/b.parquet"]
    (tmp_path / "inner").mkdir()
    for name in names:
        (tmp_path / name).write_text(f"content of {name}")
    write_checksums(tmp_path, [tmp_path / name for name in names[:2]])
    write_checksums(tmp_path, [tmp_path / "inner", *(tmp_path / name for name in names[1:4])])  # a further export
    check = ["sha256sum", "--strict", "-c", "SHA256SUMS"]
    told = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0 and told.stdout.count(": OK") == len(names), told
    (tmp_path / "inner" / "b.parquet").write_text("changed")
    told = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 1 and "inner/b.parquet: FAILED" in told.stdout


def test_an_empty_store_and_halves_of_surrogate_pairs_can_be_exported(tmp_path: Path) -> None:
    with Store(tmp_path / "run", "w") as store:
        for path in export_parquet(store, tmp_path / "empty").values():
            assert parquet.read_table(path).num_rows == 0
        world = GridWorld(grid=Grid.parse("A_G"))
        spec = EpisodeSpec(world_id=world.id, agent_id="a", trajectory=0, seed=0, horizon=2)
        step = Step(index=0, state=State((0, 0)), action=Action.UP, text="\ud800!")
        episode = Episode(spec=spec, world=world, agent="a", steps=(step,), final=State((0, 0)), outcome="stopped")
        store.put_episodes([episode])
        paths = export_parquet(store, tmp_path / "odd")
    assert parquet.read_table(paths["steps"])["text"].to_pylist() == ["?!"]


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = r"needs pyarrow: install the extra export, pip install .*'pyarrow>=\d+'"
    with Store(tmp_path, "w") as store, pytest.raises(ImportError, match=said):
        export_parquet(store, tmp_path / "out")
