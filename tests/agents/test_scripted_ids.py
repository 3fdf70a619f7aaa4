"""Ids of scripted agents stay: stored runs are joined with them."""

from dataclasses import fields
from typing import Any

import pytest

from goalscope.agents import SCRIPTED, TASK_SCRIPTED, agent_id
from goalscope.agents.agent import TASK_PREFIX
from goalscope.agents.scripted import Scripted

GIVEN: dict[str, Any] = {"epsilon": 0.3, "probability": 0.4, "span": 5}
AGENTS: dict[str, type[Scripted]] = {
    **SCRIPTED,
    **{f"{TASK_PREFIX}{kind}": agent for kind, agent in TASK_SCRIPTED.items()},
}
# kind, name, id: found with the version in which the two families had no base in common
KNOWN = [
    ("optimal", "optimal", "5cf4600dd093801ed36d42ec"),
    ("epsilon-greedy", "epsilon-greedy(0.3)", "cc45e67ad2dea8b27a2b4cc3"),
    ("random", "random", "0ff028f046e6d8cd7dfec508"),
    ("key-lured", "key-lured", "23aabc518a0036ab3f310c30"),
    ("wrong-goal", "wrong-goal(top-right)", "5160ee126997b70b61b8ea0a"),
    ("forgetful", "forgetful(0.4, 5)", "f44e0ab11e68cbdb33852a8b"),
    ("side-biased", "side-biased(0.3, left)", "1f837c8a8915f57127eb430b"),
    ("task-oracle", "oracle", "ada5a06e351dc652c046dadf"),
    ("task-greedy", "greedy", "8f26adbc65b3a61dad57d2ee"),
    ("task-explore-first", "explore-first", "5ffe54efff2b351874901404"),
    ("task-depth-first", "depth-first", "971e37b7b8f504e9aef7f9a6"),
    ("task-noisy-greedy", "noisy-greedy(0.3)", "c60b2ee8133839a601c41d06"),
    ("task-frontier-only", "frontier-only", "89d257e920c3911fd48a19ff"),
    ("task-short-memory", "short-memory(5)", "8253e6a91994010a4330dcd4"),
    ("task-random-walk", "random-walk", "c10268131ac5780e6255be01"),
    ("task-oscillator", "oscillator", "6603d3b3c4b49d77a527388d"),
]


def test_every_scripted_agent_is_known_here() -> None:
    assert list(AGENTS) == [kind for kind, _, _ in KNOWN]
    assert len({known for _, _, known in KNOWN}) == len(KNOWN) == 16


@pytest.mark.parametrize(("kind", "name", "known"), KNOWN, ids=[kind for kind, _, _ in KNOWN])
def test_ids_and_names_are_what_they_were(kind: str, name: str, known: str) -> None:
    agent = AGENTS[kind]
    given = {entry.name: GIVEN[entry.name] for entry in fields(agent) if entry.name in GIVEN}
    plain, named = agent(**given), agent(**given, name="mine")
    assert (plain.name, named.name) == (name, "mine")
    assert agent_id(plain) == agent_id(named) == f"agent-{known}"
    assert plain.describe()["kind"] == kind and not plain.journalled
