"""Model provider ``goalscope/MODEL``, which makes goalscope models available in any Inspect task.

Replies keep their exact token ids and reasoning.
"""

import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio.to_thread
from anyio import CapacityLimiter
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo

from goalscope._ground.ids import content_id
from goalscope.agents.models.base import Message, Model, Reply, Request, Sampling, build_model
from goalscope.integrations.inspect_ai.outputs import check_config, read_config, read_messages, write_output
from goalscope.integrations.inspect_ai.record import KEY

MOST_WAITING: Final = 256
"""Requests that wait for a model at the same time."""


def body_of(request: Request) -> dict[str, Any]:
    """Return the extra request body with the random stream key and the possible answers of a request."""
    return {KEY: {"key": list(request.key), "answers": list(request.answers)}}


class GoalscopeAPI(ModelAPI):
    """goalscope model in Inspect: a bundled model, a folder, a hub name, or a model behind a server.

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
        """Maximum number of concurrent requests, which a local model decodes together."""
        limit = getattr(self.asked, "concurrency", None)
        return int(limit) if limit is not None else 64

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Complete a chat. Requests that are waiting at the same time are decoded together.

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
    """Return the provider class of ``goalscope/MODEL``."""
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
