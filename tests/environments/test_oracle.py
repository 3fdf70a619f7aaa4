"""The oracle beside environments that an agent already acts in: exact, step by step, and it changes nothing."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families import long_after
from goalscope.environments import EnvironmentWorld, Mismatch, TrainingCurve, oracle
from goalscope.meg import meg_known

pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
pytest.importorskip("minigrid", reason="the extra minigrid is not installed")
import gymnasium
import minigrid  # noqa: F401 - registers its levels

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")
TOYS = [("FrozenLake-v1", {"is_slippery": False}), ("CliffWalking-v1", {}), ("Taxi-v4", {})]
LEVELS = ["MiniGrid-Empty-5x5-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-MultiRoom-N2-S4-v0", "BabyAI-GoToObj-v0"]
LEVELS += ["MiniGrid-LavaGapS5-v0"]
# The lake that ends by chance, where optimal sets go by the decisions left.
LAKE: tuple[str, dict[str, Any]] = ("FrozenLake-v1", {})


def world_of(name: str, options: dict[str, Any], seed: int = 1) -> EnvironmentWorld:
    if name.startswith(("MiniGrid", "BabyAI")):
        return EnvironmentWorld.make("minigrid", {"level": name, "seed": seed})
    return EnvironmentWorld.make("gymnasium", {"name": name, "options": options})


def mixed(info: dict[str, Any], actions: int, rng: np.random.Generator) -> int:
    """An action of an agent that is optimal half of the time."""
    best = np.flatnonzero(info["goalscope"]["optimal"])
    return int(rng.choice(best)) if len(best) and rng.random() < 0.5 else int(rng.integers(actions))


@pytest.mark.parametrize(("name", "options"), long_after(2, [*TOYS, *((level, {}) for level in LEVELS)], names=2))
def test_the_wrapper_says_what_the_world_says_step_by_step(name: str, options: dict[str, Any]) -> None:
    table, solved = world_of(name, options).believed.table, world_of(name, options).believed.solved
    assert solved.optimal is not None and solved.distance is not None
    env, rng = oracle(gymnasium.make(name, **options)), np.random.default_rng(0)
    for _ in range(3):
        _, info = env.reset(seed=1)
        state = int(table.index[env.unwrapped.s]) if "P" in vars(env.unwrapped) else int(np.argmax(table.start))
        chosen, over, begin = [], False, state
        while not over:
            told = info["goalscope"]
            np.testing.assert_array_equal(told["optimal"], solved.optimal[state])
            assert told["distance"] == solved.distance[state]
            action = mixed(info, len(table.actions), rng)
            following = int(table.successor[state, action])
            before, after = int(solved.distance[state]), int(solved.distance[following])
            regret = math.nan if before < 0 else math.inf if after < 0 else 1 + after - before
            *_, terminated, truncated, info = env.step(action)
            assert info["goalscope"]["was_optimal"] == solved.optimal[state, action]
            assert info["goalscope"]["regret"] == pytest.approx(regret, nan_ok=True)
            assert ("episode" in info["goalscope"]) == (terminated or truncated)
            if solved.optimal[state].any():
                chosen.append(bool(solved.optimal[state, action]))
            state, over = following, terminated or truncated
        episode = info["goalscope"]["episode"]
        assert episode["accuracy"] == pytest.approx(np.mean(chosen)) and episode["success"] == table.goal[state]
        if episode["success"]:
            assert episode["path_ratio"] == episode["length"] / solved.distance[begin] >= 1


@pytest.mark.parametrize("name", ["MiniGrid-DoorKey-5x5-v0", "FrozenLake-v1"])
def test_a_search_tells_the_same_as_the_table(name: str) -> None:
    options: dict[str, Any] = {"is_slippery": False} if name == "FrozenLake-v1" else {}
    envs = [oracle(gymnasium.make(name, **options), search=search) for search in (False, True)]
    rng = np.random.default_rng(2)
    for seed in (1, 1, 2):
        whole, searched = (env.reset(seed=seed)[1] for env in envs)
        over = False
        while not over:
            action = mixed(whole, envs[0].action_space.n, rng)
            (*_, ended, cut, whole), (*_, searched) = (env.step(action) for env in envs)
            one, other = whole["goalscope"], searched["goalscope"]
            np.testing.assert_array_equal(one["optimal"], other["optimal"])
            assert [one[key] for key in ("distance", "was_optimal")] == [
                other[key] for key in ("distance", "was_optimal")
            ]
            assert one["regret"] == pytest.approx(other["regret"], nan_ok=True)
            over = ended or cut
        for key in ("success", "length", "accuracy", "path_ratio", "regret"):
            assert one["episode"][key] == pytest.approx(other["episode"][key], nan_ok=True)
        assert other["episode"]["meg"] == {}


def test_a_search_reaches_levels_that_are_too_large_for_a_table_and_sees_what_differs() -> None:
    env = oracle(gymnasium.make("BabyAI-GoToRedBall-v0"), search=True)
    with pytest.raises(ValueError, match="states"):
        oracle(gymnasium.make("BabyAI-GoToRedBall-v0"), limit=2_000).reset(seed=1)
    _, info = env.reset(seed=1)
    length = info["goalscope"]["distance"]
    for left in range(length, 0, -1):
        assert info["goalscope"]["distance"] == left
        *_, terminated, _, info = env.step(int(np.flatnonzero(info["goalscope"]["optimal"])[0]))
    assert terminated and info["goalscope"]["episode"]["success"] and info["goalscope"]["episode"]["path_ratio"] == 1
    turned = oracle(Turned(gymnasium.make("FrozenLake-v1", is_slippery=False)), search=True)
    turned.reset(seed=1)
    with pytest.raises(Mismatch, match="did something else"):
        turned.step(1)
    with pytest.raises(ValueError, match="without chance"):
        oracle(gymnasium.make("FrozenLake-v1"), search=True).reset(seed=1)


def test_with_chance_the_optimal_sets_are_those_of_the_decisions_left() -> None:
    world = world_of(*LAKE)
    by_time, table = world.believed.by_time(100), world.believed.table
    env, rng = oracle(gymnasium.make(LAKE[0])), np.random.default_rng(0)
    seen = 0
    for seed in range(5):
        _, info = env.reset(seed=seed)
        taken, over = 0, False
        while not over:
            at = table.index[int(env.unwrapped.s)]
            np.testing.assert_array_equal(info["goalscope"]["optimal"], by_time[taken, at])
            *_, terminated, truncated, info = env.step(mixed(info, 4, rng))
            assert (
                info["goalscope"]["regret"] >= 0
                and (info["goalscope"]["regret"] < 1e-9) >= info["goalscope"]["was_optimal"]
            )
            taken, over = taken + 1, terminated or truncated
        assert math.isnan(info["goalscope"]["episode"]["path_ratio"]), "there is no shortest path"
        seen += taken
    assert seen > 20


@pytest.mark.parametrize(("name", "options"), [*TOYS, LAKE, (LEVELS[1], {}), ("MiniGrid-Empty-Random-5x5-v0", {})])
def test_observations_rewards_ends_and_random_numbers_are_those_without_it(name: str, options: dict[str, Any]) -> None:
    plain, told = gymnasium.make(name, **options), oracle(gymnasium.make(name, **options), goals=None)
    rng = np.random.default_rng(3)

    def same(one: Any, other: Any) -> None:
        if isinstance(one, dict):
            for key in one:
                np.testing.assert_array_equal(np.asarray(one[key]), np.asarray(other[key]))
        else:
            np.testing.assert_array_equal(one, other)

    for seed in (5, None):
        (first, info), (second, more) = plain.reset(seed=seed), told.reset(seed=seed)
        same(first, second)
        for _ in range(60):
            action = int(rng.integers(plain.action_space.n))
            (first, *ends, info), (second, *others, more) = plain.step(action), told.step(action)
            same(first, second)
            assert ends == others and set(more) - set(info) == {"goalscope"}
            assert plain.unwrapped.np_random.bit_generator.state == told.unwrapped.np_random.bit_generator.state
            if ends[1] or ends[2]:
                break


def play(env: Any, curve: TrainingCurve, steps: int, rule: Any) -> None:
    """Act in a vectorised environment."""
    _, infos = env.reset(seed=0)
    for number in range(steps):
        actions = np.array([rule(infos["goalscope"]["optimal"][at]) for at in range(env.num_envs)])
        *_, infos = env.step(actions)
        curve.add(infos, (number + 1) * env.num_envs)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["NEXT_STEP", pytest.param("SAME_STEP", marks=pytest.mark.full)])
def test_agents_whose_goal_is_known_stand_where_they_must_over_training(mode: str) -> None:
    rng, options = np.random.default_rng(0), {"autoreset_mode": gymnasium.vector.AutoresetMode[mode]}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    rules = {
        "optimal": lambda best: int(rng.choice(np.flatnonzero(best))) if best.any() else 0,
        "random": lambda best: int(rng.integers(7)),
        "never": lambda best: 6,  # "done" of MiniGrid changes nothing
    }
    for name, rule in rules.items():
        made = gymnasium.make_vec(
            "MiniGrid-Empty-Random-5x5-v0", 2, vectorization_mode="sync", vector_kwargs=options, max_steps=40
        )
        curve = TrainingCurve(every=10**6)
        env = oracle(made)
        assert env is made
        play(env, curve, 200, rule)
        found[name] = {one["measure"]: one for one in curve.records}
        assert len({one["clusters"] for one in curve.records if one["n"]}) >= 1
    optimal, random, never = (found[name] for name in rules)
    worlds = next(iter(curve._layouts.values()))
    assert optimal["accuracy"]["value"] == optimal["path_ratio"]["value"] == 1 and optimal["meg"]["clusters"] > 5
    assert optimal["meg"]["low"] < optimal["meg"]["value"] <= worlds.curve("goal").bound * 3
    assert random["meg"]["value"] < 0.2 * optimal["meg"]["value"]
    assert never["success"]["value"] == never["accuracy"]["value"] == 0 and never["meg"]["value"] < 0
    assert not never["path_ratio"]["n"] and "no cluster" in never["path_ratio"]["note"]


def test_meg_of_an_optimal_agent_is_at_the_bound_and_windows_are_told_once() -> None:
    env = oracle(gymnasium.make("FrozenLake-v1", is_slippery=False), goals=None)
    curve, told, steps = TrainingCurve(every=30), [], 0
    for number in range(15):
        _, info = env.reset(seed=number)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(int(np.flatnonzero(info["goalscope"]["optimal"])[0]))
            steps, over = steps + 1, terminated or truncated
            told.append(curve.add(info, steps))
    episode = info["goalscope"]["episode"]
    bound = meg_known(world_of(*TOYS[0]).believed.table.mdp(horizon=episode["horizon"]), returns=[4.0] * 3).bound
    assert episode["meg"]["goal"] == pytest.approx(bound) == episode["meg_bound"]["goal"]
    assert len([one for one in told if one]) == 2, "15 episodes of 6 steps are three windows, the last one open"
    first = next(one for one in told if one)
    assert first["goalscope/meg/goal"] == pytest.approx(bound) and first["goalscope/success"] == 1
    frame = curve.to_frame()
    assert sorted(set(frame["steps"])) == [30, 60, 90] and "meg" in curve._repr_html_()
    meg = frame[(frame["measure"] == "meg") & (frame["towards"] == "goal")]
    assert (meg["n"] == 5).all() and (meg["low"] < meg["value"]).all()


class Turned(gymnasium.ActionWrapper):  # type: ignore[misc]
    """A wrapper below the oracle that makes another action of each."""

    def action(self, action: int) -> int:
        return (int(action) + 1) % 4


class Line(gymnasium.Env):  # type: ignore[misc]
    """An environment of one's own: cells 0 to 4; the end is cell 4."""

    action_space, observation_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(5)
    cell = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.cell = min(4, max(0, self.cell + (1 if action else -1)))
        return self.cell, float(self.cell == 4), self.cell == 4, False, {}


class Rules:
    """Its rules."""

    actions = ("left", "right")

    def initial(self) -> dict[int, float]:
        return {0: 1.0}

    def step(self, state: int, action: int) -> dict[int, float]:
        return {min(4, max(0, state + (1 if action else -1))): 1.0}

    def done(self, state: int) -> bool:
        return state == 4

    goal = done

    def observe(self, state: int) -> Any:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        return {"name": "line"}


def test_an_environment_of_ones_own_takes_part_with_its_rules_and_others_are_refused() -> None:
    env = oracle(Line(), environment=Rules(), state=lambda real: real.cell)
    assert env.reset()[1]["goalscope"]["distance"] == 4
    infos = [env.step(action)[-1]["goalscope"] for action in (0, 1, 1, 1, 1)]
    assert [one["distance"] for one in infos] == [4, 3, 2, 1, 0] and infos[0]["regret"] == 1
    assert infos[-1]["episode"]["accuracy"] == 0.8 and infos[-1]["episode"]["path_ratio"] == 5 / 4
    with pytest.raises(ValueError, match=r"environment=.*state="):
        oracle(Line())
    with pytest.raises(ValueError, match="environment and state"):
        oracle(Line(), environment=Rules())
    turned = oracle(Turned(gymnasium.make("FrozenLake-v1", is_slippery=False)))
    turned.reset(seed=0)
    with pytest.raises(Mismatch, match="wrapper"):
        for _ in range(10):
            turned.step(1)
    with pytest.raises(ValueError, match="every"):
        TrainingCurve(every=0)


def test_a_small_level_whose_obstacles_move_by_chance_is_followed_and_a_large_one_is_refused() -> None:
    with pytest.raises(ValueError, match="random numbers"):
        oracle(gymnasium.make("MiniGrid-Dynamic-Obstacles-16x16-v0")).reset(seed=1)
    with pytest.raises(ValueError, match="horizon=N"):
        oracle(gymnasium.make("MiniGrid-Dynamic-Obstacles-5x5-v0")).reset(seed=1)
    env, arrived = oracle(gymnasium.make("MiniGrid-Dynamic-Obstacles-5x5-v0"), horizon=30), list[bool]()
    for seed in range(5):
        _, info = env.reset(seed=seed)
        while "episode" not in info["goalscope"]:
            best = np.flatnonzero(info["goalscope"]["optimal"])
            *_, info = env.step(int(best[0]) if len(best) else 0)
        arrived.append(info["goalscope"]["episode"]["success"])
    assert sum(arrived) >= 3


@pytest.mark.full
def test_environments_in_other_processes_have_the_wrapper_inside_and_no_meg() -> None:
    made = gymnasium.make_vec("CliffWalking-v1", 2, vectorization_mode="async", wrappers=[oracle])
    curve = TrainingCurve(every=10**6)
    play(made, curve, 60, lambda best: int(np.flatnonzero(best)[0]) if best.any() else 0)
    with pytest.raises(ValueError, match="wrappers="):
        oracle(made)
    made.close()
    found = {one["measure"]: one for one in curve.records}
    assert found["accuracy"]["value"] == 1 and "other processes" in found["meg"]["note"]


@pytest.mark.full
def test_the_script_of_the_page_logs_a_policy_that_learns(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    first, second = (one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "TrainingCurve" in one)
    assert max(len(first.splitlines()), len(second.splitlines())) <= 30
    names: dict[str, Any] = {}
    exec(compile(first, "environments.md", "exec"), names)
    frame = names["curve"].to_frame()
    meg = frame[frame["measure"] == "meg"]["value"].tolist()
    assert meg[0] < meg[-1] and {"success", "accuracy", "meg"} <= set(frame["measure"])
    assert "goalscope/meg/goal" in names["model"].logger.name_to_value or len(meg) > 1
    exec(compile(second, "environments.md", "exec"), {})
    assert "goalscope/success" in capsys.readouterr().out
