"""The rules that a prediction mixes: hypotheses by length, with stand-ins where one is undefined, and their tables.

A longer rule is less probable beforehand: each further part costs `PER_PART` nats. A rule that is undefined in a world,
such as a corner that is a wall, says nothing on what an agent does there. What takes its place is a latent variable of
the prediction: the open cell nearest to the place, random moves, or the goal (`STAND_INS`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, TypeVar

import numpy as np

from goalscope.goals.hypotheses.definition import FAR, Array, FiniteWorld, Hypothesis, Numbers
from goalscope.goals.hypotheses.errors import place_of
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import made, parse
from goalscope.worlds.grid import CORNERS

PER_PART: Final = 1.5
"""Nats by which each further part makes a rule less probable."""

STAND_INS: Final = 3
"""Number of stand-ins: nearest open cell, random moves, goal. Without a nearest cell, random moves count twice."""

UNKNOWN: Final = 6.0
"""Distance in steps that counts for a rule about no place, and for a place out of reach."""

Value = TypeVar("Value")

_CORNERS: Final = tuple(f"corner {name}" for name in CORNERS)
_PLACES: Final = ("goal", "key", *_CORNERS)


def length_of(rule: Hypothesis) -> int:
    """Return the number of parts of a rule: hypotheses, conditions and numbers, itself included."""
    return 1 + sum(_length(part) for part in rule.parts if rule.form != "corner {corner}")


def _length(part: Any) -> int:
    if isinstance(part, Hypothesis):
        return length_of(part)
    return sum(map(_length, part)) if isinstance(part, tuple) else 1


@lru_cache(maxsize=1)
def usual_rules() -> tuple[Hypothesis, ...]:
    """Return the rules of grids that every prediction considers."""
    return tuple(parse(text) for text in dict.fromkeys(_written()))


def _written() -> Iterator[str]:
    yield from _PLACES
    yield from ("key held", "near centre", "top row", "beside goal", "follow the wall", "open moves", "random")
    yield from (f"keep {move}" for move in ("up", "down", "left", "right"))
    for place in _PLACES:
        yield from (f"flee {place}", f"straight to {place}")
    yield from (f"beside ({corner})" for corner in _CORNERS)
    yield from ("near (mirror of goal)", "near (point mirror of goal)")
    for steps in (3, 5, 8):
        yield f"goal within {steps} steps"
    for sides in ("up", "down", "left", "right", "up or right", "down or left", "up or left", "down or right"):
        yield f"goal if it lies {sides}, else random"
    for place in ("goal", *_CORNERS, "random", "open moves"):
        yield f"key if not key held, else ({place})"
    for corner in _CORNERS:
        yield f"goal if key held, else {corner}"
        yield f"goal if there is a key, else {corner}"
        yield f"{corner} if there is a key, else goal"
        yield f"goal if the grid has at most 7 rows, else {corner}"
        yield f"nearest of goal, {corner}"
    yield from ("goal if the grid has at most 7 rows", "nearest of goal, key", "door open")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleTable:
    """A rule in one world.

    Attributes:
        policies: ``[J, n, S, A]`` its policy, of J = 1; or those of its `STAND_INS` where it is undefined.
        distance: ``[S]`` steps to its place, at most 16; `UNKNOWN` without a place.
    """

    policies: Array
    distance: Array

    @property
    def defined(self) -> bool:
        """Whether the rule is defined in the world."""
        return len(self.policies) == 1


@dataclass(eq=False)
class RuleTables:
    """The tables of rules in worlds, each made once; predictions of several agents in the same worlds share them."""

    _tables: dict[tuple[str, int, str], RuleTable] = field(default_factory=dict)
    _others: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def of(self, world: FiniteWorld, rule: Hypothesis) -> RuleTable:
        """Return the table of a rule in a world."""
        key = world.world.id, world.horizon, rule.text
        if key not in self._tables:
            self._tables[key] = _table(world, rule)
        return self._tables[key]

    def once(self, make: Callable[..., Value], world: FiniteWorld, places: Sequence[Hypothesis], *more: str) -> Value:
        """Return what a function makes of a world, of places and of further texts; it is called once for these."""
        key = make.__qualname__, world.world.id, world.horizon, *(place.text for place in places), *more
        if key not in self._others:
            self._others[key] = make(world, places, *more)
        return self._others[key]  # type: ignore[no-any-return]


def _table(world: FiniteWorld, rule: Hypothesis) -> RuleTable:
    distance = np.full(world.process.states, UNKNOWN)
    aim = place_of(rule)
    try:
        if aim is not None:
            steps = world.steps_to(aim.where(world))
            distance = np.where(steps < FAR, np.minimum(steps, 16), UNKNOWN).astype(np.float64)
    except Undefined:
        pass
    try:
        return RuleTable(policies=rule.solved(world).policy[None], distance=distance)
    except Undefined:
        near = made("near {place}", (rule,)) if rule.kind == "place" else None
        policies = [_or_even(world, stand_in)[0] for stand_in in (near, None, parse("goal"))]
        return RuleTable(policies=np.stack(policies)[:, None], distance=distance)


def _or_even(world: FiniteWorld, rule: Hypothesis | None) -> Array:
    try:
        return world.even[None] if rule is None else rule.solved(world).policy
    except Undefined:
        return world.even[None]


@dataclass(frozen=True, kw_only=True, eq=False)
class RuleBank:
    """H rules with their probabilities beforehand.

    Attributes:
        rules: the rules.
        tables: their tables.
    """

    rules: Sequence[Hypothesis]
    tables: RuleTables

    @classmethod
    def of(cls, tables: RuleTables, worlds: Sequence[FiniteWorld]) -> "RuleBank":
        """Return the usual rules that are defined in at least one of the worlds."""
        defined = [rule for rule in usual_rules() if any(tables.of(world, rule).defined for world in worlds)]
        return cls(rules=tuple(defined), tables=tables)

    @cached_property
    def prior(self) -> Array:
        """``[H]`` log probabilities beforehand."""
        lengths = np.array([length_of(rule) for rule in self.rules])
        return np.asarray(-PER_PART * lengths - np.logaddexp.reduce(-PER_PART * lengths))

    def at(self, world: FiniteWorld, states: Numbers, times: Numbers) -> tuple[Array, Array]:
        """Return the policies ``[H, STAND_INS, N, A]`` and the distances ``[H, N]`` in N states at given times."""
        policies = np.zeros((len(self.rules), STAND_INS, len(states), world.process.actions))
        distances = np.zeros((len(self.rules), len(states)))
        for number, rule in enumerate(self.rules):
            table = self.tables.of(world, rule)
            policies[number] = table.policies[:, np.minimum(times, table.policies.shape[1] - 1), states]
            distances[number] = table.distance[states]
        return policies, distances
