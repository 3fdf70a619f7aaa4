"""The walk from `evaluate` to a played step: one store is opened, and few functions lie on the way."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import goalscope
from goalscope._ground import registry
from goalscope.agents import ChatAgent, Observation, Turn
from goalscope.runs import Store
from goalscope.worlds.gridworld import GridSession

ROOT = str(Path(goalscope.__file__).parent)
MOST = 25


class Arrived(BaseException):
    """The first step of an episode was reached; nothing catches it on the way."""


@pytest.mark.parametrize("model", ["forgetful:probability=0.3,span=4", "chat:model=theseus,max_tokens=8"])
def test_one_store_is_opened_and_few_functions_are_passed_to_a_played_episode(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, looked_up, walk = list[Path](), list[str](), list[str]()
    open_store, take_step = Store.__init__, GridSession.step

    def opening(self: Store, path: Any, *rest: Any, **options: Any) -> None:
        opened.append(Path(path))
        open_store(self, path, *rest, **options)

    def act(self: ChatAgent, observations: Sequence[Observation]) -> list[Turn]:
        return [Turn(action=0, text="UP", usage={"prompt_tokens": 9.0, "output_tokens": 1.0}) for _ in observations]

    def step(self: GridSession, action: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        functions = list[str]()
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(ROOT):
                functions.append(f"{Path(code.co_filename).stem}.{code.co_qualname}")
            frame = frame.f_back
        if "forecast.forecast" in functions:  # it compares the prompts of a few steps
            take_step(self, action)
            return
        walk.extend(functions)
        raise Arrived

    def resolve(kind: str, name: str) -> Any:
        looked_up.append(sys._getframe(1).f_code.co_qualname)
        return found(kind, name)

    found = registry.resolve
    monkeypatch.setattr(registry, "resolve", resolve)
    monkeypatch.setattr(Store, "__init__", opening)
    monkeypatch.setattr(ChatAgent, "act", act)
    monkeypatch.setattr(GridSession, "step", step)
    with pytest.raises(Arrived):
        goalscope.evaluate(model, tmp_path / "one", arms=["grids"], quick=True)
    assert opened == [tmp_path / "one" / "arms" / "grids"]
    assert set(walk) <= {f"{module}.{name}" for module, names in WALK.items() for name in names}
    assert walk[-1] == "evaluating.evaluate" and len({*walk}) + 1 + len(PASSED & {*looked_up}) <= MOST


WALK = {
    "evaluating": ["evaluate"],
    "playing": ["play", "_play_worlds"],
    "runner": ["run", "_Runner.run", "_Runner._run_part", "_Runner._run_agent", "_Runner._run_agent.<locals>.follow"],
    "dispatch": ["Caller.converse", "Caller.converse.<locals>.go_on", "Caller.converse.<locals>.enter"],
    "episode": ["LiveEpisode.apply"],
}
"""Modules of the walk and their functions, as docs/architecture.md draws them."""
PASSED = {name for names in WALK.values() for name in names}
