"""Faster exact versions of what transformers computes for GPT-OSS: attention, experts, and a whole forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

# Faster blocks for GPT-OSS-class models; their results equal those of transformers up to rounding.
#
# Attention: transformers repeats keys and values for each query head, which takes most of the time of a decode step
# and, for GPT-OSS-20B, eight times the memory traffic. Here, the query heads of a group are rows of one matrix
# product. Many tokens at once in float32 or bfloat16 use PyTorch's fused attention, which never stores the scores
# and is four to ten times faster on a CPU. Long texts are processed in blocks of rows, each with its own mask, so
# that memory grows with the length of a text and not with its square. A sliding window reads only the columns inside
# it.
#
# Experts: transformers sorts tokens by expert, which takes about thirty small operations per layer. If few experts
# are left out, computing all experts for every token takes only two matrix products.

NAME: Final = "goalscope_grouped"
DENSE: Final = "goalscope_dense"
KINDS: Final = ("gpt_oss",)
"""Model types whose attention is exactly the one implemented below."""


MOST_MASK: Final = 1 << 22  # maximum entries of a mask that is built at once
_STEP: Final = 2048  # columns are rounded up to multiples, since blocks of many sizes would fragment memory
MOST_SCORES: Final = {"cpu": 1 << 24, "cuda": 1 << 26}  # maximum scores per block, about 14 bytes each


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LongMask:
    """An attention mask for long texts, which is built in blocks of rows so that the whole mask is never in memory.

    It is defined by the arguments of `transformers.masking_utils.eager_mask`.
    """

    arguments: dict[str, Any]

    def block(self, first: int, end: int, device: Any) -> tuple[Any, int, int]:
        """Build the mask for the query tokens ``first`` to ``end``, without the columns that are hidden from all of
        them.

        Returns:
            The mask ``[B, 1, end - first, columns]`` (batch, one for all heads, query tokens, key tokens), and the
            first and the end of its columns among all columns.
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
    """Build the mask that is added to the attention scores; a `LongMask` if the complete mask would be large.

    Args:
        arguments: those of `transformers.masking_utils.eager_mask`.
    """
    from transformers.masking_utils import eager_mask

    entries = arguments["batch_size"] * arguments["q_length"] * arguments["kv_length"]
    return LongMask(arguments=arguments) if entries > MOST_MASK else eager_mask(**arguments)


def grouped_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float, **others: Any
) -> tuple[Any, Any]:
    """Compute the attention of a GPT-OSS block without repeating keys and values for each query head.

    Here B is the batch, T the number of query tokens, and columns are key tokens.

    Args:
        module: the attention block; its sinks take part in each softmax and add no value.
        query: ``[B, heads, T, width]``; the query heads of one group are adjacent.
        key: ``[B, groups, columns, width]``.
        value: ``[B, groups, columns, width]``.
        attention_mask: ``[B, 1, T, columns]``, which is added to the scores and already contains the sliding window; or
            a `LongMask`.
        scaling: factor of the scores.
        others: further arguments of transformers, which are not used.

    Returns:
        Outputs ``[B, T, heads, width]`` and attention weights ``[B, heads, T, columns]``; the weights are None if the
        fused kernel or several blocks were used.
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
    """Compute attention for some query tokens of a GPT-OSS block in one piece; see `grouped_attention` for shapes and
    results.

    Args:
        query: ``[B, heads, T, width]``.
        key: ``[B, groups, columns, width]``.
        value: ``[B, groups, columns, width]``.
        mask: ``[B, 1, T, columns]``, which is added to the scores, or None.
        scaling: factor of the scores.
        sinks: ``[heads]`` logits that take part in each softmax and add no value.
        fused: whether to use PyTorch's fused kernel, which returns no attention weights.
    """
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
    """Make a transformers model compute attention with the faster `grouped_attention`, if its type allows this.

    Returns:
        Whether the model uses it now; False for other types of models or other attention implementations.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    config = model.config
    if config.model_type not in KINDS or config._attn_implementation not in ("eager", NAME):
        return False
    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, long_mask)
    model.set_attn_implementation(NAME)
    return True


def dense_experts(module: Any, hidden: Any, indices: Any, weights: Any) -> Any:
    """Compute a mixture of E experts by passing each of N tokens through all experts; faster if few experts are left
    out.

    Args:
        module: the experts, with weights ``[E, d, 2 f]`` and ``[E, f, d]``, where d and f are the widths of the
            residual stream and of an expert.
        hidden: ``[N, d]`` inputs.
        indices: ``[N, K]`` the K experts of each token.
        weights: ``[N, K]`` their weights; all other experts have weight 0.

    Returns:
        ``[N, d]`` outputs.
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
    """Context in which a GPT-OSS model on a CPU computes its experts with `dense_experts`.

    Nothing changes on a GPU, for other types of models, or for models whose tokens skip more experts than they use.
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


# The forward pass of a small GPT-OSS-class model as one function, without the overhead of its modules.
#
# On a CPU, a pass through a model of a few million parameters is mostly Python overhead in transformers: wrappers
# around each module, masks built by general code, and about sixty small operations per layer. Here, masks are built
# once per pass, and one matrix product computes queries, keys and values. Another computes both halves of the
# experts' gates. The last layer computes only keys and values for tokens whose logits are not needed. The results
# equal those of the modules up to rounding.

SMALL: Final = 30_000_000
"""Number of parameters below which one thread computes a model."""

_BLOCK: Final = 64  # query tokens per block; no token of a block attends to columns after the block
_FEW: Final = 128  # up to so many tokens, computing all experts is faster than selecting the tokens of each expert


def direct(model: Any) -> "DirectPass | None":
    """Return a faster forward pass for a small GPT-OSS model; None if the model's own modules must be called.

    The modules must be called for other types of models, numbers other than float32, on a GPU, for a larger model, if a
    token skips more experts than it uses, and while a hook observes or changes a module.
    """
    import torch

    config, parameters = model.config, list(model.parameters())
    if config.model_type not in KINDS or config._attn_implementation != NAME or model.training:
        return None
    if any(parameter.dtype != torch.float32 or parameter.device.type != "cpu" for parameter in parameters):
        return None
    if (
        sum(parameter.numel() for parameter in parameters) >= SMALL
        or config.num_local_experts > 2 * config.num_experts_per_tok
    ):
        return None
    # Adapters and quantised layers replace the modules below, so their types are checked.
    if any(type(module).__module__.split(".")[0] not in ("torch", "transformers") for module in model.modules()):
        return None
    return None if has_hooks(model) else DirectPass(model)


def has_hooks(model: Any) -> bool:
    """Return whether any module of a model has a hook, a function that observes or changes its forward passes."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return any(getattr(module, name, None) for module in model.modules() for name in hooks)


class DirectPass:
    """Forward pass of a small GPT-OSS model without the overhead of its modules; equal to theirs up to rounding.

    The weights are rearranged when the object is built, so it must be built again after they change.
    """

    def __init__(self, model: Any) -> None:
        body, config = model.model, model.config
        self._embedding, self._norm, self._head = body.embed_tokens.weight, body.norm, model.lm_head.weight
        self._rotary, self._window = body.rotary_emb, config.sliding_window
        self._layers = [_Layer(layer, config) for layer in body.layers]
        self._sliding = [kind == "sliding_attention" for kind in config.layer_types]

    def __call__(self, ids: Any, dead: Any, positions: Any, cache: Any, before: int, *, all_columns: bool) -> Any:
        """Return the logits of the last token ``[B, V]``, or of every token ``[B, T, V]``.

        Args:
            ids: ``[B, T]`` tokens.
            dead: ``[B]`` number of unused columns at the left of each row; None if there are none.
            positions: ``[B, T]``.
            cache: the transformers cache, to which keys and values are added.
            before: number of columns that the cache already covers.
            all_columns: whether to return the logits of all tokens.
        """
        from torch.nn.functional import embedding, linear

        hidden = embedding(ids, self._embedding)
        cos, sin = (table[:, None] for table in self._rotary(hidden, positions))
        full = _mask(ids.shape[1], before, dead, None, hidden)
        slides = self._window is not None and before + ids.shape[1] > self._window
        sliding = _mask(ids.shape[1], before, dead, self._window, hidden) if slides else full
        for number, layer in enumerate(self._layers):
            mask = sliding if self._sliding[number] else full
            columns = 1 if layer is self._layers[-1] and not all_columns else ids.shape[1]
            hidden = layer(hidden, cos, sin, mask, partial(cache.update, layer_idx=number), columns)
        hidden = _normed(hidden if all_columns else hidden[:, -1], self._norm)
        return linear(hidden, self._head)


class _Layer:
    """One layer, with its modules' weights rearranged for few matrix products."""

    def __init__(self, layer: Any, config: Any) -> None:
        import torch

        block, self._experts = layer.self_attn, layer.mlp.experts
        self._before, self._after = layer.input_layernorm, layer.post_attention_layernorm
        self._router = layer.mlp.router
        parts = (block.q_proj, block.k_proj, block.v_proj)
        self._weight = torch.cat([part.weight for part in parts])
        self._bias = torch.cat([part.bias for part in parts]) if block.q_proj.bias is not None else None
        self._out, self._sinks, self._scaling = block.o_proj, block.sinks, block.scaling
        self._width, self._heads = block.head_dim, config.num_attention_heads
        self._groups = config.num_key_value_heads
        experts = self._experts
        # Gates and gated values alternate in the columns; separating them makes each contiguous.
        halves = [experts.gate_up_proj[..., offset::2] for offset in (0, 1)]
        self._gate_up = torch.cat(halves, dim=-1).transpose(0, 1).reshape(experts.hidden_size, -1).contiguous()
        biases = [experts.gate_up_proj_bias[..., offset::2] for offset in (0, 1)]
        self._gate_up_bias = torch.cat(biases, dim=-1).reshape(-1)

    def __call__(self, hidden: Any, cos: Any, sin: Any, mask: Any, update: Any, columns: int) -> Any:
        """Return the outputs ``[B, wanted, d]`` for the last ``columns`` tokens."""
        from torch.nn.functional import linear

        batch, count, _ = hidden.shape
        heads, groups = self._heads, self._groups
        mixed = linear(_normed(hidden, self._before), self._weight, self._bias)
        mixed = mixed.view(batch, count, heads + 2 * groups, self._width).transpose(1, 2)
        turned = _turned(mixed[:, : heads + groups], cos, sin)
        keys, values = update(turned[:, heads:], mixed[:, heads + groups :])
        mask = mask if mask is None else mask[:, :, -columns:, -keys.shape[2] :]  # sliding layers drop old columns
        attention = _attended(turned[:, :heads, -columns:], keys, values, mask, self._scaling, self._sinks)
        hidden = hidden[:, -columns:] + linear(attention, self._out.weight, self._out.bias)
        flat = _normed(hidden, self._after).flatten(0, 1)
        return hidden + self._mixture(flat).view(hidden.shape)

    def _mixture(self, flat: Any) -> Any:
        """Return the output of the experts ``[N, d]``: of all experts for few tokens, else of each token's experts."""
        import torch
        from torch.nn.functional import linear

        experts, router = self._experts, self._router
        largest, chosen = torch.topk(linear(flat, router.weight, router.bias), router.top_k, dim=-1)
        shares = flat.new_zeros(len(flat), experts.num_experts).scatter_(1, chosen, torch.softmax(largest, dim=-1))
        biases = shares @ experts.down_proj_bias
        if len(flat) <= _FEW:
            gate_and_up = torch.addmm(self._gate_up_bias, flat, self._gate_up).view(len(flat), experts.num_experts, -1)
            active = self._gated(gate_and_up).mul_(shares[:, :, None]).view(len(flat), -1)
            return torch.addmm(biases, active, experts.down_proj.flatten(0, 1))
        parts = (stacked.chunk(experts.num_experts, dim=-1) for stacked in (self._gate_up_bias, self._gate_up))
        for number, (bias, weight) in enumerate(zip(*parts, strict=True)):
            tokens = shares[:, number].nonzero()[:, 0]
            active = self._gated(torch.addmm(bias, flat[tokens], weight)).mul_(shares[tokens, number, None])
            biases.index_add_(0, tokens, active @ experts.down_proj[number])
        return biases

    def _gated(self, gate_and_up: Any) -> Any:
        """Return the gated values ``[..., f]`` from gates and values ``[..., 2 f]``, which are overwritten."""
        gate, up = gate_and_up.chunk(2, dim=-1)
        gate.clamp_(max=self._experts.limit)
        up = up.clamp(min=-self._experts.limit, max=self._experts.limit).add_(1).mul_(gate)
        return up.mul_(gate.mul_(self._experts.alpha).sigmoid_())


def _attended(query: Any, key: Any, value: Any, mask: Any, scaling: float, sinks: Any) -> Any:
    """Return the outputs of attention ``[B, T, heads width]``, see `goalscope.agents.models._fast.grouped_attention`.

    PyTorch's attention, which has no sinks, also returns log Z, the logarithm of the sum of all exp(score). With a sink
    s, the sum is Z + exp(s), so outputs are multiplied by Z / (Z + exp(s)) = sigmoid(log Z - s).
    """
    import torch

    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    batch, heads, count, width = query.shape
    groups, before = key.shape[1], key.shape[2] - count
    parts = []
    for first in range(0, count, _BLOCK):
        end = min(first + _BLOCK, count)
        # The query heads of a group become rows of one head.
        rows = query[:, :, first:end].reshape(batch, groups, -1, width)
        hidden = None if mask is None else mask[:, :, first:end, : before + end]
        if hidden is not None:  # the rows of one query token can share the memory of its mask
            copied = end - first > 1
            hidden = hidden.repeat(1, 1, heads // groups, 1) if copied else hidden.expand(-1, -1, heads // groups, -1)
        columns = (key[:, :, : before + end], value[:, :, : before + end])
        mixed, mass = attention(rows, *columns, 0.0, False, attn_mask=hidden, scale=scaling)
        shares = torch.sigmoid(mass - sinks.repeat_interleave(end - first).view(groups, -1))
        parts.append((mixed * shares[..., None]).view(batch, heads, end - first, width))
    return torch.cat(parts, dim=2).transpose(1, 2).reshape(batch, count, -1)


def _normed(hidden: Any, norm: Any) -> Any:
    from torch.nn.functional import rms_norm

    return rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _turned(heads: Any, cos: Any, sin: Any) -> Any:
    """Return queries and keys ``[B, heads, T, width]`` rotated by the angles of their positions."""
    import torch

    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _mask(count: int, before: int, dead: Any, window: int | None, like: Any) -> Any:
    """Return the mask that is added to the scores, ``[1 or B, 1, T, columns]``; None if no column is hidden."""
    import torch

    if count == 1 and window is None and dead is None:
        return None
    rows, columns = torch.arange(before, before + count)[:, None], torch.arange(before + count)[None]
    seen = columns <= rows
    if window is not None:
        seen = seen & (columns > rows - window)
    seen = seen[None] if dead is None else seen[None] & (columns >= dead[:, None])[:, None]
    return torch.zeros_like(seen, dtype=like.dtype).masked_fill_(~seen, torch.finfo(like.dtype).min)[:, None]
