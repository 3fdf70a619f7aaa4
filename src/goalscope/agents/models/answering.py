"""Models whose tokens are known: answers from drawn tokens, and likelihoods of given answers.

The likelihood of an answer is the product of the probabilities of its tokens, each given all tokens before it. An
answer is tokenized together with the text before it, since a token may cross the boundary. The beginning that all
answers share is counted once. Only the tokenizer's own tokenization of a text is scored, so a likelihood is a lower
bound for the probability that the model writes this text.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from goalscope._ground.progress import Arrived
from goalscope.agents.models.base import Likelihoods, Reply, Request, Sampling, finish_of
from goalscope.agents.models.decode import Decoded
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.reading import Prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """Token ids of some answers after the same tokens.

    Attributes:
        context: ids before all answers, at least one.
        answers: ``[A]`` ids of each answer after the context; none is the beginning of another.
        shared: number of ids at the beginning of the answers that are the same in all of them.
        prompt: number of ids of the context, followed by an answer, that belong to the prompt; at most all of the
            context.
    """

    context: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]
    shared: int
    prompt: int


def alternatives(
    dialect: Dialect, prompt: Sequence[int], text: str, answers: Sequence[str], *, ids: Sequence[int] = ()
) -> Alternatives:
    """Tokenize answers together with the text before them.

    If a token of some answer crosses the boundary, the context ends before this token for all answers.

    Args:
        dialect: how the model's texts become tokens.
        prompt: token ids of the prompt.
        text: the text before the answers; it must not begin inside a token.
        answers: the complete answers.
        ids: exact ids before the text.

    Raises:
        ValueError: there are fewer than two answers, or their tokens do not differ.
    """
    if len(answers) < 2:
        raise ValueError(f"likelihoods need at least two answers, got {len(answers)}: pass the answers of all actions")
    text_ids = [*ids, *dialect.encode(text)]
    answer_rows = [[*ids, *dialect.encode(text + answer)] for answer in answers]
    common = _common(answer_rows)
    if not all(len(tokens) > common for tokens in answer_rows) or len(set(map(tuple, answer_rows))) < len(answer_rows):
        raise ValueError(
            "answers must differ in their tokens, and none may be the beginning of another, got "
            f"{', '.join(answers)}: rename the actions, or use answer: generated"
        )
    n_context = _common([text_ids, *answer_rows])
    if not n_context:
        raise ValueError("a prompt must have at least one token before the answer: check the model's chat template")
    return Alternatives(
        context=tuple(answer_rows[0][:n_context]),
        answers=tuple(tuple(tokens[n_context:]) for tokens in answer_rows),
        shared=common - n_context,
        prompt=min(_common([prompt, tokens]) for tokens in answer_rows),
    )


def likelihoods(
    alternatives: Alternatives,
    scores: Sequence[Sequence[float]],
    usage: Mapping[str, float],
    reasoned: Reply | None,
    unsupported: tuple[str, ...],
) -> Likelihoods:
    """Return the likelihoods of answers from the log-probability of each of their tokens, ``[A]`` lists in nats."""
    rows = [(*alternatives.context, *answer) for answer in alternatives.answers]
    return Likelihoods(
        logprobs=tuple(float(sum(answer_scores[alternatives.shared :])) for answer_scores in scores),
        beginning=float(sum(scores[0][: alternatives.shared])),
        prompt_tokens=rows[0][: alternatives.prompt],
        outputs=tuple(tokens[alternatives.prompt :] for tokens in rows),
        reasoned=reasoned,
        usage=usage,
        unsupported=unsupported,
    )


def unanswered(reasoned: Reply) -> Likelihoods:
    """Return the likelihoods for a request whose reasoning never reached a final answer: all are undefined."""
    return Likelihoods(
        logprobs=(),
        prompt_tokens=reasoned.prompt_tokens,
        reasoned=reasoned,
        usage=dict(reasoned.usage),
        unsupported=reasoned.unsupported,
        answered_by=reasoned.answered_by,
    )


def placed(dialect: Dialect, prompt: str, answers: Sequence[str], reasoned: Reply | None) -> Alternatives | None:
    """Return the tokenized answers of a request, placed after its prompt or after its reasoning.

    Args:
        dialect: how the model writes chats.
        prompt: the rendered prompt.
        answers: the complete answers.
        reasoned: the model's output, None if it answers at once.

    Returns:
        The tokenized answers, or None if no final answer began after the reasoning.

    Raises:
        ValueError: see `alternatives`; also if the model does not mark its reasoning, or its output has no exact ids.
    """
    [ids] = dialect.prompt_ids([prompt])
    if reasoned is None:
        return alternatives(dialect, ids, prompt + dialect.opening(prompt), answers)
    if reasoned.output_tokens is None or reasoned.reconstructed:
        raise ValueError(
            "answer_after: reasoning needs the exact token ids of the reasoning, which the server does not return: use "
            "vLLM or SGLang, a local model, or answer_after: prompt"
        )
    start = dialect.answer_place(prompt, reasoned.output_tokens)
    if start is None:
        return None
    before, text = start
    return alternatives(dialect, ids, text, answers, ids=(*ids, *before))


def _common(rows: Sequence[Sequence[int]]) -> int:
    """Return how many ids at the beginning all rows share."""
    low, high = min(rows, key=tuple), max(rows, key=tuple)  # all other rows lie between these two
    limit = min(len(low), len(high))
    return next((index for index in range(limit) if low[index] != high[index]), limit)


# Completions and likelihoods from token ids, shared by local models and models in an engine.
#
# A subclass decodes prompts and scores given answers. Texts, reasoning, usage and likelihoods follow from the ids
# alone.


class Answering(Dialect):
    """A model whose subclass implements `_decoded` (generate ids) and `_scored` (log-probabilities of given ids).

    Attributes:
        joins: whether requests enter the batch of earlier calls that are still under way.
    """

    joins: ClassVar[bool] = True

    def prepare(self) -> None:
        """Read the weights now if they are not loaded yet, so that the time this takes is not charged to an answer."""
        self._load()

    def _decoded(
        self, requests: Sequence[Request], texts: Sequence[str], sampling: Sampling, arrived: Arrived[Decoded]
    ) -> None:
        """Decode each request, whose rendered prompt is its text, and pass each output to ``arrived`` once."""
        raise TypeError(f"{type(self).__name__} cannot generate text: it must implement _decoded")

    def _scored(
        self, contexts: Sequence[Sequence[int]], answers: Sequence[Prompts], arrived: Arrived[list[list[float]]]
    ) -> None:
        """Compute the log-probability (nats) of each token of the answers ``[N, A]`` after their contexts."""
        raise TypeError(f"{type(self).__name__} cannot score answers: it must implement _scored")

    def complete(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        arrived: Arrived[Reply] = lambda replies: None,
    ) -> list[Reply]:
        """Complete each chat, in order, and pass each reply to ``arrived`` as soon as it is complete."""
        texts = [self.render(request.messages, sampling) for request in requests]
        replies: dict[int, Reply] = {}
        prompts, share = self._prompts(requests, texts), _Shares()

        def take(outputs: Sequence[tuple[int, Decoded]]) -> None:
            new, seconds = [], share(len(outputs))
            for index, output in outputs:
                request, prompt = requests[index], prompts[index]
                prefilled = len(self.encode(request.prefill)) if request.prefill else 0
                output.tokens[:0] = prompt[len(prompt) - prefilled :]
                prompt = prompt[: len(prompt) - prefilled]
                new.append((index, self.reply(texts[index], prompt, output, sampling, seconds)))
            replies.update(new)
            arrived(new)

        self._decoded(requests, texts, sampling, take)
        return [replies[index] for index in range(len(requests))]

    def reply(
        self, text: str, prompt: Sequence[int], output: Decoded, sampling: Sampling, seconds: float = 0.0
    ) -> Reply:
        """Return an output as a reply.

        Args:
            text: the rendered prompt.
            prompt: token ids of the prompt.
            output: the decoded output.
            sampling: the sampling settings.
            seconds: the time that the output took.
        """
        parts = self.parts(text, output.tokens)
        return Reply(
            parts=parts,
            prompt_tokens=tuple(prompt),
            output_tokens=tuple(output.tokens),
            finish=finish_of(parts, output.finish),
            usage={"prompt_tokens": len(prompt), "output_tokens": len(output.tokens), "seconds": seconds},
            logprobs=tuple(output.logprobs) if sampling.top_logprobs else None,
            unsupported=self.unsupported(sampling),
            raw=self.text(output.tokens),
        )

    def likelihoods(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        reasoned: bool,
        arrived: Arrived[Likelihoods] = lambda scored: None,
    ) -> list[Likelihoods]:
        """Return how likely each answer of each request is. All answers to one prompt are computed in one pass."""
        written = self.complete(requests, sampling, lambda new: arrived([])) if reasoned else [None] * len(requests)
        share = _Shares()
        texts = [self.render(request.messages, sampling) for request in requests]
        alternatives = [
            placed(self, text, request.answers, reply)
            for text, request, reply in zip(texts, requests, written, strict=True)
        ]
        scorable = [(index, item) for index, item in enumerate(alternatives) if item is not None]
        results: dict[int, Likelihoods] = {}
        for index, (item, reply) in enumerate(zip(alternatives, written, strict=True)):
            if item is None:
                assert reply is not None  # without reasoning, the place of the answer is always known
                results[index] = unanswered(reply)
        arrived(list(results.items()))

        def take(scored: Sequence[tuple[int, list[list[float]]]]) -> None:
            new, seconds = [], share(len(scored))
            for number, scores in scored:
                index, item = scorable[number]
                reply = written[index]
                # The reasoning is already counted; the answers are scored, not generated.
                cost: dict[str, float] = {"prompt_tokens": len(item.context), "output_tokens": 0}
                cost |= reply.usage if reply is not None else {}
                cost["seconds"] = cost.get("seconds", 0.0) + seconds
                new.append((index, likelihoods(item, scores, cost, reply, self.unsupported(sampling))))
            results.update(new)
            arrived(new)

        self._scored([item.context for _, item in scorable], [item.answers for _, item in scorable], take)
        return [results[index] for index in range(len(requests))]

    def _prompts(self, requests: Sequence[Request], texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of the rendered prompts, each followed by its prefill."""
        return [
            ids + (self.encode(request.prefill) if request.prefill else [])
            for ids, request in zip(self.prompt_ids(texts), requests, strict=True)
        ]


class _Shares:
    """Divide the time of a batch among its answers: new answers share the time since the previous ones arrived."""

    def __init__(self) -> None:
        self._lock, self._last = threading.Lock(), time.perf_counter()

    def __call__(self, count: int) -> float:
        with self._lock:
            now = time.perf_counter()
            seconds, self._last = now - self._last, now if count else self._last
        return seconds / max(1, count)
