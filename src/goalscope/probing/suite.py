"""The declared suite of heads and controls: one call fits and scores all of it on one split."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope import registry
from goalscope.activations.record import Activations
from goalscope.probing.cells import Cells, Split
from goalscope.probing.controls import CONTROLS, check_untrained, input_features, shuffled_rows, text_features
from goalscope.probing.fitted import Fitted, ProbeKey, Target
from goalscope.probing.fitting import Callbacks, fit
from goalscope.probing.heads import CELL_HEADS, COUNTED
from goalscope.probing.probe import Features, Probe
from goalscope.probing.problem import FitSettings, Problem
from goalscope.probing.scores import confusion_rows, score_cells
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
class ProbeInputs:
    """Activations of several sites and layers of the same N steps, with the truth there and a split.

    Attributes:
        activations: one for each site and layer.
        cells: the truth at these steps, see `label_cells`.
        split: which steps are trained on and which tested, see `split_by_grid`.
        untrained: the same sites, layers and steps from a capture with random weights; empty without that control.

    Raises:
        ValueError: no activations, two of one site and layer, or other steps; names the first that differs.
    """

    activations: Sequence[Activations]
    cells: Cells
    split: Split
    untrained: Sequence[Activations] = ()

    def __post_init__(self) -> None:
        if not self.activations:
            raise ValueError("probes must have activations, got none")
        there = [site_layer(one) for one in self.activations]
        if len(set(there)) != len(there):
            raise ValueError(f"the sites and layers of activations must be different, got {there}")
        self.split.check_aligned(self.cells)
        for one in (*self.activations, *self.untrained):
            self.cells.check_aligned(one)

    def by_shape(self) -> Iterator[tuple[str, Self]]:
        """Return the steps of each shape of grid, such as "7x7", in a frame of its size."""
        for height, width in np.unique(self.cells.shape, axis=0).tolist():
            mask = (self.cells.shape == (height, width)).all(axis=1)
            parts = {name: getattr(self.split, name)[mask] for name in ("train", "test", "grid_id")}
            yield (
                f"{height}x{width}",
                type(self)(
                    activations=[one.where(mask) for one in self.activations],
                    cells=self.cells.where(mask).framed(max(height, width)),
                    split=Split(**parts),
                    untrained=[one.where(mask) for one in self.untrained],
                ),
            )

    def read(self, controls: Sequence[str]) -> list[tuple[str, AnySiteLayer, Features]]:
        """Return control, place and what a probe reads there, for every place and control.

        Raises:
            ValueError: the activations of random weights, or the written reasoning, are missing; says how to get them.
        """
        if "untrained" in controls:
            check_untrained(self.activations, self.untrained)
        random = {site_layer(one): one for one in self.untrained}
        own = [(site_layer(one), Features.of(one)) for one in self.activations]
        found: list[tuple[str, AnySiteLayer, Features]] = []
        for control in (one for one in CONTROLS if one in controls):
            if control == "input":
                found.append((control, NOWHERE, input_features(self.cells)))
            elif control == "text":
                found.append((control, NOWHERE, text_features(self.cells, self.split.train)))
            elif control == "untrained":
                found += [(control, place, Features.of(random[place])) for place, _ in own]
            else:
                found += [(control, place, features) for place, features in own]
        return found


def site_layer(one: Activations) -> AnySiteLayer:
    """Return where activations come from."""
    return one.site, one.layer


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
            if wanted and (key.site, key.layer) in (site_layer(activations), NOWHERE):
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
    data: ProbeInputs,
    suite: Sequence[Entry],
    truths: Mapping[str, Truth],
    *,
    target: Target,
    settings: FitSettings,
    scope: str = "general",
    heads: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
    callbacks: Callbacks[Any] | None = None,
) -> list[Tested[Any]]:
    """Fit every entry of a suite at every place: the one loop over heads and controls, whatever is predicted.

    Args:
        data: what is read, and the split.
        suite: heads and controls.
        truths: "none" -> what is predicted, "shuffled" -> the same of other grids.
        target: what is predicted.
        settings: how probes are trained.
        scope: which grids the probes are for.
        heads: name in the suite -> registered head and its settings, where they are not told by the name.
        callbacks: gives what is fitted already, and is told of what is finished.

    Raises:
        ValueError: no entry, two that are alike, or a control whose data is missing; says how to get it.
    """
    if not suite:
        raise ValueError("a suite must have entries, got none")
    if len(set(suite)) != len(suite):
        raise ValueError(f"the entries of a suite must be different, got {list(suite)}")
    parts: dict[tuple[int, int], tuple[Features, Features]] = {}
    problems: list[Problem] = []
    tested: list[tuple[Features, str]] = []
    first = site_layer(data.activations[0])
    for control, place, given in data.read([control for _, control in suite]):
        name = "shuffled" if control == "shuffled" else "none"
        truth = truths[name]
        known = (id(given), id(truth.train))
        if known not in parts:
            parts[known] = (given.where(truth.train), given.where(truth.test))
        train, test = parts[known]
        for head, wanted in suite:
            # Heads that read no activation are the same at every place: they are fitted at the first.
            if wanted != control or (head in COUNTED and place != first):
                continue
            site, layer = NOWHERE if head in COUNTED else place
            key = ProbeKey(
                head=head, target=target, control=control, seed=settings.seed, site=site, layer=layer, scope=scope
            )
            registered, own = (heads or {}).get(head, (head, {}))
            tags = {"control": control} | ({"scope": scope} if target == "cells" else {})
            problems.append(
                Problem(
                    key=key,
                    features=train,
                    target=truth.target[truth.train],
                    tags=tags,
                    head=registered,
                    settings=own,
                )
            )
            tested.append((test, name))
    probes = fit(problems, settings, callbacks)
    return [
        Tested(key=one.key, probe=probe, features=features, truth=name)
        for one, probe, (features, name) in zip(problems, probes, tested, strict=True)
    ]


def probe_cells(
    data: ProbeInputs,
    *,
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    scope: str = "general",
    callbacks: Callbacks[Probe] | None = None,
    scored: bool = True,
) -> FittedProbes[Probe]:
    """Fit every head with every control on one split, and score all of them on its tested grids.

    Args:
        data: what is read, the truth and the split.
        suite: heads and controls, `FULL` by default.
        settings: how probes are trained.
        scope: which grids the probes are for; a tag.
        callbacks: probes that are known are not fitted again; is told of each that is finished.
        scored: whether the probes are scored, too; without, there are no rows.

    Returns:
        The probes and their scores, side by side.

    Raises:
        ValueError: an unknown entry, or a control whose data is missing; says how to get it.
    """
    used = settings or FitSettings()
    for entry in suite:
        if entry not in FULL and entry not in entries_of([entry[0]]):
            raise ValueError(f"an entry of a suite must be a head with one of its controls, got {entry!r}")
    labelled = {"none": data.cells}
    if any(control == "shuffled" for _, control in suite):
        # Another grid's labels stand beside this grid's activations, and their score belongs to this grid.
        rows_of = shuffled_rows(data.cells, data.split, seed=used.seed)
        labelled["shuffled"] = replace(data.cells, labels=data.cells.labels[rows_of])
    truths = {
        name: Truth(target=one.labels, train=data.split.train, test=data.split.test) for name, one in labelled.items()
    }
    fitted = fit_suite(data, suite, truths, target="cells", settings=used, scope=scope, callbacks=callbacks)
    shown = {name: one.where(data.split.test) for name, one in labelled.items()}
    rows: list[Rows] = []
    for one in fitted if scored else ():
        about = {"probe": one.probe.id, **one.key.tags, "scope": scope}
        said = one.probe.predict(one.features, device=used.device)
        rows.append(score_cells(said, shown[one.truth], about))
        if one.key.control == "none":
            rows.append(confusion_rows(said, shown[one.truth], about))
    return FittedProbes(probes={one.key: one.probe for one in fitted}, rows=Rows.concatenate(rows))


def probe_cells_by_size(
    data: ProbeInputs,
    *,
    suite: Sequence[Entry] = FULL,
    settings: FitSettings | None = None,
    callbacks: Callbacks[Probe] | None = None,
) -> FittedProbes[Probe]:
    """Do the same with probes of their own for each shape of grid, in a frame of its size; scopes are "7x7" etc.

    Raises:
        ValueError: see `probe_cells`; or no grid of some shape is trained on, or tested.
    """
    check_sizes(data.cells, data.split)
    found = [
        probe_cells(own, suite=suite, settings=settings, scope=scope, callbacks=callbacks)
        for scope, own in data.by_shape()
    ]
    probes = {key: probe for one in found for key, probe in one.probes.items()}
    return FittedProbes(probes=probes, rows=Rows.concatenate([one.rows for one in found]))


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
