"""Networks of trained policies: convolutions, linear layers, memory over an episode, and words of a mission.

Layers with memory are those of PyTorch (``torch.nn.LSTM``, ``GRU`` and their cells). Here x is the input, h and c are
the memory, s is the logistic function, and each weight matrix ``[F, k H]`` consists of k blocks:

    LSTM  i, f, o = s(x W + b + h V + d), g = tanh(...);       c' = f c + i g,   h' = o tanh(c')
    GRU   r, z = s(x W + b + h V + d), n = tanh(x W + b + r (h V + d));   h' = (1 - z) n + z h
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import isqrt
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from goalscope._ground.sealed import SealedRecord, Sha256, StrictRecord

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
    """How a policy reads a mission: a recurrent cell of its own reads the embeddings of the words, one after the other.

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
    """The description of a policy in its file.

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
    """One layer; a layer with memory also has weights ``[H, k H]`` and biases ``[k H]`` for the memory.

    Weights are ``[F, G]``, for a convolution ``[G, F, h, w]``, for a layer with memory ``[F, k H]``; biases are ``[G]``
    or ``[k H]``.
    """

    weights: Array
    biases: Array
    kept_weights: Array | None = None
    kept_biases: Array | None = None

    @property
    def outputs(self) -> int:
        """The number of output values, or of output channels for a convolution."""
        return len(self.biases) if self.kept_weights is None else len(self.kept_weights)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyNetwork:
    """A network from observations to action probabilities: optional convolutions, then other layers.

    Attributes:
        form: the description in its file.
        layers: its layers.
        reader: the recurrent cell that reads missions, or None.
        embeddings: ``[V, E]`` embeddings of words by their numbers, or None.
        digest: SHA-256 of its file.
    """

    form: PolicyForm
    layers: tuple[Layer, ...]
    digest: str
    reader: Layer | None = None
    embeddings: Array | None = None

    def begin(self) -> Memory:
        """Return the memory at the beginning of an episode: zeros."""
        recurrent = [layer for layer in self.layers if layer.kept_weights is not None]
        return tuple((np.zeros(layer.outputs), np.zeros(layer.outputs)) for layer in recurrent)

    def probabilities(self, observation: npt.NDArray[Any]) -> Array:
        """Return the action probabilities ``[A]``; with memory, those at the beginning of an episode.

        Raises:
            ValueError: the observation differs in size from those in training.
        """
        return self.step(observation, self.begin())[0]

    @np.errstate(over="ignore", invalid="ignore")  # the values of the actions are checked below
    def step(self, observation: npt.NDArray[Any], memory: Memory) -> tuple[Array, Memory]:
        """Return the action probabilities ``[A]`` and the memory afterwards.

        Raises:
            ValueError: the observation differs in size from those in training.
        """
        array, form = np.asarray(observation, dtype=np.float64), self.form
        read = np.zeros(0)
        if form.words is not None:
            array, read = array.ravel()[: -form.words.numbers], self._read(array.ravel()[-form.words.numbers :])
        if form.transposed:
            array = _picture(array).transpose(2, 0, 1)
        values, strides, cells, kept, left = (
            array / form.divided,
            iter(form.strides),
            iter(form.cells),
            [],
            iter(memory),
        )
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
    """Return the SHA-256 of some arrays with their names, kinds and shapes; the order of the arrays does not matter."""
    digest = sha256()
    for name, array in sorted(tensors.items()):
        digest.update(f"{name} {array.dtype} {list(array.shape)}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def network_of(tensors: dict[str, Any], form: PolicyForm, digest: str) -> PolicyNetwork:
    """Return the network of a file; if its layers do not fit together, a ValueError says what the file must contain."""
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
