"""The study of open models: what counts as competence, on turns whose policies were planted."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import open_models
import pytest

Policy = Callable[[str, str], list[float]]


def cell(policy: Policy, worlds: int = 24) -> open_models.Cell:
    """Turns in worlds whose shortest ways mostly begin to the right; half of the prompts show each of two examples."""
    rng, rows = np.random.default_rng(5), []
    for number in range(worlds):
        example = "UR"[number % 2]
        for moved in ("nothing", "goal", "agent"):
            goal = str(rng.choice(["R", "UR", "DR", "D"]))
            numbers = " ".join(str(share) for share in policy(goal, example))
            row = {"model": "planted", "asked": "matrix", "world": f"w{number}", "moved": moved, "example": example}
            corners = dict.fromkeys(open_models.TARGETS[1:], "UL")
            rows.append({**row, "policy": numbers, "mass": "0.9", "valid": "0.5", "goal": goal, **corners})
    return open_models.Cell(rows)


def right(goal: str, example: str) -> list[float]:
    return [0.1, 0.1, 0.1, 0.7]


def copies(goal: str, example: str) -> list[float]:
    return [0.7 if move == example else 0.1 for move in open_models.MOVES]


def optimal(goal: str, example: str) -> list[float]:
    return [(move in goal) / len(goal) for move in open_models.MOVES]


@pytest.mark.parametrize("habit", [right, copies])
def test_a_habit_gains_over_chance_and_not_over_itself(habit: Policy) -> None:
    habitual = cell(habit)
    blind, p = open_models.tested(habitual, "goal")
    assert blind.value == pytest.approx(0.0, abs=1e-12) and not p <= open_models.LEVEL
    values, _ = habitual.gain("goal", "chance")
    assert values.mean() > 0.05
    assert open_models.answer(blind, p, 0.1) in ("no (below 0.1)", "undecided")


def test_an_optimal_agent_gains_over_both() -> None:
    best = cell(optimal)
    blind, p = open_models.tested(best, "goal")
    assert blind.value > 0.3 and p < 1e-6 and open_models.answer(blind, p, 0.1) == "yes"
    assert len(best.asked_states()) == 24 and set(best.asked_states()[0].changed) == {"goal", "agent"}


def test_an_example_that_no_other_world_shows_has_no_baseline() -> None:
    values, worlds = cell(right, worlds=3).gain("goal", "blind")
    assert set(worlds[np.isnan(values)]) == {"w1"}


def test_the_published_turns_are_of_the_preregistered_study(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(open_models.HERE / "open_models.csv")
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    plan = open_models.read_plan()
    assert {row["model"] for row in rows} == {model["name"] for model in plan["models"]}
    assert {row["asked"] for row in rows} >= {"matrix", "coordinates", "adjacency"}
    page = (open_models.HERE.parent / "docs" / "open-models.md").read_text(encoding="utf-8")
    assert open_models.registration() in page
    open_models.print_tables(plan, open_models.cells_of(rows))
    tables = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|") and "---" not in line]
    shown = {" ".join(line.split()) for line in page.splitlines()}
    assert all(line in shown for line in tables)
