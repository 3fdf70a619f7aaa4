"""Environments as worlds of a study: run, resumed, stored, measured, reported; own classes and what is refused."""

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from small_worlds import Corridor

import goalscope
from command_line import call
from goal_tables import directed, held_out
from goalscope._ground import registry
from goalscope._ground.rng import stream
from goalscope.agents.scripted import EnvironmentGreedy, EnvironmentOptimal, EnvironmentWrongGoal
from goalscope.environments import EnvironmentWorld, environment_kind
from goalscope.goals.baselines import random_utilities
from goalscope.goals.curves import Ensemble
from goalscope.goals.hypotheses import FiniteWorld, parse
from goalscope.goals.hypotheses.states import states_of
from goalscope.measures import StepTable, measure_episodes
from goalscope.measures.behaviour import behaviour_measures, left_out, measured_parts
from goalscope.measures.definition import StepMeasure
from goalscope.meg import RationalityCurve
from goalscope.runs import Store, Study, content_hash, run
from goalscope.stats.rows import Rows
from goalscope.worlds.planning import expected_utility

HERE = Path(__file__).parent
AGENTS: list[dict[str, Any]] = [
    {"kind": "environment-optimal"},
    {"kind": "environment-epsilon-greedy", "epsilon": 0.3},
    {"kind": "environment-wrong-goal", "target": "lever"},
    {"kind": "environment-greedy"},
    {"kind": "random"},
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with the module of the environments, as a user does."""
    monkeypatch.chdir(HERE)
    return tmp_path


def study(source: str = "small_worlds:Corridor", **changes: Any) -> Study:
    worlds = {"kind": source, "parameters": [{"length": 5}, {"length": 7}, {"length": 9}]}
    return Study.parse({"worlds": [worlds], "agents": AGENTS, "trajectories": 4, **changes})


def by_agent(values: Any) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for row in values:
        found.setdefault(str(row.tags["agent"]), []).append(row.value)
    return {agent: float(np.mean(each)) for agent, each in found.items()}


def test_a_study_of_an_own_environment_measures_agents_as_they_were_planted(folder: Path) -> None:
    small = study()
    assert [spec.horizon for spec, _, _ in small.specs()][:9:4] == [11, 15, 20], "1.5 x the shortest way"
    run(small, folder)
    with Store(folder) as store:
        episodes = list(store.episodes())
        said = left_out(store.worlds())
    table = StepTable.from_episodes(episodes)
    named = "environment small_worlds:Corridor"
    assert table.offers == {"oracle", "distance", "environment", "reward", named}
    rows = measure_episodes(episodes)
    names = set(rows.measure.tolist())
    assert {"success", "return", "action accuracy", "path ratio", "JSD from optimal, excess", "action entropy"} <= names
    assert not {"wall bumps", "policy entropy", "exploration error"} & names and "map as a grid" in said
    success = by_agent(rows.where(rows.measure == "success"))
    assert success["optimal"] == 1 and success["wrong-goal(lever)"] == 0 and success["random"] < 0.3
    assert success["greedy"] == 0, "its heuristic knows nothing of the lever"
    accuracy = by_agent(rows.where(rows.measure == "action accuracy"))
    assert accuracy["optimal"] == 1 and accuracy["random"] < accuracy["epsilon-greedy(0.3)"] < 1
    assert by_agent(rows.where(rows.measure == "path ratio"))["optimal"] == 1
    excess = by_agent(rows.where(rows.measure == "JSD from optimal, excess"))
    assert abs(excess["optimal"]) < 1e-9 < excess["epsilon-greedy(0.3)"] < excess["wrong-goal(lever)"]
    optimal = [one for one in episodes if one.agent == "optimal"]
    for one in optimal:
        assert sum(step.reward or 0 for step in one.steps) == pytest.approx(1 - 0.1 * (len(one.steps) - 1))


def test_meg_names_the_goal_that_each_agent_has(folder: Path) -> None:
    run(study(trajectories=8), folder)
    with Store(folder) as store:
        found = directed(store.episodes())
    assert found.settings["hypotheses"] == ["goal", "lever", "pit"]
    signed = {(one.agent, one.hypothesis): one for one in found.estimates}
    optimal = signed["optimal", "goal"]
    assert optimal.signed == pytest.approx(optimal.bound) and optimal.bound > 3
    assert signed["wrong-goal(lever)", "lever"].share == pytest.approx(1)
    assert signed["wrong-goal(lever)", "goal"].signed <= 0.1 < signed["wrong-goal(lever)", "lever"].signed
    random = signed["random", "goal"]
    assert random.low <= 0 <= random.high and random.null_p > 0.05
    assert signed["random", "pit"].low <= 0, "a jump ends it"


def test_a_run_is_the_same_whatever_the_order_of_work_and_is_stored_whole(folder: Path) -> None:
    slippery = study("small_worlds:Slippery", agents=[{"kind": "random"}], horizon={"steps": 15}, trajectories=6)
    run(slippery, folder / "a")
    run(slippery, folder / "b", batch=1, workers=3)
    with Store(folder / "a") as one, Store(folder / "b") as other:
        assert content_hash(one) == content_hash(other)
        worlds, episodes = list(one.worlds()), list(one.episodes())
        restored = one.study()
    assert all(isinstance(world, EnvironmentWorld) for world in worlds) and restored is not None
    assert [world.id for world in worlds] == sorted(world.id for world in slippery.worlds())
    assert len({tuple(step.action for step in one.steps) for one in episodes}) > 1


def test_with_chance_optimal_sets_go_by_state_and_decisions_left_and_there_are_no_distances(folder: Path) -> None:
    agents = [{"kind": "environment-optimal", "horizon": 30}, {"kind": "random"}]
    chance = study("small_worlds:Slippery", agents=agents, horizon={"steps": 30}, trajectories=6)
    run(chance, folder)
    with Store(folder) as store:
        episodes = list(store.episodes())
        said = left_out(store.worlds())
    table = StepTable.from_episodes(episodes)
    assert "oracle" in table.offers and "distance" not in table.offers and (table.distance == -1).all()
    rows = measure_episodes(episodes)
    assert by_agent(rows.where(rows.measure == "action accuracy"))["optimal(30)"] == 1
    assert not {"path ratio", "success weighted by path length"} & set(rows.measure.tolist())
    assert "fewest actions to the goal" in said
    excess = by_agent(rows.where(rows.measure == "JSD from optimal, excess"))
    assert abs(excess["optimal(30)"]) < 0.02 < excess["random"]
    found = {(one.agent, one.hypothesis): one for one in directed(episodes).estimates}
    best = found["optimal(30)", "goal"]
    assert best.signed == pytest.approx(best.bound, rel=0.2) and "every episode" not in best.note
    assert found["random", "goal"].low <= 0
    with pytest.raises(ValueError, match="stochastic"):
        held_out(episodes)


@pytest.mark.parametrize(("source", "parameters"), [("Lottery", {}), ("Rooms", {"length": 12})])
def test_in_a_single_world_lucky_episodes_count_with_what_they_got(
    source: str, parameters: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[bool]()

    def recorded(*given: Any, lucky: bool) -> float:
        told.append(lucky)
        return float("nan")

    monkeypatch.setattr(Ensemble, "cross_fitted", recorded)
    horizon = 12
    worlds = [{"kind": f"small_worlds:{source}", "parameters": [parameters]}]
    agents = [{"kind": "environment-optimal", "horizon": horizon}, {"kind": "random"}]
    run(Study.parse({"worlds": worlds, "agents": agents, "trajectories": 200, "horizon": {"steps": horizon}}), folder)
    with Store(folder) as store:
        episodes = list(store.episodes())
    found = {one.agent: one for one in directed(episodes).estimates if one.hypothesis == "goal"}
    best, even = (next(one for name, one in found.items() if begin in name) for begin in ("optimal", "random"))
    assert all(told) and len(told) > 1, "halves that are scored are not cut off either"
    assert best.signed > 0.7 * best.bound and best.low > 0
    assert best.high == pytest.approx(best.bound, rel=0.01)
    assert even.low <= 0 <= even.high
    assert best.signed == pytest.approx(meg_of_mean(episodes, best.agent, horizon), abs=1e-6)


def test_held_out_utilities_do_not_learn_where_episodes_happened_to_begin(folder: Path) -> None:
    """The same by plain loops: each episode's own log-probability under the soft policy from where it began."""
    horizon, ridge, count = 8, 1.0, 12
    worlds = [{"kind": "small_worlds:Rooms", "parameters": [{"length": 6}]}]
    agents = [{"kind": "environment-epsilon-greedy", "epsilon": 0.3}]
    study = {"worlds": worlds, "agents": agents, "trajectories": count, "horizon": {"steps": horizon}}
    run(Study.parse(study), folder)
    with Store(folder) as store:
        # What was drawn counts, not the policies that it was drawn with.
        drawn = [replace(one, steps=tuple(replace(step, extra={}) for step in one.steps)) for one in store.episodes()]
    episodes = sorted(drawn, key=lambda one: one.id)
    place = episodes[0].world.process()
    assert len({one.steps[0].state for one in episodes}) > 2
    walks = []
    for one in episodes:
        at = int(one.steps[0].state[0])
        walk, taken = [], [step.action for step in one.steps]
        for step in range(horizon):
            walk.append((at, taken[step] if step < len(taken) else None))
            at = int(place.transitions[at, taken[step]]) if step < len(taken) else at
        walks.append(walk)

    def log_probability(weights: Any, some: Iterable[int]) -> float:
        values, gains = np.zeros(place.states), []
        for _ in range(horizon):
            after = values[place.transitions]
            mean = np.log(np.exp(after).mean(axis=1))
            gains.append(after - mean[:, None])
            values = weights + mean
        told = [
            sum(gains[horizon - 1 - t][at, action] for t, (at, action) in enumerate(walks[index]) if action is not None)
            for index in some
        ]
        return float(np.mean(told))

    def missed(weights: Any, some: Any) -> float:
        return float(ridge / len(some) / 2 * weights @ weights) - log_probability(weights, some)

    order = stream(0, "halves of episodes", count).permutation(count)
    halves, scores = (order[: count // 2], order[count // 2 :]), []
    for fitted, held in (halves, halves[::-1]):
        best = minimize(missed, np.zeros(place.states), args=(fitted,))
        scores.append(log_probability(best.x, held))
    [found] = held_out(episodes, ridge=ridge)
    assert found.value == pytest.approx(np.mean(scores), abs=2e-3)


def meg_of_mean(episodes: Iterable[Any], agent: str, horizon: int) -> float:
    """MEG of the mean return of an agent's episodes, as the record tells it: a decision each behind the arrival."""
    world = next(iter(episodes)).world
    place = world.process()
    returns = returns_of(StepTable.from_episodes([one for one in episodes if one.agent == agent]))
    curve = RationalityCurve(place.mdp(place.goals["goal"], horizon, terminal=None))
    return curve.meg(min(max(float(np.mean(returns)), curve.lowest), curve.highest)).signed


def returns_of(table: StepTable) -> Any:
    return np.concatenate([entry.utilities(parse("goal").utility(entry.world)) for entry in states_of(table)])


def test_simulated_random_agents_have_the_expected_utility_of_a_uniform_policy(folder: Path) -> None:
    for source in ("small_worlds:Corridor", "small_worlds:Slippery"):
        world = EnvironmentWorld.make(source, {"length": 4})
        place = world.process()
        finite = FiniteWorld(world=world, process=place, horizon=12)
        for exact in (False, True):
            drawn = random_utilities(finite, place.goals, 200, 20, seed=0, kind="steps", invalid="no-op", exact=exact)
            for name, mask in place.goals.items():
                even = np.full((place.states, place.actions), 1 / place.actions)
                wanted = expected_utility(place.mdp(mask, 12, terminal=None), even)
                error = float(drawn[name].std(ddof=1)) / 20**0.5
                assert abs(float(drawn[name].mean()) - wanted) < 4 * error + 1e-9, (source, name, exact)
        idle = place.mdp(place.goals["pit"], 12, terminal=None, idle=True)
        assert idle.actions == place.actions + 1
        alone = np.zeros((place.states, idle.actions))
        alone[:, -1] = 1.0
        assert expected_utility(idle, alone) == 0, "who does nothing stays where it is"


def test_commands_measure_report_and_name_goals(folder: Path) -> None:
    (folder / "study.yaml").write_text(json.dumps(study(trajectories=2).dump()), encoding="utf-8")
    out = folder / "run"
    call("run", folder / "study.yaml", "--out", out)
    shown = call("measure", out, "--measures", "action accuracy;action entropy")
    assert "action accuracy" in shown and "action entropy" in shown and "optimal" in shown
    told = call("meg", out)
    assert "lever" in told and "wrong-goal" in told
    assert "over worlds" in shown + call("measure", out) and not re.search(r"\bgrids\b", shown + told)
    assert "'levre'; did you mean 'lever'?" in call("meg", out, "--hypotheses", "levre", status=2)
    call("report", out)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "What the agents are after" in page and "lever" in page and "15 episodes" not in page
    words = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert "mean and 95 % interval over worlds" in words and not re.findall(r".*\bgrids?\b.*", words)


def test_a_stored_run_is_read_without_importing_anything_and_says_what_it_lacks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder / "home"
    home.mkdir()
    shutil.copy(HERE / "small_worlds.py", home / "elsewhere.py")
    monkeypatch.chdir(home)
    run(study("elsewhere:Corridor", agents=[{"kind": "random"}]), folder / "run")
    monkeypatch.chdir(folder)
    from goalscope.worlds.environments.world import _believed

    _believed.cache_clear()
    with Store(folder / "run") as store:
        episodes = list(store.episodes())
        assert len(episodes) == 12 and {one.outcome for one in episodes}
        assert isinstance(episodes[0].world, EnvironmentWorld)
    with pytest.raises(ValueError, match="module"):
        measure_episodes(episodes)
    # Other rules under the same name.
    monkeypatch.chdir(home)
    changed = EnvironmentWorld.make("elsewhere:Corridor", {"length": 5})
    other = EnvironmentWorld(source=changed.source, parameters={"length": 5}, description={"name": "another"})
    with pytest.raises(ValueError, match=r"elsewhere:Corridor.*another"):
        other.oracle()


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "nowhere:Corridor"}, "no .*nowhere.py"),
        ({"kind": "small_worlds:Nobody"}, "Nobody.*Corridor"),
        ({"kind": "small_worlds:np"}, "small_worlds:np must be .* class"),
        ({"kind": "os:system"}, "in a module of the working directory"),
        ({"kind": "subprocess:Popen", "parameters": [{"args": "true"}]}, "in a module of the working directory"),
        ({"kind": "small_worlds:Corridor", "parameters": [{"width": 5}]}, "width.*takes length"),
        ({"kind": "small_worlds:Forgetting"}, "same answer|lacks something"),
        ({"kind": "environment"}, "source must name"),
        ({"kind": "environment", "source": "gymnasum"}, "did you mean gymnasium"),
        ({"kind": "small_worlds:Corridor", "limit": 4}, "at most 4 states"),
        ({"kind": "small_worlds:Corridor", "parameters": []}, "at least one entry"),
        ({"kind": "small_worlds:Corridor", "sizes": [3]}, "unknown key"),
    ],
)
def test_what_cannot_be_a_world_is_refused_with_a_sentence(entry: dict[str, Any], words: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=words):
        one = Study.parse({"worlds": [entry], "agents": [{"kind": "random"}], "horizon": {"steps": 5}})
        run(one, folder)


def test_a_bounded_search_serves_horizons_within_it_and_refuses_longer_ones(folder: Path) -> None:
    entry = {"kind": "small_worlds:Corridor", "parameters": [{"length": 40}], "depth": 8}
    agents = [{"kind": "environment-wrong-goal", "target": "pit"}, {"kind": "random"}]
    near = Study.parse({"worlds": [entry], "agents": agents, "horizon": {"steps": 8}})
    run(near, folder / "near")
    with Store(folder / "near") as store:
        episodes = list(store.episodes())
    assert {one.outcome for one in episodes if one.agent == "wrong-goal(pit)"} == {"ended"}
    found = {(one.agent, one.hypothesis): one for one in directed(episodes).estimates}
    assert found["wrong-goal(pit)", "pit"].share == pytest.approx(1)
    assert found["wrong-goal(pit)", "goal"].bound == 0, "the goal is out of reach of eight steps"
    accuracy = measure_episodes(episodes)
    assert np.isnan(accuracy.where(accuracy.measure == "action accuracy").value).all(), "nothing is known to be optimal"
    entry["parameters"] = [{"length": 41}]
    far = Study.parse({"worlds": [entry], "agents": [{"kind": "small_worlds:Waiting"}], "horizon": {"steps": 9}})
    with pytest.raises(ValueError, match="raise depth"):
        run(far, folder / "far")


def test_a_registered_class_is_named_by_its_source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in registry.KINDS:  # what is loaded meanwhile would be forgotten afterwards
        registry.names(kind)
    entries = {kind: dict(known) for kind, known in registry._entries.items()}
    monkeypatch.setattr(registry, "_entries", entries)
    environment_kind("corridor of a test")(Corridor)
    entry = {"kind": "environment", "source": "corridor of a test", "name": "corridor", "parameters": [{"length": 6}]}
    found = Study.parse({"worlds": [entry], "agents": AGENTS}).worlds()
    assert [world.tags["kind"] for world in found] == ["corridor"] and found[0].oracle().length == 9  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="module:Class"):
        environment_kind("small_worlds:Corridor")


def test_scripted_agents_with_known_goals_act_under_chance(folder: Path) -> None:
    agents = [
        {"kind": "environment-optimal"},
        {"kind": "environment-wrong-goal", "target": "lever"},
        {"kind": "environment-state-blind"},
        {"kind": "random"},
    ]
    chance = {"worlds": [{"kind": "small_worlds:Slippery"}], "horizon": {"steps": 12}, "trajectories": 40}
    run(Study.parse({**chance, "agents": agents}), folder / "chance")
    with Store(folder / "chance") as store:
        solved = {
            agent: sum(episode.outcome == "goal" for episode in store.episodes() if episode.agent == agent)
            for agent in ("optimal", "wrong-goal(lever)", "random")
        }
    assert solved["optimal"] == max(solved.values()) and solved["optimal"] > 20


def test_scripted_agents_say_what_they_need(folder: Path) -> None:
    with pytest.raises(ValueError, match="goal"):
        run(study(agents=[{"kind": "environment-wrong-goal", "target": "moon"}]), folder / "moon")
    with pytest.raises(ValueError, match="environment"):
        Study.parse({"worlds": [{"kind": "grid", "sizes": [7], "densities": [0.0], "count": 1}], "agents": [AGENTS[0]]})
    assert EnvironmentOptimal().describe()["kind"] == "environment-optimal"
    assert EnvironmentGreedy().name == "greedy" and EnvironmentWrongGoal(target="lever").name == "wrong-goal(lever)"


def test_worlds_that_are_measured_by_parts_offer_what_all_together_do(folder: Path) -> None:
    agents = [{"kind": "environment-epsilon-greedy", "epsilon": 0.3, "horizon": 20}, {"kind": "random"}]
    kinds = [
        {"kind": "small_worlds:Corridor", "parameters": [{"length": 5}, {"length": 7}]},
        {"kind": "small_worlds:Slippery", "parameters": [{"length": 5}, {"length": 6}]},
    ]
    run(Study.parse({"worlds": kinds, "agents": agents, "trajectories": 3, "horizon": {"steps": 20}}), folder)
    run(
        Study.parse(
            {
                "worlds": [{"kind": "task-map", "presets": ["low-small"], "count": 3}],
                "agents": [{"kind": "task-greedy"}, {"kind": "task-random-walk"}],
                "trajectories": 2,
            }
        ),
        folder / "tasks",
    )
    with Store(folder / "tasks") as tasks, Store(folder, "w") as store:
        store.put_episodes(tasks.episodes())

    def lines(parts: Iterable[Rows]) -> list[str]:
        return sorted(
            repr((row.measure, row.value, row.cluster, row.episode_id, row.step, sorted(row.tags.items())))
            for rows in parts
            for row in rows
        )

    with Store(folder) as store:
        parts = list(measured_parts(store, most=6))
        whole = measure_episodes(store.episodes())
    assert sum(1 for place, _ in parts if place == parts[0][0]) > 1, "a table is measured in several parts"
    assert lines(rows for _, rows in parts) == lines([whole])
    assert "return" in whole.measure and "exploration error" in whole.measure and "path ratio" not in whole.measure


def test_a_measure_of_another_environment_says_what_it_needs_and_what_there_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A need names an environment as a study does, not as the environment describes itself."""
    run(study(), folder)
    fields: dict[str, Any] = {
        "unit": "turns",
        "bounds": (0, 1e6),
        "text": "its turns",
        "function": lambda table: table.length,
    }
    added = StepMeasure(name="turns elsewhere", needs=("environment corridor",), **fields)
    monkeypatch.setattr("goalscope.measures.behaviour.behaviour_measures", lambda: (*behaviour_measures(), added))
    with pytest.raises(ValueError, match=r"'environment corridor'.*'environment small_worlds:Corridor'"):
        goalscope.measure(folder, measures=["turns elsewhere"])
    with pytest.raises(ValueError, match="no measure 'nothing of this name'"):
        goalscope.measure(folder, measures=["nothing of this name"])
