"""Names of parts: taken, unknown or wrong ones are refused; packages of others are tested in `tests/plugin`."""

import pytest

from goalscope._ground import registry
from goalscope.agents import Optimal, agent_kind, build_agent
from goalscope.measures import behaviour_measures


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test registers."""
    for kind in registry.KINDS:
        registry.names(kind)
    kept = {kind: dict(entries) for kind, entries in registry._entries.items()}
    monkeypatch.setattr(registry, "_entries", kept)


def test_what_is_built_in_comes_first_in_the_order_of_reports(parts: None) -> None:
    before = registry.names("agent")
    assert before[0] == "optimal" and {"chat", "task-chat", "task-greedy"} <= set(before)
    assert tuple(measure.name for measure in behaviour_measures()) == registry.names("measure")
    agent_kind("another")(Optimal)
    agent_kind("yet another")(lambda parameters: Optimal(**parameters))
    assert build_agent("yet another", {"name": "mine"}) == Optimal(name="mine")
    assert set(registry.names("agent")) == {*before, "another", "yet another"}


def test_a_name_that_is_taken_is_refused(parts: None) -> None:
    with pytest.raises(ValueError, match=r"'optimal'.*scripted"):
        agent_kind("optimal")(lambda parameters: Optimal())
    assert build_agent("optimal", {}) == Optimal()


def test_a_part_that_is_defined_again_takes_its_own_place(parts: None) -> None:
    for number in (1, 2):
        made = type("Head", (), {"number": number, "__module__": "notebook"})
        registry.register("head", "mine")(made)
    assert registry.resolve("head", "mine").number == 2


@pytest.mark.parametrize("name", ["", " padded", "two\nlines", "one;two"])
def test_a_name_that_cannot_be_given_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="one line"):
        registry.register("head", name)(object())


def test_unknown_names_and_kinds_are_told_what_was_meant() -> None:
    with pytest.raises(ValueError, match=r"'optimall'.*optimal"):
        registry.resolve("agent", "optimall")
    with pytest.raises(ValueError, match="world, environment, agent, model, measure"):
        registry.names("agents")


def test_what_is_built_must_be_an_agent(parts: None) -> None:
    agent_kind("nobody")(lambda parameters: object())
    with pytest.raises(ValueError, match=r"nobody must be an agent.*lacks.*act"):
        build_agent("nobody", {})
