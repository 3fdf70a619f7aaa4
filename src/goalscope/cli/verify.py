"""What of a run is sound: `goalscope verify` compares all that it holds, files beside run.db included, with checksums.

`goalscope doctor RUN` says what can be rebuilt of a damaged run.db, and with `--repair` rebuilds it.
"""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from goalscope.cli.console import say, table
from goalscope.cli.errors import PROBLEMS
from goalscope.cli.help import RunDirectory, option

if TYPE_CHECKING:
    from goalscope.runs import Store
    from goalscope.runs.verify import Part


def verify(
    run: RunDirectory,
    expect: Annotated[str, option("HASH", "The content hash that the run must have.")] = "",
) -> None:
    """Compare everything that a run holds with its checksums, files beside run.db included; print the content hash.

    Exit status 1 where something is damaged or the content hash is another one, 2 where the run cannot be opened.
    """
    from goalscope.runs import Store, content_hash
    from goalscope.runs.verify import verify as look

    with Store(run) as store:
        parts = [*look(store), *files(store)]
        sound = not any(part.damaged for part in parts)
        digest = content_hash(store) if sound else ""
    table(("what", "looked at", "without checksum", "damaged"), [_row(part) for part in parts], title=f"verify {run}")

    def listed(part: "Part") -> str:
        rest = f" and {len(part.damaged) - 5} more" if len(part.damaged) > 5 else ""
        return f"{part.what}: {'; '.join(part.damaged[:5])}{rest}\n  {part.mend.replace('RUN', quote(str(run)))}"

    for part in parts:
        if part.damaged:
            say(listed(part), error=True)
    older = sum(part.without for part in parts)
    if older:
        say(f"{older:,} entries were written before goalscope kept checksums: what they hold cannot be verified")
    if not sound:
        raise typer.Exit(PROBLEMS)
    say(f"content hash {digest}")
    if expect and expect != digest:
        say(f"the content hash must be {expect}, got {digest}: this is another run, or a changed one", error=True)
        raise typer.Exit(PROBLEMS)


def files(store: "Store") -> Iterator["Part"]:
    """Look through the files of a run: activations against their digests, probes against their content ids."""
    from goalscope.activations.load import SHARD
    from goalscope.activations.shards import Artifact, artifacts, open_shard, place
    from goalscope.runs.verify import Part

    def shard(one: Artifact) -> None:
        with open_shard(place(store, one), size=one.size, capture=str(one.tags.get("capture"))) as opened:
            opened.check()

    def probe(one: Artifact) -> None:
        from goalscope.probing.probe import Probe

        path = place(store, one)
        if (made := Probe.load(path)).id != one.tags.get("content"):
            raise ValueError(f"{path} must hold {one.tags.get('content')}, it holds {made.id}")

    looks = {SHARD: shard, "probe": probe, "plan decoder": probe}
    for kind, look in looks.items():
        listed, damaged = list(artifacts(store, kind)), list[str]()
        for one in listed:
            try:
                look(one)
            except (ValueError, OSError) as error:
                damaged.append(str(error)[:300])
        if listed:
            yield Part(what=f"files: {kind}", checked=len(listed), damaged=tuple(damaged))


def _row(part: "Part") -> tuple[str, ...]:
    return part.what, f"{part.checked:,}", f"{part.without:,}", f"{len(part.damaged):,}"


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
