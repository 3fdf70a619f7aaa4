"""An agent that answers with recorded turns, without a model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from goalscope.agents.agent import Observation, Turn


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
    turns: Mapping[tuple[str, int, int], Turn] = field(repr=False)

    journalled: ClassVar[bool] = False

    @classmethod
    def from_records(
        cls, name: str, description: Mapping[str, Any], records: Iterable[tuple[str, int, int, Turn]]
    ) -> "ReplayAgent":
        """Build the agent from records (episode id, step, attempt, turn) as a store hands them over.

        Raises:
            ValueError: two different turns for one (episode id, step, attempt).
        """
        turns: dict[tuple[str, int, int], Turn] = {}
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
        found = [self.turns.get((seen.episode_id, seen.step, seen.attempt)) for seen in observations]
        for seen, turn in zip(observations, found, strict=True):
            if turn is None:
                raise LookupError(
                    f"the record of {self.name} must hold every turn that is replayed, it holds none for episode "
                    f"{seen.episode_id}, step {seen.step}, attempt {seen.attempt}: replay the study that was recorded, "
                    "with the same seed and settings"
                )
        return [turn for turn in found if turn is not None]
