"""Convert records to table rows and back. Rows are validated as untrusted input."""

import json
from array import array
from collections.abc import Mapping, Sequence
from sys import byteorder
from typing import Any, get_args

from goalscope._ground import registry
from goalscope._ground.checks import check_text
from goalscope._ground.ids import canonical_json
from goalscope._ground.untrusted import DamagedError, UntrustedError, decode_object
from goalscope.agents.agent import Turn
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step
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
    """Return a mapping with text keys as canonical JSON."""
    return canonical_json(value) if value else EMPTY


def decode_json(cell: Cell, name: str) -> dict[str, Any]:
    """Return the mapping in a stored JSON text. ``name`` says in errors where the text was stored."""
    if cell == EMPTY:
        return {}
    if not isinstance(cell, str):
        raise ValueError(f"{name} must be stored as JSON text, got {type(cell).__name__}")
    try:
        return decode_object(cell, strict=False)
    except UntrustedError as error:
        raise ValueError(f"{name} must be stored as JSON, got {cell[:80]!r}: {error}") from error


def encode_tags(tags: Mapping[str, Tag]) -> str:
    """Return tags as canonical JSON.

    Raises:
        TypeError: if a tag is not text, a number, a boolean or None.
        ValueError: if a name or text contains half of a surrogate pair.
    """
    for name, tag in tags.items():
        check_text("the name of a tag", name)
        if isinstance(tag, str):
            check_text(f"tag {name!r}", tag)
        elif tag is not None and not isinstance(tag, int | float | bool):
            raise TypeError(f"tag {name!r} must be text, a number, a boolean or None, got {type(tag).__name__}")
    return encode_json(tags)


def decode_tags(cell: Cell, place: str) -> dict[str, Tag]:
    """Return tags from JSON.

    Raises:
        ValueError: if the text is not a JSON mapping, or a tag is not a plain value.
    """
    tags = decode_json(cell, place)
    for name, tag in tags.items():
        if isinstance(tag, dict | list):
            raise ValueError(f"tag {name!r} of {place} must be a plain value, got {tag!r}")
    return tags


def encode_text(text: str | None) -> str | bytes | None:
    """Return text as SQLite can store it: half of a surrogate pair has no UTF-8 form, so such text becomes bytes."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def decode_text(cell: Cell, name: str) -> str | None:
    """Return the text that `encode_text` encoded."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "surrogatepass")
    raise ValueError(f"{name} must be stored as text, got {cell!r}")


def _encode_tokens(tokens: Sequence[int] | None) -> bytes | None:
    """Return token ids as little-endian 32-bit words."""
    if tokens is None:
        return None
    try:
        words = array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids must be whole numbers in 0..{_MAX_TOKEN}, got {list(tokens)[:20]}") from error
    if byteorder == "big":
        words.byteswap()
    return words.tobytes()


def _decode_tokens(cell: Cell, name: str) -> tuple[int, ...] | None:
    if cell is None:
        return None
    if not isinstance(cell, bytes) or len(cell) % 4:
        raise ValueError(f"{name} must be stored as 32-bit words, got {type(cell).__name__}")
    words = array("I", cell)
    if byteorder == "big":
        words.byteswap()
    return tuple(words)


def _encode_answer(answer: Turn) -> tuple[Cell, ...]:
    """Return the columns "action" and `_SAID_COLUMNS`."""
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
    """Return the reward of a step from its stored form."""
    if reward is not None and not isinstance(reward, float):
        raise ValueError(f"a reward must be stored as a number, got {reward!r}")
    return reward


def encode_turn(turn: Turn) -> tuple[Cell, ...]:
    """Return the columns `TURN_COLUMNS` of a turn."""
    return *_encode_answer(turn), encode_json(turn.usage), encode_json(turn.extra)


def decode_turn(cells: Sequence[Cell]) -> Turn:
    """Return a turn from its columns. The meaning of its action depends on the world of the episode."""
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
    """Return the columns row, col and flags of a state. A state that is not a cell becomes JSON in the first column."""
    if "cells" not in world.offers:
        return canonical_json([int(number) for number in state]), 0, 0
    row, col, flags = state
    if not (type(row) is type(col) is int and 0 <= row < world.grid.height and 0 <= col < world.grid.width):
        # raises an error for non-integers and converts NumPy integers to plain ones
        row, col = world.grid.check_cell((row, col))
    return row, col, flags


def decode_state(row: Cell, col: Cell, flags: Cell, world: World) -> tuple[int, ...]:
    """Return a state from its columns."""
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
    """Return the columns `WORLD_COLUMNS` of a world. Worlds other than grids become JSON in the column of the grid."""
    cluster = check_text("the cluster of a world", world.cluster)
    return world.id, world.stored, world.fog_radius, cluster, encode_tags(world.tags)


def decode_world(cells: Sequence[Cell]) -> World:
    """Return a world from its columns."""
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
    """Return the columns `EPISODE_COLUMNS` of an episode."""
    final = encode_state(episode.final, episode.world)
    tags = encode_tags(episode.tags)
    return encode_head(episode.spec, episode.agent, episode.outcome, final, len(episode.steps), tags)


def encode_head(
    spec: EpisodeSpec, agent: str, outcome: str, final: Sequence[Cell], length: int, tags: str
) -> tuple[Cell, ...]:
    """Return the columns `EPISODE_COLUMNS` of an episode of ``length`` steps.

    Args:
        spec: specification of the episode.
        agent: short name of the agent.
        outcome: how the episode ended.
        final: the columns of its last state.
        length: number of its steps.
        tags: its tags from `encode_tags`.
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
    """Return what an episode has besides its steps (specification, agent, outcome and tags) from its columns."""
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


def decode_episode(cells: Sequence[Cell], world: World, steps: tuple[Step, ...]) -> Episode:
    """Return an episode from its columns, its world and its steps."""
    head = decode_head(cells)
    row, col, flags, length = cells[9:13]
    if length != len(steps):
        raise DamagedError(
            f"episode {cells[0]!r} must have its {length!r} steps, got {len(steps)}: the file is damaged"
        )
    return Episode(world=world, steps=steps, final=decode_state(row, col, flags, world), **head)
