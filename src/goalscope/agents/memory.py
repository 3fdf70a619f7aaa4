"""How the earlier steps of an episode are written into a prompt."""

from collections.abc import Sequence

from goalscope.worlds.grid import Action, Grid

NOTHING = "none"


def render_history(history: Sequence[tuple[Grid, Action | None]]) -> str:
    """Return the earlier steps, one a line, the oldest first: where the agent was and what it did there.

    Args:
        history: (grid as seen, action) of each step; None where the turn held no action.

    Returns:
        Lines such as ``(3,4) UP``; "none" where there are no steps yet, or in place of a missing action.

    Raises:
        ValueError: a grid that shows no agent.
    """
    return "\n".join(_line(grid, action) for grid, action in history) or NOTHING


def _line(grid: Grid, action: Action | None) -> str:
    if grid.start is None:
        raise ValueError(f"the grids of a history must show the agent (A), got one without:\n{grid}")
    row, col = grid.start
    return f"({row},{col}) {NOTHING if action is None else action.name}"
