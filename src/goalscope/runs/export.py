"""Export the tables of a run as Parquet files with typed columns."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from goalscope._ground.extras import lacking
from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.ids import canonical_json
from goalscope._ground.untrusted import UntrustedError
from goalscope.runs.codec import decode_tags
from goalscope.runs.record import Episode, policy_of
from goalscope.runs.store import Store
from goalscope.stats.rows import Tag
from goalscope.worlds.world import World

if TYPE_CHECKING:
    import pyarrow

_EPISODES_PER_GROUP = 256  # episodes per row group of steps


def export_parquet(store: Store, directory: str | Path) -> dict[str, Path]:
    """Write the tables of a run as Parquet files: worlds, episodes, steps, and rows (values of measures).

    Each tag (a named value by which results are grouped) becomes a column named "tag.<name>", of the narrowest type
    that fits all its values.

    Args:
        store: the run.
        directory: directory for the files, created if it is missing; existing files of these names are replaced.

    Returns:
        The path of each file, by table.

    Raises:
        ImportError: pyarrow is not installed (it comes with the extra ``export``).
    """
    try:
        import pyarrow
    except ImportError as error:
        raise lacking("export_parquet needs pyarrow", "export", error) from error
    folder = Folder(directory).make().path
    schemas = _schemas()
    paths = {name: folder / f"{name}.parquet" for name in schemas}
    worlds = list(store.worlds())
    table = pyarrow.Table.from_pylist([_world(world) for world in worlds], schema=schemas["worlds"])
    tags = _Tags.of(world.tags for world in worlds)
    with _parquet(paths["worlds"], tags.schema(schemas["worlds"])) as write:
        write(tags.with_tags_of(table, [world.tags for world in worlds]))
    tag_texts = (row[-1] for page in store.pages() for row in page)
    tags = _Tags.of(decode_tags(text, "an episode") for text in dict.fromkeys(tag_texts))
    with (
        _parquet(paths["steps"], schemas["steps"]) as write_steps,
        _parquet(paths["episodes"], tags.schema(schemas["episodes"])) as write,
    ):
        stored = store.episodes()
        while group := list(islice(stored, _EPISODES_PER_GROUP)):
            parts = list(map(step_columns, group))
            joined = {name: [*chain.from_iterable(part[name] for part in parts)] for name in schemas["steps"].names}
            write_steps(pyarrow.Table.from_pydict(joined, schema=schemas["steps"]))
            table = pyarrow.Table.from_pylist(list(map(episode_record, group)), schema=schemas["episodes"])
            write(tags.with_tags_of(table, [episode.tags for episode in group]))
    tags = _Tags()
    for _, rows in store.row_groups(names=()):
        tags.add({name: rows.numbered(name)[1] for name in rows.tags})
    with _parquet(paths["rows"], tags.schema(schemas["rows"])) as write:
        for _, rows in store.row_groups():
            columns = {name: getattr(rows, name).tolist() for name in schemas["rows"].names}
            table = pyarrow.Table.from_pydict(columns, schema=schemas["rows"])
            write(tags.with_columns(table, {name: column.tolist() for name, column in rows.tags.items()}))
    return paths


@contextmanager
def _parquet(path: Path, schema: "pyarrow.Schema") -> Iterator[Callable[["pyarrow.Table"], None]]:
    """Yield a function that writes tables to a Parquet file. The file has a temporary name until it is complete."""
    from pyarrow import parquet

    with NamedFile(path).replacing() as partial, parquet.ParquetWriter(partial, schema, compression="zstd") as writer:
        yield writer.write_table


def write_parquet(path: Path, schema: "pyarrow.Schema", tables: Iterator["pyarrow.Table"]) -> Path:
    """Write a Parquet file from tables that arrive one by one, and return its path.

    The file has a temporary name until it is complete, so an interruption leaves no partial file.
    """
    with _parquet(path, schema) as write:
        for table in tables:
            write(table)
    return path


class _Tags:
    """The tags of a table, as columns of the narrowest type that fits all their values."""

    def __init__(self) -> None:
        self._kinds: dict[str, set[type]] = {}
        self._beyond_int64: set[str] = set()

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Tag]]) -> "_Tags":
        """Return the tags of some entries."""
        tags = cls()
        for entry in entries:
            tags.add({name: [value] for name, value in entry.items()})
        return tags

    def add(self, values: Mapping[str, Sequence[Tag]]) -> None:
        """Add values by tag."""
        for name, tag_values in values.items():
            self._kinds.setdefault(name, set()).update(map(type, tag_values))
            if any(type(value) is int and not -(2**63) <= value < 2**63 for value in tag_values):
                self._beyond_int64.add(name)

    def schema(self, fixed: "pyarrow.Schema") -> "pyarrow.Schema":
        """Return a schema followed by the columns of the tags."""
        import pyarrow

        return pyarrow.schema([*fixed, *((f"tag.{name}", self._type(name)) for name in self._kinds)])

    def with_tags_of(self, table: "pyarrow.Table", entries: Sequence[Mapping[str, Tag]]) -> "pyarrow.Table":
        """Return a table with the tags of its entries added."""
        return self.with_columns(table, {name: [entry.get(name) for entry in entries] for name in self._kinds})

    def with_columns(self, table: "pyarrow.Table", columns: Mapping[str, Sequence[Tag]]) -> "pyarrow.Table":
        """Return a table with the columns of its tags; a missing tag is None in every row."""
        for name in self._kinds:
            values = columns.get(name, [None] * len(table))
            table = table.append_column(f"tag.{name}", _narrow(values, self._type(name)))
        return table

    def _type(self, name: str) -> "pyarrow.DataType":
        """Return the narrowest type of a tag's values: boolean, integer, float or text."""
        import pyarrow

        kinds = self._kinds[name] - {type(None)}
        if kinds == {bool}:
            return pyarrow.bool_()
        if kinds == {int} and name not in self._beyond_int64:
            return pyarrow.int64()
        return pyarrow.float64() if kinds and kinds <= {int, float} else pyarrow.string()


_COLUMNS = {
    "worlds": "world_id cluster grid fog_radius",
    "episodes": "episode_id world_id cluster agent_id agent trajectory seed horizon outcome steps final_row final_col",
    "steps": "episode_id step row col carrying_key door_open state action failure text reasoning prompt_tokens "
    "output_tokens reward extra policy",
    "rows": "measure unit value cluster episode_id step",
}
"""Columns of the tables before their tags; text unless `_schemas` declares another type."""
CHECKSUMS: Final = "SHA256SUMS"
"""File with the checksums of the exported files."""
_MOST_EXPORTED: Final = 2**50  # maximum size in bytes of a checksum file
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


def write_checksums(directory: Path, files: Iterable[Path]) -> Path:
    """Write the SHA-256 of exported files to the file SHA256SUMS, for ``sha256sum -c SHA256SUMS``; return its path.

    Lines about other files, from an earlier export to the same directory, are kept.

    Args:
        directory: the directory that was exported to.
        files: files in it, or folders, whose files are all included.

    Raises:
        OSError: a file cannot be read.
        ValueError: the existing SHA256SUMS is not a list of checksums.
    """
    place, names = Folder(directory), list[str]()
    for path in files:
        name = str(path.relative_to(directory))
        if place.has_folder(name):
            names += [f"{name}/{file.name}" for file in place.files("*", name)]
        else:
            names.append(name)
    try:
        earlier = place.load_text(CHECKSUMS).splitlines() if place.has_file(CHECKSUMS) else []
    except UntrustedError as error:
        path = place.path / CHECKSUMS
        raise ValueError(f"{path} is not a list of checksums as goalscope writes it: {error}; remove it") from error
    lines = {match[1]: line for line in earlier if (match := _SUM.fullmatch(line))}
    for name in set(names):
        with place.open_file(name, most=_MOST_EXPORTED) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
        lines[escaped] = f"{'' if escaped == name else _ESCAPED}{digest}  {escaped}"
    return place.save_text("".join(f"{lines[name]}\n" for name in sorted(lines)), CHECKSUMS)


_SUM: Final = re.compile(r"\\?[0-9a-f]{64}  (.+)")
_ESCAPED: Final = "\\"
"""Start of a line of `sha256sum` whose file name contains escaped backslashes or line ends."""


def _world(world: World) -> dict[str, Any]:
    return {"world_id": world.id, "cluster": world.cluster_id, "grid": world.stored, "fog_radius": world.fog_radius}


def episode_record(episode: Episode) -> dict[str, Any]:
    """Return an episode, without its steps, as one record of the exported table of episodes: column -> value."""
    spec, planar = episode.spec, "cells" in episode.world.offers
    return {
        "episode_id": episode.id,
        "world_id": spec.world_id,
        "cluster": episode.world.cluster_id,
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


def step_columns(episode: Episode) -> dict[str, Sequence[Any]]:
    """Return the T steps of an episode as columns of the exported table of steps: column -> T plain values."""
    planar = "cells" in episode.world.offers
    states, actions, extras = (episode.column(name) for name in ("state", "action", "extra"))
    return {
        "episode_id": [episode.id] * len(states),
        "step": episode.column("index"),
        "row": [state[0] if planar else None for state in states],
        "col": [state[1] if planar else None for state in states],
        "carrying_key": [state.carrying_key if planar else None for state in states],
        "door_open": [state.door_open if planar else None for state in states],
        "state": list(map(list, states)),
        "action": [None if action is None else action.name if planar else str(action) for action in actions],
        **{name: list(map(_utf8, episode.column(name))) for name in ("failure", "text", "reasoning")},
        **{name: episode.column(name) for name in ("prompt_tokens", "output_tokens", "reward")},
        "extra": [canonical_json(extra) if extra else None for extra in extras],
        "policy": list(map(policy_of, extras)),
    }


def step_records(episode: Episode) -> list[dict[str, Any]]:
    """Return each step of an episode as one record of the exported table of steps: column -> value."""
    columns = step_columns(episode)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _narrow(values: Sequence[Tag], kind: "pyarrow.DataType") -> "pyarrow.Array":
    """Convert the values of a tag to a type."""
    import pyarrow

    if kind == pyarrow.float64():
        return pyarrow.array([None if value is None else float(value) for value in values], kind)
    if kind == pyarrow.string():
        return pyarrow.array([None if value is None else _utf8(str(value)) for value in values], kind)
    return pyarrow.array(values, kind)


def _utf8(text: str | None) -> str | None:
    """Return text in a form that UTF-8 can encode: half of a surrogate pair becomes a question mark."""
    return None if text is None else text.encode("utf-8", "replace").decode()
