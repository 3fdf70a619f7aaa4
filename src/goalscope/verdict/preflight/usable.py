"""Whether a model's first turns can be used, and what is said of them: what its answers are, and what helps."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from goalscope.agents.agent import WITHHELD
from goalscope.agents.chat import CALLED
from goalscope.agents.choice import LITTLE_MASS
from goalscope.verdict.preflight.causes import END_TOKEN, EXAMPLE, IN_REASONING, LIKELIHOOD, TAGS
from goalscope.verdict.preflight.first_turns import PATIENCE, UNUSABLE_SECONDS, FirstTurns, Limits

_ADVICE: Final[Mapping[str, str]] = {
    LIKELIHOOD: "--answer likelihood, which reads how likely the model finds each action (needs weights, or "
    "completions:NAME@URL)",
    EXAMPLE: "a filled-in answer in the prompt (--template example)",
    "max_tokens": "more room for an answer (--set max_tokens=N), or a longer context",
    "marks": "name the tags around its reasoning (--set 'reasoning={{open: ..., close: ...}}')",
    "least_mass": "a smaller --set least_mass=P, or of a chat model worked examples in the prompt (--template "
    "completion)",
    "reasoning parser": "its answers stand in the field for reasoning: start the server with the reasoning parser of "
    "this model (vLLM and SGLang: --reasoning-parser), or switch thinking off (--set thinking=false, which sends "
    "chat_template_kwargs: {{enable_thinking: false}})",
    "no tools": "its answers come as calls of a tool: leave tools out (server.body, and the server's automatic choice "
    "of tools)",
    "end token": "the server leaves the end token {0} in the answer: make it a stop string (--set "
    "'server.body={{stop: [\"{0}\"]}}'), or serve the model with its own chat template",
    "tags": 'name the tags around its reasoning (--set \'reasoning={{open: "{0}", close: "{1}"}}\'), or start the '
    "server with the reasoning parser of this model",
    "filter": "another provider of the model, or one without a content filter",
    "stronger": "a stronger model: the usual remedies are in use already",
}
"""What helps, by name; {0} and {1} are marks that stood in an answer."""

_KINDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    # Failure of a turn, or its cause -> what the answer is, and names of what helps.
    "no JSON": ("prose without an action", (LIKELIHOOD, EXAMPLE)),
    "truncated": ("cut off before an action", ("max_tokens",)),
    "empty": ("empty", (LIKELIHOOD, "max_tokens")),
    "unknown action": ("an action that is not offered", (LIKELIHOOD, EXAMPLE)),
    "two different actions": ("two different actions", (LIKELIHOOD,)),
    "markers": ("markers of its chat format in the answer", ("marks",)),
    LITTLE_MASS: ("unlikely to be an action", ("least_mass",)),
    CALLED: ("a call of a tool", ("no tools",)),
    WITHHELD: ("withheld by the server", ("filter",)),
    IN_REASONING: ("in the field for reasoning, the answer itself empty", ("reasoning parser",)),
    END_TOKEN: ("followed by a leftover end token", ("end token",)),
    TAGS: ("mixed with reasoning in tags", ("tags",)),
}


def without_action(first: FirstTurns) -> str:
    """Return how many turns of a batch hold no action, what their answers are and what helps; "" where all hold one."""
    if not first.failures:
        return ""
    kinds = _kinds(first)
    words = ", ".join(f"{count} {_KINDS.get(name, (name, ()))[0]}" for name, count in kinds.most_common())
    example = f", as in “{first.example}”" if first.example else ""
    count = sum(first.failures.values())
    said = f"none of {first.asked}" if count == first.asked else f"{first.asked - count} of {first.asked}"
    helps = what_helps(kinds, marks=first.marks, used=first.used)
    return f"{said} answers to first turns held an action ({words}{example}); what helps: {helps}"


def _kinds(first: FirstTurns) -> Counter[str]:
    """Return the failures of a batch, those with a known cause under its name."""
    kinds = Counter(first.failures)
    for cause, count in first.causes.items():
        failure = "empty" if cause == IN_REASONING else "markers"
        kinds[failure] -= count
        kinds[cause] += count
    return +kinds


def what_helps(kinds: Mapping[str, int], *, marks: Sequence[str] = (), used: Collection[str] = ()) -> str:
    """Return what helps against the two commonest failures of turns, in words and options of `evaluate`.

    Args:
        kinds: failure or cause -> turns.
        marks: marks that stood in an answer.
        used: names of what the agent uses already, which is not advised.
    """
    names = [name for kind, _ in Counter(kinds).most_common(2) for name in _KINDS.get(kind, ("", (LIKELIHOOD,)))[1]]
    advised = [name for name in dict.fromkeys(names) if name not in used] or ["stronger"]
    return "; or ".join(_ADVICE[name].format(*marks, "", "") for name in advised)


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
