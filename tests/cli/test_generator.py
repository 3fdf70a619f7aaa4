"""Commands are generated from functions: types, help, values, what is printed and the exit status."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest

from goalscope.cli.generator import Between, OutFile, Positive, Reads, Separated, Settings, generated, prints
from goalscope.cli.program import COMMANDS, Commands


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Options of a group.

    Attributes:
        count: worlds of each kind.
    """

    count: int | None = None


def walk(
    *paths: Annotated[str | Path, Reads("run")],
    by: Sequence[str] = (),
    names: Annotated[Sequence[str] | None, Separated(";,")] = None,
    at: Sequence[float] | None = None,
    margin: Mapping[str, float] | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    settings: Settings = (),
    workers: Positive | None = None,
    share: Annotated[float, Between(0, 1)] = 0.5,
    changes: Changes,
    stage: Any = None,
) -> dict[str, Any]:
    """Do nothing.

    Args:
        paths (RUN ...): the directories.
        by (TAGS): group by these
            tags.
    """
    given = dict(locals())
    assert callable(stage)
    return given


ARRIVED: list[Any] = []


@prints(walk)
def show(
    found: dict[str, Any], *, by: Sequence[str], seconds: float, as_json: bool = False, csv: OutFile = None
) -> bool:
    """Walk somewhere.

    Args:
        as_json: print JSON.

    Examples:
        walk a --by size
    """
    assert by == found["by"] and seconds >= 0
    ARRIVED.append({**{name: found[name] for name in USUAL}, "json": as_json, "csv": csv})
    return not as_json


WALK = generated("walk", show, "Walk.")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the generated command prints with some words, its exit status required."""

    def run(*words: str, status: int = 0) -> str:
        with pytest.raises(SystemExit) as left:
            WALK.main(args=[*words], prog_name="walk")
        assert left.value.code == status
        shown = capsys.readouterr()
        return shown.out + shown.err

    return run


USUAL: dict[str, Any] = {
    "paths": (Path("a"),),
    "by": (),
    "names": None,
    "at": None,
    "margin": None,
    "where": None,
    "settings": (),
    "workers": None,
    "share": 0.5,
    "changes": Changes(),
}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ((), {}),
        (("b",), {"paths": (Path("a"), Path("b"))}),
        (("--by", "size, density"), {"by": ["size", "density"]}),
        (("--names", "a,b(1, 2)"), {"names": ["a", "b(1, 2)"]}),
        (("--names", "a, b;c"), {"names": ["a, b", "c"]}),
        (("--at", "0,1e3"), {"at": [0.0, 1000.0]}),
        (("--margin", "success=0.1;a=b=2"), {"margin": {"success": 0.1, "a=b": 2.0}}),
        (("--where", "head=mlp;head=linear"), {"where": {"head": ["mlp", "linear"]}}),
        (("--set", "a=1", "--set", "b=2"), {"settings": ["a=1", "b=2"]}),
        (("--workers", "3", "--share", "1"), {"workers": 3, "share": 1.0}),
        (("--count", "7"), {"changes": Changes(count=7)}),
    ],
)
def test_what_is_typed_arrives_as_the_types_say(call: Any, words: tuple[str, ...], values: dict[str, Any]) -> None:
    call("a", *words)
    assert ARRIVED.pop() == USUAL | values | {"json": False, "csv": None}


@pytest.mark.parametrize(
    "words",
    [
        ("--names", ""),
        ("--at", ""),
        ("--margin", ";"),
        ("--at", "inf"),
        ("--at", "one"),
        ("--margin", "success"),
        ("--where", "head"),
        ("--workers", "0"),
        ("--share", "1.5"),
        ("--count", "many"),
        ("--nmaes", "a"),
        ("--csv", "run.db"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_option(call: Any, words: tuple[str, ...]) -> None:
    told = call("a", *words, status=2)
    assert "Traceback" not in told and ("run.db" if words[0] == "--csv" else words[0]) in told


def test_an_argument_that_is_missing_is_named(call: Any) -> None:
    assert "RUN ..." in call(status=2) and not ARRIVED


def test_the_exit_status_is_1_where_the_printer_returns_false(call: Any) -> None:
    call("a", "--json", "--csv", "a.csv", status=1)
    assert ARRIVED.pop() == USUAL | {"json": True, "csv": Path("a.csv")}


def test_the_help_comes_from_the_docstrings(call: Any) -> None:
    told = " ".join(call("--help").split())
    assert "Walk somewhere." in told and "Example: walk a --by size" in told and "Do nothing" not in told
    assert "--by TAGS Group by these tags." in told and "--json Print JSON." in told
    assert "--count N Worlds of each kind." in told and "RUN ..." in told and "--csv FILE" in told
    assert "stage" not in told and "seconds" not in told


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_of_a_command_is_explained(name: str) -> None:
    program: Any = Commands()
    command = program.get_command(None, name)
    assert command.params and not [one.name for one in command.params if not one.help]
