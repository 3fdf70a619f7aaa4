"""States that agents of a run came through, as grids with the agent where it stood."""

from collections.abc import Collection
from typing import Any

from goalscope.rng import stream
from goalscope.runs.store import Store
from goalscope.worlds.dynamics import shown
from goalscope.worlds.gridworld import GridWorld, NamedWorld


def visited_states(store: Store, agents: Collection[str], count: int, *, seed: int) -> dict[str, Any]:
    """Return an entry of worlds: one state of each grid, drawn among all turns of some agents there.

    Left out are worlds under fog, with an instruction, or of another kind; and turns with the key in hand, which a grid
    does not show.

    Args:
        store: the run.
        agents: their names.
        count: maximum number of grids.
        seed: seed of the draws.

    Raises:
        ValueError: there is no such state.
    """
    turns: dict[str, list[str]] = {}
    for episode in store.episodes():
        world = episode.world
        shown_whole = isinstance(world, GridWorld) and not isinstance(world, NamedWorld) and world.fog_radius is None
        if episode.agent in agents and shown_whole:
            without_key = (step.state for step in episode.steps if step.state[2] == 0)
            turns.setdefault(world.cluster_id, []).extend(shown(world.grid, state).render() for state in without_key)
    rng, found = stream(seed, "visited states"), dict[str, None]()
    for cluster in sorted(turns):
        if states := turns[cluster]:
            found.setdefault(states[int(rng.integers(len(states)))])
    if not found:
        raise ValueError(
            f"{store.path} must hold turns of {', '.join(agents)} in grids without fog, it holds none: give the agent "
            "itself and --worlds"
        )
    chosen = sorted(rng.permutation(len(found))[:count].tolist())
    return {"kind": "text", "grids": [list(found)[index] for index in chosen]}
