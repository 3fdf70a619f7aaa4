"""`goalscope capture`: replay the recorded token ids of a run and store activations beside it.

`goalscope probe`: fit the probes that a run's study declares, or the options name, on an agent's activations.
"""

import time
from collections.abc import Callable, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from goalscope._ground.folder import Folder
from goalscope.cli.help import LAYERS, Executor, Gpus, Reads, RunDirectory, Workers, flag, option

if TYPE_CHECKING:
    from goalscope.inside.probing.pipeline import InsideSummary
    from goalscope.report.sections.probing import ProbeRows
    from goalscope.stats.rows import Rows


def capture(
    run: RunDirectory,
    layers: Annotated[str, option("LIST", LAYERS)] = "thirds",
    sites: Annotated[
        str,
        option(
            "LIST",
            "pre, post (before and after the reasoning), grid (cells), action; else those of pre,post that the run "
            "has.",
        ),
    ] = "",
    model: Annotated[
        str | None, Reads("model"), option("NAME", "A folder or a hub name; the model of the run's study if left out.")
    ] = None,
    agent: Annotated[str | None, option("NAME", "Whose steps, where several have token ids.")] = None,
    untrained: Annotated[int | None, option("SEED", "The control: the same architecture with random weights.")] = None,
    random_weights: Annotated[
        str, option("KIND", "With --untrained: default-init (the library's), initial (a bundled model's), permuted.")
    ] = "default-init",
    scope: Annotated[
        str, option("WHICH", "all steps, the first of each episode, or N:SEED for N drawn steps of each grid.")
    ] = "all",
    other_weights: Annotated[
        bool, flag("--other-weights", "The model's weights need not be those that generated the run.")
    ] = False,
    batch_tokens: Annotated[
        int | None,
        option(
            "N",
            "Most tokens of a forward pass (2048 on a processor, 32768 on a GPU): fewer where memory is short.",
            min=1,
        ),
    ] = None,
    device: Annotated[str, option("NAME", "With --model: auto (the default), cpu, cuda, cuda:1.")] = "",
    dtype: Annotated[str, option("NAME", "With --model: auto (the default), float32, bfloat16, float16.")] = "",
    revision: Annotated[str, option("NAME", "With --model: commit, tag or branch on the hub.")] = "",
    reasoning: Annotated[
        str, option("STYLE", "With --model: harmony, think, none; the tokenizer is asked where left out.")
    ] = "",
    shard: Annotated[
        str | None, option("K/N", "Only the K-th of N parts of the files; the same command without it takes them over.")
    ] = None,
    executor: Executor = "threads",
    workers: Workers = 1,
    gpus: Gpus = 0.0,
) -> None:
    """Replay a run's token ids and store activations beside it. Run it again to go on after an interruption."""
    from goalscope._ground.progress import duration
    from goalscope._ground.words import counted
    from goalscope.agents.models.local import LocalModel
    from goalscope.cli.console import progress, say, table
    from goalscope.cli.overrides import layers_of, split
    from goalscope.inside.activations import CaptureSettings
    from goalscope.inside.activations import capture as replay
    from goalscope.inside.activations.capture import capture_elsewhere
    from goalscope.inside.activations.hooks import DecoderBlocks
    from goalscope.report.blocks import size_in_words
    from goalscope.runs import StudyShard

    _check_workers(executor, workers, gpus)
    if executor != "threads" and shard is not None:
        raise ValueError(
            "--shard is a part of the work for one process, --executor gives parts to several: leave one out"
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
            from goalscope.inside.activations.replay_target import find_target, model_of
            from goalscope.runs import Store

            with Store(run) as store:
                local_model = model_of(store, find_target(store, agent, ()), untrained, random_weights)
        layer_numbers = DecoderBlocks(local_model.model).layers
    began = time.monotonic()
    with progress("steps" if executor == "threads" else "parts") as show:
        options: dict[str, Any] = {
            "sites": split(sites) if sites else None,
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


def _check_workers(executor: str, workers: int, gpus: float) -> None:
    if executor == "threads" and (workers > 1 or gpus):
        raise ValueError("--workers and --gpus must come with --executor processes or ray: add it")


def probe(
    run: RunDirectory,
    reads: Annotated[str, option("LIST", "Analyses, listed below; those of the study, else the built-in ones.")] = "",
    sites: Annotated[
        str,
        option(
            "LIST",
            "pre, post (before and after the reasoning), action; those of the study, else those of pre,post that the "
            "run has.",
        ),
    ] = "",
    layers: Annotated[str, option("LIST", f"{LAYERS} The study's, else thirds.")] = "",
    agent: Annotated[str, option("NAME", "Whose activations, where several have token ids.")] = "",
    random_kinds: Annotated[
        str, option("LIST", "Random networks beside the model: initial, permuted, default-init, or none.")
    ] = "",
    random_seeds: Annotated[int | None, option("N", "Random networks of each kind (5).", min=1)] = None,
    full: Annotated[bool, flag("--full", "The complete table: all probes everywhere.")] = False,
    model: Annotated[
        str, Reads("model"), option("NAME", "A folder or a hub name; the model of the run's study if left out.")
    ] = "",
    device: Annotated[
        str, option("NAME", "Where probes train: cpu or cuda; also of --model: auto, cpu, cuda:1.")
    ] = "cpu",
    settings: Annotated[
        list[str] | None, option("KEY=VALUE", "Any key of analysis.inside, e.g. probes.hidden=1024.", "--set")
    ] = None,
    executor: Executor = "threads",
    workers: Workers = 1,
    gpus: Gpus = 0.0,
) -> None:
    """Capture activations, fit probes beside their controls, store rows and probes. What is there is not done again."""
    from goalscope.cli.console import progress, say
    from goalscope.cli.front.inside import probe as read_inside
    from goalscope.cli.overrides import layers_of, split

    given: dict[str, tuple[str, Callable[[str], Any]]] = {
        "reads": (reads, split),
        "sites": (sites, split),
        "layers": (layers, layers_of),
        "agent": (agent, str),
    }
    changes = {name: read(text) for name, (text, read) in given.items() if text}
    if random_kinds == "none":
        changes["random"] = None
    elif random_kinds or random_seeds is not None:
        kinds = {"kinds": split(random_kinds)} if random_kinds else {}
        changes["random"] = {**kinds, **({} if random_seeds is None else {"seeds": random_seeds})}
    _check_workers(executor, workers, gpus)
    where: dict[str, Any] = {"executor": executor, "workers": workers, "gpus": gpus}
    began = time.monotonic()
    done = read_inside(run, changes, settings or (), full=full, model=model, device=device, stage=progress, **where)
    show_inside(done, time.monotonic() - began)
    say(f"next: goalscope report {quote(str(run))}")


def show_inside(done: "InsideSummary", seconds: float) -> None:
    """Print what probes found: numbers of probes, and the headline of each reading."""
    from goalscope._ground.progress import duration
    from goalscope._ground.words import counted
    from goalscope.cli.console import say
    from goalscope.report.verdicts import MADE_RULE

    steps = done.steps
    if steps["steps left out"]:
        say(f"{counted(steps['steps left out'], 'step')} left out: not all sites are there", error=True)
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


def _print(name: str, rows: "Rows", sites: Sequence[str], layer: int) -> None:
    """Print the headline of one reading at one layer: each site, and its difference to the random networks."""
    from goalscope._ground import registry
    from goalscope.cli.console import table
    from goalscope.report.sections.probing import ProbeRows

    lines = []
    found = registry.resolve("analysis", name)
    for label, tags in found.headline:
        selected = ProbeRows(rows).where(**tags, layer=layer, cells=None)
        heads = [str(head) for head in selected.values("head")]
        head = str(tags.get("head") or (found.pick(heads) if heads else ""))
        lines += [(label, site, head, *_compared(selected.where(head=head, site=site))) for site in sites]
    columns = ("what", "site", "probe", "this model", "strictest random network", "difference", "grids")
    table(columns, lines, title=f"{name}, layer {layer}: mean and 95 % interval over grids", numbers=(3, 4, 5, 6))


def _compared(selected: "ProbeRows") -> tuple[str, str, str, str]:
    """Return the model's value, that of the strictest random network, the difference, and the number of grids."""
    from goalscope.agents.models.initialisation import RANDOM_WEIGHTS
    from goalscope.cli.measuring import written
    from goalscope.inside.probing.scores import paired_rows, summarise
    from goalscope.report.verdicts import strictest

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
