"""Budgets: how a limit of time, money or tokens is divided among the arms of an evaluation.

Each arm first gets `Arm.quick` worlds per cell; if the budget does not allow that, the last arms are dropped until it
does, those of the core (`Arm.core`) after all others. The rest of the budget is divided so that all arms come equally
close to `Arm.full`, the size at which their claims are expected to be decided, and then beyond it up to `MOST` times
this size. An arm left without worlds, or with fewer than `Arm.least`, is dropped, and the others get its share. Arms
that look inside count random networks or pairs of grids instead of worlds, and never exceed their full size.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from goalscope._ground import registry
from goalscope._ground.progress import duration
from goalscope.agents.chat import ChatAgent
from goalscope.verdict.arms import Arm, Look
from goalscope.verdict.preflight.cost import longest_prompt
from goalscope.verdict.preflight.first_turns import FirstTurns
from goalscope.verdict.preflight.forecast import Forecast, forecast, nothing, whole
from goalscope.verdict.preflight.memory import inside_memory
from goalscope.verdict.subject import Subject

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
    """A limit on time, money or tokens: ``20m``, ``2h``, ``5usd``, ``200k-tokens``."""

    amount: float
    of: Literal["seconds", "usd", "tokens"]
    text: str

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read a budget limit of time, money or tokens, such as "20m", "5usd" or "200k-tokens".

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
        """Write an amount in the unit of the limit: 180,000 tokens, 2 h 10 min, 1.25 USD."""
        if self.of == "seconds":
            return duration(amount)
        return f"{amount:,.2f} USD" if self.of == "usd" else f"{whole(amount)} tokens"

    def enough(self, amount: float) -> str:
        """Return a limit that allows an amount with a tenth to spare, in the form that `parse` reads."""
        more = 1.1 * amount
        if self.of == "usd":
            return f"{math.ceil(100 * more) / 100:.2f}usd"
        return f"{math.ceil(more / 60)}m" if self.of == "seconds" else f"{math.ceil(more / 1e3)}k-tokens"


def divide(arms: Sequence[Arm], cost: Mapping[str, float], limit: float) -> dict[str, int]:
    """Return the number of worlds per cell of each arm, by the rule of this module.

    Args:
        arms: the arms that can be asked, in their order.
        cost: arm -> cost of one world per cell, in the unit of the limit.
        limit: the limit.

    Returns:
        Arm -> worlds per cell, without the arms that are dropped; empty if no arm fits.
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


def expected(arm: Arm, subject: Subject, count: int, seed: int, first: FirstTurns, *, workers: int = 1) -> Forecast:
    """Forecast what an arm costs with a model.

    Args:
        arm: the arm.
        subject: the model.
        count: worlds per cell, or the number of units that an arm that looks inside counts.
        seed: root seed of the worlds.
        first: its measured batch, see `goalscope.verdict.preflight.first_turns`.
        workers: maximum number of simultaneous calls.

    Raises:
        ValueError: the batch contains no turn.
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


def unit_costs(
    arms: Sequence[Arm],
    subjects: Sequence[Subject],
    seed: int,
    limit: Budget,
    firsts: Mapping[str, FirstTurns],
    unasked: Collection[tuple[str, str]] = (),
    *,
    workers: int = 1,
) -> dict[str, float]:
    """Return what one world per cell of each arm costs at its smallest size, in the unit of a limit.

    Seconds are the expected ones. Tokens and USD are the upper ends of their ranges, because such a limit must not be
    exceeded.

    Args:
        arms: the arms.
        subjects: the models.
        seed: root seed of the worlds.
        limit: the limit.
        firsts: name of a model -> its measured batch; models without one cost nothing.
        unasked: pairs (arm, name of a model) that cost nothing.
        workers: maximum number of simultaneous calls.

    Raises:
        ValueError: the limit is in USD, and a model has no prices.
    """
    unit_cost = dict.fromkeys((arm.name for arm in arms), 0.0)
    for arm in arms:
        for subject in subjects:
            if not arm.open_to(subject) or (arm.name, subject.name) in unasked or subject.name not in firsts:
                continue
            count = max(arm.quick, 1)
            took = expected(arm, subject, count, seed, firsts[subject.name], workers=workers)
            if limit.of == "usd" and took.tokens[1] and not took.priced:
                raise ValueError(
                    f"a budget in USD needs the prices of {subject.name}, which are not given: use tokens or time, as "
                    "in --budget 200k-tokens"
                )
            amounts = {"seconds": took.seconds[1], "tokens": took.tokens[2], "usd": took.usd[2]}
            unit_cost[arm.name] += float(amounts[limit.of]) / count
    return unit_cost


_SAMPLE: Final = 3  # worlds a cell whose shortest ways and prompts stand for all
