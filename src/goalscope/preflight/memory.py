"""Memory of a local model: weights, the cache of keys and values, scores."""

import sys
from typing import Any, Final

from goalscope.agents.agent import Agent
from goalscope.agents.chat import ChatAgent
from goalscope.models.local import LocalModel

_SCORE: Final = 12  # bytes of the score of a token: single precision, and double while it is normalised
_ROWS: Final = 64  # requests that are decoded at once
_PARTS: Final = 8  # tokens of an answer whose likelihood is read


def token_octets(config: Any, octets: int) -> int | None:
    """Return the memory of the keys and values of one token in all layers, bytes; None without a configuration.

    Args:
        config: the configuration of the text model.
        octets: bytes of a number.
    """
    layers, heads = getattr(config, "num_hidden_layers", None), getattr(config, "num_attention_heads", None)
    width = getattr(config, "hidden_size", None)
    if not layers or not heads or not width:
        return None
    key_value_heads = getattr(config, "num_key_value_heads", None) or heads
    head_width = getattr(config, "head_dim", None) or width // heads
    return int(2 * layers * key_value_heads * head_width * octets)


def more_memory(agent: Agent, prompt_tokens: float) -> float:
    """Return the memory that a local model takes at most beside its weights, bytes: cache of all rows, and scores.

    Args:
        agent: the agent; its weights are read.
        prompt_tokens: of the longest prompt.

    Returns:
        0 for agents without a local model, and where the configuration does not tell.
    """
    if not isinstance(agent, ChatAgent) or not isinstance(agent.model, LocalModel):
        return 0.0
    network = agent.model.model
    config = network.config.get_text_config(decoder=True)
    cache = token_octets(config, next(network.parameters()).element_size()) or 0
    written = agent.sampling.max_tokens if agent.choice is None or agent.choice.after == "reasoning" else _PARTS
    columns = 1 if agent.choice is None else _PARTS
    # Rows are rearranged into a copy of the cache.
    return float(_ROWS * (2 * cache * (prompt_tokens + written) + columns * _SCORE * config.vocab_size))


def taken(agent: Agent) -> int:
    """Return the most memory that this process had so far, or that its model has on a GPU; 0 where it is not known."""
    model = getattr(agent, "model", None)
    if isinstance(model, LocalModel) and (torch := sys.modules.get("torch")) is not None:
        device = next(model.model.parameters()).device
        if device.type == "cuda":
            return int(torch.cuda.max_memory_reserved(device))
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
