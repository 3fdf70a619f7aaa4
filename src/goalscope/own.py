"""User classes in a study file: ``module:Class`` in the working directory.

A run from an untrusted source may name any class. Such a module is therefore imported from the working directory only,
where the user put it, never in place of an installed one, and a line on standard error says so before its code runs.
Commands that read a run directory import none unless they are told to, see `refused`. Installed packages register their
parts instead, see `goalscope.registry`.
"""

import importlib.util
import multiprocessing
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from goalscope.folder import NamedFile

_OWN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_files: dict[str, Path] = {}
"""The modules imported by this file, by name: one of another working directory may replace them."""
_refusals: list[str] = []
"""How the user allows what is refused now, the last entry counts; none where nothing is refused."""


def imported() -> frozenset[str]:
    """Return the names of the modules of the working directory that were imported."""
    return frozenset(_files)


def is_own(source: str) -> bool:
    """Return whether a text has the form ``module:Class``."""
    return _OWN.fullmatch(source) is not None


@contextmanager
def refused(advice: str) -> Iterator[None]:
    """Import nothing of the working directory meanwhile, whatever a run names.

    Args:
        advice: how the user allows it, the end of the error message; "" allows it.
    """
    _refusals.append(advice)
    try:
        yield
    finally:
        _refusals.pop()


def load_own(source: str, methods: tuple[str, ...], what: str) -> Callable[..., Any]:
    """Return a class of a module in the working directory.

    Args:
        source: ``module:Class``.
        methods: names that the class must have.
        what: expected kind of part, for messages.

    Raises:
        ValueError: no such module or class there, or a class without the methods.
    """
    loaded = _attribute(source, what)
    lacking = [name for name in methods if not callable(getattr(loaded, name, None))]
    if not isinstance(loaded, type) or lacking:
        raise ValueError(
            f"{source} must be a class with the methods {', '.join(methods)}, lacking: {', '.join(lacking)}"
        )
    return loaded


def load_function(source: str, what: str) -> Callable[..., Any]:
    """Return a function of a module in the working directory.

    Args:
        source: ``module:function``.
        what: expected kind of part, for messages.

    Raises:
        ValueError: no such module or function there.
    """
    if not is_own(source):
        raise ValueError(f"{what} must be given as module:function, got {source!r}: name its file and its name")
    loaded = _attribute(source, what)
    if not callable(loaded):
        raise ValueError(f"{source} must be {what}: define a function of that name in the module")
    function: Callable[..., Any] = loaded
    return function


def _attribute(source: str, what: str) -> Any:
    """Return an attribute of a module of the working directory, None where it is missing."""
    module, _, name = source.partition(":")
    file = Path.cwd().joinpath(*module.split("."))
    path = next(
        (candidate for candidate in (file.with_suffix(".py"), file / "__init__.py") if NamedFile(candidate).is_there()),
        None,
    )
    if path is None:
        raise ValueError(
            f"{source} must be {what} in a module of the working directory, but there is no {file.with_suffix('.py')}: "
            "run goalscope from its folder, or register it in a package (docs/plugins.md)"
        )
    return getattr(_imported(module, path, source), name, None)


def _imported(module: str, path: Path, source: str) -> Any:
    """Return a module of the working directory, imported under its own name but never in place of an installed one."""
    existing = sys.modules.get(module)
    file = _files.get(module) or Path(getattr(existing, "__file__", None) or "").resolve()
    if existing is not None and file == path.resolve():
        return existing
    if (existing is not None and module not in _files) or _is_installed(module):
        raise ValueError(f"the module {module} of the working directory must have a name of its own, it is taken")
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} must be a Python module")
    if _refusals and _refusals[-1]:
        raise ValueError(
            f"{source} must be imported for this, which runs the code of {str(path)!r}: a run directory of "
            f"somebody else may name any file; {_refusals[-1]}"
        )
    if multiprocessing.parent_process() is None:  # the first process has said it
        sys.stderr.write(f"{source}: the code of {str(path)!r} is run (a part of the working directory)\n")
    imported = importlib.util.module_from_spec(spec)
    sys.modules[module] = imported
    _files[module] = path.resolve()
    folder = str(Path.cwd())
    sys.path.append(folder)  # for its imports of neighbouring modules; last, so that it shadows nothing
    try:
        spec.loader.exec_module(imported)
    except BaseException:
        del sys.modules[module], _files[module]
        raise
    finally:
        sys.path.remove(folder)
    return imported


def _is_installed(module: str) -> bool:
    """Return whether a module's package is found outside of the working directory; nothing is imported."""
    package, here = module.partition(".")[0], Path.cwd().resolve()
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != here]
    return package in sys.stdlib_module_names or PathFinder.find_spec(package, elsewhere) is not None
