"""Decode maps from the activations before the first action of each episode.

Maps are decoded only on grids that were not used to fit the probe, so the action with which a belief is compared
cannot influence the belief.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.progress import Stage
from goalscope.inside.activations.load import Capture, captures, choose_capture, load_activations
from goalscope.inside.activations.sites import Site, check_site, plan_id
from goalscope.inside.probing.inputs import of_grids
from goalscope.inside.probing.logit_lens import OWN, Network
from goalscope.inside.probing.pipeline import INFO, AnalysisReader, Place, declared_in, probe_dataset
from goalscope.inside.probing.probe import Probe, ProbeKey
from goalscope.runs import Store
from goalscope.runs.probing_config import READS, Inside
from goalscope.runs.provenance import noted
from goalscope.worlds.gridworld import GridView

STRICTEST: Final = ("permuted", "initial", "default-init")
"""Kinds of random networks where only one is used, the one from which most could be decoded first."""
HEAD: Final = "mlp"
"""The probe that decodes maps before the first action: the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstSteps:
    """The posteriors at N first steps in test grids.

    Attributes:
        site, layer, agent: origin of the activations.
        episode_id: ``[N]`` text.
        posteriors: control ("none", and the strictest kind of random network that was captured, see `STRICTEST`) ->
            ``[N, n, n, K]`` probabilities of the classes of all cells at natural frequencies.
        probes: control -> content id of the probe.
        fitted: controls whose probe was fitted in this call.
        settings: settings of the fit: fraction tested, seed, training, numbers of steps and grids.
        missing: why there is no random network, and the command to add one; "" if there is one.
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


def read_first_steps(run: str | Path, *, site: str, layer: int, stage: Stage) -> FirstSteps:
    """Decode maps from the activations of a site and layer before the first action, on grids not used for training.

    Steps, split and probes are those of the last `goalscope probe` (or study) at this site and layer, else those that
    the run's study declares, else the defaults of `Inside`. Probes are stored with the run and reused.

    Args:
        run: a run directory; no other process may write to it meanwhile.
        site, layer: the place; it must have been captured.
        stage: called with the name of each task when it starts; returns a progress callback.

    Raises:
        ValueError: if nothing was captured there (the message says how to), worlds have no map or a door, there are too
            few grids, or there is no first step.
    """
    site_name = check_site(site)
    with Store(run) as store:
        if not all(issubclass(world.view, GridView) for world in store.worlds()):
            raise ValueError(
                f"beliefs are maps of grids, but the worlds of {store.path} are task worlds: leave --beliefs out"
            )
        settings = _read_last(store, site, layer)
        capture = choose_capture(store, site_name, layer, None, None, None, settings.agent)
        # A capture of the agent with a matching one of a random network is preferred.
        candidates = (capture, *_matching_captures(store, capture, site_name, layer))
        with_random = [(item, _strictest(store, item, site_name, layer, settings)) for item in candidates]
        capture, control = next(((item, random) for item, random in with_random if random), with_random[0])
    sites = tuple(name for name in settings.wanted_sites if name in capture.sites)
    changes = {"sites": sites if site in sites else (site,), "layers": (layer,), "by_size": False}
    settings = settings.model_copy(update=changes)
    with Store(run, "w") as store:
        dataset = probe_dataset(store, {OWN: capture, **control}, (layer,), settings, shuffled=False)
        if dataset.doors:
            raise ValueError(
                f"no class of the probe represents a door, but some worlds of {store.path} have one: leave "
                "--beliefs out"
            )
        probes, fitted = _at_first(AnalysisReader(store, dataset, settings, stage, "cpu"), (site, layer))
        tested = set(dataset.cells.cluster[dataset.split.test].tolist())
        vectors = {}
        for (name, _), item in dataset.captures.items():
            loaded = load_activations(store, site=site, layer=layer, capture=item.id)
            vectors[name] = loaded.where(of_grids(loaded.cluster, tested) & (loaded.step == 0))
    episodes = vectors["none"].episode_id
    if not len(episodes):
        raise ValueError(
            "beliefs are decoded before the first action, but no first step of a test grid was captured: "
            "capture all steps"
        )
    if any(not np.array_equal(item.episode_id, episodes) for item in vectors.values()):
        raise ValueError(
            f"{store.path}: the random network was captured at other steps than {capture.agent}, so the "
            "files of a capture are damaged: run the capture again"
        )
    predictions = {name: probes[name].predict(item, device="cpu") for name, item in vectors.items()}
    return FirstSteps(
        site=site,
        layer=layer,
        agent=capture.agent,
        episode_id=episodes,
        posteriors={name: item.maps("natural") for name, item in predictions.items()},
        probes={name: probe.id for name, probe in probes.items()},
        fitted=fitted,
        settings=settings.model_dump(mode="json", include={"test", "seed", "probes"}) | dataset.summary(),
        missing="" if control else _missing(Path(run), capture, site_name, layer),
    )


def _read_last(store: Store, site: str, layer: int) -> Inside:
    """Return the settings of the last probes at a site and layer, else those of the run's study, else the defaults."""
    notes = noted(store, INFO)
    for note in (notes[name] for name in dict.fromkeys((*READS, *notes)) if notes.get(name) is not None):
        try:
            if site in note["sites"] and layer in note["layers"]:
                name = f"the last reading in {store.path} (to repeat it: goalscope probe {store.path})"
                return Inside.parse({**note["settings"], "agent": note["agent"]}, name)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"the stored settings of the last reading in {store.path} are invalid ({error!r}): read again "
                f"with goalscope probe {store.path}"
            ) from error
    return declared_in(store) or Inside()


def _strictest(store: Store, capture: Capture, site: Site, layer: int, settings: Inside) -> dict[Network, Capture]:
    """Find a capture of the same steps from the strictest kind of random network, preferring the requested seeds."""
    entries = [
        entry
        for entry in captures(store)
        if entry.untrained is not None
        and entry.complete
        and (entry.plan, entry.agent_id) == (capture.plan, capture.agent_id)
        if site in entry.sites
        and layer in entry.layers
        and entry.width == capture.width
        and entry.model != capture.model
    ]

    def rank(entry: Capture) -> tuple[int, bool, int, str]:
        declared = (entry.random_weights, entry.untrained) in settings.networks
        return STRICTEST.index(entry.random_weights), not declared, entry.untrained or 0, entry.id

    return {(entry.random_weights, entry.untrained): entry for entry in sorted(entries, key=rank)[:1]}


def _matching_captures(store: Store, capture: Capture, site: Site, layer: int) -> list[Capture]:
    """Return the captures of the same model at the same place for other sets of steps."""
    return [
        entry
        for entry in captures(store)
        if entry.complete
        and (entry.model, entry.agent_id, entry.device, entry.dtype)
        == (capture.model, capture.agent_id, capture.device, capture.dtype)
        if site in entry.sites and layer in entry.layers
        if entry.plan == plan_id(store, entry.agent_id, entry.scope) != capture.plan
    ]


def _missing(run: Path, capture: Capture, site: Site, layer: int) -> str:
    scope = f" --scope {capture.scope}" if capture.scope != "all" else ""
    how = f"--sites {site} --agent {quote(capture.agent)}{scope} --layers {layer} --untrained 0"
    command = f"goalscope capture {quote(str(run))} {how} --random-weights {STRICTEST[0]}"
    return f"no random network: the model with its weights permuted was not captured there; to have it: {command}"


def _at_first(reader: AnalysisReader, place: Place) -> tuple[dict[str, Probe], tuple[str, ...]]:
    """Return, by control, the probes at a place, and the names of the controls whose probes had to be fitted."""
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
