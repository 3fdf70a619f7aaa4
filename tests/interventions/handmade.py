"""Models whose action is computed along a known path: Llama blocks with weights written by hand.

A prompt is an input token, fillers, the site and a last token. The input is A or B, +1 or -1 in dimension CODE. A move
lets one kind of token attend to another in one block and adds some of its dimensions to its own; a product lets the MLP
of a block add products of a token's dimensions to one of them. The next token is UP or DOWN by the sign of a weighted
sum of the last token's dimensions. All other weights are 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tiny_models import tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from goalscope.agents.models import LocalModel

VOCABULARY, WIDTH = 128, 32
A, B, SITE, LAST, FILLER, UP, DOWN, JUNK = 10, 11, 12, 13, 14, 15, 16, 40
CONSTANT, IS_INPUT, IS_SITE, IS_LAST, CODE = range(5)
FIRST, SECOND, THIRD, READ = range(5, 9)
_UNROTATED = 15  # of the first half of a head's dimensions, the one that positions turn least
_SHARP = 60.0


@dataclass(frozen=True, kw_only=True)
class Move:
    """In block `layer`, tokens marked `to` add dimensions of the token marked `source` to their own."""

    layer: int
    to: int
    source: int
    dims: Mapping[int, int]  # from -> into
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Product:
    """In block `layer`, each token adds `weight` times the sum of products of pairs of its dimensions to one of them.

    The products are of what the norm before the MLP leaves of the dimensions.
    """

    layer: int
    factors: Sequence[tuple[int, int]]
    into: int
    weight: float


def handmade(
    moves: Sequence[Move],
    layers: int,
    readout: Mapping[int, float],
    *,
    junk: torch.Tensor | None = None,
    products: Sequence[Product] = (),
    reader: Any = None,
) -> LocalModel:
    """Return a model with these moves and products.

    Args:
        moves, layers, readout: its path.
        junk: ``[N, D]`` embeddings of further tokens, from `JUNK` on.
        products: what its MLPs compute.
        reader: its tokenizer; by default one of which only the ids count.
    """
    config = LlamaConfig(
        num_hidden_layers=layers, vocab_size=max(VOCABULARY, JUNK + (0 if junk is None else len(junk))),
        hidden_size=WIDTH, intermediate_size=2 * max([2, *(len(one.factors) for one in products)]),
        num_attention_heads=1, num_key_value_heads=1, head_dim=WIDTH, max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1e12}, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    model.eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.fill_(1.0 if "norm" in name else 0.0)
        table = model.model.embed_tokens.weight
        table[:, CONSTANT] = 1.0
        for token, marks in {
            A: {IS_INPUT: 1.0, CODE: 1.0}, B: {IS_INPUT: 1.0, CODE: -1.0}, SITE: {IS_SITE: 1.0}, LAST: {IS_LAST: 1.0},
        }.items():  # fmt: skip
            for dim, value in marks.items():
                table[token, dim] = value
        if junk is not None:
            table[JUNK : JUNK + len(junk)] = junk
        for move in moves:
            attention = model.model.layers[move.layer].self_attn
            attention.q_proj.weight[_UNROTATED, move.to] = _SHARP
            attention.k_proj.weight[_UNROTATED, move.source] = _SHARP
            for at, (source, into) in enumerate(move.dims.items()):
                attention.v_proj.weight[at, source] = 1.0
                attention.o_proj.weight[into, at] = move.weight
        for product in products:
            _multiply(model.model.layers[product.layer].mlp, product)
        for dim, weight in readout.items():
            model.lm_head.weight[UP, dim] += weight
            model.lm_head.weight[DOWN, dim] -= weight
    return LocalModel.from_parts(model, reader or tokenizer(), name="handmade", reasoning="think" if reader else "auto")


def _multiply(mlp: Any, product: Product) -> None:
    """Write a product as (c + a) b - (c - a) b: where c is large, the gate's SiLU is the identity."""
    for at, (one, other) in enumerate(product.factors):
        for unit, sign in ((2 * at, 1.0), (2 * at + 1, -1.0)):
            mlp.gate_proj.weight[unit, CONSTANT] = _SHARP
            mlp.gate_proj.weight[unit, one] = sign
            mlp.up_proj.weight[unit, other] = 1.0
            mlp.down_proj.weight[product.into, unit] = sign * product.weight / 2


def linear() -> LocalModel:
    """The site is told the code in block 1, the last token reads it in block 4: both in one block each."""
    moves = [
        Move(layer=1, to=IS_SITE, source=IS_INPUT, dims={CODE: FIRST}),
        Move(layer=4, to=IS_LAST, source=IS_SITE, dims={FIRST: READ}),
    ]
    return handmade(moves, 6, {READ: 1.0})


def spread() -> LocalModel:
    """Less than half of the code is written in block 1, the rest in block 2; both are read in block 4."""
    moves = [
        Move(layer=1, to=IS_SITE, source=IS_INPUT, dims={CODE: FIRST}, weight=0.4),
        Move(layer=2, to=IS_SITE, source=IS_INPUT, dims={CODE: SECOND}, weight=0.6),
        Move(layer=4, to=IS_LAST, source=IS_SITE, dims={FIRST: READ, SECOND: THIRD}),
    ]
    return handmade(moves, 6, {READ: 1.0, THIRD: 1.0})


def redundant() -> LocalModel:
    """Three times the code is written anew and read in the next block; two of three reads decide."""
    moves = []
    for at, dim in enumerate((FIRST, SECOND, THIRD)):
        moves.append(Move(layer=1 + 2 * at, to=IS_SITE, source=IS_INPUT, dims={CODE: dim}))
        moves.append(Move(layer=2 + 2 * at, to=IS_LAST, source=IS_SITE, dims={dim: READ + at}))
    return handmade(moves, 8, {READ: 0.4, READ + 1: 1.0, READ + 2: 1.15})  # earlier reads are larger: three equal votes


def prompt(code: int, site: int = SITE) -> list[int]:
    """Return the ids of a prompt: the input at 1, the site at 4."""
    return [FILLER, code, FILLER, FILLER, site, FILLER, LAST]
