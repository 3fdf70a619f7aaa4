"""Records of estimates for JSON files."""

from math import isfinite, nan
from typing import Annotated, Any, Self

from pydantic import Field, PlainSerializer, PlainValidator

from goalscope._ground.sealed import StrictRecord
from goalscope._ground.words import short
from goalscope.stats.estimate import Estimate


class EstimateRecord(StrictRecord):
    """JSON form of an `Estimate`, with None for numbers that are not finite."""

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
        """Convert an estimate to its record."""
        values: dict[str, Any] = {
            name: float(number) if isfinite(number := getattr(estimate, name)) else None
            for name in ("value", "low", "high")
        }
        values |= {name: int(getattr(estimate, name)) for name in ("n", "clusters", "undefined", "without")}
        values |= {"method": estimate.method, "unit": estimate.unit, "note": estimate.note}
        return cls(**values, confidence=float(estimate.confidence))

    @property
    def text(self) -> str:
        """The value with its interval, formatted for sentences and tables."""
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
        """The estimate that the record stores."""
        values: dict[str, Any] = {name: nan if value is None else value for name, value in self.model_dump().items()}
        return Estimate(**values)


def _read(plain: Any) -> Estimate:
    return plain if isinstance(plain, Estimate) else EstimateRecord.model_validate(plain).estimate


StoredEstimate = Annotated[
    Estimate, PlainValidator(_read), PlainSerializer(lambda estimate: EstimateRecord.of(estimate).plain())
]
"""An `Estimate` as a field of a record, written as an `EstimateRecord`."""
