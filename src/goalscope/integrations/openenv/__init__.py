"""Worlds as an environment of OpenEnv: a model's answers in, questions and exact rewards out, over its server."""

from collections.abc import Callable
from typing import Any

from pydantic import Field

from goalscope._ground.extras import lacking
from goalscope.cli.front.dialogue import WorldDialogue, episodes_of

try:
    from openenv.core.env_server import Action, Environment, Observation, State
except ImportError as _error:
    raise lacking("environments of OpenEnv need openenv-core", "openenv", _error) from _error

__all__ = ["WorldAnswer", "WorldQuestion", "WorldsEnvironment", "worlds"]


class WorldAnswer(Action):  # type: ignore[misc]
    """What a model answers.

    Attributes:
        text: the answer; one without an action is a step in place.
    """

    text: str


class WorldQuestion(Observation):  # type: ignore[misc]
    """What a model is asked next; after the last step nothing, with all that was exact in ``metadata``.

    ``reward`` is 1 for the step that reaches the goal, else 0.

    Attributes:
        text: the question.
        episode: after the last step the rewards, metrics and turns of `cli.front.dialogue.WorldDialogue.found`;
            empty before.
    """

    text: str
    episode: dict[str, Any] = Field(default_factory=dict)


class WorldsEnvironment(Environment):  # type: ignore[misc]
    """The episodes of a study, one at a time and in its order, or by number.

    Args:
        study: a study file, or the name of a shipped study; its worlds, horizon, trajectories and seed are taken.
        prompt: the prompt of the chat agent: "grid" or "fog" for grids, "text" for environments.
        template: form of the bundled template; the plain one where empty.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True  # an instance holds all of its episode

    def __init__(self, study: str = "baseline", prompt: str = "grid", template: str = "") -> None:
        super().__init__()
        self._settings: dict[str, Any] = {"asked_by": "openenv", "prompt": prompt, "template": template}
        self._episodes, self._next = list(episodes_of(study)), 0
        self._playing: WorldDialogue | None = None
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> WorldQuestion:
        """Begin an episode: the next one, or that of number ``seed``, counted around."""
        episode = self._episodes[(self._next if seed is None else seed) % len(self._episodes)]
        self._next += seed is None
        self._playing = WorldDialogue(**episode, **self._settings)
        self._state = State(episode_id=episode_id or f"{episode['world'].id} {episode['trajectory']}", step_count=0)
        return WorldQuestion(text=self._playing.question(), reward=None, done=False)

    def step(self, action: WorldAnswer, timeout_s: float | None = None, **more: Any) -> WorldQuestion:
        """Take an answer.

        Raises:
            ValueError: no episode has begun, or it is over.
        """
        playing = self._playing
        if playing is None or playing.over:
            raise ValueError("a step belongs to an episode that goes on, got none: call reset")
        playing.answer(action.text)
        self._state.step_count += 1
        if not playing.over:
            return WorldQuestion(text=playing.question(), reward=0.0, done=False)
        record = playing.found()
        return WorldQuestion(text="", reward=record["rewards"]["goal"], done=True, episode=record)

    @property
    def state(self) -> State:
        """Id of the episode (world and trajectory) and number of steps."""
        return self._state


def worlds(study: str = "baseline", prompt: str = "grid", template: str = "") -> Callable[[], WorldsEnvironment]:
    """Return what makes an environment for each session of a server, see `WorldsEnvironment`."""
    return lambda: WorldsEnvironment(study, prompt, template)
