"""Trained policies as agents: convolutions and linear layers in a file of weights, and nothing that could run code.

`save_policy` writes one from a policy of stable-baselines3 or a `torch.nn.Sequential`, in the process that has it. The
file is safetensors; its metadata say the layers, and what was done to observations. Files that hold code or pickles
(the archives of stable-baselines3, TorchScript) are refused.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from goalscope.agents.agent import Observation, agent_kind
from goalscope.agents.scripted import Scripted
from goalscope.environments.agents import shown_array
from goalscope.extras import lacking
from goalscope.plain_files import replacing
from goalscope.untrusted import decode_object, read_octets, shorten

Array = npt.NDArray[np.float64]
MOST_BYTES: Final = 1 << 28
_KEY: Final = "goalscope policy"
_ACTIVATIONS: Final[Mapping[str, Any]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "none": lambda x: x,
}


class PolicyForm(BaseModel):
    """What a file says of its policy.

    Attributes:
        activations: after each layer, one of tanh, relu, elu, none; the last layer has none.
        divided: what observations are divided by.
        strides: of each convolution among the layers, in order; the weights of the others are matrices.
        transposed: whether pictures ``[H, W, C]`` become ``[C, H, W]`` before the first layer.
        source: where it comes from, in words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    activations: list[str] = Field(min_length=1, max_length=64)
    divided: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    strides: list[Annotated[int, Field(ge=1, le=64)]] = Field(default=[], max_length=64)
    transposed: bool = False
    source: str = Field(default="", max_length=200)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyNetwork:
    """A network from observations to action probabilities: convolutions, where it has any, then linear layers.

    Attributes:
        form: what its file says.
        layers: weights ``[F, G]``, of a convolution ``[G, F, h, w]``, and biases ``[G]`` of each layer.
        digest: SHA-256 of its file.
    """

    form: PolicyForm
    layers: tuple[tuple[Array, Array], ...]
    digest: str

    def probabilities(self, observation: npt.NDArray[Any]) -> Array:
        """Return ``[A]`` the probabilities of the actions.

        Raises:
            ValueError: an observation of another size than the policy was trained on.
        """
        array = np.asarray(observation, dtype=np.float64)
        if self.form.transposed and array.ndim == 3:
            array = array.transpose(2, 0, 1)
        values, strides = array / self.form.divided, iter(self.form.strides)
        for (weights, biases), activation in zip(self.layers, self.form.activations, strict=True):
            if weights.ndim == 4:
                values = _convolved(values, weights, next(strides)) + biases[:, None, None]
            else:
                values = values.ravel()
                if len(values) != len(weights):
                    raise ValueError(
                        f"a policy must be shown {len(weights)} numbers, as in its training, got {len(values)} of "
                        f"{list(np.shape(observation))}: choose another array for the world"
                    )
                values = values @ weights + biases
            values = _ACTIVATIONS[activation](values)
        chances = np.exp(values - values.max())
        return np.asarray(chances / chances.sum())


def _convolved(values: Array, weights: Array, stride: int) -> Array:
    """Return the cross-correlation ``[G, H, W]`` of ``[F, h, w]`` without padding."""
    channels, size = weights.shape[1], weights.shape[2:]
    if values.ndim != 3 or len(values) != channels or any(np.less(values.shape[1:], size)):
        raise ValueError(
            f"a policy with convolutions must be shown a picture of {channels} channels and at least {size[0]} x "
            f"{size[1]} cells, as in its training, got {list(values.shape)}: choose another array for the world"
        )
    windows = np.lib.stride_tricks.sliding_window_view(values, size, axis=(1, 2))[:, ::stride, ::stride]
    return np.asarray(np.einsum("fijhw,gfhw->gij", windows, weights))


def save_policy(policy: Any, path: Path | str, *, divided: float | None = None) -> Path:
    """Write a policy as a file that the agent ``policy`` reads.

    Args:
        policy: a model of stable-baselines3 with ``MlpPolicy``, or with ``CnnPolicy`` and an extractor whose parts are
            ``cnn`` and ``linear`` (PPO, A2C: its actor; DQN: its values, of which the greatest is taken, so say
            ``drawn: false``), or a ``torch.nn.Sequential`` of convolutions without padding, linear layers and
            activations from observations to logits.
        path: file to be written.
        divided: what observations are divided by; by default 255 where stable-baselines3 did so, else 1.

    Returns:
        The path.

    Raises:
        ValueError: a network of other parts.
        ImportError: safetensors is missing.
    """
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise lacking("files of weights need safetensors", "lm", error) from error
    pictures = transposed = False
    source = type(policy).__name__
    if hasattr(policy, "policy"):
        modules, space = list(_of_baselines(policy.policy)), policy.policy.observation_space
        pictures = len(space.shape or ()) == 3 and np.dtype(space.dtype) == np.uint8
        transposed = pictures and space.shape[0] < space.shape[2]
    else:
        modules = list(policy)
    tensors: dict[str, Any] = {}
    activations: list[str] = []
    strides: list[int] = []
    for module in modules:
        name = type(module).__name__.lower()
        if name == "linear" or (name == "conv2d" and _plain_convolution(module)):
            weights = module.weight.detach().cpu().numpy()
            if name == "linear":
                weights = weights.T
            else:
                strides.append(int(module.stride[0]))
            biases = np.zeros(len(module.weight)) if module.bias is None else module.bias.detach().cpu().numpy()
            number = len(activations)
            tensors[f"{number}.weight"] = np.ascontiguousarray(weights, dtype=np.float32)
            tensors[f"{number}.bias"] = np.ascontiguousarray(biases, dtype=np.float32)
            activations.append("none")
        elif name in _ACTIVATIONS and activations and activations[-1] == "none":
            activations[-1] = name
        elif name not in ("flatten", "identity"):
            raise ValueError(
                f"a policy must be made of linear layers and convolutions without padding, dilation and groups, with "
                f"{', '.join(_ACTIVATIONS)} between them, got {name}: "
                "pass it to a run as goalscope.environments.PolicyAgent instead"
            )
    form = PolicyForm(
        activations=activations,
        divided=divided or (255.0 if pictures else 1.0),
        strides=strides,
        transposed=transposed,
        source=source,
    )
    octets = save(tensors, metadata={_KEY: form.model_dump_json()})
    with replacing(Path(path)) as place:
        place.write_bytes(octets)
    read_policy(path)
    return Path(path)


def _of_baselines(policy: Any) -> Iterator[Any]:
    """Yield the modules of a policy of stable-baselines3, in order."""
    extractor = getattr(policy, "features_extractor", None) or getattr(policy.q_net, "features_extractor", None)
    parts = [getattr(extractor, name, None) for name in ("cnn", "linear")]
    if type(extractor).__name__ != "FlattenExtractor" and None in parts:
        raise ValueError(
            f"a policy must flatten its observations (MlpPolicy) or have an extractor with cnn and linear, got "
            f"{type(extractor).__name__}: pass it to a run as goalscope.environments.PolicyAgent instead"
        )
    for part in parts:
        yield from part or ()
    if hasattr(policy, "action_net"):
        yield from policy.mlp_extractor.policy_net
        yield policy.action_net
    else:
        yield from policy.q_net.q_net


def _plain_convolution(module: Any) -> bool:
    plain = set(module.padding) == {0} and set(module.dilation) == {1} and module.groups == 1
    return plain and len(set(module.stride)) == 1


@lru_cache(maxsize=32)
def _read(path: str, stamp: tuple[int, int]) -> PolicyNetwork:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    octets = read_octets(Path(path), MOST_BYTES)
    if octets[:2] == b"PK" or octets[:1] == b"\x80":
        raise ValueError(
            f"{path} must be a file of save_policy, got an archive or a pickle (stable-baselines3, TorchScript), which "
            'may hold code. Where it is yours and was made by PPO: python -c "from stable_baselines3 import PPO; from '
            f"goalscope.environments import save_policy; save_policy(PPO.load('{path}'), '{Path(path).stem}.policy')\""
        )
    try:
        tensors = load(octets)
        header = decode_object(octets[8 : 8 + int.from_bytes(octets[:8], "little")])
        form = PolicyForm.model_validate_json(str(header["__metadata__"][_KEY]))
    except (SafetensorError, KeyError, TypeError, ValidationError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} must be a file of save_policy, got another: {shorten(str(error))}") from error
    layers, width = list[tuple[Array, Array]](), None
    for number, activation in enumerate(form.activations):
        weights, biases = (tensors.pop(f"{number}.{part}", np.zeros(0)) for part in ("weight", "bias"))
        convolution = weights.ndim == 4 and (width is None or layers[-1][0].ndim == 4)
        fits = weights.ndim == 2 or convolution
        outputs, inputs = (0, 1) if convolution else (1, 0)
        if fits:  # a flattened picture has as many numbers a channel as there are places, which its size decides
            flat = bool(layers) and layers[-1][0].ndim == 4 and not convolution
            near = width is None or (weights.shape[inputs] % width == 0 if flat else weights.shape[inputs] == width)
            fits = near and biases.shape == (weights.shape[outputs],)
        if not fits or activation not in _ACTIVATIONS or not all(np.isfinite(one).all() for one in (weights, biases)):
            raise ValueError(f"{path} must hold finite layers that fit together, layer {number} does not")
        layers.append((weights.astype(np.float64), biases.astype(np.float64)))
        width = weights.shape[outputs]
    if tensors or len(form.strides) != sum(weights.ndim == 4 for weights, _ in layers):
        raise ValueError(
            f"{path} must hold the layers that it says, got {', '.join(sorted(tensors)) or 'other strides'}"
        )
    return PolicyNetwork(form=form, layers=tuple(layers), digest=sha256(octets).hexdigest())


def read_policy(path: Path | str) -> PolicyNetwork:
    """Return the policy of a file.

    Raises:
        ValueError: a file that is none of `save_policy`, archives and pickles among them.
        OSError: there is no such file.
    """
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        raise lacking("files of weights need safetensors", "lm", error) from error
    status = Path(path).stat()
    return _read(str(path), (status.st_mtime_ns, status.st_size))


@agent_kind("policy")
@dataclass(frozen=True)
class PolicyFile(Scripted):
    """Acts by a policy that was trained elsewhere, from the arrays that its world shows.

    Args:
        file: a file of `save_policy`.
        drawn: whether actions are drawn from its probabilities; else the most probable one is taken.
    """

    kind: ClassVar[str] = "policy"
    file: str = field()
    drawn: bool = True

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", Path(self.file).stem)
        super().__post_init__()

    def describe(self) -> Mapping[str, Any]:
        """Return the digest of its file, wherever it lies, and how actions are chosen."""
        return {
            "kind": self.kind,
            "version": self.version,
            "weights": read_policy(self.file).digest,
            "drawn": self.drawn,
        }

    def probabilities(self, observation: Observation) -> Array:
        """Return ``[A]`` the probabilities of the actions that are offered."""
        view = observation.view
        found = read_policy(self.file).probabilities(shown_array(view))
        if len(found) != len(view.actions):
            raise ValueError(f"a policy must have the {len(view.actions)} actions of its world, got {len(found)}")
        if view.admissible is not None:
            offered = np.isin(np.arange(len(found)), view.admissible)
            total = math.fsum(found[offered])
            found = np.where(offered, found / total if total > 0 else 1 / offered.sum(), 0.0)
        return found

    def _choose(self, observation: Observation) -> int:
        chances = self.probabilities(observation)
        return observation.draw(chances.tolist()) if self.drawn else int(chances.argmax())
