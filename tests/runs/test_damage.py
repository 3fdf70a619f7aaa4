"""A damaged run.db is one clear sentence in every command that reads a run, whatever became of it."""

import random
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from command_line import call
from goalscope._ground.own import TRACEBACK
from goalscope.cli import app
from goalscope.runs import Store

STUDY = """name: small
worlds: [{kind: grid, sizes: [5], densities: [0.5], count: 2, transforms: [identity, reflect]}]
agents: [{kind: optimal}, {kind: epsilon-greedy, epsilon: 0.3, name: sloppy}]
trajectories: 1
analysis: {invariance: {margin: {success: 0.1}}}
"""
PAGE = 4096
COMMANDS = {
    "measure": "measure RUN",
    "report": "report RUN",
    "compare": "compare RUN OTHER",
    "transforms": "compare RUN --transforms",
    "export": "export RUN --out RUN/tables",
    "meg": "meg RUN",
    "capture": "capture RUN",
    "probe": "probe RUN",
    "run": "run STUDY --out RUN",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, a measured run of it, and another run on the same worlds."""
    folder = tmp_path_factory.mktemp("damage")
    (folder / "study.yaml").write_text(STUDY)
    other = STUDY.replace("{kind: optimal}, ", "").replace("sloppy", "sloppier").replace("0.3", "0.4")
    (folder / "other.yaml").write_text(other)
    for name in ("study", "other"):
        call("run", folder / f"{name}.yaml", "--out", folder / name)
        call("measure", folder / name)
    with Store(folder / "study", "w") as store:
        store.query("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder


def tried(sound: Path, run: Path, raw: bytes, command: str) -> Result:
    """Run a command on a copy of the run whose run.db has these bytes."""
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    (run / "run.db").write_bytes(raw)
    places = {"RUN": str(run), "OTHER": str(sound / "other"), "STUDY": str(sound / "study.yaml")}
    words = [place if (place := places.get(word)) else word.replace("RUN", str(run)) for word in command.split()]
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


def check(result: Result, what: str) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), f"{what}: {result.exception!r}"
    assert result.exit_code in (0, 1, 2), f"{what}: {result.exit_code}"
    assert "Traceback" not in result.output and TRACEBACK not in result.output, f"{what}: {result.output}"


def damaged(raw: bytes, rng: random.Random) -> bytes:
    """Flip a few bits, overwrite a few bytes, or replace a page by zeros, noise or another page."""
    changed = bytearray(raw)
    kind = rng.choice(["bits"] * 6 + ["bytes"] * 2 + ["page"] * 3)
    if kind == "bits":
        for _ in range(rng.choice([1, 1, 1, 3])):
            changed[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    elif kind == "bytes":
        at = rng.randrange(len(raw) - 16)
        changed[at : at + 16] = rng.randbytes(16)
    else:
        at, other = (PAGE * rng.randrange(len(raw) // PAGE) for _ in range(2))
        changed[at : at + PAGE] = rng.choice([bytes(PAGE), rng.randbytes(PAGE), raw[other : other + PAGE]])
    return bytes(changed)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_of_zeros_is_one_sentence_in_every_command(sound: Path, tmp_path: Path, name: str) -> None:
    raw = (sound / "study" / "run.db").read_bytes()
    with Store(sound / "study") as store:
        roots = dict(store.query("SELECT name, rootpage FROM sqlite_master"))
    table = "row_groups" if name in ("compare", "transforms") else "study" if name == "run" else "episodes"
    at = PAGE * (roots[table] - 1)
    result = tried(sound, tmp_path / "run", raw[:at] + bytes(PAGE) + raw[at + PAGE :], COMMANDS[name])
    check(result, name)
    assert result.exit_code == 2
    assert "run.db is damaged" in result.output and "--repair" in result.output


def test_an_id_that_was_hit_is_one_sentence(sound: Path, tmp_path: Path) -> None:
    """Rows that speak of an episode that is not there: once a KeyError in `compare`."""
    raw = (sound / "study" / "run.db").read_bytes()
    with Store(sound / "study") as store:
        ((identity,),) = store.query("SELECT min(id) FROM episodes")
    hit = [at for at in range(len(raw)) if raw.startswith(identity.encode(), at)]
    seen = set()
    for at in hit:
        changed = bytearray(raw)
        changed[at + len("episode-")] ^= 0x10
        result = tried(sound, tmp_path / "run", bytes(changed), COMMANDS["compare"])
        check(result, f"compare, byte {at}")
        seen.add(result.exit_code)
    assert len(hit) > 3 and 2 in seen


def test_an_episode_whose_table_and_indices_disagree_is_one_sentence(sound: Path, tmp_path: Path) -> None:
    """The first error of `measure` sends it to look once more by id: once a KeyError."""
    raw = (sound / "study" / "run.db").read_bytes()
    with Store(sound / "study") as store:
        identities = [identity for (identity,) in store.query("SELECT id FROM episodes")][:4]
    said = []
    for identity in identities:
        changed = bytearray(raw)
        for at in range(len(raw)):
            if raw.startswith(identity.encode(), at):  # each mention becomes another id
                changed[at + len("episode-") + at % 7] ^= 1 << at % 3
        for command in ("measure", "report", "meg", "export"):
            result = tried(sound, tmp_path / "run", bytes(changed), COMMANDS[command])
            check(result, f"{command}, {identity}")
            said.append(result.exit_code)
    assert said.count(2) > len(said) // 2


@pytest.mark.parametrize("name", ["measure", "export", "meg"])
def test_steps_that_name_no_episode_are_one_sentence(sound: Path, tmp_path: Path, name: str) -> None:
    """Pages of `steps` overwritten one by one by another table's: once a KeyError of what stood for the number."""
    raw = (sound / "study" / "run.db").read_bytes()
    with Store(sound / "study") as store:
        roots = dict(store.query("SELECT name, rootpage FROM sqlite_master"))
    said = []
    for other in ("usage", "row_groups", "info", "sqlite_autoindex_episodes_1", "episodes_in_order"):
        at, source = (PAGE * (roots[table] - 1) for table in ("steps", other))
        changed = raw[:at] + raw[source : source + PAGE] + raw[at + PAGE :]
        result = tried(sound, tmp_path / "run", changed, COMMANDS[name])
        check(result, f"{name}, {other}")
        said.append(result.exit_code)
    assert set(said) == {2}


def fuzz(sound: Path, folder: Path, seeds: range, every: int) -> None:
    raw = (sound / "study" / "run.db").read_bytes()
    names = list(COMMANDS)
    refused = 0
    for seed in seeds:
        changed = damaged(raw, random.Random(seed))
        for name in names[seed % every :: every]:
            result = tried(sound, folder / "run", changed, COMMANDS[name])
            check(result, f"seed {seed}, {name}")
            refused += result.exit_code == 2
    assert refused > 0


def test_random_damage_is_never_a_traceback(sound: Path, tmp_path: Path) -> None:
    fuzz(sound, tmp_path, range(18), every=9)


def test_a_group_of_rows_that_the_index_alone_has_is_one_sentence(sound: Path, tmp_path: Path) -> None:
    """Table and index of the rows disagree: once a TypeError of `report`."""
    fuzz(sound, tmp_path, range(1124, 1125), every=1)


@pytest.mark.full
def test_much_random_damage_is_never_a_traceback(sound: Path, tmp_path: Path) -> None:
    fuzz(sound, tmp_path, range(1000, 1300), every=1)
