"""JSON lines: written and read back, streamed, and refused line by line."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import call
from families import examples
from goalscope.measures import measure_store
from goalscope.runs import Episode, EpisodeSpec, GridWorld, Outcome, Step, Store, begin
from goalscope.runs.importers import ImportLog, import_into, import_path, write_jsonl
from goalscope.runs.importers import jsonl as reading
from goalscope.worlds import ACTIONS, Grid, generate
from goalscope.worlds import step as move
from goalscope.worlds.tasks import TaskWorld, cooking_map

ROOM = "#####\n#A__#\n#___#\n#__G#\n#####"
KEYS = "#######\n#K_A__#\n###D###\n#___G_#\n#######"
WAY = ("right", "Right", "DOWN", "down")
CELLS = ([1, 1], [1, 2], [1, 3], [2, 3])


def way(episode: str = "one", **common: Any) -> list[dict[str, Any]]:
    """The lines of an episode that walks to the goal of ROOM, whose world is declared as "room"."""
    return [
        {"episode": episode, "world": "room", "step": index, "position": cell, "action": action, **common}
        for index, (cell, action) in enumerate(zip(CELLS, WAY, strict=True))
    ]


WORLD = {"type": "world", "id": "room", "grid": ROOM}


def read(tmp_path: Path, lines: list[Any]) -> tuple[list[Episode], ImportLog, list[str]]:
    path = tmp_path / "log.jsonl"
    path.write_bytes(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )
    result = import_path(path)
    episodes = list(result.episodes)
    return episodes, result, [str(problem) for problem in result.problems]


@pytest.mark.parametrize("open_cell", [" ", ".", "\u00a0", "\u2007", "\u3000"])
def test_open_cells_may_be_blank_or_points(tmp_path: Path, open_cell: str) -> None:
    room = ROOM.replace("_", open_cell)
    lines = [{"episode": "a", "grid": room, "step": 0, "position": [1, 1], "action": "right"}]
    lines += [{"type": "world", "id": "room", "grid": room}, *way("b")]
    episodes, _, problems = read(tmp_path, lines)
    assert problems == []
    assert [episode.world.grid for episode in episodes] == [Grid.parse(ROOM)] * 2


def test_a_cell_that_cannot_be_read_is_named_where_it_is(tmp_path: Path) -> None:
    lines = [{"episode": "a", "grid": "#####\n#A x#\n#####", "step": 0, "position": [1, 1], "action": "right"}]
    _, _, [problem] = read(tmp_path, lines)
    assert "line 2, column 3 holds 'x'" in problem
    lines[0]["grid"] = "#####\n#A\t #\n#####"  # a tab stands for an unknown number of cells
    _, _, [problem] = read(tmp_path, lines)
    assert "line 2, column 2 holds" in problem and "column 0" not in problem


def test_the_shortest_log_is_an_episode(tmp_path: Path) -> None:
    lines = [{"episode": "a", "grid": ROOM, "step": 0, "position": [1, 1], "action": "RIGHT"}]
    [episode], _, problems = read(tmp_path, lines)
    assert problems == []
    assert (episode.agent, episode.outcome, episode.spec.horizon, episode.spec.trajectory) == (
        "recorded",
        "stopped",
        6,
        0,
    )
    assert episode.final.position == (1, 2)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [("worlds.jsonl", json.dumps(WORLD), "worlds declared: 1"), ("metrics.csv", "trajectory_id", "files read: 1")],
)
def test_without_an_episode_nothing_is_stored_and_it_says_what_there_was(
    name: str, text: str, found: str, tmp_path: Path
) -> None:
    log, out = tmp_path / name, tmp_path / "run"
    log.write_text(text + "\n", encoding="utf-8")
    told = call("import", log, "--out", out, status=1)
    assert "no problem" not in told and not out.exists()
    (problem,) = import_path(log, check=True).problems
    assert found in problem.given and found in told
    assert "no problem" not in call("import", log, "--check", status=1)


def test_a_second_import_of_the_same_episodes_is_no_problem(tmp_path: Path) -> None:
    log, out = tmp_path / "log.jsonl", tmp_path / "run"
    log.write_text("".join(json.dumps(line) + "\n" for line in (WORLD, *way())), encoding="utf-8")
    assert "no problem" in call("import", log, "--out", out)
    again = call("import", log, "--out", out)
    assert "episodes stored: 0" in again and "no problem" in again


def test_defaults_labels_and_numbers(tmp_path: Path) -> None:
    first = way(agent="walker", optimal_actions=["down", "RIGHT"])
    first[2]["optimal_actions"] = first[3]["optimal_actions"] = ["DOWN"]
    second = way("two", agent="walker", horizon=4, tags={"temperature": 0.5})
    second[3] = {**second[3], "action": None, "failure": "no JSON"}
    episodes, result, problems = read(tmp_path, [WORLD, *first, *second])
    assert problems == []
    assert [(e.outcome, e.spec.trajectory, e.spec.horizon) for e in episodes] == [("goal", 0, 6), ("horizon", 1, 4)]
    assert episodes[1].tags == {"temperature": 0.5}
    assert episodes[1].steps[3].failure == "no JSON"
    assert result.compared["optimal-action labels"][1] == 4


def test_a_grid_without_a_size_is_measured_by_its_side_and_what_is_named_stays(tmp_path: Path) -> None:
    tall = "#####\n#A__#\n#___#\n#__G#\n#___#\n#####"
    worlds: list[dict[str, Any]] = [
        WORLD,
        {**WORLD, "id": "named", "grid": ROOM.replace("___", "_#_"), "tags": {"size": "small", "density": 0.1}},
        {**WORLD, "id": "tall", "grid": tall},
    ]
    steps = [one for world in worlds for one in way(world["id"], world=world["id"])]
    (tmp_path / "log.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in [*worlds, *steps]), encoding="utf-8"
    )
    assert import_into(tmp_path / "log.jsonl", tmp_path / "run").exit_status == 0
    with Store(tmp_path / "run") as store:
        before = [world.tags for world in store.worlds()]
        rows = measure_store(store).select(measure="success")
        assert [world.tags for world in store.worlds()] == before  # what is stored stays as it was given
    assert sorted(rows["size"].tolist(), key=str) == [5, None, "small"]
    shown = call("measure", tmp_path / "run", "--by", "size", "--measures", "success")
    lines = [line.split()[:4] for line in shown.splitlines() if line.split()[:1] == ["recorded"]]
    assert sorted(lines) == [
        ["recorded", "5", "success", "1.000"],
        ["recorded", "small", "success", "1.000"],
        ["recorded", "success", "1.000", "undefined"],
    ]


def test_keys_and_doors_follow_the_rules_and_fog_belongs_to_the_world(tmp_path: Path) -> None:
    cells, actions = ([1, 3], [1, 2], [1, 1], [1, 2]), ("LEFT", "LEFT", "RIGHT", "RIGHT")
    lines: list[dict[str, Any]] = [
        {"episode": "k", "step": i, "position": cell, "action": action, "carrying_key": i >= 2, "door_open": False}
        for i, (cell, action) in enumerate(zip(cells, actions, strict=True))
    ]
    lines[0] |= {"grid": KEYS, "fog_radius": 3}
    [episode], _, problems = read(tmp_path, lines)
    assert problems == []
    assert (episode.final.carrying_key, episode.final.door_open, episode.world.fog_radius) == (True, True, 3)
    lines[1]["carrying_key"] = True
    _, _, problems = read(tmp_path, lines)
    assert len(problems) == 1
    assert "line 2 carrying_key: carrying_key must be False" in problems[0]


def test_grids_on_later_lines_must_show_the_state_and_may_be_fogged(tmp_path: Path) -> None:
    lines = way()
    for line in lines:
        line.pop("world")
    lines[0]["grid"] = ROOM
    lines[1]["grid"] = ROOM.replace("A_", "_A")
    assert read(tmp_path, lines)[2] == []
    lines[2]["grid"] = ROOM.replace("A_", "_A")
    assert "line 3 grid: a grid must show" in read(tmp_path, lines)[2][0]
    lines[2]["grid"] = ROOM.replace("A__", "__A").replace("__G", "**G")
    assert "line 3 grid: a grid must show" in read(tmp_path, lines)[2][0]
    lines[0]["fog_radius"] = 2
    assert read(tmp_path, lines)[2] == []


def test_the_examples_of_the_documentation_are_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "import.md").read_text()
    blocks = [block.split("```", 1)[0] for block in text.split("```json\n")[1:]]
    found = [read(tmp_path, [block.rstrip().encode()]) for block in blocks]
    assert [(len(episodes), problems) for episodes, _, problems in found] == [(1, []), (1, [])]
    assert found[1][0][0].outcome == "goal"
    for both in (blocks, blocks[::-1]):  # in one file, in either order
        episodes, _, problems = read(tmp_path, [block.rstrip().encode() for block in both])
        assert problems == [] and {episode.world.tags.get("size") for episode in episodes} == {None, 5}


def test_a_world_that_was_shown_before_it_is_declared_with_tags_is_a_problem_that_says_so(tmp_path: Path) -> None:
    shown = {"episode": "first", "step": 0, "position": [1, 1], "action": "RIGHT", "grid": ROOM}
    _, _, problems = read(tmp_path, [shown, WORLD | {"tags": {"size": 5}}])
    assert len(problems) == 1 and "declared before the first line with its grid" in problems[0]


def edited(index: int, **changes: Any) -> list[Any]:
    lines: list[Any] = [WORLD, *way(), *way("two")]
    lines[index] = {key: value for key, value in (lines[index] | changes).items() if value != "gone"}
    return lines


def replaced(index: int, *new: Any) -> list[Any]:
    lines: list[Any] = [WORLD, *way(), *way("two")]
    return [*lines[:index], *new, *lines[index + 1 :]]


SPOILED: dict[str, tuple[list[Any], str, int]] = {
    "unknown key": (edited(2, acton="UP"), "line 3 acton: unknown key", 1),
    "close key": (edited(2, rewards=1.0), "did you mean reward?", 1),
    "jump": (edited(3, position=[3, 3]), "line 4 position: after RIGHT at (1, 2) the agent must stand at (1, 3)", 1),
    "first cell": (edited(1, position=[2, 2]), "must begin at (1, 1)", 1),
    "gap": (replaced(3), "line 4: steps must be numbered in order: 2 comes next", 1),
    "step twice": (replaced(3, way()[1]), "a step must occur once", 1),
    "beyond the goal": (
        replaced(5, {**way()[3], "step": 4, "position": [3, 3]}, *way("two")[:1]),
        "end at the goal",
        1,
    ),
    "label": (edited(1, optimal_actions=["UP"]), "line 2 optimal_actions: the optimal actions at (1, 1)", 2),
    "label twice": (edited(1, optimal_actions=["UP", "up"]), "once in a set", 1),
    "action": (edited(2, action="JUMP"), "must be UP, DOWN, LEFT or RIGHT", 1),
    "neither": (edited(2, action=None), "either an action", 1),
    "both": (edited(2, failure="x"), "either an action", 1),
    "no action key": (edited(2, action="gone"), "line 3 action: must be given", 1),
    "token": (edited(2, output_tokens=[2**32]), "output_tokens[0]", 1),
    "token kind": (edited(2, prompt_tokens=[1.5]), "prompt_tokens[0]", 1),
    "boolean step": (edited(2, step=True), "line 3 step", 1),
    "three coordinates": (edited(2, position=[1, 2, 3]), "line 3 position", 1),
    "horizon": (edited(1, horizon=3), "line 5: an episode must end at its horizon of 3", 1),
    "two agents": ([WORLD, *way(agent="a")[:2], *way(agent="b")[2:]], "agent must be the same", 0),
    "outcome": (edited(4, outcome="stopped"), "line 2 outcome", 1),
    "undeclared world": (edited(1, world="hall"), "declared on an earlier line", 1),
    "no world": (edited(1, world="gone"), "name its world or show its grid", 1),
    "other grid": (edited(2, grid=KEYS), "another grid", 1),
    "numbers taken": (
        [WORLD, *way(agent="a", trajectory=3), *way("two", agent="a", trajectory=3)],
        "line 6 trajectory: a trajectory's number must be free",
        1,
    ),
    "not JSON": (replaced(2, b'{"episode": "one", '), "line 3 column 19: text must be valid JSON", 1),
    "NaN": (replaced(2, json.dumps(way()[1] | {"reward": float("nan")}).encode()), "line 3: numbers must be finite", 1),
    "first line of an episode lost": (replaced(5, b"?"), "line 6 column 1", 1),
    "last line lost": (replaced(4, b"?"), "line 5 column 1", 1),
    "binary": (replaced(9, b"\x00\x01"), "binary data", 2),
    "list": (replaced(9, [1]), "a JSON object", 2),
    "type": (replaced(9, {"type": "turn"}), "world, episode, step", 2),
    "world symbol": (replaced(0, {**WORLD, "grid": ROOM.replace("_", "?", 1)}), "'?'", 0),
    "world without goal": (replaced(0, {**WORLD, "grid": ROOM.replace("G", "_")}), "goal (G)", 0),
    "world on a wall": (replaced(0, {**WORLD, "grid": ROOM.replace("A", "#")}), "agent (A)", 0),
    "two worlds of a name": ([WORLD, {**WORLD, "grid": KEYS}, *way()], "declared once", 1),
    "two clusters": ([WORLD, {**WORLD, "id": "x", "cluster": "c"}, *way()], "one cluster", 1),
    "deep": (edited(2, extra=json.loads("[" * 70 + "]" * 70)), "nested", 1),
    "empty": ([], "an empty file", 0),
}


@pytest.mark.parametrize("name", SPOILED)
def test_each_fault_is_one_line_and_the_other_episodes_are_imported(name: str, tmp_path: Path) -> None:
    lines, words, kept = SPOILED[name]
    episodes, result, problems = read(tmp_path, lines)
    assert len(problems) == 1, problems
    assert words in problems[0], problems
    assert len(episodes) == kept
    assert result.exit_status == 1


def test_a_long_line_is_skipped_and_a_foreign_log_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goalscope._ground.untrusted.MOST_LINE_BYTES", 2000)
    episodes, _, problems = read(tmp_path, [WORLD, *way(), {"episode": "long", "text": "x" * 5000}, *way("two")])
    assert len(episodes) == 2
    assert len(problems) == 1
    assert "line 6: a line must be shorter" in problems[0]
    episodes, _, problems = read(tmp_path, [{"time": index} for index in range(500)])
    assert episodes == []
    assert "the rest of the file is not read" in problems[-1]
    assert len(problems) < 60


def test_mixed_episodes_are_read_and_too_many_open_ones_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = [line for lines in zip(way("one"), way("two"), way("three"), strict=True) for line in lines]
    episodes, _, problems = read(tmp_path, [WORLD, *mixed])
    assert problems == []
    assert [episode.outcome for episode in episodes] == ["goal"] * 3
    monkeypatch.setattr(reading, "MOST_OPEN", 2)
    _, _, problems = read(tmp_path, [WORLD, *mixed])
    assert "which was closed" in problems[0]


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"

    def peak(count: int) -> int:
        with path.open("w") as stream:
            stream.write(json.dumps(WORLD) + "\n")
            for index in range(count):
                stream.writelines(json.dumps(line) + "\n" for line in way(f"{index}", text="x" * 20_000))
        tracemalloc.start()
        assert import_path(path, check=True).counts["trajectories"] == count
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(5)
    fewer, more = peak(60), peak(180)
    assert path.stat().st_size > 12e6
    assert more < 1.2 * fewer < 12e6


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TOKENS = st.none() | st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
TAGS = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(-9, 9) | TEXT, max_size=3)


@st.composite
def episodes_of_worlds(draw: st.DrawFn) -> list[Episode]:
    drawn = []
    grids = [generate(7, 0.6, rng=np.random.default_rng(draw(st.integers(0, 99)))), Grid.parse(KEYS)]
    cluster = draw(st.sampled_from(["", "pair"]))
    tags = draw(TAGS)
    worlds = [
        GridWorld(grid=grid, fog_radius=draw(st.sampled_from([None, 3])), cluster=cluster, tags=tags) for grid in grids
    ]
    for trajectory in range(draw(st.integers(1, 3))):
        world = draw(st.sampled_from(worlds))
        state, steps = begin(world), list[Step]()
        for index in range(draw(st.integers(0, 6))):
            if state.position == world.grid.goal:
                break
            action = draw(st.sampled_from([*ACTIONS, None]))
            steps.append(
                Step(
                    index=index,
                    state=state,
                    action=action,
                    failure=None if action is not None else draw(TEXT.filter(bool)),
                    text=draw(st.none() | TEXT),
                    reasoning=draw(st.none() | TEXT),
                    prompt_tokens=draw(TOKENS),
                    output_tokens=draw(TOKENS),
                    reward=draw(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
                    extra=draw(st.dictionaries(TEXT, PLAIN, max_size=2)),
                )
            )
            state = state if action is None else move(world.grid, state, action)
        reached = state.position == world.grid.goal
        endings: list[Outcome] = ["stopped", "failure", *(["horizon"] if steps else [])]  # type: ignore[list-item]
        stopped = draw(st.sampled_from(endings))
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=draw(st.sampled_from(["agent-a", "agent-b"])),
            trajectory=trajectory,
            seed=draw(st.integers(-(2**63), 2**63 - 1)),
            horizon=len(steps) if stopped == "horizon" and not reached else len(steps) + draw(st.integers(1, 5)),
            rules=draw(st.sampled_from(["", '{"failure":"end"}'])),
        )
        drawn.append(
            Episode(
                spec=spec,
                world=world,
                agent=draw(st.sampled_from(["a", "b"])),
                steps=tuple(steps),
                final=state,
                outcome="goal" if reached else stopped,
                tags=draw(TAGS),
            )
        )
    return drawn


@settings(max_examples=examples(40), deadline=None)
@given(episodes=episodes_of_worlds())
def test_what_is_written_is_read_back_equal(episodes: list[Episode], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("round") / "log.jsonl"
    assert write_jsonl(iter(episodes), path) == len(episodes)
    result = import_path(path)
    back = sorted(result.episodes, key=lambda episode: episode.id)
    assert result.problems == ()
    assert back == sorted(episodes, key=lambda episode: episode.id)
    assert [path.name for path in path.parent.iterdir()] == ["log.jsonl"]


def test_a_log_goes_into_a_store(tmp_path: Path) -> None:
    read(tmp_path, [WORLD, *way(agent="walker"), *way("two", agent="walker")])
    result = import_into(tmp_path / "log.jsonl", tmp_path / "run")
    assert (result.exit_status, result.counts["episodes stored"]) == (0, 2)
    with Store(tmp_path / "run") as store:
        assert [name for name, _ in store.agents().values()] == ["walker"]
        assert [episode.success for episode in store.episodes()] == [True, True]


def test_one_world_with_two_clusters_cannot_be_written(tmp_path: Path) -> None:
    def twice() -> Iterator[Episode]:
        for cluster in ("a", "b"):
            world = GridWorld(grid=Grid.parse(ROOM), cluster=cluster)
            spec = EpisodeSpec(world_id=world.id, agent_id="x", trajectory=0, seed=0, horizon=3)
            yield Episode(spec=spec, world=world, agent="x", steps=(), final=begin(world), outcome="stopped")

    with pytest.raises(ValueError, match="one cluster"):
        write_jsonl(twice(), tmp_path / "log.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_task_world_cannot_be_written_for_its_grid_alone_would_be_another_world(tmp_path: Path) -> None:
    world = TaskWorld(task_map=cooking_map("lentil-soup"))
    spec = EpisodeSpec(world_id=world.id, agent_id="x", trajectory=0, seed=0, horizon=3)
    episode = Episode(spec=spec, world=world, agent="x", steps=(), final=begin(world), outcome="stopped")
    with pytest.raises(ValueError, match="task-map"):
        write_jsonl([episode], tmp_path / "log.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["agent", "episode", "text", "tags", "extra"])
def test_half_of_a_surrogate_pair_and_huge_numbers_are_one_line_and_the_rest_is_read(tmp_path: Path, key: str) -> None:
    for value in ("\ud800", 10**3999):
        bad: Any = {"n": value} if key in ("tags", "extra") else value
        _, result, problems = read(tmp_path, [WORLD, *way("good"), *(line | {key: bad} for line in way("bad")[:1])])
        assert any("surrogate" in line or "64 bits" in line for line in problems)
        assert result.problem_count == len(problems) and len(problems) <= 2


def test_a_file_whose_name_is_no_text_can_be_imported(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "log\udcff.jsonl").write_text("\n".join(map(json.dumps, [WORLD, *way()])))
    result = import_into(folder, tmp_path / "run")
    with Store(tmp_path / "run") as store:
        assert result.problem_count == 0 and len(store.episode_ids()) == 1
        (back,) = store.episodes()
    str(back.tags).encode()


@pytest.mark.parametrize("name", ["measure", "value", "agent"])
def test_a_tag_that_no_row_can_carry_is_a_problem_of_its_line(name: str, tmp_path: Path) -> None:
    steps = way(tags={name: "x"})
    episodes, _, problems = read(tmp_path, [WORLD, *steps])
    assert not episodes and f"tags: a tag must not be called {name}" in problems[0]
    _, _, problems = read(tmp_path, [WORLD | {"tags": {name: "x"}}, *way()])
    assert "line 1 tags" in problems[0] and name in problems[0]
