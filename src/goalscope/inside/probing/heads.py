"""Heads: what turns activations into scores, ours and those of other packages, found by their names.

A head is a `torch.nn.Module` that maps normalised activations ``[B, F]`` to scores ``[B, C, K]`` of K classes at C
outputs: the cells of a frame, one number (C = K = 1), the places of a plan. It registers under a name with `head`, and
the fit of `goalscope.inside.probing.fitting` trains it, several at once. Beside `forward` a module may have:

* ``stacked(weights, vectors)``: the scores of Q of them at once, ``[Q, B, C, K]`` from weights ``[Q, ...]`` and vectors
  ``[Q or 1, B, F]``, where that is faster than `torch.func.vmap` of `forward`; both must agree.
* ``initial(seed, name)``: its first weights; without it those that the module is built with, from a fixed seed.
* ``taught(weights, vectors, values)``: the same scores in training, where the true values ``[Q, B, C]`` may be read
  (-1 where unknown), for a head whose outputs follow from its earlier ones.
* ``solve(vectors, target, penalties, held)``: a `Solution` in closed form, instead of training. It is given the
  vectors ``[N, F]``, the target with ``values`` and ``weights`` of steps, the penalties to be tried, and which steps
  ``[N]`` are of held-back grids, on which it may choose.
* ``early``: False if it trains on all grids and keeps the last pass, regardless of the settings say of a validation
part. * ``numbers(batch)``: the largest array of a training step, in numbers; ``cost``: how much longer its steps take
  than those of others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope.agents.models import loading
from goalscope.stats.rows import Tag

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

CELL_HEADS: Final = ("majority", "position", "additive", "percell", "mlp")
"""Heads of the classes of cells that are fitted by default."""
NUMBER_HEADS: Final = ("linear", "mlp")
"""Heads of a number that are fitted by default."""
COUNTED: Final = ("majority", "position")
"""Heads that are counted, not trained, and read no activation."""

Weights = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Result of a solver: the weights, and tags such as the chosen penalties."""

    weights: Weights
    tags: Mapping[str, Tag] = field(default_factory=dict)


SettingsOf = Callable[[Mapping[str, npt.NDArray[Any]]], dict[str, Any]]
Build = TypeVar("Build", bound=Callable[..., Any])
_building = threading.Lock()  # the random numbers of a module's own initialisation are global


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSizes:
    """Sizes that a head is built for.

    Attributes:
        positions: number P of vectors of one step; 1 for probes that are no decoders: one long vector.
        width: numbers D of one vector; an example has F = P * D.
        outputs: number C of outputs of one step.
        classes: number K of scores of each.
    """

    positions: int
    width: int
    outputs: int
    classes: int

    @property
    def inputs(self) -> int:
        """Numbers F of an example."""
        return self.positions * self.width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Head:
    """A registered head.

    ``targets`` are the targets it can predict, ``build`` makes the module from `HeadSizes` and the settings, whose
    defaults are ``settings``; ``settings_of`` infers from weights the settings that their file does not name.
    """

    name: str
    targets: tuple[str, ...]
    build: Callable[..., Module]
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_of: SettingsOf | None = None

    @property
    def reads(self) -> bool:
        """Whether it reads activations."""
        return self.name not in COUNTED

    def module(self, sizes: HeadSizes, settings: Mapping[str, Any], *, seed: int | None = None) -> Module:
        """Return a new module; its weights come from the root seed, without one it has shapes but no numbers."""
        import torch

        settings = {**self.settings, **settings}
        try:
            if seed is None:
                with torch.device("meta"):
                    return self.build(sizes, **settings)
            with _building:
                before = torch.get_rng_state()
                torch.default_generator.manual_seed(int(stream(seed, "head weights").integers(2**63)))
                try:
                    return self.build(sizes, **settings)
                finally:
                    torch.set_rng_state(before)
        except (RuntimeError, TypeError, OverflowError) as error:
            problem = f"{type(error).__name__}: {error}"[:200]
            raise ValueError(f"head {self.name} must be built from its settings {settings}, but {problem}") from error


def head(
    name: str, *, targets: tuple[str, ...] = ("cells", "distance"), settings_of: SettingsOf | None = None
) -> Callable[[Build], Build]:
    """Return a decorator that registers a class of modules, or a function that builds one, as a head.

    It is called with `HeadSizes` and its settings by name; their defaults must stand in its signature. A setting with
    the name of one of `FitSettings` has its value there. A function can import torch when it is called: a module that
    registers heads should not.

    Args:
        name: its name in studies, rows and reports.
        targets: the targets it can predict: "cells", "distance", "plan".
        settings_of: infers settings from weights; all others are stored in the file of a probe.
    """

    def add(build: Build) -> Build:
        defaults = {parameter.name: parameter.default for parameter in signature(build).parameters.values()}
        settings = {key: default for key, default in defaults.items() if default is not Parameter.empty}
        registered = Head(name=name, targets=targets, build=build, settings=settings, settings_of=settings_of)
        registry.register("head", name, made_of=build)(registered)
        return build

    return add


def find_head(name: str, target: str) -> Head:
    """Return the head of that name for a target; a ValueError names those that there are."""
    try:
        registered: Head = registry.resolve("head", name)
        if target in registered.targets:
            return registered
    except ValueError:
        pass  # said below, with the heads that fit the target
    fitting = [
        candidate for candidate in registry.names("head") if target in registry.resolve("head", candidate).targets
    ]
    broken = "".join(f"; {sentence}" for sentence in registry.broken_packages().values())
    raise ValueError(f"a head for {target} must be one of {', '.join(fitting)}, got {name[:80]!r}{broken}")


def weight_shapes(module: Module) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by the name that files have for it; torch allows no dot in a module's own."""
    return {name.replace("/", "."): tuple(parameter.shape) for name, parameter in module.named_parameters()}


def initial_weights(module: Any, seed: int, name: str) -> Weights:
    """Return the initial weights of training, the same for a probe and its controls, trained alone or in a stack."""
    if hasattr(module, "initial"):
        weights: Weights = module.initial(seed, name)
        return weights
    return {key.replace("/", "."): parameter.detach().cpu().numpy() for key, parameter in module.named_parameters()}


def scores(module: Any, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
    """Return the scores of Q probes at once, ``[Q, B, C, K]``: weights ``[Q, ...]``, vectors ``[Q or 1, B, F]``."""
    from torch.func import functional_call, vmap

    if hasattr(module, "stacked"):
        result: Tensor = module.stacked(weights, vectors)
    elif not weights:
        result = module(vectors[0])[None]
    else:
        by_name = {name: weights[name.replace("/", ".")] for name, _ in module.named_parameters()}
        several = vmap(lambda parameters, inputs: functional_call(module, parameters, (inputs,)))
        result = several(by_name, vectors.expand(len(next(iter(by_name.values()))), -1, -1))
    return result


def outputs(
    module: Any,
    weights: Mapping[str, npt.NDArray[np.float32]],
    vectors: npt.NDArray[np.float32],
    norm: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]],
    device: str,
    batch: int,
) -> npt.NDArray[np.float32]:
    """Return the scores of one probe, ``[N, C, K]``, from vectors ``[N, F]`` as they are, some at a time."""
    import torch

    check_device(device)
    module = module.to(device)
    tensors = {name: torch.tensor(array, device=device)[None] for name, array in weights.items()}
    parts = []
    rows = vectors if len(vectors) else np.zeros((1, vectors.shape[1]), dtype=np.float32)  # for the shape alone
    with torch.inference_mode():
        for begin in range(0, len(rows), batch):
            batch_inputs = normalised(rows[begin : begin + batch], *norm)
            parts.append(scores(module, tensors, torch.tensor(batch_inputs, device=device)[None])[0].cpu())
        joined: npt.NDArray[np.float32] = torch.cat(parts).numpy()
    return joined[: len(vectors)]


def check_device(device: str) -> None:
    """Raise a ValueError unless probes can compute there: "cpu", or a GPU ("cuda", "cuda:1") that PyTorch sees."""
    if device == "cpu":
        return
    if not isinstance(device, str) or device == "auto":
        raise ValueError(f"the device of probes must be cpu, or a GPU such as cuda or cuda:1, got {device!r}")
    loading.check_device_name(device)
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} must be there, PyTorch sees no GPU: fit with device='cpu'")
    loading.check_device(torch, device)


def trains_on(device: str) -> str:
    """Return the device on which probes train, given that of the model: for "auto" a GPU if there is one.

    Raises:
        ValueError: see `check_device`.
    """
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    check_device(device)
    return device.partition(":")[0]


def coordinates(frame: int) -> npt.NDArray[np.float32]:
    """Return row and column of the cells of a frame by row, -1 to 1, ``[frame * frame, 2]``; 0 for a single cell."""
    along = np.linspace(-1, 1, frame, dtype=np.float32) if frame > 1 else np.zeros(1, dtype=np.float32)
    return np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2)


def normalised(
    vectors: npt.NDArray[np.float32], mean: npt.NDArray[np.float32], std: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return ``(vectors - mean) / std``, and 0 if the standard deviation is 0."""
    factor = np.divide(1, std, out=np.zeros_like(std), where=std > 0)
    with np.errstate(over="ignore", invalid="ignore"):  # what is made of it is checked
        return (vectors - mean) * factor
