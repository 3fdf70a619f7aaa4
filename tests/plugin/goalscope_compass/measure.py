"""How often an episode takes back its last move."""

import numpy as np
import numpy.typing as npt

from goalscope.measures import StepTable, measure


@measure(
    "moves taken back",
    unit="share",
    bounds=(0, 1),
    text="share of an episode's steps after the first that lead back to where the step before came from; undefined "
    "for an episode of fewer than two steps",
    source="goalscope-compass",
)
def moves_taken_back(table: StepTable) -> npt.NDArray[np.float64]:
    """``[E]`` share of the steps."""
    back, steps = np.zeros((2, len(table.length)))
    for episode in range(len(table.length)):
        states = table.path(episode)
        for before, here, after in zip(states, states[1:], states[2:], strict=False):
            steps[episode] += 1
            back[episode] += before == after and before != here
    share: npt.NDArray[np.float64] = np.divide(back, steps, out=np.full(len(steps), np.nan), where=steps > 0)
    return share
