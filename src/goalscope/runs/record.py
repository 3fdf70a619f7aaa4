"""The records of a run: worlds, episode specifications, steps, episodes.

Only these records pass between the runner, importers, the store and the measures.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import repeat
from json import JSONEncoder
from typing import Any, Final, Literal

from goalscope._ground.ids import content_id, id_of_text
from goalscope.stats.rows import Tag
from goalscope.worlds.dynamics import State, initial_state
from goalscope.worlds.world import World

__all__ = ["SECOND", "Episode", "EpisodeSpec", "Outcome", "Step", "World", "begin"]

Outcome = Literal["goal", "horizon", "failure", "stopped", "ended"]
"""How an episode ended: at the goal, at its horizon, by an unusable turn ("failure"), by the end of its record
("stopped"), or ended by the world without reaching the goal."""


NO_ACTION = -1
"""Action code of a turn without a valid move."""

_PLAIN = {int, str}
_encode = JSONEncoder(separators=(",", ":")).encode

SECOND = "second answer"
"""Further value of a step that was answered twice: the action of the second answer, None if that held none."""


@dataclass(frozen=True, kw_only=True)
class EpisodeSpec:
    """Everything that determines an episode before it is played: agent, world, random numbers, horizon and rules.

    Resuming a run compares the ids of specifications to find the episodes that are stored already.

    Attributes:
        world_id: content id of the world.
        agent_id: content id of the agent's description.
        trajectory: number of the trajectory in this world, counted from 0.
        seed: root seed of the study.
        horizon: maximum number of actions.
        rules: other settings that influence the episode, as canonical JSON: the failure policy, the history shown, and
            how often a step is answered. "" for the defaults: a failed turn is a step in place, no history, one answer.
    """

    world_id: str
    agent_id: str
    trajectory: int
    seed: int
    horizon: int
    rules: str = ""

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ValueError(f"the horizon of an episode must be at least 1, got {self.horizon}")
        if self.trajectory < 0:
            raise ValueError(f"the number of a trajectory must be >= 0, got {self.trajectory}")

    @cached_property
    def id(self) -> str:
        """Content id of the episode: a hash of all attributes of its specification."""
        plain = {
            "agent": self.agent_id,
            "horizon": self.horizon,
            **({"rules": self.rules} if self.rules else {}),
            "seed": self.seed,
            "trajectory": self.trajectory,
            "world": self.world_id,
        }
        # entries are in the order of their keys, so that sorting costs little
        if _PLAIN.issuperset(map(type, plain.values())):
            return id_of_text("episode", _encode(plain))
        return content_id("episode", plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of an episode: the state before it, and the agent's answer.

    Attributes:
        index: number of the step in its episode, counted from 0.
        state: the true state before the action: a `State` on grids and task maps, else integers.
        action: index of the action (an `Action` on grids and task maps), None for a turn without a valid move.
        failure: why there is no action ("no JSON", "unknown action", ...), None if there is one.
        text: the answer as text, or None.
        reasoning: the written reasoning before the answer, or None.
        prompt_tokens, output_tokens: exact token ids, None if unknown.
        reward: reward of the action, None in a world without rewards.
        extra: other recorded values of the step, such as log-probabilities, in the types of JSON.

    Raises:
        ValueError: unless there is either an action or a failure.
    """

    index: int
    state: Any
    action: Any
    failure: str | None = None
    text: str | None = None
    reasoning: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: tuple[int, ...] | None = None
    reward: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.action is None) == (self.failure is None):
            raise ValueError(
                f"a step must have either an action or the name of a failure, got action={self.action!r} and "
                f"failure={self.failure!r}"
            )


_SETTERS: Final = {entry.name: getattr(Step, entry.name).__set__ for entry in fields(Step)}


class StoredSteps(Sequence[Step]):
    """The steps of a stored episode as columns; they become `Step` objects when the first of them is read.

    Attributes:
        columns: the values of each field of `Step`, by its name; they are known to fit together.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self.columns = columns

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        # Slots are set one by one, because the constructor takes six times as long.
        steps = tuple(map(object.__new__, repeat(Step, len(self))))
        for name, column in self.columns.items():
            deque(map(_SETTERS[name], steps, column), maxlen=0)
        return steps

    def __len__(self) -> int:
        return len(self.columns["index"])

    def __getitem__(self, index: Any) -> Any:
        return self._steps[index]

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)

    def __eq__(self, other: object) -> bool:
        return self._steps == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._steps)


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One episode of an agent in a world, with everything that is needed to measure it.

    Attributes:
        spec: specification of the episode.
        world: the world; its id equals ``spec.world_id``.
        agent: short name of the agent, as tables show it.
        steps: the steps in order.
        final: the state after the last step.
        outcome: how the episode ended.
        tags: named values by which results are grouped (source file, temperature, ...), in addition to those of its
            world.

    Raises:
        ValueError: if steps are not numbered 0, 1, 2, ..., exceed the horizon, or the world has another id.
    """

    spec: EpisodeSpec
    world: World
    agent: str
    steps: Sequence[Step]
    final: Any
    outcome: Outcome
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.spec.world_id != self.world.id:
            raise ValueError(f"the world must be that of the specification, {self.spec.world_id}, got {self.world.id}")
        if (numbers := list(self.column("index"))) != list(range(len(self.steps))):
            raise ValueError(f"steps must be numbered 0, 1, 2, ..., got {numbers}")
        if len(self.steps) > self.spec.horizon:
            raise ValueError(f"an episode must not be longer than its horizon: {len(self.steps)} > {self.spec.horizon}")

    @property
    def id(self) -> str:
        """Content id of the episode: a hash of its specification, known before the episode is played."""
        return self.spec.id

    def column(self, name: str) -> Sequence[Any]:
        """Return the values of one field of `Step` (such as "action") at each of the T steps.

        For an episode that was read from a store this is much faster than reading the steps one by one.
        """
        if isinstance(self.steps, StoredSteps):
            return self.steps.columns[name]
        return [getattr(step, name) for step in self.steps]

    def path(self) -> list[Any]:
        """Return the T + 1 states of an episode with T steps, including the final one, in the form that the environment
        uses.

        Raises:
            ValueError: the states cannot be restored here, see `World.restore_state`.
        """
        return [self.world.restore_state(state) for state in (*self.column("state"), self.final)]

    @property
    def success(self) -> bool:
        """Whether the episode ended at the goal."""
        return self.outcome == "goal"


def begin(world: World) -> State:
    """Return the state in which an episode in a world that is a grid starts."""
    return initial_state(world.grid)


def policy_of(extra: Mapping[str, Any]) -> list[float] | None:
    """Return the probabilities ``[A]`` of the A actions from which the action of a step was drawn.

    The result is None if they were not recorded.

    Args:
        extra: the other recorded values of the step (`Step.extra`).
    """
    policy = extra.get("policy")
    if not isinstance(policy, list) or not all(
        isinstance(probability, int | float) and 0 <= probability <= 1 for probability in policy
    ):
        return None
    return [float(probability) for probability in policy]
