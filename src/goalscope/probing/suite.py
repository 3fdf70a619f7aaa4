"""The declared suite of heads and controls: one call fits and scores all of it on one split."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope import registry
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
from goalscope.probing.fitted import Fitted, ProbeKey, Target
from goalscope.probing.fitting import fit
from goalscope.probing.heads import CELL_HEADS, COUNTED
from goalscope.probing.probe import Features, Probe
from goalscope.probing.problem import FitSettings, Problem
from goalscope.probing.scores import confusion_rows, score_cells
from goalscope.probing.training import Callbacks
from goalscope.rows import Rows

Made = TypeVar("Made", bound=Fitted)
Entry = tuple[str, str]
"""A head and a control."""
AnySiteLayer = tuple[str | None, int | None]
"""Site and layer, None where no activations are read."""
NOWHERE: Final[AnySiteLayer] = (None, None)

FULL: Final[tuple[Entry, ...]] = (
    *((head, control) for head in COUNTED for control in ("none", "shuffled")),
    *((head, control) for head in CELL_HEADS if head not in COUNTED for control in CONTROLS),
)
"""All heads and controls."""
CORE: Final[tuple[Entry, ...]] = (("mlp", "none"), ("mlp", "untrained"))
"""What a claim about beliefs rests on: the probe and the same probe on an untrained model."""


def entries_of(heads: Sequence[str]) -> tuple[Entry, ...]:
    """Return those of some heads that predict cells, each with every control.

    Raises:
        ValueError: a head that is not registered.
    """
    cells = [name for name in heads if "cells" in registry.resolve("head", name).targets and name not in COUNTED]
    return tuple((head, control) for head in cells for control in CONTROLS)


def without(suite: Sequence[Entry], *names: str) -> tuple[Entry, ...]:
    """Return a suite without some heads or controls, e.g. ``without(FULL, "text")`` for a model without reasoning."""
    return tuple(entry for entry in suite if not set(entry) & set(names))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedProbes(Generic[Made]):
    """The fitted probes of a suite.

    Attributes:
        probes: key -> probe.
        rows: the scores of all of them, and of what they are compared with, on the tested grids.
    """

    probes: Mapping[ProbeKey, Made]
    rows: Rows

    def probe(self, head: str, activations: Activations, *, control: str = "none", scope: str = "general") -> Made:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """What is to be predicted at N steps.

    Attributes:
        target: ``[N, ...]``.
        train, test: ``[N]`` bool, the steps that are trained on and tested.
    """

    target: npt.NDArray[Any]
    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tested(Generic[Made]):
    """A fitted probe with the tested steps.

    Attributes:
        key: which probe it is.
        probe: what was fitted.
        features: the inputs of the tested steps.
        truth: "none", or "shuffled" where the labels of another grid are the truth.
    """

    key: ProbeKey
    probe: Made
    features: Features
    truth: str


def fit_suite(
    inputs: Sequence[tuple[str, AnySiteLayer, Features]],
    suite: Sequence[Entry],
    truths: Mapping[str, Truth],
    problem: Callable[[ProbeKey, Features, npt.NDArray[Any]], Problem],
    *,
    target: Target,
    settings: FitSettings,
    scope: str = "general",
    callbacks: Callbacks[Made] | None = None,
) -> list[Tested[Made]]:
    """Fit every entry of a suite at every place: the one loop over heads and controls, whatever is predicted.

    Args:
        inputs: control, place and what a probe reads there at N steps.
        suite: heads and controls.
        truths: "none" -> what is predicted, "shuffled" -> the same of other grids.
        problem: makes a problem from its key, its training inputs and their target.
        target: what is predicted.
        settings: how probes are trained.
        scope: which grids the probes are for.
        callbacks: gives what is fitted already, and is told of what is finished.
    """
    parts: dict[tuple[int, int], tuple[Features, Features]] = {}
    problems: list[Problem] = []
    tested: list[tuple[Features, str]] = []
    for control, place, given in inputs:
        name = "shuffled" if control == "shuffled" else "none"
        truth = truths[name]
        known = (id(given), id(truth.train))
        if known not in parts:
            parts[known] = (given.where(truth.train), given.where(truth.test))
        train, test = parts[known]
        for head, wanted in suite:
            # Heads that read no activation are the same at every place: they are fitted at the first.
            if wanted != control or (head in COUNTED and place != inputs[0][1]):
                continue
            site, layer = NOWHERE if head in COUNTED else place
            key = ProbeKey(
                head=head, target=target, control=control, seed=settings.seed, site=site, layer=layer, scope=scope
            )
            problems.append(problem(key, train, truth.target[truth.train]))
            tested.append((test, name))
    probes = fit(problems, settings, callbacks)
    return [
        Tested(key=one.key, probe=probe, features=features, truth=name)
        for one, probe, (features, name) in zip(problems, probes, tested, strict=True)
    ]


def inputs_at(
    activations: Sequence[Activations], untrained: Sequence[Activations], controls: Sequence[str]
) -> list[tuple[str, AnySiteLayer, Features]]:
    """Return control, place and inputs for every place and control: activations, those of random weights for one."""
    random = {_place(one): one for one in untrained}
    found: list[tuple[str, AnySiteLayer, Features]] = []
    for one in activations:
        own = Features.of(one)
        found += [
            (control, _place(one), Features.of(random[_place(one)]) if control == "untrained" else own)
            for control in controls
        ]
    return found


def probe_suite(
    activations: Sequence[Activations],
    cells: Cells,
    split: Split,
    *,
    untrained: Sequence[Activations] = (),
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    scope: str = "general",
    callbacks: Callbacks[Probe] | None = None,
    scored: bool = True,
) -> FittedProbes[Probe]:
    """Fit every head with every control on one split, and score all of them on its tested grids.

    Args:
        activations: one or more sites and layers of the same N steps.
        cells: the truth at these steps, see `label_cells`.
        split: which steps are trained on and which tested, see `split_by_grid`.
        untrained: the same sites, layers and steps from a capture with random weights.
        suite: heads and controls, `FULL` by default.
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
    _check(activations, cells, split, untrained, suite)
    controls = {control for _, control in suite}
    labelled = {"none": cells}
    if "shuffled" in controls:
        # Another grid's labels stand beside this grid's activations, and their score belongs to this grid.
        labelled["shuffled"] = replace(cells, labels=cells.labels[shuffled_rows(cells, split, seed=used.seed)])
    fitted = fit_suite(
        _inputs(activations, untrained, cells, split, controls),
        suite,
        {name: Truth(target=one.labels, train=split.train, test=split.test) for name, one in labelled.items()},
        lambda key, features, target: Problem(
            key=key, features=features, target=target, tags={"control": key.control, "scope": scope}
        ),
        target="cells",
        settings=used,
        scope=scope,
        callbacks=callbacks,
    )
    truths = {name: one.where(split.test) for name, one in labelled.items()}
    rows: list[Rows] = []
    for one in fitted if scored else ():
        about = {"probe": one.probe.id, **one.key.tags, "scope": scope}
        said = one.probe.predict(one.features, device=used.device)
        rows.append(score_cells(said, truths[one.truth], about))
        if one.key.control == "none":
            rows.append(confusion_rows(said, truths[one.truth], about))
    return FittedProbes(probes={one.key: one.probe for one in fitted}, rows=Rows.concatenate(rows))


def probe_suite_by_size(
    activations: Sequence[Activations],
    cells: Cells,
    split: Split,
    *,
    untrained: Sequence[Activations] = (),
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    callbacks: Callbacks[Probe] | None = None,
) -> FittedProbes[Probe]:
    """Do the same with probes of their own for each shape of grid, in a frame of its size; scopes are "7x7" etc.

    Raises:
        ValueError: see `probe_suite`; or no grid of some shape is trained on, or tested.
    """
    check_sizes(cells, split)
    probes: dict[ProbeKey, Probe] = {}
    rows = []
    for height, width in np.unique(cells.shape, axis=0).tolist():
        mask = (cells.shape == (height, width)).all(axis=1)
        found = probe_suite(
            [one.where(mask) for one in activations],
            cells.where(mask).framed(max(height, width)),
            Split(train=split.train[mask], test=split.test[mask], grid_id=split.grid_id[mask]),
            untrained=[one.where(mask) for one in untrained],
            suite=suite,
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


def _place(one: Activations) -> AnySiteLayer:
    return one.site, one.layer


def _inputs(
    activations: Sequence[Activations],
    untrained: Sequence[Activations],
    cells: Cells,
    split: Split,
    controls: set[str],
) -> list[tuple[str, AnySiteLayer, Features]]:
    """Return control, place and inputs for all that a probe of cells can read."""
    found = inputs_at(activations, (), [name for name in ("none", "shuffled") if name in controls])
    if "untrained" in controls:
        found += inputs_at(activations, untrained, ["untrained"])
    if "input" in controls:
        found.append(("input", NOWHERE, input_features(cells)))
    if "text" in controls:
        found.append(("text", NOWHERE, text_features(cells, split.train)))
    return found


def _check(
    activations: Sequence[Activations],
    cells: Cells,
    split: Split,
    untrained: Sequence[Activations],
    suite: Sequence[Entry],
) -> None:
    if not activations or not suite:
        raise ValueError("a suite must have activations and entries, got none")
    for entry in suite:
        if entry not in FULL and entry not in entries_of([entry[0]]):
            raise ValueError(f"an entry of a suite must be a head with one of its controls, got {entry!r}")
    for given, name in ((list(suite), "entries"), ([_place(one) for one in activations], "sites and layers")):
        if len(set(given)) != len(given):
            raise ValueError(f"the {name} of a suite must be different, got {given}")
    check_steps(activations, untrained, cells, split)
    if any(control == "untrained" for _, control in suite):
        check_untrained(activations, untrained)
