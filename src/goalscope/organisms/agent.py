"""An organism as an agent of studies and evaluations, such as ``organism:folder=organisms/goal-network-100-0``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from goalscope.agents.agent import Observation, agent_kind
from goalscope.agents.scripted import Distribution, ScriptedAgent
from goalscope.worlds.gridworld import GridView

if TYPE_CHECKING:
    from goalscope.goals.hypotheses.definition import Array
    from goalscope.organisms.cards import Card


@agent_kind("organism")
@dataclass(frozen=True)
class Organism(ScriptedAgent):
    """Draws its moves from the table or the network of an organism, see `goalscope.organisms`.

    Args:
        folder: folder with the card and weights. The id depends on their content, not on their place.
    """

    kind: ClassVar[str] = "organism"
    folder: str = field()

    def describe(self) -> Mapping[str, Any]:
        """Return the organism and the hash of its weights."""
        card, _ = _read(self.folder)
        return {"kind": self.kind, "version": self.version, "spec": card.spec.plain(), "weights": card.weights}

    def probabilities(self, observation: Observation) -> Distribution:
        """Return the probability of each move, ``[4]``."""
        from goalscope.organisms.learners import policy

        card, weights = _read(self.folder)
        view = observation.seen(GridView)
        if view.grid.start is None or view.grid.fog is not None:
            raise ValueError("an organism must see its own cell and the whole grid: use worlds without fog")
        cells, carrying = np.array([view.grid.start]), np.array([view.carrying_key])
        return np.asarray(policy(card.spec, weights, view.grid, cells, carrying)[0])


@lru_cache(maxsize=256)
def _read(folder: str) -> "tuple[Card, dict[str, Array]]":
    from goalscope.organisms.cards import read_card, read_weights

    path = Path(folder)
    card = read_card(path)
    return card, read_weights(path, card)
