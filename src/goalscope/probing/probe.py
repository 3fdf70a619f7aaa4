"""The contract of every probe: what it reads, what it predicts, how it is kept.

A probe is made by `fit`, predicts with `predict` (classes of cells) or `predict_number`, and is kept by `save` and
`load`. It knows the site, layer and model that it was fitted on and refuses every other.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from goalscope.activations.record import Activations
from goalscope.checks import check_finite, check_shape, freeze
from goalscope.probing.fitted import Arrays, Fitted, Form, Source, weights_of
from goalscope.probing.heads import Head, HeadSizes, find_head, outputs, weight_shapes

Task = Literal["cells", "number"]
"""What a probe predicts: a class for each cell of the frame, or one number."""

CLASSES: Final = ("agent", "goal", "wall", "open", "padding")
"""Classes of cells; the place in this tuple is the label."""
AGENT, GOAL, WALL, OPEN, PADDING = range(len(CLASSES))

_PLAIN: Final = (str, int, float, bool, type(None))

FRAME: Final = 15
"""Side of the square that smaller grids are padded to, right and bottom."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Features:
    """Inputs of probes: one vector of numbers for each of N steps.

    Attributes:
        source: what they are.
        vectors: ``[N, F]`` float32.
        episode_id: ``[N]`` text.
        step: ``[N]`` int64.
        grid_id: ``[N]`` text, the cluster that the step belongs to.
        positions: number P of vectors of one width that stand one after another in a step's F numbers.

    Raises:
        ValueError: arrays that do not fit, or a number that is not finite; names episode and step.
    """

    source: Source
    vectors: npt.NDArray[np.float32]
    episode_id: npt.NDArray[np.object_]
    step: npt.NDArray[np.int64]
    grid_id: npt.NDArray[np.object_]
    positions: int = 1

    def __post_init__(self) -> None:
        sizes = check_shape("vectors", self.vectors, "N F", {"F": self.source.width})
        if self.vectors.dtype != np.float32:
            raise ValueError(f"vectors must be float32, got {self.vectors.dtype}")
        for name in ("episode_id", "step", "grid_id"):
            check_shape(name, getattr(self, name), "N", sizes)
        finite = np.isfinite(self.vectors).all(axis=1)
        if not finite.all():
            bad = int(np.argmin(finite))
            raise ValueError(
                f"what a probe reads must be finite, got a number that is not at {self.episode_id[bad]} step "
                f"{self.step[bad]}, site {self.source.site}, layer {self.source.layer}"
            )
        for name in ("vectors", "episode_id", "step", "grid_id"):
            object.__setattr__(self, name, freeze(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.step)

    @classmethod
    def of(cls, given: "Activations | Features") -> "Features":
        """Return activations as the inputs of a probe, the P positions of a step one after another."""
        if isinstance(given, Features):
            return given
        count, positions, width = given.vectors.shape
        source = Source(site=given.site, layer=given.layer, model=given.model, width=positions * width)
        return cls(
            source=source,
            vectors=given.vectors.reshape(count, positions * width),
            episode_id=given.episode_id,
            step=given.step,
            grid_id=given.grid_id,
            positions=positions,
        )

    def where(self, mask: npt.NDArray[Any]) -> Self:
        """Return some of the steps, by a mask ``[N]`` bool or by indices ``[M]`` int."""
        kept = {name: getattr(self, name)[mask] for name in ("vectors", "episode_id", "step", "grid_id")}
        return type(self)(source=self.source, positions=self.positions, **kept)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """What a probe says of the C cells of each of N states.

    Attributes:
        balanced: ``[N, C, K]`` float32, probabilities of the classes as if all were equally frequent; the training is
            weighted so.
        natural: ``[N, C, K]`` float32, the same evidence at the frequencies of the training split (prior-corrected).
    """

    balanced: npt.NDArray[np.float32]
    natural: npt.NDArray[np.float32]

    def reading(self, name: str) -> npt.NDArray[np.float32]:
        """Return the probabilities of a reading, "balanced" or "natural".

        Raises:
            ValueError: another name.
        """
        if name not in ("balanced", "natural"):
            raise ValueError(f"a reading must be balanced or natural, got {name!r}")
        found: npt.NDArray[np.float32] = getattr(self, name)
        return found

    def maps(self, name: str) -> npt.NDArray[np.float32]:
        """Return the probabilities of a reading as maps of the square frame, ``[N, n, n, K]``, n * n cells C.

        Raises:
            ValueError: another name.
        """
        found = self.reading(name)
        count, cells, classes = found.shape
        side = math.isqrt(cells)
        return found.reshape(count, side, side, classes)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe(Fitted):
    """A fitted probe.

    Attributes:
        head: its form, see `goalscope.probing.heads`.
        task: "cells" or "number".
        source: what it reads; it refuses anything else.
        frame: side of the square of cells that it predicts; 0 for a number.
        prior: ``[K]`` float64, frequencies of the classes in its training split; empty for a number.
        mean, std: ``[F]`` float32, mean and standard deviation of each input in the training split; an input that does
            not vary there has the standard deviation 0 and is not read.
        target: mean and standard deviation of the number in the training split; (0, 1) for cells.
        weights: name -> array, float32, as the head wants them.
        settings: those of the head; left out for a head whose weights tell them.
        tags: how it was made: control, settings, seed, ...

    Raises:
        ValueError: an unknown head or task, or arrays that do not fit one another.
    """

    FORM: ClassVar[Form] = Form(
        kind="probe",
        noun="probe",
        short="probe",
        listed="classes",
        names=CLASSES,
        fields={"head": str, "task": str, "frame": int, "target": list},
    )

    head: str
    task: Task
    frame: int
    prior: npt.NDArray[np.float64]
    target: tuple[float, float] = (0.0, 1.0)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        classes = check_task(self.task, self.frame)
        check_shape("prior", self.prior, "K", {"K": classes})
        if self.task == "cells" and not (np.all(self.prior >= 0) and abs(float(self.prior.sum()) - 1) < 1e-6):
            raise ValueError(f"prior must hold probabilities that sum to 1, got {self.prior}")
        if not (np.isfinite(self.target).all() and self.target[1] > 0):
            raise ValueError(f"target must be a finite mean and a standard deviation > 0, got {self.target}")
        object.__setattr__(self, "settings", self._head_settings())
        shapes = weight_shapes(self.module())
        if set(shapes) != set(self.weights):
            raise ValueError(
                f"the weights of head {self.head} must be {', '.join(shapes)}, got {', '.join(self.weights) or 'none'}"
            )
        self._accept(shapes)
        object.__setattr__(self, "prior", freeze(self.prior))

    def describe(self) -> dict[str, Any]:
        """Return everything but the arrays as plain values."""
        own = {"head": self.head, "task": self.task, "frame": self.frame, "target": list(self.target)}
        told = {"settings": dict(self.settings)} if self.settings and self._registered.settings_of is None else {}
        return {**Fitted.describe(self), **own, **told}  # no super(): a class with slots is made anew

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays by the names that a file has for them."""
        return {"prior": self.prior, **Fitted.arrays(self)}

    @property
    def _registered(self) -> Head:
        return find_head(self.head, "cells" if self.task == "cells" else "distance")

    def _head_settings(self) -> dict[str, Any]:
        """Return all settings of the head.

        Raises:
            ValueError: one that it does not have, or that is no plain value.
        """
        known = self._registered
        given = self.settings if known.settings_of is None else known.settings_of(self.weights)
        odd = [name for name, value in given.items() if name not in known.settings or not isinstance(value, _PLAIN)]
        if odd:
            raise ValueError(
                f"the settings of head {self.head} must be plain values of {', '.join(known.settings) or 'none'}, got "
                f"{', '.join(map(repr, odd))[:80]}"
            )
        return {**known.settings, **given}

    def module(self, *, seed: int | None = None) -> Any:
        """Return a new module of the head; without a seed it has shapes alone."""
        sizes = HeadSizes(
            positions=1, width=self.source.width, outputs=self.frame**2 or 1, classes=max(1, len(self.prior))
        )
        return self._registered.module(sizes, self.settings, seed=seed)

    def outputs(self, given: Activations | Features, device: str = "cpu") -> npt.NDArray[np.float64]:
        """Return the scores, ``[N, C, K]``; of ``position`` the log frequencies less the log prior.

        Raises:
            ValueError: inputs of another site, layer, model or width, or scores that are not finite.
        """
        features = Features.of(given)
        self.source.check_same(features.source)
        found = outputs(self.module(seed=0), self.weights, features.vectors, (self.mean, self.std), device)
        if not np.isfinite(found).all():
            raise ValueError(
                f"the scores of a probe must be finite, those of this one of head {self.head} are not: its weights or "
                "what it reads are too large for float32, fit it again"
            )
        return found.astype(np.float64)

    def predict(self, given: Activations | Features, *, device: str = "cpu") -> Prediction:
        """Return the probabilities of the classes of all cells.

        Args:
            given: N steps of the probe's own source.
            device: where to compute.

        Raises:
            ValueError: a probe of numbers, or inputs of another site, layer, model or width.
        """
        if self.task != "cells":
            raise ValueError("this probe predicts a number, not classes of cells: use predict_number")
        logits = self.outputs(given, device)
        with np.errstate(divide="ignore"):
            prior = np.log(self.prior)
        # A class that the training split lacks has no evidence: it is never predicted.
        seen = np.where(self.prior > 0, 0.0, -np.inf)
        if self.head == "majority":
            return Prediction(balanced=_softmax(logits + prior), natural=_softmax(logits + prior))
        return Prediction(balanced=_softmax(logits + seen), natural=_softmax(logits + prior))

    def predict_number(self, given: Activations | Features, *, device: str = "cpu") -> npt.NDArray[np.float64]:
        """Return the predicted number of each step, ``[N]`` in the unit that it was fitted in.

        Raises:
            ValueError: a probe of cells, or inputs of another site, layer, model or width.
        """
        if self.task != "number":
            raise ValueError("this probe predicts classes of cells, not a number: use predict")
        mean, std = self.target
        with np.errstate(over="ignore"):
            found: npt.NDArray[np.float64] = mean + std * self.outputs(given, device)[:, 0, 0]
        check_finite("what a probe predicts", found)
        return found

    @classmethod
    def _parts(cls, header: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
        target = header["target"]
        if len(target) != 2 or not all(type(one) in (int, float) for one in target):
            raise ValueError(f"target must be two numbers, got {str(target)[:80]}")
        if header["width"] < 1:
            raise ValueError(f"width must be >= 1, got {header['width']}")
        settings = header.get("settings", {})
        if not isinstance(settings, dict):
            raise ValueError(f"settings must be a mapping, got {str(settings)[:80]}")
        fixed = {name: arrays.pop(name, None) for name in ("prior", "centre", "spread")}
        for name, array in fixed.items():
            dtype = np.float64 if name == "prior" else np.float32
            if array is None or array.ndim != 1 or array.dtype != dtype:
                raise ValueError(f"it must hold {name} as a vector of {np.dtype(dtype)}")
        plain = {name: header[name] for name in ("head", "task", "frame")}
        scale = (float(target[0]), float(target[1]))
        own = {"prior": fixed["prior"], "mean": fixed["centre"], "std": fixed["spread"], "settings": settings}
        return {**plain, **own, "target": scale, "weights": weights_of(arrays)}


def check_task(task: str, frame: int) -> int:
    """Return the number of classes of a task, 0 for a number.

    Raises:
        ValueError: an unknown task, or a frame that does not fit it.
    """
    if task not in ("cells", "number"):
        raise ValueError(f"a task must be cells or number, got {task!r}")
    if task == "number" and frame != 0:
        raise ValueError(f"a probe of a number must have frame 0, got {frame}")
    if task == "cells" and not 1 <= frame <= 256:
        raise ValueError(f"the frame of a probe of cells must be from 1 to 256, got {frame}")
    return len(CLASSES) if task == "cells" else 0


def _softmax(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    found: npt.NDArray[np.float32] = (shifted / shifted.sum(axis=-1, keepdims=True)).astype(np.float32)
    return found
