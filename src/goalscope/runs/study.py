"""Studies: what is run, written as YAML, validated, with a content id."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, PlainValidator, ValidationError, ValidationInfo, field_validator, model_validator

from goalscope import registry
from goalscope.agents.agent import Agent, History, Remembering, agent_id, check_fits
from goalscope.checks import check_text
from goalscope.ids import canonical_json, content_id
from goalscope.runs.analysis import Analysis, Invariance
from goalscope.runs.config_base import MOST_COUNT, Part, distinct, filled, sequence
from goalscope.runs.entries import AgentEntry, FailurePolicy, Horizon
from goalscope.runs.kinds import STORED, expand, flat_error, read_entry, view_class, world_class
from goalscope.runs.probing_config import Decoders, Full, Inside, Probes
from goalscope.runs.record import EpisodeSpec
from goalscope.untrusted import explain, read_yaml, shorten
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.world import View, World

_NO_RESULT = ("name", "durability", "further_agents", "analysis")  # keys that change no result
_MOST_SEED = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySize:
    """How large a study is: worlds, agents, episodes, and the most steps that they can take together."""

    worlds: int
    agents: int
    episodes: int
    steps: int


class Study(Part):
    """What is run: worlds x agents x trajectories, and the rules of an episode.

    `load` and `parse` are the ways in; both raise a ValueError with one line for each thing that is wrong.
    """

    name: str = Field(default="study", min_length=1, max_length=200)
    seed: int = Field(default=0, ge=-_MOST_SEED, le=_MOST_SEED)
    worlds_: tuple[Annotated[Any, PlainValidator(read_entry)], ...] = sequence(alias="worlds")
    agents_: tuple[AgentEntry, ...] = sequence(alias="agents")
    further_agents_: tuple[AgentEntry, ...] = sequence(alias="further_agents", default=())
    trajectories: int = Field(default=10, ge=1, le=MOST_COUNT)
    horizon: Horizon = Horizon(factor=1.5)
    history: History = "none"
    failure: FailurePolicy = FailurePolicy()
    durability: Literal["process", "power"] = "process"
    analysis: Analysis | None = None

    @field_validator("worlds_", "agents_")
    @classmethod
    def _some(cls, entries: Any) -> Any:
        return filled(entries)

    @model_validator(mode="after")
    def _distinct_parts(self, info: ValidationInfo) -> Self:
        distinct([entry.model_dump_json() for entry in self.worlds_], "entries of worlds")
        self._check_worlds()
        if info.context is STORED:
            return self
        built = [entry.build() for entry in (*self.agents_, *self.further_agents_)]
        for index, agent in enumerate(built):
            check_fits(agent, self.view, self._place(index))
        distinct([agent.name for agent in built], "names of agents")
        ids = [agent_id(agent) for agent in built]
        for index, identity in enumerate(ids):
            if identity in ids[:index]:
                raise ValueError(
                    f"agents must behave differently, {self._place(index)} repeats {self._place(ids.index(identity))}"
                )
        return self

    @property
    def view(self) -> type[View]:
        """The class of what its worlds show, the same for all of them."""
        return view_class(self.worlds_)

    @property
    def limited(self) -> bool:
        """Whether its worlds have horizons of their own."""
        return world_class(self.worlds_[0]).limited

    def _check_worlds(self) -> None:
        view = self.view
        if self.analysis is not None and self.analysis.inside is not None and not issubclass(view, GridView):
            raise ValueError(
                f"a study must have worlds that show a grid to declare analysis.inside, since probes read maps of "
                f"grids, but these show {view.shows}: leave it out"
            )
        if self.limited and "horizon" in self.model_fields_set:
            raise ValueError(
                "a study must have no horizon where each world has its own (the budget of a task map is alpha times "
                "its cells): leave horizon out, change alpha (generator: {alpha: ...})"
            )

    def _place(self, index: int) -> str:
        count = len(self.agents_)
        return f"agents[{index}]" if index < count else f"further_agents[{index - count}]"

    @classmethod
    def load(cls, path: str | Path) -> "Study":
        """Read a study from a YAML file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: what is wrong, one line for each thing.
        """
        return cls._validate(read_yaml(Path(path)), str(path))

    @classmethod
    def parse(cls, mapping: Mapping[str, Any]) -> "Study":
        """Read a study from plain values.

        Raises:
            ValueError: what is wrong, one line for each thing.
        """
        return cls._validate(mapping, "the study")

    @classmethod
    def restore(cls, mapping: Mapping[str, Any]) -> "Study":
        """Read a study that was stored with a run, without building its agents.

        The files of a model may be on another machine by now; the study can be shown all the same.

        Raises:
            ValueError: what is wrong, one line for each thing.
        """
        return cls._validate(mapping, "the stored study", STORED)

    @classmethod
    def _validate(cls, given: Any, name: str, context: Mapping[str, Any] | None = None) -> "Study":
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise ValueError(
                f"{name} must be a study: a mapping with the keys {', '.join(_KEYS[''])}; got {shorten(given)}"
            )
        _check_texts(given, name)
        try:
            study = cls.model_validate(dict(given), context=context)
        except ValidationError as error:
            raise ValueError(explain(flat_error(error), _keys(), name)) from None
        return study

    @cached_property
    def id(self) -> str:
        """Content id of all that decides a result; name, durability, and a server's address or prices do not."""
        return content_id("study", self._decisive())

    def _decisive(self) -> dict[str, Any]:
        plain = {key: part for key, part in self.dump().items() if key not in _NO_RESULT}
        plain["agents"] = [entry.dump(decisive=True) for entry in self.agents_]
        return plain

    def dump(self) -> dict[str, Any]:
        """Return the study as plain values with every default written out, the inverse of `parse`."""
        plain = self.model_dump(mode="json", by_alias=True)
        plain["agents"] = [entry.dump() for entry in self.agents_]
        plain["further_agents"] = [entry.dump() for entry in self.further_agents_]
        if not plain["further_agents"]:
            del plain["further_agents"]
        if self.analysis is None:
            del plain["analysis"]
        plain["horizon"] = {key: part for key, part in plain["horizon"].items() if part is not None}
        if self.limited:
            del plain["horizon"]
        return plain

    @cached_property
    def _expanded(self) -> tuple[World, ...]:
        return tuple(expand(self.worlds_, self.seed))

    def worlds(self) -> list[World]:
        """Return all worlds, all different, in the order of the study.

        Raises:
            ValueError: there are not as many different worlds as the study asks for.
        """
        return list(self._expanded)

    def agents(self) -> list[Agent]:
        """Return the agents in the order of the study."""
        return [entry.build() for entry in self.agents_]

    def history_of(self, agent: Agent) -> History:
        """Return what an agent is shown of earlier steps: what it wants itself, else what the study says."""
        own = agent.history if isinstance(agent, Remembering) else None
        return own or self.history

    def failure_of(self, agent: Agent) -> FailurePolicy:
        """Return what becomes of an agent's turns without an action: what its entry says, else what the study says."""
        entries = (*self.agents_, *self.further_agents_)
        own = [entry.failure for entry in entries if entry.failure is not None and entry.name == agent.name]
        return own[0] if own else self.failure

    def rules(self, agent: Agent) -> str:
        """Return `EpisodeSpec.rules` of an agent's episodes."""
        rules: dict[str, Any] = {}
        if self.history_of(agent) != "none":
            rules["history"] = self.history_of(agent)
        failure = self.failure_of(agent)
        if failure != FailurePolicy():
            rules["failure"] = failure.model_dump()
        return canonical_json(rules) if rules else ""

    def specs(self, agents: Sequence[Agent] | None = None) -> Iterator[tuple[EpisodeSpec, World, Agent]]:
        """Yield every episode of the study: agent by agent, world by world, trajectory by trajectory.

        Args:
            agents: ready agents in place of the study's own.
        """
        horizons = [(world, self.horizon.of(world)) for world in self._expanded]
        for agent in self.agents() if agents is None else agents:
            identity, rules = agent_id(agent), self.rules(agent)
            for world, horizon in horizons:
                for trajectory in range(self.trajectories):
                    spec = EpisodeSpec(
                        world_id=world.id,
                        agent_id=identity,
                        trajectory=trajectory,
                        seed=self.seed,
                        horizon=horizon,
                        rules=rules,
                    )
                    yield spec, world, agent

    def size(self, agents: Sequence[Agent] | None = None) -> StudySize:
        """Return how large the study is before anything is run."""
        count = len(self.agents_ if agents is None else agents)
        worlds = len(self._expanded)
        steps = sum(self.horizon.of(world) for world in self._expanded)
        return StudySize(
            worlds=worlds,
            agents=count,
            episodes=worlds * count * self.trajectories,
            steps=steps * count * self.trajectories,
        )

    def difference(self, other: "Study") -> str:
        """Return one line for each key whose value differs, this study's first; only keys that change a result."""
        mine, theirs = (
            _flat({key: part for key, part in study.dump().items() if key not in _NO_RESULT}) for study in (self, other)
        )
        lines = [
            f"  {key}: {shorten(mine.get(key, 'nothing'))} stored, {shorten(theirs.get(key, 'nothing'))} given"
            for key in dict.fromkeys([*mine, *theirs])
            if key not in mine or key not in theirs or mine[key] != theirs[key]
        ]
        return "\n".join(lines[:8] + ([f"  and {len(lines) - 8} more"] if len(lines) > 8 else []))


_KEYS: dict[str, Sequence[str]] = {
    "": [field.alias or name for name, field in Study.model_fields.items()],
    "agents": list(AgentEntry.model_fields),
    "further_agents": list(AgentEntry.model_fields),
    "horizon": list(Horizon.model_fields),
    "failure": list(FailurePolicy.model_fields),
    "analysis": [name for part in (Analysis, Invariance, Inside, Full, Probes, Decoders) for name in part.model_fields],
}


def _keys() -> dict[str, Sequence[str]]:
    """Return the keys of a study by the mapping that holds them, those of the registered world kinds among them."""
    settings: dict[str, type[BaseModel]] = {
        name: registry.resolve("world", name).settings for name in registry.names("world")
    }
    return {**_KEYS, **{f"worlds {name}": list(model.model_fields) for name, model in settings.items()}}


def _check_texts(given: Any, name: str) -> None:
    """Check every key and text of a study.

    Raises:
        ValueError: half of a surrogate pair in one; names the place.
    """
    for path, value in _flat(given).items():
        if isinstance(value, str):
            check_text(f"{name}: {path}", value)
        if not path.isascii():
            check_text(f"a key of {name}", path)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of nested plain values by their paths."""
    if isinstance(value, dict) and value:
        parts = [_flat(item, f"{path}.{key}".lstrip(".")) for key, item in value.items()]
    elif isinstance(value, list) and value:
        parts = [_flat(item, f"{path}[{index}]") for index, item in enumerate(value)]
    else:
        return {path: value}
    return {key: leaf for part in parts for key, leaf in part.items()}
