"""Counterfactual pairs: a grid and a copy with one object moved, so that other actions are optimal.

A pair is used if the agent takes an optimal action in both grids and the two sets of optimal actions are disjoint: the
action then shows the effect of an intervention. In a control pair the sets are equal: the action must not change.
By default, actions are optimal for the goal. Another hypothesis can define optimality (`goals.hypotheses`): for an
agent that heads for a corner, a control pair moves the goal while the agent's own optimal actions stay the same.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.ids import content_id
from goalscope._ground.rng import stream
from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Reply
from goalscope.agents.models.local import LocalModel
from goalscope.agents.parse import turn
from goalscope.goals.counterfactual.worlds import elsewhere
from goalscope.goals.hypotheses import Undefined, finite_world, parse
from goalscope.inside.activations.sites import SiteFinder
from goalscope.runs.record import Step
from goalscope.stats.rows import Tag
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
    """A state of a grid as shown to an agent, from which counterfactuals are made.

    Attributes:
        view: the shown grid, without fog.
        cluster: the grid, the unit of resampling for intervals.
        tags: tags of the rows of its pairs, such as size and density.
    """

    view: GridView
    cluster: str
    tags: Mapping[str, Tag] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """One of the two grids of a pair, and the agent's answer there at temperature 0.

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
        """The turn of this side as a recorded step."""
        start = self.view.grid.start
        assert start is not None  # grids of pairs show their agent
        state = State(start, self.view.carrying_key)
        return Step(index=0, state=state, action=self.action, prompt_tokens=self.prompt, output_tokens=self.output)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """A grid and its counterfactual.

    Attributes:
        moved: the object that differs.
        control: whether the optimal actions are the same on both sides; otherwise they are disjoint.
        cluster, tags: cluster and tags of the original.
        sides: the original and the counterfactual.
        cells: the cells that differ, (row, col).
        changed: ``[C]`` int64 positions of their tokens, the same in both prompts; no other token differs.
        tokenizer: content id of the tokenizer and chat template of the prompts.

    The last three are empty if token ids are unknown.
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
        """Content id of both grids as they are shown."""
        views = [[side.view.text, side.view.carrying_key] for side in self.sides]
        return content_id("pair", {"moved": self.moved, "sides": views})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """The pairs of grids that are used, and the numbers of rejected candidates by reason."""

    kept: tuple[Pair, ...]
    left_out: Mapping[str, int]


def counterfactuals(
    original: Original, moved: Moved, *, control: bool = False, hypothesis: str = GOAL
) -> list[GridView]:
    """Return every grid that differs from an original in one object and has disjoint (control: equal) optimal actions.

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
    """Return the optimal actions in a view; none if agent or goal is hidden, or no path leads to the target.

    Args:
        view: the view.
        hypothesis: the goal for which they are optimal. For goals other than G there are none once a key is carried.
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
    """Return one pair for each original and object to move for which the agent acts optimally on both sides.

    Args:
        agent: a chat agent with a local model; it answers at temperature 0.
        originals: the grids, all different.
        moved: objects to move, see `Moved`.
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
    """Return an agent's local model.

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
    """Find pairs given functions that answer views and align tokens; other arguments as in `find_pairs`.

    Args:
        originals: the grids.
        answer_views: returns the agent's answer in each view where it acts optimally, None elsewhere.
        token_fields: returns the fields of a pair on its differing tokens.
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
    """Ask an agent about some views at temperature 0.

    Returns:
        Each view with the agent's answer, or None if the answer is not optimal.
    """
    sampling = replace(agent.sampling, temperature=0.0, top_p=1.0, top_logprobs=0, max_tokens=max_tokens)
    replies = agent.model.complete([agent.request(Observation(view=view)) for view in views], sampling)
    sides = [side_of(view, reply, hypothesis) for view, reply in zip(views, replies, strict=True)]
    return [None if side is None or not (side.prompt and side.output) else side for side in sides]


def side_of(view: GridView, reply: Reply, hypothesis: str = GOAL) -> Side | None:
    """Return a view with the agent's answer, or None if the answer is not optimal."""
    action, optimal = turn(reply).action, best(view, hypothesis)
    if action not in optimal:
        return None
    prompt, output = reply.prompt_tokens or (), reply.output_tokens or ()
    return Side(view=view, optimal=optimal, prompt=prompt, output=output, action=Action(action))


def tokenizer_of(model: LocalModel) -> str:
    """Return the content id of a model's tokenizer and chat template."""
    files: Any = model.describe()["files"]
    names = [
        name for name in files if name.startswith("tokenizer") or name in ("hub", "revision", "chat_template.jinja")
    ]
    return content_id("tokenizer", {name: files[name] for name in sorted(names)})


def align(
    model: LocalModel, finder: SiteFinder, first: Side, second: Side, cells: Sequence[Position]
) -> npt.NDArray[np.int64]:
    """Return the positions ``[C]`` of the tokens of the cells that differ, the same in both prompts.

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
