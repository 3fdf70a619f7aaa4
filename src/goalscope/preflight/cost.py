"""Upper bounds on the cost of a study, before anything is spent: no network, no weights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from goalscope.agents.agent import Agent
from goalscope.agents.model_agent import ModelAgent
from goalscope.models.http import HttpModel
from goalscope.models.http_settings import Prices
from goalscope.models.prompt_bound import CHAT_ALLOWANCE, MESSAGE_ALLOWANCE
from goalscope.preflight.longest_prompts import frame, most_prompts
from goalscope.preflight.token_counts import counter, dialect_of, prompts_of
from goalscope.runs import Study
from goalscope.runs.record import World

_MOST_WORLDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one agent costs at most.

    Attributes:
        name: the agent.
        episodes: number of episodes.
        calls: most calls: each step of each horizon, and each retry after an answer without an action.
        prompt: about how many prompt tokens one call has, mean over worlds and, where a history makes them grow, over
            the steps of an episode that lasts to its horizon; reasoning that is kept counts with its most tokens. None
            for agents without a model.
        how: how these were counted.
        most_prompt: most prompt tokens of one call, the same mean of a count that no prompt exceeds.
        output: most output tokens of one call.
        tokens: most tokens altogether.
        usd: what they cost, None where no prices are given.
        expected_usd: USD for prompts as expected and outputs of an expected length, None where none is given.
        prices: the prices.
    """

    name: str
    episodes: int
    calls: int
    prompt: float | None = None
    how: str = ""
    most_prompt: float | None = None
    output: int | None = None
    tokens: int | None = None
    usd: float | None = None
    expected_usd: float | None = None
    prices: Prices | None = None


def costs(study: Study, output_tokens: int | None = None) -> list[Cost]:
    """Return what each agent of a study costs at most.

    Args:
        study: the study.
        output_tokens: expected output tokens of one call, for `Cost.expected_usd`.

    Raises:
        ValueError: a template has no place for what a world shows.
    """
    worlds = [(world, study.horizon.of(world)) for world in study.worlds()]
    parameters = [entry.parameters for entry in study.agents_]
    return [
        _cost(study, agent, given, worlds, output_tokens)
        for agent, given in zip(study.agents(), parameters, strict=True)
    ]


def _cost(
    study: Study, agent: Agent, given: Mapping[str, Any], worlds: list[tuple[World, int]], expected: int | None
) -> Cost:
    steps = sum(horizon for _, horizon in worlds) * study.trajectories
    basic = Cost(name=agent.name, episodes=len(worlds) * study.trajectories, calls=steps)
    if not isinstance(agent, ModelAgent):
        return basic
    calls = steps * (1 + study.failure_of(agent).retries)
    count, how = counter(agent, given)
    output = agent.sampling.max_tokens
    stride = -(-len(worlds) // _MOST_WORLDS)
    sampled = worlds[::stride]
    found = [prompts_of(study, agent, world, horizon, count) for world, horizon in sampled]
    asked = sum(horizon for _, horizon in sampled)
    reasoned = sum(prompts.reasoned for prompts in found) / asked  # earlier answers with reasoning in a prompt
    plain = sum(prompts.total for prompts in found) / asked
    mean = plain + reasoned * output
    dialect, _ = dialect_of(agent, given)
    added = frame(agent, dialect)
    bounds = [most_prompts(study, agent, world, horizon, added) for world, horizon in worlds]
    most: int | None = None
    if None not in bounds:
        most = sum(bound or 0 for bound in bounds) * study.trajectories * (1 + study.failure.retries)
    if stride > 1:
        how += f", on {len(sampled)} of {len(worlds)} worlds"
    if study.history_of(agent) != "none":
        longest = max(found, key=lambda prompts: prompts.last)
        how += (
            f"; they grow from step to step, from about {longest.first:,} to {longest.last:,} tokens in the longest "
            f"episode, {plain:,.0f} on average"
        )
    if reasoned:
        how += (
            f", and the reasoning of the {reasoned:.1f} earlier answers that a prompt holds on average adds at most "
            f"{output:,} tokens each"
        )
    elif study.history_of(agent) == "conversation":
        how += ", earlier answers counted as the short JSON object that is asked for"
    if most is None:
        how += f"; no bound is known of prompts that show {study.view.shows}"
    elif dialect is None:
        how += (
            f"; at most one for each byte, {CHAT_ALLOWANCE} for the server's chat template and {MESSAGE_ALLOWANCE} for "
            "each message"
        )
    else:
        how += "; at most one for each byte of the prompt as the model's own chat template writes it"
    expected_prompts = None if expected is None else round((plain + reasoned * expected) * calls)
    prices = agent.model.prices if isinstance(agent.model, HttpModel) else None
    return replace(
        basic,
        calls=calls,
        prompt=mean,
        how=how,
        most_prompt=None if most is None else most / calls,
        output=output,
        tokens=None if most is None else most + output * calls,
        usd=None if prices is None or most is None else prices.usd(most, output * calls),
        expected_usd=None
        if prices is None or expected is None or expected_prompts is None
        else prices.usd(expected_prompts, expected * calls),
        prices=prices,
    )
