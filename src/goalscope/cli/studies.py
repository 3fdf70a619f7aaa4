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
    """Run a study. To resume it, run the same command on the same directory; no finished episode is repeated.

    A changed study has an id of its own and needs a new directory.

    Args:
        study: a study file (YAML), or the name of one of the studies listed below.
        out: the run directory to write.
        workers: number of simultaneous calls to an agent (threads, processes or actors).
        executor (NAME): where agents act: threads, processes, ray (needs the extra ray), or auto to choose.
        gpus (N): with --executor ray: number of GPUs per actor; 0.5 lets two actors share one.
        shard (K/N): run only the K-th of N parts, e.g. 3/16. Combine all N with goalscope merge.
        full: for studies that read activations: compute the complete table, with all heads and controls.
        changes: changes to the study, see `StudyOptions`.
        as_json: print the directory, study, agents and number of episodes as JSON.

    Examples:
        goalscope run study.yaml --out runs/first
        goalscope run baseline --count 3 --agents Theseus,optimal --out runs/small
        goalscope run baseline --model HuggingFaceTB/SmolLM2-135M-Instruct --out runs/smollm2
        goalscope run cognitive-map --out runs/inside
        goalscope run baseline --shard 1/2 --out shards/1
    """
    overrides = changes.read(network=True)
    run_study_of(
        load_study(study, overrides),
        out,
        workers,
        passed={"study": Path(study).name, "workers": workers, **overrides.given()},
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
    """Merge the shards of a study into one run, with the same content as a run without shards.

    The shards are only read. Evaluations with the same plan can be merged too: the result has the models of all of
    them, judged together.

    Args:
        directory (OUT): the directory to write; must not exist yet.
        shards (SHARD ...): the run directories of all shards, in any order; or the directories of evaluations.

    Examples:
        goalscope merge runs/whole shards/1 shards/2
    """
    whole = [path for path in shards if is_evaluation(path)]
    if whole and len(whole) < len(shards):
        raise ValueError("cannot merge evaluations with shards of a study: give directories of one kind")
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
        say("rows of measures are not merged, because some compare worlds across shards: measure the merged run")
    if done.read:
        say("activations and probes are not merged: run capture and probe on the merged run")
    say(f"next: goalscope measure {quote(str(directory))}, goalscope report {quote(str(directory))}")


def run_study_of(study: Study, out: Path, workers: int = 1, *, as_json: bool = False, **options: Any) -> None:
    """Run or resume a study, and print the result of each stage as it finishes (see `front.running.stages`)."""
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
