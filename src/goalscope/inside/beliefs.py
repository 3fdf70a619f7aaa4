"""MEG relative to an agent's apparent beliefs: towards the decoded goal, on the decoded map.

`measure_beliefs` takes beliefs from any source, `measure_decoded_beliefs` from captured activations. Each line has
controls: beliefs decoded from a random network, and beliefs about other worlds.

Maps are decoded only on grids that were not used to fit the probe, and only before the first action of each episode, so
the action with which a belief is compared cannot influence the belief.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope._ground.progress import Stage
from goalscope._ground.rng import stream
from goalscope.goals.baselines import Invalid, Utility
from goalscope.goals.directedness import HypothesisLine, MeasuredLines, goal_measure
from goalscope.goals.hypotheses.definition import FiniteWorld, Hypothesis, Undefined
from goalscope.goals.hypotheses.states import States, states_of
from goalscope.goals.hypotheses.written import parse
from goalscope.goals.results import RunDirectedness, one_family
from goalscope.inside.activations.shards import Capture, Place, captures, choose_capture, load_activations
from goalscope.inside.activations.sites import Site, check_site, plan_id
from goalscope.inside.probing.beliefs import decode_maps
from goalscope.inside.probing.inputs import of_grids
from goalscope.inside.probing.logit_lens import OWN, Network
from goalscope.inside.probing.pipeline import INFO, AnalysisReader, declared_in, probe_dataset
from goalscope.inside.probing.probe import Probe, ProbeKey
from goalscope.measures.table import StepTable
from goalscope.runs import Store
from goalscope.runs.provenance import noted
from goalscope.runs.record import Episode
from goalscope.runs.study_parts import READS, Inside
from goalscope.stats.rows import Rows
from goalscope.worlds.dynamics import phases
from goalscope.worlds.grid import Grid, Position
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.planning.process import at_cell

BELIEVED: Final = "believed goal"
ON_MAP: Final = "believed goal on the believed map"
SHUFFLED: Final = "shuffled"
"""Suffix of a line's name for this control; the other control's suffix is a kind of random network."""
DRAWS: Final = 20
"""Draws of the shuffled control."""

Worlds = Mapping[str, tuple[Grid, str]]
"""World id -> its grid and the id of its cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What an agent seems to believe about the map of a grid before its first action.

    Attributes:
        walls: ``[H, W]`` bool (rows by columns of the grid), True for impassable cells.
        goal: (row, col) of the believed goal, which may lie outside the grid.
    """

    walls: npt.NDArray[np.bool_]
    goal: Position


def measure_beliefs(
    episodes: Iterable[Episode],
    beliefs: Mapping[str, Belief],
    *,
    label: str,
    utility: Utility = "steps",
    invalid: Invalid = "no-op",
    confidence: float = 0.95,
    seed: int = 0,
    random: tuple[str, Mapping[str, Belief]] | None = None,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> RunDirectedness:
    """Measure goal-directedness (MEG) towards the goal that an agent believes in, compared with the true goal and
    controls.

    A belief is a map with a goal, decoded from the agent's activations. For each agent, MEG is measured towards the
    believed goal, towards the true goal in the same worlds, and towards the believed goal on the believed map. The
    values with a believed goal have two controls each: the beliefs of a random network, and the beliefs about another
    world of the same shape, averaged over several draws.

    Args:
        episodes: the episodes; those in worlds with a belief are measured.
        beliefs: world id -> belief.
        label: source of the beliefs, which marks the results (as their tag ``beliefs``).
        utility, invalid, confidence, seed: as in `goalscope.goals.directedness`.
        random: kind of a random network, and the beliefs decoded from it; None without that control.
        draws: number of draws of the shuffled control.
        progress: called with (done, total) work items.

    Returns:
        The MEG of each agent towards each of these goals and controls; the differences between the believed and the
        true goal, and between each value and its controls; and rows by world.

    Raises:
        ValueError: if no episode is in a world with a belief, the random network lacks a belief, or there are no draws.
    """
    if isinstance(draws, bool) or not isinstance(draws, int) or not 1 <= draws <= 1000:
        raise ValueError(f"draws (of the shuffled control) must be an integer from 1 to 1000, got {draws!r}")
    used_episodes = [episode for episode in episodes if episode.world.id in beliefs]
    if not used_episodes:
        raise ValueError(
            f"beliefs must refer to worlds of the run, but {len(beliefs)} refer to other worlds: use "
            "world ids of this run as keys"
        )
    worlds = {episode.world.id: (episode.world.grid, episode.world.cluster_id) for episode in used_episodes}
    of_agent = {world: beliefs[world] for world in worlds}
    kind, of_random_network = random or ("", of_agent)
    missing = [world for world in worlds if world not in of_random_network]
    if missing:
        raise ValueError(
            f"the random network's beliefs must cover the same worlds, but {len(missing)} of "
            f"{len(worlds)} are missing ({missing[0]}): decode both at the same steps"
        )
    states = states_of(StepTable.from_episodes(used_episodes))
    measured = MeasuredLines(states, kind=utility, invalid=invalid, confidence=confidence, seed=seed, progress=progress)
    names = list[str]()
    for first, true_goal, on_map in ((BELIEVED, True, False), (ON_MAP, False, True)):
        shuffled = [_elsewhere(of_agent, worlds, seed, draw, on_map=on_map) for draw in range(draws)]
        lines = {first: [_believed(of_agent, states, on_map)]}
        controls = dict[str, str]()
        if kind:
            controls[f"{first}, {kind}"] = kind
            of_random = {world: of_random_network[world] for world in worlds}
            lines[f"{first}, {kind}"] = [_believed(of_random, states, on_map)]
        controls[f"{first}, {SHUFFLED}"] = SHUFFLED
        lines[f"{first}, {SHUFFLED}"] = [_believed(other, states, on_map) for other in shuffled]
        defined = {name: drawn for name, drawn in lines.items() if drawn[0].states}
        if first not in defined:  # no valid map exists, because all believed goals lie under the agent or outside
            continue
        goal = {"goal": [HypothesisLine(parse("goal"), states)]} if true_goal else {}
        measured.measure({first: defined[first], **goal, **defined}, less=controls)
        names += [*goal, *defined]
    findings = measured.found(names)
    is_kept = [
        str(name) != goal_measure("goal") for name in findings.rows.measure
    ]  # rows for these worlds only; rows for all worlds come from elsewhere
    cells = [entry.cell for entry in findings.estimates]
    ordered = sorted(findings.estimates, key=lambda entry: (cells.index(entry.cell), entry.agent))
    return replace(
        findings,
        estimates=tuple(replace(entry, cell={**entry.cell, "beliefs": label}) for entry in ordered),
        contrasts=tuple(replace(entry, cell={**entry.cell, "beliefs": label}) for entry in findings.contrasts),
        rows=findings.rows.where(np.array(is_kept, dtype=bool)),
    )


def measure_decoded_beliefs(
    run: str | Path, *, site: str, layer: int, stage: Stage, draws: int = DRAWS, **options: Any
) -> tuple[RunDirectedness, "FirstSteps"]:
    """Decode from activations what an agent believed about its worlds; measure goal-directedness (MEG) relative to it.

    Args:
        run: the run directory; its activations must have been captured.
        site, layer: token positions ("pre", the end of the prompt, or "post", after the reasoning) and number of the
            decoder block whose activations are used.
        stage: called with the name of each task when it starts; returns a progress callback.
        draws: number of draws of the shuffled control.
        options: ``utility``, ``invalid``, ``confidence`` and ``seed`` of `measure_beliefs`.

    Returns:
        The measured goal-directedness; and the first steps of the episodes, with the probes that decoded maps there.

    Raises:
        ValueError: if nothing was captured there, worlds have doors, or there are too few grids.
        ImportError: if PyTorch is missing.
    """
    first = read_first_steps(run, site=site, layer=layer, stage=stage)
    with Store(run) as store:
        episodes = list(store.episodes(sorted(set(first.episode_id.tolist()))))
    by_id = {episode.id: episode for episode in episodes}
    goals = {episode.world.id: episode.world.grid.goal for episode in episodes}
    sides = {name: decode_beliefs(first.episode_id, maps, by_id) for name, maps in first.posteriors.items()}
    description: dict[str, Any] = {
        "site": site,
        "layer": layer,
        "head": HEAD,
        "agent": first.agent,
        "settings": dict(first.settings),
        "draws": draws,
        "worlds": len(sides["none"]),
        "decoded": {
            name: {
                "probe": first.probes[name],
                "goal at its cell": sum(belief.goal == goals[world] for world, belief in beliefs.items()),
            }
            for name, beliefs in sides.items()
        },
        "missing": first.missing,
    }
    with stage("goals that are believed") as show:
        findings = measure_beliefs(
            episodes,
            sides["none"],
            label=f"{site}, layer {layer}, {HEAD}, held-out grids",
            random=next(((name, side) for name, side in sides.items() if name != "none"), None),
            draws=draws,
            progress=show,
            **options,
        )
    return replace(findings, beliefs=description), first


def decode_beliefs(
    episode_id: npt.NDArray[np.object_], posterior: npt.NDArray[np.float32], episodes: Mapping[str, Episode]
) -> dict[str, Belief]:
    """Turn decoded class probabilities at the first steps of episodes into one belief (walls and goal) per world.

    The probabilities of a world's episodes are averaged. They are equal before the reasoning and differ after it.

    Args:
        episode_id: ``[N]`` id of the episode of each first step.
        posterior: ``[N, n, n, K]`` probabilities: steps, rows and columns of the map, classes of a cell.
        episodes: the episodes by id.

    Returns:
        World id -> belief.
    """
    worlds = [episodes[identity].world for identity in episode_id.tolist()]
    rows: dict[str, list[int]] = {}
    for row, world in enumerate(worlds):
        rows.setdefault(world.id, []).append(row)
    decoded = decode_maps(np.stack([posterior[world_rows].mean(axis=0) for world_rows in rows.values()]))
    result = {}
    for index, (world_id, world_rows) in enumerate(rows.items()):
        height, width = worlds[world_rows[0]].grid.walls.shape
        row, col = (int(coordinate) for coordinate in decoded.goal[index])
        result[world_id] = Belief(walls=decoded.closed[index, :height, :width], goal=(row, col))
    return result


def joined(parts: Sequence[RunDirectedness]) -> RunDirectedness:
    """Join several results of measured goal-directedness into one; settings and counts are those of the first.

    All comparisons form one family, so their tests are corrected together.
    """
    return replace(
        parts[0],
        estimates=tuple(entry for part in parts for entry in part.estimates),
        contrasts=one_family(entry for part in parts for entry in part.contrasts),
        held_out=tuple(entry for part in parts for entry in part.held_out),
        beliefs=next((part.beliefs for part in parts if part.beliefs), {}),
        rows=Rows.concatenate(part.rows for part in parts),
    )


def _believed(beliefs: Mapping[str, Belief], states: Sequence[States], on_map: bool) -> HypothesisLine:
    """Build the line for beliefs, with the believed goals in the true worlds or on the valid believed maps.

    A believed goal may lie in a wall or outside the grid, and can then not be reached. Worlds without a belief are
    left out.
    """

    def place(world: FiniteWorld) -> npt.NDArray[np.bool_]:
        if world.world.id not in beliefs:
            raise Undefined("there is no belief about this world")
        row, col = beliefs[world.world.id].goal
        if 0 <= row < world.grid.height and 0 <= col < world.grid.width:
            return at_cell(world.grid, (row, col)) > 0
        return np.zeros(phases(world.grid) * world.grid.walls.size, dtype=bool)

    hypothesis = Hypothesis.of("event", place, "believed goal")
    if not on_map:
        return HypothesisLine(
            hypothesis, [entry for entry in states if entry.world.world.id in beliefs], everywhere=True
        )
    maps = {
        world: _map(entry.world.grid, beliefs[world]) for entry in states if (world := entry.world.world.id) in beliefs
    }
    believed_worlds = dict[FiniteWorld, FiniteWorld]()  # maps and their curves are shared by all agents
    result = list[States]()
    for entry in states:
        if (grid := maps.get(entry.world.world.id)) is not None:
            if entry.world not in believed_worlds:
                believed_worlds[entry.world] = entry.world.on_map(grid)
            result.append(entry.in_world(believed_worlds[entry.world]))
    return HypothesisLine(hypothesis, result, everywhere=True)


def _elsewhere(
    beliefs: Mapping[str, Belief], worlds: Worlds, seed: int, draw: int, *, on_map: bool
) -> dict[str, Belief]:
    """Assign each world the belief about another grid of the same shape, if there is one.

    Which worlds get a belief does not depend on the draw. With ``on_map``, the belief must give a valid map in its new
    world.
    """
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for world in sorted(beliefs):
        by_shape.setdefault(worlds[world][0].walls.shape, []).append(world)
    result: dict[str, Belief] = {}
    for shape, names in by_shape.items():
        order = [names[index] for index in stream(seed, "beliefs of others", *shape, draw).permutation(len(names))]
        for position, world in enumerate(order):
            grid, cluster = worlds[world]
            for other in (*order[position + 1 :], *order[:position]):
                fits = not on_map or _map(grid, beliefs[other]) is not None
                if worlds[other][1] != cluster and fits:
                    result[world] = beliefs[other]
                    break
    return result


def _map(true: Grid, belief: Belief) -> Grid | None:
    """Build the believed map with the agent at its true start; None if the believed goal is at the start or outside."""
    row, col = belief.goal
    inside = 0 <= row < true.height and 0 <= col < true.width
    if true.start is None or not inside or (row, col) == true.start:
        return None
    walls = np.array(belief.walls, dtype=bool)
    walls[true.start] = walls[row, col] = False
    return Grid(walls=walls, start=true.start, goal=(row, col))


STRICTEST: Final = ("permuted", "initial", "default-init")
"""Kinds of random networks where only one is used, the one from which most could be decoded first."""
HEAD: Final = "mlp"
"""The probe that decodes maps before the first action: the paper's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstSteps:
    """What a probe decodes from activations at the first steps of N episodes: the class probabilities of all cells of
    the map.

    The episodes are in grids on which the probe was not trained.

    Attributes:
        site, layer, agent: origin of the activations: token positions, number of the decoder block, name of the agent.
        episode_id: ``[N]`` text.
        posteriors: control -> ``[N, n, n, K]`` probabilities (steps, rows, columns, classes), at the class frequencies
            of the training grids. Controls are "none" (the agent's own model) and, of the random networks that were
            captured, the strictest kind (see `STRICTEST`).
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
    """Decode maps from the activations before an agent's first action, on grids that were not used to train the probe.

    Steps, split and probes are those of the last `goalscope probe` (or study) at this site and layer, else those that
    the run's study declares, else the defaults of `Inside`. Probes are stored with the run and reused.

    Args:
        run: a run directory; no other process may write to it meanwhile.
        site, layer: token positions ("pre" or "post") and number of the decoder block; they must have been captured.
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
        capture = choose_capture(store, site_name, layer, agent=settings.agent)
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
