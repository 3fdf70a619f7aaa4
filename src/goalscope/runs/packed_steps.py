"""Convert the steps of an episode to two blobs and back. Blobs are validated as untrusted input.

The walk contains states and actions, which suffice for most measures: a letter for the width of its integers, then row,
col, flags and action of each step (-1 for a turn without a valid move). If a state is not a cell of a grid, the walk is
JSON, a list of such lists.

The outputs are the rest; they are empty if there are none: a byte with `REWARDED` and `MARKED`, the length of a JSON
text in four bytes, that text (a list for each of `_SAID`, or null; token ids are replaced by their counts), and all
token ids as 32-bit words.
"""

import json
import math
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import accumulate, chain, repeat
from struct import iter_unpack, unpack_from
from sys import byteorder
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from goalscope._ground import untrusted
from goalscope.runs.codec import (
    EMPTY,
    Cell,
    decode_json,
    decode_reward,
    decode_state,
    decode_text,
    encode_json,
    encode_state,
    encode_text,
)
from goalscope.runs.record import NO_ACTION, Step
from goalscope.worlds.world import World

REWARDED, MARKED = 1, 2
"""Bits of the first byte of the outputs: some step has a reward; some step has extra values."""

HAS_REWARD: Final = f"substr(said, 1, 1) IN (x'{REWARDED:02x}', x'{REWARDED + MARKED:02x}')"
HAS_EXTRA: Final = f"substr(said, 1, 1) IN (x'{MARKED:02x}', x'{REWARDED + MARKED:02x}')"
"""SQL conditions on the table of steps."""

_SAID: Final = ("failure", "text", "reasoning", "prompt_tokens", "output_tokens", "reward", "extra")
_DEFAULTS: Final = (None, None, None, None, None, None, EMPTY)
_PROMPT, _OUTPUT, _REWARD, _EXTRA = 3, 4, 5, 6
_WIDTHS: Final = {"b": 1, "h": 2, "q": 8}
_MAX_TOKEN: Final = 2**32 - 1
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_SETTERS: Final = tuple(getattr(Step, entry.name).__set__ for entry in fields(Step))
WALK_WIDTH: Final = 4  # row, col, flags, action


class PackedSteps(NamedTuple):
    """The steps of an episode as they are stored."""

    walk: bytes
    said: bytes


Columns = Sequence[Sequence[Any] | None]
"""The columns `_SAID` of an episode's steps, with token ids as sequences of integers; None for a default column."""


def pack_steps(steps: Sequence[Step], world: World) -> PackedSteps:
    """Pack the steps of an episode in this world into their stored form.

    Raises:
        ValueError: for a state outside of the world, a reward that is not finite, or token ids beyond 32 bits.
    """
    for step in steps:
        if step.reward is not None and not math.isfinite(step.reward):
            raise ValueError(f"a reward must be a finite number or None, got {step.reward!r} at step {step.index}")
    columns: list[list[Any]] = [[getattr(step, name) for step in steps] for name in _SAID]
    columns[_REWARD] = [None if reward is None else float(reward) for reward in columns[_REWARD]]
    columns[_EXTRA] = [encode_json(extra) for extra in columns[_EXTRA]]
    walk = [(*_state(step.state, world), NO_ACTION if step.action is None else int(step.action)) for step in steps]
    return PackedSteps(pack_walk(walk), pack_said(columns))


def _state(state: Any, world: World) -> tuple[Cell, ...]:
    row, col, flags = encode_state(state, world)
    return row, col, flags


def pack_walk(walk: Sequence[Sequence[Any]]) -> bytes:
    """Pack (row, col, flags, action) of each step into their stored form, in as few bytes as possible."""
    flat = list(chain.from_iterable(walk))
    for width in _WIDTHS:
        try:
            return width.encode() + _little(array(width, flat)).tobytes()
        except OverflowError:
            continue
        except TypeError:
            break
    return _PLAIN.encode([list(step) for step in walk]).encode("utf-8", "surrogatepass")


def pack_numbers(walk: npt.NDArray[np.integer]) -> bytes:
    """Pack ``[T, 4]`` integers into the form of `pack_walk`."""
    least, most = (int(walk.min()), int(walk.max())) if len(walk) else (0, 0)
    width, count = next(
        (width, count)
        for width, count in _WIDTHS.items()
        if -(1 << (8 * count - 1)) <= least and most < 1 << (8 * count - 1)
    )
    return width.encode() + walk.astype(f"<i{count}").tobytes()


def pack_said(columns: Columns) -> bytes:
    """Pack the stored outputs of the steps of an episode (the columns `_SAID`) into their stored form."""
    filled_columns = [
        None if column is None or column.count(default) == len(column) else list(column)
        for column, default in zip(columns, _DEFAULTS, strict=True)
    ]
    if not any(filled_columns):
        return b""
    words = array("I")
    for at in (_PROMPT, _OUTPUT):
        if (column := filled_columns[at]) is not None:
            for tokens in column:
                if tokens is not None:
                    _add_tokens(words, tokens)
            filled_columns[at] = [None if tokens is None else len(tokens) for tokens in column]
    head = _PLAIN.encode(filled_columns).encode("utf-8", "surrogatepass")
    flags = REWARDED * (filled_columns[_REWARD] is not None) + MARKED * (filled_columns[_EXTRA] is not None)
    return bytes([flags]) + len(head).to_bytes(4, "little") + head + _little(words).tobytes()


def _add_tokens(words: "array[int]", tokens: Sequence[int]) -> None:
    try:
        words.extend(array("I", tokens))
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids must be integers in 0..{_MAX_TOKEN}, got {list(tokens)[:20]}") from error


def _little(words: "array[int]") -> "array[int]":
    """Convert integers to little-endian bytes, or such bytes to integers."""
    if byteorder == "big":
        words.byteswap()
    return words


def walk_numbers(walk: Any) -> npt.NDArray[np.int64]:
    """Return a stored walk as ``[T, 4]``.

    Raises:
        ValueError: if it is damaged, or contains states that are not cells.
    """
    letter = walk[:1].decode("latin-1") if isinstance(walk, bytes) else ""
    count = _WIDTHS.get(letter)
    if count is None:
        unpack_walk(walk)
        raise ValueError("states and actions must be stored as whole numbers")
    if (len(walk) - 1) % (WALK_WIDTH * count):
        raise ValueError(f"a walk must be stored as {WALK_WIDTH} numbers a step, got {len(walk) - 1} bytes")
    return np.frombuffer(walk, dtype=f"<i{count}", offset=1).reshape(-1, WALK_WIDTH).astype(np.int64)


def unpack_walk(walk: Any) -> list[tuple[Any, ...]]:
    """Return (row, col, flags, action) of each step of a stored walk.

    Raises:
        ValueError: if it is damaged.
    """
    if not isinstance(walk, bytes):
        raise ValueError(f"a walk must be stored as bytes, got {type(walk).__name__}")
    if walk[:1] != b"[":
        return (
            list(map(tuple, walk_numbers(walk).tolist())) if walk[:1].decode("latin-1") in _WIDTHS else _no_walk(walk)
        )
    steps = _decoded(walk, "a walk")
    if not isinstance(steps, list) or not all(isinstance(step, list) and len(step) == WALK_WIDTH for step in steps):
        raise ValueError(f"a walk must be stored as {WALK_WIDTH} values a step, got {walk[:80]!r}")
    return list(map(tuple, steps))


def _no_walk(walk: bytes) -> list[tuple[Any, ...]]:
    raise ValueError(f"a walk must begin with the width of its numbers, got {walk[:20]!r}")


def unpack_failures(outputs: Any, steps: int) -> list[Any]:
    """Return the name of the failure of each step, None for a turn with a valid move.

    Raises:
        ValueError: if `pack_said` cannot have written the value.
    """
    return _unpack_said(outputs, steps)[_SAID.index("failure")]


def _unpack_said(outputs: Any, steps: int) -> list[list[Any]]:
    """Return the columns `_SAID`, with token ids as tuples."""
    if not isinstance(outputs, bytes):
        raise ValueError(f"what was said must be stored as bytes, got {type(outputs).__name__}")
    if not outputs:
        return [[default] * steps for default in _DEFAULTS]
    end = 5 + int.from_bytes(outputs[1:5], "little")
    columns = _decoded(outputs[5:end], "what was said")
    if not isinstance(columns, list) or len(columns) != len(_SAID):
        raise ValueError(f"what was said must be stored as {len(_SAID)} columns, got {outputs[5:85]!r}")
    if not all(column is None or (isinstance(column, list) and len(column) == steps) for column in columns):
        raise ValueError(f"what was said must be stored for each of {steps} steps, got {outputs[5:85]!r}")
    filled_columns = [
        [default] * steps if column is None else column for column, default in zip(columns, _DEFAULTS, strict=True)
    ]
    tokens = outputs[end:]
    for at in (_PROMPT, _OUTPUT):
        if columns[at] is not None:
            filled_columns[at], tokens = _cut_tokens(columns[at], tokens)
    if tokens:
        raise ValueError(f"token ids must be stored as many as are counted, got {len(tokens)} bytes more")
    return filled_columns


def _cut_tokens(counts: list[Any], tokens: bytes) -> tuple[list[tuple[int, ...] | None], bytes]:
    """Split the stored token ids into those counted for each step and the rest."""
    known_counts = [count for count in counts if count is not None]
    if not set(map(type, known_counts)) <= {int} or min(known_counts, default=0) < 0:
        raise ValueError(f"token ids must be stored with their number of each step, got {counts[:20]!r}")
    total = 4 * sum(known_counts)
    if total > len(tokens):
        raise ValueError(
            f"token ids must be stored as many as are counted, got {len(tokens)} bytes in place of {total}"
        )
    if known_counts and len(known_counts) == len(counts) and min(known_counts) == max(known_counts) > 0:
        return list(iter_unpack(f"<{known_counts[0]}I", memoryview(tokens)[:total])), tokens[total:]
    ends = accumulate(count or 0 for count in counts)
    per_step = [
        None if count is None else unpack_from(f"<{count}I", tokens, 4 * (end - count))
        for count, end in zip(counts, ends, strict=True)
    ]
    return per_step, tokens[total:]


def _decoded(octets: bytes, name: str) -> Any:
    try:
        return untrusted.decode_json(octets.decode("utf-8", "surrogatepass"), strict=False)
    except (untrusted.UntrustedError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} must be stored as JSON, got {octets[:80]!r}: {error}") from error


def unpack_steps(packed: PackedSteps, world: World) -> tuple[Step, ...]:
    """Return the steps of an episode in this world; equal states share one object.

    Raises:
        ValueError: if `pack_steps` cannot have written the value.
    """
    walk = unpack_walk(packed.walk)
    failure, text, reasoning, prompt, output, reward, extra = _unpack_said(packed.said, len(walk))
    cells, numbers = [step[:3] for step in walk], [step[3] for step in walk]
    states = {cell: decode_state(cell[0], cell[1], cell[2], world) for cell in set(cells)}
    actions = {number: world.action(number) for number in set(numbers) - {NO_ACTION}}
    columns: tuple[Sequence[Any], ...] = (
        range(len(walk)),
        list(map(states.__getitem__, cells)),
        list(map(actions.get, numbers)),
        _each(decode_text, failure, "a failure"),
        _each(decode_text, text, "an answer"),
        _each(decode_text, reasoning, "a reasoning"),
        prompt,
        output,
        _each(decode_reward, reward),
        [decode_json(cell, "the extra values of a step") for cell in extra],
    )
    if [action is None for action in columns[2]] != [cell is not None for cell in columns[3]]:
        raise ValueError("a step must hold either an action or the name of a failure, got both or neither")
    # Slots are set one by one, because the constructor takes six times as long; its only check is made above.
    steps = tuple(map(object.__new__, repeat(Step, len(walk))))
    for setter, column in zip(_SETTERS, columns, strict=True):
        deque(map(setter, steps, column), maxlen=0)
    return steps


def _each(decode: Callable[..., Any], cells: list[Any], *names: str) -> list[Any]:
    """Return the cells of a column, unchanged; raise an error if ``decode`` refuses the type of one of them."""
    for cell in dict(zip(map(type, cells), cells, strict=True)).values():
        decode(cell, *names)
    return cells


def step_cells(packed: PackedSteps) -> list[tuple[Cell, ...]]:
    """Return `STEP_COLUMNS` of the steps of an episode: plain values, with token ids as 32-bit words.

    Raises:
        ValueError: if the walk or the outputs are damaged.
    """
    walk = unpack_walk(packed.walk)
    outputs_by_step = zip(*_unpack_said(packed.said, len(walk)), strict=True)
    return [
        (
            index,
            row,
            col,
            flags,
            None if action == NO_ACTION else action,
            *_texts(answer[:3]),
            *_words(answer[3:5]),
            *answer[5:],
        )
        for index, ((row, col, flags, action), answer) in enumerate(zip(walk, outputs_by_step, strict=True))
    ]


def _texts(texts: Sequence[Any]) -> list[Cell]:
    return [encode_text(text) if isinstance(text, str) else text for text in texts]


def _words(tokens: Sequence[Sequence[int] | None]) -> list[bytes | None]:
    return [None if ids is None else _little(array("I", ids)).tobytes() for ids in tokens]
