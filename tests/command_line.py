"""The command line as the tests of several folders call it: in this process, on a wide terminal."""

from typer.testing import CliRunner

from goalscope.cli import app


def call(*words: object, status: int = 0) -> str:
    """Run a command, require its exit status, and return all that it printed."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert result.exit_code == status, result.output
    return str(result.output)
