"""Key-value caches of many rows, aligned at their last token, so that rows can be added and removed.

A row that is shorter than the longest row has dead columns on its left, which the attention mask hides. All rows end at
the same column, so the distance between two tokens of a row equals the distance between their columns, and sliding
windows are correct for every row. Dead columns are zeros; no padding token ever passes through the model.

The tensors are stored in a transformers ``DynamicCache``. It is rebuilt when rows are added; when rows are removed, the
last rows move into their places.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

_SPARE = 64  # number of columns allocated in advance
_PLAIN = {"DynamicLayer", "DynamicSlidingWindowLayer"}


@dataclass(slots=True, kw_only=True)
class CacheRows:
    """The cache of some rows.

    Attributes:
        cache: the transformers cache; the first axis of each of its tensors has one entry per row.
        length: number of columns, including dead columns.
        dead: number of dead columns of each row.
    """

    cache: Any
    length: int
    dead: list[int]

    def mask(self, more: int, device: Any) -> Any:
        """Return which columns are alive after ``more`` columns have been added, ``[B, length + more]`` of 0 and 1."""
        import torch

        columns = torch.arange(self.length + more, device=device)
        return (columns[None, :] >= torch.tensor(self.dead, device=device)[:, None]).long()


def check_layers(config: Any) -> None:
    """Raise a ValueError for models with layers that store anything but keys and values."""
    from transformers import DynamicCache

    layer_types = set(getattr(config.get_text_config(decoder=True), "layer_types", None) or ())
    unsupported = {
        layer_type for layer_type in layer_types if layer_type not in ("full_attention", "sliding_attention")
    }
    unsupported |= {type(layer).__name__ for layer in DynamicCache(config=config).layers} - _PLAIN
    if unsupported:
        raise ValueError(
            "lockstep decoding supports only layers with full or sliding attention, but this model has layers of the "
            f"kind {', '.join(sorted(unsupported))}: serve it (vLLM, SGLang, Ollama) and use it as an HTTP model"
        )


def assemble(config: Any, layers: Sequence[tuple[Any, Any]], length: int) -> Any:
    """Return a transformers cache with the (keys, values) of each layer, ``[B, heads, columns, width]``.

    The cache represents ``length`` columns; only sliding layers may have fewer, after dropping the oldest.
    """
    from transformers import DynamicCache

    cache: Any = DynamicCache(config=config)
    for layer, (keys, values) in zip(cache.layers, layers, strict=True):
        layer.lazy_initialization(keys, values)
        columns = keys.shape[-2] if not layer.is_sliding else min(keys.shape[-2], layer.sliding_window - 1)
        layer.keys, layer.values = keys[:, :, -columns:], values[:, :, -columns:]
        if layer.is_sliding:
            layer.cumulative_length = length
        _append_in_place(layer)
    return cache


def _append_in_place(layer: Any) -> None:
    """Let a layer write new columns into memory allocated in advance, instead of copying all columns for each token.

    ``layer.room`` contains the larger tensors whose beginnings are the keys and values; it is empty if there are none.
    The layer gets a class of its own for this. A function attached to the layer would refer back to it, and this cycle
    would keep gigabytes of tensors of each batch until the next garbage collection.
    """
    kind: Any = type(layer)
    layer.room, layer.__class__ = [], _with_room(kind)


@cache
def _with_room(kind: Any) -> Any:
    """Return a subclass of a kind of layer whose ``update`` writes into memory allocated in advance."""

    def update(layer: Any, keys: Any, values: Any, *others: Any, **options: Any) -> tuple[Any, Any]:
        room, n_columns = layer.room, layer.keys.shape[-2]
        total = n_columns + keys.shape[-2]
        if layer.is_sliding and total >= layer.sliding_window:
            room.clear()  # from here on, the layer drops columns on the left
            updated: tuple[Any, Any] = kind.update(layer, keys, values, *others, **options)
            return updated
        if not room or room[0].shape[-2] < total:
            room[:] = [_widened(layer.keys, total + _SPARE), _widened(layer.values, total + _SPARE)]
        for tensor, new in zip(room, (keys, values), strict=True):
            tensor[:, :, n_columns:total] = new
        layer.keys, layer.values = room[0][:, :, :total], room[1][:, :, :total]
        if layer.is_sliding:
            layer.cumulative_length += keys.shape[-2]
        return layer.keys, layer.values

    # Without this, transformers would register the subclass for its layer type and use it in every cache.
    return type(kind.__name__, (kind,), {"update": update, "_layer_type": None})


def _widened(tensor: Any, columns: int) -> Any:
    wide = tensor.new_empty((*tensor.shape[:2], columns, tensor.shape[-1]))
    wide[:, :, : tensor.shape[-2]] = tensor
    return wide


def rearrange(rows: CacheRows, order: Sequence[int]) -> None:
    """Move row ``order[i]`` to row i; only rows that move are copied, unless rows are duplicated.

    Columns that are dead in all rows are removed.
    """
    import torch

    dead = [rows.dead[row] for row in order]
    length = rows.length - min(dead)
    moves = [(target, row) for target, row in enumerate(order) if target != row]
    for layer in rows.cache.layers:
        room = getattr(layer, "room", [])
        tensors = room or [layer.keys, layer.values]
        # A sliding layer may store fewer columns than there are; in either case the newest columns come last.
        columns = min(layer.keys.shape[-2], length)
        first = layer.keys.shape[-2] - columns
        if len(order) > len(rows.dead):
            tensors = [tensor[list(order)] for tensor in tensors]
        elif moves:
            targets, source = (torch.tensor(indices, device=layer.keys.device) for indices in zip(*moves, strict=True))
            for tensor in tensors:
                tensor[targets] = tensor[source]
        tensors = [tensor[: len(order), :, first:] for tensor in tensors]
        layer.keys, layer.values = (tensor[:, :, :columns] for tensor in tensors)
        if room:
            layer.room = tensors
        if layer.is_sliding:
            layer.cumulative_length = length
    rows.dead, rows.length = [n_dead - min(dead) for n_dead in dead], length


def join(config: Any, parts: Iterable[CacheRows], count: int, length: int) -> CacheRows | None:
    """Return one cache with the rows of all parts in order, or None if there are no rows.

    Each part is emptied layer by layer before the next part is requested, so that little memory is used twice.

    Args:
        config: the model's configuration.
        parts: caches whose rows are joined; they may have fewer than ``count`` rows if some have ended.
        count: maximum number of rows of all parts.
        length: number of columns of the longest part.
    """
    from transformers import DynamicCache

    layer_kinds: list[Any] = DynamicCache(config=config).layers
    columns = [min(length, kind.sliding_window - 1) if kind.is_sliding else length for kind in layer_kinds]
    rooms: list[list[Any]] = [[] for _ in layer_kinds]
    dead: list[int] = []
    for part in parts:
        if len(part.dead) == count:
            return part
        begin, end = len(dead), len(dead) + len(part.dead)
        for layer, room, width in zip(part.cache.layers, rooms, columns, strict=True):
            tensors = (layer.keys, layer.values)
            if not room:
                shapes = ((count, tensor.shape[1], width + _SPARE, tensor.shape[3]) for tensor in tensors)
                room += [tensor.new_zeros(shape) for tensor, shape in zip(tensors, shapes, strict=True)]
            for whole, tensor in zip(room, tensors, strict=True):
                whole[begin:end, :, width - tensor.shape[2] : width] = tensor
            layer.keys, layer.values, layer.room = None, None, []
        dead += [n_dead + length - part.length for n_dead in part.dead]
    if not dead:
        return None
    rooms = [[tensor[: len(dead)] for tensor in room] for room in rooms]
    layers = [(keys[:, :, :width], values[:, :, :width]) for (keys, values), width in zip(rooms, columns, strict=True)]
    cache = assemble(config, layers, length)
    for layer, room in zip(cache.layers, rooms, strict=True):
        layer.room = room
    return CacheRows(cache=cache, length=length, dead=dead)


def shifted(config: Any, prefix: Any, shifts: Sequence[int]) -> CacheRows:
    """Return a shared prefix as the cache of several rows, each shifted to the right by its own number of columns.

    The first ``shift`` columns of a row are dead, and the last ``shift`` tokens of the prefix are dropped; they are
    computed again with the row's own tokens. Rows of different lengths thus end at the same column. The prefix must
    have one row and all of its columns in every layer.
    """
    length = int(prefix.layers[0].keys.shape[-2])

    def moved(tensor: Any) -> Any:
        widened = tensor.new_zeros((len(shifts), *tensor.shape[1:]))
        for row, shift in enumerate(shifts):
            widened[row, :, shift:] = tensor[0, :, : length - shift]
        return widened

    layers = [(moved(layer.keys), moved(layer.values)) for layer in prefix.layers]
    return CacheRows(cache=assemble(config, layers, length), length=length, dead=list(shifts))
