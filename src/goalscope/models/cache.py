"""Key-value caches of many rows, aligned at their last token, so that rows can enter and leave.

A row that is shorter than the longest one has dead columns on its left, which the attention mask hides. All rows end
at the same column, so the distance between two tokens of a row is the distance between their columns: sliding windows
hold for every row. Dead columns are zeros; no padding token ever passes through the model.

The tensors live in a transformers ``DynamicCache``. It is rebuilt when rows enter; when rows leave, the last rows move
into their places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SPARE = 64  # columns of spare room
_PLAIN = {"DynamicLayer", "DynamicSlidingWindowLayer"}


@dataclass(slots=True, kw_only=True)
class Rows:
    """The cache of some rows.

    Attributes:
        cache: the transformers cache; one entry a row in the first axis of each of its tensors.
        length: number of columns, dead ones included.
        dead: number of dead columns of each row.
    """

    cache: Any
    length: int
    dead: list[int]

    def mask(self, more: int, device: Any) -> Any:
        """Return which columns are alive once ``more`` of them have been added, ``[B, length + more]`` of 0 and 1."""
        import torch

        columns = torch.arange(self.length + more, device=device)
        return (columns[None, :] >= torch.tensor(self.dead, device=device)[:, None]).long()


def check_layers(config: Any) -> None:
    """Refuse models whose layers keep something else than keys and values.

    Raises:
        ValueError: names the kind of layer, and what to do.
    """
    from transformers import DynamicCache

    kinds = set(getattr(config.get_text_config(decoder=True), "layer_types", None) or ())
    odd = {kind for kind in kinds if kind not in ("full_attention", "sliding_attention")}
    odd |= {type(layer).__name__ for layer in DynamicCache(config=config).layers} - _PLAIN
    if odd:
        raise ValueError(
            "lockstep decoding holds the keys and values of full and sliding attention, this model has layers of the "
            f"kind {', '.join(sorted(odd))}: serve it (vLLM, SGLang, Ollama) and use it as an HTTP model"
        )


def windows(config: Any) -> list[int | None]:
    """Return the window of each layer, None for full attention."""
    from transformers import DynamicCache

    layers: list[Any] = DynamicCache(config=config).layers
    return [layer.sliding_window if layer.is_sliding else None for layer in layers]


def assemble(config: Any, layers: Sequence[tuple[Any, Any]], length: int) -> Any:
    """Return a transformers cache of these keys and values.

    Args:
        config: the model's configuration.
        layers: (keys, values) of each layer, ``[B, heads, columns, width]``; columns may be fewer than ``length``
            only where a sliding layer has let go of the oldest.
        length: number of columns that the cache stands for.
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
    """Let a layer write new columns into spare room instead of copying all of them for each token.

    ``layer.room`` holds the tensors that keys and values are the beginning of; it is empty where there are none.
    """
    layer.room = []

    def update(keys: Any, values: Any, *others: Any, **more: Any) -> tuple[Any, Any]:
        room, held = layer.room, layer.keys.shape[-2]
        total = held + keys.shape[-2]
        if layer.is_sliding and total >= layer.sliding_window:
            room.clear()  # from here on columns leave on the left
            both: tuple[Any, Any] = type(layer).update(layer, keys, values, *others, **more)
            return both
        if not room or room[0].shape[-2] < total:
            room[:] = [_widened(layer.keys, total + _SPARE), _widened(layer.values, total + _SPARE)]
        for tensor, new in zip(room, (keys, values), strict=True):
            tensor[:, :, held:total] = new
        layer.keys, layer.values = room[0][:, :, :total], room[1][:, :, :total]
        if layer.is_sliding:
            layer.cumulative_length += keys.shape[-2]
        return layer.keys, layer.values

    layer.update = update


def _widened(tensor: Any, columns: int) -> Any:
    """Return a tensor of more columns that begins with those of another one."""
    wide = tensor.new_empty((*tensor.shape[:2], columns, tensor.shape[-1]))
    wide[:, :, : tensor.shape[-2]] = tensor
    return wide


def drop(rows: Rows, over: Sequence[bool]) -> list[int]:
    """Take rows out of a cache in place: only the rows that fill the gaps are copied.

    Args:
        rows: the cache; it is changed.
        over: ``[B]`` which rows leave; at least one stays.

    Returns:
        Which row now stands in each place, ``[number of rows that stay]``.
    """
    import torch

    count = len(over) - sum(over)
    order = list(range(count))
    gaps = [place for place in range(count) if over[place]]
    fillers = [row for row in range(count, len(over)) if not over[row]]
    for place, row in zip(gaps, fillers, strict=True):
        order[place] = row
    dead = [rows.dead[row] for row in order]
    trim = min(dead)
    length = rows.length - trim
    for layer in rows.cache.layers:
        held = layer.room or [layer.keys, layer.values]
        # A sliding layer may hold fewer columns than there are; the newest are the last ones in either case.
        columns = min(layer.keys.shape[-2], length)
        first = layer.keys.shape[-2] - columns
        if gaps:
            to, source = (torch.tensor(places, device=layer.keys.device) for places in (gaps, fillers))
            for tensor in held:
                tensor[to] = tensor[source]
        left = [tensor[:count, :, first:] for tensor in held]
        layer.keys, layer.values = (tensor[:, :, :columns] for tensor in left)
        if layer.room:
            layer.room = left
        if layer.is_sliding:
            layer.cumulative_length = length
    rows.dead, rows.length = [gone - trim for gone in dead], length
    return order


def select(config: Any, rows: Rows, keep: Sequence[int]) -> Rows:
    """Return the cache of some of the rows, without the columns that are dead in all of them."""
    import torch

    dead = [rows.dead[index] for index in keep]
    trim = min(dead)
    length = rows.length - trim
    layers = []
    for layer in rows.cache.layers:
        index = torch.tensor(list(keep), device=layer.keys.device)
        # A sliding layer may hold fewer columns than there are; the newest are the last ones in either case.
        columns = min(layer.keys.shape[-2], length)
        layers.append(
            (
                layer.keys[:, :, -columns:].index_select(0, index),
                layer.values[:, :, -columns:].index_select(0, index),
            )
        )
    return Rows(cache=assemble(config, layers, length), length=length, dead=[count - trim for count in dead])


def join(config: Any, parts: Sequence[Rows]) -> Rows:
    """Return one cache with the rows of all parts in their order."""
    import torch
    from torch.nn.functional import pad

    if len(parts) == 1:
        return parts[0]
    length = max(part.length for part in parts)
    layers = []
    for number, window in enumerate(windows(config)):
        columns = length if window is None else min(length, window - 1)
        held = [part.cache.layers[number] for part in parts]
        keys = torch.cat([pad(layer.keys, (0, 0, columns - layer.keys.shape[-2], 0)) for layer in held])
        values = torch.cat([pad(layer.values, (0, 0, columns - layer.values.shape[-2], 0)) for layer in held])
        layers.append((keys, values))
    dead = [count + length - part.length for part in parts for count in part.dead]
    return Rows(cache=assemble(config, layers, length), length=length, dead=dead)


def shifted(config: Any, prefix: Any, shifts: Sequence[int]) -> Rows:
    """Return a shared prefix as the cache of several rows, each moved to the right by its own shift.

    The first ``shift`` columns of a row are dead and the last ``shift`` tokens of the prefix fall out of it; they
    are computed again with the row's own tokens. That way rows of different lengths end at one column.

    Args:
        config: the model's configuration.
        prefix: cache of the prefix with all of its columns in every layer, one row.
        shifts: of each row, 0 .. length of the prefix.
    """
    import torch

    length = int(prefix.layers[0].keys.shape[-2])
    layers = []
    for layer in prefix.layers:
        pair = []
        for held in (layer.keys, layer.values):
            moved = torch.zeros((len(shifts), *held.shape[1:]), dtype=held.dtype, device=held.device)
            for row, shift in enumerate(shifts):
                moved[row, :, shift:] = held[0, :, : length - shift]
            pair.append(moved)
        layers.append((pair[0], pair[1]))
    return Rows(cache=assemble(config, layers, length), length=length, dead=list(shifts))
