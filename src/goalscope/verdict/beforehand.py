"""What the planned worlds of an evaluation are enough to name, said before anything is asked."""

from collections.abc import Iterator, Sequence
from math import isfinite

from goalscope._ground.words import listed
from goalscope.goals.hypotheses import Undefined, bind, finite_world
from goalscope.goals.hypotheses.need import LAPSES, Need, needed
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.reading import by_phase, hypotheses_of
from goalscope.runs import Study

_ALONE = ("strength", "consistency", "steps")
"""What fails of a hypothesis itself, whatever its rivals."""


def told_beforehand(study: Study, *, level: float) -> list[str]:
    """Return for each phase of a study whose steps are answered twice which hypotheses its worlds are enough to name.

    A line for each hypothesis that they are too few for, with the rival that it is hardest to tell from, and one for
    those that they are enough for at each of `LAPSES`, by the law of the score (`goalscope.goals.hypotheses.need`).

    Args:
        study: of an arm, with the number of worlds that is planned.
        level: of each one-sided end of the score.
    """
    every, told = study.worlds(), list[str]()
    bank = {name: bind(one, every) for name, one in hypotheses_of(study).items()}
    for phase, worlds in by_phase(every).items():
        where, clusters = f"phase {phase}: " if phase else "", set[str]()
        for world in worlds:
            try:
                finite_world(world, study.horizon.of(world))
            except Undefined:
                continue
            clusters.add(world.cluster or world.id)
        if len(clusters) < FEWEST:
            told.append(
                f"{where}{len(clusters)} worlds with a known process are too few for any name, {FEWEST} at least"
            )
            continue
        found = needed(bank, worlds, horizon=study.horizon.of, level=level, episodes=study.trajectories)
        told += (f"{where}{line}" for line in _lines(found, len(clusters)))
    return told


def _lines(found: Sequence[Need], count: int) -> Iterator[str]:
    names, short = list(dict.fromkeys(one.name for one in found)), [one for one in found if one.worlds > count]
    never = {frozenset((one.name, one.hardest)): one for one in reversed(short) if not isfinite(one.worlds)}
    for one in reversed(never.values()):
        which = f"name {one.name}" if one.hardest in _ALONE else f"tell {one.name} from {one.hardest}"
        yield f"no number of worlds like these is enough to {which}"
    for name in names:
        if needs := [one for one in short if one.name == name and isfinite(one.worlds)]:
            at = [f"{one.worlds:.0f} at lapse rate {one.lapse:g} (hardest: {one.hardest})" for one in needs]
            yield f"{count} worlds are too few to name {name}: it takes {', '.join(at)}"
    lacking = {one.name for one in short}
    if enough := [name for name in names if name not in lacking]:
        yield f"{count} worlds are enough to name {listed(enough)} at lapse rates up to {max(LAPSES):g}"
