"""Models behind an OpenAI-compatible server, such as vLLM, SGLang, llama.cpp, Ollama or a hosted service."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from goalscope._ground.rng import uniform
from goalscope.agents.models.base import Likelihoods, Message, Reply, Request, Sampling, model_backend
from goalscope.agents.models.dialect import THINKING, Dialect, check_thinking
from goalscope.agents.models.folders import model_folder
from goalscope.agents.models.http_answers import (
    Served,
    chat_answer,
    chat_messages,
    completions_answer,
    continued,
    from_tokens,
    scores_answer,
)
from goalscope.agents.models.http_budget import BELIEVED, CallBudget, CallKey, Reservation, most_prompt_tokens
from goalscope.agents.models.http_context import RAISE, LongPrompt, PromptCounts
from goalscope.agents.models.http_errors import RejectedError, WithheldError, rejection
from goalscope.agents.models.http_settings import (
    CONSTRAINTS,
    Caps,
    Prices,
    Server,
    constraint,
    constraint_name,
    kept_to,
)
from goalscope.agents.models.http_transport import Client
from goalscope.agents.models.likelihood import likelihoods, placed, unanswered
from goalscope.agents.models.marks import Marks

_LARGEST: Final = 4 * 2**20  # maximum bytes of a response, not counting its output
_LARGEST_TOKEN: Final = 1024  # bytes of a token in JSON, with its log-probability
_SEEDS: Final = 2**31
MOST_REPEATED: Final = 48
"""Maximum output tokens for the trial answer that repeats a word."""
CHECK: Final = (0, "check", 0, 0)
"""Call key of requests that are trials and belong to no episode."""
_IDS: Final = ("return_token_ids", "return_tokens_as_token_ids")
INSTEAD: Final = {
    "reasoning_effort": "Set reasoning_effort: null",
    "chat_template_kwargs": "Leave thinking and template_options out",
    "top_logprobs": "Set top_logprobs: 0",
    "constrained": "Leave server.constrained out",
}
"""Recorded name of a parameter -> advice for how a study can do without it."""
_RECORDED: Final = {
    "logprobs": "top_logprobs",
    **dict.fromkeys(_IDS, "token_ids"),
    **dict.fromkeys(CONSTRAINTS, "constrained"),
}
"""Parameter -> the name under which it is recorded, if the two differ."""
_SCORED: Final[tuple[Mapping[str, Any], ...]] = ({"prompt_logprobs": 0}, {"echo": True, "logprobs": 1})
"""Parameters that request the log-probabilities of a prompt: vLLM's own, and those of OpenAI's protocol."""


@model_backend("server")
class HttpModel:
    """A language model behind a server; safe to use from several threads.

    Nothing is sent before the first reply is requested. URL, key, waiting times, prices and caps are not part of its
    identity. Equal requests mostly give equal answers at temperature 0, but batching and changes to the served model
    may change them; answers that arrived are stored and never requested again.

    Args:
        model: its name on the server.
        server: the server's address and settings.
        revision: a label that distinguishes this version of the model from others; also the revision of the tokenizer
            if the tokenizer comes from the hub.
        reasoning: how reasoning and answer are separated. In mode chat: "auto" (as the server does it, and by the
            model's own markers if its text contains them), "think", "none", or the model's tags, ``{"open": ...,
            "close": ...}``. In mode completions: see `LocalModel`.
        today: the date for a template that is rendered here, ``YYYY-MM-DD`` (mode completions only).
        template_options: further variables of the chat template; in mode chat sent as ``chat_template_kwargs``.
        thinking: whether to switch thinking on or off; in mode chat sent as ``chat_template_kwargs: {enable_thinking:
            ...}``. None to leave it to the template.
        chat_template: name of the chat template, for models with several (mode completions only).
        prices: prices of tokens.
        caps: spending limits.
        concurrency: maximum number of simultaneous requests, None for as many as the run has workers.
        name: short name for tables.

    Raises:
        FileNotFoundError: the folder of a tokenizer does not exist.
        ValueError: an argument is out of range, or there is a cap in USD without prices.
    """

    largest_batch: ClassVar[int] = 1

    def __init__(
        self,
        model: str,
        *,
        server: Server | Mapping[str, Any],
        revision: str | None = None,
        reasoning: str | Mapping[str, Any] = "auto",
        today: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        thinking: bool | None = None,
        chat_template: str | None = None,
        prices: Prices | Mapping[str, Any] | None = None,
        caps: Caps | Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        name: str | None = None,
    ) -> None:
        if not model:
            raise ValueError("model must be the model's name on its server, got an empty text")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        server, caps = Server.of(server), Caps.of(caps or {})
        self.prices = None if prices is None else Prices.of(prices)
        if caps.usd is not None and self.prices is None:
            raise ValueError("caps.usd needs prices: add prices: {input: ..., output: ..., date: ...}")
        self.served, self.server, self._revision = model, server, revision
        self._marks = Marks.of(reasoning)
        self._reasoning = reasoning if isinstance(reasoning, str) else dict(reasoning)
        check_thinking(thinking, template_options)
        self._options = {**(template_options or {}), **({} if thinking is None else {THINKING[0]: thinking})}
        self._name, self.concurrency = name or model, concurrency
        self.budget = CallBudget(caps, self.prices)
        self.client = Client(server, self.budget.stopped)
        self._prompt_counts = PromptCounts()
        self._lock = threading.Lock()
        # Unsupported parameters, in the order of detection. Token ids are requested by this class, not by the study.
        self._dropped: dict[str, None] = {} if server.token_ids else dict.fromkeys(_IDS)
        self._ignored: tuple[str, ...] = ()  # parameters that the server accepts and ignores
        self._limit = "max_tokens"
        self._constraint = constraint_name(server.constrained)
        self._scored: list[Mapping[str, Any]] = list(_SCORED)
        self.dialect: Dialect | None = None
        if server.mode == "completions":
            source = server.tokenizer or model
            self.dialect = Dialect(
                source,
                revision=revision if model_folder(source) is None else None,  # a folder has no revisions
                reasoning=reasoning,
                today=today,
                template_options=template_options,
                thinking=thinking,
                chat_template=chat_template,
            )
        elif reasoning == "harmony":
            raise ValueError(
                "in mode chat the server separates harmony channels itself, so reasoning must be auto, think, none or "
                "{open: ..., close: ...}, got 'harmony': leave reasoning out, or use mode completions"
            )
        elif today is not None:
            raise ValueError(
                "today works only in mode completions, since the server sets the date in mode chat: leave it out, or "
                "use mode completions"
            )
        elif chat_template is not None:
            raise ValueError(
                "chat_template works only in mode completions, since in mode chat the server renders the chat with its "
                "own template: choose the template when starting the server, or use mode completions"
            )

    @property
    def name(self) -> str:
        """Short name for tables."""
        return self._name

    @property
    def resent(self) -> int:
        """Maximum number of retries of a call."""
        return self.server.retries

    def describe(self) -> Mapping[str, Any]:
        """Return name, revision, mode and template settings, without address, waiting times, prices and caps."""
        described: dict[str, Any] = {
            "kind": "http",
            "model": self.served,
            "revision": self._revision,
            "mode": self.server.mode,
            "body": dict(self.server.body),
            **({"constrained": self.server.constrained} if self.server.constrained else {}),
        }
        if self.dialect is not None:
            return {**described, "dialect": dict(self.dialect.describe())}
        return {**described, "reasoning": self._reasoning, "template_options": self._options}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        """Return the text that the model reads in mode completions; None in mode chat, where the server renders it."""
        return None if self.dialect is None else self.dialect.render(messages, sampling)

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """Complete each chat, one after the other; see `Client.ask` for further errors.

        Raises:
            NotSentError: a call would exceed a cap.
            ValueError: the server rejects a parameter, changes or truncates a prompt, or returns no log-probabilities.
        """
        return [self._complete(request, sampling) for request in requests]

    def _complete(self, request: Request, sampling: Sampling) -> Reply:
        text = self.render(request.messages, sampling) or ""
        prefill_ids = self.dialect.encode(request.prefill) if self.dialect is not None and request.prefill else []
        ids = None if self.dialect is None else [*self.dialect.prompt_ids([text])[0], *prefill_ids]
        prompt_tokens = most_prompt_tokens(chat_messages(request), sampling.max_tokens) if ids is None else len(ids)
        with self.budget.reserve(prompt_tokens, sampling.max_tokens, request.key) as reservation:
            started = time.perf_counter()
            answer = self._answered(request, sampling, ids, reservation)
            cost = reservation.settle(**answer.reported)
            seconds = time.perf_counter() - started
            usage = {**cost, "requests": reservation.requests, "seconds": seconds}
            if reservation.requests == 1:  # with several requests, the time would include the waits between them
                self.client.watch.learn(answer.written_tokens, seconds, sampling.max_tokens)
            if answer.reasoning_count is not None and answer.reasoning_count <= BELIEVED * sampling.max_tokens:
                usage["reasoning_tokens"] = answer.reasoning_count
            if sampling.top_logprobs and answer.reply.logprobs is None and answer.reply.finish != "withheld":
                self.drop("logprobs", "it answers without the requested log-probabilities")
            if not self._obeyed(request, answer):
                self.drop(
                    self._constraint,
                    f"it must write one of {', '.join(request.answers)} but writes another text",
                )
            with self._lock:
                # Token ids are optional in mode chat: their absence is not recorded.
                dropped = [name for name in self._dropped if self.dialect is not None or name not in _IDS]
            unsupported = [*self._ignored, *(_RECORDED.get(name, name) for name in dropped)]
            fields: dict[str, Any] = {}
            if self.dialect is None and request.prefill:
                fields = continued(request.prefill, answer, self._marks)
            if self.dialect is not None and ids is not None:
                fields = from_tokens(self.dialect, text, ids, answer, len(prefill_ids))
                unsupported += ["token_ids"] if fields["output_tokens"] is None else []
                unsupported += self.dialect.unsupported(sampling)
            reply = replace(
                answer.reply,
                **fields,
                redraws=reservation.redraws,
                usage=usage,
                logprobs=answer.reply.logprobs if sampling.top_logprobs else None,
                unsupported=tuple(dict.fromkeys(unsupported)),
            )
        # Outside the reservation, since this check may need a call of its own.
        if self.dialect is None:
            try:
                self._check_prompt(request, answer.prompt_count)
            except (OSError, ValueError):
                reservation.discard()
                raise
        return reply

    def likelihoods(self, requests: Sequence[Request], sampling: Sampling, *, reasoned: bool) -> list[Likelihoods]:
        """Return how likely each answer of each request is; all answers to one prompt are scored in one call.

        Raises:
            NotSentError: a call would exceed a cap.
            ValueError: the server is in mode chat, or returns no log-probabilities of prompts.
        """
        return [self._likelihoods(request, sampling, reasoned) for request in requests]

    def _likelihoods(self, request: Request, sampling: Sampling, reasoned: bool) -> Likelihoods:
        if self.dialect is None:
            raise ValueError(
                "answer: likelihood needs prompts that goalscope renders, but in mode chat the server renders them: "
                "use mode completions, or answer: generated"
            )
        written = self._complete(request, sampling) if reasoned else None
        text = self.dialect.render(request.messages, sampling)
        withheld = written is not None and written.finish == "withheld"
        alternatives = None if withheld else placed(self.dialect, text, request.answers, written)
        if alternatives is None:
            assert written is not None  # without reasoning, the place of the answer is always known
            return unanswered(written)
        prompts = [[*alternatives.context, *answer] for answer in alternatives.answers]
        answer, scores, cost = self.score(prompts, request.key)
        for name, value in (written.usage if written is not None else {}).items():
            cost[name] = cost.get(name, 0.0) + value
        answer_scores = [prompt_scores[len(alternatives.context) - 1 :] for prompt_scores in scores]
        unsupported = written.unsupported if written is not None else self.dialect.unsupported(sampling)
        scored = likelihoods(alternatives, answer_scores, cost, written, unsupported)
        return replace(scored, answered_by=answer.reply.answered_by)

    def score(
        self, prompts: list[list[int]], key: CallKey | None = None
    ) -> tuple[Served, tuple[tuple[float, ...], ...], dict[str, float]]:
        """Return the response to some prompts, the log-probabilities of all their tokens but the first, and the cost.

        A way of requesting log-probabilities that the server rejects or ignores is not tried again.

        Args:
            prompts: token ids.
            key: the call that they belong to; None for a trial.
        """
        started = time.perf_counter()
        with self.budget.reserve(sum(map(len, prompts)), len(prompts), key) as reservation:
            answer, scores = self._scores(prompts, reservation)
            cost = dict(reservation.settle(**answer.reported))
        return answer, scores, cost | {"requests": reservation.requests, "seconds": time.perf_counter() - started}

    def _scores(
        self, prompts: list[list[int]], reservation: Reservation
    ) -> tuple[Served, tuple[tuple[float, ...], ...]]:
        why, answer = "", None
        for score_parameters in tuple(self._scored):
            # At least one token must be generated. At temperature 1 a server does not rescale the logits.
            body = {"model": self.served, self._limit: 1, "temperature": 1.0, **self.server.body, **score_parameters}
            try:
                answer = self.client.ask(
                    {**body, "prompt": prompts},
                    lambda response_body: scores_answer(response_body, prompts),
                    request=reservation.request,
                    call=reservation.key or (0, "", 0, 0),
                    most=_LARGEST + _LARGEST_TOKEN * sum(map(len, prompts)),
                )
            except RejectedError as rejected:
                answer, why = None, f"; it reports: {rejected}"
            if answer is not None and answer.scores is not None:
                return answer, answer.scores
            with self._lock:
                self._scored = [parameters for parameters in self._scored if parameters is not score_parameters]
        raise ValueError(
            f"answer: likelihood needs the log-probabilities of a prompt's tokens, but the server of {self.served} "
            f"returns them neither for prompt_logprobs (vLLM) nor for echo with logprobs{why}. Use vLLM, SGLang "
            "or a local model, or answer: generated"
        )

    def _check_prompt(self, request: Request, count: int | None) -> None:
        """If the server counts fewer tokens than a chat should have, check whether it read the chat completely.

        Raises:
            ValueError: the server truncates prompts of this length.
        """
        size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in chat_messages(request))
        expected = self._prompt_counts.expected_if_cut(size, count)
        if not expected:
            return
        with self._prompt_counts.lock:  # one trial at a time
            if self._prompt_counts.is_whole(expected):
                return
            prompt = LongPrompt(expected)
            options = {"chat_template_kwargs": self._options} if self._options else {}
            parameters = {"temperature": 0.0, **options, **self.server.body}
            sent = {name: value for name, value in parameters.items() if name not in self._dropped}
            try:
                answer = self.trial([Message(role="user", content=prompt.text)], MOST_REPEATED, sent)
            except RejectedError:  # the server rejects a prompt that is too long instead of truncating it
                self._prompt_counts.confirm(expected)
                return
            state, detail = prompt.judge(answer, counts=True)
            if state == "no":
                raise ValueError(
                    f"the server of {self.served} truncates long prompts: for a prompt of {size:,} bytes it counts "
                    f"{count:,} tokens instead of the expected {expected:,}, and in a second trial, {detail}. {RAISE}, "
                    "then run the same study on the same directory to continue"
                )
            self._prompt_counts.confirm(expected)

    def _obeyed(self, request: Request, answer: Served) -> bool:
        """Return whether a complete answer satisfies its constraint."""
        unconstrained = not (self._constraint and request.answers) or self._constraint in self._dropped
        return unconstrained or answer.reply.finish != "stop" or kept_to(answer.reply.answer, request.answers)

    def _answered(
        self, request: Request, sampling: Sampling, ids: list[int] | None, reservation: Reservation
    ) -> Served:
        """Send the request until it is answered, leaving out parameters that the server rejects."""
        prompt = _chat(chat_messages(request)) if ids is None else {"prompt": ids}
        if ids is None and request.prefill:
            prompt |= {"add_generation_prompt": False, "continue_final_message": True}
        try:
            return self._ask(
                prompt,
                sampling.max_tokens,
                lambda: self.parameters(request, sampling),
                reservation,
                lambda parameter, message: self.drop(parameter, f"it reports: {message}"),
                call=request.key,
                alternatives=sampling.top_logprobs,
            )
        except WithheldError as withheld:
            reply = Reply(finish="withheld", error=str(withheld), raw=None if ids is None else "")
            return Served(reply=reply, prompt_count=None, output_count=None, reasoning_count=None)
        except RejectedError as rejected:
            raise rejection(self.served, self.server, str(rejected), as_ids=ids is not None) from None

    def _ask(
        self,
        prompt: Mapping[str, Any],
        max_tokens: int,
        parameters: Callable[[], Mapping[str, Any]],
        reservation: Reservation,
        reject: Callable[[str, str], None] | None,
        *,
        call: CallKey = CHECK,
        alternatives: int = 5,
        client: Client | None = None,
    ) -> Served:
        """Send a request until it is answered, leaving out parameters that the server rejects.

        Args:
            prompt: the fields that contain the prompt.
            max_tokens: maximum output tokens.
            parameters: function that returns the parameters that are still sent.
            reservation: the budget of the request.
            reject: called with a rejected parameter and the server's message; None to raise an error instead.
            call: the call that the request belongs to.
            alternatives: number of alternatives that the log-probabilities of a token may contain.
            client: client that sends the request; by default the client for all calls.
        """

        def read(response: Mapping[str, Any]) -> Served:
            if "prompt" in prompt:
                return completions_answer(response, max_tokens)
            return chat_answer(response, self._marks, max_tokens)

        # An upper bound: text and reasoning, each possibly twice, and each token with its alternatives.
        most = _LARGEST + _LARGEST_TOKEN * max_tokens * (3 + alternatives)
        while True:
            optional = parameters()
            body = {"model": self.served, self._limit: max_tokens, **optional, **prompt}
            try:
                return (client or self.client).ask(body, read, request=reservation.request, call=call, most=most)
            except RejectedError as rejected:
                message = str(rejected)
                if self._limit == "max_tokens" and "max_completion_tokens" in message:
                    self._limit = "max_completion_tokens"  # the newer name of the token limit
                    continue
                parameter = rejected.named(optional)
                if parameter is None and self.dialect is None and _IDS[0] in optional:
                    parameter = _IDS[0]  # the server may reject the parameter that is added here
                if parameter is None or reject is None:
                    raise
                reject(parameter, message)

    def trial(
        self,
        prompt: Sequence[Message] | Sequence[int],
        max_tokens: int,
        parameters: Mapping[str, Any],
        *,
        wait: bool = True,
        rejected: dict[str, str] | None = None,
    ) -> Served:
        """Make one request that belongs to no episode, to test the server; it counts towards the budget.

        Args:
            prompt: messages, or token ids.
            max_tokens: maximum output tokens.
            parameters: all other parameters.
            wait: whether to retry temporary failures as a run does; otherwise the request is retried once.
            rejected: mapping that collects rejected parameters and the server's messages; these parameters are left
                out. None to raise an error instead.

        Raises:
            NotSentError: the request would exceed a cap.
            RejectedError: the server rejects the request.
            ConnectionError, PermissionError, ValueError: see `Client.ask`.
        """
        client = self.client
        if not wait:
            client = Client(self.server.model_copy(update={"retries": 1, "backoff": min(self.server.backoff, 1.0)}))
        chat = [message for message in prompt if isinstance(message, Message)]
        fields = _chat(chat) if chat else {"prompt": list(prompt)}
        left_out = {} if rejected is None else rejected
        prompt_tokens = most_prompt_tokens(chat, max_tokens) if chat else len(prompt)
        with self.budget.reserve(prompt_tokens, max_tokens) as reservation:
            answer = self._ask(
                fields,
                max_tokens,
                lambda: {name: value for name, value in parameters.items() if name not in left_out},
                reservation,
                None if rejected is None else rejected.__setitem__,
                client=client,
            )
            reservation.settle(**answer.reported)
            return answer

    def heed(self, ignored: Sequence[str]) -> None:
        """Record settings that the server accepts but ignores; each step lists them as unsupported."""
        self._ignored = tuple(ignored)

    def parameters(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        """Return the parameters of a request other than prompt and token limit, without unsupported ones."""
        parameters: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.temperature > 0:
            seed, episode_id, step, attempt = request.key
            parameters["seed"] = int(uniform(seed, "server", episode_id, step, attempt) * _SEEDS)
        if self.dialect is not None:
            parameters |= {
                "stop_token_ids": sorted(self.dialect.stop),
                "skip_special_tokens": False,  # special tokens mark the channels
                "return_token_ids": True,
            }
            if sampling.top_logprobs:
                parameters |= {"logprobs": sampling.top_logprobs, "return_tokens_as_token_ids": True}
        else:
            if sampling.reasoning_effort is not None:
                parameters["reasoning_effort"] = sampling.reasoning_effort
            if self._options:
                parameters["chat_template_kwargs"] = self._options
            if sampling.top_logprobs:
                parameters |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
            parameters |= constraint(self.server.constrained, request.answers) | {_IDS[0]: True}
        parameters |= self.server.body
        return {name: value for name, value in parameters.items() if name not in self._dropped}

    def drop(self, parameter: str, reason: str) -> None:
        """Omit a parameter from now on, if the study allows it."""
        # Token ids that the server does not return are reconstructed from the text, and the steps record this.
        if self.server.unsupported != "record" and parameter not in _IDS:
            name = _RECORDED.get(parameter, parameter)
            advice = "Take it out of server.body" if parameter in self.server.body else INSTEAD.get(name)
            raise ValueError(
                f"the server of {self.served} does not support {name}: {reason}. "
                f"{f'{advice}, or set' if advice else 'Set'} server: {{unsupported: record}} to continue without it "
                "and record this with each step"
            )
        with self._lock:
            dropped = ("logprobs", "top_logprobs") if parameter in ("logprobs", "top_logprobs") else (parameter,)
            self._dropped |= dict.fromkeys(dropped)


def _chat(messages: Sequence[Message]) -> dict[str, Any]:
    """Return the request field that contains a chat."""
    return {"messages": [{"role": message.role, "content": message.content} for message in messages]}
