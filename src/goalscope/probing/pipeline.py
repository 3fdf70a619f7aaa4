"""Readings of a run's activations end to end: all that a study declares, and the maps before each first action.

Those maps are read on the grids that their probe was not fitted on alone: an action that was taken cannot have a say in
the belief that it is held against.
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
from goalscope.activations.sites import Site, check_site, sites_there
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
"""Name under which a run keeps what was read last, how and on how many steps."""
STRICTEST: Final = ("permuted", "initial", "default-init")
"""Kinds of random networks where one alone is used, the one from which most could be read first."""
HEAD: Final = "mlp"
"""The probe that maps are decoded with before the first action: the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideSummary:
    """What was read out of a run's activations.

    Attributes:
        rows: reading (one of `READS`) -> its rows, stored under that source.
        agent, layers, sites: whose activations, and where.
        steps: numbers of steps and grids.
        known_walls: share of the tested grids whose wall map stands in the training split too.
        fitted, reused: numbers of probes and decoders that were fitted now, and that were there already.
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
    """Capture, fit and compare all that is declared and was not done before, store rows and probes, return the rows.

    Args:
        run: a run directory; nobody else may write to it meanwhile.
        declared: what is to be read; by default what the run's study declares, else the defaults of `Inside`.
        full: the complete table (`Inside.complete`).
        model: what to replay through; by default the local model that the run's study names.
        random: with ``model``: returns the same architecture with random weights of a kind and a seed.
        device: where probes and decoders are trained, "cpu" or "cuda".
        pool: trains probes in other processes where it is given, see `goalscope.runs.executors.open_executor`.
        stage: is called at the beginning of each piece of work with its name; gives what shows progress.
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
        wanted = declared or declared_in(store) or Inside()
        wanted = wanted.complete() if full else wanted
        for name in wanted.heads:
            registry.resolve("head", name)  # an unknown one is refused before anything is computed
        target = find_target(store, wanted.agent, wanted.wanted_sites)
        _check_worlds(store, target, wanted)
        if wanted.sites is None or declared is None or drop_sites:
            there = sites_there(store, target.agent_id, model or model_of(store, target), wanted.wanted_sites)
            wanted = wanted.model_copy(update={"sites": there})
    if model is not None and wanted.networks and random is None:
        raise ValueError("with model, its random networks must be given too (random=), or random: null")
    network = partial(_network, target, model, random)
    found, layers = _captures(Path(run), wanted, target, network, model is not None, stage)
    with Store(run, "w") as store:
        note_libraries(store, "probes")
        dataset = probe_dataset(store, found, layers, wanted)
        reader = Reader(store, dataset, wanted, stage, device, partial(network, store))
        reader.probes.pool = pool
        rows: dict[str, Rows] = {}
        for name in wanted.reads:
            read, shown = reader.read(name)
            rows[name] = read.tagged({"agent": np.full(len(read), target.agent, dtype=object)})
            store.put_rows(rows[name], source=name)
            if name == "beliefs" or (name == "cognitive-map" and "beliefs" not in wanted.reads):
                store.put_info(SOURCE, {"maps": [one.model_dump(mode="json") for one in shown]})
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
        about = {"settings": wanted.model_dump(mode="json", exclude={"full"}), "agent": done.agent, **done.steps}
        about |= {"layers": list(done.layers), "sites": list(done.sites), "known walls": done.known_walls}
        note(store, INFO, dict.fromkeys(done.rows, about))
    return done


def declared_in(store: Store) -> Inside | None:
    """Return what the study of a run declares about activations, None where it declares nothing."""
    study = store.study()
    return study.analysis.inside if study is not None and study.analysis is not None else None


def _captures(
    run: Path,
    wanted: Inside,
    target: ReplayTarget,
    network: Callable[[Store, Network], LocalModel],
    given: bool,
    stage: Stage,
) -> tuple[dict[Network, Capture], tuple[int, ...]]:
    """Return the captures of the agent's model and of its random networks, made where they are missing."""
    found, initial = dict[Network, Capture](), False
    forms: list[tuple[str, int, int]] = []
    networks: list[Network] = [OWN, *wanted.networks]
    scope = "all" if wanted.steps is None else some_steps(wanted.steps, wanted.seed)
    for number, (kind, seed) in enumerate(networks, start=1):
        if kind == "initial" and not initial:
            continue
        with Store(run) as store:
            used = network(store, (kind, seed))
            initial = initial or (seed is None and used.has_recipe)
            if seed is None or given:  # those of a study have the architecture of its model
                blocks = Blocks(used.model)
                forms.append((str(blocks.config.model_type), blocks.count, blocks.width))
            if forms[-1] != forms[0]:
                shown = [f"{name} of {many} blocks of width {wide}" for name, many, wide in forms]
                raise ValueError(
                    f"random networks must have the architecture of the agent's model ({shown[0]}), got {shown[-1]}: "
                    "give LocalModel(..., untrained=SEED, random_weights=KIND) of the same model"
                )
            layers = chosen_layers(wanted.layers, forms[0][1])
            decisive = (True, model_id(used), plan_id(store, target.agent_id, scope))
            there = [
                one
                for one in captures(store)
                if (one.complete, one.model, one.plan) == decisive
                if set(one.layers) >= set(layers) and set(one.sites) >= set(wanted.wanted_sites)
                if all(place(store, row).is_file() for row in artifacts(store, SHARD, capture=one.id))
            ]
        if there:
            found[kind, seed] = there[0]
            continue
        label = "activations" if seed is None else f"activations of {kind}, seed {seed}"
        with stage(f"{label} ({number} of {len(networks)} networks)" if len(networks) > 1 else label) as show:
            found[kind, seed] = capture(
                run, used, sites=wanted.wanted_sites, layers=layers, agent=target.agent_id, scope=scope,
                other_weights=seed is not None, progress=show,
            )  # fmt: skip
    if "initial" in {kind for kind, _ in networks} and not initial:
        warnings.warn(
            f"random networks of kind initial are left out: how the training of {found[OWN].model_name} began is not "
            "known, default-init is what the library draws",
            stacklevel=3,
        )
    return found, layers


def _network(
    target: ReplayTarget, model: LocalModel | None, random: RandomModels | None, store: Store, network: Network
) -> LocalModel:
    """Return the agent's model or a random network: those that are given, else those of the run's study."""
    kind, seed = network
    if seed is None:
        return model or model_of(store, target)
    return model_of(store, target, seed, kind) if random is None or model is None else random(kind, seed)


def _check_worlds(store: Store, target: ReplayTarget, wanted: Inside) -> None:
    """Raise a ValueError where a reading does not fit the worlds, before anything is computed."""
    played = {row[0] for row in store.query("SELECT world_id FROM episodes WHERE agent_id = ?", (target.agent_id,))}
    worlds = [world for world in store.worlds() if world.id in played]
    if not all(issubclass(world.view, GridView) for world in worlds):
        raise ValueError(
            f"probes read maps of grids, but the worlds of {store.path} are task worlds: only their activations can be "
            "kept (goalscope capture)"
        )
    doors = sorted(world.id for world in worlds if world.grid.door is not None)
    if doors and "beliefs" in wanted.reads:
        rest = ",".join(name for name in wanted.reads if name != "beliefs") or "cognitive-map"
        raise ValueError(
            f"beliefs are compared with actions in worlds without a door, {len(doors)} worlds of this run have one "
            f"({doors[0]}): leave the reading out (--reads {rest})"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstSteps:
    """The posteriors of N first steps in tested grids.

    Attributes:
        site, layer, agent: the place, and whose activations.
        episode_id: ``[N]`` text.
        posteriors: control ("none", and the strictest kind of random network that was captured, see `STRICTEST`) ->
            ``[N, n, n, K]`` probabilities of the classes of all cells at natural frequencies.
        probes, fitted: control -> content id of the probe; controls whose probe was fitted now.
        settings: what decided the fit: share tested, seed, how probes are trained, numbers of steps and grids.
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
    """Decode the maps that the activations of a place hold before the first action, on grids that are not trained on.

    Steps, split and probes are those of the last `goalscope probe` (or study) that read this place, else those that
    the run's study declares, else the defaults of `Inside`. Probes are kept with the run and used again.

    Args:
        run: a run directory; nobody else may write to it meanwhile.
        site, layer: the place; it must have been captured.
        stage: is called at the beginning of each piece of work with its name; gives what shows progress.
        device: where to compute, "cpu" or "cuda".

    Raises:
        ValueError: nothing captured there (says how), worlds without map or with a door, too few grids, no first step.
    """
    check_device(device)
    named = check_site(site)
    with Store(run) as store:
        if not all(issubclass(world.view, GridView) for world in store.worlds()):
            raise ValueError(f"beliefs are maps of grids, but worlds of {store.path} are task worlds: they have none")
        wanted = _read_last(store, site, layer)
        own = choose_capture(store, named, layer, None, None, None, wanted.agent)
        # Where other steps were captured of random networks than most of the agent's, those count.
        alike = (own, *_alike(store, own, named, layer))
        beside = [(one, _strictest(store, one, named, layer, wanted)) for one in alike]
        own, control = next(((one, found) for one, found in beside if found), beside[0])
    sites = tuple(one for one in wanted.wanted_sites if one in own.sites)
    changes = {"sites": sites if site in sites else (site,), "layers": (layer,), "by_size": False}
    wanted = wanted.model_copy(update=changes)
    with Store(run, "w") as store:
        dataset = probe_dataset(store, {OWN: own, **control}, (layer,), wanted, shuffled=False)
        if dataset.doors:
            raise ValueError(
                f"beliefs are compared with actions in worlds without a door, {store.path} has some with one: no class "
                "of the probe stands for a door, leave --beliefs out"
            )
        probes, fitted = _at_first(Reader(store, dataset, wanted, stage, device), (site, layer))
        tested = set(dataset.cells.grid_id[dataset.split.test].tolist())
        vectors = {}
        for (name, _), one in dataset.captures.items():
            found = load_activations(store, site=site, layer=layer, capture=one.id)
            vectors[name] = found.where(of_grids(found.grid_id, tested) & (found.step == 0))
    episodes = vectors["none"].episode_id
    if not len(episodes):
        raise ValueError(
            "beliefs are read before the first action, but no first step of a tested grid was captured: capture all "
            "steps"
        )
    if any(not np.array_equal(one.episode_id, episodes) for one in vectors.values()):
        raise ValueError(
            f"the random network must have been captured at the same steps as {own.agent}, {store.path} holds others: "
            "the files of a capture are damaged, run it again"
        )
    said = {name: probes[name].predict(one, device=device) for name, one in vectors.items()}
    return FirstSteps(
        site=site,
        layer=layer,
        agent=own.agent,
        episode_id=episodes,
        posteriors={name: one.maps("natural") for name, one in said.items()},
        probes={name: probe.id for name, probe in probes.items()},
        fitted=fitted,
        settings=wanted.model_dump(mode="json", include={"test", "seed", "probes"}) | dataset.summary(),
        missing="" if control else _missing(Path(run), own, named, layer),
    )


def _read_last(store: Store, site: str, layer: int) -> Inside:
    """Return how a place was read last, else what the run's study declares, else the defaults."""
    told = noted(store, INFO)
    for about in (told[name] for name in READS if told.get(name) is not None):
        try:
            if site in about["sites"] and layer in about["layers"]:
                return Inside.parse({**about["settings"], "agent": about["agent"]}, f"what was read of {store.path}")
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{store.path} must hold how its activations were read as goalscope does, but: {error!r}; read them "
                f"again: goalscope probe {store.path}"
            ) from error
    return declared_in(store) or Inside()


def _strictest(store: Store, own: Capture, site: Site, layer: int, wanted: Inside) -> dict[Network, Capture]:
    """Return a capture of the same steps from the strictest random network there is, that of a wanted seed first."""
    found = [
        one
        for one in captures(store)
        if one.untrained is not None and one.complete and (one.plan, one.agent_id) == (own.plan, own.agent_id)
        if site in one.sites and layer in one.layers and (one.width, one.model != own.model) == (own.width, True)
    ]

    def rank(one: Capture) -> tuple[int, bool, int, str]:
        asked = (one.random_weights, one.untrained) in wanted.networks
        return STRICTEST.index(one.random_weights), not asked, one.untrained or 0, one.id

    return {(one.random_weights, one.untrained): one for one in sorted(found, key=rank)[:1]}


def _alike(store: Store, own: Capture, site: Site, layer: int) -> list[Capture]:
    """Return the captures of other steps of the same place, by the same model."""
    return [
        one
        for one in captures(store)
        if one.complete
        and (one.model, one.agent_id, one.device, one.dtype) == (own.model, own.agent_id, own.device, own.dtype)
        if site in one.sites and layer in one.layers and one.plan == plan_id(store, one.agent_id, one.scope) != own.plan
    ]


def _missing(run: Path, own: Capture, site: Site, layer: int) -> str:
    scope = f" --scope {own.scope}" if own.scope != "all" else ""
    how = f"--sites {site} --agent {quote(own.agent)}{scope} --layers {layer} --untrained 0"
    command = f"goalscope capture {quote(str(run))} {how} --random-weights {STRICTEST[0]}"
    return f"no random network: the model with its weights permuted was not captured there; to have it: {command}"


def _at_first(reader: Reader, place: Place) -> tuple[dict[str, Probe], tuple[str, ...]]:
    """Return the probes of a place by control, and which of them had to be fitted."""
    found: dict[str, Probe] = {}
    absent: list[Network] = []
    for name, draw in reader.dataset.captures:
        key = ProbeKey(
            head=HEAD, target="cells", control=name, draw=draw, seed=reader.declared.seed, site=place[0], layer=place[1]
        )
        known = reader.probes.find(key)
        if known is None:
            absent.append((name, draw))
        else:
            found[name] = known
    if absent:
        data = reader.inputs(place)
        fitted = reader.fit(place, data, [(HEAD, name) for name, _ in absent], scored=False)
        found |= {name: fitted.probe(HEAD, data.activations[0], control=name, draw=draw) for name, draw in absent}
    return {name: found[name] for name, _ in reader.dataset.captures}, tuple(name for name, _ in absent)
