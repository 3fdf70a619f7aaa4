"""Reading of activations at token positions of prompts, and of an agent's answers after changing them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope._ground.ids import content_id
from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Reply, Sampling
from goalscope.agents.models.local import LocalModel
from goalscope.agents.parse import turn
from goalscope.inside.activations.hooks import DecoderBlocks, chosen_layers
from goalscope.inside.activations.sites import Site, SiteFinder
from goalscope.inside.interventions.experiment import Pair, Side, local_model
from goalscope.inside.interventions.forward import Edit, each_change, generate
from goalscope.runs.record import Step
from goalscope.runs.study_parts import Layers
from goalscope.stats.rows import Row, Rows, Tag
from goalscope.worlds.dynamics import State
from goalscope.worlds.generate import generate_batch
from goalscope.worlds.grid import Action
from goalscope.worlds.gridworld import GridView

Where = Literal["changed", "grid", "pre", "post"]
"""The tokens of the changed cells, those of all cells, and those before and after the reasoning."""

Change = TypeVar("Change")
_ROWS: Final = 32  # maximum number of sequences of equal length to read together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Passage:
    """A prompt, followed by as much of its recorded output as is needed to reach a site (a set of token positions).

    Attributes:
        ids: all token ids that pass through the model before generation.
        replayed: number of these ids that belong to the output.
        places: ``[P]`` int64 token positions of the site.
    """

    ids: tuple[int, ...]
    replayed: int
    places: npt.NDArray[np.int64]


def passage(finder: SiteFinder, site: Where, side: Side, cells: npt.NDArray[np.int64]) -> Passage:
    """Build the token ids of a prompt and its output up to the last position of a site (a set of token positions).

    Args:
        finder: finder of the sites grid, pre and post.
        site: name of the site; "changed" stands for the cells that differ between the two grids of a pair.
        side: one grid of a pair, with the agent's answer there.
        cells: ``[C]`` token positions of the changed cells.

    Raises:
        ValueError: the output lacks the site; the message says why.
    """
    if site == "changed":
        return Passage(ids=side.prompt, replayed=0, places=cells)
    sites = finder.find(side.step, side.view.grid)
    name: Site = site
    if name not in sites.positions:
        raise ValueError(f"the agent's output has no site {site}: {sites.missing[name]}. Leave the site out")
    return _up_to(sites.positions[name], side.prompt, side.output)


def _up_to(places: npt.NDArray[np.int64], prompt: tuple[int, ...], output: tuple[int, ...]) -> Passage:
    """Build the passage of a prompt and its output up to the last given position."""
    replayed = max(0, int(places.max()) + 1 - len(prompt))
    return Passage(ids=(*prompt, *output[:replayed]), replayed=replayed, places=places)


def read_activations(
    model: LocalModel,
    prompts: Sequence[Sequence[int]],
    places: Sequence[npt.NDArray[np.int64]],
    layers: Sequence[int],
) -> dict[int, list[npt.NDArray[np.float32]]]:
    """Read the residual stream after the given decoder blocks at the given token positions of each prompt.

    Args:
        model: a local model.
        prompts: token ids of each of N prompts.
        places: for each prompt an array ``[P]`` of token positions.
        layers: numbers of blocks, 0-based.

    Returns:
        For each layer a list with one array ``[P, D]`` per prompt: positions by width of the model.

    Raises:
        ValueError: the model lacks a layer.
    """
    with model.alone() as network:
        blocks = DecoderBlocks(network, layers)
        by_layer = {layer: [np.zeros(0, dtype=np.float32)] * len(prompts) for layer in blocks.layers}
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        equal = [list(group) for _, group in groupby(order, lambda index: len(prompts[index]))]
        groups = [group[index : index + _ROWS] for group in equal for index in range(0, len(group), _ROWS)]
        with blocks.recording() as recording:
            for group in groups:
                ids = np.array([list(prompts[index]) for index in group], dtype=np.int64)
                rows = np.concatenate([np.full(len(places[index]), row) for row, index in enumerate(group)])
                columns = np.concatenate([places[index] for index in group])
                tensors = recording.run(ids, rows.astype(np.int64), columns.astype(np.int64))
                for layer, tensor in zip(blocks.layers, tensors, strict=True):
                    ends = np.cumsum([len(places[index]) for index in group])
                    parts = np.split(tensor.float().cpu().numpy(), ends[:-1])
                    for index, part in zip(group, parts, strict=True):
                        by_layer[layer][index] = part
    return by_layer


def read_passages(model: LocalModel, passages: Sequence[Passage], layer: int) -> list[npt.NDArray[np.float32]]:
    """Read the residual stream after a decoder block at the positions of each passage (a prompt with positions in it).

    Returns one array ``[P, D]`` per passage: positions by width of the model.
    """
    return read_activations(model, [item.ids for item in passages], [item.places for item in passages], [layer])[layer]


def added(passage: Passage, layer: int, vectors: npt.NDArray[Any]) -> list[Edit]:
    """Build the edit that adds vectors ``[P, D]`` to the activations of a prompt at the P positions of a passage.

    ``layer`` is the number of the decoder block. The edit refers to the prompt as number 0 of its batch.
    """
    import torch

    tensor = torch.from_numpy(vectors.astype(np.float32))
    return [Edit(row=0, layer=layer, positions=passage.places, vectors=tensor, how="add")]


def action_of(reply: Reply) -> Action | None:
    """Return the action that a model's reply states; None if it states no valid one."""
    action = turn(reply).action
    return None if action is None else Action(action)


def written_in(reply: Reply) -> str:
    """Return the whole text of a model's reply, including a beginning that was given to the model."""
    return reply.raw if reply.raw is not None else f"{reply.reasoning or ''}{reply.answer}"


def effect(pair: Pair, reply: Reply) -> dict[str, float]:
    """Score the action after an intervention: is it optimal in the second grid of a pair, in the first, or in neither?

    The result maps the measures `FOLLOWS` (second), `STAYS` (first) and `ELSEWHERE` (neither) to 1 or 0.
    """
    (first, second), action = (side.optimal for side in pair.sides), action_of(reply)
    follows, stays = action in second, action in first
    return {FOLLOWS: float(follows), STAYS: float(stays), ELSEWHERE: float(not follows and not stays)}


PAIR: Final = "pair"
"""Tag of the content id of a pair."""
FOLLOWS: Final = "action follows the edit"
STAYS: Final = "action stays optimal"
ELSEWHERE: Final = "action is optimal in neither"
"""Measures of an intervention in a pair; in a control pair an action can both follow and stay."""


def acted(
    agent: ChatAgent,
    pairs: Sequence[Pair],
    place: tuple[Where, int],
    changes: Callable[..., Sequence[tuple[Change, list[Edit]]]],
    *,
    together: int,
    sides: int = 1,
    max_tokens: int | None = None,
) -> Iterator[tuple[Pair, Change, Reply]]:
    """Yield an agent's greedy answer after each change to its activations in the first grid of each pair.

    Args:
        agent: a chat agent with a local model.
        pairs: pairs of grids that differ in one thing.
        place: the token positions ("changed", "grid", "pre" or "post") and the number of the decoder block.
        changes: function of a pair, the prompt with positions of its first grid, and the activations ``[P, D]``
            (positions by width) in one grid or both (``sides``); returns the changes that are made one at a time, each
            with its edits.
        together: number of pairs whose changed prompts are in memory at a time.
        sides: number of grids of a pair whose activations are read, 1 or 2.
        max_tokens: maximum number of tokens of an answer; by default the agent's own.

    Yields:
        The pair, the change as ``changes`` returned it, and the reply.
    """
    site, layer = place
    model = local_model(agent)
    finder = SiteFinder(model, ["grid" if site == "changed" else site])
    limit = agent.sampling.max_tokens if max_tokens is None else max_tokens
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=limit)
    for begin in range(0, len(pairs), together):
        part = pairs[begin : begin + together]
        passages = [passage(finder, site, side, pair.changed) for pair in part for side in pair.sides[:sides]]
        vectors = read_passages(model, passages, layer)
        first_sides = passages[::sides]
        planned = [
            changes(pair, item, *vectors[sides * at : sides * (at + 1)])
            for at, (pair, item) in enumerate(zip(part, first_sides, strict=True))
        ]
        # All changes of a passage are one batch, with one copy of the prompt each.
        batches = [
            each_change(item.ids, [edits for _, edits in plans])
            for item, plans in zip(first_sides, planned, strict=True)
        ]
        generated = generate(model, batches, max_tokens=limit)
        for pair, item, plans, written in zip(part, first_sides, planned, generated, strict=True):
            text = model.render(agent.messages(Observation(view=pair.sides[0].view)), agent.sampling)
            prompt, replayed = item.ids[: len(item.ids) - item.replayed], item.ids[len(item.ids) - item.replayed :]
            for (change, _), output in zip(plans, written.outputs, strict=True):
                output.tokens[:0] = replayed
                yield pair, change, model.reply(text, prompt, output, sampling)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadStates:
    """Grids shown to an agent, with their prompts, from whose activations directions and subspaces are learned.

    Attributes:
        views: N shown grids.
        clusters: id of the grid of each view, without the agent; rows of one grid stay together in a split.
        passages: for each site (set of token positions), N prompts with the output up to its end.
    """

    views: Sequence[GridView]
    clusters: Sequence[str]
    passages: Mapping[Site, Sequence[Passage]]


def states_of(
    agent: ChatAgent, views: Sequence[GridView], sites: Sequence[Where], *, max_tokens: int | None = None
) -> ReadStates:
    """Prepare grids from whose activations directions are learned: render their prompts and find the token positions.

    If a site is in the output, the agent answers at temperature 0. Grids in which a site is missing are left out.

    Args:
        agent: a chat agent with a local model.
        views: the grids to show.
        sites: token positions to find: grid, pre, post; "changed" stands for grid.
        max_tokens: maximum number of tokens of an answer; by default the agent's own.
    """
    model = local_model(agent)
    names: list[Site] = list(dict.fromkeys("grid" if site == "changed" else site for site in sites))
    requests = [agent.request(Observation(view=view)) for view in views]
    texts = [model.render(request.messages, agent.sampling) for request in requests]
    prompts = [tuple(ids) for ids in model.prompt_ids(texts)]
    outputs: list[tuple[int, ...]] = [()] * len(views)
    if "post" in names:
        limit = agent.sampling.max_tokens if max_tokens is None else max_tokens
        replies = model.complete(requests, Sampling(temperature=0.0, top_p=1.0, max_tokens=limit))
        outputs = [request.output_tokens or () for request in replies]
    finder = SiteFinder(model, names)
    shown_views: list[GridView] = []
    passages: dict[Site, list[Passage]] = {site: [] for site in names}
    for view, prompt, output in zip(views, prompts, outputs, strict=True):
        start = view.grid.start
        assert start is not None  # views of pairs and of generated grids always show the agent
        tokens: dict[str, Any] = {"prompt_tokens": prompt, "output_tokens": output or None}
        step = Step(index=0, state=State(start, view.carrying_key), action=None, failure="not asked", **tokens)
        located = finder.find(step, view.grid)
        if not located.missing:
            shown_views.append(view)
            for site in names:
                passages[site].append(_up_to(located.positions[site], prompt, output))
    clusters = [content_id("grid", view.grid.at(start=None).render()) for view in shown_views]
    return ReadStates(views=shown_views, clusters=clusters, passages=passages)


def fresh_views(pairs: Sequence[Pair], *, count: int, seed: int) -> list[GridView]:
    """Generate new grids with the sizes and wall densities of the pairs' grids, but different walls or goals.

    Args:
        pairs: pairs whose grids are excluded.
        count: number of grids per size and density; fewer are returned where one was excluded or drawn twice.
        seed: root seed.
    """
    layouts = {_layout(side.view) for pair in pairs for side in pair.sides}
    kinds = dict.fromkeys((pair.sides[0].view.grid.height, pair.tags.get("density")) for pair in pairs)
    views: dict[bytes, GridView] = {}
    for size, density in kinds:
        wall_density = float(density) if isinstance(density, int | float) else 0.5
        for grid in generate_batch(size, wall_density, seed=seed, count=count, name="grids of directions"):
            view = GridView(grid=grid)
            if _layout(view) not in layouts:
                views.setdefault(_layout(view), view)
    return list(views.values())


def _layout(view: GridView) -> bytes:
    return view.grid.at(start=None).render().encode()


def layers_of(model: LocalModel, layers: Layers) -> tuple[int, ...]:
    """Return the numbers of a model's decoder blocks (from 0) that a study's setting "thirds", "all" or numbers
    selects.

    Raises:
        ValueError: if the model lacks a layer.
    """
    with model.alone() as network:
        return chosen_layers(layers, DecoderBlocks(network).count)


def pair_rows(pair: Pair, values: Mapping[str, float], **tags: Tag) -> Iterator[Row]:
    """Yield one row of results per measure for a pair of grids, in the unit "share".

    Args:
        pair: the pair, whose tags (named facts such as its size) each row gets.
        values: measure -> value.
        tags: further tags of the rows.
    """
    kind = "control" if pair.control else "counterfactual"
    tags = {**pair.tags, "moved": pair.moved, "pairs": kind, PAIR: pair.id, **tags}
    for measure, value in values.items():
        yield Row(measure=measure, unit="share", value=value, cluster=pair.cluster, tags=tags)


def averaged(rows: Iterable[Row]) -> Rows:
    """Average rows of results that differ only in a random draw: those with equal measure, cluster (grid) and tags."""
    groups: dict[tuple[str, str, tuple[tuple[str, Tag], ...]], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.measure, row.cluster, tuple(row.tags.items())), []).append(row)
    return Rows.from_rows(
        replace(group[0], value=float(np.mean([member.value for member in group]))) for group in groups.values()
    )
