"""The viewer in a browser: opened as a file, filtered, stepped, asked what if, two episodes beside each other."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import goalscope
from goalscope.agents import Observation, Turn
from goalscope.inside.activations.shards import captures, load_activations
from goalscope.inside.probing.beliefs import decode_maps
from goalscope.inside.probing.pipeline import study_inside
from goalscope.inside.probing.probe import stored_probes
from goalscope.inside.probing.scores import AREA
from goalscope.measures.exploration.score import score_recorded
from goalscope.report.ledger import Run
from goalscope.runs import Store, Study, run
from goalscope.runs.study_parts import Inside
from goalscope.verdict.claims import runs_in
from goalscope.verdict.viewer import view, write_view
from goalscope.verdict.viewer.collect import _Shard, _world
from goalscope.verdict.viewer.inside import read_inside
from goalscope.verdict.viewer.page import SCRIPT
from goalscope.worlds import Action, GridWorld, State, dynamics
from goalscope.worlds.dynamics import settle
from goalscope.worlds.planning.shortest import solve
from goalscope.worlds.thing_check import grid_with
from measured_runs import measured, small_study
from thing_grids import all_names, plugin_things

pytestmark = pytest.mark.full
api: Any = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
BROWSER = os.environ.get("GOALSCOPE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")

LONG = "word " * 200_000  # 1 MB
HOSTILE = [
    "<script>document.title = 'taken'</script>",
    "</textarea></pre></script><img src=x onerror=\"document.title='taken'\">",
    "[here](javascript:alert(1)) <a href='javascript:alert(1)'>here</a>",
    "right \u202e to left \u2066 apart \u200b none",
    LONG,
]


class Hostile:
    """Goes right and writes what would do harm if it were more than text."""

    journalled = False
    name = "<b onmouseover=alert(1)>hostile</b>"

    def describe(self) -> dict[str, Any]:
        return {"kind": "hostile"}

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        return [
            Turn(action=Action.RIGHT, text=HOSTILE[seen.step % len(HOSTILE)], reasoning=HOSTILE[(seen.step + 1) % 5])
            for seen in observations
        ]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        try:
            one = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        except api.Error as error:
            pytest.skip(f"no Chromium to test the viewer with: set GOALSCOPE_BROWSER to one ({str(error)[:80]})")
        yield one
        one.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page whose console must stay silent, and which must ask for no address."""
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    one = context.new_page()
    said: list[str] = []
    one.on("console", lambda message: said.append(message.text))
    one.on("pageerror", lambda error: said.append(str(error)))
    one.on("request", lambda request: None if request.url.startswith("file:") else said.append(request.url))
    yield one
    context.close()
    assert said == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("viewer")


@pytest.fixture(scope="module")
def run_directory(folder: Path) -> Path:
    return measured(folder / "run", small_study())


@pytest.fixture(scope="module")
def viewed(run_directory: Path, folder: Path) -> Path:
    return write_view([run_directory], folder / "page.html").page


def episodes_of(directory: Path, **equal: Any) -> list[dict[str, Any]]:
    found = Run(directory).episodes()
    return [one for one in found if all(one[name] == value for name, value in equal.items())]


def short(identity: str) -> str:
    return identity.removeprefix("episode-")[:12]


def at_step(page: Any, step: int | str) -> None:
    """Wait until a step is drawn: a key press is followed by a drawing of its own."""
    page.locator(f"output[data-step='{step}']").wait_for(timeout=10_000)


def cells(page: Any) -> dict[str, str]:
    return dict(page.locator("[data-what]").evaluate_all("all => all.map(one => [one.dataset.what, one.textContent])"))


@pytest.mark.parametrize("most", [20_000_000, 0], ids=["one file", "shards"])
def test_a_run_is_filtered_stepped_and_addressed(run_directory: Path, folder: Path, page: Any, most: int) -> None:
    path = write_view([run_directory], folder / f"page-{most}.html", most=most).page
    page.goto(path.as_uri())
    page.locator("details.fold > summary").click()  # filters are folded until somebody uses them
    page.locator("[data-filter=agent]").select_option("random")
    wanted = episodes_of(run_directory, agent="random")
    assert page.locator(".count").get_attribute("data-count") == str(len(wanted))
    page.locator("[data-filter=size]").select_option("7")
    wanted = episodes_of(run_directory, agent="random", size=7)
    assert page.locator(".count").get_attribute("data-count") == str(len(wanted))
    page.locator("[data-filter=order]").select_option("steps")
    page.locator(".rows .row").first.click()
    identity = page.locator("article").get_attribute("data-id")
    most_steps = max(one["steps"] for one in wanted)
    assert next(one["steps"] for one in wanted if one["episode_id"] == identity) == most_steps
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    at_step(page, "2")
    steps = Run(run_directory).steps(identity)
    assert page.locator(".action strong").text_content() == steps[2]["action"]
    address = page.url
    page.keyboard.press("End")
    at_step(page, most_steps)
    page.goto("about:blank")
    page.goto(address)
    assert page.locator("article").get_attribute("data-id") == identity
    at_step(page, "2")


def test_a_moved_wall_and_goal_change_the_answer_as_the_exact_solution_says(
    run_directory: Path, viewed: Path, page: Any
) -> None:
    chosen = episodes_of(run_directory, agent="random", size=7, density=0.0)[0]
    with Store(run_directory) as store:
        (episode,) = store.episodes([chosen["episode_id"]])
    grid = episode.world.grid
    page.goto(f"{viewed.as_uri()}#e={short(chosen['episode_id'])}")
    page.locator("[data-switch=what-if]").check()

    def expected(changed: Any) -> dict[str, str]:
        paths, state = solve(changed), settle(changed, changed.start)
        steps = paths.steps_from(state)
        moves = ", ".join(action.name for action in Action if paths.optimal_in(state)[action])
        return {"steps": "out of reach" if steps < 0 else str(steps), "moves": moves or "none"}

    assert cells(page) == expected(grid)
    walls = grid.walls.copy()
    free = [tuple(cell) for cell in np.argwhere(~walls).tolist() if tuple(cell) not in (grid.start, grid.goal)]
    for row, col in free[::3]:
        page.locator(f".whatif [data-cell='{row},{col}']").click()
        walls[row, col] = True
        assert cells(page) == expected(grid.at(walls=walls))
    row, col = next(cell for cell in free[::-1] if not walls[cell])
    page.locator("[data-tool=goal]").click()
    page.locator(f".whatif [data-cell='{row},{col}']").click()
    assert cells(page) == expected(grid.at(walls=walls, goal=(row, col)))


def test_the_solver_of_the_page_agrees_with_that_of_goalscope_on_keys_and_doors(viewed: Path, page: Any) -> None:
    worlds = [
        {"kind": "grid", "sizes": [7], "densities": [0.5, 1.0], "count": 4},
        {"kind": "key-door", "count": 6},
        {"kind": "key-no-door", "count": 4},
    ]
    study = Study.parse({"worlds": worlds, "agents": [{"kind": "random"}]})
    page.goto(viewed.as_uri())
    seen = set()
    for world in study.worlds():
        grid = world.grid
        paths = solve(grid)
        record: dict[str, Any] = {
            "rows": ["".join("#" if wall else "_" for wall in row) for row in grid.walls.tolist()]
        }
        record |= {name: list(cell) for name, cell in grid.objects.items() if cell is not None}
        script = "grid => { const s = goalscopeSolver.solve(grid); return [[...s.distance], [...s.optimal]]; }"
        distance, optimal = page.evaluate(script, record)
        seen.add(len(paths.distance))
        for phase in range(len(paths.distance)):
            for row, col in np.argwhere(~grid.walls).tolist():
                if (row, col) == grid.door and phase < 2:
                    continue
                state = settle(grid, (row, col), phase > 0, phase > 1)
                number = (min(state.phase, len(paths.distance) - 1) * grid.height + row) * grid.width + col
                bits = sum(1 << action for action in range(4) if paths.optimal_in(state)[action])
                assert (distance[number], optimal[number]) == (paths.steps_from(state), bits)
    assert seen == {1, 2, 3}


@pytest.mark.parametrize("name", all_names())
def test_the_solver_of_the_page_agrees_with_that_of_goalscope_among_things(name: str, viewed: Path, page: Any) -> None:
    page.goto(viewed.as_uri())
    script = """([grid, phases, agent]) => {
        const s = goalscopeSolver.solve(grid);
        const states = phases.map(phase => [...goalscopeSolver.statesOf(grid, phase, agent)]);
        return [[...s.distance], [...s.optimal], states];
    }"""
    moved = 0
    with plugin_things():
        for seed in range(8):
            grid = grid_with(name, seed)
            record = _world(GridWorld(grid=grid), _Shard())["grid"]
            closed = {grid.start, grid.goal, grid.key, grid.door, *dict(grid.things)}
            for goal in (grid.goal, *[cell for cell in open_cells(grid) if cell not in closed][::5]):
                other, moved = grid.at(goal=goal), moved + (goal != grid.goal)
                numbers = list(range(len(dynamics.configurations(other))))
                changed = {**record, "goal": goal}
                distance, optimal, states = page.evaluate(script, [changed, numbers, grid.start])
                paths = solve(other)
                assert distance == paths.distance.ravel().tolist()
                assert optimal == (paths.optimal.reshape(-1, 4) @ [1, 2, 4, 8]).tolist()
                for number in numbers[:: 1 + len(numbers) // 4]:
                    assert states[number] == arrivals(other, number)
    assert moved > 20


def open_cells(grid: Any) -> list[Any]:
    return [tuple(cell) for cell in np.argwhere(~grid.walls).tolist()]


def arrivals(grid: Any, number: int) -> list[int]:
    """Return the state in which an agent that is anywhere in a configuration arrives at each cell by one move.

    It is -1 if there is none, or if it depends on the move. In the cell of the start, the agent stands already.
    """
    flags, after = dynamics.configurations(grid)[number], dict[Any, set[State]]()
    for cell in open_cells(grid):
        state = dynamics.state_with(flags, cell)
        if not dynamics.solid_cells(grid, state)[cell]:
            for other in (dynamics.step(grid, state, action) for action in Action):
                if other.position != cell:
                    after.setdefault(other.position, set()).add(other)
    after[grid.start] = {dynamics.state_with(flags, grid.start)}
    numbers = np.full(grid.walls.shape, -1)
    for cell, states in after.items():
        if len(states) == 1:
            numbers[cell] = dynamics.state_number(grid, *states)
    result: list[int] = numbers.ravel().tolist()
    return result


def test_among_things_goal_and_agent_can_be_moved_and_nothing_else(folder: Path, page: Any) -> None:
    entry = {"kind": "grid", "sizes": [7], "densities": [0.2], "count": 2}
    things = ["red key", "chest", "lava", "coin"]
    directory = folder / "things"
    run(Study.parse({"worlds": [{**entry, "things": things}], "agents": [{"kind": "optimal"}]}), directory)
    path = write_view([directory], folder / "things.html").page
    with Store(directory) as store:
        episode = next(one for one in store.episodes() if len(one.steps) > 2)
    grid: Any = episode.world.grid
    page.goto(f"{path.as_uri()}#e={short(episode.id)}&s={len(episode.steps)}")
    page.locator("[data-switch=what-if]").check()
    assert set(page.locator("[data-tool]").evaluate_all("all => all.map(one => one.dataset.tool)")) == {"goal", "agent"}
    closed = [cell for cell, _ in grid.things]
    goal = next(cell for cell in open_cells(grid) if cell not in [*closed, grid.goal])
    for cell in [*closed, goal]:  # no goal on a thing
        page.locator(f".whatif [data-cell='{cell[0]},{cell[1]}']").click()
    steps = solve(grid.at(goal=goal, start=None)).steps_from(episode.final)
    assert cells(page)["steps"] == ("out of reach" if steps < 0 else str(steps))


def test_two_episodes_stand_side_by_side_and_part_where_their_records_part(
    run_directory: Path, viewed: Path, page: Any
) -> None:
    first = episodes_of(run_directory, agent="optimal", size=7)[0]
    others = episodes_of(run_directory, agent="random", world_id=first["world_id"])
    reader = Run(run_directory)
    moves = [[step["action"] for step in reader.steps(one["episode_id"])] for one in (first, others[0])]
    least = min(map(len, moves))
    parting = next((at for at in range(least) if moves[0][at] != moves[1][at]), least)
    page.goto(f"{viewed.as_uri()}#e={short(first['episode_id'])}")
    page.locator("[data-filter=beside]").select_option(short(others[0]["episode_id"]))
    page.locator("[data-go=parting]").click()
    assert page.locator("article").count() == 2
    at_step(page, parting)
    assert page.url.endswith(f"b={short(others[0]['episode_id'])}")


def test_hostile_texts_are_shown_as_text(folder: Path, page: Any) -> None:
    study = small_study(trajectories=1, worlds=[{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 1}])
    directory = folder / "hostile"
    run(study, directory, agents=[Hostile()])
    path = write_view([directory], folder / "hostile.html").page
    (one, *_) = episodes_of(directory)
    page.goto(f"{path.as_uri()}#e={short(one['episode_id'])}")
    assert page.locator(".agent-name").text_content() == Hostile.name
    for step in range(5):
        at_step(page, step)
        shown = page.locator("section", has_text="Answer").locator("pre").first.text_content()
        answer = HOSTILE[step]
        assert shown == answer.translate({ord(sign): f"⟨U+{ord(sign):04X}⟩" for sign in "\u202e\u2066\u200b"})
        page.keyboard.press("ArrowRight")
    assert page.locator("main a, main script, main img, main textarea, main b").count() == 0
    assert page.title() == "hostile: episodes"


def test_a_task_map_has_its_graph_and_an_environment_its_layout(folder: Path, page: Any) -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    tasks = {"kind": "task-map", "presets": ["high-small"], "count": 1}
    run(Study.parse({"worlds": [tasks], "agents": [{"kind": "task-greedy"}]}), folder / "tasks")
    lakes = {"kind": "gymnasium", "environments": ["FrozenLake-v1"], "options": {"is_slippery": False}}
    run(Study.parse({"worlds": [lakes], "agents": [{"kind": "environment-optimal"}]}), folder / "lake")
    path = write_view([folder / "tasks", folder / "lake"], folder / "both.html").page
    task, lake = episodes_of(folder / "tasks")[0], episodes_of(folder / "lake")[0]
    page.goto(f"{path.as_uri()}#e={short(task['episode_id'])}&s=999")
    page.locator("article").wait_for()
    page.keyboard.press("ArrowLeft")
    assert page.locator(".graph .node.achieved").count() >= 1
    with Store(folder / "tasks") as store:
        world: Any = next(iter(store.worlds()))
    assert page.locator(".cells .label").count() == len(world.task_map.nodes)
    page.goto("about:blank")
    page.goto(f"{path.as_uri()}#e={short(lake['episode_id'])}")
    page.locator(".cells").wait_for()
    assert page.locator(".cells [data-cell]").count() == 16
    assert page.locator(".cells text.symbol", has_text="H").count() == 4


def test_claims_of_two_models_lead_to_episodes(folder: Path, page: Any) -> None:
    place = folder / "evaluation"
    goalscope.evaluate(["optimal", "random"], place, arms=["grids"], quick=True, sizes=[5], seed=7)
    page.goto(write_view([place], folder / "evaluation.html").page.as_uri())
    page.locator(".claims summary").click()
    claim = page.locator(".claim[data-claim='acts optimally']", has_text="random")
    link = claim.locator("[data-episode]").last
    identity = link.get_attribute("data-episode")
    link.click()
    assert page.locator("article").get_attribute("data-id") == identity
    held = [run for run in runs_in(place).values() if identity in {e["episode_id"] for e in run.episodes()}]
    rows = held[0].rows(measure="action accuracy", agent="random")
    values = dict(zip(rows.episode_id.tolist(), rows.value.tolist(), strict=True))
    assert values[identity] <= float(np.median(list(values.values())))


@pytest.mark.parametrize("width", [390, 1300])
def test_nothing_is_cut(viewed: Path, browser: Any, run_directory: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    one = context.new_page()
    chosen = episodes_of(run_directory, agent="random", size=7)[0]
    for address in ("", f"#e={short(chosen['episode_id'])}&s=1"):
        one.goto("about:blank")
        one.goto(viewed.as_uri() + address)
        one.locator(".count").wait_for(state="attached")
        sizes = json.loads(
            one.evaluate(
                "JSON.stringify([...document.querySelectorAll('html, main, table, svg')]"
                ".map(e => [e.scrollWidth, e.clientWidth || e.scrollWidth]))"
            )
        )
        assert all(scrolled <= seen for scrolled, seen in sizes)
    context.close()


def test_the_widget_of_a_notebook_shows_the_page_and_says_what_is_looked_at(run_directory: Path, browser: Any) -> None:
    pytest.importorskip("anywidget", reason="the extra notebook is not installed")
    first, second = episodes_of(run_directory, agent="optimal", size=7)[:2]
    widget = view(run_directory, episode=first["episode_id"], step=1)
    state = {name: getattr(widget, name) for name in ("page", "episode", "step", "height")}
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    one = context.new_page()
    said: list[str] = []
    one.on("console", lambda message: said.append(message.text))
    one.evaluate(
        """async ([script, state]) => {
          const widget = (await import("data:text/javascript," + encodeURIComponent(script))).default;
          globalThis.state = state;
          widget.render({ model: { get: name => state[name], set: (name, value) => { state[name] = value; },
            save_changes: () => {} }, el: document.body });
        }""",
        [widget._esm if isinstance(widget._esm, str) else SCRIPT, state],
    )
    frame = one.frame_locator("iframe")
    assert frame.locator("article").get_attribute("data-id") == first["episode_id"]
    assert frame.locator("output").get_attribute("data-step") == "1"
    frame.locator(f".row[data-id='{second['episode_id']}']").click()
    one.wait_for_function("id => state.episode === id && state.step === 0", arg=second["episode_id"])
    assert said == []
    context.close()


def test_the_first_actions_in_changed_versions_of_a_state_are_beside_each_other(folder: Path, page: Any) -> None:
    worlds = [
        {"kind": "changed", "of": [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 4}], "moved": ["goal"]}
    ]
    study = Study.parse(
        {"worlds": worlds, "agents": [{"kind": "optimal"}, {"kind": "random"}], "horizon": {"steps": 1}}
    )
    run(study, folder / "changed")
    page.goto(write_view([folder / "changed"], folder / "changed.html").page.as_uri())
    page.locator("details.fold > summary").click()
    page.locator("[data-filter=agent]").select_option("optimal")
    page.locator("[data-filter=turned]").select_option("goal")
    reader = Run(folder / "changed")
    first = {one["episode_id"]: reader.steps(one["episode_id"])[0]["action"] for one in reader.episodes()}
    with Store(folder / "changed") as store:
        episodes = [one for one in store.episodes() if one.agent == "optimal"]
    states: dict[str, dict[str, list[str]]] = {}
    for one in episodes:
        world: Any = one.world
        states.setdefault(world.original, {}).setdefault(f"{world.moved} {world.id}", []).append(one.id)
    turned = set()
    for versions in states.values():
        (before,) = [ids for name, ids in versions.items() if name.startswith("nothing")]
        taken = {first[one] for one in before}
        turned |= {one for name, ids in versions.items() if not taken & {first[i] for i in ids} for one in ids}
    assert page.locator(".count").get_attribute("data-count") == str(len(turned)) and turned
    page.locator(".rows .row").first.click()
    shown = page.locator(".reactions [data-episode]")
    here = page.locator("article").get_attribute("data-id")
    (beside,) = [versions for versions in states.values() if any(here in ids for ids in versions.values())]
    assert {one for ids in beside.values() for one in ids} == set(
        shown.evaluate_all("all => all.map(one => one.dataset.episode)")
    )


def test_errors_of_a_task_are_counted_up_to_the_step(folder: Path, page: Any) -> None:
    tasks = {"kind": "task-map", "presets": ["high-small"], "count": 2}
    run(Study.parse({"worlds": [tasks], "agents": [{"kind": "task-random-walk"}], "seed": 3}), folder / "errors")
    with Store(folder / "errors") as store:
        chosen = max(store.episodes(), key=lambda one: len(one.steps))
    score = score_recorded(chosen)
    path = write_view([folder / "errors"], folder / "errors.html").page
    for step in (0, len(chosen.steps) // 2, len(chosen.steps)):
        page.goto("about:blank")
        page.goto(f"{path.as_uri()}#e={short(chosen.id)}&s={step}")
        curves = page.locator(".curves [data-errors]")
        curves.first.wait_for(state="attached")
        told = curves.evaluate_all("all => all.map(one => Number(one.dataset.errors))")
        before = [one.attribution for one in score.steps[:step]]
        assert told == [sum(kind in one for one in before) for kind in ("exploration", "exploitation")]


def test_a_decoded_map_stands_beside_that_of_a_random_network_and_a_wrong_one_is_found(folder: Path, page: Any) -> None:
    pytest.importorskip("torch", reason="the extra lm is not installed")
    grids = [{"kind": "grid", "sizes": [7], "densities": [0.6], "count": 10}]
    study = Study.parse({"worlds": grids, "agents": [{"kind": "chat", "model": "theseus"}], "horizon": {"steps": 3}})
    place = folder / "inside"
    run(study, place)
    kinds = {"random": {"kinds": ["permuted"], "seeds": 1}, "by_size": False, "steps": 1, "test": 0.4}
    decoders = {"layers": [2], "width": 32, "feedforward": 64, "epochs": 2}
    reads = {"reads": ["cognitive-map", "plans"], "sites": ["pre"], "layers": [4], "decoders": decoders}
    study_inside(place, Inside.parse({**reads, **kinds}))
    # Probes of another split, which were fitted on grids that are tested now, stay stored and are not taken.
    study_inside(place, Inside.parse({"reads": ["cognitive-map"], "sites": ["pre"], "layers": [4], **kinds, "seed": 9}))
    study_inside(place, Inside.parse({**reads, **kinds}))
    with Store(place) as store:
        found = read_inside(store)
        named = store.rows().select(measure=AREA, head="percell", control="none", reading="natural")
        (identity,) = set(named["probe"].tolist())
        (probe,) = (one for _, one in stored_probes(place) if one.id == identity)
        own = [one for one in captures(store) if one.untrained is None]
        taken = [load_activations(store, site="pre", layer=4, capture=one.id) for one in own]
    percell = [one for _, one in stored_probes(place) if (one.head, one.tags["control"]) == ("percell", "none")]
    assert len(own) == len(percell) == 2
    for read in taken:
        decoded = decode_maps(probe.predict(read).maps("natural"))
        for at, key in enumerate(zip(read.episode_id.tolist(), read.step.tolist(), strict=True)):
            if key in found.maps:
                assert found.maps[key].own == tuple(line[:7] for line in decoded.text(at)[:7])
    assert found.maps and "permuted" in found.about["cells"]
    page.goto(write_view([place], folder / "inside.html").page.as_uri())
    page.locator("details.fold > summary").click()
    page.locator("[data-filter=belief]").select_option("decoded")
    assert page.locator(".count").get_attribute("data-count") == str(len({episode for episode, _ in found.maps}))
    page.locator("[data-filter=order]").select_option("belief")
    page.locator(".rows .row").first.click()
    page.locator(".beliefs").wait_for()
    here = str(page.locator("article").get_attribute("data-id"))
    wrong = {episode: one.wrong for (episode, _), one in found.maps.items()}
    assert wrong[here][0] == max(own for own, _ in wrong.values())
    maps = page.locator("[data-decoded]")
    assert maps.count() == 2
    for at, rows in enumerate((found.maps[here, 0].own, found.maps[here, 0].control)):
        cells_shown = maps.nth(at).locator("rect").evaluate_all("all => all.map(one => one.getAttribute('class'))")
        assert [one == "wall" for one in cells_shown] == [symbol == "#" for row in rows for symbol in row]
        assert f"{100 * wrong[here][at]:.1f} % of the cells wrong" in str(maps.nth(at).text_content())
    plans = page.locator(".plan tr")
    for at in (0, 1):
        decoded = plans.nth(at).locator("span").all_text_contents()
        assert decoded == ["↑↓←→"[action] for action in found.plans[here, 0][at]]
    page.locator(".tokens summary").click()
    read = page.locator(".strip .read")
    read.first.wait_for()
    assert read.count() == len(found.sites[here, 0]["pre"])


def test_two_runs_stand_side_by_side_and_go_on_together_where_they_part(folder: Path, page: Any) -> None:
    grids = [{"kind": "grid", "sizes": [7], "densities": [0.6], "count": 3}]
    for name, agent in (("first", {"kind": "optimal"}), ("second", {"kind": "epsilon-greedy", "epsilon": 0.6})):
        run(Study.parse({"worlds": grids, "agents": [agent], "seed": 4, "trajectories": 1}), folder / name)
    path = write_view([folder / "first", folder / "second"], folder / "runs.html").page
    one = next(
        mine
        for mine in episodes_of(folder / "first")
        for other in episodes_of(folder / "second", world_id=mine["world_id"])
        if [step["action"] for step in Run(folder / "first").steps(mine["episode_id"])]
        != [step["action"] for step in Run(folder / "second").steps(other["episode_id"])]
    )
    (other,) = episodes_of(folder / "second", world_id=one["world_id"])
    page.goto(f"{path.as_uri()}#e={short(one['episode_id'])}&b={short(other['episode_id'])}")
    page.locator("[data-go=parting]").click()
    columns = page.locator("article")
    assert [columns.nth(at).get_attribute("data-id") for at in (0, 1)] == [one["episode_id"], other["episode_id"]]
    assert "run first" in str(columns.nth(0).text_content()) and "run second" in str(columns.nth(1).text_content())
    step = int(str(page.locator("output").get_attribute("data-step")))
    taken = [Run(folder / name).steps(each["episode_id"]) for name, each in (("first", one), ("second", other))]
    assert [s["action"] for s in taken[0][:step]] == [s["action"] for s in taken[1][:step]]
    actions = [str(columns.nth(at).locator(".action strong").text_content()) for at in (0, 1)]
    assert actions[0] != actions[1]
