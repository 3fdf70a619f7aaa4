"""Probe or patch the activations of a run, as its study declares it, with the caller's changes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ValidationError

from goalscope._ground import registry
from goalscope._ground.arguments import Between, Positive, Reads, Settings
from goalscope._ground.progress import Display, lines
from goalscope._ground.untrusted import explain
from goalscope._ground.yaml_text import set_key
from goalscope.cli.parsing import layers_of
from goalscope.inside.interventions import experiment
from goalscope.inside.interventions.experiment import InterventionSummary, study_interventions
from goalscope.inside.probing import pipeline
from goalscope.inside.probing.heads import trains_on
from goalscope.inside.probing.pipeline import InsideSummary, study_inside
from goalscope.runs import Store
from goalscope.runs.executors import open_executor
from goalscope.runs.probing_config import Inside

if TYPE_CHECKING:
    from goalscope.agents.models.local import LocalModel


def check_workers(executor: str, workers: int, gpus: float) -> None:
    """Raise a ValueError if options for several processes are given without an executor that starts them."""
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
    """Capture the activations of a run, fit probes and their controls, and store rows and probes.

    Args:
        run: the run directory (it contains run.db).
        reads (LIST): analyses to run, from the list below. Default: those of the study, else the built-in ones.
        sites (LIST): positions to probe: pre and post (before and after the reasoning) or action. Default: those of the
            study, else those of pre,post that the run has.
        layers (LIST): decoder blocks, counted from 0, e.g. 7,15,23; or thirds (the last block of each third); or all.
            Default: those of the study, else thirds.
        agent (NAME): agent to probe; needed if several agents have token ids.
        random_kinds (LIST): random networks used as controls: initial, permuted, default-init, or none.
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
    """Find counterfactual pairs, patch activations, store rows, and yield the summary of each experiment.

    Args:
        run: the run directory (it contains run.db).
        kind (NAME): a registered intervention, e.g. patching. Default: those of the study.
        layers (LIST): decoder blocks (-1 is the embedding), e.g. -1,0,3; or thirds; all; or auto (all of at most 12
            blocks, else thirds).
        sites (LIST): positions to patch: some of grid, changed, pre, post, action.
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
