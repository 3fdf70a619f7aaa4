"""One hash of all that a run has found out: its study, agents, worlds, episodes, steps and rows.

Rows enter in one order, whatever order they were stored in: that of source, measure, unit, value (an undefined one
first), grid, episode, step and tags as JSON. Few rows are sorted at a time: those of one measure, and where they are
many those of a range of values and grids.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.columns import encoded
from goalscope.rows import Rows
from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS, Cell, decode_json, encode_json, encode_tags
from goalscope.runs.store import Store
from goalscope.runs.tables import marks

MOST: Final = 1 << 21
"""Rows that are sorted at a time, but for those that share measure, value and grid."""

_KEPT: Final = "content_hash"
"""The setting of a run that keeps its hash."""

_ENTERS: Final = ("agent", "artifact", "count", "rows", "said", "study", "walk", "world")
"""Kinds of checksums of what enters the hash."""

_FORM: Final = 1
"""Another number for each change of what enters the hash or how: what was kept before is not believed then."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), default=bytes.hex)
_PAGE_EPISODES = 128
_PAGE = 4096
Line = tuple[Any, ...]


def content_hash(store: Store) -> str:
    """Return one hash of all that was found out: study, agents, worlds, episodes, steps and rows, by their ids.

    Times, costs, attempts, versions and the order of work do not enter: two stores hold the same when their hashes
    are equal.

    Raises:
        ValueError: something is not what was written.
    """
    digest = hashlib.sha256()

    def add(lines: Sequence[Sequence[Any]]) -> None:
        """Add flat lists that begin with a text, as one line of JSON each; encoded together, since that is fast."""
        if lines:
            # No text can hold the mark between two lists: a quote inside of a text follows a backslash.
            digest.update(_ENCODER.encode(lines)[1:-1].replace('],["', ']\n["').encode() + b"\n")

    kept = {"study": (0,), "agent": (0, 1), "world": (0, 1, 2, 3, 4), "artifact": (0, 1, 4)}
    for kind, cells in kept.items():
        add([(kind, *(row[cell] for cell in cells)) for row in sorted(store.entries(kind), key=itemgetter(0))])
    last, count, least = "", 0, store.sums.number_of("episodes")
    select = f"SELECT number, {EPISODE_COLUMNS} FROM episodes WHERE id > ? ORDER BY id LIMIT {_PAGE_EPISODES}"
    while page := store.query(select, (last,)):
        steps = store.steps_of([row[0] for row in page], STEP_COLUMNS)
        store.sums.check_episodes(page, steps)
        lines: list[tuple[Any, ...]] = []
        for number, *header in page:
            if header[0] <= last:
                store.sums.refuse("each episode once and in order")
            lines.append(("episode", *header))
            lines += [("step", *step[:-1], _found_out(step[-1])) for step in steps[number]]
            last, count = header[0], count + 1
        add(lines)
    store.sums.check_count("episodes", count, least, store.sums.number_of("episodes"))
    for page in ordered_rows(store):
        add([("row", *line) for line in page])
    return digest.hexdigest()


def keep_content_hash(store: Store) -> str:
    """Return the content hash of a run that is open for writing, and keep it there for `kept_content_hash`."""
    found = content_hash(store)
    if state := _state(store):
        store.put_info(_KEPT, {"hash": found, "state": state})
    return found


def kept_content_hash(store: Store) -> str:
    """Return the content hash that was kept, where nothing was written since; else what `content_hash` finds.

    Whether something was written is told by the checksums of all that enters the hash: few bytes of each episode are
    read. So this does not find damage that was done behind goalscope's back, which `content_hash` does.
    """
    cells = store.entries("info", "WHERE info.name = ?", (_KEPT,))
    kept = decode_json(cells[0][1], "a kept content hash").get("value") if cells else None
    if isinstance(kept, dict) and re.fullmatch("[0-9a-f]{64}", str(kept.get("hash"))):
        state = _state(store)
        if state and kept.get("state") == state:
            return str(kept["hash"])
    return content_hash(store)


def _state(store: Store) -> str:
    """Return a hash of the checksums of all that enters the content hash, "" where a part is older than checksums."""
    if store.sums.old:
        return ""
    digest = hashlib.sha256(f"{_FORM}".encode())
    select = f"SELECT kind, key, value FROM checksums WHERE kind IN ({marks(_ENTERS)}) ORDER BY kind, key"
    with store.snapshot() as database:
        found = database.execute(select, _ENTERS)
        while page := found.fetchmany(_PAGE):
            digest.update(ascii(page).encode())
    return digest.hexdigest()


def _found_out(extra: Cell) -> Cell:
    """Return the extra values of a step without its attempts, and without the version that read its answer."""
    if isinstance(extra, str) and ('"attempts"' in extra or '"parser"' in extra):
        values = decode_json(extra, "the extra values of a step")
        return encode_json({name: value for name, value in values.items() if name not in ("attempts", "parser")})
    return extra


def ordered_rows(store: Store, most: int = MOST) -> Iterator[list[Line]]:
    """Yield pages of rows in order: source, measure, unit, value or None, grid, episode, step, tags as JSON.

    Args:
        store: the store.
        most: how many rows are sorted at a time.
    """
    with store.snapshot():
        for source in store.row_sources():
            counts = store.row_counts(source)
            if sum(counts.values()) <= most:
                yield from _sorted(source, Rows.concatenate(store.rows_of(source)))
                continue
            for measure in sorted(counts):
                if counts[measure] <= most:
                    yield from _sorted(source, Rows.concatenate(store.rows_of(source, [measure])))
                else:
                    yield from _by_parts(store, source, measure, most)


def _by_parts(store: Store, source: str, measure: str, most: int) -> Iterator[list[Line]]:
    """Yield the rows of one measure, those of a range of units, values and grids at a time."""
    grids: set[str] = set()
    units: set[str] = set()
    values = np.zeros(0)
    for rows in store.rows_of(source, [measure], names=("unit", "grid_id")):
        grids.update(rows.numbered("grid_id")[1])
        units.update(rows.numbered("unit")[1])
        values = np.unique(np.concatenate([values, _value_keys(rows)]))
    named = {"unit": units, "grid_id": grids}
    ranks = {name: {label: rank for rank, label in enumerate(sorted(found))} for name, found in named.items()}

    def keys(rows: Rows) -> npt.NDArray[np.int64]:
        unit, grid = (_ranked(rows, name, ranks[name]) for name in ("unit", "grid_id"))
        value = np.searchsorted(values, _value_keys(rows))
        found: npt.NDArray[np.int64] = (unit * len(values) + value) * len(grids) + grid
        return found

    pages = store.rows_of(source, [measure], names=("unit", "grid_id"))
    every = np.sort(np.concatenate([keys(rows) for rows in pages]))
    cuts = np.unique(every[::most]).tolist()
    del every
    for low, high in zip(cuts, [*cuts[1:], math.inf], strict=True):
        parts = []
        for rows in store.rows_of(source, [measure]):
            key = keys(rows)
            parts.append(rows.where((key >= low) & (key < high)))
        yield from _sorted(source, Rows.concatenate(part for part in parts if len(part)))


def _sorted(source: str, rows: Rows) -> Iterator[list[Line]]:
    tags, texts = _tag_texts(rows)
    names = ("measure", "unit", "grid_id", "episode_id")
    rank = {name: _ranked(rows, name, None) for name in names}
    order = np.lexsort(
        (tags, rows.step, rank["episode_id"], rank["grid_id"], _value_keys(rows), rank["unit"], rank["measure"])
    )
    for begin in range(0, len(order), _PAGE):
        at = order[begin : begin + _PAGE]
        page = rows.at(at)
        values = [None if math.isnan(value) else value for value in page.value.tolist()]
        measure, unit, grid, episode = (page[name].tolist() for name in names)
        listed = [texts[code] for code in tags[at].tolist()]
        yield [
            (source, *cells)
            for cells in zip(measure, unit, values, grid, episode, page.step.tolist(), listed, strict=True)
        ]


def _value_keys(rows: Rows) -> npt.NDArray[np.float64]:
    """Return ``[N]`` values by which rows are sorted: an undefined one comes first, before minus infinity."""
    found = rows.value + 0.0
    # No row can hold both: one step below the least number is none that a measure has.
    least = np.nextafter(-np.finfo(np.float64).max, 0)
    shifted = np.where(found == -math.inf, -np.finfo(np.float64).max, np.maximum(found, least))
    return np.where(np.isnan(found), -math.inf, shifted)


def _ranked(rows: Rows, name: str, known: dict[Any, int] | None) -> npt.NDArray[np.int64]:
    """Return ``[N]`` the places of a column's values in alphabetical order, or those that are known."""
    codes, labels = rows.numbered(name)
    places = {label: rank for rank, label in enumerate(sorted(labels))} if known is None else known
    found: npt.NDArray[np.int64] = np.array([places[label] for label in labels], dtype=np.int64)[codes]
    return found


def _tag_texts(rows: Rows) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
    """Return ``[N]`` the places of the tags of each row as JSON in alphabetical order, and these texts."""
    codes = np.zeros(len(rows), dtype=np.int64)
    columns = [(name, encoded(rows.held(name))) for name in rows.tags]
    for _, column in columns:  # numbered anew after each, so that no number grows too large
        codes = np.unique(codes * max(len(column.labels), 1) + column.codes, return_inverse=True)[1].reshape(-1)
    _, first = np.unique(codes, return_index=True)
    told = [{name: column.labels[column.codes[at]] for name, column in columns} for at in first.tolist()]
    texts = [encode_tags({name: tag for name, tag in tags.items() if tag is not None}) for tags in told]
    listed = sorted(set(texts))
    place = {text: rank for rank, text in enumerate(listed)}
    return np.array([place[text] for text in texts], dtype=np.int64)[codes], listed
