"""Before an evaluation starts: which models are asked which arms, at what size within the budget, at what cost.

A budget limits time, money or tokens. Each arm first gets `Arm.quick` worlds per cell; if the budget does not allow
that, the last arms are dropped until it does, those of the core (`Arm.core`) after all others. The rest of the budget
is divided so that all arms come equally close to `Arm.full`, the size at which their claims are expected to be decided,
and then beyond it up to `MOST` times this size. An arm left without worlds, or with fewer than `Arm.least`,
is dropped, and the others get its share. Arms that look inside count random networks or pairs of grids instead of
worlds, and never exceed their full size.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from goalscope._ground import registry
from goalscope._ground.progress import TALLY, duration
from goalscope._ground.words import counted, listed
from goalscope.agents.chat import ChatAgent
from goalscope.report.blocks import Table
from goalscope.runs.study import Study
from goalscope.verdict.arms import Arm, Look
from goalscope.verdict.failures import Failures, does_not_fit
from goalscope.verdict.plan import Plan
from goalscope.verdict.preflight.cost import inside_memory, longest_prompt
from goalscope.verdict.preflight.first_turns import FirstTurns
from goalscope.verdict.preflight.forecast import Forecast, Range, amounts, forecast, nothing, span, whole
from goalscope.verdict.rules import claims_of
from goalscope.verdict.subject import Subject
from goalscope.verdict.texts import TEXTS

# How a budget is divided.

MOST: Final = 4.0
"""Maximum number of worlds that a budget can buy, as a multiple of `Arm.full`."""

_UNITS: Final[Mapping[str, tuple[str, float]]] = {
    "s": ("seconds", 1.0),
    "m": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
    "usd": ("usd", 1.0),
    "tokens": ("tokens", 1.0),
    "k-tokens": ("tokens", 1e3),
    "m-tokens": ("tokens", 1e6),
}
_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(" + "|".join(sorted(_UNITS, key=len, reverse=True)) + ")")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A limit on time, money or tokens, written as ``20m``, ``2h``, ``5usd`` or ``200k-tokens``.

    ``amount`` is in seconds, USD or tokens, as ``of`` says; ``text`` is what the user wrote.
    """

    amount: float
    of: Literal["seconds", "usd", "tokens"]
    text: str

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read a limit of time, money or tokens, such as "20m", "5usd" or "200k-tokens".

        Raises:
            ValueError: the text is not a number followed by a known unit.
        """
        match = _WRITTEN.fullmatch(text.strip().lower())
        if match is None or float(match[1]) <= 0:
            raise ValueError(
                f"a budget must be a number above 0 and one of {', '.join(_UNITS)}, e.g. 20m, 2h, 5usd, 200k-tokens; "
                f"got {text!r}"
            )
        of, factor = _UNITS[match[2]]
        return cls(amount=float(match[1]) * factor, of=of, text=text)  # type: ignore[arg-type]

    def in_words(self, amount: float) -> str:
        """Write an amount in the unit of this limit, as in "180,000 tokens", "2 h 10 min" or "1.25 USD"."""
        if self.of == "seconds":
            return duration(amount)
        return f"{amount:,.2f} USD" if self.of == "usd" else f"{whole(amount)} tokens"

    def enough(self, amount: float) -> str:
        """Return a limit, as text for `parse`, that allows an amount in the unit of this limit, with a tenth to
        spare.
        """
        more = 1.1 * amount
        if self.of == "usd":
            return f"{math.ceil(100 * more) / 100:.2f}usd"
        return f"{math.ceil(more / 60)}m" if self.of == "seconds" else f"{math.ceil(more / 1e3)}k-tokens"


def divide(arms: Sequence[Arm], cost: Mapping[str, float], limit: float) -> dict[str, int]:
    """Divide a budget among the arms (parts) of an evaluation.

    Each arm first gets its smallest size; if the budget is too small, the last arms are dropped. The rest is divided so
    that all arms come equally close to the size at which their claims are expected to be decided. The module's
    docstring has the details.

    Args:
        arms: the arms that can be asked, in their order.
        cost: name of an arm -> cost of one world per cell (combination of kind, size and density), in the unit of the
            limit.
        limit: the budget, in seconds, tokens or USD.

    Returns:
        Name of an arm -> worlds per cell, without the arms that are dropped; empty if no arm fits.
    """
    kept_arms = list(arms)
    while kept_arms:
        quick_cost, full_cost = (
            sum(cost[arm.name] * getattr(arm, size) for arm in kept_arms) for size in ("quick", "full")
        )
        if quick_cost <= limit:
            fraction = (limit - quick_cost) / (full_cost - quick_cost) if full_cost > quick_cost else 0.0
            grown = {arm.name: int(arm.quick + fraction * (arm.full - arm.quick)) for arm in kept_arms}
            sizes = {arm.name: min(grown[arm.name], _largest_size(arm)) for arm in kept_arms}
            if too_small := [arm for arm in kept_arms if sizes[arm.name] < arm.least]:
                kept_arms.remove(too_small[-1])  # the others get its share
                continue
            return {name: size for name, size in sizes.items() if size}
        others = [arm for arm in kept_arms if not arm.core]
        kept_arms.remove((others or kept_arms)[-1])
    return {}


def _largest_size(arm: Arm) -> int:
    """Return the largest size to which a budget can extend an arm.

    For an arm that looks inside, this is its full size.
    """
    return arm.full if arm.looks is not None else int(MOST * arm.full)


_SAMPLE: Final = 3  # worlds a cell whose shortest ways and prompts stand for all


def expected(arm: Arm, subject: Subject, count: int, seed: int, first: FirstTurns, *, workers: int = 1) -> Forecast:
    """Forecast the time, tokens and money that one arm (part of an evaluation) takes with one model.

    Args:
        arm: the arm.
        subject: the model.
        count: number of worlds per cell (combination of kind, size and density); for an arm that looks inside a model,
            the number of units that it counts, such as pairs of grids.
        seed: root seed of the worlds.
        first: the model's timed first turns, see `goalscope.verdict.preflight.first_turns`.
        workers: maximum number of simultaneous calls.

    Raises:
        ValueError: no first turn was asked.
    """
    if arm.looks is not None:
        return replace(_inside(arm.looks, subject, count, first), memory=_memory_inside(arm, subject, seed, first))
    sample, total = min(count, _SAMPLE), nothing()
    study = arm.make([subject], sample, seed)
    for agent, entry in zip(study.agents(), study.agents_, strict=True):
        total += forecast(study, agent, entry.parameters, first, times=_times(arm, count, sample), workers=workers)
    return total


def _times(arm: Arm, count: int, sample: int) -> float:
    """Return how many times as many worlds an arm has at one size as at another."""
    worlds, sampled = (_worlds_in(arm.worlds(size)) for size in (count, sample))
    return worlds / sampled if worlds > sampled else count / sample  # or it has more episodes in the same worlds


def _worlds_in(entries: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of worlds of each cell that entries of a study declare."""
    return sum(
        _worlds_in(entry["of"]) if "of" in entry else entry.get("count", 1) * (2 if entry.get("control") else 1)
        for entry in entries
    )


def _inside(look: Look, subject: Subject, count: int, first: FirstTurns) -> Forecast:
    """Forecast what a look inside costs: the time of `Look.turns` turns of the batch; the range is half to twice as
    much.

    Tokens and USD count only for a model without local weights.
    """
    turns = count * look.turns * np.array([0.5, 1.0, 2.0])
    last, mean = first.portions[-1], {name: value / first.asked for name, value in first.usage.items()}
    share = np.zeros(3) if "weights" in subject.access else turns
    return replace(
        nothing(),
        seconds=turns * last.seconds / last.turns,
        prompt_tokens=share * (mean.get("prompt_tokens", 0.0) + mean.get("tokens_at_most", 0.0)),
        output_tokens=share * mean.get("output_tokens", 0.0),
        usd=share * mean.get("usd", 0.0),
        priced="usd" in mean,
    )


def _memory_inside(arm: Arm, subject: Subject, seed: int, first: FirstTurns) -> tuple[float, float]:
    """Return the memory used so far, and the maximum while the turns of an arm's episodes are read again."""
    if "weights" not in subject.access:
        return 0.0, 0.0
    study = registry.resolve("arm", arm.at).make([subject], 1, seed)
    agent, parameters = study.agents()[0], study.agents_[0].parameters
    longest = longest_prompt(study, agent, parameters) if isinstance(agent, ChatAgent) else None
    more = 0.0 if longest is None else inside_memory(agent, longest[0])
    return (first.memory, first.memory + more) if more else (0.0, 0.0)


# What is asked, and what it costs.

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
    """What an evaluation is going to ask, in words, and what it is expected to cost.

    Attributes:
        table: one row per arm (part of the evaluation): worlds, turns, time, part of the full size; None if nothing is
            asked.
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
        """Return the announcement as lines of text, one for each arm (part of the evaluation) first.

        Then come the expected cost, proposals for larger budgets, and what the worlds suffice to name.
        """
        captions = [] if self.table is None else [self.table.caption]
        for title, worlds, turns, seconds, settles in () if self.table is None else self.table.rows:
            size = [TEXTS("plan/worlds", count=worlds), TEXTS("plan/turns", count=turns)] if worlds != "–" else []
            captions.append(f"{title}: {', '.join([*size, *(text for text in (seconds, settles) if text != '–')])}")
        sentences = () if self.plan is None else self.plan.beforehand
        return [*captions, *([self.expected] if self.expected else []), *self.proposals, *sentences]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmRequest:
    """Which arms (parts of an evaluation) are to be asked of which models, before it is decided how many worlds each
    gets.

    Attributes:
        arms: the chosen arms that some model allows, in their order.
        subjects: the models that can be asked.
        seed: root seed of the worlds.
        failures: which models are not asked which arms.
        firsts: name of a model -> its timed first turns; models without an entry cost nothing.
        workers: maximum number of simultaneous calls of a model.
    """

    arms: Sequence[Arm]
    subjects: Sequence[Subject]
    seed: int
    failures: Failures
    firsts: Mapping[str, FirstTurns] = field(default_factory=dict)
    workers: int = 1

    def find_unasked(self) -> None:
        """Find the models that cannot be asked an arm (part of the evaluation), and record them with the reason in
        `failures`.

        An arm cannot be asked if its worlds cannot be made or its prompts do not fit into the context.
        """
        failures = self.failures
        for arm in self.arms:
            for subject in self.subjects:
                if not arm.open_to(subject):
                    continue
                with failures.kept_apart(f"{arm.title}, {subject.name}", [arm.name], [subject.name]):
                    failures.leave_out_unplayed(arm, subject)
                    if arm.looks is None and (
                        why := does_not_fit(arm, subject, max(arm.quick, 1), self.seed, failures.makeable)
                    ):
                        failures.leave_out([arm.name], [subject.name], why)

    def subjects_of(self, arm: Arm) -> list[Subject]:
        """Return the models that will be asked an arm (part of the evaluation)."""
        unasked = self.failures.unasked
        return [
            subject for subject in self.subjects if arm.open_to(subject) and (arm.name, subject.name) not in unasked
        ]

    @property
    def fitting(self) -> list[Arm]:
        """The arms (parts of the evaluation) that will be asked of at least one model."""
        return [arm for arm in self.arms if self.subjects_of(arm)]

    def unit_costs(self, arms: Sequence[Arm], limit: Budget) -> dict[str, float]:
        """Forecast what one world per cell of each arm costs, from the arm's smallest size, in the unit of a limit.

        An arm is a part of the evaluation, a cell a combination of kind, size and density of its worlds. Seconds are
        the expected ones. Tokens and USD are the upper ends of their ranges, because such a limit must not be exceeded.

        Args:
            arms: the arms.
            limit: the limit.

        Returns:
            Name of the arm -> cost for all models together.

        Raises:
            ValueError: the limit is in USD, and a model has no prices.
        """
        unit_cost = dict.fromkeys((arm.name for arm in arms), 0.0)
        for arm in arms:
            for subject in self.subjects_of(arm):
                if subject.name not in self.firsts:
                    continue
                count = max(arm.quick, arm.least, 1)
                took = expected(arm, subject, count, self.seed, self.firsts[subject.name], workers=self.workers)
                if limit.of == "usd" and took.tokens[1] and not took.priced:
                    raise ValueError(
                        f"a budget in USD needs the prices of {subject.name}, which are not given: use tokens or time, "
                        "as in --budget 200k-tokens"
                    )
                amounts = {"seconds": took.seconds[1], "tokens": took.tokens[2], "usd": took.usd[2]}
                unit_cost[arm.name] += float(amounts[limit.of]) / count
        return unit_cost

    def choose_sizes(
        self, limit: Budget, *, named: bool, smaller: Mapping[str, Sequence[Arm]] | None = None
    ) -> tuple[dict[str, int], tuple[str, ...]]:
        """Choose for each arm (part of the evaluation) how many worlds per cell the budget allows.

        A cell is a combination of kind, size and density. The default budget always admits the first arm, unless this
        arm takes longer than `LONGEST`.

        Args:
            limit: the budget.
            named: whether the user gave the budget.
            smaller: text of a command-line option -> the arms that remain with this option; suggested if the budget is
                too small.

        Returns:
            Name of the arm -> worlds per cell; and sentences on what larger budgets would ask, if the full plan exceeds
            the budget.

        Raises:
            ValueError: the budget is too small for the first arm.
        """
        arms, smaller = self.fitting, smaller or {}
        cost = self.unit_costs(arms, limit)
        if not any(cost.values()):
            raise ValueError(
                f"a budget must limit something, but {listed([subject.name for subject in self.subjects])} takes no "
                f"{limit.of}, got {limit.text}: give a limit of time, as in --budget 20m"
            )
        sizes = divide(arms, cost, limit.amount)
        core, variants = [arm for arm in arms if arm.core], [("", arms, cost)]
        if 0 < len(core) < len(arms):
            variants.append((f"--arms {','.join(arm.name for arm in core)}", core, cost))
        if limit.of == "seconds" and sum(arm.quick * cost[arm.name] for arm in core) > SOON:
            variants += [(words, list(left), self.unit_costs(left, limit)) for words, left in smaller.items()]
        proposals = tuple(_proposals(variants, limit, sizes)) if limit.of == "seconds" else ()
        if sizes:
            return sizes, proposals
        minimum = cost[arms[0].name] * arms[0].quick
        if not named and minimum <= LONGEST:
            TALLY.tell(
                f"{arms[0].title} alone takes about {duration(minimum)} at its least size, more than the default of "
                f"{DEFAULT}: it is asked, the others are not; --budget gives them room"
            )
            return {arms[0].name: arms[0].quick}, proposals
        advice = [f"--budget {limit.enough(minimum)}", "--quick"]
        least = {
            words: sum(unit * arm.quick for arm, unit in zip(left, self.unit_costs(left, limit).values(), strict=True))
            for words, left in smaller.items()
        }
        cheapest = min(least, key=least.__getitem__, default="")
        if cheapest and least[cheapest] < minimum:
            advice.insert(0, f"{cheapest}, which takes about {limit.in_words(least[cheapest])}")
        raise ValueError(
            f"a budget must allow at least the first arm, {arms[0].title.lower()}, which takes about "
            f"{limit.in_words(minimum)}, got {limit.text}: give {', or '.join(advice)}"
            + "".join(f"\n{line}" for line in proposals)
        )

    def announced(self, sizes: Mapping[str, int]) -> Announcement:
        """Return what is going to be asked with given sizes, and what it is expected to cost.

        Args:
            sizes: name of an arm (part of the evaluation) -> number of worlds per cell.
        """
        lines, total, episodes, sentences = list[tuple[str, ...]](), nothing(), 0, set[str]()
        curves = 0.0
        for arm in self.arms:
            count, subjects = sizes.get(arm.name, 0), self.subjects_of(arm)
            if not subjects:
                reasons = (why for (name, _), why in self.failures.unasked.items() if name == arm.name)
                why = "; ".join(dict.fromkeys(reasons))
                unasked = TEXTS("plan/not asked either") if why in sentences else TEXTS("plan/not asked", why=why)
                lines.append((arm.title, "–", "–", "–", unasked))
                sentences.add(why)
                continue
            if not count:
                lines.append((arm.title, "–", "–", "–", NO_ROOM))
                continue
            took = nothing()
            for subject in subjects:
                if subject.name in self.firsts:
                    first = self.firsts[subject.name]
                    took += expected(arm, subject, count, self.seed, first, workers=self.workers)
            total += took
            seconds = span(took.seconds, duration) if took.seconds[2] else "unknown"
            if arm.looks is not None:
                work = TEXTS("plan/counts of a look", what=arm.looks.what, size=count, counted=arm.looks.counts)
                lines.append((arm.title, "–", "–", seconds, work))
                continue
            study = arm.make(subjects, count, self.seed)
            size = study.size()
            episodes, curves = episodes + size.episodes, curves + _curve_seconds(study)
            share = f"{100 * count / arm.full:.0f} %"
            part = TEXTS("plan/full size") if count >= arm.full else TEXTS("plan/part of full size", percent=share)
            lines.append((arm.title, f"{size.worlds:,}", f"{size.steps:,}", seconds, part))
        table = Table(
            caption=TEXTS("plan/title", names=listed([subject.name for subject in self.subjects])),
            headings=("arm", "worlds", "maximum turns", "expected time", "size"),
            rows=tuple(lines),
            numbers=(1, 2),
        )
        judging = (JUDGING[0] + JUDGING[1] * episodes + curves) * np.array([0.5, 1.0, 2.0])
        is_known = episodes and total.seconds[2]
        words = _expected(total, judging) if is_known else ""
        return Announcement(table=table, expected=words, failed=tuple(self.failures.failed))


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
