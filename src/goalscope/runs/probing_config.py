"""The analyses that a study declares before it is run: tests and probing. They do not change episodes or ids."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from goalscope._ground import registry
from goalscope._ground.checks import near_miss
from goalscope._ground.untrusted import explain, shorten
from goalscope.agents.models.base import RandomWeights
from goalscope.runs.kinds import STORED, Interventions, StudyPart, listed, sequence

READS: Final = ("cognitive-map", "beliefs", "plans", "distance", "logit-lens")
"""The built-in analyses of activations. The name of an analysis is the source of its rows in the store."""
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
    """Training of probes. The paper uses hidden width 1024, 50 epochs, batches of 32 (authors' scripts: rate 3e-4).

    `validation` is the fraction of the training grids used to select the epoch (0 selects the last one) and the ridge
    penalty of linear probes from `penalties` (() stands for half decades from 1e-9 to 1e4). If penalties are named,
    probes trained by gradient descent choose their weight decay from them, too.
    """

    hidden: int = Field(default=128, ge=1, le=65_536)
    epochs: int = Field(default=30, ge=1, le=100_000)
    rate: float = Field(default=1e-2, gt=0)
    batch: int = Field(default=32, ge=1, le=65_536)
    validation: float = Field(default=0.2, ge=0, lt=1)
    penalties: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(default=(), strict=False)


class Decoders(StudyPart):
    """Training of plan decoders. The paper uses 1, 2 and 4 layers of width 1024 with 8 heads, rate 1e-4.

    With `stepwise`, decoders that receive the tokens decoded so far are trained in addition to the one-shot ones. Plans
    longer than the horizon are cut there; `longer: dropped`, the authors' rule, leaves them out of training and test.
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
    """The random networks that a model is compared with: `seeds` networks of each of `kinds`, seeded from `first`.

    See `goalscope.agents.models.local`. The kind `initial` is left out for models whose training is unknown.
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
        """Kind of random weights and seed of each network."""
        return tuple((kind, self.first + at) for kind in self.kinds for at in range(self.seeds))


class Full(StudyPart):
    """Settings that `--full` puts in place of those of `Inside`, to fit every probe with every control.

    An omitted key keeps its usual value.
    """

    sites: Sites | None = None
    layers: Layers | None = None
    table: TableSize | None = "complete"
    by_size: bool | None = None
    curve: Curve | None = None
    probes: Probes | None = None
    decoders: Decoders | None = None


class Inside(StudyPart):
    """Probing of an agent's activations: what to read, at which layers and sites, with which controls and training.

    A *site* is a token position: "pre" is before the reasoning, "post" after it. A *head* is a form of probe, such as
    linear or MLP.

    * `sites`: the token positions to read; by default pre and post, if the agent's steps have them. A named site that
      the steps lack is left out, with a notice.
    * `agent`: may be omitted if only one agent has token ids.
    * `heads`: registered heads, fitted in addition to the built-in ones.
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
        """Kind of random weights and seed of each random network."""
        return () if self.random is None else self.random.networks

    @property
    def wanted_sites(self) -> tuple[ProbeSite, ...]:
        """The sites that the study names; without any, the sites before and after the reasoning ("pre" and "post")."""
        return ("pre", "post") if self.sites is None else self.sites

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], name: str = "analysis.inside") -> Self:
        """Read a declaration from plain values; a ValueError has one line per problem."""
        parts: dict[str, type[StudyPart]] = {"": cls, "probes": Probes, "decoders": Decoders, "full": Full}
        parts["random"] = RandomNetworks
        keys = {name: list(part.model_fields) for name, part in parts.items()}
        try:
            return cls.model_validate(dict(mapping))
        except ValidationError as error:
            raise ValueError(explain(error, keys, name, "declaration")) from None

    def complete(self) -> Self:
        """Return these settings, changed as the settings in `full` say (`--full`)."""
        changed = {name: value for name in Full.model_fields if (value := getattr(self.full, name)) is not None}
        return self.model_copy(update=changed)


def _different(pair: tuple[str, str]) -> tuple[str, str]:
    if pair[0] == pair[1]:
        raise ValueError(f"a pair must name two different agents, got {shorten(pair[0])} twice")
    return pair


Pair = Annotated[tuple[str, str], Field(strict=False), AfterValidator(_different)]


class Invariance(StudyPart):
    """Tests whether measures are the same on transformed (mirrored, rotated, ...) grids as on the original grids.

    The tests of one agent (each measure under each transform) form one family. `margin` maps the measures of the family
    to their equivalence margins, in the unit of the measure; `level` is the family-wise error level.
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
    """The declared analysis of a study.

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
    """Return an equivalence margin if it is valid.

    Raises:
        ValueError: if it is not a finite number above 0.
    """
    number = isinstance(margin, int | float) and not isinstance(margin, bool)
    if not number or not (math.isfinite(margin) and margin > 0):
        raise ValueError(
            f"the equivalence margin of {measure!r} must be a finite number above 0, got "
            f"{shorten(margin)}: no number of grids can show that a difference is exactly 0. Give the "
            "largest difference that does not matter to you"
        )
    return float(margin)
