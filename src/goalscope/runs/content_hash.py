"""One hash of all that a store has found out."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS, WORLD_COLUMNS, Cell, decode_json, encode_json
from goalscope.runs.schema import DATABASE, explained
from goalscope.runs.store import Store

_PAGE_EPISODES = 128
_PAGE_ROWS = 1024
_ENCODER = json.JSONEncoder(separators=(",", ":"), default=bytes.hex)


def content_hash(store: Store) -> str:
    """Return one hash of all that was found out: study, agents, worlds, episodes, steps and rows, by their ids.

    Times, costs, attempts, versions and the order of work do not enter: two stores hold the same when their hashes
    are equal.
    """
    digest = hashlib.sha256()

    def add(lines: Sequence[Sequence[Any]]) -> None:
        """Add flat lists that begin with a text, as one line of JSON each; encoded together, since that is fast."""
        if lines:
            # No text can hold the mark between two lists: a quote inside of a text follows a backslash.
            digest.update(_ENCODER.encode(lines)[1:-1].replace('],["', ']\n["').encode() + b"\n")

    for kind, sql in (
        ("study", "SELECT id FROM study ORDER BY id"),
        ("agent", "SELECT id, name FROM agents ORDER BY id"),
        ("world", f"SELECT {WORLD_COLUMNS} FROM worlds ORDER BY id"),
        ("artifact", "SELECT id, kind, tags FROM artifacts ORDER BY id"),
    ):
        add([(kind, *cells) for cells in store.query(sql)])
    last = ""
    select = f"SELECT number, {EPISODE_COLUMNS} FROM episodes WHERE id > ? ORDER BY id LIMIT {_PAGE_EPISODES}"
    while page := store.query(select, (last,)):
        for number, *header in page:
            steps = store.query(f"SELECT {STEP_COLUMNS} FROM steps WHERE episode = ? ORDER BY step", (number,))
            taken = [("step", *step[:-1], _without_attempts(step[-1])) for step in steps]
            add([("episode", *header), *taken])
        last = page[-1][1]
    columns = "source, measure, unit, value, grid_id, episode_id, step, tags"
    with explained(store.path / DATABASE):
        cursor = store.database.execute(f"SELECT 'row', {columns} FROM rows ORDER BY {columns}")
        while rows := cursor.fetchmany(_PAGE_ROWS):
            add(rows)
    return digest.hexdigest()


def _without_attempts(extra: Cell) -> Cell:
    if isinstance(extra, str) and '"attempts"' in extra:
        values = decode_json(extra, "the extra values of a step")
        values.pop("attempts", None)
        return encode_json(values)
    return extra
