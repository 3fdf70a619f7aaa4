"""Predict the cost and time of a study from a stored run.

The run gives the calls, tokens and seconds per episode, each as a mean over grids with its interval. Seconds are
wall-clock time during which calls were in progress, so that simultaneous calls count once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from goalscope.agents.agent import Agent, agent_id
from goalscope.runs import Store, Study
from goalscope.runs.codec import decode_json
from goalscope.runs.episode_columns import read_heads
from goalscope.stats import Estimate, estimate_mean

SPENT: Final[Mapping[str, str]] = {
    "calls": "calls",
    "prompt_tokens": "tokens",
    "output_tokens": "tokens",
    "seconds": "s",
}
"""Quantities per episode, and their units."""

_WAIT: Final = 600.0  # seconds that a call may wait for its turn and for the next attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPace:
    """Costs per episode of an agent in a stored run.

    Attributes:
        agent: name of the agent in the planned study.
        exact: whether the run has exactly this agent; otherwise one of the same name.
        episodes: number of finished episodes.
        spent: means per episode over grids, by the names of `SPENT`; tokens are missing where the server reported none.
    """

    agent: str
    exact: bool
    episodes: int
    spent: Mapping[str, Estimate]


def stored_pace(run: str | Path, study: Study) -> list[StoredPace]:
    """Return the costs of each agent of a study, from a stored run with this agent or one of the same name.

    Args:
        run: the run directory.
        study: the planned study.

    Raises:
        FileNotFoundError: there is no run in this directory.
        ValueError: the run is damaged.
    """
    with Store(run) as store:
        names_by_id = {identity: name for identity, (name, _) in store.agents().items()}
        paces = []
        for agent in study.agents():
            exact_ids = [identity for identity in names_by_id if identity == agent_id(agent)]
            ids_of_name = [identity for identity, name in names_by_id.items() if name == agent.name]
            if agent.journalled and (chosen := exact_ids or ids_of_name):
                paces.append(_pace(store, chosen[0], agent, exact=bool(exact_ids)))
    return [pace for pace in paces if pace is not None]


def _pace(store: Store, identity: str, agent: Agent, *, exact: bool) -> StoredPace | None:
    grids = {head.id: store.world(head.world_id).cluster_id for head in read_heads(store)}
    totals: dict[str, dict[str, float]] = {}
    clusters: dict[str, str] = {}
    under_way: list[tuple[float, float]] = []
    answered = "WHERE calls.agent_id = ? AND state = 'done' ORDER BY calls.id"
    for _, _, _, episode, _, _, _, _, sent, done, *_, usage, _ in store.entries("call", answered, (identity,)):
        if episode not in grids:  # its episode goes on
            continue
        cost: Mapping[str, Any] = decode_json(usage, "the usage of a call") if usage else {}
        seconds = float(cost.get("seconds", max(0.0, done - sent)))
        # The journal holds the time of the day, which may be set anew while a call is under way; its seconds do not.
        jumped = not 0 <= done - sent <= 10 * seconds + _WAIT
        under_way.append((float(sent), float(sent + seconds if jumped else done)))
        episode_total = totals.setdefault(episode, dict.fromkeys(SPENT, 0.0))
        clusters[episode] = grids[episode]
        episode_total["calls"] += 1
        episode_total["seconds"] += seconds
        for name in ("prompt_tokens", "output_tokens"):
            episode_total[name] += float(cost.get(name, float("nan")))
    if not totals:
        return None
    total_seconds = sum(head["seconds"] for head in totals.values())
    factor = _covered(under_way) / total_seconds if total_seconds else 0.0
    spent = {}
    for name, unit in SPENT.items():
        values = [head[name] * (factor if name == "seconds" else 1) for head in totals.values()]
        if all(value == value for value in values):
            spent[name] = estimate_mean(values, list(clusters.values()), unit=unit, bounds=(0, float("inf")))
    return StoredPace(agent=agent.name, exact=exact, episodes=len(totals), spent=spent)


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the length of the union of some intervals of time."""
    total, covered_until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, covered_until))
        covered_until = max(covered_until, end)
    return total
