"""Trained policies as agents: layers of `goalscope.agents.policies.networks` in a file, nothing that could run code.

`save_policy` writes one from a policy of stable-baselines3 or from modules of PyTorch, in the process that has it. The
file is safetensors; its metadata say the layers, and what was done to observations. Files that hold code or pickles
(the archives of stable-baselines3, TorchScript) are refused.
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
    """Write a policy as a file that the agent ``policy`` reads.

    Args:
        policy: a model of stable-baselines3 with ``MlpPolicy``, or with ``CnnPolicy`` and an extractor whose parts are
            ``cnn`` and ``linear`` (PPO, A2C: its actor; DQN: its values, of which the greatest is taken, so say
            ``drawn: false``), one of sb3-contrib's RecurrentPPO, or the modules from observations to logits, in order:
            convolutions without padding, linear layers, activations, ``MaxPool2d``, ``LSTM``, ``GRU`` and their cells.
            A pair of an ``Embedding`` and such a cell reads the mission; what it keeps follows the values before it.
        path: file to be written.
        divided: what observations are divided by; by default 255 where stable-baselines3 did so, else 1.
        transposed: whether pictures ``[H, W, C]`` become ``[C, H, W]``; by default where stable-baselines3 did so.
        vocabulary: word -> number in its training; by default that of `goalscope.environments.WORDS`.
        padded: number of words to which missions were filled up in its training, 0 for none.

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
    """Yield the named arrays of weights ``[F, G]`` and biases, zeros where there are none."""
    for weights, biases, *parts in zip(layer[::2], layer[1::2], PARTS[::2], PARTS[1::2], strict=False):
        outputs = len(weights) if weights.ndim == 4 else weights.shape[1]
        for part, values in zip(parts, (weights, np.zeros(outputs) if biases is None else biases), strict=True):
            array = values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()
            yield f"{name}.{part}", np.ascontiguousarray(array, dtype=np.float32)


def _memories(module: Any) -> Iterator[list[Any]]:
    """Yield weights and biases of each layer of an LSTM or GRU, or of a cell: of what comes in, and of what is kept."""
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
    """Add what reads missions to the tensors, its embeddings by our numbers of words."""
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
    """Return the kind of memory of a module in one direction and without a projection; None for any other."""
    name = type(module).__name__.lower().removesuffix("cell")
    plain = not getattr(module, "bidirectional", False) and not getattr(module, "proj_size", 0)
    return next((cell for cell in BLOCKS if cell == name), None) if plain else None


def _plain_pool(module: Any) -> int:
    """Return the side of the squares of a MaxPool2d, 0 for one of another kind."""
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
    """Return the policy of a file.

    Raises:
        ValueError: a file that is none of `save_policy`, archives and pickles among them.
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
    """Acts by a policy that was trained elsewhere, from the arrays that its world shows.

    Args:
        file: a file of `save_policy`.
        drawn: whether actions are drawn from its probabilities; else the most probable one is taken.
        checkpoint: steps of its training: its place on a curve over training, and a tag of its episodes.
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
        """Return the digest of its file, wherever it lies, and how actions are chosen."""
        return {
            "kind": self.kind,
            "version": self.version,
            "weights": read_policy(self.file).digest,
            "drawn": self.drawn,
        }

    @property
    def tags(self) -> Mapping[str, Tag]:
        """Its place on a curve over training, where it has one."""
        return {} if self.checkpoint is None else {"checkpoint": self.checkpoint}

    @property
    def history(self) -> History | None:
        """The earlier steps of the episode, where the policy has a memory of them."""
        return "actions" if read_policy(self.file).form.cells else None

    def probabilities(self, observation: Observation) -> Array:
        """Return ``[A]`` the probabilities of the actions that are offered.

        A memory is that of the views of the episode so far, as they are handed over, and of nothing else: an
        interrupted episode goes on as it would have.
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


_EPISODES: Final = 4096  # whose memory is kept; that of another one is found again from its views
_RECALLED: Final[OrderedDict[tuple[str, str], tuple[list[View], Memory]]] = OrderedDict()
_LOCK: Final = Lock()


def _remembered(network: PolicyNetwork, observation: Observation) -> Memory:
    """Return the memory of the views before an observation; those that were seen before are not gone through again."""
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
