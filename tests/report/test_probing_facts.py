"""On how much the numbers about activations stand, as a page says it."""

from pathlib import Path
from typing import Any

import pytest

from goalscope.report.sections.probing import probing_facts
from goalscope.report.texts import TEXTS
from goalscope.runs import Store

ABOUT: dict[str, Any] = {
    "agent": "Theseus",
    "sites": ["pre", "post"],
    "layers": [2, 4, 7],
    "known walls": 0.19,
    "training grids": 210,
    "training steps": 2009,
    "test grids": 90,
    "test steps": 968,
    "steps left out": 0,
}


def told(directory: Path, stored: Any) -> Any:
    with Store(directory, "w") as store:
        store.put_info("inside", stored)
        return probing_facts(store)


def test_grids_and_steps_of_both_parts_are_said(tmp_path: Path) -> None:
    (section,) = told(
        tmp_path / "run", {"plans": ABOUT, "cognitive-map": {**ABOUT, "layers": [4], "steps left out": 1}}
    )
    assert [name for name, _ in section.facts] == ["Cognitive map", "Decoded plans"]
    assert section.facts[1][1] == (
        "Theseus: pre and post, layers 2, 4 and 7. Fitted on 210 grids (2,009 steps), tested on 90 grids (968 steps). "
        "19 % of the test grids have the same wall map as a training grid."
    )
    assert "layer 4. " in section.facts[0][1] and TEXTS("inside/left out", steps="1 step") in section.facts[0][1]


def test_a_run_that_was_not_read_says_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "run", "w") as store:
        assert probing_facts(store) == []


@pytest.mark.parametrize(
    "change",
    [
        {"test grids": -1},
        {"test grids": True},
        {"known walls": 1.5},
        {"known walls": "x"},
        {"layers": ["<b>"]},
        {"sites": 3},
    ],
)
def test_what_goalscope_did_not_write_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="activations"):
        told(tmp_path / "run", {"plans": {**ABOUT, **change}})
    with pytest.raises(ValueError, match="did not write"):
        told(tmp_path / "run", {"plans": 3})
