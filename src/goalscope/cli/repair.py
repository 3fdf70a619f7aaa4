"""`goalscope doctor RUN`: what of a damaged run is sound, and what can be rebuilt; with `--repair` it is."""

from pathlib import Path
from shlex import quote

import typer

from goalscope.cli.console import say
from goalscope.cli.errors import PROBLEMS


def doctor_run(path: Path, *, write: bool) -> None:
    """Print what of a run is sound and what can be rebuilt, and rebuild it where that is asked for.

    Exit status 1 where something stays lost, or where nothing was asked to be rebuilt.
    """
    from goalscope.cli.measuring import SOURCE, measure_run
    from goalscope.runs.repair import DAMAGED, lines, repair

    found = repair(path, write=write)
    for line in lines(found):
        say(line)
    if found.sound:
        say(f"nothing is damaged in {path}: goalscope verify {quote(str(path))} also looks at the files beside run.db")
        return
    rows = found.lost.get("rows", [])
    if not write:
        if SOURCE in rows:
            say("rows of measure can be made again from the episodes")
        say(f"next: goalscope doctor {quote(str(path))} --repair")
        raise typer.Exit(PROBLEMS)
    say(f"rebuilt in {path}; the damaged file is kept as {DAMAGED}")
    if SOURCE in rows:
        measure_run(path)
    if others := [source for source in rows if source != SOURCE]:
        say(f"rows of {', '.join(others[:5])} are taken out: probe, meg or patch make them again")
    for kind, mend in (
        ("call", "answers that are lost are asked for again where an episode needs them"),
        (
            "artifact",
            "files that are no longer listed are found or made again by capture and probe",
        ),
        ("study", "the study is lost: restore run.db from a copy"),
        ("agent", "the description of an agent is lost: goalscope run puts it back"),
    ):
        if kind in found.lost:
            say(mend)
    if found.unplayed:
        say(f"next: goalscope run STUDY --out {quote(str(path))}, which runs what is lacking")
        raise typer.Exit(PROBLEMS)
