"""What is registered of a kind, for tests that register parts of their own and take them back."""

from typing import Any

from goalscope._ground import registry


def entries_of(kind: str) -> dict[str, Any]:
    """Return a copy of all entries of a kind, after the modules that register them have been imported."""
    registry.names(kind)
    return dict(registry._entries[kind])
