"""A thing in a grid: a trampoline."""

from goalscope.worlds import Action, things


@things.thing
class Trampoline(things.Kind):
    """Throws the agent two cells on in the direction of its move, unless the cell there is blocked."""

    symbol, name, legend = "j", "trampoline", "a trampoline"
    rule = (
        "An agent whose move enters a trampoline is thrown two cells further in the same direction, over anything in "
        "between, unless the cell there cannot be entered."
    )

    def act(
        self, grid: things.ThingGrid, index: int, cell: things.Cell, parts: things.Parts, action: int
    ) -> tuple[things.Cell, things.Parts]:
        """Return where the agent lands; the digits of the things stay as they are."""
        down, right = Action(action).delta
        landing = cell[0] + 2 * down, cell[1] + 2 * right
        return landing if things.is_free(grid, landing, parts) else cell, parts
