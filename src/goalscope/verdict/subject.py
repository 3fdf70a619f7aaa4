"""Subjects of an evaluation: models, scripted agents or recorded logs, what is accessible of each, and the default
parameters of a language model.
"""

import copy
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from goalscope._ground import registry
from goalscope._ground.checks import near_miss, note_namesake
from goalscope._ground.folder import Folder, NamedFile, package_text
from goalscope._ground.own import consent, is_own
from goalscope._ground.untrusted import explain, shorten
from goalscope._ground.yaml_text import read_pairs, read_yaml, read_yaml_text, set_key, write_yaml
from goalscope.agents.agent import CHAT, TASK_CHAT, Agent, build_agent
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import COMPLETION
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.folders import holds_model, model_folder
from goalscope.agents.models.marks import Style
from goalscope.runs.opening import unmade
from goalscope.runs.store import Store
from goalscope.runs.study import AgentEntry
from goalscope.runs.tables import DATABASE
from goalscope.worlds.environments.world import EnvironmentView
from goalscope.worlds.grid import MATRIX
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.tasks.world import TaskView
from goalscope.worlds.world import View

MODELS: Final = (CHAT, TASK_CHAT)
"""Kinds of agents that are language models."""

SERVERS: Final[Mapping[str, str]] = {"openai:": "chat", "completions:": "completions"}
"""Prefix in the name of a model behind a server (``openai:NAME@URL``) -> mode of its requests."""

SEEN: Final = ("answer", "max_tokens")
"""Parameters of a language model that may follow from its first answers, see `goalscope.verdict.measured`."""

_SAMPLING: Final[Mapping[str, Any]] = {"temperature": 0.7, "top_p": 0.95}
_BUNDLED: Final[Mapping[str, tuple[int, frozenset[str]]]] = {
    # Maximum tokens of an answer, and what the model was trained on.
    "theseus": (96, frozenset({"grids", "weights", "reasoning"})),
    "ariadne": (64, frozenset({"tasks"})),
}
_MAX_TOKENS: Final = 1024
_LONGEST_NAME: Final = 60  # an arm may add the name of a variant, and a study takes 80 characters
_OF_GRIDS: Final = ("task", "prior_symbol", "encoding")
"""Parameters that agents in task worlds do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One subject of an evaluation: a language model, a scripted agent, or the agent of recorded logs.

    Attributes:
        name: its name in tables.
        kind: its kind in studies, also if it is given as a run; "logs" for imported episodes.
        parameters: its parameters in studies; they include ``name`` only if the user gave one. For an agent given as a
            run: the id of its description there.
        access: what it can be asked: "grids", "tasks", "environments", "text" (it reads any prompt), "wordings" (any
            wording of a prompt), "weights", "reasoning", "logs".
        told: parameters that set the wording of its prompt, for an agent that is not a language model.
        stated: parameters that the user gave; goalscope does not replace them after it has seen first answers.
        logs: the run directory of recorded episodes.
    """

    name: str
    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    access: frozenset[str]
    told: frozenset[str] = frozenset()
    stated: frozenset[str] = field(default=frozenset(), compare=False)
    logs: Path | None = None

    def entry(self, **changes: Any) -> dict[str, Any]:
        """Return the entry for this agent in a study's list ``agents``.

        Args:
            changes: keys of the entry. For a language model, its own parameters take precedence over them. Any other
                agent only takes its name from them, and those of its parameters that depend on the instruction.
        """
        kind, name = changes.pop("kind", self.kind), changes.pop("name", self.name)
        if self.kind not in MODELS:
            kind, changes = self.kind, {key: value for key, value in changes.items() if key in self.told}
        left_out = self.not_taken(kind)
        parameters = {key: value for key, value in self.parameters.items() if key not in left_out}
        return {**changes, **parameters, "kind": kind, "name": name}

    def not_taken(self, kind: str) -> list[str]:
        """Return which of the agent's parameters do not apply when it is asked as another kind of agent.

        This happens in task worlds, whose prompts have fewer settings than those of grids.

        Args:
            kind: the kind of agent as which it is asked.
        """
        if kind != TASK_CHAT or self.kind == TASK_CHAT:
            return []
        of_grids = [key for key in _OF_GRIDS if key in self.parameters]
        return of_grids + (["template"] if self.parameters.get("template") == COMPLETION else [])

    def changed(self, settings: Sequence[str]) -> "Subject":
        """Return the language model with some parameters changed; unless the user gave it a name, its name then lists
        them.

        Args:
            settings: KEY=VALUE each, as a study writes them, e.g. ``server.timeout=60``.

        Raises:
            ValueError: its kind of agent or model does not have a key, or a value does not fit.
        """
        parameters = copy.deepcopy(dict(self.parameters))
        for setting in settings:
            set_key(parameters, setting, f"the agent {self.name}")
        stated = self.stated | {setting.partition("=")[0] for setting in settings}
        return _language_model(replace(self, stated=stated), parameters, f"the model {self.name}")


def subjects_of(text: str) -> list[Subject]:
    """Return the agents that a name on the command line stands for: one, or all agents of recorded logs.

    Args:
        text: as for `subject_of`.
    """
    subject = subject_of(text)
    if subject.logs is None:
        return [subject]
    with Store(subject.logs) as store:
        if store.study() is None:
            return [replace(subject, name=name) for name in store.agent_names()]
        agents_by_name = {name: (identity, description) for identity, (name, description) in store.agents().items()}
        return [
            replace(subject, name=name, kind=str(description.get("kind", subject.kind)), parameters={"id": identity})
            for name in store.agent_names()
            for identity, description in [agents_by_name[name]]
        ]


def subject_of(text: str) -> Subject:
    """Return the agent to be evaluated that a name on the command line stands for.

    Args:
        text: one of the following. A bundled model (theseus, ariadne). A folder or a name on the hub.
            ``openai:NAME@URL`` for a model behind a server, or ``completions:NAME@URL`` for a server that receives
            tokens, where NAME is a folder or a hub name with the tokenizer. A run directory, of a study or of imported
            logs. A YAML file that contains an entry of a study's list ``agents``. An agent kind with its parameters
            after a colon, as in ``epsilon-greedy:epsilon=0.3`` and ``chat:model=theseus,answer=likelihood``. An agent
            of the user, ``module:Class`` of a file in the working directory, with its parameters after another colon.

    Raises:
        ValueError: the text is none of these, or the kind does not take a parameter.
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
    if text.endswith((".yaml", ".yml")):
        if not NamedFile(Path(text).expanduser()).is_there():
            raise FileNotFoundError(f"there is no file {text}: check the path of the model's YAML file")
        plain = read_yaml(Path(text).expanduser())
        consent(plain)
        try:
            return _of_entry(plain, text)
        except ValueError as error:
            raise error if text in str(error) else ValueError(f"{text}: {error}") from error
    kind, _, arguments = text.partition(":")
    if kind in MODELS:
        entry: dict[str, Any] = {}
        for key, value in read_pairs(arguments, text):
            *parents, last = key.split(".")
            holder = entry
            for parent in parents:
                holder = holder.setdefault(parent, {})
                if not isinstance(holder, dict):
                    raise ValueError(
                        f"{key} must not stand beside {parent}={holder}, got {text!r}: leave one of them out"
                    )
            holder[last] = value
        return _of_entry({**entry, "kind": kind}, text)
    if kind not in registry.names("agent") and is_own(":".join(text.split(":")[:2])):
        kind, arguments = ":".join(text.split(":")[:2]), text.partition(":")[2].partition(":")[2]
    if is_own(kind) or kind in registry.names("agent"):
        if is_own(kind):
            consent(kind)
        else:
            note_namesake(text, "agent")
        return _scripted(kind, dict(read_pairs(arguments, text)))
    path = Path(text).expanduser()
    if Folder(path).is_there() and not unmade(path / DATABASE):
        return Subject(name=path.name, kind="logs", access=frozenset({"logs"}), logs=path)
    if Folder(path).is_there() and not holds_model(path):
        raise ValueError(
            f"a folder must hold a model (config.json) or a run (run.db), got {text} with neither: give the folder of "
            "the weights, a run directory, or the folder of an arm of an evaluation (arms/NAME)"
        )
    if Folder(path).is_there() or path.suffix == ".gguf" or "/" in text:
        return _weights(text)
    names = [*_BUNDLED, *registry.names("agent")]
    raise ValueError(
        f"a model must be one of {', '.join(_BUNDLED)}, a folder, a GGUF file, a name on the hub (owner/name), "
        f"openai:NAME@URL, a YAML file, chat:model=NAME,KEY=VALUE, a run directory, or an agent kind, got "
        f"{text!r}{near_miss(kind, names)}"
    )


def _scripted(kind: str, parameters: Mapping[str, Any]) -> Subject:
    """Return the subject of an agent that is not a language model."""
    agent = build_agent(kind, parameters)
    access = frozenset(_acts_in(agent))
    # An agent that says `reads` acts by the words of its instruction, and has a parameter for their wording.
    reads = bool(getattr(agent, "reads", False))
    return Subject(
        name=agent.name,
        kind=kind,
        parameters=parameters,
        access=access | ({"text", "wordings"} if reads else set()),
        told=frozenset({"wording"} if reads else ()),
    )


def _of_entry(entry: Any, source: str) -> Subject:
    """Return the subject of an entry of a study's agents; a language model gets our defaults for missing parameters."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str):
        raise ValueError(
            f"{source} must hold an agent as a study lists it, a mapping with its kind, as in {{kind: chat, model: "
            f"theseus, answer: likelihood}}, got {shorten(entry)}"
        )
    kind, parameters = entry["kind"], {str(key): value for key, value in entry.items() if key != "kind"}
    if kind not in MODELS:
        return _scripted(kind, parameters)
    model, server = parameters.get("model"), parameters.get("server")
    if not isinstance(model, str):
        raise ValueError(
            f"{source} must name its model: a folder, a GGUF file, theseus, or a name on the hub or server"
        )
    if isinstance(server, Mapping) or "backend" in parameters:
        base = _behind(model, server or {})
    elif model in _BUNDLED:
        base = subject_of(model)
    else:
        base = _weights(model, parameters.get("chat_template"))
    access = base.access if kind == CHAT else frozenset({"tasks"})
    base = replace(base, kind=kind, access=access, stated=frozenset(parameters))
    return _language_model(base, {**base.parameters, **parameters}, source)


def _language_model(base: Subject, parameters: Mapping[str, Any], source: str) -> Subject:
    """Return the subject of a language model with these parameters, checked like a study entry; ``source`` names it in
    errors.
    """
    entry = {**parameters, "kind": base.kind, "name": parameters.get("name", base.name)}
    try:
        checked = AgentEntry.model_validate(entry)
    except ValidationError as error:
        raise ValueError(explain(error, {"": list(AgentEntry.model_fields)}, source, "model")) from None
    agent = build_agent(base.kind, checked.parameters)  # under the name that it gives itself
    assert isinstance(agent, ChatAgent)  # of these kinds
    name = agent.model.name.rpartition("/")[2]
    name = name.capitalize() if parameters["model"] in _BUNDLED else name
    title = "" if agent.choice is None else f" ({agent.choice.title})"
    access = base.access
    if agent.choice is not None and agent.choice.after != "reasoning":
        access -= {"reasoning"}
    if agent.encoding != MATRIX:
        access -= {"wordings"}
    return replace(base, name=parameters.get("name") or f"{name}{title}", parameters=parameters, access=access)


def told_apart(subjects: Sequence[Subject]) -> list[Subject]:
    """Return the subjects of an evaluation with distinct names.

    To equal names of language models, the parameters that differ are appended in brackets.

    Raises:
        ValueError: the user gave two subjects the same name, or two have the same parameters.
    """
    named = []
    for subject in subjects:
        namesakes = [
            subject_beside
            for subject_beside in subjects
            if subject_beside.name == subject.name and subject_beside is not subject
        ]
        if not namesakes or subject.kind not in MODELS or subject.logs is not None or "name" in subject.parameters:
            named.append(subject)
            continue
        words = [
            f"{key} {shorten(subject.parameters.get(key, 'default'))}"
            for key in dict.fromkeys(
                key for subject_beside in (subject, *namesakes) for key in subject_beside.parameters
            )
            if any(subject_beside.parameters.get(key) != subject.parameters.get(key) for subject_beside in namesakes)
        ]
        name = f"{subject.name} ({', '.join(words)})" if words else subject.name
        number = 1 + sum(subject_beside.name == subject.name for subject_beside in named)
        named.append(replace(subject, name=name if len(name) <= _LONGEST_NAME else f"{subject.name} ({number})"))
    names = [subject.name for subject in named]
    if len(set(names)) < len(names):
        raise ValueError(f"models must have different names, got {', '.join(names)}: give a name, as in chat:name=...")
    return named


def _acts_in(agent: Agent) -> set[str]:
    """Return the kinds of worlds in which an agent can act: task maps if it needs them, otherwise grids and
    environments.
    """
    needs: type[View] = getattr(agent, "needs", View)
    if issubclass(needs, TaskView):
        return {"tasks"}
    kinds = {"grids": GridView, "environments": EnvironmentView}
    return {name for name, view in kinds.items() if issubclass(view, needs)} or {"grids"}


def _weights(text: str, chat_template: str | None = None) -> Subject:
    """Return a model whose weights are accessible.

    The tokenizer determines the form of its prompts and whether it reasons.
    """
    defaults = find_out(text, network=True, chat_template=chat_template)
    access = {"grids", "tasks", "environments", "text", "wordings", "weights"} | (
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
    return _behind(name, {"base_url": url} if mode == "chat" else {"base_url": url, "mode": mode})


def _behind(name: str, server: Mapping[str, Any]) -> Subject:
    """Return a model of which only the answers are accessible: behind a server, or from another package's backend."""
    parameters = {"model": name, **({"server": server} if server else {}), **_SAMPLING, "max_tokens": _MAX_TOKENS}
    return Subject(
        name=name.rsplit("/", 1)[-1],
        kind=CHAT,
        parameters=parameters,
        # Whether it reasons shows in its first answers.
        access=frozenset({"grids", "tasks", "environments", "text", "wordings", "reasoning"}),
    )


def planned_entry(subject: Subject) -> dict[str, Any]:
    """Return how the plan of an evaluation lists a subject.

    It is the entry of a study's list ``agents``, with the name; for recorded logs also the name of their folder.
    """
    parameters = {key: value for key, value in subject.parameters.items() if key != "name"}
    logs = {} if subject.logs is None else {"run": subject.logs.name, "agent": subject.name}
    return {"name": subject.name, "kind": subject.kind, **logs, **parameters}


def subject_of_entry(entry: Mapping[str, Any]) -> Subject:
    """Return the subject of an evaluation that a plan lists.

    Args:
        entry: the entry of the plan, as from `planned_entry`.

    Raises:
        ValueError: the entry stands for recorded logs, whose location a plan does not store, or has no name.
    """
    name = str(entry.get("name", ""))
    if "run" in entry or not name:
        raise ValueError(f"a plan that is run must list agents with their names, got {shorten(dict(entry))}")
    subject = _of_entry({key: value for key, value in entry.items() if key != "name"}, f"the model {name} of the plan")
    return replace(subject, name=name)


def described(entry: Mapping[str, Any]) -> str:
    """Write how a plan lists a subject (see `planned_entry`) as one line of YAML, without the name."""
    plain = {key: value for key, value in entry.items() if key != "name"}
    return write_yaml(plain, default_flow_style=True, width=10_000).strip()


MAX_TOKENS: Final = 256
"""Maximum output tokens of a model that does not reason; its answer is a JSON object of about ten tokens."""

SERVED_TOKENS: Final = 10_000
"""Maximum output tokens of a model behind a server (behavioural and representational evaluation, Table 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDefaults:
    """The parameters with which a language model is asked unless the user sets them.

    Attributes:
        name: short name of the model.
        style: style that separates reasoning from the answer; None if unknown here.
        parameters: parameters of a chat agent, such as the maximum number of output tokens.
        line: description for the screen.
    """

    name: str
    style: Style | None
    parameters: Mapping[str, Any]
    line: str


def find_out(model: str, *, network: bool, chat_template: str | None = None) -> ModelDefaults:
    """Find the default parameters of a model from its name or its tokenizer; its weights are not read.

    Args:
        model: the name of a model that comes with settings (see `ready_models`), of a bundled one or of one on the hub;
            or the path of a folder or of a GGUF file.
        network: whether the tokenizer of a model on the hub may be downloaded.
        chat_template: name of the chat template, for a model that has several.

    Raises:
        FileNotFoundError, ValueError: there is no such model, or its tokenizer cannot be read.
        ImportError: transformers is missing.
        OSError: the hub does not have the model, or cannot be reached.
    """
    ready = ready_models().get(model)
    if ready is not None and "server" in ready:
        server = ready["server"]
        key = f", key from {server['key_env']}" if "key_env" in server else ""
        line = f"{model}: {ready['model']} at {server['base_url']} (mode {server.get('mode', 'chat')}{key})"
        return ModelDefaults(name=model, style=None, parameters=deepcopy(dict(ready)), line=line)
    model = model if ready is None else ready["model"]
    folder = model_folder(model)
    dialect = Dialect(model, chat_template=chat_template)
    name = dialect.name.rpartition("/")[2]
    common: dict[str, Any] = {"model": model, **({"chat_template": chat_template} if chat_template else {})}
    if folder is None and not network:
        line = (
            f"{name}: a model on the hub, of which nothing is read before it runs: counted as one that reasons, with "
            "at most 10,000 output tokens"
        )
        return ModelDefaults(name=name, style=None, parameters=common, line=line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the line below contains its warning
        marks, base, template = dialect.marks, dialect.base, dialect.chat_template
    style = marks.style
    common["reasoning"] = marks.setting
    if "reasoning_effort" not in template:
        common["reasoning_effort"] = None
    if style == "none":
        common["max_tokens"] = MAX_TOKENS
    if base and dialect.on_hub:
        common["template"] = COMPLETION
    how = {
        "harmony": "reasoning in harmony channels",
        "tags": f"reasoning in tags, {marks.title}",
        "none": f"no reasoning that is marked as such, the whole output is the answer, at most {MAX_TOKENS} tokens",
    }[style]
    kind = "a base model without a chat template: prompts are texts with worked examples that it goes on with; "
    return ModelDefaults(
        name=name, style=style, parameters=common, line=f"{name}: {kind * base}{how} (reasoning: {marks.title})"
    )


@cache
def ready_models() -> Mapping[str, Mapping[str, Any]]:
    """Return the models for which goalscope has settings: name -> parameters of a chat agent, such as its server.

    Parameters of the prompt are not among them.
    """
    content = read_yaml_text(package_text("goalscope.verdict", "ready_models.yaml"), "ready models")
    servers = content["servers"]
    return {name: _parameters(parameters, servers) for name, parameters in content["models"].items()}


def ready_name(model: str) -> str | None:
    """Return the name under which goalscope has settings for a model; None if it has none.

    Args:
        model: this name, or the name of the model at its provider.
    """
    key = model.rpartition("/")[2].casefold().replace("_", "-")
    for name, parameters in ready_models().items():
        if key in (name.casefold(), name.casefold().replace(" ", "-"), parameters["model"].rpartition("/")[2]):
            return name
    return None


def _parameters(parameters: Mapping[str, Any], servers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of one model, including the settings of its server."""
    if "server" not in parameters:
        return dict(parameters)
    defaults = {"max_tokens": SERVED_TOKENS, "reasoning_effort": None}
    return {**defaults, **parameters, "server": dict(servers[parameters["server"]])}
