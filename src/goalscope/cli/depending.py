"""What the command `depends` prints."""

from goalscope.cli.console import say, show
from goalscope.cli.front.depending import Dependences, depends
from goalscope.cli.generator import prints
from goalscope.report.sections.dependence import dependence_table


@prints(depends)
def show_dependences(found: Dependences, *, dry: bool, as_json: bool = False) -> None:
    """Say what the actions of agents depend on: one thing is changed, the rest stays, one turn is asked.

    Called again on the same directory it goes on where it stopped and asks nothing again.

    Args:
        as_json: print JSON.

    Examples:
        goalscope depends theseus --out runs/depends
        goalscope depends runs/first --out runs/depends-first
        goalscope depends optimal 'wrong-goal:target=top-right' --worlds key-door --moved goal,key --out runs/keys
    """
    if as_json and not dry:
        say(found.to_json())
    elif not dry:
        show(dependence_table(found.found))
        for line in found.sentences:
            say(line)
