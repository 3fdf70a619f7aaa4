"""Names of a package that are imported from its modules when they are first asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_later(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the function ``__getattr__`` of a package that imports its names when they are first asked for.

    Args:
        package: full name of the package.
        modules: name -> the module of the package that defines it.
    """

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return find
