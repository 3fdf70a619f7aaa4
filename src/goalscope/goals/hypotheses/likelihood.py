"""The likelihood of an agent's answers under a policy that it follows with errors. All inference uses this one.

The agent makes the two kinds of errors of `goalscope.goals.hypotheses.errors`: in a share *fixed* of the states it
always makes the same wrong move, and elsewhere a share *random* of its answers is drawn from all m offered actions.
With the counts n of the answers in a state, the policy p and r = random there, the likelihood is

    (1 - fixed) prod ((1 - r) p(a) + r / m)^n(a) + fixed mean over wrong b of prod ((1 - r) 1[a = b] + r / m)^n(a)

Wrong is each action that the policy prefers less than chance does.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from goalscope.goals.hypotheses.definition import Array, Mask

_LEAST: Final = 1e-300  # least probability whose logarithm is taken


def wrong_moves(policies: Array, even: Array) -> Mask:
    """Return the offered actions that policies prefer less than chance does; none where they are uniform."""
    return np.asarray((policies < even - 1e-9) & (even > 0))


def with_errors(policies: Array, even: Array, random: Array, fixed: Array | float = 0.0) -> Array:
    """Return the probabilities of actions at the first visit to U states, of policies with errors, ``[..., U, A]``.

    Args:
        policies: ``[..., U, A]`` probabilities of actions without errors.
        even: ``[U, A]`` the uniform policy over the offered actions.
        random: ``[..., U]`` random shares.
        fixed: ``[..., 1, 1]`` fixed shares.
    """
    if np.any(fixed):
        wrong = wrong_moves(policies, even)
        number = wrong.sum(axis=-1, keepdims=True)
        errs = np.where(number > 0, wrong / np.maximum(number, 1), policies)
        policies = (1 - fixed) * policies + fixed * errs
    rate = random[..., None]
    return np.asarray((1 - rate) * policies + rate * even)


def log_likelihood(
    policies: Array, even: Array, counts: Array, random: Array, fixed: Sequence[float] = (0.0,)
) -> Array:
    """Return the log likelihood of answers in U states for each of F fixed shares, ``[..., F]``.

    Args:
        policies, even, random: as in `with_errors`.
        counts: ``[U, A]`` number of answers.
        fixed: the fixed shares.
    """
    follows = np.einsum("...ua,ua->...u", np.log(np.maximum(with_errors(policies, even, random), _LEAST)), counts)
    if not any(fixed):
        return np.asarray(np.repeat(follows.sum(axis=-1)[..., None], len(fixed), axis=-1))
    background = random[..., None] * even
    low = np.log(np.maximum(background, _LEAST))
    always = counts * (np.log(1 - random[..., None] + background) - low) + (counts * low).sum(axis=-1, keepdims=True)
    wrong = wrong_moves(policies, even)
    number = wrong.sum(axis=-1)
    masked = np.where(wrong, always, -np.inf)
    top = np.where(number > 0, masked.max(axis=-1), 0.0)
    sums = np.exp(masked - top[..., None]).sum(axis=-1)
    errs = top + np.log(np.maximum(sums, _LEAST)) - np.log(np.maximum(number, 1))
    errs = np.where(number > 0, errs, follows)  # without a wrong move there is no error
    shares = [
        follows if share == 0 else np.logaddexp(np.log(1 - share) + follows, np.log(share) + errs) for share in fixed
    ]
    return np.asarray(np.stack(shares, axis=-1).sum(axis=-2))
