"""Completions of ours as outputs of Inspect's models, and back."""

from collections.abc import Sequence

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
    ModelOutput,
    ModelUsage,
    StopReason,
)

from goalscope.inspect_ai.record import KEY, CompletionRecord
from goalscope.models.base import Completion, Message


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
