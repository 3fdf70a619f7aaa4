"""Read from a stored run what is needed to infer its agents' goals: their states, hypotheses and phases."""

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
"""Default bank of hypotheses for a run whose study names none."""


def read_states(store: Store, agent: str, *, by: Sequence[str] = ()) -> tuple[list[States], dict[str, int]]:
    """Read the states of one agent of a run, and count the unusable worlds by reason.

    Args:
        store: the run.
        agent: name of the agent.
        by: tags that separate groups of worlds, in addition to the conditions of the run.

    Raises:
        Undefined: the agent took no action in a world whose decision process is known.
    """
    return states_among((episode for episode in store.episodes() if episode.agent == agent), str(store.path), by=by)


def states_among(
    episodes: Iterable[Episode], source: str, *, by: Sequence[str] = ()
) -> tuple[list[States], dict[str, int]]:
    """Read states from episodes, as `read_states` does from a run; errors name ``source`` as their origin."""
    states, left_out = states_of_episodes(episodes, by=by)
    if not any(group.acted.any() for group in states):
        reasons = "; ".join(left_out) or "no step holds an action"
        raise Undefined(
            f"inferring a goal needs actions in worlds whose decision process is known, and {source} has none: "
            f"{reasons}"
        )
    return states, left_out


def remembers(store: Store, agent: str) -> bool:
    """Return whether the agent sees its earlier steps, according to its description or the study."""
    study = store.study()
    described = dict(store.agents().values()).get(agent, {})
    history = described.get("history") or ("none" if study is None else study.history)
    return bool(history != "none")


def hypotheses_of(study: Study | None) -> dict[str, Hypothesis]:
    """Return the hypotheses listed under ``analysis`` in a study; those of the bank `USUAL` if there are none."""
    named = () if study is None or study.analysis is None else study.analysis.hypotheses
    return restore_hypotheses(list(named)) if named else load_hypotheses(USUAL)


def phases_in(study: Study | None) -> tuple[str, ...]:
    """Return the names of a study's phases, in the order of the study."""
    worlds = [] if study is None else study.dump()["worlds"]
    return tuple(dict.fromkeys(str(entry["phase"]) for entry in worlds if "phase" in entry))


def by_phase(worlds: Iterable[World]) -> Mapping[str, list[World]]:
    """Group worlds by the phase of their study; worlds without a phase are under ""."""
    groups: dict[str, list[World]] = {}
    for world in worlds:
        groups.setdefault(str(world.tags.get("phase", "")), []).append(world)
    return groups
