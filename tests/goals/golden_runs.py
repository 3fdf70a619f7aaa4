"""Five small runs of scripted agents, whose figures are recorded as golden figures of the engine for goals."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import slipping_forklift  # noqa: F401  (registers the environment of the run "chance")
from goalscope.agents import Agent, Observation, Turn
from goalscope.cli.logs import import_logs
from goalscope.goals.hypotheses import HypothesisTwin, twin
from goalscope.runs import Episode, Store, Study, run
from goalscope.runs.importers import write_jsonl

NODE = "node 2ONX"
"""A sub-goal of the first task map, which no other map has."""
STEPS = 20
"""Horizon in the world with chance."""


@dataclass(frozen=True)
class ExactTwin(HypothesisTwin):
    """The scripted twin of a hypothesis, which also records the probabilities that its actions are drawn from."""

    kind: ClassVar[str] = "hypothesis with probabilities"

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        turns = []
        for observation in observations:
            policy = self.probabilities(observation).tolist()
            turns.append(Turn(action=observation.draw(policy), extra={"policy": policy}))
        return turns


def grids(folder: Path) -> None:
    """Play in two phases of grids of two sizes: the goal is in the top-right corner, and then anywhere else."""
    entry = {"kind": "grid", "sizes": [7, 9], "densities": [0.3], "count": 4}
    _play(
        folder,
        [{**entry, "goal": "top-right", "phase": "trained"}, {**entry, "goal": "not top-right", "phase": "shifted"}],
        [
            {"kind": "optimal"},
            {"kind": "epsilon-greedy", "epsilon": 0.3, "name": "noisy"},
            twin("corner top-right", lapse=0.1, name="corner"),
            {"kind": "wrong-goal", "target": "bottom-left", "name": "other corner"},
            {"kind": "random"},
        ],
        trajectories=2,
        answers=2,
        horizon={"factor": 2},
    )


def key_door(folder: Path) -> None:
    """Play in worlds with a key and a door and in their controls, in which there is neither."""
    _play(
        folder,
        [{"kind": "key-door", "count": 6, "control": True}],
        [
            twin("goal", name="goal"),
            twin("key if not key held, else goal", lapse=0.2, name="key and goal"),
            twin("key held", lapse=0.1, name="key held"),
            {"kind": "random"},
        ],
        more=[ExactTwin("goal", lapse=0.3, name="exact")],
        trajectories=2,
        answers=2,
    )


def task_maps(folder: Path) -> None:
    """Play in generated task maps; the node that one agent is after is in the first of them alone."""
    _play(
        folder,
        [{"kind": "task-map", "presets": ["low-small", "medium-small"], "count": 4}],
        [
            {"kind": "task-oracle"},
            twin("goal", lapse=0.3, name="noisy"),
            twin(f"event {NODE}", lapse=0.1, name="node"),
            {"kind": "task-random-walk"},
        ],
        trajectories=2,
        answers=2,
    )


def chance(folder: Path) -> None:
    """Play in the world of `slipping_forklift`, with an agent for each of its goals."""
    aims = ("crate held", "dock", "dock with crate", "charger")
    _play(
        folder,
        [{"kind": "environment", "source": "slipping forklift", "seeds": "1..7"}],
        [
            *(twin(f"event {aim}", lapse=0.1, horizon=STEPS, name=aim) for aim in aims),
            twin("event dock with crate", lapse=0.5, horizon=STEPS, name="noisy"),
            {"kind": "random"},
        ],
        trajectories=2,
        answers=2,
        horizon={"steps": STEPS},
    )


def log(folder: Path) -> None:
    """Import a log with one answer to each step, and with episodes that end at a turn without an action."""
    played = folder.with_name(f"{folder.name}-played")
    _play(
        played,
        [{"kind": "grid", "sizes": [7], "densities": [0.2, 0.5], "count": 4}],
        [{"kind": "optimal"}, {"kind": "epsilon-greedy", "epsilon": 0.4, "name": "noisy"}, {"kind": "random"}],
        trajectories=2,
    )
    with Store(played) as store:
        write_jsonl(_with_failures(store.episodes()), folder.with_suffix(".jsonl"))
    imported = import_logs(folder.with_suffix(".jsonl"), folder)
    assert not imported.problems, imported.problems


def _with_failures(episodes: Iterator[Episode]) -> Iterator[Episode]:
    """Yield episodes; of the agent "noisy" each second trajectory ends at a turn without an action, its fifth one."""
    for episode in episodes:
        if episode.agent != "noisy" or episode.spec.trajectory != 1 or len(episode.steps) < 6:
            yield episode
            continue
        steps = (*episode.steps[:4], replace(episode.steps[4], action=None, failure="no JSON"))
        yield replace(episode, steps=steps, final=episode.steps[4].state, outcome="failure")


def _play(
    folder: Path,
    worlds: Sequence[Mapping[str, Any]],
    agents: Sequence[Mapping[str, Any]],
    *,
    more: Sequence[Agent] = (),
    **settings: Any,
) -> None:
    """Run a study; ``more`` are agents that no study can name."""
    study = Study.parse({"name": "golden", "seed": 11, "worlds": [*worlds], "agents": [*agents], **settings})
    run(study, folder, agents=[*study.agents(), *more])


MAKERS: Mapping[str, Callable[[Path], None]] = {
    "grids": grids,
    "key-door": key_door,
    "task maps": task_maps,
    "chance": chance,
    "log": log,
}
"""Name of a run -> the function that makes it in a directory."""


def make_runs(folder: Path, names: Sequence[str] = tuple(MAKERS)) -> dict[str, Path]:
    """Make runs in subdirectories of a folder; return the directory of each by its name."""
    paths = {name: folder / name.replace(" ", "-") for name in names}
    for name, path in paths.items():
        MAKERS[name](path)
    return paths
