"""What docs/exploration.md shows is true as it stands there."""

import contextlib
import io
import re
from pathlib import Path

from goalscope.adapters.problems import Ledger
from goalscope.adapters.task_log import score_task_log
from goalscope.agents.task_scripted import TASK_SCRIPTED
from goalscope.worlds.tasks import PRESETS

TEXT = (Path(__file__).parents[2] / "docs" / "exploration.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


def test_the_worked_example_gives_the_numbers_in_the_text() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(next(text for kind, text in BLOCKS if kind == "python"), {})
    first, *steps = printed.getvalue().splitlines()
    assert first == "0.1 0.25 True" and "Exploration error 1 / 10, exploitation error 1 / 4" in TEXT
    assert [step[0] for step in steps] == list("1111444411")
    assert [" True (" in step for step in steps].index(True) == 4


def test_the_lines_of_the_schema_are_scored(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(next(text for kind, text in BLOCKS if kind == "json"))
    ledger = Ledger()
    (line,) = score_task_log(path, ledger)
    assert not ledger.problems and line.agent == "mine" and line.tags == {"prompt": "base"}
    assert line.score.summary.success and line.score.summary.unparsable == 1


def test_every_agent_and_preset_is_named() -> None:
    for kind in TASK_SCRIPTED:
        assert f"| {kind}" in TEXT
    for name in PRESETS:
        assert name in TEXT or "{low,medium,high}-{small,medium,large}" in TEXT
