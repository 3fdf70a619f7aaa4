"""Attribution by the consistency score, whose ceiling is the agent's noise (`goalscope.goals.hypotheses.score`)."""

from goalscope.goals.attribution.definition import Attribution, MixturePart, Trial, attribution
from goalscope.goals.hypotheses.naming import verdict_of
from goalscope.goals.hypotheses.score import ScoreVerdict
from goalscope.goals.hypotheses.views import Undefined


@attribution("score")
def by_score(trial: Trial) -> Attribution:
    """Return the verdict of the consistency score; it needs two answers per step, or the action probabilities."""
    if not trial.twice:
        raise Undefined("it needs a second answer to each step, or the probabilities of actions: answers: 2 in a study")
    verdict, _ = verdict_of(trial.answers, trial.hypotheses, len(trial.bank), seed=trial.seed, level=trial.level)
    return of_verdict("score", verdict, trial)


def of_verdict(method: str, verdict: ScoreVerdict, trial: Trial) -> Attribution:
    """Turn a verdict of the consistency score into an attribution."""
    bank_names = [name for name in verdict.names if name in trial.bank]
    follows = verdict.kind in ("named", "set", "partly")
    parts = [
        MixturePart(
            hypothesis=trial.hypotheses[name].text, weight=1 / len(bank_names), strength=verdict.score(name).strength[0]
        )
        for name in (bank_names if follows else [])
    ]
    if verdict.kind == "habit":
        parts = [MixturePart(hypothesis=verdict.names[0], weight=1.0)]
    if verdict.kind == "random":
        parts = [MixturePart(hypothesis="random", weight=1.0)]
    return Attribution(
        method=method,
        kind=verdict.kind,
        names=verdict.names,
        sentence=verdict.sentence(),
        weights={name: verdict.score(name).consistency[0] for name in trial.bank},
        predicts=tuple(parts),
        score=verdict,
    )
