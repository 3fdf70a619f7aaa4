"""Episodes in Inspect logs: those of goalscope's tasks, and those of other tasks that a reader function returns.

goalscope's own episodes are stored as plain values under one key and validated when they are read. For a sample of
another task, a function of the user returns a `RecordedEpisode`. If it gives the world, the actions are replayed in it
and each recorded state is compared; otherwise only the names of the actions are known. Inspect itself is not needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.untrusted import UntrustedError, faults, shorten
from goalscope.agents.agent import Turn
from goalscope.agents.models.base import PART_KINDS, Finish, Part, PartKind, Reply, finish_of
from goalscope.runs.codec import decode_world, encode_tags, encode_world
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.importers.problems import STEP_FIELDS, TokenId, step_fields
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step
from goalscope.runs.study import Horizon
from goalscope.stats.rows import Tag, unreserved
from goalscope.worlds.planning.shortest import oracle
from goalscope.worlds.world import RecordedWorld, TimedOracle, World

KEY: Final = "goalscope"
"""Key of goalscope's values in a sample's metadata and store, and in the metadata of a model's output."""

CLUSTER: Final = "cluster"
"""The metadata of a sample that clustered standard errors read."""

TURN: Final = "turn"
"""Key of an exported turn that was recorded elsewhere, in goalscope's values of an output."""

VERSION: Final = 1
"""Version of these values; another one is refused."""

_Name = Annotated[str, Field(min_length=1, max_length=500)]


def _storable(values: dict[str, Any]) -> dict[str, Any]:
    try:
        canonical_json(values)
    except RecursionError:
        raise ValueError("the values are nested too deeply to be read back as JSON") from None
    return values


_Plain = Annotated[dict[str, Any], AfterValidator(_storable)]
_Step = Annotated[tuple[list[int], int | None, str | None], Field(strict=False)]


class _Values(BaseModel):
    """Plain values from a log, which are not trusted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def read(cls, stored: Any, path: str) -> Self:
        """Read and validate values from a log.

        Raises:
            UntrustedError: another version, an unknown or missing key, or a value of the wrong type.
        """
        if not isinstance(stored, dict):
            raise UntrustedError("it must be an object", shorten(stored), path)
        if stored.get("version", VERSION) != VERSION:
            must = f"it must be of version {VERSION}, which this goalscope reads"
            raise UntrustedError(must, f"version {shorten(stored['version'])}", path)
        try:
            return cls.model_validate(stored)
        except ValidationError as error:
            problem = faults(error, {"": tuple(cls.model_fields)})[0]
            raise UntrustedError(problem.must, problem.given, f"{path}.{problem.where}") from None

    def plain(self) -> dict[str, Any]:
        """Convert the record to the plain values that are written to a log."""
        return self.model_dump(mode="json", exclude_defaults=True)


class WorldRecord(_Values):
    """A world in the metadata of an Inspect sample, in the form in which runs store it.

    ``stored`` is the world as text, ``cluster`` its group for intervals, and ``tags`` are named facts about it, such as
    its size.
    """

    id: _Name
    stored: str
    fog_radius: int | None = None
    cluster: str = ""
    tags: dict[str, Tag] = Field(default_factory=dict)


class SampleRecord(_Values):
    """What defines the episode of an Inspect sample before it is played: world, root seed and maximum number of
    actions.
    """

    version: Literal[1]
    world: WorldRecord
    seed: int
    horizon: Annotated[int, Field(ge=1)]

    @classmethod
    def of(cls, world: World, *, seed: int, horizon: int) -> "SampleRecord":
        """Build the record of a sample in which an episode is to be played in a world, with a seed and a maximum of
        actions.
        """
        identity, stored, fog_radius, cluster, _ = encode_world(world)
        world_fields = {"id": identity, "stored": stored, "fog_radius": fog_radius, "cluster": cluster}
        stored_world = WorldRecord.model_validate({**world_fields, "tags": dict(world.tags)})
        return cls(version=VERSION, world=stored_world, seed=seed, horizon=horizon)

    def begin(self) -> World:
        """Return the world of the sample, rebuilt from the record.

        Raises:
            UntrustedError: the record does not contain a world, or its id is a different one.
        """
        stored_world = self.world
        try:
            return decode_world(
                (
                    stored_world.id,
                    stored_world.stored,
                    stored_world.fog_radius,
                    stored_world.cluster,
                    encode_tags(stored_world.tags),
                )
            )
        except ValueError as error:
            raise UntrustedError("it must hold a world", str(error).split("\n", 1)[0], "world") from error


def metadata_of(world: World, *, seed: int, horizon: int) -> dict[str, Any]:
    """Return the metadata of an Inspect sample for a world: its tags (such as its size), its cluster, and a
    `SampleRecord`.

    ``horizon`` is the maximum number of actions.
    """
    tags = {name: value for name, value in world.tags.items() if name not in (KEY, CLUSTER)}
    return {**tags, CLUSTER: world.cluster_id, KEY: SampleRecord.of(world, seed=seed, horizon=horizon).plain()}


class EpisodeRecord(_Values):
    """Record, in the store of an Inspect sample, of the episode that was played in it.

    Attributes:
        agent: the agent's short name.
        description: all settings that determine the agent's behaviour. Its content id is the agent's id.
        agent_id: id of the agent if it is not the hash of the description, as for imported agents.
        tags: tags that the agent reports.
        trajectory: index of the trajectory on its world.
        rules: as in `EpisodeSpec`.
        turns: ids of the messages that the model wrote, in order, including repeated attempts.
        steps: (state, action, failure) of each step.
        final: the state after the last step.
        outcome: how the episode ended.
    """

    version: Literal[1]
    agent: Annotated[str, Field(max_length=500)]
    description: _Plain
    agent_id: _Name
    tags: dict[str, Tag] = Field(default_factory=dict)
    trajectory: Annotated[int, Field(ge=0, lt=2**53)]
    rules: str = ""
    turns: list[_Name]
    steps: list[_Step]
    final: list[int]
    outcome: Outcome

    @classmethod
    def of(cls, episode: Episode, description: dict[str, Any], turns: list[str]) -> "EpisodeRecord":
        """Build the record of an episode.

        Args:
            episode: the episode.
            description: all settings of the agent.
            turns: ids of the messages that the model wrote.
        """
        steps = [
            (list(step.state), None if step.action is None else int(step.action), step.failure)
            for step in episode.steps
        ]
        return cls(
            version=VERSION,
            agent=episode.agent,
            description=description,
            agent_id=episode.spec.agent_id,
            tags=dict(episode.tags),
            trajectory=episode.spec.trajectory,
            rules=episode.spec.rules,
            turns=turns,
            steps=steps,
            final=list(episode.final),
            outcome=episode.outcome,
        )

    def spec(self, sample: SampleRecord) -> EpisodeSpec:
        """Return what identifies the episode (world, agent, trajectory, seed, horizon, rules), from this record and the
        sample's.
        """
        return EpisodeSpec(
            world_id=sample.world.id,
            agent_id=self.agent_id,
            trajectory=self.trajectory,
            seed=sample.seed,
            horizon=sample.horizon,
            rules=self.rules,
        )


class ReplyPartRecord(_Values):
    """Record of one part of a model's reply (reasoning, answer or tool call) in an Inspect log."""

    kind: PartKind
    text: str


class ReplyRecord(_Values):
    """Record of a model's `Reply` in an Inspect log, with what Inspect's own message does not show, such as token
    ids.
    """

    parts: list[ReplyPartRecord]
    finish: Finish = "stop"
    redraws: Annotated[int, Field(ge=0)] = 0
    error: str = ""
    prompt_tokens: list[TokenId] | None = None
    output_tokens: list[TokenId] | None = None
    usage: dict[str, float] = Field(default_factory=dict)
    logprobs: list[dict[str, Any]] | None = None
    reconstructed: bool = False
    unsupported: list[str] = Field(default_factory=list)
    raw: str | None = None
    answered_by: str = ""

    @classmethod
    def of(cls, reply: Reply) -> "ReplyRecord":
        """Build the record of a model's reply. The raw text is left out if the token ids determine it."""
        plain = {entry.name: _plain(getattr(reply, entry.name)) for entry in fields(Reply)}
        plain["parts"] = [asdict(part) for part in reply.parts]
        if reply.output_tokens is not None:
            plain["raw"] = None
        return cls.model_validate(plain)

    def reply(self) -> Reply:
        """Return the model's reply, rebuilt from the record.

        Raises:
            UntrustedError: inconsistent values, such as a failed reply without an error.
        """
        values = {name: _frozen(getattr(self, name)) for name in ReplyRecord.model_fields}
        values["parts"] = tuple(Part(kind=part.kind, text=part.text) for part in self.parts)
        try:
            return Reply(**values)
        except ValueError as error:
            raise UntrustedError(str(error)) from error


def foreign_reply(message: Any, stop_reason: str | None, reasoning: str | None, **others: Any) -> Reply:
    """Build a reply of goalscope from the message of a model that Inspect called directly, without goalscope's
    provider.

    Args:
        message: Inspect's assistant message.
        stop_reason: Inspect's stop reason.
        reasoning: the written reasoning of the message, or None.
        others: further fields of `Reply`.
    """
    tools = getattr(message, "tool_calls", None) or ()
    calls = [canonical_json({"name": call.function, "arguments": call.arguments}) for call in tools]
    texts = {"reasoning": [reasoning], "answer": [message.text], "call": calls}
    parts = tuple(Part(kind=kind, text=text) for kind in PART_KINDS for text in texts[kind] if text)
    finish: Finish = "stop"
    if stop_reason in ("max_tokens", "model_length"):
        finish = "length"
    elif stop_reason == "content_filter":
        finish = "withheld"
    return Reply(parts=parts, finish=finish_of(parts, finish), **others)


class TurnRecord(_Values):
    """Record of an agent's turn from another source, in an Inspect log.

    Its action is stored, because it is not parsed from the answer again.

    Attributes:
        reward: the recorded reward if the world gives none.
    """

    text: str | None = None
    reasoning: str | None = None
    prompt_tokens: list[TokenId] | None = None
    output_tokens: list[TokenId] | None = None
    action: Annotated[int, Field(ge=0)] | None = None
    failure: str | None = None
    reward: float | None = None
    extra: _Plain = Field(default_factory=dict)

    def turn(self) -> Turn:
        """Return the agent's turn (action or failure, text and tokens), rebuilt from the record.

        Raises:
            UntrustedError: neither an action nor a failure, or both.
        """
        try:
            values = {name: getattr(self, name) for name in TurnRecord.model_fields if name != "reward"}
            return Turn(**{name: value if name == "extra" else _frozen(value) for name, value in values.items()})
        except ValueError as error:
            raise UntrustedError(str(error)) from error


def _plain(value: Any) -> Any:
    """Convert nested tuples to lists."""
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    """Convert nested lists to tuples."""
    return tuple(value) if isinstance(value, list) else value


UNKNOWN_ACTION = "unknown action"
"""Failure of a turn whose action is not among the known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """One turn of an agent in the log of another task, as the user's own reader function returns it.

    Attributes:
        action: name of the action, or None if the agent did not act.
        state: in a known world, the recorded state before the action, or None. A state is (row, col) or (row, col,
            flags) in grids and task maps, and a state of the environment otherwise.
        failure: reason for the missing action, None with an action.
        text: the answer.
        reasoning: the written reasoning before the answer.
        prompt_tokens, output_tokens: exact token ids, if known.
        reward: reward of the action, or None.
        extra: further values to store with the step (texts, numbers, lists and mappings).
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
    """One episode from the log of another task, as the user's own reader function returns it for a sample.

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
        horizon: maximum number of turns; None for the number of turns in the record and, in a known world, at least the
            horizon of a study.
        tags: named facts (texts, numbers or truth values), by which results are grouped. They belong to the sample's
            world, or to the episode if the world is known.

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
    """Yield the recorded model calls of an Inspect sample that have an output, except calls made by scorers.

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
    """Return one turn of the agent per tool call in an Inspect sample, in order.

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
    """Return the reasoning that an Inspect message contains as text; None if there is none."""
    parts = [] if isinstance(message.content, str) else message.content
    return "\n\n".join(part.reasoning for part in parts if part.type == "reasoning") or None


def offered_tools(sample: Any) -> set[str]:
    """Return the names of the tools that the model could call in an Inspect sample."""
    return {tool.name for event in model_events(sample) for tool in event.tools}


def recorded_episode(recorded: RecordedEpisode, sample: Any, header: Any) -> tuple[Episode, str]:
    """Convert what a user's reader function returned for a sample of another task to an episode of goalscope.

    Args:
        recorded: what the function returned.
        sample: the sample of the log.
        header: the header of the log.

    Returns:
        The episode, and the name of its agent.

    Raises:
        UntrustedError: there is no action at all, a turn has neither an action nor a failure, or the record contradicts
            the rules of a known world.
    """
    agent = recorded.agent or header.eval.model
    try:
        agent.encode()  # a lone surrogate cannot be stored
        if recorded.world is not None:
            return _replayed(recorded, recorded.world, agent, sample), agent
        return _copied(recorded, agent, sample, header), agent
    except UntrustedError:
        raise
    except (ValueError, TypeError) as error:
        raise UntrustedError("a reader must return an episode", str(error)) from error


def _copied(recorded: RecordedEpisode, agent: str, sample: Any, header: Any) -> Episode:
    """Return the episode of an unknown world, of which only the names of the actions are known."""
    actions_used = {turn.action for turn in recorded.turns if turn.action is not None}
    action_names = recorded.actions if recorded.actions is not None else sorted(offered_tools(sample) or actions_used)
    if not action_names:
        must = "an episode must have names of actions: its sample offered no tools and no turn names an action"
        raise UntrustedError(f"{must}; give RecordedEpisode.actions", "none")
    task = header.eval.task
    world = RecordedWorld(
        source=task,
        sample=f"{sample.id}",
        names=tuple(action_names),
        cluster=recorded.cluster and content_id("world", {"cluster": recorded.cluster}),
        tags={"kind": task, **recorded.tags},
    )
    numbers = {name: number for number, name in enumerate(world.names)}
    steps = tuple(_step(index, turn, numbers) for index, turn in enumerate(recorded.turns))
    outcome: Outcome = "stopped" if recorded.success is None else "goal" if recorded.success else "ended"
    spec = _spec(world, agent, sample, recorded.horizon or max(1, len(steps)))
    return Episode(spec=spec, world=world, agent=agent, steps=steps, final=(len(steps),), outcome=outcome)


def _spec(world: World, agent: str, sample: Any, horizon: int) -> EpisodeSpec:
    return EpisodeSpec(
        world_id=world.id,
        agent_id=content_id("agent", {"recorded": agent}),
        trajectory=sample.epoch - 1,
        seed=0,
        horizon=horizon,
    )


def _step(index: int, turn: RecordedTurn, numbers: Mapping[str, int]) -> Step:
    return Step(index=index, state=(index,), **_decided(turn, numbers, turn.action), **step_fields(turn))


def _decided(turn: RecordedTurn, numbers: Mapping[str, int], named: str | None) -> dict[str, Any]:
    """Return the action of a turn by its name, or its failure; an unknown name is kept in the extra values."""
    action = None if named is None else numbers.get(named)
    if named is not None and action is None:
        return {"action": None, "failure": UNKNOWN_ACTION, "extra": {**turn.extra, "named": turn.action}}
    return {"action": action, "failure": turn.failure, "extra": dict(turn.extra)}


def _replayed(recorded: RecordedEpisode, world: World, agent: str, sample: Any) -> Episode:
    """Replay the recorded actions in a known world."""
    horizon = recorded.horizon or max(1, len(recorded.turns), _usual_horizon(world))
    live = LiveEpisode(_spec(world, agent, sample, horizon), world, None)
    for index, turn in enumerate(recorded.turns):
        if live.outcome is not None:
            raise UntrustedError(f"an episode must end where it is over ({live.outcome})", "a further turn")
        _check_state(world, turn, index, live)
        live.apply(_turn(turn, live.observe().view.actions))
    solved = live.outcome == "goal"
    if recorded.success is not None and recorded.success != solved:
        must = f"success must be {solved}, as the actions lead in the world"
        raise UntrustedError(must, f"{recorded.success}")
    live.outcome = live.outcome or ("stopped" if recorded.success is None else "ended")
    return live.record(agent, recorded.tags)


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
