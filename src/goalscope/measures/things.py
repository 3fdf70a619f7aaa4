"""Things in grids: whether an episode visits them, and whether it uses them.

Each registered kind of thing has measures of its own, such as "coin visited" and "coin used". They are defined in
worlds with a thing of that kind.
"""

from functools import partial

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope.measures.definition import OURS, Entries, StepMeasure, add_measures
from goalscope.measures.table import StepTable
from goalscope.worlds.grid import DELTAS
from goalscope.worlds.things import arrangement_of, kinds

_TEXTS = {
    "visited": "share of episodes in which the agent entered the cell of a {}, or stood on it",
    "used": "share of episodes in which an event happened to a {}, such as a key that was picked up or a chest opened",
}
_ANY = "thing"


def add_measures_of_kinds() -> None:
    """Register the measures of each kind of thing (object in grids, such as a coin) that has none yet.

    These are for example "coin visited" and "coin used".
    """
    for kind in kinds():
        for word in ("visited", "used") if kind.events else ("visited",):
            if not registry.registered("measure", f"{kind.name} {word}"):
                add_measures(_measure_of(kind.name, word, base=f"{_ANY} {word}"))


def _measure_of(name: str, word: str, base: str = "") -> StepMeasure:
    return StepMeasure(
        name=f"{name} {word}",
        unit="share",
        bounds=(0, 1),
        text=_TEXTS[word].format(name),
        source=OURS,
        base=base,
        function=partial(_happened, name=name, word=word),
    )


def _happened(table: StepTable, *, name: str, word: str) -> Entries:
    """Return whether each episode visited or used a thing of a kind, where there is one."""
    values = table.once(_encounters).get(name, np.full((2, len(table.length)), np.nan))[list(_TEXTS).index(word)]
    return Entries.where(~np.isnan(values), values)


def _encounters(table: StepTable) -> dict[str, npt.NDArray[np.float64]]:
    """Map each kind of thing, and "thing" for all, to ``[2, E]``: whether an episode visited and used such a thing.

    NaN where the world has none, or none that can be used.
    """
    with_things = [
        (number, world) for number, world in enumerate(table.worlds) if "grid" in world.offers and world.grid.things
    ]
    if not with_things:
        return {}
    episode = np.concatenate([table.episode, np.arange(len(table.length))])
    states = np.concatenate([table.codes, table.final_codes])
    moves = DELTAS[table.action.clip(0, 3)] * (table.following_codes != table.codes).any(axis=1, keepdims=True)
    entered = np.concatenate([table.codes[:, :2] + moves, table.final_codes[:, :2]])  # a thing may move the agent on
    order = np.argsort(table.world[episode], kind="stable")
    bounds = np.searchsorted(table.world[episode][order], np.arange(len(table.worlds) + 1))
    result: dict[str, npt.NDArray[np.float64]] = {}
    for number, world in with_things:
        arrangement, rows = arrangement_of(world.grid.things, ()), order[bounds[number] : bounds[number + 1]]
        packed, inverse = np.unique(states[rows, 2] >> 2, return_inverse=True)
        digits = np.array([arrangement.unpack(one) for one in packed.tolist()])[inverse]
        for (cell, index), kind in zip(arrangement.at.items(), arrangement.kinds, strict=True):
            happened = [(states[rows, :2] == cell).all(axis=1) | (entered[rows] == cell).all(axis=1)]
            if kind.events:
                happened.append(digits[:, index] >= min(kind.events.values()))
            for name in (kind.name, _ANY):
                values = result.setdefault(name, np.full((2, len(table.length)), np.nan))
                for which, mask in enumerate(happened):
                    np.fmax.at(values[which], episode[rows], mask.astype(np.float64))
    return result


add_measures(*(_measure_of(_ANY, word) for word in _TEXTS))
