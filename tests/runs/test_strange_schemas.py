"""The schema of a received run.db: nothing of it is evaluated that goalscope has not declared."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from goalscope.runs import Store, Study, run
from goalscope.runs.opening import open_for_reading

HUGE = "(printf('%.*c', 900000000, 'x'))"
DECLARED = {
    "a column that is computed when it is read": ("worlds", "grid TEXT NOT NULL", f"grid TEXT NOT NULL AS {HUGE}"),
    "a column that is computed when it is written": ("worlds", "tags TEXT NOT NULL", f"tags TEXT AS {HUGE} STORED"),
    "a default": ("episodes", "tags TEXT NOT NULL", f"tags TEXT NOT NULL DEFAULT {HUGE}"),
    "a check": ("study", "name TEXT NOT NULL", f"name TEXT NOT NULL CHECK (length({HUGE}) > 0)"),
    "a collation": ("agents", "name TEXT NOT NULL", "name TEXT NOT NULL COLLATE NOCASE"),
    "another type": ("steps", "walk BLOB NOT NULL", "walk TEXT NOT NULL"),
    "a reference": (
        "steps",
        "episode INTEGER PRIMARY KEY",
        "episode INTEGER PRIMARY KEY REFERENCES episodes ON DELETE CASCADE",
    ),
    "with a rowid": ("usage", ") WITHOUT ROWID", ")"),
    "strict": ("artifacts", "tags TEXT NOT NULL\n)", "tags TEXT NOT NULL\n) STRICT"),
    "a comment": ("sessions", "document TEXT", "document /* here */ TEXT"),
    "a unique column": ("worlds", "cluster TEXT NOT NULL", "cluster TEXT NOT NULL UNIQUE"),
}
ADDED = {
    "an index of an expression": "CREATE INDEX more ON episodes (id, length(hex(zeroblob(9))))",
    "a part of an index": "CREATE INDEX more ON episodes (id) WHERE length > 3",
    "an index that is ours by name": "DROP INDEX episodes_in_order; CREATE INDEX episodes_in_order ON worlds (id)",
    "a lacking index": "DROP INDEX episodes_in_order",
    "a view": f"CREATE VIEW more AS SELECT {HUGE}",
    "a trigger": f"CREATE TRIGGER more AFTER INSERT ON steps BEGIN SELECT {HUGE}; END",
    "a virtual table": "CREATE VIRTUAL TABLE more USING fts5(x)",
    "statistics": "ANALYZE",
    "a name that acts on terminals": 'CREATE TABLE "\x1b[2J\n" (x)',
    "a long statement": f"CREATE TABLE more ({', '.join(f'c{number}' for number in range(1999))})",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("sound")
    worlds = [{"kind": "grid", "sizes": [7], "densities": [0.5], "count": 1}]
    run(Study.parse({"worlds": worlds, "agents": [{"kind": "random"}], "trajectories": 1}), folder)
    with closing(sqlite3.connect(folder / "run.db")) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    return (folder / "run.db").read_bytes()


@pytest.mark.parametrize("name", [*DECLARED, *ADDED])
def test_only_the_very_schema_is_opened(name: str, sound: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_bytes(sound)
    with closing(sqlite3.connect(path)) as database:
        if name in ADDED:
            database.executescript(ADDED[name])
        else:
            table, old, new = DECLARED[name]
            [(text,)] = database.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchall()
            assert old in text
            database.execute(f"DROP TABLE {table}")
            database.execute(text.replace(old, new))
            if table == "episodes":
                database.execute("CREATE INDEX episodes_in_order ON episodes (world_id, agent_id, trajectory, id)")
    before = path.read_bytes()
    for mode in ("r", "w"):
        with pytest.raises(ValueError, match=r"run\.db") as caught:
            Store(tmp_path, mode)
        assert str(caught.value).isprintable() and len(str(caught.value)) < 1500
    assert path.read_bytes() == before


def test_values_and_statements_have_most_bytes(sound: bytes, tmp_path: Path) -> None:
    (tmp_path / "run.db").write_bytes(sound)
    with closing(open_for_reading(tmp_path / "run.db")) as database:
        for statement in ("SELECT length(hex(zeroblob(200000000)))", f"SELECT {' ' * 2_000_000}1"):
            with pytest.raises(sqlite3.DataError, match=r"too (big|large)"):
                database.execute(statement).fetchall()
