"""The GPT-OSS architecture at the width of the 20B model, two blocks deep, with random weights."""

from typing import Any

import pytest
import torch
from determinism import MARGIN, measure_determinism
from tiny_models import request, tokenizer
from transformers import GptOssConfig, GptOssForCausalLM

from goalscope.agents.models import LocalModel, Sampling
from goalscope.agents.models._fast import use_grouped_attention


@pytest.mark.full
def test_the_width_of_gpt_oss_20b_goes_through_the_same_code() -> None:
    # Vocabulary, heads, windows and rotary scaling are the released ones; fewer experts make it fit a small machine.
    # The tokens that end an output are those of the small tokenizer.
    config = GptOssConfig(num_hidden_layers=2, num_local_experts=8, eos_token_id=1, pad_token_id=0)
    assert (config.hidden_size, config.num_attention_heads, config.sliding_window) == (2880, 64, 128)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: Any = GptOssForCausalLM(config)
    network.eval()
    requests = [request("#_A G" * count, episode=str(count)) for count in (5, 40, 41)]
    sampling = Sampling(temperature=0.0, max_tokens=4, top_logprobs=5)
    reference = LocalModel.from_parts(network, tokenizer())
    prompts, outputs = reference.decode(requests, sampling, margins=True)
    assert max(len(prompt) for prompt in prompts) > 2 * 128
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = torch.tensor([prompt])
        alone = network.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=4)
        close = [index for index, margin in enumerate(output.margins) if margin <= MARGIN]
        assert alone[0, len(prompt) :].tolist() == output.tokens or close
    assert use_grouped_attention(network)
    again = reference.complete(requests, sampling)
    for completion, output in zip(again, outputs, strict=True):
        assert completion.logprobs is not None
        assert completion.logprobs[0]["logprob"] == pytest.approx(output.logprobs[0]["logprob"], abs=1e-4)
    assert measure_determinism(reference, requests, sampling).violations == 0
