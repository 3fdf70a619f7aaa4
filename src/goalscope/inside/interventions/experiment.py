"""Experiments on counterfactual pairs: the pairs, the plugin interface, and the loop over a study's experiments.

A counterfactual pair is a grid and a copy with one object moved, so that other actions are optimal.

A pair is used if the agent takes an optimal action in both grids and the two sets of optimal actions are disjoint: the
action then shows the effect of an intervention. In a control pair the sets are equal: the action must not change.
By default, actions are optimal for the goal. Another hypothesis can define optimality (`goals.hypotheses`): for an
agent that heads for a corner, a control pair moves the goal while the agent's own optimal actions stay the same.
"""

import ctypes
import gc
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, Field

from goalscope._ground import registry
from goalscope._ground.ids import content_id
from goalscope._ground.own import attempt
from goalscope._ground.progress import Progress, Stage, silent
from goalscope._ground.rng import stream
from goalscope.agents.agent import Observation, agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Reply
from goalscope.agents.models.local import LocalModel
from goalscope.agents.parse import turn
from goalscope.goals.counterfactual.worlds import elsewhere
from goalscope.goals.hypotheses import Undefined, bind, finite_world, parse
from goalscope.inside.activations.sites import ReplayTarget, SiteFinder, check_model, find_target, steps_seen
from goalscope.inside.probing.scores import chosen
from goalscope.runs import Store
from goalscope.runs.provenance import note, note_libraries
from goalscope.runs.record import Step
from goalscope.runs.study_parts import StudyPart, listed
from goalscope.stats.rows import Rows, Tag, constant
from goalscope.worlds.dynamics import State
from goalscope.worlds.grid import Action, Grid, Position
from goalscope.worlds.gridworld import GridView, GridWorld
from goalscope.worlds.planning.shortest import optimal_actions

Moved = Literal["agent", "goal", "key", "door"]
"""What differs in the second grid: the agent, the goal or the key lies elsewhere, or the door is open."""
GOAL: Final = "goal"
"""The hypothesis under which an action is optimal where no other is named."""
MOVED: Final[tuple[Moved, ...]] = get_args(Moved)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Original:
    """A state of a grid as shown to an agent, from which counterfactual grids (copies with one thing moved) are made.

    Attributes:
        view: the shown grid, without fog.
        cluster: the grid; intervals resample grids, not pairs.
        tags: named facts that the results of its pairs carry, such as size and density.
    """

    view: GridView
    cluster: str
    tags: Mapping[str, Tag] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One of the two grids of a counterfactual pair, and the agent's answer there at temperature 0.

    Attributes:
        view: the shown grid.
        optimal: all optimal actions.
        prompt, output: token ids.
        action: the agent's action.
    """

    view: GridView
    optimal: frozenset[Action]
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    action: Action

    @property
    def step(self) -> Step:
        """The agent's answer in this grid, in the form of a recorded step (with prompt, output and action)."""
        start = self.view.grid.start
        assert start is not None  # grids of pairs show their agent
        state = State(start, self.view.carrying_key)
        return Step(index=0, state=state, action=self.action, prompt_tokens=self.prompt, output_tokens=self.output)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A grid and its counterfactual, in which one object was moved so that other actions are optimal.

    The fields `cells`, `changed` and `tokenizer` are empty if token ids are unknown.

    Attributes:
        moved: the object that differs.
        control: whether this is a control pair, with the same optimal actions in both grids; otherwise they are
            disjoint.
        cluster, tags: the original grid's id, by which intervals resample, and named facts about it, such as its size.
        sides: the original and the counterfactual.
        cells: the cells that differ, (row, col).
        changed: ``[C]`` int64 positions of their tokens, the same in both prompts; no other token differs.
        tokenizer: content id of the tokenizer and chat template of the prompts.
    """

    moved: Moved
    control: bool
    cluster: str
    tags: Mapping[str, Tag]
    sides: tuple[Side, Side]
    cells: tuple[Position, ...] = ()
    changed: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    tokenizer: str = ""

    @property
    def id(self) -> str:
        """Content id (hash) of the moved object and of both grids as they are shown."""
        views = [[side.view.text, side.view.carrying_key] for side in self.sides]
        return content_id("pair", {"moved": self.moved, "sides": views})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """The counterfactual pairs that an experiment uses (`kept`), and the numbers of rejected candidates by reason.

    A counterfactual pair is a grid and a copy of it with one thing moved, so that other actions are optimal.
    """

    kept: tuple[Pair, ...]
    left_out: Mapping[str, int]


def counterfactuals(
    original: Original, moved: Moved, *, control: bool = False, hypothesis: str = GOAL
) -> list[GridView]:
    """Return every copy of a grid with one object moved in which entirely other actions are optimal (control: the same
    ones).

    Args:
        original: the grid.
        moved: the object that differs; the result is empty if the grid has no such object.
        control: whether the optimal actions must be equal; otherwise they must be disjoint.
        hypothesis: the goal for which they are optimal, see `goalscope.goals.hypotheses.parse`.

    Raises:
        ValueError: if the object to move is unknown, or the grid is under fog.
    """
    if moved not in MOVED:
        raise ValueError(f"moved must contain only {', '.join(MOVED)}, got {moved!r}")
    view, grid = original.view, original.view.grid
    if grid.fog is not None:
        raise ValueError("counterfactual pairs need grids without fog: remove fog_radius from the worlds")
    original_actions = best(view, hypothesis)
    if not original_actions:
        return []
    views = []
    for changed in elsewhere(grid, moved):
        counterfactual = replace(view, grid=changed)
        actions = best(counterfactual, hypothesis)
        if actions and (actions == original_actions if control else not actions & original_actions):
            views.append(counterfactual)
    return views


def best(view: GridView, hypothesis: str = GOAL) -> frozenset[Action]:
    """Return the optimal actions in a grid as shown to an agent.

    The result is empty if the agent or the target is hidden, if no path leads to the target, and for other hypotheses
    than "goal" once the agent carries a key.

    Args:
        view: the shown grid.
        hypothesis: the goal for which actions are optimal, such as "goal" or "corner top-left".
    """
    if view.grid.start is None or view.grid.goal is None:
        return frozenset()
    if hypothesis == GOAL:
        return optimal_actions(view.grid, view.grid.start, view.carrying_key)
    return frozenset() if view.carrying_key else _best_at_start(view.grid, hypothesis)


@lru_cache(maxsize=8192)
def _best_at_start(grid: Grid, hypothesis: str) -> frozenset[Action]:
    try:
        world = finite_world(GridWorld(grid=grid), 4 * (grid.height + grid.width))
        policy = parse(hypothesis).solved(world).policy[0, int(np.argmax(world.process.start))]
    except Undefined:
        return frozenset()
    return frozenset(Action(int(index)) for index in np.flatnonzero(policy >= policy.max() - 1e-12))


def find_pairs(
    agent: ChatAgent,
    originals: Iterable[Original],
    *,
    moved: Sequence[Moved] = ("agent", "goal"),
    control: bool = False,
    tries: int = 4,
    seed: int = 0,
    hypothesis: str = GOAL,
    max_tokens: int | None = None,
) -> Pairs:
    """Find counterfactual pairs (a grid and a copy with one thing moved) in which the agent acts optimally in both
    grids.

    Args:
        agent: a chat agent with a local model; it answers at temperature 0.
        originals: the grids, all different.
        moved: objects to move, see `Moved`. Each grid gives at most one pair per object.
        control: whether the optimal actions stay the same.
        tries: maximum number of counterfactuals shown to the agent per original and object; the first valid one is
            kept.
        seed: random seed of the choice of counterfactuals.
        hypothesis: the goal for which actions are optimal.
        max_tokens: maximum number of tokens of an answer; by default the agent's own.

    Returns:
        The pairs, and the number of (original, object) left out by reason: no such counterfactual, or the agent did not
        act optimally.

    Raises:
        ValueError: if the agent has no local model, prompts have different numbers of tokens (the message shows them),
            cells are not one token each, or as in `counterfactuals`.
    """
    model = local_model(agent)
    limit = agent.sampling.max_tokens if max_tokens is None else max_tokens
    finder, tokenizer = SiteFinder(model, ("grid",)), tokenizer_of(model)

    def token_fields(first: Side, second: Side) -> dict[str, Any]:
        cells = _differing(first.view.grid, second.view.grid)
        return {"cells": cells, "changed": align(model, finder, first, second, cells), "tokenizer": tokenizer}

    answer_views = partial(act, agent, max_tokens=limit, hypothesis=hypothesis)
    options: dict[str, Any] = {"moved": moved, "control": control, "tries": tries, "seed": seed}
    return pairs_of(originals, answer_views, token_fields, **options, hypothesis=hypothesis)


def local_model(agent: ChatAgent) -> LocalModel:
    """Return the model of an agent, whose weights must be on this machine.

    Raises:
        ValueError: if the model is behind a server.
    """
    if not isinstance(agent.model, LocalModel):
        raise ValueError(
            f"interventions need the weights of the agent's model, but {agent.name} has no local model: "
            "give one with --model FOLDER"
        )
    return agent.model


def pairs_of(
    originals: Iterable[Original],
    answer_views: Callable[[Sequence[GridView]], Sequence[Side | None]],
    token_fields: Callable[[Side, Side], Mapping[str, Any]],
    *,
    moved: Sequence[Moved],
    control: bool,
    tries: int,
    seed: int,
    hypothesis: str = GOAL,
) -> Pairs:
    """Find counterfactual pairs for any kind of agent, given functions that ask it and that compare its prompts.

    `find_pairs` calls this for local models, with their token ids. The other arguments are explained there.

    Args:
        originals: the grids.
        answer_views: returns the agent's answer in each shown grid where it acts optimally, None elsewhere.
        token_fields: returns the values of ``cells``, ``changed`` and ``tokenizer`` of a `Pair` for its two sides; an
            empty mapping if token ids are unknown.
    """
    left_out: Counter[str] = Counter()
    tasks: list[tuple[Original, Moved, list[GridView]]] = []
    for original in originals:
        for item in moved:
            candidates = counterfactuals(original, item, control=control, hypothesis=hypothesis)
            if not candidates:
                left_out[f"{item}: no such counterfactual"] += 1
                continue
            order = stream(seed, "pairs", original.cluster, original.view.text, item, control).permutation(
                len(candidates)
            )
            tasks.append((original, item, [candidates[index] for index in order[:tries]]))
    # Each view is shown once. Both sides of a pair have the same example in their prompts.
    views = dict.fromkeys([original.view for original, *_ in tasks] + [view for *_, group in tasks for view in group])
    sides = dict(zip(views, answer_views(list(views)), strict=True))
    pairs_kept = []
    for original, item, group in tasks:
        first = sides[original.view]
        second = next((side for view in group if (side := sides[view]) is not None), None)
        if first is None or second is None:
            side_name = "the original" if first is None else "a counterfactual"
            acts = "act optimally" if hypothesis == GOAL else f"follow {hypothesis}"
            left_out[f"{item}: the agent does not {acts} in {side_name}"] += 1
            continue
        common: dict[str, Any] = {"moved": item, "control": control, "cluster": original.cluster}
        pairs_kept.append(Pair(**common, tags=original.tags, sides=(first, second), **token_fields(first, second)))
    return Pairs(kept=tuple(pairs_kept), left_out=dict(left_out))


def act(agent: ChatAgent, views: Sequence[GridView], max_tokens: int, hypothesis: str = GOAL) -> list[Side | None]:
    """Ask an agent for its action in some grids at temperature 0.

    Returns:
        For each grid the agent's answer; None if its action is not optimal or the model returned no token ids.
    """
    sampling = replace(agent.sampling, temperature=0.0, top_p=1.0, top_logprobs=0, max_tokens=max_tokens)
    replies = agent.model.complete([agent.request(Observation(view=view)) for view in views], sampling)
    sides = [side_of(view, reply, hypothesis) for view, reply in zip(views, replies, strict=True)]
    return [None if side is None or not (side.prompt and side.output) else side for side in sides]


def side_of(view: GridView, reply: Reply, hypothesis: str = GOAL) -> Side | None:
    """Return a shown grid together with the agent's reply to it; None if its action is not optimal for the
    hypothesis.
    """
    action, optimal = turn(reply).action, best(view, hypothesis)
    if action not in optimal:
        return None
    prompt, output = reply.prompt_tokens or (), reply.output_tokens or ()
    return Side(view=view, optimal=optimal, prompt=prompt, output=output, action=Action(action))


def tokenizer_of(model: LocalModel) -> str:
    """Return an id (a hash) of a model's tokenizer and chat template, by which prompts of equal tokens are
    recognised.
    """
    files: Any = model.describe()["files"]
    names = [
        name for name in files if name.startswith("tokenizer") or name in ("hub", "revision", "chat_template.jinja")
    ]
    return content_id("tokenizer", {name: files[name] for name in sorted(names)})


def align(
    model: LocalModel, finder: SiteFinder, first: Side, second: Side, cells: Sequence[Position]
) -> npt.NDArray[np.int64]:
    """Return the token positions ``[C]`` of the cells that differ between the two prompts of a pair; they are the same
    in both.

    Raises:
        ValueError: if the prompts have different numbers of tokens, or differ in another token; the message has the
            tokens.
    """
    first_ids, second_ids = list(first.prompt), list(second.prompt)
    differing = [index for index, (a, b) in enumerate(zip(first_ids, second_ids, strict=False)) if a != b]
    if len(first_ids) != len(second_ids):
        index = differing[0] if differing else min(len(first_ids), len(second_ids))
        excerpts = [repr(model.text(ids[max(0, index - 2) : index + 3])) for ids in (first_ids, second_ids)]
        raise ValueError(
            f"the prompts of a pair must have the same number of tokens, got {len(first_ids)} and "
            f"{len(second_ids)}, which differ from token {index} on: {excerpts[0]} and {excerpts[1]}. "
            "This tokenizer merges cells with the text around them, so choose another template or model"
        )
    positions = finder.find(first.step, first.view.grid).positions["grid"].reshape(first.view.grid.walls.shape)
    changed = np.array(sorted(int(positions[cell]) for cell in cells), dtype=np.int64)
    if changed.tolist() != differing:
        wrong = sorted({*differing} ^ {*changed.tolist()})[0]
        raise ValueError(
            "the prompts of a pair must differ only in the tokens of the changed cells, but token "
            f"{wrong} is {model.text(first_ids[wrong : wrong + 1])!r} and "
            f"{model.text(second_ids[wrong : wrong + 1])!r}: choose another template or model"
        )
    return changed


def _differing(first: Grid, second: Grid) -> tuple[Position, ...]:
    """Return the cells whose symbol differs."""
    names = ("start", "goal", "key", "door")
    cells = {getattr(grid, name) for grid in (first, second) for name in names if getattr(grid, name) is not None}
    unchanged = {
        cell for cell in cells
        if all((getattr(first, name) == cell) == (getattr(second, name) == cell) for name in names)
    }  # fmt: skip
    return tuple(sorted(cells - unchanged))


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
    """Settings that select counterfactual pairs, each a grid and a copy with one thing moved.

    Grids of each size are drawn in turn, one pair per grid.

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
        """Return how many pairs to find per grid size and moved thing; with ``control``, how many control pairs."""
        return math.ceil((self.controls if control else self.per_size) / len(self.moved))


class OnPairs(StudyPart):
    """Settings shared by all experiments on counterfactual pairs (a grid and a copy of it with one thing moved).

    Attributes:
        agent: short name or id of the agent; may be left out if only one agent of the run fits.
        pairs: which pairs to use.
        max_tokens: maximum number of output tokens; by default the agent's own.
    """

    agent: str | None = Field(default=None, min_length=1, max_length=200)
    pairs: PairSettings = PairSettings(controls=0)
    max_tokens: int | None = Field(default=None, ge=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExperimentSubject:
    """What an experiment on activations or reasoning works on: an agent, the grids of a run, and the store for results.

    Attributes:
        store: the run, open for writing.
        agent: the agent, which answers at temperature 0.
        originals: the first state of each grid that the agent saw.
        source: prefix of the names under which results are stored: kind, agent and content id of the settings.
        tags: named facts that all rows of results carry.
        show: progress callback: number of finished work items, and of all.
        pair_cache: pairs by their settings.
        by_thing: thing moved -> numbers of its pairs, found and requested (control pairs are not counted).
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
        """The agent's local model.

        Raises:
            ValueError: if the model is behind a server, so that its weights are not on this machine.
        """
        return local_model(self.agent)

    def pairs(self, settings: PairSettings, *, control: bool = False, find: Callable[..., Pairs] = find_pairs) -> Pairs:
        """Find the counterfactual pairs that the settings select, and cache them for further calls.

        A counterfactual pair is a grid and a copy with one thing moved, in both of which the agent acts optimally.

        Args:
            settings: how many pairs of which kind.
            control: whether to find control pairs, whose two grids have the same optimal actions.
            find: the function that finds pairs.

        Returns:
            The pairs, and the numbers of rejected candidates by reason.
        """
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
        """Compute and store the results of each work item whose results the run does not hold yet.

        Args:
            units: the name of each work item with the arguments of ``compute`` for it.
            compute: returns the rows of results of one work item.
        """
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
    """Return the memory of finished forward passes to the operating system.

    Their tensors are in reference cycles, which Python collects by number, not by size, and the C library keeps the
    pages. Without this, the resident memory grows with the number of work items.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has this function
        if trim is not None:
            trim(0)


def intervention(name: str) -> Callable[[type[Settings]], type[Settings]]:
    """Return a decorator that registers a kind of experiment on an agent's activations or reasoning.

    Studies name the kind under ``analysis: interventions:``. The decorated class is a pydantic model of the
    experiment's settings, with fields ``kind`` and ``agent``, a class variable ``headline`` (`Headline`), and a method
    ``run(subject)``. The method does the work items that are not stored yet, stores their rows, and returns a summary
    that JSON can hold.

    Args:
        name: the kind; the field ``kind`` of the settings must accept it.

    Raises:
        ValueError: if the name is taken.
        TypeError: if the class is not a pydantic model with ``kind``, ``agent``, ``headline`` and ``run``.
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
    """Return the first state of each grid that an agent of a run saw, in the order of the run.

    Grids that were shown only in part (fog) and transformed versions of grids are left out.
    """
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
    """Choose counterfactual pairs by the settings: equal shares of each moved thing per grid size, and one pair per
    grid.

    If too few pairs are found for one thing, no other thing replaces it; the missing pairs are counted as left out.

    Args:
        agent: the agent, which must act optimally in both grids of a pair.
        originals: the grids to choose from.
        settings: how many pairs of which kind.
        control: whether to choose control pairs, whose two grids have the same optimal actions.
        find: the function that finds pairs.
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
    """The result of one experiment that changes an agent's activations or reasoning.

    Attributes:
        kind: the kind of the experiment, such as "patching".
        agent: short name of the agent.
        rows: the rows of results, as stored in the run.
        about: settings, numbers of pairs and reasons for leaving some out, as values that JSON can hold.
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
    """Run experiments that change an agent's activations or reasoning, and store their results with the run.

    Stored work is not repeated.

    Args:
        run: a run directory; no other process may write to it meanwhile.
        declared: the settings of the experiments; by default those of the run's study.
        model: the model to change; by default the local model that the run's study names.
        stage: called with the name of each experiment when it starts; returns a progress callback.

    Returns:
        The results, one per experiment. An experiment of another package that fails is left out.

    Raises:
        FileNotFoundError: if there is no such run or model.
        ValueError: if nothing is declared, the run has no token ids, or an experiment raises an error; the message says
            what to do.
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
    """Return the settings of the experiments (``analysis: interventions:``) that the study of a run declares; empty if
    none.
    """
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
