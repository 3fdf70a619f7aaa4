"""Read the residual stream of a Hugging Face model with plain forward hooks."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.activations.capture_schedule import Batch, Item, ShardPlan
from goalscope.activations.record import Site
from goalscope.activations.shards import Shard, episode_table

_LLAMA = ("layers", "norm")
_GPT2 = ("h", "ln_f")
PLACES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(
        (
            "gemma",
            "gemma2",
            "gemma3_text",
            "gpt_oss",
            "llama",
            "mistral",
            "mixtral",
            "olmo",
            "olmo2",
            "phi3",
            "qwen2",
            "qwen2_moe",
            "qwen3",
            "qwen3_moe",
            "smollm3",
        ),
        _LLAMA,
    ),
    "phi": ("layers", "final_layernorm"),
    **dict.fromkeys(("bloom", "falcon", "gpt2", "gpt_neo", "gptj"), _GPT2),
    "gpt_neox": ("layers", "final_layer_norm"),
}
"""Names of the list of decoder blocks and of the final norm in the base model of each known model type."""


class _Enough(BaseException):
    """The deepest wanted block has run: what comes after it is not computed."""


class Blocks:
    """The decoder blocks of a model; the model itself is never changed.

    Args:
        model: a transformers causal language model.
        layers: numbers of the blocks whose outputs are wanted, 0-based; all by default.

    Raises:
        ValueError: an unknown model type, modules that are not where they should be, or a layer that is not there.
    """

    def __init__(self, model: Any, layers: Sequence[int] | None = None) -> None:
        kind = model.config.model_type
        if kind not in PLACES:
            raise ValueError(
                f"activations are captured from models of the types {', '.join(sorted(PLACES))}, got one of type "
                f"{kind!r}: add the names of its decoder blocks and final norm to goalscope.activations.hooks.PLACES"
            )
        blocks, norm = PLACES[kind]
        self.base: Any = model.base_model
        if self.base is model or not hasattr(self.base, blocks) or not hasattr(self.base, norm):
            raise ValueError(
                f"a model of type {kind!r} must have its decoder blocks in {blocks!r} and its final norm in {norm!r} "
                f"of its base model, {type(self.base).__name__} does not: the model is built in another way, or this "
                "version of transformers names them differently"
            )
        self.list: Any = getattr(self.base, blocks)
        self.norm: Any = getattr(self.base, norm)
        self.count = len(self.list)
        self.layers = tuple(range(self.count)) if layers is None else check_layers(layers, self.count)
        self.deepest = max(self.layers)
        self.device: Any = model.get_input_embeddings().weight.device
        self.dtype: Any = model.dtype
        text = model.config.get_text_config(decoder=True)
        self.width = int(text.hidden_size)
        self.config: Any = model.config
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])
        limit = getattr(text, "max_position_embeddings", None)
        self._longest: int | None = limit if isinstance(limit, int) and limit > 0 else None

    def check_ids(self, ids: npt.NDArray[np.int64]) -> None:
        """Raise a ValueError unless the model can read a sequence ``[T]``: its tokens, and as many of them."""
        if self._longest is not None and len(ids) > self._longest:
            raise ValueError(
                f"a sequence must fit the {self._longest} positions of the model, got {len(ids)} tokens: give the "
                "model that generated the run"
            )
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._vocabulary:
            odd = ids[(ids < 0) | (ids >= self._vocabulary)][0]
            raise ValueError(
                f"token ids must be in 0..{self._vocabulary - 1}, the model's embeddings, got {odd}: give the model "
                "that generated the run"
            )

    @contextmanager
    def recording(self) -> Iterator["Recording"]:
        """Hook the wanted blocks for as long as the context lasts; whatever happens inside, no hook stays."""
        recording = Recording(self)
        handles = []
        try:
            for layer in self.layers:
                handles.append(self.list[layer].register_forward_hook(recording.hook(layer)))
            yield recording
        finally:
            for handle in handles:
                handle.remove()


class Recording:
    """Runs sequences through hooked blocks; made by `Blocks.recording`."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._thread = threading.get_ident()
        self._wanted: tuple[Any, Any] | None = None
        self._kept: dict[int, Any] = {}

    def hook(self, layer: int) -> Any:
        """Return the hook of a block: keep the wanted positions, stop after the deepest block."""
        last = layer == self._blocks.deepest and layer < self._blocks.count - 1

        def keep(module: Any, given: Any, output: Any) -> None:
            # Another thread may use the same model meanwhile.
            if threading.get_ident() != self._thread or self._wanted is None:
                return
            hidden = output[0] if isinstance(output, tuple) else output
            rows, columns = (index.to(hidden.device) for index in self._wanted)
            self._kept[layer] = hidden[rows, columns]
            if last:
                raise _Enough

        return keep

    def run(
        self, ids: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], cache: Any = None
    ) -> list[Any]:
        """Return the outputs of the wanted blocks at some positions.

        Args:
            ids: ``[B, T]`` token ids, no padding; what follows on the cache where there is one.
            rows, columns: ``[K]`` the positions, columns counted from the first id given here.
            cache: keys and values of what comes before, or None.

        Returns:
            One tensor ``[K, D]`` for each layer, in the order of `Blocks.layers`, where the model put them.
        """
        import torch

        device = self._blocks.device
        on = [torch.from_numpy(index).to(device, non_blocking=True) for index in (ids, rows, columns)]
        self._wanted, self._kept = (on[1], on[2]), {}
        more = {"use_cache": False} if cache is None else {"past_key_values": cache, "use_cache": True}
        try:
            with torch.inference_mode():
                self._blocks.base(input_ids=on[0], **more)
        except _Enough:
            pass
        finally:
            self._wanted = None
        kept, self._kept = self._kept, {}
        return [kept[layer] for layer in self._blocks.layers]

    def prefix(self, ids: npt.NDArray[np.int64]) -> "Prefix":
        """Return the keys and values of a beginning ``[S]`` that sequences share."""
        from transformers import DynamicCache

        # Without a configuration no layer of the cache lets go of old columns; windows are in the mask all the same.
        cache: Any = DynamicCache()
        none = np.zeros(0, dtype=np.int64)
        self.run(ids[None], none, none, cache)
        layers = cache.layers[: self._blocks.deepest + 1]
        return Prefix(config=self._blocks.config, held=[(layer.keys, layer.values) for layer in layers])


class Prefix:
    """Keys and values of a shared beginning.

    Args:
        config: the model's configuration.
        held: (keys, values) of each computed layer, ``[1, heads, S, width]``.
    """

    def __init__(self, *, config: Any, held: Sequence[tuple[Any, Any]]) -> None:
        self._config = config
        self._held = held

    def cache(self, batch: int) -> Any:
        """Return a new transformers cache that holds the beginning for each row of a batch."""
        from transformers import DynamicCache

        cache: Any = DynamicCache(config=self._config)
        for layer, (keys, values) in enumerate(self._held):
            cache.update(keys.expand(batch, -1, -1, -1), values.expand(batch, -1, -1, -1), layer)
        return cache


def check_layers(layers: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the layers in rising order, each once.

    Raises:
        ValueError: none, or one that a model of ``count`` decoder blocks does not have.
    """
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int | np.integer) or not 0 <= layer < count:
            raise ValueError(f"layers must be whole numbers in 0..{count - 1}, the model's blocks, got {layer!r}")
    if not layers:
        raise ValueError("a capture needs at least one layer, got none")
    return tuple(sorted({int(layer) for layer in layers}))


def thirds(count: int) -> tuple[int, ...]:
    """Return the last block of each third of a model: 7, 15 and 23 of 24."""
    return tuple(sorted({max(0, round(count * part / 3) - 1) for part in (1, 2, 3)}))


def shares_prefixes(config: Any) -> bool:
    """Whether the model keeps keys and values alone, so that a shared beginning can be computed once."""
    from goalscope.models.cache import check_layers as check_cache

    try:
        check_cache(config)
    except ValueError:
        return False
    return True


def check_blocks(model: Any, layers: Sequence[int], ids: Sequence[int]) -> dict[int, float]:
    """Compare hooked outputs with the hidden states that the library itself returns.

    The library's last hidden state comes after the final norm: the last block is compared through that norm. Numbers
    that are finite in neither are equal here: whoever reads them refuses them by the name of their episode.

    Args:
        model: a transformers causal language model.
        layers: numbers of the blocks, 0-based.
        ids: a sequence.

    Returns:
        For each layer the largest difference relative to the largest entry; 0.0 where they are bit-equal.

    Raises:
        ValueError: a difference above 1e-5 (float32; 1e-2 in half precision), or another number of hidden states.
    """
    import torch

    blocks = Blocks(model, layers)
    given = np.array([list(ids)], dtype=np.int64)
    columns = np.arange(given.shape[1])
    with blocks.recording() as recording:
        kept = recording.run(given, np.zeros_like(columns), columns)
    with torch.inference_mode():
        on = torch.from_numpy(given).to(blocks.device)
        plain = blocks.base(input_ids=on, use_cache=False, output_hidden_states=True).hidden_states
        if len(plain) != blocks.count + 1:
            raise ValueError(
                f"a model of {blocks.count} decoder blocks must have {blocks.count + 1} hidden states, got {len(plain)}"
            )
        found: dict[int, float] = {}
        for layer, mine in zip(blocks.layers, kept, strict=True):
            theirs = plain[layer + 1][0].float()
            ours = (blocks.norm(mine) if layer == blocks.count - 1 else mine).float().to(theirs.device)
            finite = theirs.isfinite()
            if not torch.equal(finite, ours.isfinite()):
                found[layer] = float("inf")
                continue
            ours, theirs = ours[finite], theirs[finite]
            scale = max(float(theirs.abs().max()), 1e-30) if len(theirs) else 1.0
            found[layer] = float((ours - theirs).abs().max()) / scale if len(theirs) else 0.0
    limit = 1e-5 if blocks.dtype == torch.float32 else 1e-2
    for layer, difference in found.items():
        if not difference <= limit:
            raise ValueError(
                f"captured vectors must equal the model's own hidden states, at layer {layer} they differ by "
                f"{difference:.2g} (relative, at most {limit:g}): this model is built in another way than its type says"
            )
    return found


def compute_shard(
    blocks: Blocks, planned: ShardPlan, prefix: Prefix | None, sites: Sequence[Site], *, capture: str, model: str
) -> Shard:
    """Return a shard with its vectors.

    Args:
        blocks: the decoder blocks.
        planned: its batches.
        prefix: keys and values of the tokens ``planned.prefix``, None where there are none.
        sites: the sites, in their order.
        capture, model: ids, for the header.

    Raises:
        ValueError: an activation is not finite; names episode, step, site and layer.
    """
    import torch

    kept: list[Any] = []
    owners: list[tuple[Item, Site]] = []
    with blocks.recording() as recording:
        for batch in planned.batches:
            order = [(row, item, site) for site in sites for row, item in _having(batch, site)]
            kept.append(_forward(recording, batch, order, prefix, len(planned.prefix)))
            owners += [(item, site) for _, item, site in order]
    # Until here nothing waited for the device.
    vectors: npt.NDArray[np.float32] = torch.cat(kept, dim=1).cpu().numpy()
    kept.clear()
    ends = np.cumsum([len(item.positions[site]) for item, site in owners])
    _check_finite(vectors, owners, ends, blocks.layers)
    items = [item for batch in planned.batches for item in batch.items]
    rows = {id(item): row for row, item in enumerate(items)}
    table = episode_table([item.episode for item in items])
    arrays: dict[str, npt.NDArray[Any]] = {
        "episode": np.array([table[item.episode] for item in items], dtype=np.int64),
        "step": np.array([item.step for item in items], dtype=np.int64),
        "shape": np.array([item.shape for item in items], dtype=np.int64).reshape(-1, 2),
        "reconstructed": np.array([item.reconstructed for item in items], dtype=np.uint8),
    }
    for site in sites:
        mine = [number for number, (_, named) in enumerate(owners) if named == site]
        held = [owners[number][0] for number in mine]
        count = len(held[0].positions[site]) if held else 0
        places = np.array([ends[number] - count for number in mine], dtype=np.int64)[:, None] + np.arange(count)
        positions = np.array([item.positions[site] for item in held], dtype=np.int64).reshape(len(held), count)
        arrays[f"{site}.rows"] = np.array([rows[id(item)] for item in held], dtype=np.int64)
        arrays[f"{site}.positions"] = positions
        arrays[f"{site}.tokens"] = np.array([item.ids[item.positions[site]] for item in held], dtype=np.int64).reshape(
            len(held), count
        )
        for number, layer in enumerate(blocks.layers):
            arrays[f"{site}.{layer}"] = vectors[number][places].reshape(len(held), count, blocks.width)
    header = {"capture": capture, "model": model, "number": planned.number, "episodes": [list(one) for one in table]}
    return Shard(header=header, arrays=_sorted_rows(arrays, sites))


def _having(batch: Batch, site: Site) -> list[tuple[int, Item]]:
    return [(row, item) for row, item in zip(batch.places, batch.items, strict=True) if site in item.positions]


def _forward(
    recording: Recording, batch: Batch, order: Sequence[tuple[int, Item, Site]], prefix: Prefix | None, skipped: int
) -> Any:
    """Return the vectors ``[L, K, D]`` float32 of a batch, still on the device."""
    import torch

    ids = np.stack(batch.sequences)[:, skipped:]
    columns = np.concatenate([item.positions[site] for _, item, site in order]) - skipped
    rows = np.repeat(
        np.array([row for row, _, _ in order], dtype=np.int64),
        [len(item.positions[site]) for _, item, site in order],
    )
    cache = None if prefix is None else prefix.cache(len(ids))
    layers = recording.run(np.ascontiguousarray(ids), rows, columns.astype(np.int64), cache)
    return torch.stack([layer.to(layers[0].device).float() for layer in layers])


def _check_finite(
    vectors: npt.NDArray[np.float32],
    owners: Sequence[tuple[Item, Site]],
    ends: npt.NDArray[np.int64],
    layers: Sequence[int],
) -> None:
    for number, layer in enumerate(layers):
        with np.errstate(over="ignore", invalid="ignore"):
            fine = np.isfinite(vectors[number].sum(axis=1, dtype=np.float64))
        if fine.all():
            continue
        item, site = owners[int(np.searchsorted(ends, np.argmin(fine), side="right"))]
        raise ValueError(
            f"activations must be finite, got some that are not in {item.episode[0]} step {item.step}, site {site}, "
            f"layer {layer}: check the model's weights, and its dtype (float16 overflows in some models; bfloat16 and "
            "float32 do not)"
        )


def _sorted_rows(arrays: dict[str, npt.NDArray[Any]], sites: Sequence[Site]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays with the rows of each site rising."""
    for site in sites:
        order = np.argsort(arrays[f"{site}.rows"], kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            continue
        for name in [name for name in arrays if name.startswith(f"{site}.")]:
            arrays[name] = arrays[name][order]
    return arrays
