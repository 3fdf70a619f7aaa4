"""Key-value caches of many rows, aligned at their last token, so that rows can be added and removed.

A row that is shorter than the longest row has dead columns on its left, which the attention mask hides. All rows end at
the same column, so the distance between two tokens of a row equals the distance between their columns, and sliding
windows are correct for every row. No padding token ever passes through the model.

The tensors are stored in a transformers ``DynamicCache``. Rows that decode together lie in larger tensors: new rows and
columns are written behind those that are there, and when rows leave, the last rows move into their places.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

_SPARE = 128  # number of columns allocated in advance
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


def token_octets(config: Any, octets: int) -> int | None:
    """Return the size of one token's keys and values in all layers, in bytes; None without a configuration.

    Args:
        config: the configuration of the text model.
        octets: bytes per number.
    """
    layers, heads = getattr(config, "num_hidden_layers", None), getattr(config, "num_attention_heads", None)
    width = getattr(config, "hidden_size", None)
    if not layers or not heads or not width:
        return None
    key_value_heads = getattr(config, "num_key_value_heads", None) or heads
    head_width = getattr(config, "head_dim", None) or width // heads
    return int(2 * layers * key_value_heads * head_width * octets)


def columns_of(cached: Any, count: int) -> tuple[Any, list[tuple[Any, ...]]]:
    """Return keys and values of the last columns of a cache, ``[B, count, numbers]``, and the shape of each tensor."""
    import torch

    tensors = [tensor for layer in cached.layers for tensor in (layer.keys, layer.values)]
    shapes = [(tensor.shape[1], tensor.shape[3], tensor.device) for tensor in tensors]
    parts = [tensor[:, :, -count:].transpose(1, 2).flatten(2).to(tensors[0].device) for tensor in tensors]
    return torch.cat(parts, dim=-1), shapes


def gathered(shapes: Sequence[tuple[Any, ...]], rows: Sequence[Sequence[Any]], length: int) -> CacheRows:
    """Return the cache of rows whose columns are given in pieces ``[columns, numbers]``, all ending at one column."""
    example = next(piece for pieces in rows for piece in pieces)
    columns = example.new_zeros(len(rows), length, example.shape[-1])
    dead = []
    for row, pieces in enumerate(rows):
        begin = length - sum(map(len, pieces))
        dead.append(begin)
        for piece in pieces:
            columns[row, begin : begin + len(piece)] = piece
            begin += len(piece)
    widths = [heads * width for heads, width, _ in shapes]
    tensors = [
        part.unflatten(-1, (heads, width)).transpose(1, 2).to(device)
        for part, (heads, width, device) in zip(columns.split(widths, dim=-1), shapes, strict=True)
    ]
    return CacheRows(cache=_assembled(zip(tensors[::2], tensors[1::2], strict=True)), length=length, dead=dead)


def selected(rows: CacheRows, order: Sequence[int]) -> CacheRows:
    """Return rows of a cache that was read and does not decode yet; each may be taken several times."""
    layers = ((layer.keys[list(order)], layer.values[list(order)]) for layer in rows.cache.layers)
    return CacheRows(cache=_assembled(layers), length=rows.length, dead=[rows.dead[row] for row in order])


def _assembled(layers: Iterable[tuple[Any, Any]]) -> Any:
    """Return a cache of layers, given by their keys and values, that drop no columns."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    cached, kind = DynamicCache(), cast("Any", DynamicLayer)
    for keys, values in layers:
        layer = kind()
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cached.layers.append(layer)
    return cached


def enter(config: Any, rows: CacheRows | None, read: CacheRows, order: Sequence[int]) -> CacheRows:
    """Add rows of a cache that was read to the rows that decode together, and return these.

    Args:
        config: the model's configuration.
        rows: the rows that decode, which are extended in place; None if there are none.
        read: the cache of prompts that were read.
        order: which of its rows enter; one may enter several times.
    """
    from transformers import DynamicCache

    if rows is None:
        rows = CacheRows(cache=DynamicCache(config=config), length=read.length, dead=[])
        for layer, source in zip(rows.cache.layers, read.cache.layers, strict=True):
            _decode_in_place(layer, source)
    length, count = max(rows.length, read.length), len(rows.dead)
    for layer, source in zip(rows.cache.layers, read.cache.layers, strict=True):
        columns = min(length, layer.sliding_window - 1) if layer.is_sliding else length
        _make_room(layer, count + len(order), columns, columns)
        end = layer.begin + columns
        for room, tensor in zip(layer.room, (source.keys, source.values), strict=True):
            entering = tensor if [*order] == [*range(len(tensor))] else tensor[list(order)]
            width = min(columns, tensor.shape[2])
            room[count : count + len(order), :, end - width : end] = entering[:, :, tensor.shape[2] - width :]
            # Memory that was never written may hold anything, and masks hide finite numbers only.
            room[count : count + len(order), :, : end - width] = 0
        _show(layer, count + len(order), columns)
        if layer.is_sliding:
            layer.cumulative_length = length
    rows.dead = [n_dead + length - rows.length for n_dead in rows.dead]
    rows.dead += [read.dead[row] + length - read.length for row in order]
    rows.length = length
    return rows


def rearrange(rows: CacheRows, order: Sequence[int]) -> None:
    """Move row ``order[i]`` to row i, for rows that decode together; only rows that move are copied.

    Columns that are dead in all rows are left out from then on.
    """
    import torch

    dead = [rows.dead[row] for row in order]
    length = rows.length - min(dead)
    moves = [(target, row) for target, row in enumerate(order) if target != row]
    places = torch.tensor(list(zip(*moves, strict=True)))
    for layer in rows.cache.layers:
        if moves:
            targets, sources = places.to(layer.keys.device)
            for tensor in (layer.keys, layer.values):
                tensor[targets] = tensor[sources]
        # A sliding layer may store fewer columns than there are; in either case the newest columns come last.
        columns = min(layer.keys.shape[-2], length)
        layer.begin += layer.keys.shape[-2] - columns
        _show(layer, len(order), columns)
        if layer.is_sliding:
            layer.cumulative_length = length
    rows.dead, rows.length = [n_dead - min(dead) for n_dead in dead], length


def _decode_in_place(layer: Any, like: Any) -> None:
    """Let a layer write new columns into memory allocated in advance, instead of copying all columns for each token.

    ``layer.room`` contains larger tensors, and ``layer.begin`` is the first of their columns that is used. The layer
    gets a class of its own for this. A function attached to the layer would refer back to it, and this cycle would keep
    gigabytes of tensors of each batch until the next garbage collection.
    """
    layer.lazy_initialization(like.keys, like.values)
    layer.room = [tensor[:0, :, :0] for tensor in (like.keys, like.values)]
    layer.begin, layer.__class__ = 0, _in_place(cast("Any", type(layer)))
    _show(layer, 0, 0)


def _show(layer: Any, count: int, columns: int) -> None:
    """Make the layer consist of its first rows and of some columns from ``layer.begin`` on."""
    layer.keys, layer.values = (tensor[:count, :, layer.begin : layer.begin + columns] for tensor in layer.room)


def _make_room(layer: Any, count: int, columns: int, total: int) -> None:
    """Make room for rows and columns: the present columns become the last of ``columns``, of which there are ``total``
    later.
    """
    present_rows, present = layer.keys.shape[0], layer.keys.shape[2]
    begin = layer.begin + present - columns
    if begin >= 0 and count <= len(layer.room[0]) and begin + total <= layer.room[0].shape[2]:
        layer.begin = begin
        return
    n_rows = len(layer.room[0]) if count <= len(layer.room[0]) else max(count, present_rows * 3 // 2)
    for number, old in enumerate((layer.keys, layer.values)):
        room = old.new_empty((n_rows, old.shape[1], total + _SPARE, old.shape[3]))
        room[:present_rows, :, columns - present : columns] = old
        room[:present_rows, :, : columns - present] = 0
        layer.room[number] = room
    layer.begin = 0


@cache
def _in_place(kind: Any) -> Any:
    """Return a subclass of a kind of layer whose ``update`` writes into memory allocated in advance."""

    def update(layer: Any, keys: Any, values: Any, *others: Any, **options: Any) -> tuple[Any, Any]:
        count, present = layer.keys.shape[0], layer.keys.shape[-2]
        total = present + keys.shape[-2]
        _make_room(layer, count, present, total)
        for tensor, new in zip(layer.room, (keys, values), strict=True):
            tensor[:count, :, layer.begin + present : layer.begin + total] = new
        _show(layer, count, total)
        full = layer.keys, layer.values
        if layer.is_sliding:
            layer.cumulative_length += keys.shape[-2]
            columns = min(total, layer.sliding_window - 1)
            layer.begin += total - columns
            _show(layer, count, columns)
        return full

    # Without this, transformers would register the subclass for its layer type and use it in every cache.
    return type(kind.__name__, (kind,), {"update": update, "_layer_type": None})
