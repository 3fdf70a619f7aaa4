"""A taskset of `verifiers` (v1): the worlds of a study, played turn by turn, with exact rewards.

A task is a world. The environment is the user of the conversation: it shows what can be seen, reads one action from
each answer by the rules of the chat agent, and ends with the episode. Rewards and metrics come from the exact oracle of
the world, so none is a guess.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from goalscope.agents.agent import agent_id
from goalscope.agents.chat import ChatAgent, turn
from goalscope.extras import lacking
from goalscope.models.base import Completion, Message, Request, Sampling
from goalscope.planning.oracle import oracle
from goalscope.preflight import study_files
from goalscope.runs.codec import decode_world, encode_world
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.study import Study
from goalscope.worlds.world import TimedOracle, World
from goalscope.yaml_text import read_yaml_text

try:
    import verifiers.v1 as vf
except ImportError as _error:
    raise lacking("environments of verifiers need verifiers", "verifiers", _error) from _error

KEY: Final = "goalscope"
"""Key of what is kept of an episode in ``trace.info``."""


class WorldsConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Settings of the taskset.

    Attributes:
        study: a study file, or the name of a shipped study; its worlds, horizon, trajectories and seed are taken.
        prompt: the prompt of the chat agent: "grid" or "fog" for grids, "text" for environments.
        template: form of the bundled template; the plain one where empty.
    """

    study: str = "baseline"
    prompt: str = "grid"
    template: str = ""


class WorldData(vf.TaskData):  # type: ignore[misc]
    """A world as a store holds it, and the rules of its episode."""

    world: list[Any]
    seed: int
    horizon: int
    trajectory: int
    settings: dict[str, str]


class WorldTask(vf.Task[WorldData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """An episode in a world; see `rewards_of` for what is measured."""

    @property
    def world(self) -> World:
        """The world."""
        return decode_world(self.data.world)


class WorldsTaskset(vf.Taskset[WorldTask, WorldsConfig]):  # type: ignore[misc]
    """The worlds of a study, each as often as it has trajectories."""

    def load(self) -> Iterator[WorldTask]:
        """Yield a task for each world and trajectory, in the order of the study."""
        name = self.config.study
        own = Path(name).is_file()
        study = Study.load(name) if own else Study.parse(read_yaml_text(study_files.text(name), name))
        settings = {"task": self.config.prompt, "template": self.config.template}
        for world in study.worlds():
            horizon = study.horizon.of(world)
            for trajectory in range(study.trajectories):
                data: dict[str, Any] = {
                    "world": list(encode_world(world)),
                    "seed": study.seed,
                    "horizon": horizon,
                    "trajectory": trajectory,
                    "settings": settings,
                }
                asking = WorldDialogue(WorldData(**data))
                yield WorldTask(
                    WorldData(**data, id=f"{world.id} {trajectory}", name=world.id, prompt=asking.question()),
                    self.config.task,
                )


class WorldsEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Settings of the environment: the one agent that plays, without tools."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class WorldsEnv(vf.Env[WorldsEnvConfig]):  # type: ignore[misc]
    """Plays the episode of a task and records its exact rewards on the trace."""

    async def run(self, task: WorldTask, agents: Any) -> None:
        """Play an episode."""
        playing = WorldDialogue(task.data)
        playing.question()
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()  # the task's prompt is the first question
            while not segment.terminated:
                playing.answer(segment.last_reply)
                if playing.over:
                    break
                segment = await interaction.turn(playing.question())
        if interaction.trace.has_error:  # an episode that was broken off says nothing of the agent
            return
        found = playing.found()
        for name, value in found["rewards"].items():
            interaction.trace.record_reward(name, value, 1.0 if name == "goal" else 0.0)
        interaction.trace.record_metrics({name: value for name, value in found["metrics"].items() if value is not None})
        interaction.trace.info[KEY] = found


@dataclass(frozen=True)
class _Asked:
    """The model that verifiers asks; here it has a name and no more."""

    name = "verifiers"

    def describe(self) -> Mapping[str, Any]:
        return {"kind": "verifiers"}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> None:
        return None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        raise TypeError("the model of an environment of verifiers must be asked by verifiers")


class WorldDialogue:
    """One episode as a conversation: questions out, answers in.

    Args:
        data: of the task.
    """

    def __init__(self, data: WorldData) -> None:
        self.world = decode_world(data.world)
        self._agent = ChatAgent(model=_Asked(), task=data.settings["task"], template=data.settings["template"])
        spec = EpisodeSpec(
            world_id=self.world.id,
            agent_id=agent_id(self._agent),
            trajectory=data.trajectory,
            seed=data.seed,
            horizon=data.horizon,
        )
        self._live = LiveEpisode(spec, self.world, None)
        self._states = [self._live.state]

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._live.outcome is not None

    def question(self) -> str:
        """Return what the agent is asked now."""
        self._seen = self._live.observe()
        return "\n\n".join(message.content for message in self._agent.request(self._seen).messages)

    def answer(self, text: str) -> None:
        """Take an answer; one without an action is a step in place."""
        self._live.apply(turn(Completion(text=text), self._seen.view.actions))
        self._states.append(self._live.state)

    def found(self) -> dict[str, Any]:
        """Return rewards, metrics and what was optimal at each turn.

        Rewards: "goal", 1 for an episode that ends there; "progress" (weight 0 by default), the share of the shortest
        path that was covered, below 0 where it was lengthened, 0 where the goal got out of reach. Metrics: accuracy
        (turns in states without an optimal action left out), path ratio, invalid turns, steps. None: not defined.
        """
        steps, known = self._live.steps, oracle(self.world)
        solved = self._live.outcome == "goal"
        metrics: dict[str, float | None] = {
            "steps": float(len(steps)),
            "invalid turns": sum(step.action is None for step in steps) / len(steps) if steps else None,
        }
        rewards, turns = {"goal": float(solved)}, list[dict[str, Any]]()
        if known is not None and not isinstance(known, TimedOracle):
            sets, distance = known.look_up(np.array(self._states, dtype=np.int64))
            for step, best, left in zip(steps, sets, distance.tolist(), strict=False):
                action = None if step.action is None else int(step.action)
                optimal = np.flatnonzero(best).tolist()
                turns.append({"action": action, "optimal": optimal, "distance": left, "right": action in optimal})
            decided = [one["right"] for one in turns if one["optimal"]]
            metrics["accuracy"] = float(np.mean(decided)) if decided else None
            first, last = int(distance[0]), int(distance[-1])
            metrics["path ratio"] = len(steps) / first if solved and first > 0 else None
            rewards["progress"] = 1 - last / first if first > 0 and last >= 0 else 0.0
        assert all(one is None or math.isfinite(one) for one in metrics.values())
        return {"rewards": rewards, "metrics": metrics, "turns": turns, "outcome": self._live.outcome}
