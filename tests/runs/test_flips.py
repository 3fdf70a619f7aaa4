"""Flipped bits and files cut short: detected, with the file and what to do, or without effect on any number."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest
from run_agents import Dice, small_study

from command_line import call
from goalscope.agents import Optimal
from goalscope.measures import measure_store
from goalscope.runs import Store, content_hash, run


def everything(directory: Path) -> tuple[object, ...]:
    """All that can be read of a run, every number of it."""
    with Store(directory) as store:
        rows, measured = store.rows(), measure_store(store)
        study = store.study()
        return (
            content_hash(store),
            [(episode.spec, episode.world.tags, episode.world.cluster, episode.tags) for episode in store.episodes()],
            [[column.tolist() for column in (found.measure, found.grid_id, found.step)] for found in (rows, measured)],
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


def tried(raw: bytes, directory: Path) -> tuple[object, ...] | str:
    """What is read of a file with these bytes, or the error."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / "run.db").write_bytes(raw)
    try:
        return everything(directory)
    except (ValueError, OSError) as error:
        return str(error)


def attack(sound: Path, folder: Path, flips: int, cuts: int, seed: int) -> dict[str, int]:
    """Try so many changes; return how many were detected, by kind, and fail where a number changed."""
    raw, expected, draw = (sound / "run.db").read_bytes(), everything(sound), random.Random(seed)
    found = {"flip": 0, "cut": 0}
    for number in range(flips + cuts):
        changed = bytearray(raw)
        kind = "flip" if number < flips else "cut"
        if kind == "flip":
            at, bit = draw.randrange(len(raw)), draw.randrange(8)
            changed[at] ^= 1 << bit
            what = f"bit {bit} of byte {at}"
        else:
            del changed[draw.randrange(len(raw)) :]
            what = f"cut to {len(changed)} bytes"
        said = tried(bytes(changed), folder / "run")
        if isinstance(said, str):
            found[kind] += 1
            assert "run.db" in said or "found none" in said or "damaged" in said, f"{what}: {said}"
        else:
            assert said == expected, f"{what}: another number"
    return found


def test_some_flipped_bits_and_cuts_change_no_number(sound: Path, tmp_path: Path) -> None:
    found = attack(sound, tmp_path, flips=24, cuts=6, seed=1)
    assert found["cut"] == 6 and found["flip"] > 5


@pytest.mark.full
def test_a_thousand_flipped_bits_and_two_hundred_cuts_change_no_number(sound: Path, tmp_path: Path) -> None:
    found = attack(sound, tmp_path, flips=1000, cuts=200, seed=2)
    assert found["cut"] == 200 and found["flip"] > 300


def test_a_flipped_bit_in_any_value_is_detected(sound: Path, tmp_path: Path) -> None:
    """Bits of stored values alone, found in the file by what they hold: none of them goes unnoticed."""
    raw, draw = (sound / "run.db").read_bytes(), random.Random(3)
    with Store(sound) as store:
        texts = [text.encode() for (text,) in store.query("SELECT DISTINCT text FROM steps WHERE text IS NOT NULL")]
    places = [at for text in texts for at in range(len(raw)) if raw.startswith(text, at)]
    for at in draw.sample(places, 12):
        changed = bytearray(raw)
        changed[at + draw.randrange(5)] ^= 1
        said = tried(bytes(changed), tmp_path / "run")
        assert isinstance(said, str) and "goalscope doctor" in said and "restore the file from a copy" in said


@pytest.mark.parametrize("command", ["report", "measure", "export", "verify"])
def test_commands_say_what_is_damaged_and_what_to_do(sound: Path, tmp_path: Path, command: str) -> None:
    """A failure that became a number in the report: its section asks for parts of steps by SQL."""
    place = tmp_path / "run"
    shutil.copytree(sound, place)
    with sqlite3.connect(place / "run.db") as database:
        database.execute("UPDATE steps SET action = 0, failure = NULL WHERE failure IS NOT NULL AND episode < 4")
    database.close()
    more = ("--out", tmp_path / "tables") if command == "export" else ()
    said = " ".join(call(command, place, *more, status=1 if command == "verify" else 2).split())
    assert "goalscope doctor" in said and "run.db" in said and "Traceback" not in said
