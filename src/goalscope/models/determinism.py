"""Measure how far outputs of a local model depend on who shares the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

from goalscope.models.base import Request, Sampling
from goalscope.models.local import LocalModel

MARGIN = 1e-4
"""Draws with a larger margin must not depend on the batch in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Determinism:
    """How the outputs of a batch compare with those of single decoding.

    Attributes:
        requests: number of requests compared.
        tokens: number of tokens compared: up to and including the first difference of each output.
        equal: number of requests with the same tokens.
        near_ties: number of first differences at a draw whose margin is at most `MARGIN`.
        violations: number of first differences at a draw whose margin is larger.
        close_draws: number of compared tokens whose margin is at most `MARGIN`.
        largest_change: largest change of a drawn token's log-probability while the tokens agree, nats.
        repeatable: whether decoding the batch again gave the same tokens and bit-equal log-probabilities.
    """

    requests: int
    tokens: int
    equal: int
    near_ties: int
    violations: int
    close_draws: int
    largest_change: float
    repeatable: bool


def measure_determinism(model: LocalModel, requests: Sequence[Request], sampling: Sampling) -> Determinism:
    """Decode requests together, together once more, and one by one, and compare.

    Args:
        model: the model.
        requests: what to ask; each one three times.
        sampling: how outputs are drawn.

    Raises:
        ValueError: no request.
    """
    if not requests:
        raise ValueError("determinism needs at least one request to be measured, got none")
    scored = Sampling(**{**sampling.describe(), "top_logprobs": max(1, sampling.top_logprobs)})
    _, together = model.decode(requests, scored, margins=True)
    _, again = model.decode(requests, scored, margins=True)
    alone = [model.decode([request], scored, margins=True)[1][0] for request in requests]
    compared = equal = near = violations = close = 0
    largest = 0.0
    for batched, single in zip(together, alone, strict=True):
        pairs = zip(batched.tokens, single.tokens, batched.margins, single.margins, strict=False)
        margins = []
        for index, (first, second, *both) in enumerate(pairs):
            margins.append(min(both))
            if first != second:
                near, violations = near + (margins[-1] <= MARGIN), violations + (margins[-1] > MARGIN)
                break
            change = abs(batched.logprobs[index]["logprob"] - single.logprobs[index]["logprob"])
            largest = max(largest, change)
        else:
            equal += 1
        compared += len(margins)
        close += sum(margin <= MARGIN for margin in margins)
    repeatable = all(
        first.tokens == second.tokens and first.logprobs == second.logprobs
        for first, second in zip(together, again, strict=True)
    )
    return Determinism(
        requests=len(requests),
        tokens=compared,
        equal=equal,
        near_ties=near,
        violations=violations,
        close_draws=close,
        largest_change=largest,
        repeatable=repeatable,
    )
