"""A running episode, with the agent's observations and the effects of its turns."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from goalscope.agents.agent import History, Observation, Past, Turn, check_action
from goalscope.runs.record import SECOND, Episode, EpisodeSpec, Outcome, Step
from goalscope.runs.study import FailurePolicy, Study
from goalscope.stats.rows import Tag
from goalscope.worlds.world import View, World

_AGAIN: Final = 1001
"""Attempt number of a second answer. It exceeds all retries, so that its random numbers differ from the first."""


def _earlier(world: World, history: History) -> tuple[Past, ...]:
    """Return the turns before an episode; in a conversation, the answer of each is the name of its move."""
    spoken = history in ("conversation", "reasoning")
    return tuple(
        Past(view=view, action=action, text=None if action is None or not spoken else view.actions[action])
        for view, action in world.earlier
    )


class LiveEpisode:
    """Running episode in any kind of world.

    If the study has ``answers: 2``, each step with a valid move is answered a second time for the same observation. The
    first answer is carried out, the second is stored with the step.

    Args:
        spec: the specification of the episode.
        world: its world.
        study: the study, for its failure policy and history; None for a study's defaults.
        history: the history that the agent sees; None for that of the study.
        failure: the failure policy; None for that of the study.
        knows_world: whether the agent receives the whole world.

    Attributes:
        outcome: the outcome, or None while the episode is running.
        steps: the steps so far.
        usage: the cost of each turn: (step, attempt, name, value).
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        world: World,
        study: Study | None,
        history: History | None = None,
        failure: FailurePolicy | None = None,
        *,
        knows_world: bool = False,
    ) -> None:
        self.spec = spec
        self.outcome: Outcome | None = None
        self.steps: list[Step] = []
        self.usage: list[tuple[int, int, str, float]] = []
        self._world = world
        self._knows_world = knows_world
        self._session = world.begin_episode(spec.seed, spec.id)
        self._view: View | None = None  # the last view, until a step is taken
        self._history_as: History = history or ("none" if study is None else study.history)
        self._history = () if self._history_as == "none" else _earlier(world, self._history_as)
        self._failure = failure or (FailurePolicy() if study is None else study.failure)
        self._attempts: list[dict[str, Any]] = []
        self._twice = study is not None and study.answers == 2
        self._first: Turn | None = None  # first answer to a step that is answered a second time

    @property
    def state(self) -> Any:
        """The true state before the next turn."""
        return self._session.state

    def observe(self) -> Observation:
        """Return the agent's current observation."""
        self._view = self._session.view
        return Observation(
            view=self._view,
            step=len(self._world.earlier) + len(self.steps),
            attempt=self._attempt,
            episode_id=self.spec.id,
            seed=self.spec.seed,
            history=self._history,
            history_as=self._history_as,
            world=self._world if self._knows_world else None,
            horizon=self._world.planned(self.spec.horizon) if self._knows_world else 0,
            shared_examples=self._world.shared_examples,
        )

    @property
    def _attempt(self) -> int:
        return len(self._attempts) if self._first is None else _AGAIN

    def apply(self, turn: Turn) -> None:
        """Apply the agent's turn.

        Raises:
            ValueError: if usage is not a finite number, or the world does not have the action.
        """
        index, attempt = len(self.steps), self._attempt
        for name, value in turn.usage.items():
            if not math.isfinite(value):
                raise ValueError(f"usage must contain only finite numbers, got {name} = {value!r} at step {index}")
            self.usage.append((index, attempt, name, float(value)))
        check_action(turn, (self._view or self._session.view).actions)
        if self._first is None and turn.action is None and attempt < self._failure.retries:
            self._attempts.append({"failure": turn.failure, "text": turn.text, "reasoning": turn.reasoning})
            return
        if self._first is not None:
            turn, self._first = replace(self._first, extra={**self._first.extra, SECOND: turn.action}), None
        elif self._twice and turn.action is not None:
            self._first = turn
            return
        extra = {**turn.extra, "attempts": self._attempts} if self._attempts else turn.extra
        session = self._session
        action = None if turn.action is None else self._world.action(turn.action)
        view = self._view or session.view
        state = session.state
        if self._history_as != "none":
            # The step of this turn, as the agent will see it in its history.
            past = Past(
                view=view,
                action=turn.action,
                text=turn.text if self._history_as in ("conversation", "reasoning") else None,
                reasoning=turn.reasoning if self._history_as == "reasoning" else None,
            )
            self._history = (*self._history, past)
        session.step(action)
        self._view = None
        self.steps.append(
            Step(
                index=index,
                state=state,
                action=action,
                failure=turn.failure,
                text=turn.text,
                reasoning=turn.reasoning,
                prompt_tokens=turn.prompt_tokens,
                output_tokens=turn.output_tokens,
                reward=session.reward,
                extra=extra,
            )
        )
        self._attempts = []
        if action is None and self._failure.ends:
            self.outcome = "failure"
        elif session.done:
            self.outcome = "goal" if session.solved else "ended"
        elif len(self.steps) == self.spec.horizon:
            self.outcome = "horizon"

    def record(self, agent: str, tags: Mapping[str, Tag] | None = None) -> Episode:
        """Return the record of the episode, which must have ended.

        Args:
            agent: the agent's short name.
            tags: the agent's own tags.

        Raises:
            ValueError: if the episode has not ended.
        """
        if self.outcome is None:
            raise ValueError(
                f"episode {self.spec.id} is still running and cannot be recorded yet: call record after the "
                "outcome is known"
            )
        return Episode(
            spec=self.spec,
            world=self._world,
            agent=agent,
            steps=tuple(self.steps),
            final=self._session.state,
            outcome=self.outcome,
            tags=dict(tags or {}),
        )
