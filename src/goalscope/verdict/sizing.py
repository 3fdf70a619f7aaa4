"""Before an evaluation starts: which models are asked which arms, at what size within the budget, at what cost."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from goalscope._ground.progress import TALLY, duration
from goalscope._ground.words import listed
from goalscope.report.blocks import Table
from goalscope.runs.study import Study
from goalscope.verdict.arms import Arm
from goalscope.verdict.budget import Budget, divide, expected, unit_costs
from goalscope.verdict.failures import Failures, does_not_fit, not_played
from goalscope.verdict.plan import Plan
from goalscope.verdict.preflight.first_turns import FirstTurns
from goalscope.verdict.preflight.forecast import Forecast, Range, amounts, nothing, span
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

NO_ROOM: Final = TEXTS("plan/no room")
"""Why an arm that exceeds the budget is not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """The plan of an evaluation in words, and what it is expected to cost.

    Attributes:
        table: one row per arm: worlds, turns, time, part of the full size; None if nothing is asked.
        expected: total time, tokens, USD and memory in one sentence; "" if nothing is known.
        failed: one sentence per unexpected error.
        plan: the plan, which `evaluate` accepts in place of models.
    """

    table: Table | None = None
    expected: str = ""
    failed: tuple[str, ...] = ()
    plan: Plan | None = None

    def lines(self) -> list[str]:
        """Return the announcement as lines of text."""
        captions = [] if self.table is None else [self.table.caption]
        for title, worlds, turns, seconds, settles in () if self.table is None else self.table.rows:
            size = [TEXTS("plan/worlds", count=worlds), TEXTS("plan/turns", count=turns)] if worlds != "–" else []
            captions.append(f"{title}: {', '.join([*size, *(text for text in (seconds, settles) if text != '–')])}")
        sentences = () if self.plan is None else self.plan.beforehand
        return [*captions, *([self.expected] if self.expected else []), *sentences]


def find_unasked(failures: Failures, arms: Sequence[Arm], subjects: Sequence[Subject], seed: int) -> None:
    """Record which models cannot be asked an arm, because its worlds cannot be made or its prompts do not fit."""
    for arm in arms:
        for subject in subjects:
            if not arm.open_to(subject):
                continue
            with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                if arm.looks is None and (why := does_not_fit(arm, subject, max(arm.quick, 1), seed)):
                    failures.leave_out([arm.name], [subject.name], why)
                elif (arm.at, subject.name) in failures.unasked:
                    failures.leave_out([arm.name], [subject.name], not_played(arm))


def asked_of(arm: Arm, subjects: Sequence[Subject], failures: Failures) -> list[Subject]:
    """Return the models that are asked an arm."""
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
    smaller: Mapping[str, Arm] | None = None,
) -> dict[str, int]:
    """Choose for each arm how many worlds per cell the budget allows; the first arm always fits the default budget.

    Args:
        open_to, subjects, seed, limit, firsts, unasked, workers: see `unit_costs`.
        named: whether the user gave the budget.
        smaller: option text -> the single arm that it leaves; suggested if the budget is too small.
    """
    cost = unit_costs(open_to, subjects, seed, limit, firsts, unasked, workers=workers)
    if not any(cost.values()):
        raise ValueError(
            f"a budget must limit something, but {listed([subject.name for subject in subjects])} takes no {limit.of}, "
            f"got {limit.text}: give a limit of time, as in --budget 20m"
        )
    sizes = divide(open_to, cost, limit.amount)
    if not sizes:
        minimum = cost[open_to[0].name] * open_to[0].quick
        if not named:
            TALLY.tell(
                f"{open_to[0].title} alone takes about {duration(minimum)} at its least size, more than the default of "
                f"{DEFAULT}: it is asked, the others are not; --budget gives them room"
            )
            return {open_to[0].name: open_to[0].quick}
        advice = [f"--budget {limit.enough(minimum)}", "--quick"]
        for words, arm in (smaller or {}).items():
            least = unit_costs([arm], subjects, seed, limit, firsts, unasked, workers=workers)[arm.name] * arm.quick
            if least < minimum:
                advice.insert(0, f"{words}, which takes about {limit.in_words(least)}")
        raise ValueError(
            f"a budget must allow at least the first arm, {open_to[0].title.lower()}, which takes about "
            f"{limit.in_words(minimum)}, got {limit.text}: give {', or '.join(advice)}"
        )
    return sizes


def announced(
    subjects: Sequence[Subject],
    open_to: Sequence[Arm],
    sizes: Mapping[str, int],
    seed: int,
    failures: Failures,
    firsts: Mapping[str, FirstTurns],
    workers: int = 1,
) -> Announcement:
    """Return the announcement of what is asked and what it is expected to cost."""
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
            transitions, _ = world.believed.transitions
            size = world.believed.table.offered.size
            horizon, _ = horizons.get(id(transitions), (0, 0))
            horizons[id(transitions)] = max(horizon, study.horizon.of(world)), size
    return CURVES * sum(horizon * size for horizon, size in horizons.values())


def _expected(total: Forecast, judging: Range) -> str:
    seconds = total.seconds + judging
    further = "".join(f"; {amount}" for amount in amounts(total))
    return TEXTS("plan/expected", time=span(seconds, duration), judging=span(judging, duration), others=further)
