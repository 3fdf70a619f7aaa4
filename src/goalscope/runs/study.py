"""Studies, i.e. descriptions of what to run, which are written as YAML, validated and identified by a content id."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator, model_validator

from goalscope._ground import own, registry
from goalscope._ground.checks import check_texts
from goalscope._ground.ids import canonical_json, content_id
from goalscope._ground.untrusted import decode_object, explain, shorten
from goalscope._ground.yaml_text import read_yaml
from goalscope.agents import Agent, History, agent_id, build_agent
from goalscope.agents.agent import HISTORIES, Remembering, check_fits, decisive_parameters
from goalscope.runs import study_parts
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.study_parts import (
    STORED,
    Analysis,
    Decoders,
    Full,
    Inside,
    Invariance,
    Probes,
    RandomNetworks,
    StudyPart,
    sequence,
)
from goalscope.worlds.gridworld import GridView
from goalscope.worlds.planning.shortest import oracle
from goalscope.worlds.world import TimedOracle, View, World

_NOT_DECISIVE = ("name", "durability", "further_agents", "analysis")  # keys that change no result
_EXPANDED: dict[tuple[Any, ...], tuple[World, ...]] = {}  # worlds of recent studies, by seed and entries
_MOST_EXPANDED, _MOST_EXPANDED_WORLDS = 16, 512  # most studies there, and most worlds of each
_MAX_SEED = 2**63 - 1


def _named(world: World) -> str:
    """Return the name of a world in messages: its class and parameters, or its cells."""
    source = getattr(world, "source", None)
    if source is None:
        return f"the world\n{world.stored}\n"
    parameters = dict(getattr(world, "parameters", {}))
    return f"the world {source}{f' with {shorten(parameters)}' if parameters else ''}"


class FailurePolicy(StudyPart):
    """Setting of a study: what happens after a turn without a valid move.

    "step": the turn counts as a step in place. "retry": the agent is asked again, up to `retries` times, and then
    `then` applies. "end": the episode ends there as a failure.
    """

    policy: Literal["step", "retry", "end"] = "step"
    retries: int = Field(default=0, ge=0, le=1000)
    then: Literal["step", "end"] = "step"

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.policy == "retry" and self.retries == 0:
            raise ValueError("policy retry needs retries of at least 1: set retries")
        if self.policy != "retry" and (self.retries or self.then != "step"):
            raise ValueError(
                f"retries and then apply only to policy retry, but policy is {self.policy}: leave them out"
            )
        return self

    @property
    def ends(self) -> bool:
        """Whether the episode ends after a turn without a valid move, once all retries are used up."""
        return "end" in (self.policy, self.then)


_ENTRY_KEYS: Final = ("kind", "name", "failure")


class AgentEntry(StudyPart):
    """One agent in a study file: its kind, its name, the parameters of the kind, and what happens after an invalid
    turn.
    """

    kind: str
    name: str | None = Field(default=None, min_length=1, max_length=80)
    failure: FailurePolicy | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, entry: Any) -> Any:
        if not isinstance(entry, Mapping) or "parameters" in entry:
            return entry
        return {
            **{key: entry[key] for key in _ENTRY_KEYS if key in entry},
            "parameters": {key: value for key, value in entry.items() if key not in _ENTRY_KEYS},
        }

    @model_validator(mode="after")
    def _buildable(self, info: ValidationInfo) -> Self:
        if self.failure is not None and self.name is None:
            raise ValueError("an agent with its own failure policy needs a name: add name")
        try:
            canonical_json(self.parameters)
            if info.context is not STORED:
                self.build()
        except (TypeError, OSError) as error:
            raise ValueError(str(error)) from error
        return self

    def build(self) -> Agent:
        """Build the agent that this entry of a study describes.

        Raises:
            ValueError: a parameter is unknown, missing or out of range.
        """
        name = {} if self.name is None else {"name": self.name}
        return build_agent(self.kind, {**self.parameters, **name})

    def dump(self, *, decisive: bool = False) -> dict[str, Any]:
        """Return the entry as a study file has it, key -> value.

        Args:
            decisive: whether to leave out parameters that can change no result, such as the address of a server.
        """
        parameters = decisive_parameters(self.kind, self.parameters) if decisive else self.parameters
        return {**self.model_dump(mode="json", include=set(_ENTRY_KEYS), exclude_none=True), **parameters}


class Horizon(StudyPart):
    """Setting of a study: the maximum number of actions per episode.

    It is a number of `steps`, or `factor` times the length of the shortest path to the goal, rounded up. In a
    stochastic world, where no path is the shortest, it is `factor` times the steps that an optimal agent takes on
    average.
    """

    factor: float | None = Field(default=None, gt=0, le=1000)
    steps: int | None = Field(default=None, ge=1, le=1_000_000)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.factor is None) == (self.steps is None):
            raise ValueError(
                "a horizon needs either factor (a multiple of the shortest path) or steps: give exactly one"
            )
        return self

    def of(self, world: World) -> int:
        """Return the maximum number of actions per episode in a world; a world with a horizon of its own keeps it.

        Raises:
            ValueError: a factor is set, but the goal cannot be reached or the shortest path is unknown.
        """
        if world.horizon is not None:
            return world.horizon
        if self.steps is not None:
            return self.steps
        shortest = oracle(world)
        if shortest is None:
            raise ValueError(
                "horizon.factor is a multiple of the shortest path, which is unknown in worlds of kind "
                f"{world.kind}: set horizon: {{steps: N}}"
            )
        steps: float = getattr(shortest, "expected_steps", shortest.length)
        if not 0 <= steps < math.inf:
            if isinstance(shortest, TimedOracle):
                why = "is stochastic, and its expected steps are not known"
            elif "cells" in world.offers:
                why = "has no way from the start to the goal"
            else:
                why = "has no way to the goal"
            raise ValueError(
                f"horizon.factor is a multiple of the shortest path, but {_named(world)} {why}: set horizon: "
                f"{{steps: N}}, the maximum number of actions per episode"
            )
        # The factor is used as written, so that 1.1 x 10 steps are 11 and not 12 as binary fractions would give.
        return max(1, math.ceil(Fraction(repr(self.factor)) * Fraction(steps)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySize:
    """Size of a study: numbers of worlds, agents and episodes, and the maximum total number of steps."""

    worlds: int
    agents: int
    episodes: int
    steps: int


class Study(StudyPart):
    """Description of what to run: worlds x agents x trajectories (episodes per agent and world), and the rules of an
    episode.

    Read a study with `load`, `parse` or `restore`. Each raises a ValueError with one line per problem.
    """

    name: str = Field(default="study", min_length=1, max_length=200)
    seed: int = Field(default=0, ge=-_MAX_SEED, le=_MAX_SEED)
    worlds_: study_parts.Entries = Field(alias="worlds")
    agents_: tuple[AgentEntry, ...] = sequence(alias="agents")
    further_agents_: tuple[AgentEntry, ...] = sequence(alias="further_agents", default=())
    trajectories: int = Field(default=10, ge=1, le=study_parts.MAX_COUNT)
    horizon: Horizon = Horizon(factor=1.5)
    history: History = "none"
    failure: FailurePolicy = FailurePolicy()
    answers: int = Field(default=1, ge=1, le=2)
    durability: Literal["process", "power"] = "process"
    analysis: Analysis | None = None

    @field_validator("agents_")
    @classmethod
    def _some(cls, entries: Any) -> Any:
        return study_parts.listed(entries)

    @model_validator(mode="after")
    def _distinct_parts(self, info: ValidationInfo) -> Self:
        self._check_worlds()
        if info.context is STORED:
            return self
        agents = [entry.build() for entry in (*self.agents_, *self.further_agents_)]
        for index, agent in enumerate(agents):
            check_fits(agent, self.view, self._path(index))
        study_parts.listed([agent.name for agent in agents], "names of agents")
        ids = [agent_id(agent) for agent in agents]
        for index, identity in enumerate(ids):
            if identity in ids[:index]:
                raise ValueError(
                    f"{self._path(index)} behaves exactly like {self._path(ids.index(identity))}: leave one of "
                    "them out, or change its parameters"
                )
        return self

    def _check_worlds(self) -> None:
        view = self.view
        if self.analysis is not None and self.analysis.inside is not None and not issubclass(view, GridView):
            raise ValueError(
                "analysis.inside needs worlds that show a grid, because probes decode maps of grids, but "
                f"these worlds show {view.shows}: leave analysis.inside out"
            )
        if self._own_horizons and "horizon" in self.model_fields_set:
            raise ValueError(
                "horizon cannot be set for worlds with their own horizon (the budget of a task map is alpha "
                "times its cells): leave horizon out, and change alpha instead (generator: {alpha: ...})"
            )

    @property
    def view(self) -> type[View]:
        """Class of the views that agents get from the worlds of this study; all its worlds share it."""
        return study_parts.view_class(self.worlds_)

    @property
    def _own_horizons(self) -> bool:
        """Whether the worlds of this study have horizons of their own."""
        return "horizon" in study_parts.world_class(self.worlds_[0]).offers

    def _path(self, index: int) -> str:
        count = len(self.agents_)
        return f"agents[{index}]" if index < count else f"further_agents[{index - count}]"

    @classmethod
    def load(cls, path: str | Path) -> "Study":
        """Read a study from a YAML file.

        Classes of the working directory that it names may be imported, since the user has chosen the file.

        Raises:
            ValueError: the study is invalid; the message has one line per problem.
            OSError: the file cannot be read.
        """
        plain = read_yaml(Path(path))
        own.consent(plain)
        return cls._validate(plain, str(path))

    @classmethod
    def parse(cls, mapping: Mapping[str, Any]) -> "Study":
        """Read a study from a mapping with the keys of a study file, written by the user.

        Classes of the working directory that it names may be imported.

        Raises:
            ValueError: the study is invalid; the message has one line per problem.
        """
        own.consent(mapping)
        return cls._validate(mapping, "the study")

    @classmethod
    def assemble(cls, mapping: Mapping[str, Any]) -> "Study":
        """Read a study from a mapping that the user did not write, such as one from a run directory of somebody else.

        Such a mapping is not trusted: unlike with `parse`, classes that it names are not imported, because importing
        runs their code (see `goalscope.own`).

        Raises:
            ValueError: the study is invalid; the message has one line per problem.
        """
        return cls._validate(mapping, "the study")

    @classmethod
    def restore(cls, mapping: Mapping[str, Any]) -> "Study":
        """Read a study from a mapping that was stored with a run, without building its agents.

        The study can thus be shown even if the files of its models are on another machine.

        Raises:
            ValueError: the study is invalid.
        """
        return cls._validate(mapping, "the stored study", STORED)

    @classmethod
    def _validate(cls, mapping: Any, name: str, context: Mapping[str, Any] | None = None) -> "Study":
        if not isinstance(mapping, Mapping) or not all(isinstance(key, str) for key in mapping):
            raise ValueError(
                f"{name} must be a study, i.e. a mapping with the keys {', '.join(_keys()[''])}; got {shorten(mapping)}"
            )
        check_texts(mapping, name)
        mapping = study_parts.with_twins(mapping, name)
        try:
            study = cls.model_validate(dict(mapping), context=context)
        except ValidationError as error:
            raise ValueError(explain(error, _keys(), name, examples=_EXAMPLES)) from None
        return study

    @cached_property
    def id(self) -> str:
        """Content id of the study: a hash of all settings that can change a result.

        Name, durability, the declared analysis, and addresses and prices of servers are left out.
        """
        agents = [entry.dump(decisive=True) for entry in self.agents_]
        return content_id("study", {**self._decisive(), "agents": agents})

    def _decisive(self) -> dict[str, Any]:
        return {key: part for key, part in self.dump().items() if key not in _NOT_DECISIVE}

    def dump(self) -> dict[str, Any]:
        """Return the study as a mapping with every default written out, from which `parse` makes the same study
        again.
        """
        mapping = self.model_dump(mode="json", by_alias=True)
        mapping["agents"] = [entry.dump() for entry in self.agents_]
        mapping["further_agents"] = [entry.dump() for entry in self.further_agents_]
        if not mapping["further_agents"]:
            del mapping["further_agents"]
        if self.analysis is None:
            del mapping["analysis"]
        mapping["horizon"] = {key: part for key, part in mapping["horizon"].items() if part is not None}
        if self._own_horizons:
            del mapping["horizon"]
        if self.answers == 1:
            del mapping["answers"]  # omitted, as in studies written before this key existed
        return mapping

    @cached_property
    def _expanded(self) -> tuple[World, ...]:
        # An evaluation describes the study of each arm several times before and while it asks the agent.
        if not all(getattr(entry, "pure", False) for entry in self.worlds_):
            return tuple(self.each_world())
        key = self.seed, *((type(entry), entry.model_dump_json()) for entry in self.worlds_)
        if key not in _EXPANDED:
            worlds = tuple(self.each_world())
            if len(worlds) > _MOST_EXPANDED_WORLDS:
                return worlds
            while len(_EXPANDED) >= _MOST_EXPANDED:
                del _EXPANDED[next(iter(_EXPANDED))]
            _EXPANDED[key] = worlds
        return _EXPANDED[key]

    def worlds(self) -> list[World]:
        """Return all worlds, which are all different, in the order of the study.

        Raises:
            ValueError: if there are fewer different worlds than the study asks for.
        """
        return list(self._expanded)

    def each_world(self) -> Iterator[World]:
        """Yield the worlds of the study one by one, without making those that are not consumed."""
        return study_parts.expand(self.worlds_, self.seed)

    def agents(self) -> list[Agent]:
        """Build the agents in the order of the study; agents that depend on all worlds of the study get these
        worlds.
        """
        made = [entry.build() for entry in self.agents_]
        return [agent.in_worlds(self.worlds) if hasattr(agent, "in_worlds") else agent for agent in made]

    def history_of(self, agent: Agent) -> History:
        """Return which earlier steps of an episode an agent is shown, one of `HISTORIES`: its own setting, else the
        study's.
        """
        requested = agent.history if isinstance(agent, Remembering) else None
        return requested or self.history

    def failure_of(self, agent: Agent) -> FailurePolicy:
        """Return what happens after an agent's turn without a valid move: the policy of its own entry, else that of the
        study.
        """
        entries = (*self.agents_, *self.further_agents_)
        policies = [entry.failure for entry in entries if entry.failure is not None and entry.name == agent.name]
        return policies[0] if policies else self.failure

    def rules(self, agent: Agent) -> str:
        """Return the settings that apply to an agent's episodes (history, failure policy, number of answers), see
        `write_rules`.
        """
        return write_rules(self.history_of(agent), self.failure_of(agent), self.answers)

    def specs(self, agents: Sequence[Agent] | None = None) -> Iterator[tuple[EpisodeSpec, World, Agent]]:
        """Yield (specification, world, agent) of every episode: agent by agent, world by world, trajectory by
        trajectory.

        Args:
            agents: ready agents to use instead of the study's own.
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

    def size(self) -> StudySize:
        """Count the worlds, agents and episodes of the study and its maximum number of steps, without running it."""
        count = len(self.agents_)
        worlds = len(self._expanded)
        steps = sum(self.horizon.of(world) for world in self._expanded)
        return StudySize(
            worlds=worlds,
            agents=count,
            episodes=worlds * count * self.trajectories,
            steps=steps * count * self.trajectories,
        )

    def difference(self, other: "Study") -> str:
        """Describe how this study, which is stored, differs from another, which is requested: one line per key.

        Only keys that can change a result are compared; after eight lines the rest is counted. "" if nothing differs.
        """
        stored, requested = _leaves(self._decisive()), _leaves(other._decisive())
        lines = [
            f"  {key}: {shorten(stored.get(key, 'nothing'))} stored, {shorten(requested.get(key, 'nothing'))} given"
            for key in dict.fromkeys([*stored, *requested])
            if key not in stored or key not in requested or stored[key] != requested[key]
        ]
        return "\n".join(lines[:8] + ([f"  and {len(lines) - 8} more"] if len(lines) > 8 else []))


def write_rules(history: History, failure: FailurePolicy, answers: int = 1) -> str:
    """Return the settings that apply to an episode as canonical JSON, for `EpisodeSpec.rules`.

    The result is "" if all are the defaults.

    Args:
        history: which earlier steps the agent is shown.
        failure: what happens after a turn without a valid move.
        answers: how often each step is answered.
    """
    rules: dict[str, Any] = {}
    if history != "none":
        rules["history"] = history
    if failure != FailurePolicy():
        rules["failure"] = failure.model_dump()
    if answers != 1:
        rules["answers"] = answers
    return canonical_json(rules) if rules else ""


def read_rules(rules: str) -> tuple[History, FailurePolicy]:
    """Return the history setting and the failure policy from a text that `write_rules` wrote.

    Raises:
        ValueError: the text cannot be such a result.
    """
    mapping = decode_object(rules) if rules else {}
    history = mapping.get("history", "none")
    if history not in HISTORIES:
        raise ValueError(f"history must be one of {', '.join(HISTORIES)}, got {shorten(history)}")
    return history, FailurePolicy.model_validate(mapping.get("failure", {}))


_EXAMPLES: Final = {
    "worlds": "worlds: [{kind: grid, sizes: [7], densities: [0.6], count: 10}]",
    "agents": "agents: [{kind: optimal}, {kind: random}]",
}
"""Examples of the keys that every study needs."""


def _keys() -> dict[str, Sequence[str]]:
    """Return the valid keys of a study by the mapping that contains them, including those of registered world kinds."""
    parts: dict[str, type[BaseModel]] = {
        "agents": AgentEntry,
        "further_agents": AgentEntry,
        "horizon": Horizon,
        "failure": FailurePolicy,
    }
    parts |= {f"worlds {name}": kind.settings for name, kind in study_parts.known_kinds().items()}
    parts |= {
        f"interventions {name}": registry.resolve("intervention", name) for name in registry.names("intervention")
    }
    analysis = (Analysis, Invariance, Inside, RandomNetworks, Full, Probes, Decoders)
    return {
        "": [*(field.alias or name for name, field in Study.model_fields.items()), study_parts.TWINS],
        "analysis": [name for part in analysis for name in part.model_fields],
        **{name: list(part.model_fields) for name, part in parts.items()},
    }


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of nested plain values by their paths."""
    if isinstance(value, dict) and value:
        parts = [_leaves(item, f"{path}.{key}".lstrip(".")) for key, item in value.items()]
    elif isinstance(value, list) and value:
        parts = [_leaves(item, f"{path}[{index}]") for index, item in enumerate(value)]
    else:
        return {path: value}
    return {key: leaf for part in parts for key, leaf in part.items()}
