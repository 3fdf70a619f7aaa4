"""Every command, given every kind of damaged and hostile file that it may read or write.

Nobody lists what is attacked: commands, what they read and what they write come from the command line itself, sound
files from goalscope, and their places, values and keys from those files. A command of a package is attacked, too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import pytest
import typer
from attacking import Range, drawn
from catalogue import calls, commands, declared, places_of
from samples import THINGS

from goalscope.cli.generator import Reads

MOST: Final = 60
"""Attacks on each command in `make test-full`, drawn such that all kinds are among them."""


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """Where attacks that need no model are carried out."""
    place = Range(tmp_path_factory.mktemp("light"), heavy=False)
    yield place
    place.close()


@pytest.fixture(scope="module")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """Where all attacks are carried out."""
    place = Range(tmp_path_factory.mktemp("heavy"), heavy=True)
    yield place
    place.close()


@pytest.mark.parametrize("name", commands())
def test_every_argument_that_names_a_place_says_what_lies_there_and_is_attacked(name: str) -> None:
    silent = [argument for argument, place in declared(name).items() if place is None]
    assert not silent, f"{name}: say what lies at {silent} beside the type: goalscope.cli.generator.Reads or Writes"
    unknown = {thing for place in declared(name).values() if place is not None for thing in place.things} - set(THINGS)
    assert not unknown, f"{name}: make a sample of {unknown} in tests/attacks/samples.py"
    attacked = {place.argument for call in calls(name) for place in call.places}
    assert set(declared(name)) == attacked, f"{name}: give an example that has {set(declared(name)) - attacked}"


def test_an_argument_that_names_a_place_is_found_however_it_is_declared() -> None:
    app = typer.Typer()

    @app.command()
    def strange(
        quiet: Annotated[list[Path] | None, typer.Option(metavar="NAME")],
        loud: Annotated[str, typer.Option(metavar="FILE|NAME")],
        other: Annotated[str, typer.Option(metavar="NAME", help="A folder or a hub name.")],
        known: Annotated[Path, Reads("run"), typer.Argument(metavar="RUN")],
        number: Annotated[int, typer.Option(metavar="N")] = 1,
    ) -> None:
        """Do nothing."""

    found = places_of(typer.main.get_command(app))
    assert set(found) == {"quiet", "loud", "other", "known"}
    assert [name for name, place in found.items() if place is None] == ["quiet", "loud", "other"]


def test_an_attack_on_each_command_is_refused_by_name_or_without_effect(light: Range) -> None:
    found = []
    for name in commands():
        call = next((call for call in calls(name) if any(place.things for place in call.places)), calls(name)[0])
        [case] = drawn(list(light.cases_of(call, written=False)), 1, name)
        found += [f"{case.name}: {problem}" for problem in light.check(case)]
    assert not found, "\n".join(found)


@pytest.mark.full
@pytest.mark.parametrize("name", commands())
def test_attacks_are_refused_by_name_or_without_effect(heavy: Range, name: str) -> None:
    cases = drawn(list(heavy.cases(name)), MOST, name)
    found = [f"{case.name}: {problem}" for case in cases for problem in heavy.check(case)]
    assert not found, "\n".join(found)
    assert cases
