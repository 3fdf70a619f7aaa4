"""Counterfactual behaviour: an object is moved, everything else stays, and the agent is asked for one turn.

In the first state of each world the goal lies elsewhere, or the key, in `CHANGES` versions each; both answers to the
first step of the episode are those of the world as it is. Hypotheses are held against all of these turns by the rule of
`goals.hypotheses.score`, a world with its versions one cluster. Two that call for the same actions wherever the
agent was seen are told apart by a move of the object that one of them is about: where goals always lie in a corner, by
the goal elsewhere. What the moves depend on stands beside it in words, see `goalscope.goals.counterfactual.dependence`.

What is found holds of first states and of changed worlds: in others an agent may do something else.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from goalscope._ground.rng import stream
from goalscope.goals.attribution.by_score import of_verdict
from goalscope.goals.attribution.definition import Attribution, Trial, attribution
from goalscope.goals.counterfactual.changes import Thing, best_actions, changed_grids
from goalscope.goals.counterfactual.dependence import dependences, sentence
from goalscope.goals.counterfactual.turns import Asked, WorldTurns
from goalscope.goals.hypotheses.answers import Answers
from goalscope.goals.hypotheses.definition import FiniteWorld, finite_world
from goalscope.goals.hypotheses.evidence import evidence
from goalscope.goals.hypotheses.score import judge
from goalscope.goals.hypotheses.views import Undefined
from goalscope.worlds.gridworld import GridWorld

MOVED: Final[tuple[Thing, ...]] = ("goal", "key")
CHANGES: Final = 3
"""Versions of a world for each object, two answers each."""


@attribution("counterfactual", asks="turns")
def by_counterfactual(trial: Trial) -> Attribution:
    """Return which hypothesis the first turns follow where an object was moved."""
    ask = trial.asking
    if not trial.twice:
        raise Undefined("it needs a second answer to each step, or the probabilities of actions: answers: 2 in a study")
    shown = {one.world.world.id: one for each in trial.answers if (one := _first_step(each)) is not None}
    versions = [(own, thing, world) for own in shown for thing, world in _versions(shown[own], trial.seed)]
    if not versions:
        raise Undefined("it needs whole grids in which a goal or a key can lie elsewhere")
    told = {one.world.world.id: one for one in ask([world for _, _, world in versions])}
    sums = evidence([*shown.values(), *told.values()], trial.hypotheses, len(trial.bank))
    found = judge(sums, seed=trial.seed, level=trial.level)
    exact = any((one.first % 1 > 0).any() for one in trial.answers)
    sides = {own: Asked(cluster=one.cluster, tags={}, side=_side(one, exact)) for own, one in shown.items()}
    for own, thing, world in versions:
        if (one := told.get(world.world.id)) is not None:
            sides[own].changed.setdefault(thing, []).append(_side(one, exact))
    moved = dependences({"the agent": [one for one in sides.values() if one.changed]}, level=trial.level)
    said = of_verdict("counterfactual", found, trial)
    depends = {one.moved: {"answer": one.answer, "share": one.share.value} for one in moved}
    return said.model_copy(
        update={
            "sentence": f"with the {' or the '.join(depends)} moved: {said.sentence}. {sentence(moved)}",
            "details": {**said.details, "depends": depends},
        }
    )


def _first_step(one: Answers) -> Answers | None:
    """Return the answers to the first step in a grid that shows its agent and its goal, None where there are none."""
    world = one.world.world
    first = np.flatnonzero(one.time == 0)[:1]
    if not isinstance(world, GridWorld) or world.grid.start is None or not len(first) or not best_actions(world.grid):
        return None
    return Answers(
        world=one.world,
        state=one.state[first],
        time=one.time[first],
        episode=np.zeros(1, dtype=np.int64),
        last=one.state[first],
        left=np.array([one.world.horizon]),
        first=one.first[first],
        second=None if one.second is None else one.second[first],
    )


def _versions(one: Answers, seed: int) -> Iterator[tuple[Thing, FiniteWorld]]:
    """Yield what was moved and the world with it elsewhere, of the cluster of the first."""
    for thing in MOVED:
        rng = stream(seed, "moved", one.world.world.id, thing)
        for grid in changed_grids(one.world.grid, thing, CHANGES, rng=rng):
            yield thing, finite_world(GridWorld(grid=grid, cluster=one.cluster), one.world.horizon)


def _side(one: Answers, exact: bool) -> WorldTurns:
    """Return both answers of one step as turns; ``exact``: they are the probabilities of moves."""
    assert one.second is not None
    return WorldTurns(counts=one.first[0] + one.second[0], policy=one.first[0] if exact else None)
