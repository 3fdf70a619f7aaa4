"""Small measured runs that the tests of the report and of the command line share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from goalscope.agents import Observation, Turn
from goalscope.measures import measure_episodes
from goalscope.report import AgentGroups, RunData, build_ledger
from goalscope.report.ledger import MeasuredRows
from goalscope.runs import Store, Study, run
from goalscope.stats.rows import Rows
from goalscope.worlds import Action

HOSTILE = '<script>alert(1)</script>[red]x[/red]\x1b[31m\u202e=HYPERLINK("http://evil.example/")'


class Talker:
    """An agent with a hostile name, whose every third answer is no action but a hostile text."""

    journalled = False
    name = HOSTILE

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "talker", "words": HOSTILE}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [
            Turn(action=None, failure=HOSTILE, text=HOSTILE)
            if observation.step % 3 == 2
            else Turn(action=Action(observation.step % 4), text=HOSTILE)
            for observation in observations
        ]


def small_study(**changes: Any) -> Study:
    plain: dict[str, Any] = {
        "name": "small",
        "seed": 5,
        "worlds": [{"kind": "grid", "sizes": [5, 7], "densities": [0.0, 1.0], "count": 3}],
        "agents": [{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.5}, {"kind": "random"}],
        "trajectories": 3,
    }
    return Study.parse({**plain, **changes})


def measured(directory: Path, study: Study, agents: Sequence[Any] | None = None) -> Path:
    run(study, directory, agents=agents)
    with Store(directory, "w") as store:
        store.put_rows(measure_episodes(store.episodes()), source="behaviour")
    return directory


def run_of(rows: Rows, *, agents: Sequence[str] = (), store: Any = None, groups: AgentGroups | None = None) -> RunData:
    """What sections are told of some rows alone, or of those of a store."""
    measured = MeasuredRows(rows)
    ledger = build_ledger(measured, agents=agents)
    scripted = AgentGroups(models=(), scripted=ledger.agents, history={})
    return RunData(
        store=store or cast(Any, SimpleNamespace(info=dict)),
        measured=measured,
        ledger=ledger,
        groups=groups or scripted,
        episodes={},
        study=None,
        digest="",
    )
