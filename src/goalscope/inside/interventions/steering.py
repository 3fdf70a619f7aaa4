"""Steering, which adds a direction that represents another cell of goal or agent and tests whether the action follows.

A dose is the length of the added vector, in units of the difference between the two sides of the pair at the site,
because norms differ by site and layer. Dose 1 of the pair's own difference is a patch. The controls have the same
length: random directions, and the direction of a probe fitted to shuffled labels. The expected action follows from the
edited map.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope._ground.rng import stream
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import Reply
from goalscope.inside.activations.replay_target import model_id
from goalscope.inside.activations.sites import Site
from goalscope.inside.interventions.directions import OWN, RANDOM, Directions, fit_directions, kept_probes
from goalscope.inside.interventions.edits import Edit
from goalscope.inside.interventions.experiment import ExperimentSubject, Headline, OnPairs, PairSettings, intervention
from goalscope.inside.interventions.pairs import Pair, local_model
from goalscope.inside.interventions.reading import (
    FOLLOWS,
    Passage,
    ReadStates,
    Where,
    acted,
    added,
    averaged,
    effect,
    fresh_views,
    layers_of,
    pair_rows,
    read_passages,
    states_of,
    written_in,
)
from goalscope.runs.kinds import sequence
from goalscope.runs.probing_config import Layers
from goalscope.stats.rows import Rows

KIND: Final = "steering"
FLIPPED: Final = "its own probe flips"
STATED: Final = "position of the unmoved thing still stated"
"""Measures beside those of `goalscope.inside.interventions.reading`."""
Direction = Literal["probe", "mean difference", "shuffled probe", "random", "own difference"]
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
Array = npt.NDArray[np.float32]
_PAIRS_AT_ONCE: Final = 8  # number of pairs whose changed prompts are in memory at a time


@intervention(KIND)
class Steering(OnPairs):
    """Experiment that adds directions for another cell of goal or agent to the original of each pair.

    `sites` are the cells that differ and the tokens before and after the reasoning. `layers` is thirds, all, or a list
    of numbers. `doses` are lengths in units of the difference between the pair's sides at the site. `random` is the
    number of random directions per pair. Directions are learned from `states` grids per size and density, none of
    which is steered. With `probes`, a run directory, the directions before and after the reasoning come from the
    per-cell probes of that run.
    """

    headline: ClassVar[Headline] = (
        (FOLLOWS,),
        {"pairs": "counterfactual"},
        ("moved", "site", "layer", "direction", "dose"),
    )

    kind: Literal["steering"] = KIND
    pairs: PairSettings = PairSettings()
    sites: tuple[Literal["changed", "pre", "post"], ...] = sequence(default=("changed", "pre"))
    layers: Layers = "thirds"
    doses: tuple[Annotated[float, Field(gt=0, le=1000)], ...] = sequence(default=(0.5, 1.0, 2.0, 4.0))
    directions: tuple[Direction, ...] = sequence(default=DIRECTIONS)
    random: int = Field(default=3, ge=1, le=1000)
    states: int = Field(default=12, ge=2, le=100_000)
    probes: str | None = None
    seed: int = Field(default=0, ge=0, le=2**62)

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Steer all pairs at each site and layer, skipping results that are already stored."""
        layers = layers_of(subject.model, self.layers)
        groups = [subject.pairs(self.pairs, control=control) for control in (False, True)]
        pairs = [pair for group in groups for pair in group.kept]
        views = fresh_views(pairs, count=self.states, seed=self.seed)
        states = cache(lambda: states_of(subject.agent, views, self.sites, max_tokens=self.max_tokens))
        site_layers = {f"{site} {layer}": (site, layer) for site in self.sites for layer in layers}
        subject.work(site_layers, lambda site, layer: steer(subject.agent, pairs, states(), self, site, layer))
        return {
            "settings": self.model_dump(mode="json"),
            "pairs": len(groups[0].kept),
            "control pairs": len(groups[1].kept),
            "left out": [dict(group.left_out) for group in groups],
            "layers": list(layers),
            "grids that directions are learned from": len(views),
        }


def steer(
    agent: ChatAgent, pairs: Sequence[Pair], states: ReadStates, settings: Steering, site: Where, layer: int
) -> Rows:
    """Steer the first side of each pair towards its second at one site and layer.

    Args:
        agent: the agent that the pairs were found with.
        pairs: pairs and control pairs.
        states: states that directions are learned from; no grid of the pairs is among them.
        settings: directions, doses, seeds.
        site, layer: where the direction is added.

    Returns:
        Rows with the tags site, layer, direction, dose, moved, pairs, and those of the pairs; clusters are grids.

    Raises:
        ValueError: a layer or site does not exist, or a probe belongs to another model, site or layer.
    """
    model = local_model(agent)
    probe_site: Site = "grid" if site == "changed" else site
    stored_probes = None
    if settings.probes is not None and site in ("pre", "post"):
        side = max(max(pair.sides[0].view.grid.walls.shape) for pair in pairs)
        stored_probes = kept_probes(Path(settings.probes), site, layer, model_id(model), side)
    activations = read_passages(model, states.passages[probe_site], layer)
    directions = fit_directions(site, layer, model_id(model), states, activations, seed=settings.seed)
    if stored_probes is not None:
        directions.probe.source.check_same(stored_probes[0].source)
        directions = replace(directions, probe=stored_probes[0], shuffled=stored_probes[1])

    def changes(pair: Pair, passage: Passage, first: Array, second: Array) -> list[tuple[_Plan, list[Edit]]]:
        plans = _planned(pair, directions, settings, first, second)
        return [(plan, added(passage, layer, plan.added)) for plan in plans]

    written = {id(pair): model.text(pair.sides[0].output) for pair in pairs}
    outcomes = acted(
        agent, pairs, (site, layer), changes, together=_PAIRS_AT_ONCE, sides=2, max_tokens=settings.max_tokens
    )
    return averaged(
        row
        for pair, plan, answer in outcomes
        for row in pair_rows(
            pair,
            _effects(pair, directions, plan, answer, written[id(pair)]),
            site=site,
            layer=layer,
            direction=plan.kind,
            dose=plan.dose,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """Planned change with its direction, dose, added vectors ``[P, D]`` and the resulting activations."""

    kind: str
    dose: float
    added: Array
    after: Array


def _planned(pair: Pair, directions: Directions, settings: Steering, first: Array, second: Array) -> Iterator[_Plan]:
    difference = (second - first).astype(np.float64)
    rng = stream(settings.seed, "random directions", pair.id, directions.site, directions.layer)
    # Each changed cell is scaled by its own difference. Several tokens of one site are scaled by their joint
    # difference.
    axis: Any = -1 if directions.site in ("changed", "grid") else None
    size = np.linalg.norm(difference, axis=axis, keepdims=True)
    for kind in settings.directions:
        for _ in range(settings.random if kind == RANDOM else 1):
            direction: npt.NDArray[np.float64] | None
            if kind == RANDOM:
                direction = rng.standard_normal(difference.shape)
            else:
                direction = difference if kind == OWN else directions.vectors(kind, pair)
            if direction is None:
                continue
            norm = np.linalg.norm(direction, axis=axis, keepdims=True)
            unit = np.divide(direction, norm, out=np.zeros_like(direction), where=norm > 0)
            for dose in settings.doses:
                added = (dose * size * unit).astype(np.float32)
                yield _Plan(kind=kind, dose=float(dose), added=added, after=first + added)


def _effects(pair: Pair, directions: Directions, plan: _Plan, answer: Reply, before: str) -> dict[str, float]:
    values = {**effect(pair, answer), FLIPPED: float(directions.flips(pair, plan.after))}
    stated = _still_stated(pair, before, written_in(answer))
    return values if stated is None else {**values, STATED: float(stated)}


def _still_stated(pair: Pair, before: str, after: str) -> bool | None:
    """Return whether the text still states the cell of the unmoved thing as (row,col); None if it never did."""
    grid = pair.sides[0].view.grid
    cell = grid.start if pair.moved == "goal" else grid.goal
    if cell is None:
        return None
    text = f"({cell[0]},{cell[1]})"
    return text in after.replace(" ", "") if text in before.replace(" ", "") else None
