"""Code of other people: the user's consent to import it, and errors that name whose code failed.

User classes and functions, ``module:Class``, are imported from the working directory.

A run, an evaluation, a claim or a card from somebody else may contain the name of any module. A module of the working
directory is therefore imported only if its name comes from the user: typed in this command or call, read from a study,
hypotheses or model file given to this command, or allowed with ``--own-code`` (in Python: `allowed`). Code that
receives such a name from the user calls `consent`; `may_import` alone decides whether a name may be imported.

A module is imported only from the working directory, never instead of an installed one, and a line on standard error
says so before its code runs. Installed packages register their parts instead, see `goalscope._ground.registry`.

Errors in code of other people name the part and its package, and do not stop other parts (`attempt`). A part is
recognised by its code: a frame of a traceback belongs to the package whose entry point imported its module, or to a
module of the working directory.
"""

import errno
import importlib.util
import multiprocessing
import os
import re
import sqlite3
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.machinery import PathFinder
from pathlib import Path
from traceback import extract_tb
from types import FrameType
from typing import Any, Final, TypeVar

from goalscope._ground import registry
from goalscope._ground.folder import NamedFile
from goalscope._ground.untrusted import DamagedError, StrangeFileError, printable, shorten

_OWN = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_SEPARATORS = re.compile(r"[\s;,()\[\]{}'\"]+")
"""Separators around a name in a written hypothesis or a setting, as in ``policy mine:hug if (event mine:near)``."""
_files: dict[str, Path] = {}
"""The modules imported here, by name; a module of another working directory may replace them."""
_sources: dict[str, str] = {}
"""Name -> the directory or file that contained it, for messages."""
_IN_PYTHON: Final = "If the file is yours, write `with goalscope.own.allowed(): ...` around the call"


@dataclass
class Consent:
    """Which code of the user's own the user allowed to be imported; code is named by ``module:Class``.

    Attributes:
        names: names that the user typed, and names in files that the user gave.
        everything: whether every name is allowed (``--own-code``).
        advice: how to allow a refused name; the end of the error message.
    """

    names: set[str] = field(default_factory=set)
    everything: bool = False
    advice: str = _IN_PYTHON


_consents: list[Consent] = [Consent()]
"""The last entry decides. The first entry is for calls from Python, each further one for a command."""


def is_own(source: str) -> bool:
    """Return whether a text has the form ``module:Class``, by which users name code of their own."""
    return _OWN.fullmatch(source) is not None


def names_in(value: Any) -> set[str]:
    """Return all names of the user's own code, ``module:Class``, in nested mappings, lists and texts.

    Keys, texts and the single words of texts are searched. The entries of a setting ``modules`` name whole modules (see
    `load_module`), and are returned as ``module:*``.
    """
    if isinstance(value, str):
        return {word for word in _SEPARATORS.split(value) if is_own(word)} if ":" in value else set()
    if isinstance(value, Mapping):
        modules = value.get("modules")
        listed = modules if isinstance(modules, list | tuple) else ()
        whole = {f"{module}:*" for module in listed if isinstance(module, str)}
        return whole | names_in(list(value.keys())) | names_in(list(value.values()))
    return set().union(*map(names_in, value)) if isinstance(value, list | tuple) else set()


def program_for(value: Any) -> str:
    """Return how a command must begin that reads a run with these settings: ``goalscope`` or ``goalscope --own-code``.

    The second is needed if the settings (nested mappings, lists and texts) name code of the user's own as
    ``module:Class``, since such code is imported only with consent.
    """
    return "goalscope --own-code" if names_in(value) else "goalscope"


def consent(value: Any) -> None:
    """Record that the user allows importing the code that some settings name as ``module:Class``.

    Call it only with values (nested mappings, lists and texts) that the user typed, or that are in a file that the user
    gave to this command; never with values read from a run, an evaluation, a claim or a card.
    """
    _consents[-1].names.update(names_in(value))


def may_import(name: str) -> bool:
    """Return whether the user allowed importing the code with a name of the form ``module:Class``.

    Only this function decides what is imported.
    """
    return _consents[-1].everything or name in _consents[-1].names


def check_consent(value: Any) -> None:
    """Raise an error if settings read from a directory name code (``module:Class``) that the user did not allow.

    Nothing is imported. Work that would fail for the same reason in many places begins with this check.

    Args:
        value: the settings, as nested mappings, lists and texts.

    Raises:
        ValueError: if the user did not allow a name, or the working directory has no such module.
    """
    for name in sorted(names_in(value)):
        if not may_import(name):
            _attribute(name, "a part")  # raises, as where it is needed


def note_found(value: Any, place: str | Path) -> None:
    """Remember which directory or file names some code, so that the message that refuses this code can say so.

    Args:
        value: nested mappings, lists and texts that contain the names, ``module:Class``.
        place: the directory or file in which they were found.
    """
    _sources.update(dict.fromkeys(names_in(value), str(place)))


def allowed() -> AbstractContextManager[None]:
    """Allow importing all code that is named as ``module:Class`` inside this context, even where a run names it.

    This is what ``--own-code`` does for a command. Use it only with runs whose code you trust.
    """
    return _deciding(replace(_consents[-1], everything=True))


def command(*, own_code: bool, advice: str) -> AbstractContextManager[None]:
    """Return a context for running a command, in which only the command's own arguments allow code to be imported.

    Args:
        own_code: whether the user gave ``--own-code``, which allows all code named as ``module:Class``.
        advice: how to allow a refused name; the end of the error message.
    """
    return _deciding(Consent(everything=own_code, advice=advice))


@contextmanager
def _deciding(consent_given: Consent) -> Iterator[None]:
    _consents.append(consent_given)
    try:
        yield
    finally:
        _consents.pop()


def current() -> Consent:
    """Return a copy of the user's consent so far (which code may be imported), to be sent to a worker process."""
    return replace(_consents[-1], names=set(_consents[-1].names))


def adopt(consent_given: Consent) -> None:
    """Use in this worker process the consent (which code may be imported) that the user gave to its parent process."""
    _consents[:] = [consent_given]


def load_own(source: str, methods: tuple[str, ...], role: str) -> Callable[..., Any]:
    """Import a class from a module in the working directory, and return the class.

    Args:
        source: the class, as ``module:Class``.
        methods: names of methods that the class must have.
        role: what the class is to be, in words, for error messages.

    Raises:
        ValueError: if there is no such module or class, the class lacks a method, or the user did not allow the name.
    """
    loaded = _attribute(source, role)
    if loaded is None:
        module, _, missing = source.partition(":")
        classes = [name for name, value in vars(sys.modules[module]).items() if isinstance(value, type)]
        own_classes = [name for name in classes if getattr(sys.modules[module], name).__module__ == module]
        listed = f"; it has {', '.join(own_classes)}" if own_classes else ""
        raise ValueError(f"{module} must have a class {missing}, but there is none of this name{listed}")
    lacking = [name for name in methods if not callable(getattr(loaded, name, None))]
    if not isinstance(loaded, type) or lacking:
        wanted = f"a class with the methods {', '.join(methods)}" if methods else f"{role}: a class"
        raise ValueError(
            f"{source} must be {wanted}, {'lacking: ' + ', '.join(lacking) if lacking else f'got {loaded!r:.80}'}"
        )
    return loaded


def load_function(source: str, role: str) -> Callable[..., Any]:
    """Import a function from a module in the working directory, and return the function.

    Args:
        source: the function, as ``module:function``.
        role: what the function is to be, in words, for error messages.

    Raises:
        ValueError: if there is no such module or function, or the user did not allow the name.
    """
    if not is_own(source):
        raise ValueError(f"{role} must be given as module:function, got {source!r}: name its file and its name")
    loaded = _attribute(source, role)
    if not callable(loaded):
        raise ValueError(f"{source} must be {role}: define a function of that name in the module")
    function: Callable[..., Any] = loaded
    return function


def load_module(module: str, role: str) -> None:
    """Import a module for the parts that it registers with another library, such as MiniGrid levels.

    It is a module of the working directory or, if the user named it, an installed package.

    Args:
        module: name of the module, as in an import statement.
        role: what the module is to be, in words, for error messages.

    Raises:
        ValueError: if this is not the name of a module, there is no such module, or the user did not allow it.
    """
    if not isinstance(module, str) or not is_own(f"{module}:_"):
        raise ValueError(f"{role} must be given by its name, as in an import statement, got {module!r:.80}")
    if may_import(f"{module}:*") and _file_of(module) is None and _is_installed(module):
        importlib.import_module(module)
    else:
        _attribute(f"{module}:*", role)


def _file_of(module: str) -> Path | None:
    """Return the file of a module of the working directory, None if there is none."""
    file = Path.cwd().joinpath(*module.split("."))
    candidates = (file.with_suffix(".py"), file / "__init__.py")
    return next((candidate for candidate in candidates if NamedFile(candidate).is_there()), None)


def _attribute(source: str, role: str) -> Any:
    """Return an attribute of a module of the working directory, None if it is missing."""
    module, _, name = source.partition(":")
    path = _file_of(module)
    if path is None:
        file = Path.cwd().joinpath(*module.split(".")).with_suffix(".py")
        raise ValueError(
            f"{source} must be {role} in a module of the working directory, but there is no {file}: "
            "run goalscope from its folder, or register it in a package (docs/plugins.md)"
        )
    if not may_import(source):
        place = f", named in {_sources[source]}," if source in _sources else ""
        raise ValueError(
            f"{source}{place} must be imported for this, which runs the code of {str(path)!r}. goalscope does not "
            "import a name that it finds in a directory unless you allow it, because somebody else may have written "
            f"it. {_consents[-1].advice}"
        )
    return getattr(_imported(module, path, source), name, None)


def _imported(module: str, path: Path, source: str) -> Any:
    """Return a module of the working directory, imported under its own name but never instead of an installed one."""
    existing = sys.modules.get(module)
    file = _files.get(module) or Path(getattr(existing, "__file__", None) or "").resolve()
    if existing is not None and file == path.resolve():
        return existing
    if (existing is not None and module not in _files) or _is_installed(module):
        raise ValueError(f"the module {module} of the working directory must have a name of its own, it is taken")
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} must be a Python module")
    if multiprocessing.parent_process() is None:  # the first process has already printed it
        sys.stderr.write(f"{source}: the code of {str(path)!r} is run (a part of the working directory)\n")
    imported = importlib.util.module_from_spec(spec)
    sys.modules[module] = imported
    _files[module] = path.resolve()
    folder = str(Path.cwd())
    sys.path.append(folder)  # allows imports of neighbouring modules; last, so that it shadows nothing
    try:
        spec.loader.exec_module(imported)
    except Exception as error:
        del sys.modules[module], _files[module]
        advice = (
            "install this package, or correct the file"
            if isinstance(error, ModuleNotFoundError)
            else "correct the file"
        )
        raise ValueError(f"{_place_of(error, path)}; {advice}, then run the same command again") from error
    except BaseException:
        del sys.modules[module], _files[module]
        raise
    finally:
        sys.path.remove(folder)
    return imported


def _place_of(error: BaseException, path: Path) -> str:
    """Return the file, line and message of an error that was raised while a module was imported."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        line = f" ({error.text.strip()})" if error.text else ""
        return printable(f"{Path(error.filename).name}, line {error.lineno}: {error.msg}{line}")
    frames = [frame for frame in extract_tb(error.__traceback__) if Path(frame.filename) == path]
    place = f"{path.name}, line {frames[-1].lineno}" if frames else path.name
    return printable(f"{place}: {type(error).__name__}: {error}")


def _is_installed(module: str) -> bool:
    """Return whether a module's package is found outside of the working directory, without importing it."""
    package, directory = module.partition(".")[0], Path.cwd().resolve()
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != directory]
    return package in sys.stdlib_module_names or PathFinder.find_spec(package, elsewhere) is not None


# Errors in the code of other people

TRACEBACK: Final = "GOALSCOPE_TRACEBACK"
"""Environment variable: if it is 1, every error keeps its traceback."""

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Numbers of the errors of a disk that is full or read-only."""

_PACKAGE: Final = Path(__file__).parents[1]
_BLAMED: Final = "goalscope_blamed"

Result = TypeVar("Result")


class PartWarning(RuntimeWarning):
    """Warning that a part of another package (such as a measure) raised an error and was left out.

    A command that meets this warning ends with exit status 1.
    """


def attempt(kind: str, name: str, work: Callable[[], Result], otherwise: Callable[[str], Result]) -> Result:
    """Run the work of a registered part, such as a measure, and return its result, or a substitute if the part fails.

    If a part of another package raises an error, a warning is given and ``otherwise`` makes the substitute. Errors of
    goalscope's own parts are raised unchanged. So are all errors if the environment variable `TRACEBACK` is 1, or if
    the run is at fault: damaged, refused, or on a full disk.

    Args:
        kind, name: the part, as registered: for example "measure" and the measure's name.
        work: function that does the work.
        otherwise: function that returns the substitute, given a sentence that names package, part and error.
    """
    try:
        return work()
    except (Exception, SystemExit) as error:
        if _of_the_run(error) or registry.built_in(kind, name) or os.environ.get(TRACEBACK) == "1":
            raise
        sentence = f"{_named(kind, name)} is left out: {_told(error)}; {TRACEBACK}=1 shows the traceback"
        warnings.warn(sentence, PartWarning, stacklevel=2)
        return otherwise(sentence)


def _of_the_run(error: BaseException) -> bool:
    """Return whether the run is damaged, busy or refused, or its disk is full, whichever part reads it."""
    return isinstance(error, DamagedError | StrangeFileError) or any(
        isinstance(raised, sqlite3.Error) or (isinstance(raised, OSError) and raised.errno in NO_ROOM)
        for raised in (error, error.__cause__)
    )


def sign(error: BaseException) -> None:
    """Attach to an error the sentence that says whose code failed (see `blamed`).

    This is done before the error is sent to another process, where its traceback is lost.
    """
    if sentence := blamed(error):
        vars(error)[_BLAMED] = sentence


def blamed(error: BaseException) -> str:
    """Return a sentence that says which other package or user module caused an error, "" if only goalscope's code
    ran.
    """
    if _BLAMED in vars(error):
        return "; ".join((str(vars(error)[_BLAMED]), *getattr(error, "__notes__", ())))
    frame = _frame(error)
    if frame is None or isinstance(error, DamagedError | StrangeFileError):
        return ""
    module = str(frame.f_globals.get("__name__", ""))
    part = registry.part_at(module, frame.f_code.co_qualname)
    culprit = _named(*part) if part else registry.package_of(module) or f"the module {module} of the working directory"
    return f"{culprit} failed: {_told(error)}"


def raised_by_a_check(error: BaseException) -> bool:
    """Return whether an error was raised on purpose by a check in goalscope, so that its message names what is wrong.

    This is false for errors in the code of other packages, and for unexpected errors inside goalscope.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return (
        not blamed(error)
        and bool(frames)
        and (frames[-1].line or "").startswith("raise ")
        and _PACKAGE in Path(frames[-1].filename).parents
    )


def _named(kind: str, name: str) -> str:
    return f"the {kind} {shorten(name)} of {registry.package_with(kind, name)}"


def _told(error: BaseException) -> str:
    """Describe the type, message and place of an error."""
    frame = _frame(error)
    place = f" ({Path(frame.f_code.co_filename).name}, {frame.f_code.co_name})" if frame is not None else ""
    message = f": {printable(str(error))}" if str(error) else ""
    return "; ".join((f"{type(error).__name__}{message}{place}", *getattr(error, "__notes__", ())))


def _frame(error: BaseException) -> FrameType | None:
    """Return the last frame of an error that runs code of another package or of the working directory."""
    theirs = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        theirs = frame if registry.package_of(module) or module in _files else theirs
    return theirs
