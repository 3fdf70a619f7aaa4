"""Sampling settings of ours as Inspect's, and back."""

from dataclasses import asdict
from typing import Any, Final

from inspect_ai.model import GenerateConfig

from goalscope.models.base import Sampling

NO_EFFORT: Final = "none"
"""How Inspect is told to ask for no effort of reasoning."""

_TAKEN: Final = ("temperature", "top_p", "max_tokens", "reasoning_effort")
_REFUSED: Final = (
    *("stop_seqs", "best_of", "frequency_penalty", "presence_penalty", "logit_bias", "top_k", "prompt_logprobs"),
    *("reasoning_tokens", "response_schema", "system_message", "modalities"),
)


def write_config(sampling: Sampling) -> GenerateConfig:
    """Return sampling settings as Inspect's, for the whole of a task."""
    asked = {name: getattr(sampling, name) for name in _TAKEN}
    asked["reasoning_effort"] = sampling.reasoning_effort or NO_EFFORT
    if sampling.top_logprobs:
        asked |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
    return GenerateConfig(**asked)


def read_config(config: GenerateConfig, otherwise: Sampling | None = None) -> Sampling:
    """Return Inspect's settings as ours.

    Args:
        config: Inspect's; what it leaves open is as in ``otherwise``.
        otherwise: the defaults, those of `Sampling` where None.

    Raises:
        ValueError: a value that ours cannot have.
    """
    found: dict[str, Any] = asdict(otherwise or Sampling())
    for name in _TAKEN:
        value = getattr(config, name)
        # Inspect makes 0.0 of the 0 that a study holds; the id of an agent tells them apart.
        if value is not None and value != found[name]:
            found[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    if found["reasoning_effort"] == NO_EFFORT:
        found["reasoning_effort"] = None
    if config.logprobs is not None or config.top_logprobs is not None:
        found["top_logprobs"] = (config.top_logprobs or 1) if config.logprobs is not False else 0
    return Sampling(**found)


def check_config(config: GenerateConfig) -> None:
    """Raise a ValueError for settings that the models of goalscope do not have."""
    given = [name for name in _REFUSED if getattr(config, name)]
    given += ["num_choices"] if (config.num_choices or 1) > 1 else []
    if given:
        raise ValueError(f"models of goalscope must be asked without {', '.join(given)}: leave it out")
