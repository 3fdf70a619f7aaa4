"""`--model NAME`: a study with another language model in the place of its own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from goalscope import studies
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.checks import did_you_mean
from goalscope.models.base import TEMPLATE_FORMS
from goalscope.preflight.model_defaults import Found, find_out
from goalscope.preflight.ready_models import ready_models
from goalscope.runs import Study
from goalscope.untrusted import read_yaml_text

_KINDS = (CHAT, TASK_CHAT)
# What concerns the question, not the model that is asked.
_KEPT = frozenset(
    (
        *("kind", "failure", "task", "history", "strategy", "reasoned", "memory"),
        *("temperature", "top_p", "top_logprobs", "answer", "answer_after", "least_mass", "prior_symbol"),
    )
)
_MOST_NAME = 80


def with_model(study: Study, plain: dict[str, Any], found: Found) -> None:
    """Put a model in the place of those of all chat agents of a study, in its plain values.

    Where a study has chat agents among its further ones alone, those of the first model there are taken and run, too.

    What concerns the question stays (task, history, strategy, temperature, how an answer is found); the rest follows
    from the model. Pairs and readings of activations that name an agent name its successor.

    Raises:
        ValueError: the study has no chat agent.
    """
    agents = study.agents_
    if not any(entry.kind in _KINDS for entry in agents):  # a model that is run only where it is named
        further = [entry for entry in study.further_agents_ if entry.kind in _KINDS]
        agents += tuple(one for one in further if one.parameters["model"] == further[0].parameters["model"])
        plain["agents"] = [entry.dump() for entry in agents]
    names = [entry.build().name for entry in agents]
    chat = [index for index, entry in enumerate(agents) if entry.kind in _KINDS]
    if not chat:
        raise ValueError(_no_chat(study.name, names))
    new = dict(zip((names[index] for index in chat), _named(found.name, [names[at] for at in chat]), strict=True))
    for index in chat:
        old = plain["agents"][index]
        plain["agents"][index] = {**_kept(old), **_fitting(found, old), "name": new[names[index]]}
    plain.pop("further_agents", None)  # they may be the same model under the same name
    rename(plain, new)


def ready_agent(study: Study, name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the one chat agent of a study asked of a ready model: the old name, and the new entry.

    None where no ready model has that name, or where the study has not exactly one agent to take the place of.
    """
    chat = [entry for entry in study.agents_ if entry.kind in _KINDS]
    if name not in ready_models() or len(chat) != 1:
        return None
    old, found = chat[0].dump(), find_out(name, network=False)
    return chat[0].build().name, {**_kept(old), **_fitting(found, old), "name": name}


def rename(plain: dict[str, Any], new: Mapping[str, str]) -> None:
    """Put the new names of agents where the analysis of a study names them."""
    analysis = plain.get("analysis") or {}
    if analysis.get("pairs"):
        analysis["pairs"] = [[new.get(name, name) for name in pair] for pair in analysis["pairs"]]
    for reading in (analysis.get("inside"), *analysis.get("interventions", ())):
        if reading:
            reading["agent"] = new.get(reading.get("agent"), reading.get("agent"))


def _kept(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an agent that concern the question."""
    kept = {key: value for key, value in old.items() if key in _KEPT}
    if old["kind"] == TASK_CHAT and old.get("template", "") not in ("", *TEMPLATE_FORMS):
        kept["template"] = old["template"]  # a system prompt of one's own
    return kept


def _fitting(found: Found, old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a model that fit an agent: one with a task of its own brings its own template."""
    parameters = dict(found.parameters)
    if old["kind"] == TASK_CHAT or os.path.sep in str(old.get("task", "")):
        parameters.pop("template", None)
    return parameters


def _named(name: str, old: Sequence[str]) -> Iterator[str]:
    """Yield the names of the new agents: what the old names share becomes the model's name."""
    words = [one.split() for one in old]
    shared = 0
    while all(len(parts) > shared and parts[shared] == words[0][shared] for parts in words):
        shared += 1
    for one, parts in zip(old, words, strict=True):
        rest = " ".join(parts[shared:]) if shared else f"({one})"
        yield f"{name} {rest}".strip()[:_MOST_NAME] if len(old) > 1 else name[:_MOST_NAME]


def _no_chat(study: str, agents: Sequence[str]) -> str:
    """Return the sentence on a study without a chat agent, with the shipped ones that have some."""
    having = [name for name in studies.names() if any(_asks(entry) for entry in _agents(name))]
    return (
        f"--model must fit a study with a chat agent, {study} has none ({', '.join(agents)}): give one of "
        f"{', '.join(having)}, or a study with an agent of kind chat{did_you_mean(Path(study).stem, having)}"
    )


def _agents(name: str) -> list[Any]:
    plain = read_yaml_text(studies.text(name), name)
    return list(plain["agents"])


def _asks(entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("kind") in _KINDS
