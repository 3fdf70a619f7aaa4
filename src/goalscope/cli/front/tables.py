"""Write environments as tables for other tools."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground.arguments import Between, Reads, Writes
from goalscope._ground.progress import TALLY, aloud
from goalscope._ground.words import counted
from goalscope.cli.console import say
from goalscope.cli.generator import prints
from goalscope.worlds.environments.environment import Environment, build, named_environment
from goalscope.worlds.environments.solution import LIMIT
from goalscope.worlds.environments.stored import save_table
from goalscope.worlds.environments.world import Believed, believe


def table(
    env: Annotated[str | Callable[[], Environment[Any]], Reads("process")],
    out: Annotated[str | Path, Writes("file")],
    *,
    limit: Annotated[int, Between(1, 2_000_000)] = LIMIT,
) -> Believed:
    """Write an environment to a file as a finite decision process: plain arrays, for other tools and for goalscope.

    All states are enumerated. A sample of the transitions and some episodes are then compared with the environment. In
    Python, ``env`` may also be a class or function that makes the environment.

    Args:
        env (ENV): the environment, as in evaluate --env: module:Class of a file in the working directory, the name of
            a registered kind, an id of Gymnasium, or a file of arrays. Parameters follow after a colon, as in
            warehouse:Warehouse:slip=0.1.
        out (FILE): the .npz file to write.
        limit: maximum number of states.

    Returns:
        The environment: its states are enumerated and solved, and its rules were checked by playing episodes.

    Raises:
        ValueError: if it has more states, behaves differently from its description, or is no environment.
        OSError: if the file cannot be written.
    """
    make = partial(build, *named_environment(env)) if isinstance(env, str) else env
    with aloud():
        believed = believe(make, limit, found=lambda count: TALLY.tell(f"{count:,} states found"))
        found = believed.table
        played = believed.played
        TALLY.tell(
            f"{len(found.states):,} states, {len(found.actions)} actions and {len(found.triples):,} transitions; asked "
            f"again for {played.asked:,} states with an action and played for {played.episodes} episodes, with "
            "the same results"
        )
    save_table(believed, out)
    return believed


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
