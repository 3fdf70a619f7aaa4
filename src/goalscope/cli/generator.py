"""Commands are generated from functions: types from the signature, help from the docstring.

A command consists of a function and, optionally, a printer of its result; together they declare everything. Each
parameter becomes an argument or an option, and has an entry under ``Args:``, which may also set its metavar:
``by (TAGS): group by these tags.`` Positional parameters are arguments, apart from ``out``. The user writes a
``Sequence`` or ``Mapping`` as one text.
"""

import functools
import inspect
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ParameterInfo

from goalscope._ground.arguments import Between, Reads, Separated, Writes
from goalscope.cli.console import progress
from goalscope.cli.errors import PROBLEMS, check_outputs, guarded
from goalscope.cli.parsing import entries_of

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
    """Return a decorator for the function that prints the result of ``front``; both together make a command.

    The printer takes the result as its first parameter. Parameters that it shares with ``front`` get the same values,
    ``seconds`` is the time that ``front`` took, and all others become further options. The printer returns False to set
    the exit status to 1. With ``--dry-run``, the function ``dry`` is called instead of both.
    """

    def add(printer: Body) -> Body:
        printer.front, printer.dry = front, dry  # type: ignore[attr-defined]
        return printer

    return add


def lists(title: str, entries: Callable[[], Sequence[tuple[str, str]]]) -> Callable[[Body], Body]:
    """Return a decorator that appends a list of (name, text) to the help of a command; it is made on demand."""

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
    """Generate a command from a function, or from a printer together with the function whose result it prints."""
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
