"""goalscope's grids as environments of Gymnasium, policies as agents, and own agents in a study file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope._ground.rng import stream
from goalscope.agents.policies import PLANES, planes
from goalscope.environments import PolicyAgent
from goalscope.meg import meg_known
from goalscope.runs import Store, Study, content_hash, run
from goalscope.worlds import Grid, GridView, layout
from goalscope.worlds.planning import TabularMDP, from_grid, shortest_length, solve

ROOM = "# # # # #\n# A _ _ #\n# _ # _ #\n# _ _ G #\n# # # # #"
OWN = '''
from dataclasses import dataclass, field
from goalscope.agents import Turn

@dataclass(frozen=True)
class Rightward:
    """Goes right, or down with a chance."""
    down: float = 0.5
    name: str = "rightward"
    journalled = False

    def __post_init__(self):
        if not 0 <= self.down <= 1:
            raise ValueError(f"down must be a probability, got {self.down!r}")

    def describe(self):
        return {"kind": "rightward", "version": 1, "down": self.down}

    def act(self, observations):
        return [Turn(action=1 if one.uniform("own") < self.down else 3) for one in observations]

class Wrapped:
    """A callable from text to the name of an action, as agent frameworks have them, in a few lines."""
    name, journalled = "wrapped", True

    def __init__(self, answer="RIGHT"):
        self.answer = answer

    def describe(self):
        return {"kind": "wrapped", "answer": self.answer}

    def act(self, observations):
        names = [one.view.actions.index(self.answer) for one in observations]
        return [Turn(action=name, text=self.answer) for name in names]
'''


def own_study(**changes: Any) -> Study:
    return Study.parse(
        {
            "worlds": [{"kind": "text", "grids": [ROOM]}],
            "agents": [
                {"kind": "mine:Rightward", "down": 0.5},
                {"kind": "mine:Rightward", "down": 1.0, "name": "downward"},
                {"kind": "mine:Wrapped"},
                {"kind": "optimal"},
            ],
            "trajectories": 5,
            "horizon": {"steps": 6},
            **changes,
        }
    )


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a module of own agents."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN, encoding="utf-8")
    return tmp_path


def test_an_own_agent_is_named_in_a_study_runs_resumes_and_is_the_same_in_other_processes(mine: Path) -> None:
    study = own_study()
    run(study, mine / "a")
    run(study, mine / "b", executor="processes", workers=1)
    run(study, mine / "a")  # nothing is left to do
    with Store(mine / "a") as one, Store(mine / "b") as other:
        assert content_hash(one) == content_hash(other)
        actions = {
            agent: {step.action for episode in one.episodes() if episode.agent == agent for step in episode.steps}
            for agent in ("rightward", "downward", "wrapped")
        }
        restored = one.study()
    assert actions == {"rightward": {1, 3}, "downward": {1}, "wrapped": {3}}
    assert restored is not None and restored.id == study.id


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"kind": "mine:Nobody"}, "Nobody"),
        ({"kind": "nowhere:Agent"}, "no .*nowhere.py"),
        ({"kind": "os:system"}, "in a module of the working directory"),
        ({"kind": "mine:Rightward", "speed": 2}, "takes down"),
        ({"kind": "mine:Rightward", "down": 2}, "must be a probability"),
        ({"kind": "mine:Wrapped", "speed": 2}, "mine:Wrapped .* parameter speed"),
    ],
)
def test_an_own_agent_that_cannot_be_made_is_refused(mine: Path, entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        own_study(agents=[entry])


def test_a_module_of_the_working_directory_never_stands_in_for_an_installed_one(mine: Path) -> None:
    (mine / "numpy.py").write_text(OWN, encoding="utf-8")
    with pytest.raises(ValueError, match="name"):
        own_study(agents=[{"kind": "numpy:Rightward"}])


class Chances:
    """A policy as stable-baselines3 has it, that knows the planes of grids and seeks the goal straight on."""

    def predict(self, observation: Any, deterministic: bool = False) -> tuple[Any, None]:
        assert deterministic and observation.shape[1] == len(PLANES)
        return self.chances(observation).argmax(axis=1), None

    def chances(self, observation: Any) -> Any:
        found = []
        for one in observation:
            (row, col), (to_row, to_col) = (np.argwhere(one[plane])[0] for plane in (1, 2))
            wanted = [to_row < row, to_row > row, to_col < col, to_col > col]
            found.append(np.array(wanted, dtype=np.float32) / sum(wanted))
        return np.stack(found)


def test_a_policy_acts_in_a_run_by_its_most_probable_action_or_by_its_chances(tmp_path: Path) -> None:
    grids = {"kind": "grid", "sizes": [7], "densities": [0.0], "count": 3}
    study = Study.parse({"worlds": [grids], "agents": [{"kind": "random"}], "trajectories": 4})
    policy = Chances()
    first = PolicyAgent(policy=policy, name="first", identity={"weights": "a"})
    drawn = PolicyAgent(policy=policy, name="drawn", identity={"weights": "a"}, probabilities=policy.chances)
    run(study, tmp_path, agents=[first, drawn])
    with Store(tmp_path) as store:
        episodes = list(store.episodes())
    assert {one.outcome for one in episodes} == {"goal"}, "an empty room is crossed straight on"
    ways: dict[str, set[Any]] = {"first": set(), "drawn": set()}
    for one in episodes:
        ways[one.agent].add((one.world.id, *(step.action for step in one.steps)))
    assert len(ways["first"]) == 3 < len(ways["drawn"])
    with pytest.raises(ValueError, match="method predict"):
        PolicyAgent(policy=object(), name="x", identity={"a": 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="identity"):
        PolicyAgent(policy=policy, name="x", identity={})


def test_planes_show_each_thing_at_its_cell() -> None:
    grid = layout("key-door", seed=0, index=0)
    found = planes(GridView(grid=grid))
    assert found.dtype == np.float32 and found.shape == (6, grid.height, grid.width)
    np.testing.assert_array_equal(found[0], grid.walls)
    for plane, cell in zip(found[1:5], (grid.start, grid.goal, grid.key, grid.door), strict=True):
        assert np.argwhere(plane).tolist() == [list(cell)]  # type: ignore[arg-type]
    assert not found[5].any() and planes(GridView(grid=grid.at(held=("K",))))[5].all()


def test_meg_takes_policies_in_single_precision_and_refuses_those_that_are_none() -> None:
    mdp: TabularMDP = from_grid(Grid.parse(ROOM), horizon=8)
    logits = stream(0, "policy").normal(size=(mdp.states, 4))
    exact = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    single = exact.astype(np.float32)
    assert np.abs(single.sum(axis=1, dtype=np.float64) - 1).max() > 1e-8
    with pytest.warns(UserWarning, match="policy.*float32"):
        found = meg_known(mdp, single)
    assert found.value == pytest.approx(meg_known(mdp, exact).value, rel=1e-4)
    with pytest.raises(ValueError, match="sum to 1"):
        meg_known(mdp, (exact * 1.001).astype(np.float32))
    with pytest.raises(ValueError, match="sum to 1"):
        meg_known(mdp, exact * 1.00001)


@pytest.mark.parametrize("form", ["planes", "symbols", "text"])
def test_the_registered_environment_passes_gymnasiums_own_checks(form: str) -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    from gymnasium.utils.env_checker import check_env

    from goalscope.integrations.gymnasium import grid_env

    made = gymnasium.make("goalscope/Grid-v0", size=7, density=0.4, form=form, render_mode="rgb_array")
    assert isinstance(made.unwrapped, grid_env.GridEnv)
    check_env(made.unwrapped, skip_render_check=False)
    picture = made.unwrapped.render()
    assert picture.dtype == np.uint8 and picture.shape == (7 * 16, 7 * 16, 3)


def test_the_registered_environment_is_the_grid_and_tells_what_is_optimal() -> None:
    pytest.importorskip("gymnasium", reason="the extra gymnasium is not installed")
    from goalscope.integrations.gymnasium.grid_env import GridEnv

    env = GridEnv(grid=ROOM, form="text", render_mode="ansi")
    shown, info = env.reset(seed=3)
    grid = Grid.parse(ROOM)
    assert Grid.parse(shown) == grid and env.render() == shown
    paths, at = solve(grid), grid.start
    assert at is not None and info["optimal"].tolist() == paths.optimal[(0, *at)].tolist()
    steps = over = 0
    while not over:
        action = int(np.flatnonzero(info["optimal"])[0])
        shown, reward, over, cut, info = env.step(action)
        steps += 1
        assert reward == float(over) and not cut and info["distance"] == shortest_length(grid) - steps
    assert steps == shortest_length(grid) == 4
    env.reset()
    outcomes = [env.step(0)[2:4] for _ in range(6)]
    assert outcomes == [(False, False)] * 5 + [(False, True)], "1.5 x 4 actions"
    drawn = [GridEnv(size=7).reset(seed=seed)[1]["grid"] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for wrong in ({"form": "picture"}, {"factor": 0.5}, {"render_mode": "human"}, {"grid": "A#G"}):
        with pytest.raises(ValueError):
            GridEnv(**wrong)
