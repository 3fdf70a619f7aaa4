"""Verification of a run.db by its checksums, content ids and SQLite's own integrity check."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import AbsentPartError
from goalscope.agents.agent import check_usage
from goalscope.runs import checksums
from goalscope.runs.checksums import Comparison
from goalscope.runs.codec import EPISODE_COLUMNS, decode_json, decode_turn
from goalscope.runs.journal import Call
from goalscope.runs.store import Store
from goalscope.runs.stored_rows import StoredRows

_PAGES: Final = "pages of the file"
_ADVICE: Final = {
    _PAGES: "goalscope doctor RUN --repair copies what is sound into a new file",
    "episodes": "goalscope doctor RUN --repair takes them out, and plays those again whose answers are in the journal",
    "costs": "goalscope doctor RUN --repair takes the episodes out and plays them again",
    "call": "goalscope doctor RUN --repair takes them out; goalscope run asks again where an episode needs them",
    "rows": "goalscope doctor RUN --repair takes them out; measure, probe or patch again",
    "artifact": "goalscope doctor RUN --repair takes them out; capture or probe again",
}
_OTHER_ADVICE: Final = (
    "goalscope doctor RUN --repair tells whether the rest can be kept; else restore the file from a copy"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPart:
    """The result of verifying one kind of a run's contents, such as its episodes.

    Attributes:
        what: name of the kind.
        checked: number of items.
        damaged: descriptions of the damaged items.
    """

    what: str
    checked: int
    damaged: tuple[str, ...] = ()

    @property
    def mend(self) -> str:
        """What the user can do if this part is damaged."""
        return _ADVICE.get(self.what, _OTHER_ADVICE)


def verify(store: Store) -> Iterator[VerifiedPart]:
    """Check all contents of a store; yield the result of each kind as soon as it is checked.

    Raises:
        AbsentPartError: a package that its worlds need is not installed here.
    """
    with store.snapshot() as database:
        yield _pages(database)
        comparison = store.sums
        for kind in checksums.ENTRIES:
            yield _guarded(kind, lambda kind=kind: _entries(database, comparison, kind))  # type: ignore[misc]
        yield _guarded("episodes", lambda: _episodes(store, database))
        yield _guarded("costs", lambda: _costs(database))
        yield _guarded("rows", lambda: _rows(database, comparison))


def damage(store: Store) -> list[str]:
    """Return descriptions of the damage of a store, with advice."""
    return [f"{part.what}: {'; '.join(part.damaged[:5])} ({part.mend})" for part in verify(store) if part.damaged]


def _guarded(what: str, check: Callable[[], VerifiedPart]) -> VerifiedPart:
    """Check one kind of content, which counts as damaged if it is unreadable."""
    try:
        return check()
    except AbsentPartError:
        raise
    except (sqlite3.Error, ValueError, TypeError, UnicodeDecodeError) as error:
        return VerifiedPart(what=what, checked=0, damaged=(str(error)[:300],))


def _pages(database: sqlite3.Connection) -> VerifiedPart:
    try:
        ((pages,),) = database.execute("PRAGMA page_count").fetchall()
        problems = [line for (line,) in database.execute("PRAGMA integrity_check(20)") if line != "ok"]
    except sqlite3.Error as error:
        return VerifiedPart(what=_PAGES, checked=0, damaged=(str(error),))
    return VerifiedPart(what=_PAGES, checked=pages, damaged=tuple(problems))


def _entries(database: sqlite3.Connection, comparison: Comparison, kind: str) -> VerifiedPart:
    table, name = checksums.ENTRIES[kind]
    checked = with_checksum = 0
    damaged = list[str]()
    for (key,) in database.execute(f"SELECT {name} FROM {table} ORDER BY {name}").fetchall():
        checked += 1
        row = database.execute(f"SELECT * FROM {table} WHERE {name} = ?", (key,)).fetchone()
        stored = comparison.known(kind, [key]).get(key)
        with_checksum += stored is not None
        if row is None or stored is None:
            damaged.append(f"{key!r:.80} has no checksum" if row else f"{key!r:.80} is not found by its name")
        elif stored != checksums.checksum(tuple(row)):
            damaged.append(f"{key!r:.80}")
        elif problem := _identity(kind, row):
            damaged.append(problem)
    ((expected,),) = database.execute("SELECT count(*) FROM checksums WHERE kind = ?", (kind,)).fetchall()
    if expected > with_checksum:
        damaged.append(f"{expected - with_checksum} are gone")
    return VerifiedPart(what=kind, checked=checked, damaged=tuple(damaged))


def _identity(kind: str, row: tuple[Any, ...]) -> str:
    """Return the problem with the content id of an entry, or ""."""
    if kind == "agent" and row[0] != (computed := content_id("agent", decode_json(row[2], "an agent"))):
        return f"agent {row[0]!r:.80} must have the content id {computed}"
    if kind == "call":
        agent, prompt, episode, step, attempt = row[1:6]
        call = Call(agent_id=agent, prompt=prompt, episode_id=episode, step=step, attempt=attempt)
        if call.id != row[0]:
            return f"call {row[0]!r:.80} must have the content id {call.id}"
        if row[6] == "done":
            check_usage(decode_turn(row[10:]).usage)
    return ""


def _episodes(store: Store, database: sqlite3.Connection) -> VerifiedPart:
    damaged = list[str]()
    numbers = [number for (number,) in database.execute("SELECT number FROM episodes NOT INDEXED ORDER BY number")]
    for number in numbers:
        try:
            check_episode(store, database, number)
        except AbsentPartError:
            raise
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            damaged.append(str(error)[:200])
    try:
        indexed = [page_row[0] for page in store.pages() for page_row in page]
        if sorted(indexed) != numbers:
            damaged.append("the index of episodes does not name those that there are")
    except ValueError as error:
        damaged.append(str(error)[:200])
    return VerifiedPart(what="episodes", checked=len(numbers), damaged=tuple(damaged))


def check_episode(store: Store, database: sqlite3.Connection, number: int) -> None:
    """Raise a ValueError unless an episode matches its checksums."""
    header = database.execute(f"SELECT {EPISODE_COLUMNS} FROM episodes WHERE number = ?", (number,)).fetchone()
    if header is None:
        raise ValueError(f"episode number {number} is not found by its number")
    steps = store.steps_of([number])
    store.sums.check_episodes([(number, *header)], steps)
    store.decoded(header, steps[number])


def _costs(database: sqlite3.Connection) -> VerifiedPart:
    ((count,),) = database.execute("SELECT count(DISTINCT episode_id) FROM usage").fetchall()
    damaged = tuple(f"what {identity} cost" for identity in checksums.costs_that_differ(database))
    return VerifiedPart(what="costs", checked=count, damaged=damaged)


def _rows(database: sqlite3.Connection, comparison: Comparison) -> VerifiedPart:
    rows, checked, damaged = StoredRows(database, comparison), 0, list[str]()
    for source in rows.sources():
        if problem := rows.damage(source):
            damaged.append(problem)
        with suppress(ValueError):  # already reported above
            checked += sum(group.count for group in rows.index(source))
    return VerifiedPart(what="rows", checked=checked, damaged=tuple(damaged))
