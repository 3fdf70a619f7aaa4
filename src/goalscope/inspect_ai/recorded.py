"""Episodes of other tasks: the return values of a user's reader for each sample of a log of Inspect."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goalscope.ids import content_id
from goalscope.importers.problems import step_fields
from goalscope.rows import Tag, unreserved
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step
from goalscope.untrusted import UntrustedError, shorten
from goalscope.worlds.recorded import RecordedWorld

UNKNOWN_ACTION = "unknown action"
"""Failure of a turn whose action is not among the known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """One turn of an agent.

    Attributes:
        action: name of the action, None without one.
        failure: reason for the missing action, None with an action.
        text: the answer.
        reasoning: the written reasoning before it.
        prompt_tokens, output_tokens: exact token ids where known.
        reward: reward of the action, None without one.
        extra: plain values to store with the step.
    """

    action: str | None
    failure: str | None = None
    text: str | None = None
    reasoning: str | None = None
    prompt_tokens: tuple[int, ...] | None = None
    output_tokens: tuple[int, ...] | None = None
    reward: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEpisode:
    """The result of a reader for a sample.

    Attributes:
        turns: the agent's turns, in order.
        success: whether it reached its goal, None where the record ends before.
        actions: names of all actions; None for the tools offered to its model.
        agent: short name of the agent; None for the log's model.
        cluster: name of the cluster for intervals; each sample is its own where empty.
        horizon: maximum number of turns; None for the number of turns.
        tags: plain values by name, for the sample's world; rows are grouped by them.
    """

    turns: Sequence[RecordedTurn]
    success: bool | None
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
            raise TypeError(f"turns must be RecordedTurn, got {shorten(invalid[0])}")
        unreserved(dict(self.tags))


def model_events(sample: Any) -> Iterator[Any]:
    """Yield the model calls of a sample that have an output, without those of its scorers.

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
    """Return a turn for each call of a tool that the model of a sample made, in order.

    The first call of an answer has its text and reasoning. Answers without a call are no turns.

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
    """Return the written reasoning of a message of Inspect, None where there is none."""
    parts = [] if isinstance(message.content, str) else message.content
    return "\n\n".join(part.reasoning for part in parts if part.type == "reasoning") or None


def offered_tools(sample: Any) -> set[str]:
    """Return the names of the tools that the model of a sample was offered."""
    return {tool.name for event in model_events(sample) for tool in event.tools}


def recorded_episode(recorded: RecordedEpisode, sample: Any, header: Any) -> tuple[Episode, str]:
    """Return a reader's result as an episode, and the name of its agent.

    Raises:
        UntrustedError: there is no action at all, or a turn has neither an action nor a failure.
    """
    used = {turn.action for turn in recorded.turns if turn.action is not None}
    action_names = recorded.actions if recorded.actions is not None else sorted(offered_tools(sample) or used)
    agent = recorded.agent or header.eval.model
    task = header.eval.task
    try:
        agent.encode()  # half of a character cannot be stored
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
    action = None if turn.action is None else numbers.get(turn.action)
    unknown = turn.action is not None and action is None
    return Step(
        index=index,
        state=(index,),
        action=action,
        failure=UNKNOWN_ACTION if unknown else turn.failure,
        **step_fields(turn),
        extra={**turn.extra, "named": turn.action} if unknown else dict(turn.extra),
    )
