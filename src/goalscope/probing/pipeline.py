"""Readings of a run's activations end to end: all that a study declares, and the maps before each first action.

Those maps are decoded only on grids that their probe was not fitted on: the action that a belief is compared with does
not enter the belief.
"""

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope import registry
from goalscope.activations.capture import capture
from goalscope.activations.capture_schedule import plan_id, some_steps
from goalscope.activations.hooks import Blocks, chosen_layers
from goalscope.activations.load import SHARD, Capture, captures, choose_capture, load_activations
from goalscope.activations.replay_target import ReplayTarget, find_target, model_id, model_of
from goalscope.activations.shards import artifacts, place
from goalscope.activations.sites import Site, available_sites, check_site
from goalscope.models.local import LocalModel
from goalscope.probing.analyses import Place, Reader, probe_dataset
from goalscope.probing.beliefs import SOURCE
from goalscope.probing.heads import check_device
from goalscope.probing.inputs import known_walls, of_grids
from goalscope.probing.logit_lens import OWN, Network
from goalscope.probing.probe import Probe, ProbeKey
from goalscope.progress import Stage, silent
from goalscope.rows import Rows
from goalscope.runs import Store
from goalscope.runs.probing_config import READS, Inside
from goalscope.runs.provenance import note, note_libraries, noted
from goalscope.worlds.gridworld import GridView

INFO: Final = "inside"
"""Name under which a run stores the settings and numbers of steps of the last readings."""
STRICTEST: Final = ("permuted", "initial", "default-init")
"""Kinds of random networks where only one is used, the one from which most could be decoded first."""
HEAD: Final = "mlp"
"""The probe that decodes maps before the first action: the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideSummary:
    """Readings of a run's activations.

    Attributes:
        rows: reading (one of `READS`) -> its rows, stored under that source.
        agent, layers, sites: whose activations, and where.
        steps: numbers of steps and grids.
        known_walls: fraction of the tested grids whose wall map is in the training split too.
        fitted, reused: numbers of probes and decoders that were fitted now, and that were stored already.
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
    """Capture, fit and compare all that is declared and not stored yet, store rows and probes, return the rows.

    Args:
        run: a run directory; nobody else may write to it meanwhile.
        declared: settings of the readings; by default those of the run's study, else the defaults of `Inside`.
        full: the complete table (`Inside.complete`).
        model: the model to replay through; by default the local model that the run's study names.
        random: with ``model``: returns the same architecture with random weights of a kind and a seed.
        device: where probes and decoders are trained, "cpu" or "cuda".
        pool: trains probes in other processes where it is given, see `goalscope.runs.executors.open_executor`.
        stage: called at the beginning of each work item with its name; returns a progress callback.
        drop_sites: whether sites that are named and that the agent's steps lack are left out, with a warning; an error
            otherwise, and never for those that are declared by the run's study.

    Raises:
        FileNotFoundError: no run there, or no such model.
        ValueError: a run without token ids, worlds that do not fit a reading, too few grids, or what `capture` refuses;
            says what to do.
        ImportError: torch or transformers is missing.
        BlockingIOError: another process writes to the run.
    """
    if pool is None:
        check_device(device)
    with Store(run) as store:
        settings = declared or declared_in(store) or Inside()
        settings = settings.complete() if full else settings
        for name in settings.heads:
            registry.resolve("head", name)  # an unknown one is refused before anything is computed
        target = find_target(store, settings.agent, settings.wanted_sites)
        _check_worlds(store, target, settings)
        if settings.sites is None or declared is None or drop_sites:
            present = available_sites(store, target.agent_id, model or model_of(store, target), settings.wanted_sites)
            settings = settings.model_copy(update={"sites": present})
    if model is not None and settings.networks and random is None:
        raise ValueError("with model, its random networks must be given too (random=), or random: null")
    network = partial(_network, target, model, random)
    by_network, layers = _captures(Path(run), settings, target, network, model is not None, stage)
    with Store(run, "w") as store:
        note_libraries(store, "probes", [("head", name) for name in settings.heads])
        dataset = probe_dataset(store, by_network, layers, settings)
        reader = Reader(store, dataset, settings, stage, device, partial(network, store))
        reader.probes.pool = pool
        rows: dict[str, Rows] = {}
        for name in settings.reads:
            reading_rows, maps = reader.read(name)
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
        about = {"settings": settings.model_dump(mode="json", exclude={"full"}), "agent": done.agent, **done.steps}
        about |= {"layers": list(done.layers), "sites": list(done.sites), "known walls": done.known_walls}
        note(store, INFO, dict.fromkeys(done.rows, about))
    return done


def declared_in(store: Store) -> Inside | None:
    """Return the settings of readings in the study of a run, None where it has none."""
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
    """Return the captures of the agent's model and of its random networks, made where they are missing."""
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
            if seed is None or own_model:  # those of a study have the architecture of its model
                blocks = Blocks(model.model)
                shapes.append((str(blocks.config.model_type), blocks.count, blocks.width))
            if shapes[-1] != shapes[0]:
                described = [f"{name} of {n_blocks} blocks of width {width}" for name, n_blocks, width in shapes]
                raise ValueError(
                    f"random networks must have the architecture of the agent's model ({described[0]}), got "
                    f"{described[-1]}: give LocalModel(..., untrained=SEED, random_weights=KIND) of the same model"
                )
            layers = chosen_layers(settings.layers, shapes[0][1])
            decisive = (True, model_id(model), plan_id(store, target.agent_id, scope))
            matching = [
                entry
                for entry in captures(store)
                if (entry.complete, entry.model, entry.plan) == decisive
                if set(entry.layers) >= set(layers) and set(entry.sites) >= set(settings.wanted_sites)
                if all(place(store, row).is_file() for row in artifacts(store, SHARD, capture=entry.id))
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
    """Return the agent's model or a random network: those that are given, else those of the run's study."""
    kind, seed = network
    if seed is None:
        return model or model_of(store, target)
    return model_of(store, target, seed, kind) if random is None or model is None else random(kind, seed)


def _check_worlds(store: Store, target: ReplayTarget, settings: Inside) -> None:
    """Raise a ValueError where a reading does not fit the worlds, before anything is computed."""
    played = {row[0] for row in store.query("SELECT world_id FROM episodes WHERE agent_id = ?", (target.agent_id,))}
    worlds = [world for world in store.worlds() if world.id in played]
    if not all(issubclass(world.view, GridView) for world in worlds):
        raise ValueError(
            f"probes read maps of grids, but the worlds of {store.path} are task worlds: only their activations can be "
            "kept (goalscope capture)"
        )
    doors = sorted(world.id for world in worlds if world.grid.door is not None)
    if doors and "beliefs" in settings.reads:
        others = ",".join(name for name in settings.reads if name != "beliefs") or "cognitive-map"
        raise ValueError(
            f"beliefs are compared with actions in worlds without a door, {len(doors)} worlds of this run have one "
            f"({doors[0]}): leave the reading out (--reads {others})"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstSteps:
    """The posteriors of N first steps in tested grids.

    Attributes:
        site, layer, agent: origin of the activations.
        episode_id: ``[N]`` text.
        posteriors: control ("none", and the strictest kind of random network that was captured, see `STRICTEST`) ->
            ``[N, n, n, K]`` probabilities of the classes of all cells at natural frequencies.
        probes, fitted: control -> content id of the probe; controls whose probe was fitted now.
        settings: settings of the fit: fraction tested, seed, how probes are trained, numbers of steps and grids.
        missing: why there is no random network, and the command that makes it possible; "" where there is one.
    """

    site: str
    layer: int
    agent: str
    episode_id: npt.NDArray[np.object_]
    posteriors: Mapping[str, npt.NDArray[np.float32]]
    probes: Mapping[str, str]
    fitted: tuple[str, ...]
    settings: Mapping[str, Any]
    missing: str


def read_first_steps(run: str | Path, *, site: str, layer: int, stage: Stage, device: str = "cpu") -> FirstSteps:
    """Decode maps from the activations of a site and layer before the first action, on grids that are not trained on.

    Steps, split and probes are those of the last `goalscope probe` (or study) at this site and layer, else those that
    the run's study declares, else the defaults of `Inside`. Probes are stored with the run and used again.

    Args:
        run: a run directory; nobody else may write to it meanwhile.
        site, layer: the place; it must have been captured.
        stage: called at the beginning of each work item with its name; returns a progress callback.
        device: where to compute, "cpu" or "cuda".

    Raises:
        ValueError: nothing captured there (says how), worlds without map or with a door, too few grids, no first step.
    """
    check_device(device)
    site_name = check_site(site)
    with Store(run) as store:
        if not all(issubclass(world.view, GridView) for world in store.worlds()):
            raise ValueError(f"beliefs are maps of grids, but worlds of {store.path} are task worlds: they have none")
        settings = _read_last(store, site, layer)
        own = choose_capture(store, site_name, layer, None, None, None, settings.agent)
        # A capture of the agent with a matching one of a random network is preferred.
        alike = (own, *_alike(store, own, site_name, layer))
        with_random = [(item, _strictest(store, item, site_name, layer, settings)) for item in alike]
        own, control = next(((item, random) for item, random in with_random if random), with_random[0])
    sites = tuple(name for name in settings.wanted_sites if name in own.sites)
    changes = {"sites": sites if site in sites else (site,), "layers": (layer,), "by_size": False}
    settings = settings.model_copy(update=changes)
    with Store(run, "w") as store:
        dataset = probe_dataset(store, {OWN: own, **control}, (layer,), settings, shuffled=False)
        if dataset.doors:
            raise ValueError(
                f"beliefs are compared with actions in worlds without a door, {store.path} has some with one: no class "
                "of the probe stands for a door, leave --beliefs out"
            )
        probes, fitted = _at_first(Reader(store, dataset, settings, stage, device), (site, layer))
        tested = set(dataset.cells.cluster[dataset.split.test].tolist())
        vectors = {}
        for (name, _), item in dataset.captures.items():
            loaded = load_activations(store, site=site, layer=layer, capture=item.id)
            vectors[name] = loaded.where(of_grids(loaded.cluster, tested) & (loaded.step == 0))
    episodes = vectors["none"].episode_id
    if not len(episodes):
        raise ValueError(
            "beliefs are read before the first action, but no first step of a tested grid was captured: capture all "
            "steps"
        )
    if any(not np.array_equal(item.episode_id, episodes) for item in vectors.values()):
        raise ValueError(
            f"the random network must have been captured at the same steps as {own.agent}, {store.path} holds others: "
            "the files of a capture are damaged, run it again"
        )
    predictions = {name: probes[name].predict(item, device=device) for name, item in vectors.items()}
    return FirstSteps(
        site=site,
        layer=layer,
        agent=own.agent,
        episode_id=episodes,
        posteriors={name: item.maps("natural") for name, item in predictions.items()},
        probes={name: probe.id for name, probe in probes.items()},
        fitted=fitted,
        settings=settings.model_dump(mode="json", include={"test", "seed", "probes"}) | dataset.summary(),
        missing="" if control else _missing(Path(run), own, site_name, layer),
    )


def _read_last(store: Store, site: str, layer: int) -> Inside:
    """Return the last settings used at a site and layer, else those of the run's study, else the defaults."""
    notes = noted(store, INFO)
    for about in (notes[name] for name in READS if notes.get(name) is not None):
        try:
            if site in about["sites"] and layer in about["layers"]:
                return Inside.parse({**about["settings"], "agent": about["agent"]}, f"what was read of {store.path}")
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{store.path} must hold how its activations were read as goalscope does, but: {error!r}; read them "
                f"again: goalscope probe {store.path}"
            ) from error
    return declared_in(store) or Inside()


def _strictest(store: Store, own: Capture, site: Site, layer: int, settings: Inside) -> dict[Network, Capture]:
    """Return a capture of the same steps from the strictest random network there is, that of a wanted seed first."""
    entries = [
        entry
        for entry in captures(store)
        if entry.untrained is not None and entry.complete and (entry.plan, entry.agent_id) == (own.plan, own.agent_id)
        if site in entry.sites and layer in entry.layers and entry.width == own.width and entry.model != own.model
    ]

    def rank(entry: Capture) -> tuple[int, bool, int, str]:
        declared = (entry.random_weights, entry.untrained) in settings.networks
        return STRICTEST.index(entry.random_weights), not declared, entry.untrained or 0, entry.id

    return {(entry.random_weights, entry.untrained): entry for entry in sorted(entries, key=rank)[:1]}


def _alike(store: Store, own: Capture, site: Site, layer: int) -> list[Capture]:
    """Return the captures of other steps of the same place, by the same model."""
    return [
        entry
        for entry in captures(store)
        if entry.complete
        and (entry.model, entry.agent_id, entry.device, entry.dtype) == (own.model, own.agent_id, own.device, own.dtype)
        if site in entry.sites and layer in entry.layers
        if entry.plan == plan_id(store, entry.agent_id, entry.scope) != own.plan
    ]


def _missing(run: Path, own: Capture, site: Site, layer: int) -> str:
    scope = f" --scope {own.scope}" if own.scope != "all" else ""
    how = f"--sites {site} --agent {quote(own.agent)}{scope} --layers {layer} --untrained 0"
    command = f"goalscope capture {quote(str(run))} {how} --random-weights {STRICTEST[0]}"
    return f"no random network: the model with its weights permuted was not captured there; to have it: {command}"


def _at_first(reader: Reader, place: Place) -> tuple[dict[str, Probe], tuple[str, ...]]:
    """Return the probes of a place by control, and which of them had to be fitted."""
    by_control: dict[str, Probe] = {}
    absent: list[Network] = []
    for name, draw in reader.dataset.captures:
        key = ProbeKey(
            head=HEAD, target="cells", control=name, draw=draw, seed=reader.declared.seed, site=place[0], layer=place[1]
        )
        stored = reader.probes.find(key)
        if stored is None:
            absent.append((name, draw))
        else:
            by_control[name] = stored
    if absent:
        data = reader.inputs(place)
        fitted = reader.fit(place, data, [(HEAD, name) for name, _ in absent], scored=False)
        by_control |= {name: fitted.probe(HEAD, data.activations[0], control=name, draw=draw) for name, draw in absent}
    return {name: by_control[name] for name, _ in reader.dataset.captures}, tuple(name for name, _ in absent)
