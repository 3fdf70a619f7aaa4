"""Subjects of an evaluation: a model, a scripted agent, or recorded logs, and what can be seen of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from goalscope import registry
from goalscope.agents.agent import CHAT, TASK_CHAT, TASK_PREFIX, Agent, build_agent
from goalscope.checks import near_miss, note_namesake
from goalscope.environments.world import EnvironmentView
from goalscope.own import is_own
from goalscope.preflight.model_defaults import find_out
from goalscope.runs.opening import unmade
from goalscope.runs.store import Store
from goalscope.runs.tables import DATABASE
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.world import View
from goalscope.yaml_text import read_yaml_text, write_yaml

SERVERS: Final[Mapping[str, str]] = {"openai:": "chat", "completions:": "completions"}
"""Prefix of the name of a model behind a server, ``openai:NAME@URL`` -> mode of its requests."""

_SAMPLING: Final[Mapping[str, Any]] = {"temperature": 0.7, "top_p": 0.95}
_BUNDLED: Final[Mapping[str, tuple[int, frozenset[str]]]] = {
    # Maximum tokens of an answer, and what the model was trained on.
    "theseus": (96, frozenset({"grids", "weights", "reasoning"})),
    "ariadne": (64, frozenset({"tasks"})),
}
_MAX_TOKENS: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One agent that is evaluated.

    Attributes:
        name: what tables call it.
        kind: its kind as studies name it, "logs" for recorded episodes.
        parameters: its parameters as studies give them, without the task.
        access: what can be asked of it: "grids", "tasks", "environments", "text" (it reads any prompt), "weights",
            "reasoning", "logs".
        told: parameters for the wording of its prompt, of an agent that is no language model.
        logs: the run directory of recorded episodes.
    """

    name: str
    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    access: frozenset[str]
    told: frozenset[str] = frozenset()
    logs: Path | None = None

    def entry(self, **changes: Any) -> dict[str, Any]:
        """Return its entry in the list ``agents`` of a study.

        Args:
            changes: keys of the entry; the model's own parameters go before them. An agent that is no language model
                takes of them its name, and those of its own parameters that the instruction decides.
        """
        kind, name = changes.pop("kind", self.kind), changes.pop("name", self.name)
        if self.kind not in (CHAT, TASK_CHAT):
            kind, changes = self.kind, {key: value for key, value in changes.items() if key in self.told}
        return {**changes, **self.parameters, "kind": kind, "name": name}


def subjects_of(text: str) -> list[Subject]:
    """Return the subjects of a name on the command line: one, or each agent of recorded logs."""
    subject = subject_of(text)
    if subject.logs is None:
        return [subject]
    with Store(subject.logs) as store:
        return [replace(subject, name=name) for name in store.agent_names()]


def subject_of(text: str) -> Subject:
    """Return the subject of a name on the command line.

    Args:
        text: a bundled model (theseus, ariadne); a folder or a name on the hub; ``openai:NAME@URL`` for a model behind
            a server, or ``completions:NAME@URL`` where it is sent tokens, NAME then a folder or a name on the hub that
            has its tokenizer; a run directory of imported logs; or an agent kind, its parameters after a colon, as in
            ``epsilon-greedy:epsilon=0.3``; or an agent of one's own, ``module:Class`` of a file in the working
            directory, its parameters after another colon.

    Raises:
        ValueError: none of these, or a parameter that the kind does not take.
    """
    for prefix, mode in SERVERS.items():
        if text.startswith(prefix):
            return _served(text, prefix, mode)
    if text in _BUNDLED:
        note_namesake(text, "model")
        tokens, access = _BUNDLED[text]
        kind = TASK_CHAT if access == {"tasks"} else CHAT
        sampling = {"temperature": 0.0, "history": "conversation"} if kind == TASK_CHAT else _SAMPLING
        name = text.capitalize()
        return Subject(
            name=name, kind=kind, parameters={"model": text, **sampling, "max_tokens": tokens}, access=access
        )
    kind, _, arguments = text.partition(":")
    if kind not in registry.names("agent") and is_own(":".join(text.split(":")[:2])):
        kind, arguments = ":".join(text.split(":")[:2]), text.partition(":")[2].partition(":")[2]
    if is_own(kind) or (kind in registry.names("agent") and kind not in (CHAT, TASK_CHAT)):
        if not is_own(kind):
            note_namesake(text, "agent")
        parameters = {key: read_yaml_text(value, text) for key, value in _pairs(arguments, text)}
        agent = build_agent(kind, parameters)
        access = frozenset({"tasks"} if kind.startswith(TASK_PREFIX) else _acts_in(agent))
        # An agent that says `reads` acts by the words of its instruction, and has a parameter for their wording.
        reads = bool(getattr(agent, "reads", False))
        return Subject(
            name=agent.name,
            kind=kind,
            parameters=parameters,
            access=access | ({"text"} if reads else set()),
            told=frozenset({"wording"} if reads else ()),
        )
    path = Path(text).expanduser()
    if path.is_dir() and not unmade(path / DATABASE):
        return Subject(name=path.name, kind="logs", access=frozenset({"logs"}), logs=path)
    if path.is_dir() and not (path / "config.json").is_file():
        raise ValueError(
            f"a folder must hold a model (config.json) or a run (run.db), got {text} with neither: give the folder of "
            "the weights, a run directory, or the folder of an arm of an evaluation (arms/NAME)"
        )
    if path.is_dir() or "/" in text:
        return _weights(text)
    names = [*_BUNDLED, *(name for name in registry.names("agent") if name not in (CHAT, TASK_CHAT))]
    raise ValueError(
        f"a model must be one of {', '.join(_BUNDLED)}, a folder, a name on the hub (owner/name), openai:NAME@URL, a "
        f"run directory of imported logs, or an agent kind, got {text!r}{near_miss(text, names)}"
    )


def _acts_in(agent: Agent) -> set[str]:
    """Return the worlds, of grids and environments, whose views an agent can act on."""
    needs: type[View] = getattr(agent, "needs", View)
    kinds = {"grids": GridView, "environments": EnvironmentView}
    return {name for name, view in kinds.items() if issubclass(view, needs)} or {"grids"}


def _weights(text: str) -> Subject:
    """Return a model whose weights are given; how it is asked, and whether it reasons, follows from its tokenizer."""
    defaults = find_out(text, network=True)
    access = {"grids", "tasks", "environments", "text", "weights"} | (
        set() if defaults.style == "none" else {"reasoning"}
    )
    parameters = {**_SAMPLING, "max_tokens": _MAX_TOKENS, **defaults.parameters}
    return Subject(name=defaults.name, kind=CHAT, parameters=parameters, access=frozenset(access))


def _served(text: str, prefix: str, mode: str) -> Subject:
    name, at, url = text.removeprefix(prefix).rpartition("@")
    if not at or not name or not url.startswith(("http://", "https://")):
        raise ValueError(
            f"a model behind a server must be given as {prefix}NAME@URL, e.g. {prefix}gpt-oss-20b@http://localhost:8000/v1,"
            f" got {text!r}"
        )
    server = {"base_url": url} if mode == "chat" else {"base_url": url, "mode": mode}
    parameters = {"model": name, "server": server, **_SAMPLING, "max_tokens": _MAX_TOKENS}
    return Subject(
        name=name.rsplit("/", 1)[-1],
        kind=CHAT,
        parameters=parameters,
        # Whether it reasons shows in its first answers.
        access=frozenset({"grids", "tasks", "environments", "text", "reasoning"}),
    )


def _pairs(text: str, argument: str) -> list[tuple[str, str]]:
    pairs = [part.partition("=") for part in text.split(",")] if text else []
    if any(not equals or not key for key, equals, _ in pairs):
        raise ValueError(f"parameters of an agent must be written as key=value,key=value, got {argument!r}")
    return [(key.strip(), value) for key, _, value in pairs]


def describe(subject: Subject) -> str:
    """Return a subject as one line of YAML."""
    entry = dict(subject.parameters)
    if subject.logs is not None:
        entry = {"run": subject.logs.name, "agent": subject.name}
    return write_yaml({"kind": subject.kind, **entry}, default_flow_style=True, width=10_000).strip()
