"""Choose the hypotheses that directedness is measured towards: those the user wrote, or the defaults of the worlds."""

from collections.abc import Iterable, Sequence
from typing import Final

from goalscope._ground.checks import near_miss
from goalscope.goals.hypotheses.definition import FiniteWorld, Hypothesis
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import bind, parse
from goalscope.worlds.grid import CORNERS
from goalscope.worlds.planning.process import process_of
from goalscope.worlds.things import kinds
from goalscope.worlds.world import World

IN_GRIDS: Final = ("goal", "key", "key held", *(f"corner {name}" for name in CORNERS))
"""Default hypotheses in grids. A hypothesis that is undefined in a world is left out there."""


def default_hypotheses(worlds: Iterable[World]) -> dict[str, Hypothesis]:
    """Return the default hypotheses of some worlds.

    In grids these are `IN_GRIDS`, and the places and events of their things. Other worlds supply goals of their own,
    and may mark some of them as defaults.
    """
    worlds = tuple(worlds)
    processes = [process for world in worlds if "grid" not in world.offers and (process := process_of(world))]
    named = dict.fromkeys(name for process in processes for name in process.asked or process.goals)
    symbols = {symbol for world in worlds if "grid" in world.offers for _, symbol in world.grid.things}
    of_things = [text for kind in (kinds() if symbols else ()) if kind.symbol in symbols for text in kind.hypotheses]
    return {name: parse(name) for name in named or (*IN_GRIDS, *of_things)}


def asked_hypotheses(
    written: Sequence[str],
    worlds: Sequence[World],
    *,
    anywhere: bool = False,
) -> dict[str, Hypothesis]:
    """Parse the hypotheses that a user wrote; the result maps each written text to its hypothesis.

    Args:
        written: written forms, see `goalscope.goals.hypotheses.parse`; if empty, the defaults of the worlds are used.
        worlds: all worlds of the run.
        anywhere: accept a hypothesis that is undefined in all of these worlds, because other worlds may define it.

    Raises:
        ValueError: a text is not a written form, or its hypothesis has no utility in any of the worlds.
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
                    f"hypothesis {text!r} is undefined in all of these worlds: "
                    f"{'; '.join(reasons)}{near_miss(text, near_names)}"
                )
        result[text] = hypothesis
    if len(result) < len(written):
        raise ValueError(f"each hypothesis must be listed only once, got {', '.join(written)}")
    return result
