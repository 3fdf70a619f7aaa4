"""`goalscope probe`: read what a run's study declares, or what is asked for, out of the activations of an agent."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from goalscope.cli.errors import guarded

if TYPE_CHECKING:
    from goalscope.rows import Rows, Tag
    from goalscope.runs.probing_config import Inside

_NONE: Final = "none"

HEADLINES: Final[Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]]] = {
    "cognitive-map": [
        (label, {"measure": measure, "class": name, "head": "mlp", "reading": "natural", "scope": "general"})
        for label, measure, name in (
            ("agent at its cell", "localisation", "agent"),
            ("goal at its cell", "localisation", "goal"),
            ("walls, average precision", "average precision", "wall"),
        )
    ],
    "beliefs": [
        (label, {"measure": f"{measure} less shuffled", "head": "mlp", "reading": "natural"})
        for label, measure in (
            ("optimal on the decoded map, less shuffled", "accuracy against decoded beliefs"),
            ("recovery, less shuffled", "recovery"),
        )
    ],
    "plans": [
        (f"plan right up to N = {count}", {"measure": "prefix accuracy", "N": count, "plans": "all"})
        for count in (1, 3, 5)
    ],
    "distance": [("distance, absolute error (steps)", {"measure": "distance error", "head": "mlp", "distance": None})],
}
"""What is printed of each reading at the middle layer: a label and the tags of its rows."""


@guarded
def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run directory (it holds run.db).")],
    reads: Annotated[
        str, typer.Option(metavar="LIST", help="cognitive-map, beliefs, plans, distance; those of the study, else all.")
    ] = "",
    sites: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="pre, post (before and after the reasoning), action; those of the study, else those of "
            "pre,post that the run has.",
        ),
    ] = "",
    layers: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Decoder blocks, 0-based: 7,15,23; thirds: the last one of each third; all. The study's, else thirds.",
        ),
    ] = "",
    agent: Annotated[str, typer.Option(metavar="NAME", help="Whose activations, where several have token ids.")] = "",
    untrained: Annotated[
        str, typer.Option(metavar="SEED", help="Seed of the control with random weights (0), or none.")
    ] = "",
    full: Annotated[bool, typer.Option("--full", help="The complete table: all probes everywhere.")] = False,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A folder or a hub name; the model of the run's study if left out.")
    ] = "",
    device: Annotated[
        str, typer.Option(metavar="NAME", help="Where probes train: cpu or cuda; also of --model: auto, cpu, cuda:1.")
    ] = "cpu",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any key of analysis.inside, e.g. probes.hidden=1024."),
    ] = None,
) -> None:
    """Capture activations, fit probes beside their controls, store rows and probes. What is there is not done again."""
    from goalscope.cli.overrides import layers_of, set_key, split
    from goalscope.probing.pipeline import declared_in
    from goalscope.runs import Store
    from goalscope.runs.probing_config import Inside

    with Store(run) as store:
        plain = (declared_in(store) or Inside()).model_dump(mode="json")
    changes: dict[str, Any] = {name: split(text) for name, text in (("reads", reads), ("sites", sites)) if text}
    if layers:
        changes["layers"] = layers_of(layers)
    if agent:
        changes["agent"] = agent
    if untrained:
        changes["untrained"] = _seed(untrained)
    plain |= changes
    for name in changes:
        plain["full"].pop(name, None)  # what is asked for holds for the complete table, too

    for setting in settings or ():
        set_key(plain, setting)
    read_inside(run, Inside.parse(plain, "what is asked for"), full=full, model=model, device=device)
    from goalscope.cli.console import say

    say(f"next: goalscope report {quote(str(run))}")


def read_inside(run: Path, declared: "Inside", *, full: bool = False, model: str = "", device: str = "cpu") -> None:
    """Read what is declared, show how far it is, and print the headline of each reading.

    Args:
        run: the run directory.
        declared: what is wanted.
        full: the complete table.
        model: folder or name of the model; "" for the one that the run's study names.
        device: where probes are trained.

    Raises:
        ValueError, FileNotFoundError, ImportError: see `goalscope.probing.pipeline.study_inside`.
    """
    from goalscope.activations.devices import trains_on
    from goalscope.cli.console import duration, progress, say
    from goalscope.probing.pipeline import study_inside
    from goalscope.report.blocks import counted

    trains = trains_on(device)
    own = control = None
    if model:
        from goalscope.models.local import LocalModel

        where = "auto" if device == "cpu" else device
        own = LocalModel(model, device=where)
        if declared.untrained is not None:
            control = LocalModel(model, device=where, untrained=declared.untrained)
    began = time.monotonic()
    done = study_inside(run, declared, full=full, model=own, control=control, device=trains, stage=progress)
    steps = done.steps
    if steps["steps left out"]:
        say(f"{counted(steps['steps left out'], 'step')} left out: not all sites are there", error=True)
    again = f", {done.reused} there already" if done.reused else ""
    say(
        f"{done.agent}: {counted(done.fitted, 'probe')} fitted{again}, on {steps['training grids']} grids "
        f"({counted(steps['training steps'], 'step')}), tested on {steps['test grids']} ({steps['test steps']}), in "
        f"{duration(time.monotonic() - began)}"
    )
    middle = done.layers[len(done.layers) // 2]
    for name, rows in done.rows.items():
        _print(name, rows, done.sites, middle)


def _print(name: str, rows: "Rows", sites: Sequence[str], layer: int) -> None:
    """Print the headline of one reading at one layer: each site beside its control, and their difference."""
    from goalscope.cli.console import table
    from goalscope.report.definitions import DEFAULT_NETWORK

    lines = []
    for label, tags in HEADLINES[name]:
        mine = _having(rows, {**tags, "layer": layer})
        head = "mlp" if name != "plans" else next(iter(sorted(_heads(mine))), "")
        mine = _having(mine, {"head": head})
        for site in sites:
            here = _having(mine, {"site": site})
            own, control = _having(here, {"control": "none"}), _having(here, {"control": "untrained"})
            lines.append((label, site, head, *_compared(own, control)))
    columns = ("what", "site", "probe", "this model", DEFAULT_NETWORK, "difference", "grids")
    table(columns, lines, title=f"{name}, layer {layer}: mean and 95 % interval over grids", numbers=(3, 4, 5, 6))


def _heads(rows: "Rows") -> set[str]:
    """Return the decoders among heads, the one of two layers alone where it is there."""
    found = {str(one) for one in rows["head"].tolist() if str(one).startswith("decoder")} if len(rows) else set()
    return {"decoder-2"} if "decoder-2" in found else found


def _having(rows: "Rows", tags: Mapping[str, "Tag"]) -> "Rows":
    """Return the rows with these values; a tag that no row has is None everywhere."""
    import numpy as np

    columns = rows.columns()
    mask = np.ones(len(rows), dtype=bool)
    for name, wanted in tags.items():
        given = columns.get(name)
        held = [None] * len(rows) if given is None else given.tolist()
        mask &= np.fromiter((one == wanted for one in held), dtype=bool, count=len(rows))
    return rows.where(mask)


def _compared(own: "Rows", control: "Rows") -> tuple[str, str, str, str]:
    """Return two values and their difference by grid, each with its interval, and the number of grids."""
    from goalscope.cli.estimates import written
    from goalscope.probing.paired import paired_rows
    from goalscope.probing.scores import summarise

    if not len(own):
        return "–", "–", "–", "0"
    (first,) = summarise(own, by=())
    texts = [written(first.estimate), "–", "–"]
    if len(control):
        texts[1] = written(summarise(control, by=())[0].estimate)
        less = paired_rows(own, control, name="untrained", by=("site", "layer", "shape"))
        texts[2] = written(summarise(less, by=())[0].estimate)
    return texts[0], texts[1], texts[2], str(first.estimate.grids)


def _seed(text: str) -> int | None:
    if text == _NONE:
        return None
    if not text.isdecimal():
        raise ValueError(f"--untrained must be a whole number >= 0, or none, got {text!r}")
    return int(text)
