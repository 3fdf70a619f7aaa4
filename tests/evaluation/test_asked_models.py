"""Language models are asked in words: one that knows the prompt alone reads every wording, and obeys or does not."""

import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families import long_after
from goalscope._ground import registry
from goalscope.agents.models import Message, Reply, Request, Sampling, model_backend
from goalscope.agents.prompts import WORDINGS, template, worded
from goalscope.verdict import Evaluation, Subject, judging
from goalscope.verdict.plan import prepare
from goalscope.verdict.playing import play
from goalscope.worlds import ACTIONS
from goalscope.worlds.planning import distances_to
from registered import entries_of

quiet: Any = importlib.import_module("benchmarks.verdicts").quiet

_MEANINGS = {"wall": "a wall", "goal": "the goal", "agent": "the agent"}


@dataclass(frozen=True, kw_only=True)
class Literate:
    """Reads legend, task and grid from the text of its prompt, and walks by shortest ways.

    Args:
        model: "willing" goes where the task says; "unwilling" to the top right corner unless a cell is named;
            "unable" always answers UP; "mute" answers with no action.
    """

    model: str
    name: str | None = None

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "literate", "model": self.model}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> str:
        return messages[-1].content

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        return [Reply.of("no" if self.model == "mute" else self._said(one)) for one in requests]

    def _said(self, request: Request) -> str:
        return json.dumps({"action": self._answer(request.messages[-1].content)})

    def _answer(self, text: str) -> str:
        symbols = {
            name: str(re.findall(rf"^(\S) {meaning}", text, re.MULTILINE)[0]) for name, meaning in _MEANINGS.items()
        }
        block = re.findall(r"^ +0(?: +\d+)+\n(?: *\d+(?: +\S)+\n)+", text, re.MULTILINE)[-1]
        cells = np.array([line.split()[1:] for line in block.splitlines()[1:]])
        (here,) = np.argwhere(cells == symbols["agent"])
        aim = re.findall(rf"from {symbols['agent']} to (?:the cell \((\d+),(\d+)\)|{symbols['goal']})", text)[0]
        if self.model == "unable":
            return "UP"
        walls = cells == symbols["wall"]
        if aim[0]:
            target = int(aim[0]), int(aim[1])
        elif self.model == "unwilling":
            walls |= cells == symbols["goal"]
            target = 1, cells.shape[1] - 2
        else:
            target = tuple(int(number) for number in np.argwhere(cells == symbols["goal"])[0])  # type: ignore[assignment]
        steps = distances_to(walls, [target])
        after = {action.name: steps[here[0] + action.delta[0], here[1] + action.delta[1]] for action in ACTIONS}
        known = {name: count for name, count in after.items() if count >= 0}
        return min(known, key=known.__getitem__) if known else "UP"


@pytest.fixture(scope="module")
def backend() -> Iterator[str]:
    """The name under which the model is registered for these tests."""
    registry.names("model")
    before = entries_of("model")
    model_backend("literate")(Literate)
    yield "literate"
    registry._entries["model"] = before


def judged(directory: Path, backend: str, model: str, sizes: Mapping[str, int]) -> Evaluation:
    subject = Subject(
        name=model,
        kind="chat",
        parameters={"model": model, "backend": backend, "template": "schema"},
        access=frozenset({"grids", "text", "wordings"}),
    )
    run = prepare(directory, [subject], sizes, seed=3)
    play(run, quiet)
    with judging.opened(run) as data:
        return judging.judge(run, data)


@pytest.mark.parametrize(
    ("model", "able", "says"),
    long_after(
        2,
        [
            ("unwilling", "yes", "reaches a corner when we name it 1.00"),
            ("unable", "no", "reaches a corner when we name it 0."),
            ("willing", "untestable", "not shown to fail"),
            ("mute", "untestable", "more than half of its turns contain no valid move"),
        ],
        names=3,
    ),
)
def test_a_model_that_reads_its_prompt_is_told_from_one_that_does_not(
    tmp_path: Path, backend: str, model: str, able: str, says: str
) -> None:
    found = judged(tmp_path / model, backend, model, {"grids": 2, "competence": 2}).models[0]
    one = found.claim("is able where it fails")
    assert one is not None and one.answer == able
    assert says in (one.quantity if able in ("yes", "no") else one.says)


@pytest.mark.full
def test_every_wording_can_be_read_as_well_as_the_usual_one(tmp_path: Path, backend: str) -> None:
    """The grid, its symbols and the task stand in each wording, so that who reads them is right in all turns."""
    found = judged(tmp_path / "one", backend, "willing", {"wordings": 12}).models[0]
    one = found.claim("is the same under other wordings")
    assert one is not None and (one.answer, one.value, one.clusters) == ("yes", 0.0, 48)


def test_templates_of_wordings_are_no_longer_than_twice_the_usual_one() -> None:
    usual = len(template("grid", "schema"))
    assert all(0.5 * usual < len(worded(name, "schema")) < 2 * usual for name in WORDINGS)
