"""Commands are generated from functions: types from the signature, help from the docstring.

Annotations of the parameters say what the type alone cannot express. A command consists of a function and, optionally,
a printer of its result; together they declare everything. Each parameter becomes an argument or an option, and has an
entry under ``Args:``, which may also set its metavar: ``by (TAGS): group by these tags.`` Positional parameters are
arguments, apart from ``out``. The user writes a ``Sequence`` or ``Mapping`` as one text.
"""

import functools
import inspect
import math
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ParameterInfo

from goalscope._ground.untrusted import shorten
from goalscope.cli.console import PROBLEMS, check_outputs, guarded, progress

Thing = Literal[
    "run",
    "shard",
    "evaluation",
    "organisms",
    "challenge",
    "key",
    "study",
    "hypotheses",
    "plan",
    "agent",
    "model",
    "log",
    "process",
    "prompt",
    "kinds",
    "claim",
]
"""Kinds of files and directories that commands read. `agent` is a YAML file, `model` a folder of weights."""


class Reads:
    """Annotation of a command's argument: what kinds of files or directories it may name. The help does not show it.

    The attack tests in ``tests/attacks`` use this to choose damaged files and directories for each command. They fail
    for an argument that names a file or directory without saying what it is.

    Attributes:
        things: the kinds that are read.
    """

    def __init__(self, *things: Thing) -> None:
        self.things = things


class Writes:
    """Annotation of a command's argument: it names a file or directory that is written; see `Reads`.

    Attributes:
        form: "file" or "directory".
    """

    def __init__(self, form: Literal["file", "directory"]) -> None:
        self.form = form


@dataclass(frozen=True)
class Between:
    """Annotation of a command's argument: the least and the greatest allowed value of a number.

    Attributes:
        least: smallest allowed value; None for no limit.
        most: greatest allowed value; None for no limit.
    """

    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Separated:
    """Annotation of a command's argument: the separator of a list that the user writes as one text. The default is a
    comma.

    Attributes:
        by: the separator; "" for an option that is repeated. ";," means semicolons or, in a text without any, commas
            outside of parentheses.
    """

    by: str


Positive = Annotated[int, Between(1)]
"""A whole number of at least 1."""

Settings = Annotated[Sequence[str], Separated("")]
"""Settings, each written KEY=VALUE."""
RunDirectory = Annotated[Path, Reads("run")]
"""The directory of a run."""
OutFolder = Annotated[Path, Writes("directory")]
"""A directory that is written."""
OutFile = Annotated[Path | None, Writes("file")]
"""A file that is written; None for none."""


Number = TypeVar("Number", int, float)


def entries_of(option: str, text: str, kind: Any, separator: str) -> Any:
    """Parse the text that a user gave for an option into a list or mapping.

    Args:
        option: name of the option, for error messages.
        text: the text.
        kind: the type that the parameter declares, such as ``Sequence[int]``.
        separator: the separator of the entries.

    Raises:
        ValueError: if the text does not have the form that the type needs.
    """
    if get_origin(kind) is Mapping:
        return (margins_of if get_args(kind)[1] is float else tags_of)(option, text)
    (entry,) = get_args(kind)
    if entry in (int, float):
        return numbers(option, text, entry)
    return split_names(text) if separator == ";," else split(text, separator)


def split(text: str, separator: str = ",") -> list[str]:
    """Split a text at a separator into a list; surrounding blanks and empty parts are dropped."""
    return [part.strip() for part in text.split(separator) if part.strip()]


def split_names(text: str) -> list[str]:
    """Split names at semicolons or, if the text has none, at commas outside of parentheses."""
    parts = text.split(";") if ";" in text else re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def numbers(option: str, text: str, kind: type[Number]) -> list[Number]:
    """Parse the text that a user gave for an option into numbers, separated by commas.

    Args:
        option: name of the option, for the error message.
        text: the text.
        kind: int or float.

    Raises:
        ValueError: if a part is no finite number of this type.
    """
    try:
        values = [kind(part) for part in split(text)]
        finite = all(map(math.isfinite, values))
    except ValueError:
        finite = False
    if not finite:
        expected = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} must be {expected} separated by commas, got {shorten(text)}: e.g. {option} 7,9")
    return values


def margins_of(option: str, text: str) -> dict[str, float]:
    """Parse the text of an option with numbers by name, e.g. ``success=0.1;action accuracy=0.05``.

    Raises:
        ValueError: for another form; the message names the option.
    """
    margins = dict[str, float]()
    for part in split(text, ";"):
        name, _, number = (side.strip() for side in part.rpartition("="))
        try:
            margin = float(number)
        except ValueError:
            margin = math.nan
        if not name or name in margins or math.isnan(margin):
            raise ValueError(
                f"{option} must be MEASURE=NUMBER, separated by ';', with each measure only once, got {part!r}: "
                f"e.g. {option} 'success=0.1;action accuracy=0.05'"
            )
        margins[name] = margin
    return margins


def tags_of(option: str, text: str) -> dict[str, list[str]]:
    """Parse the text of an option with tags and values, e.g. ``head=linear;head=mlp;control=none``.

    Returns the list of values of each tag.

    Raises:
        ValueError: for another form; the message names the option.
    """
    chosen = dict[str, list[str]]()
    for part in split(text, ";"):
        tag, separator, value = (side.strip() for side in part.partition("="))
        if not (tag and separator and value):
            raise ValueError(
                f"{option} must be TAG=VALUE, separated by ';' (repeat a tag for further values), got {part!r}: e.g. "
                f"{option} 'head=linear;control=none'"
            )
        chosen.setdefault(tag, []).append(value)
    return chosen


def layers_of(text: str, *, first: int = 0) -> str | tuple[int, ...]:
    """Parse the text of the option --layers: "thirds", "all", or the numbers of decoder blocks, separated by commas.

    Args:
        text: the text.
        first: the smallest allowed number; -1 allows the embedding.

    Raises:
        ValueError: for another form.
    """
    if text in ("thirds", "all"):
        return text
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(re.fullmatch("-?[0-9]{1,9}", part) and int(part) >= first for part in parts):
        raise ValueError(
            f"--layers must be thirds, all, or block numbers >= {first} such as 7,15,23; got {shorten(text)}"
        )
    return tuple(map(int, parts))


Body = TypeVar("Body", bound=Callable[..., Any])

_OPTIONS: Final = {
    "as_json": "--json",
    "dry": "--dry-run",
    "everything": "--all",
    "listed": "--list",
    "settings": "--set",
}
"""Parameter -> option, if the option's name would shadow a module or a built-in function."""
_NAMED: Final = {"study", "hypotheses", "agent", "model", "kinds"}
"""Things that can also be given by name: an argument that reads one of them stays a text."""
_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


def prints(front: Callable[..., Any], *, dry: Callable[..., None] | None = None) -> Callable[[Body], Body]:
    """Return a decorator that makes a command of two functions: ``front`` computes a result, the decorated one prints
    it.

    The printer takes the result as its first parameter. Parameters that it shares with ``front`` get the same values,
    ``seconds`` is the time that ``front`` took, and all others become further options of the command. The printer
    returns False to set the exit status to 1. With ``--dry-run``, the function ``dry`` is called instead of both.
    """

    def add(printer: Body) -> Body:
        printer.front, printer.dry = front, dry  # type: ignore[attr-defined]
        return printer

    return add


def lists(title: str, entries: Callable[[], Sequence[tuple[str, str]]]) -> Callable[[Body], Body]:
    """Return a decorator that appends a list, such as all measures, to the help of a command.

    Args:
        title: heading of the list.
        entries: returns pairs of name and text; it is called only when the help is shown.
    """

    class Listing(TyperCommand):
        def format_epilog(self, ctx: Any, formatter: Any) -> None:
            listing = entries()
            with formatter.section(title):
                if any(text for _, text in listing):
                    formatter.write_dl(listing)
                else:
                    formatter.write_text(", ".join(name for name, _ in listing))
            super().format_epilog(ctx, formatter)

    def add(body: Body) -> Body:
        body.command_class = Listing  # type: ignore[attr-defined]
        return body

    return add


def as_lines(lines: Sequence[str]) -> str:
    """Format example lines for the help so that they are never wrapped and can be copied."""
    return "\b\n" + "\n".join(("Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)))


def generated(name: str, body: Callable[..., Any], summary: str) -> Any:
    """Generate a command of the command line from a function: its arguments, options and help.

    Args:
        name: name of the command.
        body: the function, or a printer that `prints` combined with the function whose result it prints.
        summary: the line of the command in the list of commands.

    Returns:
        The command, as an object of click.
    """
    hints = get_type_hints(body, include_extras=True).values()
    if any(isinstance(annotation, ParameterInfo) for hint in hints for annotation in _parts(hint)[1]):

        @functools.wraps(body)
        def annotated(**typed: Any) -> None:  # a package may annotate its function for Typer itself
            with guarded([*typed.values()]):
                body(**typed)

        return _command_of(name, annotated, body, summary)
    front = getattr(body, "front", None)
    functions = [function for function in (front, body) if function is not None]
    parameters_of = [[*inspect.signature(function).parameters.values()] for function in functions]
    parameters, readers, outputs = dict[str, inspect.Parameter](), dict[str, Callable[[Any], Any]](), list[str]()
    groups = dict[str, Any]()

    def take(function: Any, own_parameters: Sequence[inspect.Parameter]) -> None:
        hints, documented = get_type_hints(function, include_extras=True), _entries(function)
        for parameter in own_parameters:
            hint: Any = hints[parameter.name]
            if isinstance(hint, type) and is_dataclass(hint):  # a group of options
                groups[parameter.name] = hint
                take(hint, [*inspect.signature(hint).parameters.values()])
            elif parameter.name not in parameters and parameter.name not in ("stage", "seconds"):
                made = _argument(parameter, hint, *documented.get(parameter.name, ("", "")))
                parameters[parameter.name], readers[parameter.name] = made
                if any(isinstance(annotation, Writes) and annotation.form == "file" for annotation in _parts(hint)[1]):
                    outputs.append(parameter.name)

    for function, own_parameters in zip(functions, parameters_of, strict=True):
        take(function, own_parameters[int(function is body and front is not None) :])

    def run(**typed: Any) -> None:
        with guarded([*typed.values()]):
            values = {name: readers[name](value) for name, value in typed.items()}
            check_outputs(*(values[output] for output in outputs))
            values["stage"] = progress
            for name, group in groups.items():
                values[name] = group(
                    **{parameter: values[parameter] for parameter in inspect.signature(group).parameters}
                )
            if (instead := getattr(body, "dry", None)) is not None and values["dry"]:
                instead(**{parameter: values[parameter] for parameter in inspect.signature(instead).parameters})
                return
            results, began = list[Any](), time.monotonic()  # results of the front function
            for function, own_parameters in zip(functions, parameters_of, strict=True):
                keyword_values = {
                    parameter.name: values[parameter.name] for parameter in own_parameters[len(results) :]
                }
                several = [parameter.name for parameter in own_parameters if parameter.kind is parameter.VAR_POSITIONAL]
                results = [
                    function(
                        *results, *(value for name in several for value in keyword_values.pop(name)), **keyword_values
                    )
                ]
                values["seconds"] = time.monotonic() - began
            if results == [False]:
                raise typer.Exit(PROBLEMS)

    run.__doc__ = (inspect.getdoc(body) or "").partition("\n\nArgs:")[0].partition("\n\nExamples:")[0]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        sorted(parameters.values(), key=lambda parameter: parameter.default is not parameter.empty)
    )
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters.values()}
    return _command_of(name, run, body, summary)


def _command_of(name: str, run: Callable[..., None], body: Callable[..., Any], summary: str) -> Any:
    lines = [line.strip() for line in _section(body, "Examples").splitlines()]
    program = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_CONTEXT)
    epilog = as_lines(lines) if lines else None
    program.command(name, cls=getattr(body, "command_class", None), short_help=summary, epilog=epilog)(run)
    return typer.main.get_command(program)


def _argument(
    parameter: inspect.Parameter, hint: Any, metavar_text: str, help: str
) -> tuple[inspect.Parameter, Callable[[Any], Any]]:
    """Return a parameter in the form that Typer needs, and a function that converts the value that Typer read."""
    kinds, metadata = _parts(hint)
    annotation_of = {type(annotation): annotation for annotation in metadata}
    positional = parameter.kind is not parameter.KEYWORD_ONLY and parameter.name != "out"
    lists = [kind for kind in kinds if get_origin(kind) in (Sequence, Collection, Mapping)]
    if str in kinds and not positional:
        lists = []  # a command takes the text, even if Python code may also pass a list
    separator = annotation_of[Separated].by if Separated in annotation_of else ","
    several = parameter.kind is parameter.VAR_POSITIONAL or bool(lists and (positional or not separator))
    if lists and several:
        kinds = [*get_args(lists[0])]
    places = [annotation for annotation in metadata if isinstance(annotation, Reads | Writes)]
    named = any(_NAMED & {*place.things} for place in places if isinstance(place, Reads))
    scalar = next((kind for kind in (bool, int, float) if kind in kinds), Path if Path in kinds and not named else str)
    typed: Any = list[scalar] if several else str if lists else scalar  # type: ignore[valid-type]
    default = parameter.default
    required = default is parameter.empty  # of several directories, at least one
    option = _OPTIONS.get(parameter.name, f"--{parameter.name.replace('_', '-')}")
    form = annotation_of[Writes].form if Writes in annotation_of else ""
    metavar = metavar_text or {"file": "FILE", "directory": "DIR"}.get(
        form, "N" if typed is int else parameter.name.upper()
    )
    limits = annotation_of.get(Between, Between())
    numbers = {"min": limits.least, "max": limits.most} if scalar in (int, float) and not lists else {}
    if positional:
        declared: Any = typer.Argument(metavar=metavar, help=help)
    elif scalar is bool:
        declared = typer.Option(option, help=help)
    else:
        names = (option, "-o") if option == "--out" else (option,)
        declared = typer.Option(*names, metavar=metavar, help=help, **numbers)

    def read(value: Any) -> Any:
        if value is None and not required:
            return default
        parsed = entries_of(option, value, lists[0], separator) if lists and not several else value
        if default is None and (parsed == [] or parsed == {}):
            raise ValueError(f"{option} has an empty value: give it a value, or leave it out")
        return parsed

    made = parameter.replace(
        kind=parameter.KEYWORD_ONLY,
        annotation=Annotated[typed if required else typed | None, *places, declared],
        default=parameter.empty if required else None if lists or several else default,
    )
    return made, read


def _parts(hint: Any) -> tuple[list[Any], list[Any]]:
    """Return the types of a union, and the metadata that annotates them."""
    if get_origin(hint) is Annotated:
        kinds, metadata = _parts(hint.__origin__)
        return kinds, [*metadata, *hint.__metadata__]
    if get_origin(hint) not in (Union, UnionType):
        return [hint], []
    parts = [_parts(kind) for kind in get_args(hint)]
    return [kind for kinds, _ in parts for kind in kinds], [
        annotation for _, metadata in parts for annotation in metadata
    ]


def _entries(function: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    """Map each parameter to its metavar ("" if the docstring sets none) and its help."""
    entries = dict[str, tuple[str, str]]()
    for owner in reversed(getattr(function, "__mro__", (function,))):  # a group of options may extend another one
        for entry in re.split(r"\n(?= {4}\S)", _section(owner, "Args") or _section(owner, "Attributes")):
            match = re.fullmatch(r"\s*([\w*, ]+?)(?: \((.+?)\))?: (.*)", entry, re.DOTALL)
            for name in match[1].replace("*", "").split(", ") if match is not None else ():
                text = " ".join(match[3].split()).replace("``", "") if match is not None else ""
                entries[name] = (match[2] or "" if match is not None else "", text[:1].upper() + text[1:])
    return entries


def _section(function: Callable[..., Any], title: str) -> str:
    """Return one section of a docstring, or ""."""
    return (inspect.getdoc(function) or "").partition(f"\n\n{title}:\n")[2].partition("\n\n")[0]
