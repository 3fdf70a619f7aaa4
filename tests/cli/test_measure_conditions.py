"""`goalscope measure` averages over no two conditions unless it is asked to, and then says over which."""

from pathlib import Path
from typing import Any

import pytest

from command_line import call
from families import long_after
from goalscope.cli.overrides import StudyOptions, load_study
from goalscope.measures.behaviour import conditions_of, mixed
from goalscope.runs import run
from goalscope.stats.rows import Row, Rows, Tag
from measured_runs import small_study


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "keys"
    run(load_study("key-door", StudyOptions(count=3, agents="optimal")), directory)
    return directory


def lines_of(shown: str, measure: str) -> list[list[str]]:
    return [line.split() for line in shown.splitlines() if f" {measure}  " in line]


def test_key_pickup_is_not_averaged_over_worlds_with_and_without_door_and_key(keys: Path) -> None:
    shown = call("measure", keys, "--measures", "key pickup")
    assert [line[:6] for line in lines_of(shown, "key pickup")] == [
        ["optimal", "key-door", "False", "key", "pickup", "1.000"],
        ["optimal", "key-no-door", "False", "key", "pickup", "0.000"],
        ["optimal", "key-no-door", "True", "key", "pickup", "0.000"],
    ]
    assert "by kind and control" in shown and "averages mix" not in shown
    screen = call("measure", keys)
    assert [line.split()[:3] for line in screen.splitlines() if line.split()[:1] == ["optimal"]] == [
        ["optimal", "key-door", "False"],
        ["optimal", "key-no-door", "False"],
        ["optimal", "key-no-door", "True"],
    ]


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("agent", "kind (key-door and key-no-door) and control (False and True)"),
        ("size", "kind (key-door and key-no-door) and control (False and True)"),
        ("kind", "control (False and True)"),
        ("control", "kind (key-door and key-no-door)"),
        ("kind,control", ""),
    ],
)
def test_what_is_averaged_because_it_was_asked_for_is_said(keys: Path, by: str, said: str) -> None:
    shown = " ".join(call("measure", keys, "--measures", "success", "--by", by).split())
    assert f"these averages mix conditions: {said};" in shown if said else "averages mix" not in shown


@pytest.mark.parametrize(
    ("study", "agents", "conditions"),
    long_after(
        3,
        [
            ("two-path", "optimal", "by control"),
            ("fog", "optimal", ""),
            ("scripted", "optimal", "by kind and control"),
            ("iso-difficulty", "optimal", "by transform"),
            ("semantic", "greedy", "by names"),
            ("harness", "greedy", ""),
        ],
        names=3,
    ),
)
def test_shipped_studies_are_shown_by_their_conditions(
    tmp_path: Path, study: str, agents: str, conditions: str
) -> None:
    changes: dict[str, Any] = {} if study == "semantic" else {"count": 1}
    run(load_study(study, StudyOptions(agents=agents, trajectories=1, **changes)), tmp_path / "run")
    shown = call("measure", tmp_path / "run", "--measures", "success")
    assert conditions in shown if conditions else "conditions" not in shown
    assert "averages mix" not in shown


def test_one_world_kind_has_no_conditions(tmp_path: Path) -> None:
    run(small_study(trajectories=1), tmp_path / "run")
    assert "conditions" not in call("measure", tmp_path / "run", "--by", "size")


def episodes(*tags: dict[str, Tag], grids: int = 3) -> Rows:
    return Rows.from_rows(
        Row(
            measure="success",
            unit="share",
            value=1.0,
            cluster=f"grid {grid}",
            tags={"agent": "a", "size": grid, **each},
        )
        for each in tags
        for grid in range(grids)
    )


def test_a_tag_under_which_an_agent_meets_the_same_grids_again_is_a_condition() -> None:
    rows = episodes({"access": "full", "trajectory": 0}, {"access": "none", "trajectory": 1})
    assert conditions_of(rows) == ("access",)
    assert mixed(rows, ("access",), ("agent", "size")) == {"access": ["full", "none"]}
    assert mixed(rows, ("access",), ("agent", "access")) == {}


def test_tags_that_number_episodes_or_describe_grids_or_agents_are_none() -> None:
    rows = Rows.concatenate(
        [
            episodes({"start": 0, "file": "x"}, {"start": 1, "file": "y"}),
            *(
                Rows.from_rows(
                    [Row(measure="success", unit="share", value=1.0, cluster="g", tags={"agent": "b", "note": f"{at}"})]
                )
                for at in range(3)
            ),
        ]
    )
    assert conditions_of(rows.select(agent="a")) == ()
    assert conditions_of(rows.select(agent="b")) == ()
    two = Rows.concatenate([episodes({"prompt": "base"}), episodes({"prompt": "other", "agent": "b"})])
    assert conditions_of(two) == ()
