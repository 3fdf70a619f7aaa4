"""Read the residual stream of a Hugging Face model with plain forward hooks."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.agents.models.reading import check_layers as check_cache

_LLAMA = (
    "gemma gemma2 gemma3_text gpt_oss llama mistral mixtral olmo olmo2 phi3 qwen2 qwen2_moe qwen3 qwen3_moe smollm3"
)
PLACES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(_LLAMA.split(), ("layers", "norm")),
    "phi": ("layers", "final_layernorm"),
    **dict.fromkeys(("bloom", "falcon", "gpt2", "gpt_neo", "gptj"), ("h", "ln_f")),
    "gpt_neox": ("layers", "final_layer_norm"),
}
"""Names of the list of decoder blocks and of the final norm in the base model of each known model type."""


Prefix = Sequence[tuple[Any, Any]]
"""Keys and values ``[1, heads, S, width]`` of a shared beginning of S tokens, a pair a layer."""


class _Enough(BaseException):
    """Raised after the deepest requested block, so that later blocks are not computed."""


class DecoderBlocks:
    """Reader of the activations of a model: the residual stream after its decoder blocks.

    Use it as ``with blocks.recording() as recording: recording.run(ids, rows, columns)``. The model itself is never
    changed.

    Args:
        model: a transformers causal language model.
        layers: numbers of the blocks whose outputs are needed, counted from 0; all by default.

    Raises:
        ValueError: if the model type is unknown, modules are not where they should be, or a layer does not exist.
    """

    def __init__(self, model: Any, layers: Sequence[int] | None = None) -> None:
        kind = model.config.model_type
        if kind not in PLACES:
            raise ValueError(
                f"cannot capture activations from models of type {kind!r}; supported types: "
                f"{', '.join(sorted(PLACES))}. Add the names of the decoder blocks and the final norm of this "
                "type to PLACES in goalscope.inside.activations.hooks"
            )
        blocks, norm = PLACES[kind]
        self.base: Any = model.base_model
        if self.base is model or not hasattr(self.base, blocks) or not hasattr(self.base, norm):
            raise ValueError(
                f"a model of type {kind!r} must have its decoder blocks in {blocks!r} and its final norm in "
                f"{norm!r} of its base model, but {type(self.base).__name__} does not: the model has another "
                "structure, or this version of transformers uses other names"
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
        """Check that the model can read token ids ``[T]``.

        Raises:
            ValueError: if there are more ids than the model has positions, or an id lies outside its vocabulary.
        """
        if self._longest is not None and len(ids) > self._longest:
            raise ValueError(
                f"the sequence has {len(ids)} tokens, but the model has only {self._longest} positions: give "
                "the model that generated the run"
            )
        if len(ids) and not 0 <= ids.min() <= ids.max() < self._vocabulary:
            odd = ids[(ids < 0) | (ids >= self._vocabulary)][0]
            raise ValueError(
                f"token ids must be in 0..{self._vocabulary - 1}, the range of the embedding, got {odd}: give "
                "the model that generated the run"
            )

    @contextmanager
    def recording(self) -> Iterator["Recording"]:
        """Return a context manager that hooks the requested decoder blocks and yields a `Recording`, which returns
        their outputs.

        The hooks are removed when the context ends, also after an error.
        """
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
    """Runs token ids through a model and returns the outputs of some decoder blocks at chosen token positions.

    Obtain one from `DecoderBlocks.recording`.
    """

    def __init__(self, blocks: DecoderBlocks) -> None:
        self._blocks = blocks
        self._thread = threading.get_ident()
        self._wanted: tuple[Any, Any] | None = None
        self._kept: dict[int, Any] = {}

    def hook(self, layer: int) -> Any:
        """Return the forward hook of the decoder block number ``layer``, for PyTorch to call with the block's output.

        The hook keeps the output at the token positions of the current `run`, and ends the forward pass after the
        deepest block that is needed.
        """
        last = layer == self._blocks.deepest and layer < self._blocks.count - 1

        def keep(module: Any, inputs: Any, output: Any) -> None:
            # Another thread may be using the same model.
            if threading.get_ident() != self._thread or self._wanted is None:
                return
            hidden = output[0] if isinstance(output, tuple) else output
            rows, columns = (index.to(hidden.device) for index in self._wanted)
            self._kept[layer] = hidden[rows, columns]
            if last:
                raise _Enough

        return keep

    def run(
        self,
        ids: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        columns: npt.NDArray[np.int64],
        prefix: Prefix | None = None,
    ) -> list[Any]:
        """Run sequences through the model and return the outputs of the requested blocks at K token positions.

        Args:
            ids: ``[B, T]`` token ids of B sequences without padding; with a prefix, the ids that follow it.
            rows, columns: ``[K]`` the sequence and the index in ``ids`` of each position to return.
            prefix: cached keys and values of the prefix that all sequences share.

        Returns:
            One tensor ``[K, D]`` (positions by width of the model) per requested block, on the model's device.
        """
        if prefix is None:
            return self._run(ids, rows, columns, None)
        from transformers import DynamicCache

        cache: Any = DynamicCache(config=self._blocks.config)
        for layer, layer_cache in enumerate(prefix):
            keys, values = (tensor.expand(len(ids), -1, -1, -1) for tensor in layer_cache)
            cache.update(keys, values, layer)
        return self._run(ids, rows, columns, cache)

    def prefix(self, ids: npt.NDArray[np.int64]) -> Prefix:
        """Compute the attention keys and values of a prefix ``[S]`` of token ids with which several sequences begin.

        Pass the result to `run`, which then computes only the ids after the prefix.
        """
        from transformers import DynamicCache

        # Without a configuration, no cache layer discards old columns; the mask still applies sliding windows.
        cache: Any = DynamicCache()
        none = np.zeros(0, dtype=np.int64)
        self._run(ids[None], none, none, cache)
        return [(layer.keys, layer.values) for layer in cache.layers[: self._blocks.deepest + 1]]

    def _run(
        self, ids: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64], cache: Any
    ) -> list[Any]:
        import torch

        device = self._blocks.device
        tensors = [torch.from_numpy(index).to(device, non_blocking=True) for index in (ids, rows, columns)]
        self._wanted, self._kept = (tensors[1], tensors[2]), {}
        cache_options = {"use_cache": False} if cache is None else {"past_key_values": cache, "use_cache": True}
        try:
            with torch.inference_mode():
                self._blocks.base(input_ids=tensors[0], **cache_options)
        except _Enough:
            pass
        finally:
            self._wanted = None
        recorded, self._kept = self._kept, {}
        return [recorded[layer] for layer in self._blocks.layers]


def check_layers(layers: Sequence[int], count: int) -> tuple[int, ...]:
    """Check the numbers of decoder blocks (counted from 0) and return them in ascending order, each once.

    Raises:
        ValueError: if ``layers`` is empty, or a number is not in a model with ``count`` decoder blocks.
    """
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int | np.integer) or not 0 <= layer < count:
            raise ValueError(f"layers must be integers in 0..{count - 1} (the model has {count} blocks), got {layer!r}")
    if not layers:
        raise ValueError("layers must contain at least one layer, got none")
    return tuple(sorted({int(layer) for layer in layers}))


def chosen_layers(requested: str | Sequence[int], count: int) -> tuple[int, ...]:
    """Return the numbers of decoder blocks (from 0) that a setting names, for a model with ``count`` blocks.

    Args:
        requested: "thirds" (the last block of each third), "all", or the numbers themselves.
        count: number of decoder blocks of the model.

    Raises:
        ValueError: if a number is not one of the model's blocks.
    """
    if isinstance(requested, str):
        return thirds(count) if requested == "thirds" else tuple(range(count))
    return check_layers(requested, count)


def thirds(count: int) -> tuple[int, ...]:
    """Return the number of the last decoder block of each third of a model, counted from 0: 7, 15 and 23 of 24
    blocks.
    """
    return tuple(sorted({max(0, round(count * part / 3) - 1) for part in (1, 2, 3)}))


def shares_prefixes(config: Any) -> bool:
    """Return whether a prefix that several prompts share can be computed once and continued from the cache.

    This holds for models that cache only keys and values. ``config`` is the configuration of a transformers model.
    """
    try:
        check_cache(config)
    except ValueError:
        return False
    return True


def check_blocks(model: Any, layers: Sequence[int], ids: Sequence[int]) -> dict[int, float]:
    """Check that the hooked outputs of decoder blocks equal the hidden states that transformers returns for the same
    ids.

    The library's last hidden state comes after the final norm, so the last block is compared through that norm. Numbers
    that are not finite on both sides count as equal here; reading such activations later raises an error that names the
    episode.

    Args:
        model: a transformers causal language model.
        layers: numbers of the blocks to compare, counted from 0.
        ids: token ids ``[T]`` to run through the model.

    Returns:
        The largest difference per layer, relative to the largest entry; 0.0 if they are bit-equal.

    Raises:
        ValueError: if a difference is above 1e-5 (1e-2 for models in half precision).
    """
    import torch

    blocks = DecoderBlocks(model, layers)
    id_array = np.array([list(ids)], dtype=np.int64)
    columns = np.arange(id_array.shape[1])
    with blocks.recording() as recording:
        recorded = recording.run(id_array, np.zeros_like(columns), columns)
    with torch.inference_mode():
        id_tensor = torch.from_numpy(id_array).to(blocks.device)
        hidden_states = blocks.base(input_ids=id_tensor, use_cache=False, output_hidden_states=True).hidden_states
        if len(hidden_states) != blocks.count + 1:
            raise ValueError(
                f"a model of {blocks.count} decoder blocks must have {blocks.count + 1} hidden states, got "
                f"{len(hidden_states)}"
            )
        differences: dict[int, float] = {}
        for layer, captured in zip(blocks.layers, recorded, strict=True):
            expected = hidden_states[layer + 1][0].float()
            normed = (blocks.norm(captured) if layer == blocks.count - 1 else captured).float().to(expected.device)
            finite, differences[layer] = expected.isfinite(), 0.0
            if not torch.equal(finite, normed.isfinite()):
                differences[layer] = float("inf")
            elif finite.any():
                scale = max(float(expected[finite].abs().max()), 1e-30)
                differences[layer] = float((normed[finite] - expected[finite]).abs().max()) / scale
    limit = 1e-5 if blocks.dtype == torch.float32 else 1e-2
    for layer, difference in differences.items():
        if not difference <= limit:
            raise ValueError(
                f"captured vectors must equal the model's own hidden states, but at layer {layer} they differ "
                f"by {difference:.2g} (relative, limit {limit:g}): the structure of this model does not match "
                "its type"
            )
    return differences
