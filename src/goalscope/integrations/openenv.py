"""Worlds as an OpenEnv environment, whose server takes a model's answers and returns questions and exact rewards."""

from collections.abc import Callable
from typing import Any

from pydantic import Field

from goalscope._ground.extras import lacking
from goalscope.integrations.dialogue import WorldDialogue, episodes_of

try:
    from openenv.core.env_server import Action, Environment, Observation, State
except ImportError as _error:
    raise lacking("environments of OpenEnv need openenv-core", "openenv", _error) from _error

__all__ = ["WorldAction", "WorldObservation", "WorldsEnvironment", "worlds"]


class WorldAction(Action):  # type: ignore[misc]
    """The action of an OpenEnv environment here: an answer of the model, as text.

    Attributes:
        text: the answer. Without an action in it, the step changes nothing.
    """

    text: str


class WorldObservation(Observation):  # type: ignore[misc]
    """The observation of an OpenEnv environment here: the next question to the model, empty after the last step.

    ``reward`` is 1 for the step that reaches the goal, otherwise 0.

    Attributes:
        text: the question.
        episode: after the last step, the rewards, metrics and turns from `integrations.dialogue.WorldDialogue.found`;
            empty before.
    """

    text: str
    episode: dict[str, Any] = Field(default_factory=dict)


class WorldsEnvironment(Environment):  # type: ignore[misc]
    """OpenEnv environment that plays the episodes of a study one at a time, in the order of the study or by index.

    Args:
        study: a study file or the name of a shipped study, which gives the worlds, horizon, trajectories and seed.
        prompt: the prompt of the chat agent: "grid" or "fog" for grids, "text" for environments.
        template: variant of the bundled template; by default the plain variant.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True  # each instance stores its whole episode

    def __init__(self, study: str = "baseline", prompt: str = "grid", template: str = "") -> None:
        super().__init__()
        self._settings: dict[str, Any] = {"asked_by": "openenv", "prompt": prompt, "template": template}
        self._episodes, self._next = list(episodes_of(study)), 0
        self._playing: WorldDialogue | None = None
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> WorldObservation:
        """Begin the next episode of the study (or that with index ``seed`` modulo their number), and return the first
        question.
        """
        episode = self._episodes[(self._next if seed is None else seed) % len(self._episodes)]
        self._next += seed is None
        self._playing = WorldDialogue(**episode, **self._settings)
        self._state = State(episode_id=episode_id or f"{episode['world'].id} {episode['trajectory']}", step_count=0)
        return WorldObservation(text=self._playing.question(), reward=None, done=False)

    def step(self, action: WorldAction, timeout_s: float | None = None, **more: Any) -> WorldObservation:
        """Apply an answer of the model to the world, and return the next question with the reward.

        Raises:
            ValueError: no episode has begun, or the episode is over.
        """
        playing = self._playing
        if playing is None or playing.over:
            raise ValueError("no episode is in progress: call reset before step")
        playing.answer(action.text)
        self._state.step_count += 1
        if not playing.over:
            return WorldObservation(text=playing.question(), reward=0.0, done=False)
        record = playing.found()
        return WorldObservation(text="", reward=record["rewards"]["goal"], done=True, episode=record)

    @property
    def state(self) -> State:
        """The id of the current episode (world and trajectory), and the number of its steps so far."""
        return self._state


def worlds(study: str = "baseline", prompt: str = "grid", template: str = "") -> Callable[[], WorldsEnvironment]:
    """Return a function that makes an OpenEnv environment, which a server calls once per session.

    The arguments are those of `WorldsEnvironment`.
    """
    return lambda: WorldsEnvironment(study, prompt, template)
