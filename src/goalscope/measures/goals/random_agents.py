"""Utilities of simulated random agents, a part of them at a time where their draws allow it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from goalscope.measures.goals.returns import Unit
from goalscope.measures.goals.settings import GoalSettings, Invalid
from goalscope.rng import stream

_MOST_WALKS: Final = 1 << 20  # simulated at a time
_BYTE: Final = 256  # values of a byte
_BYTES_A_STEP: Final = 32  # of a counter of Philox: four numbers of 64 bits
Array = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def random_returns(
    unit: Unit, episodes: int, repeats: int, settings: GoalSettings, *, exact: bool = False
) -> dict[str, Array]:
    """Return the mean utility, ``[repeats]``, of simulated random agents in a world by hypothesis.

    With ``exact`` each state is replaced by its expectation under the uniform policy of the previous step.
    """
    means = {name: np.zeros(repeats) for name in unit.masks}
    expected = {name: expected_after(unit, mask, settings.invalid) for name, mask in unit.masks.items() if exact}
    size = max(1, _MOST_WALKS // episodes) if _skippable(unit, settings.invalid) else repeats
    for agent in range(0, repeats, size):
        agents = slice(agent, min(agent + size, repeats))
        totals = {name: np.zeros(episodes * (agents.stop - agents.start)) for name in unit.masks}
        before: Numbers | None = None
        walks = random_walks(
            unit,
            episodes * repeats,
            seed=settings.seed,
            invalid=settings.invalid,
            part=slice(agents.start * episodes, agents.stop * episodes),
        )
        for step, state in enumerate(walks):
            if (step == unit.horizon) == (settings.utility == "arrival"):
                for name, total in totals.items():
                    total += unit.masks[name][state] if before is None else expected[name][before]
            before = state if exact else None
        for name, total in totals.items():
            means[name][agents] = total.reshape(-1, episodes).mean(axis=1)
    return means


def _skippable(unit: Unit, invalid: Invalid) -> bool:
    """Return whether the actions of some random agents can be drawn without those of the agents before them.

    They can where nothing else is drawn, and the number of actions divides that of the values of a byte, of which each
    action then takes exactly one.
    """
    process = unit.process
    count = process.actions + (invalid == "action")
    return not process.lucky and process.offered is None and _BYTE % count == 0


def _drawn(unit: Unit, walks: int, count: int, part: slice, name: Sequence[str | int]) -> Iterator[npt.NDArray[Any]]:
    """Yield the actions of a part of the walks, a decision at a time: those of all walks drawn together."""
    for decision in range(unit.horizon):
        rng = stream(*name)  # type: ignore[arg-type]
        skipped, rest = divmod(decision * walks + part.start, _BYTES_A_STEP)
        cast(np.random.Philox, rng.bit_generator).advance(skipped)
        yield rng.integers(0, count, size=rest + part.stop - part.start, dtype=np.int8)[rest:]


def random_walks(
    unit: Unit, walks: int, *, seed: int, invalid: Invalid, part: slice | None = None
) -> Iterator[Numbers]:
    """Yield ``[walks]`` the states of uniformly random agents, before each of the n decisions and after the last.

    The same world, horizon and number of walks give the same walks in any order of work. With ``invalid`` "action"
    there is one more equally likely action, which changes nothing. ``part`` are the walks wanted, where `_skippable`.
    """
    name = (seed, "random agents", unit.world_id, unit.horizon, walks, invalid)
    rng, process = stream(*name), unit.process
    actions_of_world = process.actions
    count = actions_of_world + (invalid == "action")
    if process.offered is not None:
        yield from _offered_walks(unit, walks, rng, idle=count > actions_of_world)
        return
    drawn: Iterable[npt.NDArray[Any]]
    if part is not None and part.stop - part.start < walks:
        drawn, walks = _drawn(unit, walks, count, part, name), part.stop - part.start
    else:
        drawn = rng.integers(0, count, size=(unit.horizon, walks), dtype=np.int8 if count <= 127 else np.int64)
    state = process.draw_start(walks, rng)
    yield state
    for actions in drawn:
        after = process.draw_next(state, np.minimum(actions, actions_of_world - 1).astype(np.int64), rng)
        state = np.where(actions < actions_of_world, after, state)
        yield state


def _offered_walks(unit: Unit, walks: int, rng: np.random.Generator, *, idle: bool) -> Iterator[Numbers]:
    """Yield the states of `random_walks` where states offer different actions; with ``idle`` one more action idles."""
    process = unit.process
    count, actions = process.choices
    state = process.draw_start(walks, rng)
    yield state
    for _ in range(unit.horizon):
        drawn = (rng.random(walks) * (count[state] + idle)).astype(np.int64)
        acts = drawn < count[state]
        state = np.where(acts, process.draw_next(state, actions[state, np.where(acts, drawn, 0)], rng), state)
        yield state


def expected_after(unit: Unit, values: Array, invalid: Invalid) -> Array:
    """Return the mean of values ``[S]`` (or ``[S, K]``) over the actions of a uniformly random agent in each state."""
    by_action = unit.process.base.expect(values)
    if unit.process.offered is not None:
        return _expected_of_offered(by_action, values, unit.process.offered, idle=invalid == "action")
    if invalid == "action":
        by_action = np.concatenate([by_action, values[:, None]], axis=1)
    mean: Array = by_action.mean(axis=1)
    return mean


def _expected_of_offered(by_action: Array, values: Array, offered: npt.NDArray[np.bool_], *, idle: bool) -> Array:
    """Return the mean of ``[S, A]`` (or ``[S, A, K]``) over the offered actions, and with ``idle`` over staying."""
    chosen = offered.reshape(*offered.shape, *(1,) * (by_action.ndim - 2))
    total, count = np.where(chosen, by_action, 0.0).sum(axis=1), chosen.sum(axis=1)
    return np.asarray((total + values) / (count + 1) if idle else total / count)
