"""The commands `capture`, `probe` and `patch`: what a study declares about activations, with the caller's changes."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ValidationError

from goalscope._ground import registry
from goalscope._ground.folder import Folder
from goalscope._ground.progress import Display, duration, lines
from goalscope._ground.untrusted import explain
from goalscope._ground.words import counted
from goalscope._ground.yaml_text import set_key
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.cli.console import progress, say, table
from goalscope.cli.generator import Between, Positive, Reads, RunDirectory, Settings, layers_of, lists, prints
from goalscope.cli.measuring import written
from goalscope.inside.activations import CaptureSettings
from goalscope.inside.activations import capture as replay
from goalscope.inside.activations.capture import capture_elsewhere
from goalscope.inside.activations.hooks import DecoderBlocks
from goalscope.inside.activations.sites import find_target, model_of
from goalscope.inside.interventions import experiment
from goalscope.inside.interventions.experiment import InterventionSummary, study_interventions
from goalscope.inside.probing import pipeline
from goalscope.inside.probing.heads import trains_on
from goalscope.inside.probing.pipeline import InsideSummary, study_inside
from goalscope.inside.probing.scores import chosen, paired_rows, summarise
from goalscope.report.blocks import size_in_words
from goalscope.report.definitions import MADE_RULE, strictest
from goalscope.report.sections.probing import ProbeRows
from goalscope.runs import Store, StudyShard
from goalscope.runs.dispatch import open_executor
from goalscope.runs.study_parts import Inside
from goalscope.stats import estimate_rows
from goalscope.stats.rows import Rows

if TYPE_CHECKING:
    from goalscope.agents.models.local import LocalModel


def check_workers(executor: str, workers: int, gpus: float) -> None:
    """Check options for computing in several processes: without an executor that starts them, they are not allowed.

    Raises:
        ValueError: if there are several workers or GPUs with the executor "threads".
    """
    if executor == "threads" and (workers > 1 or gpus):
        raise ValueError("--workers and --gpus need several processes: add --executor processes or --executor ray")


def probe(
    run: Annotated[str | Path, Reads("run")],
    *,
    reads: Sequence[str] = (),
    sites: Sequence[str] = (),
    layers: str = "",
    agent: str = "",
    random_kinds: Sequence[str] = (),
    random_seeds: Positive | None = None,
    full: bool = False,
    model: Annotated[str, Reads("model")] = "",
    device: str = "cpu",
    settings: Settings = (),
    executor: str = "threads",
    workers: Positive = 1,
    gpus: Annotated[float, Between(0)] = 0.0,
    stage: Display = lines,
) -> InsideSummary:
    """Capture the activations of a run, fit probes on them beside controls, and store the probes and their scores.

    Args:
        run: the run directory (it contains run.db).
        reads (LIST): analyses to run, e.g. cognitive-map,beliefs (goalscope probe --help lists them all).
            Default: those of the study, else the built-in ones.
        sites (LIST): positions to probe: pre and post (before and after the reasoning) or action. Default: those of the
            study, else those of pre,post that the run has.
        layers (LIST): decoder blocks, counted from 0, e.g. 7,15,23; or thirds (the last block of each third); or all.
            Default: those of the study, else thirds.
        agent (NAME): agent to probe; needed if several agents have token ids.
        random_kinds (LIST): random networks used as controls: initial (a bundled model before its training), permuted
            (the trained weights in random order), default-init (random weights of the library), or none.
        random_seeds: number of random networks of each kind. Default: 5.
        full: compute the complete table: all probes at all sites and layers.
        model (NAME): model folder or hub name. Default: the model of the run's study.
        device (NAME): where probes are trained: cpu or cuda; with --model also where the model runs: auto, cpu, cuda:1.
        settings (KEY=VALUE): set any key of analysis.inside, e.g. probes.hidden=1024. Repeatable.
        executor (NAME): where to compute: threads (in this process), processes or ray (needs the extra ray).
        workers: with --executor: number of processes or actors.
        gpus (N): with --executor ray: number of GPUs per actor; 0.5 lets two actors share one.
        stage: shows the progress of a task.

    Raises:
        ValueError: if a setting is invalid, or the run has no activations to read.
    """
    check_workers(executor, workers, gpus)
    chosen = {"reads": [*reads], "sites": [*sites], "layers": layers_of(layers) if layers else "", "agent": agent}
    changes: dict[str, Any] = {name: value for name, value in chosen.items() if value not in ("", [])}
    if [*random_kinds] == ["none"]:
        changes["random"] = None
    elif random_kinds or random_seeds is not None:
        kinds = {"kinds": [*random_kinds]} if random_kinds else {}
        changes["random"] = {**kinds, **({} if random_seeds is None else {"seeds": random_seeds})}
    path = Path(run)
    with Store(path) as store:
        declaration = (pipeline.declared_in(store) or Inside()).model_dump(mode="json")
    for name, value in changes.items():
        if name == "random" and value is not None:
            value = {**(declaration["random"] or {}), **value}
        elif name != "random":
            declaration["full"].pop(name, None)  # the given value applies to the complete table, too
        declaration[name] = value
    for setting in settings:
        set_key(declaration, setting)
    sites_named = "sites" in changes or any(setting.startswith("sites") for setting in settings)
    with open_executor(executor, workers, gpus) as pool:
        trains = device.partition(":")[0] if pool is not None and device != "auto" else trains_on(device)
        options: dict[str, Any] = {}
        if model:
            from goalscope.agents.models.local import LocalModel

            model_device = "auto" if device == "cpu" else device

            def random(kind: str, seed: int) -> "LocalModel":
                return LocalModel(model, device=model_device, untrained=seed, random_weights=kind)

            options = {"model": LocalModel(model, device=model_device), "random": random}
        declared = Inside.parse(declaration, "what is asked for")
        return study_inside(
            path, declared, full=full, device=trains, stage=stage, drop_sites=not sites_named, pool=pool, **options
        )


def patch(
    run: Annotated[str | Path, Reads("run")],
    *,
    kind: str = "",
    layers: str = "",
    sites: Sequence[str] = (),
    pairs: Positive | None = None,
    agent: str = "",
    model: Annotated[str, Reads("model")] = "",
    device: str = "auto",
    settings: Settings = (),
    stage: Display = lines,
) -> Iterator[InterventionSummary]:
    """Patch activations between grids that differ in one thing, store rows, and yield a summary of each experiment.

    Each such pair is a counterfactual pair. A patch puts the activations in one grid into the run in the other, to
    see whether the move follows.

    Args:
        run: the run directory (it contains run.db).
        kind (NAME): a registered intervention, e.g. patching. Default: those of the study.
        layers (LIST): decoder blocks (-1 is the embedding), e.g. -1,0,3; or thirds; all; or auto (all of at most 12
            blocks, else thirds).
        sites (LIST): positions to patch: some of grid (all cells), changed (the cells that differ), pre and post
            (before and after the reasoning), action.
        pairs: number of counterfactual pairs per grid size, divided equally among the things moved.
        agent (NAME): agent to patch; needed if several agents have token ids.
        model (NAME): model folder or hub name. Default: the model of the run's study.
        device (NAME): with --model: auto (the default), cpu, cuda or cuda:1.
        settings (KEY=VALUE): set any key of the intervention, e.g. pairs.controls=0. Repeatable.
        stage: shows the progress of a task.

    Raises:
        ValueError: if a setting is invalid, or the run has no activations to change.
    """
    chosen: dict[str, Any] = {"sites": [*sites], "agent": agent}
    changes = {name: value for name, value in chosen.items() if value}
    if layers:
        changes["layers"] = layers if layers == "auto" else layers_of(layers, first=-1)
    if pairs is not None:
        changes["pairs"] = {"per_size": pairs}
    path = Path(run)
    with Store(path) as store:
        declared = [entry for entry in experiment.declared_in(store) if not kind or entry.kind == kind]  # type: ignore[attr-defined]
    parsed = list[BaseModel]()
    for intervention in declared or [registry.resolve("intervention", kind or "patching")()]:
        mapping: dict[str, Any] = intervention.model_dump(mode="json")
        for name, value in changes.items():
            mapping[name] = {**mapping[name], **value} if name == "pairs" else value
        for setting in settings:
            set_key(mapping, setting)
        try:
            parsed.append(type(intervention).model_validate(mapping))
        except ValidationError as error:
            fields = list(type(intervention).model_fields)
            raise ValueError(explain(error, {"": fields}, "what is asked for", "declaration")) from None
    local_model = None
    if model:
        from goalscope.agents.models.local import LocalModel

        local_model = LocalModel(model, device=device)
    yield from study_interventions(path, parsed, model=local_model, stage=stage)


def capture(
    run: RunDirectory,
    *,
    layers: str = "thirds",
    sites: Sequence[str] = (),
    model: Annotated[str | None, Reads("model")] = None,
    agent: str | None = None,
    untrained: int | None = None,
    random_weights: str = "default-init",
    scope: str = "all",
    other_weights: bool = False,
    batch_tokens: Positive | None = None,
    device: str = "",
    dtype: str = "",
    revision: str = "",
    reasoning: str = "",
    shard: str | None = None,
    executor: str = "threads",
    workers: Positive = 1,
    gpus: Annotated[float, Between(0)] = 0.0,
) -> None:
    """Replay the recorded token ids of a run through its model, and store the activations beside the run.

    Run the same command again to resume after an interruption.

    Args:
        run: the run directory (it contains run.db).
        layers (LIST): decoder blocks, counted from 0, e.g. 7,15,23; or thirds (the last block of each third); or all.
        sites (LIST): positions to read: pre and post (before and after the reasoning), grid (cells) or action. Default:
            those of pre,post that the run has.
        model (NAME): model folder or hub name. Default: the model of the run's study.
        agent (NAME): agent whose steps are replayed; needed if several agents have token ids.
        untrained (SEED): capture a control instead: the same architecture with random weights.
        random_weights (KIND): with --untrained: default-init (random weights of the library), initial (a bundled model
            before its training) or permuted (the trained weights in random order).
        scope (WHICH): steps to replay: all, the first of each episode, or N:SEED for N random steps per grid.
        other_weights: allow weights other than those that generated the run.
        batch_tokens: maximum number of tokens per forward pass; lower it if memory runs out. Default: 2048 on a CPU,
            32768 on a GPU.
        device (NAME): with --model: auto (the default), cpu, cuda or cuda:1.
        dtype (NAME): with --model: auto (the default), float32, bfloat16 or float16.
        revision (NAME): with --model: commit, tag or branch on the hub.
        reasoning (STYLE): with --model: mark of the reasoning: harmony, think or none. Default: from the tokenizer.
        shard (K/N): capture only the K-th of N parts. The same command without --shard combines the parts.
        executor (NAME): where to compute: threads (in this process), processes or ray (needs the extra ray).
        workers: with --executor: number of processes or actors.
        gpus (N): with --executor ray: number of GPUs per actor; 0.5 lets two actors share one.

    Examples:
        goalscope capture runs/baseline
        goalscope capture runs/baseline --untrained 0
        goalscope capture runs/baseline --shard 3/16
        goalscope capture runs/gpt --model openai/gpt-oss-20b --layers 7,15,23 --sites pre,post
    """
    from goalscope.agents.models.local import LocalModel

    check_workers(executor, workers, gpus)
    if executor != "threads" and shard is not None:
        raise ValueError(
            "--shard captures one part in this process and --executor starts several: give only one of them"
        )
    part = None if shard is None else StudyShard.parse(shard)
    model_options = {"device": device, "dtype": dtype, "revision": revision, "reasoning": reasoning}
    loading: dict[str, Any] = {name: value for name, value in model_options.items() if value}
    if model is None and loading:
        raise ValueError(
            f"{', '.join(f'--{name}' for name in loading)} says how a model given with --model is read: give --model, "
            "or change the agent in the study"
        )
    model_settings = None
    if model is not None:
        model_settings = {"model": model, "untrained": untrained, "random_weights": random_weights, **loading}
    local_model = None if model_settings is None else LocalModel(**model_settings)
    requested = layers_of(layers)
    layer_numbers = None if isinstance(requested, str) else requested
    if requested == "all":
        if local_model is None:
            with Store(run) as store:
                local_model = model_of(store, find_target(store, agent, ()), untrained, random_weights)
        layer_numbers = DecoderBlocks(local_model.model).layers
    began = time.monotonic()
    with progress("steps" if executor == "threads" else "parts") as show:
        options: dict[str, Any] = {
            "sites": [*sites] or None,
            "layers": layer_numbers,
            "agent": agent,
            "untrained": untrained if model_settings is None else None,
            "random_weights": random_weights if model_settings is None else "default-init",
            "scope": scope,
            "other_weights": other_weights,
            "settings": CaptureSettings(batch_tokens=batch_tokens),
        }
        if executor == "threads":
            done = replay(run, local_model, progress=show, shard=part, **options)
        else:
            done = capture_elsewhere(str(run.resolve()), options, model_settings, executor, workers, gpus, show)
    if part is not None:
        say(
            f"shard {part} of {done.id}, in {duration(time.monotonic() - began)}; next, once the files of all "
            f"{part.of} are in {run / done.path}: the same command without --shard"
        )
        return
    size = sum(status.st_size for _, status in Folder(run).entries(done.path))
    rows = [
        ("model", done.model_name),
        ("agent", done.agent),
        ("sites", ", ".join(done.sites)),
        ("layers", ", ".join(map(str, done.layers))),
        ("steps captured", f"{done.captured} of {done.steps}"),
        ("largest difference to the library's hidden states", f"{max(done.self_check.values(), default=0.0):.2g}"),
        ("files", f"{run / done.path} ({size_in_words(size)})"),
    ]
    table(("what", "value"), rows, title=f"{done.id}, in {duration(time.monotonic() - began)}")
    for reason, count in done.left_out.items():
        say(f"left out: {reason} ({counted(count, 'step')})")
    if done.reconstructed:
        say(f"{counted(done.reconstructed, 'step')} of them with ids that were made again from text (reconstructed)")


def _analyses() -> list[tuple[str, str]]:
    return [(name, registry.resolve("analysis", name).title) for name in registry.names("analysis")]


@lists("Analyses", _analyses)
@prints(probe)
def show_probed(done: InsideSummary, *, run: Path, seconds: float) -> None:
    """Capture activations, fit probes on them beside controls, and store the results. Finished work is not repeated.

    Examples:
        goalscope probe runs/gpt --reads cognitive-map,beliefs --sites pre,post --layers 7,15,23
        goalscope probe runs/inside --full
        goalscope probe runs/gpt --model openai/gpt-oss-20b --set probes.hidden=1024 --set probes.epochs=50
    """
    show_inside(done, seconds)
    say(f"next: goalscope report {quote(str(run))}")


def show_inside(done: InsideSummary, seconds: float) -> None:
    """Print how many probes were fitted, and the main result of each analysis of activations.

    ``seconds`` is how long it took.
    """
    steps = done.steps
    if steps["steps left out"]:
        say(f"{counted(steps['steps left out'], 'step')} left out, because not all sites were captured", error=True)
    reused = f", {done.reused} there already" if done.reused else ""
    say(
        f"{done.agent}: {counted(done.fitted, 'probe')} fitted{reused}, on {steps['training grids']} grids "
        f"({counted(steps['training steps'], 'step')}), tested on {steps['test grids']} ({steps['test steps']}), in "
        f"{duration(seconds)}"
    )
    middle = done.layers[len(done.layers) // 2]
    for name, rows in done.rows.items():
        _print(name, rows, done.sites, middle)
    say(MADE_RULE)


def _print(name: str, rows: Rows, sites: Sequence[str], layer: int) -> None:
    """Print the main result of one analysis at one layer: each site, and its difference from random networks."""
    lines = []
    analysis = registry.resolve("analysis", name)
    for label, tags in analysis.headline:
        selected = ProbeRows(rows).where(**tags, layer=layer, cells=None)
        heads = [str(head) for head in selected.values("head")]
        head = str(tags.get("head") or (analysis.pick(heads) if heads else ""))
        lines += [(label, site, head, *_compared(selected.where(head=head, site=site))) for site in sites]
    columns = ("what", "site", "probe", "this model", "strictest random network", "difference", "grids")
    table(columns, lines, title=f"{name}, layer {layer}: mean and 95 % interval over grids", numbers=(3, 4, 5, 6))


def _compared(selected: ProbeRows) -> tuple[str, str, str, str]:
    """Return as text: the model's value, the strictest random network's value, their difference, number of grids."""
    own_rows = selected.where(control="none").rows
    if not len(own_rows):
        return "–", "–", "–", "0"
    (first,) = summarise(own_rows, by=())
    random_rows = {kind: kind_rows for kind in RANDOM_WEIGHTS if len(kind_rows := selected.where(control=kind).rows)}
    by = ("site", "layer", "shape")
    differences = {
        kind: summarise(paired_rows(own_rows, kind_rows, name=kind, by=by), by=())[0].estimate
        for kind, kind_rows in random_rows.items()
    }
    value = difference = "–"
    if decisive := strictest(differences, higher=first.estimate.unit == "share"):
        value = f"{decisive[0]} {written(summarise(random_rows[decisive[0]], by=())[0].estimate)}"
        difference = written(decisive[1])
    return written(first.estimate), value, difference, str(first.estimate.all_clusters)


@prints(patch)
def show_patched(summaries: Iterator[InterventionSummary], *, run: Path) -> None:
    """Patch activations between grids that differ in one thing, and test whether the move follows.

    Finished work is not repeated.

    Examples:
        goalscope patch runs/patching
        goalscope patch runs/baseline --kind patching --pairs 4 --sites grid,changed
    """
    began = time.monotonic()
    for done in summaries:
        show_intervention(done)
    say(f"interventions in {duration(time.monotonic() - began)}")
    say(f"next: goalscope report {quote(str(run))}")


def show_intervention(done: InterventionSummary) -> None:
    """Print the main results of an experiment that changed activations or reasoning, one estimate per line."""
    measures, fixed, by = registry.resolve("intervention", done.kind).headline
    selected = chosen(done.rows, **fixed)
    lines = [
        (
            str(estimated.key["measure"]),
            *(str(estimated.key[name]) for name in by),
            written(estimated.estimate),
            str(estimated.estimate.all_clusters),
        )
        for estimated in estimate_rows(selected.where(selected.among("measure", measures)), by=by)
    ]
    for thing, numbers in done.about.get("by thing moved", {}).items():
        if numbers["pairs"] < numbers["asked for"]:
            say(
                f"{done.kind}: only {numbers['pairs']} of {numbers['asked for']} pairs with the {thing} moved, since "
                "on too few grids the agent acts optimally on both sides of a pair"
            )
    columns = ("what", *by, "value", "grids")
    table(columns, lines, title=f"{done.agent}: {done.kind}, mean and 95 % interval over grids", numbers=(len(by) + 1,))
