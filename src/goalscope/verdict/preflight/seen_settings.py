"""Settings of a language model that follow from its first answers: constrained choice, and a limit of output tokens.

Generated answers of which half or more contain no valid move would measure format alone, so the model chooses among
complete answers instead (`goalscope.agents.chat`), unless it marks its reasoning: then cut-off reasoning is the usual
cause. If some answers are far longer than every valid one, they are cut off after twice the longest valid one. A
setting that the user gave is never replaced.
"""

from dataclasses import replace
from typing import Final

from goalscope.agents.parse import fault_words
from goalscope.verdict.preflight.first_turns import FEWEST, FirstTurns, Limits
from goalscope.verdict.subject import MODELS, Subject
from goalscope.verdict.texts import TEXTS

SEEN: Final = ("answer", "max_tokens")
"""Parameters that may follow from first answers."""

SCORABLE_SECONDS: Final = 30.0
"""Maximum time of a batch without a valid move for a model whose answers can be scored instead."""

_FEWEST_TOKENS: Final = 128
_MOSTLY: Final = 0.5  # share of answers without a valid move


def scorable(subject: Subject) -> bool:
    """Return whether goalscope may let a model choose among complete answers instead of generating them."""
    generates = subject.kind in MODELS and subject.parameters.get("answer", "generated") == "generated"
    return generates and "answer" not in subject.stated and _by_likelihood(subject) is not None


def _by_likelihood(subject: Subject) -> Subject | None:
    if "weights" not in subject.access and subject.parameters.get("server", {}).get("mode") != "completions":
        return None
    if "reasoning" in subject.access:
        return None
    try:
        return replace(subject.changed(["answer=likelihood"]), name=subject.name)
    except ValueError:
        return None  # its model returns no likelihoods


def with_seen_settings(subject: Subject, first: FirstTurns, limits: Limits) -> tuple[Subject, str] | None:
    """Return a model with other settings and the reason for them, or None if its first answers suggest none.

    Args:
        subject: the model.
        first: its measured batch.
        limits: the limits of the batch.
    """
    if first.silent or not first.asked:
        return None
    enough = first.asked >= FEWEST or first.seconds >= limits.seconds / 2
    if first.invalid >= _MOSTLY and enough and scorable(subject):
        kinds = ", ".join(f"{count} {fault_words(kind)}" for kind, count in first.failures.items())
        invalid = sum(first.failures.values())
        reason = TEXTS("plan/by likelihood", name=subject.name, invalid=invalid, asked=first.asked, kinds=kinds)
        changed = _by_likelihood(subject)
        return None if changed is None else (changed, reason)
    usual = subject.parameters.get("max_tokens")
    limit = max(_FEWEST_TOKENS, 2 * first.longest_valid)
    valid = first.asked - sum(first.failures.values())
    if (
        "max_tokens" in subject.stated
        or not isinstance(usual, int)
        or valid < FEWEST
        or not limit < min(usual, first.longest)
    ):
        return None
    fields = {"valid": first.longest_valid, "longest": first.longest, "limit": limit, "usual": usual}
    changed = replace(subject.changed([f"max_tokens={limit}"]), name=subject.name)
    return changed, TEXTS("plan/fewer tokens", name=subject.name, **fields)
