"""What a study declares beforehand about its analysis; it decides no result and enters no id."""

import math
from typing import Annotated, Any

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from goalscope.runs.config_base import Part, sequence
from goalscope.runs.probing_config import Inside
from goalscope.untrusted import shorten


def _different(pair: tuple[str, str]) -> tuple[str, str]:
    if pair[0] == pair[1]:
        raise ValueError(f"a pair must name two different agents, got {shorten(pair[0])} twice")
    return pair


Pair = Annotated[tuple[str, str], Field(strict=False), AfterValidator(_different)]


class Invariance(Part):
    """Transforms against the original grids: the measures, and the greatest difference that counts as none.

    The tests of one agent, each measure under each transform, are one family. `margin` names the measures of the
    family, each with its equivalence margin in the unit of the measure; `level` is the family-wise level.
    """

    margin: dict[str, float]
    level: float = Field(default=0.05, gt=0, lt=0.5)

    @field_validator("margin", mode="before")
    @classmethod
    def _margins(cls, given: Any) -> Any:
        if isinstance(given, dict):
            if not given:
                raise ValueError("must name at least one measure with its margin, got none: e.g. {success: 0.1}")
            for measure, margin in given.items():
                check_margin(str(measure), margin)
        return given


class Analysis(Part):
    """All that a study declares about its analysis.

    `pairs` names pairs of agents, the changed one after the one that it is compared with, e.g. with and without the
    memory summary; pairs whose agents are not both run are left out. `inside` says what is read out of activations.
    """

    invariance: Invariance | None = None
    pairs: tuple[Pair, ...] = sequence(default=())
    inside: Inside | None = None

    @model_serializer(mode="wrap")
    def _without_defaults(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Left out where there is nothing: stored studies that do not know these keys stay what they were.
        plain: dict[str, Any] = written(self)
        return {key: value for key, value in plain.items() if key not in ("pairs", "inside") or value}


def check_margin(measure: str, margin: Any) -> float:
    """Return an equivalence margin.

    Raises:
        ValueError: not a finite number above 0.
    """
    number = isinstance(margin, int | float) and not isinstance(margin, bool)
    if not number or not (math.isfinite(margin) and margin > 0):
        raise ValueError(
            f"the equivalence margin of {measure!r} must be a finite number above 0, got {shorten(margin)}: no number "
            "of grids can show that a difference is exactly 0; name the greatest difference that does not matter"
        )
    return float(margin)
