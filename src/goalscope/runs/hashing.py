"""One hash of the results of a run: its study, agents, worlds, episodes, steps and rows.

Rows are hashed in a fixed order, whatever order they were stored in: by source, measure, unit, value (undefined first),
grid, episode, step, and tags as JSON. Only few rows are sorted at a time: those of one measure or, if there are many,
of a range of its values, grids and episodes, which are collected in a temporary file.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from goalscope._ground.folder import Spill
from goalscope._ground.rng import stream
from goalscope.agents.agent import ANSWERED_BY, REDRAWS
from goalscope.runs.codec import EPISODE_COLUMNS, Cell, decode_json, encode_json, encode_tags, step_cells, walk_numbers
from goalscope.runs.record import NO_ACTION
from goalscope.runs.store import Store
from goalscope.runs.stored_rows import GROUP_ROWS, pack, unpack
from goalscope.runs.tables import marks
from goalscope.stats.rows import Rows, Tag, encoded

MAX_SORTED_ROWS: Final = 1 << 19
"""Maximum number of rows of a measure that are sorted at once; more are sorted in parts of about half this size."""

_DRAWN_A_PART: Final = 32  # rows sampled per part, so that its size is close to the target
_TEXT_NAMES: Final = ("measure", "unit", "cluster", "episode_id")

_SETTING: Final = "content_hash"
"""Key of the setting that stores the hash of a run."""

_HASHED_KINDS: Final = ("agent", "artifact", "count", "rows", "said", "study", "walk", "world")
"""Kinds of checksums of the hashed data."""

_HASH_VERSION: Final = 1
"""Version of the hash. Each change of its definition increases it, so that stored hashes become invalid."""

_NOT_HASHED: Final = ("attempts", "parser", ANSWERED_BY, REDRAWS)
"""Extra values of a step that are not results, and so are not hashed."""

_WALK_LINE: Final = '["step",%d,%d,%d,%d,%s,null,null,null,null,null,null,"{}"]\n'
"""Line of a step for which only its number, state and action are stored."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), default=bytes.hex)
_PAGE_EPISODES = 128
_PAGE = 4096
Line = tuple[Any, ...]

_found: WeakKeyDictionary[Store, tuple[str, str]] = WeakKeyDictionary()
"""Open store -> hash of its checksums, content hash."""


def content_hash(store: Store, *, derived: bool = True) -> str:
    """Compute one hash of all results of a run; two runs with equal hashes contain the same results.

    It covers study, agents, worlds, episodes, steps and rows (values of measures). Times, costs, attempts, versions and
    the order of work are not hashed.

    Args:
        store: the run.
        derived: whether to include rows, activations and probes, which are computed from the rest.

    Raises:
        ValueError: a stored value does not match its checksum.
    """
    digest = hashlib.sha256()

    def add(lines: Sequence[Sequence[Any]]) -> None:
        """Hash flat lists that start with a text, one line of JSON each; they are encoded together for speed."""
        if lines:
            # No text can contain the mark between two lists, because a quote inside a text follows a backslash.
            digest.update(_ENCODER.encode(lines)[1:-1].replace('],["', ']\n["').encode() + b"\n")

    columns_by_kind = {"study": (0,), "agent": (0, 1), "world": (0, 1, 2, 3, 4), "artifact": (0, 1, 4)}
    for kind, cells in columns_by_kind.items() if derived else list(columns_by_kind.items())[:-1]:
        add([(kind, *(row[cell] for cell in cells)) for row in sorted(store.entries(kind), key=itemgetter(0))])
    last, count, count_before = "", 0, store.sums.number_of("episodes")
    select = f"SELECT number, {EPISODE_COLUMNS} FROM episodes WHERE id > ? ORDER BY id LIMIT {_PAGE_EPISODES}"
    while page := store.query(select, (last,)):
        steps = store.steps_of([row[0] for row in page])
        store.sums.check_episodes(page, steps)
        for number, *header in page:
            if header[0] <= last:
                store.sums.refuse("each episode once and in order")
            add([("episode", *header)])
            if steps[number].said or steps[number].walk[:1] == b"[":
                outputs = step_cells(steps[number])
                add([("step", *step[:-1], _without_attempts(step[-1])) for step in outputs])
            else:
                digest.update(_walk_lines(steps[number].walk))
            last, count = header[0], count + 1
    store.sums.check_count("episodes", count, count_before, store.sums.number_of("episodes"))
    for page in ordered_rows(store) if derived else ():
        add([("row", *line) for line in page])
    return digest.hexdigest()


def _walk_lines(walk: bytes) -> bytes:
    """Return the lines of steps that have only a state and an action.

    Faster than the general function, with equal text.
    """
    steps = enumerate(walk_numbers(walk).tolist())
    return "".join(
        _WALK_LINE % (at, *state, "null" if act == NO_ACTION else act) for at, (*state, act) in steps
    ).encode()


def keep_content_hash(store: Store) -> str:
    """Compute the content hash of a run, store it with the run and return it; `kept_content_hash` reads it later.

    Args:
        store: the run, open for writing.
    """
    digest = content_hash(store)
    if state := _state(store):
        store.put_info(_SETTING, {"hash": digest, "state": state})
    return digest


def kept_content_hash(store: Store) -> str:
    """Return the content hash of a run without computing it again if nothing was written since it was stored or
    computed.

    Changes are detected by the checksums of the hashed data, a few bytes per episode. Unlike `content_hash`, this does
    not detect damage by other programs.
    """
    state = _state(store)
    if store in _found and _found[store][0] == state:
        return _found[store][1]
    cells = store.entries("info", "WHERE info.name = ?", (_SETTING,))
    stored_hash = decode_json(cells[0][1], "a kept content hash").get("value") if cells else None
    if (
        isinstance(stored_hash, dict)
        and stored_hash.get("state") == state
        and re.fullmatch("[0-9a-f]{64}", str(stored_hash.get("hash")))
    ):
        return str(stored_hash["hash"])
    _found[store] = state, content_hash(store)
    return _found[store][1]


def _state(store: Store) -> str:
    """Return a hash of the checksums of all hashed data."""
    digest = hashlib.sha256(f"{_HASH_VERSION}".encode())
    select = f"SELECT kind, key, value FROM checksums WHERE kind IN ({marks(_HASHED_KINDS)}) ORDER BY kind, key"
    with store.snapshot() as database:
        rows = database.execute(select, _HASHED_KINDS)
        while page := rows.fetchmany(_PAGE):
            digest.update(ascii(page).encode())
    return digest.hexdigest()


def _without_attempts(extra: Cell) -> Cell:
    """Return the extra values of a step, except for those in `_NOT_HASHED`."""
    if isinstance(extra, str) and any(f'"{name}"' in extra for name in _NOT_HASHED):
        values = decode_json(extra, "the extra values of a step")
        return encode_json({name: value for name, value in values.items() if name not in _NOT_HASHED})
    return extra


def ordered_rows(store: Store, most: int = MAX_SORTED_ROWS) -> Iterator[list[Line]]:
    """Yield the rows of a run (values of measures) in a fixed order, as lists of tuples; only few are sorted at a time.

    The order is by source (the analysis that computed the row), measure, unit, value, grid, episode, step, and tags as
    JSON. Undefined values are None and come first.

    Args:
        store: the run.
        most: maximum number of rows sorted at a time.
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
    """Yield the rows of one measure in parts, one range of units, values, grids, episodes and steps at a time.

    Each row is read twice from the store, and once from a temporary file in which the rows of each range are
    contiguous.
    """
    bounds = _bounds(store.rows_of(source, [measure]), most)
    with Spill() as spill:
        pieces: list[list[tuple[int, int]]] = [[] for _ in range(len(bounds) + 1)]  # per part: count and rows
        for rows in _bunches(store.rows_of(source, [measure]), most):
            # A row that equals a bound comes after it, since the sort is stable.
            order = _order(Rows.concatenate([bounds, rows]))
            edges = np.flatnonzero(order < len(bounds))
            for part, chosen in zip(pieces, np.split(order, edges), strict=True):
                in_part = rows.at(chosen[chosen >= len(bounds)] - len(bounds))
                for begin in range(0, len(in_part), GROUP_ROWS):
                    group = in_part.at(slice(begin, begin + GROUP_ROWS))
                    part.append((spill.add(_spilled(group)), len(group)))
        for part in pieces:
            yield from _sorted(source, Rows.concatenate(_unspilled(spill.read(at), count) for at, count in part))


def _bounds(groups: Iterable[Rows], most: int) -> Rows:
    """Return sorted sample rows that divide all rows into parts of about ``most / 2`` rows."""
    rng = stream(0, "bounds of sorted rows")
    drawn = Rows.concatenate([rows.at(rng.random(len(rows)) * most < 2 * _DRAWN_A_PART) for rows in groups])
    return drawn.at(_order(drawn)[_DRAWN_A_PART::_DRAWN_A_PART])


def _bunches(groups: Iterable[Rows], most: int) -> Iterator[Rows]:
    """Yield the rows of groups, about ``most`` rows at a time."""
    bunch, count = list[Rows](), 0
    for rows in groups:
        bunch.append(rows)
        count += len(rows)
        if count >= most:
            yield Rows.concatenate(bunch)
            bunch, count = [], 0
    if bunch:
        yield Rows.concatenate(bunch)


def _spilled(rows: Rows) -> bytes:
    """Return rows as bytes that preserve every bit of the values."""
    packed = pack(rows.changed(value=np.zeros(len(rows))), level=0)
    return rows.value.astype("<f8").tobytes() + packed.data


def _unspilled(data: bytes, count: int) -> Rows:
    value = np.frombuffer(data[: 8 * count], dtype="<f8").astype(np.float64)
    return unpack(data[8 * count :], count).changed(value=value)


def _order(rows: Rows, tags: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.intp]:
    """Return the order of rows: by measure, unit, value, grid, episode and step, then by the ranks of their tags."""
    measure, unit, grid, episode = (_ranked(rows, name) for name in _TEXT_NAMES)
    keys = (rows.step, episode, grid, _value_keys(rows), unit, measure)
    return np.lexsort(keys if tags is None else (tags, *keys))


def _sorted(source: str, rows: Rows) -> Iterator[list[Line]]:
    tags, texts = _tag_texts(rows)
    order = _order(rows, tags)
    for begin in range(0, len(order), _PAGE):
        indices = order[begin : begin + _PAGE]
        page = rows.at(indices)
        values = [None if math.isnan(value) else value for value in page.value.tolist()]
        measure, unit, grid, episode = (page[name].tolist() for name in _TEXT_NAMES)
        tag_json = [texts[code] for code in tags[indices].tolist()]
        yield [
            (source, *cells)
            for cells in zip(measure, unit, values, grid, episode, page.step.tolist(), tag_json, strict=True)
        ]


def _value_keys(rows: Rows) -> npt.NDArray[np.float64]:
    """Return a sort key for the value of each of N rows, ``[N]``; undefined values come before minus infinity."""
    values = rows.value + 0.0
    # Minus infinity becomes the lowest finite number, and that number its neighbour, which no measure ever returns.
    lowest = np.nextafter(-np.finfo(np.float64).max, 0)
    shifted = np.where(values == -math.inf, -np.finfo(np.float64).max, np.maximum(values, lowest))
    return np.where(np.isnan(values), -math.inf, shifted)


def _ranked(rows: Rows, name: str) -> npt.NDArray[np.int64]:
    """Return the alphabetical rank of each of N values of a column, ``[N]``."""
    codes, labels = rows.numbered(name)
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[sorted(range(len(labels)), key=labels.__getitem__)] = np.arange(len(labels))
    result: npt.NDArray[np.int64] = ranks[codes]
    return result


@lru_cache(maxsize=1 << 16)
def _tag_text(tags: tuple[tuple[str, type, Tag], ...]) -> str:
    """Return (name, type, value) of tags as JSON. Measures of the same episodes share tags; 1 differs from true."""
    return encode_tags({name: tag for name, _, tag in tags})


def _tag_texts(rows: Rows) -> tuple[npt.NDArray[np.int64], Sequence[str]]:
    """Return the alphabetical rank of the tags of each of N rows ``[N]``, and the tags as JSON by rank."""
    codes = np.zeros(len(rows), dtype=np.int64)
    columns = [(name, encoded(rows.held(name))) for name in rows.tags]
    for _, column in columns:  # renumbered after each column, so that no number grows too large
        codes = np.unique(codes * max(len(column.labels), 1) + column.codes, return_inverse=True)[1].reshape(-1)
    _, first = np.unique(codes, return_index=True)
    tag_sets = [{name: column.labels[column.codes[index]] for name, column in columns} for index in first.tolist()]
    texts = [
        _tag_text(tuple((name, type(tag), tag) for name, tag in tags.items() if tag is not None)) for tags in tag_sets
    ]
    ordered = sorted(set(texts))
    ranks = {text: rank for rank, text in enumerate(ordered)}
    return np.array([ranks[text] for text in texts], dtype=np.int64)[codes], ordered
