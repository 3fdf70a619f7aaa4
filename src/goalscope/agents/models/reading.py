"""Read prompts: rows of the key-value cache, the tree of stored beginnings, and the passes that fill both."""

import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import count
from operator import itemgetter
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from goalscope._ground.progress import TALLY
from goalscope.agents.models._fast import direct, has_hooks

# Key-value caches of many rows, aligned at their last token, so that rows can be added and removed.
#
# A row that is shorter than the longest row has dead columns on its left, which the attention mask hides. All rows
# end at the same column, so the distance between two tokens of a row equals the distance between their columns, and
# sliding windows are correct for every row. No padding token ever passes through the model.
#
# The tensors are stored in a transformers ``DynamicCache``. Rows that decode together lie in larger tensors: new
# rows and columns are written behind those that are there, and when rows leave, the last rows move into their
# places.

_SPARE = 128  # number of columns allocated in advance
_PLAIN = {"DynamicLayer", "DynamicSlidingWindowLayer"}


@dataclass(slots=True, kw_only=True)
class CacheRows:
    """Cached keys and values of several sequences that a model reads or decodes together, one row per sequence.

    All rows end at the same column, so a shorter row has unused (dead) columns on its left.

    Attributes:
        cache: the transformers cache; the first axis of each of its tensors has one entry per row.
        length: number of columns, including dead columns.
        dead: number of dead columns of each row, which hold nothing because its first token comes later.
    """

    cache: Any
    length: int
    dead: list[int]

    def mask(self, more: int, device: Any) -> Any:
        """Return the attention mask ``[B, length + more]`` (rows by columns) after ``more`` columns have been added.

        Entries are 1 for columns that belong to the row's text, and 0 for unused columns.
        """
        import torch

        columns = torch.arange(self.length + more, device=device)
        return (columns[None, :] >= torch.tensor(self.dead, device=device)[:, None]).long()


def check_layers(config: Any) -> None:
    """Check that all layers of a model cache only keys and values, as decoding in batches requires.

    Raises:
        ValueError: a layer caches something else (state-space or linear-attention layers).
    """
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
    """Return how many bytes the cached keys and values of one token take, over all layers.

    The result is None if the sizes are unknown.

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
    """Copy the keys and values of the last ``count`` tokens of each sequence out of a cache.

    Returns:
        The copy ``[B, count, numbers]`` (sequences, tokens, keys and values of all layers), and for each tensor of the
        cache its number of heads, width and device, from which `gathered` restores it.
    """
    import torch

    tensors = [tensor for layer in cached.layers for tensor in (layer.keys, layer.values)]
    shapes = [(tensor.shape[1], tensor.shape[3], tensor.device) for tensor in tensors]
    parts = [tensor[:, :, -count:].transpose(1, 2).flatten(2).to(tensors[0].device) for tensor in tensors]
    return torch.cat(parts, dim=-1), shapes


def gathered(shapes: Sequence[tuple[Any, ...]], rows: Sequence[Sequence[Any]], length: int) -> CacheRows:
    """Build the cache of keys and values of several sequences from stored pieces, for decoding the sequences together.

    All sequences end at the same column (token position of the cache); shorter ones have unused columns on the left.

    Args:
        shapes: number of heads, width and device of each tensor, from `columns_of`.
        rows: for each sequence the pieces ``[columns, numbers]`` of its keys and values, in order.
        length: number of columns of the result.
    """
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
    """Copy some rows (sequences) of a cache that has read its prompts but not decoded yet.

    Args:
        rows: the cache.
        order: the row of the cache for each row of the result; the same row may occur several times.
    """
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
    """Add sequences whose prompts have been read to the cache of the sequences that are decoded together.

    Args:
        config: the model's configuration.
        rows: the sequences that are decoded, whose cache is extended in place; None if there are none.
        read: the cache of prompts that were read.
        order: which of its rows enter; one may enter several times.

    Returns:
        The cache of all sequences that are decoded now.
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
    """Move row ``order[i]`` of a cache to row i, in place, and drop all rows that ``order`` does not name.

    It removes finished sequences from a batch. Only rows that move are copied, and columns that no remaining row uses
    are dropped.
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


# A tree of the beginnings of prompts with their keys and values, so that a beginning is computed once.
#
# Each node holds the tokens between two branches and one row of numbers per token: keys and values of all layers.
# Nodes that no prompt has needed for longest are removed first when the tree exceeds its memory.

Tokens = npt.NDArray[np.int64]

_SHARE: Final = 32  # a tree may occupy one part in so many of the memory of the device
_MOST: Final = 1 << 30  # maximum bytes of a tree in the memory of the processor


def device_memory(device: Any) -> int:
    """Return the total memory of a device in bytes: a GPU's own memory, or else that of the machine.

    It does not depend on how much is in use, so that runs can be repeated.
    """
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_limit(device: Any) -> int:
    """Return the maximum number of bytes that a cache of prompt beginnings may use on a device."""
    share = device_memory(device) // _SHARE
    return share if device.type == "cuda" else min(_MOST, share)


class _Node:
    """Some tokens after those of the parent, and their columns ``[tokens, numbers]``."""

    __slots__ = ("children", "columns", "parent", "tokens", "used")

    def __init__(self, tokens: Tokens, columns: Any, parent: "_Node | None") -> None:
        self.tokens, self.columns, self.parent = tokens, columns, parent
        self.children: dict[int, _Node] = {}
        self.used = 0

    @property
    def n_bytes(self) -> int:
        return int(self.columns.numel() * self.columns.element_size())


class Prefixes:
    """Stored keys and values for the beginnings of prompts, as a tree, so that a shared beginning is computed only
    once.

    Several threads may use it. When it exceeds its memory, the beginnings that have gone unused for longest are
    removed.

    Args:
        limit: maximum bytes of the stored keys and values.

    Attributes:
        shapes: number of heads, width and device of each stored tensor, see `columns_of`; set by the user of the tree.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self._bytes, self._lock, self._clock = limit, 0, threading.Lock(), count(1)
        self._root, self._stamp = _Node(np.zeros(0, np.int64), None, None), 0
        self.shapes: Sequence[tuple[Any, ...]] = ()

    def keep_for(self, stamp: int) -> None:
        """Forget everything unless ``stamp`` equals that of the previous call; equal stamps mean that the weights are
        unchanged.
        """
        with self._lock:
            if stamp != self._stamp:
                self._stamp, self._bytes, self._root = stamp, 0, _Node(np.zeros(0, np.int64), None, None)

    def find(self, tokens: Sequence[int]) -> tuple[int, list[Any]]:
        """Look up how much of the beginning of a prompt is stored.

        Args:
            tokens: token ids of the prompt.

        Returns:
            How many of its first tokens are stored, and their keys and values as pieces ``[tokens, numbers]`` in order.
        """
        sought, begin, pieces = np.asarray(tokens, dtype=np.int64), 0, []
        with self._lock:
            node, now = self._root, next(self._clock)
            while begin < len(sought) and (child := node.children.get(int(sought[begin]))) is not None:
                equal = _equal(child.tokens, sought[begin:])
                pieces.append(child.columns[:equal])
                child.used, begin = now, begin + equal
                if equal < len(child.tokens):
                    break
                node = child
        return begin, pieces

    def put(self, tokens: Sequence[int], begin: int, columns: Any) -> None:
        """Store the keys and values of the tokens of a prompt from position ``begin`` on.

        Tokens that are stored already are skipped. Nothing is stored if the tokens before ``begin`` are not stored.

        Args:
            tokens: token ids of the whole prompt.
            begin: position of the first token whose keys and values are given.
            columns: ``[tokens, numbers]`` keys and values of all layers for each of these tokens.
        """
        added, at = np.asarray(tokens, dtype=np.int64), 0
        with self._lock:
            node, now = self._root, next(self._clock)
            while at < len(added) and (child := node.children.get(int(added[at]))) is not None:
                equal = _equal(child.tokens, added[at:])
                at, child.used = at + equal, now
                if equal < len(child.tokens):
                    child = self._split(child, equal) if at < len(added) else child
                node = child
            if begin <= at < len(added):
                leaf = _Node(added[at:].copy(), columns[at - begin :].clone(), node)
                leaf.used = now
                node.children[int(added[at])] = leaf
                self._bytes += leaf.n_bytes
                if self._bytes > self.limit:
                    self._shrink()

    def _split(self, node: _Node, length: int) -> _Node:
        """Divide a node after some tokens; return the first part."""
        assert node.parent is not None
        first = _Node(node.tokens[:length], node.columns[:length].clone(), node.parent)
        first.used, first.children[int(node.tokens[length])] = node.used, node
        node.parent.children[int(node.tokens[0])] = first
        node.tokens, node.columns, node.parent = node.tokens[length:], node.columns[length:].clone(), first
        return first

    def _shrink(self) -> None:
        """Remove the leaves that have gone unused for longest, until a quarter of the memory is free."""
        while self._bytes > self.limit * 3 // 4:
            leaves, branches = list[_Node](), [self._root]
            while branches:
                for child in branches.pop().children.values():
                    (branches if child.children else leaves).append(child)
            for leaf in sorted(leaves, key=lambda leaf: leaf.used):
                assert leaf.parent is not None
                del leaf.parent.children[int(leaf.tokens[0])]
                self._bytes -= leaf.n_bytes
                if self._bytes <= self.limit * 3 // 4:
                    break


def _equal(first: Tokens, second: Tokens) -> int:
    """Return the length of the common beginning of two texts."""
    length = min(len(first), len(second))
    different = np.flatnonzero(first[:length] != second[:length])
    return int(different[0]) if len(different) else length


# Read prompts: compute their keys and values in few passes, and each beginning that prompts share only once.
#
# Prompts that pass through the model together end at the same column and compute equally many tokens. A prompt of
# which more is stored computes the last of these tokens again, so no padding token is needed. Which prompts pass
# together is chosen so that such tokens and passes cost least.

Prompts = Sequence[Sequence[int]]
Prompt = tuple[int, ...]
Lookup = tuple[int, list[Any]]
"""Number of tokens of a beginning that are stored, and their columns in pieces."""
Around = Callable[[Sequence[int], Sequence[int]], AbstractContextManager[None]]
"""Context around a forward pass of prompts, given each row's prompt index and the position of its first token."""

_TOKENS_PER_PASS: Final = 128  # an additional pass takes about as long as this many prompt tokens
_MOST_LEVELS: Final = 4  # of beginnings, each a part of the next
_MOST_OCTETS: Final = {"cpu": 1 << 28, "cuda": 1 << 32}  # maximum bytes of the cache of a pass


def common_length(rows: Sequence[Sequence[Any]]) -> int:
    """Return how many entries at their beginning all given sequences share."""
    low, high = min(rows, key=tuple), max(rows, key=tuple)  # all other rows lie between these two
    limit = min(len(low), len(high))
    return next((index for index in range(limit) if low[index] != high[index]), limit)


def common_prefix(prompts: Prompts) -> int:
    """Return how many tokens at their beginning all prompts share, leaving at least the last token of each prompt."""
    return min(common_length(prompts), min(map(len, prompts)) - 1)


class PromptReader:
    """Runs the forward passes in which a model reads prompts, and computes beginnings that prompts share only once.

    Args:
        model: a transformers model.
        prefixes: where the keys and values of beginnings are stored; None to compute each prompt from its first token.
        most_tokens: maximum number of computed tokens per pass; a single prompt may exceed it.
        most_rows: maximum number of prompts per pass.
        around: context around each pass, e.g. to change activations; only the beginning that all prompts share is then
            computed once.
        most_shared: maximum number of tokens of this common beginning that are computed once, None for all.
    """

    def __init__(
        self,
        model: Any,
        prefixes: Prefixes | None,
        *,
        most_tokens: int,
        most_rows: int,
        around: Around | None = None,
        most_shared: int | None = None,
    ) -> None:
        check_layers(model.config)
        accepted = inspect.signature(model.forward).parameters
        if "position_ids" not in accepted:
            raise ValueError(
                "lockstep decoding passes position_ids to the model, which this model's forward pass does not accept: "
                "serve it (vLLM, SGLang, Ollama) and use it as an HTTP model"
            )
        self.model, self._prefixes, self._stored = model, prefixes, prefixes
        # Only the last position passes through the head, since logits of all prompt positions would take gigabytes.
        self._head = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._device = next(model.parameters()).device
        self._most_tokens, self._most_rows = most_tokens, most_rows
        self._around, self._most_shared = around, most_shared
        self.computed = 0  # tokens of the latest pass
        self._most_columns = 1 << 62  # maximum columns of all rows of a pass together
        self.begin()

    def begin(self) -> None:
        """Prepare for passes of the model as it is now, since its weights or hooks may have changed since the last
        passes.

        While hooks may change keys and values, stored beginnings are neither used nor extended.
        """
        self._direct = direct(self.model) if self._around is None else None
        if self._prefixes is None or self._stored is None:
            return
        self._prefixes = self._stored
        if has_hooks(self.model):
            self._prefixes = Prefixes(self._stored.limit)
        else:
            self._stored.keep_for(hash(tuple(_stamp(parameter) for parameter in self.model.parameters())))

    def read(
        self, prompts: Sequence[Prompt], numbers: Sequence[int]
    ) -> Iterator[tuple[list[int], list[int], CacheRows, Any]]:
        """Read prompts in passes; equal prompts are computed once.

        Args:
            prompts: token ids of each prompt.
            numbers: index of each prompt that is passed to the context ``around`` a pass.

        Yields:
            After each pass: the indices of the prompts that were read, the cache row of each, the cache, and the logits
            ``[rows, vocabulary]`` after their last tokens.
        """
        distinct = list(dict.fromkeys(prompts)) if self._around is None else list(prompts)
        self._share(distinct)
        indices: dict[Prompt, list[int]] = {}
        for index, prompt in enumerate(prompts if self._around is None else ()):
            indices.setdefault(prompt, []).append(index)
        lookups = [self._find(prompt) for prompt in distinct]
        for group in self._groups(distinct, lookups):
            named = [numbers[place] for place in group]
            with nullcontext() if self._around is None else self._around(named, _begins(distinct, lookups, group)):
                rows, logits = self._pass(*_of(group, distinct, lookups), keep=self._around is None)
            if self._around is not None:
                yield group, list(range(len(group))), rows, logits
                continue
            readers = [(index, row) for row, place in enumerate(group) for index in indices[distinct[place]]]
            yield [index for index, _ in readers], [row for _, row in readers], rows, logits

    def forward(
        self, tokens: Sequence[Sequence[int]], rows: CacheRows | None, positions: Any, *, all_columns: bool = False
    ) -> tuple[Any, Any]:
        """Run one forward pass on B sequences of T tokens each, and return its logits and the extended cache.

        Args:
            tokens: ``[B, T]`` token ids.
            rows: keys and values of the tokens before these, which are extended; None if there are none.
            positions: ``[B, T]`` position of each token in its sequence.
            all_columns: whether to return the logits of all tokens.

        Returns:
            The logits ``[B, V]`` after the last token, over a vocabulary of V tokens, or ``[B, T, V]`` after every
            token; and the transformers cache.
        """
        import torch
        from transformers import DynamicCache

        ids = torch.tensor(tokens, device=self._device)
        # Without a configuration, no layer of the cache drops old columns; the mask still contains the sliding windows.
        cache: Any = DynamicCache() if rows is None else rows.cache
        if self._direct is not None:
            before = 0 if rows is None else rows.length
            dead = torch.tensor(rows.dead) if rows is not None and any(rows.dead) else None
            logits = self._direct(ids, dead, torch.tensor(positions), cache, before, all_columns=all_columns)
            return logits, cache
        output = self.model(
            input_ids=ids,
            attention_mask=torch.ones_like(ids) if rows is None else rows.mask(ids.shape[1], self._device),
            position_ids=torch.tensor(positions, device=self._device),
            past_key_values=cache,
            use_cache=True,
            return_dict=True,
            **({} if all_columns else self._head),
        )
        return output.logits if all_columns else output.logits[:, -1], output.past_key_values

    def _share(self, prompts: Sequence[Prompt]) -> None:
        """Compute and store the beginnings that several prompts share, before the prompts themselves are read."""
        if self._prefixes is None or len(prompts) < 2:
            return
        if self._around is not None:
            shared = min(common_prefix(prompts), len(prompts[0]) if self._most_shared is None else self._most_shared)
            self._store([prompts[0][:shared]] if shared else [])
            return
        for _ in range(_MOST_LEVELS):
            if not (beginnings := self._beginnings(prompts)):
                return
            self._share(beginnings)
            self._store(beginnings)

    def _store(self, beginnings: Sequence[Prompt]) -> None:
        lookups = [self._find(beginning) for beginning in beginnings]
        for group in self._groups(beginnings, lookups):
            self._pass(*_of(group, beginnings, lookups))

    def _beginnings(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Return the beginnings that save most tokens if each is computed once before the prompts; [] if few."""
        ordered = sorted(prompts)
        stored_counts = [self._find(prompt)[0] for prompt in ordered]
        table = np.full((len(ordered), max(map(len, ordered))), -1)
        for row, prompt in enumerate(ordered):
            table[row, : len(prompt) - 1] = prompt[:-1]
            table[row, len(prompt) - 1 :] = -1 - row  # leave one token of each prompt, and differ from all others
        common = (table[1:] != table[:-1]).argmax(axis=1).tolist()  # between each prompt and the next

        def best(begin: int, end: int) -> tuple[int, list[Prompt]]:
            if end - begin < 2:
                return 0, []
            shared = min(common[begin : end - 1])
            saved = (shared - min(stored_counts[begin], shared)) * (end - begin - 1)
            cuts = [place + 1 for place in range(begin, end - 1) if common[place] == shared]
            parts = [best(*part) for part in zip([begin, *cuts], [*cuts, end], strict=True)]
            saved_later = sum(part[0] for part in parts)
            if saved_later > saved:
                return saved_later, [beginning for part in parts for beginning in part[1]]
            return saved, [ordered[begin][:shared]] if saved else []

        saved, beginnings = best(0, len(ordered))
        # A first common beginning is also what lets prompts of different lengths pass together.
        return beginnings if saved >= (_TOKENS_PER_PASS if all(stored_counts) else 1) else []

    def _find(self, prompt: Prompt) -> Lookup:
        """Return how much of a prompt is stored, without its last token, and its columns."""
        limit = len(prompt) - 1
        if self._around is not None and self._most_shared is not None:
            limit = min(limit, self._most_shared)
        return (0, []) if self._prefixes is None else self._prefixes.find(prompt[:limit])

    def _groups(self, prompts: Sequence[Prompt], lookups: Sequence[Lookup]) -> list[list[int]]:
        """Divide prompts into passes that cost least; those with the longest prompts come first."""
        left = [len(prompt) - stored for prompt, (stored, _) in zip(prompts, lookups, strict=True)]
        order = sorted(range(len(prompts)), key=lambda place: (-left[place], -len(prompts[place]), prompts[place]))
        # Rows that read from each other stay together.
        cost = _TOKENS_PER_PASS if self._around is None else 1 << 40
        costs, begins = [0], [0]
        for end in range(1, len(order) + 1):
            shortest = longest = len(prompts[order[end - 1]])
            choices = []
            for begin in range(end - 1, -1, -1):
                length, count, computed = len(prompts[order[begin]]), end - begin, left[order[begin]]
                shortest, longest = min(shortest, length), max(longest, length)
                too_large = computed * count > self._most_tokens or longest * count > self._most_columns
                if count > 1 and (computed > shortest or too_large or count > self._most_rows):
                    break
                choices.append((costs[begin] + cost + computed * count, begin))
            best, begin = min(choices)
            costs.append(best)
            begins.append(begin)
        groups, end = [], len(order)
        while end:
            groups.append(order[begins[end] : end])
            end = begins[end]
        return sorted(groups, key=lambda group: -max(len(prompts[place]) for place in group))

    def _pass(self, prompts: Sequence[Prompt], lookups: Sequence[Lookup], keep: bool = True) -> tuple[CacheRows, Any]:
        """Compute prompts that fit together; return their cache and the logits after their last tokens."""
        # By now more may be stored than when the passes were planned, or less.
        lookups = [
            max(earlier, self._find(prompt), key=itemgetter(0))
            for prompt, earlier in zip(prompts, lookups, strict=True)
        ]
        longest = max(map(len, prompts))
        computed = max(len(prompt) - stored for prompt, (stored, _) in zip(prompts, lookups, strict=True))
        rows = None
        if longest > computed:
            assert self._prefixes is not None
            pieces = [
                _first(parts, len(prompt) - computed) for prompt, (_, parts) in zip(prompts, lookups, strict=True)
            ]
            rows = gathered(self._prefixes.shapes, pieces, longest - computed)
        positions = [list(range(len(prompt) - computed, len(prompt))) for prompt in prompts]
        logits, cache = self.forward([prompt[-computed:] for prompt in prompts], rows, positions)
        self.computed = computed * len(prompts)
        TALLY.add(computed_prompt=self.computed)
        if self._prefixes is not None and keep:
            columns, self._prefixes.shapes = columns_of(cache, computed)
            if self._around is None:
                most = _MOST_OCTETS.get(self._device.type, _MOST_OCTETS["cpu"])
                self._most_columns = most // (columns.shape[-1] * columns.element_size())
            for prompt, row in zip(prompts, columns, strict=True):
                self._prefixes.put(prompt, len(prompt) - computed, row)
        dead = [longest - len(prompt) for prompt in prompts]
        return CacheRows(cache=cache, length=longest, dead=dead), logits


def _stamp(parameter: Any) -> tuple[int, int]:
    """Return what changes when a parameter is replaced or changed in place."""
    return parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version


def _of(
    group: Sequence[int], prompts: Sequence[Prompt], lookups: Sequence[Lookup]
) -> tuple[list[Prompt], list[Lookup]]:
    return [prompts[place] for place in group], [lookups[place] for place in group]


def _begins(prompts: Sequence[Prompt], lookups: Sequence[Lookup], group: Sequence[int]) -> list[int]:
    """Return the position of the first token that each prompt of a pass computes."""
    computed = max(len(prompts[place]) - lookups[place][0] for place in group)
    return [len(prompts[place]) - computed for place in group]


def _first(pieces: Sequence[Any], count: int) -> list[Any]:
    """Return the first columns of some pieces."""
    cut = []
    for piece in pieces:
        if count <= 0:
            break
        cut.append(piece[:count])
        count -= len(cut[-1])
    return cut
