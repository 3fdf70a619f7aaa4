"""Agents whose class takes no name: called by the study's, by their own, or by their kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from goalscope._ground import registry
from goalscope.agents import Observation, Turn, agent_kind, build_agent
from registered import entries_of


class Base:
    journalled = False

    def describe(self) -> dict[str, Any]:
        return {"kind": "nameless"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [Turn(action=0) for _ in observations]


@dataclass(frozen=True)
class Frozen(Base):
    direction: str = "up"


@dataclass(frozen=True, slots=True)
class Slotted(Base):
    direction: str = "up"


class Fixed(Frozen):
    @property
    def name(self) -> str:
        return "fixed"


@pytest.mark.parametrize("maker", [Frozen, Slotted])
def test_a_dataclass_needs_no_name(maker: type) -> None:
    before = entries_of("agent")
    try:
        agent_kind("nameless")(maker)
        assert build_agent("nameless", {}).name == "nameless"
        agent = build_agent("nameless", {"name": "mine", "direction": "down"})
        assert agent.name == "mine" and agent.direction == "down"  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="directions"):
            build_agent("nameless", {"name": "mine", "directions": "down"})
    finally:
        registry._entries["agent"] = before


def test_a_name_that_cannot_be_set_is_kept_or_refused() -> None:
    before = entries_of("agent")
    try:
        agent_kind("fixed")(Fixed)
        assert build_agent("fixed", {}).name == build_agent("fixed", {"name": "fixed"}).name == "fixed"
        with pytest.raises(ValueError, match="name"):
            build_agent("fixed", {"name": "another"})
    finally:
        registry._entries["agent"] = before


WALKER = """
from goalscope.agents import Turn

class Walker:
    journalled = False

    def __init__(self, first=0):
        self.first = first

    def describe(self):
        return {"kind": "walker", "first": self.first}

    def act(self, observations):
        return [Turn(action=self.first if one.uniform("walk") < 0.5 else 3) for one in observations]
"""


def test_an_agent_of_the_working_directory_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nameless_walker.py").write_text(WALKER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    planned = call("evaluate", "nameless_walker:Walker:first=1", "--out", "verdict", "--dry-run", "--quick")
    assert "nameless_walker:Walker" in planned and "Grids" in planned and "Fog" in planned
    assert "secnd" in call("evaluate", "nameless_walker:Walker:secnd=1", "--out", "verdict", status=2)
    assert "nameless_absent" in call("evaluate", "nameless_absent:Walker", "--out", "verdict", status=2)
