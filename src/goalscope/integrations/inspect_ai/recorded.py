"""Episodes of other Inspect tasks, as a user's reader function returns them for each sample of a log.

If the reader gives the world, the actions are replayed in it and each recorded state is compared. Otherwise only the
names of the actions are known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goalscope._ground.ids import content_id
from goalscope._ground.untrusted import UntrustedError, shorten
from goalscope.agents.agent import Turn
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.importers.problems import STEP_FIELDS, step_fields
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step
from goalscope.runs.study import Horizon
from goalscope.stats.rows import Tag, unreserved
from goalscope.worlds.planning.oracle import oracle
from goalscope.worlds.recorded import RecordedWorld
from goalscope.worlds.world import TimedOracle, World

UNKNOWN_ACTION = "unknown action"
"""Failure of a turn whose action is not among the known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """Turn of an agent as a reader returns it.

    Attributes:
        action: name of the action, or None if the agent did not act.
        state: in a known world, the recorded state before the action, or None. A state is (row, col) or (row, col,
            flags) in grids and task maps, and a state of the environment otherwise.
        failure: reason for the missing action, None with an action.
        text: the answer.
        reasoning: the written reasoning before the answer.
        prompt_tokens, output_tokens: exact token ids, if known.
        reward: reward of the action, or None.
        extra: plain values to store with the step.
    """

    action: str | None
    state: Any = None
    failure: str | None = None
    text: str | None = None
    reasoning: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: tuple[int, ...] | None = None
    reward: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEpisode:
    """Episode as a reader returns it for a sample.

    Attributes:
        turns: the agent's turns, in order.
        success: whether the agent reached its goal, or None if the record ends earlier. A known world determines
            success itself; there, False means that the agent gave up.
        world: the world, if its rules are known: a grid, a task map or an environment.
        actions: names of all actions; None for the actions of the known world, or otherwise the tools offered to the
            model.
        agent: short name of the agent; None for the model of the log.
        cluster: name of the cluster for intervals. If empty, each sample is a cluster. A known world has its own
            cluster.
        horizon: maximum number of turns; None for the number of turns in the record and, in a known world, at least
            the horizon of a study.
        tags: plain values by name, by which rows are grouped. They belong to the sample's world, or to the episode if
            the world is known.

    Raises:
        ValueError: actions or a cluster given together with a known world.
    """

    turns: Sequence[RecordedTurn]
    success: bool | None = None
    world: World | None = None
    actions: Sequence[str] | None = None
    agent: str | None = None
    cluster: str = ""
    horizon: int | None = None
    tags: Mapping[str, Tag] = field(default_factory=dict)

    def __post_init__(self) -> None:
        turns = list(self.turns)  # also accepts a generator
        object.__setattr__(self, "turns", turns)
        invalid = [turn for turn in turns if not isinstance(turn, RecordedTurn)]
        if invalid:
            raise TypeError(f"turns must contain only RecordedTurn objects, got {shorten(invalid[0])}")
        unreserved(dict(self.tags))
        if self.world is not None and (self.actions is not None or self.cluster):
            raise ValueError("world is given, so its actions and cluster are known: leave actions and cluster out")


def model_events(sample: Any) -> Iterator[Any]:
    """Yield the model calls of a sample that have an output, except calls made by scorers.

    Args:
        sample: a sample of a log, `inspect_ai.log.EvalSample`.
    """
    grading = set[str]()
    for event in sample.events:
        if event.event == "span_begin" and (event.type in ("scorers", "scorer") or event.parent_id in grading):
            grading.add(event.id)
        elif event.event == "model" and event.span_id not in grading and _answered(event):
            yield event


def _answered(event: Any) -> bool:
    return not event.pending and event.error is None and bool(event.output.choices)


def tool_calls(sample: Any) -> list[RecordedTurn]:
    """Return one turn per tool call of the sample's model, in order.

    The text and reasoning of an answer go to its first call. Answers without a call are not turns.

    Args:
        sample: a sample of a log, `inspect_ai.log.EvalSample`.
    """
    turns = []
    for event in model_events(sample):
        message = event.output.choices[0].message
        for index, call in enumerate(message.tool_calls or ()):
            failure = None if call.parse_error is None else "unreadable arguments"
            turns.append(
                RecordedTurn(
                    action=None if failure else call.function,
                    failure=failure,
                    text=(message.text or None) if index == 0 else None,
                    reasoning=reasoning_of(message) if index == 0 else None,
                    extra={"arguments": call.arguments},
                )
            )
    return turns


def reasoning_of(message: Any) -> str | None:
    """Return the written reasoning of an Inspect message, or None."""
    parts = [] if isinstance(message.content, str) else message.content
    return "\n\n".join(part.reasoning for part in parts if part.type == "reasoning") or None


def offered_tools(sample: Any) -> set[str]:
    """Return the names of the tools offered to the model of a sample."""
    return {tool.name for event in model_events(sample) for tool in event.tools}


def recorded_episode(recorded: RecordedEpisode, sample: Any, header: Any) -> tuple[Episode, str]:
    """Convert a reader's result to an episode. Return it with the name of its agent.

    Raises:
        UntrustedError: there is no action at all, a turn has neither an action nor a failure, or the record
            contradicts the rules of a known world.
    """
    if recorded.world is not None:
        return _replayed(recorded, recorded.world, sample, header)
    actions_used = {turn.action for turn in recorded.turns if turn.action is not None}
    action_names = recorded.actions if recorded.actions is not None else sorted(offered_tools(sample) or actions_used)
    if not action_names:
        must = "an episode must have names of actions: its sample offered no tools and no turn names an action"
        raise UntrustedError(f"{must}; give RecordedEpisode.actions", "none")
    agent = recorded.agent or header.eval.model
    task = header.eval.task
    try:
        agent.encode()  # a lone surrogate cannot be stored
        world = RecordedWorld(
            source=task,
            sample=f"{sample.id}",
            names=tuple(action_names),
            cluster=recorded.cluster and content_id("world", {"cluster": recorded.cluster}),
            tags={"kind": task, **recorded.tags},
        )
        numbers = {name: number for number, name in enumerate(world.names)}
        steps = tuple(_step(index, turn, numbers) for index, turn in enumerate(recorded.turns))
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=content_id("agent", {"recorded": agent}),
            trajectory=sample.epoch - 1,
            seed=0,
            horizon=recorded.horizon or max(1, len(steps)),
        )
        outcome: Outcome = "stopped" if recorded.success is None else "goal" if recorded.success else "ended"
        episode = Episode(spec=spec, world=world, agent=agent, steps=steps, final=(len(steps),), outcome=outcome)
    except (ValueError, TypeError) as error:
        raise UntrustedError("a reader must return an episode", str(error)) from error
    return episode, agent


def _step(index: int, turn: RecordedTurn, numbers: Mapping[str, int]) -> Step:
    return Step(index=index, state=(index,), **_decided(turn, numbers, turn.action), **step_fields(turn))


def _decided(turn: RecordedTurn, numbers: Mapping[str, int], named: str | None) -> dict[str, Any]:
    """Return the action of a turn by its name, or its failure; an unknown name is kept in the extra values."""
    action = None if named is None else numbers.get(named)
    if named is not None and action is None:
        return {"action": None, "failure": UNKNOWN_ACTION, "extra": {**turn.extra, "named": turn.action}}
    return {"action": action, "failure": turn.failure, "extra": dict(turn.extra)}


def _replayed(recorded: RecordedEpisode, world: World, sample: Any, header: Any) -> tuple[Episode, str]:
    """Replay the recorded actions in a known world. Return the episode and the name of its agent."""
    agent, turns = recorded.agent or header.eval.model, list(recorded.turns)
    try:
        agent.encode()
        usual = _usual_horizon(world)
        horizon = recorded.horizon or max(1, len(turns), usual)
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=content_id("agent", {"recorded": agent}),
            trajectory=sample.epoch - 1,
            seed=0,
            horizon=horizon,
        )
        live = LiveEpisode(spec, world, None)
        for index, turn in enumerate(turns):
            if live.outcome is not None:
                raise UntrustedError(f"an episode must end where it is over ({live.outcome})", "a further turn")
            _check_state(world, turn, index, live)
            live.apply(_turn(turn, live.observe().view.actions))
        solved = live.outcome == "goal"
        if recorded.success is not None and recorded.success != solved:
            must = f"success must be {solved}, as the actions lead in the world"
            raise UntrustedError(must, f"{recorded.success}")
        live.outcome = live.outcome or ("stopped" if recorded.success is None else "ended")
        return live.record(agent, recorded.tags), agent
    except (ValueError, TypeError) as error:
        if isinstance(error, UntrustedError):
            raise
        raise UntrustedError("a reader must return an episode of its world", str(error)) from error


def _usual_horizon(world: World) -> int:
    """Return the horizon that a study would use on a world, or 0 if the world has no horizon and no shortest path."""
    solution = oracle(world)
    if isinstance(solution, TimedOracle):
        must = "a known world must leave nothing to chance, since its states are those to which the actions lead"
        raise UntrustedError(must, "one with chance: leave world out")
    return Horizon(factor=1.5).of(world) if world.horizon is not None or (solution and solution.length > 0) else 0


def _check_state(world: World, turn: RecordedTurn, index: int, live: LiveEpisode) -> None:
    """Raise an error unless the recorded state is the state to which the earlier actions lead in the world."""
    if turn.state is None:
        return
    expected = world.restore_state(live.state)
    if not world.recorded_as and isinstance(expected, tuple) and isinstance(turn.state, list | tuple):
        expected = tuple(expected)[: len(turn.state)]  # records may omit the flags
    if (tuple(turn.state) if isinstance(turn.state, list | tuple) else turn.state) != expected:
        must = f"the state must be {shorten(expected)}, where the actions before lead in the world"
        raise UntrustedError(must, shorten(turn.state), f"turn {index}")


def _turn(turn: RecordedTurn, names: Sequence[str]) -> Turn:
    """Convert a turn in a known world. Action names may be in upper or lower case."""
    numbers = {name.casefold(): number for number, name in enumerate(names)}
    named = None if turn.action is None else turn.action.casefold()
    fields = {name: getattr(turn, name) for name in STEP_FIELDS if name != "reward"}
    return Turn(**_decided(turn, numbers, named), **fields)
