"""What there is to attack, taken from the command line itself: each command, the files that it reads and writes.

A command is called as the examples of its help call it, with samples in the place of the files and directories that
they name. An option with a place that no example has is added to the first example. What lies at a place is declared
beside its type (`goalscope.cli.generator.Reads` and `Writes`).
"""

import inspect
import re
import shlex
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from goalscope.cli import app
from goalscope.cli.generator import Reads, Writes

_PLACES = re.compile(r"\b(FILE|DIR|RUN|RUN_A|PATH|STUDY|MODEL|AGENT|EVALUATION|SHARD|OUT)\b")
WAITING = ("--serve",)
"""Words that let a command wait for Ctrl-C."""
_FOLDERS = re.compile(r"\b[Aa] folder\b")
SHORT: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "depends": (("--moved", "goal", ()), ("--changes", "1", ())),
    "evaluate": (("--budget", "1s", ("200k-tokens",)), ("--arms", "keys", ("200k-tokens", "--worlds", "--hypotheses"))),
    "patch": (
        ("--kind", "patching", ()),
        ("--pairs", "1", ()),
        ("--layers", "2", ()),
        ("--sites", "changed", ()),
    ),
}
"""Options, and words beside which they are not used, that let examples of a command end within seconds, not minutes."""


@dataclass(frozen=True)
class Place:
    """An argument that names a file or a directory.

    Attributes:
        argument: its name.
        option: how it is spelled, "" where it stands by its position.
        things: what may be read there.
        form: "file" or "directory" where one is written there, else "".
    """

    argument: str
    option: str
    things: tuple[str, ...]
    form: str


@dataclass(frozen=True)
class Slot:
    """Where a path stands in a call, and the name that the example has there."""

    place: Place
    example: str


@dataclass(frozen=True)
class Call:
    """One way to call a command: words, and places to be filled."""

    command: str
    words: tuple[str | Slot, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """The places in it, each once."""
        return tuple(dict.fromkeys(word.place for word in self.words if isinstance(word, Slot)))

    @property
    def name(self) -> str:
        """A name for messages."""
        return " ".join([self.command, *(w if isinstance(w, str) else w.place.argument.upper() for w in self.words)])


def _metadata(hint: Any) -> Iterator[Any]:
    """Yield what is declared beside a type."""
    yield from getattr(hint, "__metadata__", ())


def _has_path(hint: Any) -> bool:
    return hint is Path or any(_has_path(part) for part in typing.get_args(hint))


@cache
def commands() -> dict[str, Any]:
    """Return the commands by name, those of packages included."""
    group: Any = get_command(app)
    return {name: group.get_command(None, name) for name in group.list_commands(None)}


@cache
def declared(name: str) -> dict[str, Place | None]:
    """Return the arguments of a command that name a place, see `places_of`."""
    return places_of(commands()[name])


def places_of(command: Any) -> dict[str, Place | None]:
    """Return the arguments of a command that name a place; None for one that does not say what lies there."""
    hints = typing.get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    found: dict[str, Place | None] = {}
    for parameter in command.params:
        hint = hints.get(parameter.name)
        about = f"{getattr(parameter, 'help', '') or ''}"
        says = list(_metadata(hint))
        things = tuple(thing for each in says if isinstance(each, Reads) for thing in each.things)
        form = next((each.form for each in says if isinstance(each, Writes)), "")
        option = next((one for one in parameter.opts if one.startswith("--")), "")
        if things or form:
            found[parameter.name] = Place(parameter.name, option, things, form)
        elif _has_path(hint) or _PLACES.search(str(parameter.metavar or "")) or _FOLDERS.search(about):
            found[parameter.name] = None
    return found


def _parsed(name: str, line: str) -> Call | None:
    """Return an example as a call, None where it is one of another command."""
    words = shlex.split(line)
    while words and words[0] != name:
        words = words[1:]
    words = words[1:]
    command, places = commands()[name], declared(name)
    options = {one: parameter for parameter in command.params for one in parameter.opts if one.startswith("-")}
    positions = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    found: list[str | Slot] = []
    at = 0
    while words:
        word, *words = words
        if word in WAITING:
            continue
        if word.startswith("-") and word in options:
            parameter = options[word]
            found.append(word)
            if parameter.is_flag:
                continue
            word, *words = words
        else:
            parameter = positions[at]
            at += parameter.nargs == 1 and at + 1 < len(positions)
        place = places.get(parameter.name)
        found.append(word if place is None else Slot(place, Path(word).name))
    return Call(name, tuple(found))


def _shortened(call: Call) -> Call:
    """Return a call with the options that let it end within seconds, see `SHORT`."""
    words = list(call.words)
    for option, value, unless in SHORT.get(call.command, ()):
        if "--plan" in words or any(word in words for word in unless):
            continue
        if option in words:
            words[words.index(option) + 1] = value
        elif option != "--budget":
            words += [option, value]
    return Call(call.command, tuple(words))


@cache
def calls(name: str) -> tuple[Call, ...]:
    """Return the ways to call a command: its examples, and the first of them with each place that none has."""
    command = commands()[name]
    lines = [line.strip() for line in (command.epilog or "").splitlines() if line.strip().startswith("goalscope ")]
    found = [call for line in lines if (call := _parsed(name, line)) is not None]
    for place in declared(name).values():
        if place is not None and found and not any(place in call.places for call in found):
            example = f"{place.argument}.{place.argument}" if place.form == "file" else place.argument
            option = (place.option,) if place.option else ()
            found.append(Call(name, (*found[0].words, *option, Slot(place, example))))
    return tuple(dict.fromkeys(map(_shortened, found)))
