"""Levels of MiniGrid and tables of Gymnasium that a file of the user registers, in studies as in `oracle`."""

import sys
import zlib
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import goalscope
from command_line import call
from families import long_after
from goalscope._ground import own
from goalscope.environments import EnvironmentWorld, oracle
from goalscope.runs import Store, Study
from goalscope.worlds.environments.environment import named_environment

pytest.importorskip("minigrid", reason="the extra minigrid is not installed")

LEVEL = '''
import gymnasium
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Door, Goal, Key, Wall
from minigrid.minigrid_env import MiniGridEnv


class TwoRooms(MiniGridEnv):
    """Two rooms with a locked door between them; the key lies in the first one."""

    def __init__(self, size=5, max_steps=None, **options):
        space = MissionSpace(mission_func=lambda: "grand mission")
        super().__init__(mission_space=space, grid_size=size, max_steps=max_steps or 100, **options)

    def _gen_grid(self, width, height):
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        for row in range(height):
            self.grid.set(2, row, Wall())
        self.grid.set(2, 2, Door("purple", is_locked=True))
        self.grid.set(1, 3, Key("purple"))
        self.put_obj(Goal(), width - 2, height - 2)
        self.agent_pos, self.agent_dir, self.mission = (1, 1), 0, "grand mission"


gymnasium.register("{name}", entry_point="{module}:TwoRooms")
'''

TABLE = '''
import gymnasium
import numpy


class Coin(gymnasium.Env):
    """From 0, action 1 leads to the goal with the chance 0.5, action 0 stays."""

    def __init__(self):
        self.observation_space, self.action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)
        self.P = {0: {0: [(1.0, 0, 0, False)], 1: [(0.5, 1, 1, True), (0.5, 0, 0, False)]},
                  1: {0: [(1.0, 1, 0, True)], 1: [(1.0, 1, 0, True)]}}
        self.initial_state_distrib, self.s = numpy.array([1.0, 0.0]), 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = 0
        return 0, {}

    def step(self, action):
        row = self.P[self.s][int(action)]
        _, self.s, reward, over = row[int(self.np_random.choice(len(row), p=[one[0] for one in row]))]
        return self.s, reward, over, False, {}


gymnasium.register("Coin-v0", entry_point="coin_table_of_mine:Coin")
'''


def study(**world: Any) -> dict[str, Any]:
    """Return a study of one world with an agent that knows it and one with another goal."""
    return {
        "name": "own",
        "worlds": [{"kind": "minigrid", **world}],
        "agents": [{"kind": "environment-optimal"}, {"kind": "environment-wrong-goal", "target": "purple key held"}],
        "trajectories": 1,
    }


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Write a module that registers a level, in the working directory; its name is that of the test."""
    # A name for each test, since Gymnasium's registry is one for the whole process.
    name = f"level_{zlib.crc32(request.node.name.encode())}"
    (tmp_path / f"{name}.py").write_text(LEVEL.replace("{name}", f"Mine-{name}-v0").replace("{module}", name))
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize("executor", long_after(1, ["threads", "processes"]))
def test_a_study_takes_a_registered_level_as_oracle_does(module: str, executor: str) -> None:
    plain = study(levels=[f"Mine-{module}-v0"], modules=[module])
    goalscope.run(Study.parse(plain), "run", executor=executor, workers=2)
    with Store("run") as store:
        optimal, wrong = sorted(store.episodes(), key=lambda one: one.agent)
    assert optimal.outcome == "goal"
    assert len(wrong.steps) >= len(optimal.steps), "the other agent goes to the key alone"
    import gymnasium

    watched = oracle(gymnasium.make(f"Mine-{module}-v0"))
    _, info = watched.reset(seed=1)
    assert info["goalscope"]["distance"] == len(optimal.steps)
    taken = [int(step.action) for step in optimal.steps]
    for action in taken:
        assert info["goalscope"]["optimal"][action]
        *_, info = watched.step(action)
    # A level that was registered in this process before needs no module.
    known = EnvironmentWorld.make("minigrid", {"level": f"Mine-{module}-v0", "seed": 1})
    assert known.believed.solved.length == len(taken)


def test_a_study_file_that_names_the_module_is_enough_for_the_command(module: str) -> None:
    Path("own.yaml").write_text(
        dedent(f"""
        name: own
        worlds:
          - {{kind: minigrid, levels: [Mine-{module}-v0], modules: [{module}]}}
        agents:
          - {{kind: environment-optimal}}
        trajectories: 1
        """)
    )
    output = call("run", "own.yaml", "--out", "run")
    assert "1 episode" in output
    with Store("run") as store, own.command(own_code=False, advice="Say so."):
        assert list(store.episodes())
        with pytest.raises(ValueError, match=f"{module}:.*, named in run, must be imported .* Say so"):
            own.check_consent({"modules": [module]})


def test_a_run_of_somebody_else_imports_no_module(module: str) -> None:
    world = EnvironmentWorld.from_plain(
        {
            "source": "minigrid",
            "parameters": {"level": f"Mine-{module}-v0", "seed": 1, "modules": [module]},
            "description": {},
            "limit": 1000,
            "depth": None,
        }
    )
    with pytest.raises(ValueError, match=module):
        _ = world.believed
    assert module not in sys.modules


def test_a_level_in_a_package_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "levels_of_a_folder"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(LEVEL.replace("{name}", "Mine-Folder-v0").replace("{module}", name))
    monkeypatch.chdir(tmp_path)
    parameters = {"level": "Mine-Folder-v0", "modules": [name], "form": "grid"}
    world = EnvironmentWorld.make("minigrid", parameters)
    assert "grand mission" in world.begin(np.random.default_rng(0)).view.text
    assert {"purple key held", "purple door open"} <= set(world.believed.table.goals)


def test_a_class_of_levels_is_an_environment(module: str) -> None:
    table = EnvironmentWorld.make(f"{module}:TwoRooms", {}).believed.table
    assert "purple key held" in table.goals and table.actions[0] == "left"


def test_an_installed_package_that_the_user_names_registers_its_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    text = TABLE.replace("coin_table_of_mine", "coins_of_a_package").replace("Coin-v0", "Coins-v0")
    (site / "coins_of_a_package.py").write_text(text)
    monkeypatch.syspath_prepend(site)
    monkeypatch.chdir(tmp_path)
    parameters = {"name": "Coins-v0", "modules": ["coins_of_a_package"]}
    stored = {"source": "gymnasium", "parameters": parameters, "description": {}, "limit": 9, "depth": None}
    with own.command(own_code=False, advice=""), pytest.raises(ValueError, match="coins_of_a_package"):
        EnvironmentWorld.from_plain(stored).believed  # noqa: B018
    assert "coins_of_a_package" not in sys.modules
    source, named = named_environment("coins_of_a_package:Coins-v0")
    assert (source, named) == ("gymnasium", parameters)


def test_a_table_that_a_module_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "coin_table_of_mine.py").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    world = EnvironmentWorld.make("gymnasium", {"name": "Coin-v0", "modules": ["coin_table_of_mine"]})
    assert sorted(world.believed.table.chance.tolist()) == [0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"level": "Mine-Nowhere-v0"}, "modules: "),
        ({"level": "CartPole-v1"}, "MiniGridEnv"),
        ({"level": "os:MiniGrid-Empty-5x5-v0"}, r"MiniGrid-Empty-5x5-v0 .*modules: \[os\]"),
        ({"level": "MiniGrid-Empty-5x5-v0", "modules": ["no_such_file"]}, r"no_such_file\.py"),
        ({"level": "MiniGrid-Empty-5x5-v0", "modules": ["../up"]}, "import statement"),
        ({"level": "MiniGrid-Empty-5x5-v0", "modules": [3]}, "import statement"),
    ],
)
def test_what_is_no_level_is_refused_with_what_to_write(
    parameters: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words):
        EnvironmentWorld.make("minigrid", parameters)
