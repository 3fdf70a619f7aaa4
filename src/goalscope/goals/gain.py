"""A claim that can fail: how much of the gain of an agent that is after one hypothesis an agent shows in other worlds.

Steps in which all hypotheses of the bank call for the same moves say nothing, so the gain counts the others alone:

    gain = sum u_h . a / sum |u_h|^2,    u_h = p_h - 1/m    over steps in which some other hypothesis differs from h

It is 1 for an agent that is after h and nothing else, 0 for a random one. A claim states a bar for it, half of what the
agent showed where the claim was made; it is held where the interval over new worlds lies above the bar, and refuted
where it lies below.
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
"""Share of the gain where a claim was made that it must exceed in other worlds."""


def gain_share(states: Sequence[States], hypotheses: Mapping[str, Hypothesis], name: str) -> Estimate | None:
    """Return the share of the gain of an agent that is after one of some hypotheses; None where no step tells.

    Args:
        states: what one agent did.
        hypotheses: name -> hypothesis; all others are rivals.
        name: the one that is claimed.
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
    return estimate.moved(bounds=(-math.inf, 1.0))  # no agent gains more than one that is after nothing else


def _policies(bank: Mapping[str, Hypothesis], answers: Answers) -> dict[str, Array]:
    """Return name -> ``[N, A]`` what each hypothesis calls for in the steps of a world, undefined ones left out."""
    policies = dict[str, Array]()
    for name, hypothesis in bank.items():
        try:
            policy = hypothesis.solved(answers.world).policy
        except Undefined:
            continue
        policies[name] = policy[np.minimum(answers.time, len(policy) - 1), answers.state]
    return policies


def with_bar(finding: Finding, states: Sequence[States], hypotheses: Mapping[str, Hypothesis]) -> Finding:
    """Add to a finding that names one hypothesis the bar that its gain must exceed in other worlds."""
    if finding.answer != "yes" or len(finding.names) != 1:
        return finding
    share = gain_share(states, hypotheses, finding.names[0])
    if share is None or not share.value > 0:
        return finding
    return finding.model_copy(update={"bar": BAR * min(share.value, 1.0)})


def tested_in(finding: Finding, states: Sequence[States], hypotheses: Mapping[str, Hypothesis]) -> Finding:
    """Add to a finding with a bar the gain that the agent shows in other worlds."""
    if finding.bar is None:
        return finding
    share = gain_share(states, hypotheses, finding.names[0])
    return finding if share is None else finding.model_copy(update={"tested": EstimateRecord.of(share)})
