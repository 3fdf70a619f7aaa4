"""What the user can mend is one block; what may be a fault of goalscope names the way to its traceback."""

import json
from pathlib import Path

import pytest
import typer

from goalscope._ground.parts import TRACEBACK
from goalscope.cli.errors import guarded
from goalscope.runs import Study


def raised(call: object, capsys: pytest.CaptureFixture[str]) -> str:
    """What stands on standard error after a command that fails."""
    assert callable(call)
    with pytest.raises(typer.Exit) as caught, guarded([]):
        call()
    assert caught.value.exit_code == 2
    return capsys.readouterr().err


def test_an_error_that_a_check_raises_is_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert TRACEBACK not in raised(lambda: Study.parse({}), capsys)
    missing = raised(lambda: (tmp_path / "none.yaml").read_text(), capsys)
    assert "No such file" in missing and TRACEBACK not in missing


def test_an_error_that_no_check_raises_names_the_way_to_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    shown = raised(lambda: json.loads("{"), capsys)
    assert "Expecting property name" in shown and f"set {TRACEBACK}=1" in shown
    assert TRACEBACK in raised(lambda: int("x"), capsys)


def test_a_module_of_goalscope_that_is_missing_is_no_wrong_input() -> None:
    with pytest.raises(ModuleNotFoundError), guarded([]):
        import goalscope.nowhere  # type: ignore[import-not-found]  # noqa: F401


def test_every_error_keeps_its_traceback_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(ValueError, match="valid study"), guarded([]):
        Study.parse({"worlds": 1})
