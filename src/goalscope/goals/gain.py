"""The gain of an agent towards a named hypothesis, by which a claim about it can be refuted in other worlds.

Steps in which all hypotheses of the bank call for the same moves carry no information, so only the others count:

    gain = sum u_h . a / sum |u_h|^2,    u_h = p_h - 1/m    over steps in which some other hypothesis differs from h

The gain is 1 for an agent that follows h strictly and 0 for a random agent. A claim states a bar: half the gain that
the agent showed in the worlds of the claim. The claim is confirmed if the interval of the gain in new worlds lies above
the bar, and refuted if it lies below.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from goalscope.goals.finding import Finding
from goalscope.goals.hypotheses.answers import Answers, answers_of
from goalscope.goals.hypotheses.definition import Array, Hypothesis
from goalscope.goals.hypotheses.states import States
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import bind
from goalscope.stats import UNBOUNDED, Estimate, estimate_pooled
from goalscope.stats.record import EstimateRecord

BAR: Final = 0.5
"""The gain in new worlds must exceed this share of the gain in the worlds of the claim."""


def gain_share(states: Sequence[States], hypotheses: Mapping[str, Hypothesis], name: str) -> Estimate | None:
    """Estimate an agent's gain towards one hypothesis; None if no step separates it from its rivals.

    Args:
        states: the recorded episodes of one agent.
        hypotheses: name -> hypothesis; all except `name` are rivals.
        name: name of the claimed hypothesis.
    """
    gains, sizes, clusters = list[float](), list[float](), list[str]()
    worlds = [episodes.world.world for episodes in states]
    bank = {hypothesis_name: bind(hypothesis, worlds) for hypothesis_name, hypothesis in hypotheses.items()}
    for answers in answers_of(states):
        policies = _policies(bank, answers)
        if name not in policies:
            continue
        even = answers.world.even[answers.state]
        deviation = policies[name] - even
        tells = np.zeros(len(answers.state), dtype=bool)
        for rival, policy in policies.items():
            if rival != name:
                tells |= np.abs(policy - policies[name]).max(axis=1) > 1e-9
        if not tells.any():
            continue
        answer = answers.first if answers.second is None else (answers.first + answers.second) / 2
        gains.append(float((deviation * answer)[tells].sum()))
        sizes.append(float((deviation**2)[tells].sum()))
        clusters.append(answers.cluster)
    if not sum(sizes) > 0:
        return None
    estimate = estimate_pooled(gains, sizes, clusters, unit="share", bounds=UNBOUNDED)
    return estimate.moved(bounds=(-math.inf, 1.0))  # an agent that follows only this hypothesis has the maximum gain


def _policies(bank: Mapping[str, Hypothesis], answers: Answers) -> dict[str, Array]:
    """Return name -> ``[N, A]`` policy of each hypothesis at the steps of a world; undefined ones are left out."""
    policies = dict[str, Array]()
    for name, hypothesis in bank.items():
        try:
            policy = hypothesis.solved(answers.world).policy
        except Undefined:
            continue
        policies[name] = policy[np.minimum(answers.time, len(policy) - 1), answers.state]
    return policies


def with_bar(finding: Finding, states: Sequence[States], hypotheses: Mapping[str, Hypothesis]) -> Finding:
    """Add a bar to a finding that names one hypothesis: the gain that the agent must exceed in other worlds to confirm
    it.
    """
    if finding.answer != "yes" or len(finding.names) != 1:
        return finding
    share = gain_share(states, hypotheses, finding.names[0])
    if share is None or not share.value > 0:
        return finding
    return finding.model_copy(update={"bar": BAR * min(share.value, 1.0)})


def tested_in(finding: Finding, states: Sequence[States], hypotheses: Mapping[str, Hypothesis]) -> Finding:
    """Add to a finding with a bar (`with_bar`) the gain that the agent reached in other worlds."""
    if finding.bar is None:
        return finding
    share = gain_share(states, hypotheses, finding.names[0])
    return finding if share is None else finding.model_copy(update={"tested": EstimateRecord.of(share)})
