"""The direct pass of a small model equals that of its modules, and stands back where they must be called."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import gpt_oss, llama

from families import long_after
from goalscope._ground.rng import stream
from goalscope.agents.models._fast import direct, use_grouped_attention
from goalscope.agents.models.decode import Decoded, Decoding, decode, score

STOP = frozenset(range(1, 128, 9))  # many, so that rows leave at different times


def grouped(window: int) -> Any:
    model = gpt_oss(window, seed=2)
    assert use_grouped_attention(model)
    return model


def prompts(count: int, prefix: int) -> list[list[int]]:
    rng = np.random.default_rng(1)
    shared = rng.integers(2, 100, prefix).tolist()
    return [shared + rng.integers(2, 100, int(more)).tolist() for more in rng.integers(1, 100, count)]


def decoded(model: Any, given: Sequence[Sequence[int]], **changes: Any) -> list[Decoded]:
    settings = Decoding(**{"max_tokens": 14, "stop": STOP, "slots": 4, "top_logprobs": 3, **changes})
    return decode(model, settings, given, [stream(0, "sample", index) for index in range(len(given))])


@pytest.mark.parametrize("prefix", long_after(1, [0, 25]))
@pytest.mark.parametrize("window", [8, 1024])
def test_outputs_are_those_of_the_modules(window: int, prefix: int) -> None:
    model, given = grouped(window), prompts(10, prefix)
    assert direct(model) is not None
    found = decoded(model, given)
    answers = [[[5, 6, 7], [5, 9]]] * len(given)
    scores = score(model, Decoding(), given, answers)
    calls = list[int]()
    hook = model.model.layers[0].register_forward_hook(lambda *_: calls.append(1))
    expected, expected_scores = decoded(model, given), score(model, Decoding(), given, answers)
    hook.remove()
    assert calls and len({len(one.tokens) for one in found}) > 3
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        ours, theirs = ([entry["logprob"] for entry in each.logprobs] for each in (one, other))
        assert np.allclose(ours, theirs, atol=1e-4)
    flat, flat_expected = (np.concatenate([np.concatenate(each) for each in one]) for one in (scores, expected_scores))
    assert np.allclose(flat, flat_expected, atol=1e-4)


def _trained(model: Any) -> Any:
    return model.train()


def _halved(model: Any) -> Any:
    return model.to(torch.bfloat16)


def _watched(model: Any) -> Any:
    model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: None)
    return model


def _adapted(model: Any) -> Any:
    class Adapter(torch.nn.Linear):
        """A layer of another package."""

    model.model.layers[0].self_attn.q_proj = Adapter(32, 32)
    return model


@pytest.mark.parametrize("change", [_trained, _halved, _watched, _adapted])
def test_modules_that_are_changed_or_watched_are_called(change: Callable[[Any], Any]) -> None:
    assert direct(change(grouped(16))) is None


def test_other_models_keep_their_modules() -> None:
    assert direct(llama()) is None
    assert direct(gpt_oss()) is None, "with the attention of transformers, which was asked for"
