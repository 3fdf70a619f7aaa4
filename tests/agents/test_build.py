"""Agents from what a study names, and clear errors for what cannot be built."""

from collections.abc import Mapping
from typing import Any

import pytest

from goalscope.agents import SCRIPTED, Forgetful, Observation, Optimal, WrongGoal, build_agent
from goalscope.worlds import Grid, GridView


def test_each_kind_builds_its_class() -> None:
    parameters: dict[str, dict[str, Any]] = {
        "epsilon-greedy": {"epsilon": 0.2},
        "forgetful": {"probability": 0.1, "span": 3},
        "side-biased": {"epsilon": 0.2},
    }
    for kind, agent in SCRIPTED.items():
        built = build_agent(kind, parameters.get(kind, {}))
        assert type(built) is agent
        assert built.name.startswith(kind)


def test_parameters_and_name_arrive() -> None:
    assert build_agent("forgetful", {"probability": 0.5, "span": 4, "name": "drowsy"}) == Forgetful(
        0.5, 4, name="drowsy"
    )
    assert build_agent("wrong-goal", {"target": [2, 3]}) == WrongGoal((2, 3))
    assert build_agent("optimal", {}) == Optimal()


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        ("greedy", {}, ["epsilon-greedy", "'greedy'"]),
        ("optimal", {"epsilon": 0.1}, ["no parameters", "epsilon"]),
        ("epsilon-greedy", {}, ["epsilon is missing"]),
        ("forgetful", {"probability": 0.1, "length": 3}, ["probability, span", "length"]),
        ("epsilon-greedy", {"epsilon": 1.2}, ["in [0, 1]", "1.2"]),
        ("epsilon-greedy", {"epsilon": True}, ["in [0, 1]", "True"]),
        ("epsilon-greedy", {"epsilon": float("nan")}, ["in [0, 1]", "nan"]),
        ("forgetful", {"probability": 0.1, "span": 0}, ["span", ">= 1", "0"]),
        ("forgetful", {"probability": 0.1, "span": 2.5}, ["span", "2.5"]),
        ("wrong-goal", {"target": "middle"}, ["top-right", "(row, col)", "'middle'"]),
        ("wrong-goal", {"target": [1, -2]}, ["(row, col)", "[1, -2]"]),
        ("optimal", {"name": 3}, ["name", "3"]),
    ],
)
def test_what_cannot_be_built_says_why(kind: str, parameters: Mapping[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        build_agent(kind, parameters)
    for word in words:
        assert word in str(error.value)


def test_a_target_outside_of_the_grid_is_refused_when_the_grid_is_seen() -> None:
    agent = build_agent("wrong-goal", {"target": [9, 9]})
    with pytest.raises(ValueError, match=r"target .*3x3"):
        agent.act([Observation(view=GridView(grid=Grid.parse(["A__", "___", "__G"])))])
