"""Kinds of things as another package would define them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from families import long_after
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


def names_to_try() -> list[Any]:
    """Return all names: of each kind one colour and one direction for the gate, the others for the long tests."""

    def is_another(name: str) -> bool:
        return name.startswith(("blue ", "yellow ")) or name.endswith((" left", " up", " down"))

    names = sorted(all_names(), key=is_another)
    return long_after(sum(not is_another(name) for name in names), names)
