"""The posteriors of fitted probes at tested steps, probe by probe."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import Activations
from goalscope.probing.heads import COUNTED
from goalscope.probing.scores import READINGS
from goalscope.probing.suite import Entry, FittedProbes
from goalscope.rows import Tag

Posteriors = dict[str, npt.NDArray[np.float32]]


def maps_of(
    fitted: FittedProbes,
    activations: Sequence[Activations],
    untrained: Sequence[Activations],
    tested: npt.NDArray[np.bool_],
    matrix: Sequence[Entry],
    device: str = "cpu",
) -> Iterator[tuple[Entry, dict[str, Tag], Posteriors]]:
    """Return each probe's entry, its tags and its posteriors by reading, ``[N, n, n, K]``.

    Args:
        fitted: the probes.
        activations: of several sites and layers, the same steps.
        untrained: the same of a model with random weights.
        tested: ``[N]`` bool, the steps that are read.
        matrix: heads and controls; heads that read no activation come once.
        device: where to compute.

    Raises:
        ValueError: a control that is not "none" or "untrained", or whose activations are not given.
    """
    for entry in matrix:
        head, control = entry
        if control not in ("none", "untrained"):
            raise ValueError(f"maps are read of controls none and untrained, got {control!r}")
        given = activations if control == "none" else untrained
        if not given:
            raise ValueError(
                "the untrained control needs activations of a model with random weights: capture with --untrained SEED"
            )
        for one in given[:1] if head in COUNTED else given:
            probe = fitted.probe(head, one, control=control)
            said = probe.predict(one.where(tested), device=device)
            tags: dict[str, Tag] = {"head": head, "control": control, "scope": "general", "probe": probe.id}
            tags |= {"site": None, "layer": None} if head in COUNTED else {"site": one.site, "layer": one.layer}
            yield entry, tags, {name: said.maps(name) for name in READINGS}
