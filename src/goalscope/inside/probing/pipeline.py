"""All analyses of a run's activations that a study declares, end to end."""

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from goalscope._ground import registry
from goalscope._ground.parts import attempt
from goalscope._ground.progress import Stage, silent
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.capture import capture
from goalscope.inside.activations.capture_schedule import plan_id, some_steps
from goalscope.inside.activations.hooks import DecoderBlocks, chosen_layers
from goalscope.inside.activations.load import SHARD, Capture, captures
from goalscope.inside.activations.replay_target import ReplayTarget, find_target, model_id, model_of
from goalscope.inside.activations.shards import artifacts
from goalscope.inside.activations.sites import available_sites
from goalscope.inside.probing.analyses import AnalysisReader, probe_dataset
from goalscope.inside.probing.beliefs import SOURCE
from goalscope.inside.probing.heads import check_device
from goalscope.inside.probing.inputs import known_walls
from goalscope.inside.probing.logit_lens import OWN, Network
from goalscope.runs import Store
from goalscope.runs.probing_config import Inside
from goalscope.runs.provenance import note, note_libraries
from goalscope.stats.rows import Rows
from goalscope.worlds.gridworld import GridView

INFO: Final = "inside"
"""Name under which a run stores the settings and numbers of steps of the last readings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideSummary:
    """Results of the analyses of a run's activations.

    Attributes:
        rows: name of an analysis -> its rows, stored under that source.
        agent, layers, sites: the agent, layers and sites of the activations.
        steps: numbers of steps and grids.
        known_walls: fraction of the test grids whose wall map also occurs in the training split.
        fitted: number of probes and decoders fitted in this call.
        reused: number of probes and decoders that were stored before.
    """

    rows: Mapping[str, Rows]
    agent: str
    layers: tuple[int, ...]
    sites: tuple[str, ...]
    steps: Mapping[str, int]
    known_walls: float
    fitted: int
    reused: int


RandomModels = Callable[[str, int], LocalModel]
"""Returns a random network of a kind (one of `RANDOM_WEIGHTS`) and a seed."""


def study_inside(
    run: str | Path,
    declared: Inside | None = None,
    *,
    full: bool = False,
    model: LocalModel | None = None,
    random: RandomModels | None = None,
    device: str = "cpu",
    stage: Stage = silent,
    drop_sites: bool = False,
    pool: Executor | None = None,
) -> InsideSummary:
    """Capture, fit and compare everything declared and not stored yet; store rows and probes, and return the rows.

    Args:
        run: a run directory; no other process may write to it meanwhile.
        declared: settings of the analyses; by default those of the run's study, else the defaults of `Inside`.
        full: whether to compute the complete table (`Inside.complete`).
        model: the model to replay through; by default the local model that the run's study names.
        random: with ``model``, a function of kind and seed that returns the same architecture with random weights.
        device: where probes and decoders are trained, "cpu" or "cuda".
        pool: an executor that trains probes in other processes, see `goalscope.runs.executors.open_executor`.
        stage: called with the name of each task when it starts; returns a progress callback.
        drop_sites: whether to leave out, with a warning, named sites that the agent's steps lack; otherwise they are an
            error. Sites that the run's study declares are never an error.

    Raises:
        FileNotFoundError: if there is no such run or model.
        ValueError: if the run has no token ids, worlds do not fit an analysis, there are too few grids, or `capture`
            raises an error; the message says what to do.
        ImportError: if torch or transformers is missing.
        BlockingIOError: if another process is writing to the run.
    """
    if pool is None:
        check_device(device)
    with Store(run) as store:
        settings = declared or declared_in(store) or Inside()
        settings = settings.complete() if full else settings
        parts = [*(("head", name) for name in settings.heads), *(("analysis", name) for name in settings.reads)]
        for part in parts:
            registry.resolve(*part)  # an unknown analysis raises an error before anything is computed
        target = find_target(store, settings.agent, settings.wanted_sites)
        _check_worlds(store, target, settings)
        if settings.sites is None or declared is None or drop_sites:
            present = available_sites(store, target.agent_id, model or model_of(store, target), settings.wanted_sites)
            settings = settings.model_copy(update={"sites": present})
    if model is not None and settings.networks and random is None:
        raise ValueError("model is given without its random networks: pass random=..., or set random: null")
    network = partial(_network, target, model, random)
    by_network, layers = _captures(Path(run), settings, target, network, model is not None, stage)
    with Store(run, "w") as store:
        note_libraries(store, "probes", parts)
        dataset = probe_dataset(store, by_network, layers, settings)
        reader = AnalysisReader(store, dataset, settings, stage, device, partial(network, store))
        reader.probes.pool = pool
        rows: dict[str, Rows] = {}
        for name in settings.reads:
            reading = attempt("analysis", name, partial(reader.read, name), lambda why: None)
            if reading is None:
                continue
            reading_rows, maps = reading
            rows[name] = reading_rows.tagged({"agent": np.full(len(reading_rows), target.agent, dtype=object)})
            store.put_rows(rows[name], source=name)
            if name == "beliefs" or (name == "cognitive-map" and "beliefs" not in settings.reads):
                store.put_info(SOURCE, {"maps": [shown_map.model_dump(mode="json") for shown_map in maps]})
        done = InsideSummary(
            rows=rows,
            agent=target.agent,
            layers=dataset.layers,
            sites=dataset.sites,
            steps=dataset.summary(),
            known_walls=known_walls(dataset.cells, dataset.split),
            fitted=reader.probes.fitted,
            reused=reader.probes.reused,
        )
        facts = {"settings": settings.model_dump(mode="json", exclude={"full"}), "agent": done.agent, **done.steps}
        facts |= {"layers": list(done.layers), "sites": list(done.sites), "known walls": done.known_walls}
        note(store, INFO, dict.fromkeys(done.rows, facts))
    return done


def declared_in(store: Store) -> Inside | None:
    """Return the settings of the analyses in the study of a run, or None."""
    study = store.study()
    return study.analysis.inside if study is not None and study.analysis is not None else None


def _captures(
    run: Path,
    settings: Inside,
    target: ReplayTarget,
    network: Callable[[Store, Network], LocalModel],
    own_model: bool,
    stage: Stage,
) -> tuple[dict[Network, Capture], tuple[int, ...]]:
    """Return the captures of the agent's model and of its random networks, computing missing captures."""
    by_network, initial = dict[Network, Capture](), False
    shapes: list[tuple[str, int, int]] = []
    networks: list[Network] = [OWN, *settings.networks]
    scope = "all" if settings.steps is None else some_steps(settings.steps, settings.seed)
    for number, (kind, seed) in enumerate(networks, start=1):
        if kind == "initial" and not initial:
            continue
        with Store(run) as store:
            model = network(store, (kind, seed))
            initial = initial or (seed is None and model.has_recipe)
            if seed is None or own_model:  # random networks of a study have the architecture of its model
                blocks = DecoderBlocks(model.model)
                shapes.append((str(blocks.config.model_type), blocks.count, blocks.width))
            if shapes[-1] != shapes[0]:
                described = [f"{name} of {n_blocks} blocks of width {width}" for name, n_blocks, width in shapes]
                raise ValueError(
                    f"random networks must have the architecture of the agent's model ({described[0]}), got "
                    f"{described[-1]}: use LocalModel(..., untrained=SEED, random_weights=KIND) of the same model"
                )
            layers = chosen_layers(settings.layers, shapes[0][1])
            decisive = (True, model_id(model), plan_id(store, target.agent_id, scope))
            matching = [
                entry
                for entry in captures(store)
                if (entry.complete, entry.model, entry.plan) == decisive
                if set(entry.layers) >= set(layers) and set(entry.sites) >= set(settings.wanted_sites)
                if all(store.folder.has_file(row.path) for row in artifacts(store, SHARD, capture=entry.id))
            ]
        if matching:
            by_network[kind, seed] = matching[0]
            continue
        label = "activations" if seed is None else f"activations of {kind}, seed {seed}"
        with stage(f"{label} ({number} of {len(networks)} networks)" if len(networks) > 1 else label) as show:
            by_network[kind, seed] = capture(
                run, model, sites=settings.wanted_sites, layers=layers, agent=target.agent_id, scope=scope,
                other_weights=seed is not None, progress=show,
            )  # fmt: skip
    if "initial" in {kind for kind, _ in networks} and not initial:
        warnings.warn(
            f"random networks of kind initial are left out: how the training of {by_network[OWN].model_name} began is "
            "not known, default-init is what the library draws",
            stacklevel=3,
        )
    return by_network, layers


def _network(
    target: ReplayTarget, model: LocalModel | None, random: RandomModels | None, store: Store, network: Network
) -> LocalModel:
    """Return the agent's model or a random network, as passed by the caller or else from the run's study."""
    kind, seed = network
    if seed is None:
        return model or model_of(store, target)
    return model_of(store, target, seed, kind) if random is None or model is None else random(kind, seed)


def _check_worlds(store: Store, target: ReplayTarget, settings: Inside) -> None:
    """Raise a ValueError if a reading does not fit the worlds, before anything is computed."""
    played = {row[0] for row in store.query("SELECT world_id FROM episodes WHERE agent_id = ?", (target.agent_id,))}
    worlds = [world for world in store.worlds() if world.id in played]
    if not all(issubclass(world.view, GridView) for world in worlds):
        raise ValueError(
            f"probes decode maps of grids, but the worlds of {store.path} are task worlds: capture their "
            "activations with goalscope capture, without probes"
        )
    doors = sorted(world.id for world in worlds if world.grid.door is not None)
    if doors and "beliefs" in settings.reads:
        other_reads = ",".join(name for name in settings.reads if name != "beliefs") or "cognitive-map"
        raise ValueError(
            f"beliefs can be compared only in worlds without a door, but {len(doors)} worlds of this run "
            f"have one ({doors[0]}): leave the reading out (--reads {other_reads})"
        )
