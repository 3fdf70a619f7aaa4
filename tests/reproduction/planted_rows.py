"""Rows with planted values, and an item that is read from them."""

from typing import Any

from goalscope.papers import Item
from goalscope.stats.rows import Row


def rows_of(measure: str, values: Any, **tags: Any) -> list[Row]:
    return [
        Row(measure=measure, unit="share", value=float(value), cluster=f"g{at}", tags={"agent": "A", **tags})
        for at, value in enumerate(values)
    ]


def item_of(**given: Any) -> Item:
    return Item(name="telos figure 4", title="t", study="baseline", model="GPT-OSS-20B", **given)
