"""What a stored run holds for the question what its agents are after: their states, hypotheses and phases."""

from collections.abc import Iterable, Mapping, Sequence

from goalscope.goals.hypotheses import Hypothesis, load_hypotheses
from goalscope.goals.hypotheses.states import States, states_of_episodes
from goalscope.goals.hypotheses.views import Undefined
from goalscope.goals.hypotheses.written import restore_hypotheses
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.study import Study
from goalscope.worlds.world import World

USUAL = "grids"
"""Bank of the agents of a run in grids whose study names no hypotheses."""


def read_states(store: Store, agent: str, *, by: Sequence[str] = ()) -> tuple[list[States], dict[str, int]]:
    """Return what an agent of a run did, and reason -> number of worlds that cannot be used.

    Raises:
        Undefined: no step holds an action in a world with a known process.
    """
    return states_among((episode for episode in store.episodes() if episode.agent == agent), str(store.path), by=by)


def states_among(
    episodes: Iterable[Episode], source: str, *, by: Sequence[str] = ()
) -> tuple[list[States], dict[str, int]]:
    """Return what `read_states` does, from episodes; ``source`` says in an error where they come from."""
    states, left_out = states_of_episodes(episodes, by=by)
    if not any(group.acted.any() for group in states):
        reasons = "; ".join(left_out) or "no step holds an action"
        raise Undefined(
            f"what an agent is after needs actions in worlds with known processes, got none in {source}: {reasons}"
        )
    return states, left_out


def remembers(store: Store, agent: str) -> bool:
    """Return whether an agent of a run is shown its earlier steps, as its description or the study says."""
    study = store.study()
    described = dict(store.agents().values()).get(agent, {})
    history = described.get("history") or ("none" if study is None else study.history)
    return bool(history != "none")


def hypotheses_of(study: Study | None) -> dict[str, Hypothesis]:
    """Return the hypotheses that a study names under ``analysis``, `USUAL` where it names none."""
    named = () if study is None or study.analysis is None else study.analysis.hypotheses
    return restore_hypotheses(list(named)) if named else load_hypotheses(USUAL)


def phases_in(study: Study | None) -> tuple[str, ...]:
    """Return the phases of a study, in its order."""
    worlds = [] if study is None else study.dump()["worlds"]
    return tuple(dict.fromkeys(str(entry["phase"]) for entry in worlds if "phase" in entry))


def by_phase(worlds: Iterable[World]) -> Mapping[str, list[World]]:
    """Return phase -> its worlds, "" for those of none."""
    groups: dict[str, list[World]] = {}
    for world in worlds:
        groups.setdefault(str(world.tags.get("phase", "")), []).append(world)
    return groups
