"""The episodes of each agent, looked through once: turns that held no action, and which episodes to show."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from goalscope.runs.store import Store
from goalscope.runs.walks import Head, read_heads


@dataclass(slots=True)
class AgentEpisodes:
    """What a report needs of the episodes of one agent.

    Attributes:
        turns: cluster -> its turns, and how many of them held no action.
        chosen: "first failure", "longest" and "first success", where there is one -> the episode.
    """

    turns: dict[str, tuple[int, int]] = field(default_factory=dict)
    chosen: dict[str, Head] = field(default_factory=dict)

    def add(self, one: Head, cluster: str) -> None:
        """Take in an episode; they come in the order of their worlds' content ids and trajectories."""
        if one.length:
            turns, failed = self.turns.get(cluster, (0, 0))
            self.turns[cluster] = turns + one.length, failed + one.failed
        self.chosen.setdefault("first success" if one.outcome == "goal" else "first failure", one)
        if one.length > self.chosen.setdefault("longest", one).length:
            self.chosen["longest"] = one


def episodes_by_agent(store: Store) -> Mapping[str, AgentEpisodes]:
    """Return what a report needs of the episodes of each agent, each compared with its checksum.

    Raises:
        ValueError: an episode is not as it was written.
    """
    found: dict[str, AgentEpisodes] = {}
    clusters = {world: cluster or world for world, _, _, cluster, _ in store.entries("world")}
    for one in read_heads(store):
        if one.world_id not in clusters:
            store.sums.refuse("the world of every episode")
        found.setdefault(one.agent, AgentEpisodes()).add(one, clusters[one.world_id])
    return found
