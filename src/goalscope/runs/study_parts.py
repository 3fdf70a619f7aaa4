"""The parts of a study file: their base class, the lists of worlds and interventions by kind, and declared analyses.

Analyses (tests and probing) are declared before a study is run. They do not change episodes or ids.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import pairwise
from operator import or_
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from goalscope._ground import registry
from goalscope._ground.checks import near_miss
from goalscope._ground.untrusted import explain, shorten
from goalscope.agents.models.base import RandomWeights
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
    """Return a study with a twin added for each of its ``hypotheses``: a scripted agent that pursues the hypothesised
    goal.

    The twins show what the measures of the study find for an agent whose goal is known.

    Args:
        mapping: the content of the study file. Each hypothesis is a written form, or a mapping with the form as ``is``
            and further parameters of an agent of the kind `hypothesis`.
        name: name of the study, for errors.

    Raises:
        ValueError: the hypotheses have another form.
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
    """Base class for the parts of a study, such as its horizon.

    Unknown keys, wrong types and infinite numbers are errors.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Phased(StudyPart):
    """Base class of entries of a study for worlds, which may name a phase, such as "trained" or "shifted".

    A phase is a condition of the study; it becomes a tag of the worlds, by which results are grouped.

    Attributes:
        later: names of settings that were added after the first studies were stored. They are not written out while
            they are None, so that ids of older studies do not change.
        phase: the phase, None for none.
    """

    later: ClassVar[tuple[str, ...]] = ("phase",)
    phase: str | None = Field(default=None, min_length=1, max_length=60)

    @model_serializer(mode="wrap")
    def _without_unset(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        dumped: dict[str, Any] = serialize(self)
        return {key: value for key, value in dumped.items() if key not in self.later or value is not None}


def sequence(**constraints: Any) -> Any:
    """Declare a field of a study (as ``pydantic.Field``) that holds a tuple and also accepts a YAML list.

    Args:
        constraints: further arguments of ``pydantic.Field``, such as ``default``.
    """
    return Field(strict=False, **constraints)  # items are still validated strictly


def listed(values: Any, what: str = "values") -> Any:
    """Check that a list in a study has at least one entry and that all entries differ, and return it.

    Args:
        values: the list.
        what: what the entries are, for errors.

    Raises:
        ValueError: it is empty or has equal entries.
    """
    if not values:
        raise ValueError("must have at least one entry, got an empty list")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{what} must all differ, got {shorten(value)} twice")
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldKind:
    """A kind of worlds that studies can name: the class that reads its entries in a study, and the class of its
    worlds.
    """

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
    """Return all kinds of worlds that studies can name here: name -> kind."""
    return {name: registry.resolve("world", name) for name in registry.names("world")}


class UnknownSettings(BaseModel):
    """An entry of a stored study, such as one of its ``worlds``, whose kind is not installed here; kept so it can be
    shown.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    kind: str

    def expand(self, seed: int, path: str, taken: Any) -> Iterator[World]:
        """Raise a ValueError that names the missing kind: worlds of a kind that is not installed cannot be made."""
        raise ValueError(
            f"{path}: the world kind {shorten(self.kind)} is not registered: install the package that provides it"
        )


def _read_worlds(entries: Any, info: ValidationInfo) -> tuple[BaseModel, ...]:
    return _read_entries(entries, info, {name: kind.settings for name, kind in known_kinds().items()}, "worlds")


def _read_interventions(entries: Any, info: ValidationInfo) -> tuple[BaseModel, ...]:
    if not entries:
        return ()
    settings_by_kind = {name: registry.resolve("intervention", name) for name in registry.names("intervention")}
    return _read_entries(entries, info, settings_by_kind, "interventions")


def _read_entries(
    values: Any, info: ValidationInfo, settings_by_kind: Mapping[str, type[BaseModel]], what: str
) -> tuple[BaseModel, ...]:
    """Return the entries of a list in a study (e.g. worlds), each validated by the settings of its kind."""
    kinds = dict(settings_by_kind)
    for entry in values if isinstance(values, list | tuple) else ():
        kind = _kind(entry)
        if kind is None or kind in kinds:
            continue
        if ":" in kind and OWN in kinds:
            kinds[kind] = kinds[OWN]
        elif info.context is STORED:
            kinds[kind] = UnknownSettings
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
    """Return the class of the worlds that an entry of a study's list ``worlds`` describes.

    It is `StoredWorld` for an entry whose kind is not installed here.
    """
    if isinstance(entry, UnknownSettings):
        return StoredWorld
    name: str = entry.kind  # type: ignore[attr-defined]
    kind: WorldKind = registry.resolve("world", OWN if ":" in name else name)
    return kind.world


def view_class(entries: Sequence[BaseModel]) -> type[View]:
    """Return the class of the views that agents get from a study's worlds.

    Args:
        entries: the entries of the study's list ``worlds``.

    Raises:
        ValueError: the worlds show views of different classes, so that one agent could not act in all.
    """
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
    """Yield all worlds that the entries of a study's list ``worlds`` describe, in order.

    Args:
        entries: the entries.
        seed: seed of the study.

    Raises:
        ValueError: a world occurs twice.
    """
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
    """Entry of a study for episodes that `goalscope import` recorded in another environment; it cannot be run."""

    kind: Literal["recorded"]

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[RecordedWorld]:
        """Raise a ValueError, because the worlds of imported episodes cannot be run."""
        raise ValueError(f"{path}: recorded worlds come from goalscope import and cannot be run: remove this entry")


# Declared analyses

READS: Final = ("cognitive-map", "beliefs", "plans", "distance", "logit-lens")
"""The built-in analyses of activations. The rows of an analysis are stored with its name as their source."""
ProbeSite = Literal["pre", "post", "action"]
"""Sites with the same number of vectors at every step, so that one probe reads them all."""
TableSize = Literal["middle", "complete"]
"""Layers at which all heads and controls are fitted: only the middle layer of each site, or every layer."""


def _layers(value: Any) -> Any:
    """Return "thirds", "all", or the numbers of decoder blocks."""
    if isinstance(value, str):
        if value not in ("thirds", "all"):
            raise ValueError(
                f"must be thirds (the last block of each third), all, or numbers of blocks such as [7, 15, 23], got "
                f"{shorten(value)}{near_miss(value, ('thirds', 'all'))}"
            )
        return value
    numbers = isinstance(value, list | tuple) and all(type(number) is int and number >= 0 for number in value)
    if not numbers or not value or len(set(value)) != len(value):
        raise ValueError(
            f"must be thirds, all, or different numbers of blocks >= 0 such as [7, 15, 23], got {shorten(value)}"
        )
    return tuple(value)


def _rising(numbers: tuple[int, ...]) -> tuple[int, ...]:
    if any(lower >= higher for lower, higher in pairwise(numbers)):
        raise ValueError(f"must be ascending numbers of training grids such as [50, 100, 200], got {shorten(numbers)}")
    return numbers


def _registered(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Return names of analyses; one that is not registered is an error, except in stored studies."""
    for name in names if info.context is not STORED else ():
        if name not in READS:  # stored studies need no package
            registry.resolve("analysis", name)
    return names


# A YAML list is accepted as a tuple; its items stay strict.
_Distinct = AfterValidator(listed)
Layers = Annotated[Literal["thirds", "all"] | tuple[int, ...], BeforeValidator(_layers)]
Reads = Annotated[tuple[str, ...], Field(strict=False), _Distinct, AfterValidator(_registered)]
Sites = Annotated[tuple[ProbeSite, ...], Field(strict=False), _Distinct]
Curve = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False), AfterValidator(_rising)]
DecoderLayers = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(strict=False), _Distinct]


class Probes(StudyPart):
    """Settings for training probes, small models that read a quantity from activations.

    `validation` is the fraction of the training grids used to select the epoch (0 selects the last one) and the ridge
    penalty of linear probes from `penalties` (() stands for half decades from 1e-9 to 1e4). If penalties are named,
    probes trained by gradient descent choose their weight decay from them, too. The paper uses hidden width 1024, 50
    epochs, batches of 32 (authors' scripts: rate 3e-4).
    """

    hidden: int = Field(default=128, ge=1, le=65_536)
    epochs: int = Field(default=30, ge=1, le=100_000)
    rate: float = Field(default=1e-2, gt=0)
    batch: int = Field(default=32, ge=1, le=65_536)
    validation: float = Field(default=0.2, ge=0, lt=1)
    penalties: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(default=(), strict=False)


class Decoders(StudyPart):
    """Settings for training plan decoders, transformers that read an agent's planned moves from activations.

    With `stepwise`, decoders that receive the moves decoded so far are trained in addition to the one-shot ones. Plans
    longer than the horizon are cut there; `longer: dropped`, the authors' rule, leaves them out of training and test.
    The paper uses 1, 2 and 4 layers of width 1024 with 8 heads, rate 1e-4.
    """

    layers: DecoderLayers = (1, 2, 4)
    width: int = Field(default=64, ge=8, le=65_536, multiple_of=8)
    feedforward: int = Field(default=128, ge=1, le=65_536)
    epochs: int = Field(default=20, ge=1, le=100_000)
    rate: float = Field(default=3e-3, gt=0)
    batch: int = Field(default=32, ge=1, le=65_536)
    stepwise: bool = False
    longer: Literal["cut", "dropped"] = "cut"


class RandomNetworks(StudyPart):
    """Setting of a study: the networks with random weights with which a model is compared, as a control.

    There are `seeds` networks of each of `kinds`, with seeds from `first` on; `goalscope.agents.models.local` describes
    the kinds. The kind `initial` is left out for models whose training is unknown.
    """

    kinds: Annotated[tuple[RandomWeights, ...], Field(strict=False), _Distinct] = (
        "initial",
        "permuted",
        "default-init",
    )
    seeds: int = Field(default=5, ge=1, le=100)
    first: int = Field(default=0, ge=0, le=2**62)

    @property
    def networks(self) -> tuple[tuple[RandomWeights, int], ...]:
        """The kind of random weights and the seed of each network, such as ``("permuted", 3)``."""
        return tuple((kind, self.first + at) for kind in self.kinds for at in range(self.seeds))


class Full(StudyPart):
    """Setting of a study: what the option `--full` changes in `Inside`, so that every probe is fitted with every
    control.

    A key that is left out keeps its value from `Inside`.
    """

    sites: Sites | None = None
    layers: Layers | None = None
    table: TableSize | None = "complete"
    by_size: bool | None = None
    curve: Curve | None = None
    probes: Probes | None = None
    decoders: Decoders | None = None


class Inside(StudyPart):
    """Setting of a study: how to probe an agent's activations, i.e. what to read, where, and with which controls.

    A *site* is a token position: "pre" is before the reasoning, "post" after it. A *head* is a form of probe, such as
    linear or MLP.

    * `agent`: name of the agent; may be omitted if only one agent has token ids.
    * `reads`: names of the analyses, such as "cognitive-map" or "plans".
    * `heads`: registered heads, fitted in addition to the built-in ones.
    * `sites`: the token positions to read; by default pre and post, if the agent's steps have them. A named site that
      the steps lack is left out, with a notice.
    * `layers`: numbers of decoder blocks, "thirds" or "all".
    * `random`: the random networks used as controls, null for none.
    * `test`: fraction of the grids of each size and density on which probes are tested.
    * `steps`: maximum number of captured steps per grid (the first one, and others drawn at random); null for all.
    * `table`: `middle` fits all heads and controls at the middle layer, and elsewhere only the linear probe (with all
      random networks) and the MLP; `complete` fits all of them everywhere.
    * `by_size`: adds probes for single grid sizes.
    * `curve`: numbers of training grids for a learning curve of the cognitive map at the middle layer; none by default.
    * `full`: settings that `--full` changes, among them `table: complete`.
    """

    agent: str | None = Field(default=None, min_length=1, max_length=200)
    reads: Reads = READS
    heads: tuple[str, ...] = Field(default=(), strict=False)
    sites: Sites | None = None
    layers: Layers = "thirds"
    random: RandomNetworks | None = RandomNetworks()
    test: float = Field(default=0.25, gt=0, lt=1)
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    steps: int | None = Field(default=None, ge=1)
    table: TableSize = "middle"
    by_size: bool = True
    curve: Curve = ()
    probes: Probes = Probes()
    decoders: Decoders = Decoders()
    full: Full = Full()

    @property
    def networks(self) -> tuple[tuple[RandomWeights, int], ...]:
        """The kind of random weights and the seed of each random network used as a control; empty if there are none."""
        return () if self.random is None else self.random.networks

    @property
    def wanted_sites(self) -> tuple[ProbeSite, ...]:
        """The sites (token positions) at which activations are read; by default before ("pre") and after ("post") the
        reasoning.
        """
        return ("pre", "post") if self.sites is None else self.sites

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], name: str = "analysis.inside") -> Self:
        """Read the settings for probing from a mapping, such as the key ``analysis.inside`` of a study.

        Args:
            mapping: the settings.
            name: what they are called in errors.

        Raises:
            ValueError: a setting is invalid; the message has one line per problem.
        """
        parts: dict[str, type[StudyPart]] = {"": cls, "probes": Probes, "decoders": Decoders, "full": Full}
        parts["random"] = RandomNetworks
        keys = {name: list(part.model_fields) for name, part in parts.items()}
        try:
            return cls.model_validate(dict(mapping))
        except ValidationError as error:
            raise ValueError(explain(error, keys, name, "declaration")) from None

    def complete(self) -> Self:
        """Return a copy of these settings in which those named in `full` are changed, as the option `--full` asks
        for.
        """
        changed = {name: value for name in Full.model_fields if (value := getattr(self.full, name)) is not None}
        return self.model_copy(update=changed)


def _different(pair: tuple[str, str]) -> tuple[str, str]:
    if pair[0] == pair[1]:
        raise ValueError(f"a pair must name two different agents, got {shorten(pair[0])} twice")
    return pair


Pair = Annotated[tuple[str, str], Field(strict=False), AfterValidator(_different)]


class Invariance(StudyPart):
    """Setting of a study: test whether measures are the same on transformed (mirrored, rotated, ...) grids as on the
    originals.

    The tests of one agent (each measure under each transform) form one family. `margin` maps each measure to test to
    its equivalence margin, in the unit of the measure; `level` is the family-wise error rate.
    """

    margin: dict[str, float]
    level: float = Field(default=0.05, gt=0, lt=0.5)

    @field_validator("margin", mode="before")
    @classmethod
    def _margins(cls, margins: Any) -> Any:
        if isinstance(margins, dict):
            if not margins:
                raise ValueError("must name at least one measure with its margin, got none: e.g. {success: 0.1}")
            for measure, margin in margins.items():
                check_margin(str(measure), margin)
        return margins


FailedTurns = Literal["wrong", "left out", "both"]
"""How turns without a valid move count in a share of turns."""


class Analysis(StudyPart):
    """Setting of a study: how its results will be analysed, declared before it is run.

    * `invariance`: tests of whether measures are the same on transformed grids.
    * `pairs`: pairs of agents, the changed one after the one that it is compared with, e.g. with and without the memory
      summary. Pairs of which one agent is not run are left out.
    * `inside`: the probing of activations.
    * `interventions`: the changes to activations, as entries of registered kinds (`inside.interventions`).
    * `hypotheses`: the hypotheses tested for each agent if each step is answered twice: written forms, or mappings of
      `name` and `is`, the form (docs/hypotheses.md).
    * `failed_turns`: how turns without a valid move, including those that a server withheld, count in the accuracy that
      tables show: as wrong, left out, or both figures side by side.
    """

    invariance: Invariance | None = None
    pairs: tuple[Pair, ...] = sequence(default=())
    inside: Inside | None = None
    interventions: Interventions = ()
    hypotheses: tuple[str | dict[str, str], ...] = sequence(default=(), max_length=100)
    failed_turns: FailedTurns = "wrong"

    @field_validator("hypotheses")
    @classmethod
    def _written(cls, entries: tuple[str | dict[str, str], ...], info: ValidationInfo) -> Any:
        if info.context is STORED or not entries:
            return entries
        for entry in entries:
            declaration = {"name": entry, "is": entry} if isinstance(entry, str) else entry
            if set(declaration) != {"name", "is"}:
                raise ValueError(
                    f"a hypothesis of a study must be a written form or have name and is alone, got {shorten(entry)}"
                )
            registry.resolve("agent", "hypothesis")(
                {"hypothesis": declaration["is"]}
            )  # raises an error for an invalid written form
        listed([entry if isinstance(entry, str) else entry["name"] for entry in entries], "hypotheses")
        return entries

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Empty keys are omitted, so that studies stored before these keys existed do not change.
        dumped: dict[str, Any] = serialize(self)
        left_out = {"failed_turns"} if self.failed_turns == "wrong" else set()
        return {key: value for key, value in dumped.items() if key == "invariance" or (value and key not in left_out)}


def check_margin(measure: str, margin: Any) -> float:
    """Check an equivalence margin, the largest difference of a measure that does not matter, and return it as a float.

    Args:
        measure: name of the measure, for errors.
        margin: the margin, in the unit of the measure.

    Raises:
        ValueError: it is not a finite number above 0.
    """
    number = isinstance(margin, int | float) and not isinstance(margin, bool)
    if not number or not (math.isfinite(margin) and margin > 0):
        raise ValueError(
            f"the equivalence margin of {measure!r} must be a finite number above 0, got "
            f"{shorten(margin)}: no number of grids can show that a difference is exactly 0. Give the "
            "largest difference that does not matter to you"
        )
    return float(margin)
