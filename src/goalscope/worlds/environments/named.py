"""Environments by their name on a command line."""

from typing import Any

import yaml

from goalscope._ground import registry
from goalscope._ground.own import consent, is_own


def named_environment(text: str) -> tuple[str, dict[str, Any]]:
    """Return source and parameters of an environment: ``module:Class:key=value,...``, a registered kind, or a file."""
    if text.endswith((".npz", ".json")):
        return "table", {"file": text}
    head, _, rest = text.rpartition(":") if "=" in text else (text, "", "")
    parameters = dict(pair.split("=", 1) for pair in rest.split(",") if pair)
    if not is_own(head) and head not in registry.names("environment"):
        raise ValueError(f"ENV must name an environment, got {text!r:.80}")
    consent(head)
    return head, {key: yaml.safe_load(value) for key, value in parameters.items()}
