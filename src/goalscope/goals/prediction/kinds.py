"""Kinds of worlds in which nobody has seen an agent, as values: which worlds, and what must hold in each of them.

A kind has a name, entries of a study (any registered kind of worlds, with the generators and placements that studies
have), and requirements on places, written as hypotheses:

    {name: far, worlds: [{kind: grid, sizes: [9], densities: [0.6], count: 400}],
     steps: [{first: start, second: goal, least: 12}]}
    {name: two places in conflict, worlds: [...], conflict: [goal, corner top-right]}
    {name: goal moved, worlds: [{kind: changed, of: [...], moved: [goal]}], tags: {moved: goal}}

The worlds that meet the requirements, at most ``count`` of them, make up the kind. Objects that are added or removed
are a kind of worlds, too (``changed``); so are environments and task maps, wherever their whole state is visible.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import AfterValidator, Field, ValidationError, field_validator

from goalscope._ground import own
from goalscope._ground.checks import check_texts, note_namesake
from goalscope._ground.folder import package_text
from goalscope._ground.untrusted import explain, shorten
from goalscope._ground.yaml_text import read_yaml, read_yaml_text
from goalscope.goals.hypotheses.definition import (
    FAR,
    Array,
    FiniteWorld,
    Hypothesis,
    Mask,
    Numbers,
    Undefined,
    finite_world,
    place_states,
)
from goalscope.goals.hypotheses.written import parse
from goalscope.runs.study import Horizon
from goalscope.runs.study_parts import Entries, StudyPart, expand, listed, sequence
from goalscope.worlds.world import World

SHIPPED: Final = "kinds"
"""Name of the kinds that come with goalscope."""
ELSEWHERE: Final = "elsewhere"
"""Name of a few kinds, most of them without keys, for the page of an evaluation."""

_MOST_WORLDS: Final = 500
_MOST_STEPS: Final = 1_000_000


def _check_place(text: str) -> str:
    place = parse(text)
    if place.kind not in ("place", "event"):
        raise ValueError(f"must be a place or an event, got {shorten(text)}, a {place.kind}")
    return place.text


def _check_rule(text: str) -> str:
    parse(text)
    return text


Place = Annotated[str, Field(max_length=200), AfterValidator(_check_place)]
"""Written form of a place or an event."""

Rule = Annotated[str, Field(max_length=200), AfterValidator(_check_rule)]
"""Written form of any hypothesis."""


class StepsBetween(StudyPart):
    """Requirement on a world: the shortest path from one place to another has from `least` to `most` steps.

    The path is one of the decision process, so where a locked door is on the way, fetching the key counts.
    """

    first: Place
    second: Place
    least: int = Field(default=0, ge=0, le=_MOST_STEPS)
    most: int = Field(default=_MOST_STEPS, ge=0, le=_MOST_STEPS)

    def holds(self, world: FiniteWorld) -> bool:
        """Return whether a world meets the requirement.

        Raises:
            Undefined: one of the places is undefined in the world.
        """
        steps = world.steps_to(parse(self.second).where(world))[parse(self.first).where(world)]
        shortest = int(steps.min(initial=FAR))
        return self.least <= shortest <= self.most


class WorldsKind(StudyPart):
    """One kind of worlds in which an agent's behaviour is predicted: how they are generated, and what they must meet.

    Attributes:
        name: name of the kind.
        worlds: entries of a study from which worlds are generated. Their counts say how many worlds are searched.
        count: number of worlds to keep, evenly spaced among those that meet the requirements.
        horizon: horizon of their episodes; None for the common one, `KindsOfWorlds.horizon`.
        tags: tags (named facts about a world, such as its size) that each world must have.
        steps: requirements on the number of steps between places.
        conflict: hypotheses of which no two may have an optimal action in common in the first state.
    """

    name: str = Field(min_length=1, max_length=60)
    worlds: Entries
    count: int = Field(default=32, ge=1, le=_MOST_WORLDS)
    horizon: Horizon | None = None
    tags: dict[str, str | int | float | bool] = Field(default_factory=dict, max_length=20)
    steps: tuple[StepsBetween, ...] = sequence(default=(), max_length=20)
    conflict: tuple[Rule, ...] = sequence(default=(), max_length=10)

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if not name.isprintable() or name != name.strip():
            raise ValueError(f"must be one line of printable characters, got {shorten(name)}")
        return name

    def fits(self, world: FiniteWorld) -> bool:
        """Return whether a world meets all requirements of the kind; False also if one of its places is undefined
        there.
        """
        if any(world.world.tags.get(name) != value for name, value in self.tags.items()):
            return False
        try:
            return all(steps.holds(world) for steps in self.steps) and self._in_conflict(world)
        except Undefined:
            return False

    def _in_conflict(self, world: FiniteWorld) -> bool:
        start = world.process.start > 0
        chosen = [parse(rule).solved(world).policy[0][start] > 0 for rule in self.conflict]
        return not any((first & second).any() for first, second in combinations(chosen, 2))


class KindsOfWorlds(StudyPart):
    """The design of a prediction: in which kinds of unseen worlds an agent is predicted, and which places it may reach
    first.

    Attributes:
        kinds: the kinds of worlds.
        places: the places and events among which the first one to be reached is predicted. If the agent reaches two at
            once, the one that comes first in this order counts.
        horizon: horizon of worlds that have none of their own.
        seed: seed of the worlds.
    """

    kinds: tuple[WorldsKind, ...] = sequence(min_length=1, max_length=50)
    places: tuple[Place, ...] = sequence(
        default=(
            "goal",
            "key",
            *(f"corner {name}" for name in ("top-left", "top-right", "bottom-left", "bottom-right")),
        ),
        min_length=1,
        max_length=50,
    )
    horizon: Horizon = Horizon(factor=2.0)
    seed: int = Field(default=0, ge=-(2**63), lt=2**63)

    @field_validator("kinds", "places")
    @classmethod
    def _distinct(cls, values: Any) -> Any:
        listed([getattr(value, "name", value) for value in values])
        return values

    @classmethod
    def read(cls, plain: Any, name: str) -> "KindsOfWorlds":
        """Read a design from a mapping, as parsed from YAML or JSON.

        Args:
            plain: the mapping.
            name: name of its source, for errors.

        Raises:
            ValueError: it is not a valid design; the message names each wrong key and its value.
        """
        if not isinstance(plain, Mapping):
            raise ValueError(
                f"{name} must be a mapping with the key kinds, a list of kinds of worlds; got {shorten(plain)}"
            )
        check_texts(plain, name)
        keys = {"": list(cls.model_fields), "kinds": list(WorldsKind.model_fields)}
        try:
            return cls.model_validate(dict(plain))
        except ValidationError as error:
            raise ValueError(explain(error, keys, name, "file of kinds of worlds")) from None

    @classmethod
    def load(cls, source: str | Path) -> "KindsOfWorlds":
        """Read a design from a YAML file, or one that comes with goalscope by its name.

        Args:
            source: path of the file, or one of the names `SHIPPED` and `ELSEWHERE`.

        Raises:
            ValueError: it is not a valid design.
            OSError: the file cannot be read.
        """
        if source in (SHIPPED, ELSEWHERE):
            note_namesake(str(source), "file of kinds of worlds", only_files=True)
            name = f"{source}.yaml"
            return cls.read(read_yaml_text(package_text(__package__, name), name), name)
        plain = read_yaml(Path(source).expanduser())
        own.consent(plain)
        return cls.read(plain, str(source))

    def plain(self) -> dict[str, Any]:
        """Return the design as a dictionary of JSON values, which `read` reads."""
        return self.model_dump(mode="json", exclude_none=True)

    def unseen(self, seen: Collection[str] = ()) -> dict[str, tuple[FiniteWorld, ...]]:
        """Generate the worlds of each kind: name of the kind -> its worlds.

        Args:
            seen: ids of worlds to leave out, because an agent was seen in them.

        Raises:
            ValueError: no world of a kind meets the requirements.
        """
        return {kind.name: self._unseen_of(kind, seen) for kind in self.kinds}

    def _unseen_of(self, kind: WorldsKind, seen: Collection[str]) -> tuple[FiniteWorld, ...]:
        worlds, reasons = list[FiniteWorld](), Counter[str]()
        for world in expand(kind.worlds, self.seed):
            if world.id in seen:
                reasons["the agent was seen there"] += 1
                continue
            try:
                finite = self._finite(kind, world)
            except Undefined as error:
                reasons[str(error)] += 1
                continue
            if kind.fits(finite):
                worlds.append(finite)
            else:
                reasons["the requirements of the kind are not met"] += 1
        if not worlds:
            why = "; ".join(f"{reason} ({count} worlds)" for reason, count in reasons.items())
            raise ValueError(
                f"kinds, entry {self.kinds.index(kind) + 1} ({kind.name}) has no world: {why}: raise the count of its "
                "worlds entries or relax its requirements"
            )
        chosen = np.linspace(0, len(worlds) - 1, min(kind.count, len(worlds))).round().astype(int)
        return tuple(worlds[index] for index in chosen)

    def named(self, kind: WorldsKind, ids: Sequence[str]) -> tuple[FiniteWorld, ...]:
        """Return those worlds of a kind that have the given ids, in the order of the ids; ids that the kind lacks are
        skipped.
        """
        wanted = {*ids}
        worlds = {world.id: world for world in expand(kind.worlds, self.seed) if world.id in wanted}
        return tuple(self._finite(kind, worlds[name]) for name in ids if name in worlds)

    def _finite(self, kind: WorldsKind, world: World) -> FiniteWorld:
        return finite_world(world, (kind.horizon or self.horizon).of(world))


def places_in(world: FiniteWorld, places: Sequence[Hypothesis]) -> Mask:
    """Return the states in which each of K places is reached, ``[K, S]`` bool, such that no state belongs to two
    places.

    A state of several places belongs to the first one. A place that is undefined, or in which the episode begins, has
    no state, because the agent cannot arrive there.
    """
    masks = place_states(world, places)
    for number, mask in enumerate(masks):
        begins = mask[world.process.start > 0].any()
        masks[number] = False if begins else mask & ~masks[:number].any(axis=0)
    return masks


def with_none(reached: Array) -> Array:
    """Append the probability that no place is reached to probabilities of K places: ``[..., K]`` becomes ``[..., K +
    1]``.
    """
    return np.concatenate([reached, np.maximum(1 - reached.sum(axis=-1, keepdims=True), 0.0)], axis=-1)


def acting_states(world: FiniteWorld) -> Numbers:
    """Return the numbers of the states in which the agent can have to act: reachable, and before the end of the
    episode.
    """
    return np.flatnonzero(world.live & world.reached)
