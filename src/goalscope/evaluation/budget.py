"""Budgets: what a limit of time, money or tokens allows, and how it is divided among the arms of an evaluation.

The rule: each arm gets at least `Arm.quick` worlds; where the budget has no room for that, the last arms are dropped
until it has. What is left is spent so that all arms come equally near to the number of worlds at which their claims are
settled (`Arm.full`), and beyond it to at most `MOST` times as many. An arm that comes to none is dropped. Arms that
look inside count random networks or pairs of grids in the place of worlds, and end at the full size.
"""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final, Literal

from goalscope import registry
from goalscope.agents.chat import ChatAgent
from goalscope.evaluation.arms import Arm, Look
from goalscope.evaluation.subject import Subject
from goalscope.planning.oracle import oracle
from goalscope.preflight.cost import costs
from goalscope.runs.episode import LiveEpisode
from goalscope.runs.study import Study

MOST: Final = 4.0
"""Maximum number of worlds that a budget buys, as a multiple of `Arm.full`."""

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
    """A limit: ``20m``, ``2h``, ``5usd``, ``200k-tokens``."""

    amount: float
    of: Literal["seconds", "usd", "tokens"]
    text: str

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read a limit.

        Raises:
            ValueError: it is not written as a number and one of the units.
        """
        match = _WRITTEN.fullmatch(text.strip().lower())
        if match is None or float(match[1]) <= 0:
            raise ValueError(
                f"a budget must be a number above 0 and one of {', '.join(_UNITS)}, e.g. 20m, 2h, 5usd, 200k-tokens; "
                f"got {text!r}"
            )
        of, factor = _UNITS[match[2]]
        return cls(amount=float(match[1]) * factor, of=of, text=text)  # type: ignore[arg-type]


def divide(arms: Sequence[Arm], cost: Mapping[str, float], limit: float) -> dict[str, int]:
    """Return how many worlds a cell each arm gets, by the rule of this module.

    Args:
        arms: the arms that can be asked, in their order.
        cost: arm -> what one world a cell costs, in the unit of the limit.
        limit: the limit.

    Returns:
        Arm -> worlds a cell, without the arms that are dropped; empty where not even the first one fits.
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
            return {name: size for name, size in sizes.items() if size}
        kept_arms.pop()
    return {}


def _largest_size(arm: Arm) -> int:
    """Return the largest size that a budget buys; of an arm that looks inside, the one that settles its claims."""
    return arm.full if arm.looks is not None else int(MOST * arm.full)


def unit_costs(
    arms: Sequence[Arm],
    subjects: Sequence[Subject],
    seed: int,
    limit: Budget,
    unasked: Collection[tuple[str, str]] = (),
) -> dict[str, float]:
    """Return what one world a cell of each arm costs, in the unit of a limit.

    Turns are those of the shortest paths of its worlds and a quarter more; in task worlds all that a map allows.
    Seconds are measured, by one batch of first turns of each model that runs here; a model behind a server is taken at
    `SERVED` seconds a turn. Tokens and USD are the bound of `goalscope estimate` for that many turns. What is in
    ``unasked``, as (arm, name of a model), costs nothing.

    Raises:
        ValueError: a limit in USD for a model without prices.
    """
    unit_cost = dict.fromkeys((arm.name for arm in arms), 0.0)
    rates: dict[str, float] = {}
    for arm in arms:
        for subject in subjects:
            if not arm.open_to(subject) or (arm.name, subject.name) in unasked:
                continue
            if arm.looks is not None:
                unit_cost[arm.name] += _look_cost(arm, arm.looks, subject, seed, limit, rates.get(subject.name, 0.0))
                continue
            study = arm.make([subject], 1, seed)
            turns = _turns(study)
            if limit.of == "seconds":
                if subject.name not in rates:
                    rates[subject.name] = _seconds_a_turn(study)
                unit_cost[arm.name] += turns * rates[subject.name]
            else:
                unit_cost[arm.name] += _bound(study, turns, limit)
    return unit_cost


def _look_cost(arm: Arm, look: Look, subject: Subject, seed: int, limit: Budget, rate: float) -> float:
    """Return the cost of one unit of `Look.counts`; tokens and USD count only for a model without local weights."""
    if limit.of == "seconds":
        return look.turns * rate
    if "weights" in subject.access:
        return 0.0
    return _bound(registry.resolve("arm", arm.at).make([subject], 1, seed), look.turns, limit)


SERVED: Final = 2.0
"""Seconds that a turn of a model behind a server is taken to need, before a run has measured it."""
_BATCH: Final = 32


def _turns(study: Study) -> float:
    """Return the approximate number of turns of a study; in worlds with a horizon of their own, all of it."""
    lengths = [plan.length for world in study.worlds() if (plan := oracle(world)) is not None and plan.length >= 0]
    budgets = [world.horizon for world in study.worlds() if world.horizon is not None]
    return float(1.25 * sum(lengths) + sum(budgets)) * study.trajectories * len(study.agents_)


def _seconds_a_turn(study: Study) -> float:
    """Return the seconds a turn takes in a batch of first turns."""
    agent = study.agents()[0]
    if isinstance(agent, ChatAgent) and agent.budget is not None:
        return SERVED
    history, failure = study.history_of(agent), study.failure_of(agent)
    knows_world = bool(getattr(agent, "knows_world", False))
    worlds = list(islice(cycle(study.specs([agent])), _BATCH))
    observations = [
        LiveEpisode(spec, world, study, history, failure, knows_world=knows_world).observe()
        for spec, world, _ in worlds
    ]
    agent.act(observations[:1])  # the first call reads the weights
    began = time.perf_counter()
    agent.act(observations)
    return (time.perf_counter() - began) / len(observations)


def _bound(study: Study, turns: float, limit: Budget) -> float:
    cost = costs(study)[0]
    if cost.tokens is None or not cost.calls:
        return 0.0
    if limit.of == "tokens":
        return cost.tokens / cost.calls * turns
    if cost.usd is None:
        raise ValueError(
            f"a budget in USD needs the prices of {cost.name}, which are not given: use tokens or time, as in "
            "--budget 200k-tokens"
        )
    return cost.usd / cost.calls * turns
