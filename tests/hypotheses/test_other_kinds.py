"""Worlds of a kind that goalscope does not know: their own actions, twins that act there, what agents are after."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict

import goalscope
from goalscope._ground import registry
from goalscope.goals.hypotheses import HypothesisTwin, Undefined, finite_world, hypothesis, parse
from goalscope.runs import Study, run, world_kind
from goalscope.stats.rows import Tag
from goalscope.worlds import Session, View, World
from goalscope.worlds.planning.process import Process
from registered import entries_of


@dataclass(frozen=True)
class RingView(View):
    """A place on a ring; ``number`` is the number of the state in the process of the ring."""

    shows: ClassVar[str] = "a ring"
    number: int

    @property
    def text(self) -> str:
        return f"You stand at {self.number}."

    @property
    def actions(self) -> tuple[str, ...]:
        return ("clockwise", "back")


class RingSession(Session):
    def __init__(self, world: "Ring") -> None:
        self.world, self.place = world, 0

    @property
    def view(self) -> RingView:
        return RingView(self.place)

    @property
    def state(self) -> tuple[int, ...]:
        return (self.place,)

    @property
    def solved(self) -> bool:
        return self.place == self.world.goal

    @property
    def done(self) -> bool:
        return self.solved

    def step(self, action: int | None) -> None:
        if action is not None:
            self.place = (self.place + (1, -1)[action]) % self.world.places


@dataclass(frozen=True, kw_only=True)
class Ring(World):
    kind: ClassVar[str] = "ring"
    view: ClassVar[type[View]] = RingView
    places: int
    goal: int

    def begin(self, rng: np.random.Generator) -> RingSession:
        return RingSession(self)

    def process(self) -> Process:
        places = np.arange(self.places)
        following = np.stack([(places + 1) % self.places, (places - 1) % self.places], axis=1)
        following[self.goal] = self.goal
        goals = {"goal": self.goal, "third": (self.goal + self.places // 3) % self.places}
        return Process(
            transitions=following,
            start=(places == 0).astype(float),
            number=lambda states: states[:, 0],
            goals={name: (places == place).astype(float) for name, place in goals.items()},
        )

    def to_plain(self) -> dict[str, Any]:
        return {"places": self.places, "goal": self.goal}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        return cls(places=int(plain["places"]), goal=int(plain["goal"]), cluster=cluster, tags=tags or {})


@pytest.fixture(autouse=True)
def ring_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    registry.names("world"), registry.names("hypothesis")
    for kind in ("world", "hypothesis"):
        monkeypatch.setitem(registry._entries, kind, entries_of(kind))

    @world_kind("ring", world=Ring)
    class Rings(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)
        kind: Literal["ring"]
        places: tuple[int, ...]

        def expand(self, seed: int, path: str, taken: object) -> Iterator[Ring]:
            for number in self.places:
                goal = number // 3 if number % 2 else number - number // 3
                yield Ring(places=number, goal=goal, tags={"kind": "ring", "places": number})

    yield


def test_a_habit_names_the_actions_of_the_world_itself() -> None:
    world = finite_world(Ring(places=7, goal=2), 9)
    policy = parse("keep back").solved(world).policy
    back = np.asarray(policy)[..., 1].reshape(-1, 7)[0]
    assert policy.shape[-1] == 2 and (np.delete(back, 2) == 1).all()  # at the goal nothing is decided
    for habit in ("keep right", "follow the wall"):
        with pytest.raises(Undefined):
            parse(habit).solved(world)


@pytest.mark.parametrize("aim", ["goal", "third"])
def test_a_twin_acts_there_and_what_it_is_after_is_named(aim: str, tmp_path: Path) -> None:
    study = Study.parse(
        {
            "worlds": [{"kind": "ring", "places": list(range(7, 23))}],
            "agents": [{"kind": "hypothesis", "hypothesis": aim}],
            "answers": 2,
            "horizon": {"steps": 12},
        }
    )
    run(study, tmp_path / "run")
    found = goalscope.towards(tmp_path / "run", hypotheses=("goal", "third"))
    assert {finding.answer for finding in found.findings} == {"yes"}
    assert {name for finding in found.findings for name in finding.names} == {aim}


def test_a_view_that_does_not_tell_its_state_is_named() -> None:
    class Blind(View):
        shows = "nothing"
        text = ""
        actions = ("clockwise", "back")

    from goalscope.agents import Observation

    with pytest.raises(ValueError, match="number"):
        HypothesisTwin(hypothesis="goal").act([Observation(view=Blind(), world=Ring(places=7, goal=2))])


def test_a_form_with_an_unknown_part_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ValueError, match="'animal'"):
        hypothesis("left of {animal}", kind="place")
    assert parse("corner top-left").text == "corner top-left"
