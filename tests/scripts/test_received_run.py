"""A run directory that somebody sent, with its page: what strange things in it and beside it do, and how to go on."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from program import Program

SMALL = ("--sizes", 7, "--densities", "0,0.6", "--count", 2, "--trajectories", 2, "--agents", "optimal,random")
READ = (
    ("verify", "sent"),
    ("show", "sent"),
    ("compare", "sent"),
    ("export", "sent", "--out", "tables"),
    ("figure", "sent", "--list"),
    ("report", "sent", "--out", "page.html"),
)
WRITE = (("measure", "sent"), ("meg", "sent"), ("doctor", "sent"), ("doctor", "sent", "--repair"))
# Imported from the working directory these would have run.
MODULES = ("json", "yaml", "numpy", "torch", "goalscope", "sitecustomize", "environments", "theseus")


@pytest.fixture(scope="module")
def parcel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a packed run with its page, and two shards of its study."""
    sender = Program(tmp_path_factory.mktemp("sender"))
    sender("run", "baseline", *SMALL, "--out", "sent")
    sender("report", "sent")
    for number in (1, 2):
        sender("run", "baseline", *SMALL, "--shard", f"{number}/2", "--out", f"shard{number}")
    with tarfile.open(sender.folder / "parcel.tar", "w") as packed:
        for name in ("sent", "shard1", "shard2"):
            packed.add(sender.folder / name, name)
    return sender.folder / "parcel.tar"


@pytest.fixture
def program(parcel: Path, tmp_path: Path) -> Program:
    with tarfile.open(parcel) as packed:
        packed.extractall(tmp_path / "there", filter="data")
    (tmp_path / "victim.txt").write_text("mine")
    return Program(tmp_path / "there")


def run_all(program: Program, lines: Sequence[Sequence[object]], status: int = 0) -> str:
    return "".join(program(*words, status=status) for words in lines)


@pytest.mark.full
def test_a_received_run_is_read_measured_and_merged(program: Program) -> None:
    run_all(program, READ)
    run_all(program, WRITE)
    program("report", "sent")
    program("run", "baseline", *SMALL[:6], "--agents", "optimal,random", "--trajectories", 3, "--out", "own")
    program("compare", "own", "sent")
    refused = program("merge", "whole", "own", "sent", status=2)
    assert "goalscope compare" in refused
    program("merge", "whole", "shard1", "shard2")
    study = "worlds: [{kind: grid, sizes: [5], densities: [0.5], count: 16}]\nagents: [{kind: optimal}]\n"
    (program.folder / "small.yaml").write_text(study)
    places = {"RUN": "sent", "OTHER": "own", "STUDY": "small.yaml", "DIR": "shard", "OUT": "merged"}
    program.follow(places, {"goalscope merge OUT shard": 2})  # one shard of sixteen


@pytest.mark.full
def test_links_in_a_received_run_are_refused_and_what_to_do_is_said(program: Program, tmp_path: Path) -> None:
    sent, victim = program.folder / "sent", tmp_path / "victim.txt"
    for name in ("run.lock", "report.html"):
        (sent / name).unlink(missing_ok=True)
        (sent / name).symlink_to(victim)
        refused = WRITE if name == "run.lock" else (("report", "sent"),)
        said = run_all(program, refused, status=2)
        program("verify", "sent")
        assert victim.read_text() == "mine" and said.count(f"sent/{name}") == said.count("remove it") == len(refused)
        (sent / name).unlink()  # as it was told
        run_all(program, refused)
    (sent / "run.db").rename(tmp_path / "other.db")
    (sent / "run.db").symlink_to(tmp_path / "other.db")
    before = (tmp_path / "other.db").read_bytes()
    said = run_all(program, (*READ, *WRITE), status=2)
    assert (tmp_path / "other.db").read_bytes() == before and said.count("put a copy") == len(READ) + len(WRITE)
    (sent / "run.db").unlink()
    shutil.copy(tmp_path / "other.db", sent / "run.db")  # as it was told
    run_all(program, (*READ, *WRITE))
    program.follow({})


@pytest.mark.full
def test_modules_folders_filters_and_pages_of_a_stranger_run_nothing(program: Program, tmp_path: Path) -> None:
    folder, mark = program.folder, tmp_path / "ran"
    for name in MODULES:
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').write(__name__)\n")
        (folder / "sent" / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').write(__name__)\n")
    (folder / "theseus").mkdir()
    (folder / "theseus" / "config.json").write_text("{}")
    (folder / "baseline").write_text("no study")
    git = ("git", "-c", f"filter.evil.clean=touch {mark}", "-c", "user.name=a", "-c", "user.email=b")
    (folder / ".gitattributes").write_text("* filter=evil\n")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        subprocess.run([*git, *words], cwd=folder, check=True, capture_output=True)
    subprocess.run([*git, "config", "filter.evil.clean", f"touch {mark}; cat"], cwd=folder, check=True)
    for path in folder.rglob("*.py"):
        os.utime(path)  # git has to look at it again
    mark.unlink(missing_ok=True)
    (folder / "sent" / "report.html").write_text("<script>alert(1)</script>")
    run_all(program, (*READ, *WRITE))
    program("report", "sent")
    told = program("run", "baseline", "--sizes", 7, "--count", 1, "--agents", "optimal", "--out", "own")
    assert "Baseline" in told and "the path of that name is not taken" in told
    program("merge", "whole", "shard1", "shard2")
    told = program("doctor", "--model", "theseus")
    assert "theseus" in told and "harmony" in told
    program.follow({})
    assert not mark.exists() and "alert(1)" not in (folder / "sent" / "report.html").read_text()


@pytest.mark.full
def test_a_received_run_that_may_not_be_written_is_read_and_a_copy_measured(program: Program) -> None:
    sent = program.folder / "sent"
    (sent / "run.lock").unlink(missing_ok=True)
    for path in (*sent.iterdir(), sent):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:  # may write everywhere, unless it gives that up
        program.before = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
    try:
        run_all(program, READ)
        for words in (*WRITE, ("report", "sent")):
            said = program(*words, status=2)
            assert "sent/" in said and "copy" in said
        shutil.copytree(sent, program.folder / "copy")
        for path in (program.folder / "copy", *(program.folder / "copy").iterdir()):
            path.chmod(0o755)
        for command, _, *options in WRITE:
            program(command, "copy", *options)
        program.follow({})
    finally:
        sent.chmod(0o755)
