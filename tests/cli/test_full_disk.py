"""A disk without room is called so by each command that writes, with its place; what was stored before is kept."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from families import long_after
from goalscope._ground.folder import Folder
from goalscope.runs import Store, Study, content_hash, run

LOG = Path(__file__).parents[1] / "data" / "telos" / "trajectories"
STUDY = """
name: some
worlds: [{kind: grid, sizes: [9], densities: [0.3], count: 40}]
agents: [{kind: optimal}, {kind: random}]
trajectories: 12
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, a measured run of it, and its two shards."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "study.yaml").write_text(STUDY)
    call("run", folder / "study.yaml", "--out", folder / "run")
    call("measure", folder / "run")
    for part in (1, 2):
        call("run", folder / "study.yaml", "--out", folder / f"shard{part}", "--shard", f"{part}/2")
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB."""
    path = tmp_path / "small"
    path.mkdir()
    mount = shutil.which("mount")
    made = (
        mount
        and not subprocess.run(
            [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], capture_output=True, check=False
        ).returncode
    )
    if not made:
        pytest.skip("a small disk can be mounted by the administrator alone")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(disk: Path, room: int) -> None:
    with (disk / "filler").open("wb") as filler:
        try:
            while True:
                filler.write(bytes(2**16))
                filler.flush()
        except OSError as error:
            assert error.errno == errno.ENOSPC
            filler.truncate(disk.joinpath("filler").stat().st_size - room)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "command",
    long_after(
        4,
        [
            "measure {disk}/run",
            "report {made}/run --out {disk}/page.html",
            "export {made}/run --out {disk}/tables",
            "import {log} --out {disk}/imported",
            "run {made}/study.yaml --out {disk}/new",
            "report {disk}/run",
            "merge {disk}/merged {made}/shard1 {made}/shard2",
            "evaluate random --quick --arms grids --sizes 5 --out {disk}/judged",
            "figure {made}/run --all {disk}/figures",
        ],
    ),
)
def test_a_full_disk_is_called_so(command: str, made: Path, small: Path) -> None:
    shutil.copytree(made / "run", small / "run")
    with Store(small / "run") as store:
        before = content_hash(store)
    fill(small, 8192)
    shown = call(*command.format(made=made, disk=small, log=LOG).split(), status=2)
    assert "full" in shown and str(small) in "".join(shown.split()) and "kept" in shown
    (small / "filler").unlink()
    with Store(small / "run") as store:
        assert content_hash(store) == before
    call(*command.format(made=made, disk=small, log=LOG).split())


@pytest.mark.parametrize("number", long_after(1, [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]))
@pytest.mark.parametrize("named", [True, False])
def test_a_write_without_room_names_the_disk(
    number: int, named: bool, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the quota, or the limit on the size of files."""

    def refuse(folder: Folder, *parts: str, **options: Any) -> Any:
        raise OSError(number, os.strerror(number), *([str(folder.path.joinpath(*parts))] if named else []))

    monkeypatch.setattr(Folder, "replacing", refuse)
    shown = " ".join(call("report", made / "run", "--out", tmp_path / "page.html", status=2).split())
    words = {errno.ENOSPC: "bytes free", errno.EDQUOT: "quota", errno.EFBIG: "limit on the size of a file"}
    assert [other for other, word in words.items() if word in shown] == [number] and "kept" in shown
    assert not named or "page.html" in shown


def test_a_run_goes_on_when_there_is_room(small: Path, made: Path) -> None:
    study = Study.load(made / "study.yaml")
    fill(small, 2**18)
    with pytest.raises(OSError, match="disk"):
        run(study, small / "run")
    with Store(small / "run") as store:
        stored = len(store.episode_ids())
    (small / "filler").unlink()
    summary = run(study, small / "run")
    assert summary.reused == stored
    with Store(small / "run") as store, Store(made / "run") as other:
        assert len(store.episode_ids()) == len(other.episode_ids()) == 960
