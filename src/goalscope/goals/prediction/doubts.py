"""What the worlds that were seen cannot decide about worlds that were not: said before anybody looks there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from goalscope._ground.texts import Catalogue
from goalscope._ground.words import counted
from goalscope.goals.hypotheses.definition import FAR, FiniteWorld, Hypothesis
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import parse
from goalscope.goals.prediction.kinds import acting_states
from goalscope.goals.prediction.predictor import Predictor

TEXTS: Final = Catalogue.of_package("goalscope.goals.prediction")
"""The sentences on predictions."""

_COMPARED: Final = 8  # worlds of a kind in which rules are compared
_LISTED: Final = 3
_LEAST: Final = 0.05  # weight of a rule whose rivals matter


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Something that the data cannot decide.

    Attributes:
        kinds: names of the kinds of worlds where it matters.
        sentence: what it is.
    """

    kinds: tuple[str, ...]
    sentence: str


def doubts_about(predictor: Predictor, unseen: Mapping[str, Sequence[FiniteWorld]]) -> list[Doubt]:
    """Return what the data of a predictor cannot decide in unseen worlds."""
    seen = list({episode.world.world.id: episode.world for episode in predictor.episodes}.values())
    return [
        *_rules(predictor, unseen),
        *_places(predictor.places, seen, unseen),
        *_objects(seen, unseen),
        *_sizes(seen, unseen),
        *_distances(seen, unseen),
    ]


def _doubt(key: str, kinds: Sequence[str], **fields: str | int) -> Iterator[Doubt]:
    if kinds:
        yield Doubt(kinds=tuple(kinds), sentence=TEXTS(f"doubts/{key}", kinds=", ".join(kinds), **fields))


def _rules(predictor: Predictor, unseen: Mapping[str, Sequence[FiniteWorld]]) -> Iterator[Doubt]:
    """Yield what is open about the main rule: rules that act alike wherever the agent was, and undefined worlds."""
    rules = {rule.text: rule for rule in predictor.bank.rules}
    main = next((name for name, weight in predictor.weights.items() if name in rules and weight >= _LEAST), None)
    if main is None:
        return
    undefined = [
        kind
        for kind, worlds in unseen.items()
        if not all(predictor.tables.of(world, rules[main]).defined for world in worlds)
    ]
    yield from _doubt("undefined", undefined, main=main)
    number = list(rules).index(main)
    alike = np.ones(len(rules), dtype=bool)
    for episode in predictor.episodes:
        policies, _ = predictor.bank.at(episode.world, episode.states, episode.times)
        alike &= (np.abs(policies - policies[number]) < 1e-9).all(axis=(1, 2, 3))
    by_kinds: dict[tuple[str, ...], list[str]] = {}
    for rival, like in zip(rules.values(), alike.tolist(), strict=True):
        if like and rival.text != main:
            kinds = (
                kind for kind, worlds in unseen.items() if _differ(predictor, rules[main], rival, worlds[:_COMPARED])
            )
            by_kinds.setdefault(tuple(kinds), []).append(rival.text)
    for kinds_of_rivals, texts in by_kinds.items():
        more = f" and {counted(len(texts) - _LISTED, 'further rule')}" if len(texts) > _LISTED else ""
        rivals = ", ".join(f"“{text}”" for text in texts[:_LISTED]) + more
        yield from _doubt("alike", kinds_of_rivals, main=main, rivals=rivals)


def _differ(predictor: Predictor, first: Hypothesis, second: Hypothesis, worlds: Sequence[FiniteWorld]) -> bool:
    """Return whether two rules call for different moves in a state that can be reached in some of the worlds."""
    for world in worlds:
        states = acting_states(world)
        policies = [predictor.tables.of(world, rule).policies[0, 0, states] for rule in (first, second)]
        if np.abs(policies[0] - policies[1]).max(initial=0.0) > 1e-9:
            return True
    return False


def _places(
    places: Sequence[Hypothesis], seen: Sequence[FiniteWorld], unseen: Mapping[str, Sequence[FiniteWorld]]
) -> Iterator[Doubt]:
    """Yield pairs of places that were the same states in all worlds that were seen, and are not elsewhere."""
    for first, second in combinations(places, 2):
        if all(_coincide(world, first, second) for world in seen):
            kinds = [
                kind for kind, worlds in unseen.items() if not all(_coincide(world, first, second) for world in worlds)
            ]
            yield from _doubt("coincide", kinds, first=first.text, second=second.text)


def _coincide(world: FiniteWorld, first: Hypothesis, second: Hypothesis) -> bool:
    try:
        return bool((first.where(world) == second.where(world)).all())
    except Undefined:
        return False


def _objects(seen: Sequence[FiniteWorld], unseen: Mapping[str, Sequence[FiniteWorld]]) -> Iterator[Doubt]:
    for name in ("key", "door"):
        before = {_has(world, name) for world in seen}
        kinds = [kind for kind, worlds in unseen.items() if {_has(world, name) for world in worlds} - before]
        yield from _doubt("always" if True in before else "never", kinds, name=name)


def _has(world: FiniteWorld, name: str) -> bool:
    return "grid" in world.world.offers and world.grid.objects[name] is not None


def _sizes(seen: Sequence[FiniteWorld], unseen: Mapping[str, Sequence[FiniteWorld]]) -> Iterator[Doubt]:
    before = _sizes_of(seen)
    kinds = [
        kind
        for kind, worlds in unseen.items()
        if before and any(not min(before) <= size <= max(before) for size in _sizes_of(worlds))
    ]
    yield from _doubt("sizes", kinds)


def _sizes_of(worlds: Sequence[FiniteWorld]) -> list[int]:
    return [world.grid.walls.size for world in worlds if "grid" in world.world.offers]


def _distances(seen: Sequence[FiniteWorld], unseen: Mapping[str, Sequence[FiniteWorld]]) -> Iterator[Doubt]:
    most = max((_steps_to_goal(world) for world in seen), default=0)
    kinds = [kind for kind, worlds in unseen.items() if np.median([*map(_steps_to_goal, worlds)]) > most > 0]
    yield from _doubt("distances", kinds, most=most)


def _steps_to_goal(world: FiniteWorld) -> int:
    try:
        steps = world.steps_to(parse("goal").where(world))[world.process.start > 0]
    except Undefined:
        return 0
    shortest = int(steps.min(initial=FAR))
    return shortest if shortest < FAR else 0
