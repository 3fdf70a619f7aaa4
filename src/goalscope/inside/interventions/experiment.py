"""Plugin interface of interventions: settings, subject of an experiment, and loop over a study's experiments."""

import ctypes
import gc
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, Field

from goalscope._ground import registry
from goalscope._ground.ids import content_id
from goalscope._ground.parts import attempt
from goalscope._ground.progress import Progress, Stage, silent
from goalscope._ground.rng import stream
from goalscope.agents.agent import agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.local import LocalModel
from goalscope.goals.hypotheses import bind, parse
from goalscope.inside.activations.replay_target import ReplayTarget, check_model, find_target
from goalscope.inside.activations.sites import steps_seen
from goalscope.inside.interventions.pairs import (
    GOAL,
    Moved,
    Original,
    Pair,
    Pairs,
    counterfactuals,
    find_pairs,
    local_model,
)
from goalscope.inside.probing.scores import chosen
from goalscope.runs import Store
from goalscope.runs.kinds import StudyPart, listed
from goalscope.runs.provenance import note, note_libraries
from goalscope.stats.rows import Rows, Tag, constant
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridView, GridWorld

TAG: Final = "intervention"
"""Tag that only rows of interventions have: the kind of the experiment."""
INFO: Final = "interventions"
"""Name under which a run stores the settings and counts of its last experiments."""

_CHOICE: Final = "an equal share of each thing moved"
"""How pairs are chosen, a part of the id of results: those on pairs that were chosen otherwise are done again."""

Settings = TypeVar("Settings", bound=BaseModel)


def _in_grids(text: str) -> str:
    """Check that a hypothesis is defined in grids, and return its written form."""
    study = parse(text)
    bind(study, [GridWorld(grid=Grid.parse("A_G"))])  # raises an error for names, because goals of grids have no names
    return study.text


Written = Annotated[str, AfterValidator(_in_grids)]
"""A hypothesis in written form."""
Things = Annotated[tuple[Moved, ...], Field(strict=False), AfterValidator(listed)]


Headline = tuple[tuple[str, ...], Mapping[str, Tag], tuple[str, ...]]
"""The printed summary of an experiment: measures, tags that their rows must have, and the tags that make the lines."""


class PairSettings(StudyPart):
    """Settings that select counterfactual pairs. Grids of each size are drawn in turn, one pair per grid.

    * `moved`: the things to move.
    * `per_size`, `controls`: numbers of pairs per size whose optimal actions differ or agree; each thing gets an equal
      share, rounded up.
    * `tries`: number of counterfactuals per grid to show to the agent.
    * `seed`: random seed of the choice.
    * `hypothesis`: the goal that defines which actions are optimal.
    """

    moved: Things = get_args(Moved)[:2]
    per_size: int = Field(default=12, ge=1)
    controls: int = Field(default=4, ge=0)
    tries: int = Field(default=4, ge=1)
    seed: int = Field(default=0, ge=0, le=2**62)
    # keeps the ids of earlier results valid
    hypothesis: Written = Field(default=GOAL, exclude_if=lambda text: text == GOAL)

    def share(self, *, control: bool = False) -> int:
        """Return how many pairs to find per size and moved thing, for control pairs or others."""
        return math.ceil((self.controls if control else self.per_size) / len(self.moved))


class OnPairs(StudyPart):
    """Settings shared by all experiments on counterfactual pairs.

    `agent` may be left out if only one agent fits; `max_tokens` is the maximum number of output tokens, by default the
    agent's own.
    """

    agent: str | None = Field(default=None, min_length=1, max_length=200)
    pairs: PairSettings = PairSettings(controls=0)
    max_tokens: int | None = Field(default=None, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExperimentSubject:
    """The subject of an experiment: an agent, its model, the grids of a run, and the store for the rows.

    Attributes:
        store: the run, open for writing.
        agent: the agent, which answers at temperature 0.
        originals: the first state of each grid that the agent saw.
        source: prefix of the names of the experiment's rows: kind, agent and content id of its settings.
        tags: tags of all its rows.
        show: progress callback: number of finished work items, and of all.
        pair_cache: pairs by their settings.
        by_thing: thing moved -> numbers of its pairs, found and requested, with control pairs counted separately.
    """

    store: Store
    agent: ChatAgent
    originals: Sequence[Original]
    source: str
    tags: Mapping[str, Any]
    show: Progress
    pair_cache: dict[str, Pairs] = field(default_factory=dict)
    by_thing: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def model(self) -> LocalModel:
        """The agent's model. Raises a ValueError if its weights are not on this machine."""
        return local_model(self.agent)

    def pairs(self, settings: PairSettings, *, control: bool = False, find: Callable[..., Pairs] = find_pairs) -> Pairs:
        """Find the pairs for the settings with `find_pairs` or another function, and cache them."""
        key = f"{settings.model_dump_json()} {control}"
        if key not in self.pair_cache:
            self.pair_cache[key] = choose_pairs(self.agent, self.originals, settings, control=control, find=find)
            if not control:
                sizes = len({original.tags.get("size") for original in self.originals})
                counts = Counter(pair.moved for pair in self.pair_cache[key].kept)
                requested = sizes * settings.share()
                self.by_thing.update(
                    {thing: {"pairs": counts[thing], "asked for": requested} for thing in settings.moved}
                )
        return self.pair_cache[key]

    def work(self, units: Mapping[str, tuple[Any, ...]], compute: Callable[..., Rows]) -> None:
        """Compute and store the rows of all named pieces of work that are not stored yet, by ``compute(*item)``."""
        for done, (unit, item) in enumerate(units.items()):
            self.show(done, len(units))
            source = f"{self.source}/{unit}"
            if source not in self.store.row_sources():
                rows = compute(*item)
                tags = {name: constant(value, len(rows)) for name, value in self.tags.items()}
                self.store.put_rows(rows.tagged(tags), source=source)
                give_back()
        self.show(len(units), len(units))


def give_back() -> None:
    """Return the memory of finished passes to the system.

    Their tensors are in reference cycles, which Python collects by number, not by size, and the C library keeps the
    pages. Without this, the resident memory grows with the number of work items.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has this function
        if trim is not None:
            trim(0)


def intervention(name: str) -> Callable[[type[Settings]], type[Settings]]:
    """Return a decorator that registers an experiment, which ``analysis: interventions:`` of a study can name.

    An experiment is a pydantic model of its settings, with fields ``kind`` and ``agent``, a class variable ``headline``
    (`Headline`), and a method ``run(subject)``. The method does the work items that are not stored yet, stores their
    rows, and returns a summary as plain values.

    Args:
        name: the kind; the field ``kind`` of the settings must accept it.

    Raises:
        ValueError: if the name is taken.
        TypeError: if it is not a pydantic model with ``kind``, ``agent``, ``headline`` and ``run``.
    """

    def add(settings: type[Settings]) -> type[Settings]:
        fits = isinstance(settings, type) and issubclass(settings, BaseModel)
        fits = fits and {"kind", "agent"} <= set(settings.model_fields)
        if not fits or not hasattr(settings, "run") or not hasattr(settings, "headline"):
            raise TypeError(
                f"an intervention must be a pydantic model with kind, agent, headline and run(subject), got {settings}"
            )
        registry.register("intervention", name)(settings)
        return settings

    return add


def originals_of(store: Store, agent_id: str) -> list[Original]:
    """Return the first state of each grid that the agent saw without fog, in the order of the run."""
    originals: dict[str, Original] = {}
    for episode, _, grid in steps_seen(store, agent_id, "first"):
        world = episode.world
        if grid.fog is not None or world.tags.get("transform", "identity") != "identity":
            continue
        view = GridView(grid=grid)
        tags = {"size": grid.height, "density": world.tags.get("density")}
        originals.setdefault(world.id, Original(view=view, cluster=world.cluster or world.id, tags=tags))
    return list(originals.values())


def choose_pairs(
    agent: ChatAgent,
    originals: Sequence[Original],
    settings: PairSettings,
    *,
    control: bool = False,
    find: Callable[..., Pairs] = find_pairs,
) -> Pairs:
    """Choose pairs according to the settings, with equal shares of each moved thing per size and one pair per grid.

    If too few pairs are found for one thing, no other thing replaces it; the missing pairs are counted as left out.
    """
    share = settings.share(control=control)
    options: dict[str, Any] = {"control": control, "hypothesis": settings.hypothesis}
    pairs_kept: list[Pair] = []
    left_out: Counter[str] = Counter()
    for size in dict.fromkeys(original.tags.get("size") for original in originals):
        same_size = [original for original in originals if original.tags.get("size") == size]
        order = stream(settings.seed, "originals", str(size), control).permutation(len(same_size))
        waiting = [same_size[index] for index in order]
        by_thing: dict[Moved, list[Pair]] = {thing: [] for thing in settings.moved}
        while True:
            groups, waiting = _by_thing(
                waiting, {thing: share - len(found_pairs) for thing, found_pairs in by_thing.items()}, options
            )
            if not any(groups.values()):
                break
            for thing, group in groups.items():
                batch = find(agent, group, moved=[thing], tries=settings.tries, seed=settings.seed, **options)
                left_out.update(batch.left_out)
                by_thing[thing] += batch.kept
        for thing, found_pairs in by_thing.items():
            pairs_kept += found_pairs
            if len(found_pairs) < share:
                left_out[f"{thing} moved, size {size}: pairs that too few grids have"] += share - len(found_pairs)
    return Pairs(kept=tuple(pairs_kept), left_out=dict(left_out))


def _by_thing(
    originals: Sequence[Original], missing: Mapping[Moved, int], options: Mapping[str, Any]
) -> tuple[dict[Moved, list[Original]], list[Original]]:
    """Assign originals to the things that lack pairs. Return these and the originals that are left over.

    Each original goes to the thing that lacks most pairs among those that can be moved in it. If nothing can be moved
    in it, it goes to the thing that lacks most pairs, so that the reason is counted.
    """
    lacking, left = dict(missing), []
    groups: dict[Moved, list[Original]] = {thing: [] for thing in missing}
    for original in originals:
        if not any(lacking.values()):
            left.append(original)
            continue
        movable = [thing for thing in lacking if counterfactuals(original, thing, **options)]
        thing = max(movable or lacking, key=lambda thing: lacking[thing])
        if lacking[thing]:
            groups[thing].append(original)
            lacking[thing] -= bool(movable)
        else:
            left.append(original)
    return {thing: group for thing, group in groups.items() if group}, left


@dataclass(frozen=True, slots=True, kw_only=True)
class InterventionSummary:
    """The result of one experiment.

    Attributes:
        kind: the kind of the experiment.
        agent: short name of the agent.
        rows: its rows, as stored in the run.
        about: plain values: settings, numbers of pairs, reasons for leaving some out.
    """

    kind: str
    agent: str
    rows: Rows
    about: Mapping[str, Any]


def study_interventions(
    run: str | Path,
    declared: Sequence[BaseModel] | None = None,
    *,
    model: LocalModel | None = None,
    stage: Stage = silent,
) -> list[InterventionSummary]:
    """Run all declared experiments on a run, store their rows, and return them; stored work is not repeated.

    Args:
        run: a run directory; no other process may write to it meanwhile.
        declared: the settings of the experiments; by default those of the run's study.
        model: the model to change; by default the local model that the run's study names.
        stage: called with the name of each experiment when it starts; returns a progress callback.

    Raises:
        FileNotFoundError: if there is no such run or model.
        ValueError: if nothing is declared, the run has no token ids, or an experiment raises an error; the message
            says what to do.
        ImportError: if torch or transformers is missing.
        BlockingIOError: if another process is writing to the run.
    """
    with Store(run) as store:
        experiments = declared_in(store) if declared is None else tuple(declared)
        if not experiments:
            raise ValueError(
                f"the study of {run} declares no interventions (analysis: interventions:): name a kind, e.g. "
                "goalscope patch RUN --kind patching"
            )
        for settings in experiments:
            registry.resolve("intervention", settings.kind)  # type: ignore[attr-defined] # a stored study may name others
        targets = [_target(store, settings) for settings in experiments]
    with Store(run, "w") as store:
        note_libraries(store, "interventions", [("intervention", experiment.kind) for experiment in experiments])  # type: ignore[attr-defined]
        done = [
            attempt("intervention", settings.kind, partial(_run_one, store, settings, target, model, stage), _nothing)  # type: ignore[attr-defined]
            for settings, target in zip(experiments, targets, strict=True)
        ]
        return [summary for summary in done if summary is not None]


def _nothing(sentence: str) -> None:
    """Ignore the failure of an experiment of another package, whose results are then missing."""


def declared_in(store: Store) -> tuple[BaseModel, ...]:
    """Return the interventions that the study of a run declares."""
    study = store.study()
    return tuple(study.analysis.interventions) if study is not None and study.analysis is not None else ()


def _run_one(
    store: Store, settings: Any, target: ReplayTarget, model: LocalModel | None, stage: Stage
) -> InterventionSummary:
    agent = _agent(store, target, model, weights=_needs_weights(settings))
    decisive = {"settings": settings.model_dump(mode="json"), "agent": agent_id(agent), "pairs": _CHOICE}
    kind, tags = f"{settings.kind}/{target.agent_id}/", {TAG: settings.kind, "agent": target.agent}
    source = kind + content_id("intervention", decisive)
    for name in store.row_sources():  # rows from earlier settings
        if name.startswith(kind) and not name.startswith(f"{source}/"):
            store.put_rows(Rows.from_rows([]), source=name)
    with stage(settings.kind) as show:
        originals = originals_of(store, target.agent_id)
        subject = ExperimentSubject(store=store, agent=agent, originals=originals, source=source, tags=tags, show=show)
        description = {**settings.run(subject), "agent": target.agent, "model": agent.model.name}
        description["by thing moved"] = subject.by_thing
    note(store, INFO, {settings.kind: description})
    return InterventionSummary(
        kind=settings.kind, agent=target.agent, rows=chosen(store.rows(), **tags), about=description
    )


def _needs_weights(settings: Any) -> bool:
    return bool(getattr(settings, "needs_weights", True))


def _target(store: Store, settings: Any) -> ReplayTarget:
    """Find the agent whose activations or reasoning are changed. Editing reasoning needs no token ids."""
    if _needs_weights(settings):
        return find_target(store, settings.agent, ("pre",))
    agents = list(_chat_agents(store))
    matching = [agent for agent in agents if settings.agent in (None, agent.name)]
    if len(matching) != 1:
        names = ", ".join(agent.name for agent in agents) or "none"
        raise ValueError(
            f"edits of reasoning need one chat agent of the run ({names}), got {settings.agent!r}: set "
            "agent to one of these"
        )
    identity = agent_id(matching[0])
    return ReplayTarget(agent=matching[0].name, agent_id=identity, description=matching[0].describe(), steps=0)


def _chat_agents(store: Store) -> Iterator[Any]:
    study = store.study()
    return (entry.build() for entry in (study.agents_ if study is not None else ()) if entry.kind == "chat")


def _agent(store: Store, target: ReplayTarget, model: LocalModel | None, *, weights: bool) -> ChatAgent:
    """Rebuild the agent from a run's study, with another model if one is given."""
    for agent in _chat_agents(store):
        if not isinstance(agent, ChatAgent) or agent_id(agent) != target.agent_id:
            continue
        if model is not None:
            check_model(target, model, other_weights=False)
            return replace(agent, model=model, history=None, choice=None)
        if isinstance(agent.model, LocalModel) or not weights:
            return agent
    raise ValueError(
        f"{store.path} does not record how {target.agent} is prompted or where its model is: "
        "interventions need a run of a study with a chat agent and a local model (for a model behind "
        "a server, give --model FOLDER)"
    )
