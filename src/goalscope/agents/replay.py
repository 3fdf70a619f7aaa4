"""An agent that answers with recorded turns, without a model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from goalscope.agents.agent import Observation, Turn

Key = tuple[str, int, int]
"""(episode id, step, attempt)."""


@dataclass(frozen=True, kw_only=True)
class ReplayAgent:
    """Answers every observation with the turn that was recorded for it.

    It describes itself as the agent it replays, so that its episodes have the ids of the recorded ones.

    Attributes:
        name: short name of the agent that was recorded.
        description: what that agent's `describe` returned.
        turns: the recorded turns by (episode id, step, attempt).
    """

    name: str
    description: Mapping[str, Any]
    turns: Mapping[Key, Turn] = field(repr=False)

    journalled: ClassVar[bool] = False

    @classmethod
    def from_records(
        cls, name: str, description: Mapping[str, Any], records: Iterable[tuple[str, int, int, Turn]]
    ) -> "ReplayAgent":
        """Build the agent from records as a store hands them over.

        Args:
            name: short name of the agent that was recorded.
            description: what that agent's `describe` returned.
            records: (episode id, step, attempt, turn).

        Raises:
            ValueError: two different turns for one (episode id, step, attempt).
        """
        turns: dict[Key, Turn] = {}
        for episode_id, step, attempt, recorded in records:
            if turns.setdefault((episode_id, step, attempt), recorded) != recorded:
                raise ValueError(
                    "a record must hold one turn for each attempt, got two different ones for episode "
                    f"{episode_id}, step {step}, attempt {attempt}"
                )
        return cls(name=name, description=dict(description), turns=turns)

    def describe(self) -> Mapping[str, Any]:
        """Return the description of the recorded agent."""
        return self.description

    def act(self, observations: Sequence[Observation]) -> list[Turn]:
        """Return the recorded turn of each observation.

        Raises:
            LookupError: a turn that the record does not hold; names it.
        """
        answers = []
        for observation in observations:
            key = (observation.episode_id, observation.step, observation.attempt)
            if key not in self.turns:
                raise LookupError(
                    f"the record of {self.name} must hold every turn that is replayed, it holds none for episode "
                    f"{key[0]}, step {key[1]}, attempt {key[2]}: replay the study that was recorded, with the same "
                    "seed and settings"
                )
            answers.append(self.turns[key])
        return answers
