"""Models that are known by name: which interface each has, and how it is asked."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from goalscope.untrusted import read_yaml_text

MOST_TOKENS: Final = 10_000
"""Most output tokens of a model behind a server (behavioural and representational evaluation, Table 6)."""


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
    asked = {"max_tokens": MOST_TOKENS, "reasoning_effort": None}
    return {**asked, **given, "server": dict(servers[given["server"]])}
