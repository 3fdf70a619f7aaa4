"""The command `demo`."""

import time
from pathlib import Path

from goalscope._ground.arguments import OutFolder
from goalscope._ground.progress import duration
from goalscope.cli.console import progress, say
from goalscope.cli.front.measuring import measure_run, write_page_of
from goalscope.cli.measuring import across, headline
from goalscope.cli.overrides import load_study
from goalscope.cli.studies import run_study_of
from goalscope.measures.behaviour import BEHAVIOUR
from goalscope.report.measured import MeasuredRows
from goalscope.runs import Store


def demo(
    *,
    out: OutFolder = Path("runs/demo"),
) -> None:
    """Run a bundled language model beside an optimal, a random and an untrained agent, measure them and write a report.

    Args:
        out: the run directory to write.

    Examples:
        goalscope demo --out runs/demo
    """
    began = time.monotonic()
    study = load_study("demo")
    run_study_of(study, out, passed={"study": "demo", "workers": 1}, guide=False)
    measure_run(out, progress)
    page = write_page_of(out, stage=progress)
    agents = [agent.name for agent in study.agents()]
    with Store(out) as store:
        measured = MeasuredRows(store, BEHAVIOUR)
        headline(measured, agents, "Mean and 95 % interval over grids")
        for tag in ("size", "density"):
            across(measured, "action accuracy", agents, tag)
    say(f"Report: {page.resolve()} (the whole demo took {duration(time.monotonic() - began)})")
