"""Records to table rows and back. What comes back is checked as if a stranger had written it."""

import json
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import byteorder
from typing import Any, get_args

from goalscope import registry
from goalscope.agents.agent import Turn
from goalscope.checks import check_text
from goalscope.ids import canonical_json
from goalscope.rows import Tag
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step
from goalscope.untrusted import UntrustedError, decode_object
from goalscope.worlds.world import StoredWorld, World

Cell = int | float | str | bytes | None
"""A value as SQLite holds it."""

_OUTCOMES = frozenset(get_args(Outcome))
_EMPTY = "{}"
_MOST_TOKEN = 2**32 - 1
_MOST_INTEGER = 2**63 - 1

STEP_COLUMNS = "step, row, col, flags, action, failure, text, reasoning, prompt_tokens, output_tokens, reward, extra"
TURN_COLUMNS = "action, failure, text, reasoning, prompt_tokens, output_tokens, usage, extra"
EPISODE_COLUMNS = (
    "id, world_id, agent_id, trajectory, seed, horizon, rules, agent, outcome, row, col, flags, length, tags"
)
WORLD_COLUMNS = "id, grid, fog_radius, cluster, tags"


def encode_json(value: Mapping[str, Any]) -> str:
    """Return canonical JSON of a mapping with text keys."""
    return canonical_json(value) if value else _EMPTY


def decode_json(cell: Cell, what: str) -> dict[str, Any]:
    """Return the mapping of a JSON text.

    Raises:
        ValueError: no text, no JSON, or JSON of something else than a mapping.
    """
    if cell == _EMPTY:
        return {}
    if not isinstance(cell, str):
        raise ValueError(f"{what} must be stored as JSON text, got {type(cell).__name__}")
    try:
        return decode_object(cell, strict=False)
    except UntrustedError as error:
        raise ValueError(f"{what} must be stored as JSON, got {cell[:80]!r}: {error}") from error


def encode_tags(tags: Mapping[str, Tag]) -> str:
    """Return tags as canonical JSON.

    Raises:
        TypeError: a tag is neither text nor number, boolean or None.
        ValueError: half of a surrogate pair in a name or a text.
    """
    for name, tag in tags.items():
        check_text("the name of a tag", name)
        if isinstance(tag, str):
            check_text(f"tag {name!r}", tag)
        elif tag is not None and not isinstance(tag, int | float | bool):
            raise TypeError(f"tag {name!r} must be text, a number, a boolean or None, got {type(tag).__name__}")
    return encode_json(tags)


def decode_tags(cell: Cell, what: str) -> dict[str, Tag]:
    """Return tags from JSON.

    Raises:
        ValueError: no JSON mapping, or a tag that is no plain value.
    """
    tags = decode_json(cell, what)
    for name, tag in tags.items():
        if isinstance(tag, dict | list):
            raise ValueError(f"tag {name!r} of {what} must be a plain value, got {tag!r}")
    return tags


def encode_text(text: str | None) -> str | bytes | None:
    """Return text as SQLite can hold it: half of a surrogate pair has no UTF-8 form and goes in as bytes."""
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def decode_text(cell: Cell, what: str) -> str | None:
    """Return text from a cell.

    Raises:
        ValueError: another kind of value.
    """
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "surrogatepass")
    raise ValueError(f"{what} must be stored as text, got {cell!r}")


def encode_tokens(tokens: Sequence[int] | None) -> bytes | None:
    """Return token ids as little-endian 32-bit words.

    Raises:
        ValueError: an id outside of 0 .. 2**32 - 1.
    """
    if tokens is None:
        return None
    try:
        words = array("I", tokens)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"token ids must be whole numbers in 0..{_MOST_TOKEN}, got {list(tokens)[:20]}") from error
    if byteorder == "big":
        words.byteswap()
    return words.tobytes()


def decode_tokens(cell: Cell, what: str) -> tuple[int, ...] | None:
    """Return token ids from a cell.

    Raises:
        ValueError: no bytes, or not a whole number of 32-bit words.
    """
    if cell is None:
        return None
    if not isinstance(cell, bytes) or len(cell) % 4:
        raise ValueError(f"{what} must be stored as 32-bit words, got {type(cell).__name__}")
    words = array("I", cell)
    if byteorder == "big":
        words.byteswap()
    return tuple(words)


def encode_step(step: Step, world: World) -> tuple[Cell, ...]:
    """Return the columns `STEP_COLUMNS` of a step in this world.

    Raises:
        ValueError: a position outside of the grid, a token id out of range, a reward that is not finite.
    """
    if step.reward is not None and not math.isfinite(step.reward):
        raise ValueError(f"a reward must be a finite number or None, got {step.reward!r} at step {step.index}")
    return (
        step.index,
        *encode_state(step.state, world),
        None if step.action is None else int(step.action),
        encode_text(step.failure),
        encode_text(step.text),
        encode_text(step.reasoning),
        encode_tokens(step.prompt_tokens),
        encode_tokens(step.output_tokens),
        None if step.reward is None else float(step.reward),
        encode_json(step.extra),
    )


def decode_step(cells: Sequence[Cell], state: tuple[int, ...], world: World) -> Step:
    """Return a step from its columns; ``state`` is what `decode_state` made of them.

    Raises:
        ValueError: columns that are no step.
    """
    index, _, _, _, action, failure, text, reasoning, prompt, output, reward, extra = cells
    if not isinstance(index, int):
        raise ValueError(f"a step's number must be stored as a whole number, got {index!r}")
    if reward is not None and not isinstance(reward, float):
        raise ValueError(f"a reward must be stored as a number, got {reward!r}")
    return Step(
        index=index,
        state=state,
        action=None if action is None else world.action(action),  # type: ignore[arg-type]
        failure=decode_text(failure, "a failure"),
        text=decode_text(text, "an answer"),
        reasoning=decode_text(reasoning, "a reasoning"),
        prompt_tokens=decode_tokens(prompt, "prompt tokens"),
        output_tokens=decode_tokens(output, "output tokens"),
        reward=reward,
        extra=decode_json(extra, "the extra values of a step"),
    )


def decode_action(cell: Cell) -> int | None:
    """Return an action from its number; the world of its episode says what it stands for.

    Raises:
        ValueError: another value than None and a whole number from 0 on.
    """
    if cell is not None and (not isinstance(cell, int) or cell < 0):
        raise ValueError(f"an action must be stored as a number from 0 on, got {cell!r}")
    return cell


def encode_turn(turn: Turn) -> tuple[Cell, ...]:
    """Return the columns `TURN_COLUMNS` of a turn."""
    return (
        None if turn.action is None else int(turn.action),
        encode_text(turn.failure),
        encode_text(turn.text),
        encode_text(turn.reasoning),
        encode_tokens(turn.prompt_tokens),
        encode_tokens(turn.output_tokens),
        encode_json(turn.usage),
        encode_json(turn.extra),
    )


def decode_turn(cells: Sequence[Cell]) -> Turn:
    """Return a turn from its columns.

    Raises:
        ValueError: columns that are no turn.
    """
    action, failure, text, reasoning, prompt, output, usage, extra = cells
    return Turn(
        action=decode_action(action),
        failure=decode_text(failure, "a failure"),
        text=decode_text(text, "an answer"),
        reasoning=decode_text(reasoning, "a reasoning"),
        prompt_tokens=decode_tokens(prompt, "prompt tokens"),
        output_tokens=decode_tokens(output, "output tokens"),
        usage=decode_json(usage, "usage"),
        extra=decode_json(extra, "the extra values of a turn"),
    )


def encode_state(state: tuple[int, ...], world: World) -> tuple[Cell, Cell, Cell]:
    """Return the columns row, col and flags of a state; a state of another form stands as JSON in the first of them."""
    if not world.planar:
        return canonical_json([int(number) for number in state]), 0, 0
    row, col, flags = state
    if not (type(row) is type(col) is int and 0 <= row < world.grid.height and 0 <= col < world.grid.width):
        row, col = world.grid.check_cell((row, col))  # raises, or makes plain ones of other whole numbers
    return row, col, flags


def decode_state(row: Cell, col: Cell, flags: Cell, world: World) -> tuple[int, ...]:
    """Return a state from its columns.

    Raises:
        ValueError: no state of the world.
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
    """Return the columns `WORLD_COLUMNS` of a world; worlds other than grids stand as JSON in place of the grid."""
    cluster = check_text("the cluster of a world", world.cluster)
    return world.id, world.stored, world.fog_radius, cluster, encode_tags(world.tags)


def decode_world(cells: Sequence[Cell]) -> World:
    """Return a world from its columns.

    Raises:
        ValueError: columns that are no world, or whose id belongs to another one.
    """
    identity, text, fog_radius, cluster, tags = cells
    if not isinstance(text, str) or not isinstance(cluster, str):
        raise ValueError(f"world {identity!r} must be stored as text, got {text!r} and {cluster!r}")
    if fog_radius is not None and not isinstance(fog_radius, int):
        raise ValueError(f"the fog radius of world {identity!r} must be a whole number, got {fog_radius!r}")
    what = f"world {identity!r}"
    known = decode_tags(tags, what)
    kind: Any = "grid"
    plain: Any = {"grid": text, "fog_radius": fog_radius}
    if text.startswith("{"):  # no grid begins so
        if fog_radius is not None:
            raise ValueError(f"{what} must be without fog radius, as every world but grids, got {fog_radius}")
        read = decode_json(text, what)
        kind, plain = (
            (read["kind"], read["world"]) if set(read) == {"kind", "world"} else ("task-map", {"task_map": read})
        )
    if kind in registry.names("world"):
        world: World = registry.resolve("world", kind).world.from_plain(plain, cluster=cluster, tags=known)
    else:
        world = StoredWorld(name=str(kind), plain=plain, cluster=cluster, tags=known)
    if world.id != identity:
        raise ValueError(f"a world must be stored under its content id {world.id}, got {identity!r}")
    return world


def encode_episode(episode: Episode) -> tuple[Cell, ...]:
    """Return the columns `EPISODE_COLUMNS` of an episode.

    Raises:
        ValueError: a number beyond 64 bits, an unknown outcome, or a final state outside of the grid.
    """
    spec = episode.spec
    for name, number in (("seed", spec.seed), ("trajectory", spec.trajectory), ("horizon", spec.horizon)):
        if not -_MOST_INTEGER <= number <= _MOST_INTEGER:
            raise ValueError(f"{name} must fit into 64 bits, got {number}")
    if episode.outcome not in _OUTCOMES:
        raise ValueError(f"an outcome must be one of {', '.join(sorted(_OUTCOMES))}, got {episode.outcome!r}")
    return (
        spec.id,
        spec.world_id,
        spec.agent_id,
        int(spec.trajectory),
        int(spec.seed),
        int(spec.horizon),
        spec.rules,
        check_text("the name of an agent", episode.agent),
        episode.outcome,
        *encode_state(episode.final, episode.world),
        len(episode.steps),
        encode_tags(episode.tags),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """All of an episode but its world, its steps and its states; fields as in `Episode`."""

    spec: EpisodeSpec
    agent: str
    outcome: Outcome
    tags: Mapping[str, Tag]


def decode_head(cells: Sequence[Cell]) -> Head:
    """Return what the columns of an episode say beside its states and its number of steps.

    Raises:
        ValueError: columns that are no episode, or whose id belongs to another one.
    """
    identity, world_id, agent_id, trajectory, seed, horizon, rules, agent, outcome, *_, tags = cells
    texts = (world_id, agent_id, rules, agent, outcome)
    numbers = (trajectory, seed, horizon)
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"episode {identity!r} must be stored as text and whole numbers, got {texts}, {numbers}")
    spec = EpisodeSpec(
        world_id=str(world_id),
        agent_id=str(agent_id),
        trajectory=int(trajectory or 0),
        seed=int(seed or 0),
        horizon=int(horizon or 0),
        rules=str(rules),
    )
    if spec.id != identity:
        raise ValueError(f"an episode must be stored under its content id {spec.id}, got {identity!r}")
    if outcome not in _OUTCOMES:
        raise ValueError(f"the outcome of {identity!r} must be one of {', '.join(sorted(_OUTCOMES))}, got {outcome!r}")
    return Head(
        spec=spec,
        agent=str(agent),
        outcome=outcome,  # type: ignore[arg-type]
        tags=decode_tags(tags, f"episode {identity!r}"),
    )


def decode_episode(cells: Sequence[Cell], world: World, steps: tuple[Step, ...]) -> Episode:
    """Return an episode from its columns, its world and its steps.

    Raises:
        ValueError: columns that are no episode, whose id belongs to another one, or another number of steps.
    """
    head = decode_head(cells)
    row, col, flags, length = cells[9:13]
    if length != len(steps):
        raise ValueError(f"episode {cells[0]!r} must have its {length!r} steps, got {len(steps)}: the file is damaged")
    return Episode(
        spec=head.spec,
        world=world,
        agent=head.agent,
        steps=steps,
        final=decode_state(row, col, flags, world),
        outcome=head.outcome,
        tags=head.tags,
    )
