"""How a study's language models are made: a backend by name, ours and those of other packages.

``local`` runs a Hugging Face model here, ``server`` asks an OpenAI-compatible server; a chat agent with the parameter
``server`` has the latter unless it names another one.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from goalscope import registry
from goalscope.checks import near_miss
from goalscope.models.base import Model
from goalscope.models.http_settings import MOST_NUMBER, Caps, Prices, Server, read

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "device": (str,),
    "dtype": (str,),
    "revision": (str, type(None)),
    "slots": (int,),
    "reasoning": (str,),
    "device_map": (str, dict, type(None)),
    "untrained": (int, type(None)),
    "today": (str,),
    "template_options": (dict,),
    "server": (dict,),
    "prices": (dict,),
    "caps": (dict,),
    "concurrency": (int,),
}

Maker = TypeVar("Maker", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBackend:
    """A registered backend.

    Attributes:
        make: makes a model from the keywords ``model`` (what the study calls it), ``name`` (what tables shall call it,
            None for its own choice) and the options of the study.
        options: names of the options.
        required: those without a default.
    """

    make: Callable[..., Model]
    options: tuple[str, ...]
    required: tuple[str, ...]


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

    def add(maker: Maker) -> Maker:
        given = [
            parameter
            for parameter in inspect.signature(maker).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and parameter.name not in ("model", "name")
        ]
        backend = ModelBackend(
            make=maker,
            options=tuple(parameter.name for parameter in given),
            required=tuple(parameter.name for parameter in given if parameter.default is parameter.empty),
        )
        registry.register("model", name, made_of=maker)(backend)
        return maker

    return add


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
    found: ModelBackend = registry.resolve("model", backend)
    for option, value in options.items():
        if option not in found.options:
            raise ValueError(_foreign(option, backend, found, others))
        if backend in _OURS:
            check_type(option, value, _TYPES[option])
    missing = [option for option in found.required if option not in options]
    if missing:
        raise ValueError(f"the model backend {backend} must be given {', '.join(missing)}")
    made = found.make(model=model, name=name, **options)
    if not isinstance(made, Model):
        raise TypeError(
            f"the model backend {backend!r} must make a model (name, describe(), complete(requests, sampling)), got "
            f"{type(made).__name__}"
        )
    return made


def check_type(parameter: str, value: Any, kinds: tuple[type, ...]) -> None:
    """Check the type of a chat agent's parameter.

    Raises:
        ValueError: another type, or a whole number that no parameter takes.
    """
    if not isinstance(value, kinds) or isinstance(value, bool):
        wanted = " or ".join("nothing" if kind is type(None) else kind.__name__ for kind in kinds)
        raise ValueError(f"the parameter {parameter} of a chat agent must be {wanted}, got {value!r}")
    if isinstance(value, int) and abs(value) > MOST_NUMBER:
        raise ValueError(f"the parameter {parameter} of a chat agent must be at most {MOST_NUMBER}, got a larger one")


@model_backend("local")
def _local(
    model: str,
    *,
    name: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    revision: str | None = None,
    slots: int | None = None,
    reasoning: str = "auto",
    device_map: str | Mapping[str, Any] | None = None,
    untrained: int | None = None,
    today: str | None = None,
    template_options: Mapping[str, Any] | None = None,
) -> Model:
    from goalscope.models.local import DATE, LocalModel

    return LocalModel(
        model,
        name=name,
        device=device,
        dtype=dtype,
        revision=revision,
        slots=slots,
        reasoning=reasoning,
        device_map=device_map,
        untrained=untrained,
        today=DATE if today is None else today,
        template_options=template_options,
    )


@model_backend("server")
def _served(
    model: str,
    *,
    server: Mapping[str, Any],
    name: str | None = None,
    revision: str | None = None,
    reasoning: str = "auto",
    today: str | None = None,
    template_options: Mapping[str, Any] | None = None,
    prices: Mapping[str, Any] | None = None,
    caps: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
) -> Model:
    from goalscope.models.http import HttpModel

    return HttpModel(
        model,
        server=read("server", Server, server),
        prices=read("prices", Prices, prices) if prices is not None else None,
        caps=read("caps", Caps, caps) if caps is not None else None,
        name=name,
        revision=revision,
        reasoning=reasoning,
        today=today,
        template_options=template_options,
        concurrency=concurrency,
    )


_OURS: Final = {
    "local": ("server", "prices", "caps", "concurrency"),
    "server": ("device", "dtype", "slots", "device_map", "untrained"),
}
"""Our backends, and the options of the other one."""


def _foreign(option: str, backend: str, found: ModelBackend, others: Sequence[str]) -> str:
    """Return the sentence on an option that a backend does not have."""
    if option in _OURS.get(backend, ()):
        if backend == "local":
            return f"{option} belongs to models behind a server: give server: {{base_url: ...}}, or leave it out"
        return f"{option} belongs to local models, this one has a server: leave it out"
    known = [*others, *found.options]
    return f"a chat agent with the model backend {backend} has no parameter {option!r}{near_miss(option, known)}"
