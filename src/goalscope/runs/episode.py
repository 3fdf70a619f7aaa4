"""One episode while it is run: what the agent is shown, and what its turns do."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from goalscope.agents.agent import History, Observation, Past, Turn
from goalscope.agents.task_agent import AnyObservation
from goalscope.rows import Tag
from goalscope.runs.entries import FailurePolicy
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step, World, begin
from goalscope.runs.study import Study
from goalscope.worlds.dynamics import State, shown, step
from goalscope.worlds.fog import Fog
from goalscope.worlds.grid import ACTIONS, Action, Grid


class Place:
    """One state of a world, with what it looks like and where actions lead, each found out once.

    Args:
        world: the world.
        state: the state.
        places: the places of this world that are known, by state.
    """

    __slots__ = ("__weakref__", "_after", "_grid", "_places", "state", "world")

    def __init__(self, world: World, state: State, places: "dict[State, Place]") -> None:
        self.world = world
        self.state = state
        self._places = places
        self._grid: Grid | None = None
        self._after: list[Place | None] = [None] * len(ACTIONS)

    @property
    def grid(self) -> Grid:
        """The grid as it looks in this state."""
        if self._grid is None:
            self._grid = shown(self.world.grid, self.state)
        return self._grid

    def after(self, action: Action) -> "Place":
        """Return the place that an action leads to."""
        place = self._after[action]
        if place is None:
            state = step(self.world.grid, self.state, action)
            place = self._places.get(state)
            if place is None:
                place = self._places[state] = Place(self.world, state, self._places)
            self._after[action] = place
        return place


class Places:
    """Where the episodes of each world begin; a world is forgotten once no episode is live on it."""

    def __init__(self) -> None:
        self._begin: WeakValueDictionary[str, Place] = WeakValueDictionary()

    def of(self, world: World) -> Place:
        """Return the place where the episodes of a world begin."""
        place = self._begin.get(world.id)
        if place is None:
            known: dict[State, Place] = {}
            state = begin(world)
            place = known[state] = self._begin[world.id] = Place(world, state, known)
        return place


class LiveEpisode(ABC):
    """An episode that is being run, whatever its world.

    Args:
        spec: what is run.
        world: where.
        study: its rules: failures, history.
        history: what the agent is shown of earlier steps; what the study says where None.
        failure: what becomes of a turn without an action; what the study says where None.

    Attributes:
        outcome: how it ended, None while it goes on.
        steps: the steps so far.
        usage: what each turn cost: (step, attempt, name, value).
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        world: World,
        study: Study,
        history: History | None = None,
        failure: FailurePolicy | None = None,
    ) -> None:
        self.spec = spec
        self.outcome: Outcome | None = None
        self.steps: list[Step] = []
        self.usage: list[tuple[int, int, str, float]] = []
        self._world = world
        self._failure = failure or study.failure
        self._history_as: History = history or study.history
        self._attempts: list[dict[str, Any]] = []

    @abstractmethod
    def observe(self) -> AnyObservation:
        """Return what the agent is shown now."""

    @abstractmethod
    def _state(self) -> State:
        """Return the true state now."""

    @abstractmethod
    def _take(self, turn: Turn) -> None:
        """Remember a turn that counts as a step, and move."""

    @abstractmethod
    def _arrived(self) -> bool:
        """Return whether the goal is reached."""

    def apply(self, turn: Turn) -> None:
        """Take the agent's turn.

        Raises:
            ValueError: usage that is no finite number.
        """
        index, attempt = len(self.steps), len(self._attempts)
        for name, value in turn.usage.items():
            if not math.isfinite(value):
                raise ValueError(f"usage must hold finite numbers, got {name} = {value!r} at step {index}")
            self.usage.append((index, attempt, name, float(value)))
        if turn.action is None and attempt < self._failure.retries:
            self._attempts.append({"failure": turn.failure, "text": turn.text, "reasoning": turn.reasoning})
            return
        extra = {**turn.extra, "attempts": self._attempts} if self._attempts else turn.extra
        self.steps.append(
            Step(
                index=index,
                state=self._state(),
                action=turn.action,
                failure=turn.failure,
                text=turn.text,
                reasoning=turn.reasoning,
                prompt_tokens=turn.prompt_tokens,
                output_tokens=turn.output_tokens,
                extra=extra,
            )
        )
        self._attempts = []
        self._take(turn)
        if turn.action is None and self._failure.ends:
            self.outcome = "failure"
        elif self._arrived():
            self.outcome = "goal"
        elif len(self.steps) == self.spec.horizon:
            self.outcome = "horizon"

    def record(self, agent: str, tags: Mapping[str, Tag] | None = None) -> Episode:
        """Return the record of the episode, which must have ended.

        Args:
            agent: the agent's short name.
            tags: what the agent says of itself.

        Raises:
            ValueError: the episode goes on.
        """
        if self.outcome is None:
            raise ValueError(f"an episode must have ended to be recorded, {self.spec.id} goes on")
        return Episode(
            spec=self.spec,
            world=self._world,
            agent=agent,
            steps=tuple(self.steps),
            final=self._state(),
            outcome=self.outcome,
            tags=dict(tags or {}),
        )


class Live(LiveEpisode):
    """An episode on a grid that is being run.

    Args:
        spec: what is run.
        place: where it begins.
        study, history, failure: as of any live episode.
        failure: what becomes of a turn without an action; what the study says where None.
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        place: Place,
        study: Study,
        history: History | None = None,
        failure: FailurePolicy | None = None,
    ) -> None:
        super().__init__(spec, place.world, study, history, failure)
        self._place = place
        radius = place.world.fog_radius
        self._fog = None if radius is None else Fog.start(place.world.grid, radius)
        self._history: tuple[Past, ...] = ()

    def observe(self) -> Observation:
        """Return what the agent is shown now."""
        return Observation(
            grid=self._seen(),
            carrying_key=self._place.state.carrying_key,
            step=len(self.steps),
            attempt=len(self._attempts),
            episode_id=self.spec.id,
            seed=self.spec.seed,
            history=self._history,
            history_as=self._history_as,
        )

    def _state(self) -> State:
        return self._place.state

    def _take(self, turn: Turn) -> None:
        if self._history_as != "none":
            self._history = (*self._history, self._past(turn))
        if turn.action is not None:
            self._place = self._place.after(turn.action)
            if self._fog is not None:
                self._fog = self._fog.look(self._place.state.position, self._place.state.door_open)

    def _arrived(self) -> bool:
        return self._place.state.position == self._world.grid.goal

    def _past(self, turn: Turn) -> Past:
        """Return the step that the turn makes, before anything has moved, as the agent will be shown it."""
        return Past(
            grid=self._seen(),
            carrying_key=self._place.state.carrying_key,
            action=turn.action,
            text=turn.text if self._history_as in ("conversation", "reasoning") else None,
            reasoning=turn.reasoning if self._history_as == "reasoning" else None,
        )

    def _seen(self) -> Grid:
        grid = self._place.grid
        return grid if self._fog is None else self._fog.view(grid)
