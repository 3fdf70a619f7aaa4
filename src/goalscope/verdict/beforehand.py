"""What the planned worlds of an evaluation are enough to name, said before anything is asked."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite

from goalscope._ground.words import listed
from goalscope.goals.asked import default_hypotheses
from goalscope.goals.hypotheses import Hypothesis, Undefined, bind, finite_world
from goalscope.goals.hypotheses.definition import FiniteWorld, Mask
from goalscope.goals.hypotheses.need import LAPSES, Need, needed
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.hypotheses.steps import steps_in
from goalscope.goals.reading import by_phase, hypotheses_of
from goalscope.runs import Study

_ALONE = ("strength", "consistency", "steps")
"""What fails of a hypothesis itself, whatever its rivals."""


_MOST_STATES = 60_000
"""States of all worlds together above which the computation would take longer than the evaluation."""


def told_beforehand(study: Study, *, level: float) -> list[str]:
    """Return for each phase of a study whose steps are answered twice which hypotheses its worlds are enough to name.

    A line for each hypothesis that they are too few for, with the rival that it is hardest to tell from, and one for
    those that they are enough for at each of `LAPSES`, by the law of the score (`goalscope.goals.hypotheses.need`).

    Args:
        study: of an arm, with the number of worlds that is planned.
        level: of each one-sided end of the score.
    """
    worlds_of_study, sentences = study.worlds(), list[str]()
    usual = "environment" in worlds_of_study[0].offers and (study.analysis is None or not study.analysis.hypotheses)
    hypotheses = default_hypotheses(worlds_of_study) if usual else hypotheses_of(study)
    bank = {name: bind(hypothesis, worlds_of_study) for name, hypothesis in hypotheses.items()}
    for phase, worlds in by_phase(worlds_of_study).items():
        prefix, clusters, finites = f"phase {phase}: " if phase else "", set[str](), list[FiniteWorld]()
        for world in worlds:
            try:
                finites.append(finite_world(world, study.horizon.of(world)))
            except Undefined:
                continue
            clusters.add(world.cluster or world.id)
        if len(clusters) < FEWEST:
            sentences.append(
                f"{prefix}{len(clusters)} worlds with a known process are too few for any name, {FEWEST} at least"
            )
            continue
        steps = _steps_among(bank, finites)  # decided by what an agent does afterwards, which the law leaves out
        rest = {name: hypothesis for name, hypothesis in bank.items() if name not in steps}
        if not rest or sum(finite.process.states for finite in finites) > _MOST_STATES:
            continue
        # In environments one lapse rate, since what takes a second in a grid takes a minute there.
        lapses = LAPSES if "grid" in worlds[0].offers else LAPSES[1:2]
        needs = needed(rest, worlds, horizon=study.horizon.of, level=level, episodes=study.trajectories, lapses=lapses)
        sentences += (f"{prefix}{line}" for line in _lines(needs, len(clusters), max(lapses)))
    return sentences


def _steps_among(bank: Mapping[str, Hypothesis], finites: Sequence[FiniteWorld]) -> set[str]:
    """Return the names of the hypotheses that are an intermediate step of another one in one of the worlds."""
    names, steps = list(bank), set[int]()
    for finite in finites:
        masks = dict[int, Mask]()
        for number, hypothesis in enumerate(bank.values()):
            with suppress(Undefined):
                if hypothesis.kind in ("place", "event"):
                    masks[number] = hypothesis.where(finite)
        events = {number: mask for number, mask in masks.items() if list(bank.values())[number].kind == "event"}
        steps |= {step for _, step in steps_in(finite, masks, events)}
    return {names[step] for step in steps}


def _lines(needs_of_all: Sequence[Need], count: int, lapse: float) -> Iterator[str]:
    names, short = (
        list(dict.fromkeys(need.name for need in needs_of_all)),
        [need for need in needs_of_all if need.worlds > count],
    )
    never = {frozenset((need.name, need.hardest)): need for need in reversed(short) if not isfinite(need.worlds)}
    for need in reversed(never.values()):
        which = f"name {need.name}" if need.hardest in _ALONE else f"tell {need.name} from {need.hardest}"
        yield f"no number of worlds like these is enough to {which}"
    for name in names:
        if needs := [need for need in short if need.name == name and isfinite(need.worlds)]:
            at = [f"{need.worlds:.0f} at lapse rate {need.lapse:g} (hardest: {need.hardest})" for need in needs]
            yield f"{count} worlds are too few to name {name}: it takes {', '.join(at)}"
    lacking = {need.name for need in short}
    if enough := [name for name in names if name not in lacking]:
        yield f"{count} worlds are enough to name {listed(enough)} at lapse rates up to {lapse:g}"
