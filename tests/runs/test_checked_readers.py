"""What is read of parts of a run by SQL is compared with its checksum too, before it becomes a number."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from run_agents import Dice, small_study

from goalscope.agents import Optimal, agent_id
from goalscope.cli.exporting import Filter
from goalscope.inside.activations.sites import chosen_steps, find_target
from goalscope.measures import measure_store
from goalscope.report.comparison import _steps_by_episode, horizon_notes
from goalscope.report.ledger import episodes_by_agent
from goalscope.runs import Store, run
from goalscope.runs.episode_columns import read_heads
from goalscope.runs.shards import _usage
from goalscope.verdict.evidence import ArmRun
from goalscope.verdict.preflight.forecast import _pace
from stored_steps import steps_as_table

DICE = Dice()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "run"
    run(small_study(), folder, agents=[DICE, Optimal()])
    with Store(folder, "w") as store:
        store.put_rows(measure_store(store), source="behaviour")
    return folder


def of_worlds(store: Store) -> object:
    whole = ArmRun.of(store, 0.95)
    return [world.id for world in whole.worlds_of([one.id for one in read_heads(store)])]


READERS: dict[str, tuple[str, Callable[[Store], object]]] = {
    "worlds of claims": ("UPDATE episodes SET world_id = (SELECT max(world_id) FROM episodes)", of_worlds),
    "share of turns without an action": ("UPDATE steps SET action = 0, failure = NULL", episodes_by_agent),
    "steps that are drawn": (
        "UPDATE episodes SET length = length - 1 WHERE length > 1",
        lambda store: chosen_steps(store, agent_id(DICE), "2:0"),
    ),
    "episodes that are listed": (
        "UPDATE steps SET action = 0, failure = NULL",
        lambda store: list(Filter(failures=True).find(store)),
    ),
    "what episodes took": (
        "UPDATE calls SET usage = replace(usage, 'tokens', 'token5')",
        lambda store: _pace(store, agent_id(DICE), DICE, exact=True),
    ),
    "what a merge takes over": (
        "UPDATE usage SET value = value * 2",
        lambda store: _usage(store, sorted(store.episode_ids())),
    ),
    "steps that are the same in two runs": (
        "UPDATE steps SET text = 'another'",
        lambda store: _steps_by_episode(store.path, store.episode_ids()),
    ),
    "whose steps are replayed": (
        "UPDATE steps SET prompt_tokens = NULL WHERE output_tokens IS NOT NULL",
        lambda store: find_target(store, None, ("pre",)),
    ),
    "how many steps are replayed": (
        "DELETE FROM steps WHERE step = 2 AND output_tokens IS NOT NULL",
        lambda store: find_target(store, "dice", ("pre",)).steps,
    ),
    "how long episodes may last": (
        "UPDATE episodes SET horizon = horizon + 1",
        lambda store: horizon_notes([store.path], [], allowed=True),
    ),
}
"""Who reads -> a change that a flipped bit or a few could make, and the reading."""


@pytest.mark.parametrize("name", READERS)
def test_a_reader_of_parts_notices_what_was_not_written_so(sound: Path, tmp_path: Path, name: str) -> None:
    change, read = READERS[name]
    with Store(sound) as store:
        assert read(store) is not None
    shutil.copytree(sound, tmp_path / "run")
    with sqlite3.connect(tmp_path / "run" / "run.db") as database, steps_as_table(database):
        assert database.execute(change).rowcount
    database.close()
    with Store(tmp_path / "run") as store, pytest.raises(ValueError, match=r"run\.db.*damaged"):
        read(store)


def test_heads_are_what_episodes_say(sound: Path) -> None:
    with Store(sound) as store:
        episodes = list(store.episodes())
        heads = list(read_heads(store))
        assert heads[3:5] == list(read_heads(store, [one.id for one in episodes[3:5]]))
    wanted = [
        (one.id, one.world.id, one.spec.agent_id, one.agent, one.outcome, one.spec.horizon, len(one.steps))
        for one in episodes
    ]
    assert [head[:-1] for head in heads] == wanted
    assert [head.failed for head in heads] == [sum(step.action is None for step in one.steps) for one in episodes]
    assert sum(head.failed for head in heads) > 0
