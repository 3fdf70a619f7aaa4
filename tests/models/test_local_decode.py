"""Lockstep decoding yields what each request would yield alone."""

import gc
from collections.abc import Sequence
from functools import wraps
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
import torch
from determinism import MARGIN
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import gpt_oss, llama
from transformers import DynamicCache, GptOssConfig, Qwen3NextConfig
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from families import long_after
from goalscope._ground.rng import stream
from goalscope.agents.models import _fast
from goalscope.agents.models._fast import all_experts, use_grouped_attention
from goalscope.agents.models.decode import Decoded, Decoding, score
from goalscope.agents.models.decode import decode as decode_batch
from goalscope.agents.models.reading import CacheRows, check_layers, common_prefix, enter, rearrange

STOP = frozenset(range(1, 128, 9))  # many, so that rows leave at different times
MODELS = {"gpt-oss": gpt_oss(), "gpt-oss, window 8": gpt_oss(8, seed=1), "llama": llama()}


def prompts(count: int = 16, *, seed: int = 0, prefix: int = 25, longest: int = 40) -> list[list[int]]:
    """Prompts with a shared beginning, shorter and longer than the sliding windows."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(2, 100, prefix).tolist()
    return [shared + rng.integers(2, 100, int(more)).tolist() for more in rng.integers(1, longest, count)]


def decode(model: Any, given: Sequence[Sequence[int]], **changes: Any) -> list[Decoded]:
    settings = Decoding(**{"temperature": 0.0, "max_tokens": 14, "stop": STOP, "margins": True, **changes})
    return decode_batch(model, settings, given, [stream(0, "sample", index) for index in range(len(given))])


def assert_same(first: Sequence[Decoded], second: Sequence[Decoded]) -> None:
    """Equal tokens, except after a draw so close that rounding may decide it; such draws must stay rare."""
    close = 0
    for one, other in zip(first, second, strict=True):
        for index, (left, right) in enumerate(zip(one.tokens, other.tokens, strict=False)):
            if left != right:
                assert min(one.margins[index], other.margins[index]) <= MARGIN
                close += 1
                break
        else:
            assert one.tokens == other.tokens
            assert one.finish == other.finish
    assert close <= len(first) // 10


@pytest.mark.parametrize("name", long_after(1, MODELS))
def test_greedy_lockstep_equals_generate(name: str) -> None:
    model, given = MODELS[name], prompts(5)
    assert any(len(prompt) > 2 * 16 for prompt in given)
    for prompt, output in zip(given, decode(model, given), strict=True):
        alone = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=14,
            eos_token_id=sorted(STOP),
        )[0, len(prompt) :].tolist()
        assert_same([output], [Decoded(tokens=alone, finish=output.finish, margins=[0.1] * len(alone))])


@pytest.mark.parametrize("name", long_after(1, MODELS))
@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.full), 0.7])
def test_batch_equals_single_whoever_enters_and_leaves(name: str, temperature: float) -> None:
    given = prompts(12)
    together = decode(MODELS[name], given, temperature=temperature)
    lengths = {len(output.tokens) for output in together}
    assert len(lengths) > 3, "rows must leave at different times for this test to mean something"
    for changes in (
        {"slots": 1, "share_prefix": False},
        {"slots": 4, "prefill_tokens": 30},
        {"share_prefix": False},
    ):
        assert_same(together, decode(MODELS[name], given, temperature=temperature, **changes))


@pytest.mark.parametrize("window", [8, 1024])
def test_grouped_attention_equals_the_reference(window: int) -> None:
    ids = torch.tensor([prompt[:26] for prompt in prompts(5)])
    mask = torch.ones_like(ids)
    mask[1, :7] = 0
    positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
    model = gpt_oss(window)
    with torch.no_grad():
        reference = model(ids, attention_mask=mask, position_ids=positions).logits
        assert use_grouped_attention(model)
        grouped = model(ids, attention_mask=mask, position_ids=positions).logits
        assert model.config._attn_implementation == "goalscope_grouped"
    alive = mask.bool()
    assert not torch.equal(reference, grouped), "another implementation rounds differently somewhere"
    torch.testing.assert_close(grouped[alive], reference[alive], rtol=1e-5, atol=1e-5)
    assert_same(decode(gpt_oss(window), prompts(8), temperature=0.7), decode(model, prompts(8), temperature=0.7))
    assert not use_grouped_attention(llama())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [8, 1024])
def test_blocks_of_rows_and_their_masks_change_rounding_alone(
    window: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.tensor([prompt[:26] for prompt in prompts(5)])
    mask = torch.ones_like(ids)
    mask[1, :7] = 0
    positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
    model = gpt_oss(window).to(dtype)
    assert use_grouped_attention(model)
    with torch.no_grad():
        whole = model(ids, attention_mask=mask, position_ids=positions).logits
        monkeypatch.setattr(_fast, "MOST_MASK", 10)
        monkeypatch.setattr(_fast, "MOST_SCORES", {"cpu": 2000, "cuda": 2000})
        monkeypatch.setattr(_fast, "_STEP", 4)
        attended, computed = _fast.attended, list[int]()

        def spied(query: Any, *others: Any) -> Any:
            computed.append(query.shape[2])
            return attended(query, *others)

        monkeypatch.setattr(_fast, "attended", spied)
        blocks = model(ids, attention_mask=mask, position_ids=positions).logits
        cache = model(ids[:, :11], attention_mask=mask[:, :11], position_ids=positions[:, :11]).past_key_values
        rest = model(ids[:, 11:], attention_mask=mask, position_ids=positions[:, 11:], past_key_values=cache).logits
    assert max(computed) < 11, "texts are read in blocks of rows"
    alive, near = mask.bool(), 1e-5 if dtype == torch.float32 else 0.15
    torch.testing.assert_close(blocks[alive], whole[alive], rtol=near, atol=near)
    torch.testing.assert_close(rest[alive[:, 11:]], whole[:, 11:][alive[:, 11:]], rtol=near, atol=near)


def test_fused_attention_in_bfloat16_is_no_farther_from_float32_than_stored_scores() -> None:
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(2, heads, 160, 24, generator=generator).bfloat16() for heads in (8, 2, 2))
    sinks = (4 * torch.randn(8, generator=generator)).bfloat16()  # large ones, which rounding would change most
    hidden = torch.triu(torch.ones(160, 160, dtype=torch.bool), 1)
    mask = torch.zeros(1, 1, 160, 160).masked_fill(hidden, torch.finfo(torch.bfloat16).min).bfloat16()
    exact = _fast.attended(*(part.double() for part in (query, key, value)), mask.double(), 0.2, sinks.double(), False)
    errors = [
        (_fast.attended(query, key, value, mask, 0.2, sinks, fused)[0].double() - exact[0]).abs().mean()
        for fused in (True, False)
    ]
    assert 0 < errors[0] <= errors[1] < 0.01


@pytest.mark.parametrize("tokens", [1, 26])
def test_all_experts_at_once_equal_the_reference_and_leave_the_model_as_it_was(tokens: int) -> None:
    ids = torch.tensor([prompt[:tokens] for prompt in prompts(5)])
    model = gpt_oss(1024)
    before = model.get_experts_implementation()
    with torch.no_grad():
        model.set_experts_implementation("eager")
        reference = model(ids).logits
        model.set_experts_implementation(before)
        with all_experts(model):
            assert model.get_experts_implementation() != before
            dense = model(ids).logits
    assert model.get_experts_implementation() == before
    torch.testing.assert_close(dense, reference, rtol=1e-5, atol=1e-5)
    with all_experts(llama()):  # has no experts
        pass


def test_a_sample_depends_on_its_own_stream_alone() -> None:
    model, given = MODELS["gpt-oss"], prompts(9)
    forward = decode(model, given, temperature=0.7)
    order = [4, 0, 8, 2, 6, 1, 7, 3, 5]
    settings = Decoding(temperature=0.7, max_tokens=14, stop=STOP, margins=True)
    mixed = decode_batch(
        model, settings, [given[index] for index in order], [stream(0, "sample", index) for index in order]
    )
    assert_same([forward[index] for index in order], mixed)
    other = decode_batch(model, settings, given, [stream(1, "sample", index) for index in range(9)])
    assert [output.tokens for output in other] != [output.tokens for output in forward]


def test_equal_prompts_share_their_prefix_and_differ_by_their_streams() -> None:
    given = [prompts(1)[0]] * 6
    assert len({tuple(output.tokens) for output in decode(MODELS["gpt-oss"], given)}) == 1
    assert len({tuple(output.tokens) for output in decode(MODELS["gpt-oss"], given, temperature=1.0)}) > 1


def test_equal_prompts_among_others_change_nothing() -> None:
    model, given = MODELS["gpt-oss"], prompts(5)
    mixed = [given[index] for index in (0, 1, 0, 2, 3, 1, 4, 0)]
    together = decode(model, mixed, temperature=0.7)
    assert_same(together, decode(model, mixed, temperature=0.7, slots=1, share_prefix=False))


@pytest.mark.parametrize("name", long_after(1, MODELS))
def test_beginnings_that_some_prompts_share_are_computed_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, model, computed = np.random.default_rng(3), MODELS[name], list[int]()
    system, grids = rng.integers(2, 100, 12).tolist(), rng.integers(2, 100, (3, 60)).tolist()
    ends = rng.integers(2, 100, (6, 15)).tolist()
    # Three grids, six ends each, and one of another length.
    given = [[*system, *grid, *end[: 15 - (number == 0)]] for grid in grids for number, end in enumerate(ends)]
    expected = decode(model, given, temperature=0.7, slots=1, share_prefix=False)
    forward = model.forward

    @wraps(forward)
    def spy(**arguments: Any) -> Any:
        ids = arguments["input_ids"]
        computed.append(ids.numel() if ids.shape[1] > 1 else 0)
        return forward(**arguments)

    monkeypatch.setattr(model, "forward", spy)
    assert_same(decode(model, given, temperature=0.7), expected)
    assert [number for number in computed if number] == [12, 3 * 60, 18 * 15]


def test_no_padding_passes_through_the_model_and_the_head_sees_last_positions_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = gpt_oss()
    forward, seen = model.forward, []

    @wraps(forward)
    def spy(**arguments: Any) -> Any:
        ids, mask = arguments["input_ids"], arguments["attention_mask"]
        assert bool((mask[:, -ids.shape[1] :] == 1).all()), "every computed token is alive"
        assert bool((mask.diff(dim=-1) >= 0).all()), "dead columns stand on the left"
        alive = mask.sum(dim=-1, keepdim=True)
        assert torch.equal(arguments["position_ids"][:, -1:] if ids.shape[0] > 1 else alive - 1, alive - 1)
        answer = forward(**arguments)
        assert answer.logits.shape[1] == 1
        seen.append(tuple(ids.shape))
        return answer

    given = prompts(12)
    settings = Decoding(temperature=0.0, max_tokens=10, slots=6)
    monkeypatch.setattr(model, "forward", spy)
    decode_batch(model, settings, given, [stream(0, "x", index) for index in range(12)])
    shared = common_prefix(given)
    assert seen[0] == (1, shared), "the shared prefix is computed once"
    assert shared >= 25
    longest = max(len(prompt) for prompt in given)
    assert all(columns <= longest - shared for _, columns in seen[1:])
    assert max(rows for rows, _ in seen) == 6


@pytest.mark.parametrize("name", MODELS)
def test_rows_that_leave_let_the_others_stay_in_place(name: str) -> None:
    model = MODELS[name]
    ids = torch.tensor([prompt[:26] for prompt in prompts(6)])
    more = torch.tensor([[5]] * 6)
    with torch.inference_mode():
        parts = [
            CacheRows(cache=model(ids[part], use_cache=True).past_key_values, length=26, dead=dead)
            for part, dead in ((slice(0, 3), [3, 2, 4]), (slice(3, 6), [6, 0, 5]))
        ]
        whole = enter(model.config, enter(model.config, None, parts[0], range(3)), parts[1], range(3))
        for number, layer in enumerate(whole.cache.layers):
            joined = torch.cat([part.cache.layers[number].keys for part in parts])
            assert torch.equal(layer.keys, joined[:, :, -layer.keys.shape[2] :])
        model(more, past_key_values=whole.cache, use_cache=True)
        whole.length = 27
        before = [layer.keys.data_ptr() for layer in whole.cache.layers]
        copied = [(layer.keys[[0, 5, 2, 3]], layer.values[[0, 5, 2, 3]]) for layer in whole.cache.layers]
        rearrange(whole, [0, 5, 2, 3])
    assert (whole.dead, whole.length) == ([0, 2, 1, 3], 24)
    for layer, (keys, values), start in zip(whole.cache.layers, copied, before, strict=True):
        held = layer.keys.shape[-2]
        assert torch.equal(layer.keys, keys[:, :, -held:]) and torch.equal(layer.values, values[:, :, -held:])
        assert layer.get_seq_length() == 24
        assert layer.keys.data_ptr() - start in (0, 3 * layer.keys.shape[-1] * layer.keys.element_size()), held


def test_memory_limits_the_rows_that_decode_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows, texts = llama(), list[int](), prompts(9)
    expected, forward = decode(model, texts), model.forward

    @wraps(forward)
    def spied(**arguments: Any) -> Any:
        rows.append(arguments["input_ids"].shape[0] if arguments["input_ids"].shape[1] == 1 else 0)
        return forward(**arguments)

    monkeypatch.setattr(model, "forward", spied)
    assert_same(decode(model, texts, most_columns=2 * (max(map(len, texts)) + 14)), expected)
    assert max(rows) == 2
    assert_same(decode(model, texts, most_columns=1), expected)


def test_stop_tokens_end_an_output_and_belong_to_it() -> None:
    given = prompts(6)
    free = decode(MODELS["llama"], given, stop=frozenset())
    assert all(output.finish == "length" and len(output.tokens) == 14 for output in free)
    stop = free[0].tokens[7]
    first = free[0].tokens.index(stop)
    stopped = decode(MODELS["llama"], given, stop=frozenset([stop]))
    assert stopped[0].tokens == free[0].tokens[: first + 1]
    assert stopped[0].finish == "stop"


def test_a_stop_token_at_the_limit_counts_as_a_stop() -> None:
    given = prompts(1)
    free = decode(MODELS["llama"], given, stop=frozenset(), max_tokens=1)[0]
    assert free.finish == "length"
    assert decode(MODELS["llama"], given, stop=frozenset(free.tokens), max_tokens=1)[0].finish == "stop"


def test_the_models_positions_limit_outputs_and_prompts() -> None:
    model = llama(positions=48)
    output = decode(model, [list(range(2, 42))], stop=frozenset(), max_tokens=100)[0]
    assert (len(output.tokens), output.finish) == (8, "length")
    with pytest.raises(ValueError, match=r"48 positions.*48 tokens"):
        decode(model, [list(range(2, 50))])
    with pytest.raises(ValueError, match="prompt 0"):
        decode(model, [[]])


def test_no_prompt_has_no_output() -> None:
    assert decode(MODELS["gpt-oss"], []) == []


def test_prompts_without_a_shared_prefix_enter_and_leave_a_batch_of_one_length() -> None:
    given = [[number, *prompts(1)[0][:20]] for number in range(2, 9)]
    together = decode(MODELS["gpt-oss"], given)
    assert len({len(output.tokens) for output in together}) > 1
    assert_same(together, decode(MODELS["gpt-oss"], given, slots=1))


def test_log_probabilities_and_margins_come_one_a_token() -> None:
    for output in decode(MODELS["llama"], prompts(4), top_logprobs=3):
        assert len(output.logprobs) == len(output.margins) == len(output.tokens)
        for token, entry in zip(output.tokens, output.logprobs, strict=True):
            assert entry["token"] == token == entry["top"][0][0]
            assert entry["logprob"] == entry["top"][0][1] <= 0
            assert len(entry["top"]) == 3


def test_models_that_keep_something_else_than_keys_and_values_are_refused() -> None:
    check_layers(GptOssConfig(num_hidden_layers=2))
    with pytest.raises(ValueError, match=r"linear_attention.*HTTP model"):
        check_layers(Qwen3NextConfig(num_hidden_layers=4))


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=6))
def test_the_common_prefix_leaves_a_token_of_every_prompt(given: list[list[int]]) -> None:
    columns = zip(*(prompt[:-1] for prompt in given), strict=False)
    assert common_prefix(given) == len(list(takewhile(lambda column: len(set(column)) == 1, columns)))


@pytest.mark.parametrize("name", long_after(1, [*MODELS][::-1]))
def test_the_caches_of_a_batch_are_free_when_it_ends(name: str) -> None:
    """Without a collection of cycles, which may come gigabytes later (16 GB after ten minutes of a model of 135M)."""
    given, rngs = prompts(12), [stream(0, "sample", index) for index in range(12)]
    gc.collect()
    gc.disable()
    try:
        decode_batch(MODELS[name], Decoding(max_tokens=14, stop=STOP, slots=4), given, rngs)
        score(MODELS[name], Decoding(slots=8), given, [[[5, 6, 7], [8, 9]]] * len(given))
        assert not [found for found in gc.get_objects() if isinstance(found, CacheLayerMixin)]
    finally:
        gc.enable()
    assert DynamicCache(config=MODELS[name].config).layers[0].__class__ in (DynamicLayer, DynamicSlidingWindowLayer)
