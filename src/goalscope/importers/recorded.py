"""Episodes of somebody else's task: what a reader of yours returns for each sample of a log of Inspect."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from goalscope.ids import content_id
from goalscope.importers.problems import step_fields
from goalscope.rows import Tag, unreserved
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step
from goalscope.untrusted import UntrustedError, shorten
from goalscope.worlds.recorded import RecordedWorld

UNKNOWN_ACTION = "unknown action"
"""Failure of a turn whose action is none of those that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """One turn of an agent.

    Attributes:
        action: name of the action, None where there is none.
        failure: why there is none, None where there is one.
        text: the answer.
        reasoning: the written reasoning before it.
        prompt_tokens, output_tokens: exact token ids where they are known.
        reward: reward of the action, None without one.
        extra: plain values to keep with the step.
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
    """What a reader returns for a sample.

    Attributes:
        turns: what the agent did, in order.
        success: whether it reached its goal, None where the record stops before that is known.
        actions: names of all actions that there are; those of the tools that its model was offered where None.
        agent: short name of the agent; the log's model where None.
        cluster: name of the cluster that intervals count; one a sample where empty.
        horizon: most turns that it could take; the number of turns where None.
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
        turns = list(self.turns)  # a generator is as good as a list
        object.__setattr__(self, "turns", turns)
        odd = [turn for turn in turns if not isinstance(turn, RecordedTurn)]
        if odd:
            raise TypeError(f"turns must be RecordedTurn, got {shorten(odd[0])}")
        unreserved(dict(self.tags))


Reader = Callable[[Any, Any], RecordedEpisode | None]
"""Called with a sample (`inspect_ai.log.EvalSample`) and the header of its log (`EvalLog`); None leaves it out."""


def model_events(sample: Any) -> Iterator[Any]:
    """Yield the calls of models in a sample that gave an output; those of its scorers are left out.

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

    Text and reasoning stand with the first call of an answer. Answers without a call, such as a last word, are no turn.

    Args:
        sample: a sample of a log, `inspect_ai.log.EvalSample`.
    """
    found = []
    for event in model_events(sample):
        message = event.output.choices[0].message
        for index, call in enumerate(message.tool_calls or ()):
            failed = None if call.parse_error is None else "unreadable arguments"
            found.append(
                RecordedTurn(
                    action=None if failed else call.function,
                    failure=failed,
                    text=(message.text or None) if index == 0 else None,
                    reasoning=reasoning_of(message) if index == 0 else None,
                    extra={"arguments": call.arguments},
                )
            )
    return found


def reasoning_of(message: Any) -> str | None:
    """Return the written reasoning of a message of Inspect, None where there is none."""
    parts = [] if isinstance(message.content, str) else message.content
    return "\n\n".join(part.reasoning for part in parts if part.type == "reasoning") or None


def offered_tools(sample: Any) -> set[str]:
    """Return the names of the tools that the model of a sample was offered."""
    return {tool.name for event in model_events(sample) for tool in event.tools}


def recorded_episode(found: RecordedEpisode, sample: Any, header: Any) -> tuple[Episode, str]:
    """Return the episode that a reader found, and the name of its agent.

    Raises:
        UntrustedError: no action is known, or a turn has neither an action nor a failure.
    """
    used = {turn.action for turn in found.turns if turn.action is not None}
    names = found.actions if found.actions is not None else sorted(offered_tools(sample) or used)
    agent = found.agent or header.eval.model
    task = header.eval.task
    try:
        world = RecordedWorld(
            source=task,
            sample=f"{sample.id}",
            names=tuple(names),
            cluster=found.cluster and content_id("world", {"cluster": found.cluster}),
            tags={"kind": task, **found.tags},
        )
        numbers = {name: number for number, name in enumerate(world.names)}
        steps = tuple(_step(index, turn, numbers) for index, turn in enumerate(found.turns))
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=content_id("agent", {"recorded": agent}),
            trajectory=sample.epoch - 1,
            seed=0,
            horizon=found.horizon or max(1, len(steps)),
        )
        outcome: Outcome = "stopped" if found.success is None else "goal" if found.success else "ended"
        made = Episode(spec=spec, world=world, agent=agent, steps=steps, final=(len(steps),), outcome=outcome)
    except (ValueError, TypeError) as error:
        raise UntrustedError("a reader must return an episode", str(error)) from error
    return made, agent


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
