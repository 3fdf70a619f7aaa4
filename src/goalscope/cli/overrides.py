"""Changes to a study that are given on the command line: other sizes, counts, agents, models, or any key."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from goalscope import studies
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.checks import did_you_mean, near_miss
from goalscope.cli.console import say
from goalscope.models.base import TEMPLATE_FORMS
from goalscope.preflight.model_defaults import Found, find_out, ready_models
from goalscope.runs import Study
from goalscope.untrusted import read_yaml_text, shorten

_KINDS = (CHAT, TASK_CHAT)
# What concerns the question, not the model that is asked.
_KEPT = frozenset(
    (
        *("kind", "failure", "task", "history", "strategy", "reasoned", "memory"),
        *("temperature", "top_p", "top_logprobs", "answer", "answer_after", "least_mass", "prior_symbol"),
    )
)
_MOST_MODEL_NAME = 80
_MOST_NAME = 200

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What is changed in a study; None or empty for what stays as it is.

    Sizes, densities and the number of worlds change in all entries that have them. Agents are named as one text, the
    study's further ones among them. A model takes the place of those of all chat agents. Settings are KEY=VALUE each,
    the value written as in a study file.
    """

    sizes: Sequence[int] = ()
    densities: Sequence[float] = ()
    count: int | None = None
    trajectories: int | None = None
    agents: str | None = None
    model: Found | None = None
    settings: Sequence[str] = ()

    def given(self) -> dict[str, Any]:
        """Return what is changed, as texts by the names of the options."""
        numbers = {name: ",".join(f"{value:.12g}" for value in getattr(self, name)) for name in ("sizes", "densities")}
        single = {name: getattr(self, name) for name in ("count", "trajectories", "agents")}
        return {
            **{name: text for name, text in numbers.items() if text},
            **{name: str(value) for name, value in single.items() if value is not None},
            **({"model": self.model.name} if self.model is not None else {}),
            **({"set": list(self.settings)} if self.settings else {}),
        }

    def apply(self, study: Study) -> Study:
        """Return the changed study; its name says what is changed, its id follows from what it holds."""
        given = self.given()
        if not given:
            return study
        plain = study.dump()
        for option in ("sizes", "densities", "count"):
            if option not in given:
                continue
            having = [entry for entry in plain["worlds"] if option in entry]
            if not having:
                kinds = ", ".join(dict.fromkeys(str(entry["kind"]) for entry in plain["worlds"]))
                raise ValueError(
                    f"--{option} must fit the worlds of the study, but worlds of kind {kinds} have no {option}"
                )
            for entry in having:
                entry[option] = self.count if option == "count" else list(getattr(self, option))
        if self.trajectories is not None:
            plain["trajectories"] = self.trajectories
        if self.agents is not None:
            plain["agents"] = _chosen(study, plain, split_names(self.agents))
            plain.pop("further_agents", None)
            study = Study.parse(plain)
        if self.model is not None:
            with_model(study, plain, self.model)
        for setting in self.settings:
            set_key(plain, setting)
        named = [f"{name} {text}" for name, text in given.items() if name != "set"]
        name = f"{study.name} ({'; '.join([*named, *self.settings])})"
        if "name" not in [_path(setting.partition("=")[0])[0] for setting in self.settings]:
            plain["name"] = name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"
        return Study.parse(plain)


def read_overrides(
    sizes: str | None,
    densities: str | None,
    settings: Sequence[str] | None,
    model: str | None,
    network: bool,
    **given: Any,
) -> Overrides:
    """Return the changes that the options of a command ask for; what is found out about a model is said.

    ``network`` tells whether the tokenizer of a model on the hub may be fetched, ``given`` are further fields.
    """
    found = None if model is None else find_out(model, network=network)
    if found is not None:
        say(found.line)
    return Overrides(
        sizes=numbers("--sizes", sizes, int),
        densities=numbers("--densities", densities, float),
        settings=tuple(settings or ()),
        model=found,
        **given,
    )


def numbers(option: str, text: str | None, kind: type[Number]) -> tuple[Number, ...]:
    """Return the numbers of an option, separated by commas; none where it is not given."""
    if text is None:
        return ()
    try:
        found = tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        wanted = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} must be {wanted} separated by commas, got {shorten(text)}") from error
    if not found:
        raise ValueError(f"{option} must be given a value, got an empty one: leave it out to change nothing")
    return found


def layers_of(text: str) -> str | tuple[int, ...]:
    """Return the layers of an option: "thirds", "all", or the numbers of decoder blocks."""
    if text in ("thirds", "all"):
        return text
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise ValueError(f"--layers must be numbers of blocks such as 7,15,23, or thirds, or all; got {text!r}")
    return tuple(map(int, parts))


def split_names(text: str) -> list[str]:
    """Return names that are separated by semicolons, or by commas outside of brackets where there is no semicolon."""
    parts = text.split(";") if ";" in text else re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts if part.strip()]


def _chosen(study: Study, plain: dict[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the entries of the named agents, in the order of the names; a ready model takes the chat agent's place."""
    entries = {entry.build().name: entry.dump() for entry in (*study.agents_, *study.further_agents_)}
    for name in names:
        if name not in entries and (ready := ready_agent(study, name)) is not None:
            entries[name] = ready[1]
            if ready[0] not in names:
                rename(plain, {ready[0]: name})
        elif name not in entries:
            raise ValueError(f"--agents must name agents of the study, got {name!r}{near_miss(name, list(entries))}")
    if not names:
        raise ValueError("--agents must name at least one agent, got none: leave it out to change nothing")
    return [entries[name] for name in names]


def set_key(plain: dict[str, Any], setting: str) -> None:
    """Change one key of plain values by KEY=VALUE; the key itself may be new, what holds it must be there."""
    key, equals, text = setting.partition("=")
    path = _path(key)
    if not equals or not path:
        raise ValueError(f"--set must be given as KEY=VALUE, e.g. worlds.0.count=3, got {setting!r}")
    holder: Any = plain
    for depth, part in enumerate(path):
        where = ".".join(path[:depth]) or "the study"
        if isinstance(holder, list):
            if not part.isascii() or not part.isdigit() or int(part) >= len(holder):
                raise ValueError(
                    f"--set {key}: {where} is a list of {len(holder)}, numbered from 0, got {part!r} in its place"
                )
            place: Any = int(part)
        elif isinstance(holder, Mapping):
            place = part
        else:
            raise ValueError(f"--set {key}: {where} holds no further keys, it is {shorten(holder)}")
        if depth + 1 == len(path):
            holder[place] = read_yaml_text(text, f"--set {key}")
        elif isinstance(holder, Mapping) and place not in holder:
            raise ValueError(f"--set {key}: {where} has no key {part}{near_miss(part, list(map(str, holder)))}")
        else:
            holder = holder[place]


def _path(key: str) -> list[str]:
    return [part for part in re.split(r"[.\[\]]+", key.strip()) if part]


def split(text: str, separator: str = ",") -> list[str]:
    """Return the parts of a list that was given as one text, blanks taken off, empty parts left out."""
    return [part.strip() for part in text.split(separator) if part.strip()]


# `--model NAME`: another language model in the place of the study's own


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
        yield f"{name} {rest}".strip()[:_MOST_MODEL_NAME] if len(old) > 1 else name[:_MOST_MODEL_NAME]


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
