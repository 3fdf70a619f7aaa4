"""Worlds of equal studies are made once, where they depend on nothing but the study."""

from typing import Any

import pytest

from goalscope.runs import Study, study

GRIDS = {"kind": "grid", "sizes": [5], "densities": [0.2], "count": 3}


def made(*entries: Any, seed: int = 1) -> list[Any]:
    return Study.parse({"worlds": [*entries], "agents": [{"kind": "random"}], "seed": seed}).worlds()


def test_equal_studies_share_their_worlds_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "_EXPANDED", {})
    first = made(GRIDS)
    assert all(one is two for one, two in zip(first, made(GRIDS), strict=True))
    for other in (made(GRIDS, seed=2), made({**GRIDS, "densities": [0.4]}), made({**GRIDS, "phase": "trained"})):
        assert len(other) == 3 and not any(one is two for one, two in zip(first, other, strict=True))
    monkeypatch.setattr(study, "_EXPANDED", {})
    assert [world.id for world in made(GRIDS)] == [world.id for world in first]


def test_worlds_that_depend_on_more_than_the_study_are_made_anew() -> None:
    lake = {"kind": "gymnasium", "environments": ["FrozenLake-v1"]}
    (first,), (again,) = made(lake), made(lake)
    assert first is not again and first.id == again.id


def test_the_number_of_kept_worlds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "_EXPANDED", {})
    monkeypatch.setattr(study, "_MOST_EXPANDED", 2)
    for seed in range(4):
        made(GRIDS, seed=seed)
    assert len(study._EXPANDED) == 2
    monkeypatch.setattr(study, "_MOST_EXPANDED_WORLDS", 2)
    made(GRIDS, seed=9)
    assert 9 not in {key[0] for key in study._EXPANDED}
