"""Whether a model's first turns can be used, and what is said of them: what its answers are, and what helps."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from goalscope.agents.choice import LITTLE_MASS
from goalscope.preflight.first_turns import PATIENCE, UNUSABLE_SECONDS, FirstTurns, Limits

_LIKELIHOOD: Final = (
    "--answer likelihood, which reads how likely it finds each action (needs weights, or completions:NAME@URL)"
)
_EXAMPLE: Final = "a filled-in answer in the prompt (--template example)"
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    # Failure of a turn -> what its answer is, and what helps.
    "no JSON": ("prose without an action", f"{_LIKELIHOOD}, or {_EXAMPLE}"),
    "truncated": ("cut off before an action", "more room for an answer (--set max_tokens=N), or a longer context"),
    "empty": ("empty", f"{_LIKELIHOOD}, or the way its reasoning is marked (--set reasoning=none)"),
    "unknown action": ("an action that is not offered", f"{_LIKELIHOOD}, or {_EXAMPLE}"),
    "two different actions": ("two different actions", _LIKELIHOOD),
    "markers": ("markers of its chat format in the answer", "the way its reasoning is marked (--set reasoning=...)"),
    LITTLE_MASS: (
        "unlikely to be an action",
        "a smaller --set least_mass=P, or of a chat model worked examples in the prompt (--template completion)",
    ),
}


def without_action(first: FirstTurns) -> str:
    """Return how many turns of a batch hold no action, what their answers are and what helps; "" where all hold one."""
    if not first.failures:
        return ""
    kinds = Counter(first.failures).most_common()
    words = ", ".join(f"{count} {_KINDS.get(name, (name, ''))[0]}" for name, count in kinds)
    example = f", as in “{first.example}”" if first.example else ""
    count = sum(first.failures.values())
    said = f"none of {first.asked}" if count == first.asked else f"{first.asked - count} of {first.asked}"
    return f"{said} answers to first turns held an action ({words}{example}); what helps: {what_helps(first.failures)}"


def what_helps(failures: Mapping[str, int]) -> str:
    """Return what helps against the two commonest failures of turns, in words and options of `evaluate`."""
    kinds = Counter(failures).most_common(2)
    return "; ".join(dict.fromkeys(_KINDS.get(name, ("", _LIKELIHOOD))[1] for name, _ in kinds))


def why_unusable(first: FirstTurns) -> str:
    """Return why nothing is asked of a model after its batch, "" where its answers can be used."""
    if first.silent:
        return (
            f"it gave no answer to its first turn ({first.silent}); what helps: see to the server, or let it take "
            "longer (--set server.timeout=SECONDS)"
        )
    return without_action(first) if first.unusable else ""


def announced(name: str, most: int, limits: Limits, patient: bool = False) -> str:
    """Return what is said before a batch is asked; patient: whether a server is waited for as its settings say."""
    return (
        f"{name}: up to {most} first turns are asked before all others and kept, to measure what a turn takes: at most "
        f"{limits.seconds:.0f} s and one answer in any case, {UNUSABLE_SECONDS:.0f} s while no answer holds an action"
        + ("" if patient else f"; a server that gives none within {PATIENCE:.0f} s is not waited for")
    )


def found(name: str, first: FirstTurns, limits: Limits) -> list[str]:
    """Return what a batch found, in lines."""
    if first.silent:
        return []
    valid = round(first.asked * (1 - first.invalid))
    turns = "first turn" if first.asked == 1 else "first turns"
    lines = [f"{name}: {first.asked} {turns} in {first.seconds:.3g} s, {valid} with an action"]
    if first.asked == 1 and first.seconds > limits.seconds / 2:
        lines[0] += "; a single answer takes that long, and what is expected rests on it alone"
    if first.invalid > 0.5:
        lines.append(f"{name}: {without_action(first)}")
    return lines
