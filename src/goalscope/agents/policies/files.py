"""Trained policies as agents, stored as files of network layers that contain nothing that could run code.

`save_policy` writes such a file from a policy of stable-baselines3 or from PyTorch modules, in the process that has
loaded them. The file is in the safetensors format; its metadata describe the layers and how observations are
preprocessed. Files that contain code or pickles (archives of stable-baselines3, TorchScript) are refused.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final

import numpy as np

from goalscope._ground.checks import check_whole
from goalscope._ground.distributions import to_shares
from goalscope._ground.extras import lacking
from goalscope._ground.folder import NamedFile
from goalscope._ground.sealed import seal, unseal
from goalscope._ground.untrusted import UntrustedError, decode_object, shorten
from goalscope.agents.agent import History, Observation, agent_kind
from goalscope.agents.policies.agent import shown_array
from goalscope.agents.policies.missions import MOST_WORDS, WORDS
from goalscope.agents.policies.networks import (
    ACTIVATIONS,
    BLOCKS,
    PARTS,
    Array,
    Cell,
    Memory,
    PolicyForm,
    PolicyNetwork,
    WordsForm,
    digest_of,
    network_of,
)
from goalscope.agents.scripted import Scripted
from goalscope.stats.rows import Tag
from goalscope.worlds.world import View

MOST_BYTES: Final = 1 << 28
_KEY: Final = "goalscope policy"


def save_policy(
    policy: Any,
    path: Path | str,
    *,
    divided: float | None = None,
    transposed: bool | None = None,
    vocabulary: Mapping[str, int] | None = None,
    padded: int = 0,
) -> Path:
    """Write a policy as a file that the agent ``policy`` can read.

    Args:
        policy: one of the following. (1) A model of stable-baselines3 with ``MlpPolicy``, or with ``CnnPolicy`` and an
            extractor that consists of ``cnn`` and ``linear``. For PPO and A2C the actor is saved; for DQN the action
            values, whose greatest value is taken, so set ``drawn: false`` in the study. (2) A model of sb3-contrib's
            RecurrentPPO. (3) The modules that lead from observations to logits, in order: convolutions without padding,
            linear layers, activations, ``MaxPool2d``, ``LSTM``, ``GRU`` and their cells. A pair of an ``Embedding`` and
            such a cell reads the mission; its final memory is appended to the values before it.
        path: file to write.
        divided: number by which observations are divided; by default 255 if stable-baselines3 divided by it, else 1.
        transposed: whether pictures ``[H, W, C]`` become ``[C, H, W]``; by default as stable-baselines3 did.
        vocabulary: word -> its number in training; by default `goalscope.environments.WORDS`.
        padded: number of words to which missions were padded in training, 0 for no padding.

    Returns:
        The path.

    Raises:
        ValueError: the network has parts of other kinds.
        ImportError: safetensors is missing.
    """
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise lacking("files of weights need safetensors", "lm", error) from error
    pictures = channels_last = False
    source = type(policy).__name__
    if hasattr(policy, "policy"):
        modules, space = list(_of_baselines(policy.policy)), policy.policy.observation_space
        pictures = len(space.shape or ()) == 3 and np.dtype(space.dtype) == np.uint8
        channels_last = pictures and space.shape[0] < space.shape[2]
    else:
        modules = list(policy)
    tensors: dict[str, Any] = {}
    activations: list[str] = []
    strides: list[int] = []
    pools: list[int] = []
    cells: list[Cell] = []
    words: WordsForm | None = None

    def add(layer: Sequence[Any]) -> None:
        tensors.update(_tensors(str(len(activations)), layer))
        activations.append("none")
        pools.append(1)

    for module in modules:
        name = type(module).__name__.lower()
        if isinstance(module, tuple) and words is None:
            words = _mission(module[0], module[1], tensors, vocabulary, joins=len(activations), padded=padded)
        elif name == "linear":
            add([module.weight.T, module.bias])
        elif name == "conv2d" and _plain_convolution(module):
            strides.append(int(module.stride[0]))
            add([module.weight, module.bias])
        elif (cell := _cell_of(module)) is not None:
            for layer in _memories(module):
                cells.append(cell)
                add(layer)
        elif name == "maxpool2d" and activations and pools[-1] == 1 and (side := _plain_pool(module)):
            pools[-1] = side
        elif name in ACTIVATIONS and activations and activations[-1] == "none" and pools[-1] == 1:
            activations[-1] = name
        elif name not in ("flatten", "identity"):
            raise ValueError(
                "a policy must be made of linear layers, convolutions without padding, dilation and groups, MaxPool2d, "
                f"LSTM and GRU in one direction, one pair of Embedding and GRU or LSTM, and {', '.join(ACTIVATIONS)} "
                f"between them, got {name}: pass it to a run as goalscope.environments.PolicyAgent instead"
            )
    form = PolicyForm(
        arrays=digest_of(tensors),
        activations=activations,
        divided=(255.0 if pictures else 1.0) if divided is None else divided,
        strides=strides,
        pools=pools if max(pools, default=1) > 1 else [],
        cells=cells,
        words=words,
        transposed=channels_last if transposed is None else transposed,
        source=source,
    )
    octets = save(tensors, metadata={_KEY: seal(form)})
    NamedFile(path).save_bytes(octets)
    read_policy(path)
    return Path(path)


def _tensors(name: str, layer: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the named arrays of weights ``[F, G]`` and biases; missing biases are zeros."""
    for weights, biases, *parts in zip(layer[::2], layer[1::2], PARTS[::2], PARTS[1::2], strict=False):
        outputs = len(weights) if weights.ndim == 4 else weights.shape[1]
        for part, values in zip(parts, (weights, np.zeros(outputs) if biases is None else biases), strict=True):
            array = values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
            yield f"{name}.{part}", np.ascontiguousarray(array, dtype=np.float32)


def _memories(module: Any) -> Iterator[list[Any]]:
    """Yield, for each layer of an LSTM or GRU, weights and biases of the input and of the memory."""
    for end in (f"_l{number}" for number in range(module.num_layers)) if hasattr(module, "num_layers") else ("",):
        names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        tensors: list[Any] = [getattr(module, f"{name}{end}", None) for name in names]
        yield [tensor if tensor is None or tensor.ndim == 1 else tensor.T for tensor in tensors]


def _mission(
    embedding: Any,
    cell: Any,
    tensors: dict[str, Any],
    vocabulary: Mapping[str, int] | None,
    *,
    joins: int,
    padded: int,
) -> WordsForm:
    """Add the cell that reads missions, and its embeddings in the order of our word numbers, to the tensors."""
    kind, layers = _cell_of(cell), list(_memories(cell))
    if type(embedding).__name__ != "Embedding" or kind is None or len(layers) != 1:
        raise ValueError(
            "what reads missions must be an Embedding and one layer of LSTM or GRU in one direction, got "
            f"{type(embedding).__name__} and {len(layers)} of {type(cell).__name__}"
        )
    table = embedding.weight.detach().cpu().numpy()
    numbers = {word: number for number, word in enumerate(WORDS, 1)} if vocabulary is None else vocabulary
    matching = [number for number, word in enumerate(WORDS, 1) if 0 < numbers.get(word, 0) < len(table)]
    ours = np.zeros((len(WORDS) + 1, table.shape[1]))
    ours[0], ours[matching] = table[0], table[[numbers[WORDS[number - 1]] for number in matching]]
    tensors["words.embedding"] = np.ascontiguousarray(ours, dtype=np.float32)
    tensors.update(_tensors("words", layers[0]))
    unknown = sorted(set(range(1, len(ours))) - set(matching))
    return WordsForm(cell=kind, joins=joins, numbers=MOST_WORDS, padded=padded, unknown=unknown)


def _of_baselines(policy: Any) -> Iterator[Any]:
    """Yield the modules of a stable-baselines3 policy, in order."""
    extractor = getattr(policy, "features_extractor", None) or getattr(policy.q_net, "features_extractor", None)
    parts = [getattr(extractor, name, None) for name in ("cnn", "linear")]
    if type(extractor).__name__ != "FlattenExtractor" and None in parts:
        raise ValueError(
            f"a policy must flatten its observations (MlpPolicy) or have an extractor with cnn and linear, got "
            f"{type(extractor).__name__}: pass it to a run as goalscope.environments.PolicyAgent instead"
        )
    for part in parts:
        yield from part or ()
    if hasattr(policy, "lstm_actor"):
        yield policy.lstm_actor
    if hasattr(policy, "action_net"):
        yield from policy.mlp_extractor.policy_net
        yield policy.action_net
    else:
        yield from policy.q_net.q_net


def _plain_convolution(module: Any) -> bool:
    plain = set(module.padding) == {0} and set(module.dilation) == {1} and module.groups == 1
    return plain and len(set(module.stride)) == 1


def _cell_of(module: Any) -> Cell | None:
    """Return the kind of a recurrent module that has one direction and no projection; None for any other module."""
    name = type(module).__name__.lower().removesuffix("cell")
    plain = not getattr(module, "bidirectional", False) and not getattr(module, "proj_size", 0)
    return next((cell for cell in BLOCKS if cell == name), None) if plain else None


def _plain_pool(module: Any) -> int:
    """Return the side of the squares of a plain MaxPool2d, or 0 for any other kind of pooling."""
    sides = {*np.ravel(module.kernel_size).tolist(), *np.ravel(module.stride).tolist()}
    plain = len(sides) == 1 and module.padding == 0 and module.dilation == 1 and not module.ceil_mode
    return int(sides.pop()) if plain else 0


@lru_cache(maxsize=32)
def _read(path: str, stamp: tuple[int, int]) -> PolicyNetwork:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        octets = NamedFile(path).load_bytes(MOST_BYTES)
    except UntrustedError as error:
        raise ValueError(f"{path} must be a file of save_policy: {error}") from error
    # The length of a header, with which a safetensors file begins, can look like the mark of an archive or a pickle.
    if octets[8:9] != b"{" and (octets[:2] == b"PK" or octets[:1] == b"\x80"):
        raise ValueError(
            f"{path} must be a file of save_policy, got an archive or a pickle (stable-baselines3, TorchScript), which "
            'may hold code. Where it is yours and was made by PPO: python -c "from stable_baselines3 import PPO; from '
            f"goalscope.environments import save_policy; save_policy(PPO.load('{path}'), '{Path(path).stem}.policy')\""
        )
    try:
        tensors = load(octets)
        header = decode_object(octets[8 : 8 + int.from_bytes(octets[:8], "little")])
        form = unseal(PolicyForm, str(header["__metadata__"][_KEY]))
        if form.arrays != digest_of(tensors):
            raise ValueError("its arrays were changed since it was written")
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} must be a file of save_policy, got another: {shorten(str(error))}; {PolicyForm.advice}"
        ) from error
    try:
        network = network_of(tensors, form, sha256(octets).hexdigest())
    except ValueError as error:
        raise ValueError(f"{path} must hold {error}") from error
    return network


def read_policy(path: Path | str) -> PolicyNetwork:
    """Read the policy in a file.

    Raises:
        ValueError: `save_policy` did not write the file, for example because it is an archive or a pickle.
        OSError: there is no such file.
    """
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        raise lacking("files of weights need safetensors", "lm", error) from error
    status = NamedFile(path).status()
    return _read(str(path), (status.st_mtime_ns, status.st_size))


def _checkpoint(name: str, value: Any) -> int | None:
    return None if value is None else check_whole(name, value, 0, "steps")


@agent_kind("policy")
@dataclass(frozen=True)
class PolicyFile(Scripted):
    """Agent whose actions come from a policy that was trained elsewhere, given the arrays that its world shows.

    Args:
        file: a file that `save_policy` wrote.
        drawn: whether to draw actions from the policy's probabilities; otherwise the most probable action is taken.
        checkpoint: number of training steps, which places the policy on a training curve and tags its episodes.
    """

    kind: ClassVar[str] = "policy"
    file: str = field()
    drawn: bool = True
    checkpoint: int | None = field(default=None, metadata={"check": _checkpoint})

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", Path(self.file).stem)
        super().__post_init__()

    def describe(self) -> Mapping[str, Any]:
        """Return the digest of the policy's file, which does not depend on its path, and how actions are chosen."""
        return {
            "kind": self.kind,
            "version": self.version,
            "weights": read_policy(self.file).digest,
            "drawn": self.drawn,
        }

    @property
    def tags(self) -> Mapping[str, Tag]:
        """The number of training steps, if it is given."""
        return {} if self.checkpoint is None else {"checkpoint": self.checkpoint}

    @property
    def history(self) -> History | None:
        """How earlier steps are shown to the policy, if it has a memory."""
        return "actions" if read_policy(self.file).form.cells else None

    def probabilities(self, observation: Observation) -> Array:
        """Return the probabilities of the actions, ``[A]``; actions that are not offered have probability 0.

        The memory is recomputed from the views of the episode so far and from nothing else. An interrupted episode
        therefore continues exactly as it would have without the interruption.
        """
        view, network = observation.view, read_policy(self.file)
        probabilities, _ = network.step(shown_array(view), _remembered(network, observation))
        if len(probabilities) != len(view.actions):
            raise ValueError(
                f"a policy must have the {len(view.actions)} actions of its world, got {len(probabilities)}"
            )
        if view.admissible is not None:
            offered = np.isin(np.arange(len(probabilities)), view.admissible)
            description = f"the probabilities that {self.file} gives the actions which are offered"
            probabilities = to_shares(description, np.where(offered, probabilities, 0.0))
        return probabilities

    def _choose(self, observation: Observation) -> int:
        chances = self.probabilities(observation)
        return observation.draw(chances.tolist()) if self.drawn else int(chances.argmax())


_EPISODES: Final = 4096  # number of episodes whose memory is cached; other memories are recomputed from the views
_RECALLED: Final[OrderedDict[tuple[str, str], tuple[list[View], Memory]]] = OrderedDict()
_LOCK: Final = Lock()


def _remembered(network: PolicyNetwork, observation: Observation) -> Memory:
    """Return the memory after the views before an observation, without processing the same views twice."""
    if not network.form.cells:
        return ()
    views, key = [past.view for past in observation.history], (network.digest, observation.episode_id)
    if len(views) != observation.step:
        raise ValueError(
            f"a policy with memory needs all {observation.step} earlier observations, got {len(views)}: "
            "play it in whole episodes"
        )
    with _LOCK:
        seen, memory = _RECALLED.get(key, ([], network.begin()))
    if len(seen) > len(views) or any(earlier is not other for earlier, other in zip(seen, views, strict=False)):
        seen, memory = [], network.begin()
    for view in views[len(seen) :]:
        _, memory = network.step(shown_array(view), memory)
    with _LOCK:
        _RECALLED[key] = views, memory
        _RECALLED.move_to_end(key)
        while len(_RECALLED) > _EPISODES:
            _RECALLED.popitem(last=False)
    return memory
