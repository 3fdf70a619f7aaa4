"""The posteriors of fitted probes at tested steps, probe by probe."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from goalscope.represent.heads import COUNTED
from goalscope.represent.matrix import Entry, Fitted
from goalscope.represent.record import Activations
from goalscope.represent.scores import READINGS
from goalscope.rows import Tag

Posteriors = dict[str, npt.NDArray[np.float32]]


def maps_of(
    fitted: Fitted,
    activations: Sequence[Activations],
    untrained: Sequence[Activations],
    tested: npt.NDArray[np.bool_],
    matrix: Sequence[Entry],
    device: str = "cpu",
    scope: str = "general",
) -> Iterator[tuple[Entry, tuple[dict[str, Tag], Posteriors]]]:
    """Return each probe's tags and its posteriors by reading, ``[N, n, n, K]``.

    Args:
        fitted: the probes.
        activations: of several sites and layers, the same steps.
        untrained: the same of a model with random weights.
        tested: ``[N]`` bool, the steps that are read.
        matrix: heads and controls; heads that read no activation come once.
        device: where to compute.
        scope: which grids the probes are for.

    Raises:
        ValueError: a control that is not "none" or "untrained", or whose activations are not given.
    """
    for entry in matrix:
        head, control = entry
        if control not in ("none", "untrained"):
            raise ValueError(f"maps are read of controls none and untrained, got {control!r}")
        given: Sequence[Activations] = activations if control == "none" else untrained
        if not given:
            raise ValueError(
                "the untrained control needs activations of a model with random weights: capture with --untrained SEED"
            )
        for one in given[:1] if head in COUNTED else given:
            probe = fitted.probe(head, one, control=control, scope=scope)
            said = probe.predict(one.where(tested), device=device)
            tags: dict[str, Tag] = {"head": head, "control": control, "scope": scope, "probe": probe.id}
            tags |= {"site": None, "layer": None} if head in COUNTED else {"site": one.site, "layer": one.layer}
            yield entry, (tags, {name: _square(said.reading(name), probe.frame) for name in READINGS})


def _square(posterior: npt.NDArray[Any], frame: int) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = posterior.reshape(len(posterior), frame, frame, -1)
    return found
