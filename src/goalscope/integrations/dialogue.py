"""One episode as a conversation with a model that another library asks: prompts out, answers in, exact rewards."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from goalscope.agents.agent import agent_id
from goalscope.agents.chat import ChatAgent
from goalscope.agents.models.base import AskedElsewhere, Reply
from goalscope.agents.parse import turn
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import EpisodeSpec
from goalscope.verdict.preflight import study_files
from goalscope.worlds.planning.shortest import oracle
from goalscope.worlds.world import TimedOracle, World


def episodes_of(study: str) -> Iterator[dict[str, Any]]:
    """Yield the episodes that a study plays, in order, each as a dictionary with its world, seed, horizon and
    trajectory.

    The horizon is the maximum number of actions, and the trajectory the number of the episode in its world.

    Args:
        study: a study file, or the name of a shipped study.
    """
    made = study_files.load(study)
    for world in made.worlds():
        horizon = made.horizon.of(world)
        for trajectory in range(made.trajectories):
            yield {"world": world, "seed": made.seed, "horizon": horizon, "trajectory": trajectory}


class WorldDialogue:
    """One episode as a conversation, for a library that asks (or trains) the model itself.

    Call `question` for a prompt and `answer` with the model's answer until `over` is true, and then `found` for the
    rewards.

    Args:
        world: the world of the episode.
        seed: random seed of the episode.
        horizon: maximum number of steps.
        trajectory: number of the episode in its world.
        asked_by: name of the library that asks the model.
        prompt: task of the chat agent: "grid", "fog", or "text" for other environments.
        template: form of the bundled prompt template; "" for the plain one.
    """

    def __init__(
        self, world: World, seed: int, horizon: int, trajectory: int, *, asked_by: str, prompt: str, template: str = ""
    ) -> None:
        self.world = world
        self._agent = ChatAgent(model=AskedElsewhere(asked_by, asked_by), task=prompt, template=template)
        spec = EpisodeSpec(
            world_id=self.world.id,
            agent_id=agent_id(self._agent),
            trajectory=trajectory,
            seed=seed,
            horizon=horizon,
        )
        self._live = LiveEpisode(spec, self.world, None)
        self._states = [self._live.state]

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._live.outcome is not None

    def question(self) -> str:
        """Return the prompt in which the model is asked for its next move."""
        self._seen = self._live.observe()
        return "\n\n".join(message.content for message in self._agent.request(self._seen).messages)

    def answer(self, text: str) -> None:
        """Apply the model's answer to the world; an answer without a valid move is a step in place."""
        self._live.apply(turn(Reply.of(text), self._seen.view.actions))
        self._states.append(self._live.state)

    def found(self) -> dict[str, Any]:
        """Return a dictionary with the rewards, the metrics, the turns (with their optimal moves) and the outcome of
        the episode.

        Rewards: "goal" is 1 if the episode ended at the goal. "progress" (weight 0 by default) is the share of the
        shortest path that was covered: negative if the distance grew, 0 if the goal became unreachable. Metrics:
        accuracy (over turns in states with an optimal move), path ratio, invalid turns, steps; None if undefined.
        """
        steps, oracle_of_world = self._live.steps, oracle(self.world)
        solved = self._live.outcome == "goal"
        metrics: dict[str, float | None] = {
            "steps": float(len(steps)),
            "invalid turns": sum(step.action is None for step in steps) / len(steps) if steps else None,
        }
        rewards, turns = {"goal": float(solved)}, list[dict[str, Any]]()
        if oracle_of_world is not None and not isinstance(oracle_of_world, TimedOracle):
            sets, distance = oracle_of_world.look_up(np.array(self._states, dtype=np.int64))
            for step, best, left in zip(steps, sets, distance.tolist(), strict=False):
                action = None if step.action is None else int(step.action)
                optimal = np.flatnonzero(best).tolist()
                turns.append({"action": action, "optimal": optimal, "distance": left, "right": action in optimal})
            decided = [turn_record["right"] for turn_record in turns if turn_record["optimal"]]
            metrics["accuracy"] = float(np.mean(decided)) if decided else None
            first, last = int(distance[0]), int(distance[-1])
            metrics["path ratio"] = len(steps) / first if solved and first > 0 else None
            rewards["progress"] = 1 - last / first if first > 0 and last >= 0 else 0.0
        assert all(value is None or math.isfinite(value) for value in metrics.values())
        return {"rewards": rewards, "metrics": metrics, "turns": turns, "outcome": self._live.outcome}
