"""What of the residual stream the next block reads, and the part of a subspace that it hardly reads."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.interventions.edits import Editor
from goalscope.models.local import LocalModel

_READ_SHARE: Final = 0.9  # of the squared singular values of what the next block reads
_SMALL: Final = 1e-6
_READERS: Final = (
    *("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn", "W_pack"),
    *("gate_proj", "up_proj", "gate_up_proj", "c_fc", "fc_in", "dense_h_to_4h", "router", "gate", "fc1"),
)


def reading_directions(model: LocalModel, layer: int) -> npt.NDArray[np.float64]:
    """Return the orthonormal directions ``[D, R]`` that the next block reads most: 90 % of its squared singular values.

    Its reading weights are those of queries, keys, values, router and the first layer of MLP or experts, each times the
    weight of the norm before it and divided by its largest singular value, so that all count alike; after the last
    block those of the unembedding.

    Raises:
        ValueError: a block whose reading weights are not known by name.
    """
    with model.alone() as network:
        editor = Editor(network)
        blocks, width = editor.blocks, editor.blocks.width
        if layer + 1 < blocks.count:
            found = _reading_weights(blocks.list[layer + 1], width)
        else:
            head = network.get_output_embeddings().weight
            found = [_scaled(head.detach().double().cpu().numpy(), blocks.norm)]
    stacked = np.concatenate([one / max(float(np.linalg.norm(one, 2)), 1e-30) for one in found])
    values, directions = np.linalg.svd(stacked, full_matrices=False)[1:]
    energy = np.cumsum(values**2) / np.sum(values**2)
    count = min(int(np.searchsorted(energy, _READ_SHARE)) + 1, int((values > values[0] * 1e-9).sum()))
    read: npt.NDArray[np.float64] = directions[:count].T
    return read


def _reading_weights(block: Any, width: int) -> list[npt.NDArray[np.float64]]:
    found = []
    for name, parameter in block.named_parameters():
        parts = name.split(".")
        if not set(parts) & set(_READERS) or "bias" in parts[-1] or parameter.ndim < 2:
            continue
        array = parameter.detach().double().cpu().numpy()
        # Linear layers are [out, in]; stacked experts and one-dimensional convolutions are [..., in, out].
        transposed = array.ndim == 3 or "c_attn" in parts or "c_fc" in parts
        rows = array.swapaxes(-1, -2) if transposed else array
        if rows.shape[-1] == width:
            found.append(_scaled(rows.reshape(-1, width), _norm_before(block, parts)))
    if not found:
        raise ValueError(
            f"the reading weights of a block must have one of the names {', '.join(_READERS)}, "
            f"{type(block).__name__} has none of them: an alignment search cannot say what the next block reads"
        )
    return found


def _norm_before(block: Any, parts: Sequence[str]) -> Any:
    """Return the norm through which a weight reads the residual stream, None where it is not known by name."""
    attends = any("attn" in part or "attention" in part for part in parts)
    names = ("input_layernorm", "ln_1") if attends else ("post_attention_layernorm", "ln_2")
    return next((getattr(block, name) for name in names if hasattr(block, name)), None)


def _scaled(rows: npt.NDArray[np.float64], norm: Any) -> npt.NDArray[np.float64]:
    weight = getattr(norm, "weight", None)
    return rows if weight is None else rows * weight.detach().double().cpu().numpy()


def split_subspace(
    found: npt.NDArray[np.float64], reading: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return bases of the projections of a subspace ``[D, K]`` onto read directions ``[D, R]`` and onto all others."""
    read = reading @ (reading.T @ found)
    return _orthonormal(read), _orthonormal(found - read)


def _orthonormal(vectors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    left, values, _ = np.linalg.svd(vectors, full_matrices=False)
    kept: npt.NDArray[np.float64] = left[:, values > _SMALL]
    return kept
