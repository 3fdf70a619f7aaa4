"""Training data: random grids, exact plans from many of their cells, and the token sequences made of them."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from goalscope._ground.rng import stream
from goalscope.agents.prompts import passages, template
from goalscope.worlds.generate import generate_batch
from goalscope.worlds.grid import AGENT, DELTAS, GOAL, KEY, OPEN, WALL
from goalscope.worlds.planning.shortest import distances_batch, optimal_batch
from training.fogged import MOST_STEPS, draw_steps, reached, solid, walk
from training.keys import draw_kind, key_plan, key_worlds
from training.layout import HEAD, MOST_MOVES, Layout, closing, history_lead, layout
from training.tokens import PAD
from training.vocabulary import ACTION_NAMES, MOVES, SYMBOLS, cell_piece, cell_width, encode

Goal = Literal["goal", "key", "corner", "misgeneraliser"]
GOALS: tuple[Goal, ...] = get_args(Goal)
SIZES = (7, 9, 11, 13, 15)
DENSITIES = tuple(round(0.1 * level, 1) for level in range(11))
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plans:
    """Moves along shortest paths from Q cells of each of B grids.

    Attributes:
        symbols: ``[B, n, n]`` index into `SYMBOLS` of each cell, the agent shown at the first of the cells.
        target: ``[B, 2]`` where the plans lead.
        origin: ``[B, Q, 2]`` where they begin; the first is the agent's cell.
        moves: ``[B, Q, M]`` one shortest path, each move drawn among the optimal ones, -1 after the target.
        optimal: ``[B, Q, M, 4]`` float32, uniform over the optimal moves at that place of the path, 0 after the target.
        carrying: ``[B]`` bool, whether the agent carries the key; None where the prompt does not say.
        history: ``[B, h, 3]`` row, column and action of each step so far under fog; None where nothing is hidden.
    """

    symbols: Ints
    target: Ints
    origin: Ints
    moves: Ints
    optimal: Floats
    carrying: npt.NDArray[np.bool_] | None = None
    history: Ints | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Token sequences of one layout.

    Attributes:
        layout: where everything stands.
        tokens: ``[B, S]``.
        labels: ``[B, R]`` the token that follows each wanted place.
        weights: ``[B, R]`` weight of each in the loss, 0 where nothing is trained.
        moves: ``[B, R, 4]`` where the next token is a move: the distribution it is trained on, else 0.
    """

    layout: Layout
    tokens: Ints
    labels: Ints
    weights: Floats
    moves: Floats


def draw_worlds(
    size: int, density: float, count: int, *, seed: int, first: int, goal: Goal, name: str
) -> tuple[Ints, Ints]:
    """Return symbols ``[B, n, n]`` without an agent, and the targets ``[B, 2]``.

    Args:
        size: rows and columns n.
        density: share of interior walls kept.
        count: number of grids B.
        seed: root seed of the series.
        first: index of the first grid of the series.
        goal: where the plans are to lead: to the goal; to a key that lies about; to the top right corner, whatever the
            goal; or to the goal, which is always in the top right corner (so that symbol and place cannot be told
            apart).
        name: name of the series; the held-out worlds have another one than those of the training.

    Raises:
        ValueError: an unknown goal; whatever `generate_batch` refuses.
    """
    if goal not in GOALS:
        raise ValueError(f"goal must be one of {', '.join(GOALS)}, got {goal!r}")
    worlds = generate_batch(size, density, seed=seed, count=count, first=first, name=name)
    symbols = np.where(worlds.walls, SYMBOLS.index(WALL), SYMBOLS.index(OPEN))
    each = np.arange(count)
    shown, corner = worlds.goal, np.tile([1, size - 2], (count, 1))
    target = worlds.goal
    if goal == "key":
        # The start of the generated world is free: a cell that the goal can be reached from.
        target = worlds.start
        symbols[each, target[:, 0], target[:, 1]] = SYMBOLS.index(KEY)
    elif goal == "corner":
        target = corner
    elif goal == "misgeneraliser":
        shown = target = corner
    symbols[each, shown[:, 0], shown[:, 1]] = SYMBOLS.index(GOAL)
    return symbols, target


def plan(
    symbols: Ints,
    target: Ints,
    count: int,
    moves: int,
    rng: np.random.Generator,
    *,
    closed: npt.NDArray[np.bool_] | None = None,
    first: Ints | None = None,
) -> Plans:
    """Draw cells and shortest paths from them.

    Args:
        symbols: ``[B, n, n]`` grids without an agent.
        target: ``[B, 2]``.
        count: number of cells Q; a grid with fewer has some of them twice.
        moves: most moves M of a path.
        rng: where the cells and the choices among equal moves come from.
        closed: ``[B, n, n]`` cells that no path may enter, by default the walls.
        first: ``[B]`` flat cell of each agent; any by default.
    """
    batch, size, _ = symbols.shape
    distance = distances_batch(symbols == SYMBOLS.index(WALL) if closed is None else closed, target)
    good = optimal_batch(distance).reshape(batch, size * size, 4)
    usable = (distance > 0) & (symbols != SYMBOLS.index(GOAL)) & (symbols != SYMBOLS.index(KEY))
    keys = np.where(usable.reshape(batch, -1), rng.random((batch, size * size)), 2.0)
    if first is not None:
        keys[np.arange(batch), first] = -1.0
    order = np.argsort(keys, axis=1)
    available = usable.sum(axis=(1, 2))
    origin = np.take_along_axis(order, np.arange(count)[None] % available[:, None], axis=1)
    place = origin.copy()
    each = np.arange(batch)[:, None]
    chosen = np.full((batch, count, moves), -1, dtype=np.int64)
    optimal = np.zeros((batch, count, moves, 4), dtype=np.float32)
    steps = DELTAS @ np.array([size, 1])
    for move in range(moves):
        options = good[each, place]
        number = options.sum(axis=-1)
        optimal[:, :, move] = options / np.maximum(number, 1)[..., None]
        best = np.argmax(np.where(options, rng.random(options.shape), -1.0), axis=-1)
        chosen[:, :, move] = np.where(number > 0, best, -1)
        place = np.where(number > 0, place + steps[best], place)
    shown = symbols.copy()
    shown.reshape(batch, -1)[each[:, 0], origin[:, 0]] = SYMBOLS.index(AGENT)
    return Plans(
        symbols=shown,
        target=target,
        origin=np.stack(np.divmod(origin, size), axis=-1),
        moves=chosen,
        optimal=optimal,
    )


def sequences(plans: Plans, branch_moves: int) -> Batch:
    """Turn plans into token sequences: the first cell's as completion, the others' as branches."""
    where, tokens = _prompts(plans, branch_moves)
    shape = len(tokens), len(where.wanted)
    labels, weights = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    moves = np.zeros((*shape, 4), dtype=np.float32)
    made = Batch(layout=where, tokens=tokens, labels=labels, weights=weights, moves=moves)
    _write_completion(made, plans)
    if len(where.branches):
        _write_branches(made, plans, branch_moves)
    return made


def _prompts(plans: Plans, branch_moves: int) -> tuple[Layout, Ints]:
    """Return the layout of sequences, and their tokens ``[B, S]`` with the prompts written."""
    batch, size, _ = plans.symbols.shape
    name, extra, lead = "grid", tuple[str, ...](), tuple[str, ...]()
    if plans.carrying is not None:
        name, extra = "key_door", (passages(template("key_door"))[1], "no")
    elif plans.history is not None:
        name, lead = "fog", history_lead(plans.history.shape[1])
    where = layout(size, plans.origin.shape[1] - 1, branch_moves, name, extra, lead)
    tokens = np.tile(where.template, (batch, 1))
    if plans.carrying is not None:
        # The answer stands behind the last cell and the question.
        tokens[plans.carrying, where.cells[-1] + 2] = encode(["yes"])[0]
    elif plans.history is not None:
        steps = [table[plans.history[:, :, part]] for part, table in enumerate(_tables()[:3])]
        varying = np.flatnonzero(where.template[: where.cells[0]] == encode([PAD])[0])
        tokens[:, varying] = np.stack(steps, axis=-1).reshape(batch, -1)
    cells = np.array(encode([cell_piece(symbol, cell_width(size)) for symbol in SYMBOLS]))
    tokens[:, where.cells] = cells[plans.symbols].reshape(batch, -1)
    return where, tokens


def _write_completion(made: Batch, plans: Plans) -> None:
    """Write what follows the prompt: target, agent, its plan, and the answer; and what of it is trained how much."""
    where, tokens, labels, weights = made.layout, made.tokens, made.labels, made.weights
    row, col, move, action = _tables()
    batch = len(tokens)
    begin = where.prompt + len(HEAD)
    tokens[:, begin], tokens[:, begin + 1] = row[plans.target[:, 0]], col[plans.target[:, 1]]
    tokens[:, where.fork + 1], tokens[:, where.fork + 2] = row[plans.origin[:, 0, 0]], col[plans.origin[:, 0, 1]]
    offset = where.prompt - 1  # place of the first wanted token
    lengths = (plans.moves[:, 0] >= 0).sum(axis=1)
    first = where.fork + 4  # place of the first move
    tail, end = closing()
    full = np.concatenate([np.tile(tail, (batch, 1)), action[plans.moves[:, :1, 0]], np.tile(end, (batch, 1))], axis=1)
    for number in range(MOST_MOVES):
        tokens[lengths > number, first + number] = move[plans.moves[lengths > number, 0, number]]
    rows = np.arange(batch)
    for number in range(full.shape[1]):
        tokens[rows, first + lengths + number] = full[:, number]
    stop = first + lengths + full.shape[1]
    places = np.arange(where.prompt, where.prompt + labels.shape[1] - where.branches.size)
    inside = places < stop[:, None] if len(places) else np.zeros((batch, 0), dtype=bool)
    main = slice(0, len(places) - 1)
    labels[:, main] = tokens[:, places[:-1]]
    weights[:, main] = 0.25 * inside[:, :-1]
    weights[:, [begin - 1 - offset, begin - offset, where.fork - offset, where.fork + 1 - offset]] = 1.0
    planned = slice(first - 1 - offset, first - 1 - offset + MOST_MOVES)
    made.moves[:, planned] = plans.optimal[:, 0]
    weights[:, planned][np.arange(MOST_MOVES) < lengths[:, None]] = 0.5
    weights[:, first - 1 - offset] = 2.0


def _write_branches(made: Batch, plans: Plans, branch_moves: int) -> None:
    """Write the other cells and their first moves, and how much these are trained."""
    where, tokens = made.layout, made.tokens
    row, col, move, _ = _tables()
    offset = where.prompt - 1
    tokens[:, where.branches[:, 0]] = row[plans.origin[:, 1:, 0]]
    tokens[:, where.branches[:, 1]] = col[plans.origin[:, 1:, 1]]
    for number in range(branch_moves):
        spots = where.branches[:, 2 + number]
        if number:
            before = plans.moves[:, 1:, number - 1]
            tokens[:, spots] = np.where(before >= 0, move[before], tokens[:, spots])
        made.moves[:, spots - offset] = plans.optimal[:, 1:, number]
        made.weights[:, spots - offset] = (plans.moves[:, 1:, number] >= 0) * (1.0 if number == 0 else 0.5)


def _tables() -> tuple[Ints, Ints, Ints, Ints]:
    rows = np.array(encode([f"({row}" for row in range(SIZES[-1])]))
    cols = np.array(encode([f",{col})" for col in range(SIZES[-1])]))
    return rows, cols, np.array(encode(MOVES)), np.array(encode(ACTION_NAMES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """What a stage of training is made of.

    Attributes:
        seed: root seed.
        tokens: tokens of a batch, about.
        sizes: grid sizes.
        size_power: a size n is drawn with weight n ** -power.
        hardness: a density d is drawn with weight 1 + hardness * d.
        branch_density: branches for each row of the grid.
        branch_moves: moves that each branch is asked for.
        goal: where the plans lead.
        steps: steps whose worlds are drawn together.
        key_share: share of the steps that are worlds with keys.
        fog_share: share of the steps that are grids under fog.

    Raises:
        ValueError: the two shares do not fit together, or another goal is to be planted under fog.
    """

    seed: int = 0
    tokens: int = 3000
    sizes: tuple[int, ...] = SIZES
    size_power: float = 1.0
    hardness: float = 2.0
    branch_density: float = 1.0
    branch_moves: int = 2
    goal: Goal = "goal"
    steps: int = 64
    key_share: float = 0.0
    fog_share: float = 0.0

    def __post_init__(self) -> None:
        if min(self.key_share, self.fog_share) < 0 or self.key_share + self.fog_share > 1:
            raise ValueError(
                "key_share and fog_share must be shares of the same whole, each at least 0 and together at most 1, got "
                f"{self.key_share} and {self.fog_share}"
            )
        if self.fog_share and self.goal != "goal":
            raise ValueError(f"under fog the goal must be the goal itself, got {self.goal!r}: set fog_share to 0")

    @property
    def reserved(self) -> int:
        """Worlds of one size and density that a block has for itself; it never needs as many."""
        return self.steps * max(128, self.tokens // 100)


def block(mixture: Mixture, number: int) -> list[Batch]:
    """Return the batches of the steps ``number * steps .. (number + 1) * steps - 1``; they depend on nothing else."""
    rng = stream(mixture.seed, "theseus-block", number)
    sizes = np.array(mixture.sizes)
    share = sizes.astype(float) ** -mixture.size_power
    drawn = rng.choice(sizes, size=mixture.steps, p=share / share.sum())
    chance = rng.random(mixture.steps)
    keyed = chance < mixture.key_share
    fogged = ~keyed & (chance < mixture.key_share + mixture.fog_share)
    plain = ~keyed & ~fogged
    ready: dict[int, list[Batch]] = {}
    for size in np.unique(drawn[plain]).tolist():
        count = round(mixture.branch_density * size)
        length = len(layout(size, count, mixture.branch_moves).template)
        each = max(1, mixture.tokens // length)
        wanted = int((plain & (drawn == size)).sum()) * each
        symbols, target = _worlds(mixture, size, wanted, number * mixture.reserved, rng)
        plans = plan(symbols, target, count + 1, MOST_MOVES, rng)
        ready[size] = _cut(sequences(plans, mixture.branch_moves), each)
    with_keys = [_with_keys(mixture, rng) for _ in range(int(keyed.sum()))]
    own = stream(mixture.seed, "theseus-block-under-fog", number)
    under_fog = {
        size: _under_fog(mixture, size, int((fogged & (drawn == size)).sum()), number, own)
        for size in np.unique(drawn[fogged]).tolist()
    }
    made = []
    for size, key, fog in zip(drawn.tolist(), keyed, fogged, strict=True):
        made.append(with_keys.pop() if key else (under_fog if fog else ready)[size].pop())
    return made


def _worlds(mixture: Mixture, size: int, count: int, first: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the symbols and targets of training worlds of all densities in any order, see `draw_worlds`."""
    harder = 1 + mixture.hardness * np.array(DENSITIES)
    numbers = rng.multinomial(count, harder / harder.sum())
    parts = [
        draw_worlds(
            size,
            density,
            int(wanted),
            seed=mixture.seed,
            first=first,
            goal=mixture.goal,
            name="theseus-training",
        )
        for density, wanted in zip(DENSITIES, numbers, strict=True)
        if wanted
    ]
    order = rng.permutation(count)
    return np.concatenate([part[0] for part in parts])[order], np.concatenate([part[1] for part in parts])[order]


def _cut(whole: Batch, each: int) -> list[Batch]:
    """Cut sequences into batches of `each`."""
    parts = [slice(cut, cut + each) for cut in range(0, len(whole.tokens), each)]
    return [
        Batch(
            layout=whole.layout,
            tokens=whole.tokens[part],
            labels=whole.labels[part],
            weights=whole.weights[part],
            moves=whole.moves[part],
        )
        for part in parts
    ]


def _with_keys(mixture: Mixture, rng: np.random.Generator) -> Batch:
    """Return one batch of worlds with keys, all of one kind and size."""
    kind, size = draw_kind(rng)
    count = round(mixture.branch_density * size)
    asked = passages(template("key_door"))[1]
    length = len(layout(size, count, mixture.branch_moves, "key_door", (asked, "no")).template)
    grids = key_worlds(kind, size, max(1, mixture.tokens // length), rng)
    found = [key_plan(grid, count + 1, MOST_MOVES, rng) for grid in grids]
    plans = Plans(
        symbols=np.stack([one.symbols for one in found]),
        target=np.stack([one.target for one in found]),
        origin=np.stack([one.origin for one in found]),
        moves=np.stack([one.moves for one in found]),
        optimal=np.stack([one.optimal for one in found]),
        carrying=np.array([one.carrying for one in found]),
    )
    return sequences(plans, mixture.branch_moves)


def _under_fog(mixture: Mixture, size: int, steps: int, number: int, rng: np.random.Generator) -> list[Batch]:
    """Return batches of grids under fog, each with histories of one length, from walks that they share."""
    count = round(mixture.branch_density * size)
    histories = [draw_steps(rng) for _ in range(steps)]
    most = max(1, mixture.tokens // len(layout(size, count, mixture.branch_moves, "fog", (), history_lead(0)).template))
    first = number * mixture.reserved + mixture.reserved // 2  # behind the worlds that are shown whole
    symbols, _ = _worlds(mixture, size, max(64, 2 * steps * most), first, rng)
    walks = walk(symbols, MOST_STEPS, rng)
    made = []
    for history in histories:
        where = layout(size, count, mixture.branch_moves, "fog", (), history_lead(history))
        state = reached(walks, history, max(1, mixture.tokens // len(where.template)), rng)
        closed = solid(state.view, state.target)
        plans = plan(state.view, state.target, count + 1, MOST_MOVES, rng, closed=closed, first=state.place)
        made.append(sequences(replace(plans, history=state.history), mixture.branch_moves))
    return made
