"""World kinds of a study file: how they register, how an entry is read, and how entries become worlds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from goalscope import registry
from goalscope.worlds.world import StoredWorld, View, World

STORED: Final[Mapping[str, Any]] = {"stored": True}
"""The context in which a study is read that was stored: agents are not built, kinds of others may be missing."""

Settings = TypeVar("Settings", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldKind:
    """A registered world kind.

    Attributes:
        settings: class of its entries in a study, see `WorldSettings`.
        world: class of its worlds.
    """

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


class UnknownWorlds(BaseModel):
    """The entry of a stored study whose kind is not registered here."""

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str

    def expand(self, seed: int, path: str, taken: Any) -> Iterator[World]:
        """Refuse to make worlds.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"{path}: the kind of a world must be registered, got {self.kind!r}: install its package")


def world_class(entry: BaseModel) -> type[World]:
    """Return the class of the worlds of an entry."""
    if isinstance(entry, UnknownWorlds):
        return StoredWorld
    kind: WorldKind = registry.resolve("world", entry.kind)  # type: ignore[attr-defined]
    return kind.world


def view_class(entries: Sequence[BaseModel]) -> type[View]:
    """Return the class of the views of the worlds of a study.

    Raises:
        ValueError: an entry whose worlds show something else than those of the first one.
    """
    first = world_class(entries[0])
    for index, entry in enumerate(entries):
        other = world_class(entry)
        if other.view is not first.view:
            raise ValueError(
                f"the worlds of a study must show the same, for their measures are not comparable else: worlds[0] "
                f"shows {first.view.shows} and worlds[{index}] {other.view.shows}, make it a study of its own"
            )
    return first.view


def read_entry(given: Any, info: ValidationInfo) -> BaseModel:
    """Return an entry of the list ``worlds`` of a study, checked by the settings of its kind.

    Raises:
        PydanticCustomError: what is wrong, taken apart by `flat_error`.
    """
    if isinstance(given, BaseModel):
        return given
    if not isinstance(given, Mapping):
        raise _refused([InitErrorDetails(type="dict_type", loc=(), input=given)])
    kind = given.get("kind")
    if not isinstance(kind, str):
        missing = {"type": "union_tag_not_found", "ctx": {"discriminator": "'kind'"}, "loc": (), "input": given}
        raise _refused([missing])
    known = registry.names("world")
    if kind not in known:
        if info.context is STORED:
            return UnknownWorlds(**given)
        context = {"discriminator": "'kind'", "tag": kind, "expected_tags": ", ".join(map(repr, known))}
        raise _refused([InitErrorDetails(type="union_tag_invalid", loc=(), input=given, ctx=context)])
    found: WorldKind = registry.resolve("world", kind)
    try:
        return found.settings.model_validate(dict(given), context=info.context)
    except ValidationError as error:
        raise _refused([_placed(detail, (kind,)) for detail in error.errors(include_url=False)]) from None


def flat_error(error: ValidationError) -> ValidationError:
    """Return an error in which what `read_entry` found stands line by line, at its place."""
    details: list[InitErrorDetails] = []
    for detail in error.errors(include_url=False):
        inner = detail.get("ctx", {}).get("details") if detail["type"] == _REFUSED else None
        listed = [detail] if inner is None else inner
        details += [_placed(one, () if inner is None else detail["loc"]) for one in listed]
    return ValidationError.from_exception_data(error.title, details)


_REFUSED = "world_entry"
_STANDARD = frozenset(get_args(core_schema.ErrorType))


def _refused(details: Sequence[Any]) -> PydanticCustomError:
    return PydanticCustomError(_REFUSED, "an entry that does not fit", {"details": list(details)})


def _placed(detail: Any, loc: tuple[int | str, ...]) -> InitErrorDetails:
    kind: Any = detail["type"]
    if kind not in _STANDARD:
        kind = PydanticCustomError(kind, detail["msg"].replace("{", "{{").replace("}", "}}"))
    return InitErrorDetails(
        type=kind, loc=(*loc, *detail["loc"]), input=detail["input"], ctx=dict(detail.get("ctx", {}))
    )


def expand(entries: Sequence[Any], seed: int) -> Iterator[World]:
    """Yield the worlds of a study, all different.

    Args:
        entries: the parts of `Study.worlds_`.
        seed: root seed.

    Raises:
        ValueError: fewer different worlds than asked for, or a world that is given twice.
    """
    taken: set[str] = set()
    for position, entry in enumerate(entries):
        path = f"worlds[{position}]"
        for world in entry.expand(seed, path, frozenset(taken)):
            if world.id in taken:
                raise ValueError(f"worlds must be different, but {path} repeats {world.id}: leave it out")
            taken.add(world.id)
            yield world
