"""What a study declares about its analysis, and worlds whose goal lies on one side."""

from typing import Any

import pytest

from goalscope.runs import Study

PLAIN: dict[str, Any] = {
    "worlds": [{"kind": "grid", "sizes": [7], "densities": [0.6], "count": 20, "transforms": ["identity", "reflect"]}],
    "agents": [{"kind": "optimal"}],
}
DECLARED = {"analysis": {"invariance": {"margin": {"success": 0.1, "path ratio": 2}}}}


def test_a_declared_analysis_changes_no_id_and_survives_the_round_trip() -> None:
    plain, declared = Study.parse(PLAIN), Study.parse({**PLAIN, **DECLARED})
    assert declared.id == plain.id
    assert "analysis" not in plain.dump()
    assert Study.parse(declared.dump()) == declared
    assert plain.difference(declared) == ""
    assert declared.analysis is not None and declared.analysis.invariance is not None
    assert declared.analysis.invariance.margin == {"success": 0.1, "path ratio": 2}
    assert declared.analysis.invariance.level == 0.05


@pytest.mark.parametrize(
    ("analysis", "said"),
    [
        ({"invariance": {"margin": {"success": 0}}}, "no number of grids can show that a difference is exactly 0"),
        ({"invariance": {"margin": {"success": -0.1}}}, "must be a finite number above 0, got -0.1"),
        ({"invariance": {"margin": {"success": True}}}, "must be a finite number above 0, got True"),
        ({"invariance": {"margin": {"success": float("inf")}}}, "must be a finite number above 0"),
        ({"invariance": {"margin": {}}}, "must name at least one measure with its margin"),
        ({"invariance": {"level": 0.05}}, "analysis.invariance.margin: must be given"),
        ({"invariance": {"margins": {"success": 0.1}}}, "did you mean margin?"),
        ({"invariance": {"margin": {"success": 0.1}, "level": 0.7}}, "analysis.invariance.level"),
    ],
)
def test_a_wrong_analysis_is_refused_by_key(analysis: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="valid study") as error:
        Study.parse({**PLAIN, "analysis": analysis})
    assert said in str(error.value)


def test_goals_lie_on_the_side_that_is_asked_for() -> None:
    entry = {**PLAIN["worlds"][0], "goal_side": "right"}
    study = Study.parse({**PLAIN, "worlds": [entry]})
    worlds = study.worlds()
    assert len(worlds) == 40
    for world in worlds:
        side = "right" if world.tags["transform"] == "identity" else "left"
        assert world.grid.goal_lies(side)  # type: ignore[arg-type]
    # They are drawn from the same series: those of the plain study whose goal lies there.
    plain = [world for world in Study.parse(PLAIN).worlds() if world.tags["transform"] == "identity"]
    kept = [world.id for world in plain if world.grid.goal_lies("right")]
    assert kept and kept == [world.id for world in worlds if world.tags["transform"] == "identity"][: len(kept)]
    assert study.id != Study.parse(PLAIN).id
    with pytest.raises(ValueError, match="goal_side"):
        Study.parse({**PLAIN, "worlds": [{**entry, "goal_side": "middle"}]})
