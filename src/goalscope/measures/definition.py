"""Measures: functions of the step table with a definition, found by their name; and the rows that they emit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from goalscope import registry
from goalscope.measures.table import PROVENANCE, StepTable
from goalscope.rows import Rows

PAPER: Final = "Arghal et al. (2026)"
OURS: Final = "goalscope"

Per = Literal["episode", "step", "group"]
"""What a measure has a value for; a group is all trajectories of one agent on one world, see `StepTable.groups`."""

Need = Literal["oracle", "grid", "reward"]
"""What a measure reads beside the steps themselves.

"oracle": the columns `optimal`, `distance`, `after` and `optimal_length`, which need the exact optimal policy.
"grid": the worlds, as grids, and states that are (row, col, phase).
"reward": the column `reward`.
A measure is left out where the worlds lack what it needs.
"""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Values that do not stand for every episode, step or group in order, or that have tags of their own.

    Attributes:
        value: ``[K]`` values, NaN where undefined.
        of: ``[K]`` index of the episode, step or group of each value, which may repeat; all of them in order by
            default.
        tags: name -> ``[K]`` tags beside those of the episodes.
    """

    value: npt.NDArray[Any]
    of: npt.NDArray[np.int64] | None = None
    tags: Mapping[str, npt.NDArray[np.object_]] = field(default_factory=dict)

    @classmethod
    def where(cls, mask: npt.NDArray[np.bool_], value: npt.NDArray[Any]) -> "Entries":
        """Return the values of those episodes, steps or groups that have one: ``mask`` and ``value`` hold all."""
        return cls(value[mask], np.flatnonzero(mask))


Function = Callable[[StepTable], npt.NDArray[Any] | Entries]


@runtime_checkable
class Measure(Protocol):
    """A quantity of behaviour: episodes in, rows out."""

    @property
    def name(self) -> str:
        """A noun phrase, the `measure` of its rows."""
        ...

    @property
    def unit(self) -> str:
        """The unit of its values."""
        ...

    @property
    def bounds(self) -> tuple[float, float]:
        """Least and greatest value that the definition allows; infinite where there is no bound."""
        ...

    def rows(self, table: StepTable) -> Rows:
        """Return the measure's rows: one for each step, each episode, or each group of `StepTable.groups`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasure:
    """A function of the step table with its definition; `measure` makes one of a function.

    Attributes:
        name: the measure of its rows.
        unit: the unit of its values.
        bounds: least and greatest value that the definition allows.
        per: what it has a value for.
        needs: what it reads beside the steps.
        text: the definition, in words.
        source: where the definition comes from.
        base: name of the measure that it is a variant of, "" for none.
        function: table to ``[E]``, ``[N]`` or ``[K]`` values for the episodes, steps or groups, or to `Entries`.

    Raises:
        ValueError: a definition that lacks something or contradicts itself.
    """

    name: str
    unit: str
    bounds: tuple[float, float]
    text: str
    source: str = ""
    per: Per = "episode"
    needs: tuple[Need, ...] = ()
    base: str = ""
    function: Function = field(repr=False)

    def __post_init__(self) -> None:
        for attribute in ("name", "unit", "text"):
            if not isinstance(getattr(self, attribute), str) or not getattr(self, attribute).strip():
                raise ValueError(f"a measure must have a {attribute}, got {getattr(self, attribute)!r} ({self.name!r})")
        low, high = map(float, self.bounds)
        if not low < high:
            raise ValueError(f"bounds must be (least, greatest), got {self.bounds} for the measure {self.name!r}")
        object.__setattr__(self, "bounds", (low, high))
        for given, known in (((self.per,), get_args(Per)), (self.needs, get_args(Need))):
            if not set(given) <= set(known):
                raise ValueError(f"{', '.join(known)} are what a measure can name, got {given} for {self.name!r}")

    def __call__(self, table: StepTable) -> npt.NDArray[Any] | Entries:
        """Return the values of a table."""
        return self.function(table)

    def rows(self, table: StepTable) -> Rows:
        """Return one row for each value.

        Raises:
            ValueError: not one value for each episode, step or group.
        """
        found = self.function(table)
        entries = found if isinstance(found, Entries) else Entries(np.asarray(found))
        first = table.groups()[1] if self.per == "group" else np.empty(0, dtype=np.int64)
        size = {"episode": len(table.length), "step": len(table.step), "group": len(first)}[self.per]
        of = np.arange(size) if entries.of is None else entries.of
        if entries.value.shape != of.shape:
            raise ValueError(
                f"the measure {self.name!r} must return a value for each {self.per}, {of.shape}, got an array "
                f"{entries.value.shape}: return Entries(value, of) where only some have one"
            )
        if self.per == "episode":
            return episode_rows(table, self.name, self.unit, entries.value, entries.tags, of)
        if self.per == "step":
            return step_rows(table, self.name, self.unit, entries.value, entries.tags, of)
        return group_rows(table, self.name, self.unit, entries.value, first[of], entries.tags)


def measure(
    name: str,
    *,
    unit: str,
    bounds: tuple[float, float],
    text: str,
    source: str = "",
    per: Per = "episode",
    needs: tuple[Need, ...] = (),
) -> Callable[[Function], StepMeasure]:
    """Return a decorator that makes a function of the step table a measure and registers it.

    The function returns an array with one value for each episode (``[E]``), step (``[N]``) or group (``[K]``, the
    groups of `StepTable.groups`), NaN where undefined; or `Entries`.

    Args:
        name: a noun phrase, the `measure` of its rows.
        unit: the unit of its values.
        bounds: least and greatest value that the definition allows; infinite where there is no bound.
        text: the definition in words, as the report, the help and the documentation show it.
        source: where the definition comes from.
        per: what it has a value for.
        needs: what it reads beside the steps.

    Raises:
        ValueError: a name that is taken, or a definition that lacks something.
    """

    def add(function: Function) -> StepMeasure:
        made = StepMeasure(
            name=name, unit=unit, bounds=bounds, text=text, source=source, per=per, needs=needs, function=function
        )
        return registry.register("measure", name, made_of=function)(made)

    return add


def add_measures(*measures: StepMeasure) -> None:
    """Register measures that were made with parameters."""
    for made in measures:
        registry.register("measure", made.name, made_of=made.function)(made)


def ratio(numerator: npt.NDArray[np.generic], denominator: npt.NDArray[np.generic]) -> Values:
    """Return ``numerator / denominator``, NaN where the denominator is 0."""
    above, below = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    found: Values = np.divide(above, below, out=np.full(below.shape, np.nan), where=below != 0)
    return found


def per_episode(table: StepTable, steps: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return ``[E]``: how many steps of each episode a mask ``[N]`` holds."""
    return np.bincount(table.episode[steps], minlength=len(table.length)).astype(np.int64)


def episode_rows(
    table: StepTable,
    measure: str,
    unit: str,
    value: npt.ArrayLike,
    tags: Mapping[str, npt.NDArray[np.object_]] | None = None,
    episodes: npt.NDArray[np.int64] | None = None,
) -> Rows:
    """Return one row for each episode, or for each of some episodes.

    Args:
        value: ``[E]`` values, NaN where undefined.
        tags: name -> ``[E]`` tags of the rows beside those of the episodes.
        episodes: ``[E]`` the episodes, all by default.
    """
    of = np.arange(len(table.length)) if episodes is None else episodes
    return Rows.from_columns(
        measure=measure,
        unit=unit,
        value=value,
        grid_id=table.grid_id[of],
        episode_id=table.episode_id[of],
        tags={**{name: column[of] for name, column in table.tags.items()}, **(tags or {})},
    )


def step_rows(
    table: StepTable,
    measure: str,
    unit: str,
    value: npt.ArrayLike,
    tags: Mapping[str, npt.NDArray[np.object_]] | None = None,
    steps: npt.NDArray[np.int64] | None = None,
) -> Rows:
    """Return one row for each step, or for each of some steps.

    Args:
        value: ``[N]`` values, NaN where undefined.
        tags: name -> ``[N]`` tags of the steps beside those of their episodes.
        steps: ``[N]`` the steps, all by default.
    """
    chosen = np.arange(len(table.step)) if steps is None else steps
    of = table.episode[chosen]
    return Rows.from_columns(
        measure=measure,
        unit=unit,
        value=value,
        grid_id=table.grid_id[of],
        episode_id=table.episode_id[of],
        step=table.step[chosen],
        tags={**{name: column[of] for name, column in table.tags.items()}, **(tags or {})},
    )


def group_rows(
    table: StepTable,
    measure: str,
    unit: str,
    value: npt.ArrayLike,
    first: npt.NDArray[np.int64],
    tags: Mapping[str, npt.NDArray[np.object_]] | None = None,
) -> Rows:
    """Return one row for each group of episodes, or several where `first` repeats.

    Args:
        value: ``[K]`` values, NaN where undefined.
        first: ``[K]`` the first episode of each group, from `StepTable.groups`.
        tags: name -> ``[K]`` tags of the rows beside those of the group; `PROVENANCE` is left out of the latter.
    """
    shared = {name: column[first] for name, column in table.tags.items() if name not in PROVENANCE}
    tags = {**shared, **(tags or {})}
    return Rows.from_columns(measure=measure, unit=unit, value=value, grid_id=table.grid_id[first], tags=tags)
