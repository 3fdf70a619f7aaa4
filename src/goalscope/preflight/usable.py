"""Whether a model's first turns can be used, and what is said of them: what its answers are, and what helps."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from goalscope.agents.agent import Agent
from goalscope.agents.chat import ChatAgent
from goalscope.agents.choice import LITTLE_MASS
from goalscope.preflight.first_turns import PATIENCE, UNUSABLE_SECONDS, FirstTurns, Limits


@dataclass(frozen=True, slots=True)
class Remedy:
    """What helps against a failure of turns.

    Attributes:
        text: words and options of `evaluate`.
        key, value: the parameter of the agent that it sets; it is not proposed to an agent that has it already. ""
            where it sets none, or where another value of the same parameter may help.
    """

    text: str
    key: str = ""
    value: object = ""


_LIKELIHOOD: Final = Remedy(
    "--answer likelihood, which reads how likely it finds each action (needs weights, or completions:NAME@URL)",
    "answer",
    "likelihood",
)
_EXAMPLE: Final = Remedy("a filled-in answer in the prompt (--template example)", "template", "example")
_MORE_ROOM: Final = Remedy("more room for an answer (--set max_tokens=N), or a longer context")
_KINDS: Final[Mapping[str, tuple[str, tuple[Remedy, ...]]]] = {
    # Failure of a turn -> what its answer is, and what helps.
    "no JSON": ("prose without an action", (_LIKELIHOOD, _EXAMPLE)),
    "truncated": ("cut off before an action", (_MORE_ROOM,)),
    "empty": (
        "empty",
        (_LIKELIHOOD, Remedy("the way its reasoning is marked (--set reasoning=none)", "reasoning", "none")),
    ),
    "unknown action": ("an action that is not offered", (_LIKELIHOOD, _EXAMPLE)),
    "two different actions": ("two different actions", (_LIKELIHOOD,)),
    "markers": (
        "markers of its chat format in the answer",
        (Remedy("the way its reasoning is marked (--set reasoning=...)"),),
    ),
    LITTLE_MASS: (
        "unlikely to be an action",
        (
            Remedy("a smaller --set least_mass=P"),
            Remedy("of a chat model worked examples in the prompt (--template completion)", "template", "completion"),
        ),
    ),
}
_ELSE: Final = "read the answers (goalscope show RUN --failures), or ask another model"


def settings_in_use(agent: Agent, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an agent, with the template that it uses where none was given."""
    form = agent.form if isinstance(agent, ChatAgent) else ""
    return {**parameters, **({"template": form} if form else {})}


def without_action(first: FirstTurns, used: Mapping[str, Any]) -> str:
    """Return how many turns of a batch hold no action, what their answers are and what helps; "" where all hold one.

    Args:
        first: the batch.
        used: the parameters of the agent, which are not proposed again.
    """
    if not first.failures:
        return ""
    kinds = Counter(first.failures).most_common()
    words = ", ".join(f"{count} {_KINDS.get(name, (name, ''))[0]}" for name, count in kinds)
    example = f", as in “{first.example}”" if first.example else ""
    count = sum(first.failures.values())
    said = f"none of {first.asked}" if count == first.asked else f"{first.asked - count} of {first.asked}"
    helps = what_helps(first.failures, used)
    return f"{said} answers to first turns held an action ({words}{example}); what helps: {helps}"


def what_helps(failures: Mapping[str, int], used: Mapping[str, Any]) -> str:
    """Return what helps against the two commonest failures of turns, in words and options of `evaluate`.

    Args:
        failures: name of a failure -> turns.
        used: the parameters of the agent; what it has already is not proposed.
    """
    kinds = Counter(failures).most_common(2)
    remedies = [remedy for name, _ in kinds for remedy in _KINDS.get(name, ("", (_LIKELIHOOD,)))[1]]
    left = [remedy.text for remedy in remedies if not remedy.key or used.get(remedy.key) != remedy.value]
    return ", or ".join(dict.fromkeys(left)) or _ELSE


def why_unusable(first: FirstTurns, used: Mapping[str, Any]) -> str:
    """Return why nothing is asked of a model after its batch, "" where its answers can be used; used: as above."""
    if first.silent:
        return (
            f"it gave no answer to its first turn ({first.silent}); what helps: see to the server, or let it take "
            "longer (--set server.timeout=SECONDS)"
        )
    return without_action(first, used) if first.unusable else ""


def announced(name: str, most: int, limits: Limits, patient: bool = False) -> str:
    """Return what is said before a batch is asked; patient: whether a server is waited for as its settings say."""
    return (
        f"{name}: up to {most} first turns are asked before all others and kept, to measure what a turn takes: at most "
        f"{limits.seconds:.0f} s and one answer in any case, {UNUSABLE_SECONDS:.0f} s while no answer holds an action"
        + ("" if patient else f"; a server that gives none within {PATIENCE:.0f} s is not waited for")
    )


def found(name: str, first: FirstTurns, limits: Limits, used: Mapping[str, Any]) -> list[str]:
    """Return what a batch found, in lines; used: the parameters of the agent."""
    if first.silent:
        return []
    valid = round(first.asked * (1 - first.invalid))
    turns = "first turn" if first.asked == 1 else "first turns"
    lines = [f"{name}: {first.asked} {turns} in {first.seconds:.3g} s, {valid} with an action"]
    if first.asked == 1 and first.seconds > limits.seconds / 2:
        lines[0] += "; a single answer takes that long, and what is expected rests on it alone"
    if first.invalid > 0.5:
        lines.append(f"{name}: {without_action(first, used)}")
    return lines
