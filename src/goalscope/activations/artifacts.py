"""The index of files beside `run.db`: which there are, of what kind, how large, with which tags."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from goalscope.rows import Tag
from goalscope.runs import Store
from goalscope.runs.codec import decode_tags, encode_tags


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file or folder of a run directory.

    Attributes:
        id: content id of what it holds.
        kind: what it is ("capture", "activations", "probe").
        path: where it lies, relative to the run directory, parts separated by "/".
        size: bytes.
        tags: what is known about it.

    Raises:
        ValueError: a path that leads out of the run directory, or a size below 0.
    """

    id: str
    kind: str
    path: str
    size: int
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = PurePosixPath(self.path)
        if not self.path or given.is_absolute() or ".." in given.parts or "\\" in self.path or "\0" in self.path:
            raise ValueError(
                f"an artifact must lie inside of its run directory, got the path {self.path[:200]!r}: the index was "
                "not written by goalscope, do not trust this run"
            )
        if self.size < 0:
            raise ValueError(f"the size of an artifact must be >= 0 bytes, got {self.size}")


def put_artifacts(store: Store, *artifacts: Artifact) -> None:
    """Store the rows of some artifacts in place of those with the same ids; the files must be there already."""
    rows = [(one.id, one.kind, one.path, one.size, encode_tags(one.tags)) for one in artifacts]
    with store.transaction() as database:
        database.executemany("INSERT OR REPLACE INTO artifacts VALUES (?, ?, ?, ?, ?)", rows)


def artifacts(store: Store, kind: str, **tags: Tag) -> Iterator[Artifact]:
    """Return the artifacts of a kind that have these tags, ordered by path.

    Raises:
        ValueError: a stored row that cannot be one of ours.
    """
    rows = store.query("SELECT id, kind, path, size, tags FROM artifacts WHERE kind = ? ORDER BY path, id", (kind,))
    for identity, _, path, size, cell in rows:
        if not isinstance(identity, str) or not isinstance(path, str) or not isinstance(size, int):
            raise ValueError(f"an artifact must be stored as text and a size, got {identity!r}, {path!r}, {size!r}")
        known = decode_tags(cell, f"artifact {identity!r}")
        if all(name in known and known[name] == tag for name, tag in tags.items()):
            yield Artifact(id=identity, kind=kind, path=path, size=size, tags=known)


def place(store: Store, artifact: Artifact) -> Path:
    """Return where an artifact lies.

    Raises:
        ValueError: a link leads out of the run directory or in a circle, or the system has no such names.
    """
    try:
        root = store.path.resolve()
        path = (root / artifact.path).resolve()
        outside = not path.is_relative_to(root)
        if not outside:
            path.is_file()  # asks the system, which refuses names that are too long
    except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError
        raise ValueError(f"an artifact must have a path in {store.path}, {artifact.path[:200]!r} is none") from error
    if outside:
        raise ValueError(
            f"an artifact must lie inside of {store.path}, but {artifact.path!r} leads to {path}: remove the link, and "
            "copy the files that it leads to if you trust them"
        )
    return path
