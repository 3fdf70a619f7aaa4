"""Everything that a study declares about activations, end to end: plugin interface, built-in analyses, and reader.

All analyses use the same steps, labels and split by grid. Each analysis fits the probes that are not stored yet and
returns rows. Only the vectors of one site and layer, of all networks, are in memory at a time.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from goalscope._ground import registry
from goalscope._ground.own import attempt
from goalscope._ground.progress import Stage, silent
from goalscope.agents.models.base import RANDOM_WEIGHTS
from goalscope.agents.models.local import LocalModel
from goalscope.inside.activations.capture import capture
from goalscope.inside.activations.hooks import DecoderBlocks, chosen_layers
from goalscope.inside.activations.shards import SHARD, Capture, Place, artifacts, captures, load_activations
from goalscope.inside.activations.sites import (
    ReplayTarget,
    available_sites,
    chosen_steps,
    find_target,
    model_id,
    model_of,
    plan_id,
    some_steps,
)
from goalscope.inside.probing.beliefs import (
    BELIEF_SUITE,
    SOURCE,
    ShownMap,
    choose_maps,
    compare_beliefs,
    decode_maps,
    read_beliefs,
)
from goalscope.inside.probing.fitting import FitSettings, PlanSettings
from goalscope.inside.probing.heads import COUNTED, NUMBER_HEADS, check_device
from goalscope.inside.probing.inputs import (
    PLAN_CONTROLS,
    ProbeInputs,
    Split,
    check_sizes,
    known_walls,
    shuffled_rows,
    split_by_grid,
)
from goalscope.inside.probing.labels import (
    FRAME,
    Cells,
    Decisions,
    Plans,
    decisions_at,
    label_cells,
    label_distances,
    label_plans,
    seen_cells,
)
from goalscope.inside.probing.logit_lens import OWN, Lens, LensSteps, Network, label_tokens, score_lens
from goalscope.inside.probing.plans import (
    MAIN_DECODER,
    MAPS,
    STEPWISE,
    Maps,
    cross_fitted,
    probe_distances,
    probe_plans,
)
from goalscope.inside.probing.probe import ProbeStore
from goalscope.inside.probing.suite import (
    CORE,
    CURVE_HEADS,
    FULL,
    Entry,
    FittedProbes,
    check_counts,
    entries_of,
    learning_curve,
    probe_cells,
    probe_cells_by_size,
    without,
)
from goalscope.runs import Episode, Store
from goalscope.runs.provenance import note, note_libraries
from goalscope.runs.study_parts import READS, Inside
from goalscope.stats.rows import Rows, Tag, constant
from goalscope.worlds.gridworld import GridView

Reading = tuple[Rows, list[ShownMap]]
"""Rows, and maps to draw."""
Settings = TypeVar("Settings", bound=FitSettings)

_IN_EVERY_ID: Final = {"hidden", "epochs", "rate", "batch"}  # settings that are part of the id of every fit
_OWN_KEYS: Final = {"layers", "stepwise", "longer"}  # settings that choose decoders or plans, not how they are trained

Compute = Callable[["AnalysisReader", Place, "ProbeInputs"], Rows]
"""Rows of an analysis at one place, from the activations and the truth of the same steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationAnalysis:
    """A registered analysis of activations, such as probes that decode the map of the grid (the agent's cognitive map).

    Attributes:
        name: its name in studies and commands, under which its rows of results are stored.
        title: its name in reports.
        headline: results that commands print for the middle layer, each with a label and the tags that select its rows.
        pick: chooses the form of probe to print, if the headline leaves it open.
        compute: function that returns the rows of the analysis at one site (token positions) and layer.
    """

    name: str
    title: str
    headline: Sequence[tuple[str, Mapping[str, Any]]] = ()
    pick: Callable[[Sequence[str]], str] = min
    compute: Compute


def analysis(
    name: str,
    *,
    title: str,
    headline: Sequence[tuple[str, Mapping[str, Any]]] = (),
    pick: Callable[[Sequence[str]], str] = min,
) -> Callable[[Compute], Compute]:
    """Return a decorator that registers an analysis of activations, which ``analysis: inside: reads:`` of a study can
    name.

    It decorates a function with three parameters: the `AnalysisReader`, which gives access to probes, actions and
    plans; the place (site and layer); and the inputs of probes there (``[N, F]`` activations of the agent's model and
    of each random network, the true classes of all cells, training and test grids). The function returns rows of
    results, each with a grid as its cluster. Rows without tags of their own get those of the place, ``head`` (the name)
    and ``control: none``.

    Args:
        name, title, headline, pick: see `ActivationAnalysis`.

    Raises:
        ValueError: if the name is taken.
    """

    def add(compute: Compute) -> Compute:
        analysis = ActivationAnalysis(name=name, title=title, headline=headline, pick=pick, compute=compute)
        registry.register("analysis", name, made_of=compute)(analysis)
        return compute

    return add


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbeDataset:
    """The N steps of one agent at which activations are analysed, with their labels. Activations of each site exist for
    all.

    Attributes:
        captures: stored activations of the agent's model (`OWN`) and of random networks, by kind and seed.
        sites, layers: sites (token positions, such as "pre"), and sorted numbers of decoder blocks.
        rows: site -> ``[N]`` indices of the steps among those captured there.
        cells: true classes of all cells.
        split: training and test grids.
        left_out: number of captured steps that lack one of the sites.
        doors: whether some world has a door, which no class of cells represents.
    """

    captures: dict[Network, Capture]
    sites: tuple[str, ...]
    layers: tuple[int, ...]
    rows: dict[str, npt.NDArray[Any]]
    cells: Cells
    split: Split
    left_out: int
    doors: bool

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of random networks whose activations were captured, such as "permuted"."""
        return tuple(dict.fromkeys(kind for kind, seed in self.captures if seed is not None))

    @property
    def middle(self) -> int:
        """Number of the layer in the middle of the captured ones; results are shown for this layer first."""
        return self.layers[len(self.layers) // 2]

    @property
    def places(self) -> list[Place]:
        """All captured pairs of a site (token positions) and a layer; those of the middle layer come first."""
        other_layers = [layer for layer in self.layers if layer != self.middle]
        return [(site, self.middle) for site in self.sites] + [
            (site, layer) for site in self.sites for layer in other_layers
        ]

    def summary(self) -> dict[str, int]:
        """Return the numbers of steps and grids in the training part, in the test part, in total and left out, by
        name.
        """
        split = self.split
        return {
            "steps": len(self.cells),
            "steps left out": self.left_out,
            "training steps": int(split.train.sum()),
            "test steps": int(split.test.sum()),
            "training grids": len(set(split.cluster[split.train].tolist())),
            "test grids": len(set(split.cluster[split.test].tolist())),
        }


def probe_dataset(
    store: Store,
    captures: Mapping[Network, Capture],
    layers: Sequence[int],
    declared: Inside,
    *,
    shuffled: bool = True,
) -> ProbeDataset:
    """Collect the steps whose activations are analysed: those that have every requested site (token positions).

    Args:
        store: the run.
        captures: stored activations of the agent's model (`OWN`) and of random networks, by kind and seed.
        layers: numbers of decoder blocks to analyse.
        declared: settings: sites, share of test grids, seed.
        shuffled: whether there must be enough grids for the control with shuffled labels.

    Returns:
        The steps, with the true classes of all cells and the split into training and test grids.

    Raises:
        ValueError: if no step has all sites, or there are too few grids.
    """
    sites, capture = declared.wanted_sites, captures[OWN]
    activations = {site: load_activations(store, site=site, layer=layers[0], capture=capture.id) for site in sites}
    keys = {
        site: list(zip(loaded.episode_id.tolist(), loaded.step.tolist(), strict=True))
        for site, loaded in activations.items()
    }
    common = set.intersection(*map(set, keys.values()))
    if not common:
        raise ValueError(f"no step has all sites that are read ({', '.join(sites)}): read fewer sites")
    rows: dict[str, npt.NDArray[Any]] = {
        site: np.flatnonzero([key in common for key in site_keys]) for site, site_keys in keys.items()
    }
    steps = activations[sites[0]].where(rows[sites[0]])
    if declared.steps is not None and capture.scope == "all":
        chosen = chosen_steps(store, capture.agent_id, some_steps(declared.steps, declared.seed)) or {}
        step_keys = zip(steps.episode_id.tolist(), steps.step.tolist(), strict=True)
        selected = np.flatnonzero([step in chosen.get(episode, ()) for episode, step in step_keys])
        steps, rows = steps.where(selected), {name: indices[selected] for name, indices in rows.items()}
    episodes = store.episodes(sorted(set(steps.episode_id.tolist())))
    cells = label_cells(steps, episodes, frame=max(FRAME, int(steps.shape.max())))
    split = split_by_grid(cells, test=declared.test, seed=declared.seed)
    if shuffled:
        shuffled_rows(cells, split, seed=declared.seed)
    if declared.by_size and "cognitive-map" in declared.reads:
        check_sizes(cells, split)
    if declared.curve and "cognitive-map" in declared.reads:
        check_counts(cells, split, declared.curve)
    worlds = set(steps.world_id.tolist())
    return ProbeDataset(
        captures=dict(captures),
        sites=tuple(sites),
        layers=tuple(sorted(layers)),
        rows=rows,
        cells=cells,
        split=split,
        left_out=len(set.union(*map(set, keys.values()))) - len(common),
        doors=any(world.id in worlds and world.grid.door is not None for world in store.worlds()),
    )


class AnalysisReader:
    """Runs the analyses of activations that a study lists under ``inside: reads``, such as "cognitive-map".

    `goalscope.inside.probing.pipeline.study_inside` creates one for a run. `read` passes it to the function of each
    analysis, which takes what it needs from its attributes (probes, decisions, plans, distances, inputs) and returns
    rows of results. Fitted probes are stored in the run, which must be open for writing.
    """

    def __init__(
        self,
        store: Store,
        dataset: ProbeDataset,
        declared: Inside,
        stage: Stage,
        device: str,
        models: Callable[[Network], LocalModel] | None = None,
    ) -> None:
        self.store, self.dataset, self.declared, self.stage, self.device = store, dataset, declared, stage, device
        self._models = models  # network -> model, for the logit lens
        self._lenses: dict[Network, Lens] = {}
        self._shown: list[ShownMap] = []

    @cached_property
    def probes(self) -> ProbeStore:
        """The store of fitted probes in the run, through which analyses share probes with equal settings."""
        dataset, declared = self.dataset, self.declared
        digest = sha256()
        for episode, step in zip(dataset.cells.episode_id.tolist(), dataset.cells.step.tolist(), strict=True):
            digest.update(f"{episode} {step}\n".encode())
        probes = declared.probes.model_dump(exclude_defaults=True) | declared.probes.model_dump(include=_IN_EVERY_ID)
        # The key is left out where it has its default, so that the ids of stored fits do not change.
        plans = declared.decoders.model_dump(exclude=_OWN_KEYS) | declared.decoders.model_dump(
            include={"longer"}, exclude_defaults=True
        )
        return ProbeStore(
            store=self.store,
            decisive={"steps": digest.hexdigest(), "frame": dataset.cells.frame, "test": declared.test},
            settings={"cells": probes, "distance": probes, "plan": plans},
            models={network: capture.model for network, capture in dataset.captures.items()},
            first="/".join(map(str, dataset.places[0])),
            tags={"agent": dataset.captures[OWN].agent},
        )

    def fit_settings(self, kind: type[Settings], declared: BaseModel) -> Settings:
        """Build settings for fitting probes (``kind`` is their class) from those that the study declares.

        Seed and device are those of this reader.
        """
        return kind(**declared.model_dump(exclude=_OWN_KEYS), seed=self.declared.seed, device=self.device)

    @cached_property
    def decisions(self) -> Decisions:
        """The agent's actions at the N steps that are analysed, with the optimal actions in the true grid."""
        return decisions_at(self.dataset.cells, self._episodes)

    @cached_property
    def executed(self) -> Plans:
        """The agent's plans: the moves that it made after each labelled step."""
        dropped = self.declared.decoders.longer == "dropped"
        return label_plans(self.dataset.cells, self._episodes, dropped=dropped)

    @cached_property
    def distances(self) -> npt.NDArray[np.float64]:
        """``[N]`` number of moves on a shortest path from the state at each labelled step to the goal; NaN if there is
        none.
        """
        return label_distances(self.dataset.cells, self._episodes)

    @cached_property
    def _seen(self) -> npt.NDArray[np.bool_] | None:
        seen = seen_cells(self.dataset.cells, self._episodes)
        return None if (seen >= self.dataset.cells.inside()).all() else seen

    @property
    def _episodes(self) -> Iterator[Episode]:
        return self.store.episodes(sorted(set(self.dataset.cells.episode_id.tolist())))

    def read(self, name: str) -> Reading:
        """Run a registered analysis at all sites and layers.

        Returns:
            Its rows of results, and decoded maps that a report should show.

        Raises:
            ValueError: if there is no analysis of this name.
        """
        chosen: ActivationAnalysis = registry.resolve("analysis", name)
        parts = list[Rows]()
        self._shown = []
        for place in self.dataset.places:
            rows = _placed(chosen.compute(self, place, self.inputs(place)), name, place)
            parts.append(rows.where(rows.known("site")) if parts else rows)
        return Rows.concatenate(parts), self._shown

    def show(self, maps: Sequence[ShownMap]) -> None:
        """Add decoded maps to those that the report should show; an analysis calls this."""
        self._shown += maps

    def inputs(self, place: Place) -> ProbeInputs:
        """Load the activations of all networks at one site and layer, as inputs of probes, in the order of the
        labels.
        """
        (site, layer), dataset = place, self.dataset
        networks = {
            network: load_activations(self.store, site=site, layer=layer, capture=capture.id).where(dataset.rows[site])
            for network, capture in dataset.captures.items()
        }
        agent_activations = networks.pop(OWN)
        random = {(kind, seed): [activations] for (kind, seed), activations in networks.items() if seed is not None}
        return ProbeInputs(activations=[agent_activations], cells=dataset.cells, split=dataset.split, random=random)

    @cached_property
    def tokens(self) -> LensSteps | None:
        """The tokens with which the agent's answers name the four actions, for the logit lens.

        None if two actions begin with the same token; if the study requested the logit lens by name, that is a
        ValueError.
        """
        try:
            return label_tokens(self.dataset.cells, self._episodes, self._model(OWN))
        except ValueError as error:
            if self.declared.reads != READS:
                raise
            warnings.warn(f"the reading logit-lens is left out: {error}", stacklevel=2)
            return None

    def _model(self, network: Network) -> LocalModel:
        if self._models is None:
            raise ValueError("the logit lens needs the models of the networks: create the reader with models=...")
        return self._models(network)

    def lens(self, network: Network) -> Lens:
        """Return the logit lens of a network: the agent's model (`OWN`) or a random network, by kind and seed.

        Raises:
            ValueError: if the reader was created without models.
        """
        if network not in self._lenses:
            self._lenses[network] = Lens(self._model(network).model)
        return self._lenses[network]

    def is_first(self, place: Place) -> bool:
        """Return whether this is the first site and layer, the only one at which results without activations are
        computed.
        """
        return place == self.dataset.places[0]

    def full(self, place: Place) -> bool:
        """Return whether all heads (forms of probes) and all controls are fitted at a site and layer.

        This holds at the middle layer, and everywhere if the study declares ``table: complete``.
        """
        return self.declared.table == "complete" or place[1] == self.dataset.middle

    def usable(self, suite: Sequence[Entry]) -> tuple[Entry, ...]:
        """Return those pairs of a head (form of probe) and a control for which the run has the data.

        Random networks that were not captured, and the control that needs written reasoning, are left out.
        """
        missing = set(RANDOM_WEIGHTS) - set(self.dataset.kinds)
        if not any(self.dataset.cells.reasoning[self.dataset.split.train].tolist()):
            missing.add("text")
        return without(suite, *missing)

    def fit(
        self, place: Place, data: ProbeInputs, suite: Sequence[Entry], *, scored: bool = True, by_size: bool = False
    ) -> FittedProbes:
        """Fit the probes that predict the cells of the grid, at one site (token positions) and layer.

        Args:
            place: site and layer.
            data: the inputs there, see `inputs`.
            suite: pairs of a head (form of probe) and a control.
            scored: whether to score the probes on the test grids.
            by_size: whether to fit separate probes for each shape of grid.

        Returns:
            The fitted probes, with rows of scores if they were scored. Probes that the run stores are not fitted again.
        """
        fit = probe_cells_by_size if by_size else partial(probe_cells, scored=scored, seen=self._seen)
        with self.stage(f"probes {'of one size ' if by_size else ''}at {place_name(place)}") as show:
            return fit(
                data,
                suite=suite,
                settings=self.fit_settings(FitSettings, self.declared.probes),
                callbacks=self.probes.callbacks(show),
            )


def place_name(place: Place) -> str:
    """Return a site (token positions) and layer as text, such as "pre, layer 4"."""
    return f"{place[0]}, layer {place[1]}"


def _placed(rows: Rows, name: str, place: Place) -> Rows:
    """Add the tags of a place, and the name of the analysis as ``head``, to rows that lack these tags."""
    own_tags = {"site": place[0], "layer": place[1], "head": name, "control": "none"}
    return rows.tagged({tag: constant(value, len(rows)) for tag, value in own_tags.items() if tag not in rows.tags})


INFO: Final = "inside"
"""Name under which a run stores the settings and numbers of steps of the last readings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideSummary:
    """Results of the analyses of a run's activations.

    Attributes:
        rows: name of an analysis -> its rows of results, stored under that name.
        agent, layers, sites: the agent, the layers and the sites (token positions) of the activations.
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
    """Capture activations of a run, fit probes, run the declared analyses, and store the results with the run.

    What the run stores already is not computed again.

    Args:
        run: a run directory; no other process may write to it meanwhile.
        declared: settings of the analyses; by default those of the run's study, else the defaults of `Inside`.
        full: whether to compute the complete table: all forms of probes with all controls (`Inside.complete`).
        model: the model to replay through; by default the local model that the run's study names.
        random: with ``model``, a function of kind and seed that returns the same architecture with random weights.
        device: where probes and decoders are trained, "cpu" or "cuda".
        pool: an executor that trains probes in other processes, see `goalscope.runs.dispatch.open_executor`.
        stage: called with the name of each task when it starts; returns a progress callback.
        drop_sites: whether to leave out, with a warning, named sites (token positions) that the agent's steps lack;
            otherwise they are an error. Sites that the run's study declares are never an error.

    Returns:
        The rows of results of each analysis, and numbers of steps, grids and fitted probes.

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
    """Return the settings (``analysis: inside:``) with which the study of a run declares analyses of activations; None
    if it declares none.
    """
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


BY_SIZE: Final[tuple[Entry, ...]] = (
    ("position", "none"),
    ("mlp", "none"),
    *(("percell", control) for control in ("none", *RANDOM_WEIGHTS)),
)
"""Probes of one size each, by default; the complete table adds those of `BY_SIZE_COMPLETE`."""
BY_SIZE_COMPLETE: Final[tuple[Entry, ...]] = (
    *BY_SIZE,
    *(("mlp", control) for control in ("shuffled", *RANDOM_WEIGHTS)),
    ("percell", "shuffled"),
)
ELSEWHERE: Final = ("none", "permuted")
"""Controls of trained heads outside of the middle layer, where the table is not complete."""
CORE_ELSEWHERE: Final = tuple(entry for entry in CORE if entry[0] == "percell" or entry[1] in ELSEWHERE)
"""Probes of cells outside of the middle layer: the linear one, which has a closed form, also on all random networks."""
MIDDLE: Final = tuple(entry for entry in FULL if entry[0] != "additive" or entry[1] not in RANDOM_WEIGHTS)
"""Probes of cells at the middle layer: all but the additive ones of random networks, which the complete table adds."""
_NOWHERE: Final = ("wall-count", "input", "text")


def _decoder(heads: Sequence[str]) -> str:
    """Return the two-layer decoder if it was fitted, otherwise the alphabetically first decoder."""
    return MAIN_DECODER if MAIN_DECODER in heads else min(heads)


@analysis(
    "cognitive-map",
    title="Cognitive map",
    headline=[
        (label, {"measure": measure, "class": name, "head": head, "reading": "natural", "scope": "general"})
        for label, measure, name in (
            ("agent at its cell", "localisation", "agent"),
            ("goal at its cell", "localisation", "goal"),
            ("walls, area under the curve", "area under the curve", "wall"),
        )
        for head in ("percell", "mlp")
    ],
)
def cognitive_map(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Analysis "cognitive-map": fit and score all probes that predict the cells of the grid, at one site and layer.

    Maps for the report are decoded only at the middle layer, and in worlds without doors.
    """
    middle = place[1] == reader.dataset.middle
    entries = FULL if reader.declared.table == "complete" else MIDDLE
    suite = reader.usable((*entries, *entries_of(reader.declared.heads)) if reader.full(place) else CORE_ELSEWHERE)
    sizes = reader.usable(BY_SIZE_COMPLETE if reader.declared.table == "complete" else BY_SIZE)
    if not reader.is_first(place):  # probes without activations are included at the first place only
        suite, sizes = without(suite, *COUNTED, *_NOWHERE), without(sizes, *COUNTED)
    fitted = reader.fit(place, data, suite)
    rows = fitted.rows
    if reader.declared.by_size and middle:
        rows = Rows.concatenate([rows, reader.fit(place, data, sizes, by_size=True).rows])
    if reader.declared.curve and middle:
        settings = reader.fit_settings(FitSettings, reader.declared.probes)
        heads = CURVE_HEADS if reader.is_first(place) else tuple(head for head in CURVE_HEADS if head not in COUNTED)
        with reader.stage(f"learning curve at {place_name(place)}") as show:
            curve = learning_curve(data, reader.declared.curve, heads=heads, settings=settings, progress=show)
        rows = Rows.concatenate([rows, curve])
    if middle and not reader.dataset.doors:
        tested, activations = data.split.test, data.activations[0]
        probe = fitted.probe("mlp", activations)
        beliefs = read_beliefs(probe.predict(activations.where(tested), device=reader.device).maps("natural"))
        tags: dict[str, Tag] = {"head": "mlp", "control": "none", "site": place[0], "layer": place[1]}
        tags |= {"scope": "general", "probe": probe.id, "reading": "natural"}
        reader.show(choose_maps(beliefs, reader.decisions.where(tested), tags))
    return rows


@analysis(
    "beliefs",
    title="Actions against decoded beliefs",
    headline=[
        (label, {"measure": f"{measure} less shuffled", "head": "mlp", "reading": "natural"})
        for label, measure in (
            ("optimal on the decoded map, less shuffled", "accuracy against decoded beliefs"),
            ("recovery, less shuffled", "recovery"),
        )
    ],
)
def beliefs(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Analysis "beliefs": compare the agent's actions with those that are optimal on the maps decoded at one site and
    layer.
    """
    suite = reader.usable(BELIEF_SUITE if reader.full(place) else CORE_ELSEWHERE)
    suite = suite if reader.is_first(place) else without(suite, *COUNTED)
    fitted = reader.fit(place, data, suite, scored=False)
    with reader.stage(f"beliefs at {place_name(place)}") as show:
        rows, shown_maps = compare_beliefs(data, reader.decisions, fitted, suite=suite, device=reader.device)
        show(1, 1)
    if place[1] == reader.dataset.middle:
        reader.show(shown_maps)
    return rows


@analysis(
    "plans",
    title="Decoded plans",
    headline=[
        (f"plan right up to N = {count}", {"measure": "prefix accuracy", "N": count, "plans": "all", STEPWISE: False})
        for count in (1, 3, 5)
    ],
    pick=_decoder,
)
def plans(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Analysis "plans": decode the agent's next moves at one site and layer, and compare with a planner on decoded
    maps.
    """
    decoders = reader.declared.decoders
    layers, settings = decoders.layers, reader.fit_settings(PlanSettings, decoders)
    main = (sorted(layers)[(len(layers) - 1) // 2],)
    beside_layers = layers if reader.declared.table == "complete" else main
    kinds: dict[str, Any] = {"beside": beside_layers, "stepwise": decoders.stepwise, "settings": settings}
    fit_plans = partial(probe_plans, plans=reader.executed, layers=layers if reader.full(place) else main, **kinds)
    # The planner needs no fit. It is scored on test maps, on which no probe was fitted.
    activations = data.activations[0]
    probe = reader.fit(place, replace(data, random={}), ((MAPS, "none"),), scored=False).probe(MAPS, activations)
    maps = {place: decode_maps(probe.predict(activations, device=reader.device).maps("natural"))}
    return _score_with_maps(reader, "plans", fit_plans, place, data, maps)


@analysis(
    "distance",
    title="Decoded distance to the goal",
    headline=[
        ("distance, absolute error (steps)", {"measure": "distance error", "head": head, "distance": None})
        for head in ("linear", "mlp")
    ],
)
def distance(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Analysis "distance": decode the distance to the goal at one site and layer, and compare with that on decoded
    maps.
    """
    extra = [head for head in reader.declared.heads if "distance" in registry.resolve("head", head).targets]
    heads = (*NUMBER_HEADS, *extra) if reader.full(place) else NUMBER_HEADS
    settings = reader.fit_settings(FitSettings, reader.declared.probes)
    fit_distances = partial(probe_distances, distances=reader.distances, heads=heads, settings=settings)
    with reader.stage(f"maps of all steps at {place_name(place)}") as show:
        maps = cross_fitted(data, head=MAPS, settings=settings, callbacks=reader.probes.callbacks(show))
    return _score_with_maps(reader, "distance", fit_distances, place, data, maps)


def _score_with_maps(
    reader: AnalysisReader,
    name: str,
    fit_targets: Callable[..., FittedProbes],
    place: Place,
    data: ProbeInputs,
    maps: Maps,
) -> Rows:
    """Score probes of plans or distances, and their baselines on decoded maps."""
    missing = set(RANDOM_WEIGHTS) - set(reader.dataset.kinds)
    controls = tuple(name for name in (PLAN_CONTROLS if reader.full(place) else ELSEWHERE) if name not in missing)
    with reader.stage(f"{name} at {place_name(place)}") as show:
        return fit_targets(data, controls=controls, maps=maps, callbacks=reader.probes.callbacks(show)).rows


@analysis(
    "logit-lens",
    title="Actions by the logit lens",
    headline=[
        (f"logit lens, best action {what}", {"measure": measure, "head": "logit-lens"})
        for what, measure in (("was taken", "lens, action taken"), ("is optimal", "lens, optimal action"))
    ],
)
def logit_lens(reader: AnalysisReader, place: Place, data: ProbeInputs) -> Rows:
    """Analysis "logit-lens": score the actions that the model's unembedding reads from the activations of one layer.

    There are no rows if two actions begin with the same token.
    """
    if reader.tokens is None:
        return Rows.concatenate([])
    with reader.stage(f"logit lens at {place_name(place)}") as show:
        rows = score_lens(data, reader.tokens, reader.lens)
        show(1, 1)
    return rows
