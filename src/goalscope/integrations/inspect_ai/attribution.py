"""Inspect scorer that attributes goals: which hypotheses explain the actions in all episodes of a log.

A single episode says little about an agent's goal. As in `integrations.inspect_ai.meg`, the scorer stores the record
of each episode with its score, and the metric evaluates all episodes together, as ``goalscope attribute`` does.
"""

import math
from collections.abc import Sequence
from typing import Any

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import TaskState

from goalscope.cli.front.attributing import bank_from
from goalscope.goals.attribution import Trial, judged, usual_methods
from goalscope.goals.decision import decide, groups
from goalscope.goals.finding import Finding, where_text
from goalscope.goals.hypotheses import bind
from goalscope.goals.hypotheses.states import states_of_episodes
from goalscope.goals.reading import states_among
from goalscope.integrations.inspect_ai.meg import OPTIONS, finding_figures, kept_episode, scored, tell
from goalscope.runs.record import Episode


@metric(name="attribution", scores="unreduced")
def verdicts() -> Metric:
    """Return each method's attribution over all episodes as numbers.

    "METHOD: KIND" is 1 for the kind of the method's verdict (named, set, partly, ...) or for "says nothing". "METHOD
    NAME" is the method's value for a hypothesis. "NAME nats", with "low", "high" and "share", is the MEG towards a
    hypothesis that the score names. "(phase P)" distinguishes the phases of a world. "left out" is the number of
    samples without an action in a known world.
    """

    def compute(scores: list[SampleScore]) -> Value:
        positive = [score for score in scores if isinstance(score.score.value, int | float) and score.score.value > 0]
        if not positive:
            return {"left out": len(scores)}
        options = (positive[0].score.metadata or {})[OPTIONS]
        episodes = [kept_episode(score.sample_metadata, score.score.metadata) for score in positive]
        states, _ = states_among(episodes, "the log")
        bank, figures, log_findings = bank_from(options["hypotheses"]), dict[str, float](), list[Finding]()
        bound = {name: bind(hypothesis, [state.world.world for state in states]) for name, hypothesis in bank.items()}
        for tags, members in groups(states):
            group, finding = where_text(tags), decide(members, bound, where=tags)
            stratum = judged(group, Trial(states=members, bank=bound), options["methods"] or usual_methods())
            log_findings.append(finding)
            figures |= finding_figures(finding)
            metrics = {f"{method}: says nothing": 1.0 for method in stratum.refused}
            for attribution in stratum.attributions:
                metrics[f"{attribution.method}: {attribution.kind}"] = 1.0
                metrics |= {
                    f"{attribution.method} {name}": float(weight) for name, weight in attribution.weights.items()
                }
            for name in finding.names:
                if (nats := finding.figure("meg", name)) is not None:
                    ends = {"nats": nats.value, "low": nats.low, "high": nats.high}
                    metrics |= {f"{name} {end}": value for end, value in ends.items() if value is not None}
                if (share := finding.figure("share", name)) is not None and share.value is not None:
                    metrics[f"{name} share"] = share.value
            metrics["worlds"] = float(stratum.clusters)
            figures |= {f"{name} ({group})" if group else name: value for name, value in metrics.items()}
        for score in positive:
            tell(score.score, log_findings)
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        return {**finite, "left out": len(scores) - len(positive)}

    return compute


@scorer(metrics=[verdicts()], name="attribution")
def attribution(hypotheses: str | Sequence[Any] = "grids", methods: str | Sequence[str] = ()) -> Scorer:
    """Score an episode by its number of actions in a known world; the metric attributes goals over all episodes.

    Args:
        hypotheses: a bank or a file, as for ``goalscope attribute``, or a list with the content of such a file.
        methods: names of methods, separated by commas; by default all methods that need no further answers.
    """
    bank = hypotheses if isinstance(hypotheses, str) else [*hypotheses]
    bank_from(bank)  # raise the error for an unknown bank before anything is scored
    names = methods.split(",") if isinstance(methods, str) else methods
    options: dict[str, Any] = {"hypotheses": bank, "methods": [name.strip() for name in names if name.strip()]}

    async def score(state: TaskState, target: Target) -> Score:
        return scored("attribution", state, options, _moves)

    return score


def _moves(episode: Episode) -> int:
    """Count the actions of an episode in a world with known dynamics."""
    return sum(int((state.action >= 0).sum()) for state in states_of_episodes([episode])[0])
