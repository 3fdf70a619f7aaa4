"""The model provider ``goalscope/`` for Inspect, and messages, answers and settings in the types of Inspect."""

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import anyio.to_thread
from anyio import CapacityLimiter
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
    ModelAPI,
    ModelOutput,
    ModelUsage,
    StopReason,
    modelapi,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from goalscope._ground.ids import content_id
from goalscope.agents.models.base import Message, Model, Reply, Request, Sampling, build_model
from goalscope.integrations.inspect_ai.record import KEY, ReplyRecord, foreign_reply

# Conversion of chats, replies and sampling settings to and from Inspect's types.

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
    """Convert the messages of a goalscope chat to Inspect messages."""
    kinds: dict[str, type[ChatMessageSystem | ChatMessageUser | ChatMessageAssistant]] = {
        "system": ChatMessageSystem,
        "user": ChatMessageUser,
        "assistant": ChatMessageAssistant,
    }
    return [kinds[message.role](content=message.content) for message in messages]


def read_messages(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Convert Inspect messages to the messages of a goalscope chat. Written reasoning in earlier answers is dropped.

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
    """Convert a model's reply to an Inspect output. Values without a field in Inspect go into its metadata.

    ``model`` is the name of the model in the output.
    """
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
    """Convert an Inspect output to a reply: exactly for goalscope's own models, otherwise only its text and reasoning.

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
    """Convert goalscope's sampling settings (temperature and so on) to Inspect's settings for a whole task."""
    settings = {name: getattr(sampling, name) for name in _SUPPORTED}
    settings["reasoning_effort"] = sampling.reasoning_effort or NO_EFFORT
    if sampling.top_logprobs:
        settings |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
    return GenerateConfig(**settings)


def read_config(config: GenerateConfig, otherwise: Sampling | None = None) -> Sampling:
    """Convert Inspect's settings to goalscope's sampling settings (temperature and so on).

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
    """Check that Inspect's settings include none that goalscope models do not support.

    Raises:
        ValueError: if they do.
    """
    unsupported = [name for name in _REFUSED if getattr(config, name)]
    unsupported += ["num_choices"] if (config.num_choices or 1) > 1 else []
    if unsupported:
        raise ValueError(f"goalscope models do not support {', '.join(unsupported)}: leave these settings out")


# Model provider ``goalscope/MODEL``, which makes goalscope models available in any Inspect task.
#
# Replies keep their exact token ids and reasoning.

MOST_WAITING: Final = 256
"""Requests that wait for a model at the same time."""


def body_of(request: Request) -> dict[str, Any]:
    """Return what goalscope passes to its own models in Inspect's extra request body.

    This is the key of the request's random stream, and the possible answers of the request.
    """
    return {KEY: {"key": list(request.key), "answers": list(request.answers)}}


class GoalscopeAPI(ModelAPI):
    """Provider that lets Inspect use goalscope's models: a bundled model, a folder, a hub name, or a model behind a
    server.

    Args:
        model_name: the model, written like the parameter ``model`` of a chat agent in a study.
        base_url: address of a server. Give its other settings as ``server={...}``.
        api_key: not accepted, because keys must come from environment variables.
        config: see `ModelAPI`.
        **model_args: further parameters of the model, as in a study: ``device``, ``dtype``, ``revision``, ...

    Raises:
        ValueError: an unknown parameter or a value out of range.
        FileNotFoundError: a folder that does not exist.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        if api_key is not None:
            raise ValueError(
                "api_key is not accepted, so that keys stay out of logs: put the key into an environment "
                "variable and give its name, server={key_env: NAME}"
            )
        backend = model_args.pop("backend", "")
        if base_url is not None:
            model_args["server"] = {**model_args.get("server", {}), "base_url": base_url}
        self.asked: Model = build_model(model_name, model_args, backend=backend)
        self._shared_model = _SharedModel(self.asked)
        self._limiter: CapacityLimiter | None = None

    def max_connections(self) -> int:
        """Return the maximum number of concurrent requests, which a local model decodes together."""
        limit = getattr(self.asked, "concurrency", None)
        return int(limit) if limit is not None else 64

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Let the model answer a chat, and return Inspect's output. Requests that wait at the same time are decoded
        together.

        Raises:
            ValueError: tools, messages that are not text, or settings that goalscope models do not support.
        """
        if tools:
            raise ValueError(
                f"goalscope models accept only text and no tools, got the tool {tools[0].name}: choose a task "
                "without tools, or another model provider"
            )
        check_config(config)
        request = self._request(read_messages(input), config)
        if self._limiter is None:
            self._limiter = CapacityLimiter(MOST_WAITING)
        reply = await anyio.to_thread.run_sync(
            self._shared_model.complete, request, read_config(config), limiter=self._limiter
        )
        return write_output(reply, self.model_name)

    def _request(self, messages: tuple[Message, ...], config: GenerateConfig) -> Request:
        stored = (config.extra_body or {}).get(KEY)
        if stored is not None:
            seed, episode, step, attempt = stored["key"]
            return Request(messages=messages, key=(seed, episode, step, attempt), answers=tuple(stored["answers"]))
        # In other tasks, the n-th repetition of the same chat uses the n-th random stream, so that epochs differ.
        chat_id = content_id("chat", [[message.role, message.content] for message in messages])
        return Request(messages=messages, key=(config.seed or 0, chat_id, self._shared_model.count(chat_id), 0))


@modelapi(name=KEY)
def provider() -> type[ModelAPI]:
    """Return the class with which Inspect serves models named ``goalscope/MODEL``."""
    return GoalscopeAPI


@dataclass(eq=False)
class _PendingRequest:
    """Request that is waiting for its answer."""

    request: Request
    sampling: Sampling
    reply: Reply | None = None
    error: Exception | None = None
    done: bool = False


@dataclass
class _SharedModel:
    """Model shared by many threads; the thread that has the lock answers all waiting requests."""

    model: Model
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _queue: deque[_PendingRequest] = field(default_factory=deque)
    _counts: Counter[str] = field(default_factory=Counter)

    def count(self, chat: str) -> int:
        """Count a request, and return how many requests with the same chat came before it."""
        self._counts[chat] += 1
        return self._counts[chat] - 1

    def complete(self, request: Request, sampling: Sampling) -> Reply:
        """Answer a request.

        Raises:
            Exception: whatever the model raises.
        """
        if getattr(self.model, "largest_batch", 0) == 1:  # a model behind a server answers requests one by one
            return self.model.complete([request], sampling)[0]
        pending = _PendingRequest(request, sampling)
        self._queue.append(pending)
        while not pending.done:
            with self._turn:
                if not pending.done:
                    self._answer(self._next())
        if pending.error is not None:
            raise pending.error
        assert pending.reply is not None  # answered without an error
        return pending.reply

    def _next(self) -> list[_PendingRequest]:
        """Remove from the queue all requests with the same sampling settings as the first, and return them."""
        queued = [self._queue.popleft() for _ in range(len(self._queue))]
        chosen = [pending for pending in queued if pending.sampling == queued[0].sampling]
        self._queue.extendleft(reversed([pending for pending in queued if pending.sampling != queued[0].sampling]))
        return chosen

    def _answer(self, requests: Sequence[_PendingRequest]) -> None:
        try:
            replies = self.model.complete([pending.request for pending in requests], requests[0].sampling)
            for pending, reply in zip(requests, replies, strict=True):
                pending.reply = reply
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the request that caused it
            if len(requests) == 1:
                requests[0].error = error
            else:
                for pending in requests:
                    self._answer([pending])
        finally:
            for pending in requests:
                pending.done = True
