"""Shards of a study and what merging them makes: one run, whole, or one sentence and nothing changed."""

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from killed_runs import Countdown, trace_events
from run_agents import Dice, small_study

from command_line import call
from contents import hash_of
from families import long_after
from goalscope.agents import Optimal
from goalscope.measures import measure_episodes
from goalscope.measures.behaviour import put_measured
from goalscope.runs import Store, Study, StudyShard, merge, run
from goalscope.runs.repair import damage
from goalscope.runs.shards import grow
from tampered import tampered

OF = 3


def make(directory: Path, shard: str | None, **changes: object) -> Path:
    worlds = [{"kind": "grid", "sizes": [5, 7], "densities": [0.5], "count": 2, "minimum_distance": 2}]
    part = None if shard is None else StudyShard.parse(shard)
    run(small_study(worlds=worlds, **changes), directory, agents=[Dice(), Optimal()], shard=part)
    return directory


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, and its shards 1, 2 and 3."""
    folder = tmp_path_factory.mktemp("made")
    make(folder / "whole", None)
    for number in range(1, OF + 1):
        make(folder / f"{number}", f"{number}/{OF}")
    return folder


@pytest.fixture
def shards(made: Path, tmp_path: Path) -> list[Path]:
    """Copies of the shards, to be spoilt."""
    return [Path(shutil.copytree(made / f"{number}", tmp_path / f"{number}")) for number in range(1, OF + 1)]


def test_shards_cut_a_study_into_parts_of_whole_worlds(made: Path) -> None:
    parts = []
    for number in range(1, OF + 1):
        with Store(made / f"{number}") as store:
            parts.append(store.episode_ids())
            units = store.query("SELECT count(*) FROM episodes GROUP BY agent_id, world_id")
        assert set(units) == {(3,)}  # all trajectories of an agent on a world
    with Store(made / "whole") as store:
        assert set().union(*parts) == store.episode_ids() and sum(map(len, parts)) == len(store.episode_ids())
    assert max(map(len, parts)) - min(map(len, parts)) <= 3


@pytest.mark.parametrize("of", long_after(1, [2, OF, 16]))
def test_merged_shards_are_the_run_of_the_whole_study(made: Path, tmp_path: Path, of: int) -> None:
    folders = [made / f"{number}" for number in range(1, OF + 1)]
    if of != OF:
        folders = [make(tmp_path / f"{number}", f"{number}/{of}") for number in range(1, of + 1)]
    told: list[tuple[int, int]] = []
    summary = merge(folders[::-1], tmp_path / "merged", progress=lambda *at: told.append(at))
    assert hash_of(tmp_path / "merged") == hash_of(made / "whole")
    assert summary.episodes == 24 and summary.shards == of and told[-1] == (24, 24)
    with Store(tmp_path / "merged") as merged, Store(made / "whole") as whole:
        columns = "id, agent_id, prompt, episode_id, step, attempt, state, lost, action, failure, text, output_tokens"
        calls = f"SELECT {columns} FROM calls ORDER BY id"
        assert merged.query(calls) == whole.query(calls) and summary.calls == len(whole.query(calls)) > 0
        tokens = "SELECT * FROM usage WHERE name = 'tokens' ORDER BY episode_id, step, attempt"
        assert merged.query(tokens) == whole.query(tokens) != []
        assert merged.agent_names() == whole.agent_names()
        assert len(merged.info()["sessions"]) == of + 1
        assert set(merged.info()["shards"]) == {f"{number}/{of}" for number in range(1, of + 1)}
    again = run(
        small_study(worlds=[{"kind": "grid", "sizes": [5, 7], "densities": [0.5], "count": 2, "minimum_distance": 2}]),
        tmp_path / "merged",
        agents=[Dice(), Optimal()],
    )
    assert (again.episodes, again.reused) == (0, 24)
    assert {path.name for path in (tmp_path / "merged").iterdir()} == {"run.db", "run.lock"}
    assert not list(tmp_path.glob(".*"))


def test_rows_of_shards_are_left_out_and_named(shards: list[Path], tmp_path: Path) -> None:
    with Store(shards[1], "w") as store:
        store.put_rows(measure_episodes(store.episodes()), source="behaviour")
    summary = merge(shards, tmp_path / "merged")
    assert summary.measured == (shards[1],) and summary.read == ()
    with Store(tmp_path / "merged") as store:
        assert len(store.rows()) == 0


def change(directory: Path, *statements: str) -> None:
    with tampered(directory / "run.db") as connection:
        for statement in statements:
            connection.execute(statement)


def overwritten(directory: Path) -> None:
    path = directory / "run.db"
    held = bytearray(path.read_bytes())
    held[len(held) // 4 : len(held) // 2] = bytes(len(held) // 2 - len(held) // 4)
    path.write_bytes(held)


def foreign(directory: Path) -> None:
    make(directory / "other", f"2/{OF}", seed=7)
    shutil.copy(directory / "other" / "run.db", directory / "run.db")


FAULTS: dict[str, tuple[Callable[[list[Path]], list[Path]], str]] = {}


def fault(words: str) -> Callable[[Callable[[list[Path]], list[Path] | None]], None]:
    def add(spoil: Callable[[list[Path]], list[Path] | None]) -> None:
        FAULTS[spoil.__name__] = (lambda shards: spoil(shards) or shards, words)

    return add


@fault("missing: 2/3")
def missing(shards: list[Path]) -> list[Path]:
    return [shards[0], shards[2]]


@fault("are both shard 2/3")
def twice(shards: list[Path]) -> list[Path]:
    return [*shards, shards[1]]


@fault("seed")
def another_study(shards: list[Path]) -> None:
    foreign(shards[1])


@fault("lacks 1 of its 9 episodes")
def half_done(shards: list[Path]) -> None:
    change(shards[1], "DELETE FROM episodes WHERE number = 1")


@fault("shard 2/3")
def mixed(shards: list[Path]) -> None:
    shutil.copy(shards[0] / "run.db", shards[1] / "run.db")
    change(shards[1], """UPDATE info SET value = '{"value":"2/3"}' WHERE name = 'shard'""")


@fault("damaged|sound|malformed")
def damaged(shards: list[Path]) -> None:
    overwritten(shards[1])


@fault("decode|JSON|must")
def damaged_answer(shards: list[Path]) -> None:
    change(shards[1], "UPDATE calls SET usage = 'x'")


@fault("a run of a whole study")
def whole(shards: list[Path]) -> None:
    change(shards[1], "DELETE FROM info WHERE name = 'shard'")


@fault("shard must be")
def no_number(shards: list[Path]) -> None:
    change(shards[1], """UPDATE info SET value = '{"value":"0/3"}' WHERE name = 'shard'""")


@fault("one division")
def another_division(shards: list[Path]) -> None:
    change(shards[1], """UPDATE info SET value = '{"value":"2/4"}' WHERE name = 'shard'""")


@fault("same agents and worlds")
def another_agent(shards: list[Path]) -> None:
    change(shards[1], "UPDATE agents SET name = 'other' WHERE name = 'dice'")


@fault("imported trajectories")
def no_study(shards: list[Path]) -> None:
    change(shards[1], "DELETE FROM study")


@fault("there is no run at")
def empty(shards: list[Path]) -> None:
    (shards[1] / "run.db").unlink()


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_not_all_of_one_study_is_refused_and_nothing_is_written(
    shards: list[Path], tmp_path: Path, name: str
) -> None:
    spoil, words = FAULTS[name]
    given = spoil(shards)
    with pytest.raises((ValueError, FileNotFoundError), match=re.compile(words)):
        merge(given, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_merge_goes_into_a_new_directory_only(shards: list[Path], tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="new directory"):
        merge(shards, shards[0])
    (tmp_path / "merged").mkdir()  # empty ones are as good as none
    merge(shards, tmp_path / "merged")
    with pytest.raises(FileExistsError, match="new directory"):
        merge(shards, tmp_path / "merged")


def killed_merge(shards: list[Path], place: Path, number: int) -> tuple[int, int]:
    """Merge in a process that dies before its number-th event; return how it ended, and how many events it passed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        countdown = Countdown(number)
        trace_events(countdown)
        merge(shards, place)
        os.write(writing, str(countdown.passed).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as passed:
        return os.waitstatus_to_exitcode(status), int(passed.read() or 0)


@pytest.mark.parametrize("kills", [2, pytest.param(120, marks=pytest.mark.full)])
def test_a_merge_that_is_killed_at_any_point_can_be_repeated(made: Path, tmp_path: Path, kills: int) -> None:
    expected, shards = hash_of(made / "whole"), [made / f"{one}" for one in range(1, OF + 1)]
    ended, events = killed_merge(shards, tmp_path / "whole", -1)
    assert ended == 0 and events > kills and hash_of(tmp_path / "whole") == expected
    before = [hash_of(shard) for shard in shards]
    for number in sorted({1, 2, events - 1, events, *range(3, events, max(1, events // kills))}):
        place = tmp_path / str(number) / "merged"
        place.parent.mkdir()
        assert killed_merge(shards, place, number)[0] == -signal.SIGKILL
        if not place.exists():  # it may have died between the last name and the last sync
            merge(shards, place)
        assert hash_of(place) == expected, number
        assert [one.name for one in place.parent.iterdir()] == ["merged"], number
        with Store(place) as store:
            assert store.query("PRAGMA integrity_check") == [("ok",)]
    assert [hash_of(shard) for shard in shards] == before


@pytest.mark.parametrize(("begun", "goes_on"), [(None, "1/3"), ("1/3", None), ("1/3", "2/3"), ("1/3", "1/4")])
def test_a_directory_goes_on_with_the_part_that_it_was_begun_with(
    tmp_path: Path, begun: str | None, goes_on: str | None
) -> None:
    make(tmp_path, begun)
    before = hash_of(tmp_path)
    with pytest.raises(ValueError, match="was begun with"):
        make(tmp_path, goes_on)
    make(tmp_path, begun)
    assert hash_of(tmp_path) == before


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3/5", " 1/3", "1/999999", ""])
def test_shards_are_written_as_two_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="a shard"):
        StudyShard.parse(text)
    assert str(StudyShard.parse("3/16")) == "3/16"


def test_shards_on_the_command_line(tmp_path: Path) -> None:
    grids = "worlds=[{kind: grid, sizes: [5], densities: [0], count: 2}]"
    words = ("scripted", "--set", grids, "--trajectories", 1, "--agents", "optimal;random", "--out")
    call("run", *words, tmp_path / "whole")
    for number in (1, 2):
        assert "goalscope merge" in call("run", *words, tmp_path / f"{number}", "--shard", f"{number}/2")
    assert "shard 1/2 of its study" in " ".join(call("measure", tmp_path / "1").split())
    refused = call("merge", tmp_path / "merged", tmp_path / "1", status=2)
    assert "missing: 2/2" in refused and not (tmp_path / "merged").exists()
    shown = call("merge", tmp_path / "merged", tmp_path / "1", tmp_path / "2")
    assert hash_of(tmp_path / "whole") in shown and "rows of measures" in shown
    assert "must be K/N" in call("run", "scripted", "--out", tmp_path / "x", "--shard", "3", status=2)


@pytest.mark.parametrize("count", [3, 1])
def test_a_run_that_grows_is_that_of_the_other_study_and_keeps_what_both_have(tmp_path: Path, count: int) -> None:
    def study(count: int) -> Study:
        worlds = [{"kind": "grid", "sizes": [5], "densities": [0.5], "count": count, "minimum_distance": 2}]
        agents = [{"kind": one} for one in ("optimal", "random")]
        return Study.parse({"name": "two", "seed": 3, "worlds": worlds, "agents": agents, "trajectories": 2})

    run(study(2), tmp_path / "one")
    with Store(tmp_path / "one", "w") as store:
        before = {episode.id: [step.action for step in episode.steps] for episode in store.episodes()}
        put_measured(store)
        (tmp_path / "one" / "activations").mkdir()
        grow(store, study(2))
        assert store.row_sources(), "the same study changes nothing"
        grow(store, study(count))
        after = {episode.id: [step.action for step in episode.steps] for episode in store.episodes()}
        assert all(before[name] == actions for name, actions in after.items()) and len(after) == 4 * min(2, count)
        assert not store.row_sources() and not (tmp_path / "one" / "activations").exists()
        run(study(count), store)
        assert not damage(store)
    run(study(count), tmp_path / "whole")
    assert hash_of(tmp_path / "one") == hash_of(tmp_path / "whole")


def test_imported_trajectories_do_not_grow(made: Path, tmp_path: Path) -> None:
    with Store(made / "whole") as store, Store(tmp_path / "one", "w") as imported:
        imported.put_episodes(store.episodes())
        with pytest.raises(ValueError, match="a study"):
            grow(imported, small_study())
