"""Convert records to table rows and back, and the steps of an episode to two blobs. What is read is untrusted.

The walk of an episode contains states and actions, which suffice for most measures: a letter for the width of its
integers, then row, col, flags and action of each step (-1 for a turn without a valid move). If a state is not a cell of
a grid, the walk is JSON, a list of such lists.

Its outputs are the rest; they are empty if there are none: a byte with `REWARDED` and `MARKED`, the length of a JSON
text in four bytes, that text (a list for each of `_SAID`, or null; token ids are replaced by their counts), and all
token ids as 32-bit words.
"""

import json
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from struct import iter_unpack, unpack_from
from sys import byteorder
from typing import Any, Final, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.checks import check_text
from goalscope._ground.ids import canonical_json
from goalscope._ground.untrusted import DamagedError, UntrustedError, decode_object
from goalscope._ground.untrusted import decode_json as decode_value
from goalscope.agents.agent import Turn
from goalscope.runs.record import NO_ACTION, Episode, EpisodeSpec, Outcome, Step, StoredSteps
from goalscope.stats.rows import Tag
from goalscope.worlds.world import StoredWorld, World

Cell = int | float | str | bytes | None
"""A value of a table cell in SQLite."""

_OUTCOMES = frozenset(get_args(Outcome))
EMPTY = "{}"
"""The stored form of an empty mapping."""
_MAX_TOKEN = 2**32 - 1
_MAX_INTEGER = 2**63 - 1

_ANSWER_COLUMNS = "failure, text, reasoning, prompt_tokens, output_tokens"
STEP_COLUMNS = f"step, row, col, flags, action, {_ANSWER_COLUMNS}, reward, extra"
TURN_COLUMNS = f"action, {_ANSWER_COLUMNS}, usage, extra"
EPISODE_COLUMNS = (
    "id, world_id, agent_id, trajectory, seed, horizon, rules, agent, outcome, row, col, flags, length, tags"
)
_EPISODE = EPISODE_COLUMNS.split(", ")
_NUMBERS = ("trajectory", "seed", "horizon")
WORLD_COLUMNS = "id, grid, fog_radius, cluster, tags"


# Values


def encode_json(value: Mapping[str, Any]) -> str:
    """Return a mapping as canonical JSON: the same text for equal mappings, whatever the order of their keys."""
    return canonical_json(value) if value else EMPTY


def decode_json(cell: Cell, name: str) -> dict[str, Any]:
    """Return the mapping in a stored JSON text.

    Args:
        cell: the value of a table cell.
        name: what is stored there, for errors.

    Raises:
        ValueError: the value is not the text of a JSON object.
    """
    if cell == EMPTY:
        return {}
    if not isinstance(cell, str):
        raise ValueError(f"{name} must be stored as JSON text, got {type(cell).__name__}")
    try:
        return decode_object(cell, strict=False)
    except UntrustedError as error:
        raise ValueError(f"{name} must be stored as JSON, got {cell[:80]!r}: {error}") from error


def encode_tags(tags: Mapping[str, Tag]) -> str:
    """Return tags (named values by which results are grouped, such as ``size: 7``) as canonical JSON, to store them.

    Raises:
        TypeError: a tag is not text, a number, a boolean or None.
        ValueError: a name or text contains half of a surrogate pair.
    """
    for name, tag in tags.items():
        check_text("the name of a tag", name)
        if isinstance(tag, str):
            check_text(f"tag {name!r}", tag)
        elif tag is not None and not isinstance(tag, int | float | bool):
            raise TypeError(f"tag {name!r} must be text, a number, a boolean or None, got {type(tag).__name__}")
    return encode_json(tags)


def decode_tags(cell: Cell, place: str) -> dict[str, Tag]:
    """Return the tags (named values by which results are grouped) from their stored JSON text.

    Args:
        cell: the value of a table cell.
        place: what the tags belong to, for errors.

    Raises:
        ValueError: the text is not a JSON object, or a tag is a list or an object.
    """
    tags = decode_json(cell, place)
    for name, tag in tags.items():
        if isinstance(tag, dict | list):
            raise ValueError(f"tag {name!r} of {place} must be a plain value, got {tag!r}")
    return tags


def encode_text(text: str | None) -> str | bytes | None:
    """Return a text in a form that SQLite can store.

    Text that contains half of a surrogate pair, which has no UTF-8 form, becomes bytes; all other text and None are
    unchanged.
    """
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def decode_text(cell: Cell, name: str) -> str | None:
    """Return the text that `encode_text` encoded, or None.

    Raises:
        ValueError: the value is neither text, bytes nor None; the message says what ``name`` is.
    """
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "surrogatepass")
    raise ValueError(f"{name} must be stored as text, got {cell!r}")


def _encode_tokens(tokens: Sequence[int] | None) -> bytes | None:
    """Return token ids as little-endian 32-bit words."""
    return None if tokens is None else _little(_token_words(tokens)).tobytes()


def _token_words(tokens: Sequence[int]) -> "array[int]":
    try:
        return array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids must be integers in 0..{_MAX_TOKEN}, got {list(tokens)[:20]}") from error


def _little(words: "array[int]") -> "array[int]":
    """Convert integers to little-endian bytes, or such bytes to integers."""
    if byteorder == "big":
        words.byteswap()
    return words


def _decode_tokens(cell: Cell, name: str) -> tuple[int, ...] | None:
    if cell is None:
        return None
    if not isinstance(cell, bytes) or len(cell) % 4:
        raise ValueError(f"{name} must be stored as 32-bit words, got {type(cell).__name__}")
    return tuple(_little(array("I", cell)))


def _encode_answer(answer: Turn) -> tuple[Cell, ...]:
    """Return the columns "action" and `_ANSWER_COLUMNS`."""
    return (
        None if answer.action is None else int(answer.action),
        encode_text(answer.failure),
        encode_text(answer.text),
        encode_text(answer.reasoning),
        _encode_tokens(answer.prompt_tokens),
        _encode_tokens(answer.output_tokens),
    )


def _decode_answer(failure: Cell, text: Cell, reasoning: Cell, prompt: Cell, output: Cell) -> dict[str, Any]:
    return {
        "failure": decode_text(failure, "a failure"),
        "text": decode_text(text, "an answer"),
        "reasoning": decode_text(reasoning, "a reasoning"),
        "prompt_tokens": _decode_tokens(prompt, "prompt tokens"),
        "output_tokens": _decode_tokens(output, "output tokens"),
    }


# Records


def decode_reward(reward: Cell) -> float | None:
    """Check that the stored reward of a step is a float, or None for no reward, and return it.

    Raises:
        ValueError: it is anything else.
    """
    if reward is not None and not isinstance(reward, float):
        raise ValueError(f"a reward must be stored as a number, got {reward!r}")
    return reward


def encode_turn(turn: Turn) -> tuple[Cell, ...]:
    """Return an agent's turn as the values of the table columns `TURN_COLUMNS`: action, failure, texts, tokens and
    costs.
    """
    return *_encode_answer(turn), encode_json(turn.usage), encode_json(turn.extra)


def decode_turn(cells: Sequence[Cell]) -> Turn:
    """Return an agent's turn from the values of the table columns `TURN_COLUMNS`.

    The number of its action is not checked here, because its meaning depends on the world of the episode.

    Raises:
        ValueError: a value cannot have been stored by `encode_turn`.
    """
    action, *answer, usage, extra = cells
    if action is not None and (not isinstance(action, int) or action < 0):
        raise ValueError(f"an action must be stored as a number from 0 on, got {action!r}")
    return Turn(
        action=action,
        usage=decode_json(usage, "usage"),
        extra=decode_json(extra, "the extra values of a turn"),
        **_decode_answer(*answer),
    )


def encode_state(state: tuple[int, ...], world: World) -> tuple[Cell, Cell, Cell]:
    """Return the state of a world as values of the table columns row, col and flags.

    A state that is not a cell of a grid is stored as JSON in the first column, and 0 in the others.

    Raises:
        ValueError: the cell lies outside the grid.
    """
    if "cells" not in world.offers:
        return canonical_json([int(number) for number in state]), 0, 0
    row, col, flags = state
    if not (type(row) is type(col) is int and 0 <= row < world.grid.height and 0 <= col < world.grid.width):
        # raises an error for non-integers and converts NumPy integers to plain ones
        row, col = world.grid.check_cell((row, col))
    return row, col, flags


def decode_state(row: Cell, col: Cell, flags: Cell, world: World) -> tuple[int, ...]:
    """Return the state of a world from the table columns row, col and flags, which `encode_state` wrote.

    Raises:
        ValueError: the values are not a state of this world.
    """
    if not isinstance(row, str):
        return world.check_state((row, col, flags))
    try:
        numbers = json.loads(row)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a state must be stored as numbers, got {row[:80]!r}: {error}") from error
    if not isinstance(numbers, list):
        raise ValueError(f"a state must be stored as a list of numbers, got {row[:80]!r}")
    return world.check_state(tuple(numbers))


def encode_world(world: World) -> tuple[Cell, ...]:
    """Return a world as values of the table columns `WORLD_COLUMNS` (id, grid, fog_radius, cluster, tags).

    A world that is not a grid is stored as JSON in the column of the grid.
    """
    cluster = check_text("the cluster of a world", world.cluster)
    return world.id, world.stored, world.fog_radius, cluster, encode_tags(world.tags)


def decode_world(cells: Sequence[Cell]) -> World:
    """Return a world from the values of the table columns `WORLD_COLUMNS` (id, grid, fog_radius, cluster, tags).

    A world whose kind is not installed here is returned as a `StoredWorld`, which keeps its description only.

    Raises:
        ValueError: the values do not describe a world, or do not match its id.
    """
    identity, text, fog_radius, cluster, tags = cells
    name = f"world {identity!r}"
    if not isinstance(text, str) or not isinstance(cluster, str):
        raise ValueError(f"{name} must be stored as text, got {text!r} and {cluster!r}")
    if fog_radius is not None and not isinstance(fog_radius, int):
        raise ValueError(f"the fog radius of {name} must be a whole number, got {fog_radius!r}")
    decoded_tags = decode_tags(tags, name)
    kind: Any = "grid"
    plain: Any = {"grid": text, "fog_radius": fog_radius}
    if text.startswith("{"):  # the text of a grid never begins like this
        if fog_radius is not None:
            raise ValueError(f"{name} must not have a fog radius, because only grids have one, got {fog_radius}")
        kind, plain = "task-map", {"task_map": decode_json(text, name)}
        if set(plain["task_map"]) == {"kind", "world"}:
            kind, plain = plain["task_map"]["kind"], plain["task_map"]["world"]
    if kind in registry.names("world"):
        world: World = registry.resolve("world", kind).world.from_plain(plain, cluster=cluster, tags=decoded_tags)
    else:
        world = StoredWorld(name=str(kind), plain=plain, cluster=cluster, tags=decoded_tags)
    if world.id != identity:
        raise ValueError(f"world {world.id} is stored under another content id, {identity!r}: the file is damaged")
    return world


def encode_episode(episode: Episode) -> tuple[Cell, ...]:
    """Return everything of an episode except its steps as values of the table columns `EPISODE_COLUMNS`."""
    final = encode_state(episode.final, episode.world)
    tags = encode_tags(episode.tags)
    return encode_head(episode.spec, episode.agent, episode.outcome, final, len(episode.steps), tags)


def encode_head(
    spec: EpisodeSpec, agent: str, outcome: str, final: Sequence[Cell], length: int, tags: str
) -> tuple[Cell, ...]:
    """Return everything of an episode except its steps as values of the table columns `EPISODE_COLUMNS`.

    Unlike `encode_episode`, it takes the parts of the episode one by one, for episodes that were computed as arrays.

    Args:
        spec: specification of the episode.
        agent: short name of the agent.
        outcome: how the episode ended.
        final: the columns of its last state.
        length: number of its steps.
        tags: its tags from `encode_tags`.

    Raises:
        ValueError: a number does not fit into 64 bits, or the outcome is unknown.
    """
    for name in _NUMBERS:
        if not -_MAX_INTEGER <= (number := getattr(spec, name)) <= _MAX_INTEGER:
            raise ValueError(f"{name} must fit into 64 bits, got {number}")
    if outcome not in _OUTCOMES:
        raise ValueError(f"an outcome must be one of {', '.join(sorted(_OUTCOMES))}, got {outcome!r}")
    ids = (spec.id, spec.world_id, spec.agent_id)
    numbers = [int(getattr(spec, name)) for name in _NUMBERS]
    return *ids, *numbers, spec.rules, check_text("the name of an agent", agent), outcome, *final, length, tags


def decode_head(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return everything of an episode except its steps from the table columns `EPISODE_COLUMNS`.

    Returns:
        A mapping with ``spec``, ``agent``, ``outcome`` and ``tags``, as arguments of `Episode`.

    Raises:
        ValueError: a value is invalid, or the columns do not match the episode's id.
    """
    columns: dict[str, Any] = dict(zip(_EPISODE, cells, strict=True))
    episode_name, outcome = f"episode {columns['id']!r}", columns["outcome"]
    for kind, names in ((str, ("world_id", "agent_id", "rules", "agent", "outcome")), (int, _NUMBERS)):
        if not all(isinstance(columns[name], kind) for name in names):
            values = [columns[name] for name in names]
            raise ValueError(
                f"{episode_name} must be stored as text and whole numbers, got {values} for {', '.join(names)}"
            )
    spec = EpisodeSpec(**{name: columns[name] for name in ("world_id", "agent_id", *_NUMBERS, "rules")})
    if spec.id != columns["id"]:
        raise ValueError(
            f"episode {spec.id} is stored under another content id, {columns['id']!r}: the file is damaged"
        )
    if outcome not in _OUTCOMES:
        raise ValueError(
            f"the outcome of {episode_name} must be one of {', '.join(sorted(_OUTCOMES))}, got {outcome!r}"
        )
    return {
        "spec": spec,
        "agent": columns["agent"],
        "outcome": outcome,
        "tags": decode_tags(columns["tags"], episode_name),
    }


def decode_episode(cells: Sequence[Cell], world: World, steps: Sequence[Step]) -> Episode:
    """Return an episode from its table columns `EPISODE_COLUMNS`, its world and its steps.

    Raises:
        DamagedError: the number of steps differs from the stored number.
        ValueError: a value is invalid, or the columns do not match the episode's id.
    """
    head = decode_head(cells)
    row, col, flags, length = cells[9:13]
    if length != len(steps):
        raise DamagedError(
            f"episode {cells[0]!r} must have its {length!r} steps, got {len(steps)}: the file is damaged"
        )
    return Episode(world=world, steps=steps, final=decode_state(row, col, flags, world), **head)


# Steps

REWARDED, MARKED = 1, 2
"""Bits of the first byte of the outputs: some step has a reward; some step has extra values."""

HAS_REWARD: Final = f"substr(said, 1, 1) IN (x'{REWARDED:02x}', x'{REWARDED + MARKED:02x}')"
HAS_EXTRA: Final = f"substr(said, 1, 1) IN (x'{MARKED:02x}', x'{REWARDED + MARKED:02x}')"
"""SQL conditions on the table of steps."""

_SAID: Final = ("failure", "text", "reasoning", "prompt_tokens", "output_tokens", "reward", "extra")
_DEFAULTS: Final = (None, None, None, None, None, None, EMPTY)
_PROMPT, _OUTPUT, _REWARD, _EXTRA = 3, 4, 5, 6
_WIDTHS: Final = {"b": 1, "h": 2, "q": 8}
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
WALK_WIDTH: Final = 4  # row, col, flags, action


class PackedSteps(NamedTuple):
    """The steps of an episode in their stored form, two byte strings.

    ``walk`` has states and actions. ``said`` has everything else (texts, token ids, rewards, ...); it is empty if there
    is nothing else.
    """

    walk: bytes
    said: bytes


Columns = Sequence[Sequence[Any] | None]
"""The columns `_SAID` of an episode's steps, with token ids as sequences of integers; None for a default column."""


def pack_steps(steps: Sequence[Step], world: World) -> PackedSteps:
    """Pack the steps of an episode in a world into the two byte strings in which they are stored.

    Raises:
        ValueError: a state lies outside the world, a reward is not finite, or a token id has more than 32 bits.
    """
    for step in steps:
        if step.reward is not None and not math.isfinite(step.reward):
            raise ValueError(f"a reward must be a finite number or None, got {step.reward!r} at step {step.index}")
    columns: list[list[Any]] = [[getattr(step, name) for step in steps] for name in _SAID]
    columns[_REWARD] = [None if reward is None else float(reward) for reward in columns[_REWARD]]
    columns[_EXTRA] = [encode_json(extra) for extra in columns[_EXTRA]]
    walk = [
        (*encode_state(step.state, world), NO_ACTION if step.action is None else int(step.action)) for step in steps
    ]
    return PackedSteps(pack_walk(walk), pack_said(columns))


def pack_walk(walk: Sequence[Sequence[Any]]) -> bytes:
    """Pack the states and actions of an episode into as few bytes as possible.

    Args:
        walk: (row, col, flags, action) for each step, with action -1 for a turn without a valid move.
    """
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
    """Pack the states and actions of an episode on a grid like `pack_walk`, but faster.

    Args:
        walk: ``[T, 4]`` row, column, flags and action of each of T steps, with action -1 for a turn without a valid
            move.
    """
    least, most = (int(walk.min()), int(walk.max())) if len(walk) else (0, 0)
    width, count = next(
        (width, count)
        for width, count in _WIDTHS.items()
        if -(1 << (8 * count - 1)) <= least and most < 1 << (8 * count - 1)
    )
    return width.encode() + walk.astype(f"<i{count}").tobytes()


def pack_said(columns: Columns) -> bytes:
    """Pack what the steps of an episode have besides states and actions, such as texts and token ids, into bytes.

    Args:
        columns: one sequence with a value per step for each of failure, text, reasoning, prompt tokens, output tokens,
            reward and extra values; None for a column without values.

    Returns:
        The bytes; empty if no column has a value.
    """
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
                    words.extend(_token_words(tokens))
            filled_columns[at] = [None if tokens is None else len(tokens) for tokens in column]
    head = _PLAIN.encode(filled_columns).encode("utf-8", "surrogatepass")
    flags = REWARDED * (filled_columns[_REWARD] is not None) + MARKED * (filled_columns[_EXTRA] is not None)
    return bytes([flags]) + len(head).to_bytes(4, "little") + head + _little(words).tobytes()


def walk_numbers(walk: Any) -> npt.NDArray[np.int64]:
    """Return the stored states and actions of an episode on a grid as ``[T, 4]``: row, column, flags and action of T
    steps.

    Raises:
        ValueError: the bytes are damaged, or contain states that are not cells of a grid.
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
    """Return the stored states and actions of an episode: (row, col, flags, action) for each step.

    If a state is not a cell of a grid, ``row`` is its JSON text.

    Raises:
        ValueError: the bytes are damaged.
    """
    if not isinstance(walk, bytes):
        raise ValueError(f"a walk must be stored as bytes, got {type(walk).__name__}")
    if walk[:1].decode("latin-1") in _WIDTHS:
        return list(map(tuple, walk_numbers(walk).tolist()))
    if walk[:1] != b"[":
        raise ValueError(f"a walk must begin with the width of its numbers, got {walk[:20]!r}")
    steps = _decoded(walk, "a walk")
    if not isinstance(steps, list) or not all(isinstance(step, list) and len(step) == WALK_WIDTH for step in steps):
        raise ValueError(f"a walk must be stored as {WALK_WIDTH} values a step, got {walk[:80]!r}")
    return list(map(tuple, steps))


def unpack_failures(outputs: Any, steps: int) -> list[Any]:
    """Return for each step of an episode the name of its failure; None for a turn with a valid move.

    Args:
        outputs: the stored bytes `PackedSteps.said`.
        steps: number of steps.

    Raises:
        ValueError: `pack_said` cannot have written the bytes.
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
        return decode_value(octets.decode("utf-8", "surrogatepass"), strict=False)
    except (UntrustedError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} must be stored as JSON, got {octets[:80]!r}: {error}") from error


def unpack_steps(packed: PackedSteps, world: World) -> StoredSteps:
    """Return the steps of an episode from their stored form, given the world of the episode.

    Equal states share one object, also over episodes.

    Raises:
        ValueError: `pack_steps` cannot have written the bytes.
    """
    walk = unpack_walk(packed.walk)
    failure, text, reasoning, prompt, output, reward, extra = _unpack_said(packed.said, len(walk))
    *places, numbers = zip(*walk, strict=True) if walk else ((), (), (), ())
    cells = list(zip(*places, strict=True))
    if packed.walk[:1] == b"[":
        states = {cell: decode_state(cell[0], cell[1], cell[2], world) for cell in set(cells)}
    else:
        states = _checked_states(world.id)
        states |= {cell: world.check_state(cell) for cell in set(cells).difference(states)}
    actions = {number: None if number == NO_ACTION else world.action(number) for number in set(numbers)}
    if [number == NO_ACTION for number in numbers] != [cell is not None for cell in failure]:
        raise ValueError("a step must hold either an action or the name of a failure, got both or neither")
    columns = {
        "index": range(len(walk)),
        "state": list(map(states.__getitem__, cells)),
        "action": list(map(actions.__getitem__, numbers)),
        "failure": _each(decode_text, failure, "a failure"),
        "text": _each(decode_text, text, "an answer"),
        "reasoning": _each(decode_text, reasoning, "a reasoning"),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "reward": _each(decode_reward, reward),
        "extra": [{} if cell == EMPTY else decode_json(cell, "the extra values of a step") for cell in extra],
    }
    return StoredSteps(columns)


@lru_cache(maxsize=16)
def _checked_states(world_id: str) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Return the states of a world that were read before; episodes of one world are stored one after another."""
    return {}


def _each(decode: Callable[..., Any], cells: list[Any], *names: str) -> list[Any]:
    """Return the cells of a column, unchanged; raise an error if ``decode`` refuses the type of one of them."""
    for kind in set(map(type, cells)) - {type(None)}:
        decode(next(cell for cell in cells if type(cell) is kind), *names)
    return cells


def step_cells(packed: PackedSteps) -> list[tuple[Cell, ...]]:
    """Convert the stored steps of an episode to rows of the table of steps, without building `Step` objects.

    Args:
        packed: the steps in their stored form.

    Returns:
        For each step, the values of the columns `STEP_COLUMNS`; columns of token ids contain bytes.

    Raises:
        ValueError: the stored bytes are damaged.
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
            *(encode_text(text) if isinstance(text, str) else text for text in answer[:3]),
            *map(_encode_tokens, answer[3:5]),
            *answer[5:],
        )
        for index, ((row, col, flags, action), answer) in enumerate(zip(walk, outputs_by_step, strict=True))
    ]
