"""Where environments come from: adapters by name, and a class of the user's by ``module:Class``.

A run that a stranger wrote names the source of its worlds. So adapters take plain values alone, and for a module of
one's own holds what `goalscope.own` says.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from goalscope import registry
from goalscope.environments.environment import Environment
from goalscope.own import is_own, load_own

Made = TypeVar("Made")

_METHODS = ("initial", "step", "done", "goal", "observe", "describe")


def environment_kind(name: str) -> Callable[[Made], Made]:
    """Return a decorator that registers a class of environments; its keyword arguments must be plain values.

    Studies name it with ``kind: environment`` and ``source: NAME``.

    Args:
        name: the name, without a colon.

    Raises:
        ValueError: a name that is taken, or that could stand for a class.
    """
    if is_own(name):
        raise ValueError(f"the name of a kind of environments must not look like module:Class, got {name!r}")
    return registry.register("environment", name)


def build(source: str, parameters: Mapping[str, Any]) -> Environment[Any]:
    """Make an environment.

    Args:
        source: a registered name, see `environment_kind`, or ``module:Class`` of a file in the working directory.
        parameters: keyword arguments of its class: plain values.

    Raises:
        ValueError: an unknown source, a class that is no environment, parameters that it does not take.
        ImportError: a package is missing; names the extra.
    """
    made = load_own(source, _METHODS, "an environment") if is_own(source) else registry.resolve("environment", source)
    try:
        found = made(**parameters)
    except TypeError as error:
        raise ValueError(f"{source} must take the parameters {', '.join(parameters) or 'none'}: {error}") from error
    if not isinstance(found, Environment):
        lacking = [name for name in ("actions", *_METHODS) if not hasattr(found, name)]
        raise ValueError(f"{source} must be an environment, but has no {', '.join(lacking)}")
    return found


def decisive(text: str) -> dict[str, Any]:
    """Return the plain values of canonical JSON."""
    found: dict[str, Any] = json.loads(text)
    return found
