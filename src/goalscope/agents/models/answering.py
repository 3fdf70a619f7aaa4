"""Completions and likelihoods from token ids, shared by local models and models in an engine.

A subclass decodes prompts and scores given answers. Texts, reasoning, usage and likelihoods follow from the ids alone.
"""

import threading
import time
from collections.abc import Sequence
from typing import ClassVar

from goalscope._ground.progress import Arrived
from goalscope.agents.models.base import Likelihoods, Reply, Request, Sampling, finish_of
from goalscope.agents.models.decode import Decoded
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.likelihood import likelihoods, placed, unanswered
from goalscope.agents.models.reading import Prompts


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
        """Return how likely each answer of each request is; all answers to one prompt are computed together."""
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
