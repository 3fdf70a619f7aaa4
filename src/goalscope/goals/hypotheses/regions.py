"""Regions of states in which a hypothesis is tested separately: by distance and direction of its place.

An agent may follow a hypothesis only where its place is near, or only where it lies in some direction. A share over all
steps hides this, so we test a fixed list of regions that was declared in advance.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from goalscope.goals.hypotheses.definition import FAR, FiniteWorld, Hypothesis
from goalscope.goals.hypotheses.rules import holding
from goalscope.goals.hypotheses.views import Undefined

_FAR_OFF: Final = {"at most 2 steps away": (1, 2), "3 to 5 steps away": (3, 5)} | {
    "6 to 8 steps away": (6, 8),
    "9 steps away or more": (9, FAR - 1),
}
SIDES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "above": lambda down, right: down < 0,
    "below": lambda down, right: down > 0,
    "to the left": lambda down, right: right < 0,
    "to the right": lambda down, right: right > 0,
    "straight above or below": lambda down, right: (right == 0) & (down != 0),
    "straight left or right": lambda down, right: (down == 0) & (right != 0),
    "down left": lambda down, right: (down >= 0) & (right <= 0) & (down != right),
    "down right": lambda down, right: (down >= 0) & (right >= 0) & (down != -right),
    "up left": lambda down, right: (down <= 0) & (right <= 0) & (down != -right),
    "up right": lambda down, right: (down <= 0) & (right >= 0) & (down != right),
}
"""Side on which a place lies, as seen from the agent -> function of its offset in rows and columns."""
REGIONS: Final = (*_FAR_OFF, *SIDES, "where its condition holds", "where its condition does not hold")
"""Names of the regions: distance and direction of the place as seen from the agent, and the sides of a condition."""


def regions(hypothesis: Hypothesis, world: FiniteWorld) -> npt.NDArray[np.bool_] | None:
    """Return masks of the states in each of `REGIONS`, ``[R, S]``; None for a hypothesis without regions."""
    masks = np.zeros((len(REGIONS), world.process.states), dtype=bool)
    if " if {condition}" in hypothesis.form:
        holds = holding(world, hypothesis.parts[0], hypothesis.parts[1])
        masks[-2:] = holds, ~holds
        return masks
    parts = [part for part in hypothesis.parts if isinstance(part, Hypothesis) and part.kind in ("place", "event")]
    if hypothesis.kind not in ("place", "event") and len(parts) != 1:
        return None
    aim = (
        hypothesis if hypothesis.kind in ("place", "event") else parts[0]
    )  # the place that it flees, heads straight for, or pursues when near
    try:
        steps = world.steps_to(aim.where(world))
        masks[: len(_FAR_OFF)] = [(steps >= low) & (steps <= high) for low, high in _FAR_OFF.values()]
        if aim.kind == "place":
            down, right = world.further(aim.cell(world)).T
            masks[len(_FAR_OFF) : -2] = [side(down, right) for side in SIDES.values()]
    except Undefined:  # stochastic, or not a grid: unknown regions stay empty
        return masks
    return masks
