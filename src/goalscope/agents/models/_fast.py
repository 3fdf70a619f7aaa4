"""Faster blocks for GPT-OSS-class models; their results equal those of transformers up to rounding.

Attention: transformers repeats keys and values for each query head, which takes most of the time of a decode step and,
for GPT-OSS-20B, eight times the memory traffic. Here, the query heads of a group are rows of one matrix product. Many
tokens at once in float32 or bfloat16 use PyTorch's fused attention, which never stores the scores and is four to ten
times faster on a CPU. Long texts are processed in blocks of rows, each with its own mask, so that memory grows with the
length of a text and not with its square. A sliding window reads only the columns inside it.

Experts: transformers sorts tokens by expert, which takes about thirty small operations per layer. If few experts are
left out, computing all experts for every token takes only two matrix products.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

NAME: Final = "goalscope_grouped"
DENSE: Final = "goalscope_dense"
KINDS: Final = ("gpt_oss",)
"""Model types whose attention is exactly the one implemented below."""


MOST_MASK: Final = 1 << 22  # maximum entries of a mask that is built at once
_STEP: Final = 2048  # columns are rounded up to multiples, since blocks of many sizes would fragment memory
MOST_SCORES: Final = {"cpu": 1 << 24, "cuda": 1 << 26}  # maximum scores per block, about 14 bytes each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LongMask:
    """A mask that is built in blocks of rows, from the arguments of `transformers.masking_utils.eager_mask`."""

    arguments: dict[str, Any]

    def block(self, first: int, end: int, device: Any) -> tuple[Any, int, int]:
        """Return the mask of some rows, ``[B, 1, end - first, columns]``, with the first and the end of its columns.

        Columns outside this range are hidden from all of these rows.
        """
        from transformers.masking_utils import eager_mask

        arguments = self.arguments
        offset = arguments.get("q_offset", 0) - arguments.get("kv_offset", 0)
        window, columns = arguments.get("local_size"), arguments["kv_length"]
        low = 0 if window is None else max(0, offset + first - int(window) + 1) // _STEP * _STEP
        high = min(columns, -(-max(offset + end, low + 1) // _STEP) * _STEP)
        padding = arguments.get("attention_mask")
        changed = {
            "q_length": end - first,
            "q_offset": arguments.get("q_offset", 0) + first,
            "attention_mask": padding if padding is None else padding.to(device),
            "device": device,
        }
        # The mask is built for all columns and then cut, since padding is counted from the first column.
        return eager_mask(**(arguments | changed))[..., low:high], low, high


def long_mask(**arguments: Any) -> Any:
    """Return the mask that is added to the scores, or a `LongMask` if it would be large."""
    from transformers.masking_utils import eager_mask

    entries = arguments["batch_size"] * arguments["q_length"] * arguments["kv_length"]
    return LongMask(arguments=arguments) if entries > MOST_MASK else eager_mask(**arguments)


def grouped_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float, **others: Any
) -> tuple[Any, Any]:
    """Return attention outputs ``[B, T, heads, width]`` and weights ``[B, heads, T, columns]`` (None for blocks).

    Queries are ``[B, heads, T, width]``, keys and values ``[B, groups, columns, width]``. The mask that is added to the
    scores is ``[B, 1, T, columns]`` or a `LongMask`, and already contains the sliding window. The query heads of one
    group are adjacent. The sinks of the attention block take part in each softmax and add no value.
    """
    import torch

    batch, heads, count, _ = query.shape
    fused = count > 1 and query.dtype in (torch.float32, torch.bfloat16)
    long = isinstance(attention_mask, LongMask)
    most = MOST_SCORES.get(query.device.type, MOST_SCORES["cuda"])
    if not long and (fused or batch * heads * count * key.shape[2] <= most):
        return attended(query, key, value, attention_mask, scaling, module.sinks, fused)
    rows_at_once = max(1, most // (batch * heads * key.shape[2]))
    parts = []
    for first in range(0, count, rows_at_once):
        end, low, high = min(first + rows_at_once, count), 0, key.shape[2]
        mask = attention_mask
        if long:
            mask, low, high = attention_mask.block(first, end, query.device)
        elif mask is not None:
            mask = mask[:, :, first:end]
        columns = (key[:, :, low:high], value[:, :, low:high])
        parts.append(attended(query[:, :, first:end], *columns, mask, scaling, module.sinks, fused)[0])
    return torch.cat(parts, dim=1), None


def attended(query: Any, key: Any, value: Any, mask: Any, scaling: float, sinks: Any, fused: bool) -> tuple[Any, Any]:
    """Return outputs and weights of some rows, see `grouped_attention`."""
    import torch

    if fused:
        return _fused(query, key, value, mask, scaling, sinks), None
    batch, heads, count, width = query.shape
    groups = key.shape[1]
    rows = query.reshape(batch, groups, heads // groups * count, width)
    scores = torch.matmul(rows, key.transpose(2, 3)).view(batch, heads, count, -1).float() * scaling
    if mask is not None:
        scores = scores + mask
    sinks = sinks.float().reshape(1, -1, 1, 1)
    largest = torch.maximum(scores.amax(dim=-1, keepdim=True), sinks)
    weights = (scores - largest).exp_()
    weights = (weights / (weights.sum(dim=-1, keepdim=True) + (sinks - largest).exp())).to(value.dtype)
    mixed = torch.matmul(weights.view(batch, groups, heads // groups * count, -1), value)
    return mixed.view(batch, heads, count, -1).transpose(1, 2).contiguous(), weights


def _fused(query: Any, key: Any, value: Any, mask: Any, scaling: float, sinks: Any) -> Any:
    """Return the outputs of `torch.nn.functional.scaled_dot_product_attention`, extended by sinks.

    A sink is represented by an additional column without a value. Its key is 1 in two additional dimensions, in which
    each query has the sink of its head and all other keys have 0. The second dimension holds what the first one loses
    by rounding, which in bfloat16 would change a sink by up to 0.4 %. Dimensions are added in multiples of eight, since
    odd widths are slow.
    """
    from torch.nn.functional import pad, scaled_dot_product_attention

    heads, width = query.shape[1], query.shape[3]
    columns = key.shape[2]
    further = 8 + -width % 8
    rows = pad(query, (0, further))
    sink = (sinks.float() / scaling).reshape(1, heads, 1)
    rows[..., width] = sink.to(rows.dtype)
    rows[..., width + 1] = (sink - sink.to(rows.dtype).float()).to(rows.dtype)
    keys = pad(key, (0, further, 0, 1))
    keys[:, :, columns, width : width + 2] = 1
    values = pad(value, (0, further, 0, 1))
    # The mask is by far the largest tensor, so keys and values are repeated for the heads of a group, not the mask.
    queries_per_key = heads // key.shape[1]
    wide = None if mask is None else pad(mask, (0, 1))
    mixed = scaled_dot_product_attention(
        rows,
        keys.repeat_interleave(queries_per_key, 1),
        values.repeat_interleave(queries_per_key, 1),
        attn_mask=wide,
        scale=scaling,
    )
    return mixed[..., :width].transpose(1, 2).contiguous()


def use_grouped_attention(model: Any) -> bool:
    """Make a model of a known type use this attention unless it has another implementation; return whether it does."""
    from transformers import AttentionInterface, AttentionMaskInterface

    config = model.config
    if config.model_type not in KINDS or config._attn_implementation not in ("eager", NAME):
        return False
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, long_mask)
    model.set_attn_implementation(NAME)
    return True


def dense_experts(module: Any, hidden: Any, indices: Any, weights: Any) -> Any:
    """Return the output of a mixture of experts ``[N, d]``, with each token computed by all experts.

    The experts have weights ``[E, d, 2 f]`` and ``[E, f, d]``. Each token has ``[N, K]`` experts with their weights;
    all other experts have weight 0.
    """
    import torch

    count = module.num_experts
    gate_and_up = torch.baddbmm(
        module.gate_up_proj_bias[:, None], hidden.expand(count, *hidden.shape), module.gate_up_proj
    )
    shares = weights.new_zeros(len(hidden), count).scatter_(1, indices, weights)
    active = (module._apply_gate(gate_and_up) * shares.T[:, :, None]).transpose(0, 1).reshape(len(hidden), -1)
    return torch.addmm(shares @ module.down_proj_bias, active, module.down_proj.flatten(0, 1))


@contextmanager
def all_experts(model: Any) -> Iterator[None]:
    """Make all experts of a known type of model compute every token inside the context.

    Nothing changes on a GPU, or for models whose tokens skip more experts than they use.
    """
    config = model.config
    few = config.model_type in KINDS and config.num_local_experts <= 2 * config.num_experts_per_tok
    if not few or model.device.type != "cpu":
        yield
        return
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register(DENSE, dense_experts)
    before = model.get_experts_implementation()
    model.set_experts_implementation(DENSE)
    try:
        yield
    finally:
        model.set_experts_implementation(before)
