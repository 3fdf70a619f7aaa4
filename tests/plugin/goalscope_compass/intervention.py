"""An experiment on activations: how much of the counterfactual's cells must be mixed in before the action follows."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from goalscope.inside.interventions import (
    FOLLOWS,
    Edit,
    ExperimentSubject,
    Headline,
    Pair,
    PairSettings,
    Passage,
    acted,
    added,
    effect,
    intervention,
    pair_rows,
)
from goalscope.stats import Rows

Array = npt.NDArray[np.float32]


@intervention("mixture")
class Mixture(BaseModel):
    """The activations of the cells that differ after one layer, a part of the way to the other grid's."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    headline: ClassVar[Headline] = ((FOLLOWS,), {}, ("part",))

    kind: Literal["mixture"] = "mixture"
    agent: str | None = None
    pairs: PairSettings = PairSettings(controls=0)
    layer: int = 0
    parts: tuple[float, ...] = (0.0, 0.5, 1.0)

    def run(self, subject: ExperimentSubject) -> Mapping[str, Any]:
        """Mix each pair; what is stored is not done again."""
        found = subject.pairs(self.pairs)
        subject.work({pair.id: (subject, pair) for pair in found.kept}, self._mixed)
        return {"settings": self.model_dump(mode="json"), "pairs": len(found.kept)}

    def _mixed(self, subject: ExperimentSubject, pair: Pair) -> Rows:
        def changes(pair: Pair, own: Passage, first: Array, second: Array) -> list[tuple[float, list[Edit]]]:
            return [(part, added(own, self.layer, part * (second - first))) for part in self.parts]

        done = acted(subject.agent, [pair], ("changed", self.layer), changes, together=1, sides=2)
        return Rows.from_rows(row for _, part, said in done for row in pair_rows(pair, effect(pair, said), part=part))
