"""A kind of worlds: states of grids as they are, and with one thing changed, asked for one turn each.

An entry of a study is ``{kind: changed, of: [{kind: grid, ...}], moved: [goal, wall], changes: 2}``. Each world of the
entries ``of`` is a state, its agent at the start. A state and its changed grids share a cluster, and their prompts the
example: nothing else in them differs than the grid. With ``horizon: {steps: 1}`` and two trajectories each is asked
twice, and an answer depends on its prompt alone.
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
"""Tag of the thing that differs from the original."""
NOTHING: Final = "nothing"
"""Its value in the original."""
USUAL: Final[tuple[Thing, ...]] = ("goal", "key", "door", "wall", "corner", "agent")
"""What is changed where nothing is said: each of these that the worlds have."""


@dataclass(frozen=True, kw_only=True)
class ChangedWorld(GridWorld):
    """A state of a grid, or the same with one thing changed.

    Attributes:
        grid: the grid, the agent where it stands now.
        original: content id of the state that it belongs to.
        moved: what differs from that, `NOTHING` in the state itself.
        wording: name of the wording in which it is shown, "" for the agent's own.
        cluster, tags: as in `World`.
    """

    kind: ClassVar[str] = "changed"
    original: str
    moved: str = NOTHING
    wording: str = ""

    # Worlds of a grid alone have an older form without the kind.
    described, stored = World.described, World.stored

    @property
    def shared_examples(self) -> str:
        """The state: its prompts and those of its changed grids have the same example."""
        return self.original

    def begin(self, rng: np.random.Generator | None = None) -> GridSession:
        """Begin an episode, in other words where the world has any."""
        session = super().begin(rng)
        return WordedSession(session, self.wording) if self.wording else session

    def to_plain(self) -> dict[str, Any]:
        """Return the grid as text, the state that it belongs to, what differs, and the wording if there is one."""
        worded = {"wording": self.wording} if self.wording else {}
        return {"grid": self.grid.render(), "original": self.original, "moved": self.moved, **worded}

    @classmethod
    def from_plain(cls, plain: Any, *, cluster: str = "", tags: Mapping[str, Tag] | None = None) -> Self:
        """Return the world from its plain values.

        Raises:
            ValueError: other keys, or invalid values.
        """
        worded = {"wording": str} if isinstance(plain, Mapping) and "wording" in plain else {}
        values = read_plain(plain, "a changed world", grid=str, original=str, moved=str, **worded)
        return cls(grid=Grid.parse(values.pop("grid")), **values, cluster=cluster, tags=tags or {})


@kinds.world_kind("changed", world=ChangedWorld)
class ChangedWorlds(kinds.StudyPart):
    """States of grids, and for each some versions in which one thing is changed.

    Attributes:
        of: entries of worlds, all of them grids without fog; their start is the state.
        moved: what is changed, see `THINGS`; by default each of `USUAL` that the worlds have.
        changes: greatest number of versions of a state for each thing.
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
            raise ValueError("must be worlds of grids as they are, in which things can be changed, got changed ones")
        return entries

    @field_validator("of")
    @classmethod
    def _grids(cls, entries: Any) -> Any:
        for entry in entries:
            world = kinds.world_class(entry)
            if not world.offers >= {"grid", "seen state"}:
                raise ValueError(f"must be worlds of grids, in which things can be changed, got {entry.kind}")
            if getattr(entry, "fog_radius", None) is not None:
                raise ValueError("must be grids that are shown whole, got fog: leave fog_radius out")
        return entries

    @field_validator("moved")
    @classmethod
    def _different(cls, moved: Any) -> Any:
        return kinds.listed(moved) if moved else moved

    def expand(self, seed: int, path: str, taken: Collection[str]) -> Iterator[ChangedWorld]:
        """Yield each state, and its versions thing by thing.

        Raises:
            ValueError: no world has a thing that was named, or none has any.
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
            raise ValueError(
                f"{path} must have grids in which {names} can be changed, but there is none: {advice}, or ask in other "
                "worlds"
            )
        if not changed:
            raise ValueError(f"{path} must have grids in which one of {', '.join(THINGS)} can be changed, none has")
