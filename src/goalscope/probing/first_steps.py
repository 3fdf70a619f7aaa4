"""What probes of one place decode before the first action: those that are kept with a run, or fitted where none is.

A probe is fitted on some grids and read on the others alone, at the first step of each episode: an action that was
taken cannot have a say in the belief that it is held against.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.activations.devices import check_device
from goalscope.activations.load import Capture, captures, choose_capture, load_activations
from goalscope.activations.record import Site, check_site
from goalscope.probing.analyses import Reader, Stage
from goalscope.probing.dataset import ProbeDataset, SiteLayer, probe_dataset, summary
from goalscope.probing.fitted import ProbeKey
from goalscope.probing.pipeline import INFO, declared_in, reader_of
from goalscope.probing.probe import Probe
from goalscope.probing.suite import probe_cells
from goalscope.runs import Store
from goalscope.runs.probing_config import READS, Inside
from goalscope.worlds.gridworld import GridView

HEAD: Final = "mlp"
"""The probe that maps are decoded with: the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstSteps:
    """The posteriors of N first steps in tested grids.

    Attributes:
        site, layer: the place.
        agent: whose activations.
        episode_id: ``[N]`` text.
        posteriors: control ("none", and "untrained" where that was captured) -> ``[N, n, n, K]`` probabilities of the
            classes of all cells at natural frequencies.
        probes: control -> content id of the probe.
        fitted: controls whose probe was fitted now; those of the others were kept with the run.
        settings: what decided the fit: share tested, seed, how probes are trained, numbers of steps and grids.
        missing: why there is no untrained control, and the command that makes it possible; "" where there is one.
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

    Steps, split and probes are those of the last `goalscope probe` (or study) that read this place, else those that the
    run's study declares, else the defaults of `Inside`. A probe that is kept with the run is used again; one that is
    fitted now is kept.

    Args:
        run: a run directory; nobody else may write to it meanwhile.
        site, layer: the place; it must have been captured.
        stage: is called at the beginning of each piece of work with its name; gives what shows progress.
        device: where to compute, "cpu" or "cuda".

    Raises:
        ValueError: nothing captured there (says how), worlds that have no map or a door, too few grids, no first step.
        ImportError: PyTorch is missing.
    """
    check_device(device)
    named = check_site(site)
    with Store(run) as store:
        if not all(issubclass(world.view, GridView) for world in store.worlds()):
            raise ValueError(f"beliefs are maps of grids, but worlds of {store.path} are task worlds: they have none")
        wanted = _settings(store, site, layer)
        own = choose_capture(store, named, layer, None, None, None, wanted.agent)
        control = _untrained(store, own, named, layer, wanted.untrained)
    sites = tuple(one for one in wanted.wanted_sites if one in own.sites)
    changes = {"sites": sites if site in sites else (site,), "layers": (layer,), "by_size": False}
    wanted = wanted.model_copy(update=changes)
    with Store(run, "w") as store:
        dataset = probe_dataset(store, own, control, (layer,), wanted, shuffled=False)
        if dataset.doors:
            raise ValueError(
                f"beliefs are compared with actions in worlds without a door, {store.path} has some with one: no class "
                "of the probe stands for a door, leave --beliefs out"
            )
        probes, fitted = _probes(reader_of(store, dataset, wanted, stage, device), (site, layer))
        tested = set(dataset.cells.grid_id[dataset.split.test].tolist())
        vectors = {}
        for name, one in _captured(dataset).items():
            found = load_activations(store, site=site, layer=layer, capture=one.id)
            first = np.array([grid in tested for grid in found.grid_id.tolist()]) & (found.step == 0)
            vectors[name] = found.where(first)
    episodes = vectors["none"].episode_id
    if not len(episodes):
        raise ValueError(
            "beliefs are read before the first action, but no first step of a tested grid was captured: capture all "
            "steps"
        )
    if any(not np.array_equal(one.episode_id, episodes) for one in vectors.values()):
        raise ValueError(
            f"the untrained model must have been captured at the same steps as {own.agent}, {store.path} holds others: "
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
        settings={
            "test": wanted.test,
            "seed": wanted.seed,
            "probes": wanted.probes.model_dump(mode="json"),
            **summary(dataset),
        },
        missing="" if control is not None else _missing(Path(run), own, named, layer, wanted.untrained),
    )


def _settings(store: Store, site: str, layer: int) -> Inside:
    """Return how a place was read last, else what the run's study declares, else the defaults.

    Raises:
        ValueError: what is stored about it cannot be ours.
    """
    told = store.info().get(INFO)
    for about in (told.get(name) for name in READS) if isinstance(told, dict) else ():
        if about is None:
            continue
        try:
            if site not in about["sites"] or layer not in about["layers"]:
                continue
            return Inside.parse({**about["settings"], "agent": about["agent"]}, f"what was read of {store.path}")
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{store.path} must hold how its activations were read as goalscope does, but: {error!r}; read them "
                f"again: goalscope probe {store.path}"
            ) from error
    return declared_in(store) or Inside()


def _untrained(store: Store, own: Capture, site: Site, layer: int, seed: int | None) -> Capture | None:
    """Return a capture of the same steps from random weights, that of the wanted seed if there is one."""
    found = [
        one
        for one in captures(store)
        if one.untrained is not None and one.complete and (one.plan, one.agent_id) == (own.plan, own.agent_id)
        if site in one.sites and layer in one.layers and (one.width, one.model != own.model) == (own.width, True)
    ]
    return min(found, key=lambda one: (one.untrained != seed, one.untrained, one.id), default=None)


def _captured(dataset: ProbeDataset) -> dict[str, Capture]:
    """Return the captures by control."""
    return {"none": dataset.own} | ({"untrained": dataset.control} if dataset.control is not None else {})


def _missing(run: Path, own: Capture, site: Site, layer: int, seed: int | None) -> str:
    command = f"goalscope capture {quote(str(run))} {_how(own, site)} --layers {layer} --untrained {seed or 0}"
    return f"no untrained control: the same model with random weights was not captured there; to have it: {command}"


def _how(own: Capture, site: Site) -> str:
    """Return the options of a capture of the same steps."""
    return f"--sites {site} --agent {quote(own.agent)}" + (f" --scope {own.scope}" if own.scope != "all" else "")


def _probes(reader: Reader, place: SiteLayer) -> tuple[dict[str, Probe], tuple[str, ...]]:
    """Return the probes of a place by control, and which of them had to be fitted."""
    dataset, (site, layer) = reader.dataset, place
    known = {
        name: reader.probes.find(
            ProbeKey(head=HEAD, target="cells", control=name, seed=reader.declared.seed, site=site, layer=layer)
        )
        for name in _captured(dataset)
    }
    found = {name: probe for name, probe in known.items() if isinstance(probe, Probe)}
    absent = tuple(name for name in known if name not in found)
    if absent:
        data = reader.inputs(place)
        with reader.stage(f"probes at {site}, layer {layer}") as show:
            fitted = probe_cells(
                data,
                suite=[(HEAD, name) for name in absent],
                settings=reader.fit_settings,
                callbacks=reader.probes.callbacks(show),
                scored=False,
            )
        found |= {name: fitted.probe(HEAD, data.activations[0], control=name) for name in absent}
    return {name: found[name] for name in known}, absent
