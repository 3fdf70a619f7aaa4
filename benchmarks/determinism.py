"""How far the outputs of a local model, and the likelihoods of answers, depend on what else is in their batch.

`python benchmarks/determinism.py` asks the bundled model for the likelihoods of the four moves in 60 grids: all of them
in one call, then random parts of them, as a run that goes on after an interrupt asks for what is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from goalscope.agents import ChatAgent, Observation
from goalscope.agents.models.base import Request, Sampling
from goalscope.agents.models.local import LocalModel
from goalscope.worlds import GridView, generate_batch

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
    # With a number of slots, each call starts without stored beginnings of prompts.
    slots = len(requests)
    _, together = model.decode(requests, scored, slots=slots, margins=True)
    _, again = model.decode(requests, scored, slots=slots, margins=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodChange:
    """How the likelihoods of answers change with the other requests of their call.

    Attributes:
        answers: number of likelihoods that were compared.
        changed: how many of them are not equal to the last bit.
        largest: largest change, nats.
        other_order: number of requests whose most likely answer changed.
    """

    answers: int
    changed: int
    largest: float
    other_order: int


def measure_likelihoods(
    model: LocalModel, requests: Sequence[Request], sampling: Sampling, *, parts: int, rng: np.random.Generator
) -> LikelihoodChange:
    """Compare the likelihoods of answers when all requests are asked in one call with those of random parts of them.

    Args:
        model: the model.
        requests: what to ask, at least two.
        sampling: how prompts are rendered.
        parts: number of parts, each of 1 to N - 1 of the N requests.
        rng: chooses the parts.
    """
    together = [found.logprobs for found in model.likelihoods(requests, sampling, reasoned=False)]
    differences, other_order = list[float](), 0
    for _ in range(parts):
        chosen = rng.choice(len(requests), int(rng.integers(1, len(requests))), replace=False)
        part = model.likelihoods([requests[index] for index in chosen], sampling, reasoned=False)
        for index, found in zip(chosen, part, strict=True):
            differences += np.abs(np.subtract(found.logprobs, together[index])).tolist()
            other_order += int(np.argmax(found.logprobs) != np.argmax(together[index]))
    apart = np.array(differences)
    return LikelihoodChange(
        answers=len(apart), changed=int((apart > 0).sum()), largest=float(apart.max()), other_order=other_order
    )


def grid_requests(agent: ChatAgent, count: int) -> list[Request]:
    """Return the first prompts of an agent in grids of sizes 7, 9 and 11, some of each."""
    grids = [grid for size in (7, 9, 11) for grid in generate_batch(size, 0.4, seed=size, count=count)]
    shown = [Observation(view=GridView(grid=grid), episode_id=f"episode {number}") for number, grid in enumerate(grids)]
    return [agent.request(observation) for observation in shown]


if __name__ == "__main__":
    bundled = LocalModel("theseus", device="cpu")
    asked = grid_requests(ChatAgent(model=bundled), 20)
    change = measure_likelihoods(bundled, asked, Sampling(), parts=20, rng=np.random.default_rng(0))
    print(
        f"of {change.answers} likelihoods {change.changed} changed with the other requests of their call, by at most "
        f"{change.largest:.1e} nats; the most likely answer is another one in {change.other_order} requests"
    )
