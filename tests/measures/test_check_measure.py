"""Measures as they are declared: the common laws, one definition of each, and what a broken one is told."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
import pytest

from command_line import call
from goalscope.measures import (
    Measure,
    StepMeasure,
    StepTable,
    behaviour_measures,
    check_measure,
    measure,
    play,
    rare_states,
    sample_episodes,
)
from goalscope.measures.testing import transformed
from goalscope.report import definition_of
from goalscope.stats.rows import Rows
from goalscope.worlds import TRANSFORMS, Action, Grid, GridWorld, step

OPTIONS: list[Measure] = [rare_states(least_visits=2)]
# Those of things need other worlds: tests/measures/test_things.py
SAMPLED = [measure for measure in behaviour_measures() if not measure.name.endswith((" visited", " used"))]


@pytest.mark.parametrize("measure", [*SAMPLED, *OPTIONS], ids=lambda measure: measure.name)
def test_our_measures_obey_the_laws(measure: Measure) -> None:
    check_measure(measure)


@dataclass(frozen=True)
class Custom:
    """A measure made of a function, to break laws with."""

    make: Callable[[StepTable], Rows]
    name: str = "length"
    unit: str = "steps"
    bounds: tuple[float, float] = (0.0, 100.0)

    def rows(self, table: StepTable) -> Rows:
        return self.make(table)


def lengths(table: StepTable, name: str = "length", unit: str = "steps", factor: float = 1.0) -> Rows:
    return table.rows(name, unit, table.length * factor)


def with_grid(table: StepTable, grid: str) -> Rows:
    ids = [grid] * len(table.length)
    return Rows.from_columns(measure="length", unit="steps", value=table.length, cluster=ids)


def with_step(table: StepTable, step: int, named: bool = True) -> Rows:
    ids = table.episode_id if named else ""
    return Rows.from_columns(
        measure="length", unit="steps", value=table.length, cluster=table.cluster, episode_id=ids, step=step
    )


def mutate(table: StepTable) -> Rows:
    table.action[table.action < 0] = 0
    return lengths(table)


def by_index(table: StepTable) -> Rows:
    return table.rows("length", "steps", np.arange(len(table.length)) % 50)


def no_action_as_index(table: StepTable) -> Rows:
    names = [Action(action).name for action in table.action.tolist()]
    return table.rows("length", "steps", np.bincount(table.episode[[name == "UP" for name in names]]))


def over_all_agents(table: StepTable) -> Rows:
    return table.rows("length", "steps", np.full(len(table.length), table.length.mean() if len(table.length) else 0))


def moves_left(table: StepTable) -> Rows:
    group, first = table.groups()
    left = np.bincount(group[table.episode[table.action == Action.LEFT]], minlength=len(first))
    return table.rows("length", "steps", np.minimum(left, 100), per="group")


BROKEN: list[tuple[str, Measure, str]] = [
    ("no name", Custom(lengths, name=""), "name"),
    ("bounds", Custom(lengths, bounds=(1.0, 1.0)), r"bounds .*\(1\.0, 1\.0\)"),
    ("another name", Custom(lambda table: lengths(table, name="size")), "'length', got 'size'"),
    ("another unit", Custom(lambda table: lengths(table, unit="cells")), "'steps', got 'cells'"),
    ("out of bounds", Custom(lambda table: lengths(table, factor=1000)), "within 0 to 100"),
    ("infinite", Custom(lambda table: lengths(table, factor=np.inf), bounds=(0.0, np.inf)), "NaN or finite"),
    (
        "foreign grid",
        Custom(lambda table: with_grid(table, "world-1")),
        "got 'world-1'",
    ),
    ("foreign step", Custom(lambda table: with_step(table, 10**6)), r"steps of the episode .*got Row"),
    ("step of no episode", Custom(lambda table: with_step(table, 0, named=False)), "episode_id=''"),
    ("mutation", Custom(mutate), "read-only"),
    ("order", Custom(by_index), "order of the episodes"),
    ("no action", Custom(no_action_as_index), "got ValueError"),
    ("union", Custom(over_all_agents), "several agents"),
    ("direction", Custom(moves_left), "under the transform"),
]


@pytest.mark.parametrize(("measure", "law"), [broken[1:] for broken in BROKEN], ids=[broken[0] for broken in BROKEN])
def test_a_broken_measure_is_told_which_law(measure: Measure, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_measure(measure)


def test_randomness_is_found() -> None:
    counter = count()
    with pytest.raises(AssertionError, match="same rows"):
        check_measure(
            Custom(lambda table: table.rows("length", "steps", np.full(len(table.length), next(counter) % 90)))
        )


def test_rows_for_no_episodes_are_found() -> None:
    def rows(table: StepTable) -> Rows:
        if len(table.length):
            return lengths(table)
        return Rows.from_columns(measure="length", unit="steps", value=[0.0], cluster=["none"])

    with pytest.raises(AssertionError, match="got 1"):
        check_measure(Custom(rows))


def test_failing_on_turns_without_an_action_is_found() -> None:
    def rows(table: StepTable) -> Rows:
        if len(table.action) and (table.action < 0).all():
            raise ZeroDivisionError("no actions")
        return lengths(table)

    with pytest.raises(AssertionError, match="turns without an action"):
        check_measure(Custom(rows))


def test_a_measure_of_directions_passes_where_invariance_is_not_claimed() -> None:
    check_measure(Custom(moves_left), invariant=False)


def test_what_is_no_measure_is_refused() -> None:
    with pytest.raises(AssertionError, match="bounds"):
        check_measure("success")  # type: ignore[arg-type]


def test_rows_are_demanded() -> None:
    grid = Grid.parse(["A_G"])
    episodes = [play(GridWorld(grid=grid), [Action.RIGHT], agent=name) for name in ("one", "two")]
    (speaks_of_keys,) = (measure for measure in behaviour_measures() if measure.name == "key attraction bias")
    with pytest.raises(AssertionError, match="got none"):
        check_measure(speaks_of_keys, episodes)


def test_tables_cannot_be_changed() -> None:
    table = StepTable.from_episodes(sample_episodes(trajectories=1))
    with pytest.raises(ValueError, match="read-only"):
        table.action[0] = 0
    with pytest.raises(TypeError):
        table.tags["agent"] = table.agent  # type: ignore[index]


def test_transformed_episodes_follow_the_rules_and_swaps_are_refused() -> None:
    for episode in sample_episodes(trajectories=1):
        moved = transformed(episode, TRANSFORMS["rotate"])
        states = [*(turn.state for turn in moved.steps), moved.final]
        for turn, after in zip(moved.steps, states[1:], strict=True):
            assert (turn.state if turn.action is None else step(moved.world.grid, turn.state, turn.action)) == after
    with pytest.raises(ValueError, match="goal"):
        transformed(sample_episodes(trajectories=1)[0], TRANSFORMS["swap"])


# One definition of each measure: report and help show what was registered, as the site does (test_site.py).


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
