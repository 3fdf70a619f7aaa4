"""The network computes what transformers' GPT-OSS computes, forwards and backwards, whole and in parts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from goalscope.agents.models import LocalModel
from training.attention import attend, chunks
from training.layout import layout
from training.network import Places, Shape, export, forward, initialise

SMALL = Shape(width=32, layers=3, heads=4, key_heads=2, head_width=8, experts=4, active=2, expert_width=16)
VARIANTS = (
    SMALL,
    Shape(width=24, layers=2, heads=2, key_heads=2, head_width=8, experts=3, active=1, expert_width=8, theta=150000.0),
    Shape(width=32, layers=1, heads=4, key_heads=1, head_width=16, experts=2, active=2, expert_width=32),
)


def parameters(shape: Shape, noise: float = 0.2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    found = initialise(shape, generator)
    with torch.no_grad():
        for value in found.values():
            value.add_(torch.randn(value.shape, generator=generator), alpha=noise)
    return found


def reference(shape: Shape, values: dict[str, Tensor]) -> Any:
    from transformers import GptOssConfig, GptOssForCausalLM

    config = GptOssConfig(**shape.config())
    build: Any = GptOssForCausalLM._from_config
    model = build(config, attn_implementation="eager")
    model.load_state_dict({name: value.detach().clone() for name, value in values.items()}, strict=True)
    return model.float()


def tokens_of(batch: int, length: int) -> Tensor:
    """Draw tokens other than padding, whose embedding transformers does not train."""
    return torch.randint(1, 500, (batch, length), generator=torch.Generator().manual_seed(2))


def causal(length: int, first: int = 0) -> Places:
    return Places.of(torch.ones(length, length).tril().bool(), torch.arange(length), torch.arange(first, length))


@pytest.mark.parametrize("shape", VARIANTS)
def test_logits_and_gradients_are_those_of_transformers(shape: Shape) -> None:
    values, tokens = parameters(shape), tokens_of(2, 90)
    model = reference(shape, values)
    expected = model(tokens).logits
    found, _, _ = forward(values, shape, tokens, causal(90))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    expected.square().mean().backward()
    torch.autograd.backward(found.square().mean())
    for name, parameter in model.named_parameters():
        gradient = values[name].grad
        assert gradient is not None
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-4 * scale + 1e-9)


def test_large_values_are_clamped_as_in_transformers() -> None:
    values, tokens = parameters(SMALL, noise=2.0), tokens_of(2, 20)
    with torch.no_grad():
        expected = reference(SMALL, values)(tokens).logits
        found, _, _ = forward(values, SMALL, tokens, causal(20))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_the_last_block_can_be_left_out_where_nothing_is_wanted() -> None:
    values, tokens = parameters(SMALL), tokens_of(3, 50)
    with torch.no_grad():
        whole, _, _ = forward(values, SMALL, tokens, causal(50))
        part, _, _ = forward(values, SMALL, tokens, causal(50, first=33))
    torch.testing.assert_close(part, whole[:, 33:], rtol=1e-5, atol=1e-5)


def test_a_branch_is_read_as_if_it_stood_alone_behind_the_prompt() -> None:
    where = layout(7, 3, 2)
    values, tokens = parameters(SMALL), tokens_of(2, len(where.template))
    with torch.no_grad():
        together, _, _ = forward(values, SMALL, tokens, Places.of(where.allowed, where.positions, where.wanted))
        for places in where.branches:
            alone = torch.cat([tokens[:, : where.fork + 1], tokens[:, places]], dim=1)
            length = alone.shape[1]
            expected, _, _ = forward(values, SMALL, alone, causal(length, first=length - len(places)))
            torch.testing.assert_close(together[:, places - where.prompt + 1], expected, rtol=1e-4, atol=1e-4)


def test_attention_has_the_derivatives_of_automatic_differentiation() -> None:
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    query, key, value, sinks = drawn(2, 2, 2, 100, 4), drawn(2, 2, 130, 4), drawn(2, 2, 130, 4), drawn(2, 2)
    allowed = torch.ones(100, 130).tril(30).bool()
    allowed[80:, 50:60] = False

    def plain() -> Tensor:
        scores = torch.einsum("bkgrd,bksd->bkgrs", query, key).masked_fill(~allowed, float("-inf"))
        sink = sinks[None, :, :, None, None].expand(2, -1, -1, 100, -1)
        weights = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1]
        return torch.einsum("bkgrs,bksd->bkgrd", weights, value)

    found, expected = attend()(query, key, value, sinks, chunks(allowed)), plain()
    torch.testing.assert_close(found, expected)
    weight = drawn(*found.shape).detach()
    ours = torch.autograd.grad((found * weight).sum(), (query, key, value, sinks))
    theirs = torch.autograd.grad((expected * weight).sum(), (query, key, value, sinks))
    torch.testing.assert_close(ours, theirs)


def test_even_use_of_the_experts_counts_one() -> None:
    shape = Shape(width=32, layers=2, heads=2, key_heads=1, head_width=8, experts=2, active=2, expert_width=8)
    with torch.no_grad():
        _, _, even = forward(parameters(shape), shape, tokens_of(2, 30), causal(30))
        _, _, uneven = forward(parameters(SMALL, noise=1.0), SMALL, tokens_of(2, 30), causal(30))
    assert float(even) == pytest.approx(1.0)
    assert float(uneven) > 1


def test_an_exported_model_is_loaded_like_any_other(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    values = parameters(SMALL)
    export({**values, "auxiliary.bias": torch.zeros(3)}, SMALL, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    rounded = {name: value.detach().to(torch.bfloat16).float() for name, value in values.items()}
    tokens = tokens_of(2, 40)
    with torch.no_grad():
        expected, _, _ = forward(rounded, SMALL, tokens, causal(40))
        torch.testing.assert_close(model(tokens).logits, expected, rtol=1e-4, atol=1e-4)
    assert type(model).__name__ == "GptOssForCausalLM"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.config.pad_token_id == tokenizer.pad_token_id
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_the_control_of_initial_weights_is_what_training_begins_with() -> None:
    control = LocalModel("theseus", device="cpu", untrained=1, random_weights="initial").model
    config = control.config
    shape = Shape(
        width=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_width=config.head_dim,
        experts=config.num_local_experts,
        active=config.num_experts_per_tok,
        expert_width=config.intermediate_size,
        vocabulary=config.vocab_size,
    )
    begun = initialise(shape, torch.Generator().manual_seed(1))
    own = dict(control.named_parameters())
    assert set(own) <= set(begun)
    for name, value in own.items():
        assert torch.equal(value, begun[name]), name
