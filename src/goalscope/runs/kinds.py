"""Base class for the parts of a study file, and world kinds: registration, validation and expansion."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from goalscope._ground import registry
from goalscope._ground.untrusted import shorten
from goalscope.worlds.world import RecordedWorld, StoredWorld, View, World

MAX_COUNT = 1_000_000

STORED: Final[Mapping[str, Any]] = {"stored": True}
"""Validation context of a stored study: agents are not built, and kinds may be unregistered."""

OWN: Final = "module:Class"
"""Registered name of the settings for worlds whose kind is the path of a user's class."""

Settings = TypeVar("Settings", bound=BaseModel)


TWINS: Final = "hypotheses"
"""Key of a study file: hypotheses for which an agent with that planted goal is added."""


def with_twins(mapping: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a study with a twin added for each of its ``hypotheses``: a scripted agent whose goal is planted.

    Each hypothesis is a written form, or a mapping with the form as ``is`` and further parameters of an agent of the
    kind `hypothesis`.

    Raises:
        ValueError: if the entries have another form; ``name`` is the name of the study in the message.
    """
    if TWINS not in mapping:
        return mapping
    planted, agents = mapping[TWINS], mapping.get("agents", [])
    listed = planted if isinstance(planted, list) else [None]
    entries: list[Any] = [{"is": hypothesis} if isinstance(hypothesis, str) else hypothesis for hypothesis in listed]
    if not all(isinstance(hypothesis, Mapping) and "is" in hypothesis for hypothesis in entries) or not isinstance(
        agents, list
    ):
        raise ValueError(
            f"{name}: {TWINS} must be a list of written forms, or of mappings with is: FORM and name, lapse or "
            f"horizon, got {shorten(planted)}"
        )
    rest = [{key: value for key, value in hypothesis.items() if key != "is"} for hypothesis in entries]
    twins = [
        {"kind": "hypothesis", "hypothesis": hypothesis["is"], **more}
        for hypothesis, more in zip(entries, rest, strict=True)
    ]
    return {**{key: value for key, value in mapping.items() if key != TWINS}, "agents": [*agents, *twins]}


class StudyPart(BaseModel):
    """Base class for parts of a study. Unknown keys, wrong types and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Phased(StudyPart):
    """Settings of worlds that may name a phase (a condition, such as "trained" or "shifted"), which becomes their tag.

    Attributes:
        later: settings that older studies lack; they are left out if they are None, so that ids do not change.
    """

    later: ClassVar[tuple[str, ...]] = ("phase",)
    phase: str | None = Field(default=None, min_length=1, max_length=60)

    @model_serializer(mode="wrap")
    def _without_unset(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = serialize(self)
        return {key: value for key, value in dumped.items() if key not in self.later or value is not None}


def sequence(**constraints: Any) -> Any:
    """Return the declaration of a study field that holds a tuple and also accepts a YAML list."""
    return Field(strict=False, **constraints)  # items are still validated strictly


def listed(values: Any, what: str = "values") -> Any:
    """Return values after checking that there is at least one and that all differ; otherwise raise a ValueError about
    ``what``.
    """
    if not values:
        raise ValueError("must have at least one entry, got an empty list")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{what} must all differ, got {shorten(value)} twice")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldKind:
    """A registered kind of worlds: the class of its study entries (see `WorldSettings`) and the class of its worlds."""

    settings: type[BaseModel]
    world: type[World]


def world_kind(name: str, *, world: type[World]) -> Callable[[type[Settings]], type[Settings]]:
    """Return a decorator that registers a world kind, which entries of the list ``worlds`` of a study can name.

    It decorates a pydantic model. The fields are the settings, one of which is ``kind``, and the method
    ``expand(seed, path, taken)`` yields the worlds (see `goalscope.worlds.WorldSettings`).

    Args:
        name: the kind.
        world: class of the worlds. A stored world is restored by the kind that its attribute ``kind`` names.

    Raises:
        ValueError: if the name is taken.
        TypeError: if the class is not a pydantic model with a field ``kind`` and a method ``expand``.
    """

    def add(settings: type[Settings]) -> type[Settings]:
        fits = isinstance(settings, type) and issubclass(settings, BaseModel)
        if not fits or "kind" not in settings.model_fields or not callable(getattr(settings, "expand", None)):
            raise TypeError(f"a world kind must be a pydantic model with kind and expand(seed, path), got {settings}")
        registry.register("world", name, made_of=settings)(WorldKind(settings=settings, world=world))
        return settings

    return add


def known_kinds() -> dict[str, WorldKind]:
    """Return all registered world kinds by name."""
    return {name: registry.resolve("world", name) for name in registry.names("world")}


class UnknownWorlds(BaseModel):
    """An entry under ``worlds`` of a stored study whose kind is not registered here."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str

    def expand(self, seed: int, path: str, taken: Any) -> Iterator[World]:
        """Raise a ValueError: worlds of an unregistered kind cannot be made."""
        raise ValueError(
            f"{path}: the world kind {shorten(self.kind)} is not registered: install the package that provides it"
        )


class UnknownSettings(BaseModel):
    """An entry of another list of a stored study whose kind is not registered here."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str


def _read_worlds(entries: Any, info: ValidationInfo) -> tuple[BaseModel, ...]:
    settings_by_kind = {name: kind.settings for name, kind in known_kinds().items()}
    stated = [entry.get("kind") for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    settings_by_kind |= {
        kind: settings_by_kind[OWN]
        for kind in stated
        if isinstance(kind, str) and ":" in kind and OWN in settings_by_kind
    }
    return read_entries(entries, info, settings_by_kind, UnknownWorlds, "worlds")


def _read_interventions(entries: Any, info: ValidationInfo) -> tuple[BaseModel, ...]:
    settings_by_kind = (
        {name: registry.resolve("intervention", name) for name in registry.names("intervention")} if entries else {}
    )
    return read_entries(entries, info, settings_by_kind, UnknownSettings, "interventions") if entries else ()


def read_entries(
    values: Any,
    info: ValidationInfo,
    settings_by_kind: Mapping[str, type[BaseModel]],
    unknown: type[BaseModel],
    what: str,
) -> tuple[BaseModel, ...]:
    """Return the entries of a list in a study (e.g. worlds), each validated by the settings of its kind."""
    kinds = dict(settings_by_kind)
    if info.context is STORED and isinstance(values, list | tuple):
        stated = [entry.get("kind") for entry in values if isinstance(entry, Mapping)]
        kinds |= {kind: unknown for kind in stated if isinstance(kind, str) and kind not in kinds}
    try:
        entries: tuple[BaseModel, ...] = _union_of(tuple(kinds.items())).validate_python(values, context=info.context)
    except ValidationError as error:
        nested = error.errors(include_url=False)
        raise PydanticCustomError("nested", "entries that do not fit", {"nested": nested}) from None
    listed([entry.model_dump_json() for entry in entries], f"entries of {what}")
    return entries


@lru_cache(maxsize=64)
def _union_of(kinds: tuple[tuple[str, type[BaseModel]], ...]) -> TypeAdapter[Any]:
    """Return the validator of lists of entries of some kinds.

    Validators are cached, because building one takes longer than most validations.
    """
    # A union of types that are known only at run time.
    union: Any = reduce(or_, (Annotated[settings, Tag(name)] for name, settings in kinds))
    entry: Any = Annotated[union, Discriminator(_kind)]
    return TypeAdapter(tuple[entry, ...])


def _kind(entry: Any) -> str | None:
    kind = entry.get("kind") if isinstance(entry, Mapping) else getattr(entry, "kind", None)
    return kind if isinstance(kind, str) else None


Entries = Annotated[Any, PlainValidator(_read_worlds)]
"""The list ``worlds`` of a study: a tuple of settings."""
Interventions = Annotated[Any, PlainValidator(_read_interventions)]
"""The list ``analysis.interventions`` of a study: a tuple of settings."""


def world_class(entry: BaseModel) -> type[World]:
    """Return the class of the worlds of an entry."""
    if isinstance(entry, UnknownWorlds):
        return StoredWorld
    name: str = entry.kind  # type: ignore[attr-defined]
    kind: WorldKind = registry.resolve("world", OWN if ":" in name else name)
    return kind.world


def view_class(entries: Sequence[BaseModel]) -> type[View]:
    """Return the class of the views of a study's worlds, which must be the same for all."""
    first = world_class(entries[0])
    for index, entry in enumerate(entries):
        world = world_class(entry)
        if world.view is not first.view:
            raise ValueError(
                "all worlds of a study must show the same kind of view, so that measures are comparable: "
                f"worlds[0] shows {first.view.shows}, worlds[{index}] shows {world.view.shows}. Put "
                f"worlds[{index}] into a study of its own"
            )
    return first.view


def expand(entries: Sequence[Any], seed: int) -> Iterator[World]:
    """Yield the worlds of the entries of a study; all must be different."""
    world_ids: set[str] = set()
    for position, entry in enumerate(entries):
        path = f"worlds[{position}]"
        for world in entry.expand(seed, path, frozenset(world_ids)):
            if world.id in world_ids:
                raise ValueError(f"{path} repeats the world {world.id}: leave it out")
            world_ids.add(world.id)
            phase = getattr(entry, "phase", None)
            yield world if phase is None else replace(world, tags={**world.tags, "phase": phase})


@world_kind("recorded", world=RecordedWorld)
class RecordedWorlds(StudyPart):
    """Recorded episodes from another environment, created by `goalscope import`."""

    kind: Literal["recorded"]

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[RecordedWorld]:
        """Raise a ValueError, because a recorded world cannot be run."""
        raise ValueError(f"{path}: recorded worlds come from goalscope import and cannot be run: remove this entry")
