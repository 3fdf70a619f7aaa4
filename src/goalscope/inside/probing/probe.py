"""Probes, i.e. heads fitted to activations, with their predictions and files.

`fit` makes a probe; `predict` (classes of cells), `predict_number` and `predict_plan` apply it; `save` and `load` store
it. A probe records the site, layer and model of its training inputs and raises an error for all others. Its file is a
safetensors file with one header, which is checked completely before use. A `ProbeStore` keeps the probes of a run in
`probes/`, listed in the index.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from goalscope._ground.checks import check_distributions, check_finite, check_shape, freeze
from goalscope._ground.folder import NamedFile
from goalscope._ground.ids import content_id
from goalscope._ground.progress import Progress
from goalscope.inside.activations.shards import (
    Activations,
    Artifact,
    Columns,
    Shard,
    artifacts,
    open_tensors,
    place,
    put_artifacts,
    write_shard,
)
from goalscope.inside.probing.heads import COUNTED, Head, HeadSizes, find_head, outputs, weight_shapes
from goalscope.inside.probing.inputs import Features, Source
from goalscope.inside.probing.labels import CLASSES, END, TOKENS, plan_length
from goalscope.runs import Store
from goalscope.stats import DRAW
from goalscope.stats.rows import Tag

_INPUTS: Final = {"mean": "centre", "std": "spread"}  # fields -> their names in files
_SCALARS: Final = (str, int, float, bool, type(None))
_TASKS: Final = {"cells": "cells", "distance": "number"}  # targets -> their names in files
_MAXIMA: Final = {"positions": 4096, "horizon": 4096}
_MAX_BYTES: Final = 1 << 32  # bytes
_MAX_HEADER_BYTES: Final = 1 << 20
_MESSAGE_LENGTH: Final = 400  # maximum length of a reason in an error message, in characters
_BATCH: Final = {"plan": 256}  # examples per batch of a prediction; otherwise 64

Target = Literal["cells", "distance", "plan"]
"""What a probe predicts: the classes of all cells, the optimal path length, the actions that follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeKey:
    """Identity of a probe among all probes that are fitted to one set of steps.

    Attributes:
        head: form of the probe, such as "mlp" ("decoder-LAYERS" for a plan).
        target: what it predicts: "cells", "plan" or "distance".
        control: "none" for the probe itself, else the control, see `inside.probing.inputs.CONTROLS`.
        seed: root seed of its fit.
        site, layer: site (token positions) and layer of its inputs; None if it reads no activations.
        scope: the grids that it applies to, "general" or a shape such as "7x7".
        draw: seed of the random network that it reads, None if it reads none.
    """

    head: str
    target: Target
    control: str = "none"
    seed: int = 0
    site: str | None = None
    layer: int | None = None
    scope: str = "general"
    draw: int | None = None

    @property
    def text(self) -> str:
        """The identity as text, for messages, ids of stored probes and names of random streams; it is never parsed."""
        place = "-/-" if self.site is None else f"{self.site}/{self.layer}"
        control = self.control if self.draw is None else f"{self.control} {self.draw}"
        return f"{self.head}/{control}/{place}" + (f"/{self.scope}" if self.target == "cells" else "")

    @property
    def tags(self) -> dict[str, Tag]:
        """Named facts that mark the rows of results of this probe: head, control, site, layer, and the seed of a random
        network.
        """
        seed_tag = {} if self.draw is None else {DRAW: self.draw}
        return {"head": self.head, "control": self.control, "site": self.site, "layer": self.layer, **seed_tag}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileFormat:
    """File format of the probes of a target.

    ``kind`` and ``noun`` are its names in the header and in messages, ``id_key`` the entry of the id, ``names_key`` the
    entry of the ``names`` of the predicted classes or tokens, ``fields`` the other entries and their types.
    """

    kind: str
    noun: str
    id_key: str
    names_key: str
    names: tuple[str, ...]
    fields: Mapping[str, type]

    def check(self, header: dict[str, Any]) -> None:
        source = {"site": str, "layer": int, "model": str, "width": int}
        for name, kind in {**source, "tags": dict, self.id_key: str, self.names_key: list, **self.fields}.items():
            value = header.get(name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ValueError(f"{name} in its header must be {kind.__name__}, got {str(value)[:80]!r}")
        if header[self.names_key] != list(self.names):
            found_names = str(header[self.names_key])[:80]
            raise ValueError(f"its {self.names_key} must be {', '.join(self.names)}, got {found_names}")
        if not all(isinstance(value, _SCALARS) for value in header["tags"].values()):
            raise ValueError("its tags must be plain values")


_ONE_SHOT: Final = "decoder"
"""Head of the decoders whose files name none."""

_CELLS: Final = _FileFormat(
    kind="probe",
    noun="probe",
    id_key="probe",
    names_key="classes",
    names=CLASSES,
    fields={"head": str, "task": str, "frame": int, "target": list},
)
_PLAN: Final = _FileFormat(
    kind="plan-decoder",
    noun="decoder of plans",
    id_key="decoder",
    names_key="tokens",
    names=TOKENS,
    fields=dict.fromkeys(("layers", "heads", "horizon", "positions"), int),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """Predicted probabilities of the classes of a grid's cells: ``[N, C, K]`` float32, states by cells by classes.

    ``balanced`` assumes that all classes are equally frequent, as the training is weighted; ``natural`` is the same
    evidence at the frequencies of the training split (prior-corrected).
    """

    balanced: npt.NDArray[np.float32]
    natural: npt.NDArray[np.float32]

    @classmethod
    def of(cls, scores: npt.NDArray[np.float32], prior: npt.NDArray[np.float64]) -> Self:
        """Convert the scores of a probe to probabilities.

        Args:
            scores: ``[N, C, K]`` scores: states, cells, classes.
            prior: ``[K]`` frequency of each class in the training split; a class with frequency 0 is never predicted.
        """
        with np.errstate(divide="ignore"):
            natural = scores.astype(np.float64) + np.log(prior)
        # A class that is absent from the training split has no evidence and is never predicted.
        balanced = scores.astype(np.float64) + np.where(prior > 0, 0.0, -np.inf)
        return cls(balanced=_softmax(balanced), natural=_softmax(natural))

    def reading(self, name: str) -> npt.NDArray[np.float32]:
        """Return the class probabilities ``[N, C, K]``: "balanced" (all classes equally frequent) or "natural" (as in
        training).

        Raises:
            ValueError: for another name.
        """
        if name not in ("balanced", "natural"):
            raise ValueError(f"reading must be 'balanced' or 'natural', got {name!r}")
        probabilities: npt.NDArray[np.float32] = getattr(self, name)
        return probabilities

    def maps(self, name: str) -> npt.NDArray[np.float32]:
        """Return the class probabilities as square maps, ``[N, n, n, K]``: states, rows, columns, classes.

        ``name`` is "balanced" (all classes equally frequent) or "natural" (as frequent as in training).
        """
        probabilities = self.reading(name)
        side = math.isqrt(probabilities.shape[1])
        return probabilities.reshape(len(probabilities), side, side, probabilities.shape[2])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanPrediction(Columns):
    """Plans (an agent's next T moves) that a decoder predicts at N steps.

    ``probabilities`` is a float32 array ``[N, T, 5]``: at each of T positions of a plan, the probability of each of the
    5 tokens (four actions and the end).
    """

    SHAPES: ClassVar = {"probabilities": "N T K"}

    probabilities: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        self._accept(K=len(TOKENS))
        check_distributions("probabilities", self.probabilities, tolerance=1e-4)

    @classmethod
    def of(cls, scores: npt.NDArray[np.float32]) -> Self:
        """Convert the scores of a decoder, ``[N, T, 5]`` (steps, positions of the plan, tokens), to probabilities."""
        import torch

        return cls(probabilities=torch.tensor(scores).softmax(dim=-1).numpy())

    @property
    def tokens(self) -> npt.NDArray[np.int8]:
        """The likeliest token at each position of each plan, ``[N, T]``: steps by positions."""
        return np.asarray(self.probabilities.argmax(axis=2), dtype=np.int8)

    @property
    def first(self) -> npt.NDArray[np.int8]:
        """The likeliest first move of each of N plans, ``[N]``; the end token is not considered."""
        return np.asarray(self.probabilities[:, 0, :END].argmax(axis=1), dtype=np.int8)

    @property
    def length(self) -> npt.NDArray[np.int64]:
        """The number of moves of each plan before its first end token, ``[N]``; T if it has none."""
        return plan_length(self.tokens)


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """A fitted probe, which predicts the cells of the grid, a plan or a number from activations.

    Attributes:
        head: its form, such as "mlp", see `goalscope.inside.probing.heads`.
        target: what it predicts: "cells", "plan" or "distance".
        source: site, layer and model of its inputs; it refuses inputs from anywhere else.
        mean, std: ``[F]`` float32, mean and standard deviation of each input in the training split; an input that does
            not vary there has the standard deviation 0 and is ignored.
        weights: name -> array, float32, see the head.
        settings: settings of the head; those that follow from the shapes of its weights can be omitted.
        tags: named facts about its origin: control, settings, seed, ...
        frame: side of the square of cells that it predicts; 0 for other targets.
        prior: ``[K]`` float64, frequencies of the classes in its training split; empty for other targets.
        scale: mean and standard deviation of the distance in the training split; (0, 1) for other targets.
        positions, horizon: for plans the number P of vectors of one step, and the positions T of a plan.

    Raises:
        ValueError: if fields do not fit each other.
    """

    head: str
    target: Target
    source: Source
    mean: npt.NDArray[np.float32]
    std: npt.NDArray[np.float32]
    weights: Mapping[str, npt.NDArray[np.float32]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, Tag] = field(default_factory=dict)
    frame: int = 0
    prior: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    scale: tuple[float, float] = (0.0, 1.0)
    positions: int = 1
    horizon: int = 1

    def __post_init__(self) -> None:
        check_frame(self.target, self.frame)
        check_shape("prior", self.prior, "K", {"K": len(CLASSES) if self.frame else 0})
        if self.frame and not (np.all(self.prior >= 0) and abs(float(self.prior.sum()) - 1) < 1e-6):
            raise ValueError(f"prior must be probabilities that sum to 1, got {self.prior}")
        if not (np.isfinite(self.scale).all() and self.scale[1] > 0):
            raise ValueError(f"scale must be a finite mean and a standard deviation > 0, got {self.scale}")
        for name, maximum in _MAXIMA.items():
            if not 1 <= getattr(self, name) <= maximum:
                raise ValueError(f"{name} of a plan decoder must be from 1 to {maximum}, got {getattr(self, name)}")
        if self.source.width < 1 or self.source.width % self.positions:
            raise ValueError(
                f"the inputs must be {self.positions} vectors of equal width, got {self.source.width} numbers in total"
            )
        object.__setattr__(self, "settings", self._all_settings())
        self._accept(weight_shapes(self.module()))

    @property
    def _registered(self) -> Head:
        return find_head(self.head, self.target)

    @property
    def _settings_in_weights(self) -> dict[str, Any]:
        """The settings that follow from the shapes of the weights."""
        return self._registered.settings_of(self.weights) if self._registered.settings_of is not None else {}

    def _all_settings(self) -> dict[str, Any]:
        """Return all settings of the head after checking the given ones."""
        defaults = self._registered.settings
        invalid = [
            name for name, value in self.settings.items() if name not in defaults or not isinstance(value, _SCALARS)
        ]
        if invalid:
            raise ValueError(
                f"the settings of head {self.head} must be plain values of {', '.join(defaults) or 'none'}, "
                f"got {', '.join(map(repr, invalid))[:80]}"
            )
        return {**defaults, **self.settings, **self._settings_in_weights}

    def _accept(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Check and freeze the arrays."""
        if set(shapes) != set(self.weights):
            differing = ", ".join(sorted(set(shapes) ^ set(self.weights)))[:200]
            raise ValueError(
                f"head {self.head} has {len(shapes)} weights, got {len(self.weights)}; missing or unknown: {differing}"
            )
        expected = {name: (self.weights[name], shape) for name, shape in shapes.items()}
        expected |= {name: (getattr(self, name), (self.source.width,)) for name in _INPUTS}
        for name, (array, shape) in expected.items():
            if array.shape != shape or array.dtype != np.float32:
                raise ValueError(f"{name} must be float32 {list(shape)}, got {array.dtype} {list(array.shape)}")
            check_finite(name, array)
        if (self.std < 0).any():
            raise ValueError("std must be >= 0 everywhere, got a negative number")
        tiny = (self.std > 0) & (self.std < np.finfo(np.float32).tiny)
        if tiny.any():  # its inverse is not finite
            raise ValueError(f"std must be 0 or a normal number everywhere, got {self.std[tiny][0]}")
        object.__setattr__(self, "weights", {name: freeze(self.weights[name]) for name in shapes})
        for name in ("prior", *_INPUTS):
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def module(self, *, seed: int | None = None) -> Any:
        """Build the torch module of the probe's head, without the probe's weights.

        ``seed`` draws initial weights; with None, the weights have only shapes.
        """
        outputs, classes = {
            "cells": (self.frame**2, len(CLASSES)),
            "distance": (1, 1),
            "plan": (self.horizon, len(TOKENS)),
        }[self.target]
        width = self.source.width // self.positions
        sizes = HeadSizes(positions=self.positions, width=width, outputs=outputs, classes=classes)
        return self._registered.module(sizes, self.settings, seed=seed)

    def outputs(self, given: Activations | Features, device: str = "cpu") -> npt.NDArray[np.float32]:
        """Compute the scores of the probe, ``[N, C, K]``: steps, outputs (such as cells), classes or tokens.

        Args:
            given: activations, or other inputs, at N steps from the source on which the probe was fitted.
            device: where to compute, "cpu" or "cuda".

        Raises:
            ValueError: if the inputs come from another site, layer or model, or scores are not finite.
        """
        features = Features.of(given)
        self.source.check_same(features.source)
        if self.target == "plan" and features.positions != self.positions:
            raise ValueError(f"a step must have {self.positions} vectors, got {features.positions}")
        norm, batch = (self.mean, self.std), _BATCH.get(self.target, 64)
        scores = outputs(self.module(seed=0), self.weights, features.vectors, norm, device, batch)
        if not np.isfinite(scores).all():
            raise ValueError(
                f"the scores of this probe (head {self.head}) are not finite: its weights or inputs are too "
                "large for float32, so fit it again"
            )
        return scores

    def predict(self, given: Activations | Features, *, device: str = "cpu") -> Prediction:
        """Predict the classes of all cells of the grid at N steps.

        Args:
            given: activations from the source on which the probe was fitted.
            device: where to compute, "cpu" or "cuda".

        Raises:
            ValueError: if the probe predicts something else, or the inputs come from another site, layer or model.
        """
        self._check_target("cells")
        prediction = Prediction.of(self.outputs(given, device), self.prior)
        return replace(prediction, balanced=prediction.natural) if self.head == "majority" else prediction

    def predict_number(self, given: Activations | Features, *, device: str = "cpu") -> npt.NDArray[np.float64]:
        """Predict a number at each of N steps, ``[N]``, such as the distance to the goal, in the unit of the training
        data.

        Raises:
            ValueError: if the probe predicts something else, or the inputs come from another site, layer or model.
        """
        self._check_target("distance")
        mean, std = self.scale
        with np.errstate(over="ignore"):
            numbers: npt.NDArray[np.float64] = mean + std * self.outputs(given, device).astype(np.float64)[:, 0, 0]
        check_finite("what a probe predicts", numbers)
        return numbers

    def predict_plan(self, given: Activations | Features, *, device: str = "cpu") -> PlanPrediction:
        """Predict the agent's next moves at N steps, as the probabilities of the tokens at each position of the plan.

        Raises:
            ValueError: if the probe predicts something else, or the inputs come from another site, layer or model.
        """
        self._check_target("plan")
        return PlanPrediction.of(self.outputs(given, device))

    def _check_target(self, target: Target) -> None:
        if self.target != target:
            methods = {"cells": "predict", "distance": "predict_number", "plan": "predict_plan"}
            raise ValueError(f"this probe predicts {self.target}, not {target}: use {methods[self.target]}")

    @property
    def _file_format(self) -> _FileFormat:
        return _PLAN if self.target == "plan" else _CELLS

    @cached_property
    def id(self) -> str:
        """Content id of the probe: a hash of its description and all its arrays."""
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays().items()):
            digest.update(f"{name} {array.dtype} {list(array.shape)}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return content_id(self._file_format.kind, {**self.describe(), "arrays": digest.hexdigest()})

    def describe(self) -> dict[str, Any]:
        """Return everything about the probe except its arrays, as values that JSON can hold; its file stores them."""
        common = {**asdict(self.source), "tags": dict(self.tags)}
        settings = {name: value for name, value in self.settings.items() if name not in self._settings_in_weights}
        if self.target == "plan":
            form = {} if self.head == _ONE_SHOT else {"head": self.head}
            return {**common, **form, **settings, "positions": self.positions, "horizon": self.horizon}
        cell_fields = {"head": self.head, "task": _TASKS[self.target], "frame": self.frame, "target": list(self.scale)}
        return {**common, **cell_fields, **({"settings": settings} if settings else {})}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays of the probe (weights, normalisation and class frequencies), by the names that they have in
        its file.
        """
        fixed: dict[str, npt.NDArray[Any]] = {stored: getattr(self, name) for name, stored in _INPUTS.items()}
        prior = {} if self.target == "plan" else {"prior": self.prior}
        return {**prior, **fixed, **{f"weights.{name}": array for name, array in self.weights.items()}}

    def save(self, path: str | Path) -> int:
        """Write the probe as one safetensors file, and return its size in bytes; equal probes make equal files."""
        return write_shard(Path(path), Shard(header=self._header(), arrays=self.arrays()))

    def _header(self) -> dict[str, Any]:
        form = self._file_format
        names = {"kind": form.kind, form.id_key: self.id, form.names_key: list(form.names)}
        return {**names, **self.describe()}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a probe from a file that `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file is damaged or of another kind.
        """
        path = Path(path)
        if not NamedFile(path).is_there():
            raise FileNotFoundError(f"there is no probe file {path}: check the path")
        form = _CELLS
        try:
            size = NamedFile(path).status().st_size
            if size > _MAX_BYTES:
                raise ValueError(f"it has {size} bytes, more than a probe can have ({_MAX_BYTES})")
            with open_tensors(path, max_header=_MAX_HEADER_BYTES) as file:
                header = file.header
                form = _PLAN if header.get("kind") == _PLAN.kind else _CELLS
                if header.get("kind") != form.kind:
                    raise ValueError(f"its header does not describe a {form.noun}")
                form.check(header)
                arrays = {name: file.read(name) for name in file.names}
            probe = cls(**_fields_of(header, arrays))
            if probe.id != header[form.id_key]:
                raise ValueError(f"its content must have the id {header[form.id_key][:80]!r}, but has {probe.id}")
            if probe._header() != {name: value for name, value in header.items() if name not in ("format", "digests")}:
                raise ValueError("its header does not match its content")
        except (ValueError, OverflowError) as error:
            reason = str(error)[:_MESSAGE_LENGTH]
            raise ValueError(f"{path} is not an intact {form.noun} ({reason}): fit the {form.id_key} again") from error
        return probe


def _fields_of(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return the fields of a probe from a header, with checked types, and unchecked arrays."""
    source = Source(**{name: header[name] for name in ("site", "layer", "model", "width")})
    if header["kind"] == _PLAN.kind:
        settings = {name: header[name] for name in ("layers", "heads")}
        fields = {
            "head": str(header.get("head", _ONE_SHOT)),
            "target": "plan",
            **{name: header[name] for name in _MAXIMA},
        }
    else:
        settings, scale = header.get("settings", {}), header["target"]
        if not isinstance(settings, dict):
            raise ValueError(f"settings must be a mapping, got {str(settings)[:80]}")
        if len(scale) != 2 or not all(type(value) in (int, float) for value in scale):
            raise ValueError(f"target must be two numbers, got {str(scale)[:80]}")
        target = {task: name for name, task in _TASKS.items()}.get(header["task"], header["task"])
        fields = {"head": header["head"], "target": target, "frame": header["frame"], "scale": tuple(map(float, scale))}
    stored_names = dict(_INPUTS) if header["kind"] == _PLAN.kind else {"prior": "prior", **_INPUTS}
    for name, stored in stored_names.items():
        array, dtype = arrays.pop(stored, None), np.dtype(np.float64 if name == "prior" else np.float32)
        if array is None or array.ndim != 1 or array.dtype != dtype:
            raise ValueError(f"it must contain {stored} as a vector of {dtype}")
        fields[name] = array
    invalid = [name for name, value in arrays.items() if not name.startswith("weights.") or value.dtype != np.float32]
    if invalid:
        raise ValueError(f"it contains arrays other than float32 weights: {', '.join(map(repr, invalid))[:200]}")
    weights = {name.removeprefix("weights."): array for name, array in arrays.items()}
    return {**fields, "source": source, "settings": settings, "tags": header["tags"], "weights": weights}


def check_frame(target: str, frame: int) -> None:
    """Check the kind of prediction of a probe ("cells", "distance" or "plan") and the side of the map that it predicts.

    ``frame`` is the number of rows and columns of the map, 0 for plans and distances.

    Raises:
        ValueError: if they do not fit.
    """
    if target not in (*_TASKS, "plan"):
        raise ValueError(f"target must be 'cells' or 'number', got {target!r}")
    if target != "cells" and frame != 0:
        raise ValueError(f"frame must be 0 for a probe of a {target}, got {frame}")
    if target == "cells" and not 1 <= frame <= 256:
        raise ValueError(f"frame must be from 1 to 256 for a probe of cells, got {frame}")


PROBE: Final = "probe"
DECODER: Final = "plan decoder"
"""Kinds of artifacts."""
FOLDER: Final = "probes"
FORMAT: Final = 2
REFORMED: Final[Mapping[str, int]] = {"percell": 3}
"""Enters the id of every fit, by head: raised when the same settings no longer give the same probe."""


def stored_probes(run: str | Path, **tags: Tag) -> Iterator[tuple[Artifact, Probe]]:
    """Load the probes stored with a run, each with its entry in the index of the run; plan decoders come last.

    Probes of an earlier format, which the same settings no longer produce, are left out.

    Args:
        run: a run directory.
        tags: facts that select probes: head, control, site, layer, agent, target ("cells", "distance", "plan"), ...

    Raises:
        FileNotFoundError: if there is no such run, or a file is missing.
        ValueError: if a file is damaged.
    """
    with Store(run) as store:
        for kind in (PROBE, DECODER):
            for row in artifacts(store, kind, **tags):
                if row.tags.get("format", FORMAT) == _format(row.tags.get("head")):
                    yield row, Probe.load(place(store, row))


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions that `fit` calls, to look up and store probes and to report progress.

    Attributes:
        find: returns the stored probe of a key, or None.
        keep: called with the probes that were trained together as soon as all are fitted, so that an interrupted fit
            can continue. It must store all of them or none, because the last bits of a probe can depend on the probes
            that train with it.
        progress: called with the numbers of finished and of all units of work.
        pool: an executor that trains probes in other processes, with identical results to the byte; None for this
            process.
    """

    find: Callable[[ProbeKey], Probe | None] = lambda key: None
    keep: Callable[[Mapping[ProbeKey, Probe]], None] = lambda probes: None
    progress: Progress = lambda done, total: None
    pool: Executor | None = None


@dataclass(kw_only=True)
class ProbeStore:
    """The probes for one set of steps in a run directory, identified by everything that determines their fit.

    The index is read only once, because no other process writes to the run meanwhile.

    Attributes:
        store: the run.
        decisive: settings common to all fits that determine the result (steps, split, ...).
        settings: settings of the probes, by what they predict ("cells", "distance" or "plan").
        models: control and seed of a random network -> content id of the model that the probe reads. ("none", None) is
            the agent's own model, which also serves for controls that are not listed.
        first: the place ("SITE/LAYER") under which probes that read no activations are stored.
        tags: named facts stored with each probe in the index.
        pool: trains probes in other processes; None to train in this one.
        fitted: number of probes fitted in this call.
        reused: number of probes that were stored before.
    """

    store: Store
    decisive: Mapping[str, Any]
    settings: Mapping[Target, Mapping[str, Any]]
    models: Mapping[tuple[str, int | None], str]
    first: str
    tags: Mapping[str, Tag]
    pool: Executor | None = None
    fitted: int = 0
    reused: int = 0

    def callbacks(self, progress: Progress) -> Callbacks:
        """Return functions for `fit` that look up probes in this store and add new ones to it.

        ``progress`` is called with the numbers of finished and of all units of work.
        """
        return Callbacks(find=self.find, keep=self.keep, progress=progress, pool=self.pool)

    @cached_property
    def _index(self) -> dict[str, Artifact]:
        return {row.id: row for kind in (PROBE, DECODER) for row in artifacts(self.store, kind)}

    def _id(self, key: ProbeKey) -> str:
        """Return the content id of everything that determines the fit of a probe."""
        tags = {
            "format": _format(key.head),
            "kind": _kind(key),
            "name": key.text,
            "model": self.models.get((key.control, key.draw), self.models["none", None]),
            **({"first": self.first} if key.head in COUNTED else {}),
            **self.decisive,
            **({"target": key.target} if key.target != "plan" else {}),
            "seed": key.seed,
            "settings": self.settings[key.target],
        }
        return content_id("fit", tags)

    def find(self, key: ProbeKey) -> Probe | None:
        """Return the stored probe with this identity; None if there is none.

        Raises:
            ValueError: if its file is damaged or holds another probe.
        """
        row = self._index.get(self._id(key))
        if row is None or not self.store.folder.has_file(row.path):
            return None
        path = place(self.store, row)
        probe = Probe.load(path)
        if probe.id != row.tags.get("content"):
            raise ValueError(
                f"{path} must contain probe {row.tags.get('content')}, but contains {probe.id}: delete the "
                "file to fit it again"
            )
        self.reused += 1
        return probe

    def keep(self, probes: Mapping[ProbeKey, Probe]) -> None:
        """Store probes: write one file for each, and add all to the index of the run at once.

        An interruption therefore leaves no entry without a file.
        """
        rows = [self._written(key, probe) for key, probe in probes.items()]
        put_artifacts(self.store, *rows)
        self._index.update({row.id: row for row in rows})
        self.fitted += len(rows)

    def _written(self, key: ProbeKey, probe: Probe) -> Artifact:
        identity = self._id(key)
        tags: dict[str, Tag] = {
            **self.tags,
            "target": key.target,
            "fit": key.text,
            "content": probe.id,
            "head": key.head,
            "format": _format(key.head),
            "control": key.control,
            **({} if key.draw is None else {DRAW: key.draw}),
            "site": probe.source.site,
            "layer": probe.source.layer,
            "model": probe.source.model,
        }
        path = f"{FOLDER}/{identity}.safetensors"
        row = Artifact(id=identity, kind=_kind(key), path=path, size=0, tags=tags)
        self.store.folder.make(FOLDER)
        return replace(row, size=probe.save(place(self.store, row)))


def _format(head: Tag) -> int:
    return REFORMED.get(str(head), FORMAT)


def _kind(key: ProbeKey) -> str:
    return DECODER if key.target == "plan" else PROBE
