"""Write environments as tables for other tools."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from goalscope._ground.arguments import Between, Reads, Writes
from goalscope._ground.own import consent
from goalscope._ground.progress import QUIET_SECONDS, TALLY, aloud
from goalscope.worlds.environments.environment import Environment, build
from goalscope.worlds.environments.named import named_environment
from goalscope.worlds.environments.stored import save_table
from goalscope.worlds.environments.table import LIMIT
from goalscope.worlds.environments.world import Believed, believe


def table(
    env: Annotated[str | Callable[[], Environment[Any]], Reads("process")],
    out: Annotated[str | Path, Writes("file")],
    *,
    limit: Annotated[int, Between(1, 2_000_000)] = LIMIT,
) -> Believed:
    """Write an environment to a file as a finite decision process: plain arrays, for other tools and for goalscope.

    All states are enumerated, and the result is compared with episodes that are played in the environment itself. In
    Python, ``env`` may also be a class or function that makes the environment.

    Args:
        env (ENV): module:Class of a file in the working directory (parameters follow as :key=value,...), a registered
            kind of environments with its parameters, the id of a Gymnasium environment, or a file of arrays.
        out (FILE): the .npz file to write.
        limit: maximum number of states.

    Returns:
        The environment, enumerated, solved and played back.

    Raises:
        ValueError: if it has more states, behaves differently from its description, or is no environment.
        OSError: if the file cannot be written.
    """

    if isinstance(env, str):
        source, parameters = named_environment(env)
        consent([source, parameters])
        make: Callable[[], Environment[Any]] = partial(build, source, parameters)
    else:
        make = env
    told = time.monotonic()

    def report(count: int) -> None:
        nonlocal told
        if time.monotonic() - told > QUIET_SECONDS:
            told = time.monotonic()
            TALLY.tell(f"{count:,} states found")

    with aloud():
        believed = believe(make, limit, found=report)
        found = believed.table
        TALLY.tell(
            f"{len(found.states):,} states, {len(found.actions)} actions and {len(found.triples):,} transitions agree "
            "with episodes in the environment itself"
        )
    save_table(believed, out)
    return believed
