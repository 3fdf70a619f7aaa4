"""The answers of an agent in a run, and the groups of its worlds that are judged together: phases are never mixed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goalscope.attribution.by_meg import TowardsHypothesis, towards
from goalscope.attribution.claim import Stratum, judged
from goalscope.attribution.definition import Attribution, Trial
from goalscope.hypotheses import Hypothesis, Undefined, bind, load_hypotheses
from goalscope.hypotheses.answers import Answers, answers_of
from goalscope.hypotheses.need import Need, needed
from goalscope.hypotheses.score import LEVEL
from goalscope.hypotheses.written import restore_hypotheses
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.worlds.world import World

GOAL = "goal"
USUAL = "grids"
"""Bank of the agents of a run in grids whose study names no hypotheses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What an agent's actions follow in a group of worlds.

    Attributes:
        name: of the group; empty for all worlds.
        clusters: number of its clusters of worlds.
        said: the verdict of the score; None with a reason.
        why: that reason.
        nats: signed MEG towards the hypotheses that the verdict names, and towards the goal.
        need: where several are left, or it is undecided: what it takes to name the nearest, of an agent as noisy.
    """

    name: str
    clusters: int
    said: Attribution | None
    why: str
    nats: Mapping[str, TowardsHypothesis]
    need: Need | None = None

    @property
    def where(self) -> str:
        """The group in words."""
        return self.name or "all worlds"

    @property
    def sentence(self) -> str:
        """What is said of these worlds, without a full stop."""
        if self.said is None:
            return f"nothing can be said, {self.why}"
        told = "; ".join(
            f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}] nats an episode towards {name}, {one.share:.0%} of the "
            "greatest possible"
            for name, one in self.nats.items()
        )
        parts = [self.said.sentence, told and f"MEG {told}", "" if self.need is None else self.need.sentence]
        return "; ".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnswers:
    """What an agent answered in the worlds of a run.

    Attributes:
        agent: its content id.
        answers: world by world.
        tags: id of a world -> tags of it and of its episodes.
        left_out: reason -> number of worlds that could not be used.
        phases: in the order of the study, which is theirs wherever they are named.
    """

    agent: str
    answers: Sequence[Answers]
    tags: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, int]
    phases: Sequence[str] = ()

    @classmethod
    def read(cls, store: Store, name: str) -> "AgentAnswers":
        """Read those of an agent by its name.

        Raises:
            Undefined: none in a world with a known process.
        """
        study = store.study()
        worlds = [] if study is None else study.dump()["worlds"]
        phases = tuple(dict.fromkeys(str(entry["phase"]) for entry in worlds if "phase" in entry))
        members = [episode for episode in store.episodes() if episode.agent == name]
        return cls.of(members, f"{store.path}", phases)

    @classmethod
    def of(cls, members: Sequence[Episode], source: str, phases: Sequence[str] = ()) -> "AgentAnswers":
        """Return those of an agent by its episodes; see `read`."""
        found, left_out = answers_of(members)
        if not found:
            reasons = "; ".join(left_out) or "no step holds an action"
            raise Undefined(
                f"an attribution needs answers in worlds with known processes, got none in {source}: {reasons}"
            )
        tags = {episode.world.id: {**episode.world.tags, **episode.tags} for episode in members}
        return cls(agent=members[0].spec.agent_id, answers=found, tags=tags, left_out=left_out, phases=phases)

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
        for phase, members in sorted(phases.items(), key=lambda item: self._place(item[0])):
            label = f"phase {phase}" if len(phases) > 1 else ""
            yield label, members
            for tag in by:
                for value, part in self._split(members, tag).items() if tag != "phase" else ():
                    yield ", ".join(filter(None, (label, f"{tag} {value}"))), part

    def _place(self, phase: str) -> int:
        return self.phases.index(phase) if phase in self.phases else len(self.phases)

    def _split(self, members: Sequence[Answers], tag: str) -> dict[str, list[Answers]]:
        groups: dict[str, list[Answers]] = {}
        for one in members:
            groups.setdefault(str(self.tags[one.world.world.id].get(tag, "none")), []).append(one)
        return groups

    def bound(self, bank: Mapping[str, Hypothesis]) -> dict[str, Hypothesis]:
        """Return a bank whose places of a phase have the cells that they have in these worlds."""
        return {name: bind(one, [each.world.world for each in self.answers]) for name, one in bank.items()}

    def followed(
        self, bank: Mapping[str, Hypothesis], *, by: Sequence[str] = (), level: float = LEVEL
    ) -> list[Followed]:
        """Return what the actions follow in each group of worlds, see `strata`, by a `bound` bank."""
        trials = ((name, Trial(answers=members, bank=bank, level=level)) for name, members in self.strata(by))
        return [followed(judged(name, trial, ["score"]), trial) for name, trial in trials]


def followed(stratum: Stratum, trial: Trial) -> Followed:
    """Return what the score says of the worlds of a trial, and MEG towards what it names and towards the goal."""
    said = next((one for one in stratum.attributions if one.method == "score"), None)
    nats: Mapping[str, TowardsHypothesis] = {}
    if said is not None and said.kind in ("named", "set", "partly"):
        names = [name for name in dict.fromkeys((*said.names, GOAL)) if name in trial.bank]
        nats = towards(trial, names, level=2 * trial.level)
    why = stratum.refused.get("score", "the score was not asked")
    need = _need(said, trial) if said is not None and said.kind in ("set", "undecided") else None
    return Followed(name=stratum.name, clusters=stratum.clusters, said=said, why=why, nats=nats, need=need)


def _need(said: Attribution, trial: Trial) -> Need | None:
    """Return what it takes to name what comes nearest, with the strength that it has; None where it has hardly any."""
    asked = [one for one in said.details["scores"] if one["asked"] and (one["name"] in said.names or not said.names)]
    horizons = {one.world.world.id: one.world.horizon for one in trial.answers}
    worlds = {one.world.world.id: one.world.world for one in trial.answers}
    if not asked or len({one.cluster for one in trial.answers}) < 2:
        return None
    near = max(asked, key=lambda one: one["consistency"][0])
    lapse = max(0.0, 1 - near["strength"][0])
    if lapse > 0.95:
        return None
    episodes = round(sum(len(one.last) for one in trial.answers) / len(trial.answers))
    found = needed(
        trial.bank,
        [*worlds.values()],
        horizon=lambda world: horizons[world.id],
        of=[near["name"]],
        lapses=[lapse],
        level=trial.level,
        episodes=episodes,
    )
    return found[0]


def bank_of(store: Store) -> dict[str, Hypothesis]:
    """Return the hypotheses of the study of a run, see `named_in`."""
    return named_in(store.study())


def named_in(study: Study | None) -> dict[str, Hypothesis]:
    """Return the hypotheses that a study names under ``analysis``, `USUAL` where it names none."""
    named = () if study is None or study.analysis is None else study.analysis.hypotheses
    return restore_hypotheses(list(named)) if named else load_hypotheses(USUAL)


def phases_of(worlds: Iterable[World]) -> dict[str, list[World]]:
    """Return phase -> its worlds, "" for those of none."""
    found: dict[str, list[World]] = {}
    for world in worlds:
        found.setdefault(str(world.tags.get("phase", "")), []).append(world)
    return found


def sentence(agent: str, groups: Sequence[Followed]) -> str:
    """Return in one sentence which hypotheses an agent's actions follow, by group of worlds, and how strongly."""
    if len(groups) == 1:
        return f"{agent}: {groups[0].sentence}."
    parts = [f"{group.where}: {group.sentence}" for group in groups]
    return f"{agent}: {'; '.join(parts)}."
