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
        tags: named facts stored with the probe, such as the chosen penalties.
        kept: the training epoch whose weights these are; None for a closed-form solution.
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
        """Number F of inputs per example: positions times width."""
        return self.positions * self.width


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Head:
    """A registered head: a form of probe, such as linear or MLP.

    ``targets`` names what it can predict ("cells", "distance", "plan"). ``build`` makes the torch module from
    `HeadSizes` and the settings, whose defaults are ``settings``. ``settings_of`` infers, from the weights of a stored
    probe, the settings that its file does not contain.
    """

    name: str
    targets: tuple[str, ...]
    build: Callable[..., Module]
    settings: Mapping[str, Any] = field(default_factory=dict)
    settings_of: SettingsOf | None = None

    @property
    def reads(self) -> bool:
        """Whether the head (form of probe) reads activations. "majority" and "position" do not."""
        return self.name not in COUNTED

    def module(self, sizes: HeadSizes, settings: Mapping[str, Any], *, seed: int | None = None) -> Module:
        """Build the torch module of the head (form of probe, such as linear or MLP).

        Args:
            sizes: numbers of inputs and outputs.
            settings: the head's settings by name; missing ones have their defaults.
            seed: seed of the initial weights; None to build weights that have only shapes, on the meta device.

        Raises:
            ValueError: if the head cannot be built with these settings.
        """
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
    """Return a decorator that registers a head: a form of probe, such as linear or MLP, given as a torch module.

    It decorates a class of modules, or a function that builds one. This is called with `HeadSizes` and its settings by
    name; their defaults must be in its signature. A setting with the name of one of `FitSettings` gets its value from
    there. A function can import torch when it is called; a Python file that registers heads should not import it.

    Args:
        name: its name in studies, rows and reports.
        targets: what it can predict: "cells" (the class of each cell of a grid), "distance" (a number), "plan" (moves).
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
    """Find a registered head (form of probe, such as "mlp") that can predict a kind of target: "cells", "distance" or
    "plan".

    Raises:
        ValueError: if there is none; the message lists the heads for this target.
    """
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
    """Return the shape of each weight of a probe, by the name that it has in files.

    Torch allows no dots in the names of parameters, so they contain slashes there.
    """
    return {name.replace("/", "."): tuple(parameter.shape) for name, parameter in module.named_parameters()}


def initial_weights(module: Any, seed: int, name: str) -> Weights:
    """Return the initial weights of a probe by name, the same for a probe and its controls, trained alone or together.

    Args:
        module: the torch module of the probe.
        seed: root seed.
        name: name of the probe, for modules that draw their own weights.
    """
    if hasattr(module, "initial"):
        weights: Weights = module.initial(seed, name)
        return weights
    return {key.replace("/", "."): parameter.detach().cpu().numpy() for key, parameter in module.named_parameters()}


def scores(module: Any, weights: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
    """Compute the scores of Q probes of one form at once.

    Args:
        module: the torch module of this form of probe.
        weights: the weights of all probes by name, each ``[Q, ...]``.
        vectors: ``[Q or 1, B, F]`` normalised inputs: probes (1 if they share them), examples, numbers.

    Returns:
        ``[Q, B, C, K]`` scores: probes, examples, outputs (such as cells), classes.
    """
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
    """Compute the scores of one probe from inputs that are not normalised, in batches.

    Args:
        module: the torch module of the probe.
        weights: its weights by name.
        vectors: ``[N, F]`` inputs: examples by numbers.
        norm: mean and standard deviation of each input in training, by which inputs are normalised.
        device: where to compute, "cpu" or "cuda".
        batch: number of examples per batch.

    Returns:
        ``[N, C, K]`` scores: examples, outputs (such as cells), classes.
    """
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
    """Check that probes can compute on a device: "cpu", or a GPU ("cuda", "cuda:1") that PyTorch sees.

    Raises:
        ValueError: if they cannot.
    """
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
    """Return the kind of device on which probes train ("cpu" or "cuda"), given the device of the model.

    For "auto" it is a GPU if there is one.

    Raises:
        ValueError: if PyTorch does not see the device.
    """
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    check_device(device)
    return device.partition(":")[0]


def coordinates(frame: int) -> npt.NDArray[np.float32]:
    """Return the row and column of each cell of a square map, scaled to -1 ... 1; 0 for a single cell.

    ``frame`` is the number of rows and columns. The result is ``[frame * frame, 2]``, cells by row.
    """
    along = np.linspace(-1, 1, frame, dtype=np.float32) if frame > 1 else np.zeros(1, dtype=np.float32)
    return np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2)


def normalised(
    vectors: npt.NDArray[np.float32], mean: npt.NDArray[np.float32], std: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Normalise inputs ``[N, F]`` by the mean and standard deviation ``[F]`` of the training inputs.

    The result is ``(vectors - mean) / std``, and 0 where the standard deviation is 0.
    """
    factor = np.divide(1, std, out=np.zeros_like(std), where=std > 0)
    with np.errstate(over="ignore", invalid="ignore"):  # the results are checked later
        return (vectors - mean) * factor
