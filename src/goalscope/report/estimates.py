"""The one lookup of estimates: rows selected by their tags, contrasted, estimated, and found by measure and tags."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from goalscope.probing.paired import pairs
from goalscope.rows import Rows, Tag
from goalscope.stats import LESS, Estimate, Grouped
from goalscope.stats.estimate import factorize

Key = Mapping[str, Tag]
"""Measure and tags of an estimate; ``less`` names the control of a difference. What is not named is None."""
Selection = Mapping[str, Tag | Sequence[Tag]]
"""Measure and tags of rows, one value of each or several."""


class SelectedRows:
    """Rows that are selected by their tags, each column coded once.

    Attributes:
        rows: the rows.
        agent: whom they are about, "" where a page speaks of one agent alone.
    """

    def __init__(self, rows: Rows, agent: str = "") -> None:
        self.rows, self.agent = rows, agent
        self._coded: dict[str, tuple[npt.NDArray[np.int64], list[Any]]] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def title(self, text: str) -> str:
        """Return a title that names the agent where a page speaks of several."""
        return f"{text} of {self.agent}" if self.agent else text

    def values(self, name: str) -> list[Tag]:
        """Return the different values of a tag or column in their order of appearance, None left out."""
        return [value for value in self._column(name)[1] if value is not None]

    def numbers(self, name: str) -> list[float]:
        """Return the different values of a tag that are numbers, ascending."""
        return sorted({at for value in self.values(name) if (at := number_of(value)) is not None})

    def where(self, **wanted: Tag | Sequence[Tag]) -> Self:
        """Return the rows whose tags have a value, or one of several; a tag that no row has is None everywhere."""
        mask = np.ones(len(self.rows), dtype=bool)
        for name, given in wanted.items():
            allowed = set(given) if isinstance(given, tuple | list) else {given}
            codes, labels = self._column(name)
            mask &= np.array([label in allowed for label in labels], dtype=bool)[codes] if len(labels) else True
        return type(self)(self.rows.where(mask), self.agent)

    def estimated(self, how: Callable[..., list[Grouped]], by: Sequence[str]) -> list[Grouped]:
        """Return an estimate for each measure and group of some tags, nothing where there are no rows."""
        return how(self.rows, by=by) if len(self.rows) else []

    def combinations(self, *names: str) -> list[tuple[Tag, ...]]:
        """Return the different values of some tags together; none where a tag is missing."""
        columns = self.rows.columns()
        if not all(name in columns for name in names):
            return []
        return list(dict.fromkeys(zip(*(columns[name].tolist() for name in names), strict=True)))

    def _column(self, name: str) -> tuple[npt.NDArray[np.int64], list[Any]]:
        if name not in self._coded:
            column = self.rows.columns().get(name)
            self._coded[name] = (
                (np.zeros(len(self.rows), dtype=np.int64), [None] if len(self.rows) else [])
                if column is None
                else factorize(column)
            )
        return self._coded[name]


class Estimates:
    """Estimates that are found by measure and tags.

    Attributes:
        listed: the estimates with their keys, in order.
    """

    def __init__(self, listed: Iterable[Grouped] = ()) -> None:
        self.listed = tuple(listed)
        self._found = {_identity(one.key): one.estimate for one in self.listed}

    def __len__(self) -> int:
        return len(self.listed)

    def get(self, *keys: Key, **tags: Tag) -> Estimate | None:
        """Return the estimate of some keys together, the later before the earlier; None where there is none."""
        return self._found.get(_identity({name: value for key in (*keys, tags) for name, value in key.items()}))

    def keys(self, *names: str, **given: Tag) -> list[dict[str, Tag]]:
        """Return the different values of some tags together, where others have a value, in order of appearance."""
        kept = (one.key for one in self.listed if all(one.key.get(name) == value for name, value in given.items()))
        found = dict.fromkeys(tuple(key.get(name) for name in names) for key in kept)
        return [dict(zip(names, values, strict=True)) for values in found]

    def values(self, name: str, **given: Tag) -> list[Tag]:
        """Return the values of a tag where others have a value: numbers by size, then texts, None left out."""
        return sorted(
            (value for key in self.keys(name, **given) if (value := key[name]) is not None),
            key=lambda value: (0, value, "") if isinstance(value, int | float) else (1, 0.0, value),
        )

    def only(self, **given: Tag) -> "Estimates":
        """Return the estimates whose tags have given values."""
        return Estimates(one for one in self.listed if all(one.key.get(tag) == value for tag, value in given.items()))

    def picked(self, keys: Iterable[Key], **shared: Tag) -> list[Grouped]:
        """Return the estimates that some keys have beside shared tags, under these keys alone."""
        found = ((key, self.get(key, shared)) for key in keys)
        return [Grouped(key=key, estimate=one) for key, one in found if one is not None]

    def along(
        self, axis: str, key: Key, places: Mapping[Any, float] | None = None
    ) -> tuple[tuple[float, ...], tuple[Estimate, ...]]:
        """Return the places that the values of a tag have beside a key, ascending, and their estimates.

        Args:
            axis: the tag.
            key: measure and other tags.
            places: value -> its place; each number stands at its own where None.
        """
        points: dict[float, Estimate] = {}
        for value in dict.fromkeys(one.key.get(axis) for one in self.listed):
            at = number_of(value) if places is None else places.get(value)
            if at is not None and (found := self.get(key, {axis: value})) is not None:
                points[at] = found
        return tuple(sorted(points)), tuple(points[at] for at in sorted(points))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Rows less those of a control, grid by grid.

    Attributes:
        name: what the control is called: measures become "MEASURE less NAME".
        own, control: the rows, and those of the control.
        by: tags that partners share, beside measure and grid.
    """

    name: str
    own: Selection
    control: Selection
    by: tuple[str, ...]


def contrasted(
    rows: SelectedRows, contrasts: Iterable[Contrast], how: Callable[..., list[Grouped]], by: Sequence[str]
) -> list[Grouped]:
    """Return the estimates of some contrasts; one without partners has none."""
    parts = [
        pairs(rows.where(**one.own).rows, rows.where(**one.control).rows, name=one.name, by=one.by) for one in contrasts
    ]
    return SelectedRows(Rows.concatenate(parts)).estimated(how, by)


def describe_key(key: Key) -> str:
    """Write the conditions of a key in words, e.g. ``key-no-door worlds, matched control, rotate``."""
    parts = []
    for name, value in key.items():
        if value is None or value is False:
            continue
        words = {"kind": f"{value} worlds", "control": "matched control without key", "transform": f"transform {value}"}
        words["names"] = f"{value} names"
        parts.append(words.get(name, f"{name.replace('_', ' ')} {value}"))
    return ", ".join(parts)


def number_of(value: Tag) -> float | None:
    """Return a size, layer or density as a number, None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _identity(key: Key) -> frozenset[tuple[str, Tag]]:
    found = {name: value for name, value in key.items() if value is not None}
    if control := found.pop("less", None):
        found["measure"] = f"{found['measure']}{LESS}{control}"
    return frozenset(found.items())
