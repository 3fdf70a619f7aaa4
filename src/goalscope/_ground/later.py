"""Names of a package that are imported from its modules when they are first asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_later(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a function ``__getattr__`` for a package, which imports a name from its module when the name is first
    used.

    The function raises AttributeError for a name that is not listed.

    Args:
        package: full name of the package.
        modules: name -> the module that defines it, without the name of the package; one of another package begins
            with a dot, as in ".worlds.gridworld".
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f".{modules[name]}", package), name)

    return find
