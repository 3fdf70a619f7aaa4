"""Trained policies as agents: a perceptron in a file of weights, and nothing that could run code.

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
from typing import Any, ClassVar, Final

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
        transposed: whether pictures ``[H, W, C]`` become ``[C, H, W]`` before they are flattened.
        source: where it comes from, in words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    activations: list[str] = Field(min_length=1, max_length=64)
    divided: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    transposed: bool = False
    source: str = Field(default="", max_length=200)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyNetwork:
    """A perceptron from observations to action probabilities.

    Attributes:
        form: what its file says.
        layers: weights ``[F, G]`` and biases ``[G]`` of each layer.
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
        values = array.ravel() / self.form.divided
        if len(values) != len(self.layers[0][0]):
            raise ValueError(
                f"a policy must be shown {len(self.layers[0][0])} numbers, as in its training, got {len(values)} "
                f"{list(np.shape(observation))}: choose another array for the world"
            )
        for (weights, biases), activation in zip(self.layers, self.form.activations, strict=True):
            values = _ACTIVATIONS[activation](values @ weights + biases)
        chances = np.exp(values - values.max())
        return np.asarray(chances / chances.sum())


def save_policy(policy: Any, path: Path | str, *, divided: float | None = None) -> Path:
    """Write a policy as a file that the agent ``policy`` reads.

    Args:
        policy: a model of stable-baselines3 with ``MlpPolicy`` (PPO, A2C: its actor; DQN: its values, of which the
            greatest is taken, so say ``drawn: false``), or a ``torch.nn.Sequential`` of linear layers and activations
            from flat observations to logits.
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
    for module in modules:
        name = type(module).__name__.lower()
        if name == "linear":
            weights = module.weight.detach().cpu().numpy().T
            biases = np.zeros(weights.shape[1]) if module.bias is None else module.bias.detach().cpu().numpy()
            number = len(activations)
            tensors[f"{number}.weight"] = np.ascontiguousarray(weights, dtype=np.float32)
            tensors[f"{number}.bias"] = np.ascontiguousarray(biases, dtype=np.float32)
            activations.append("none")
        elif name in _ACTIVATIONS and activations and activations[-1] == "none":
            activations[-1] = name
        elif name not in ("flatten", "identity"):
            raise ValueError(
                f"a policy must be made of linear layers with {', '.join(_ACTIVATIONS)} between them, got {name}: "
                "pass it to a run as goalscope.environments.PolicyAgent instead"
            )
    form = PolicyForm(
        activations=activations, divided=divided or (255.0 if pictures else 1.0), transposed=transposed, source=source
    )
    octets = save(tensors, metadata={_KEY: form.model_dump_json()})
    with replacing(Path(path)) as place:
        place.write_bytes(octets)
    read_policy(path)
    return Path(path)


def _of_baselines(policy: Any) -> Iterator[Any]:
    """Yield the modules of a policy of stable-baselines3, in order."""
    extractor = getattr(policy, "features_extractor", None) or getattr(policy.q_net, "features_extractor", None)
    if type(extractor).__name__ != "FlattenExtractor":
        raise ValueError(
            f"a policy must flatten its observations (MlpPolicy), got {type(extractor).__name__}: pass it to a run as "
            "goalscope.environments.PolicyAgent instead"
        )
    if hasattr(policy, "action_net"):
        yield from policy.mlp_extractor.policy_net
        yield policy.action_net
    else:
        yield from policy.q_net.q_net


@lru_cache(maxsize=32)
def _read(path: str, stamp: tuple[int, int]) -> PolicyNetwork:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    octets = read_octets(Path(path), MOST_BYTES)
    if octets[:2] == b"PK" or octets[:1] == b"\x80":
        raise ValueError(
            f"{path} must be a file of save_policy, got an archive or a pickle (stable-baselines3, TorchScript), which "
            "may hold code: load it where it was made, and write it with goalscope.environments.save_policy"
        )
    try:
        tensors = load(octets)
        header = decode_object(octets[8 : 8 + int.from_bytes(octets[:8], "little")])
        form = PolicyForm.model_validate_json(str(header["__metadata__"][_KEY]))
    except (SafetensorError, KeyError, TypeError, ValidationError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} must be a file of save_policy, got another: {shorten(str(error))}") from error
    layers, width = [], None
    for number, activation in enumerate(form.activations):
        weights, biases = (tensors.pop(f"{number}.{part}", np.zeros(0)) for part in ("weight", "bias"))
        fits = weights.ndim == 2 and biases.shape == weights.shape[1:] and width in (None, weights.shape[0])
        if not fits or activation not in _ACTIVATIONS or not all(np.isfinite(one).all() for one in (weights, biases)):
            raise ValueError(f"{path} must hold finite layers that fit together, layer {number} does not")
        layers.append((weights.astype(np.float64), biases.astype(np.float64)))
        width = weights.shape[1]
    if tensors:
        raise ValueError(f"{path} must hold the layers that it says, got {', '.join(sorted(tensors))} beside them")
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
