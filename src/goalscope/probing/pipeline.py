"""Everything that a study declares about an agent's activations, end to end: capture, fit, compare, store."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from goalscope import registry
from goalscope.activations.capture import capture
from goalscope.activations.capture_schedule import plan_id
from goalscope.activations.devices import check_device
from goalscope.activations.hooks import Blocks, check_layers, thirds
from goalscope.activations.load import SHARD, Capture, captures
from goalscope.activations.replay_target import ReplayTarget, find_target, model_of
from goalscope.activations.shards import artifacts, place
from goalscope.activations.sites import sites_there
from goalscope.ids import content_id
from goalscope.models.local import LocalModel
from goalscope.probing.analyses import Reader, Stage
from goalscope.probing.belief_study import SOURCE, keep_beliefs
from goalscope.probing.cells import known_walls
from goalscope.probing.dataset import ProbeDataset, probe_dataset, summary
from goalscope.probing.fitting import Progress
from goalscope.probing.probe_store import ProbeStore
from goalscope.probing.shown_maps import ShownMap
from goalscope.rows import Rows
from goalscope.runs import Store
from goalscope.runs.probing_config import Inside
from goalscope.runs.provenance import note_libraries
from goalscope.worlds.gridworld import GridView

_ALWAYS: Final = {"hidden", "epochs", "rate", "batch"}  # settings that enter the id of every fit

INFO: Final = "inside"
"""Name under which a run keeps what was read last, how and on how many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideSummary:
    """What was read out of a run's activations.

    Attributes:
        rows: reading ("cognitive-map", "beliefs", "plans", "distance") -> its rows, stored under that source.
        agent: whose activations.
        layers, sites: where.
        steps: numbers of steps and grids, see `goalscope.probing.dataset.summary`.
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


@contextmanager
def _silent(label: str) -> Iterator[Progress]:
    yield lambda done, total: None


def study_inside(
    run: str | Path,
    declared: Inside | None = None,
    *,
    full: bool = False,
    model: LocalModel | None = None,
    control: LocalModel | None = None,
    device: str = "cpu",
    stage: Stage = _silent,
) -> InsideSummary:
    """Capture, fit and compare all that is declared, store rows and probes, and return what was found.

    What was captured or fitted before with the same settings is not done again.

    Args:
        run: a run directory; nobody else may write to it meanwhile.
        declared: what is to be read; by default what the run's study declares, else the defaults of `Inside`.
        full: the complete table (`Inside.complete`).
        model: what to replay through; by default the local model that the run's study names.
        control: with ``model``: the same architecture with other weights, for the untrained control.
        device: where probes and decoders are trained, "cpu" or "cuda".
        stage: is called at the beginning of each piece of work with its name; gives what shows progress.

    Raises:
        FileNotFoundError: no run there, or no such model.
        ValueError: a run without token ids, worlds that do not fit a reading, too few grids, or what `capture` refuses;
            says what to do.
        ImportError: torch or transformers is missing.
        BlockingIOError: another process writes to the run.
    """
    check_device(device)
    with Store(run) as store:
        wanted = declared or declared_in(store) or Inside()
        wanted = wanted.complete() if full else wanted
        for name in wanted.heads:
            registry.resolve("head", name)  # an unknown one is refused before anything is computed
        target = find_target(store, wanted.agent, wanted.wanted_sites)
        _check_worlds(store, target, wanted)
        if wanted.sites is None:
            there = sites_there(store, target.agent_id, model or model_of(store, target))
            wanted = wanted.model_copy(update={"sites": there})
    own, untrained, layers = _captures(Path(run), wanted, target, model, control, stage)
    with Store(run, "w") as store:
        note_libraries(store, "probes")
        dataset = probe_dataset(store, own, untrained, layers, wanted)
        reader = reader_of(store, dataset, wanted, stage, device)
        rows: dict[str, Rows] = {}
        for name in wanted.reads:
            found, shown = _read(reader, name)
            rows[name] = _of_agent(found, target.agent)
            if name == "beliefs":
                keep_beliefs(store, rows[name], shown)
            else:
                store.put_rows(rows[name], source=name)
            if name == "cognitive-map" and "beliefs" not in wanted.reads:
                store.put_info(SOURCE, {"maps": [one.to_plain() for one in shown]})
        done = InsideSummary(
            rows=rows,
            agent=target.agent,
            layers=dataset.layers,
            sites=dataset.sites,
            steps=summary(dataset),
            known_walls=known_walls(dataset.cells, dataset.split),
            fitted=reader.probes.fitted,
            reused=reader.probes.reused,
        )
        _keep_info(store, wanted, done)
    return done


def declared_in(store: Store) -> Inside | None:
    """Return what the study of a run declares about activations, None where it declares nothing."""
    study = store.study()
    return study.analysis.inside if study is not None and study.analysis is not None else None


def _read(reader: Reader, name: str) -> tuple[Rows, list[ShownMap]]:
    if name == "cognitive-map":
        return reader.cognitive_map()
    if name == "beliefs":
        return reader.beliefs()
    return (reader.plans() if name == "plans" else reader.distance()), []


def _captures(
    run: Path,
    wanted: Inside,
    target: ReplayTarget,
    model: LocalModel | None,
    control: LocalModel | None,
    stage: Stage,
) -> tuple[Capture, Capture | None, tuple[int, ...]]:
    """Return the captures of the agent's model and of its untrained twin, made where they are missing."""
    found: list[Capture] = []
    layers: tuple[int, ...] = ()
    forms: list[tuple[str, int, int]] = []
    pairs: list[tuple[str, int | None, LocalModel | None]] = [("activations", None, model)]
    if wanted.untrained is not None:
        if model is not None and control is None:
            raise ValueError("with model, an untrained copy must be given too (control=), or untrained: null")
        pairs.append(("activations of the untrained model", wanted.untrained, control))
    for label, seed, given in pairs:
        with Store(run) as store:
            used = given or model_of(store, target, seed)
            blocks = Blocks(used.model)
            count = blocks.count
            forms.append((str(blocks.config.model_type), count, blocks.width))
            if forms[-1] != forms[0]:
                shown = [f"{kind} of {many} blocks of width {wide}" for kind, many, wide in forms]
                raise ValueError(
                    f"the untrained control must have the architecture of the agent's model ({shown[0]}), got "
                    f"{shown[1]}: give LocalModel(..., untrained=SEED) of the same model"
                )
            if wanted.layers in ("thirds", "all"):
                layers = thirds(count) if wanted.layers == "thirds" else tuple(range(count))
            else:
                layers = check_layers([one for one in wanted.layers if not isinstance(one, str)], count)
            identity = content_id("model", dict(used.describe()))
            plan = plan_id(store, target.agent_id, "all")
            there = [
                one
                for one in captures(store)
                if one.complete and one.model == identity and one.plan == plan
                if set(one.layers) >= set(layers) and set(one.sites) >= set(wanted.wanted_sites) and _files(store, one)
            ]
        if there:
            found.append(there[0])
            continue
        with stage(label) as show:
            found.append(
                capture(
                    run, used, sites=wanted.wanted_sites, layers=layers, agent=target.agent_id,
                    other_weights=given is not None and given is control,
                    progress=show,
                )
            )  # fmt: skip
    return found[0], (found[1] if len(found) > 1 else None), layers


def _files(store: Store, one: Capture) -> bool:
    """Return whether all files of a capture are there."""
    return all(place(store, row).is_file() for row in artifacts(store, SHARD, capture=one.id))


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


def reader_of(store: Store, dataset: ProbeDataset, wanted: Inside, stage: Stage, device: str) -> Reader:
    """Return what reads a run: fits with the same settings are found again, whoever asked for them first."""
    digest = sha256()
    for identity, step in zip(dataset.cells.episode_id.tolist(), dataset.cells.step.tolist(), strict=True):
        digest.update(f"{identity} {step}\n".encode())
    models = {"none": dataset.own.model}
    if dataset.control is not None:
        models["untrained"] = dataset.control.model
    probes = wanted.probes.model_dump(exclude_defaults=True) | wanted.probes.model_dump(include=_ALWAYS)
    probe_store = ProbeStore(
        store=store,
        decisive={"steps": digest.hexdigest(), "frame": dataset.cells.frame, "test": wanted.test},
        settings={"cells": probes, "distance": probes, "plan": wanted.decoders.model_dump(exclude={"layers"})},
        models=models,
        first="/".join(map(str, dataset.places[0])),
        tags={"agent": dataset.own.agent},
    )
    return Reader(store=store, dataset=dataset, declared=wanted, probes=probe_store, stage=stage, device=device)


def _of_agent(rows: Rows, agent: str) -> Rows:
    """Return rows that say whose activations they are about."""
    return replace(rows, tags={**rows.tags, "agent": np.full(len(rows), agent, dtype=object)})


def _keep_info(store: Store, wanted: Inside, done: InsideSummary) -> None:
    told = wanted.model_dump(mode="json", exclude={"full"})
    kept = store.info().get(INFO)
    before = kept if isinstance(kept, dict) else {}
    about = {
        "settings": told,
        "agent": done.agent,
        "layers": list(done.layers),
        "sites": list(done.sites),
        "known walls": done.known_walls,
        **done.steps,
    }
    store.put_info(INFO, {**before, **dict.fromkeys(done.rows, about)})
