"""An experiment on activations: how much of the counterfactual's cells must be mixed in before the action follows."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from goalscope.interventions import Edit, Pair
from goalscope.interventions.experiment import Headline, PairSettings, Subject, intervention
from goalscope.interventions.reading import FOLLOWS, Passage, answers, pair_tags, read_activations
from goalscope.rows import Row, Rows


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

    def run(self, subject: Subject) -> Mapping[str, Any]:
        """Mix each pair; what is stored is not done again."""
        found = subject.pairs(self.pairs)
        for done, pair in enumerate(found.kept):
            subject.show(done, len(found.kept))
            if not subject.has(pair.id):
                subject.keep(pair.id, Rows.from_rows(self._mixed(subject, pair)))
        subject.show(len(found.kept), len(found.kept))
        return {"settings": self.model_dump(mode="json"), "pairs": len(found.kept)}

    def _mixed(self, subject: Subject, pair: Pair) -> Iterator[Row]:
        import torch

        prompts = [side.prompt for side in pair.sides]
        read = read_activations(subject.model, prompts, [pair.changed] * 2, [self.layer])[self.layer]
        own = Passage(ids=pair.sides[0].prompt, replayed=0, places=pair.changed)
        added = [torch.from_numpy((part * (read[1] - read[0])).astype(np.float32)) for part in self.parts]
        edits = [[Edit(row=0, layer=self.layer, positions=pair.changed, vectors=one, how="add")] for one in added]
        [said] = answers(subject.agent, [pair.sides[0].view], [own], [edits])
        for part, answer in zip(self.parts, said, strict=True):
            tags = {**pair_tags(pair), "part": part}
            for measure, value in answer.effect(pair).items():
                yield Row(measure=measure, unit="share", value=value, grid_id=pair.cluster, tags=tags)
