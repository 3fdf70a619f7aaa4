"""Taskset for `verifiers` (v1) with the worlds of a study, played turn by turn with exact rewards.

A task is a world. The environment acts as the user of the conversation: it shows the observation, parses one action
from each answer by the rules of the chat agent, and ends with the episode. Rewards and metrics come from the exact
oracle of the world.
"""

from collections.abc import Iterator
from typing import Any, Final

from goalscope._ground.extras import lacking
from goalscope.integrations.dialogue import WorldDialogue, episodes_of
from goalscope.runs.codec import decode_world, encode_world
from goalscope.worlds.world import World

try:
    import verifiers.v1 as vf
except ImportError as _error:
    raise lacking("environments of verifiers need verifiers", "verifiers", _error) from _error

__all__ = ["WorldTask", "WorldsConfig", "WorldsEnv", "WorldsEnvConfig", "WorldsTaskset"]

KEY: Final = "goalscope"
"""Key of what is kept of an episode in ``trace.info``."""


class WorldsConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Settings of goalscope's taskset (set of tasks) for the library verifiers.

    Attributes:
        study: a study file or the name of a shipped study, which gives the worlds, horizon, trajectories and seed.
        prompt: the prompt of the chat agent: "grid" or "fog" for grids, "text" for environments.
        template: variant of the bundled template; by default the plain variant.
    """

    study: str = "baseline"
    prompt: str = "grid"
    template: str = ""


class WorldData(vf.TaskData):  # type: ignore[misc]
    """Data of one task of the library verifiers: a world (as runs store it), and seed, horizon and settings of its
    episode.
    """

    world: list[Any]
    seed: int
    horizon: int
    trajectory: int
    settings: dict[str, str]


class WorldTask(vf.Task[WorldData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """Task of the library verifiers: to play one episode in a world."""

    @property
    def world(self) -> World:
        """The world in which the episode is played, rebuilt from the data of the task."""
        return decode_world(self.data.world)


class WorldsTaskset(vf.Taskset[WorldTask, WorldsConfig]):  # type: ignore[misc]
    """Taskset of the library verifiers, with one task per world and trajectory (repeated episode) of a study."""

    def load(self) -> Iterator[WorldTask]:
        """Yield the tasks, one per world and trajectory, in the order of the study."""
        settings = {"prompt": self.config.prompt, "template": self.config.template}
        for episode in episodes_of(self.config.study):
            world = episode["world"]
            data: dict[str, Any] = {**episode, "world": list(encode_world(world)), "settings": settings}
            question = _dialogue(WorldData(**data)).question()
            yield WorldTask(
                WorldData(**data, id=f"{world.id} {episode['trajectory']}", name=world.id, prompt=question),
                self.config.task,
            )


def _dialogue(data: WorldData) -> WorldDialogue:
    return WorldDialogue(
        decode_world(data.world), data.seed, data.horizon, data.trajectory, asked_by="verifiers", **data.settings
    )


class WorldsEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """Settings of `WorldsEnv`: a single agent, the player, which has no tools."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class WorldsEnv(vf.Env[WorldsEnvConfig]):  # type: ignore[misc]
    """Environment of the library verifiers that plays the episode of a task, and records its exact rewards on the
    trace.
    """

    async def run(self, task: WorldTask, agents: Any) -> None:
        """Play the episode of a task with the agent ``agents.player``, and record rewards and metrics unless it was
        aborted.
        """
        playing = _dialogue(task.data)
        playing.question()
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()  # the prompt of the task is the first question
            while not segment.terminated:
                playing.answer(segment.last_reply)
                if playing.over:
                    break
                segment = await interaction.turn(playing.question())
        if interaction.trace.has_error:  # an aborted episode is no evidence about the agent
            return
        record = playing.found()
        for name, value in record["rewards"].items():
            interaction.trace.record_reward(name, value, 1.0 if name == "goal" else 0.0)
        interaction.trace.record_metrics(
            {name: value for name, value in record["metrics"].items() if value is not None}
        )
        interaction.trace.info[KEY] = record
