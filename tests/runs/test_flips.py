"""Flipped bits and files cut short: detected, with the file and what to do, or without effect on any number."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from run_agents import Dice, small_study

from command_line import call
from flipped import FULL, attack
from goalscope.agents import Optimal
from goalscope.measures import measure_store
from goalscope.runs import Store, content_hash, run
from stored_steps import steps_as_table

SAYS = r"run\.db.*(doctor|copy)|(doctor|copy).*run\.db"


def everything(directory: Path) -> tuple[object, ...]:
    """All that can be read of a run, every number of it."""
    with Store(directory) as store:
        rows, measured = store.rows(), measure_store(store)
        study = store.study()
        return (
            content_hash(store),
            [(episode.spec, episode.world.tags, episode.world.cluster, episode.tags) for episode in store.episodes()],
            [[column.tolist() for column in (found.measure, found.cluster, found.step)] for found in (rows, measured)],
            [list(map(repr, found.value.tolist())) for found in (rows, measured)],
            [list(map(repr, found[name].tolist())) for found in (rows, measured) for name in found.tags],
            sorted(store.usage().items()),
            sorted(store.agents()),
            store.agent_names(),
            [repr(row) for row in store.entries("call")],
            None if study is None else study.dump(),
            {name: value for name, value in store.info().items() if name != "sessions"},
        )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "run"
    run(small_study(), folder, agents=[Dice(), Optimal()])
    with Store(folder, "w") as store:
        store.put_rows(measure_store(store), source="behaviour")
    with Store(folder, "w") as store:
        store.query("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder


def written(raw: bytes, directory: Path) -> Path:
    """A run whose run.db has these bytes."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / "run.db").write_bytes(raw)
    return directory


def rewritten(sound: Path, directory: Path, packed: bytes) -> Path:
    """A copy of a run whose first packed rows are these bytes."""
    written((sound / "run.db").read_bytes(), directory)
    with sqlite3.connect(directory / "run.db") as database:
        assert database.execute("UPDATE row_groups SET data = ? WHERE rowid = 1", (packed,)).rowcount == 1
    database.close()
    return directory


def packed_rows(sound: Path) -> bytes:
    with Store(sound) as store:
        ((data,),) = store.query("SELECT data FROM row_groups WHERE rowid = 1")
    return bytes(data)


@pytest.mark.parametrize(
    "changes", [{"flip": 24, "cut": 6}, pytest.param(FULL, marks=pytest.mark.full)], ids=["few", "full"]
)
def test_no_bit_and_no_cut_of_a_run_changes_a_number(sound: Path, tmp_path: Path, changes: dict[str, int]) -> None:
    found = attack(
        "run.db",
        (sound / "run.db").read_bytes(),
        lambda raw: everything(written(raw, tmp_path / "run")),
        changes,
        says=SAYS,
        seed=2,
    )
    assert found["cut"] == changes["cut"] and found["flip"] > 0.2 * changes["flip"]


@pytest.mark.parametrize(
    "changes", [{"flip": 24, "cut": 6}, pytest.param(FULL, marks=pytest.mark.full)], ids=["few", "full"]
)
def test_every_bit_and_every_cut_of_packed_rows_is_detected(
    sound: Path, tmp_path: Path, changes: dict[str, int]
) -> None:
    found = attack(
        "packed rows",
        packed_rows(sound),
        lambda packed: everything(rewritten(sound, tmp_path / "run", packed)),
        changes,
        says=SAYS,
        seed=3,
    )
    assert found == changes


def test_a_flipped_bit_in_any_value_is_detected(sound: Path, tmp_path: Path) -> None:
    """Bits of stored values alone, found in the file by what they hold: none of them goes unnoticed."""
    raw, draw = (sound / "run.db").read_bytes(), random.Random(3)
    with Store(sound) as store:
        blobs = [blob for pair in store.query("SELECT walk, said FROM steps") for blob in pair if len(blob) > 9]
    places = [raw.index(blob) + draw.randrange(len(blob)) for blob in blobs if blob in raw]
    assert len(places) > len(blobs) / 2
    for at in draw.sample(places, 12):
        changed = bytearray(raw)
        changed[at] ^= 1 << draw.randrange(8)
        with pytest.raises(ValueError, match="goalscope doctor"):
            everything(written(bytes(changed), tmp_path / "run"))


@pytest.mark.parametrize("command", ["report", "measure", "export", "verify"])
def test_commands_say_what_is_damaged_and_what_to_do(sound: Path, tmp_path: Path, command: str) -> None:
    """A failure that became a number in the report: its section asks for parts of steps by SQL."""
    place = tmp_path / "run"
    shutil.copytree(sound, place)
    with sqlite3.connect(place / "run.db") as database, steps_as_table(database):
        database.execute("UPDATE steps SET action = 0, failure = NULL WHERE failure IS NOT NULL AND episode < 4")
    database.close()
    more = ("--out", tmp_path / "tables") if command == "export" else ()
    said = " ".join(call(command, place, *more, status=1 if command == "verify" else 2).split())
    assert "goalscope doctor" in said and "run.db" in said and "Traceback" not in said
