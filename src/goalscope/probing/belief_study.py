"""Actions against the maps that probes decode: rows, and the maps that a report draws."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from goalscope.probing.beliefs import DIFFERENCE, belief_rows, read_beliefs
from goalscope.probing.decisions import Decisions
from goalscope.probing.heads import COUNTED
from goalscope.probing.probe import Probe
from goalscope.probing.scores import READINGS, difference_rows
from goalscope.probing.shown_maps import ShownMap, choose_maps
from goalscope.probing.suite import Entry, FittedProbes, ProbeInputs
from goalscope.rows import Rows, Tag
from goalscope.runs import Store

SOURCE: Final = "beliefs"
"""The source under which a store keeps the rows, and the name under which it keeps the maps that are drawn."""

BELIEF_SUITE: Final[tuple[Entry, ...]] = (("mlp", "none"), ("mlp", "untrained"), ("position", "none"))
"""Probes whose maps are read by default: the paper's, the same on an untrained model, and places alone."""


def compare_beliefs(
    data: ProbeInputs,
    decisions: Decisions,
    fitted: FittedProbes[Probe],
    *,
    suite: Sequence[Entry] = BELIEF_SUITE,
    device: str = "cpu",
) -> tuple[Rows, list[ShownMap]]:
    """Set the actions on the tested grids against the maps that each probe decodes there.

    Args:
        data: what is read, the truth and the split.
        decisions: what was done at the same steps, see `decisions_at`.
        fitted: probes of the same data.
        suite: heads and controls whose maps are read; controls "none" and "untrained".
        device: where probes compute.

    Returns:
        Rows of all probes in both readings (tag ``reading``), see `belief_rows`; with an untrained control also how
        much each difference exceeds that of the untrained model, by grid; and the maps to be drawn: of the first
        entry at the middle layer of each site, at natural frequencies.

    Raises:
        ValueError: another control, or no captured activations of the untrained one.
    """
    tested = decisions.where(data.split.test)
    layers = sorted({one.layer for one in data.activations})
    middle = layers[len(layers) // 2]
    parts, shown = [], []
    for entry, tags, posteriors in maps_of(data, fitted, suite, device):
        for reading in READINGS:
            beliefs = read_beliefs(posteriors[reading])
            told: Mapping[str, Tag] = {**tags, "reading": reading}
            parts.append(belief_rows(beliefs, tested, told))
            if entry == suite[0] and reading == "natural" and tags["layer"] in (middle, None):
                shown += choose_maps(beliefs, tested, told)
    rows = Rows.concatenate(parts)
    if any(control == "untrained" for _, control in suite):
        less = np.fromiter((str(name).endswith(DIFFERENCE) for name in rows.measure), dtype=bool, count=len(rows))
        rows = Rows.concatenate([rows, difference_rows(rows.where(less), "untrained")])
    return rows, shown


def maps_of(
    data: ProbeInputs, fitted: FittedProbes[Probe], suite: Sequence[Entry], device: str = "cpu"
) -> Iterator[tuple[Entry, dict[str, Tag], dict[str, npt.NDArray[np.float32]]]]:
    """Return each probe's entry, its tags and its posteriors by reading, ``[N, n, n, K]``.

    Args:
        data: what is read on the tested grids.
        fitted: the probes.
        suite: heads and controls; heads that read no activation come once.
        device: where to compute.

    Raises:
        ValueError: a control that is not "none" or "untrained", or whose activations are not given.
    """
    for entry in suite:
        head, control = entry
        if control not in ("none", "untrained"):
            raise ValueError(f"maps are read of controls none and untrained, got {control!r}")
        given = data.activations if control == "none" else data.untrained
        if not given:
            raise ValueError(
                "the untrained control needs activations of a model with random weights: capture with --untrained SEED"
            )
        for one in given[:1] if head in COUNTED else given:
            probe = fitted.probe(head, one, control=control)
            said = probe.predict(one.where(data.split.test), device=device)
            tags: dict[str, Tag] = {"head": head, "control": control, "scope": "general", "probe": probe.id}
            tags |= {"site": None, "layer": None} if head in COUNTED else {"site": one.site, "layer": one.layer}
            yield entry, tags, {name: said.maps(name) for name in READINGS}


def keep_beliefs(store: Store, rows: Rows, shown: Sequence[ShownMap]) -> None:
    """Store rows and maps in place of those that were there."""
    store.put_rows(rows, source=SOURCE)
    store.put_info(SOURCE, {"maps": [one.to_plain() for one in shown]})
