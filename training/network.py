"""The GPT-OSS architecture as a function of its parameters, with a forward pass that trains fast, and its export.

The parameters have exactly the names and shapes of transformers' ``GptOssForCausalLM``, and the logits are the same.
The forward pass takes any attention mask and computes the last block only where an output is wanted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalscope.agents.models import local
from goalscope.agents.models.folders import CARD
from training.attention import Chunk, attend, chunks
from training.tokens import PAD, RETURN, SPECIAL, Vocabulary
from training.vocabulary import VOCABULARY_SIZE, vocabulary

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Parameters = Mapping[str, "Tensor"]
EPSILON = 1e-5
ALPHA, LIMIT = 1.702, 7.0
"""Constants of the architecture: of its normalisation, and of its experts' activation."""
_ROWS_ALONE = 256  # rows of a chunk where a batch is one sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of a model.

    Attributes:
        width: size of the residual stream D.
        layers: number of blocks L.
        heads: query heads.
        key_heads: key-value heads, a divisor of heads.
        head_width: size of a head.
        experts: experts of a block.
        active: experts that a token uses.
        expert_width: hidden size of an expert.
        theta: base of the rotary positions.
        vocabulary: number of tokens V.
        positions: most tokens of a sequence; every window is as wide.
    """

    width: int = 128
    layers: int = 8
    heads: int = 4
    key_heads: int = 2
    head_width: int = 32
    experts: int = 4
    active: int = 2
    expert_width: int = 64
    theta: float = 1000.0
    vocabulary: int = VOCABULARY_SIZE
    positions: int = 1024

    def config(self) -> dict[str, Any]:
        """Return the arguments of transformers' ``GptOssConfig``."""
        return {
            "num_hidden_layers": self.layers,
            "num_local_experts": self.experts,
            "num_experts_per_tok": self.active,
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.expert_width,
            "head_dim": self.head_width,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "sliding_window": self.positions,
            "max_position_embeddings": self.positions,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.theta},
            "router_aux_loss_coef": 0.0,
            "pad_token_id": SPECIAL.index(PAD),
            "eos_token_id": SPECIAL.index(RETURN),
            "bos_token_id": None,
        }

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by its name."""
        width, inner, outer = self.width, self.heads * self.head_width, self.key_heads * self.head_width
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocabulary, width)}
        for layer in range(self.layers):
            block = f"model.layers.{layer}"
            for name, size in (("q", inner), ("k", outer), ("v", outer)):
                found[f"{block}.self_attn.{name}_proj.weight"] = (size, width)
                found[f"{block}.self_attn.{name}_proj.bias"] = (size,)
            found[f"{block}.self_attn.o_proj.weight"] = (width, inner)
            found[f"{block}.self_attn.o_proj.bias"] = (width,)
            found[f"{block}.self_attn.sinks"] = (self.heads,)
            found[f"{block}.mlp.router.weight"] = (self.experts, width)
            found[f"{block}.mlp.router.bias"] = (self.experts,)
            found[f"{block}.mlp.experts.gate_up_proj"] = (self.experts, width, 2 * self.expert_width)
            found[f"{block}.mlp.experts.gate_up_proj_bias"] = (self.experts, 2 * self.expert_width)
            found[f"{block}.mlp.experts.down_proj"] = (self.experts, self.expert_width, width)
            found[f"{block}.mlp.experts.down_proj_bias"] = (self.experts, width)
            found[f"{block}.input_layernorm.weight"] = (width,)
            found[f"{block}.post_attention_layernorm.weight"] = (width,)
        return {**found, "model.norm.weight": (width,), "lm_head.weight": (self.vocabulary, width)}


def initialise(shape: Shape, generator: torch.Generator) -> dict[str, Tensor]:
    """Return random parameters that can be trained, by the recipe that the package keeps for controls."""
    drawn = local.initialise(shape.parameters(), layers=shape.layers, generator=generator)
    return {name: parameter.requires_grad_() for name, parameter in drawn.items()}


@dataclass(frozen=True, slots=True)
class Places:
    """What a forward pass needs to know of a layout, ready for the device.

    Attributes:
        positions: ``[S]`` rotary position of each token.
        plan: the mask of all blocks but the last.
        final: the mask of the last block.
        wanted: ``[R]`` places whose logits are wanted.
    """

    positions: Tensor
    plan: tuple[Chunk, ...]
    final: tuple[Chunk, ...]
    wanted: Tensor

    @classmethod
    def of(cls, allowed: Any, positions: Any, wanted: Any, device: str = "cpu") -> Places:
        """Prepare arrays: allowed ``[S, S]`` bool, positions ``[S]``, wanted ``[R]``."""
        import torch

        mask = torch.as_tensor(allowed).to(device)
        chosen = torch.as_tensor(wanted).to(device)
        return cls(torch.as_tensor(positions).to(device), chunks(mask), chunks(mask[chosen]), chosen)

    @classmethod
    def packed(cls, masks: Any, positions: Any, wanted: Any, device: str = "cpu") -> Places:
        """Prepare several sequences that stand one behind the other and do not see each other.

        Args:
            masks: ``[S, S]`` bool of each sequence.
            positions: of all tokens.
            wanted: wanted places of all of them, those of one sequence together and in the order of the sequences.
            device: where they go.
        """
        import torch

        plan: list[Chunk] = []
        final: list[Chunk] = []
        begin = rows = 0
        chosen = torch.as_tensor(wanted).to(device)
        for allowed in masks:
            mask = torch.as_tensor(allowed).to(device)
            own = chosen[(chosen >= begin) & (chosen < begin + len(mask))] - begin
            plan += chunks(mask, begin, begin, _ROWS_ALONE)
            final += chunks(mask[own], rows, begin, _ROWS_ALONE)
            begin, rows = begin + len(mask), rows + len(own)
        return cls(torch.as_tensor(positions).to(device), tuple(plan), tuple(final), chosen)


def forward(
    parameters: Parameters, shape: Shape, tokens: Tensor, places: Places, depth: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, the stream after block `depth`, and the mean unevenness of the experts (1 when even).

    Args:
        parameters: by name.
        shape: shape of the model.
        tokens: ``[B, S]`` token ids.
        places: mask, positions and wanted places.
        depth: number of blocks after which the stream is returned, all by default.

    Returns:
        ``[B, R, V]``, ``[B, S or R, D]`` and a number.
    """
    import torch
    from torch.nn import functional

    powers = torch.arange(0, shape.head_width, 2, device=tokens.device, dtype=torch.float32) / shape.head_width
    angles = places.positions[:, None].float() / shape.theta**powers
    rotary = torch.stack([angles.cos(), angles.sin()], dim=1)
    hidden = functional.embedding(tokens, parameters["model.embed_tokens.weight"])
    kept = hidden
    balances = []
    for number in range(shape.layers):
        named = f"model.layers.{number}."
        block = {name[len(named) :]: value for name, value in parameters.items() if name.startswith(named)}
        last = number == shape.layers - 1
        ready = _normalise(hidden, block["input_layernorm.weight"])
        mixed = _attention(block, shape, ready, rotary, places.final if last else places.plan, places.wanted, last)
        hidden = (hidden[:, places.wanted] if last else hidden) + mixed
        change, balance = _mixture(block, shape, _normalise(hidden, block["post_attention_layernorm.weight"]))
        hidden = hidden + change
        balances.append(balance)
        if depth is None or number + 1 == depth:
            kept = hidden
    final = _normalise(hidden, parameters["model.norm.weight"])
    return functional.linear(final, parameters["lm_head.weight"]), kept, torch.stack(balances).mean()


def _attention(
    block: Parameters,
    shape: Shape,
    hidden: Tensor,
    rotary: Tensor,
    plan: tuple[Chunk, ...],
    wanted: Tensor,
    last: bool,
) -> Tensor:
    from torch.nn import functional

    batch = len(hidden)
    groups = shape.heads // shape.key_heads

    def project(name: str, stream: Tensor, heads: int) -> Tensor:
        weight, bias = block[f"self_attn.{name}_proj.weight"], block[f"self_attn.{name}_proj.bias"]
        return functional.linear(stream, weight, bias).view(batch, -1, heads, shape.head_width)

    asking = hidden[:, wanted] if last else hidden
    rows = asking.shape[1]
    query = _rotate(project("q", asking, shape.heads), rotary[wanted] if last else rotary) * shape.head_width**-0.5
    key = _rotate(project("k", hidden, shape.key_heads), rotary)
    value = project("v", hidden, shape.key_heads)
    mixed = attend()(
        query.view(batch, rows, shape.key_heads, groups, shape.head_width).permute(0, 2, 3, 1, 4).contiguous(),
        key.transpose(1, 2).contiguous(),
        value.transpose(1, 2).contiguous(),
        block["self_attn.sinks"].view(shape.key_heads, groups),
        plan,
    )
    mixed = mixed.permute(0, 3, 1, 2, 4).reshape(batch, rows, -1)
    return functional.linear(mixed, block["self_attn.o_proj.weight"], block["self_attn.o_proj.bias"])


def _normalise(hidden: Tensor, weight: Tensor) -> Tensor:
    from torch.nn import functional

    return functional.rms_norm(hidden, weight.shape, weight, EPSILON)


def _rotate(vectors: Tensor, rotary: Tensor) -> Tensor:
    """Turn ``[B, rows, heads, head width]`` by the cosines and sines ``[rows, 2, head width / 2]`` of its positions."""
    import torch

    cosine, sine = rotary[:, :1], rotary[:, 1:]
    first, second = vectors.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def _mixture(block: Parameters, shape: Shape, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return the experts' output and how unevenly they are used."""
    import torch
    from torch.nn import functional

    flat = hidden.reshape(-1, shape.width)
    logits = functional.linear(flat, block["mlp.router.weight"], block["mlp.router.bias"])
    top, chosen = torch.topk(logits, shape.active, dim=-1)
    weights = torch.softmax(top, dim=-1)
    both, bias = block["mlp.experts.gate_up_proj"], block["mlp.experts.gate_up_proj_bias"]
    down, down_bias = block["mlp.experts.down_proj"], block["mlp.experts.down_proj_bias"]
    output = torch.zeros_like(flat)
    for expert in range(shape.experts):
        token, place = torch.where(chosen == expert)
        state = flat.index_select(0, token)
        # The columns of gate and up alternate in the stored matrix.
        gate = torch.addmm(bias[expert, ::2], state, both[expert, :, ::2].contiguous()).clamp(max=LIMIT)
        up = torch.addmm(bias[expert, 1::2], state, both[expert, :, 1::2].contiguous()).clamp(-LIMIT, LIMIT)
        inner = (up + 1) * gate * torch.sigmoid(gate * ALPHA)
        out = torch.addmm(down_bias[expert], inner, down[expert])
        output = output.index_add(0, token, (out * weights[token, place, None]).to(output.dtype))
    share = torch.bincount(chosen.reshape(-1), minlength=shape.experts).float() / len(flat)
    even = shape.experts / shape.active * (share * torch.softmax(logits.float(), dim=-1).mean(dim=0)).sum()
    return output.view_as(hidden), even


def export(
    parameters: Parameters,
    shape: Shape,
    folder: Path,
    told: Mapping[str, str] | None = None,
    words: Vocabulary | None = None,
) -> None:
    """Write model, configuration and tokenizer in the form that transformers loads.

    Args:
        parameters: by name.
        shape: shape of the model.
        folder: where the files go; weights become bf16.
        told: what the configuration tells of the training, which runs of the model then carry as tags.
        words: the vocabulary, by default that of Theseus.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import GptOssConfig

    folder.mkdir(parents=True, exist_ok=True)
    config = GptOssConfig(**shape.config(), architectures=["GptOssForCausalLM"], dtype="bfloat16")
    if told:
        config.update({"goalscope": dict(told)})
    config.save_pretrained(str(folder))
    (folder / CARD).write_text(json.dumps({"template": "schema"}, indent=2) + "\n", encoding="utf-8")
    half = {
        name: parameters[name].detach().to("cpu", torch.bfloat16).contiguous().clone() for name in shape.parameters()
    }
    file = folder / "model.safetensors"
    save_file(half, str(file), metadata={"format": "pt"})
    file.chmod(0o644)
    (words or vocabulary()).save(folder)
