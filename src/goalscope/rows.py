"""The one row type: what every measure emits and what the statistics read.

Behaviour, goal-directedness, exploration errors and probes all end in rows: a measure's name and unit, one value, the
grid it belongs to (the cluster of every interval), the episode and step where there is one, and tags to group by.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from goalscope.extras import lacking

if TYPE_CHECKING:
    import pandas

Tag = str | int | float | bool | None

WHOLE_EPISODE = -1
"""Step of a row that speaks of a whole episode or of a whole grid."""

COLUMNS = ("measure", "unit", "value", "grid_id", "episode_id", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One value of one measure.

    Attributes:
        measure: the measure's name, a noun phrase ("success", "action accuracy").
        unit: its unit ("share", "bits", "nats", "steps", "cells").
        value: the value; NaN means undefined (an empty denominator), never "zero".
        grid_id: content id of the grid, the unit of every interval. Paired conditions of a grid share one.
        episode_id: content id of the episode, "" for a value over all of a grid's episodes.
        step: step of the episode, 0-based, `WHOLE_EPISODE` for a value over all steps.
        tags: what to group by: agent, size, density, transform, ...
    """

    measure: str
    unit: str
    value: float
    grid_id: str
    episode_id: str = ""
    step: int = WHOLE_EPISODE
    tags: Mapping[str, Tag] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Many rows as named columns of equal length N.

    Attributes:
        measure, unit, grid_id, episode_id: ``[N]`` text (object arrays).
        value: ``[N]`` float64, NaN where undefined.
        step: ``[N]`` int64.
        tags: name -> ``[N]`` object array, None where a row lacks the tag.

    Raises:
        ValueError: columns of different lengths.
    """

    measure: npt.NDArray[np.object_]
    unit: npt.NDArray[np.object_]
    value: npt.NDArray[np.float64]
    grid_id: npt.NDArray[np.object_]
    episode_id: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    tags: Mapping[str, npt.NDArray[np.object_]]

    def __post_init__(self) -> None:
        for name, column in self.columns().items():
            if column.shape != self.value.shape or column.ndim != 1:
                raise ValueError(
                    f"all columns must be vectors as long as value ({len(self.value)}), got {name} {column.shape}"
                )
        clash = set(self.tags) & set(COLUMNS)
        if clash:
            raise ValueError(f"a tag must not carry the name of a column, got {sorted(clash)}: rename the tag")

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Row]:
        for index in range(len(self)):
            fixed: dict[str, Any] = {name: getattr(self, name)[index] for name in COLUMNS}
            fixed |= {"value": float(fixed["value"]), "step": int(fixed["step"])}
            tags = {name: column[index] for name, column in self.tags.items() if column[index] is not None}
            yield Row(**fixed, tags=tags)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return a column or a tag by name."""
        columns = self.columns()
        if name not in columns:
            raise KeyError(f"no column or tag {name!r}: there are {', '.join(sorted(columns))}")
        return columns[name]

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return all columns and tags by name."""
        return {name: getattr(self, name) for name in COLUMNS} | dict(self.tags)

    def where(self, mask: npt.NDArray[np.bool_]) -> "Rows":
        """Return the rows where ``mask`` ``[N]`` holds, in order; these very rows where it holds everywhere."""
        if len(mask) == len(self) and mask.all():
            return self
        fixed: dict[str, Any] = {name: getattr(self, name)[mask] for name in COLUMNS}
        return Rows(**fixed, tags={name: column[mask] for name, column in self.tags.items()})

    def select(self, **equal: Tag) -> "Rows":
        """Return the rows whose columns and tags equal the given values, e.g. ``select(measure="success", size=7)``."""
        mask = np.ones(len(self), dtype=bool)
        for name, wanted in equal.items():
            column = self[name]
            if column.dtype == object:
                mask &= (column == wanted).astype(bool)
            else:
                mask &= np.fromiter((item == wanted for item in column), dtype=bool, count=len(self))
        return self.where(mask)

    def among(self, name: str, wanted: Iterable[Tag]) -> npt.NDArray[np.bool_]:
        """Return ``[N]`` whether a column or tag holds one of some values, e.g. ``among("measure", ["success"])``."""
        listed = set(wanted)
        return np.fromiter(map(listed.__contains__, self[name].tolist()), dtype=bool, count=len(self))

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Return ``[N]`` whether a row has a tag; False everywhere for a tag that no row has."""
        column = self.tags.get(name)
        if column is None:
            return np.zeros(len(self), dtype=bool)
        there: npt.NDArray[np.bool_] = np.not_equal(column, np.array(None, dtype=object)).astype(bool)
        return there

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a DataFrame with one column for each column and tag.

        Raises:
            ImportError: pandas is not installed (it comes with the extra ``export``).
        """
        try:
            import pandas
        except ImportError as error:
            raise lacking("to_pandas needs pandas", "export", error) from error
        return pandas.DataFrame(self.columns())

    @classmethod
    def from_columns(
        cls,
        *,
        measure: str | Sequence[str],
        unit: str | Sequence[str],
        value: npt.ArrayLike,
        grid_id: Sequence[str] | npt.NDArray[np.object_],
        episode_id: str | Sequence[str] | npt.NDArray[np.object_] = "",
        step: int | npt.NDArray[np.int64] = WHOLE_EPISODE,
        tags: Mapping[str, Any] | None = None,
    ) -> "Rows":
        """Build rows from columns; a single text, number or tag value is repeated for every row.

        Args:
            measure, unit, grid_id, episode_id: ``[N]`` texts each, or one text for all rows.
            value: ``[N]`` values, NaN where undefined; it says how many rows there are.
            step: ``[N]`` steps, or one for all rows.
            tags: name -> ``[N]`` values, or one for all rows.

        Raises:
            ValueError: columns of different lengths, or a tag with the name of a column.
        """
        values = np.atleast_1d(np.asarray(value, dtype=np.float64))

        def text(given: Any) -> npt.NDArray[np.object_]:
            column = np.empty(len(values), dtype=object)
            column[:] = given
            return column

        return cls(
            measure=text(measure),
            unit=text(unit),
            value=values,
            grid_id=text(grid_id),
            episode_id=text(episode_id),
            step=np.broadcast_to(np.asarray(step, dtype=np.int64), values.shape).copy(),
            tags={name: text(given) for name, given in (tags or {}).items()},
        )

    @classmethod
    def concatenate(cls, parts: Iterable["Rows"]) -> "Rows":
        """Join rows; a tag that a part lacks is None there."""
        blocks = list(parts)
        if not blocks:
            return cls.from_rows([])
        fixed = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in COLUMNS}
        names = dict.fromkeys(name for block in blocks for name in block.tags)
        tags = {
            name: np.concatenate(
                [
                    block.tags[name] if name in block.tags else np.full(len(block), None, dtype=object)
                    for block in blocks
                ]
            )
            for name in names
        }
        return cls(**fixed, tags=tags)

    @classmethod
    def from_rows(cls, rows: Iterable[Row]) -> "Rows":
        """Build columns from single rows."""
        listed = list(rows)
        names = dict.fromkeys(name for row in listed for name in row.tags)
        fixed: dict[str, Any] = {name: [getattr(row, name) for row in listed] for name in COLUMNS}
        return cls.from_columns(**fixed, tags={name: [row.tags.get(name) for row in listed] for name in names})
