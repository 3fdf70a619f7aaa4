"""Things in grids: whether an episode visits them, and whether it uses them.

Each registered kind of thing has measures of its own, such as "coin visited" and "coin used". They are defined in
worlds with a thing of that kind.
"""

from functools import partial

import numpy as np
import numpy.typing as npt

from goalscope._ground import registry
from goalscope.measures.definition import OURS, Entries, StepMeasure, add_measures, measure
from goalscope.measures.table import StepTable
from goalscope.worlds.things import Kind, arrangement_of, kinds

_VISITED, _USED = 0, 1


@measure("thing visited", unit="share", source=OURS)
def thing_visited(table: StepTable) -> Entries:
    """Share of episodes in which the agent stood on the cell of a thing, in grids with things."""
    return _share(table, _VISITED)


@measure("thing used", unit="share", source=OURS)
def thing_used(table: StepTable) -> Entries:
    """Share of episodes in which an event happened to a thing, such as a key that was picked up or a chest that was
    opened, in grids with such things.
    """
    return _share(table, _USED)


def add_measures_of_kinds() -> None:
    """Register the measures of all kinds of things that have none yet."""
    for kind in kinds():
        names = {"visited": _VISITED} | ({"used": _USED} if kind.events else {})
        for word, which in names.items():
            if not registry.registered("measure", f"{kind.name} {word}"):
                add_measures(_measure_of(kind, word, which))


def _measure_of(kind: Kind, word: str, which: int) -> StepMeasure:
    events = " or ".join(f"“{kind.event(event)}”" for event in kind.events)
    texts = (
        f"share of episodes in which the agent stood on the cell of a {kind.name}",
        f"share of episodes in which {events} happened to at least one thing of the kind",
    )
    base, function = f"thing {word}", partial(_share, which=which, name=kind.name)
    bounds = (0.0, 1.0)
    return StepMeasure(
        name=f"{kind.name} {word}",
        unit="share",
        bounds=bounds,
        text=texts[which],
        source=OURS,
        base=base,
        function=function,
    )


def _share(table: StepTable, which: int, name: str = "") -> Entries:
    """Return whether each episode visited or used a thing of a kind, "" for any kind, where there is one."""
    values = table.once(_encounters).get(name)
    if values is None:
        return Entries(np.zeros(0), np.zeros(0, dtype=np.int64))
    return Entries.where(~np.isnan(values[which]), values[which])


def _encounters(table: StepTable) -> dict[str, npt.NDArray[np.float64]]:
    """Map each kind of thing, and "" for all, to ``[2, E]``: whether an episode visited and used such a thing.

    NaN where the world has none, or none that can be used.
    """
    episode = np.concatenate([table.episode, np.arange(len(table.length))])
    states = np.concatenate([table.codes, table.final_codes])
    order = np.argsort(table.world[episode], kind="stable")
    bounds = np.searchsorted(table.world[episode][order], np.arange(len(table.worlds) + 1))
    result: dict[str, npt.NDArray[np.float64]] = {}
    for number, world in enumerate(table.worlds):
        if "grid" not in world.offers or not world.grid.things:
            continue
        arrangement, rows = arrangement_of(world.grid.things, ()), order[bounds[number] : bounds[number + 1]]
        packed, inverse = np.unique(states[rows, 2] >> 2, return_inverse=True)
        digits = np.array([arrangement.unpack(one) for one in packed.tolist()])[inverse]
        for (cell, index), kind in zip(arrangement.at.items(), arrangement.kinds, strict=True):
            happened = [(states[rows, :2] == cell).all(axis=1)]
            if kind.events:
                happened.append(digits[:, index] >= min(kind.events.values()))
            for name in (kind.name, ""):
                values = result.setdefault(name, np.full((2, len(table.length)), np.nan))
                for which, mask in enumerate(happened):
                    np.fmax.at(values[which], episode[rows], mask.astype(np.float64))
    return result
