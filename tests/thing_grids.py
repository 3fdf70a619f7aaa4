"""Kinds of things as another package would define them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from goalscope._ground import registry
from registered import entries_of

PLUGINS = ("tests.worlds.conveyor", "tests.worlds.toll_gate")


@contextmanager
def plugin_things() -> Iterator[None]:
    """Register the conveyor and the toll gate, and take them back."""
    before = {part: entries_of(part) for part in ("thing", "measure")}
    for module in PLUGINS:
        sys.modules.pop(module, None)
        import_module(module)
    try:
        yield
    finally:
        registry._entries |= before


def all_names() -> tuple[str, ...]:
    with plugin_things():
        return registry.names("thing")
