"""The hypotheses that directedness is measured towards: what a user wrote, or what a kind of world has by default."""

from collections.abc import Iterable, Sequence
from typing import Final

from goalscope._ground.checks import near_miss
from goalscope.goals.hypotheses.definition import FiniteWorld, Hypothesis
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import bind, parse
from goalscope.worlds.grid import CORNERS
from goalscope.worlds.planning.process import process_of
from goalscope.worlds.world import World

IN_GRIDS: Final = ("goal", "key", "key held", *(f"corner {name}" for name in CORNERS))
"""The hypotheses in grids where nobody names any; those without a meaning in a world are left out there."""


def default_hypotheses(worlds: Iterable[World]) -> dict[str, Hypothesis]:
    """Return the hypotheses of some worlds where nobody names any.

    In grids these are `IN_GRIDS`; elsewhere the goals that the worlds name themselves, or those of them that they ask
    for by default.
    """
    processes = [process for world in worlds if "grid" not in world.offers and (process := process_of(world))]
    named = dict.fromkeys(name for process in processes for name in process.asked or process.goals)
    return {name: parse(name) for name in named or IN_GRIDS}


def asked_hypotheses(
    written: Sequence[str],
    worlds: Sequence[World],
    *,
    anywhere: bool = False,
) -> dict[str, Hypothesis]:
    """Return hypotheses with a utility of states from their written forms, each under the text that the user wrote.

    Args:
        written: as `goalscope.goals.hypotheses.parse` reads them; the default of the worlds where empty.
        worlds: all of the run.
        anywhere: accept a hypothesis that means nothing in any of the worlds: others may give it a meaning.

    Raises:
        ValueError: no written form, a hypothesis without a utility, or one that means nothing in any of the worlds.
    """
    if not written:
        return default_hypotheses(worlds)
    result = dict[str, Hypothesis]()
    for text in written:
        hypothesis = parse(text)
        try:
            hypothesis = bind(hypothesis, worlds)
        except ValueError:  # a name that none of these worlds gives a goal; grids never do
            if not anywhere or all("grid" in world.offers for world in worlds):
                raise
        reasons = dict[str, None]()
        for world in worlds:
            try:
                if (process := process_of(world)) is None:
                    raise Undefined(f"a world of kind {world.kind} has no known process")
                hypothesis.utility(FiniteWorld(world=world, process=process, horizon=1))
                break
            except Undefined as error:
                reasons[str(error)] = None
        else:
            if not anywhere:
                near_names = [name for name in dict.fromkeys((*default_hypotheses(worlds), *IN_GRIDS)) if name != text]
                raise ValueError(
                    f"a hypothesis must mean something in one of the worlds, {text!r} does in none: "
                    f"{'; '.join(reasons)}{near_miss(text, near_names)}"
                )
        result[text] = hypothesis
    if len(result) < len(written):
        raise ValueError(f"each hypothesis must be named once, got {', '.join(written)}")
    return result
