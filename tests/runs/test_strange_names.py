"""Names and kinds inside of a run.db that a stranger wrote: refused or shown as text, never as markup or controls."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from command_line import call
from families import long_after
from goalscope.cli import app
from goalscope.runs.stored_rows import StoredRows
from goalscope.runs.tables import Comparison
from goalscope.stats.rows import Rows
from tampered import tampered

NAMES = {
    "markup and controls": "\x1b[31m\x07\u202e\r<script>alert(1)</script>[bold red]../../../etc/passwd",
    "length": "k" * 100_000,
}
COMMANDS = ("show", "measure", "verify", "doctor", "compare", "report")

Change = Callable[[sqlite3.Connection, str], object]


def document(table: str, column: str, path: tuple[str | int, ...]) -> Change:
    """Return a change that puts a name into a place of each JSON document of a column."""

    def change(database: sqlite3.Connection, name: str) -> None:
        for (text,) in database.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall():
            whole: Any = json.loads(text)
            inner = whole
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = name
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (json.dumps(whole), text))

    return change


def column(table: str, name: str) -> Change:
    return lambda database, value: database.execute(f"UPDATE {table} SET {name} = ?", (value,))


def measure_of_rows(database: sqlite3.Connection, name: str) -> None:
    comparison = Comparison(database, Path("run.db"))
    stored = StoredRows(database, comparison)
    for source in stored.sources():
        listed = [replace(row, measure=name) for rows in stored.groups(source) for row in rows]
        stored.write([Rows.from_rows(listed)], source)


def packages(database: sqlite3.Connection, name: str) -> None:
    used = {f"agent {name}": name, f"{name} x": name, name: [name], f"measure {name}": {"a": name}}
    database.execute("INSERT OR REPLACE INTO info VALUES ('packages', ?)", (json.dumps(used),))


def artifact(database: sqlite3.Connection, name: str) -> None:
    tags = json.dumps({"head": name, "layer": name, "target": name})
    database.execute("INSERT INTO artifacts VALUES (?, 'probe', ?, 3, ?)", (name, name, tags))


PLACES: dict[str, Change] = {
    "kind of a world": document("study", "document", ("worlds", 0, "kind")),
    "kind of an agent": document("study", "document", ("agents", 0, "kind")),
    "name of a study": document("study", "document", ("name",)),
    "described kind of an agent": document("agents", "description", ("kind",)),
    "name of an agent": column("agents", "name"),
    "agent of an episode": column("episodes", "agent"),
    "kind in the tags of a world": document("worlds", "tags", ("kind",)),
    "tag of a world": document("worlds", "tags", ("\x1b[31m<b>",)),
    "measure of rows": measure_of_rows,
    "source of rows": lambda database, name: database.execute("UPDATE row_groups SET source = ? || source", (name,)),
    "packages": packages,
    "probe": artifact,
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "study.yaml").write_text(
        "worlds: [{kind: grid, sizes: [5], densities: [0.5], count: 2}]\nagents: [{kind: optimal}]\ntrajectories: 1\n"
    )
    call("run", folder / "study.yaml", "--out", folder / "run")
    call("measure", folder / "run")
    return folder / "run"


@pytest.mark.parametrize(
    "name", ["markup and controls", pytest.param("length", marks=pytest.mark.full)], ids=["markup", "length"]
)
@pytest.mark.parametrize("place", long_after(4, PLACES))
def test_a_name_of_a_stranger_is_refused_or_shown_as_text(
    measured: Path, tmp_path: Path, place: str, name: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(measured, run)
    with tampered(run / "run.db") as database:
        PLACES[place](database, NAMES[name])
    for command in COMMANDS:
        done = CliRunner().invoke(app, [command, str(run)], env={"COLUMNS": "200"})
        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
        assert done.exit_code in (0, 1, 2) and len(done.output) < 60_000, command
        assert not {one for one in done.output if ord(one) < 32 and one != "\n"} | set("\u202e") & set(done.output)
    page = run / "report.html"
    assert not page.exists() or "<script>alert" not in page.read_text()
    assert not (tmp_path.parent / "etc").exists() and sorted(tmp_path.iterdir()) == [run]
