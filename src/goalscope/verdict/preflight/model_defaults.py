"""Default parameters of chat agents: from the name of a ready model, otherwise from the model's tokenizer."""

import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from goalscope._ground.folder import package_text
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.agents.models.base import COMPLETION
from goalscope.agents.models.dialect import Dialect
from goalscope.agents.models.folders import model_folder
from goalscope.agents.models.marks import Style

MAX_TOKENS: Final = 256
"""Maximum output tokens of a model that does not reason; its answer is a JSON object of about ten tokens."""

SERVED_TOKENS: Final = 10_000
"""Maximum output tokens of a model behind a server (behavioural and representational evaluation, Table 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDefaults:
    """Default parameters of a chat agent for a model.

    Attributes:
        name: short name.
        style: style that separates reasoning from the answer; None if unknown here.
        parameters: parameters of a chat agent.
        line: description for the screen.
    """

    name: str
    style: Style | None
    parameters: Mapping[str, Any]
    line: str


def find_out(model: str, *, network: bool, chat_template: str | None = None) -> ModelDefaults:
    """Return the default parameters of a model from its name or its tokenizer; its weights are not read.

    Args:
        model: a name of `ready_models`, a folder, a GGUF file, a bundled model or a name on the hub.
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
    """Return the parameters of chat agents for the models that goalscope knows, by name, without those of the
    prompt.
    """
    content = read_yaml_text(package_text("goalscope.verdict.preflight", "ready_models.yaml"), "ready models")
    servers = content["servers"]
    return {name: _parameters(parameters, servers) for name, parameters in content["models"].items()}


def ready_name(model: str) -> str | None:
    """Return the name of a model that goalscope knows, given this name or that of its API; None for other models."""
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
