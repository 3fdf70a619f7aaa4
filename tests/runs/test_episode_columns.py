"""Episodes read as columns against the same episodes read one by one."""

import shutil
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest

from goalscope.agents.agent import WITHHELD
from goalscope.measures import StepTable, measure_episodes, measure_store, sample_episodes
from goalscope.runs import Episode, EpisodeSpec, Store, Study, TaskWorld, begin, run
from goalscope.runs.episode_columns import EpisodeColumns, episode_columns, parts_of, read_episode_columns
from goalscope.runs.record import NO_ACTION
from goalscope.stats.rows import Rows
from goalscope.worlds.tasks import generate_task_map
from tampered import tampered


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with keys, doors, fog, failed turns, and tags that differ in kind alone."""
    folder = tmp_path_factory.mktemp("sampled")
    with Store(folder, "w") as store:
        store.put_episodes(sample_episodes(seed=3, trajectories=3, invalid=0.2))
        (long,) = sample_episodes(seed=4, trajectories=1, invalid=0.0)[:1]
        store.put_episodes([retagged(long, number, tag) for number, tag in enumerate((1, 1.0, True, None))])
    return folder


def retagged(episode: Episode, number: int, tag: float | bool | None) -> Episode:
    """Return an episode under another number with a tag of its own, without steps where the tag is None."""
    spec = EpisodeSpec(world_id=episode.world.id, agent_id="tagged", trajectory=number, seed=-(2**63) + 1, horizon=99)
    steps, final = (episode.steps, episode.final) if tag is not None else ((), begin(episode.world))
    return Episode(
        spec=spec,
        world=episode.world,
        agent="tagged",
        steps=steps,
        final=final,
        outcome="stopped",
        tags={"file": f"log {number}", "kind of tag": tag},
    )


def literal(episodes: list[Episode]) -> dict[str, list[object]]:
    """The columns as they are defined, one step at a time."""
    steps = [step for episode in episodes for step in episode.steps]
    worlds = list(dict.fromkeys(episode.world.id for episode in episodes))
    return {
        "episode_id": [episode.id for episode in episodes],
        "agent": [episode.agent for episode in episodes],
        "outcome": [episode.outcome for episode in episodes],
        "cluster": [episode.world.cluster_id for episode in episodes],
        "trajectory": [episode.spec.trajectory for episode in episodes],
        "seed": [episode.spec.seed for episode in episodes],
        "horizon": [episode.spec.horizon for episode in episodes],
        "tags": [{**episode.world.tags, **episode.tags, "agent": episode.agent} for episode in episodes],
        "worlds": [*worlds],
        "world": [worlds.index(episode.world.id) for episode in episodes],
        "length": [len(episode.steps) for episode in episodes],
        "state": [[*step.state.position, step.state.phase] for step in steps],
        "action": [NO_ACTION if step.action is None else int(step.action) for step in steps],
        "withheld": [step.failure == WITHHELD for step in steps],
        "reward": [None for _ in steps],
        "final": [[*episode.final.position, episode.final.phase] for episode in episodes],
    }


def plain(table: EpisodeColumns) -> dict[str, list[object]]:
    columns = {field.name: getattr(table, field.name) for field in fields(table)}
    columns["worlds"] = [world.id for world in table.worlds]
    columns["reward"] = [None if np.isnan(reward) else reward for reward in table.reward.tolist()]
    return {name: np.asarray(column).tolist() if name in ARRAYS else list(column) for name, column in columns.items()}


ARRAYS = ("world", "length", "state", "action", "withheld", "final")


def test_columns_are_those_of_the_episodes_however_they_are_read(sampled: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Store(sampled) as store:
        episodes = list(store.episodes())
        read, apart = read_episode_columns(store, lambda done, total: seen.append((done, total)))
    assert apart == [] and seen[-1] == (len(episodes), len(episodes))
    assert {episode.world.fog_radius for episode in episodes} > {None}
    wanted = literal(episodes)
    assert plain(episode_columns(iter(episodes))) == wanted
    found = plain(read)
    assert found == wanted
    kinds = [[*map(type, tags.values())] for tags in found["tags"] if isinstance(tags, dict)]
    assert kinds == [[*map(type, tags.values())] for tags in wanted["tags"] if isinstance(tags, dict)]


def test_the_table_keeps_what_the_episodes_held(sampled: Path) -> None:
    with Store(sampled) as store:
        episodes = list(store.episodes())
    table = StepTable.from_episodes(episodes)
    for index, episode in enumerate(episodes):
        assert table.path(index) == [*(step.state for step in episode.steps), episode.final]
        assert table.worlds[table.world[index]].id == episode.world.id == table.world_id[index]
        inside = table.step[table.begin[index] : table.begin[index] + len(episode.steps)]
        assert inside.tolist() == list(range(len(episode.steps)))
    counts: list[int] = []

    def count(given: StepTable) -> int:
        counts.append(len(given.length))
        return len(counts)

    assert table.once(count) == table.once(count) == 1 and counts == [len(episodes)]


def equal(one: Rows, other: Rows) -> bool:
    assert list(one.columns()) == list(other.columns())
    return all(list(map(repr, one[name].tolist())) == list(map(repr, other[name].tolist())) for name in one.columns())


def test_a_store_is_measured_as_its_episodes_are(sampled: Path, tmp_path: Path) -> None:
    with Store(sampled) as store:
        assert equal(measure_store(store), measure_episodes(store.episodes()))
    place = TaskWorld(task_map=generate_task_map("high-small"))
    spec = EpisodeSpec(world_id=place.id, agent_id="a", trajectory=0, seed=0, horizon=place.task_map.budget)
    shutil.copy(sampled / "run.db", tmp_path / "run.db")
    still = Episode(spec=spec, world=place, agent="still", steps=(), final=begin(place), outcome="stopped")
    with Store(tmp_path, "w") as store:
        store.put_episodes([still])
        assert read_episode_columns(store)[1] == [still.id]
        rows = measure_store(store)
        assert equal(rows, measure_episodes(store.episodes())) and "exploration error" in rows.measure
    with Store(tmp_path / "empty", "w") as store:
        assert equal(measure_store(store), measure_episodes([]))


READ = [
    "UPDATE steps SET action = 9",
    "UPDATE steps SET action = -2",
    "UPDATE steps SET action = 'UP'",
    "UPDATE steps SET row = -1",
    "UPDATE steps SET col = 99",
    "UPDATE steps SET row = 'x'",
    "UPDATE steps SET flags = 4",
    "DELETE FROM steps WHERE step = 0",
    "UPDATE episodes SET outcome = 'won'",
    "UPDATE episodes SET trajectory = trajectory + 7",
    "UPDATE episodes SET horizon = 'x'",
    "UPDATE episodes SET tags = '{\"a\": [1]}'",
    "UPDATE episodes SET agent = x'00'",
    "UPDATE episodes SET length = 'x'",
    "UPDATE episodes SET length = 9000000000000000000",
    "UPDATE episodes SET col = 99",
    "UPDATE episodes SET flags = 7",
    "UPDATE episodes SET row = 'x'",
    "UPDATE worlds SET grid = 'A_G'",
    "UPDATE worlds SET fog_radius = 'x'",
    "DELETE FROM worlds",
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    worlds = [{"kind": "grid", "sizes": [5], "densities": [0.5], "count": 2}]
    run(Study.parse({"seed": 1, "worlds": worlds, "agents": [{"kind": "random"}]}), folder)
    return folder


@pytest.mark.parametrize("statement", READ)
def test_what_is_read_is_checked_and_refused_in_the_same_words(sound: Path, tmp_path: Path, statement: str) -> None:
    shutil.copy(sound / "run.db", tmp_path / "run.db")
    with tampered(tmp_path / "run.db") as database:
        database.execute(statement)
    database.close()
    with Store(tmp_path) as store:
        with pytest.raises(ValueError, match="must") as slow:
            list(store.episodes())
        with pytest.raises(ValueError, match="must") as fast:
            read_episode_columns(store)
    assert str(fast.value) == str(slow.value)


def test_what_was_said_is_not_looked_at(sound: Path, tmp_path: Path) -> None:
    shutil.copy(sound / "run.db", tmp_path / "run.db")
    with tampered(tmp_path / "run.db") as database:
        database.execute("UPDATE steps SET text = 5.5, failure = 'x', extra = NULL, reward = 'much'")
    database.close()
    with Store(sound) as whole, Store(tmp_path) as odd:
        assert plain(read_episode_columns(odd)[0]) == plain(read_episode_columns(whole)[0])
        assert equal(measure_store(odd), measure_store(whole))


def test_a_measure_of_texts_has_the_episodes_and_says_where_they_are_missing(sampled: Path) -> None:
    @dataclass(frozen=True)
    class Reasoned:
        name: str = "turns with reasoning"
        unit: str = "turns"
        bounds: tuple[float, float] = (0.0, float("inf"))

        def rows(self, table: StepTable) -> Rows:
            return table.rows(
                self.name,
                self.unit,
                [sum(step.reasoning is not None for step in one.steps) for one in table.episodes],
            )

    with Store(sampled) as store:
        episodes = list(store.episodes())
        table, _ = read_episode_columns(store)
    found = measure_episodes(iter(episodes), [Reasoned()])
    assert found.value.tolist() == [sum(step.reasoning is not None for step in one.steps) for one in episodes]
    assert StepTable.from_episodes(episodes).episodes == tuple(episodes)
    with pytest.raises(ValueError, match="texts"):
        Reasoned().rows(StepTable.from_columns(table))


def test_episodes_of_some_worlds_are_all_of_them_and_no_others(sampled: Path) -> None:
    """A damaged index finds fewer episodes of a world than there are, and those of others."""
    with Store(sampled) as store:
        parts = list(parts_of(store, most=30))
        assert len(parts) > 1 and sum(sum(part.values()) for part in parts) == len(store.episode_ids())
        found = [one.spec.id for part in parts for one in store.episodes(worlds=part)]
        assert sorted(found) == sorted(store.episode_ids())
        more = {**parts[0], next(iter(parts[0])): sum(parts[0].values()) + 1}
        with pytest.raises(ValueError, match="found"):
            list(store.episodes(worlds=more))
        page = next(iter(store.pages(worlds=parts[0])))
        with pytest.raises(ValueError, match="its world"):
            store.sums.check_order(page, (), worlds=parts[1])
