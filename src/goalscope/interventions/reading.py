"""What interventions read and what becomes of them: activations at places of prompts, and the actions that follow."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope.activations.hooks import Blocks, chosen_layers
from goalscope.activations.sites import Site, SiteFinder
from goalscope.agents.agent import Observation
from goalscope.agents.chat import ChatAgent, turn
from goalscope.ids import content_id
from goalscope.interventions.edits import Edit
from goalscope.interventions.forward import each_change, generate
from goalscope.interventions.pairs import Pair, Side, local_model
from goalscope.models.base import Completion, Sampling
from goalscope.models.local import LocalModel
from goalscope.rows import Row, Rows, Tag
from goalscope.runs.probing_config import Layers
from goalscope.runs.record import Step
from goalscope.worlds.dynamics import State
from goalscope.worlds.generate import generate_batch
from goalscope.worlds.grid import Action
from goalscope.worlds.gridworld import GridView

Where = Literal["changed", "grid", "pre", "post"]
"""The tokens of the changed cells, those of all cells, and those before and after the reasoning."""

Change = TypeVar("Change")
_ROWS: Final = 32  # sequences of one length that are read together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Passage:
    """A prompt, and what is replayed of its output so that a site is in it.

    Attributes:
        ids: token ids of all that passes through the model before it writes on.
        replayed: how many of them are of the output.
        places: ``[P]`` int64 places of the site.
    """

    ids: tuple[int, ...]
    replayed: int
    places: npt.NDArray[np.int64]


def passage(finder: SiteFinder, site: Where, side: Side, cells: npt.NDArray[np.int64]) -> Passage:
    """Return a side of a pair up to the end of a site.

    Args:
        finder: finds the sites grid, pre and post.
        site: which one.
        side: what was shown and written.
        cells: ``[C]`` places of the changed cells.

    Raises:
        ValueError: the side lacks the site; says why.
    """
    if site == "changed":
        return Passage(ids=side.prompt, replayed=0, places=cells)
    found = finder.find(side.step, side.view.grid)
    wanted: Site = site
    if wanted not in found.positions:
        raise ValueError(f"site {site} must be in what the agent wrote, it is not: {found.missing[wanted]}")
    return _up_to(found.positions[wanted], side.prompt, side.output)


def _up_to(places: npt.NDArray[np.int64], prompt: tuple[int, ...], output: tuple[int, ...]) -> Passage:
    """Return a prompt with as much of its output as places need."""
    replayed = max(0, int(places.max()) + 1 - len(prompt))
    return Passage(ids=(*prompt, *output[:replayed]), replayed=replayed, places=places)


def finder_of(model: LocalModel, sites: Sequence[Where | Site]) -> SiteFinder:
    """Return what finds sites in a model's prompts; a ValueError where its template has no such site."""
    wanted: list[Site] = [site for site in sites if site != "changed"]
    return SiteFinder(model, wanted or ["grid"])


def read_activations(
    model: LocalModel,
    prompts: Sequence[Sequence[int]],
    places: Sequence[npt.NDArray[np.int64]],
    layers: Sequence[int],
) -> dict[int, list[npt.NDArray[np.float32]]]:
    """Return the residual stream after some blocks at some places of each prompt.

    Args:
        model: a local model.
        prompts: ``[N]`` token ids.
        places: ``[N]`` places ``[P]`` of each.
        layers: numbers of blocks, 0-based.

    Returns:
        Layer -> ``[N]`` arrays ``[P, D]``.

    Raises:
        ValueError: a layer that the model does not have.
    """
    with model.alone() as network:
        blocks = Blocks(network, layers)
        found = {layer: [np.zeros(0, dtype=np.float32)] * len(prompts) for layer in blocks.layers}
        order = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
        equal = [list(group) for _, group in groupby(order, lambda at: len(prompts[at]))]
        groups = [group[at : at + _ROWS] for group in equal for at in range(0, len(group), _ROWS)]
        with blocks.recording() as recording:
            for group in groups:
                ids = np.array([list(prompts[at]) for at in group], dtype=np.int64)
                rows = np.concatenate([np.full(len(places[at]), row) for row, at in enumerate(group)])
                columns = np.concatenate([places[at] for at in group])
                kept = recording.run(ids, rows.astype(np.int64), columns.astype(np.int64))
                for layer, tensor in zip(blocks.layers, kept, strict=True):
                    parts = np.split(tensor.float().cpu().numpy(), np.cumsum([len(places[at]) for at in group])[:-1])
                    for at, part in zip(group, parts, strict=True):
                        found[layer][at] = part
    return found


def read_passages(model: LocalModel, passages: Sequence[Passage], layer: int) -> list[npt.NDArray[np.float32]]:
    """Return the residual stream after a block at the places of each passage, ``[N]`` arrays ``[P, D]``."""
    return read_activations(model, [one.ids for one in passages], [one.places for one in passages], [layer])[layer]


def added(one: Passage, layer: int, vectors: npt.NDArray[Any]) -> list[Edit]:
    """Return the edit of prompt 0 that adds vectors ``[P, D]`` at the places of a passage."""
    import torch

    given = torch.from_numpy(vectors.astype(np.float32))
    return [Edit(row=0, layer=layer, positions=one.places, vectors=given, how="add")]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What an agent did after an intervention.

    Attributes:
        action: what it did, None where the answer states none.
        text: all that was written, what was replayed included.
    """

    action: Action | None
    text: str

    @classmethod
    def of(cls, said: Completion) -> Self:
        """Return what an output amounts to."""
        action = turn(said).action
        text = said.raw if said.raw is not None else f"{said.reasoning or ''}{said.text}"
        return cls(action=None if action is None else Action(action), text=text)

    def effect(self, pair: Pair) -> dict[str, float]:
        """Return what became of the action of a pair's first side, as shares of one: ties count as the same."""
        first, second = (side.optimal for side in pair.sides)
        follows, stays = self.action in second, self.action in first
        return {FOLLOWS: float(follows), STAYS: float(stays), ELSEWHERE: float(not follows and not stays)}


PAIR: Final = "pair"
"""Tag of the content id of a pair."""
FOLLOWS: Final = "action follows the edit"
STAYS: Final = "action stays optimal"
ELSEWHERE: Final = "action is optimal in neither"
"""Measures of an intervention in a pair; in a control pair an action follows and stays."""


def answers(
    agent: ChatAgent,
    views: Sequence[GridView],
    passages: Sequence[Passage],
    edits: Sequence[Sequence[Sequence[Edit]]],
    *,
    max_tokens: int | None = None,
) -> list[list[Answer]]:
    """Return what an agent does with changed activations, each change beside the others of its passage.

    Args:
        agent: a chat agent with a local model.
        views: ``[N]`` what is shown.
        passages: ``[N]`` what passes through the model before it writes on, most likely token by token.
        edits: for each passage the changes that are made one at a time, each a list of edits that name the passage
            as prompt 0; an empty list changes nothing.
        max_tokens: most tokens of an answer; by default the agent's own.
    """
    model = local_model(agent)
    limit = agent.sampling.max_tokens if max_tokens is None else max_tokens
    batches = [each_change(one.ids, changes) for one, changes in zip(passages, edits, strict=True)]
    sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=limit)
    found = []
    for view, one, done in zip(views, passages, generate(model, batches, max_tokens=limit), strict=True):
        text = model.render(agent.messages(Observation(view=view)), agent.sampling)
        split = len(one.ids) - one.replayed
        for output in done.outputs:
            output.tokens[:0] = one.ids[split:]
        found.append([Answer.of(model.completion(text, one.ids[:split], output, sampling)) for output in done.outputs])
    return found


def acted(
    agent: ChatAgent,
    pairs: Sequence[Pair],
    place: tuple[Where, int],
    changes: Callable[..., Sequence[tuple[Change, list[Edit]]]],
    *,
    together: int,
    sides: int = 1,
    max_tokens: int | None = None,
) -> Iterator[tuple[Pair, Change, Answer]]:
    """Yield what an agent does after each change of the first side of each pair at one place.

    Args:
        agent: a chat agent with a local model.
        pairs: the pairs.
        place: site and layer.
        changes: from a pair, the passage of its first side, and the activations ``[P, D]`` there of so many ``sides``:
            what is changed, one at a time, and the edits that do it.
        together: pairs whose changed prompts are in memory at a time.
        sides: 1 or 2.
        max_tokens: most tokens of an answer; by default the agent's own.
    """
    site, layer = place
    model = local_model(agent)
    finder = finder_of(model, [site])
    for begin in range(0, len(pairs), together):
        part = pairs[begin : begin + together]
        passages = [passage(finder, site, side, pair.changed) for pair in part for side in pair.sides[:sides]]
        vectors = read_passages(model, passages, layer)
        own = passages[::sides]
        planned = [
            changes(pair, one, *vectors[sides * at : sides * (at + 1)])
            for at, (pair, one) in enumerate(zip(part, own, strict=True))
        ]
        edits = [[made for _, made in plans] for plans in planned]
        done = answers(agent, [pair.sides[0].view for pair in part], own, edits, max_tokens=max_tokens)
        for pair, plans, said in zip(part, planned, done, strict=True):
            for (change, _), answer in zip(plans, said, strict=True):
                yield pair, change, answer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class States:
    """Grids that an agent was shown, and its prompts: what directions and subspaces are learned from.

    Attributes:
        views: ``[N]`` what was shown.
        clusters: ``[N]`` the grid of each.
        passages: site -> ``[N]`` prompts up to its end, and its places.
    """

    views: Sequence[GridView]
    clusters: Sequence[str]
    passages: Mapping[Site, Sequence[Passage]]


def states_of(
    agent: ChatAgent, views: Sequence[GridView], sites: Sequence[Where], *, max_tokens: int | None = None
) -> States:
    """Return states with their prompts; where a site lies in the output the agent is asked, at temperature 0.

    Args:
        agent: a chat agent with a local model.
        views: what is shown.
        sites: grid, pre, post; "changed" stands for grid.
        max_tokens: most tokens of an answer; by default the agent's own.
    """
    model = local_model(agent)
    wanted: list[Site] = list(dict.fromkeys("grid" if site == "changed" else site for site in sites))
    requests = [agent.request(Observation(view=view)) for view in views]
    prompts = [tuple(model.encode(model.render(one.messages, agent.sampling))) for one in requests]
    outputs: list[tuple[int, ...]] = [()] * len(views)
    if "post" in wanted:
        limit = agent.sampling.max_tokens if max_tokens is None else max_tokens
        said = model.complete(requests, Sampling(temperature=0.0, top_p=1.0, max_tokens=limit))
        outputs = [one.output_tokens or () for one in said]
    finder = finder_of(model, wanted)
    kept: list[int] = []
    passages: dict[Site, list[Passage]] = {site: [] for site in wanted}
    for at, (view, prompt, output) in enumerate(zip(views, prompts, outputs, strict=True)):
        start = view.grid.start
        assert start is not None  # the views of pairs and of generated grids show their agent
        step = Step(
            index=0,
            state=State(start, view.carrying_key),
            action=None,
            failure="not asked",
            prompt_tokens=prompt,
            output_tokens=output or None,
        )
        found = finder.find(step, view.grid)
        if any(site in found.missing for site in wanted):
            continue
        kept.append(at)
        for site in wanted:
            passages[site].append(_up_to(found.positions[site], prompt, output))
    return States(
        views=[views[at] for at in kept],
        clusters=[content_id("grid", views[at].grid.at(start=None).render()) for at in kept],
        passages=passages,
    )


def fresh_views(pairs: Sequence[Pair], *, count: int, seed: int) -> list[GridView]:
    """Return new grids of the sizes and densities of some pairs, none with the walls and goal of one of them.

    Args:
        pairs: what they must differ from.
        count: how many of each size and density.
        seed: root seed.
    """
    known = {_layout(side.view) for pair in pairs for side in pair.sides}
    kinds = dict.fromkeys((pair.sides[0].view.grid.height, pair.tags.get("density")) for pair in pairs)
    found: dict[bytes, GridView] = {}
    for size, density in kinds:
        share = float(density) if isinstance(density, int | float) else 0.5
        for grid in generate_batch(size, share, seed=seed, count=count, name="grids of directions"):
            view = GridView(grid=grid)
            if _layout(view) not in known:
                found.setdefault(_layout(view), view)
    return list(found.values())


def _layout(view: GridView) -> bytes:
    return view.grid.at(start=None).render().encode()


def layers_of(model: LocalModel, wanted: Layers) -> tuple[int, ...]:
    """Return numbers of blocks from what a study says: thirds, all, or numbers; a ValueError for one not there."""
    with model.alone() as network:
        return chosen_layers(wanted, Blocks(network).count)


def pair_tags(pair: Pair) -> dict[str, Tag]:
    """Return what the rows of a pair carry."""
    kind = "control" if pair.control else "counterfactual"
    return {**pair.tags, "moved": pair.moved, "pairs": kind, PAIR: pair.id}


def pair_rows(pair: Pair, values: Mapping[str, float], **tags: Tag) -> Iterator[Row]:
    """Yield a row of a pair for each measure, all shares, with its tags and further ones."""
    for measure, value in values.items():
        yield Row(measure=measure, unit="share", value=value, grid_id=pair.cluster, tags={**pair_tags(pair), **tags})


def averaged(rows: Iterable[Row]) -> Rows:
    """Return one row for each measure, grid and set of tags: the mean over random draws."""
    found: dict[tuple[str, str, tuple[tuple[str, Tag], ...]], list[Row]] = {}
    for row in rows:
        found.setdefault((row.measure, row.grid_id, tuple(row.tags.items())), []).append(row)
    return Rows.from_rows(
        replace(group[0], value=float(np.mean([one.value for one in group]))) for group in found.values()
    )
