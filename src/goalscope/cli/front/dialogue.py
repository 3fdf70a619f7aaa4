"""One episode as a conversation with a model that somebody else asks: questions out, answers in, exact rewards."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from goalscope._ground.folder import NamedFile
from goalscope._ground.yaml_text import read_yaml_text
from goalscope.agents.agent import agent_id
from goalscope.agents.chat import ChatAgent, turn
from goalscope.agents.models.base import Message, Reply, Request, Sampling
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.study import Study
from goalscope.verdict.preflight import study_files
from goalscope.worlds.planning.oracle import oracle
from goalscope.worlds.world import TimedOracle, World


def episodes_of(study: str) -> Iterator[dict[str, Any]]:
    """Yield world, seed, horizon and trajectory of each episode of a study, in its order.

    Args:
        study: a file, or the name of a shipped study.
    """
    own = NamedFile(study).is_there()
    made = Study.load(study) if own else Study.parse(read_yaml_text(study_files.text(study), study))
    for world in made.worlds():
        horizon = made.horizon.of(world)
        for trajectory in range(made.trajectories):
            yield {"world": world, "seed": made.seed, "horizon": horizon, "trajectory": trajectory}


@dataclass(frozen=True)
class _Asked:
    """The model that another library asks; here it has a name and no more.

    Attributes:
        name: of that library.
    """

    name: str

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.name}

    def render(self, messages: Sequence[Message], sampling: Sampling) -> None:
        return None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        raise TypeError("the model of a dialogue must be asked by the library that plays it")


class WorldDialogue:
    """One episode as a conversation: questions out, answers in.

    Args:
        world, seed, horizon, trajectory: of the episode.
        asked_by: the library that asks the model.
        prompt: of the chat agent: "grid", "fog", or "text" for environments.
        template: form of the bundled template; the plain one where empty.
    """

    def __init__(
        self, world: World, seed: int, horizon: int, trajectory: int, *, asked_by: str, prompt: str, template: str = ""
    ) -> None:
        self.world = world
        self._agent = ChatAgent(model=_Asked(asked_by), task=prompt, template=template)
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
        """Return what the agent is asked now."""
        self._seen = self._live.observe()
        return "\n\n".join(message.content for message in self._agent.request(self._seen).messages)

    def answer(self, text: str) -> None:
        """Take an answer; one without an action is a step in place."""
        self._live.apply(turn(Reply.of(text), self._seen.view.actions))
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
