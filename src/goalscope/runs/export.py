"""A store as Parquet files with typed columns, for other tools."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalscope.extras import lacking
from goalscope.ids import canonical_json
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode
from goalscope.runs.store import Store

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
    listed_worlds = list(store.worlds())
    worlds = [
        {"world_id": world.id, "grid_id": world.grid_id, "grid": world.stored, "fog_radius": world.fog_radius}
        for world in listed_worlds
    ]
    world_tags = _tag_columns([world.tags for world in listed_worlds])
    episodes: list[dict[str, Any]] = []
    episode_tags: list[Mapping[str, Tag]] = []
    paths = {}

    def steps() -> Iterator["pyarrow.Table"]:
        listed = store.episodes()
        while group := list(islice(listed, _GROUP)):
            episodes.extend(_episode(episode) for episode in group)
            episode_tags.extend(episode.tags for episode in group)
            records = [record for episode in group for record in _steps(episode)]
            yield pyarrow.Table.from_pylist(records, schema=_step_schema())

    paths["steps"] = _write(folder / "steps.parquet", _step_schema(), steps())
    for name, records, fixed, tags in (
        ("worlds", worlds, _world_schema(), world_tags),
        ("episodes", episodes, _episode_schema(), _tag_columns(episode_tags)),
    ):
        table = pyarrow.Table.from_pylist(records, schema=fixed)
        for tag, column in tags.items():
            table = table.append_column(tag, column)
        paths[name] = _write(folder / f"{name}.parquet", table.schema, iter([table]))
    table = _rows_table(store.rows())
    paths["rows"] = _write(folder / "rows.parquet", table.schema, iter([table]))
    return paths


def _write(path: Path, schema: "pyarrow.Schema", tables: Iterator["pyarrow.Table"]) -> Path:
    """Write a file under a temporary name and put it in place once it is whole."""
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


def _episode(episode: Episode) -> dict[str, Any]:
    spec = episode.spec
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
        "final_row": episode.final[0] if episode.world.planar else None,
        "final_col": episode.final[1] if episode.world.planar else None,
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
        }


def _rows_table(rows: Rows) -> "pyarrow.Table":
    import pyarrow

    columns = {
        "measure": pyarrow.array(rows.measure.tolist(), pyarrow.string()),
        "unit": pyarrow.array(rows.unit.tolist(), pyarrow.string()),
        "value": pyarrow.array(rows.value, pyarrow.float64()),
        "grid_id": pyarrow.array(rows.grid_id.tolist(), pyarrow.string()),
        "episode_id": pyarrow.array(rows.episode_id.tolist(), pyarrow.string()),
        "step": pyarrow.array(rows.step, pyarrow.int64()),
    }
    return pyarrow.table(columns | {f"tag.{name}": _narrow(column.tolist()) for name, column in rows.tags.items()})


def _tag_columns(tags: Sequence[Mapping[str, Tag]]) -> dict[str, "pyarrow.Array"]:
    names = dict.fromkeys(name for entry in tags for name in entry)
    return {f"tag.{name}": _narrow([entry.get(name) for entry in tags]) for name in names}


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


def _world_schema() -> "pyarrow.Schema":
    import pyarrow

    text = pyarrow.string()
    return pyarrow.schema([("world_id", text), ("grid_id", text), ("grid", text), ("fog_radius", pyarrow.int64())])


def _episode_schema() -> "pyarrow.Schema":
    import pyarrow

    texts = dict.fromkeys(("episode_id", "world_id", "grid_id", "agent_id", "agent"), pyarrow.string())
    numbers = dict.fromkeys(("trajectory", "seed", "horizon"), pyarrow.int64())
    ends = dict.fromkeys(("steps", "final_row", "final_col"), pyarrow.int64())
    return pyarrow.schema(list({**texts, **numbers, "outcome": pyarrow.string(), **ends}.items()))


def _step_schema() -> "pyarrow.Schema":
    import pyarrow

    text, tokens = pyarrow.string(), pyarrow.list_(pyarrow.uint32())
    return pyarrow.schema(
        [
            ("episode_id", text),
            ("step", pyarrow.int64()),
            ("row", pyarrow.int64()),
            ("col", pyarrow.int64()),
            ("carrying_key", pyarrow.bool_()),
            ("door_open", pyarrow.bool_()),
            ("state", pyarrow.list_(pyarrow.int64())),
            ("action", text),
            ("failure", text),
            ("text", text),
            ("reasoning", text),
            ("prompt_tokens", tokens),
            ("output_tokens", tokens),
            ("reward", pyarrow.float64()),
            ("extra", text),
        ]
    )
