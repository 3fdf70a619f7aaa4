"""The memory of a capture is what is said before, and grows with the length of a text."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import gpt_oss, llama

from goalscope.agents.models._fast import use_grouped_attention
from goalscope.verdict.preflight.cost import capture_memory

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "long_texts.py"


@pytest.mark.full
def test_the_measured_peak_stays_within_what_is_said() -> None:
    found = {}
    for tokens in (4096, 16_384):
        command = [sys.executable, str(SCRIPT), "--one", "--tokens", str(tokens)]
        found[tokens] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        assert found[tokens]["said"] / 4 <= found[tokens]["megabytes"] <= found[tokens]["said"]
    assert found[16_384]["megabytes"] <= 4 * found[4096]["megabytes"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_said_is_linear_where_scores_are_made_in_blocks(dtype: torch.dtype) -> None:
    model = gpt_oss().to(dtype)
    assert use_grouped_attention(model)
    short, long, longer = (capture_memory(model, tokens) for tokens in (40_000, 80_000, 120_000))
    assert longer - long == long - short > 0


def test_what_is_said_of_eager_attention_is_quadratic() -> None:
    model = llama()
    model.set_attn_implementation("eager")
    heads = model.config.num_attention_heads
    assert capture_memory(model, 80_000) > 14 * heads * 80_000**2
    model.set_attn_implementation("sdpa")
    assert capture_memory(model, 80_000) < 14 * heads * 80_000**2 / 10
