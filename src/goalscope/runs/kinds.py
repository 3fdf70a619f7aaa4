"""What the parts of a study file share; world kinds: how they register, how entries are read and become worlds."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from goalscope import registry
from goalscope.untrusted import shorten
from goalscope.worlds.recorded import RecordedWorld
from goalscope.worlds.world import StoredWorld, View, World

MOST_COUNT = 1_000_000

STORED: Final[Mapping[str, Any]] = {"stored": True}
"""The context in which a study is read that was stored: agents are not built, kinds of others may be missing."""

OWN: Final = "module:Class"
"""The name under which the settings of worlds are registered whose kind names a class of one's own."""

Settings = TypeVar("Settings", bound=BaseModel)


class Part(BaseModel):
    """A part of a study: unknown keys, wrong types and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def sequence(**constraints: Any) -> Any:
    """Return a field that takes a YAML list for a tuple."""
    return Field(strict=False, **constraints)  # a YAML list is as good as a tuple; its items stay strict


def listed(values: Any, what: str = "values") -> Any:
    """Return values, or raise where there are none, or one stands there twice."""
    if not values:
        raise ValueError("must have at least one entry, got an empty list")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{what} must be different, got {shorten(value)} twice")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldKind:
    """A registered world kind: the class of its entries in a study, see `WorldSettings`, and that of its worlds."""

    settings: type[BaseModel]
    world: type[World]


def world_kind(name: str, *, world: type[World]) -> Callable[[type[Settings]], type[Settings]]:
    """Return a decorator that registers a world kind; entries of the list ``worlds`` of a study then name it.

    It stands above a pydantic model: its fields are the settings, among them ``kind``, which admits the name, and its
    method ``expand(seed, path, taken)`` yields the worlds (see `goalscope.worlds.WorldSettings`).

    Args:
        name: the kind.
        world: class of the worlds. Stored worlds are restored by the kind that its attribute ``kind`` names.

    Raises:
        ValueError: a name that is taken.
        TypeError: no pydantic model with a field ``kind`` and a method ``expand``.
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
    """The entry of a stored study whose kind is not registered here."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str

    def expand(self, seed: int, path: str, taken: Any) -> Iterator[World]:
        """Refuse to make worlds."""
        raise ValueError(f"{path}: the kind of a world must be registered, got {self.kind!r}: install its package")


class UnknownSettings(BaseModel):
    """An entry of a stored study whose kind is not registered here."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str


def _read_worlds(given: Any, info: ValidationInfo) -> tuple[BaseModel, ...]:
    known = {name: kind.settings for name, kind in known_kinds().items()}
    there = [entry.get("kind") for entry in given if isinstance(entry, Mapping)] if isinstance(given, list) else []
    known |= {kind: known[OWN] for kind in there if isinstance(kind, str) and ":" in kind and OWN in known}
    return read_entries(given, info, known, UnknownWorlds, "worlds")


def _read_interventions(given: Any, info: ValidationInfo) -> tuple[BaseModel, ...]:
    known = {name: registry.resolve("intervention", name) for name in registry.names("intervention")} if given else {}
    return read_entries(given, info, known, UnknownSettings, "interventions") if given else ()


def read_entries(
    given: Any, info: ValidationInfo, known: Mapping[str, type[BaseModel]], unknown: type[BaseModel], what: str
) -> tuple[BaseModel, ...]:
    """Return the entries of the list of a name in a study, each checked by the settings of its kind."""
    kinds = dict(known)
    if info.context is STORED and isinstance(given, list | tuple):
        there = [entry.get("kind") for entry in given if isinstance(entry, Mapping)]
        kinds |= {one: unknown for one in there if isinstance(one, str) and one not in kinds}
    # A union of annotated types that are known only now.
    choices: Any = reduce(or_, (Annotated[settings, Tag(name)] for name, settings in kinds.items()))
    entry: Any = Annotated[choices, Discriminator(_kind)]
    try:
        found: tuple[BaseModel, ...] = TypeAdapter(tuple[entry, ...]).validate_python(given, context=info.context)
    except ValidationError as error:
        nested = error.errors(include_url=False)
        raise PydanticCustomError("nested", "entries that do not fit", {"nested": nested}) from None
    listed([entry.model_dump_json() for entry in found], f"entries of {what}")
    return found


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
    """Return the class of the views of the worlds of a study, which must be one."""
    first = world_class(entries[0])
    for index, entry in enumerate(entries):
        other = world_class(entry)
        if other.view is not first.view:
            raise ValueError(
                f"the worlds of a study must show the same, for their measures are not comparable else: worlds[0] "
                f"shows {first.view.shows} and worlds[{index}] {other.view.shows}, make it a study of its own"
            )
    return first.view


def expand(entries: Sequence[Any], seed: int) -> Iterator[World]:
    """Yield the worlds of the entries of a study, all different."""
    taken: set[str] = set()
    for position, entry in enumerate(entries):
        path = f"worlds[{position}]"
        for world in entry.expand(seed, path, frozenset(taken)):
            if world.id in taken:
                raise ValueError(f"worlds must be different, but {path} repeats {world.id}: leave it out")
            taken.add(world.id)
            yield world


@world_kind("recorded", world=RecordedWorld)
class RecordedWorlds(Part):
    """Recorded episodes of somebody else's environment, which `goalscope import` makes."""

    kind: Literal["recorded"]

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[RecordedWorld]:
        """Refuse: nothing can be run in a record."""
        raise ValueError(f"{path}: recorded worlds must come from goalscope import, a study cannot run them: remove it")
