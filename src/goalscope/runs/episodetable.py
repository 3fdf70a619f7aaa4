"""Writing worlds and episodes into their tables: what is there already must be the same."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS, WORLD_COLUMNS, Cell, encode_world
from goalscope.runs.record import Episode

Usage = Sequence[tuple[int, int, str, float]]
"""What an episode cost: (step, attempt, name, value)."""

EncodedEpisode = tuple[Episode, tuple[Cell, ...], list[tuple[Cell, ...]]]
"""An episode, its columns, and the columns of its steps."""


def insert_worlds(database: sqlite3.Connection, encoded: Iterable[tuple[Cell, ...]]) -> None:
    """Insert worlds given by their columns, inside the caller's transaction.

    Raises:
        ValueError: a world is stored with another cluster or other tags.
    """
    for cells in encoded:
        inserted = database.execute(f"INSERT OR IGNORE INTO worlds ({WORLD_COLUMNS}) VALUES (?, ?, ?, ?, ?)", cells)
        if inserted.rowcount:
            continue
        stored = database.execute(f"SELECT {WORLD_COLUMNS} FROM worlds WHERE id = ?", cells[:1]).fetchone()
        if stored != cells:
            raise ValueError(
                f"a world must keep its cluster and tags: {cells[0]!r} is stored with {stored[3:]}, got {cells[3:]}; "
                "put what differs between episodes into their tags"
            )


def insert_episodes(database: sqlite3.Connection, group: Sequence[EncodedEpisode], usage: Mapping[str, Usage]) -> int:
    """Insert episodes with their worlds and costs, inside the caller's transaction, and return how many are new.

    Raises:
        ValueError: an episode is stored with other content.
    """
    marks = ", ".join("?" * len(EPISODE_COLUMNS.split(", ")))
    insert = f"INSERT OR IGNORE INTO episodes ({EPISODE_COLUMNS}) VALUES ({marks})"
    worlds = {id(episode.world): episode.world for episode, _, _ in group}
    insert_worlds(database, [encode_world(world) for world in worlds.values()])
    new: list[tuple[int | None, Episode, list[tuple[Cell, ...]]]] = []
    repeated: list[EncodedEpisode] = []
    for episode, header, steps in group:
        inserted = database.execute(insert, header)
        if inserted.rowcount:
            new.append((inserted.lastrowid, episode, steps))
        else:
            repeated.append((episode, header, steps))
    database.executemany(
        f"INSERT INTO steps (episode, {STEP_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [(number, *step) for number, _, steps in new for step in steps],
    )
    database.executemany(
        "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?)",
        [(episode.id, *entry) for _, episode, _ in new for entry in usage.get(episode.id, ())],
    )
    for episode, header, steps in repeated:
        _check_same(database, episode, header, steps)
    return len(new)


def _check_same(
    database: sqlite3.Connection, episode: Episode, header: tuple[Cell, ...], steps: list[tuple[Cell, ...]]
) -> None:
    number, *stored = database.execute(
        f"SELECT number, {EPISODE_COLUMNS} FROM episodes WHERE id = ?", (episode.id,)
    ).fetchone()
    kept = database.execute(f"SELECT {STEP_COLUMNS} FROM steps WHERE episode = ? ORDER BY step", (number,))
    if tuple(stored) != header or kept.fetchall() != steps:
        raise ValueError(
            f"an episode must keep its content: {episode.id} (agent {episode.agent!r}, trajectory "
            f"{episode.spec.trajectory}) is stored with other steps or tags; give it another trajectory number or use "
            "another directory"
        )
