"""Attribution by maximum-entropy goal-directedness (MEG), which needs a single answer per step.

MEG cannot distinguish noise from a goal outside the bank, so it answers "not explained" and never "none of these".
"""

import numpy as np

from goalscope.goals import directedness
from goalscope.goals.attribution.definition import Attribution, MixturePart, Trial, attribution, kind_of
from goalscope.goals.decision import by_single_answers, share_of
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.words import say


@attribution("meg")
def by_meg(trial: Trial) -> Attribution:
    """Name the hypothesis with the greatest MEG if it explains the agent's moves and exceeds its rivals."""
    try:
        measured = directedness(
            trial.states,
            trial.bank,
            seed=trial.seed,
            confidence=1 - trial.level,
            pairs="all",
            state_blind=True,
        )
    except ValueError:
        raise Undefined("meg needs a hypothesis with a utility: a place, an event or a sum of these") from None
    finding = by_single_answers(trial.states, trial.bank, measured, level=trial.level, seed=trial.seed)
    if finding.answer == "untestable":
        raise Undefined(finding.why)
    goals = {estimate.hypothesis: estimate for estimate in measured.estimates if not estimate.cell}
    shares = {name: share.value for name, goal in goals.items() if (share := share_of(goal)) is not None}
    named = finding.names if finding.answer == "yes" else ()
    return Attribution(
        method="meg",
        kind=kind_of(finding),
        names=finding.names,
        sentence=say(finding, "it").rstrip("."),
        weights=shares,
        predicts=tuple(
            # Beyond 40 nats a soft policy misses its limit by exp(-40).
            MixturePart(
                hypothesis=trial.bank[name].text,
                weight=1 / len(named),
                rationality=float(np.clip(np.nan_to_num(goals[name].beta), -40.0, 40.0)),
            )
            for name in named
        ),
        details={"nats": {name: goal.signed for name, goal in goals.items()}},
    )
