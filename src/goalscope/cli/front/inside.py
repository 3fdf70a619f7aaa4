"""Activations of a run are read by probes, and changed: as its study declares it, with changes of the caller's."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from goalscope._ground import registry
from goalscope._ground.progress import Display, lines
from goalscope._ground.untrusted import explain
from goalscope._ground.yaml_text import set_key
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


def probe(
    run: str | Path,
    changes: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    *,
    full: bool = False,
    model: str = "",
    device: str = "cpu",
    executor: str = "threads",
    workers: int = 1,
    gpus: float = 0.0,
    stage: Display = lines,
) -> InsideSummary:
    """Capture activations of a run, fit probes beside their controls, store rows and probes.

    Args:
        run: the run directory.
        changes: keys of ``analysis: inside:`` in place of those of the run's study; of ``random`` some keys.
        settings: further ones, KEY=VALUE each.
        full: whether the complete table is computed.
        model: a folder or a hub name; "" for the model of the run's study.
        device: where probes train, and of a given model where it is.
        executor, workers, gpus: where it is computed, see `goalscope.runs.executors.open_executor`.
        stage: shows the progress of a piece of work.

    Raises:
        ValueError: a setting does not fit, or the run holds nothing to be read.
    """
    path = Path(run)
    with Store(path) as store:
        declaration = (pipeline.declared_in(store) or Inside()).model_dump(mode="json")
    for name, value in (changes or {}).items():
        if name == "random" and value is not None:
            value = {**(declaration["random"] or {}), **value}
        elif name != "random":
            declaration["full"].pop(name, None)  # what is given applies to the complete table, too
        declaration[name] = value
    for setting in settings:
        set_key(declaration, setting)
    sites_named = "sites" in (changes or {}) or any(setting.startswith("sites") for setting in settings)
    with open_executor(executor, workers, gpus) as pool:
        trains = device.partition(":")[0] if pool is not None and device != "auto" else trains_on(device)
        options: dict[str, Any] = {}
        if model:
            from goalscope.agents.models.local import LocalModel

            where = "auto" if device == "cpu" else device

            def random(kind: str, seed: int) -> "LocalModel":
                return LocalModel(model, device=where, untrained=seed, random_weights=kind)

            options = {"model": LocalModel(model, device=where), "random": random}
        declared = Inside.parse(declaration, "what is asked for")
        return study_inside(
            path, declared, full=full, device=trains, stage=stage, drop_sites=not sites_named, pool=pool, **options
        )


def patch(
    run: str | Path,
    kind: str = "",
    changes: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    *,
    model: str = "",
    device: str = "auto",
    stage: Display = lines,
) -> Iterator[InterventionSummary]:
    """Find counterfactual pairs, change activations, store rows, and yield what each experiment found.

    Args:
        run: the run directory.
        kind: a registered intervention; "" for those of the run's study, else patching.
        changes: keys of each intervention in place of the declared ones; of ``pairs`` some keys.
        settings: further ones, KEY=VALUE each.
        model: a folder or a hub name; "" for the model of the run's study.
        device: of a given model where it is.
        stage: shows the progress of a piece of work.

    Raises:
        ValueError: a setting does not fit, or the run holds nothing to be changed.
    """
    path = Path(run)
    with Store(path) as store:
        declared = [one for one in experiment.declared_in(store) if not kind or one.kind == kind]  # type: ignore[attr-defined]
    parsed = list[BaseModel]()
    for intervention in declared or [registry.resolve("intervention", kind or "patching")()]:
        mapping: dict[str, Any] = intervention.model_dump(mode="json")
        for name, value in (changes or {}).items():
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
