"""What docs/exploration.md shows is true as it stands there."""

import contextlib
import io
import re
import shlex
from itertools import pairwise
from pathlib import Path

import yaml
from typer.testing import CliRunner

from goalscope.agents import STRATEGIES, TASK_SCRIPTED
from goalscope.agents.models import TEMPLATE_FORMS
from goalscope.agents.prompts import system_prompt
from goalscope.cli import app
from goalscope.cli.overrides import StudyOptions, load_study
from goalscope.measures import behaviour_measures
from goalscope.measures.task_log import score_task_log
from goalscope.runs import Study
from goalscope.runs.importers import ImportLog
from goalscope.worlds.tasks import PRESETS, Report, report_text

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "exploration.md").read_text(encoding="utf-8")
TEXT, _, RUNS = PAGE.partition("\n## Runs in task worlds\n")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
EXAMPLES = (DOCS.parent / "benchmarks" / "README.md").read_text(encoding="utf-8").partition("The [named examples]")[2]


def test_the_worked_example_gives_the_numbers_in_the_text() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(next(text for kind, text in BLOCKS if kind == "python"), {})
    first, *steps = printed.getvalue().splitlines()
    assert first == "0.1 0.25 True" and "Exploration error 1 / 10, exploitation error 1 / 4" in TEXT
    assert [step[0] for step in steps] == list("1111444411")
    assert [" True (" in step for step in steps].index(True) == 4


def test_the_named_examples_print_the_table_below_them() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(EXAMPLES.partition("```python\n")[2].partition("```")[0], {})
    lines = (line.split(" | ") for line in printed.getvalue().splitlines())
    shown = [" | ".join([*names, *numbers.split()]) for *names, numbers in lines]
    table = [line.strip("| ") for line in EXAMPLES.splitlines() if re.match(r"\| [34][abc] ", line)]
    assert len(shown) == 8 and shown == table


def test_the_lines_of_the_schema_are_scored(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(next(text for kind, text in BLOCKS if kind == "json"))
    ledger = ImportLog()
    (line,) = score_task_log(path, ledger)
    assert not ledger.problems and line.agent == "mine" and line.tags == {"prompt": "base"}
    assert line.score.summary.success and line.score.summary.unparsable == 1


def test_every_agent_and_preset_is_named() -> None:
    for kind in TASK_SCRIPTED:
        assert re.search(rf"^\| (?:[a-z-]+; )?{kind}\b", TEXT, re.MULTILINE), kind
    for name in PRESETS:
        assert name in TEXT or "{low,medium,high}-{small,medium,large}" in TEXT


def test_the_study_of_the_page_on_runs_is_a_study_and_its_arms_are_known() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", RUNS, re.DOTALL)
    study = Study.parse(yaml.safe_load(text))
    assert study.size().worlds == 2 * 3 + 2 * 5 and "horizon" not in study.dump()
    assert set(STRATEGIES) <= set(re.findall(r"`(\w+)`", RUNS))
    kinds = [f"task-{kind}" for kind in TASK_SCRIPTED]
    assert all(f"`{kind}`" in RUNS for kind in [*kinds, "task-chat"])


def test_what_the_page_calls_ours_stands_in_every_prompt_or_observation() -> None:
    rows = [line.split("|")[1:-1] for line in RUNS.splitlines() if line.startswith("|")]
    start = next(index for index, row in enumerate(rows) if row[0].strip() == "what the agent is told")
    ours = [row[2] for row in rows[start + 1 : start + 9]]
    quoted = [phrase for cell in ours for phrase in re.findall(r'"([^"]+)"', cell)]
    assert len(quoted) == 5 and "the facts are those of the paper" not in RUNS
    blocked = report_text(Report(position=(0, 0), available=(), node=None, rejected="blocked"))
    prompts = [
        system_prompt("", strategy, reasoned, memory, form=form)
        for form in TEMPLATE_FORMS
        for strategy in STRATEGIES
        for reasoned in (False, True)
        for memory in (False, True)
    ]
    for phrase in quoted:
        assert phrase in blocked or all(phrase in prompt for prompt in prompts), phrase
    assert not re.search(r"You (have )?spent", blocked + "".join(prompts))  # the steps spent are not told


def test_the_commands_of_both_pages_name_agents_options_and_measures_that_exist() -> None:
    commands = [
        shlex.split(line, comments=True)
        for text in (TEXT, RUNS)
        for line in re.findall(r"^goalscope .*$", text, re.MULTILINE)
    ]
    assert len(commands) >= 7
    names = {measure.name for measure in behaviour_measures()}
    for _, command, *words in commands:
        said = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
        options = [word for word in words if word.startswith("--")]
        assert said.exit_code == 0 and all(option in said.output for option in options), command
        given = dict(pairwise(words))
        if "--agents" in given:
            load_study(words[0], StudyOptions(agents=given["--agents"]))
        if "--measures" in given:
            assert set(given["--measures"].split(";")) <= names
