"""Policies that other libraries trained, used as agents.

`PolicyAgent` acts by the method ``predict`` of any object, and receives the same observations as in training. It is
used from Python and loads no file.

`PolicyFile` acts by a file of network layers that contains nothing that could run code. `save_policy` writes such a
file from a policy of stable-baselines3 or from PyTorch modules, in the process that has loaded them. The file is in the
safetensors format; its metadata describe the layers and how observations are preprocessed. Files that contain code or
pickles (archives of stable-baselines3, TorchScript) are refused.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from math import isqrt
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope._ground.distributions import to_array, to_shares
from goalscope._ground.extras import lacking
from goalscope._ground.folder import NamedFile
from goalscope._ground.sealed import SealedRecord, Sha256, StrictRecord, seal, unseal
from goalscope._ground.untrusted import UntrustedError, decode_object, shorten
from goalscope.agents.agent import History, Observation, Turn, agent_kind
from goalscope.agents.scripted import Scripted, check_optional
from goalscope.stats.rows import Tag
from goalscope.worlds.environments.world import EnvironmentView
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.world import View


class Predicts(Protocol):
    """Interface that `PolicyAgent` needs of a policy: the method ``predict`` of stable-baselines3."""

    def predict(self, observation: npt.NDArray[Any], deterministic: bool = False) -> tuple[Any, Any]:
        """Return the action for each of B observations ``[B, ...]``, and the recurrent state, which goalscope does not
        use.

        Args:
            observation: the observations, in the shape used in training.
            deterministic: whether to take the most probable action rather than draw one.
        """
        ...


PLANES: Final = ("wall", "agent", "goal", "key", "locked door", "key carried")
"""What each plane of a grid's array marks."""


def planes(view: GridView) -> npt.NDArray[np.float32]:
    """Return a grid as an array ``[6, H, W]`` of planes by rows by columns, as input of a trained policy.

    The planes are `PLANES` (wall, agent, goal, key, locked door, key carried). Entries are 1 in marked cells, and 0
    elsewhere and in cells hidden by fog; the last plane is 1 everywhere while the key is carried.

    Raises:
        ValueError: the grid has things, which no plane shows.
    """
    grid = view.grid
    if grid.things:
        raise ValueError("no plane shows things, so a policy of planes needs grids without them: use other worlds")
    array = np.zeros((len(PLANES), *grid.walls.shape), dtype=np.float32)
    array[0] = grid.walls
    for number, cell in enumerate((grid.start, grid.goal, grid.key, grid.door), 1):
        if cell is not None:
            array[(number, *cell)] = 1.0
    array[5] = view.carrying_key
    return array


def shown_array(view: View) -> npt.NDArray[Any]:
    """Return what a view shows as an array, the input of a trained policy: `planes` of a grid, or an environment's
    array.

    Raises:
        ValueError: the view shows no array.
    """
    if isinstance(view, GridView):
        return planes(view)
    if isinstance(view, EnvironmentView) and view.observed.array is not None:
        return view.observed.array
    raise ValueError(
        f"a policy must be shown an array, but {view.shows} here shows words alone: give PolicyAgent a function "
        "`shows` from the view to an array"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyAgent:
    """Agent that acts by the method ``predict`` of a policy that another library trained.

    A policy that draws its own actions uses random numbers that a resumed run cannot repeat. The agent therefore
    requests the policy's most probable action, or its probabilities, from which the agent draws the action itself.

    Attributes:
        policy: the object with a method ``predict(observations, deterministic)``.
        name: short name for tables.
        identity: what identifies the policy, e.g. the digest of its weights, or the seed and number of steps of its
            training; the id of the agent is the hash of these values.
        probabilities: function from B observations ``[B, ...]`` to the probabilities ``[B, A]`` of the A actions; None
            to take the most probable action.
        shows: function from a view to an array; `shown_array` by default.

    Raises:
        ValueError: the policy has no method ``predict``, or the identity is empty.
    """

    policy: Predicts
    name: str
    identity: Mapping[str, Any]
    probabilities: Callable[[npt.NDArray[Any]], npt.ArrayLike] | None = None
    shows: Callable[[View], npt.NDArray[Any]] = field(default=shown_array)

    journalled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(getattr(self.policy, "predict", None)):
            raise ValueError(f"a policy must have a method predict, got {type(self.policy).__name__}")
        if not self.identity:
            raise ValueError("identity must say what the policy is, e.g. {'weights': digest}, got nothing")

    def describe(self) -> Mapping[str, Any]:
        """Return the policy's identity, as given to the constructor, and whether actions are drawn; the agent's id is
        its hash.
        """
        drawn = self.probabilities is not None
        return {"kind": "policy", "version": 1, "drawn": drawn, "policy": dict(self.identity)}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Choose one action for each observation, and return the actions as turns in the same order.

        The policy is called once per observation, so that answers do not depend on how observations are batched.
        """
        return [Turn(action=self._choose(observation)) for observation in observations]

    def _choose(self, observation: Observation) -> int:
        array, count = self.shows(observation.view)[None], len(observation.view.actions)
        if self.probabilities is None:
            action, state = self.policy.predict(array, deterministic=True)
            if state is not None:
                raise ValueError(
                    "a policy with memory must be written by goalscope.environments.save_policy and act as kind: "
                    "policy: here each observation is answered by itself"
                )
            return int(np.asarray(action).reshape(-1)[0])
        probabilities = to_array("probabilities", self.probabilities(array)).reshape(-1)
        if probabilities.shape != (count,):
            raise ValueError(f"probabilities must have shape [1, {count}], got {probabilities!r:.200}")
        return observation.draw(to_shares("probabilities", probabilities).tolist())


# MiniGrid's missions as arrays of numbers: either one indicator per character, or one number per word.

_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ,"
_LONGEST_MISSION = 96

MOST_WORDS: Final = 64
"""Length to which missions are padded with 0: the number of words in BabyAI's longest instruction."""

_WORDS = (
    "a after and at avoid ball behind blue box door end fetch find from front get go goal green grey hallway in "
    "key lava left matching maze must near next object of on open opening pick purple put reach red right room "
    "rooms square the then to traverse unlock up use yellow you your"
)
WORDS: Final = tuple(_WORDS.split())
"""Word of the missions of MiniGrid and BabyAI -> its number, beginning with 1."""
_NUMBERS: Final = {word: number for number, word in enumerate(WORDS, 1)}


def indicators(mission: str) -> npt.NDArray[np.uint8]:
    """Encode a mission (an instruction of MiniGrid) as characters, one-hot: a flat array ``[96 * 28]`` of 0 and 1.

    For each of 96 positions in the text, 28 entries say which character is there: a letter, a space or a comma.

    Raises:
        ValueError: the mission is longer than 96 characters or has other characters.
    """
    mission = mission.lower()
    if len(mission) > _LONGEST_MISSION or not set(mission) <= set(_CHARACTERS):
        raise ValueError(
            f"a mission that is shown as an array must have at most {_LONGEST_MISSION} letters, spaces and commas, got "
            f"{mission!r:.200}: choose another array"
        )
    rows = np.zeros((_LONGEST_MISSION, len(_CHARACTERS)), dtype=np.uint8)
    rows[np.arange(len(mission)), [_CHARACTERS.index(character) for character in mission]] = 1
    return rows.ravel()


def tokens(mission: str) -> npt.NDArray[np.uint8]:
    """Encode a mission (an instruction of MiniGrid) as word numbers: an array ``[64]``, padded with 0 after the last
    word.

    The numbers are positions in `WORDS`, beginning with 1. Commas are dropped.

    Raises:
        ValueError: the mission has more than 64 words, or words that are not in `WORDS`.
    """
    words = mission.lower().replace(",", " ").split()
    unknown = [word for word in words if word not in _NUMBERS]
    if unknown or len(words) > MOST_WORDS:
        raise ValueError(
            f"a mission that is shown as numbers must have at most {MOST_WORDS} words of MiniGrid's and BabyAI's "
            f"missions, got {len(words)}{', among them ' + ', '.join(unknown) if unknown else ''}: choose another array"
        )
    numbers = np.zeros(MOST_WORDS, dtype=np.uint8)
    numbers[: len(words)] = [_NUMBERS[word] for word in words]
    return numbers


# Networks of trained policies: convolutions, linear layers, memory over an episode, and words of a mission.
#
# Layers with memory are those of PyTorch (``torch.nn.LSTM``, ``GRU`` and their cells). Here x is the input, h and c
# are the memory, s is the logistic function, and each weight matrix ``[F, k H]`` consists of k blocks:
#
#     LSTM  i, f, o = s(x W + b + h V + d), g = tanh(...);       c' = f c + i g,   h' = o tanh(c')
#     GRU   r, z = s(x W + b + h V + d), n = tanh(x W + b + r (h V + d));   h' = (1 - z) n + z h

Array = npt.NDArray[np.float64]
Cell = Literal["lstm", "gru"]
Memory = tuple[tuple[Array, Array], ...]
"""h and c ``[H]`` of each layer with memory; a GRU does not use its c."""

PARTS: Final = ("weight", "bias", "kept_weight", "kept_bias")
"""Names of a layer's arrays in a file, which follow the number of the layer."""
BLOCKS: Final[Mapping[Cell, int]] = {"lstm": 4, "gru": 3}
ACTIVATIONS: Final[Mapping[str, Any]] = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "none": lambda x: x,
}
_Side = Annotated[int, Field(ge=1, le=64)]


class WordsForm(StrictRecord):
    """How a policy reads a mission (an instruction in words), as described in the policy's file.

    A recurrent cell, separate from the other layers, reads the embeddings of the words, one after the other.

    Attributes:
        cell: kind of the recurrent cell.
        joins: number of the layer to whose input the final memory of the cell is appended.
        numbers: how many numbers at the end of an observation stand for words; 0 stands for no word.
        padded: how many words the cell reads, including empty positions; 0 to stop after the last word.
        unknown: numbers of words that did not occur in training.
    """

    cell: Cell
    joins: int = Field(ge=0, le=63)
    numbers: int = Field(ge=1, le=1024)
    padded: int = Field(default=0, ge=0, le=1024)
    unknown: list[int] = Field(default=[], max_length=1024)


class PolicyForm(SealedRecord):
    """The description of a trained policy in its file: which layers it has and how observations are preprocessed.

    Attributes:
        version: version of the file format; other versions are refused.
        arrays: SHA-256 of the names, kinds, shapes and values of the arrays, see `digest_of`.
        activations: activation after each layer: tanh, relu, elu or none; the last layer has none.
        divided: number by which observations are divided; numbers of words are never divided.
        strides: strides of the convolutional layers, in order.
        pools: for each layer, side of the squares over which max pooling follows, 1 for no pooling; empty if no layer
            is pooled.
        cells: kind of each layer with memory, in order.
        words: how the words of a mission are read; None for a policy that reads none.
        transposed: whether pictures ``[H, W, C]`` become ``[C, H, W]`` before the first layer.
        source: where the policy comes from, in words.
    """

    what: ClassVar[str] = "policy"
    advice: ClassVar[str] = "write it anew with save_policy"
    version: Literal[2] = 2
    arrays: Sha256
    activations: list[str] = Field(min_length=1, max_length=64)
    divided: float = Field(default=1.0, ge=sys.float_info.min, allow_inf_nan=False)  # excludes denormals such as 1e-320
    strides: list[_Side] = Field(default=[], max_length=64)
    pools: list[_Side] = Field(default=[], max_length=64)
    cells: list[Cell] = Field(default=[], max_length=64)
    words: WordsForm | None = None
    transposed: bool = False
    source: str = Field(default="", max_length=200)


class Layer(NamedTuple):
    """Weights and biases of one layer of a `PolicyNetwork`: linear, convolutional or recurrent.

    With F inputs and G outputs, weights are ``[F, G]``, and for a convolution ``[G, F, h, w]``, where h and w are the
    size of the kernel; biases are ``[G]``. A recurrent layer with H units and k gates has weights ``[F, k H]`` and
    biases ``[k H]`` for its input, and for its memory ``kept_weights`` ``[H, k H]`` and ``kept_biases`` ``[k H]``.
    """

    weights: Array
    biases: Array
    kept_weights: Array | None = None
    kept_biases: Array | None = None

    @property
    def outputs(self) -> int:
        """Number of output values of the layer; for a convolution, of its output channels."""
        return len(self.biases) if self.kept_weights is None else len(self.kept_weights)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyNetwork:
    """The network of a trained policy, from observations to action probabilities: optional convolutions, then other
    layers.

    Attributes:
        form: the description in its file.
        layers: its layers.
        digest: SHA-256 of its file.
        reader: the recurrent cell that reads missions (instructions in words), or None.
        embeddings: ``[V, E]`` embedding vectors of V words by their numbers, each with E values; or None.
    """

    form: PolicyForm
    layers: tuple[Layer, ...]
    digest: str
    reader: Layer | None = None
    embeddings: Array | None = None

    def begin(self) -> Memory:
        """Return the memory of the recurrent layers at the beginning of an episode: zeros.

        The result is empty if no layer is recurrent.
        """
        recurrent = [layer for layer in self.layers if layer.kept_weights is not None]
        return tuple((np.zeros(layer.outputs), np.zeros(layer.outputs)) for layer in recurrent)

    def probabilities(self, observation: npt.NDArray[Any]) -> Array:
        """Return the probabilities ``[A]`` of the A actions for an observation at the beginning of an episode.

        Raises:
            ValueError: the observation differs in size from those in training, or a value of the network is not finite.
        """
        return self.step(observation, self.begin())[0]

    @np.errstate(over="ignore", invalid="ignore")  # the values of the actions are checked below
    def step(self, observation: npt.NDArray[Any], memory: Memory) -> tuple[Array, Memory]:
        """Return the probabilities ``[A]`` of the A actions for an observation, and the network's memory afterwards.

        Args:
            observation: what the policy is shown, in the shape used in training.
            memory: hidden and cell state of each recurrent layer before this step, from `begin` or the step before.

        Raises:
            ValueError: the observation differs in size from those in training, or a value of the network is not finite.
        """
        array, form = np.asarray(observation, dtype=np.float64), self.form
        read = np.zeros(0)
        if form.words is not None:
            array, read = array.ravel()[: -form.words.numbers], self._read(array.ravel()[-form.words.numbers :])
        if form.transposed:
            array = _picture(array).transpose(2, 0, 1)
        strides, cells, left = iter(form.strides), iter(form.cells), iter(memory)
        values, kept = array / form.divided, list[tuple[Array, Array]]()
        for number, (layer, activation) in enumerate(zip(self.layers, form.activations, strict=True)):
            if layer.weights.ndim == 4:
                values = _convolved(values, layer.weights, next(strides)) + layer.biases[:, None, None]
            else:
                values = values.ravel()
                if form.words is not None and form.words.joins == number:
                    values = np.concatenate([values, read])
                if len(values) != len(layer.weights):
                    raise ValueError(
                        f"a policy must be shown {len(layer.weights)} numbers, as in its training, got {len(values)} "
                        f"of {list(np.shape(observation))}: choose another array for the world"
                    )
                if layer.kept_weights is None:
                    values = values @ layer.weights + layer.biases
                else:
                    kept.append(_remembered(next(cells), layer, values, *next(left)))
                    values = kept[-1][0]
            values = ACTIVATIONS[activation](values)
            if form.pools and form.pools[number] > 1:
                values = _pooled(values, form.pools[number])
        if not np.isfinite(values).all():
            raise ValueError(
                f"a policy must give each action a finite value, got {values!r:.200}: what it is shown, divided by "
                f"{form.divided:g}, or its weights are too large"
            )
        chances = np.exp(values - values.max())
        return np.asarray(chances / chances.sum()), tuple(kept)

    def _read(self, numbers: Array) -> Array:
        """Return ``[H]``, the memory of the recurrent cell after it has read the words of a mission."""
        words, cell, embeddings = self.form.words, self.reader, self.embeddings
        assert words is not None and cell is not None and embeddings is not None  # the file was checked
        ids = numbers.astype(np.int64)
        if (ids != numbers).any() or (ids < 0).any() or (ids >= len(embeddings)).any() or {*ids} & {*words.unknown}:
            raise ValueError(
                f"a policy that reads missions must be shown the {len(embeddings) - 1 - len(words.unknown)} words of "
                "its training by their numbers at the end of its array: choose image-tokens for the world"
            )
        length = words.padded or int(np.max(np.flatnonzero(ids), initial=-1)) + 1
        memory = np.zeros(cell.outputs), np.zeros(cell.outputs)
        for number in ids[:length]:
            memory = _remembered(words.cell, cell, embeddings[number], *memory)
        return memory[0]


def _remembered(cell: Cell, layer: Layer, values: Array, hidden: Array, carried: Array) -> tuple[Array, Array]:
    """Return h' and c' after one step of a layer with memory."""
    assert layer.kept_weights is not None and layer.kept_biases is not None
    new = np.split(values @ layer.weights + layer.biases, BLOCKS[cell])
    old = np.split(hidden @ layer.kept_weights + layer.kept_biases, BLOCKS[cell])
    if cell == "gru":
        reset, update = _logistic(new[0] + old[0]), _logistic(new[1] + old[1])
        return (1 - update) * np.tanh(new[2] + reset * old[2]) + update * hidden, carried
    taken, forgets, candidate, shown = (new_part + other for new_part, other in zip(new, old, strict=True))
    carried = _logistic(forgets) * carried + _logistic(taken) * np.tanh(candidate)
    return _logistic(shown) * np.tanh(carried), carried


def _logistic(values: Array) -> Array:
    return np.asarray((1 + np.tanh(values / 2)) / 2)


def _picture(array: Array) -> Array:
    """Return a picture ``[H, W, C]``; a flat array is taken to be square with three channels."""
    side = isqrt(array.size // 3)
    if array.ndim == 1 and 3 * side * side == array.size:
        return array.reshape(side, side, 3)
    if array.ndim != 3:
        raise ValueError(
            f"a policy of pictures must be shown one, [H, W, C], got {list(array.shape)}: choose another array for the "
            "world"
        )
    return array


def _convolved(values: Array, weights: Array, stride: int) -> Array:
    """Return the cross-correlation ``[G, H, W]`` of values ``[F, h, w]`` with weights, without padding."""
    channels, size = weights.shape[1], weights.shape[2:]
    if values.ndim != 3 or len(values) != channels or any(np.less(values.shape[1:], size)):
        raise ValueError(
            f"a policy with convolutions must be shown a picture of {channels} channels and at least {size[0]} x "
            f"{size[1]} cells, as in its training, got {list(values.shape)}: choose another array for the world"
        )
    windows = np.lib.stride_tricks.sliding_window_view(values, size, axis=(1, 2))[:, ::stride, ::stride]
    return np.asarray(np.einsum("fijhw,gfhw->gij", windows, weights))


def _pooled(values: Array, side: int) -> Array:
    """Return the maximum of each square, ``[F, H / side, W / side]``; incomplete squares at the edges are dropped."""
    channels, height, width = values.shape
    rows, columns = height // side, width // side
    squares = values[:, : rows * side, : columns * side].reshape(channels, rows, side, columns, side)
    return np.asarray(squares.max(axis=(2, 4)))


def digest_of(tensors: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return the SHA-256 of named arrays: their names, data types, shapes and values.

    The order of the arrays does not matter.
    """
    digest = sha256()
    for name, array in sorted(tensors.items()):
        digest.update(f"{name} {array.dtype} {list(array.shape)}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def network_of(tensors: dict[str, Any], form: PolicyForm, digest: str) -> PolicyNetwork:
    """Build the policy network that a file describes.

    Args:
        tensors: name -> array of weights, as in the file; emptied by the call.
        form: description of the layers.
        digest: SHA-256 of the file.

    Raises:
        ValueError: the layers do not fit together; the message says what the file must contain.
    """
    reader = embeddings = None
    if form.words is not None:
        reader, embeddings = _layer(tensors, "words", form.words.cell), _taken(tensors, "words.embedding")
        if embeddings.ndim != 2 or not len(embeddings) or reader is None or len(reader.weights) != embeddings.shape[1]:
            raise ValueError("finite embeddings of words and a cell that reads them, it does not")
    layers, cells, width = list[Layer](), iter(form.cells), 0
    for number, activation in enumerate(form.activations):
        memory = f"{number}.{PARTS[2]}" in tensors
        layer = _layer(tensors, str(number), next(cells, None) if memory else None)
        pool = form.pools[number] if number < len(form.pools) else 1
        if layer is None or activation not in ACTIVATIONS or (pool > 1 and layer.weights.ndim != 4):
            raise ValueError(f"finite layers that fit together, layer {number} does not")
        picture = layers[-1].weights.ndim == 4 if layers else layer.weights.ndim == 4
        joined = reader.outputs if reader is not None and form.words is not None and form.words.joins == number else 0
        inputs = layer.weights.shape[1] if layer.weights.ndim == 4 else len(layer.weights) - joined
        if layer.weights.ndim == 4:
            fits = picture and not joined and width in (0, inputs)
        else:  # a flattened picture has as many numbers a channel as there are places, which its size decides
            fits = inputs > 0 and (not width or (inputs % width == 0 if picture else inputs == width))
        if not fits:
            raise ValueError(f"finite layers that fit together, layer {number} does not")
        layers.append(layer)
        width = layer.outputs
    counts = sum(one.weights.ndim == 4 for one in layers), sum(one.kept_weights is not None for one in layers)
    shape = (len(form.strides), len(form.cells))
    joins = form.words is None or form.words.joins < len(layers)
    if tensors or counts != shape or len(form.pools) not in (0, len(layers)) or not joins:
        raise ValueError(
            f"the layers that it says, got {', '.join(sorted(tensors)) or 'other strides, cells or pools'}"
        )
    return PolicyNetwork(form=form, layers=tuple(layers), digest=digest, reader=reader, embeddings=embeddings)


def _taken(tensors: dict[str, Any], name: str) -> Array:
    """Remove an array from those of a file and return it; a missing array or one that is not finite becomes empty."""
    array = np.asarray(tensors.pop(name, np.zeros(0)), dtype=np.float64)
    return array if np.isfinite(array).all() else np.zeros(0)


def _layer(tensors: dict[str, Any], name: str, cell: Cell | None) -> Layer | None:
    """Remove a layer's arrays from those of a file and return the layer, or None if the arrays do not fit together."""
    weights, biases = (_taken(tensors, f"{name}.{part}") for part in PARTS[:2])
    if cell is None:
        fits = weights.ndim in (2, 4) and biases.shape == (len(weights) if weights.ndim == 4 else weights.shape[1],)
        return Layer(weights, biases) if fits and weights.size else None
    kept_weights, kept_biases = (_taken(tensors, f"{name}.{part}") for part in PARTS[2:])
    if weights.ndim != 2 or kept_weights.ndim != 2 or not weights.size:
        return None
    blocks = (BLOCKS[cell] * len(kept_weights),)
    fits = blocks == biases.shape == kept_biases.shape == weights.shape[1:] == kept_weights.shape[1:]
    return Layer(weights, biases, kept_weights, kept_biases) if fits else None


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
    """Write a trained policy to a file that agents of the kind ``policy`` can read.

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
    embedding: Any, cell: Any, tensors: dict[str, Any], vocabulary: Mapping[str, int] | None, *, joins: int, padded: int
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
    """Read the network of a trained policy from a file that `save_policy` wrote.

    Raises:
        ValueError: `save_policy` did not write the file, for example because it is an archive or a pickle.
        OSError: there is no such file.
        ImportError: safetensors is missing.
    """
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        raise lacking("files of weights need safetensors", "lm", error) from error
    status = NamedFile(path).status()
    return _read(str(path), (status.st_mtime_ns, status.st_size))


@agent_kind("policy")
@dataclass(frozen=True)
class PolicyFile(Scripted):
    """Agent that acts by a trained policy, which it reads from a file; the policy is shown the arrays of its world.

    Args:
        file: a file that `save_policy` wrote.
        drawn: whether to draw actions from the policy's probabilities; otherwise the most probable action is taken.
        checkpoint: number of training steps, which places the policy on a training curve and tags its episodes.
    """

    kind: ClassVar[str] = "policy"
    file: str = field()
    drawn: bool = True
    checkpoint: int | None = field(default=None, metadata={"check": partial(check_optional, least=0, unit="steps")})

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", Path(self.file).stem)
        super().__post_init__()

    def describe(self) -> Mapping[str, Any]:
        """Return the SHA-256 of the policy's file and how actions are chosen; the agent's id is the hash, so no path
        enters it.
        """
        return {
            "kind": self.kind,
            "version": self.version,
            "weights": read_policy(self.file).digest,
            "drawn": self.drawn,
        }

    @property
    def tags(self) -> Mapping[str, Tag]:
        """Named values by which results can be grouped: the number of training steps (``checkpoint``), if it is
        given.
        """
        return {} if self.checkpoint is None else {"checkpoint": self.checkpoint}

    @property
    def history(self) -> History | None:
        """Which earlier steps of the episode the policy needs: "actions" for a network with memory, None for any
        other.
        """
        return "actions" if read_policy(self.file).form.cells else None

    def probabilities(self, observation: Observation) -> Array:
        """Return the policy's probabilities ``[A]`` of the A actions; actions that are not valid now have probability
        0.

        The memory of a recurrent network is recomputed from the views of the episode so far and from nothing else. An
        interrupted episode therefore continues exactly as it would have without the interruption.

        Raises:
            ValueError: the policy has another number of actions than its world.
        """
        view, network = observation.view, read_policy(self.file)
        probabilities, _ = network.step(shown_array(view), _recalled(network, observation))
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


def _recalled(network: PolicyNetwork, observation: Observation) -> Memory:
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
