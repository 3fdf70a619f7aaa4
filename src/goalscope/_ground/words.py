"""Format numbers, counts and lists for sentences and tables."""

import math
from collections.abc import Sequence


def short(value: float, unit: str) -> str:
    """Format a value as in tables: shares, bits and nats with three decimals, larger numbers with fewer."""
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    decimals = 3 if unit in ("share", "bits", "nats") or abs(value) < 10 else 2 if abs(value) < 100 else 1
    text = f"{value:.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−")


def counted(count: int, noun: str) -> str:
    """Format a count: ``1 grid``, ``9,000 episodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """Format a list: ``a``, ``a and b``, ``a, b and c``; ``none`` if it is empty."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else "none"
