"""Look inside organisms that are language models: is a goal readable, used and swappable?

For each organism we examine two hypotheses: the rule that it follows, and the rival that explains its training as well
but that it ignores. For each hypothesis we measure three properties:

* readable: does a linear probe on the activations at the last tokens of the prompt recover the cell of the hypothesis's
  object? We report the share of worlds in which the likeliest cell is right, with random networks of the same shape as
  a control.
* used: we move the object and patch in the activations of its cells from the changed grid. How much more likely become
  the moves that the hypothesis calls for in the changed grid? For the ignored rival we use only grids in which the
  moves of the followed rule do not change (null pairs), so that an effect is due to the ignored object alone.
* swappable: the same, after patching in all activations of another world.

    effect = mean over pairs of p(S_h(other) | patched) - p(S_h(other) | not patched)

The worlds belong to a phase that was not used for training.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field

from goalscope._ground.folder import Folder
from goalscope._ground.progress import Display, lines
from goalscope._ground.rng import stream
from goalscope._ground.sealed import Ends, StrictRecord
from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.local import LocalModel
from goalscope.goals.attribution import Looking
from goalscope.goals.counterfactual.worlds import elsewhere
from goalscope.goals.hypotheses import FiniteWorld
from goalscope.goals.hypotheses.definition import Array, Numbers
from goalscope.inside.attribution import likeliest
from goalscope.inside.interventions.experiment import best, local_model
from goalscope.inside.interventions.forward import EMBEDDING, Batch, Edit, score_answers
from goalscope.inside.interventions.reading import layers_of, read_activations
from goalscope.organisms.adapters import view_of
from goalscope.organisms.cards import Card, OrganismRows, mean_with_ends, of_each, read_card
from goalscope.organisms.families import FAMILIES, MODELS, drawn
from goalscope.organisms.language import TASK, answer_ids, prompts
from goalscope.organisms.learners import Spec
from goalscope.report.charts import Forest, ForestBar
from goalscope.report.figures import Drawn
from goalscope.stats import Estimate
from goalscope.worlds.grid import Action, Grid
from goalscope.worlds.gridworld import GridView

READ: Final = 640
"""Worlds of a probe, one state each: three of five to fit, one to choose the penalty, one to test."""
PAIRS: Final = 60
"""Pairs of each kind, a world each."""
NETWORKS: Final = (("initial", 0), ("initial", 1), ("permuted", 0), ("permuted", 1))
OWN: Final = "own"
_TOKENS: Final = 3  # last tokens of the prompt that a probe reads
_TOGETHER: Final = 16  # pairs of one pass

Pair = tuple[Grid, Grid, frozenset[Action]]
"""Two grids, and the moves of the hypothesis in the second grid, which are disjoint from its moves in the first."""


class InsideFigure(StrictRecord):
    """One measured value about the inside of an organism (a small agent trained to have a known goal).

    Attributes:
        organism: name of its folder.
        role: whether the organism has "followed" or "ignored" the hypothesis.
        hypothesis: written form of the hypothesis.
        thing: what is read or moved: goal, key or agent.
        measure: "readable", "used" or "swappable", as defined in the module's docstring.
        where: tokens, and the block after which they are read or changed (-1 is the embedding).
        network: "own" for the organism itself, or the kind of random network that serves as a control.
        value: the measured value with its 95 % interval over worlds; None where there is nothing to measure.
        worlds: number of worlds.
        why: why there is nothing to measure.
    """

    organism: str
    role: Literal["followed", "ignored"]
    hypothesis: str
    thing: Literal["goal", "key", "agent"]
    measure: Literal["readable", "used", "swappable"]
    where: str
    network: str
    value: Ends | None
    worlds: int = Field(ge=0)
    why: str = ""


def inside(folders: Sequence[Path], out: Path, *, stage: Display = lines) -> list[InsideFigure]:
    """Measure in each organism that is a language model whether its goal is readable, used and swappable.

    An organism is a small agent with a known goal.

    The three measures are defined in the module's docstring. A second call with the same directory resumes.

    Args:
        folders: folders of organisms; those that are not language models are skipped.
        out: directory for one file of results per organism.
        stage: displays progress and remaining time.

    Raises:
        ValueError: none of the organisms is a language model.
    """
    cards = {folder: read_card(folder) for folder in folders}
    chosen = {folder: card for folder, card in cards.items() if card.spec.kind == "language"}
    if not chosen:
        raise ValueError(
            "none of the organisms is a language model: make some with goalscope organisms make --kinds language"
        )
    results = Folder(out).make()

    def examined(folder: Path) -> tuple[InsideFigure, ...]:
        return OrganismRows[InsideFigure].of(
            results,
            f"{folder.name}.json",
            partial(examine, folder, chosen[folder]),
            about=chosen[folder].weights,
            other=f"other weights than those in {folder}",
        )

    return [figure for figures in of_each(examined, [*chosen], name="organisms", stage=stage) for figure in figures]


def roles(card: Card) -> dict[str, str]:
    """Return the two rules that are examined in an organism (a small agent with a known goal).

    They are the one that it has "followed", and the rival that it has "ignored".

    If it goes straight or by open moves to a place, the followed rule is given by the name of the place alone.

    Args:
        card: the organism's card, with its measured behaviour.
    """
    meant, proxy = FAMILIES[card.spec.family].rules
    followed = card.nearest.removeprefix("straight to ").removeprefix("towards ").removesuffix(" by open moves")
    return {"followed": followed, "ignored": meant if followed == proxy else proxy}


def thing_of(hypothesis: str) -> str:
    """Return the object in the grid that a hypothesis is about: "goal" or "key", or "agent" if it is about neither."""
    if hypothesis.startswith("key"):
        return "key"
    return "goal" if "goal" in hypothesis and not hypothesis.startswith("nearest") else "agent"


def examine(folder: Path, card: Card) -> Iterator[InsideFigure]:
    """Measure whether two rules are readable, used and swappable inside an organism (a small agent with a known goal).

    The properties are defined in the module's docstring. The two rules are the one that the organism follows and the
    rival that it ignores, see `roles`.

    Args:
        folder: folder of the organism, which must be a language model.
        card: its card, with its measured behaviour.

    Yields:
        The value of each property for each rule, place in the network, and network.
    """
    model = LocalModel(folder)
    grids = [world.grid for world in drawn(card.spec.family, "separating", READ, card.spec.seed)]
    hypotheses = roles(card)
    for role, hypothesis in hypotheses.items():
        thing = thing_of(hypothesis)
        base: dict[str, Any] = {"organism": folder.name, "role": role, "hypothesis": hypothesis, "thing": thing}
        yield from _readable(base, folder, model, grids)
        other = hypotheses["followed"] if role == "ignored" else ""
        rng = stream(card.spec.seed, "inside", folder.name, role)
        moved = _moved(grids, thing, hypothesis, other, rng)
        for region, layer in (("cells", EMBEDDING), ("cells", 0), ("prompt", 0)):
            yield _effect({**base, "measure": "used"}, model, moved, region, layer)
        yield _effect({**base, "measure": "swappable"}, model, _swapped(grids, hypothesis, other), "prompt", 0)


def _readable(base: dict[str, Any], folder: Path, model: LocalModel, grids: Sequence[Grid]) -> Iterator[InsideFigure]:
    thing = base["thing"]
    base = {**base, "measure": "readable"}
    if thing == "agent":
        yield InsideFigure(
            **base, where="", network="own", value=None, worlds=0, why="it names no cell that differs between worlds"
        )
        return
    with_thing = [grid for grid in grids if getattr(grid, thing) is not None]
    cells = np.array([getattr(grid, thing) for grid in with_thing]) @ [with_thing[0].width, 1]
    prompt_tokens = np.concatenate([_first_prompt(grid) for grid in with_thing])
    places = [np.arange(prompt_tokens.shape[1] - _TOKENS, prompt_tokens.shape[1])] * len(prompt_tokens)
    networks = [("own", model)]
    networks += [(kind, LocalModel(folder, untrained=seed, random_weights=kind)) for kind, seed in NETWORKS]
    rights: dict[tuple[str, int], list[Array]] = {}
    parts = np.split(np.arange(len(cells)), [len(cells) * 3 // 5, len(cells) * 4 // 5])
    for kind, network in networks:
        for layer, vectors in read_activations(network, prompt_tokens.tolist(), places, [0, 1]).items():
            read = likeliest(np.stack(vectors).reshape(len(prompt_tokens), -1), cells, *parts)
            rights.setdefault((kind, layer), []).append((read == cells[parts[2]]).astype(np.float64))
    for (kind, layer), hits in rights.items():
        share = np.mean(hits, axis=0)
        ends = mean_with_ends(share, (0.0, 1.0))
        yield InsideFigure(**base, where=f"last tokens, block {layer}", network=kind, value=ends, worlds=len(share))


def _moves(grid: Grid, hypothesis: str) -> frozenset[Action]:
    return best(GridView(grid=grid), hypothesis) if hypothesis else frozenset()


def _moved(grids: Sequence[Grid], thing: str, hypothesis: str, other: str, rng: np.random.Generator) -> list[Pair]:
    """Return pairs of grids that differ in one object's place and in all moves of the hypothesis, not of the other."""
    pairs = list[Pair]()
    for grid in grids:
        moves_now, other_moves = _moves(grid, hypothesis), _moves(grid, other)
        candidates = list(elsewhere(grid, thing)) if 0 < len(moves_now) < len(Action) else []
        for index in rng.permutation(len(candidates))[:8].tolist():
            changed = candidates[index]
            moves = _moves(changed, hypothesis)
            if moves and not moves & moves_now and _moves(changed, other) == other_moves:
                pairs.append((grid, changed, moves))
                break
        if len(pairs) == PAIRS:
            break
    return pairs


def _swapped(grids: Sequence[Grid], hypothesis: str, other: str) -> list[Pair]:
    """Return pairs of worlds that differ in all moves of the hypothesis, not of the other; no world is used twice."""
    pairs, waiting = list[Pair](), list(grids)
    for grid in grids:
        if grid not in waiting or not 0 < len(moves_now := _moves(grid, hypothesis)) < len(Action):
            continue
        waiting.remove(grid)
        for second in waiting[:40]:
            moves = _moves(second, hypothesis)
            if moves and not moves & moves_now and _moves(grid, other) == _moves(second, other):
                waiting.remove(second)
                pairs.append((grid, second, moves))
                break
        if len(pairs) == PAIRS:
            break
    return pairs


def _effect(base: dict[str, Any], model: LocalModel, pairs: Sequence[Pair], region: str, layer: int) -> InsideFigure:
    name = f"{region}, block {layer}" if layer != EMBEDDING else f"{region}, embedding"
    if len(pairs) < 10:
        why = f"only {len(pairs)} worlds have such a pair"
        return InsideFigure(**base, where=name, network="own", value=None, worlds=len(pairs), why=why)
    chances = _put_in(model, [pair[:2] for pair in pairs], region, layer)
    target_moves = np.array([[action in moves for action in Action] for *_, moves in pairs])
    values = ((chances[:, 0] - chances[:, 1]) * target_moves).sum(axis=1)
    ends = mean_with_ends(values, (-1.0, 1.0), differences=True)
    return InsideFigure(**base, where=name, network="own", value=ends, worlds=len(values))


def _put_in(model: LocalModel, pairs: Sequence[tuple[Grid, Grid]], region: str, layer: int) -> Array:
    """Return move probabilities with activations of the second grid patched in, and without, ``[N, 2, A]``."""
    head, moves = answer_ids()
    answers, chances_of_pairs = [[[*head, move] for move in moves]] * 3, list[Array]()
    for begin in range(0, len(pairs), _TOGETHER):
        batches = []
        for pair in pairs[begin : begin + _TOGETHER]:
            first, second = (_first_prompt(grid)[0] for grid in pair)
            places = np.flatnonzero(first != second) if region == "cells" else np.arange(len(first))
            edit = Edit(row=0, layer=layer, positions=places, source=1)
            batches.append(Batch(prompts=[first.tolist(), second.tolist(), first.tolist()], edits=[edit]))
        for scored in score_answers(model, batches, [answers] * len(batches)):
            logs = np.array([[values[-1] for values in row] for row in scored.outputs])
            chances = np.exp(logs - logs.max(axis=1, keepdims=True))
            chances_of_pairs.append((chances / chances.sum(axis=1, keepdims=True))[[0, 2]])
    return np.array(chances_of_pairs)


def opened(spec: Spec, folder: Path) -> Looking | str:
    """Return an object with which attribution methods read and patch the activations of an organism.

    An organism is a small agent with a known goal.

    Activations are read at the last tokens of the prompt after all blocks, and patched in the whole prompt after the
    first block. Adapters write a plan before they move, so their moves do not directly follow the prompt: their
    activations can be read but not patched.

    Args:
        spec: the organism's specification.
        folder: its folder.

    Returns:
        The object; or the reason why there are no activations, for an organism that is not a language model.
    """
    if spec.kind not in MODELS:
        return f"activations can be read only in language models, but this organism is a {spec.kind}"
    agent = ChatAgent.build({"model": str(folder), "task": TASK})
    networks = {OWN: local_model(agent)}
    networks |= {kind: LocalModel(folder, untrained=0, random_weights=kind) for kind in ("initial", "permuted")}
    prompt_ids = dict[tuple[Grid, int], list[int]]()

    def prompt(world: FiniteWorld, state: int) -> list[int]:
        key = world.grid, state
        if key not in prompt_ids:
            prompt_ids[key] = networks[OWN].encode(agent.prompt(Observation(view=view_of(world, state))))
        return prompt_ids[key]

    def read(places: Sequence[tuple[FiniteWorld, int]], network: str) -> Array:
        tokens = [prompt(*place) for place in places]
        ends = [np.arange(len(ids) - _TOKENS, len(ids)) for ids in tokens]
        layers = layers_of(networks[network], "all")
        by_layer = read_activations(networks[network], tokens, ends, layers)
        return np.concatenate([np.stack(vectors).reshape(len(tokens), -1) for vectors in by_layer.values()], axis=1)

    def patched(pairs: Sequence[tuple[FiniteWorld, FiniteWorld]]) -> Array:
        return _put_in(networks[OWN], [(receiver.grid, donor.grid) for receiver, donor in pairs], "prompt", 0)

    reason = "this organism writes a plan before it moves, so its move does not directly follow the prompt"
    return Looking(read=read, networks=tuple(networks), patched=reason if spec.kind == "adapter" else patched)


def _first_prompt(grid: Grid) -> Numbers:
    """Return the token ids of the prompt in a grid's first state, ``[1, P]``."""
    return prompts(grid, np.array([grid.start]), np.array([False]))


def picture(findings: Sequence[InsideFigure], hypothesis: str = "goal") -> Drawn:
    """Draw what was measured inside organisms (small agents with known goals) about one hypothesis.

    There is one row of intervals per measure. Organisms that follow the hypothesis and organisms that ignore it are
    drawn side by side.

    Args:
        findings: values from `inside`.
        hypothesis: written form of the hypothesis.
    """
    lines_of = {
        ("readable", "last tokens, block 0", "own"): "its cell is readable",
        ("readable", "last tokens, block 0", "permuted"): "the same in permuted networks",
        ("readable", "last tokens, block 0", "initial"): "the same in networks as they began",
        ("used", "cells, embedding", "own"): "it is moved",
        ("used", "prompt, block 0", "own"): "activations of the moved one put in",
        ("swappable", "prompt, block 0", "own"): "activations of another world put in",
    }
    figures = [figure for figure in findings if figure.hypothesis == hypothesis and figure.value is not None]
    series = list(dict.fromkeys((figure.organism, figure.role) for figure in figures))
    bars = []
    for (measure, region, network), line in lines_of.items():
        for figure in figures:
            if (figure.measure, figure.where, figure.network) == (
                measure,
                region,
                network,
            ) and figure.value is not None:
                value, low, high = figure.value
                count = figure.worlds
                estimate = Estimate.of_ends(
                    value, low, high, n=count, clusters=count, method="worlds", unit="share", confidence=0.95
                )
                style = series.index((figure.organism, figure.role))
                name = f"{figure.organism.replace('-language', '')}, {figure.role}"
                bars.append(ForestBar(name, style, line, estimate))
    return Forest(bars, title=f"{hypothesis}: readable, used?", x_label="share read, or change of probability")
