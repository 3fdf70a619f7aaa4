"""The maps that an agent's activations hold before each first action.

A probe is read on the grids that it was not fitted on alone: an action that was taken cannot have a say in the belief
that it is held against.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.activations.capture_schedule import plan_id
from goalscope.activations.devices import check_device
from goalscope.activations.load import Capture, captures, choose_capture, load_activations
from goalscope.activations.record import Site, check_site
from goalscope.probing.analyses import OWN, Network, Place, Reader, Stage, probe_dataset
from goalscope.probing.pipeline import INFO, declared_in
from goalscope.probing.probe import Probe, ProbeKey
from goalscope.runs import Store
from goalscope.runs.probing_config import READS, Inside
from goalscope.worlds.gridworld import GridView

STRICTEST: Final = ("permuted", "initial", "default-init")
"""Kinds of random networks where one alone is used, the one from which most could be read first."""
HEAD: Final = "mlp"
"""The probe that maps are decoded with before the first action: the paper's."""


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
        wanted = _settings(store, site, layer)
        own = choose_capture(store, named, layer, None, None, None, wanted.agent)
        # Where other steps were captured of random networks than most of the agent's, those count.
        of_random = [
            (one, _random(store, one, named, layer, wanted)) for one in (own, *_alike(store, own, named, layer))
        ]
        own, control = next(((one, found) for one, found in of_random if found), of_random[0])
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
        probes, fitted = _probes(Reader(store, dataset, wanted, stage, device), (site, layer))
        tested = set(dataset.cells.grid_id[dataset.split.test].tolist())
        vectors = {}
        for (name, _), one in dataset.captures.items():
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
        settings={
            "test": wanted.test,
            "seed": wanted.seed,
            "probes": wanted.probes.model_dump(mode="json"),
            **dataset.summary(),
        },
        missing="" if control else _missing(Path(run), own, named, layer),
    )


def _settings(store: Store, site: str, layer: int) -> Inside:
    """Return how a place was read last, else what the run's study declares, else the defaults."""
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


def _random(store: Store, own: Capture, site: Site, layer: int, wanted: Inside) -> dict[Network, Capture]:
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


def _probes(reader: Reader, place: Place) -> tuple[dict[str, Probe], tuple[str, ...]]:
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
    fresh = tuple(name for name, _ in absent)
    return {name: found[name] for name, _ in reader.dataset.captures}, fresh
