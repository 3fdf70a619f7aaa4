"""What all parts of a study file share."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from goalscope.untrusted import shorten

MOST_COUNT = 1_000_000


class Part(BaseModel):
    """A part of a study: unknown keys, wrong types and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def sequence(**constraints: Any) -> Any:
    """Return a field that takes a YAML list for a tuple."""
    return Field(strict=False, **constraints)  # a YAML list is as good as a tuple; its items stay strict


def filled(values: Any) -> Any:
    """Return the values, or raise where there are none."""
    if not values:
        raise ValueError("must have at least one entry, got an empty list")
    return values


def distinct(values: Any, what: str = "values") -> Any:
    """Return the values, or raise where one stands there twice."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{what} must be different, got {shorten(value)} twice")
    return values
