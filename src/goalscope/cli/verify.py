"""The command `verify`, which compares a run or an evaluation with its checksums, and `goalscope doctor RUN`.

`goalscope doctor RUN` reports which parts of a damaged run.db can be rebuilt, and rebuilds them with `--repair`.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

from goalscope._ground.arguments import RunDirectory
from goalscope.cli.console import json_text, progress, say, table
from goalscope.cli.front.measuring import measure_run
from goalscope.inside.activations.shards import SHARD, Artifact, artifacts, open_shard, place
from goalscope.inside.probing.probe import Probe
from goalscope.measures.behaviour import BEHAVIOUR
from goalscope.runs import Store, content_hash
from goalscope.runs.repair import DAMAGED, lines, repair
from goalscope.runs.verify import VerifiedPart
from goalscope.runs.verify import verify as check
from goalscope.verdict.judging import Reopened, reopened
from goalscope.verdict.opening import AGAIN, compare_claims, is_evaluation, run_folders
from goalscope.verdict.page import compare_page


def verify(
    run: RunDirectory,
    *,
    expect: str = "",
    as_json: bool = False,
) -> bool:
    """Verify a run, including the files beside run.db, against its checksums, and print its content hash.

    For an evaluation, all of its runs are verified. Then all claims (answers to its questions) are decided
    again from the runs and compared with the ledger, and report.html is compared with its digest in the ledger and with
    a page rebuilt from ledger and runs.
    The exit status is 1 if anything is damaged or differs, and 2 if a run cannot be opened.

    Args:
        run: the run directory (it contains run.db), or the directory of an evaluation.
        expect (HASH): fail unless the run has this content hash.
        as_json: print JSON.

    Examples:
        goalscope verify runs/first
    """
    if expect and is_evaluation(run):
        raise ValueError(f"--expect is the hash of one run, but {run} is an evaluation: give the run of an arm")
    records = {name: _verified(path, as_json) for name, path in run_folders(run).items()}
    sound = all(record["content_hash"] for record in records.values())
    record: dict[str, Any] = {"runs": records}
    if sound and is_evaluation(run):
        sound = _sound_evaluation(run, record, as_json=as_json)
    if as_json:
        say(json_text(record if is_evaluation(run) else records[""]))
    if expect and sound and expect != records[""]["content_hash"]:
        hashed = records[""]["content_hash"]
        say(f"the content hash is {hashed}, not {expect}: this is a different or a changed run", error=True)
        sound = False
    return sound


def _sound_evaluation(directory: Path, record: dict[str, Any], *, as_json: bool) -> bool:
    """Compare the claims and the page of an evaluation with its runs, which are opened and measured only once."""
    with reopened(directory) as evaluation:
        checked = compare_claims(evaluation)
        record |= asdict(checked)
        for line in (*checked.failed, *checked.deviations, *checked.changed, *checked.added):
            say(line, error=True)
        if checked.failed:
            say("some claims could not be decided again, so no claim was compared", error=True)
        elif not checked.deviations:
            say("all claims agree with the runs", error=as_json)
        if checked.deviations or checked.changed:
            say(f"the ledger does not agree with these runs: {AGAIN}", error=True)
        agrees = not (checked.failed or checked.deviations or checked.changed)
        return _sound_page(evaluation, record, rebuild=agrees, added=bool(checked.added)) and agrees


def _sound_page(evaluation: Reopened, record: dict[str, Any], *, rebuild: bool, added: bool) -> bool:
    """Compare the page of an evaluation with its ledger and runs, and report the result."""
    comparison = compare_page(evaluation, rebuild=rebuild, added=added)
    record |= {"page": comparison.deviation, "page_compared_with": comparison.basis}
    say(
        f"{comparison.deviation}: {AGAIN}"
        if comparison.deviation
        else f"the page was compared with {comparison.basis}",
        error=True,
    )
    return not comparison.deviation


def _verified(run: Path, as_json: bool) -> dict[str, Any]:
    """Verify one run, print the result, and return it as plain values. The content hash is "" if the run is damaged."""
    with Store(run) as store:
        parts = [*check(store), *files(store)]
        sound = not any(part.damaged for part in parts)
        digest = content_hash(store) if sound else ""
    if not as_json:
        rows = [(part.what, f"{part.checked:,}", f"{len(part.damaged):,}") for part in parts]
        table(("what", "checked", "damaged"), rows, title=f"verify {run}")

    def listed(part: VerifiedPart) -> str:
        rest = f" and {len(part.damaged) - 5} more" if len(part.damaged) > 5 else ""
        return f"{part.what}: {'; '.join(part.damaged[:5])}{rest}\n  {part.mend.replace('RUN', quote(str(run)))}"

    for part in parts:
        if part.damaged:
            say(listed(part), error=True)
    if sound and not as_json:
        say(f"content hash {digest}")
    return {"run": str(run), "parts": [asdict(part) for part in parts], "content_hash": digest}


def files(store: Store) -> Iterator[VerifiedPart]:
    """Verify the files of a run: activations by their digests, probes by their content ids."""

    def shard(artifact: Artifact) -> None:
        with open_shard(
            place(store, artifact), size=artifact.size, capture=str(artifact.tags.get("capture"))
        ) as opened:
            opened.check()

    def probe(artifact: Artifact) -> None:
        path = place(store, artifact)
        if (loaded := Probe.load(path)).id != artifact.tags.get("content"):
            raise ValueError(f"{path} must contain {artifact.tags.get('content')}, but contains {loaded.id}")

    checks = {SHARD: shard, "probe": probe, "plan decoder": probe}
    for kind, sound in checks.items():
        found_artifacts, damaged = list(artifacts(store, kind)), list[str]()
        for artifact in found_artifacts:
            try:
                sound(artifact)
            except (ValueError, OSError) as error:
                damaged.append(str(error)[:300])
        if found_artifacts:
            yield VerifiedPart(what=f"files: {kind}", checked=len(found_artifacts), damaged=tuple(damaged))


def doctor_run(path: Path, *, write: bool) -> bool:
    """Print which parts of a run are sound and which can be rebuilt; with ``write``, rebuild them.

    Returns:
        False if something is lost, or still damaged because ``write`` is false; the exit status is then 1.
    """
    result = repair(path, write=write)
    for line in lines(result):
        say(line)
    if result.sound:
        say(f"nothing is damaged in {path}; goalscope verify {quote(str(path))} also checks the files beside run.db")
        return True
    rows = result.lost.get("rows", [])
    if not write:
        if BEHAVIOUR in rows:
            say("the rows of measure can be recomputed from the episodes")
        say(f"next: goalscope doctor {quote(str(path))} --repair")
        return False
    say(f"rebuilt in {path}; the damaged file is kept as {DAMAGED}")
    if BEHAVIOUR in rows:
        measure_run(path, progress)
    if other_sources := [source for source in rows if source != BEHAVIOUR]:
        say(f"removed the rows of {', '.join(other_sources[:5])}: recompute them with probe, meg or patch")
    for kind, advice in (
        ("call", "lost answers will be asked for again if an episode needs them"),
        ("artifact", "files that are no longer listed will be found or made again by capture and probe"),
        ("study", "the study is lost: restore run.db from a copy"),
        ("agent", "the description of an agent is lost: goalscope run restores it"),
    ):
        if kind in result.lost:
            say(advice)
    if result.unplayed:
        say(f"next: goalscope run STUDY --out {quote(str(path))}, which runs the missing episodes")
    return not result.unplayed
