"""`goalscope verify`: everything that a run holds, files beside run.db included, against its checksums."""

from collections.abc import Iterator
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
