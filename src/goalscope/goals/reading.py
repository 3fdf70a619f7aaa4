"""Read from a stored run what is needed to infer its agents' goals: their states, hypotheses and phases.

The hypotheses are those that the user wrote, or the defaults of the worlds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from goalscope._ground.checks import near_miss
from goalscope.goals.hypotheses.definition import FiniteWorld, Hypothesis, Undefined
from goalscope.goals.hypotheses.states import States, states_of_episodes
from goalscope.goals.hypotheses.written import banks, bind, load_hypotheses, parse, restore_hypotheses
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.worlds.grid import CORNERS
from goalscope.worlds.planning.process import process_of
from goalscope.worlds.world import World

IN_GRIDS: Final = ("goal", "key", "key held", *(f"corner {name}" for name in CORNERS))
"""Default hypotheses in grids. A hypothesis that is undefined in a world is left out there."""


USUAL = "grids"
"""Default bank of hypotheses for a run whose study names none."""


def default_hypotheses(worlds: Iterable[World]) -> dict[str, Hypothesis]:
    """Return the hypotheses that are compared in some worlds if the user names none, by name.

    In grids these are the set `IN_GRIDS`, and the places and events of objects in the grids, such as "red key held".
    Other worlds supply goals of their own, and may mark some of them as defaults.
    """
    worlds = tuple(worlds)
    processes = [process for world in worlds if "grid" not in world.offers and (process := process_of(world))]
    named = dict.fromkeys(name for process in processes for name in process.asked or process.goals)
    return {name: parse(name) for name in named or (*IN_GRIDS, *banks(worlds)["things"][1:])}


def asked_hypotheses(
    written: Sequence[str],
    worlds: Sequence[World],
    *,
    anywhere: bool = False,
) -> dict[str, Hypothesis]:
    """Parse the hypotheses that a user wrote, and check that the worlds of a run define them: written form ->
    hypothesis.

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


def read_states(store: Store, agent: str, *, by: Sequence[str] = ()) -> tuple[list[States], dict[str, int]]:
    """Read the episodes of one agent from a stored run, in the form that goal inference needs.

    Args:
        store: the run.
        agent: name of the agent.
        by: names of tags (named facts about episodes, such as "size") that separate groups of worlds, in addition to
            the conditions of the run.

    Returns:
        One `States` per world and condition, with the agent's episodes there (the state and the action of each step);
        and reason -> number of worlds left out for this reason, e.g. because the agent saw only part of the grid (fog).

    Raises:
        Undefined: the agent took no action in a world whose decision process is known.
    """
    return states_among((episode for episode in store.episodes() if episode.agent == agent), str(store.path), by=by)


def states_among(
    episodes: Iterable[Episode], source: str, *, by: Sequence[str] = ()
) -> tuple[list[States], dict[str, int]]:
    """Convert episodes into the form that goal inference needs, as `read_states` does for a stored run.

    Args:
        episodes: the episodes.
        source: where they come from, to be named in errors.
        by: names of tags (facts such as "size") that separate groups of worlds, in addition to the conditions of the
            run.

    Returns:
        The episodes, one entry for each world and condition; and reason -> number of worlds left out for this reason.

    Raises:
        Undefined: no episode has an action in a world whose decision process is known.
    """
    states, left_out = states_of_episodes(episodes, by=by)
    if not any(group.acted.any() for group in states):
        reasons = "; ".join(left_out) or "no step holds an action"
        raise Undefined(
            f"inferring a goal needs actions in worlds whose decision process is known, and {source} has none: "
            f"{reasons}"
        )
    return states, left_out


def remembers(store: Store, agent: str) -> bool:
    """Return whether an agent of a run sees its own earlier steps when it acts.

    The answer comes from the agent's stored description, or from the study if the description does not say it.
    """
    study = store.study()
    described = dict(store.agents().values()).get(agent, {})
    history = described.get("history") or ("none" if study is None else study.history)
    return bool(history != "none")


def hypotheses_of(study: Study | None) -> dict[str, Hypothesis]:
    """Return the hypotheses that a study lists under its key ``analysis``, by name.

    Without such a list, or without a study (None), these are the hypotheses of the set `USUAL`.
    """
    named = () if study is None or study.analysis is None else study.analysis.hypotheses
    return restore_hypotheses(list(named)) if named else load_hypotheses(USUAL)


def phases_in(study: Study | None) -> tuple[str, ...]:
    """Return the names of a study's phases (named groups of worlds), in their order; empty without a study."""
    worlds = [] if study is None else study.dump()["worlds"]
    return tuple(dict.fromkeys(str(entry["phase"]) for entry in worlds if "phase" in entry))


def by_phase(worlds: Iterable[World]) -> Mapping[str, list[World]]:
    """Map each phase (a named group of worlds of a study) to its worlds; worlds without a phase are under ""."""
    groups: dict[str, list[World]] = {}
    for world in worlds:
        groups.setdefault(str(world.tags.get("phase", "")), []).append(world)
    return groups
