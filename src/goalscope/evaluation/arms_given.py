"""The arm of environments that are given: it takes the worlds of a study, and stands in place of all other arms."""

from collections.abc import Mapping
from typing import Any, Final

from goalscope.environments.world import EnvironmentView
from goalscope.evaluation.arms import Arm
from goalscope.runs.study import Study

GIVEN: Final = "worlds"
"""Name of the arm."""


def given_worlds(study: Study) -> dict[str, Any]:
    """Return what an evaluation keeps of the study whose worlds it takes: name, worlds and horizon, as plain values.

    Raises:
        ValueError: its worlds are no environments.
    """
    if not issubclass(study.view, EnvironmentView):
        raise ValueError(
            f"an evaluation takes worlds that are environments (docs/environments.md), but those of {study.name} show "
            f"{study.view.shows}: leave --worlds out, grids and task maps are asked anyway"
        )
    dumped = study.dump()
    return {name: dumped[name] for name in ("name", "worlds", "horizon") if name in dumped}


def given_arm(given: Mapping[str, Any]) -> Arm:
    """Return the arm of worlds that are given, see `given_worlds`; its size counts the trajectories on each world."""
    horizon = {"horizon": given["horizon"]} if "horizon" in given else {}
    return Arm(
        name=GIVEN,
        title=f"Worlds of {given['name']}",
        needs=frozenset({"environments"}),
        why="it does not act in environments: give a model that reads text, by its weights or a server, or an agent of "
        "environments (environment-optimal, random)",
        worlds=lambda count: list(given["worlds"]),
        recorded=lambda tags: False,
        agent={"task": "text", "history": "actions"},
        study=horizon,
        quick=4,
        full=20,
        repeats=True,
    )
