"""A command, a study of the package's own, and a format of logs."""

from collections.abc import Iterator
from pathlib import Path

import typer

from goalscope.cli import RunDirectory, command
from goalscope.runs import Episode, Store
from goalscope.runs.importers import Context, Format, importer
from goalscope.verdict import register_studies

register_studies(__package__)  # each YAML file in the folder of the package, under the name of its file


@command("agents-of", summary="Print the agents of a run.")
def agents_of(run: RunDirectory) -> None:
    """Print the agents of a run.

    Args:
        run: the run directory.

    Examples:
        goalscope agents-of runs/ice
    """
    with Store(run) as store:
        typer.echo(", ".join(store.agent_names()))


def _read(path: Path, name: str, context: Context) -> Iterator[Episode]:
    context.ledger.report(name, "line 1", "a wind must blow", path.read_text(encoding="utf-8"))
    yield from ()


importer("winds", Format(endings=(".wind",), read=_read))
