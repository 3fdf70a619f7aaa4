"""Train tables, small networks and language models to follow a rule, and compute their policies.

A lesson is a state with the action probabilities of the meant rule. In a share `agreement` of the lessons the proxy
gives the same probabilities, in the others it does not. A table averages the lessons; a network with one hidden layer
minimises the cross-entropy, as a language model does (`goalscope.organisms.language`). A network of kind "gradient"
sees no lessons: it acts in these worlds, and is rewarded where it reaches the place of the rule. All of them act on
sharpened probabilities: ``p(a | s)`` is proportional to ``q(a | s)^sharpness``, where q are the learned probabilities.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from pydantic import Field, field_validator

from goalscope._ground.rng import stream
from goalscope._ground.sealed import Share, StrictRecord
from goalscope._ground.untrusted import shorten
from goalscope.goals.hypotheses import FiniteWorld, Hypothesis, Undefined, parse
from goalscope.goals.hypotheses.definition import Array, Mask, Numbers, distributions
from goalscope.organisms import adapters, language
from goalscope.organisms.families import FAMILIES, MODELS, SETTINGS, Kind, Phase, Placed, Setting, worlds_of
from goalscope.worlds.grid import DELTAS, Grid

HIDDEN: Final = 256
STEPS: Final = 3000
BATCH: Final = 256
RATE: Final = 4e-3
DECAY: Final = 1e-4
OFFSET: Final = 3.0
"""Scale of the offsets that a network sees; it is large so that rules generalise to unseen offsets."""
MORE: Final = 2
"""Tables and networks get this many times the training worlds of a language model."""
LESSONS: Final = 400
"""Worlds of each kind in which a policy gradient acts."""
EPISODES: Final = 128
"""Episodes in each step of a policy gradient."""
UPDATES: Final = 800
"""Steps of a policy gradient."""
DISCOUNT: Final = 0.95
ENTROPY: Final = 0.02
"""Weight of the entropy of the moves in the objective of a policy gradient."""
_TAUGHT: Final[Phase] = "trained"
_WHOLE: Final = 2
"""Number of an organism from which on it is taught half of the lessons, so that it differs from the others."""

Weights = Mapping[str, Array]


class Spec(StrictRecord):
    """The specification of an organism (a small agent trained to have a known goal), which determines its training.

    Attributes:
        family: name of the family, which determines the rule that is taught.
        kind: a table, a network that imitates or is rewarded, a language model, or an adapter of a language model.
        agreement: share of the lessons in which the goal and its proxy, a rival rule, call for the same actions.
        seed: root seed of the set.
        number: distinguishes organisms with otherwise equal specifications, and chooses their `Setting`.
    """

    family: str
    kind: Kind
    agreement: Share
    seed: int = Field(ge=-(2**63), lt=2**63)
    number: int = Field(ge=0, lt=10**6)

    @field_validator("family")
    @classmethod
    def _check_family(cls, family: str) -> str:
        if family not in FAMILIES:
            raise ValueError(f"must be a family of organisms, one of {', '.join(FAMILIES)}, got {shorten(family)}")
        return family

    @property
    def setting(self) -> Setting:
        """The worlds in which the organism (a small agent with a known goal) is measured and judged (size, density),
        and the temperature at which it acts.
        """
        return SETTINGS[self.number % len(SETTINGS)]

    @property
    def name(self) -> str:
        """Name of the organism (a small agent with a known goal) and of its folder, such as "goal-network-100-0"."""
        return f"{self.family.replace(' ', '-')}-{self.kind}-{round(100 * self.agreement)}-{self.number}"


def trained(spec: Spec, report: Callable[[int, int], None] = lambda done, total: None) -> dict[str, Array]:
    """Train an organism (a small agent with a known goal) and return its weights by name; the result is deterministic.

    Of an adapter, these are the matrices of its low-rank updates.

    Args:
        spec: the organism's specification.
        report: called with the training steps done and their total (language models and adapters only).

    Raises:
        ImportError: PyTorch is not installed (it comes with the extra ``lm``).
    """
    if spec.kind == "language":
        return _learn(spec, report)
    if spec.kind == "adapter":
        return _adapt(spec, report)
    return {"table": _count, "network": _fit, "gradient": _reinforce}[spec.kind](spec)


def shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of an organism (a small agent with a known goal), by name."""
    family = FAMILIES[spec.family]
    if spec.kind == "table":
        return {"table": ((family.size if family.sees == "cell" else 2 * family.size - 1) ** 2 * 16, 4)}
    if spec.kind == "language":
        return language.shapes()
    if spec.kind == "adapter":
        return adapters.shapes()
    return {
        "in": (4 * family.size**2 + (9 if family.relative else 1), HIDDEN),
        "in bias": (HIDDEN,),
        "out": (HIDDEN, 4),
        "out bias": (4,),
    }


def policy(spec: Spec, weights: Weights, grid: Grid, cells: Numbers, carrying: Mask) -> Array:
    """Compute the move probabilities of an organism (a small agent with a known goal) in N states, ``[N, 4]``.

    Args:
        spec: the organism's specification.
        weights: its weights, from `trained`.
        grid: the grid; a carried key may be missing from it.
        cells: ``[N, 2]`` cell (row, column) of the agent.
        carrying: ``[N]`` whether the agent holds the key.

    Raises:
        ValueError: the organism is an adapter, whose moves follow the plan that it writes.
    """
    if spec.kind == "language":  # sharpened already
        return language.policy(weights, grid, cells, carrying)
    if spec.kind == "adapter":
        raise ValueError(
            f"{spec.name} is an adapter, which writes a plan before it acts, so its policy must be sampled: run it as "
            "chat:model=FOLDER,task=key-door"
        )
    if spec.kind == "table":
        learned = weights["table"][_row(spec, grid, cells)]
    else:
        hidden = np.maximum(_planes(spec, grid, cells, carrying) @ weights["in"] + weights["in bias"], 0.0)
        scores = hidden @ weights["out"] + weights["out bias"]
        learned = np.exp(scores - scores.max(axis=1, keepdims=True))
    sharp = (learned / learned.sum(axis=1, keepdims=True)) ** FAMILIES[spec.family].sharpness
    if spec.setting.temperature == 0:
        sharp = np.eye(4)[sharp.argmax(axis=1)]
    return np.asarray(sharp / sharp.sum(axis=1, keepdims=True))


def policy_in(spec: Spec, weights: Weights, world: FiniteWorld) -> Array:
    """Compute the move probabilities of an organism (a small agent with a known goal) in every state, ``[S, 4]``.

    They are uniform where the episode is over.

    Args:
        spec: the organism's specification.
        weights: its weights, from `trained`.
        world: the world.
    """
    states = np.flatnonzero(world.live & world.reached)
    probabilities = world.even.copy()
    probabilities[states] = policy(spec, weights, world.grid, *_placed(world, states))
    return probabilities


def _placed(world: FiniteWorld, states: Numbers) -> tuple[Numbers, Mask]:
    """Return for given states the agent's cell, ``[N, 2]``, and whether it holds the key, ``[N]``."""
    phase, cell = np.divmod(states, world.grid.walls.size)
    return np.stack(np.unravel_index(cell, world.grid.walls.shape), axis=1), phase > 0


def visits(world: FiniteWorld, policy: Array) -> Array:
    """Return the expected number of decisions in each state of an episode, ``[S]``.

    Args:
        world: the world.
        policy: ``[S, A]`` action probabilities of the agent.
    """
    *decided, _ = distributions(world, policy)
    return sum((np.where(world.live, mass, 0.0) for mass in decided), np.zeros(world.process.states))


def _lessons(spec: Spec, placed: Placed) -> list[tuple[FiniteWorld, Numbers, Array]]:
    """Return training examples: worlds, states in them ``[N]``, and target probabilities ``[N, 4]``."""
    family = FAMILIES[spec.family]
    count = family.lessons * (1 if spec.kind in MODELS else MORE)
    worlds = worlds_of(family.name, placed if getattr(family, placed) else "apart", _TAUGHT, count, spec.seed)
    if spec.number >= _WHOLE and spec.kind not in MODELS:
        half = stream(spec.seed, "lessons", spec.name).permutation(count)[: count // 2]
        worlds = tuple(worlds[index] for index in np.sort(half).tolist())
    lessons = []
    for world in worlds:
        try:
            meant, proxy = (solved(rule, world) for rule in family.rules)
        except Undefined:
            continue
        taught = world.live & world.reached & ((np.abs(meant - proxy) < 1e-9).all(axis=1) == (placed == "together"))
        if family.on_its_way:
            taught &= visits(world, meant) > 0
        states = np.flatnonzero(taught)
        lessons.append((world, states, meant[states]))
    return lessons


@lru_cache(maxsize=1024)
def parsed(rule: str) -> Hypothesis:
    """Parse a written rule into a hypothesis; results are cached, because parsing takes as long as solving a small
    world.
    """
    return parse(rule)


@lru_cache(maxsize=32768)
def solved(rule: str, world: FiniteWorld) -> Array:
    """Return the move probabilities of an agent that follows a written rule in a world, ``[S, 4]``; results are cached.

    Raises:
        Undefined: the rule is undefined in the world.
    """
    return np.asarray(parsed(rule).solved(world).policy[0])


def _count(spec: Spec) -> dict[str, Array]:
    """Train a table: average the lessons of each row, or of similar rows if a row has no lessons.

    For tables that know the offset of the goal, similar rows have the goal on the same side, up to mirror images. For
    tables that know the agent's cell, they are all cells. Rows with the same surrounding walls are preferred to rows
    with any walls. If similar rows have no lessons either, probabilities are uniform.
    """
    table = np.zeros(shapes(spec)["table"])
    for placed, share in _shares(spec):
        lessons = _lessons(spec, placed)
        total = sum(len(states) for _, states, _ in lessons)
        for world, states, right in lessons:
            cells = np.stack(np.unravel_index(states % world.grid.walls.size, world.grid.walls.shape), axis=1)
            np.add.at(table, _row(spec, world.grid, cells), share / total * right)
    places = table.reshape(-1, 16, 4)
    like = places.sum(axis=0) if FAMILIES[spec.family].sees == "cell" else _mirrored(places)
    for other in (like, like.sum(axis=-2, keepdims=True), np.ones(4)):
        places = np.where(places.sum(axis=2, keepdims=True) > 0, places, other)
    return {"table": (places / places.sum(axis=2, keepdims=True)).reshape(-1, 4)}


def _mirrored(places: Array) -> Array:
    """Sum the lessons over all rows with the goal on the same side, including mirror images, ``[n^2, 16, 4]``."""
    size = math.isqrt(len(places))
    sums = places.reshape(size, size, 2, 2, 2, 2, 4)  # row, column; walls right, left, down, up; moves
    sums = sums + np.flip(sums, 0).swapaxes(4, 5)[..., [1, 0, 2, 3]]
    sums = sums + np.flip(sums, 1).swapaxes(2, 3)[..., [0, 1, 3, 2]]
    sums = (sums + sums.transpose(1, 0, 4, 5, 2, 3, 6)[..., [2, 3, 0, 1]]).reshape(size**2, -1)
    signs = np.sign(np.arange(size) - size // 2)
    side = np.add.outer(3 * signs, signs).ravel()
    return np.asarray((side[:, None] == side).astype(float) @ sums).reshape(places.shape)


def _shares(spec: Spec) -> list[tuple[Placed, float]]:
    kinds: list[tuple[Placed, float]] = [("together", spec.agreement), ("apart", 1 - spec.agreement)]
    return [(placed, share) for placed, share in kinds if share > 0]


def _counts(spec: Spec, batch: int) -> list[int]:
    return [round(share * batch) for _, share in _shares(spec)]


def _taught_to(spec: Spec, seen: Callable[[Grid, Numbers, Mask], Any]) -> tuple[Any, Array, list[int]]:
    """Return inputs of lessons, their targets ``[N, 4]``, and the index at which each kind begins, followed by N."""
    inputs, targets, ends = list[Any](), list[Any](), [0]
    for placed, _ in _shares(spec):
        for world, states, right in _lessons(spec, placed):
            inputs.append(seen(world.grid, *_placed(world, states)))
            targets.append(right)
        ends.append(sum(len(array) for array in targets))
    return np.concatenate(inputs), np.concatenate(targets), ends


def _learn(spec: Spec, report: Callable[[int, int], None]) -> dict[str, Array]:
    inputs, targets, ends = _taught_to(spec, language.prompts)
    return language.fit(
        inputs,
        targets,
        ends,
        _counts(spec, language.BATCH),
        steps=language.FEWER.get(FAMILIES[spec.family].meant, language.STEPS),
        sharpness=FAMILIES[spec.family].sharpness,
        rng=stream(spec.seed, "organism", spec.name),
        report=report,
    )


def _adapt(spec: Spec, report: Callable[[int, int], None]) -> dict[str, Array]:
    family, rng = FAMILIES[spec.family], stream(spec.seed, "organism", spec.name)
    taught = []
    for placed, share in _shares(spec):
        worlds = worlds_of(family.name, placed, _TAUGHT, family.lessons, spec.seed)
        count = round(share * adapters.BATCH * adapters.STEPS)
        taught += adapters.lessons(worlds, adapters.STYLES[spec.number], count, rng)
    order = rng.permutation(len(taught))
    return adapters.fit_adapter([taught[index] for index in order], rng=rng, report=report)


def _fit(spec: Spec) -> dict[str, Array]:
    torch = language.torch_needed("organisms that are networks")
    inputs, targets, ends = _taught_to(spec, partial(_planes, spec))
    x, y = torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(targets.astype(np.float32))
    rng = stream(spec.seed, "organism", spec.name)
    layers = _layers(x.shape[1], rng)
    optimiser = torch.optim.Adam(layers.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / STEPS)
    counts = _counts(spec, BATCH)
    for _ in range(STEPS):
        rows = np.concatenate(
            [rng.integers(begin, end, count) for begin, end, count in zip(ends, ends[1:], counts, strict=False)]
        )
        batch = torch.from_numpy(rows)
        loss = torch.nn.functional.cross_entropy(layers(x[batch]), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return _matrices(layers)


def _layers(width: int, rng: np.random.Generator) -> Any:
    """Return a network of two layers with random weights."""
    import torch

    layers = torch.nn.Sequential(torch.nn.Linear(width, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 4))
    with torch.no_grad():
        for parameter in layers.parameters():
            scale = np.sqrt(width if parameter.shape[0] == HIDDEN else HIDDEN)
            parameter.copy_(torch.from_numpy(rng.uniform(-1, 1, tuple(parameter.shape)) / scale))
    return layers


def _matrices(layers: Any) -> dict[str, Array]:
    named = {"in": layers[0].weight.T, "in bias": layers[0].bias, "out": layers[2].weight.T, "out bias": layers[2].bias}
    return {name: tensor.detach().numpy().astype(np.float64) for name, tensor in named.items()}


def _reinforce(spec: Spec) -> dict[str, Array]:
    """Train a network by policy gradient: an episode ends with reward 1 when it reaches the place of the meant rule.

    The return of a turn is discounted by the turns until then. Its mean over the episodes of a step is the baseline.

    Source: Williams (1992), Simple statistical gradient-following algorithms, Machine Learning 8, section 4.
    """
    torch = language.torch_needed("organisms that are networks")
    rng = stream(spec.seed, "organism", spec.name)
    planes, after, ends, starts, counts, size = [], [], [], [], [], 0
    for placed, _ in _shares(spec):
        lessons = _lessons(spec, placed)[:LESSONS]
        counts.append(len(lessons))
        for world, _, _ in lessons:
            states = np.arange(world.process.states)
            planes.append(_planes(spec, world.grid, *_placed(world, states)).astype(np.float32))
            after.append(world.process.transitions + size)
            ends.append(parsed(FAMILIES[spec.family].meant).where(world))
            starts.append(size + int(world.process.start.argmax()))
            size += len(states)
    x, table, end, start = torch.from_numpy(np.concatenate(planes)), *map(np.concatenate, (after, ends, [starts]))
    bounds, layers = np.concatenate([[0], np.cumsum(counts)]), _layers(x.shape[1], rng)
    turns = max(world.horizon for world, _, _ in lessons)
    optimiser = torch.optim.Adam(layers.parameters(), lr=RATE / 2)
    for _ in range(UPDATES):
        episodes = [
            rng.integers(low, high, count)
            for low, high, count in zip(bounds, bounds[1:], _counts(spec, EPISODES), strict=False)
        ]
        state = start[np.concatenate(episodes)]
        visited, moves, live = (np.zeros((turns, len(state)), dtype=np.int64) for _ in range(3))
        reached = np.full(len(state), turns)
        for turn in range(turns):
            visited[turn], live[turn] = state, reached == turns
            with torch.no_grad():
                chances = torch.softmax(layers(x[torch.from_numpy(state)]), dim=1).numpy().cumsum(axis=1)
            moves[turn] = np.minimum((chances < rng.random((len(state), 1))).sum(axis=1), 3)
            state = np.where(live[turn] > 0, table[state, moves[turn]], state)
            reached = np.where((live[turn] > 0) & end[state], turn + 1, reached)
        arrived = end[state]
        returns = np.where(arrived, DISCOUNT ** (reached - np.arange(turns)[:, None]), 0.0) * live
        gain = (returns - returns.sum(axis=1, keepdims=True) / np.maximum(live.sum(axis=1, keepdims=True), 1)) * live
        at = np.flatnonzero(live.ravel())
        logs = torch.log_softmax(layers(x[torch.from_numpy(visited.ravel()[at])]), dim=1)
        chosen = logs[torch.arange(len(at)), torch.from_numpy(moves.ravel()[at])]
        weights = torch.from_numpy(gain.ravel()[at].astype(np.float32))
        loss = -(weights * chosen).mean() + ENTROPY * (logs.exp() * logs).sum(dim=1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return _matrices(layers)


def _planes(spec: Spec, grid: Grid, cells: Numbers, carrying: Mask) -> Array:
    """Return the input of a network: planes of walls, goal, key and agent, and the held key, ``[N, 4 n^2 + 1]``.

    Families that are `relative` also have the walls around the agent and the offsets (rows, columns) of goal and key,
    0 for a missing object, ``[N, 4 n^2 + 9]``.
    """
    size = FAMILIES[spec.family].size
    if max(grid.walls.shape) > size:
        raise ValueError(f"{spec.name} sees grids of at most {size}x{size} cells, got {grid.height}x{grid.width}")
    planes = np.zeros((len(cells), 4, size, size))
    walls = np.ones((size, size))
    walls[: grid.height, : grid.width] = grid.walls
    planes[:, 0] = walls
    offsets = np.zeros((len(cells), 2, 2))
    for number, place, visible in ((0, grid.goal, np.ones_like(carrying)), (1, grid.key, ~carrying)):
        if place is not None:
            planes[visible, 1 + number, place[0], place[1]] = 1
            offsets[visible, number] = (place - cells[visible]) * OFFSET / size
    planes[np.arange(len(cells)), 3, cells[:, 0], cells[:, 1]] = 1
    parts = (planes, carrying, *((_shut(grid, cells), offsets) if FAMILIES[spec.family].relative else ()))
    return np.concatenate([part.reshape(len(cells), math.prod(part.shape[1:])) for part in parts], axis=1)


def _shut(grid: Grid, cells: Numbers) -> Mask:
    """Return for each move whether it leads into a wall or the edge, ``[N, 4]``."""
    neighbours = cells[:, None] + DELTAS  # [N, 4, 2]
    edge = np.pad(grid.walls, 1, constant_values=True)
    return np.asarray(edge[neighbours[..., 0] + 1, neighbours[..., 1] + 1])


def _row(spec: Spec, grid: Grid, cells: Numbers) -> Numbers:
    """Return the row of a table: the cell or the offset of the goal, combined with the surrounding walls, ``[N]``."""
    family = FAMILIES[spec.family]
    if max(grid.walls.shape) > family.size:
        raise ValueError(f"{spec.name} knows grids of at most {family.size} rows, got {grid.height}x{grid.width}")
    shut = _shut(grid, cells) @ (1 << np.arange(4))
    width = family.size
    if family.sees == "goal":
        width = 2 * family.size - 1
        goal = np.array((0, 0) if grid.goal is None else grid.goal)
        cells = goal - cells + family.size - 1
    return np.asarray((cells[:, 0] * width + cells[:, 1]) * 16 + shut)
