"""Patched forwards of nnsight, imported by benchmarks/patching.py where nnsight is installed."""

from typing import Any

import torch
from nnsight import NNsight


class Peer:
    """A model in nnsight's wrapper."""

    def __init__(self, model: Any) -> None:
        self._wrapped = NNsight(model)

    def patched(self, ids: torch.Tensor, layer: int, places: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[B, V]`` of the last token, rows from 2 on with the vectors of row 1 at some places."""
        model = self._wrapped
        with torch.no_grad(), model.trace(input_ids=ids, use_cache=False, logits_to_keep=1):
            hidden = model.model.layers[layer].output
            hidden[2:, places] = hidden[1:2, places].expand(len(ids) - 2, -1, -1)
            logits = model.output.logits.save()
        last: torch.Tensor = logits[:, -1]
        return last
