"""Environments of Gymnasium without a table: states from attributes, exact probabilities, goals, and refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goalscope._ground.own import allowed
from goalscope.environments import Believed, believe, build
from goalscope.integrations.gymnasium.stepped import ScriptedGenerator
from goalscope.worlds.environments.environment import named_environment

MODULE = '''
import random

import gymnasium
import numpy as np
from gymnasium import spaces


class Ferry(gymnasium.Env):
    """A river of some columns and rows, with a current to the right and the landing stage in column 1."""

    goal_name = "reach the landing stage"
    action_names = ["left", "right", "ahead"]

    def __init__(self, width=4, length=3, drift=0.25):
        self.width, self.length, self.drift = width, length, drift
        self.observation_space, self.action_space = spaces.Discrete(width * length), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.y, self.steps = int(self.np_random.integers(self.width)), 0, 0
        return self.seen(), {}

    def seen(self):
        return self.y * self.width + self.x

    def pushed(self):
        return self.np_random.random() < self.drift

    def step(self, action):
        self.steps += 1
        self.x, self.y = self.x + (-1, 1, 0)[action], self.y + (action == 2)
        self.x = min(max(self.x + self.pushed(), 0), self.width - 1)
        over = self.y == self.length - 1
        return self.seen(), self.reward(over), over, self.steps >= 30, {}

    def reward(self, over):
        return float(over and self.x == 1) - 0.5 * (over and self.x != 1)


class Kitchen(gymnasium.Env):
    """Three rooms, flour in the first one and an oven in the last one; the mask offers what is possible."""

    action_space, observation_space = spaces.Discrete(4), spaces.Dict()
    ACTIONS = ("back", "on", "take", "bake")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.things = 1, {"flour": False}
        self.has_flour = False
        return self.seen(), {}

    def seen(self):
        offered = [self.room > 0, self.room < 2, self.room == 0, self.room == 2 and self.has_flour]
        return {"room": self.room, "action_mask": np.array(offered, dtype=np.int8)}

    def step(self, action):
        assert self.seen()["action_mask"][action]
        self.room += (-1, 1, 0, 0)[action]
        self.has_flour = self.things["flour"] = self.has_flour or action == 2
        return self.seen(), float(action == 3), action == 3, False, {}


class Named(Kitchen):
    def goals(self):
        return {"flour in hand": lambda env: env.things["flour"]}


class Spoken(gymnasium.Env):
    """Takes texts; success does not depend on the reward."""

    commands, action_space = ["go", "jump", "open"], spaces.Text(9)

    def __init__(self):
        self.rng = random.Random(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.coin = 0, self.rng.randint(1, 2)
        return f"You are in room {self.room}.", {}

    def step(self, command):
        assert isinstance(command, str)
        self.room = min(2, self.room + (command == "go"))
        opened = command == "open" and self.room == 2
        over = opened or command == "jump"
        return f"You are in room {self.room}.", 0.0, over, False, {"is_success": opened} if over else {}


class Staged(Ferry):
    """Ends after three steps, whatever the actions: the count of steps decides."""

    def step(self, action):
        _, _, _, _, info = super().step(action)
        over = self.steps == 3
        return self.seen(), float(over and self.x == 1), over, False, info


class Doubled(gymnasium.Wrapper):
    """A wrapper with a state of its own: every second action waits."""

    def __init__(self):
        super().__init__(gymnasium.wrappers.TimeLimit(Ferry(drift=0.0), 9))
        self.odd = False

    def reset(self, **options):
        self.odd = False
        return self.env.reset(**options)

    def step(self, action):
        self.odd = not self.odd
        if self.odd:
            return self.unwrapped.seen(), 0.0, False, False, {}
        return self.env.step(action)


class Loud(Ferry):
    def step(self, action):
        print("a step is taken")
        return super().step(action)


class Nan(Ferry):
    def reward(self, over):
        return float("nan")


class Short(Ferry):
    def step(self, action):
        return super().step(action)[:4]


class Elsewhere(Ferry):
    def pushed(self):
        return np.random.random() < 0.5


class Unsteady(Ferry):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = int(np.random.default_rng(seed).integers(10**9))
        self.y = self.steps = 0
        return self.seen(), {}


class Counting(Ferry):
    def pushed(self):
        return int(self.np_random.random() * 2)


class Normal(Ferry):
    def pushed(self):
        return self.np_random.normal() > 0


class Endless(Ferry):
    def step(self, action):
        seen, reward, _, late, info = super().step(action)
        self.y = min(self.y, 2)
        return seen, reward, False, late, info


class Remembering(Ferry):
    def step(self, action):
        self.path = (*getattr(self, "path", ()), action)
        return super().step(action)


class Lines(Ferry):
    action_names = ["left", "right", "two" + chr(10) + "lines"]


class NoReset(gymnasium.Env):
    action_space = spaces.Discrete(2)


class Boxed(Ferry):
    action_names = ()

    def __init__(self):
        super().__init__()
        self.action_space = spaces.Box(0, 1, (2,))


class Raising(Ferry):
    def seen(self):
        return 1 / 0 if self.y == 1 else 0
'''


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gymnasium")
    (tmp_path / "stepped_ones.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def believed(name: str, limit: int = 2_000, **parameters: Any) -> Believed:
    with allowed():
        return believe(lambda: build(f"stepped_ones:{name}", parameters), limit)


def test_states_are_attributes_and_probabilities_are_exact_without_the_count_of_steps() -> None:
    found = believed("Ferry")
    table = found.table
    assert len(table.states) == 12 and table.actions == ("left", "right", "ahead")
    assert table.start[table.start > 0].tolist() == [0.25] * 4
    assert set(np.round(table.chance, 12).tolist()) == {0.25, 0.75, 1.0}
    assert found.environment.goal_name == "reach the landing stage"  # type: ignore[attr-defined]
    assert {name: int(mask.sum()) for name, mask in table.goals.items()} == {"goal": 1, "end with reward -0.5": 3}
    assert table.reward is not None and set(table.reward.tolist()) == {0.0, 1.0, -0.5}


def test_a_mask_offers_actions_and_an_attribute_that_becomes_true_is_a_goal() -> None:
    found = believed("Kitchen")
    assert (~found.table.offered).any() and found.solved.length == 5
    assert list(found.table.goals) == ["goal", "has flour"] and found.table.goals["has flour"].sum() == 3
    assert found.environment.observe(found.table.states[0]).text == "room: 1"
    assert list(believed("Named").table.goals) == ["goal", "flour in hand"]


def test_texts_are_actions_and_success_that_the_environment_states_is_the_goal() -> None:
    found = believed("Spoken")
    assert found.table.actions == ("go", "jump", "open") and found.solved.distance is not None
    assert (found.table.goal & found.table.done).sum() == 2  # a coin of either side
    assert "end with reward 0 and no success" in found.table.goals
    assert found.environment.observe(found.table.states[0]).text == "You are in room 0."


def test_a_count_of_steps_that_ends_the_episode_is_part_of_the_state() -> None:
    table = believed("Staged", drift=0.0, length=9).table
    assert table.done.any() and int(table.depth[table.done].min()) == 3


def test_the_state_of_a_wrapper_counts_and_a_limit_of_time_does_not() -> None:
    found = believed("Doubled")
    assert int(found.table.depth[found.table.done].min()) == 4  # two rows, every second action


def test_what_an_environment_prints_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    believed("Loud")
    with allowed():
        build("stepped_ones:Loud", {})
    assert "a step is taken" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("Nan", r"Nan .*finite reward, got nan"),
        ("Short", r"terminated.*got 4 values"),
        ("Elsewhere", r"self\.np_random"),
        ("Unsteady", r"reset\(\) of Unsteady .*self\.np_random"),
        ("Counting", r"compared"),
        ("Normal", r"normal\(\)"),
        ("Endless", r"Endless.*terminated"),
        ("Remembering", r"path of Remembering.*state_attributes"),
        ("NoReset", r"NoReset.*reset"),
        ("Lines", r"one line"),
        ("Boxed", r"Boxed.*action_names.*Box"),
    ],
)
def test_what_cannot_be_listed_is_refused_with_the_name_of_the_culprit(name: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        believed(name)


def test_an_error_of_the_author_keeps_its_place() -> None:
    with pytest.raises(ZeroDivisionError):
        believed("Raising")


def test_a_continuous_environment_is_refused() -> None:
    with allowed(), pytest.raises(ValueError, match="compared"):  # its first state is continuous
        believe(lambda: build(*named_environment("CartPole-v1")))


def test_every_outcome_of_a_draw_is_listed_with_its_probability() -> None:
    draws = ScriptedGenerator()
    two = draws.outcomes(lambda: tuple(draws.integers(0, 3, size=2).tolist()))
    assert len(two) == 9 and all(chance == pytest.approx(1 / 9) for chance in two.values())
    assert draws.outcomes(lambda: draws.choice(["a", "b", "a"])) == {
        "a": pytest.approx(2 / 3),
        "b": pytest.approx(1 / 3),
    }
    assert len(draws.outcomes(lambda: tuple(draws.permutation(3).tolist()))) == 6
    steps = draws.outcomes(lambda: int(np.argmax(np.cumsum([0.2, 0.3, 0.5]) > draws.random())))
    assert steps == {0: pytest.approx(0.2), 1: pytest.approx(0.3), 2: pytest.approx(0.5)}

    def twice() -> tuple[bool, bool]:
        number = draws.random()  # one number that is compared twice
        return number < 0.5, number < 0.75

    assert draws.outcomes(twice) == {(True, True): 0.5, (False, True): 0.25, (False, False): 0.25}
