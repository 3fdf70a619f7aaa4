"""Estimates as files of JSON hold them."""

from math import isfinite, nan
from typing import Annotated, Any, Self

from pydantic import Field, PlainSerializer, PlainValidator

from goalscope._ground.sealed import StrictRecord
from goalscope._ground.words import short
from goalscope.stats.estimate import Estimate


class EstimateRecord(StrictRecord):
    """An `Estimate`; None stands for a number that is not finite."""

    value: float | None
    low: float | None
    high: float | None
    n: int = Field(ge=0)
    clusters: int = Field(ge=0)
    method: str
    unit: str
    confidence: float = Field(gt=0, lt=1)
    note: str
    undefined: int = Field(ge=0)
    without: int = Field(ge=0)

    @classmethod
    def of(cls, estimate: Estimate) -> Self:
        """Return the record of an estimate."""
        values: dict[str, Any] = {
            name: float(number) if isfinite(number := getattr(estimate, name)) else None
            for name in ("value", "low", "high")
        }
        values |= {name: int(getattr(estimate, name)) for name in ("n", "clusters", "undefined", "without")}
        values |= {"method": estimate.method, "unit": estimate.unit, "note": estimate.note}
        return cls(**values, confidence=float(estimate.confidence))

    @property
    def text(self) -> str:
        """The value with its interval, as sentences and tables show it."""
        if self.value is None:
            return "undefined"
        ends = (
            ""
            if self.low is None or self.high is None
            else (f" [{short(self.low, self.unit)}, {short(self.high, self.unit)}]")
        )
        return short(self.value, self.unit) + ends

    @property
    def estimate(self) -> Estimate:
        """The estimate."""
        values: dict[str, Any] = {name: nan if value is None else value for name, value in self.model_dump().items()}
        return Estimate(**values)


def _read(plain: Any) -> Estimate:
    return plain if isinstance(plain, Estimate) else EstimateRecord.model_validate(plain).estimate


StoredEstimate = Annotated[
    Estimate, PlainValidator(_read), PlainSerializer(lambda estimate: EstimateRecord.of(estimate).plain())
]
"""An `Estimate` as a field of a record, written as an `EstimateRecord`."""
