"""Export of stored runs as Inspect logs.

Inspect's viewer, Scout and Docent open these logs, and `goalscope import` restores the run.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from inspect_ai.event import ModelEvent, ScoreEvent
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageUser,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import SampleScore, Score, mean, stderr

from goalscope._ground.folder import Folder, NamedFile
from goalscope._ground.ids import content_id
from goalscope._ground.version import __version__
from goalscope.agents.chat import ChatAgent
from goalscope.integrations.inspect_ai.provider import write_config, write_messages
from goalscope.integrations.inspect_ai.record import CLUSTER, KEY, TURN, EpisodeRecord, TurnRecord, metadata_of
from goalscope.integrations.inspect_ai.tasks import score_of
from goalscope.measures.transcript import agent_of
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.study import read_rules

MOST_STEPS: Final = 20_000
"""Maximum steps of one log: Inspect holds a log in memory while writing it."""

_BEGAN: Final = "1970-01-01T00:00:00+00:00"
_SCORER: Final = "episode_measures"


def export_logs(
    store: Store, directory: str | Path, *, progress: Callable[[int, int], None] | None = None
) -> list[Path]:
    """Write a run as logs of the framework Inspect, one per agent, or several for an agent with many steps.

    A log has the content that Inspect itself records for goalscope's tasks: worlds, questions and answers, token ids
    and scores. Timestamps are artificial, because a run does not store times.

    Args:
        store: the run.
        directory: directory of the logs, created if missing. Logs with the same names are replaced.
        progress: function called with the number of episodes written and the total number.

    Returns:
        The paths of the logs in the order in which they were written.

    Raises:
        ValueError: a run without episodes, or an episode that is inconsistent with its world.
        OSError: the directory cannot be written.
    """
    folder = Path(directory)
    rows = store.query("SELECT agent_id, id, length FROM episodes ORDER BY agent_id, world_id, trajectory, id")
    if not rows:
        raise ValueError(
            f"{store.path} contains no episode to export: add episodes first with goalscope run or goalscope import"
        )
    Folder(folder).make()
    agents, study = store.agents(), store.study()
    written, n_done = list[Path](), 0
    for number, (identity, ids) in enumerate(_parts(rows)):
        name, description = agents.get(identity, ("", {}))
        agent = agent_of(study, identity)
        writer = _Writer(agent if isinstance(agent, ChatAgent) else None, dict(description))
        samples = [writer.sample(episode) for episode in store.episodes(ids)]
        title = "imported" if study is None else study.name
        log = _log(title, name or samples[0].output.model, identity, samples, writer.config)
        path = folder / f"{number:04d}_{_file_name(name)}_{_file_name(identity.removeprefix('agent-')[:8])}.eval"
        with NamedFile(path).replacing() as partial:
            write_eval_log(log, partial.absolute().as_posix(), format="eval")
        written.append(path)
        n_done += len(ids)
        if progress is not None:
            progress(n_done, len(rows))
    return written


def _parts(rows: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the agent id and the episode ids of each log."""
    part, steps = list[str](), 0
    for index, (agent, identity, length) in enumerate(rows):
        part.append(identity)
        steps += length
        last = index + 1 == len(rows)
        if last or rows[index + 1][0] != agent or steps + rows[index + 1][2] > MOST_STEPS:
            yield agent, part
            part, steps = [], 0


def _file_name(name: str) -> str:
    return "".join(symbol if symbol.isalnum() else "-" for symbol in name)[:60] or "agent"


@dataclass
class _Writer:
    """Writer of one agent's episodes as samples.

    Attributes:
        agent: the chat agent, used to render its prompts again, or None if it cannot be built here.
        description: the description of the agent in the store.
    """

    agent: ChatAgent | None
    description: dict[str, Any]

    @property
    def config(self) -> GenerateConfig:
        """The sampling settings, as far as they are known."""
        return GenerateConfig() if self.agent is None else write_config(self.agent.sampling)

    def sample(self, episode: Episode) -> EvalSample:
        """Convert an episode to a sample."""
        spec, world = episode.spec, episode.world
        events, turns, first = self._events(episode)
        score = score_of(episode)
        record = EpisodeRecord.of(episode, self.description, turns)
        return EvalSample(
            id=world.id,
            epoch=spec.trajectory + 1,
            input=first,
            target="goal",
            messages=_conversation(events, episode),
            output=events[-1].output if events else ModelOutput(model=episode.agent),
            scores={_SCORER: score},
            metadata=metadata_of(world, seed=spec.seed, horizon=spec.horizon),
            store={KEY: record.plain()},
            events=[*events, ScoreEvent(score=score, target="goal", timestamp=_at(len(events)))],
            uuid=spec.id,
        )

    def _events(self, episode: Episode) -> tuple[list[ModelEvent], list[str], str]:
        """Return the model calls of an episode, the ids of the answers, and the text of the first observation."""
        history, failure = read_rules(episode.spec.rules)
        live = LiveEpisode(episode.spec, episode.world, None, history, failure)
        events, turns, first = list[ModelEvent](), list[str](), ""
        for step in episode.steps:
            attempts = step.extra.get("attempts", ())
            extra = {name: value for name, value in step.extra.items() if name != "attempts"}
            for attempt in attempts[: failure.retries]:
                chat = self._chat(live)
                turn = TurnRecord(**{name: attempt.get(name) for name in ("failure", "text", "reasoning")})
                events.append(_event(chat, turn, None, episode, len(events)))
                live.apply(turn.turn())
            chat = self._chat(live)
            first = first or str(chat[-1].content)
            turn = TurnRecord(
                action=None if step.action is None else int(step.action),
                failure=step.failure,
                text=step.text,
                reasoning=step.reasoning,
                prompt_tokens=None if step.prompt_tokens is None else list(step.prompt_tokens),
                output_tokens=None if step.output_tokens is None else list(step.output_tokens),
                reward=step.reward,
                extra=extra,
            )
            action_name = None if step.action is None else live.observe().view.actions[int(step.action)]
            events.append(_event(chat, turn, action_name, episode, len(events)))
            live.apply(turn.turn())
            if not live.steps or tuple(live.steps[-1].state) != tuple(step.state):
                raise ValueError(
                    f"episode {episode.id} is inconsistent with its world at step {step.index}, so it cannot be "
                    "exported: run goalscope verify to check whether the run is damaged"
                )
        turns = [str(event.output.message.id) for event in events]
        return events, turns, first

    def _chat(self, live: LiveEpisode) -> list[ChatMessage]:
        observation = live.observe()
        if self.agent is None:
            return [ChatMessageUser(content=observation.view.text)]
        return write_messages(self.agent.messages(observation))


def _event(
    chat: list[ChatMessage], turn: TurnRecord, action_name: str | None, episode: Episode, number: int
) -> ModelEvent:
    """Convert one model call, with its chat and the resulting turn, to an event."""
    text = turn.text if turn.text is not None else action_name or f"({turn.failure})"
    parts: list[Content] = [ContentReasoning(reasoning=turn.reasoning)] if turn.reasoning else []
    parts.append(ContentText(text=text))
    message = ChatMessageAssistant(
        id=content_id("message", [episode.id, number]), content=parts, model=episode.agent, source="generate"
    )
    output = ModelOutput.from_message(message)
    output.model = episode.agent
    counts = [len(tokens or ()) for tokens in (turn.prompt_tokens, turn.output_tokens)]
    if any(counts):
        output.usage = ModelUsage(input_tokens=counts[0], output_tokens=counts[1], total_tokens=sum(counts))
    output.metadata = {KEY: {TURN: turn.plain()}}
    return ModelEvent(
        model=f"{KEY}/{episode.agent}",
        input=chat,
        tools=[],
        tool_choice="none",
        config=GenerateConfig(),
        output=output,
        timestamp=_at(number),
        completed=_at(number),
    )


def _at(number: int) -> datetime:
    """Return an artificial time that only orders the events."""
    return datetime.fromtimestamp(number, UTC)


def _conversation(events: Sequence[ModelEvent], episode: Episode) -> list[ChatMessage]:
    """Return the displayed messages of a sample, i.e. each question and each answer once."""
    history, _ = read_rules(episode.spec.rules)
    if history in ("conversation", "reasoning") and events:
        return [*events[-1].input, events[-1].output.message]
    return [message for event in events for message in (*event.input, event.output.message)]


def _log(title: str, name: str, identity: str, samples: list[EvalSample], config: GenerateConfig) -> EvalLog:
    ids = list(dict.fromkeys(sample.id for sample in samples))
    return EvalLog(
        status="success",
        eval=EvalSpec(
            created=_BEGAN,
            task=f"{KEY}/run",
            task_id=identity,
            eval_id=content_id("eval", [sample.uuid for sample in samples]),
            run_id=title,
            dataset=EvalDataset(name=title, samples=len(ids), sample_ids=ids),
            model=f"{KEY}/{name}",
            model_generate_config=config,
            config=EvalConfig(epochs=max(sample.epoch for sample in samples)),
            packages={KEY: __version__},
        ),
        stats=EvalStats(started_at=_BEGAN, completed_at=_BEGAN),
        results=_results(samples),
        samples=samples,
    )


def _results(samples: Sequence[EvalSample]) -> EvalResults:
    """Compute the mean and clustered standard error of each measure over the means of worlds, as Inspect does."""
    names = dict.fromkeys(name for sample in samples for name in _values(sample))
    return EvalResults(
        total_samples=len(samples),
        completed_samples=len(samples),
        scores=[_score(name, samples) for name in names],
    )


def _values(sample: EvalSample) -> dict[str, float]:
    value = (sample.scores or {})[_SCORER].value
    assert isinstance(value, dict)  # constants of goalscope's own scorer
    return {
        name: float(number) for name, number in value.items() if isinstance(number, float) and not math.isnan(number)
    }


def _score(name: str, samples: Sequence[EvalSample]) -> EvalScore:
    worlds: dict[Any, list[float]] = {}
    clusters: dict[Any, dict[str, Any]] = {}
    for sample in samples:
        if name in (values := _values(sample)):
            worlds.setdefault(sample.id, []).append(values[name])
            clusters[sample.id] = {CLUSTER: sample.metadata[CLUSTER]}
    scores = [
        SampleScore(
            score=Score(value=sum(values) / len(values)), sample_id=sample_id, sample_metadata=clusters[sample_id]
        )
        for sample_id, values in worlds.items()
    ]
    metrics = {"mean": mean(), "stderr": stderr(cluster=CLUSTER)}
    values = {kind: EvalMetric(name=kind, value=metric(scores)) for kind, metric in metrics.items()}
    return EvalScore(name=name, scorer=_SCORER, scored_samples=len(scores), metrics=values)
