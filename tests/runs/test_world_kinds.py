"""A kind of world of one's own: run, stored, restored, measured, with and without an oracle."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import pytest
from pydantic import BaseModel, Field

from goalscope._ground import registry
from goalscope.agents import ChatAgent, Observation, Past, Turn, Uniform
from goalscope.agents.models import Message, Reply, Request, Sampling
from goalscope.measures import StepTable, measure_episodes, measure_store
from goalscope.measures.behaviour import left_out
from goalscope.measures.table import offers_of
from goalscope.runs import Episode, Store, Study, content_hash, run, world_kind
from goalscope.worlds import Grid, Offer, Oracle, Session, View, World
from goalscope.worlds.planning.process import grid_process, process_of
from goalscope.worlds.planning.shortest import oracle
from goalscope.worlds.world import StoredWorld

NAMES = ("left", "right", "jump", "wait", "leave")


@dataclass(frozen=True)
class LineView(View):
    """Where one stands on a line."""

    shows: ClassVar[str] = "a line"
    at: int

    @property
    def text(self) -> str:
        return f"You stand at {self.at}."

    @property
    def actions(self) -> tuple[str, ...]:
        return NAMES

    @property
    def admissible(self) -> tuple[int, ...]:
        return (1, 2, 3, 4) if self.at == 0 else (0, 1, 2, 3, 4)


class LineSession(Session):
    def __init__(self, goal: int, rng: np.random.Generator) -> None:
        self.goal, self.rng, self.at, self.left, self.last = goal, rng, 0, False, 0.0

    @property
    def view(self) -> LineView:
        return LineView(self.at)

    @property
    def state(self) -> tuple[int, ...]:
        return (self.at,)

    @property
    def solved(self) -> bool:
        return self.at == self.goal and not self.left

    @property
    def done(self) -> bool:
        return self.left or self.solved

    @property
    def reward(self) -> float:
        return self.last

    def step(self, action: int | None) -> None:
        if action is not None:
            self.left = action == 4
            moved = (-1, 1, int(self.rng.integers(0, 3)), 0, 0)[action]
            self.at = min(max(0, self.at + moved), self.goal)
        self.last = 5.0 if self.solved else -0.5


@dataclass(frozen=True)
class LineOracle:
    """Steps to the right, since a jump goes one cell on average."""

    goal: int

    @property
    def length(self) -> int:
        return self.goal

    def look_up(self, states: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        left = self.goal - states[:, 0]
        return (left > 0)[:, None] & (np.arange(5) == 1), left


@dataclass(frozen=True, kw_only=True)
class Line(World):
    kind: ClassVar[str] = "line of a test"
    view: ClassVar[type[View]] = LineView
    goal: int
    known: bool = False

    def begin(self, rng: np.random.Generator) -> LineSession:
        return LineSession(self.goal, rng)

    def to_plain(self) -> dict[str, Any]:
        return {"goal": self.goal, "known": self.known}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Any] | None = None) -> Self:
        return cls(goal=int(plain["goal"]), known=bool(plain["known"]), cluster=cluster, tags=tags or {})

    def oracle(self) -> Oracle | None:
        return LineOracle(self.goal) if self.known else None


@world_kind("line of a test", world=Line)
class Lines(BaseModel, extra="forbid", frozen=True):
    kind: Literal["line of a test"]
    goals: list[int] = Field(min_length=1)
    known: bool = False

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[Line]:
        for goal in self.goals:
            yield Line(goal=goal, known=self.known, tags={"goal": goal})


def line_study(**changes: Any) -> Study:
    return Study.parse(
        {
            "worlds": [{"kind": "line of a test", "goals": [3, 5]}],
            "agents": [{"kind": "random"}],
            "trajectories": 6,
            "horizon": {"steps": 9},
            **changes,
        }
    )


def episodes_of(folder: Path, study: Study, **options: Any) -> tuple[list[Episode], str]:
    run(study, folder, **options)
    with Store(folder) as store:
        return list(store.episodes()), content_hash(store)


def test_a_run_has_chance_endings_and_rewards_and_is_the_same_whatever_the_order_of_work(tmp_path: Path) -> None:
    episodes, digest = episodes_of(tmp_path / "a", line_study())
    assert episodes_of(tmp_path / "b", line_study(), batch=1, workers=3) == (episodes, digest)
    assert {episode.outcome for episode in episodes} >= {"goal", "ended"}
    for episode in episodes:
        assert isinstance(episode.world, Line) and len(episode.final) == 1
        assert all(isinstance(step.state, tuple) and step.reward is not None for step in episode.steps)
        assert all(step.action in range(5) and (step.state[0], step.action) != (0, 0) for step in episode.steps)
        assert (episode.outcome == "ended") == (episode.steps[-1].action == 4)
    jumps = {
        after.state[0] - before.state[0]
        for episode in episodes
        for before, after in zip(episode.steps, episode.steps[1:], strict=False)
        if before.action == 2
    }
    assert len(jumps) > 1, "the same action from the same state leads to different ones"


def test_general_measures_are_made_and_those_that_need_an_oracle_are_left_out_with_a_sentence(tmp_path: Path) -> None:
    run(line_study(), tmp_path)
    with Store(tmp_path) as store:
        rows = measure_store(store)
        episodes = list(store.episodes())
        said = left_out(store.worlds())
    assert {"success", "return", "steps to goal", "invalid turns"} <= set(rows.measure.tolist())
    assert "action accuracy" not in set(rows.measure.tolist()) and "action accuracy" in said and "grid" in said
    with Store(tmp_path) as store:
        asked = left_out(store.worlds(), ["success", "action accuracy"])
    assert asked.count("“") == 1 and "“action accuracy”" in asked, "of the measures that were asked for"
    assert left_out([], ["success"]) == "" and all(said.count(f"“{name}”") <= 3 for name in rows.measure.tolist())
    returns = {row.episode_id: row.value for row in rows.where(rows.measure == "return")}
    assert returns == {one.id: sum(step.reward or 0 for step in one.steps) for one in episodes}
    success = {row.episode_id: row.value for row in rows.where(rows.measure == "success")}
    assert success == {one.id: float(one.final[0] == one.world.to_plain()["goal"]) for one in episodes}
    assert sorted(map(str, measure_episodes(episodes))) == sorted(map(str, rows))


def test_a_world_kind_that_knows_its_optimal_policy_has_the_measures_that_need_it(tmp_path: Path) -> None:
    worlds = [{"kind": "line of a test", "goals": [3, 5], "known": True}]
    study = line_study(worlds=worlds, horizon={"factor": 3.0})
    assert [spec.horizon for spec, _, _ in study.specs()] == [9] * 6 + [15] * 6
    episodes, _ = episodes_of(tmp_path, study)
    table = StepTable.from_episodes(episodes)
    assert table.offers == {"oracle", "distance", "environment", "reward"} and table.optimal.shape == (
        len(table.step),
        5,
    )
    assert table.is_optimal.tolist() == [step.action == 1 for one in episodes for step in one.steps]
    assert (table.distance - table.after).max() <= 2 and set(table.optimal_length.tolist()) == {3, 5}
    rows = measure_episodes(episodes)
    assert "action accuracy" in set(rows.measure.tolist())
    said = left_out(one.world for one in episodes)
    assert "grid" in said and "optimal policy" not in said


def test_a_stored_world_of_a_kind_that_is_not_there_is_kept_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes, digest = episodes_of(tmp_path, line_study())
    identity = line_study().id
    names = tuple(name for name in registry.names("world") if name != Line.kind)
    monkeypatch.setattr(registry, "names", lambda kind: names if kind == "world" else ())
    with Store(tmp_path) as store:
        assert content_hash(store) == digest
        assert all(isinstance(world, StoredWorld) for world in store.worlds())
        assert [one.id for one in store.episodes()] == [one.id for one in episodes]
        assert list(StepTable.from_episodes(store.episodes()).outcome) == [one.outcome for one in episodes]
        world = next(iter(store.worlds()))
        study = store.study()
    assert world.id == episodes[0].world.id and study is not None and study.id == identity
    for refused in (lambda: world.begin_episode(0, "e"), study.worlds):
        with pytest.raises(ValueError, match=r"'line of a test'.*install"):
            refused()


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    for changes, words in (
        ({"agents": [{"kind": "optimal"}]}, "needs to see a grid, and these show a line"),
        ({"worlds": [{"kind": "line of a tset", "goals": [1]}]}, "did you mean line of a test?"),
        ({"worlds": [{"kind": "line of a test", "goals": [1], "golas": [2]}]}, "worlds[0].golas: unknown key"),
        ({"worlds": [{"kind": "line of a test", "goals": []}]}, "worlds[0].goals"),
        ({"worlds": [{"kind": "line of a test"}]}, "worlds[0].goals: must be given"),
        ({"worlds": [{"goals": [1]}]}, "worlds[0].kind: must be given"),
        (
            {"worlds": [{"kind": "line of a test", "goals": [2]}, {"kind": "text", "grids": ["AG"]}]},
            "worlds[0] shows a line, worlds[1] shows a grid",
        ),
    ):
        with pytest.raises(ValueError) as error:
            line_study(**changes)
        assert words in str(error.value)
    with pytest.raises(ValueError, match="steps: N"):
        list(line_study(horizon={"factor": 2.0}).specs())
    with pytest.raises(ValueError, match=r"worlds\[0\] repeats .*world-"):
        line_study(worlds=[{"kind": "line of a test", "goals": [2, 2]}]).worlds()


@dataclass(frozen=True)
class Sayer:
    """A model that says one thing."""

    said: str
    name: str = "sayer"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "sayer", "said": self.said}

    def render(self, messages: Any, sampling: Sampling) -> str | None:
        return None

    def complete(self, requests: Collection[Request], sampling: Sampling) -> list[Reply]:
        return [Reply.of(self.said) for _ in requests]


@pytest.mark.parametrize("form", ["example", "schema"])
def test_a_chat_agent_plays_any_world_by_the_names_of_its_actions(tmp_path: Path, form: str) -> None:
    agent = ChatAgent(model=Sayer('{"action": "Jump"}'), task="text", template=form)
    (first,) = agent.messages(Observation(view=LineView(0), episode_id="e"))
    assert isinstance(first, Message) and "You stand at 0." in first.content and "{{" not in first.content
    assert "right, jump, wait, leave" in first.content and "left" not in first.content
    past = (Past(view=LineView(0), action=2),)
    (later,) = agent.messages(Observation(view=LineView(1), step=1, history=past, history_as="actions"))
    assert "You stand at 0. -> jump" in later.content and "left, right" in later.content
    run(line_study(), tmp_path, agents=[agent])
    with Store(tmp_path) as store:
        assert {step.action for one in store.episodes() for step in one.steps} == {2}
    (turn,) = ChatAgent(model=Sayer('{"action": "up"}'), task="text").act([Observation(view=LineView(0))])
    assert turn.failure == "unknown action"


def test_the_random_agent_takes_what_is_admissible_and_an_action_beyond_is_refused(tmp_path: Path) -> None:
    assert Uniform().probabilities(Observation(view=LineView(0))).tolist() == [0, 0.25, 0.25, 0.25, 0.25]

    class Beyond(Uniform):
        def act(self, observations: Any) -> list[Turn]:
            return [Turn(action=7) for _ in observations]

    with pytest.raises(ValueError, match="5 actions"):
        run(line_study(), tmp_path, agents=[Beyond()])


@dataclass(frozen=True, kw_only=True)
class Yard(Line):
    """A world of another package that is no `GridWorld`, and declares that it has a grid."""

    kind: ClassVar[str] = "yard of a test"
    offers: ClassVar[frozenset[Offer]] = frozenset({"grid", "drawing"})
    grid: Grid = field(default_factory=lambda: Grid.parse("######\n#A__G#\n######"))


def test_what_a_kind_declares_is_what_readers_take_of_it() -> None:
    yard, line = Yard(goal=3), Line(goal=3, known=True)
    found = oracle(yard)
    assert found is not None and found.length == 3 and oracle(line) == LineOracle(3)
    process = process_of(yard)
    assert process is grid_process(yard.grid)
    assert process_of(line) is None
    assert offers_of([(yard, found)]) == {"grid", "oracle", "distance"}
    assert "grid" not in offers_of([(line, oracle(line))])
