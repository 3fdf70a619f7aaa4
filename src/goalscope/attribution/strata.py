"""The answers of an agent in a run, and the groups of worlds that are judged together: phases never with one another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goalscope.attribution.claim import Stratum, judged
from goalscope.attribution.definition import Trial
from goalscope.hypotheses import Hypothesis, bind, load_hypotheses, read_hypotheses
from goalscope.hypotheses.answers import Answers, answers_of
from goalscope.runs.store import Store

USUAL = "grids"
"""Bank of the agents of a run in grids whose study names no hypotheses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnswers:
    """What an agent answered in the worlds of a run.

    Attributes:
        agent: its content id.
        answers: world by world.
        tags: id of a world -> tags of it and of its episodes.
        left_out: reason -> number of worlds that could not be used.
    """

    agent: str
    answers: Sequence[Answers]
    tags: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, int]

    @classmethod
    def read(cls, store: Store, name: str) -> "AgentAnswers":
        """Read those of an agent by its name.

        Raises:
            ValueError: none in a world with a known process.
        """
        members = [episode for episode in store.episodes() if episode.agent == name]
        found, left_out = answers_of(members)
        if not found:
            reasons = "; ".join(left_out) or "no step holds an action"
            raise ValueError(
                f"an attribution needs answers in worlds with known processes, got none in {store.path}: {reasons}"
            )
        tags = {episode.world.id: {**episode.world.tags, **episode.tags} for episode in members}
        return cls(agent=members[0].spec.agent_id, answers=found, tags=tags, left_out=left_out)

    @property
    def twice(self) -> bool:
        """Whether every step was answered twice, or by its probabilities."""
        return all(one.second is not None for one in self.answers)

    def strata(self, by: Sequence[str] = ()) -> Iterator[tuple[str, list[Answers]]]:
        """Yield all worlds, where they are of one phase, else each phase; then each value of other tags within them.

        Raises:
            ValueError: a tag that no world has.
        """
        known = {tag for each in self.tags.values() for tag in each}
        if unknown := sorted(set(by) - known):
            raise ValueError(
                f"worlds must have the tags that are asked for ({', '.join(sorted(known))}), got {unknown[0]!r}"
            )
        phases = self._split(self.answers, "phase")
        for phase, members in phases.items():
            label = f"phase {phase}" if len(phases) > 1 else ""
            yield label, members
            for tag in by:
                for value, part in self._split(members, tag).items() if tag != "phase" else ():
                    yield ", ".join(filter(None, (label, f"{tag} {value}"))), part

    def _split(self, members: Sequence[Answers], tag: str) -> dict[str, list[Answers]]:
        groups: dict[str, list[Answers]] = {}
        for one in members:
            groups.setdefault(str(self.tags[one.world.world.id].get(tag, "none")), []).append(one)
        return groups

    def bound(self, bank: Mapping[str, Hypothesis]) -> dict[str, Hypothesis]:
        """Return a bank whose places of a phase have the cells that they have in these worlds."""
        return {name: bind(one, [each.world.world for each in self.answers]) for name, one in bank.items()}

    def judged(
        self, bank: Mapping[str, Hypothesis], methods: Sequence[str], *, by: Sequence[str] = (), seed: int = 0
    ) -> list[Stratum]:
        """Return what methods say of each group of worlds, see `strata`, with a bank whose places are `bound`."""
        return [
            judged(group, Trial(answers=members, bank=bank, seed=seed), methods) for group, members in self.strata(by)
        ]


def bank_of(store: Store) -> dict[str, Hypothesis]:
    """Return the hypotheses that the study of a run names under ``analysis``, `USUAL` where it names none."""
    study = store.study()
    named = () if study is None or study.analysis is None else study.analysis.hypotheses
    return read_hypotheses(list(named)) if named else load_hypotheses(USUAL)
