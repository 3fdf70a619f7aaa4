"""Attribution as a scorer of Inspect: which of some hypotheses the actions follow, over all episodes of a log.

One episode says little of what an agent is after. As `goalscope.inspect_ai.meg`, the scorer keeps the record of an
episode with its score, and the metric judges all of them together, as ``goalscope attribute`` does.
"""

import math
from collections.abc import Sequence
from typing import Any

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState

from goalscope.attribution import Trial, judged, usual_methods
from goalscope.attribution.strata import AgentAnswers, followed
from goalscope.front.attributing import bank_from
from goalscope.hypotheses.answers import answers_of
from goalscope.inspect_ai.meg import OPTIONS, kept_episode, scored


@metric(name="attribution", scores="unreduced")
def verdicts() -> Metric:
    """Return what each method says of all episodes, as numbers.

    "METHOD: KIND" is 1 for its verdict (named, set, partly, ...) or "says nothing"; "METHOD NAME" is what it gives a
    hypothesis; "NAME nats" with "low", "high" and "share" is MEG towards those that the score names. Worlds of several
    phases are told apart by "(phase P)". "left out" counts the samples without an action in a known world.
    """

    def compute(scores: list[SampleScore]) -> Value:
        used = [one for one in scores if isinstance(one.score.value, int | float) and one.score.value > 0]
        if not used:
            return {"left out": len(scores)}
        options = (used[0].score.metadata or {})[OPTIONS]
        episodes = [kept_episode(one.sample_metadata, one.score.metadata) for one in used]
        given = AgentAnswers.of(episodes, "the log")
        bank, figures = given.bound(bank_from(options["hypotheses"])), dict[str, float]()
        for group, members in given.strata():
            trial = Trial(answers=members, bank=bank)
            stratum = judged(group, trial, options["methods"] or usual_methods())
            found = {f"{method}: says nothing": 1.0 for method in stratum.refused}
            for said in stratum.attributions:
                found[f"{said.method}: {said.kind}"] = 1.0
                found |= {f"{said.method} {name}": float(weight) for name, weight in said.weights.items()}
            for name, nats in followed(stratum, trial).nats.items():
                found |= {f"{name} nats": nats.value, f"{name} low": nats.low, f"{name} high": nats.high}
                found[f"{name} share"] = nats.share
            found["worlds"] = float(stratum.clusters)
            figures |= {f"{name} ({group})" if group else name: value for name, value in found.items()}
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        return {**finite, "left out": len(scores) - len(used)}

    return compute


@scorer(metrics=[verdicts()], name="attribution")
def attribution(hypotheses: str | Sequence[Any] = "grids", methods: str | Sequence[str] = ()) -> Scorer:
    """Score an episode by its number of actions in a known world; the metric says what all episodes follow.

    Args:
        hypotheses: a bank or a file, as ``goalscope attribute`` takes it, or a list as in a file.
        methods: names, separated by commas; all that need no further answers where empty.
    """
    bank = hypotheses if isinstance(hypotheses, str) else [*hypotheses]
    bank_from(bank)  # an unknown bank is an error before anything is scored
    names = methods.split(",") if isinstance(methods, str) else methods
    options: dict[str, Any] = {"hypotheses": bank, "methods": [name.strip() for name in names if name.strip()]}

    async def score(state: TaskState, target: Target) -> Score:
        return scored(state, options, lambda episode: sum(len(one.state) for one in answers_of([episode])[0]))

    return score
