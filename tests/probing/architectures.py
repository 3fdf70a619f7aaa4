"""Tiny random models of every architecture that activations are captured from."""

from typing import Any

import torch
import transformers

torch.set_num_threads(1)

WIDTH, LAYERS, VOCABULARY = 32, 3, 128
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}
_GROUPED = {"num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8}
_GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": 4,
    "n_positions": 512,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bloom": ("Bloom", {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": 4}),
    "falcon": ("Falcon", {**_COMMON, "new_decoder_architecture": False, "alibi": False}),
    "gemma": ("Gemma", {**_COMMON, **_GROUPED}),
    "gemma2": ("Gemma2", {**_COMMON, **_GROUPED, "sliding_window": 16}),
    "gemma3_text": ("Gemma3", {**_COMMON, **_GROUPED, "sliding_window": 16}),
    "gpt2": ("GPT2", _GPT2),
    "gpt_neo": (
        "GPTNeo",
        {
            **{key: value for key, value in _COMMON.items() if key not in ("num_hidden_layers", "num_attention_heads")},
            "num_layers": LAYERS,
            "num_heads": 4,
            "attention_types": [[["global", "local", "global"], 1]],
            "window_size": 16,
        },
    ),
    "gpt_neox": ("GPTNeoX", {**_COMMON, "intermediate_size": 48}),
    "gpt_oss": (
        "GptOss",
        {
            **_COMMON,
            **_GROUPED,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
        },
    ),
    "gptj": ("GPTJ", {**_GPT2, "rotary_dim": 4}),
    "llama": ("Llama", {**_COMMON, **_GROUPED}),
    "mistral": ("Mistral", {**_COMMON, **_GROUPED, "sliding_window": 16}),
    "mixtral": ("Mixtral", {**_COMMON, **_GROUPED, "num_local_experts": 4}),
    "olmo": ("Olmo", {**_COMMON, **_GROUPED}),
    "olmo2": ("Olmo2", {**_COMMON, **_GROUPED}),
    "phi": ("Phi", {**_COMMON, "intermediate_size": 48}),
    "phi3": ("Phi3", {**_COMMON, **_GROUPED}),
    "qwen2": ("Qwen2", {**_COMMON, **_GROUPED}),
    "qwen2_moe": ("Qwen2Moe", {**_COMMON, **_GROUPED, **_EXPERTS, "shared_expert_intermediate_size": 16}),
    "qwen3": ("Qwen3", {**_COMMON, **_GROUPED}),
    "qwen3_moe": ("Qwen3Moe", {**_COMMON, **_GROUPED, **_EXPERTS}),
    "smollm3": ("SmolLM3", {**_COMMON, **_GROUPED}),
}


def tiny(kind: str, seed: int = 0, **changes: Any) -> Any:
    """A random model of a type; weights large enough that its vectors vary."""
    name, settings = CONFIGS[kind]
    config_name = "Gemma3TextConfig" if kind == "gemma3_text" else f"{name}Config"
    config = getattr(transformers, config_name)(**{**settings, **changes})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kind_of_head = "GPT2LMHeadModel" if kind == "gpt2" else f"{name}ForCausalLM"
        return getattr(transformers, kind_of_head)(config).eval()
