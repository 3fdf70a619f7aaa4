"""Size or layout? Small learners read grids as text, with and without the padding that begins at size 11.

A learner is a transformer with two blocks of width 64 whose tokens are those of the vocabulary o200k and read each
other both ways. Every token of an open cell is taught the optimal moves from its cell; the learner moves by what the
token of the agent says, and probes read that token's state. Each learner is taught twice, from the same initial weights
and on the same grids: once on padded text (`matrix`) and once on unpadded text (`compact`).

    step(q) = q(9) - q(11) - ((q(7) - q(9)) + (q(11) - q(13))) / 2

is by how much a quantity q falls more between sizes 9 and 11 than on average next to them. The deciding number is the
step on padded text less the step on unpadded text, paired by learner. The rules are in docs/small-learners.md.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from pydantic import Field

from goalscope._ground.folder import Folder
from goalscope._ground.ids import content_id
from goalscope._ground.progress import Display, lines
from goalscope._ground.rng import stream
from goalscope._ground.sealed import Ends, StrictRecord
from goalscope.agents.models.local import initialise_gpt2
from goalscope.goals.hypotheses.definition import Array, Mask, Numbers
from goalscope.inside.probing import RECOVERY, Decisions, ProbeInputs, from_arrays, probe_cells
from goalscope.inside.probing.beliefs import DIFFERENCE, compare_beliefs
from goalscope.inside.probing.scores import UNDETERMINED_PRECISION, Grids, Measured
from goalscope.inside.probing.suite import Entry
from goalscope.organisms.cards import OrganismRows, mean_with_ends, of_each
from goalscope.organisms.language import DECAY, RATE, WIDTH, descend, final_states, one_thread, shapes, torch_needed
from goalscope.stats.rows import Rows
from goalscope.worlds import Grid
from goalscope.worlds.generate import GridBatch, generate_batch
from goalscope.worlds.grid import ACTIONS, AGENT, COMPACT, GOAL, MATRIX, OPEN, WALL, cell_offsets, written
from goalscope.worlds.planning.shortest import distances_batch, optimal_batch

SIZES: Final = (7, 9, 11, 13, 15)
DENSITIES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
Layout = Literal["matrix", "compact"]
LAYOUTS: Final[tuple[Layout, ...]] = (MATRIX, COMPACT)
"""Padded and unpadded text. At sizes 7 and 9 both are the same."""
LEARNERS: Final = 10
STEPS: Final = 900
"""Batches of a training, each of one size; the sizes take turns."""
BATCH: Final = 8
EACH: Final = 100
"""Grids of each size and density on which a learner is examined; probes are fitted on three quarters of them."""
CONFIDENCE: Final = 1 - 0.05 / 3
"""Confidence of each interval, so that the intervals of the three deciding measures hold jointly with 95 %."""
TOKENS: Final = (
    *("\n", " ", "   ", *(f" {symbol}" for symbol in (WALL, OPEN, AGENT, GOAL)), f" {WALL}\n"),
    *map(str, range(SIZES[-1])),
)
"""The tokens of o200k that occur in such texts."""
_PIECES: Final = re.compile(r" ?[#_]+\n?| ?[A-Z]|\d{1,3}|\n|\s+(?!\S)|\s")  # how o200k cuts such texts
_POSITIONS: Final = 516  # tokens of the longest text
_WARM: Final = 50  # steps over which the rate rises
_TOGETHER: Final = 50  # grids of one pass

Measure = Literal["accuracy", "goal distance", "goal read", "agent read", "walls read", "recovery less shuffled"]
MARGINS: Final[Mapping[Measure, float]] = {"accuracy": 0.05, "goal distance": 0.25, "recovery less shuffled": 0.05}
"""The deciding measures; an effect whose interval lies within the margin (shares, and cells) counts as none."""
_READ: Final[Mapping[Measure, tuple[str, str]]] = {
    "goal distance": ("localisation distance", "goal"),
    "goal read": ("localisation", "goal"),
    "agent read": ("localisation", "agent"),
    "walls read": (UNDETERMINED_PRECISION, "wall"),
}
Network = Literal["own", "shuffled", "initial", "permuted"]
"""Whose activations the probe reads; "shuffled" are the learner's own with the labels of other grids."""
Quantity = Literal["step, padded", "step, unpadded", "layout in the step", "layout at 11 to 15", "layout at 7 and 9"]
QUANTITIES: Final[tuple[Quantity, ...]] = get_args(Quantity)
_NETWORKS: Final[tuple[Network, ...]] = get_args(Network)
_STEP: Final = np.array([-0.5, 1.5, -1.5, 0.5, 0.0])  # weights of the sizes in the step


class LayoutRow(StrictRecord):
    """One measured value of one learner, a small transformer that reads grids as text, in grids of one size.

    Attributes:
        learner: number of the learner, which is also the seed of its weights and grids.
        layout: the form of text (padded or not) on which the learner was taught and tested.
        size: number of rows of the grids.
        measure: what was measured.
        network: whose activations a probe reads; "own" for accuracy.
        value: mean over grids.
        grids: number of grids.
    """

    learner: int = Field(ge=0)
    layout: Layout
    size: int
    measure: Measure
    network: Network
    value: float
    grids: int = Field(ge=1)


class LayoutEffect(StrictRecord):
    """By how much a measure differs between sizes of grids or layouts of their text, as mean over learners.

    Attributes:
        measure, network: as in `LayoutRow`.
        quantity: the difference, see the module's docstring.
        value: the mean with its interval over learners (`CONFIDENCE`).
        learners: number of learners; one that lacks a value, such as a recovery without an error, is left out.
    """

    measure: Measure
    network: Network
    quantity: Quantity
    value: Ends
    learners: int

    @property
    def answer(self) -> str:
        """What the effect shows: "rises", "falls", "within the margin" or "not shown".

        "Within the margin" means that the whole interval lies closer to 0 than the margin of the measure.
        """
        (_, low, high), margin = self.value, MARGINS.get(self.measure, 0.0)
        inside = -margin < low and high < margin
        return "rises" if low > 0 else "falls" if high < 0 else "within the margin" if inside else "not shown"


def tokens_of(text: str) -> list[int]:
    """Split the text of a grid into tokens, as indices in `TOKENS`.

    Raises:
        ValueError: the text has other tokens, as that of a larger grid or of one with a key.
    """
    pieces = _PIECES.findall(text)
    if "".join(pieces) != text or not set(pieces) <= set(TOKENS):
        raise ValueError(f"a learner reads grids of {SIZES[0]} to {SIZES[-1]} rows without keys, got {text[:80]!r}")
    return [TOKENS.index(piece) for piece in pieces]


@lru_cache(maxsize=len(SIZES) * len(LAYOUTS))
def template(size: int, layout: str) -> tuple[Numbers, Numbers]:
    """Return the text of a grid as tokens, with walls in all cells, into which the cells of a grid are filled.

    Args:
        size: number n of rows and columns.
        layout: form of the text, one of `LAYOUTS`.

    Returns:
        ``[T]`` tokens; and ``[n * n]`` for each cell, row by row, the position of its token.
    """
    matrix = Grid(walls=np.ones((size, size), dtype=bool), start=None, goal=None).render()
    text = written(layout, matrix)
    offsets = cell_offsets(matrix, text)
    assert offsets is not None
    ends = np.cumsum([len(piece) for piece in _PIECES.findall(text)])
    starts = [offsets[divmod(cell, size)] for cell in range(size**2)]
    return np.array(tokens_of(text)), np.searchsorted(ends, starts, "right")


def texts(batch: GridBatch, layout: str) -> Numbers:
    """Return the texts of B grids of one size as T tokens each, ``[B, T]``.

    Args:
        batch: the grids.
        layout: form of the text, one of `LAYOUTS`.
    """
    size, rows = batch.walls.shape[1], np.arange(len(batch))
    tokens, places = template(size, layout)
    symbols = np.where(batch.walls, TOKENS.index(f" {WALL}"), TOKENS.index(f" {OPEN}"))
    for cells, symbol in ((batch.goal, GOAL), (batch.start, AGENT)):
        symbols[rows, cells[:, 0], cells[:, 1]] = TOKENS.index(f" {symbol}")
    filled, within = np.tile(tokens, (len(batch), 1)), places.reshape(size, size)[1:-1, 1:-1]
    filled[:, within] = symbols[:, 1:-1, 1:-1]
    return filled


def initial(learner: int) -> dict[str, Any]:
    """Return the tensors that a learner (small transformer) starts from, by name.

    They are the same for both layouts of the text; embeddings of positions start as sinusoids.

    Args:
        learner: number of the learner, which is also its seed.
    """
    torch = torch_needed()
    sizes = shapes()
    sizes["transformer.wte.weight"] = len(TOKENS) + len(ACTIONS), WIDTH
    sizes["transformer.wpe.weight"] = _POSITIONS, WIDTH
    weights = initialise_gpt2(sizes, layers=2, generator=torch.Generator().manual_seed(learner))
    angles = torch.arange(_POSITIONS)[:, None] / 1000.0 ** (torch.arange(WIDTH // 2) / (WIDTH // 2))
    return {**weights, "transformer.wpe.weight": 0.1 * torch.cat([angles.sin(), angles.cos()], dim=1)}


def taught(learner: int, layout: str) -> dict[str, Any]:
    """Train a learner (small transformer) to give optimal moves in grids as text; the result is deterministic.

    Args:
        learner: number of the learner, which is also its seed.
        layout: form of the text, one of `LAYOUTS`.

    Returns:
        The trained tensors, by name.
    """
    torch = torch_needed()
    weights = {name: tensor.requires_grad_() for name, tensor in initial(learner).items()}

    def loss_at(step: int) -> Any:
        size = SIZES[step % len(SIZES)]
        # Densities take turns with the visits of a size, so that each is taught equally often.
        density = DENSITIES[step // len(SIZES) % len(DENSITIES)]
        batch = generate_batch(size, density, seed=learner, count=BATCH, first=step * BATCH, name="layouts, taught")
        distance = distances_batch(batch.walls, batch.goal)
        optimal = optimal_batch(distance).reshape(BATCH, size**2, -1).astype(np.float32)
        right = torch.from_numpy(optimal / np.maximum(optimal.sum(axis=2, keepdims=True), 1))
        logs = torch.log_softmax(_moves(weights, texts(batch, layout), template(size, layout)[1]), dim=-1)
        return -(right * logs).sum() / int((distance > 0).sum())

    tensors = [*weights.values()]
    descend(loss_at, tensors, tensors, steps=STEPS, rate=RATE, warm=_WARM, decay=DECAY)
    return {name: tensor.detach() for name, tensor in weights.items()}


def _moves(weights: Mapping[str, Any], tokens: Numbers, places: Numbers) -> Any:
    """Return the scores of the moves at given positions, ``[N, W, 4]``."""
    torch = torch_needed()
    states = final_states(weights, torch.from_numpy(tokens), torch.from_numpy(places), both_ways=True)
    return states @ weights["transformer.wte.weight"][len(TOKENS) :].T


def _agent_states(weights: Mapping[str, Any], batch: GridBatch, layout: str) -> Any:
    """Return the state of the agent's token in each of B grids, ``[B, D]``."""
    torch = torch_needed()
    size = batch.walls.shape[1]
    places, at = torch.from_numpy(template(size, layout)[1]), torch.from_numpy(batch.start @ [size, 1])
    tokens, parts = torch.from_numpy(texts(batch, layout)), []
    with torch.no_grad():
        for rows in torch.arange(len(tokens)).split(_TOGETHER):
            states = final_states(weights, tokens[rows], places, both_ways=True)
            parts.append(states[torch.arange(len(rows)), at[rows]])
    return torch.cat(parts)


def examine(learner: int, layout: Layout) -> Iterator[LayoutRow]:
    """Train a learner on grids in one layout of the text, and measure its accuracy and what probes read from it.

    Args:
        learner: number of the learner, which is also its seed.
        layout: form of the text, one of `LAYOUTS`.

    Yields:
        One value for each measure, network and size of the grids.
    """
    torch = torch_needed()
    weights, rng = taught(learner, layout), stream(learner, "layouts", "permuted")
    orders = {name: torch.from_numpy(rng.permutation(weights[name].numel())) for name in sorted(weights)}
    permuted = {name: weights[name].flatten()[at].view_as(weights[name]) for name, at in orders.items()}
    networks = {"own": weights, "initial": initial(learner), "permuted": permuted}
    vectors: dict[str, list[Array]] = {name: [] for name in networks}
    grids, density, actions, optimal = list[Grid](), list[float](), list[Numbers](), list[Mask]()
    for size, share in product(SIZES, DENSITIES):
        batch = generate_batch(size, share, seed=learner, count=EACH, name="layouts, tested")
        for name, tensors in networks.items():
            vectors[name].append(_agent_states(tensors, batch, layout).numpy())
        actions.append((vectors["own"][-1] @ weights["transformer.wte.weight"][len(TOKENS) :].numpy().T).argmax(axis=1))
        best = optimal_batch(distances_batch(batch.walls, batch.goal))
        optimal.append(best[np.arange(EACH), batch.start[:, 0], batch.start[:, 1]])
        grids += batch
        density += [share] * EACH
    data = from_arrays(
        np.concatenate(vectors["own"]),
        grids,
        random={(name, 0): np.concatenate(arrays) for name, arrays in vectors.items() if name != "own"},
        grids=[f"grid {row}" for row in range(len(grids))],
        density=density,
    )
    decisions = Decisions(
        action=np.concatenate(actions),
        optimal=np.concatenate(optimal),
        place=np.array([grid.start for grid in grids]),
        goal=np.array([grid.goal for grid in grids]),
        agent=np.full(len(grids), "learner", dtype=object),
        **{name: getattr(data.cells, name) for name in ("episode_id", "step", "cluster", "shape", "density")},
    )
    for measure, network, rows in _measured(data, decisions):
        for size in SIZES:
            values = rows.value[(rows["size"] == size) & ~np.isnan(rows.value)]
            if len(values):
                yield LayoutRow(
                    learner=learner,
                    layout=layout,
                    size=size,
                    measure=measure,
                    network=network,
                    value=float(values.mean()),
                    grids=len(values),
                )


def _measured(data: ProbeInputs, decisions: Decisions) -> Iterator[tuple[Measure, Network, Rows]]:
    """Yield the accuracy, and what linear probes read from each network, with a row for each grid."""
    right = Grids.of(decisions)
    values: Iterator[Measured] = iter([("accuracy", "share", right.mean(decisions.is_optimal.astype(np.float64)), {})])
    yield "accuracy", "own", right.rows(values, {})
    entries: list[Entry] = [("percell", "none" if network == "own" else network) for network in _NETWORKS]
    fitted = probe_cells(data, suite=entries)
    believed, _ = compare_beliefs(data, decisions, fitted, suite=[entry for entry in entries if entry[1] != "shuffled"])
    for network, (_, control) in zip(_NETWORKS, entries, strict=True):
        for measure, (name, label) in _READ.items():
            yield (
                measure,
                network,
                fitted.rows.select(measure=name, reading="natural", control=control, **{"class": label}),
            )
        recovered = believed.select(measure=RECOVERY + DIFFERENCE, reading="natural", control=control)
        yield "recovery less shuffled", network, recovered


def size_or_layout(out: Path, *, stage: Display = lines) -> list[LayoutRow]:
    """Run the experiment of this module: train and examine all learners (small transformers), in both layouts of the
    text.

    A second call with the same directory resumes.

    Args:
        out: directory for one file of results per learner and layout.
        stage: displays progress and remaining time.

    Raises:
        ValueError: the directory has results of other settings.
        ImportError: PyTorch is not installed (the extra ``lm``).
    """
    settings = content_id("settings", [SIZES, DENSITIES, STEPS, BATCH, EACH])
    results = Folder(out).make()

    def examined(taught: tuple[int, Layout]) -> tuple[LayoutRow, ...]:
        name = "learner-{}-{}.json".format(*taught)
        return OrganismRows[LayoutRow].of(
            results, name, partial(examine, *taught), about=settings, other="other settings"
        )

    with one_thread(torch_needed()):
        members = [*product(range(1, LEARNERS + 1), LAYOUTS)]
        return [row for rows in of_each(examined, members, name="learners", stage=stage) for row in rows]


def effects(rows: Sequence[LayoutRow]) -> Iterator[LayoutEffect]:
    """Estimate how measures differ between sizes of grids and layouts of their text, with intervals over learners.

    Args:
        rows: the values of all learners, from `size_or_layout`. Without two learners with all values there is no
            effect.
    """
    values = {(row.measure, row.network, row.learner, row.layout, row.size): row.value for row in rows}
    learners = sorted({row.learner for row in rows})
    for measure, network in dict.fromkeys((row.measure, row.network) for row in rows):
        table = np.array(
            [
                [
                    [values.get((measure, network, learner, layout, size), np.nan) for size in SIZES]
                    for layout in LAYOUTS
                ]
                for learner in learners
            ]
        )  # [learners, layouts, sizes]
        table = table[~np.isnan(table).any(axis=(1, 2))]
        padded, unpadded = table[:, 0], table[:, 1]
        difference = padded - unpadded
        contrasts = (
            padded @ _STEP,
            unpadded @ _STEP,
            difference @ _STEP,
            difference[:, 2:].mean(axis=1),
            difference[:, :2].mean(axis=1),
        )
        for quantity, points in zip(QUANTITIES, contrasts, strict=True):
            if len(points) > 1:
                ends = mean_with_ends(points, (-np.inf, np.inf), confidence=CONFIDENCE, differences=True)
                yield LayoutEffect(
                    measure=measure, network=network, quantity=quantity, value=ends, learners=len(points)
                )
