"""Which hypotheses the planned worlds of an evaluation are enough to name; printed with its plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite

from goalscope._ground.words import counted, listed
from goalscope.goals.decision import noun_in
from goalscope.goals.hypotheses import Hypothesis, Undefined, bind, finite_world
from goalscope.goals.hypotheses.definition import FiniteWorld, Mask, steps_in
from goalscope.goals.hypotheses.design import LAPSES, POWER, Need, needed
from goalscope.goals.hypotheses.separability import FEWEST
from goalscope.goals.reading import by_phase, default_hypotheses, hypotheses_of
from goalscope.runs import Study
from goalscope.verdict.texts import TEXTS, percent

_ALONE = ("strength", "consistency", "steps")
"""Conditions for naming a hypothesis that do not depend on its rivals."""


_MOST_DECISIONS = 2_000_000
"""Maximum number of states times decisions of an episode, over all worlds; above it this takes over 20 s of processor
time, and may take longer than the evaluation.
"""

_MOST_SENTENCES = 5
"""Number of hypotheses with too few worlds up to which there is a sentence for each."""


def told_beforehand(study: Study, *, level: float) -> list[str]:
    """For each phase, say which hypotheses the study has enough worlds to name. Assumes two answers per step.

    There is a sentence for each hypothesis for which the worlds are too few, with the condition or the rival that
    requires most worlds, and one sentence for all hypotheses for which they are enough at each of `LAPSES`. The numbers
    follow from the distribution of the score (`goalscope.goals.hypotheses.design`).

    Args:
        study: the study of an arm, with the planned number of worlds.
        level: error rate of each one-sided end of the score.
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
            few = counted(len(clusters), "world")
            sentences.append(TEXTS("plan/too few for any", where=prefix, worlds=few, fewest=FEWEST))
            continue
        steps = _steps_among(bank, finites)  # no goals to plan for: the verdict names them as on the way
        rest = {name: hypothesis for name, hypothesis in bank.items() if name not in steps}
        if not rest or sum(finite.process.states * finite.horizon for finite in finites) > _MOST_DECISIONS:
            continue
        # In environments one lapse rate, since what takes a second in a grid takes a minute there.
        lapses = LAPSES if "grid" in worlds[0].offers else LAPSES[1:2]
        needs = needed(rest, worlds, horizon=study.horizon.of, level=level, episodes=study.trajectories, lapses=lapses)
        sentences += needs_in_words(
            prefix, needs, len(clusters), max(lapses), partial(noun_in, bank=bank, worlds=worlds)
        )
    return sentences


def _steps_among(bank: Mapping[str, Hypothesis], finites: Sequence[FiniteWorld]) -> set[str]:
    """Return the names of the hypotheses that are an intermediate step to another one in some world."""
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


def needs_in_words(
    prefix: str, needs_of_all: Sequence[Need], count: int, lapse: float, noun: Callable[[str], str]
) -> Iterator[str]:
    """Yield the sentences on the worlds that hypotheses need.

    Args:
        prefix: beginning of each sentence.
        needs_of_all: the needs of all hypotheses.
        count: number of the planned worlds.
        lapse: the highest lapse rate among the needs.
        noun: function from the name of a hypothesis to its noun phrase.
    """
    names, worlds = list(dict.fromkeys(need.name for need in needs_of_all)), counted(count, "world")
    short = [need for need in needs_of_all if need.worlds > count]
    lacking = {need.name for need in short}
    if len(lacking) > _MOST_SENTENCES:
        few = listed([noun(name) for name in names if name in lacking])
        yield TEXTS("plan/too few for several", where=prefix, worlds=worlds, names=few, power=percent(POWER))
    else:
        yield from _limits(prefix, short, worlds, noun)
    if enough := [noun(name) for name in names if name not in lacking]:
        yield TEXTS("plan/enough", where=prefix, worlds=worlds, names=listed(enough), lapse=percent(lapse))


def _limits(prefix: str, short: Sequence[Need], worlds: str, noun: Callable[[str], str]) -> Iterator[str]:
    """Yield what limits each hypothesis for which the worlds are too few."""
    never = {frozenset((need.name, need.hardest)): need for need in reversed(short) if not isfinite(need.worlds)}
    for need in reversed(never.values()):
        if need.hardest in _ALONE:
            yield TEXTS("plan/never named", where=prefix, name=noun(need.name))
        else:
            yield TEXTS("plan/never told apart", where=prefix, name=noun(need.name), rival=noun(need.hardest))
    for name in dict.fromkeys(need.name for need in short if isfinite(need.worlds)):
        limits = [_needed(need, noun) for need in short if need.name == name and isfinite(need.worlds)]
        yield TEXTS(
            "plan/too few", where=prefix, worlds=worlds, name=noun(name), needs=", ".join(limits), power=percent(POWER)
        )


def _needed(need: Need, noun: Callable[[str], str]) -> str:
    hardest = need.hardest if need.hardest in _ALONE else noun(need.hardest)
    return TEXTS("plan/needed", worlds=f"{need.worlds:.0f}", lapse=percent(need.lapse), hardest=hardest)
