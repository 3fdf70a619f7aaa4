"""What a study declares beforehand about its analysis: tests, and probing. It decides no episode and enters no id."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from goalscope.checks import near_miss
from goalscope.models.initialisation import RandomWeights
from goalscope.runs.kinds import Interventions, Part, listed, sequence
from goalscope.untrusted import explain, shorten

Read = Literal["cognitive-map", "beliefs", "plans", "distance", "logit-lens"]
"""What is read out of activations; also the source of its rows in the store."""
READS: Final[tuple[Read, ...]] = get_args(Read)
ProbeSite = Literal["pre", "post", "action"]
"""Sites whose vectors are as many at every step, so that one probe reads them all."""
TableSize = Literal["middle", "complete"]
"""Where all heads and controls are fitted: at the middle layer of each site, or everywhere."""


def _layers(given: Any) -> Any:
    """Return "thirds", "all", or the numbers of decoder blocks."""
    if isinstance(given, str):
        if given not in ("thirds", "all"):
            raise ValueError(
                f"must be thirds (the last block of each third), all, or numbers of blocks such as [7, 15, 23], got "
                f"{shorten(given)}{near_miss(given, ('thirds', 'all'))}"
            )
        return given
    numbers = isinstance(given, list | tuple) and all(type(one) is int and one >= 0 for one in given)
    if not numbers or not given or len(set(given)) != len(given):
        raise ValueError(
            f"must be thirds, all, or different numbers of blocks >= 0 such as [7, 15, 23], got {shorten(given)}"
        )
    return tuple(given)


def _rising(given: tuple[int, ...]) -> tuple[int, ...]:
    if any(one >= other for one, other in pairwise(given)):
        raise ValueError(f"must be rising numbers of training grids such as [50, 100, 200], got {shorten(given)}")
    return given


# A YAML list is as good as a tuple; its items stay strict.
_Listed = AfterValidator(listed)
Layers = Annotated[Literal["thirds", "all"] | tuple[int, ...], BeforeValidator(_layers)]
Reads = Annotated[tuple[Read, ...], Field(strict=False), _Listed]
Sites = Annotated[tuple[ProbeSite, ...], Field(strict=False), _Listed]
Curve = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False), AfterValidator(_rising)]
DecoderLayers = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(strict=False), _Listed]


class Probes(Part):
    """How probes are trained; the paper: hidden width 1024, 50 epochs, batches of 32 (authors' scripts: rate 3e-4).

    `validation` is the share of the training grids that decides which pass is kept, 0 for the last one, and which of
    `penalties` linear heads get (() for half decades from 1e-9 to 1e4). Penalties that are named are those of trained
    heads, too.
    """

    hidden: int = Field(default=128, ge=1, le=65_536)
    epochs: int = Field(default=30, ge=1, le=100_000)
    rate: float = Field(default=1e-2, gt=0)
    batch: int = Field(default=32, ge=1, le=65_536)
    validation: float = Field(default=0.2, ge=0, lt=1)
    penalties: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(default=(), strict=False)


class Decoders(Part):
    """How decoders of plans are trained; the paper: 1, 2 and 4 layers of width 1024 with 8 heads, rate 1e-4."""

    layers: DecoderLayers = (1, 2, 4)
    width: int = Field(default=64, ge=8, le=65_536, multiple_of=8)
    feedforward: int = Field(default=128, ge=1, le=65_536)
    epochs: int = Field(default=20, ge=1, le=100_000)
    rate: float = Field(default=3e-3, gt=0)
    batch: int = Field(default=32, ge=1, le=65_536)


class RandomNetworks(Part):
    """The random networks that stand beside a model: `seeds` of each of `kinds`, the first with the seed `first`.

    See `goalscope.models.initialisation`; the kind `initial` is left out for models whose training is not known.
    """

    kinds: Annotated[tuple[RandomWeights, ...], Field(strict=False), _Listed] = ("initial", "permuted", "default-init")
    seeds: int = Field(default=5, ge=1, le=100)
    first: int = Field(default=0, ge=0, le=2**62)

    @property
    def networks(self) -> tuple[tuple[RandomWeights, int], ...]:
        """Kind and seed of each."""
        return tuple((kind, self.first + at) for kind in self.kinds for at in range(self.seeds))


class Full(Part):
    """What the complete table changes; a key that is left out stays as it is by default."""

    sites: Sites | None = None
    layers: Layers | None = None
    table: TableSize | None = "complete"
    by_size: bool | None = None
    curve: Curve | None = None
    probes: Probes | None = None
    decoders: Decoders | None = None


class Inside(Part):
    """What is read out of an agent's activations, where, with which controls, and how probes are trained.

    `sites` left out means those of pre and post that the agent's steps have; one that a study names is left out, with
    a notice, where the steps lack it.
    `agent` may be left out where one agent alone has token ids. `heads` are registered ones that are fitted beside the
    built-in ones. `random` says which random networks are the controls, null for none; `untrained: SEED` of earlier
    studies is one default-initialised network. `test` is the share of the grids of each size and density that probes
    are tested on. `steps` is the most steps of one grid that are captured and read, the first one and others drawn at
    random; null for all.
    `table: middle` fits all heads and controls at the middle layer, elsewhere the linear probe beside all random
    networks and the MLP; `complete` fits all of them everywhere. `by_size` adds probes of one grid size each. `curve`
    are the numbers of training grids of a learning curve of the cognitive map at the middle layer, none by default.
    `full` says what the complete table changes (`--full`).
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

    @model_validator(mode="before")
    @classmethod
    def _one_network(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "untrained" not in given:
            return given
        seed, rest = given["untrained"], {name: value for name, value in given.items() if name != "untrained"}
        if "random" in given or not (seed is None or (type(seed) is int and seed >= 0)):
            raise ValueError(
                f"untrained must be a seed >= 0 or null, without random beside it, got {shorten(seed)}: say "
                "random: {kinds: [default-init], seeds: 1}"
            )
        one = None if seed is None else {"kinds": ["default-init"], "seeds": 1, "first": seed}
        return {**rest, "random": one}

    @property
    def networks(self) -> tuple[tuple[RandomWeights, int], ...]:
        """Kind and seed of each random network."""
        return () if self.random is None else self.random.networks

    @property
    def wanted_sites(self) -> tuple[ProbeSite, ...]:
        """The sites that are named, else those that are looked for."""
        return ("pre", "post") if self.sites is None else self.sites

    @classmethod
    def parse(cls, given: Mapping[str, Any], name: str = "analysis.inside") -> Self:
        """Read a declaration from plain values; a ValueError has one line for each thing that is wrong."""
        parts: dict[str, type[Part]] = {"": cls, "probes": Probes, "decoders": Decoders, "full": Full}
        parts["random"] = RandomNetworks
        keys = {name: list(part.model_fields) for name, part in parts.items()}
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise ValueError(explain(error, keys, name, "declaration")) from None

    def complete(self) -> Self:
        """Return what is read where the complete table is wanted."""
        changed = {name: value for name in Full.model_fields if (value := getattr(self.full, name)) is not None}
        return self.model_copy(update=changed)


def _different(pair: tuple[str, str]) -> tuple[str, str]:
    if pair[0] == pair[1]:
        raise ValueError(f"a pair must name two different agents, got {shorten(pair[0])} twice")
    return pair


Pair = Annotated[tuple[str, str], Field(strict=False), AfterValidator(_different)]


class Invariance(Part):
    """Transforms against the original grids: the measures, and the greatest difference that counts as none.

    The tests of one agent, each measure under each transform, are one family. `margin` names the measures of the
    family, each with its equivalence margin in the unit of the measure; `level` is the family-wise level.
    """

    margin: dict[str, float]
    level: float = Field(default=0.05, gt=0, lt=0.5)

    @field_validator("margin", mode="before")
    @classmethod
    def _margins(cls, given: Any) -> Any:
        if isinstance(given, dict):
            if not given:
                raise ValueError("must name at least one measure with its margin, got none: e.g. {success: 0.1}")
            for measure, margin in given.items():
                check_margin(str(measure), margin)
        return given


class Analysis(Part):
    """All that a study declares about its analysis.

    `pairs` names pairs of agents, the changed one after the one that it is compared with, e.g. with and without the
    memory summary; pairs whose agents are not both run are left out. `inside` says what is read out of activations,
    `interventions` what is changed in them: entries of registered kinds (`goalscope.interventions`).
    """

    invariance: Invariance | None = None
    pairs: tuple[Pair, ...] = sequence(default=())
    inside: Inside | None = None
    interventions: Interventions = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Left out where there is nothing: stored studies that do not know these keys stay what they were.
        plain: dict[str, Any] = written(self)
        return {key: value for key, value in plain.items() if key not in ("pairs", "inside", "interventions") or value}


def check_margin(measure: str, margin: Any) -> float:
    """Return an equivalence margin.

    Raises:
        ValueError: not a finite number above 0.
    """
    number = isinstance(margin, int | float) and not isinstance(margin, bool)
    if not number or not (math.isfinite(margin) and margin > 0):
        raise ValueError(
            f"the equivalence margin of {measure!r} must be a finite number above 0, got {shorten(margin)}: no number "
            "of grids can show that a difference is exactly 0; name the greatest difference that does not matter"
        )
    return float(margin)
