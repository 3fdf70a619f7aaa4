"""The scorer: our measures of an episode, with standard errors over clusters of worlds."""

import math
from typing import Any, Final

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import TaskState

from goalscope import registry
from goalscope.inspect_ai.record import CLUSTER, KEY, EpisodeRecord, SampleRecord
from goalscope.measures.behaviour import measure_episodes
from goalscope.runs.record import Episode, Step
from goalscope.untrusted import UntrustedError
from goalscope.worlds.world import World

MEASURES: Final = ("success", "action accuracy", "invalid turns")
TASK_MEASURES: Final = ("success", "exploration error", "exploitation error", "invalid actions")
"""The measures that a log shows; all others are computed after an import."""


@scorer(metrics={"*": [mean(), stderr(cluster=CLUSTER)]}, name="episode_measures")
def episode_measures() -> Scorer:
    """Score an episode by our measures; the standard errors are over the clusters that worlds belong to."""

    async def score(state: TaskState, target: Target) -> Score:
        held = state.store.get(KEY, None)
        if held is None:
            return Score.unscored("the sample holds no episode: it ended before its first turn")
        sample = SampleRecord.read(state.metadata.get(KEY), "metadata")
        record = EpisodeRecord.read(held, "store")
        return score_of(recorded_episode(sample, record))

    return score


def score_of(episode: Episode) -> Score:
    """Return the score of an episode; a measure that is not defined for it is NaN, which Inspect leaves out."""
    names = TASK_MEASURES if episode.world.own_measures else MEASURES
    rows = measure_episodes([episode], [registry.resolve("measure", name) for name in names])
    found = dict(zip(rows.measure.tolist(), rows.value.tolist(), strict=True))
    value: dict[str, Any] = {name: float(found.get(name, math.nan)) for name in names}
    return Score(value=value, answer=episode.outcome, explanation=_in_words(episode))


def recorded_episode(sample: SampleRecord, record: EpisodeRecord) -> Episode:
    """Return the episode that a log records, without what was said.

    Raises:
        UntrustedError: its records are not those of an episode.
    """
    world = sample.begin()
    try:
        steps = tuple(
            Step(index=index, state=_state(world, state), action=_action(world, action), failure=failure)
            for index, (state, action, failure) in enumerate(record.steps)
        )
        return Episode(
            spec=record.spec(sample),
            world=world,
            agent=record.agent,
            steps=steps,
            final=_state(world, record.final),
            outcome=record.outcome,
            tags=record.tags,
        )
    except ValueError as error:
        raise UntrustedError(str(error).split("\n", 1)[0], where="store") from error


def _state(world: World, numbers: list[int]) -> Any:
    return world.check_state(tuple(numbers))


def _action(world: World, action: int | None) -> Any:
    return None if action is None else world.action(action)


def _in_words(episode: Episode) -> str:
    names = [step.failure or getattr(step.action, "name", f"{step.action}") for step in episode.steps]
    return f"{episode.outcome} after {len(names)} of at most {episode.spec.horizon} steps: {', '.join(names)}"
