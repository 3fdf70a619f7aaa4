"""Memory of a local model: weights, key-value cache, attention scores."""

import math
import sys
from typing import Any, Final

from goalscope.agents.agent import Agent
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models._fast import MOST_MASK, MOST_SCORES, NAME
from goalscope.agents.models.decode import ROWS, SLOTS, own_cores
from goalscope.agents.models.local import LocalModel
from goalscope.agents.models.reading import memory_limit, token_octets
from goalscope.inside.activations.capture import CaptureSettings

_SINGLE: Final = 4  # bytes of a number in single precision
_BLOCK: Final = 14  # bytes of a score while it is normalised
_SCORE: Final = 12  # bytes of the score of a token: single precision, and double while it is normalised
_PARTS: Final = 8  # tokens of an answer whose likelihood is read


def more_memory(agent: Agent, prompt_tokens: float) -> float:
    """Return the maximum memory in bytes that a local model takes in addition to its weights: for the keys and values
    of all prompts and answers that it decodes at the same time (the rows of a batch), and for the scores of tokens.

    Args:
        agent: the agent. If it has a local model, its weights are read into memory, unless they are there already.
        prompt_tokens: number of tokens of the longest prompt.

    Returns:
        0 for agents without a local model, and if the configuration does not tell.
    """
    if not isinstance(agent, ChatAgent) or not isinstance(agent.model, LocalModel):
        return 0.0
    network = agent.model.model
    config = network.config.get_text_config(decoder=True)
    cache = token_octets(config, next(network.parameters()).element_size()) or 0
    written = agent.sampling.max_tokens if agent.choice is None or agent.choice.after == "reasoning" else _PARTS
    columns = 1 if agent.choice is None else _PARTS
    # A small model on a processor decodes more rows. They are rearranged into a copy of the cache.
    rows = ROWS * own_cores() if agent.model.fits_a_core else SLOTS
    stored = memory_limit(network.device)
    return float(stored + rows * (2 * cache * (prompt_tokens + written) + columns * _SCORE * config.vocab_size))


def inside_memory(agent: Agent, prompt_tokens: float) -> float:
    """Estimate the memory that capturing the longest turn of a local model takes, in bytes; 0 for other agents.

    The arguments are those of `capture_memory`.
    """
    if not isinstance(agent, ChatAgent) or not isinstance(agent.model, LocalModel):
        return 0.0
    network = agent.model.model
    positions = getattr(network.config.get_text_config(decoder=True), "max_position_embeddings", None) or math.inf
    return capture_memory(network, min(prompt_tokens + agent.sampling.max_tokens, positions))


def capture_memory(network: Any, sequence_tokens: float, layers: int = 3) -> float:
    """Return the maximum memory in bytes that a capture takes in addition to the weights.

    For each of its N tokens, in sequences of T, a pass stores hidden states and their norms, queries, keys, values,
    their mixture, and the activations of the feed-forward part. With eager attention it also stores one block of scores
    of all heads (`agents.models._fast`), N T per head; otherwise none. The vectors of a file are stored twice.

    Args:
        network: the transformers model.
        sequence_tokens: number of tokens of the longest sequence.
        layers: number of captured blocks.
    """
    config, device = network.config.get_text_config(decoder=True), network.device.type
    octets, settings = next(network.parameters()).element_size(), CaptureSettings().on(device)
    tokens = max(float(settings.batch_tokens or 0), sequence_tokens)
    width, heads = config.hidden_size, config.num_attention_heads
    head_width = getattr(config, "head_dim", None) or width // heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    inner = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    chosen = getattr(config, "num_experts_per_tok", None) or 1
    experts = getattr(config, "num_local_experts", None) or chosen
    experts = experts if experts <= 2 * chosen else chosen
    octets_held = width * (4 * octets + 3 * _SINGLE) + 4 * (heads + groups) * head_width * octets
    octets_held += experts * (7 * inner + width) * octets
    entries, scores = heads * tokens * sequence_tokens, 0.0
    if network.config._attn_implementation == NAME and octets < _SINGLE:
        # At least one row of each sequence is attended to at once.
        scores = _BLOCK * min(entries, max(MOST_SCORES.get(device, MOST_SCORES["cuda"]), entries / sequence_tokens))
    elif network.config._attn_implementation == NAME:
        octets_held += 6 * heads * head_width * _SINGLE  # by the fused kernel, from wider copies
    elif network.config._attn_implementation == "eager":
        scores = _BLOCK * entries
    masks = 3 * _SINGLE * min(tokens * sequence_tokens, MOST_MASK)
    vectors = 2 * (settings.shard_bytes + tokens * width * layers * _SINGLE)
    return float(tokens * octets_held + scores + masks + vectors)


def taken(agent: Agent) -> int:
    """Return the most memory, in bytes, that this process or, on a GPU, its model has used so far; 0 if unknown."""
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
