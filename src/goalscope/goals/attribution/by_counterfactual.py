"""Attribution by counterfactual behaviour: move one object, keep everything else, and ask the agent for one move.

For each world we build `CHANGES` versions with the goal elsewhere and `CHANGES` with the key elsewhere, and ask twice
for the first move in each. The recorded answers to the first step stand for the unchanged world. The consistency score
(`goals.hypotheses.score`) then compares the hypotheses on all of these moves; a world and its versions form one
cluster. This separates hypotheses that agree in every recorded state: if the goal always lies in a corner, moving the
goal separates "goal" from "corner". The verdict also says what the moves depend on, see
`goalscope.goals.counterfactual.dependence`.

The result is about first states and changed worlds only; elsewhere an agent may behave differently.
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
"""Number of changed versions of a world for each object; the agent answers twice in each."""


@attribution("counterfactual", asks="turns")
def by_counterfactual(trial: Trial) -> Attribution:
    """Name the hypothesis that the agent's first moves follow after an object was moved."""
    ask = trial.asking
    if not trial.twice:
        raise Undefined("it needs a second answer to each step, or the probabilities of actions: answers: 2 in a study")
    originals = {
        first_step.world.world.id: first_step
        for answers in trial.answers
        if (first_step := _first_step(answers)) is not None
    }
    versions = [
        (original_id, thing, world)
        for original_id in originals
        for thing, world in _versions(originals[original_id], trial.seed)
    ]
    if not versions:
        raise Undefined("counterfactual needs fully visible grids in which the goal or the key can lie elsewhere")
    version_answers = {answers.world.world.id: answers for answers in ask([world for _, _, world in versions])}
    sums = evidence([*originals.values(), *version_answers.values()], trial.hypotheses, len(trial.bank))
    verdict = judge(sums, seed=trial.seed, level=trial.level)
    exact = any((answers.first % 1 > 0).any() for answers in trial.answers)
    sides = {
        original_id: Asked(cluster=answers.cluster, tags={}, side=_side(answers, exact))
        for original_id, answers in originals.items()
    }
    for original_id, thing, world in versions:
        if (answers := version_answers.get(world.world.id)) is not None:
            sides[original_id].changed.setdefault(thing, []).append(_side(answers, exact))
    moved = dependences({"the agent": [state for state in sides.values() if state.changed]}, level=trial.level)
    claim = of_verdict("counterfactual", verdict, trial)
    depends = {dependence.moved: {"answer": dependence.answer, "share": dependence.share.value} for dependence in moved}
    return claim.model_copy(
        update={
            "sentence": f"with the {' or the '.join(depends)} moved: {claim.sentence}. {sentence(moved)}",
            "details": {**claim.details, "depends": depends},
        }
    )


def _first_step(answers: Answers) -> Answers | None:
    """Return the answers to the first step in a grid that shows its agent and a reachable goal, or None."""
    world = answers.world.world
    first = np.flatnonzero(answers.time == 0)[:1]
    if not isinstance(world, GridWorld) or world.grid.start is None or not len(first) or not best_actions(world.grid):
        return None
    return Answers(
        world=answers.world,
        state=answers.state[first],
        time=answers.time[first],
        episode=np.zeros(1, dtype=np.int64),
        last=answers.state[first],
        left=np.array([answers.world.horizon]),
        first=answers.first[first],
        second=None if answers.second is None else answers.second[first],
    )


def _versions(answers: Answers, seed: int) -> Iterator[tuple[Thing, FiniteWorld]]:
    """Yield each moved object and the changed world, which keeps the cluster of the original."""
    for thing in MOVED:
        rng = stream(seed, "moved", answers.world.world.id, thing)
        for grid in changed_grids(answers.world.grid, thing, CHANGES, rng=rng):
            yield thing, finite_world(GridWorld(grid=grid, cluster=answers.cluster), answers.world.horizon)


def _side(answers: Answers, exact: bool) -> WorldTurns:
    """Convert both answers of one step to `WorldTurns`; ``exact`` says whether the answers are move probabilities."""
    assert answers.second is not None
    return WorldTurns(counts=answers.first[0] + answers.second[0], policy=answers.first[0] if exact else None)
