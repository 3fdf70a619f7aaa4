"""How a study's language models are made: a backend by name, ours and those of other packages.

``local`` runs a Hugging Face model here, ``server`` asks an OpenAI-compatible server; a chat agent with the parameter
``server`` has the latter unless it names another one.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin

from goalscope import registry
from goalscope.checks import near_miss
from goalscope.models.base import Model
from goalscope.models.http_settings import MOST_NUMBER

Maker = TypeVar("Maker", bound=Callable[..., Any])

_WORDS: Final = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "nothing"}


def model_backend(name: str) -> Callable[[Maker], Maker]:
    """Return a decorator that registers how the models of a backend are made; chat agents of studies then name it.

    It stands above a function, or a class, that is called as ``make(model=..., name=..., **options)``: ``model`` is
    what the study calls the model, ``name`` what tables shall call it or None. Its other keyword parameters are the
    options that a study may give. What it returns is a `goalscope.models.Model`.

    Args:
        name: the backend's name.

    Raises:
        ValueError: a name that is taken.
    """
    return registry.register("model", name)


def _options(maker: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {
        parameter.name: parameter
        for parameter in inspect.signature(maker).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in ("model", "name")
    }


def build_model(
    model: str, options: Mapping[str, Any], *, backend: str = "", name: str | None = None, others: Sequence[str] = ()
) -> Model:
    """Make a model from what a study says of it; nothing is read or sent yet.

    Args:
        model: what the study calls it.
        options: the options of its backend.
        backend: name of the backend; "" for ``server`` where the options have a server, else ``local``.
        name: what tables shall call it, None for its own choice.
        others: further parameters that the caller takes, for the error that names what there is.

    Raises:
        ValueError: an unknown backend or option, one that is missing, or a value of the wrong type or out of its range.
        TypeError: what the backend makes is no model.
    """
    backend = backend or ("server" if "server" in options else "local")
    maker = registry.resolve("model", backend)
    known = _options(maker)
    for option, value in options.items():
        if option not in known:
            raise ValueError(_foreign(option, backend, [*others, *known]))
        if backend in _OTHER:
            check_type(option, value, known[option].annotation)
    missing = [one.name for one in known.values() if one.default is one.empty and one.name not in options]
    if missing:
        raise ValueError(f"the model backend {backend} must be given {', '.join(missing)}")
    made = maker(model=model, name=name, **options)
    if not isinstance(made, Model):
        raise TypeError(
            f"the model backend {backend!r} must make a model (name, describe(), complete(requests, sampling)), got "
            f"{type(made).__name__}"
        )
    return made


def check_type(parameter: str, value: Any, hint: Any) -> None:
    """Check a chat agent's parameter against the annotation of what takes it.

    Raises:
        ValueError: another type, or a whole number that no parameter takes.
    """
    kinds = [get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,))]
    fits = isinstance(value, tuple([*kinds, int] if float in kinds else kinds))
    if not fits or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(dict.fromkeys(_WORDS.get(kind, "a mapping") for kind in kinds))
        raise ValueError(f"the parameter {parameter} of a chat agent must be {wanted}, got {value!r}")
    if isinstance(value, int) and abs(value) > MOST_NUMBER:
        raise ValueError(f"the parameter {parameter} of a chat agent must be at most {MOST_NUMBER}, got a larger one")


_OTHER = {"local": "server", "server": "local"}  # our two backends


def _foreign(option: str, backend: str, known: Sequence[str]) -> str:
    """Return the sentence on an option that a backend does not have."""
    if backend in _OTHER and option in _options(registry.resolve("model", _OTHER[backend])):
        if backend == "local":
            return f"{option} belongs to models behind a server: give server: {{base_url: ...}}, or leave it out"
        return f"{option} belongs to local models, this one has a server: leave it out"
    return f"a chat agent with the model backend {backend} has no parameter {option!r}{near_miss(option, known)}"
