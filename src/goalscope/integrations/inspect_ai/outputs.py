"""Conversion of chats, replies and sampling settings to and from Inspect's types."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    StopReason,
)

from goalscope.agents.models.base import Message, Reply, Sampling
from goalscope.integrations.inspect_ai.record import KEY, ReplyRecord, foreign_reply

NO_EFFORT: Final = "none"
"""Inspect's value for no reasoning effort."""

_STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "length": "max_tokens",
    "withheld": "content_filter",
    "called": "tool_calls",
}
"""Inspect's words for the ways in which replies end, other than by a stop token."""
_SUPPORTED: Final = ("temperature", "top_p", "max_tokens", "reasoning_effort")
_REFUSED: Final = (
    *("stop_seqs", "best_of", "frequency_penalty", "presence_penalty", "logit_bias", "top_k", "prompt_logprobs"),
    *("reasoning_tokens", "response_schema", "system_message", "modalities"),
)


def write_messages(messages: Sequence[Message]) -> list[ChatMessage]:
    """Convert a chat to Inspect messages."""
    kinds: dict[str, type[ChatMessageSystem | ChatMessageUser | ChatMessageAssistant]] = {
        "system": ChatMessageSystem,
        "user": ChatMessageUser,
        "assistant": ChatMessageAssistant,
    }
    return [kinds[message.role](content=message.content) for message in messages]


def read_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Convert Inspect messages to a chat. Written reasoning in earlier answers is dropped.

    Raises:
        ValueError: a message that is not text, or a tool message.
    """
    chat = []
    for message in messages:
        content = [] if isinstance(message.content, str) else message.content
        unsupported = [part.type for part in content if not isinstance(part, ContentText | ContentReasoning)]
        if isinstance(message, ChatMessageTool) or unsupported:
            kind = "one of a tool" if isinstance(message, ChatMessageTool) else f"one with {unsupported[0]}"
            raise ValueError(
                f"goalscope models accept only text and no tools, got {kind}: choose a task without it, or "
                "another model provider"
            )
        chat.append(Message(role=message.role, content=message.text))
    return tuple(chat)


def write_output(reply: Reply, model: str) -> ModelOutput:
    """Convert a reply to an Inspect output. Values without a field in Inspect go into its metadata."""
    parts: list[Content] = [ContentReasoning(reasoning=reply.reasoning)] if reply.reasoning else []
    parts.append(ContentText(text=reply.answer))
    content: str | list[Content] = parts if len(parts) > 1 else reply.answer
    stop = _STOP_REASONS.get(reply.finish, "stop")
    counts = [int(reply.usage.get(name, 0)) for name in ("prompt_tokens", "output_tokens")]
    return ModelOutput(
        model=model,
        choices=[
            ChatCompletionChoice(
                message=ChatMessageAssistant(content=content, model=model, source="generate"), stop_reason=stop
            )
        ],
        usage=ModelUsage(input_tokens=counts[0], output_tokens=counts[1], total_tokens=sum(counts)),
        metadata={KEY: ReplyRecord.of(reply).plain()},
    )


def read_output(output: ModelOutput) -> Reply:
    """Convert an Inspect output to a reply, exactly for goalscope's models and otherwise as text and reasoning.

    Raises:
        UntrustedError: goalscope's metadata in the output do not form a valid reply.
        ValueError: an output without a choice.
    """
    stored = (output.metadata or {}).get(KEY)
    if stored is not None:
        return ReplyRecord.read(stored, "metadata").reply()
    if output.empty:
        raise ValueError(f"the model {output.model} returned no answer: {output.error or 'no reason was given'}")
    message = output.message
    content = [] if isinstance(message.content, str) else message.content
    reasoning = "\n\n".join(part.reasoning for part in content if isinstance(part, ContentReasoning))
    usage = output.usage
    numbers = {} if usage is None else _usage(usage)
    return foreign_reply(message, output.stop_reason, reasoning or None, usage=numbers)


def _usage(usage: ModelUsage) -> dict[str, float]:
    # Inspect does not count cached tokens as input tokens.
    cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
    numbers: dict[str, float] = {
        "prompt_tokens": usage.input_tokens + cached,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens is not None:
        numbers["reasoning_tokens"] = usage.reasoning_tokens
    if usage.total_cost is not None:
        numbers["usd"] = usage.total_cost
    return numbers


def write_config(sampling: Sampling) -> GenerateConfig:
    """Convert sampling settings to Inspect's settings for a whole task."""
    settings = {name: getattr(sampling, name) for name in _SUPPORTED}
    settings["reasoning_effort"] = sampling.reasoning_effort or NO_EFFORT
    if sampling.top_logprobs:
        settings |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
    return GenerateConfig(**settings)


def read_config(config: GenerateConfig, otherwise: Sampling | None = None) -> Sampling:
    """Convert Inspect's settings to sampling settings.

    Args:
        config: Inspect's settings. Missing values are taken from ``otherwise``.
        otherwise: the default settings; None for those of `Sampling`.

    Raises:
        ValueError: a value that sampling settings do not allow.
    """
    settings: dict[str, Any] = asdict(otherwise or Sampling())
    for name in _SUPPORTED:
        value = getattr(config, name)
        # Inspect converts the 0 in a study to 0.0, and the id of an agent distinguishes the two.
        if value is not None and value != settings[name]:
            settings[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    if settings["reasoning_effort"] == NO_EFFORT:
        settings["reasoning_effort"] = None
    if config.logprobs is not None or config.top_logprobs is not None:
        settings["top_logprobs"] = (config.top_logprobs or 1) if config.logprobs is not False else 0
    return Sampling(**settings)


def check_config(config: GenerateConfig) -> None:
    """Raise a ValueError if Inspect's settings include any that goalscope models do not support."""
    unsupported = [name for name in _REFUSED if getattr(config, name)]
    unsupported += ["num_choices"] if (config.num_choices or 1) > 1 else []
    if unsupported:
        raise ValueError(f"goalscope models do not support {', '.join(unsupported)}: leave these settings out")
