"""The backend ``server``: a model behind an OpenAI-compatible server, and what its answers say."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import SystemRandom
from typing import Any, ClassVar, Final, Literal, Unpack

from goalscope._ground.rng import uniform
from goalscope.agents.models.base import (
    CallKey,
    ChatFormat,
    Likelihoods,
    Message,
    Reply,
    Request,
    Sampling,
    model_backend,
)
from goalscope.agents.models.dialect import THINKING, Dialect, check_thinking, likelihoods, placed, unanswered
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
from goalscope.agents.models.http_client import Client
from goalscope.agents.models.http_errors import RejectedError, WithheldError, rejection
from goalscope.agents.models.http_settings import (
    BELIEVED,
    CHAT_ALLOWANCE,
    CONSTRAINTS,
    RECORDING,
    CallBudget,
    Caps,
    Prices,
    Reservation,
    Server,
    constraint,
    constraint_name,
    kept_to,
    most_prompt_tokens,
)
from goalscope.agents.models.marks import Marks
from goalscope.agents.parse import advice_text

# Detect a server that truncates long prompts without reporting it.
#
# Some servers (Ollama, by default) drop the beginning of a prompt that is longer than the context they were started
# with, and answer as if nothing had happened. The server's own count of prompt tokens reveals this, because it stops
# growing with the prompt. We use the count in two ways:
#
# * Before the run, a trial sends one long prompt with a word at its beginning, and asks for that word.
# * During the run, the count for each prompt is compared with the prompt's length, at the greatest number of tokens per
#   byte so far. A count that is too small is not yet a proof, since some servers leave out tokens that they had cached.
#   The trial is then repeated with a prompt of that length, and decides.

MOST_WORDS: Final = 4096
"""Maximum number of words that the trial adds to the length of the study's own prompt."""
_BYTES_PER_WORD: Final = 4  # bytes of a study's prompt per word of the trial, roughly the bytes of a token
_LEAST_SHARE: Final = 0.9  # minimum tokens per word of a long prompt; a token hardly ever spans two words
_LEAST_OF_EXPECTED: Final = 0.8  # minimum share of the tokens that a prompt of a study should have
_LEAST_BYTES: Final = 400  # in shorter prompts, the tokens of the chat template weigh too much
_MOST_BYTES_PER_TOKEN: Final = 12  # maximum bytes per token of a study's prompt
_GROWTH: Final = 1.5  # a new trial is made when prompts are longer than the last trial by this factor
_FILLER: Final = ("the", "river", "runs", "past", "an", "old", "mill", "and", "then", "on", "into", "a", "lake")
_LETTERS: Final = "bcdfghjklmnprstvz"
_VOWELS: Final = "aeiou"

State = Literal["yes", "no", "unknown"]


def trial_words(prompt_bytes: int, max_tokens: int) -> int:
    """Return how many words to put into the prompt that tests whether a server reads long prompts completely.

    Args:
        prompt_bytes: number of bytes of the study's prompt.
        max_tokens: maximum output tokens of the study.
    """
    return prompt_bytes // _BYTES_PER_WORD + min(max_tokens, MOST_WORDS)


def _draw_word() -> str:
    source = SystemRandom()
    return "".join(source.choice(_LETTERS) + source.choice(_VOWELS) for _ in range(4))


@dataclass(frozen=True, slots=True)
class LongPrompt:
    """A long prompt for testing whether a server reads prompts completely: it begins with a word that the model must
    repeat.

    The word is different each time, so that no server can take the beginning of the prompt from its cache. The word
    affects no result.

    Attributes:
        words: number of words after the word at the beginning.
        head: the word at the beginning.
    """

    words: int
    head: str = field(default_factory=_draw_word)

    @property
    def text(self) -> str:
        """The complete prompt: the word to be repeated, many other words, and the request to write the first word."""
        filler = " ".join(_FILLER[number % len(_FILLER)] for number in range(self.words))
        return f"The secret word is {self.head}. Remember it.\n{filler}\nWrite the secret word and nothing else."

    def judge(self, answer: Served, *, counts: bool) -> tuple[State, str]:
        """Return whether the server read the whole prompt ("yes", "no" or "unknown"), with the evidence as a sentence.

        Args:
            answer: the answer to the prompt, with the tokens that the server counts.
            counts: whether the server's counts for other prompts are plausible.
        """
        words, count = self.words, answer.prompt_count
        if self.head.lower() in "".join(part.text for part in answer.reply.parts).lower():
            return "yes", f"the model repeats the first word of a prompt of {words:,} words"
        if not count or not counts:
            return "unknown", f"the server counts no tokens, and the model does not repeat the first of {words:,} words"
        if count >= _LEAST_SHARE * words:
            return "yes", f"a prompt of {words:,} words has {count:,} tokens"
        return "no", f"of a prompt of {words:,} words it read {count:,} tokens, and it cannot repeat the first word"


def counts_credible(prompt_bytes: int, count: int | None) -> bool:
    """Return whether the number of prompt tokens that a server reports is plausible for a prompt with so many bytes.

    Args:
        prompt_bytes: number of bytes of the prompt.
        count: the reported number; None or 0 is not credible.
    """
    return bool(count) and prompt_bytes <= _MOST_BYTES_PER_TOKEN * (count or 0)


class PromptCounts:
    """Compares a server's token counts with the lengths of prompts, to notice a server that silently truncates long
    prompts.

    It is safe to use from several threads.

    Attributes:
        lock: a thread holds this lock while it tests a prompt, so that other threads wait for the result.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._tokens_per_byte = 0.0
        self._whole = 0  # tokens of the longest prompt that the server is known to read completely

    def expected_if_cut(self, prompt_bytes: int, count: int | None) -> int:
        """Return how many tokens a prompt should have if the server seems to have cut it off.

        The result is 0 if the server's count may be right.

        The expectation is the prompt's length in bytes times the greatest number of tokens per byte so far.

        Args:
            prompt_bytes: number of bytes of the prompt.
            count: number of prompt tokens that the server reports, None if it reports none.
        """
        if not count or prompt_bytes < _LEAST_BYTES or count > prompt_bytes + CHAT_ALLOWANCE:
            return 0
        expected = int(self._tokens_per_byte * prompt_bytes)
        if counts_credible(prompt_bytes, count):
            self._tokens_per_byte = max(self._tokens_per_byte, count / prompt_bytes)
        return 0 if count >= _LEAST_OF_EXPECTED * expected or self.is_whole(expected) else expected

    def confirm(self, tokens: int) -> None:
        """Record that the server has read a prompt of ``tokens`` tokens completely, so that shorter prompts need no
        test.
        """
        self._whole = max(self._whole, tokens)

    def is_whole(self, tokens: int) -> bool:
        """Return whether the server is known to read prompts of this many tokens completely.

        This is assumed up to 1.5 times the longest prompt that was confirmed.
        """
        return tokens <= _GROWTH * self._whole


# Models behind an OpenAI-compatible server, such as vLLM, SGLang, llama.cpp, Ollama or a hosted service.

_LARGEST: Final = 4 * 2**20  # maximum bytes of a response, not counting its output
_LARGEST_TOKEN: Final = 1024  # bytes of a token in JSON, with its log-probability
_SEEDS: Final = 2**31
MOST_REPEATED: Final = 48
"""Maximum output tokens for the trial answer that repeats a word."""
CHECK: Final = (0, "check", 0, 0)
"""Call key of requests that are trials and belong to no episode."""
_IDS: Final = ("return_token_ids", "return_tokens_as_token_ids")
_RECORDED: Final = {
    "logprobs": "top_logprobs",
    **dict.fromkeys(_IDS, "token_ids"),
    **dict.fromkeys(CONSTRAINTS, "constrained"),
}
"""Parameter -> the name under which it is recorded, if the two differ."""
_COMPLETIONS_ONLY: Final = {
    "today": "sets the date: leave it out",
    "chat_template": "renders the chat with its own template: choose the template when starting the server",
}
"""Setting that works only in mode completions -> what the server does in mode chat, and what helps."""
_SCORED: Final[tuple[Mapping[str, Any], ...]] = ({"prompt_logprobs": 0}, {"echo": True, "logprobs": 1})
"""Parameters that request the log-probabilities of a prompt: vLLM's own, and those of OpenAI's protocol."""


@model_backend("server")
class HttpModel:
    """A language model behind an OpenAI-compatible server; safe to use from several threads.

    Nothing is sent before the first reply is requested. URL, key, waiting times, prices and caps are not part of the
    model's identity. Equal requests mostly give equal answers at temperature 0, but batching and changes to the served
    model may change them; answers that arrived are stored and never requested again.

    Args:
        model: its name on the server.
        server: the server's address and settings.
        revision: a label that distinguishes this version of the model from others; also the revision of the tokenizer
            if the tokenizer comes from the hub.
        prices: prices of tokens.
        caps: spending limits.
        concurrency: maximum number of simultaneous requests, None for as many as the run has workers.
        name: short name for tables.
        chat: see `goalscope.agents.models.base.ChatFormat`; ``today`` and ``chat_template`` work only in mode
            completions. In mode chat, the reasoning "auto" means: as the server separates it, and by the model's own
            markers if its text contains them; ``template_options`` and ``thinking`` are sent as
            ``chat_template_kwargs``.

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
        prices: Prices | Mapping[str, Any] | None = None,
        caps: Caps | Mapping[str, Any] | None = None,
        concurrency: int | None = None,
        name: str | None = None,
        **chat: Unpack[ChatFormat],
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
        reasoning, thinking = chat.get("reasoning", "auto"), chat.get("thinking")
        self._marks = Marks.of(reasoning)
        self._reasoning = reasoning if isinstance(reasoning, str) else dict(reasoning)
        check_thinking(thinking, chat.get("template_options"))
        self._options = dict(chat.get("template_options") or {})
        self._options |= {} if thinking is None else {THINKING[0]: thinking}
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
            has_revisions = model_folder(source) is None
            self.dialect = Dialect(source, revision=revision if has_revisions else None, **chat)
        elif reasoning == "harmony":
            raise ValueError(
                "in mode chat the server separates harmony channels itself, so reasoning must be auto, think, none or "
                "{open: ..., close: ...}, got 'harmony': leave reasoning out, or use mode completions"
            )
        for setting, instead in _COMPLETIONS_ONLY.items():
            if self.dialect is None and chat.get(setting) is not None:
                raise ValueError(
                    f"{setting} works only in mode completions, since in mode chat the server {instead}, or use mode "
                    "completions"
                )

    @property
    def name(self) -> str:
        """Short name of the model, as tables show it."""
        return self._name

    @property
    def resent(self) -> int:
        """Maximum number of times that a failed call is retried."""
        return self.server.retries

    def describe(self) -> Mapping[str, Any]:
        """Return what determines the model's outputs: name, revision, mode, further parameters and settings for chats.

        Address, waiting times, prices and caps are left out. The description is part of an agent's description, whose
        hash is the agent's id.
        """
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
        """Return the text that the model reads for a chat in mode completions; None in mode chat, where the server
        writes it.
        """
        return None if self.dialect is None else self.dialect.render(messages, sampling)

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """Complete each chat, one after the other, and return the replies in order.

        Raises:
            NotSentError: a call would exceed a cap.
            ValueError: the server rejects a parameter, changes or truncates a prompt, or returns no log-probabilities.
            ConnectionError, PermissionError: see `Client.ask`.
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
            constrained = self._constraint and request.answers and self._constraint not in self._dropped
            if constrained and answer.reply.finish == "stop" and not kept_to(answer.reply.answer, request.answers):
                choices = ", ".join(request.answers)
                self.drop(self._constraint, f"it must write one of {choices} but writes another text")
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
        """Return how likely the model finds each answer of each request, in the order of the requests.

        All answers to one prompt are scored in one call.

        Args:
            requests: requests with ``answers``.
            sampling: settings for drawing the reasoning.
            reasoned: whether the model reasons freely before its answer.

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
        """Request the log-probabilities of all tokens of some prompts except the first token of each.

        Servers offer two ways of requesting them; a way that the server rejects or ignores is not tried again.

        Args:
            prompts: token ids of each prompt.
            key: the call to which the request belongs; None for a test of the server.

        Returns:
            The server's response; the log-probabilities of each prompt in nats; and the cost by name (tokens, requests,
            seconds, USD).

        Raises:
            NotSentError: the call would exceed a cap.
            ValueError: the server returns no log-probabilities of prompts.
        """
        started, why = time.perf_counter(), ""
        count = sum(map(len, prompts))
        with self.budget.reserve(count, len(prompts), key) as reservation:
            for way in tuple(self._scored):
                # At least one token must be generated. At temperature 1 a server does not rescale the logits.
                body = {"model": self.served, self._limit: 1, "temperature": 1.0, **self.server.body, **way}
                most = _LARGEST + _LARGEST_TOKEN * count
                try:
                    answer = self.client.ask(
                        {**body, "prompt": prompts},
                        lambda response_body: scores_answer(response_body, prompts),
                        request=reservation.request,
                        call=key or (0, "", 0, 0),
                        most=most,
                    )
                except RejectedError as rejected:
                    why = f"; it reports: {rejected}"
                else:
                    if answer.scores is not None:
                        usage = {"requests": reservation.requests, "seconds": time.perf_counter() - started}
                        return answer, answer.scores, {**reservation.settle(**answer.reported), **usage}
                with self._lock:
                    self._scored = [parameters for parameters in self._scored if parameters is not way]
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
                    f"{count:,} tokens instead of the expected {expected:,}, and in a second trial, {detail}. "
                    f"{advice_text('longer context')}, "
                    "then run the same study on the same directory to continue"
                )
            self._prompt_counts.confirm(expected)

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
        """Make one request that belongs to no episode, to test the server; its cost counts towards the budget.

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
        """Record that the server accepts but ignores the named settings; every later step lists them as unsupported."""
        self._ignored = tuple(ignored)

    def parameters(self, request: Request, sampling: Sampling) -> dict[str, Any]:
        """Return the parameters of a request, name -> value, except for the prompt and the token limit.

        Parameters that the server does not support are left out. The seed is derived from the key of the request.
        """
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
        """Leave out a parameter of all later requests, because the server does not support it.

        Args:
            parameter: name of the parameter.
            reason: why the server does not support it, for the error.

        Raises:
            ValueError: the study has ``unsupported: refuse``, so that it must not run without this parameter.
        """
        # Token ids that the server does not return are reconstructed from the text, and the steps record this.
        if self.server.unsupported != "record" and parameter not in _IDS:
            name = _RECORDED.get(parameter, parameter)
            instead = "Take it out of server.body" if parameter in self.server.body else advice_text(f"instead/{name}")
            raise ValueError(
                f"the server of {self.served} does not support {name}: {reason}. "
                f"{f'{instead}, or s' if instead else 'S'}{RECORDING[1:]} to continue without it and record this with "
                "each step"
            )
        with self._lock:
            dropped = ("logprobs", "top_logprobs") if parameter in ("logprobs", "top_logprobs") else (parameter,)
            self._dropped |= dict.fromkeys(dropped)


def _chat(messages: Sequence[Message]) -> dict[str, Any]:
    """Return the request field that contains a chat."""
    return {"messages": [{"role": message.role, "content": message.content} for message in messages]}
