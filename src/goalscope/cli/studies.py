"""The commands `run` and `merge`."""

import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from goalscope._ground.arguments import Between, OutFolder, Positive, Reads
from goalscope._ground.words import counted
from goalscope.cli.activations import show_inside
from goalscope.cli.claims import show_whole
from goalscope.cli.console import json_text, progress, say
from goalscope.cli.front.running import stages
from goalscope.cli.generator import lists
from goalscope.cli.interventions import show_intervention
from goalscope.cli.overrides import StudyOptions, load_study, study_entries
from goalscope.inside.interventions.experiment import InterventionSummary
from goalscope.inside.probing.pipeline import InsideSummary
from goalscope.runs import Store, Study, content_hash
from goalscope.runs import merge as merge_shards
from goalscope.verdict.merging import merge_evaluations
from goalscope.verdict.opening import is_evaluation


@lists("Studies", study_entries)
def run(
    study: Annotated[str, Reads("study")],
    *,
    out: OutFolder,
    workers: Positive = 1,
    executor: str = "auto",
    gpus: Annotated[float, Between(0)] = 0.0,
    shard: str | None = None,
    full: bool = False,
    changes: StudyOptions,
    as_json: bool = False,
) -> None:
    """Run a study. Called again on the same directory it goes on where it stopped and repeats nothing.

    A changed study is another study: it has its own id and needs a directory of its own.

    Args:
        study: a study file (YAML), or the name of a registered study, see below.
        out: the run directory to write.
        workers: calls of an agent at the same time: threads, processes, actors.
        executor (NAME): where agents act: threads, processes, ray (extra ray), or auto: what suits them.
        gpus (N): with --executor ray: GPUs of each actor; .5 lets two share one.
        shard (K/N): only the K-th of N parts, e.g. 3/16; goalscope merge puts all N together.
        full: studies of activations: the complete table, all heads and controls.
        changes: of the study, see `StudyOptions`.
        as_json: print JSON: directory, study, agents, episodes.

    Examples:
        goalscope run study.yaml --out runs/first
        goalscope run baseline --count 3 --agents Theseus,optimal --out runs/small
        goalscope run baseline --model HuggingFaceTB/SmolLM2-135M-Instruct --out runs/smollm2
        goalscope run cognitive-map --out runs/inside
        goalscope run baseline --shard 1/2 --out shards/1
    """
    found = changes.read(network=True)
    run_study_of(
        load_study(study, found),
        out,
        workers,
        passed={"study": Path(study).name, "workers": workers, **found.given()},
        full=full,
        shard=shard,
        executor=executor,
        gpus=gpus,
        as_json=as_json,
    )


def merge(
    directory: OutFolder,
    shards: Annotated[Sequence[Path], Reads("shard", "evaluation")],
) -> None:
    """Put the shards of a study together: the same content as one run of it. The shards are read, never changed.

    Evaluations with the same plan become one with the models of each, which are judged together.

    Args:
        directory (OUT): the directory to write; must be new.
        shards (SHARD ...): the run directories of all shards, in any order; or evaluations.

    Examples:
        goalscope merge runs/whole shards/1 shards/2
    """
    whole = [path for path in shards if is_evaluation(path)]
    if whole and len(whole) < len(shards):
        raise ValueError("a merge takes evaluations or shards of a study, got both: leave one kind out")
    if whole:
        began = time.monotonic()
        show_whole(merge_evaluations(shards, directory), time.monotonic() - began)
        return
    with progress("episodes") as show:
        done = merge_shards(
            shards,
            directory,
            progress=lambda finished, total: show(finished, total),
            arguments={"command": "merge", "passed": {"shards": [path.name for path in shards]}},
        )
    with Store(directory) as store:
        digest = content_hash(store)
    say(
        f"{counted(done.shards, 'shard')}, {counted(done.episodes, 'episode')}, "
        f"{counted(done.calls, 'journalled call')}: {directory}, content hash {digest}"
    )
    if done.measured:
        say(
            "rows of measures are not taken over, since some compare worlds of different shards: measure the merged run"
        )
    if done.read:
        say("activations and probes are not taken over: capture and probe the merged run")
    say(f"next: goalscope measure {quote(str(directory))}, goalscope report {quote(str(directory))}")


def run_study_of(study: Study, out: Path, workers: int = 1, *, as_json: bool = False, **options: Any) -> None:
    """Run a study, or go on with it, see `goalscope.cli.front.running.stages`, and print each result as it comes."""
    began = time.monotonic()
    for done in stages(study, out, workers, stage=progress, **options):
        if isinstance(done, str):
            say(done, error=as_json)
        elif as_json:
            continue
        elif isinstance(done, InsideSummary):
            show_inside(done, time.monotonic() - began)
        elif isinstance(done, InterventionSummary):
            show_intervention(done)
        began = time.monotonic()
    if as_json:
        with Store(out) as store:
            [(episodes,)] = store.query("SELECT COUNT(*) FROM episodes")
            names = list(store.agent_names())
        say(json_text({"run": str(out), "study": study.name, "id": study.id, "agents": names, "episodes": episodes}))
