"""The command `table`."""

from pathlib import Path

from goalscope._ground.words import counted
from goalscope.cli.console import say
from goalscope.cli.front.tables import table
from goalscope.cli.generator import prints
from goalscope.worlds.environments.world import Believed


@prints(table)
def show_table(believed: Believed, *, out: Path) -> None:
    """Write an environment as a table of states, actions, transitions and goals, for other tools and for goalscope.

    NumPy reads the file without goalscope. Studies, `goalscope meg`, and --worlds of `separate` and `design` read it,
    too.

    Examples:
        goalscope table world.npz --out copy.npz
        goalscope table warehouse:Warehouse:slip=0.1 --out warehouse.npz
    """
    found = believed.table
    say(
        f"{counted(len(found.states), 'state')}, {counted(len(found.actions), 'action')}, "
        f"{counted(len(found.triples), 'transition')}; goals: {', '.join(found.goals)}; stored in {out}"
    )
