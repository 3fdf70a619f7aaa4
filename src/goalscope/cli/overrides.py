"""Options that change a study: sizes, counts, agents, models, or any key."""

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from goalscope._ground import registry
from goalscope._ground.checks import did_you_mean, near_miss, note_namesake
from goalscope._ground.folder import anything_at
from goalscope._ground.own import consent
from goalscope._ground.yaml_text import key_path, read_yaml_text, set_key
from goalscope.agents.agent import CHAT, TASK_CHAT
from goalscope.agents.models.base import TEMPLATE_FORMS
from goalscope.cli.console import say
from goalscope.cli.generator import Reads, Settings, split_names
from goalscope.runs import Study
from goalscope.verdict.preflight import study_files
from goalscope.verdict.subject import ModelDefaults, find_out, ready_models

_KINDS = (CHAT, TASK_CHAT)
# Parameters that determine what an agent is asked, independent of its model.
_QUESTION_KEYS = frozenset(
    (
        *("kind", "failure", "task", "history", "strategy", "reasoned", "memory"),
        *("temperature", "top_p", "top_logprobs", "answer", "answer_after", "least_mass", "prior_symbol"),
    )
)
_MAX_MODEL_NAME = 80
_MAX_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Options of commands that change the worlds of a study. None or empty means no change.

    Each option changes every entry under ``worlds:`` of the study that has such a key.

    Attributes:
        sizes (LIST): side lengths of the grids, e.g. 7,9.
        densities (LIST): wall densities of the grids, e.g. 0,0.6.
        count: number of worlds of each kind, size and density.
        settings (KEY=VALUE): set any key of the study, e.g. worlds.0.count=3. Repeatable.
    """

    sizes: Sequence[int] | None = None
    densities: Sequence[float] | None = None
    count: int | None = None
    settings: Settings = ()

    def given(self) -> dict[str, Any]:
        """Return the options that change something, by name, with their values as text."""
        changes = dict[str, Any]()
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if option.name == "settings":
                changes |= {"set": list(value)} if value else {}
            elif option.name in ("sizes", "densities"):
                changes |= {option.name: ",".join(f"{number:.12g}" for number in value)} if value else {}
            elif value is not None:
                changes[option.name] = value.name if isinstance(value, ModelDefaults) else str(value)
        return changes

    def apply(self, study: Study) -> Study:
        """Return the study with the changes. Its name lists them, and its id follows from its content.

        Raises:
            ValueError: if an option does not apply to the study, or the changed study is invalid.
        """
        changes = self.given()
        if not changes:
            return study
        mapping = study.dump()
        consent([setting.partition("=")[2] for setting in self.settings])
        for option in ("sizes", "densities", "count"):
            if option not in changes:
                continue
            entries = [entry for entry in mapping["worlds"] if option in entry]
            if not entries:
                kinds = ", ".join(dict.fromkeys(str(entry["kind"]) for entry in mapping["worlds"]))
                raise ValueError(
                    f"--{option} does not apply to this study: its worlds ({kinds}) have no {option}; leave it out"
                )
            for entry in entries:
                entry[option] = self.count if option == "count" else list(getattr(self, option))
        self.change_agents(study, mapping)
        for setting in self.settings:
            set_key(mapping, setting)
        described = [f"{name} {text}" for name, text in changes.items() if name != "set"]
        name = f"{study.name} ({'; '.join([*described, *self.settings])})"
        if "name" not in [key_path(setting.partition("=")[0])[0] for setting in self.settings]:
            mapping["name"] = name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
        try:
            return Study.assemble(mapping)
        except ValueError as error:
            wrong = [option for option in _OF_STUDY if option in changes and re.search(rf"\b{option}\b", str(error))]
            if not wrong:
                raise
            options = ", ".join(f"--{option} {changes[option]}" for option in wrong)
            raise ValueError(f"{options} cannot be used here: {error}") from None

    def change_agents(self, study: Study, mapping: dict[str, Any]) -> None:
        """Change the agents in the dictionary form of a study (``mapping``), in place. Options of worlds change nothing
        here.
        """


UNCHANGED: Final = WorldOptions()
"""No changes to the worlds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions(WorldOptions):
    """Options of commands that change a study: its worlds, its agents and their episodes.

    Agents may be chosen from the study's ``agents:`` and its ``further_agents:``.

    Attributes:
        trajectories: number of episodes per agent and world.
        agents (NAMES): run only these agents of the study, in this order, separated by ',' or ';'.
        model (NAME): replace the model of all chat agents by this one: a folder, a GGUF file or a hub name.
    """

    trajectories: int | None = None
    agents: str | None = None
    model: Annotated[str | ModelDefaults | None, Reads("model")] = None

    def read(self, *, network: bool = False) -> "StudyOptions":
        """Return the options with the name of a model replaced by its default settings, which are also printed.

        Args:
            network: whether its tokenizer may be fetched.
        """
        if not isinstance(self.model, str):
            return self
        # The chat template decides the defaults of a new model, so it is read before the other settings apply.
        templates = [
            text
            for key, _, text in (setting.partition("=") for setting in self.settings)
            if key.rpartition(".")[2] == "chat_template"
        ]
        defaults = find_out(self.model, network=network, chat_template=templates[-1] if templates else None)
        say(defaults.line)
        return dataclasses.replace(self, model=defaults)

    def change_agents(self, study: Study, mapping: dict[str, Any]) -> None:
        """Change the agents and their episodes in the dictionary form of a study (``mapping``), in place."""
        if self.trajectories is not None:
            mapping["trajectories"] = self.trajectories
        if self.agents is not None:
            mapping["agents"] = _named_entries(study, mapping, split_names(self.agents))
            mapping.pop("further_agents", None)
            study = Study.assemble(mapping)
        model = self.read().model
        if isinstance(model, ModelDefaults):
            with_model(study, mapping, model)


_OF_STUDY = ("sizes", "densities", "count", "trajectories")
"""Options with the names of the keys of a study that they change."""


def load_study(name: str, changes: WorldOptions | None = None) -> Study:
    """Load a study from a file or by its registered name, and apply the options that change it."""
    return study_files.load(name, None if changes is None else changes.apply)


def study_entries() -> list[tuple[str, str]]:
    """Return the names of the registered studies, each with an empty text, as `lists` needs them for the help of a
    command.
    """
    return [(name, "") for name in sorted(registry.names("study"))]


def worlds_of(text: str, options: WorldOptions) -> Study:
    """Return a study with the worlds that the option --worlds describes.

    Args:
        text: a kind of worlds, the name or file of a study, an entry of a study in braces, or a table (.npz).
        options: changes to the worlds.

    Raises:
        FileNotFoundError: if it is none of these.
    """
    entries: Any = None
    if text in registry.names("world"):  # a file of that name must not run code that nobody named
        note_namesake(text, "kind of worlds")
        fields = registry.resolve("world", text).settings.model_fields
        usual: dict[str, Any] = {"sizes": [7, 9], "densities": [0.2, 0.6], "count": 40}
        entries = {"kind": text, **{key: value for key, value in usual.items() if key in fields}}
    elif text.endswith(".npz"):
        entries = {"kind": "environment", "source": "table", "parameters": [{"file": text}]}
    elif text.lstrip().startswith(("{", "[")) and not anything_at(text):
        entries = read_yaml_text(text, "--worlds")
    else:
        kinds, studies = registry.names("world"), registry.names("study")
        if text not in studies and not anything_at(text):
            raise FileNotFoundError(
                f"--worlds must be a kind of worlds ({', '.join(sorted(kinds))}), a study that comes with goalscope "
                f"({', '.join(sorted(studies))}), or a file (.yaml or .npz) that exists, got {text!r:.200}"
                f"{did_you_mean(text, [*kinds, *studies])}"
            )
        return load_study(text, options)
    listed = entries if isinstance(entries, list) else [entries]
    return options.apply(Study.parse({"name": "worlds", "worlds": listed, "agents": [{"kind": "random"}]}))


def _named_entries(study: Study, mapping: dict[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the entries of the named agents, in the given order. A ready model replaces the chat agent."""
    entries = {entry.build().name: entry.dump() for entry in (*study.agents_, *study.further_agents_)}
    for name in names:
        if name not in entries and (replacement := ready_agent(study, name)) is not None:
            entries[name] = replacement[1]
            if replacement[0] not in names:
                rename(mapping, {replacement[0]: name})
        elif name not in entries:
            raise ValueError(f"--agents: the study has no agent {name!r}{near_miss(name, list(entries))}")
    if not names:
        raise ValueError("--agents names no agent: name at least one, or leave it out to run all")
    return [entries[name] for name in names]


# `--model NAME`: another language model in place of the study's own


def with_model(study: Study, plain: dict[str, Any], defaults: ModelDefaults) -> None:
    """Replace the model of every chat agent in a study, as the option --model requests.

    If only agents listed under ``further_agents`` are chat agents, those that share the first one's model are run as
    well. The parameters of the question are kept (task, history, strategy, temperature, answer parsing); the others are
    the defaults of the new model. Pairs and analyses that name an agent then name its replacement.

    Args:
        study: the study.
        plain: the study in the form of a dictionary, which is changed in place.
        defaults: the new model with its default parameters.

    Raises:
        ValueError: if the study has no chat agent.
    """
    agents = study.agents_
    if not any(entry.kind in _KINDS for entry in agents):  # its model runs only if it is named
        further = [entry for entry in study.further_agents_ if entry.kind in _KINDS]
        agents += tuple(entry for entry in further if entry.parameters["model"] == further[0].parameters["model"])
        plain["agents"] = [entry.dump() for entry in agents]
    names = [entry.build().name for entry in agents]
    chat = [index for index, entry in enumerate(agents) if entry.kind in _KINDS]
    if not chat:
        shipped = {name: read_yaml_text(study_files.text(name), name)["agents"] for name in study_files.names()}
        # Studies of other packages are checked only when they are run.
        kinds = {
            name: {entry.get("kind") for entry in entries if isinstance(entry, Mapping)}
            for name, entries in shipped.items()
        }
        having = [name for name in kinds if kinds[name] & {*_KINDS}]
        raise ValueError(
            f"--model replaces the model of chat agents, but {study.name} has no chat agent ({', '.join(names)}): run "
            f"one of {', '.join(having)}, or a study with an agent of kind "
            f"chat{did_you_mean(Path(study.name).stem, having)}"
        )
    new = dict(
        zip((names[index] for index in chat), _new_names(defaults.name, [names[index] for index in chat]), strict=True)
    )
    for index in chat:
        old = plain["agents"][index]
        plain["agents"][index] = {
            **_question_parameters(old),
            **_model_parameters(defaults, old),
            "name": new[names[index]],
        }
    plain.pop("further_agents", None)  # they may be the same model under the same name
    rename(plain, new)


def ready_agent(study: Study, name: str) -> tuple[str, dict[str, Any]] | None:
    """Return a chat agent like the only one of a study, but with another model that goalscope knows by name.

    Returns:
        The name of the study's chat agent, and the entry of the new one; None if goalscope has no parameters for a
        model of that name, or if there is not exactly one chat agent.
    """
    chat = [entry for entry in study.agents_ if entry.kind in _KINDS]
    if name not in ready_models() or len(chat) != 1:
        return None
    old, defaults = chat[0].dump(), find_out(name, network=False)
    return chat[0].build().name, {**_question_parameters(old), **_model_parameters(defaults, old), "name": name}


def rename(plain: dict[str, Any], new: Mapping[str, str]) -> None:
    """Replace the names of agents wherever the analysis settings of a study name them.

    Args:
        plain: the study in the form of a dictionary, which is changed in place.
        new: old name -> new name.
    """
    analysis = plain.get("analysis") or {}
    if analysis.get("pairs"):
        analysis["pairs"] = [[new.get(name, name) for name in pair] for pair in analysis["pairs"]]
    for reading in (analysis.get("inside"), *analysis.get("interventions", ())):
        if reading:
            reading["agent"] = new.get(reading.get("agent"), reading.get("agent"))


def _question_parameters(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an agent that determine what it is asked."""
    parameters = {key: value for key, value in old.items() if key in _QUESTION_KEYS}
    if old["kind"] == TASK_CHAT and old.get("template", "") not in ("", *TEMPLATE_FORMS):
        parameters["template"] = old["template"]  # a custom system prompt
    return parameters


def _model_parameters(defaults: ModelDefaults, old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that come from the model. An agent with a custom task keeps its own template."""
    parameters = dict(defaults.parameters)
    if old["kind"] == TASK_CHAT or os.path.sep in str(old.get("task", "")):
        parameters.pop("template", None)
    return parameters


def _new_names(name: str, old: Sequence[str]) -> Iterator[str]:
    """Yield the names of the new agents: the model's name replaces the common prefix of the old names."""
    words = [former.split() for former in old]
    shared = 0
    while all(len(parts) > shared and parts[shared] == words[0][shared] for parts in words):
        shared += 1
    for former, parts in zip(old, words, strict=True):
        suffix = " ".join(parts[shared:]) if shared else f"({former})"
        yield f"{name} {suffix}".strip()[:_MAX_MODEL_NAME] if len(old) > 1 else name[:_MAX_MODEL_NAME]
