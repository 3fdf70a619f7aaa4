"""Registry of named parts (agents, measures and other kinds), both built-in and from plugin packages.

A part registers under a name with a decorator. Built-in modules (see `install`) are imported when their kind is first
used. A plugin package declares a module as an entry point of the group ``goalscope``; it is imported once, after the
built-in modules, and registers its parts. A module of the group ``goalscope.KIND``, such as ``goalscope.command``, is
imported when a name of this kind is first asked for, so that it costs nothing before. If a package fails to import, a
warning and the error for every unknown name say so; its registrations up to then are removed, and all other names stay.
"""

# NumPy and pydantic are imported only where errors are raised, because `import goalscope` imports this module.
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from threading import RLock
from typing import Any, Final, TypeVar

KINDS: Final = (
    *("world", "environment", "agent", "model", "measure", "head", "intervention", "section", "attribution", "claim"),
    *("arm", "hypothesis", "analysis", "study", "command", "importer", "exporter", "thing"),
)
"""The kinds of parts that have names."""

GROUP: Final = "goalscope"
"""The group of entry points of plugin packages; that of one kind of parts is followed by a dot and the kind."""

_LONGEST_NAME: Final = 200

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class _Entry:
    part: Any
    module: str
    path: str
    package: str = ""  # the package that was being loaded, with its version

    @property
    def built_in(self) -> bool:
        return self.module.startswith("goalscope.")


_entries: dict[str, dict[str, _Entry]] = {kind: {} for kind in KINDS}
_broken: dict[str, str] = {}
_loading: list[str] = []
_packages: dict[str, str] = {}
"""Top-level name of a package's modules -> its package and version."""
_modules: dict[str, tuple[str, ...]] = {}
"""The modules that register the built-in parts of a kind, in the order in which their names are listed."""
_import: list[Callable[[str], object]] = []
"""The function that imports one of them."""
_loaded: set[str] = set()
_lock = RLock()


def install(modules: Mapping[str, tuple[str, ...]], load: Callable[[str], object]) -> None:
    """Declare which modules of goalscope register its built-in parts (kinds of worlds and agents, measures, ...).

    The registry imports the modules of a kind when that kind is first used.

    Args:
        modules: kind of parts, such as "measure" -> full names of the modules, in the order in which the names of their
            parts are listed.
        load: function that imports a module, given its full name.
    """
    _modules.update(modules)
    _import.append(load)


def register(kind: str, name: str, *, made_of: object = None) -> Callable[[Part], Part]:
    """Return a decorator that registers a part (a kind of worlds or agents, a measure, ...) and returns it unchanged.

    A function or class that is defined again in its module, as in a notebook, replaces its earlier definition.

    Args:
        kind: one of `KINDS`, such as "measure".
        name: name of the part in studies, commands and reports.
        made_of: the function or class that defines the part, if the part is an object made from it. Its module tells
            whose part this is.

    Raises:
        ValueError: if the kind is unknown, or the name is empty, longer than one line, or in use.
    """
    _check_kind(kind)
    line = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()
    if not line or ";" in name:
        from goalscope._ground.untrusted import shorten

        raise ValueError(
            f"the name of a registered {kind} must be one line of text of at most {_LONGEST_NAME} characters, without "
            f"';' and without blanks around it, got {shorten(name)}"
        )

    def add(part: Part) -> Part:
        source = part if made_of is None else made_of
        while isinstance(source, partial):
            source = source.func  # a partial object belongs to functools, but its function to its author
        path = getattr(source, "__qualname__", type(source).__qualname__)
        # Code executed outside of a module has no module name.
        module = getattr(source, "__module__", type(source).__module__) or "__main__"
        entry = _Entry(part, module, path, _loading[-1] if _loading else "")
        with _lock:
            if not entry.built_in:
                load_built_in(kind)
            existing = _entries[kind].get(name)
            if existing is not None and (
                (existing.module, existing.path) != (entry.module, path) or "<locals>" in path
            ):
                raise ValueError(
                    f"the name of a registered {kind} must be its own, but {name!r} of {entry.module} is taken by "
                    f"{existing.module}: choose another name"
                )
            _entries[kind][name] = entry
        return part

    return add


def load_built_in(kind: str) -> None:
    """Import, once, the modules of goalscope that register the built-in parts of a kind, such as "measure"."""
    if kind not in _loaded:
        _loaded.add(kind)  # first, since these modules may look up names during their import
        try:
            for module in _modules.get(kind, ()):
                _import[-1](module)
        except BaseException:
            _loaded.discard(kind)  # a missing library may be installed later
            raise


def resolve(kind: str, name: str) -> Any:
    """Return the part (a kind of worlds or agents, a measure, ...) that is registered under a name.

    Args:
        kind: one of `KINDS`, such as "measure".
        name: name of the part.

    Raises:
        ValueError: if the kind or the name is unknown. The message suggests similar names, and lists packages that
            could not be imported.
    """
    _check_kind(kind)
    with _lock:
        load_built_in(kind)
        if name not in _entries[kind]:
            _load_packages(kind)
        if name not in _entries[kind]:
            from goalscope._ground.checks import near_miss
            from goalscope._ground.untrusted import shorten

            broken = "".join(f"; {sentence}" for sentence in _broken.values())
            close = near_miss(name, sorted(_entries[kind]), most=3)
            raise ValueError(f"no {kind} is registered under the name {shorten(name)}{close}{broken}")
        return _entries[kind][name].part


def names(kind: str) -> tuple[str, ...]:
    """Return the names of all registered parts of a kind (such as "measure"), built-in parts first.

    The order does not depend on the order of imports.

    Raises:
        ValueError: if the kind is unknown.
    """
    _check_kind(kind)
    with _lock:
        load_built_in(kind)
        _load_packages(kind)
        order = {module: index for index, module in enumerate(_modules.get(kind, ()))}
        entries = _entries[kind]
        return tuple(sorted(entries, key=lambda name: order.get(entries[name].module, len(order))))


def broken_packages() -> Mapping[str, str]:
    """Return the plugin packages that could not be imported: name and version -> the reason, as a sentence."""
    with _lock:
        for kind in KINDS:
            _load_packages(kind)
        return dict(_broken)


def registered(kind: object, name: object) -> bool:
    """Return whether a part of this kind (such as "measure") is registered under this name.

    Kind and name may be any values, for example text of unknown origin.
    """
    return kind in KINDS and name in names(str(kind))


def built_in(kind: str, name: str) -> bool:
    """Return whether the part with this kind (such as "measure") and name is registered and belongs to goalscope
    itself.
    """
    return name in _entries[kind] and _entries[kind][name].built_in


def package_of(module: str) -> str:
    """Return name and version of the plugin package that contains a module; "" if no plugin package does."""
    return _packages.get(module.partition(".")[0], "")


def package_with(kind: str, name: str) -> str:
    """Return name and version of the package that registered a part, or the name of the part's module if no package
    did.

    Args:
        kind: kind of the part, such as "measure".
        name: name of the part under this kind; it must be registered.
    """
    entry = _entries[kind][name]
    return entry.package or package_of(entry.module) or entry.module


def part_at(module: str, path: str) -> tuple[str, str] | None:
    """Find the registered part (such as a measure) to which a function belongs, for messages that say whose code
    failed.

    Args:
        module: module of the function.
        path: qualified name of the function, such as ``Maze.begin``.

    Returns:
        Kind and name of the part, or None if no part, or more than one, has this function.
    """
    candidates = [
        (kind, name)
        for kind, entries in _entries.items()
        for name, entry in entries.items()
        if entry.module == module and (path == entry.path or path.startswith(f"{entry.path}."))
    ]
    return candidates[0] if len(candidates) == 1 else None  # anonymous functions share one qualified name


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"a kind of parts must be one of {', '.join(KINDS)}, got {kind!r}")


def _load_packages(kind: str) -> None:
    """Import the modules of plugin packages that may register parts of a kind, each once."""
    for group in (GROUP, f"{GROUP}.{kind}"):
        if group not in _loaded:
            _loaded.add(group)
            _load_group(group)


@lru_cache(maxsize=1)
def _entry_points(path: tuple[str, ...]) -> Any:
    """Return the entry points of all packages on Python's path; reading them takes milliseconds for each group."""
    return entry_points()


def _load_group(group: str) -> None:
    for point in sorted(
        _entry_points(tuple(sys.path)).select(group=group), key=lambda point: (_distribution(point), point.name)
    ):
        before = {kind: dict(entries) for kind, entries in _entries.items()}
        _loading.append(_distribution(point))
        try:
            if point.pattern.match(point.value) is None:
                raise ValueError("its entry point must name a module")
            if (first := point.module.partition(".")[0]) != "goalscope":
                _packages.setdefault(first, _distribution(point))
            point.load()
        except KeyboardInterrupt:
            _loaded.discard(group)  # the user's
            raise
        except BaseException as error:  # noqa: BLE001 - an import may raise anything, an exit too; other names stay
            # Built-in parts that its modules imported stay: they are not imported again.
            for kind, entries in _entries.items():
                remaining = {
                    name: entry for name, entry in entries.items() if entry.built_in or before[kind].get(name) is entry
                }
                _entries[kind] = remaining
            name = _distribution(point)
            sentence = (
                f"the package {name} could not be loaded from {_printable(point.value)} ({_told(error)}), mend or "
                "uninstall it"
            )
            _broken[name] = sentence
            warnings.warn(sentence, RuntimeWarning, stacklevel=3)
        finally:
            _loading.pop()


def _told(error: BaseException) -> str:
    """Return the type and message of a package's error on one line."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - its own code writes it
        message = "no message"
    return _printable(f"{type(error).__name__}: {message}")


def _distribution(point: EntryPoint) -> str:
    return _printable(f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.name)


def _printable(text: str) -> str:
    from goalscope._ground.untrusted import printable

    return printable(text)
