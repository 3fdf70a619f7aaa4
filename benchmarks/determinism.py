"""How far the outputs of a local model depend on the batch that they are decoded in."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from goalscope.models.base import Request, Sampling
from goalscope.models.local import LocalModel

MARGIN: Final = 1e-4
"""Draws with a larger margin must not depend on the batch in float32."""


@dataclass(slots=True, kw_only=True)
class Determinism:
    """How the outputs of a batch compare with those of single decoding.

    Attributes:
        requests: number of requests compared.
        repeatable: whether decoding the batch again gave the same tokens and bit-equal log-probabilities.
        tokens: number of tokens compared: up to and including the first difference of each output.
        equal: number of requests with the same tokens.
        near_ties: number of first differences at a draw whose margin is at most `MARGIN`.
        violations: number of first differences at a draw whose margin is larger.
        close_draws: number of compared tokens whose margin is at most `MARGIN`.
        largest_change: largest change of a drawn token's log-probability while the tokens agree, nats.
    """

    requests: int
    repeatable: bool
    tokens: int = 0
    equal: int = 0
    near_ties: int = 0
    violations: int = 0
    close_draws: int = 0
    largest_change: float = 0.0


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
    scored = replace(sampling, top_logprobs=max(1, sampling.top_logprobs))
    _, together = model.decode(requests, scored, margins=True)
    _, again = model.decode(requests, scored, margins=True)
    pairs = zip(together, again, strict=True)
    repeatable = all(first.tokens == second.tokens and first.logprobs == second.logprobs for first, second in pairs)
    result = Determinism(requests=len(requests), repeatable=repeatable)
    for batched, request in zip(together, requests, strict=True):
        (single,) = model.decode([request], scored, margins=True)[1]
        for index in range(min(len(batched.tokens), len(single.tokens))):
            close = min(batched.margins[index], single.margins[index]) <= MARGIN
            result.tokens += 1
            result.close_draws += close
            if batched.tokens[index] != single.tokens[index]:
                result.near_ties += close
                result.violations += not close
                break
            change = abs(batched.logprobs[index]["logprob"] - single.logprobs[index]["logprob"])
            result.largest_change = max(result.largest_change, change)
        else:
            result.equal += 1
    return result
