"""Two hypotheses about what an agent is after."""

from goalscope.goals.hypotheses import FiniteWorld, Hypothesis, hypothesis
from goalscope.worlds import Position, View


@hypothesis("halfway to {place}", kind="place")
def halfway(world: FiniteWorld, place: Hypothesis) -> Position:
    """Return the cell halfway between the start and a place."""
    (row, col), start = place.cell(world), world.grid.start
    assert start is not None  # every world shows its agent
    return (row + start[0]) // 2, (col + start[1]) // 2


@hypothesis("northward", kind="policy")
def northward(view: View) -> list[float]:
    """Return a habit: mostly up."""
    return [0.7, 0.1, 0.1, 0.1]
