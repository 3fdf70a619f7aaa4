"""Steering: add a direction that stands for another cell of goal or agent, and see whether the action follows.

A dose is the length of what is added in units of the site's own difference, that of the two sides of the pair: norms
differ by place and layer. Dose 1 of the pair's own difference is a patch. Beside each direction stand random ones and
one of a probe of shuffled labels, of the same length; what the action must become is known from the edited map.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope.activations.replay_target import model_id
from goalscope.activations.sites import Site
from goalscope.agents.chat import ChatAgent
from goalscope.interventions.directions import OWN, RANDOM, Directions, fit_directions, kept_probes
from goalscope.interventions.edits import Edit
from goalscope.interventions.experiment import Headline, OnPairs, PairSettings, Subject, intervention
from goalscope.interventions.pairs import Pair, local_model
from goalscope.interventions.reading import (
    FOLLOWS,
    Answer,
    Passage,
    States,
    Where,
    acted,
    added,
    averaged,
    fresh_views,
    layers_of,
    pair_rows,
    read_passages,
    states_of,
)
from goalscope.rng import stream
from goalscope.rows import Rows
from goalscope.runs.kinds import sequence
from goalscope.runs.probing_config import Layers

KIND: Final = "steering"
FLIPPED: Final = "its own probe flips"
STATED: Final = "position of the unmoved thing still stated"
"""Measures beside those of `goalscope.interventions.reading`."""
Direction = Literal["probe", "mean difference", "shuffled probe", "random", "own difference"]
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
Array = npt.NDArray[np.float32]
_PART: Final = 8  # pairs whose changed prompts are in memory at a time


@intervention(KIND)
class Steering(OnPairs):
    """Directions that stand for another cell of goal or agent, added to the original of each pair.

    `sites` are the cells that differ, and the tokens before and after the reasoning; `layers` are thirds, all, or
    numbers. `doses` are lengths in units of the site's own difference, `random` the number of random directions of each
    pair. Directions are learned from `states` grids of each size and density, none of them steered; with `probes`, a
    run directory, those before and after the reasoning are of the per-cell probes of that run.
    """

    headline: ClassVar[Headline] = ((FOLLOWS,), {"pairs": "counterfactual"}, ("site", "layer", "direction", "dose"))

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

    def run(self, subject: Subject) -> Mapping[str, Any]:
        """Steer all pairs at each site and layer; what is stored is not done again."""
        layers = layers_of(subject.model, self.layers)
        found = [subject.pairs(self.pairs, control=control) for control in (False, True)]
        pairs = [pair for one in found for pair in one.kept]
        views = fresh_views(pairs, count=self.states, seed=self.seed)
        states = cache(lambda: states_of(subject.agent, views, self.sites, max_tokens=self.max_tokens))
        places = {f"{site} {layer}": (site, layer) for site in self.sites for layer in layers}
        subject.work(places, lambda site, layer: steer(subject.agent, pairs, states(), self, site, layer))
        return {
            "settings": self.model_dump(mode="json"),
            "pairs": len(found[0].kept),
            "control pairs": len(found[1].kept),
            "left out": [dict(one.left_out) for one in found],
            "layers": list(layers),
            "grids that directions are learned from": len(views),
        }


def steer(agent: ChatAgent, pairs: Sequence[Pair], states: States, settings: Steering, site: Where, layer: int) -> Rows:
    """Steer the first side of each pair towards its second at one site and layer.

    Args:
        agent: the agent that the pairs were found with.
        pairs: pairs and control pairs.
        states: what directions are learned from; no grid of the pairs is among them.
        settings: directions, doses, seeds.
        site, layer: where.

    Returns:
        Rows with the tags site, layer, direction, dose, moved, pairs, and those of the pairs; clusters are grids.

    Raises:
        ValueError: a layer or site that is not there, or a probe of another model, site or layer.
    """
    model = local_model(agent)
    where: Site = "grid" if site == "changed" else site
    kept = None
    if settings.probes is not None and site in ("pre", "post"):
        side = max(max(pair.sides[0].view.grid.walls.shape) for pair in pairs)
        kept = kept_probes(Path(settings.probes), site, layer, model_id(model), side)
    known = read_passages(model, states.passages[where], layer)
    directions = fit_directions(site, layer, model_id(model), states, known, seed=settings.seed)
    if kept is not None:
        directions.probe.source.check_same(kept[0].source)
        directions = replace(directions, probe=kept[0], shuffled=kept[1])

    def changes(pair: Pair, one: Passage, first: Array, second: Array) -> list[tuple[_Plan, list[Edit]]]:
        plans = _planned(pair, directions, settings, first, second)
        return [(plan, added(one, layer, plan.added)) for plan in plans]

    written = {id(pair): model.text(pair.sides[0].output) for pair in pairs}
    done = acted(agent, pairs, (site, layer), changes, together=_PART, sides=2, max_tokens=settings.max_tokens)
    return averaged(
        row
        for pair, plan, said in done
        for row in pair_rows(
            pair,
            _effects(pair, directions, plan, said, written[id(pair)]),
            site=site,
            layer=layer,
            direction=plan.kind,
            dose=plan.dose,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """One change: the direction, its dose, what is added ``[P, D]``, and what the site then holds."""

    kind: str
    dose: float
    added: Array
    after: Array


def _planned(pair: Pair, directions: Directions, wanted: Steering, first: Array, second: Array) -> Iterator[_Plan]:
    own = (second - first).astype(np.float64)
    rng = stream(wanted.seed, "random directions", pair.id, directions.site, directions.layer)
    # Each changed cell is scaled by its own difference; several tokens of one site by that of all together.
    axis: Any = -1 if directions.site in ("changed", "grid") else None
    size = np.linalg.norm(own, axis=axis, keepdims=True)
    for kind in wanted.directions:
        for _ in range(wanted.random if kind == RANDOM else 1):
            given: npt.NDArray[np.float64] | None
            if kind == RANDOM:
                given = rng.standard_normal(own.shape)
            else:
                given = own if kind == OWN else directions.vectors(kind, pair)
            if given is None:
                continue
            norm = np.linalg.norm(given, axis=axis, keepdims=True)
            unit = np.divide(given, norm, out=np.zeros_like(given), where=norm > 0)
            for dose in wanted.doses:
                added = (dose * size * unit).astype(np.float32)
                yield _Plan(kind=kind, dose=float(dose), added=added, after=first + added)


def _effects(pair: Pair, directions: Directions, plan: _Plan, said: Answer, before: str) -> dict[str, float]:
    values = {**said.effect(pair), FLIPPED: float(directions.flips(pair, plan.after))}
    stated = _still_stated(pair, before, said.text)
    return values if stated is None else {**values, STATED: float(stated)}


def _still_stated(pair: Pair, before: str, after: str) -> bool | None:
    """Return whether the cell of what did not move is still written as (row,col), None where it never was."""
    grid = pair.sides[0].view.grid
    cell = grid.start if pair.moved == "goal" else grid.goal
    if cell is None:
        return None
    text = f"({cell[0]},{cell[1]})"
    return text in after.replace(" ", "") if text in before.replace(" ", "") else None
