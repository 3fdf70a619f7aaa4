"""The score of all hypotheses with the agent's own noise as the ceiling; see `goalscope.goals.hypotheses.score`."""

from goalscope.goals.attribution.definition import Attribution, PredictedPart, Trial, attribution
from goalscope.goals.hypotheses.score import ScoreVerdict, judge
from goalscope.goals.hypotheses.views import Undefined


@attribution("score")
def by_score(trial: Trial) -> Attribution:
    """Return the verdict of the rule; it needs two answers to each step, or their probabilities."""
    if not trial.twice:
        raise Undefined("it needs a second answer to each step, or the probabilities of actions: answers: 2 in a study")
    return of_verdict("score", judge(trial.evidence, seed=trial.seed, level=trial.level), trial)


def of_verdict(method: str, found: ScoreVerdict, trial: Trial) -> Attribution:
    """Return a verdict of the rule as what a method says."""
    asked = [name for name in found.names if name in trial.bank]
    follows = found.kind in ("named", "set", "partly")
    parts = [
        PredictedPart(
            hypothesis=trial.hypotheses[name].text, weight=1 / len(asked), strength=found.score(name).strength[0]
        )
        for name in (asked if follows else [])
    ]
    if found.kind == "habit":
        parts = [PredictedPart(hypothesis=found.names[0], weight=1.0)]
    if found.kind == "random":
        parts = [PredictedPart(hypothesis="random", weight=1.0)]
    return Attribution(
        method=method,
        kind=found.kind,
        names=found.names,
        sentence=found.sentence(),
        weights={name: found.score(name).consistency[0] for name in trial.bank},
        predicts=tuple(parts),
        score=found,
    )
