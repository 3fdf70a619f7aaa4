"""`goalscope patch`: change activations of a run's agent as its study, or the options, declare."""

import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from goalscope.cli.help import RunDirectory, option

if TYPE_CHECKING:
    from pydantic import BaseModel

    from goalscope.interventions.experiment import InterventionSummary


def patch(
    run: RunDirectory,
    kind: Annotated[
        str, option("NAME", "A registered intervention, e.g. patching; those of the study if left out.")
    ] = "",
    layers: Annotated[
        str, option("LIST", "Blocks (-1: embedding), e.g. -1,0,3; thirds; all; auto: all of at most 12, else thirds.")
    ] = "",
    sites: Annotated[str, option("LIST", "grid, changed, pre, post, action.")] = "",
    pairs: Annotated[
        int | None, option("N", "Counterfactual pairs of each grid size, an equal share of each thing moved.", min=1)
    ] = None,
    agent: Annotated[str, option("NAME", "Whose activations, where several have token ids.")] = "",
    model: Annotated[str, option("NAME", "A folder or a hub name; the model of the run's study if left out.")] = "",
    device: Annotated[str, option("NAME", "With --model: auto (the default), cpu, cuda, cuda:1.")] = "auto",
    settings: Annotated[
        list[str] | None, option("KEY=VALUE", "Any key of the intervention, e.g. pairs.controls=0.", "--set")
    ] = None,
) -> None:
    """Find counterfactual pairs, patch activations between them, store rows. What is stored is not done again."""
    from goalscope import registry
    from goalscope.cli.console import say
    from goalscope.cli.overrides import layers_of, split
    from goalscope.interventions.experiment import declared_in
    from goalscope.runs import Store
    from goalscope.untrusted import explain
    from goalscope.yaml_text import set_key

    with Store(run) as store:
        declared = [intervention for intervention in declared_in(store) if not kind or intervention.kind == kind]  # type: ignore[attr-defined]
    if not declared:
        kinds = registry.resolve("intervention", kind or "patching")
        declared = [kinds()]
    parsed: list[BaseModel] = []
    for intervention in declared:
        mapping: dict[str, Any] = intervention.model_dump(mode="json")
        overrides = {"sites": split(sites), "agent": agent}
        mapping |= {name: value for name, value in overrides.items() if value}
        if layers:
            mapping["layers"] = layers if layers == "auto" else layers_of(layers, first=-1)
        if pairs is not None:
            mapping["pairs"]["per_size"] = pairs
        for setting in settings or ():
            set_key(mapping, setting)
        parsed.append(_parsed(type(intervention), mapping, explain))
    change(run, parsed, model=model, device=device)
    say(f"next: goalscope report {quote(str(run))}")


def change(run: Path, declared: "Sequence[BaseModel]", *, model: str = "", device: str = "auto") -> None:
    """Run declared interventions with a progress display, and print the headline of each."""
    from goalscope.cli.console import progress, say
    from goalscope.interventions.experiment import study_interventions
    from goalscope.progress import duration

    local_model = None
    if model:
        from goalscope.models.local import LocalModel

        local_model = LocalModel(model, device=device)
    began = time.monotonic()
    for done in study_interventions(run, declared, model=local_model, stage=progress):
        show_intervention(done)
    say(f"interventions in {duration(time.monotonic() - began)}")


def _parsed(kind: "type[BaseModel]", mapping: dict[str, Any], explain: Any) -> "BaseModel":
    from pydantic import ValidationError

    try:
        return kind.model_validate(mapping)
    except ValidationError as error:
        raise ValueError(explain(error, {"": list(kind.model_fields)}, "what is asked for", "declaration")) from None


def show_intervention(done: "InterventionSummary") -> None:
    """Print the main estimates of an experiment, one line each."""
    from goalscope import registry
    from goalscope.cli.console import say, table
    from goalscope.cli.measuring import written
    from goalscope.probing.scores import chosen
    from goalscope.stats import estimate_rows

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
                f"{done.kind}: {numbers['pairs']} of {numbers['asked for']} pairs with the {thing} moved: too few "
                "grids have one in which the agent acts optimally on both sides"
            )
    columns = ("what", *by, "value", "grids")
    table(columns, lines, title=f"{done.agent}: {done.kind}, mean and 95 % interval over grids", numbers=(len(by) + 1,))
