"""Heads, which turn activations into scores. Heads of this and other packages are found by name.

A head is a `torch.nn.Module` that maps normalised activations ``[B, F]`` to scores ``[B, C, K]`` of K classes at C
outputs: the cells of a frame, one number (C = K = 1), or the positions of a plan. It is registered under a name with
`head`, and `goalscope.inside.probing.fitting` trains several modules at once. In addition to `forward`, a module may
have:

* ``stacked(weights, vectors)``: the scores of Q modules at once, ``[Q, B, C, K]``, from weights ``[Q, ...]`` and
  vectors ``[Q or 1, B, F]``, if that is faster than `torch.func.vmap` of `forward`; both must agree.
* ``initial(seed, name)``: the initial weights; by default those with which the module is built, from a fixed seed.
* ``taught(weights, vectors, values)``: the scores in training, which may use the true values ``[Q, B, C]`` (-1 if
  unknown), for a head whose outputs depend on its earlier outputs.
* ``solve(vectors, target, penalties, held)``: a `Solution` in closed form, instead of training. Its arguments are the
  vectors ``[N, F]``, the target with ``values`` and ``weights`` of steps, the penalties to try, and a mask ``[N]`` of
  the validation steps, on which it may choose.
* ``early``: False to train on all grids and keep the last epoch, whatever the settings say about validation.
* ``numbers(batch)``: number of elements of the largest array in a training step.
* ``cost``: duration of a training step relative to other heads.
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
from goalscope.agents.models import local
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
    """The result of fitting a probe.

    Attributes:
        weights: name -> array, float32.
        tags: stored with the probe, such as the chosen penalties.
        kept: the epoch of the weights; None for a closed-form solution.
        loss: the validation loss of that epoch.
    """

    weights: Weights
    tags: Mapping[str, Tag] = field(default_factory=dict)
    kept: int | None = None
    loss: float = 0.0


SettingsOf = Callable[[Mapping[str, npt.NDArray[Any]]], dict[str, Any]]
Build = TypeVar("Build", bound=Callable[..., Any])
_building = threading.Lock()  # a module's own initialisation uses global random numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSizes:
    """Input and output sizes of a head (the form of a probe, such as linear or MLP).

    Attributes:
        positions: number P of vectors per step. It is 1, with one long vector, for probes that are not plan decoders.
        width: length D of a vector; an example has F = P * D numbers.
        outputs: number C of outputs per step.
        classes: number K of scores per output.
    """

    positions: int
    width: int
    outputs: int
    classes: int

    @property
    def inputs(self) -> int:
        """Number F of inputs per example."""
        return self.positions * self.width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Head:
    """A registered head: a form of probe, such as linear or MLP.

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
        """Whether the inputs of the head are activations."""
        return self.name not in COUNTED

    def module(self, sizes: HeadSizes, settings: Mapping[str, Any], *, seed: int | None = None) -> Module:
        """Build a module with weights drawn from the root seed, or with shapes only if ``seed`` is None."""
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
            raise ValueError(f"head {self.name} cannot be built with its settings {settings}: {problem}") from error


def head(
    name: str, *, targets: tuple[str, ...] = ("cells", "distance"), settings_of: SettingsOf | None = None
) -> Callable[[Build], Build]:
    """Return a decorator that registers a class of modules, or a function that builds one, as a head (a form of probe).

    It is called with `HeadSizes` and its settings by name; their defaults must be in its signature. A setting with the
    name of one of `FitSettings` gets its value from there. A function can import torch when it is called; a module that
    registers heads should not import it.

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
    """Find a head by name for a target. If there is none, raise a ValueError that lists the available heads."""
    try:
        registered: Head = registry.resolve("head", name)
        if target in registered.targets:
            return registered
    except ValueError:
        pass  # reported below together with the heads that fit the target
    fitting = [
        candidate for candidate in registry.names("head") if target in registry.resolve("head", candidate).targets
    ]
    broken = "".join(f"; {sentence}" for sentence in registry.broken_packages().values())
    raise ValueError(f"a head for {target} must be one of {', '.join(fitting)}, got {name[:80]!r}{broken}")


def weight_shapes(module: Module) -> dict[str, tuple[int, ...]]:
    """Map the names of weights in files to their shapes; torch allows no dots in the names within a module."""
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
    """Compute the scores of one probe, ``[N, C, K]``, from unnormalised vectors ``[N, F]`` in batches."""
    import torch

    check_device(device)
    module = module.to(device)
    tensors = {name: torch.tensor(array, device=device)[None] for name, array in weights.items()}
    parts = []
    rows = vectors if len(vectors) else np.zeros((1, vectors.shape[1]), dtype=np.float32)  # only to get the shape
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
        raise ValueError(f"device must be cpu or a GPU such as cuda or cuda:1, got {device!r}")
    local.check_device_name(device)
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r}, but PyTorch finds no such GPU: set device='cpu'")
    local.check_device(torch, device)


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
    with np.errstate(over="ignore", invalid="ignore"):  # the results are checked later
        return (vectors - mean) * factor
