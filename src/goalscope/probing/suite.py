"""The declared matrix of heads and controls: one call fits and scores all of it on one split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from goalscope.activations.record import Activations
from goalscope.probing.cells import Cells, Split
from goalscope.probing.controls import (
    CONTROLS,
    check_steps,
    check_untrained,
    input_features,
    shuffled_rows,
    text_features,
)
from goalscope.probing.fitted import ProbeKey
from goalscope.probing.fitting import FitSettings, Problem, fit
from goalscope.probing.heads import CELL_HEADS, COUNTED
from goalscope.probing.probe import Features, Probe
from goalscope.probing.scores import confusion_rows, score_cells
from goalscope.probing.training import Callbacks, fit_missing
from goalscope.rows import Rows

Entry = tuple[str, str]
"""A head and a control."""
Where = tuple[str | None, int | None]
"""Site and layer, None where no activations are read."""
NOWHERE: Final[Where] = (None, None)

FULL: Final[tuple[Entry, ...]] = (
    *((head, control) for head in COUNTED for control in ("none", "shuffled")),
    *((head, control) for head in CELL_HEADS if head not in COUNTED for control in CONTROLS),
)
"""All heads and controls."""
CORE: Final[tuple[Entry, ...]] = (("mlp", "none"), ("mlp", "untrained"))
"""What a claim about beliefs rests on: the probe and the same probe on an untrained model."""


def without(matrix: Sequence[Entry], *names: str) -> tuple[Entry, ...]:
    """Return a matrix without some heads or controls, e.g. ``without(FULL, "text")`` for a model without reasoning."""
    return tuple(entry for entry in matrix if not set(entry) & set(names))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedProbes:
    """A fitted matrix.

    Attributes:
        probes: key -> probe.
        rows: the scores of all of them on the tested grids, see `score_cells`, and what they take for what, see
            `confusion_rows`.
    """

    probes: Mapping[ProbeKey, Probe]
    rows: Rows

    def probe(self, head: str, activations: Activations, *, control: str = "none", scope: str = "general") -> Probe:
        """Return the probe of a head and control for the site and layer of some activations.

        Raises:
            KeyError: it was not fitted; names those that were.
        """
        for key, probe in self.probes.items():
            wanted = (key.head, key.control, key.scope) == (head, control, scope)
            if wanted and (key.site, key.layer) in (_place(activations), NOWHERE):
                return probe
        asked = ProbeKey(
            head=head, target="cells", control=control, site=activations.site, layer=activations.layer, scope=scope
        )
        raise KeyError(f"no probe {asked.text}: there are {', '.join(key.text for key in self.probes)}")


def probe_matrix(
    activations: Sequence[Activations],
    cells: Cells,
    split: Split,
    *,
    untrained: Sequence[Activations] = (),
    matrix: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    scope: str = "general",
    callbacks: Callbacks[Probe] | None = None,
    scored: bool = True,
) -> FittedProbes:
    """Fit every head with every control on one split, and score all of them on its tested grids.

    Args:
        activations: one or more sites and layers of the same N steps.
        cells: the truth at these steps, see `label_cells`.
        split: which steps are trained on and which tested, see `split_by_grid`.
        untrained: the same sites, layers and steps from a capture with random weights.
        matrix: heads and controls, `FULL` by default.
        settings: how probes are trained.
        scope: which grids the probes are for; a tag.
        callbacks: probes that are known are not fitted again; is told of each that is finished.
        scored: whether the probes are scored, too; without, there are no rows.

    Returns:
        The probes and their scores, side by side.

    Raises:
        ValueError: an unknown entry, steps that do not match, or a control whose data is missing; says how to get it.
    """
    used = settings or FitSettings()
    _check(activations, cells, split, untrained, matrix)
    controls = {control for _, control in matrix}
    truths = {"none": cells}
    if "shuffled" in controls:
        # Another grid's labels stand beside this grid's activations, and their score belongs to this grid.
        truths["shuffled"] = replace(cells, labels=cells.labels[shuffled_rows(cells, split, seed=used.seed)])
    parts = {name: (truth.where(split.train), truth.where(split.test)) for name, truth in truths.items()}
    sources = _sources(activations, untrained, cells, split, controls)
    problems: list[Problem] = []
    tested: list[tuple[Features, Cells, dict[str, Any]]] = []
    for control, place, train, test in sources:
        for head, wanted in matrix:
            # Heads that read no activation are the same at every place: they are fitted at the first.
            if wanted != control or (head in COUNTED and place != _place(activations[0])):
                continue
            learned, truth = parts["shuffled" if control == "shuffled" else "none"]
            site, layer = NOWHERE if head in COUNTED else place
            key = ProbeKey(
                head=head, target="cells", control=control, seed=used.seed, site=site, layer=layer, scope=scope
            )
            tags = {"control": control, "scope": scope}
            problems.append(Problem(key=key, features=train, target=learned.labels, tags=tags))
            tested.append((test, truth, {**key.tags, "scope": scope}))
    probes = fit_missing(problems, lambda missing, told: fit(missing, used, told), callbacks or Callbacks())
    rows: list[Rows] = []
    for probe, (features, labels, tags) in zip(probes, tested, strict=True) if scored else ():
        said, about = probe.predict(features, device=used.device), {"probe": probe.id, **tags}
        rows.append(score_cells(said, labels, about))
        if tags["control"] == "none":
            rows.append(confusion_rows(said, labels, about))
    return FittedProbes(
        probes={problem.key: probe for problem, probe in zip(problems, probes, strict=True)},
        rows=Rows.concatenate(rows),
    )


def probe_matrix_by_size(
    activations: Sequence[Activations],
    cells: Cells,
    split: Split,
    *,
    untrained: Sequence[Activations] = (),
    matrix: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    callbacks: Callbacks[Probe] | None = None,
) -> FittedProbes:
    """Do the same with probes of their own for each shape of grid, in a frame of its size; scopes are "7x7" etc.

    Raises:
        ValueError: see `probe_matrix`; or no grid of some shape is trained on, or tested.
    """
    check_sizes(cells, split)
    probes: dict[ProbeKey, Probe] = {}
    rows = []
    for height, width in np.unique(cells.shape, axis=0).tolist():
        mask = (cells.shape == (height, width)).all(axis=1)
        found = probe_matrix(
            [one.where(mask) for one in activations],
            cells.where(mask).framed(max(height, width)),
            Split(train=split.train[mask], test=split.test[mask], grid_id=split.grid_id[mask]),
            untrained=[one.where(mask) for one in untrained],
            matrix=matrix,
            settings=settings,
            scope=f"{height}x{width}",
            callbacks=callbacks,
        )
        probes |= found.probes
        rows.append(found.rows)
    return FittedProbes(probes=probes, rows=Rows.concatenate(rows))


def check_sizes(cells: Cells, split: Split) -> None:
    """Raise a ValueError unless each shape of grid stands in both parts of a split; names the first that does not."""
    for height, width in np.unique(cells.shape, axis=0).tolist():
        mask = (cells.shape == (height, width)).all(axis=1)
        for name, part in (("train", split.train), ("test", split.test)):
            if not (part & mask).any():
                raise ValueError(
                    f"probes of one size need grids of each shape in both parts of the split, the {name} part has none "
                    f"of {height} x {width}: record more grids of it, or leave these probes out (by_size: false)"
                )


def _place(one: Activations) -> Where:
    return one.site, one.layer


def _sources(
    activations: Sequence[Activations],
    untrained: Sequence[Activations],
    cells: Cells,
    split: Split,
    controls: set[str],
) -> list[tuple[str, Where, Features, Features]]:
    """Return control, place, and the inputs of training and test for all that a probe can read."""
    found: list[tuple[str, Where, Features, Features]] = []

    def add(controls_of: Sequence[str], place: Where, features: Features) -> None:
        train, test = features.where(split.train), features.where(split.test)
        found.extend((control, place, train, test) for control in controls_of if control in controls)

    for one in activations:
        add(("none", "shuffled"), _place(one), Features.of(one))
    random = {_place(one): one for one in untrained}
    if "untrained" in controls:
        for one in activations:
            add(("untrained",), _place(one), Features.of(random[_place(one)]))
    if "input" in controls:
        add(("input",), NOWHERE, input_features(cells))
    if "text" in controls:
        add(("text",), NOWHERE, text_features(cells, split.train))
    return found


def _check(
    activations: Sequence[Activations],
    cells: Cells,
    split: Split,
    untrained: Sequence[Activations],
    matrix: Sequence[Entry],
) -> None:
    if not activations or not matrix:
        raise ValueError("a matrix must have activations and entries, got none")
    for entry in matrix:
        if entry not in FULL:
            raise ValueError(f"an entry of a matrix must be a head with one of its controls, got {entry!r}")
    for given, name in ((list(matrix), "entries"), ([_place(one) for one in activations], "sites and layers")):
        if len(set(given)) != len(given):
            raise ValueError(f"the {name} of a matrix must be different, got {given}")
    check_steps(activations, untrained, cells, split)
    if any(control == "untrained" for _, control in matrix):
        check_untrained(activations, untrained)
