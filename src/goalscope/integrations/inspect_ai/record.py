"""Records of goalscope episodes in Inspect logs, stored as plain values under one key and validated when read."""

from dataclasses import asdict, fields
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from goalscope._ground.ids import canonical_json
from goalscope._ground.untrusted import UntrustedError, faults, shorten
from goalscope.agents.agent import Turn
from goalscope.agents.models.base import PART_KINDS, Finish, Part, PartKind, Reply, finish_of
from goalscope.runs.codec import decode_world, encode_tags, encode_world
from goalscope.runs.importers.problems import TokenId
from goalscope.runs.record import Episode, EpisodeSpec, Outcome
from goalscope.stats.rows import Tag
from goalscope.worlds.world import World

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
    """World in the form in which a store contains it."""

    id: _Name
    stored: str
    fog_radius: int | None = None
    cluster: str = ""
    tags: dict[str, Tag] = Field(default_factory=dict)


class SampleRecord(_Values):
    """Conditions of a sample: its world, the root seed of its random streams and its maximum number of actions."""

    version: Literal[1]
    world: WorldRecord
    seed: int
    horizon: Annotated[int, Field(ge=1)]

    @classmethod
    def of(cls, world: World, *, seed: int, horizon: int) -> "SampleRecord":
        """Build the record for a world."""
        identity, stored, fog_radius, cluster, _ = encode_world(world)
        world_fields = {"id": identity, "stored": stored, "fog_radius": fog_radius, "cluster": cluster}
        stored_world = WorldRecord.model_validate({**world_fields, "tags": dict(world.tags)})
        return cls(version=VERSION, world=stored_world, seed=seed, horizon=horizon)

    def begin(self) -> World:
        """Rebuild the world.

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
    """Return the metadata of a sample: the tags and cluster of its world, and the record of its conditions."""
    tags = {name: value for name, value in world.tags.items() if name not in (KEY, CLUSTER)}
    return {**tags, CLUSTER: world.cluster_id, KEY: SampleRecord.of(world, seed=seed, horizon=horizon).plain()}


class EpisodeRecord(_Values):
    """Record of the episode that was played in a sample.

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
        """Build the record of an episode."""
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
        """Rebuild the specification of the episode."""
        return EpisodeSpec(
            world_id=sample.world.id,
            agent_id=self.agent_id,
            trajectory=self.trajectory,
            seed=sample.seed,
            horizon=sample.horizon,
            rules=self.rules,
        )


class ReplyPartRecord(_Values):
    """Record of a `Part` of a reply."""

    kind: PartKind
    text: str


class ReplyRecord(_Values):
    """Record of a `Reply`, stored in addition to the message that Inspect shows."""

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
        """Build the record of a reply. The raw text is left out if the token ids determine it."""
        plain = {entry.name: _plain(getattr(reply, entry.name)) for entry in fields(Reply)}
        plain["parts"] = [asdict(part) for part in reply.parts]
        if reply.output_tokens is not None:
            plain["raw"] = None
        return cls.model_validate(plain)

    def reply(self) -> Reply:
        """Rebuild the reply.

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
    """Build the reply of a model that Inspect called itself.

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
    """Record of a turn from another source, whose action is stored and not parsed from the answer again.

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
        """Rebuild the turn.

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
