"""MEG of a run whose steps are held of some worlds at a time: the same figures as of all steps together."""

import gc
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_tables import directed, held_out
from goalscope.goals import curves, directedness, held_out_goals
from goalscope.goals.hypotheses import parse
from goalscope.goals.hypotheses.states import States, states_of
from goalscope.goals.reading import asked_hypotheses
from goalscope.measures import StepTable, sample_episodes
from goalscope.runs import Episode, Store
from goalscope.runs.episode_columns import parts_of
from goalscope.stats.rows import Rows


def episodes_of(*agents: str) -> list[Episode]:
    return [episode for episode in sample_episodes(trajectories=2) if episode.agent in agents]


def lines(rows: Rows) -> list[str]:
    return [repr((row.measure, row.value, row.cluster, sorted(row.tags.items()))) for row in rows]


def states_in_parts(tables: list[StepTable], by: tuple[str, ...] = ()) -> list[States]:
    return [entry for table in tables for entry in states_of(table, by=by)]


def test_goals_by_parts_are_those_of_all_steps_together(tmp_path: Path) -> None:
    with Store(tmp_path, "w") as store:
        store.put_episodes(episodes_of("optimal", "random"))
        whole = StepTable.from_episodes(store.episodes())
        parts = list(parts_of(store, most=10))
        tables = [StepTable.from_episodes(store.episodes(worlds=worlds)) for worlds in parts]
    assert len(tables) > 2 and sum(len(table.length) for table in tables) == len(whole.length)
    wanted = directed(whole, by=("size",))
    hypotheses = asked_hypotheses((), whole.worlds)
    found = directedness(states_in_parts(tables, ("size",)), hypotheses, by=("size",))
    assert found.to_plain() == wanted.to_plain()
    assert lines(found.rows) == lines(wanted.rows) and len(found.rows)


def test_unknown_utilities_by_parts_are_those_of_all_steps_together(tmp_path: Path) -> None:
    kept = episodes_of("optimal", "random")
    few = set(sorted({episode.world.id for episode in kept})[:12])
    with Store(tmp_path, "w") as store:
        store.put_episodes(episode for episode in kept if episode.world.id in few)
        whole = StepTable.from_episodes(store.episodes())
        tables = [StepTable.from_episodes(store.episodes(worlds=worlds)) for worlds in parts_of(store, most=20)]
    told, total = list[tuple[int, int]](), len(whole.length)
    assert len(tables) > 1 and {agent for table in tables for agent in table.agent} == {"optimal", "random"}
    wanted = held_out(whole, total=total)
    found = held_out_goals(
        iter(states_in_parts(tables)), total=total, progress=lambda done, total: told.append((done, total))
    )
    assert list(map(repr, found)) == list(map(repr, wanted)) and len(found) > 2
    assert told[-1] == (total, total)


def test_worlds_that_are_mixed_some_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    table = StepTable.from_episodes(episodes_of("optimal", "random"))
    wanted = directed(table)
    monkeypatch.setattr(curves, "WORLDS", 7)
    found = directed(table)
    assert len({row.cluster for row in wanted.rows}) > 7
    before: list[Any] = [*wanted.estimates, *wanted.contrasts]
    after: list[Any] = [*found.estimates, *found.contrasts]
    for one, other in zip(before, after, strict=True):
        mine, theirs = (
            {name: value for name, value in asdict(each).items() if isinstance(value, float)} for each in (one, other)
        )
        assert theirs == pytest.approx(mine, rel=1e-6, abs=1e-9, nan_ok=True)
    np.testing.assert_allclose(found.rows.value, wanted.rows.value, rtol=1e-6, atol=1e-9)


def test_tables_are_given_up_once_their_states_are_known(tmp_path: Path) -> None:
    def there() -> int:
        gc.collect()
        return sum(type(one) is StepTable for one in gc.get_objects())

    with Store(tmp_path, "w") as store:
        store.put_episodes(episodes_of("random"))
        before, seen = there(), list[int]()

        def tables() -> Iterator[StepTable]:
            for worlds in islice(parts_of(store, most=4), 6):
                seen.append(there() - before)
                yield StepTable.from_episodes(store.episodes(worlds=worlds))

        states = [entry for table in tables() for entry in states_of(table)]
        assert directedness(states, {"goal": parse("goal")}).estimates and there() == before
    assert len(seen) > 4 and max(seen) <= 1  # at most the last one beside the one that is read
