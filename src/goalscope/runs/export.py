"""A store for others: as Parquet files with typed columns, and as one hash of all that it has found out."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalscope.extras import lacking
from goalscope.ids import canonical_json
from goalscope.rows import Tag
from goalscope.runs.codec import EPISODE_COLUMNS, STEP_COLUMNS, Cell, decode_json, encode_json
from goalscope.runs.record import Episode, policy_of
from goalscope.runs.sqlite_errors import explained
from goalscope.runs.store import Store
from goalscope.runs.tables import DATABASE
from goalscope.runs.verify import check_rows
from goalscope.worlds.world import World

if TYPE_CHECKING:
    import pyarrow

_GROUP = 256  # episodes of one row group of steps


def export_parquet(store: Store, directory: str | Path) -> dict[str, Path]:
    """Write a store as `worlds.parquet`, `episodes.parquet`, `steps.parquet` and `rows.parquet`.

    Tags become columns of their own, named "tag.<name>", of the narrowest type that holds all their values.

    Args:
        store: the store.
        directory: where the files go, made where it is missing; files of these names are replaced.

    Returns:
        The path of each file by the name of its table.

    Raises:
        ImportError: pyarrow is not installed (it comes with the extra ``export``).
    """
    try:
        import pyarrow
    except ImportError as error:
        raise lacking("export_parquet needs pyarrow", "export", error) from error
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    schemas = _schemas()
    episodes: list[dict[str, Any]] = []
    episode_tags: list[Mapping[str, Tag]] = []

    def steps() -> Iterator["pyarrow.Table"]:
        stored = store.episodes()
        while group := list(islice(stored, _GROUP)):
            episodes.extend(_episode(episode) for episode in group)
            episode_tags.extend(episode.tags for episode in group)
            records = [record for episode in group for record in _steps(episode)]
            yield pyarrow.Table.from_pylist(records, schema=schemas["steps"])

    def columns(tags: Sequence[Mapping[str, Tag]]) -> dict[str, list[Tag]]:
        return {name: [entry.get(name) for entry in tags] for name in dict.fromkeys(chain.from_iterable(tags))}

    paths = {"steps": write_parquet(folder / "steps.parquet", schemas["steps"], steps())}
    worlds, rows = list(store.worlds()), store.rows()
    plain = {name: getattr(rows, name).tolist() for name in schemas["rows"].names}
    for name, made, tags in (
        (
            "worlds",
            pyarrow.Table.from_pylist([_world(world) for world in worlds], schema=schemas["worlds"]),
            columns([w.tags for w in worlds]),
        ),
        ("episodes", pyarrow.Table.from_pylist(episodes, schema=schemas["episodes"]), columns(episode_tags)),
        ("rows", pyarrow.Table.from_pydict(plain, schema=schemas["rows"]), rows.tags),
    ):
        for tag, values in tags.items():
            made = made.append_column(f"tag.{tag}", _narrow(list(values)))
        paths[name] = write_parquet(folder / f"{name}.parquet", made.schema, iter([made]))
    return paths


def write_parquet(path: Path, schema: "pyarrow.Schema", tables: Iterator["pyarrow.Table"]) -> Path:
    """Write a Parquet file, table by table, under a temporary name and put it in place once it is whole."""
    from pyarrow import parquet

    partial = path.with_name(f".{path.name}.partial")
    try:
        with parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


_COLUMNS = {
    "worlds": "world_id grid_id grid fog_radius",
    "episodes": "episode_id world_id grid_id agent_id agent trajectory seed horizon outcome steps final_row final_col",
    "steps": "episode_id step row col carrying_key door_open state action failure text reasoning prompt_tokens "
    "output_tokens reward extra policy",
    "rows": "measure unit value grid_id episode_id step",
}
"""Columns of the tables before their tags; text where `_schemas` says nothing else."""
_NUMBERS = "fog_radius trajectory seed horizon steps final_row final_col step row col"


def _schemas() -> dict[str, "pyarrow.Schema"]:
    import pyarrow

    number, tokens = pyarrow.int64(), pyarrow.list_(pyarrow.uint32())
    kinds = {
        **dict.fromkeys(_NUMBERS.split(), number),
        **dict.fromkeys(("carrying_key", "door_open"), pyarrow.bool_()),
        **dict.fromkeys(("prompt_tokens", "output_tokens"), tokens),
        "state": pyarrow.list_(number),
        **dict.fromkeys(("reward", "value"), pyarrow.float64()),
        "policy": pyarrow.list_(pyarrow.float64()),
    }
    return {
        table: pyarrow.schema([(name, kinds.get(name, pyarrow.string())) for name in names.split()])
        for table, names in _COLUMNS.items()
    }


def _world(world: World) -> dict[str, Any]:
    return {"world_id": world.id, "grid_id": world.grid_id, "grid": world.stored, "fog_radius": world.fog_radius}


def _episode(episode: Episode) -> dict[str, Any]:
    spec, planar = episode.spec, episode.world.planar
    return {
        "episode_id": episode.id,
        "world_id": spec.world_id,
        "grid_id": episode.world.grid_id,
        "agent_id": spec.agent_id,
        "agent": episode.agent,
        "trajectory": spec.trajectory,
        "seed": spec.seed,
        "horizon": spec.horizon,
        "outcome": episode.outcome,
        "steps": len(episode.steps),
        "final_row": episode.final[0] if planar else None,
        "final_col": episode.final[1] if planar else None,
    }


def _steps(episode: Episode) -> Iterator[dict[str, Any]]:
    planar = episode.world.planar
    for step in episode.steps:
        yield {
            "episode_id": episode.id,
            "step": step.index,
            "row": step.state[0] if planar else None,
            "col": step.state[1] if planar else None,
            "carrying_key": step.state.carrying_key if planar else None,
            "door_open": step.state.door_open if planar else None,
            "state": list(step.state),
            "action": None if step.action is None else step.action.name if planar else str(step.action),
            "failure": _utf8(step.failure),
            "text": _utf8(step.text),
            "reasoning": _utf8(step.reasoning),
            "prompt_tokens": step.prompt_tokens,
            "output_tokens": step.output_tokens,
            "reward": step.reward,
            "extra": canonical_json(step.extra) if step.extra else None,
            "policy": policy_of(step),
        }


def _narrow(values: Sequence[Tag]) -> "pyarrow.Array":
    """Return tags as booleans, whole numbers or numbers where all of them are, else as text."""
    import pyarrow

    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {bool}:
        return pyarrow.array(values, pyarrow.bool_())
    if kinds == {int} and all(value is None or -(2**63) <= int(value) < 2**63 for value in values):
        return pyarrow.array(values, pyarrow.int64())
    if kinds and kinds <= {int, float}:
        return pyarrow.array([None if value is None else float(value) for value in values], pyarrow.float64())
    return pyarrow.array([None if value is None else _utf8(str(value)) for value in values], pyarrow.string())


def _utf8(text: str | None) -> str | None:
    """Return text that has a UTF-8 form: half of a surrogate pair becomes a question mark."""
    return None if text is None else text.encode("utf-8", "replace").decode()


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=bytes.hex)
_PAGE_EPISODES, _PAGE_ROWS = 128, 1024


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
    check_rows(store)
    columns = "source, measure, unit, value, grid_id, episode_id, step, tags"
    with explained(store.path / DATABASE):
        cursor = store.database.execute(f"SELECT 'row', {columns} FROM rows ORDER BY {columns}")
        while rows := cursor.fetchmany(_PAGE_ROWS):
            add(rows)
    return digest.hexdigest()


def _found_out(extra: Cell) -> Cell:
    """Return the extra values of a step without its attempts, and without the version that read its answer."""
    if isinstance(extra, str) and ('"attempts"' in extra or '"parser"' in extra):
        values = decode_json(extra, "the extra values of a step")
        return encode_json({name: value for name, value in values.items() if name not in ("attempts", "parser")})
    return extra
