"""Tiny random models and a tokenizer with one token a character, for tests."""

import string
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE
from transformers import GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from goalscope.agents.models import Message, Request

torch.set_num_threads(1)

HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>", "<|constrain|>")
CHARACTERS = string.ascii_letters + string.digits + string.punctuation + " \n"
VOCABULARY = 128
HARMONY_TEMPLATE = (
    "<|start|>system<|message|>Date {{ strftime_now('%Y-%m-%d') }}, effort {{ reasoning_effort or 'none' }}<|end|>"
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
PLAIN_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"
)


def tokenizer(template: str | None = HARMONY_TEMPLATE, *, added: tuple[str, ...] = HARMONY) -> Any:
    table = {piece: number for number, piece in enumerate(["<pad>", "<eos>", "<unk>", *CHARACTERS])}
    core = Tokenizer(BPE(vocab=table, merges=[], unk_token="<unk>"))
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in ("<pad>", "<eos>", *added)])
    fast: Any = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = template
    return fast


def gpt_oss(
    window: int = 16, *, seed: int = 0, layers: int = 2, positions: int = 512, words: int = VOCABULARY, ends: int = 1
) -> Any:
    """Alternating sliding and full attention with sinks; weights large enough that outputs vary."""
    config = GptOssConfig(
        num_hidden_layers=layers,
        num_local_experts=4,
        num_experts_per_tok=2,
        vocab_size=words,
        hidden_size=32,
        intermediate_size=32,
        head_dim=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=window,
        max_position_embeddings=positions,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        pad_token_id=0,
        eos_token_id=ends,
        initializer_range=0.3,
    )
    return _seeded(GptOssForCausalLM, config, seed)


def llama(*, seed: int = 0, positions: int = 512, head: int = 8) -> Any:
    config = LlamaConfig(
        num_hidden_layers=2,
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        head_dim=head,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        initializer_range=0.3,
    )
    return _seeded(LlamaForCausalLM, config, seed)


def _seeded(kind: Any, config: Any, seed: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).eval()


def request(content: str, *, episode: str = "episode-1", step: int = 0, attempt: int = 0, seed: int = 0) -> Request:
    return Request(messages=(Message(role="user", content=content),), key=(seed, episode, step, attempt))
