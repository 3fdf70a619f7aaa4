"""`goalscope verify` finds what is damaged, `goalscope doctor RUN --repair` makes the run whole again."""

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from http_studies import study as http_study
from http_studies import template
from server import Loopback, speaker

from command_line import call
from contents import hash_of
from families import long_after
from goalscope.measures import measure_store
from goalscope.runs import Store, Study, run
from goalscope.runs.repair import DAMAGED, repair
from stored_steps import steps_as_table

STUDY = """name: small
worlds: [{kind: grid, sizes: [7], densities: [0.5], count: 3, transforms: [identity, reflect]}]
agents: [{kind: optimal}, {kind: epsilon-greedy, epsilon: 0.3, name: sloppy}]
trajectories: 3
"""
PAGE = 4096


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    (folder / "study.yaml").write_text(STUDY)
    run(Study.load(folder / "study.yaml"), folder / "run")
    with Store(folder / "run", "w") as store:
        store.put_rows(measure_store(store), source="behaviour")
        store.query("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder / "run"


def changed(sound: Path, run_: Path, statement: str) -> Path:
    """A copy of a run in which SQL has changed a value and left its checksum."""
    shutil.copytree(sound, run_)
    with sqlite3.connect(run_ / "run.db") as database, steps_as_table(database):
        assert database.execute(statement).rowcount > 0
    database.close()
    return run_


HIT = {
    "a step": ("UPDATE steps SET col = 5 - col WHERE episode = 3 AND step = 1", "episodes"),
    "an outcome": ("UPDATE episodes SET outcome = 'horizon' WHERE outcome = 'goal' AND number = 1", "episodes"),
    "a cost": ("UPDATE checksums SET value = value + 1 WHERE kind = 'cost'", "costs"),
    "a row": ("UPDATE row_groups SET data = data || x'00' WHERE rowid = 1", "rows"),
    "a lost row": ("DELETE FROM row_groups WHERE rowid = 1", "rows"),
    "a tag of a world": ("UPDATE worlds SET tags = '{\"size\":9}' WHERE rowid = 1", "world"),
    "an agent": ("UPDATE agents SET name = 'best' WHERE name = 'optimal'", "agent"),
    "an episode that is gone": ("DELETE FROM episodes WHERE number = 2", "episodes"),
}


IN_THE_GATE = ("a step", "a lost row", "an episode that is gone")


@pytest.mark.parametrize(
    "name", long_after(1, [pytest.param(name, marks=[] if name in IN_THE_GATE else [pytest.mark.full]) for name in HIT])
)
def test_what_was_changed_is_found_and_made_whole_again(sound: Path, tmp_path: Path, name: str) -> None:
    statement, part = HIT[name]
    place = changed(sound, tmp_path / "run", statement)
    before = (place / "run.db").read_bytes()
    said = " ".join(call("verify", place, status=1).split())
    assert f"{part}: " in said and "goalscope doctor" in said
    said = call("doctor", place, status=1)
    assert "damaged: " in said and "--repair" in said
    assert (place / "run.db").read_bytes() == before, "without --repair nothing is changed"
    call("doctor", place, "--repair")
    assert (place / DAMAGED).read_bytes() == before
    if name == "an agent":
        run(Study.parse(yaml_of(STUDY)), place)
    assert hash_of(place) == hash_of(sound)
    assert f"content hash {hash_of(sound)}" in " ".join(call("verify", place, "--expect", hash_of(sound)).split())
    assert "not 00" in " ".join(call("verify", place, "--expect", "00", status=1).split())


def yaml_of(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


def test_a_sound_run_is_left_as_it_is(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "run")
    before = (tmp_path / "run" / "run.db").read_bytes()
    said = call("doctor", tmp_path / "run", "--repair")
    assert "nothing is damaged" in said and "1 sources of rows" in said
    assert (tmp_path / "run" / "run.db").read_bytes() == before
    assert {path.name.partition("-")[0] for path in (tmp_path / "run").iterdir()} == {"run.db", "run.lock"}


def attack(sound: Path, folder: Path, seeds: range) -> int:
    """Overwrite pages, repair, run the study again; return how often the file was past opening."""
    raw, clean, closed = (sound / "run.db").read_bytes(), hash_of(sound), 0
    with Store(sound) as store:
        study = store.study()
    assert study is not None
    for seed in seeds:
        draw = random.Random(seed)
        held = bytearray(raw)
        for _ in range(draw.choice((1, 1, 2))):
            at = PAGE * draw.randrange(1, len(raw) // PAGE)
            held[at : at + PAGE] = draw.choice((bytes(PAGE), draw.randbytes(PAGE)))
        place = folder / str(seed)
        place.mkdir()
        (place / "run.db").write_bytes(held)
        try:
            found = repair(place, write=True)
        except ValueError as error:
            assert "run.db" in str(error), error
            closed += 1
            continue
        assert not found.sound
        if "study" in found.lost:
            closed += 1
            continue
        run(study, place)
        with Store(place, "w") as store:
            if store.stored_rows.counted() == set():
                store.put_rows(measure_store(store), source="behaviour")
        assert hash_of(place) == clean, f"seed {seed}"
        shutil.rmtree(place)
    return closed


def test_pages_that_are_overwritten_are_repaired_to_the_clean_hash(sound: Path, tmp_path: Path) -> None:
    assert attack(sound, tmp_path, range(2)) < 2


@pytest.mark.full
def test_many_pages_that_are_overwritten_are_repaired_to_the_clean_hash(sound: Path, tmp_path: Path) -> None:
    # Past opening is a file whose schema or study was hit: their share of its pages, about a fifth of so small a file.
    assert attack(sound, tmp_path, range(100, 200)) < 35


def test_episodes_of_a_model_are_played_again_from_the_journal_and_nobody_is_asked(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with Loopback(speaker()) as server:
        asked = http_study(server.url, template(tmp_path), count=1, trajectories=2, steps=3)
        run(asked, place)
        made = len(server.log)
        clean = hash_of(place)
        with sqlite3.connect(place / "run.db") as database:
            with steps_as_table(database):
                database.execute("UPDATE steps SET text = 'x' WHERE step = 1")
            ((call_id,),) = database.execute(
                "SELECT max(id) FROM calls WHERE episode_id = (SELECT min(id) FROM episodes)"
            )
        database.close()
        found = repair(place, write=True)
        assert len(found.played) == 2 and not found.unplayed and len(server.log) == made
        assert hash_of(place) == clean
        with sqlite3.connect(place / "run.db") as database:
            with steps_as_table(database):
                database.execute("UPDATE steps SET text = 'x'")
            database.execute("UPDATE calls SET text = 'x' WHERE id = ?", (call_id,))
        database.close()
        found = repair(place, write=True)
        assert (len(found.played), len(found.unplayed), len(found.lost["call"])) == (1, 1, 1)
        assert "the journal lacks the answer" in next(iter(found.unplayed.values()))
        assert run(asked, place).calls == 1 == len(server.log) - made, "only what is lost is asked for again"
        assert hash_of(place) == clean


def test_a_page_that_sqlite_cannot_read_names_the_command_that_mends_it(sound: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    shutil.copytree(sound, place)
    with sqlite3.connect(place / "run.db") as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'steps'").fetchone()
    database.close()
    content = bytearray((place / "run.db").read_bytes())
    content[PAGE * (root - 1) : PAGE * root] = b"\x55" * PAGE
    (place / "run.db").write_bytes(content)
    assert f"goalscope doctor {place} --repair" in "".join(call("verify", place, status=2).splitlines())
    call("doctor", place, "--repair")
    assert hash_of(place) == hash_of(sound)
