"""The printed result of the command `depends`."""

from goalscope.cli.console import say, show
from goalscope.cli.front.depending import Dependences, depends
from goalscope.cli.generator import prints
from goalscope.report.sections.dependence import dependence_table


@prints(depends)
def show_dependences(result: Dependences, *, dry: bool, as_json: bool = False) -> None:
    """Test what an agent's moves depend on: change one thing in a state, keep everything else, and ask for one move.

    To resume, run the same command on the same directory; no answer is asked for again.

    Args:
        as_json: print JSON.

    Examples:
        goalscope depends theseus --out runs/depends
        goalscope depends runs/first --out runs/depends-first
        goalscope depends optimal 'wrong-goal:target=top-right' --worlds key-door --moved goal,key --out runs/keys
    """
    if as_json and not dry:
        say(result.to_json())
    elif not dry:
        show(dependence_table(result.found))
        for line in result.sentences:
            say(line)
