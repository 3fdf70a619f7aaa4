"""Models behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, Ollama, hosted ones."""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from goalscope.models.backends import model_backend
from goalscope.models.base import Completion, Likelihoods, Message, Request, Sampling
from goalscope.models.dialect import Dialect
from goalscope.models.folders import model_folder
from goalscope.models.http_answers import (
    Answer,
    chat_answer,
    chat_messages,
    completions_answer,
    continued,
    scores_answer,
)
from goalscope.models.http_budget import Budget, Reservation, most_prompt_tokens
from goalscope.models.http_settings import CONSTRAINTS, Caps, Prices, Server, constraint, constraint_name, kept_to
from goalscope.models.http_transport import Client, RejectedError
from goalscope.models.likelihood import likelihoods, placed, unanswered
from goalscope.rng import uniform

_LARGEST: Final = 4 * 2**20  # bytes of a response beside its output
_LARGEST_TOKEN: Final = 1024  # bytes of a token in JSON, with its log-probability
_SEEDS: Final = 2**31
_IDS: Final = ("return_token_ids", "return_tokens_as_token_ids")
_RECORDED: Final = {
    "logprobs": "top_logprobs",
    **dict.fromkeys(_IDS, "token_ids"),
    **dict.fromkeys(CONSTRAINTS, "constrained"),
}
"""Parameters that are recorded under another name than their own."""
_SCORED: Final[tuple[Mapping[str, Any], ...]] = ({"prompt_logprobs": 0}, {"echo": True, "logprobs": 1})
"""How servers are asked for the log-probabilities of a prompt: as vLLM wants it, and as the protocol had it first."""


@model_backend("server")
class HttpModel:
    """A language model behind a server; safe to use from several threads.

    Nothing is sent before the first completion. URL, key, waiting times, prices and caps do not enter its identity.
    Equal requests mostly give equal answers at temperature 0, but batching and changes of the served model may change
    them; what arrived is stored and never asked for again.

    Args:
        model: the name that the server knows it by.
        server: where it is and how it is treated.
        revision: what distinguishes this state of the model from others; of the tokenizer, too, where that comes from
            the hub.
        reasoning: how reasoning and answer are told apart. Chat: "auto" (as the server does, and by the model's own
            markers where they stand in its text), "think", "none". Completions: see `LocalModel`.
        today: the date that a template rendered here is told, ``YYYY-MM-DD`` (completions only).
        template_options: further variables of the chat template; in mode chat sent as ``chat_template_kwargs``.
        prices: what tokens cost.
        caps: what may be spent.
        concurrency: requests at the same time, None for as many as the run has workers.
        name: short name for tables.

    Raises:
        FileNotFoundError: a folder of a tokenizer that is not there.
        ValueError: an argument out of its range, or a cap in USD without prices.
    """

    largest_batch: ClassVar[int] = 1

    def __init__(
        self,
        model: str,
        *,
        server: Server | Mapping[str, Any],
        revision: str | None = None,
        reasoning: str = "auto",
        today: str | None = None,
        template_options: Mapping[str, Any] | None = None,
        prices: Prices | Mapping[str, Any] | None = None,
        caps: Caps | Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        name: str | None = None,
    ) -> None:
        if not model:
            raise ValueError("a model must have the name that its server knows it by, got an empty one")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        server, caps = Server.of(server), Caps.of(caps or {})
        self.prices = None if prices is None else Prices.of(prices)
        if caps.usd is not None and self.prices is None:
            raise ValueError("caps.usd needs prices: give prices: {input: ..., output: ..., date: ...}")
        self._model, self._server, self._revision = model, server, revision
        self._reasoning, self._options = reasoning, dict(template_options or {})
        self._name, self.concurrency = name or model, concurrency
        self.budget = Budget(caps, self.prices)
        self._client = Client(server)
        self._lock = threading.Lock()
        self._dropped: dict[str, None] = {}  # parameters that the server has no place for, in the order found
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
            )
        elif reasoning not in ("auto", "think", "none"):
            raise ValueError(
                f"in mode chat the server renders and reads channels, reasoning must be auto, think or none, got "
                f"{reasoning!r}: leave it out, or use mode completions"
            )
        elif today is not None:
            raise ValueError("in mode chat the server knows the date, today must not be given: use mode completions")

    @property
    def name(self) -> str:
        """Short name, as tables show it."""
        return self._name

    def describe(self) -> Mapping[str, Any]:
        """Return name, revision, mode and template settings; neither address, waiting times, prices nor caps."""
        described: dict[str, Any] = {
            "kind": "http",
            "model": self._model,
            "revision": self._revision,
            "mode": self._server.mode,
            "body": dict(self._server.body),
            **({"constrained": self._server.constrained} if self._server.constrained else {}),
        }
        if self.dialect is not None:
            return {**described, "dialect": dict(self.dialect.describe())}
        return {**described, "reasoning": self._reasoning, "template_options": self._options}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str | None:
        """Return the text that the model reads in mode completions, None where its server renders it."""
        return None if self.dialect is None else self.dialect.render(messages, sampling)

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Complete each chat, one after the other; see `Client.ask` for what it raises.

        Raises:
            NotSentError: a call would not fit under a cap.
            ValueError: the server rejects a parameter, changes a prompt, or hands over no log-probabilities.
        """
        return [self._complete(request, sampling) for request in requests]

    def _complete(self, request: Request, sampling: Sampling) -> Completion:
        text = self.render(request.messages, sampling) or ""
        begun = self.dialect.encode(request.prefill) if self.dialect is not None and request.prefill else []
        ids = None if self.dialect is None else [*self.dialect.encode(text), *begun]
        most = most_prompt_tokens(chat_messages(request), sampling.max_tokens) if ids is None else len(ids)
        with self.budget.reserve(most, sampling.max_tokens, request.key) as reservation:
            began = time.perf_counter()
            answer = self._answered(request, sampling, ids, reservation)
            cost = reservation.settle(answer.prompt_count, answer.output_count)
            usage = {**cost, "requests": reservation.requests, "seconds": time.perf_counter() - began}
            if answer.reasoning_count is not None:
                usage["reasoning_tokens"] = answer.reasoning_count
            if sampling.top_logprobs and answer.logprobs is None:
                self._drop("logprobs", "it answers without the log-probabilities that were asked for")
            if not self._obeyed(request, answer):
                self._drop(
                    self._constraint,
                    f"it is told to write one of {', '.join(request.answers)} and its answer is another text",
                )
            with self._lock:
                unsupported = [_RECORDED.get(name, name) for name in self._dropped]
            found: dict[str, Any] = {
                "text": answer.text,
                "reasoning": answer.reasoning,
                "marked": answer.marked,
            }
            if self.dialect is None and request.prefill:
                found |= continued(request.prefill, answer)
            if self.dialect is not None and ids is not None:
                found = _from_tokens(self.dialect, text, ids, answer, len(begun))
                unsupported += ["token_ids"] if found["output_tokens"] is None else []
                unsupported += self.dialect.unsupported(sampling)
            return Completion(
                **found,
                finish=answer.finish,
                usage=usage,
                logprobs=answer.logprobs if sampling.top_logprobs else None,
                unsupported=tuple(dict.fromkeys(unsupported)),
            )

    def likelihoods(self, requests: Sequence[Request], sampling: Sampling, *, reasoned: bool) -> list[Likelihoods]:
        """Return how likely each answer of each request is; the answers to a prompt are read in one call.

        Raises:
            NotSentError: a call would not fit under a cap.
            ValueError: mode chat, or a server that tells no log-probabilities of prompts.
        """
        return [self._likelihoods(request, sampling, reasoned) for request in requests]

    def _likelihoods(self, request: Request, sampling: Sampling, reasoned: bool) -> Likelihoods:
        if self.dialect is None:
            raise ValueError(
                "likelihoods of answers need prompts that are rendered here, in mode chat the server does it: use mode "
                "completions, or answer: generated"
            )
        written = self._complete(request, sampling) if reasoned else None
        text = self.dialect.render(request.messages, sampling)
        place = placed(self.dialect, text, request.answers, written)
        if place is None:
            assert written is not None  # without reasoning, an answer has its place
            return unanswered(written)
        prompts = [[*place.context, *answer] for answer in place.answers]
        with self.budget.reserve(sum(map(len, prompts)), len(prompts), request.key) as reservation:
            began = time.perf_counter()
            answer, scores = self._score(prompts, reservation)
            cost = dict(reservation.settle(answer.prompt_count, answer.output_count))
        cost |= {"requests": reservation.requests, "seconds": time.perf_counter() - began}
        for name, value in (written.usage if written is not None else {}).items():
            cost[name] = cost.get(name, 0.0) + value
        own = [each[len(place.context) - 1 :] for each in scores]
        unsupported = written.unsupported if written is not None else self.dialect.unsupported(sampling)
        return likelihoods(place, own, cost, written, unsupported)

    def _score(
        self, prompts: list[list[int]], reservation: Reservation
    ) -> tuple[Answer, tuple[tuple[float, ...], ...]]:
        """Let the server read some prompts; return its answer and the log-probabilities of their tokens but the first.

        What it has no place for, or ignores, is not asked for again.
        """
        said, answer = "", None
        for way in tuple(self._scored):
            # One token must be written; at temperature 1 a server has nothing to divide the logits by.
            body = {"model": self._model, self._limit: 1, "temperature": 1.0, **self._server.body, **way}
            try:
                answer = self._client.ask(
                    {**body, "prompt": prompts},
                    lambda found: scores_answer(found, prompts),
                    request=reservation.request,
                    call=reservation.key or (0, "", 0, 0),
                    most=_LARGEST + _LARGEST_TOKEN * sum(map(len, prompts)),
                )
            except RejectedError as rejected:
                answer, said = None, f"; it says: {rejected}"
            if answer is not None and answer.scores is not None:
                return answer, answer.scores
            with self._lock:
                self._scored = [one for one in self._scored if one is not way]
        raise ValueError(
            f"{self._model} must be served with the log-probabilities of a prompt's tokens for answer: likelihood, the "
            f"server gives them neither for prompt_logprobs (vLLM) nor for echo with logprobs{said}. Use vLLM, SGLang "
            "or a local model, or answer: generated"
        )

    def _obeyed(self, request: Request, answer: Answer) -> bool:
        """Return whether an answer is what it was constrained to, as far as it came to its end."""
        free = not (self._constraint and request.answers) or self._constraint in self._dropped
        return free or answer.finish == "length" or kept_to(answer.text, request.answers)

    def constraint_acts(self, answers: Sequence[str]) -> bool:
        """Return whether the server keeps an answer to some texts when it is asked for another one; this is one call.

        Args:
            answers: the complete answers that it may give.

        Raises:
            ValueError: nothing is to be constrained, or the server rejects the parameter.
        """
        if not self._constraint:
            raise ValueError("a constraint must be set to be tried, got none: set server.constrained")
        asked = Message(role="user", content="Write one short sentence about the sea. Write plain words and no JSON.")
        request = Request(messages=(asked,), key=(0, "constraint", 0, 0), answers=tuple(answers))
        sampling = Sampling(temperature=0.0, top_p=1.0, max_tokens=64, reasoning_effort=None)
        most = most_prompt_tokens(request.messages, sampling.max_tokens)
        with self.budget.reserve(most, sampling.max_tokens) as reservation:
            answer = self._answered(request, sampling, None, reservation)
            reservation.settle(answer.prompt_count, answer.output_count)
        return answer.finish == "stop" and self._constraint not in self._dropped and self._obeyed(request, answer)

    def _answered(
        self, request: Request, sampling: Sampling, ids: list[int] | None, reservation: Reservation
    ) -> Answer:
        """Ask until there is an answer, without the parameters that the server has no place for."""
        chat = [{"role": message.role, "content": message.content} for message in chat_messages(request)]
        asked: dict[str, Any] = {"messages": chat} if ids is None else {"prompt": ids}
        if ids is None and request.prefill:
            asked |= {"add_generation_prompt": False, "continue_final_message": True}
        while True:
            optional = self._parameters(request, sampling)
            body = {"model": self._model, self._limit: sampling.max_tokens, **optional, **asked}
            try:
                return self._client.ask(
                    body,
                    completions_answer if ids is not None else lambda found: chat_answer(found, self._reasoning),
                    request=reservation.request,
                    call=request.key,
                    # Text and reasoning, both perhaps twice, and each token with those beside it.
                    most=_LARGEST + _LARGEST_TOKEN * sampling.max_tokens * (3 + sampling.top_logprobs),
                )
            except RejectedError as rejected:
                said = str(rejected)
                if "max_tokens" in body and "max_completion_tokens" in said:
                    self._limit = "max_completion_tokens"  # the newer name of the very same limit
                    continue
                named = _named(rejected, optional)
                if named is None:
                    raise ValueError(
                        f"{self._model} must accept the request, the server says: {said}. Check max_tokens, the length "
                        "of the prompt, the model's name and server.body"
                    ) from None
                self._drop(named, f"it says: {said}")

    def _parameters(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        found: dict[str, Any] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.temperature > 0:
            seed, episode_id, step, attempt = request.key
            found["seed"] = int(uniform(seed, "server", episode_id, step, attempt) * _SEEDS)
        if self.dialect is not None:
            found |= {
                "stop_token_ids": sorted(self.dialect.stop),
                "skip_special_tokens": False,  # channels are told apart by them
                "return_token_ids": True,
            }
            if sampling.top_logprobs:
                found |= {"logprobs": sampling.top_logprobs, "return_tokens_as_token_ids": True}
        else:
            if sampling.reasoning_effort is not None:
                found["reasoning_effort"] = sampling.reasoning_effort
            if self._options:
                found["chat_template_kwargs"] = self._options
            if sampling.top_logprobs:
                found |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
            found |= constraint(self._server.constrained, request.answers)
        found |= self._server.body
        return {name: value for name, value in found.items() if name not in self._dropped}

    def _drop(self, parameter: str, reason: str) -> None:
        """Leave a parameter out from now on, where the study allows it."""
        # Where ids are not returned they are made again from the text, and the steps say so.
        if self._server.unsupported != "record" and parameter not in _IDS:
            raise ValueError(
                f"{self._model} must have a place for {_RECORDED.get(parameter, parameter)}: {reason}. Take it out of "
                "the study (reasoning_effort: null, top_logprobs: 0, ...), or say server: {unsupported: record} to go "
                "on without it and have that recorded with each step"
            )
        with self._lock:
            dropped = ("logprobs", "top_logprobs") if parameter in ("logprobs", "top_logprobs") else (parameter,)
            self._dropped |= dict.fromkeys(dropped)


def _from_tokens(dialect: Dialect, text: str, ids: list[int], answer: Answer, begun: int = 0) -> dict[str, Any]:
    """Return what an output in completions mode is: the fields of a `Completion`, its ids None where not known.

    The last ``begun`` ids that were sent are the beginning of the output.
    """
    read = len(ids) if answer.prompt_count is None else answer.prompt_count
    if read != len(ids) or (answer.prompt_tokens is not None and list(answer.prompt_tokens) != ids):
        raise ValueError(
            f"a server must read the prompt as it is sent: {len(ids)} token ids were sent, it read {read}, or others "
            "than these. It adds or changes tokens: turn that off there, check that server.tokenizer is the model's "
            "own, or use mode chat"
        )
    tokens = answer.output_tokens if answer.output_tokens is not None else _reconstruct(dialect, answer)
    given, prompt = ids[len(ids) - begun :], ids[: len(ids) - begun]
    raw = dialect.text(given) + answer.text
    if tokens is not None:
        tokens = (*given, *tokens)
    parts = dialect.text_parts(text, raw) if tokens is None else dialect.parts(text, tokens)
    return {
        "text": parts.text,
        "reasoning": parts.reasoning,
        "prompt_tokens": tuple(prompt),
        "output_tokens": tokens,
        "reconstructed": answer.output_tokens is None and tokens is not None,
        "raw": raw if tokens is None else dialect.text(tokens),
    }


def _reconstruct(dialect: Dialect, answer: Answer) -> tuple[int, ...] | None:
    """Return the ids of an output made again from its text, None where they are not as many as were reported.

    The token that ended the output is there where the text or the server tells it, or where only one can; else it is
    left off.
    """
    tokens = tuple(dialect.encode(answer.text))
    if answer.finish == "length" or (tokens and tokens[-1] in dialect.stop):
        return tokens if len(tokens) == answer.output_count else None
    if len(tokens) + 1 != answer.output_count:
        return None
    (last,) = dialect.stop if len(dialect.stop) == 1 else (answer.stop_token,)
    return (*tokens, last) if last is not None and last in dialect.stop else tokens


def _named(rejected: RejectedError, optional: Mapping[str, Any]) -> str | None:
    """Return the parameter that a server rejects, None where it names none of those that may be left out."""
    if rejected.parameter in optional:
        return rejected.parameter
    found = [name for name in optional if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(rejected))]
    return max(found, key=len) if found else None
