"""`goalscope meg RUN`: tables, rows and figures; with `--beliefs`, agents that follow a planted belief are seen."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from families import long_after
from goal_tables import directed, finite, utility_in
from goalscope._ground.progress import Stage
from goalscope._ground.rng import stream
from goalscope.agents import Agent, Observation, Optimal, Turn, Uniform, WrongGoal
from goalscope.cli import app, goals
from goalscope.goals import GoalEstimate, RunDirectedness
from goalscope.inside.activations import Activations
from goalscope.inside.beliefs import Belief, decode_beliefs, joined, measure_beliefs
from goalscope.inside.probing import FitSettings, ProbeInputs, label_cells, label_grid, probe_cells, split_by_grid
from goalscope.measures import roll_out
from goalscope.report.texts import TEXTS
from goalscope.runs import Episode, GridWorld, Store, content_hash
from goalscope.stats import estimate_rows, paired_difference
from goalscope.worlds import Grid, Position, generate_batch, shown
from goalscope.worlds.grid import CORNERS
from goalscope.worlds.planning.shortest import distances_to
from measured_runs import HOSTILE, Talker, measured, small_study
from planted_findings import stated


def call(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return str(result.output if status else result.stdout)  # stderr has progress where the machine is slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("meg") / "run", small_study())


def test_tables_rows_and_the_same_bytes_twice(run: Path) -> None:
    words = ("meg", run, "--by", "size", "--hypotheses", "goal,corner top-right", "--unknown")
    first = call(*words)
    for text in (
        "optimal",
        "top-right",
        "interval",
        "bound",
        "share",
        "beta",
        "null",
        "worlds",
        "grids, beta refitted",
    ):
        assert text in first
    assert "size 5" in first and "goal − corner top-right" in first and "held-out" in first
    with Store(run) as store:
        before, info = content_hash(store), store.info()["meg"]
        rows = store.rows()
    assert len(rows.select(measure="MEG towards the goal", agent="optimal")) == 12
    assert "success" in set(rows.measure) and info["settings"]["hypotheses"] == ["goal", "corner top-right"]
    again = call(*words)
    assert [line for line in again.splitlines() if "measured in" not in line] == [
        line for line in first.splitlines() if "measured in" not in line
    ]
    with Store(run) as store:
        assert content_hash(store) == before and store.info()["meg"] == info
    table = call("compare", run, "--measures", "MEG towards the goal", "--agents", "optimal;random")
    assert "MEG towards the goal" in table


def test_json_and_the_section_of_the_report(tmp_path: Path) -> None:
    worlds = [{"kind": "grid", "sizes": [5], "densities": [0.0, 1.0], "count": 2}]
    agents = [{"kind": "optimal"}, {"kind": "random"}]
    run = measured(tmp_path / "run", small_study(worlds=worlds, agents=agents, trajectories=2))
    result = CliRunner().invoke(app, ["meg", str(run), "--json", "--by", "density", "--utility", "arrival"])
    plain = json.loads(result.stdout)
    assert plain["settings"]["utility"] == "arrival" and plain["episodes"] == 16
    best = next(e for e in plain["estimates"] if e["agent"] == "optimal" and e["hypothesis"] == "goal")
    assert best["share"] == pytest.approx(1.0) and best["beta"] == "inf" and best["low"] <= best["signed"]
    pages = [tmp_path / "first.html", tmp_path / "second.html"]
    for page in pages:
        call("report", run, "--out", page)
    text = pages[0].read_text(encoding="utf-8")
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert "What the agents are after" in text and "MEG by hypothesis" in text and "By density (2 cells)" in text
    with Store(run, "w") as store:
        store.put_info("meg", {"estimates": [{"agent": 3}], "contrasts": [], "held_out": []})
    assert "stored results on goals" in call("report", run, "--out", pages[0], status=2)


def test_turns_without_action_and_hostile_names_do_no_harm(tmp_path: Path) -> None:
    path = measured(tmp_path / "run", small_study(agents=[{"kind": "random"}]), [Talker()])
    text = call("meg", path, "--invalid", "action")
    assert "\x1b[31m" not in text and "MEG in nats" in text
    call("report", path, "--out", tmp_path / "page.html")
    assert "<script>alert" not in (tmp_path / "page.html").read_text(encoding="utf-8")


class Silent:
    """An agent whose every turn is without an action; where it begins in a corner it never leaves it."""

    name = "silent"
    journalled = False

    def describe(self) -> dict[str, str]:
        return {"kind": "silent"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [Turn(action=None, failure="no answer", text="") for _ in observations]


@pytest.mark.parametrize("invalid", long_after(1, ["no-op", "action"]))
def test_an_agent_without_a_valid_turn_has_no_meg_anywhere_and_that_is_said(invalid: str, tmp_path: Path) -> None:
    worlds = [{"kind": "grid", "sizes": [5], "densities": [0.0], "count": 4}]
    study = small_study(agents=[{"kind": "optimal"}], worlds=worlds, trajectories=2)
    path = measured(tmp_path / "run", study, [Silent(), Optimal()])
    plain = json.loads(call("meg", path, "--invalid", invalid, "--unknown", "--json"))
    words = "no turn of the agent held an action: no MEG"
    for entry in plain["estimates"]:
        silent = entry["agent"] == "silent"
        assert (entry["note"] == words) == silent and (entry["signed"] is None) == silent
        if silent:
            assert not any(entry[name] is not None for name in ("low", "high", "share", "beta", "cross_fitted"))
            # Two episodes in each world within reach of the hypothesis.
            assert entry["n"] == 2 * entry["grids"] and entry["grids"] + entry["out_of_reach"] == 4
            assert entry["out_of_reach"] == 0 or entry["hypothesis"] != "goal"
    assert {entry["agent"] for entry in plain["contrasts"]} == {"optimal"}
    assert {(entry["agent"], entry["value"] is None) for entry in plain["held_out"]} == {
        ("silent", True),
        ("optimal", False),
    }
    with Store(path) as store:
        stored = store.rows().select(measure="MEG towards the goal")
    assert np.isnan(stored.select(agent="silent").value).all() and len(stored.select(agent="silent")) == 4
    assert np.isfinite(stored.select(agent="optimal").value).all()
    shown = call("meg", path, "--invalid", invalid)
    assert f"note: {words} (5 lines: silent, goal; silent, corner top-left; silent, corner top-right; ...)" in shown
    call("report", path, "--ledger", tmp_path / "ledger.json")
    assert words in (path / "report.html").read_text(encoding="utf-8")
    table = json.loads((tmp_path / "ledger.json").read_text(encoding="utf-8"))["tables"]["agent"]
    lines = [dict(zip(table["columns"], line, strict=True)) for line in table["rows"]]
    (line,) = (one for one in lines if (one["measure"], one["agent"]) == ("MEG towards the goal", "silent"))
    assert line["value"] is None and line["n"] == 0 and line["undefined"] == 4


def test_a_random_agent_is_given_no_share_and_no_rationality_in_any_output(run: Path, tmp_path: Path) -> None:
    shown = call("meg", run, "--hypotheses", "goal,corner top-right")
    cells = [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()]
    random = [line for line in cells if line[0] == "random"][:2]
    assert [line[1] for line in random] == ["goal", "corner top-right"]
    assert all(line[5:7] == ["–", "–"] for line in random), random
    assert "note: cannot be told from chance, the interval holds 0: no share and no beta" in shown
    call("report", run, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    section = page[page.index('id="goals"') :]
    section = section[: section.index("</section>")]
    assert "cannot be told from chance, the interval holds 0: no share and no beta" in section
    assert "−∞" not in section


def test_options_that_do_not_fit_are_refused(run: Path, tmp_path: Path) -> None:
    assert "--by" in call("meg", tmp_path / "x.json", "--by", "size", status=2)
    assert "'gaol'; did you mean 'goal'?" in call("meg", run, "--hypotheses", "gaol", status=2)
    assert "must name tags" in call("meg", run, "--by", "colour", status=2)
    (tmp_path / "empty").mkdir()
    assert "run.db" in call("meg", tmp_path / "empty", status=2)


# `goalscope meg RUN --beliefs`: an agent that follows a planted belief is seen to do so, and only then.


ROOM = ("#######", "#A____#", "#_____#", "#_____#", "#_____#", "#____G#", "#######")
FRAME, SIZE, WIDTH = 7, 7, 100
CONTROLS = ("none", "permuted")
SETTINGS = FitSettings(epochs=12, rate=1e-2)


def episodes_of(agent: Agent, count: int = 80, trajectories: int = 2) -> list[Episode]:
    worlds = [
        GridWorld(grid=grid, tags={"size": SIZE})
        for grid in generate_batch(SIZE, 0.4, seed=5, count=count, minimum_distance=3)
        if comes_to_corner(grid) and grid.start != corner(grid)
    ]
    return [e for world in worlds for e in roll_out(agent, world, seed=2, trajectories=trajectories)]


def corner(grid: Grid, name: str = "top-right") -> Position:
    """Where WrongGoal goes, by its definition; see the hypotheses."""
    place = utility_in(finite(grid), f"corner {name}")
    assert place is not None and name in CORNERS
    row, col = divmod(int(place.argmax()), grid.width)
    return row, col


def comes_to_corner(grid: Grid) -> bool:
    """Return whether the top-right corner is the goal, or can be come to without it, which would end the episode."""
    place = utility_in(finite(grid), "corner top-right")
    if place is None or grid.start is None:
        return False
    solid = grid.walls.copy()
    solid[grid.goal] = True
    return corner(grid) == grid.goal or distances_to(solid, [grid.start])[corner(grid)] >= 0


def planted(episodes: list[Episode], *, believed: bool, known: bool = True) -> ProbeInputs:
    """Activations that hold the map linearly: the true one, or on tested grids one whose goal is in the corner.

    Without ``known`` they hold nothing; those of the random network never do.
    """
    steps = [(episode, number) for episode in sorted(episodes, key=lambda e: e.id) for number in (0, 1)]
    count = len(steps)
    zeros = np.zeros((count, 3), dtype=np.int64)

    def column(values: list[str]) -> Any:
        return np.array(values, dtype=object)

    given: dict[str, Any] = {
        "site": "pre",
        "layer": 1,
        "model": "planted",
        "episode_id": column([episode.id for episode, _ in steps]),
        "step": np.array([number for _, number in steps]),
        "world_id": column([episode.world.id for episode, _ in steps]),
        "cluster": column([episode.world.cluster_id for episode, _ in steps]),
        "shape": np.full((count, 2), SIZE),
        "positions": zeros,
        "tokens": zeros,
        "reconstructed": np.zeros(count, dtype=bool),
    }
    blank = Activations(vectors=np.zeros((count, 3, 1), dtype=np.float32), **given)
    cells = label_cells(blank, episodes, frame=FRAME)
    split = split_by_grid(cells, test=0.2)
    maps = np.stack(
        [
            label_grid(
                shown(
                    episode.world.grid.at(goal=corner(episode.world.grid)) if held and believed else episode.world.grid,
                    episode.steps[number].state,
                ),
                FRAME,
            ).ravel()
            for (episode, number), held in zip(steps, split.test, strict=True)
        ]
    )
    said = np.eye(5)[maps].reshape(count, -1)
    vectors = said @ stream(1, "planted").standard_normal((said.shape[1], 3 * WIDTH))
    if not known:
        vectors = stream(2, "noise").standard_normal(vectors.shape)

    def given_as(values: Any, model: str) -> tuple[Activations]:
        return (Activations(vectors=values.reshape(count, 3, WIDTH).astype(np.float32), **{**given, "model": model}),)

    return ProbeInputs(
        activations=given_as(vectors, "planted"),
        random={("permuted", 0): given_as(stream(3, "random weights").standard_normal(vectors.shape), "random")},
        cells=cells,
        split=split,
    )


def decoded(places: ProbeInputs, episodes: list[Episode]) -> dict[str, dict[str, Belief]]:
    """The beliefs of both models, by control."""
    fitted = probe_cells(places, suite=[("percell", name) for name in CONTROLS], settings=SETTINGS)
    first, by_id = places.split.test & (places.cells.step == 0), {episode.id: episode for episode in episodes}
    found = {}
    for name, (one,) in zip(CONTROLS, (places.activations, places.random["permuted", 0]), strict=True):
        said = (
            fitted.probe("percell", one, control=name, draw=None if name == "none" else 0)
            .predict(one.where(first))
            .natural
        )
        found[name] = decode_beliefs(one.episode_id[first], said.reshape(-1, FRAME, FRAME, 5), by_id)
    return found


MAP = " on the believed map"
MAP_LINE = f"believed goal{MAP}"
CHANCE = ("permuted", "shuffled")


def line(found: RunDirectedness, hypothesis: str) -> GoalEstimate:
    (estimate,) = (entry for entry in found.estimates if entry.hypothesis == hypothesis)
    return estimate


@pytest.fixture(scope="module")
def lured() -> list[Episode]:
    return episodes_of(WrongGoal("top-right"), count=120, trajectories=1)


def test_a_planted_goal_is_decoded_and_explains_the_agent_that_seeks_it(lured: list[Episode]) -> None:
    places = planted(lured, believed=True)
    sides = decoded(places, lured)
    beliefs, random = sides["none"], sides["permuted"]
    worlds = {episode.world.id: episode.world for episode in lured}
    tested = set(places.cells.cluster[places.split.test].tolist())
    assert {
        worlds[name].cluster_id for name in beliefs
    } == tested  # no world of the grids that the probe was trained on
    assert set(random) == set(beliefs)
    right = np.mean([belief.goal == corner(worlds[name].grid) for name, belief in beliefs.items()])
    assert right > 0.9
    found = measure_beliefs(lured, beliefs, label="planted", random=("permuted", random), draws=2)
    own, true, on_map = (line(found, name) for name in ("believed goal", "goal", "believed goal on the believed map"))
    assert own.share > 0.8 and own.low > true.high and on_map.low > true.high
    assert {entry.cell["beliefs"] for entry in found.estimates} == {"planted"}
    assert [entry.grids for entry in (own, true)] == [len(tested)] * 2
    against = {(entry.first, entry.second): entry for entry in found.contrasts}
    assert list(against) == [
        ("believed goal", "goal"),
        *((f"believed goal{on}", f"believed goal{on}, {name}") for on in ("", MAP) for name in CHANCE),
    ]
    assert against["believed goal", "goal"].low > 0 and against["believed goal", "believed goal, permuted"].low > 0
    less = {f"MEG towards the believed goal{on} less {name}" for on in ("", MAP) for name in CHANCE}
    lines = {f"MEG towards the {e.hypothesis}" for e in found.estimates} - {"MEG towards the goal"}
    assert set(found.rows.measure) == lines | less
    check_differences(found)


@pytest.fixture(scope="module")
def seeking() -> list[Episode]:
    return episodes_of(Optimal(), count=60, trajectories=1)


def test_a_planted_goal_is_above_both_controls(seeking: list[Episode]) -> None:
    sides = decoded(planted(seeking, believed=False), seeking)
    found = measure_beliefs(seeking, sides["none"], label="planted", random=("permuted", sides["permuted"]), draws=5)
    controls = [entry for entry in found.contrasts if entry.second != "goal"]
    assert len(controls) == 4 and all(entry.low > 0 and entry.adjusted < 0.05 for entry in controls)
    assert all(one.signed < 0.2 * one.bound for one in found.estimates if one.hypothesis.endswith(CHANCE))
    check_differences(found)


@pytest.mark.full
def test_noise_is_not_above_its_controls(seeking: list[Episode]) -> None:
    sides = decoded(planted(seeking, believed=False, known=False), seeking)
    found = measure_beliefs(seeking, sides["none"], label="noise", random=("permuted", sides["permuted"]), draws=5)
    controls = [entry for entry in found.contrasts if entry.second != "goal"]
    assert len(controls) == 4
    assert all(entry.low <= 0 and entry.adjusted > 0.05 for entry in controls), controls
    check_differences(found)


def check_differences(found: RunDirectedness) -> None:
    """Rows of differences have the difference as their mean, and goalscope.stats pairs the two lines to the same."""
    estimated = {str(one.key["measure"]): one.estimate for one in estimate_rows(found.rows, by=())}
    measures = found.rows.measure
    for entry in found.contrasts:
        if entry.second == "goal":
            continue
        if math.isnan(entry.low):  # the corner is one cell in all worlds of a size: a shuffled belief is the same
            assert entry.difference == 0 and entry.second.endswith("shuffled")
            continue
        name = f"MEG towards the {entry.first} less {entry.second.removeprefix(entry.first)[2:]}"
        stored = estimated[name]
        assert stored.value == pytest.approx(entry.difference, abs=2e-3) and stored.clusters == entry.grids
        assert stored.low < entry.high and entry.low < stored.high and math.isfinite(stored.low)
        sides = [found.rows.where(measures == f"MEG towards the {side}") for side in (entry.first, entry.second)]
        if len(set(map(len, sides))) == 1:
            pair = paired_difference(
                sides[0].value, sides[0].cluster, sides[1].value, sides[1].cluster, unit="nats"
            ).difference
            assert (pair.value, pair.low, pair.high) == pytest.approx((stored.value, stored.low, stored.high))


@pytest.mark.full
def test_true_beliefs_are_the_true_goal_and_random_agents_seek_no_belief() -> None:
    for agent, optimal in ((Optimal(), True), (Uniform(), False)):
        episodes = episodes_of(agent, count=12)
        beliefs = {
            e.world.id: Belief(walls=e.world.grid.walls, goal=e.world.grid.goal) for e in episodes if e.world.grid.goal
        }
        found = measure_beliefs(episodes, beliefs, draws=2, label="true")
        own, true, on_map = (
            line(found, name) for name in ("believed goal", "goal", "believed goal on the believed map")
        )
        for name in ("signed", "low", "high", "bound", "n", "grids"):
            assert getattr(own, name) == getattr(true, name) == getattr(on_map, name), name
        assert all((one.beta == math.inf) if optimal else math.isnan(one.beta) for one in (own, true, on_map))
        assert (own.low <= 0 <= own.high) == (not optimal)
        whole = joined([directed(episodes, "goal", "corner top-left"), found])
        assert len(whole.estimates) == 2 + len(found.estimates) and whole.episodes == 24
        assert all(e.adjusted >= e.p_value for e in whole.contrasts) and len(whole.contrasts) == 4
        assert line(found, "believed goal, shuffled").signed < own.signed or not optimal


def test_believed_cells_in_walls_and_outside_count_as_nowhere(lured: list[Episode]) -> None:
    worlds = {e.world.id: e.world.grid for e in lured[:8]}
    for goal in ((0, 0), (9, 9)):
        found = measure_beliefs(
            lured[:8],
            {name: Belief(walls=grid.walls, goal=goal) for name, grid in worlds.items()},
            draws=2,
            label="nowhere",
        )
        assert line(found, "believed goal").signed == line(found, "believed goal").bound == 0.0
        assert line(found, "goal").bound > 0
    starts = {name: Belief(walls=grid.walls, goal=grid.start) for name, grid in worlds.items() if grid.start}
    here = measure_beliefs(lured[:8], starts, draws=2, label="here")
    assert "believed goal on the believed map" not in {entry.hypothesis for entry in here.estimates}
    with pytest.raises(ValueError, match=r"\b1 refer"):
        measure_beliefs(lured[:8], {"another": starts[next(iter(starts))]}, label="other")


def test_walls_that_are_believed_and_walked_through_leave_finite_figures() -> None:
    """Everybody believes in a wall across the room with one gap: the agents arrive sooner than the map allows."""
    grids = [Grid.parse("\n".join(" ".join(line) for line in ROOM)).at(start=(1, col)) for col in (2, 3, 4, 5)]
    episodes = [
        e for grid in grids for e in roll_out(Optimal(), GridWorld(grid=grid), seed=1, trajectories=2, horizon=16)
    ]
    walls = grids[0].walls.copy()
    walls[3, 2:] = True
    found = measure_beliefs(
        episodes, {GridWorld(grid=grid).id: Belief(walls=walls, goal=(5, 5)) for grid in grids}, draws=2, label="a wall"
    )
    on_map = line(found, "believed goal on the believed map")
    assert on_map.utility > on_map.highest_utility and on_map.share == pytest.approx(1.0) and on_map.beta == math.inf
    assert 0 < on_map.cross_fitted <= on_map.bound and math.isfinite(on_map.low) and math.isfinite(on_map.null)
    alone = [episode for episode in episodes if episode.world.grid == grids[0]]
    one = measure_beliefs(
        alone, {alone[0].world.id: Belief(walls=walls, goal=(5, 5))}, draws=2, label="a wall, in one world"
    )
    assert [entry.hypothesis for entry in one.estimates] == ["believed goal", "goal", MAP_LINE]  # no other to shuffle
    assert line(one, MAP_LINE).share == pytest.approx(1.0) and line(one, MAP_LINE).n == 2


def test_the_command_adds_lines_and_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [{"kind": "grid", "sizes": [5], "densities": [0.0, 1.0], "count": 2}]
    path = measured(tmp_path / "run", small_study(worlds=worlds, agents=[{"kind": "optimal"}], trajectories=1))

    told: dict[str, Any] = {
        "site": "pre",
        "layer": 3,
        "head": "mlp",
        "agent": HOSTILE,
        "settings": {"training grids": 1200, "test grids": 4},
        "worlds": 4,
        "decoded": {"none": {"probe": "p", "goal at its cell": 3}},
        "missing": "no random network: goalscope capture <b>x</b> --untrained 0",
    }

    def call(*words: object, status: int = 0) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == status, result.output
        return str(result.stdout if status == 0 else result.output)

    assert "--beliefs must be SITE:LAYER" in call("meg", path, "--beliefs", "pre", status=2)
    with monkeypatch.context() as patch:  # what was not captured is told before anything long is begun
        patch.setattr(goals, "directedness", lambda *_, **__: pytest.fail("curves were begun"))
        assert "nothing" in call("meg", path, "--beliefs", "pre:3", "--hypotheses", "goal", status=2)
    assert "--beliefs" in call("meg", tmp_path / "x.json", "--beliefs", "pre:3", status=2)

    def planted_beliefs(run: Path, where: str, options: dict[str, Any], draws: int, stage: Stage) -> RunDirectedness:
        from goalscope.runs import Store

        with Store(run) as store:
            episodes = [episode for episode in store.episodes() if episode.agent == "optimal"]
        grids = {episode.world.id: episode.world.grid for episode in episodes}
        held = {name: Belief(walls=grid.walls, goal=grid.goal) for name, grid in grids.items() if grid.goal}
        found = measure_beliefs(episodes, held, label=f"{where}, held-out grids", draws=draws, **options)
        return replace(found, beliefs=told | {"draws": draws})

    monkeypatch.setattr(goals, "_relative_to_beliefs", planted_beliefs)
    text = call("meg", path, "--beliefs", "pre:3", "--hypotheses", "goal", "--draws", 3)
    assert "beliefs pre:3, held-out grids" in text and "believed goal − goal" in text
    assert "believed goal − believed goal, shuffled" in text and stated("meg/shuffled", text, TEXTS)
    assert stated("meg/decoded", text, TEXTS) and all(n in text for n in ("1,200 grids", "4 others", "3 of 4 worlds"))
    assert "No random network: goalscope capture" in text and "\x1b[" not in text
    assert "--beliefs SITE:LAYER" in call("meg", path, "--draws", 3, status=2)
    plain = json.loads(call("meg", path, "--beliefs", "pre:3", "--hypotheses", "goal", "--json"))
    assert [e["hypothesis"] for e in plain["estimates"] if e["cell"]][:3] == [
        "believed goal",
        "goal",
        "believed goal, shuffled",
    ]
    assert plain["beliefs"] == told | {"draws": 20}
    call("report", path, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "MEG by hypothesis, beliefs pre:3, held-out grids" in page and "mean of 20 draws" in page
    assert "No random network: goalscope capture &lt;b&gt;x" in page and "<script>alert" not in page
    from goalscope.runs import Store

    wrongs: tuple[dict[str, Any], ...] = ({}, {"worlds": "many"}, {"settings": []}, {"decoded": {"none": 3}})
    for wrong in wrongs:
        with Store(path, "w") as store:
            store.put_info("meg", plain | {"beliefs": (told | {"draws": 20} | wrong) if wrong else []})
        assert "stored results on goals" in call("report", path, "--out", tmp_path / "page.html", status=2)
    call("meg", path, "--hypotheses", "goal")  # without beliefs nothing is said about them
    with Store(path) as store:
        assert "beliefs" not in store.info()["meg"]


def test_a_goal_that_is_believed_where_nobody_can_get_has_no_interval() -> None:
    episodes = episodes_of(Optimal(), count=8, trajectories=1)
    beliefs = {one.world.id: Belief(walls=one.world.grid.walls, goal=(0, 0)) for one in episodes}
    found = measure_beliefs(episodes, beliefs, draws=2, label="corner")
    by_name = {one.hypothesis: one for one in found.estimates}
    nowhere = by_name["believed goal"]
    assert (nowhere.signed, nowhere.bound, nowhere.method, nowhere.null_p) == (0.0, 0.0, "none", 1.0)
    assert math.isnan(nowhere.low) and math.isnan(nowhere.high)
    assert nowhere.note == "no policy changes the utility: 0 by definition"
    assert by_name["goal"].low > 0 and by_name["goal"].method != "none"
    contrasts = {one.second: one for one in found.contrasts}
    assert contrasts["goal"].high < 0
    same = contrasts["believed goal, shuffled"]
    assert same.difference == 0 and math.isnan(same.low) and same.adjusted == 1
