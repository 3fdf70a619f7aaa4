"""Readings of a run's activations end to end: all that a study declares."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from goalscope import registry
from goalscope.activations.capture import capture
from goalscope.activations.capture_schedule import plan_id, some_steps
from goalscope.activations.devices import check_device
from goalscope.activations.hooks import Blocks, check_layers, thirds
from goalscope.activations.load import SHARD, Capture, captures
from goalscope.activations.replay_target import ReplayTarget, find_target, model_of
from goalscope.activations.shards import artifacts, place
from goalscope.activations.sites import sites_there
from goalscope.ids import content_id
from goalscope.models.local import LocalModel
from goalscope.probing.analyses import Reader, Stage, probe_dataset
from goalscope.probing.beliefs import SOURCE
from goalscope.probing.inputs import known_walls
from goalscope.probing.logit_lens import OWN, Network
from goalscope.probing.stacks import Progress
from goalscope.rows import Rows
from goalscope.runs import Store
from goalscope.runs.probing_config import Inside
from goalscope.runs.provenance import note_libraries
from goalscope.worlds.gridworld import GridView

INFO: Final = "inside"
"""Name under which a run keeps what was read last, how and on how many steps."""


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


@contextmanager
def _silent(label: str) -> Iterator[Progress]:
    yield lambda done, total: None


def study_inside(
    run: str | Path,
    declared: Inside | None = None,
    *,
    full: bool = False,
    model: LocalModel | None = None,
    random: RandomModels | None = None,
    device: str = "cpu",
    stage: Stage = _silent,
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
    found, layers = _captures(Path(run), wanted, target, model, random, stage)
    with Store(run, "w") as store:
        note_libraries(store, "probes")
        dataset = probe_dataset(store, found, layers, wanted)
        models = partial(_network, store, target, model, random)
        reader = Reader(store, dataset, wanted, stage, device, models)
        reader.probes.pool = pool
        rows: dict[str, Rows] = {}
        for name in wanted.reads:
            read, shown = reader.read(name)
            agent = np.full(len(read), target.agent, dtype=object)
            rows[name] = read.tagged({"agent": agent})
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
        kept = store.info().get(INFO)
        about = {"settings": wanted.model_dump(mode="json", exclude={"full"}), "agent": done.agent, **done.steps}
        about |= {"layers": list(done.layers), "sites": list(done.sites), "known walls": done.known_walls}
        store.put_info(INFO, {**(kept if isinstance(kept, dict) else {}), **dict.fromkeys(done.rows, about)})
    return done


def declared_in(store: Store) -> Inside | None:
    """Return what the study of a run declares about activations, None where it declares nothing."""
    study = store.study()
    return study.analysis.inside if study is not None and study.analysis is not None else None


def _captures(
    run: Path,
    wanted: Inside,
    target: ReplayTarget,
    model: LocalModel | None,
    random: RandomModels | None,
    stage: Stage,
) -> tuple[dict[Network, Capture], tuple[int, ...]]:
    """Return the captures of the agent's model and of its random networks, made where they are missing."""
    if model is not None and wanted.networks and random is None:
        raise ValueError("with model, its random networks must be given too (random=), or random: null")
    found, initial = dict[Network, Capture](), False
    forms: list[tuple[str, int, int]] = []
    networks: list[Network] = [OWN, *wanted.networks]
    scope = "all" if wanted.steps is None else some_steps(wanted.steps, wanted.seed)
    for number, (kind, seed) in enumerate(networks, start=1):
        with Store(run) as store:
            if kind == "initial" and not initial:
                continue
            used = _network(store, target, model, random, (kind, seed))
            initial = initial or (seed is None and used.has_recipe)
            if seed is None or model is not None:  # those of a study have the architecture of its model
                blocks = Blocks(used.model)
                count = blocks.count
                forms.append((str(blocks.config.model_type), count, blocks.width))
            if forms[-1] != forms[0]:
                shown = [f"{name} of {many} blocks of width {wide}" for name, many, wide in forms]
                raise ValueError(
                    f"random networks must have the architecture of the agent's model ({shown[0]}), got {shown[-1]}: "
                    "give LocalModel(..., untrained=SEED, random_weights=KIND) of the same model"
                )
            named = {"thirds": thirds(count), "all": tuple(range(count))}
            layers = named[wanted.layers] if isinstance(wanted.layers, str) else check_layers(wanted.layers, count)
            identity = content_id("model", dict(used.describe()))
            plan = plan_id(store, target.agent_id, scope)
            there = [
                one
                for one in captures(store)
                if one.complete and one.model == identity and one.plan == plan
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
    store: Store, target: ReplayTarget, model: LocalModel | None, random: RandomModels | None, network: Network
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
