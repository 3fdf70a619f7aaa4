"""Classes of one's own in a study file: ``module:Class`` in the working directory.

A run that a stranger wrote may name any class. So such a module is imported from the working directory only, where
whoever runs goalscope put it, and never in place of an installed one; what others install registers its parts instead,
see `goalscope.registry`.
"""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_OWN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_files: dict[str, Path] = {}
"""The modules that were imported from here, by name: one of another working directory may take their place."""


def is_own(source: str) -> bool:
    """Return whether a text names a class, ``module:Class``."""
    return _OWN.fullmatch(source) is not None


def load_own(source: str, methods: tuple[str, ...], what: str) -> Callable[..., Any]:
    """Return a class of a module in the working directory.

    Args:
        source: ``module:Class``.
        methods: names that the class must have.
        what: what it is to be, for messages.

    Raises:
        ValueError: no such module or class there, or a class without the methods; says what to do.
    """
    found = _found(source, what)
    lacking = [one for one in methods if not callable(getattr(found, one, None))]
    if not isinstance(found, type) or lacking:
        raise ValueError(
            f"{source} must be a class with the methods {', '.join(methods)}, lacking: {', '.join(lacking)}"
        )
    return found


def load_function(source: str, what: str) -> Callable[..., Any]:
    """Return a function of a module in the working directory.

    Args:
        source: ``module:function``.
        what: what it is to be, for messages.

    Raises:
        ValueError: no such module or function there; says what to do.
    """
    if not is_own(source):
        raise ValueError(f"{what} must be given as module:function, got {source!r}: name its file and its name")
    found = _found(source, what)
    if not callable(found):
        raise ValueError(f"{source} must be {what}: define a function of that name in the module")
    function: Callable[..., Any] = found
    return function


def _found(source: str, what: str) -> Any:
    """Return what a module of the working directory has under a name, None where there is nothing."""
    module, _, name = source.partition(":")
    file = Path.cwd().joinpath(*module.split("."))
    path = next((one for one in (file.with_suffix(".py"), file / "__init__.py") if one.is_file()), None)
    if path is None:
        raise ValueError(
            f"{source} must be {what} in a module of the working directory, but there is no {file.with_suffix('.py')}: "
            "run goalscope from its folder, or register it in a package (docs/plugins.md)"
        )
    return getattr(_imported(module, path), name, None)


def _imported(module: str, path: Path) -> Any:
    """Return a module of the working directory, imported under its own name but never in place of an installed one."""
    known = sys.modules.get(module)
    file = _files.get(module) or Path(getattr(known, "__file__", None) or "").resolve()
    if known is not None and file == path.resolve():
        return known
    if known is not None and module not in _files:
        raise ValueError(f"the module {module} of the working directory must have a name of its own, it is taken")
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} must be a Python module")
    made = importlib.util.module_from_spec(spec)
    sys.modules[module] = made
    _files[module] = path.resolve()
    folder = str(Path.cwd())
    sys.path.append(folder)  # for what it imports from beside itself; last, so that it hides nothing
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[module], _files[module]
        raise
    finally:
        sys.path.remove(folder)
    return made
