"""How a model is asked: as is known of it by its name, else as its tokenizer says of chats and reasoning."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from goalscope.models.base import COMPLETION
from goalscope.models.dialect import Dialect
from goalscope.models.folders import model_folder
from goalscope.models.harmony import Style
from goalscope.untrusted import read_yaml_text

MOST_TOKENS: Final = 256
"""Most output tokens of a model that does not reason before its answer, which is a JSON object of ten tokens."""

SERVED_TOKENS: Final = 10_000
"""Most output tokens of a model behind a server (behavioural and representational evaluation, Table 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found out about a model, and the parameters of a chat agent that follow from it.

    Attributes:
        name: short name.
        style: how it tells its reasoning from its answer; None where that is not known here.
        parameters: of a chat agent.
        line: what the screen says of it.
    """

    name: str
    style: Style | None
    parameters: Mapping[str, Any]
    line: str


def find_out(model: str, *, network: bool) -> Found:
    """Return what the tokenizer of a model says about how it is to be asked; its weights are not read.

    Args:
        model: a name of `ready_models`, a folder, a GGUF file, a bundled model or a name on the hub.
        network: whether the tokenizer of a model on the hub may be fetched.

    Raises:
        FileNotFoundError, ValueError: no such model, or a tokenizer that cannot be read.
        ImportError: transformers is missing.
        OSError: the hub does not have it, or is not reached.
    """
    ready = ready_models().get(model)
    if ready is not None and "server" in ready:
        server = ready["server"]
        key = f", key from {server['key_env']}" if "key_env" in server else ""
        line = f"{model}: {ready['model']} at {server['base_url']} (mode {server.get('mode', 'chat')}{key})"
        return Found(name=model, style=None, parameters=ready, line=line)
    model = model if ready is None else ready["model"]
    folder = model_folder(model)
    dialect = Dialect(model)
    name = dialect.name.rpartition("/")[2]
    common: dict[str, Any] = {"model": model}
    if folder is None and not network:
        line = (
            f"{name}: a model on the hub, of which nothing is read before it runs: counted as one that reasons, with "
            "at most 10,000 output tokens"
        )
        return Found(name=name, style=None, parameters=common, line=line)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what it warns of is said below
        style, base, template = dialect.style, dialect.base, dialect.chat_template
    common["reasoning"] = style
    if "reasoning_effort" not in template:
        common["reasoning_effort"] = None
    if style == "none":
        common["max_tokens"] = MOST_TOKENS
    if base and dialect.on_hub:
        common["template"] = COMPLETION
    how = {
        "harmony": "reasoning in harmony channels",
        "think": "reasoning in think tags",
        "none": f"no reasoning that is marked as such, the whole output is the answer, at most {MOST_TOKENS} tokens",
    }[style]
    kind = "a base model without a chat template: prompts are texts with worked examples that it goes on with; "
    return Found(name=name, style=style, parameters=common, line=f"{name}: {kind * base}{how} (reasoning: {style})")


@cache
def ready_models() -> Mapping[str, Mapping[str, Any]]:
    """Return name -> parameters of a chat agent, those that concern the model and not the question."""
    plain = read_yaml_text(files(__package__).joinpath("ready_models.yaml").read_text(encoding="utf-8"), "ready models")
    servers = plain["servers"]
    return {name: _parameters(given, servers) for name, given in plain["models"].items()}


def ready_name(model: str) -> str | None:
    """Return the name under which a model is known, given that name or the one of its interface, in any case."""
    wanted = model.rpartition("/")[2].casefold().replace("_", "-")
    for name, parameters in ready_models().items():
        if wanted in (name.casefold(), name.casefold().replace(" ", "-"), parameters["model"].rpartition("/")[2]):
            return name
    return None


def _parameters(given: Mapping[str, Any], servers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of one model, its server written out."""
    if "server" not in given:
        return dict(given)
    asked = {"max_tokens": SERVED_TOKENS, "reasoning_effort": None}
    return {**asked, **given, "server": dict(servers[given["server"]])}
