"""Measures: functions of the step table with a definition, registered by name."""

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
"""The data that a measure reads besides the steps.

"oracle": the column `optimal`, which needs the exact optimal policy.
"distance": the columns `distance`, `after` and `optimal_length`, which stochastic worlds do not have.
"grid": the worlds, as grids, and states that are (row, col, phase).
"environment": the optimal sets of worlds other than grids, with any number of actions.
"reward": the column `reward`.
"tasks": the worlds, as task maps.
"environment NAME", a text with the name of a registered environment or module:Class: the measure is given the episodes
in that one alone.
A measure is left out where the worlds lack what it needs.
"""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Values of some episodes, steps or groups only, or with additional tags.

    Attributes:
        value: ``[K]`` values, NaN where undefined.
        of: ``[K]`` index of the episode, step or group of each value, which may repeat; all of them in order by
            default.
        tags: name -> ``[K]`` tags in addition to those of the episodes.
    """

    value: npt.NDArray[Any]
    of: npt.NDArray[np.int64] | None = None
    tags: Mapping[str, npt.NDArray[np.object_]] = field(default_factory=dict)

    @classmethod
    def where(cls, mask: npt.NDArray[np.bool_], value: npt.NDArray[Any]) -> "Entries":
        """Return the values of the masked episodes, steps or groups: ``mask`` and ``value`` hold all of them."""
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
    """A function of the step table with its definition; see the decorator `measure`.

    Attributes:
        name: the measure of its rows.
        unit: the unit of its values.
        bounds: least and greatest value that the definition allows.
        per: the unit that it has a value for.
        needs: the data that it reads besides the steps.
        text: the definition, in words.
        source: source of the definition.
        base: name of the measure that it is a variant of, "" for none.
        function: table to ``[E]``, ``[N]`` or ``[K]`` values for the episodes, steps or groups, or to `Entries`.

    Raises:
        ValueError: an incomplete or contradictory definition.
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
                raise ValueError(f"a measure must have a {attribute}, got {getattr(self, attribute)!r} ({self.name!r})")
        low, high = map(float, self.bounds)
        if not low < high:
            raise ValueError(f"bounds must be (least, greatest), got {self.bounds} for the measure {self.name!r}")
        object.__setattr__(self, "bounds", (low, high))
        general = tuple(need for need in self.needs if not str(need).startswith(f"{ENVIRONMENT} "))
        if len(self.needs) - len(general) > 1:
            raise ValueError(f"a measure can need one environment by name, got {self.needs} for {self.name!r}")
        for values, allowed in (((self.per,), get_args(Per)), (general, get_args(Need))):
            if not set(values) <= set(allowed):
                raise ValueError(f"{', '.join(allowed)} are what a measure can name, got {values} for {self.name!r}")

    def __call__(self, table: StepTable) -> npt.NDArray[Any] | Entries:
        """Return the values of a table."""
        return self.function(table)

    def rows(self, table: StepTable) -> Rows:
        """Return one row for each value.

        Raises:
            ValueError: not one value for each episode, step or group.
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
    """Return a decorator that makes a function of the step table a measure and registers it.

    The function returns an array with one value for each episode (``[E]``), step (``[N]``) or group (``[K]``, the
    groups of `StepTable.groups`), NaN where undefined; or `Entries`.

    Args:
        name: a noun phrase, the `measure` of its rows.
        unit: the unit of its values.
        text: the definition in words, as the report, the help and the documentation show it; by default the function's
            docstring up to its first blank line.
        bounds: least and greatest value that the definition allows, infinite where there is no bound; from 0 to 1 for
            the unit "share", else from 0 on, where left out.
        source: source of the definition.
        per: the unit that it has a value for.
        needs: the data that it reads besides the steps, see `Need`; one of them or several.

    Raises:
        ValueError: a name already in use, or an incomplete definition.
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
    """Register measures built with parameters."""
    for step_measure in measures:
        registry.register("measure", step_measure.name, made_of=step_measure.function)(step_measure)


def ratio(numerator: npt.NDArray[np.generic], denominator: npt.NDArray[np.generic]) -> Values:
    """Return ``numerator / denominator``, NaN where the denominator is 0."""
    over, under = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    result: Values = np.divide(over, under, out=np.full(under.shape, np.nan), where=under != 0)
    return result
