"""Before an evaluation starts: which models are asked which arms, at what size within the budget, at what cost."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from goalscope._ground.progress import TALLY, duration
from goalscope._ground.words import counted, listed
from goalscope.report.blocks import Table
from goalscope.runs.study import Study
from goalscope.verdict.arms import Arm
from goalscope.verdict.budget import Budget, divide, expected, unit_costs
from goalscope.verdict.failures import Failures, does_not_fit, not_played
from goalscope.verdict.plan import Plan
from goalscope.verdict.preflight.first_turns import FirstTurns
from goalscope.verdict.preflight.forecast import Forecast, Range, amounts, nothing, span
from goalscope.verdict.rules import claims_of
from goalscope.verdict.subject import Subject
from goalscope.verdict.texts import TEXTS

DEFAULT: Final = "7m"
"""The default budget."""

JUDGING: Final = (6.0, 0.02)
"""Seconds that an evaluation takes in addition to its turns: to judge claims and write the page, and to measure an
episode.
"""


CURVES: Final = 1e-5
"""Seconds that MEG takes per decision, state and action of an environment, for three hypotheses."""

PROPOSED: Final = ("10m", "30m", "120m")
"""Budgets for which an evaluation is proposed if the full plan exceeds the given one."""

SOON: Final = 600.0
"""Seconds: proposals include smaller grids if the least sizes of the core take longer."""

LONGEST: Final = 1800.0
"""Seconds: without `--budget`, an evaluation whose first arm takes longer is proposed instead of started."""

NO_ROOM: Final = TEXTS("plan/no room")
"""Why an arm that exceeds the budget is not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The plan of an evaluation in words, and what it is expected to cost.

    Attributes:
        table: one row per arm: worlds, turns, time, part of the full size; None if nothing is asked.
        expected: total time, tokens, USD and memory in one sentence; "" if nothing is known.
        proposals: sentences on what larger budgets would ask and usually decide; empty if the budget suffices for all.
        failed: one sentence per unexpected error.
        plan: the plan, which `evaluate` accepts in place of models.
    """

    table: Table | None = None
    expected: str = ""
    proposals: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    plan: Plan | None = None

    def lines(self) -> list[str]:
        """Return the announcement as lines of text."""
        captions = [] if self.table is None else [self.table.caption]
        for title, worlds, turns, seconds, settles in () if self.table is None else self.table.rows:
            size = [TEXTS("plan/worlds", count=worlds), TEXTS("plan/turns", count=turns)] if worlds != "–" else []
            captions.append(f"{title}: {', '.join([*size, *(text for text in (seconds, settles) if text != '–')])}")
        sentences = () if self.plan is None else self.plan.beforehand
        return [*captions, *([self.expected] if self.expected else []), *self.proposals, *sentences]


def find_unasked(failures: Failures, arms: Sequence[Arm], subjects: Sequence[Subject], seed: int) -> None:
    """Record which models cannot be asked an arm, because its worlds cannot be made or its prompts do not fit."""
    for arm in arms:
        for subject in subjects:
            if not arm.open_to(subject):
                continue
            with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                if arm.looks is None and (
                    why := does_not_fit(arm, subject, max(arm.quick, 1), seed, failures.makeable)
                ):
                    failures.leave_out([arm.name], [subject.name], why)
                elif (arm.at, subject.name) in failures.unasked:
                    failures.leave_out([arm.name], [subject.name], not_played(arm))


def asked_of(arm: Arm, subjects: Sequence[Subject], failures: Failures) -> list[Subject]:
    """Return the models that will be asked an arm."""
    return [
        subject for subject in subjects if arm.open_to(subject) and (arm.name, subject.name) not in failures.unasked
    ]


def choose_sizes(
    open_to: Sequence[Arm],
    subjects: Sequence[Subject],
    seed: int,
    limit: Budget,
    firsts: Mapping[str, FirstTurns],
    unasked: Collection[tuple[str, str]] = (),
    *,
    named: bool,
    workers: int = 1,
    smaller: Mapping[str, Sequence[Arm]] | None = None,
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Choose for each arm how many worlds per cell the budget allows; the first arm always fits the default budget,
    unless it takes longer than `LONGEST`.

    Args:
        open_to, subjects, seed, limit, firsts, unasked, workers: see `unit_costs`.
        named: whether the user gave the budget.
        smaller: option text -> the arms that it leaves; suggested if the budget is too small.

    Returns:
        Arm -> worlds per cell; and sentences on what larger budgets would ask, if the full plan exceeds the budget.

    Raises:
        ValueError: the budget is too small for the first arm.
    """

    def costs_of(arms: Sequence[Arm]) -> dict[str, float]:
        return unit_costs(arms, subjects, seed, limit, firsts, unasked, workers=workers)

    cost = costs_of(open_to)
    if not any(cost.values()):
        raise ValueError(
            f"a budget must limit something, but {listed([subject.name for subject in subjects])} takes no {limit.of}, "
            f"got {limit.text}: give a limit of time, as in --budget 20m"
        )
    sizes = divide(open_to, cost, limit.amount)
    core, variants = [arm for arm in open_to if arm.core], [("", open_to, cost)]
    if 0 < len(core) < len(open_to):
        variants.append((f"--arms {','.join(arm.name for arm in core)}", core, cost))
    if limit.of == "seconds" and sum(arm.quick * cost[arm.name] for arm in core) > SOON:
        variants += [(words, arms, costs_of(arms)) for words, arms in (smaller or {}).items()]
    proposals = tuple(_proposals(variants, limit, sizes)) if limit.of == "seconds" else ()
    if not sizes:
        minimum = cost[open_to[0].name] * open_to[0].quick
        if not named and minimum <= LONGEST:
            TALLY.tell(
                f"{open_to[0].title} alone takes about {duration(minimum)} at its least size, more than the default of "
                f"{DEFAULT}: it is asked, the others are not; --budget gives them room"
            )
            return {open_to[0].name: open_to[0].quick}, proposals
        advice = [f"--budget {limit.enough(minimum)}", "--quick"]
        least = {
            words: sum(unit * arm.quick for arm, unit in zip(arms, costs_of(arms).values(), strict=True))
            for words, arms in (smaller or {}).items()
        }
        cheapest = min(least, key=least.__getitem__, default="")
        if cheapest and least[cheapest] < minimum:
            advice.insert(0, f"{cheapest}, which takes about {limit.in_words(least[cheapest])}")
        raise ValueError(
            f"a budget must allow at least the first arm, {open_to[0].title.lower()}, which takes about "
            f"{limit.in_words(minimum)}, got {limit.text}: give {', or '.join(advice)}"
            + "".join(f"\n{line}" for line in proposals)
        )
    return sizes, proposals


def _proposals(
    variants: Sequence[tuple[str, Sequence[Arm], Mapping[str, float]]], limit: Budget, chosen: Mapping[str, int]
) -> Iterator[str]:
    """Yield for each of `PROPOSED` the best evaluation within it and what that usually decides.

    The best variant asks most arms of the core, and among equals it decides most questions.

    Args:
        variants: options, the arms that they leave, and what one world per cell of each costs in seconds.
        limit: the budget, which the proposals exceed.
        chosen: the sizes within the budget.
    """
    if all(chosen.get(arm.name, 0) >= arm.full for arm in variants[0][1]):
        return
    for text in PROPOSED:
        amount = Budget.parse(text).amount
        if amount <= limit.amount and chosen:
            continue
        fitting = [(words, arms, sizes) for words, arms, cost in variants if (sizes := divide(arms, cost, amount))]
        if not fitting:
            yield TEXTS("plan/proposal of nothing", budget=text)
            continue
        words, arms, sizes = max(fitting, key=lambda option: (_core_asked(*option[1:]), len(_decided(*option[1:]))))
        asked, decided = [arm for arm in arms if sizes.get(arm.name)], _decided(arms, sizes)
        possible = sum(len(claims_of(arm.name)) for arm in asked) - len(decided)
        shares = [f"{arm.title} {min(100, 100 * sizes[arm.name] // arm.full)} %" for arm in asked]
        listed_names = ", ".join(f"“{name}”" for name in decided) or TEXTS("plan/no question")
        yield TEXTS(
            "plan/proposal",
            options=f"--budget {text}{' ' * bool(words)}{words}",
            shares=", ".join(shares),
            decided=listed_names
            if possible
            else TEXTS("plan/all questions", questions=counted(len(decided), "question")),
            possible=TEXTS("plan/possible", questions=counted(possible, "question")) if possible else "",
        )


def _decided(arms: Sequence[Arm], sizes: Mapping[str, int]) -> list[str]:
    """Return the names of all questions that belong to arms of full size."""
    return [name for arm in arms if sizes.get(arm.name, 0) >= arm.full for name in claims_of(arm.name)]


def _core_asked(arms: Sequence[Arm], sizes: Mapping[str, int]) -> int:
    return sum(arm.core and arm.name in sizes for arm in arms)


def announced(
    subjects: Sequence[Subject],
    open_to: Sequence[Arm],
    sizes: Mapping[str, int],
    seed: int,
    failures: Failures,
    firsts: Mapping[str, FirstTurns],
    workers: int = 1,
) -> Announcement:
    """Return what is going to be asked and what it is expected to cost."""
    lines, total, episodes, sentences = [], nothing(), 0, set[str]()
    curves = 0.0
    for arm in open_to:
        count, open_subjects = sizes.get(arm.name, 0), asked_of(arm, subjects, failures)
        if not open_subjects:
            why = "; ".join(dict.fromkeys(why for (name, _), why in failures.unasked.items() if name == arm.name))
            unasked = TEXTS("plan/not asked either") if why in sentences else TEXTS("plan/not asked", why=why)
            lines.append((arm.title, "–", "–", "–", unasked))
            sentences.add(why)
            continue
        if not count:
            lines.append((arm.title, "–", "–", "–", NO_ROOM))
            continue
        took = nothing()
        for subject in open_subjects:
            if subject.name in firsts:
                took += expected(arm, subject, count, seed, firsts[subject.name], workers=workers)
        total += took
        seconds = span(took.seconds, duration) if took.seconds[2] else "unknown"
        if arm.looks is not None:
            work = TEXTS("plan/counts of a look", what=arm.looks.what, size=count, counted=arm.looks.counts)
            lines.append((arm.title, "–", "–", seconds, work))
            continue
        study = arm.make(open_subjects, count, seed)
        size = study.size()
        episodes, curves = episodes + size.episodes, curves + _curve_seconds(study)
        share = f"{100 * count / arm.full:.0f} %"
        part = TEXTS("plan/full size") if count >= arm.full else TEXTS("plan/part of full size", percent=share)
        lines.append((arm.title, f"{size.worlds:,}", f"{size.steps:,}", seconds, part))
    table = Table(
        caption=TEXTS("plan/title", names=listed([subject.name for subject in subjects])),
        headings=("arm", "worlds", "maximum turns", "expected time", "size"),
        rows=tuple(lines),
        numbers=(1, 2),
    )
    judging = (JUDGING[0] + JUDGING[1] * episodes + curves) * np.array([0.5, 1.0, 2.0])
    is_known = episodes and total.seconds[2]
    words = _expected(total, judging) if is_known else ""
    return Announcement(table=table, expected=words, failed=tuple(failures.failed))


def _curve_seconds(study: Study) -> float:
    """Return the expected seconds for MEG in the environments of a study; 0 in other worlds."""
    horizons: dict[int, tuple[int, int]] = {}
    for world in study.worlds():
        if "environment" in world.offers:
            transitions = world.believed.process.transitions
            size = world.believed.table.offered.size
            horizon, _ = horizons.get(id(transitions), (0, 0))
            horizons[id(transitions)] = max(horizon, study.horizon.of(world)), size
    return CURVES * sum(horizon * size for horizon, size in horizons.values())


def _expected(total: Forecast, judging: Range) -> str:
    seconds = total.seconds + judging
    further = "".join(f"; {amount}" for amount in amounts(total))
    return TEXTS("plan/expected", time=span(seconds, duration), judging=span(judging, duration), others=further)
