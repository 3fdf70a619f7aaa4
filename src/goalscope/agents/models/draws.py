"""Draw tokens from logits, and compute their log-probabilities."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

_LIKELY: Final = (32, 256)  # so many of the most likely tokens often, and nearly always, contain the mass top_p
_ROUNDING: Final = 1e-9  # far above rounding errors in sums of probabilities


class Draws(NamedTuple):
    """Tokens ``[B]`` drawn from a batch of logits, and margins ``[B]``: how close each draw was to another token.

    At temperature 0, a margin is the gap between the two largest logits (nats). Otherwise it is the smallest change of
    a cumulative probability that changes the draw.
    """

    tokens: Any
    margins: Any


def draw(logits: Any, *, temperature: float, top_p: float, uniforms: npt.NDArray[np.float64] | None) -> Draws:
    """Draw one token per row.

    The smallest set of most likely tokens whose probabilities reach ``top_p`` is kept. The uniform number is then
    looked up in their cumulative probabilities *in the order of the ids*. Between batch shapes, nearly equal
    probabilities can swap their order through rounding; ordering by id ensures that such swaps do not change a draw.

    Args:
        logits: ``[B, V]`` tensor.
        temperature: 0 takes the largest logit; exact ties go to the lowest id.
        top_p: in (0, 1].
        uniforms: ``[B]`` numbers in [0, 1), one per row; not used at temperature 0.

    Raises:
        ValueError: a logit is NaN or infinite.
    """
    import torch

    if not bool((logits.amax(dim=-1) < torch.inf).all()):  # the largest of numbers with NaN is NaN
        raise ValueError(
            "the logits of a model must be finite numbers, got NaN or infinity: check the weights, and set dtype to "
            "bfloat16 or float32 (float16 overflows in some models)"
        )
    if temperature == 0:
        best = torch.topk(logits, 2, dim=-1).values.double()
        return Draws(logits.argmax(dim=-1), best[:, 0] - best[:, 1])
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    numbers = torch.as_tensor(uniforms, dtype=torch.float64).to(logits.device)[:, None]
    return _among(probabilities, numbers, top_p, _LIKELY if top_p < 1 else ())


def _among(probabilities: Any, numbers: Any, top_p: float, counts: Sequence[int]) -> Draws:
    """Draw from the ``counts[0]`` most likely tokens, or from more tokens in rows where more would change the draw."""
    import torch

    if not counts or probabilities.shape[-1] <= counts[0]:
        return _drawn(*_sorted(probabilities), numbers, top_p)[0]
    drawn, enough = _drawn(*torch.topk(probabilities, counts[0], dim=-1), numbers, top_p)
    rest = (~enough).nonzero()[:, 0]
    if len(rest):
        other_draws = _among(probabilities[rest], numbers[rest], top_p, counts[1:])
        drawn.tokens[rest], drawn.margins[rest] = other_draws
    return drawn


def _sorted(probabilities: Any) -> tuple[Any, Any]:
    """Return all probabilities ``[B, V]`` in decreasing order, with ties by increasing id, and their ids."""
    import torch

    ordered, order = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    return ordered, order


def _drawn(ordered: Any, order: Any, numbers: Any, top_p: float) -> tuple[Draws, Any]:
    """Draw from the largest probabilities ``[B, K]`` of ids ``[B, K]``.

    Returns:
        The draws, and ``[B]`` whether neither smaller probabilities nor another order of ties would change them.
    """
    import torch

    mass_before = torch.cumsum(ordered, dim=-1) - ordered
    # The most likely token is kept whatever top_p is.
    dropped = mass_before >= top_p if top_p < 1 else torch.zeros_like(mass_before, dtype=torch.bool)
    dropped[:, 0] = False
    split_ties = (dropped[:, 1:] != dropped[:, :-1]) & (ordered[:, 1:] == ordered[:, :-1])
    enough = (mass_before[:, -1] > top_p + _ROUNDING) & ~split_ties.any(dim=-1)
    ids, by_id = torch.sort(order, dim=-1)
    probabilities_left = ordered.masked_fill(dropped, 0.0).gather(-1, by_id)
    cumulative = torch.cumsum(probabilities_left, dim=-1)
    total = cumulative[:, -1:]
    target = numbers * total
    # The first id whose cumulative probability exceeds the target; it always has a probability above 0.
    places = torch.searchsorted(cumulative, target, right=True).clamp(max=probabilities_left.shape[-1] - 1)
    overshot = probabilities_left.gather(-1, places) == 0  # the target was rounded up to the total mass
    last = (
        probabilities_left.shape[-1] - 1 - (probabilities_left.flip(-1) > 0).to(torch.int8).argmax(dim=-1, keepdim=True)
    )
    places = torch.where(overshot, last, places)
    upper = cumulative.gather(-1, places)
    lower = upper - probabilities_left.gather(-1, places)
    margins = torch.minimum(target - lower, upper - target).clamp(min=0.0) / total
    if top_p < 1:
        margins = torch.minimum(margins, (mass_before[:, 1:] - top_p).abs().amin(dim=-1, keepdim=True))
    return Draws(ids.gather(-1, places)[:, 0], margins[:, 0]), enough


def log_probabilities(logits: Any, tokens: Any, top: int) -> list[dict[str, Any]]:
    """Return the log-probabilities (nats, before temperature) of tokens ``[B]`` drawn from logits ``[B, V]``.

    Each row gives one mapping with ``token``, ``logprob`` and ``top``, a list of [token, logprob] of the most likely
    tokens.
    """
    import torch

    scores = torch.log_softmax(logits.float(), dim=-1)
    chosen = scores.gather(-1, tokens[:, None])[:, 0].tolist()
    best = torch.topk(scores, min(top, scores.shape[-1]), dim=-1)
    rows = zip(tokens.tolist(), chosen, best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        {"token": token, "logprob": score, "top": [list(pair) for pair in zip(ids, values, strict=True)]}
        for token, score, ids, values in rows
    ]
