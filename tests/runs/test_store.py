import math
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_agents import Dice, small_study

from families import examples
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Outcome, Step, Store, content_hash, opening, run, tables
from goalscope.runs.provenance import scrub
from goalscope.stats.rows import Rows
from goalscope.worlds import Action, Grid, State
from stored_steps import steps_as_table
from tampered import reseal

WORLD = GridWorld(grid=Grid.parse("#####\n#A_G#\n#K_D#\n#####"), tags={"size": 5, "density": 0.5})

# Any code point, the halves of surrogate pairs and NUL among them.
TEXT = st.text(st.characters(), max_size=12)
TAGS = st.dictionaries(
    st.text(max_size=5),
    st.text(max_size=12) | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans(),
    max_size=3,
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
TOKENS = st.none() | st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
STATES = st.builds(State, st.tuples(st.integers(0, 3), st.integers(0, 4)), st.booleans(), st.booleans())


@st.composite
def episodes(draw: st.DrawFn, trajectory: int = 0) -> Episode:
    steps = []
    for index in range(draw(st.integers(0, 4))):
        action = draw(st.none() | st.sampled_from(Action))
        steps.append(
            Step(
                index=index,
                state=draw(STATES),
                action=action,
                failure=draw(TEXT) if action is None else None,
                text=draw(st.none() | TEXT),
                reasoning=draw(st.none() | TEXT),
                prompt_tokens=draw(TOKENS),
                output_tokens=draw(TOKENS),
                reward=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
                extra=draw(st.dictionaries(TEXT, PLAIN, max_size=2)),
            )
        )
    seed = draw(st.integers(-(2**63) + 1, 2**63 - 1))
    spec = EpisodeSpec(
        world_id=WORLD.id,
        agent_id="a",
        trajectory=trajectory,
        seed=seed,
        horizon=9,
        rules=draw(st.sampled_from(["", "{}"])),
    )
    outcome: Outcome = draw(st.sampled_from(get_args(Outcome)))
    return Episode(
        spec=spec,
        world=WORLD,
        agent=draw(st.text(max_size=5)),
        steps=tuple(steps),
        final=draw(STATES),
        outcome=outcome,
        tags=draw(TAGS),
    )


def same(one: Episode, other: Episode) -> bool:
    mine = (one.spec, one.agent, one.steps, one.final, one.outcome, one.tags, one.world.tags, one.world.grid)
    return mine == (
        other.spec,
        other.agent,
        other.steps,
        other.final,
        other.outcome,
        other.tags,
        other.world.tags,
        other.world.grid,
    )


def episode(trajectory: int = 0, length: int = 2, **changes: Any) -> Episode:
    spec = EpisodeSpec(world_id=WORLD.id, agent_id="a", trajectory=trajectory, seed=0, horizon=100)
    steps = tuple(Step(index=index, state=State((1, 1)), action=Action.RIGHT) for index in range(length))
    values = {"agent": "a", "steps": steps, "final": State((1, 2)), "outcome": "stopped", **changes}
    return Episode(spec=spec, world=WORLD, **values)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("shared"), "w") as store:
        yield store


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(given_episode=episodes())
def test_any_episode_comes_back_as_it_was(shared: Store, given_episode: Episode) -> None:
    with shared.transaction() as database:
        database.execute("DELETE FROM steps")
        database.execute("DELETE FROM episodes")
        tables.clear(database)
    assert shared.put_episodes([given_episode]) == 1
    (back,) = shared.episodes()
    for entry in fields(Step):
        expected = [getattr(step, entry.name) for step in given_episode.steps]
        assert list(back.column(entry.name)) == list(given_episode.column(entry.name)) == expected
    assert same(back, given_episode)
    assert shared.put_episodes([back]) == 0


def test_the_order_of_reading_does_not_depend_on_the_order_of_writing(tmp_path: Path) -> None:
    listed = [episode(number, length) for number, length in enumerate([3, 0, 40, 1, 7] * 60)]
    hashes = []
    for name, order in (("one", listed), ("two", listed[::-1])):
        with Store(tmp_path / name, "w") as store:
            assert store.put_episodes(iter(order)) == 300
            assert [back.spec.trajectory for back in store.episodes()] == list(range(300))
            assert all(same(back, sent) for back, sent in zip(store.episodes(), listed, strict=True))
            wanted = [listed[200].id, listed[3].id, listed[3].id]
            assert [back.spec.trajectory for back in store.episodes(wanted)] == [3, 200]
            assert store.episode_ids() == {sent.id for sent in listed}
            with pytest.raises(KeyError, match="nothing"):
                list(store.episodes(["nothing"]))
            hashes.append(content_hash(store))
    assert hashes[0] == hashes[1]


def test_the_hash_sees_every_content_and_no_attempt_or_cost(tmp_path: Path) -> None:
    step = Step(index=0, state=State((1, 1)), action=Action.UP, extra={"k": 1})
    rows = Rows.from_columns(measure="m", unit="u", value=[1.0], cluster=["g"])

    def hash_of(name: str, stored: Episode, usage: float = 1.0, values: Rows = rows) -> str:
        with Store(tmp_path / name, "w") as store:
            store.put_episodes([stored], usage={stored.id: [(0, 0, "seconds", usage)]})
            store.put_rows(values, "s")
            return content_hash(store)

    base = hash_of("base", episode(steps=(step,)))
    tried = Step(index=0, state=State((1, 1)), action=Action.UP, extra={"k": 1, "attempts": [{"failure": "x"}]})
    assert hash_of("cost", episode(steps=(tried,)), usage=2.0) == base
    others = [
        episode(steps=(Step(index=0, state=State((1, 1)), action=Action.DOWN, extra={"k": 1}),)),
        episode(steps=(Step(index=0, state=State((1, 2)), action=Action.UP, extra={"k": 1}),)),
        episode(steps=(Step(index=0, state=State((1, 1)), action=Action.UP, extra={"k": 2}),)),
        episode(steps=(step,), outcome="horizon"),
        episode(steps=(step,), tags={"t": 1}),
        episode(1, steps=(step,)),
    ]
    read = Step(index=0, state=State((1, 1)), action=Action.UP, extra={"k": 1, "parser": 4})
    assert hash_of("parser", episode(steps=(read,))) == base, "the version that read an answer is none of what it says"
    hashes = [hash_of(str(index), other) for index, other in enumerate(others)]
    hashes.append(hash_of("rows", episode(steps=(step,)), values=rows.where(np.array([False]))))
    assert len({base, *hashes}) == len(hashes) + 1


def test_rows_come_back_with_their_kinds_of_tags_and_replace_their_source(tmp_path: Path) -> None:
    tags: dict[str, list[Any]] = {
        "a": [1, True, 1.0, "1", None],
        "b": [np.int64(3), np.float64(0.5), np.bool_(True), np.str_("x"), None],
    }
    rows = Rows.from_columns(
        measure="m\x00",
        unit="u",
        value=[0.0, math.nan, math.inf, -1.5, 2.0],
        cluster=list("vwxyz"),
        step=np.arange(5),
        tags=tags,
    )
    with Store(tmp_path, "w") as store:
        assert len(store.rows()) == 0
        store.put_rows(rows, "first")
        store.put_rows(rows.where(np.arange(5) < 2), "second")
        store.put_rows(rows, "first")
    with Store(tmp_path) as store:
        back = store.rows()
    assert len(back) == 7
    np.testing.assert_array_equal(back.value, [0, math.nan, math.inf, -1.5, 2, 0, math.nan])
    assert [(type(tag), tag) for tag in back["a"][:5]] == [(type(tag), tag) for tag in tags["a"]]
    assert [(type(tag), tag) for tag in back["b"][:4]] == [(int, 3), (float, 0.5), (bool, True), (str, "x")]
    assert list(back.cluster) == list("vwxyzvw") and list(back.step) == [0, 1, 2, 3, 4, 0, 1]


def test_what_cannot_be_stored_is_refused_and_what_came_before_is_kept(tmp_path: Path) -> None:
    def stop() -> Iterator[Episode]:
        yield episode(0)
        yield episode(1)
        raise RuntimeError("source broke")

    def bad(**changes: Any) -> Episode:
        return episode(
            9, steps=(Step(index=0, state=changes.pop("state", State((1, 1))), action=Action.UP, **changes),)
        )

    with Store(tmp_path, "w") as store:
        with pytest.raises(RuntimeError, match="source broke"):
            store.put_episodes(stop())
        assert len(store.episode_ids()) == 2
        for wrong, message in (
            (episode(9, agent="a\ud800"), "the name of an agent must be Unicode text"),
            (episode(9, tags={"t": "\udfff"}), "tag 't' must be Unicode text"),
            (bad(reward=math.nan), "a reward must be a finite number"),
            (bad(prompt_tokens=(-1,)), "token ids must be integers"),
            (bad(state=State((9, 9))), "must lie in the 4x5 grid"),
            (bad(extra={"x": math.nan}), "finite numbers"),
            (episode(0, length=3), "already stored with other steps"),
        ):
            with pytest.raises(ValueError, match=message):
                store.put_episodes([episode(2), wrong])
        other = GridWorld(grid=WORLD.grid, tags={"size": 6})
        with pytest.raises(ValueError, match=r"world .* is already stored"):
            store.put_worlds([other])
        assert store.put_episodes([episode(0), episode(1), episode(7), episode(7)]) == 1
        with pytest.raises(ValueError, match=r"trajectory 8\b.*already stored"):
            store.put_episodes([episode(8), episode(8, length=3)])
    with Store(tmp_path) as store, pytest.raises(OSError, match="mode 'w'"):
        store.put_episodes([episode(5)])


def test_where_no_log_can_be_kept_a_rollback_journal_is_used_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [Dice(), *small_study().agents()]
    with (
        monkeypatch.context() as patch,
        pytest.warns(UserWarning, match="rollback journal"),
    ):
        patch.setattr(opening, "wal_problem", lambda path: "no shared memory")
        summary = run(small_study(), tmp_path / "slow", agents=agents)
    run(small_study(durability="power"), tmp_path / "fast", agents=agents)
    assert summary.episodes == 12
    with Store(tmp_path / "slow") as slow, Store(tmp_path / "fast") as fast:
        assert slow.query("PRAGMA journal_mode") == [("delete",)]
        assert fast.query("PRAGMA journal_mode") == [("wal",)]
        assert content_hash(slow) == content_hash(fast)
        info = slow.info()
        assert info["journal_mode"] == "rollback journal" and "no shared memory" in info["journal_notice"]
        assert fast.info()["durability"] == "power"


def test_who_writes_later_keeps_the_durability_that_a_run_was_made_with(tmp_path: Path) -> None:
    for made, level in (("process", 1), ("power", 2)):  # NORMAL and FULL
        with Store(tmp_path / made, "w", durability=made):  # type: ignore[arg-type]
            pass
        with Store(tmp_path / made, "w") as store:
            assert store.query("PRAGMA synchronous") == [(level,)]
            assert store.info()["durability"] == made
    with Store(tmp_path / "power", "w", durability="process") as store:
        assert store.query("PRAGMA synchronous") == [(1,)] and store.info()["durability"] == "process"
    with Store(tmp_path / "new", "w") as store:
        assert store.info()["durability"] == "process"


def test_a_log_left_by_a_killed_process_is_folded_in_when_the_mode_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "one", "w") as store:
        store.put_episodes([episode(0)])
        shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two" / "run.db-wal").stat().st_size > 0
    monkeypatch.setattr(opening, "wal_problem", lambda path: "moved")
    with pytest.warns(UserWarning, match="rollback"), Store(tmp_path / "two", "w") as store:
        assert len(store.episode_ids()) == 1


def test_the_probe_writes_for_real_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opening.wal_problem(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(opening, "_file_system", lambda path: "nfs4")
    assert opening.wal_problem(tmp_path) == "the file system is shared over a network (nfs4)"


def damaged(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4096 * 2 :] = b"\x5a" * (len(raw) - 4096 * 2)
    path.write_bytes(raw)


def sql(statement: str) -> Any:
    def change(path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.executescript(statement)
        connection.close()

    return change


WRONG: list[tuple[Any, str]] = [
    (lambda path: path.write_bytes(b"hello, this is no database at all" * 99), "damaged, or not a SQLite file"),
    (lambda path: path.write_bytes(path.read_bytes()[:5000]), "damaged"),
    (damaged, "damaged|must hold"),
    (sql("PRAGMA application_id = 7"), "not a run.db written by goalscope"),
    (sql("PRAGMA user_version = 99"), "must have schema version 6, got 99: update goalscope"),
    (sql("PRAGMA user_version = 5"), "must have schema version 6, got 5: .* run the study, or import, again"),
    (sql("DROP TABLE steps"), "exactly the tables of a run.db, got a difference at: steps"),
    (sql("ALTER TABLE worlds ADD COLUMN x"), "table worlds of .* must be declared as .*,x"),
    (sql("CREATE TRIGGER t AFTER INSERT ON steps BEGIN DELETE FROM steps; END"), "got a difference at: t"),
    (sql("DROP TABLE usage; CREATE VIEW usage AS SELECT 1"), "exactly the tables"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_file_that_is_no_run_is_refused_and_not_touched(tmp_path: Path, mode: Any, change: Any, message: str) -> None:
    run(small_study(), tmp_path)
    path = tmp_path / "run.db"
    change(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message), Store(tmp_path, mode) as store:
        list(store.episodes())
    assert path.read_bytes() == before


def test_a_file_that_is_no_run_is_closed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(small_study(), tmp_path)
    sql("PRAGMA application_id = 7")(tmp_path / "run.db")
    opened: list[sqlite3.Connection] = []

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(sqlite3.Connection(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr("goalscope.runs.opening.sqlite3.connect", connect)
    with pytest.raises(ValueError, match="another SQLite database"):
        Store(tmp_path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


HOSTILE = [
    "UPDATE steps SET action = 9",
    "UPDATE steps SET action = 'UP'",
    "UPDATE steps SET row = -1",
    "UPDATE steps SET col = 99",
    "UPDATE steps SET flags = 4",
    "UPDATE steps SET text = 5.5, failure = 'x'",
    "UPDATE steps SET reward = 'much'",
    "UPDATE steps SET extra = '[1]'",
    "UPDATE steps SET extra = '{\"x\": NaN}'",
    "UPDATE steps SET extra = NULL",
    "UPDATE steps SET action = NULL",
    "UPDATE steps SET failure = 'x'",
    "DELETE FROM steps WHERE step = 0",
    "UPDATE episodes SET outcome = 'won'",
    "UPDATE episodes SET trajectory = trajectory + 7",
    "UPDATE episodes SET horizon = 'x'",
    "UPDATE episodes SET tags = '{\"a\": [1]}'",
    "UPDATE episodes SET agent = x'00'",
    "UPDATE episodes SET length = 'x'",
    "UPDATE worlds SET grid = 'A_G'",
    "UPDATE worlds SET grid = 'rubbish'",
    "UPDATE worlds SET fog_radius = 'x'",
    "DELETE FROM worlds",
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    run(small_study(), folder)
    return folder


@pytest.mark.parametrize("statement", HOSTILE)
def test_hostile_values_are_refused_when_they_are_read(sound: Path, tmp_path: Path, statement: str) -> None:
    shutil.copy(sound / "run.db", tmp_path / "run.db")
    with closing(sqlite3.connect(tmp_path / "run.db")) as database:
        with steps_as_table(database):
            database.execute(statement)
        database.commit()
    with Store(tmp_path) as store, pytest.raises(ValueError, match="must"):
        list(store.episodes())


BLOBS = [
    "walk = x''",
    "walk = x'7a0101'",
    "walk = 'b1111'",
    "walk = CAST('[[1,2]]' AS BLOB)",
    "walk = CAST('[' AS BLOB)",
    "walk = substr(walk, 1, length(walk) - 1)",
    "walk = walk || CAST('1111' AS BLOB)",
    "said = 'x'",
    "said = x'00'",
    "said = CAST(x'00' || x'02000000' || '[]' AS BLOB)",
    "said = CAST(x'00' || x'0f000000' || '[[],0,0,0,0,0]' AS BLOB)",
    "said = CAST(x'00' || x'02000000' || '{}' AS BLOB)",
    "said = CAST(x'00' || x'02000000' || x'fffe' AS BLOB)",
    "said = CAST(x'00' || x'ffffffff' || '[]' AS BLOB)",
    "said = CAST(x'00' || x'02000000' AS BLOB)",
    "said = said || x'00000000'",
]


@pytest.mark.parametrize("change", BLOBS)
def test_hostile_steps_are_refused_when_they_are_read(sound: Path, tmp_path: Path, change: str) -> None:
    """With checksums that fit: what is wrong is found in the blobs themselves."""
    shutil.copy(sound / "run.db", tmp_path / "run.db")
    with closing(sqlite3.connect(tmp_path / "run.db")) as database:
        database.execute(f"UPDATE steps SET {change}")
        reseal(database)
        database.commit()
    with Store(tmp_path) as store:
        with pytest.raises(ValueError, match=r"must (be stored|begin|have its)"):
            list(store.episodes())
        with pytest.raises(ValueError, match=r"must (be stored|begin|have its)"):
            content_hash(store)


def test_reading_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"run\.db"):
        Store(tmp_path)
    with pytest.raises(ValueError, match="'r'"):
        Store(tmp_path, "x")  # type: ignore[arg-type]


def test_a_store_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    with Store(tmp_path, "w") as writer, Store(tmp_path) as reader:
        writer.put_episodes([episode(0)])
        listed = reader.episodes()
        next(listed)
        writer.put_episodes([episode(1)])
        assert len(reader.episode_ids()) == 2


def test_secrets_are_hidden() -> None:
    given_values = {
        "api_key": "abc",
        "OPENAI_API_KEY": "abc",
        "key": "",
        "url": "https://user:pass@host/v1?token=abc&x=1",
        "list": ["sk-abcdefghijklmnopqrstuv", 3],
        "max_tokens": 10,
        "header": "Bearer abcdef",
    }
    assert scrub(given_values) == {
        "api_key": "(hidden)",
        "OPENAI_API_KEY": "(hidden)",
        "key": "",
        "url": "https://(hidden)host/v1?(hidden)&x=1",
        "list": ["(hidden)", 3],
        "max_tokens": 10,
        "header": "Bearer (hidden)",
    }
