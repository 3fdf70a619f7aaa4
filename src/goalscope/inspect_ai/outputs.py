"""Chats, completions and sampling settings of ours as Inspect's, and back."""

from collections.abc import Sequence
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

from goalscope.inspect_ai.record import KEY, CompletionRecord
from goalscope.models.base import Completion, Message, Sampling

NO_EFFORT: Final = "none"
"""How Inspect is told to ask for no effort of reasoning."""

_TAKEN: Final = ("temperature", "top_p", "max_tokens", "reasoning_effort")
_REFUSED: Final = (
    *("stop_seqs", "best_of", "frequency_penalty", "presence_penalty", "logit_bias", "top_k", "prompt_logprobs"),
    *("reasoning_tokens", "response_schema", "system_message", "modalities"),
)


def write_messages(messages: Sequence[Message]) -> list[ChatMessage]:
    """Return a chat as Inspect's messages."""
    kinds: dict[str, type[ChatMessageSystem | ChatMessageUser | ChatMessageAssistant]] = {
        "system": ChatMessageSystem,
        "user": ChatMessageUser,
        "assistant": ChatMessageAssistant,
    }
    return [kinds[message.role](content=message.content) for message in messages]


def read_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Return Inspect's messages as a chat of texts; written reasoning of earlier answers is left out.

    Raises:
        ValueError: a message that is not text, or one of a tool.
    """
    found = []
    for message in messages:
        content = [] if isinstance(message.content, str) else message.content
        odd = [part.type for part in content if not isinstance(part, ContentText | ContentReasoning)]
        if isinstance(message, ChatMessageTool) or odd:
            what = "one of a tool" if isinstance(message, ChatMessageTool) else f"one with {odd[0]}"
            raise ValueError(
                f"models of goalscope must be asked in text, without tools, got {what}: choose another task, or "
                "another provider of Inspect"
            )
        found.append(Message(role=message.role, content=message.text))
    return tuple(found)


def write_output(completion: Completion, model: str) -> ModelOutput:
    """Return what a model of ours wrote; everything that Inspect has no place for stands in its metadata."""
    parts: list[Content] = [ContentReasoning(reasoning=completion.reasoning)] if completion.reasoning else []
    parts.append(ContentText(text=completion.text))
    content: str | list[Content] = parts if len(parts) > 1 else completion.text
    stop: StopReason = "max_tokens" if completion.finish == "length" else "stop"
    counts = [int(completion.usage.get(name, 0)) for name in ("prompt_tokens", "output_tokens")]
    return ModelOutput(
        model=model,
        choices=[
            ChatCompletionChoice(
                message=ChatMessageAssistant(content=content, model=model, source="generate"), stop_reason=stop
            )
        ],
        usage=ModelUsage(input_tokens=counts[0], output_tokens=counts[1], total_tokens=sum(counts)),
        metadata={KEY: CompletionRecord.of(completion).plain()},
    )


def read_output(output: ModelOutput) -> Completion:
    """Return the completion that an output is: exact where a model of ours wrote it, else text and reasoning.

    Raises:
        UntrustedError: our values in it are no completion.
        ValueError: an output without a choice.
    """
    held = (output.metadata or {}).get(KEY)
    if held is not None:
        return CompletionRecord.read(held, "metadata").completion()
    if output.empty:
        raise ValueError(f"a model must answer, {output.model} gave none: {output.error or 'no reason is told'}")
    message = output.message
    content = [] if isinstance(message.content, str) else message.content
    reasoning = "\n\n".join(part.reasoning for part in content if isinstance(part, ContentReasoning))
    usage = output.usage
    return Completion(
        text=message.text,
        reasoning=reasoning or None,
        finish="length" if output.stop_reason in ("max_tokens", "model_length") else "stop",
        usage={} if usage is None else _usage(usage),
    )


def _usage(usage: ModelUsage) -> dict[str, float]:
    # What was read from a cache is not among the input tokens.
    cached = (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
    found: dict[str, float] = {
        "prompt_tokens": usage.input_tokens + cached,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens is not None:
        found["reasoning_tokens"] = usage.reasoning_tokens
    if usage.total_cost is not None:
        found["usd"] = usage.total_cost
    return found


def write_config(sampling: Sampling) -> GenerateConfig:
    """Return sampling settings as Inspect's, for the whole of a task."""
    asked = {name: getattr(sampling, name) for name in _TAKEN}
    asked["reasoning_effort"] = sampling.reasoning_effort or NO_EFFORT
    if sampling.top_logprobs:
        asked |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
    return GenerateConfig(**asked)


def read_config(config: GenerateConfig, otherwise: Sampling | None = None) -> Sampling:
    """Return Inspect's settings as ours.

    Args:
        config: Inspect's; what it leaves open is as in ``otherwise``.
        otherwise: the defaults, those of `Sampling` where None.

    Raises:
        ValueError: a value that ours cannot have.
    """
    found: dict[str, Any] = asdict(otherwise or Sampling())
    for name in _TAKEN:
        value = getattr(config, name)
        # Inspect makes 0.0 of the 0 that a study holds; the id of an agent tells them apart.
        if value is not None and value != found[name]:
            found[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    if found["reasoning_effort"] == NO_EFFORT:
        found["reasoning_effort"] = None
    if config.logprobs is not None or config.top_logprobs is not None:
        found["top_logprobs"] = (config.top_logprobs or 1) if config.logprobs is not False else 0
    return Sampling(**found)


def check_config(config: GenerateConfig) -> None:
    """Raise a ValueError for settings that the models of goalscope do not have."""
    given = [name for name in _REFUSED if getattr(config, name)]
    given += ["num_choices"] if (config.num_choices or 1) > 1 else []
    if given:
        raise ValueError(f"models of goalscope must be asked without {', '.join(given)}: leave it out")
