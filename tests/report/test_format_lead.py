"""A report, and the screen of `measure`, begin with the agents whose turns held no action."""

import re
from collections.abc import Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from command_line import call
from goalscope.agents import Observation, Turn
from goalscope.report import write_report
from goalscope.report.definitions import FORMAT_SHARE
from goalscope.report.ledger import episodes_by_agent
from goalscope.report.sections.about import format_lines
from goalscope.report.texts import TEXTS
from goalscope.runs import Store
from goalscope.worlds import Action
from measured_runs import measured, small_study
from planted_findings import stated


class Mute:
    """An agent whose every turn in some twentieths of all steps holds no action."""

    journalled = False

    def __init__(self, twentieths: int) -> None:
        self.name, self._silent = f"silent {twentieths}", twentieths

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "mute", "silent": self._silent}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [
            Turn(action=None, failure="no JSON")
            if observation.step % 20 < self._silent
            else Turn(action=Action(observation.step % 2))
            for observation in observations
        ]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = small_study(horizon={"steps": 20}, trajectories=1)
    return measured(tmp_path_factory.mktemp("run") / "mute", study, [Mute(share) for share in (0, 2, 3, 20)])


def test_agents_above_the_share_are_named_the_worst_first(directory: Path) -> None:
    with Store(directory) as store:
        lines = format_lines(episodes_by_agent(store))
        turns = [(step.action is None) for one in store.episodes() if one.agent == "silent 3" for step in one.steps]
    assert [line.partition(":")[0] for line in lines] == ["silent 20", "silent 3"]
    assert lines[0].startswith("silent 20: 100 % [") and "12 worlds" in lines[0]
    share = 100 * sum(turns) / len(turns)
    assert share > 100 * FORMAT_SHARE and f"silent 3: {share:.0f} % [" in lines[1]
    assert f"of {len(turns)} turns " in lines[1]
    assert all(stated("summary/mostly format", line, TEXTS) for line in lines)


def test_page_and_screen_begin_with_them(directory: Path, tmp_path: Path) -> None:
    with Store(directory) as store:
        lines = format_lines(episodes_by_agent(store))
        page = write_report(store, tmp_path / "report.html").read_text(encoding="utf-8")
    header = unescape(page.partition("<header>")[2].partition("</header>")[0])
    assert re.findall(r"<p>(.*)</p>", header)[:2] == lines
    shown = " ".join(call("measure", directory, "--measures", "success").split())
    assert shown.index("silent 20: 100 %") < shown.index("Estimates") and "silent 2:" not in shown
