"""One definition of each measure: report and help show what was registered, as the site does (test_site.py)."""

import pytest

from command_line import call
from goalscope.measures import StepMeasure, StepTable, behaviour_measures, check_measure, measure
from goalscope.report import definition_of

OURS = [measure for measure in behaviour_measures() if isinstance(measure, StepMeasure)]


@pytest.mark.parametrize("found", OURS, ids=lambda found: found.name)
def test_the_report_says_what_was_registered(found: StepMeasure) -> None:
    known = definition_of(found.name)
    assert known is not None and (known.text, known.source) == (found.text, found.source)


def test_the_help_tells_of_every_measure_with_its_definition() -> None:
    shown = " ".join(call("measure", "--help").split())
    for found in OURS:
        assert found.name in shown
        assert found.base or found.text in shown


def test_a_definition_that_lacks_something_is_refused() -> None:
    for wrong, words in (
        ({"unit": ""}, "unit"),
        ({"text": " "}, "text"),
        ({"bounds": (1, 0)}, r"bounds .*\(1, 0\)"),
        ({"per": "grid"}, "episode"),
        ({"needs": ("oracles",)}, "oracle"),
    ):
        given = {"unit": "steps", "bounds": (0, 1), "text": "length", **wrong}
        with pytest.raises(ValueError, match=words):
            measure("length of an episode", **given)(lambda table: table.length)  # type: ignore[arg-type]
    assert "length of an episode" not in [found.name for found in behaviour_measures()]


def of_table(**definition: object) -> StepMeasure:
    return StepMeasure(**{"name": "length", "unit": "steps", "bounds": (0, 100), "text": "length", **definition})  # type: ignore[arg-type]


def test_an_array_of_another_length_is_refused() -> None:
    with pytest.raises(AssertionError, match="each episode"):
        check_measure(of_table(function=lambda table: table.step))


def test_what_a_measure_needs_must_be_declared() -> None:
    def nearest(table: StepTable) -> object:
        return table.distance.clip(0, 100)

    check_measure(of_table(function=nearest, per="step", needs=("oracle",)))
    with pytest.raises(AssertionError, match="oracle"):
        check_measure(of_table(function=nearest, per="step"))
