"""A kind of worlds for studies: states of grids, and versions of them in which one thing is changed.

An entry of a study is ``{kind: changed, of: [{kind: grid, ...}], moved: [goal, wall], changes: 2}``. Each world of the
entries ``of`` defines a state, with the agent at its start. A state and its versions share a cluster, and their prompts
share the example, so that prompts differ only in the grid. With ``horizon: {steps: 1}`` and two trajectories the agent
answers twice in each, and an answer depends only on its prompt.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, field_validator

from goalscope._ground.rng import stream
from goalscope.goals.counterfactual.changes import THINGS, WORDED, Thing, changed_grids
from goalscope.runs import kinds
from goalscope.stats.rows import Tag
from goalscope.worlds.grid import Grid
from goalscope.worlds.gridworld import GridSession, GridWorld, WordedSession
from goalscope.worlds.world import World, read_plain

MOVED: Final = "moved"
"""Tag that names the changed thing."""
NOTHING: Final = "nothing"
"""Value of the tag in the unchanged world."""
USUAL: Final[tuple[Thing, ...]] = ("goal", "key", "door", "wall", "corner", "agent")
"""Default list of things to change; things that the worlds lack are skipped."""


@dataclass(frozen=True, kw_only=True)
class ChangedWorld(GridWorld):
    """A state of a grid, or a version of it with one thing changed.

    Attributes:
        grid: the grid, with the agent at its current cell.
        original: content id of the unchanged state.
        moved: the changed thing, `NOTHING` for the unchanged state.
        wording: name of the prompt wording, "" for the agent's own.
        cluster, tags: as in `World`.
    """

    kind: ClassVar[str] = "changed"
    original: str
    moved: str = NOTHING
    wording: str = ""

    # GridWorld stores an older form without the kind; this class does not.
    described, stored = World.described, World.stored

    @property
    def shared_examples(self) -> str:
        """Id of the unchanged state, whose prompts share their example with those of its changed versions."""
        return self.original

    def begin(self, rng: np.random.Generator | None = None) -> GridSession:
        """Begin an episode, with the world's prompt wording if it has one."""
        session = super().begin(rng)
        return WordedSession(session, self.wording) if self.wording else session

    def to_plain(self) -> dict[str, Any]:
        """Return the grid as text, the id of the original, the changed thing, and the wording if there is one."""
        worded = {"wording": self.wording} if self.wording else {}
        return {"grid": self.grid.render(), "original": self.original, "moved": self.moved, **worded}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Restore the world from plain values.

        Raises:
            ValueError: a key is unknown or missing, or a value is invalid.
        """
        worded = {"wording": str} if isinstance(plain, Mapping) and "wording" in plain else {}
        values = read_plain(plain, "a changed world", grid=str, original=str, moved=str, **worded)
        return cls(grid=Grid.parse(values.pop("grid")), **values, cluster=cluster, tags=tags or {})


@kinds.world_kind("changed", world=ChangedWorld)
class ChangedWorlds(kinds.StudyPart):
    """Study entry: states of grids, each with versions in which one thing is changed.

    Attributes:
        of: worlds entries, all of them grids without fog; their start is the state.
        moved: things to change, see `THINGS`; by default all of `USUAL` that the worlds have.
        changes: maximum number of versions of a state for each thing.
    """

    kind: Literal["changed"]
    of: kinds.Entries
    moved: tuple[Thing, ...] = kinds.sequence(default=())
    changes: int = Field(default=2, ge=1, le=100)

    @field_validator("of", mode="before")
    @classmethod
    def _flat(cls, entries: Any) -> Any:
        listed = entries if isinstance(entries, list | tuple) else []
        if any(isinstance(entry, Mapping) and entry.get("kind") == "changed" for entry in listed):
            raise ValueError("must list unchanged grids, got an entry of kind changed")
        return entries

    @field_validator("of")
    @classmethod
    def _grids(cls, entries: Any) -> Any:
        for entry in entries:
            world = kinds.world_class(entry)
            if not world.offers >= {"grid", "seen state"}:
                raise ValueError(f"must list worlds that are grids, got an entry of kind {entry.kind}")
            if getattr(entry, "fog_radius", None) is not None:
                raise ValueError("must list grids without fog, got fog_radius: leave fog_radius out")
        return entries

    @field_validator("moved")
    @classmethod
    def _different(cls, moved: Any) -> Any:
        return kinds.listed(moved) if moved else moved

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[ChangedWorld]:
        """Yield each state, followed by its changed versions.

        Raises:
            ValueError: no world has one of the named things, or no world has any changeable thing.
        """
        changed = set[str]()
        for world in kinds.expand(self.of, seed):
            shared: dict[str, Any] = {"original": GridWorld(grid=world.grid).id, "cluster": world.cluster_id}
            versions: list[tuple[str, Grid, str]] = [(NOTHING, world.grid, "")]
            for thing in self.moved or USUAL:
                rng = stream(seed, "changed", shared["original"], thing)
                if thing in WORDED:
                    drawn = rng.permutation(WORDED[thing])[: self.changes].tolist()
                    versions += [(thing, world.grid, wording) for wording in drawn]
                else:
                    versions += [(thing, grid, "") for grid in changed_grids(world.grid, thing, self.changes, rng=rng)]
            changed.update(thing for thing, _, _ in versions[1:])
            if len(versions) > 1:
                for moved, grid, wording in versions:
                    tags = {**world.tags, "kind": "changed", MOVED: moved}
                    yield ChangedWorld(grid=grid, moved=moved, wording=wording, **shared, tags=tags)
        if lacking := [thing for thing in self.moved if thing not in changed]:
            names = ", ".join(lacking)
            advice = f"leave {names} out of --moved" if changed else f"name in --moved some of {', '.join(USUAL)}"
            raise ValueError(f"{path} has no grid in which {names} can be changed: {advice}, or use other worlds")
        if not changed:
            raise ValueError(f"{path} has no grid in which any of {', '.join(THINGS)} can be changed: use other worlds")
