"""Define and register measures: functions of the step table with a name, a unit and a definition."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope.measures.table import ENVIRONMENT, Per, StepTable
from goalscope.stats.rows import Rows

PAPER: Final = "Arghal et al. (2026)"
OURS: Final = "goalscope"

Need = Literal["oracle", "distance", "grid", "environment", "reward", "tasks"]
"""What a measure needs besides the steps.

"oracle": the column `optimal`, which needs the exact optimal policy.
"distance": the columns `distance`, `after` and `optimal_length`, which stochastic worlds do not have.
"grid": the worlds, as grids, and states that are (row, col, phase).
"environment": the optimal sets of worlds other than grids, with any number of actions.
"reward": the column `reward`.
"tasks": the worlds, as task maps.
"environment NAME", where NAME is the source of an environment as a study names it (a registered kind or module:Class,
as in "environment inbox:Inbox"): the measure receives only the episodes in that environment.
A measure is skipped for worlds that lack what it needs.
"""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Values of a measure for only some of its units (episodes, steps or groups of episodes), or with tags of their
    own.

    A measure may return this instead of an array with one value per unit.

    Attributes:
        value: ``[K]`` values, NaN where undefined.
        of: ``[K]`` index of the episode, step or group of each value; indices may repeat. By default all of them in
            order.
        tags: name -> ``[K]`` tags (named facts to group by) that are added to those of the episodes.
    """

    value: npt.NDArray[Any]
    of: npt.NDArray[np.int64] | None = None
    tags: Mapping[str, npt.NDArray[np.object_]] = field(default_factory=dict)

    @classmethod
    def where(cls, mask: npt.NDArray[np.bool_], value: npt.NDArray[Any]) -> "Entries":
        """Keep only the values that a mask selects.

        Args:
            mask: bool, one entry per episode, step or group.
            value: values of the same length.
        """
        return cls(value[mask], np.flatnonzero(mask))


Function = Callable[[StepTable], npt.NDArray[Any] | Entries]


@runtime_checkable
class Measure(Protocol):
    """Interface of a measure: a quantity of behaviour that is computed from episodes, such as the share of optimal
    actions.
    """

    @property
    def name(self) -> str:
        """Name of the measure, a noun phrase; its rows carry it in `measure`."""
        ...

    @property
    def unit(self) -> str:
        """Unit of the values, such as "share" or "bits"."""
        ...

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value that the definition allows; infinite where unbounded."""
        ...

    def rows(self, table: StepTable) -> Rows:
        """Compute the values of the measure for a table of episodes, as rows.

        There is one row for each step, for each episode, or for each group of `StepTable.groups` (all episodes of an
        agent on a world).
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasure:
    """A measure that is defined by a function of a table of episodes; create it with the decorator `measure`.

    Attributes:
        name: name of the measure, which its rows carry.
        unit: unit of the values, such as "share".
        bounds: smallest and largest value that the definition allows.
        per: what one value belongs to: "episode", "step" or "group" (all episodes of an agent on a world).
        needs: what the function needs besides the steps, such as "oracle" (see `Need`).
        text: the definition, in words.
        source: source of the definition.
        base: name of the measure of which it is a variant, "" if none.
        function: maps a table to ``[E]``, ``[N]`` or ``[K]`` values, one per episode, step or group, or to `Entries`.

    Raises:
        ValueError: if the definition is incomplete or contradictory.
    """

    name: str
    unit: str
    bounds: tuple[float, float]
    text: str
    source: str = ""
    per: Per = "episode"
    needs: tuple[str, ...] = ()
    base: str = ""
    function: Function = field(repr=False)

    def __post_init__(self) -> None:
        for attribute in ("name", "unit", "text"):
            if not isinstance(getattr(self, attribute), str) or not getattr(self, attribute).strip():
                raise ValueError(f"a measure needs a {attribute}, got {getattr(self, attribute)!r} for {self.name!r}")
        low, high = map(float, self.bounds)
        if not low < high:
            raise ValueError(f"bounds must be (smallest, largest), got {self.bounds} for the measure {self.name!r}")
        object.__setattr__(self, "bounds", (low, high))
        general = tuple(need for need in self.needs if not str(need).startswith(f"{ENVIRONMENT} "))
        if len(self.needs) - len(general) > 1:
            raise ValueError(f"a measure can need at most one environment, got {self.needs} for {self.name!r}")
        for values, allowed in (((self.per,), get_args(Per)), (general, get_args(Need))):
            if not set(values) <= set(allowed):
                raise ValueError(f"a measure can use {', '.join(allowed)}, got {values} for {self.name!r}")

    def __call__(self, table: StepTable) -> npt.NDArray[Any] | Entries:
        """Compute the values for a table of episodes: one per episode, step or group, or `Entries`."""
        return self.function(table)

    def rows(self, table: StepTable) -> Rows:
        """Compute the values for a table of episodes, as rows: one row per value.

        Raises:
            ValueError: if the function did not return one value per episode, step or group.
        """
        for need in self.needs:
            if need.startswith(f"{ENVIRONMENT} "):
                table = table.of_environment(need.partition(" ")[2])
        result = self.function(table)
        entries = result if isinstance(result, Entries) else Entries(np.asarray(result))
        return table.rows(self.name, self.unit, entries.value, per=self.per, of=entries.of, tags=entries.tags)


def measure(
    name: str,
    *,
    unit: str,
    text: str = "",
    bounds: tuple[float, float] | None = None,
    source: str = "",
    per: Per = "episode",
    needs: str | tuple[str, ...] = (),
) -> Callable[[Function], StepMeasure]:
    """Register a function of a table of episodes as a measure (decorator).

    The function receives a `StepTable`. It returns an array with one value per episode (``[E]``), step (``[N]``) or
    group (``[K]``, the groups of `StepTable.groups`), with NaN where undefined; or `Entries`.

    Args:
        name: name of the measure, a noun phrase; its rows carry it.
        unit: unit of the values, such as "share".
        text: definition in words, shown in reports, help and documentation; by default the docstring of the function up
            to its first blank line.
        bounds: smallest and largest value that the definition allows, infinite where unbounded. Default: 0 to 1 for the
            unit "share", otherwise 0 to infinity.
        source: source of the definition.
        per: what one value belongs to: "episode", "step" or "group" (all episodes of an agent on a world).
        needs: one need or several, see `Need`: what the function reads besides the steps.

    Raises:
        ValueError: if the name is taken, or the definition is incomplete.
    """

    def add(function: Function) -> StepMeasure:
        step_measure = StepMeasure(
            name=name,
            unit=unit,
            bounds=bounds or (0.0, 1.0 if unit == "share" else math.inf),
            text=text or _definition(function),
            source=source,
            per=per,
            needs=(needs,) if isinstance(needs, str) else needs,
            function=function,
        )
        add_measures(step_measure)
        return step_measure

    return add


def _definition(function: Function) -> str:
    text = " ".join((function.__doc__ or "").partition("\n\n")[0].split())
    return text[:1].lower() + text[1:].removesuffix(".")


def add_measures(*measures: StepMeasure) -> None:
    """Register measures that were made as `StepMeasure` objects, for example in a loop, and not by the decorator
    `measure`.
    """
    for step_measure in measures:
        registry.register("measure", step_measure.name, made_of=step_measure.function)(step_measure)


def ratio(numerator: npt.NDArray[np.generic], denominator: npt.NDArray[np.generic]) -> Values:
    """Divide two arrays of the same shape entry by entry; the result is NaN where the denominator is 0."""
    over, under = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    result: Values = np.divide(over, under, out=np.full(under.shape, np.nan), where=under != 0)
    return result
