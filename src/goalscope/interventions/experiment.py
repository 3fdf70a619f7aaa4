"""The seam of interventions: settings that a study names by their kind, and what an experiment is handed and keeps."""

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any, ClassVar, Final, Protocol, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, Field

from goalscope import registry
from goalscope.activations.sites import steps_seen
from goalscope.agents.chat import ChatAgent
from goalscope.columns import constant
from goalscope.ids import content_id
from goalscope.interventions.pairs import Moved, Original, Pair, Pairs, counterfactuals, find_pairs
from goalscope.models.local import LocalModel
from goalscope.rng import stream
from goalscope.rows import Rows, Tag
from goalscope.runs import Store
from goalscope.runs.kinds import Part, listed
from goalscope.worlds.gridworld import GridView

TAG: Final = "intervention"
"""Tag that rows of interventions carry, the kind of the experiment, and no others."""

Settings = TypeVar("Settings", bound=BaseModel)
Things = Annotated[tuple[Moved, ...], Field(strict=False), AfterValidator(listed)]


Headline = tuple[tuple[str, ...], Mapping[str, Tag], tuple[str, ...]]
"""What is printed of an experiment: measures, tags that their rows have, and the tags that make the lines."""
Progress = Callable[[int, int], object]
"""Shows how far a piece of work is: done, total."""


class PairSettings(Part):
    """Which counterfactual pairs are used; grids of one size are drawn in turn, one pair of each.

    `moved` are the things that are moved, in turn; `per_size` and `controls` are the most pairs of each size, with
    other and with the same optimal actions; `tries` the counterfactuals of a grid that the agent is shown; `seed` draws
    them.
    """

    moved: Things = get_args(Moved)[:2]
    per_size: int = Field(default=12, ge=1)
    controls: int = Field(default=4, ge=0)
    tries: int = Field(default=4, ge=1)
    seed: int = Field(default=0, ge=0, le=2**62)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """What an experiment works on: an agent, its model, the grids of a run, and the store that keeps the rows.

    Attributes:
        store: the run, open for writing.
        agent: the agent; it is asked at temperature 0.
        model: its local model.
        originals: the first state of each grid that the agent was shown.
        source: what the names of the experiment's rows begin with: kind, agent and content id of its settings.
        tags: what all of its rows carry.
        show: is told how many pieces of work are done.
    """

    store: Store
    agent: ChatAgent
    model: LocalModel
    originals: Sequence[Original]
    source: str
    tags: Mapping[str, Any]
    show: Progress
    found: dict[str, Pairs] = field(default_factory=dict)

    def pairs(self, settings: PairSettings, *, control: bool = False) -> Pairs:
        """Return the pairs of some settings, found once."""
        key = f"{settings.model_dump_json()} {control}"
        if key not in self.found:
            self.found[key] = choose_pairs(self.agent, self.originals, settings, control=control)
        return self.found[key]

    def has(self, unit: str) -> bool:
        """Whether the rows of a piece of work are there already."""
        return f"{self.source}/{unit}" in self.store.row_sources()

    def keep(self, unit: str, rows: Rows) -> None:
        """Store the rows of a piece of work, with the tags of the experiment."""
        tags = {name: constant(value, len(rows)) for name, value in self.tags.items()}
        self.store.put_rows(rows.tagged(tags), source=f"{self.source}/{unit}")
        give_back()

    def rows(self) -> Rows:
        """Return all rows that the experiment has stored."""
        return own_rows(self.store.rows(), self.tags)


def own_rows(rows: Rows, tags: Mapping[str, Any]) -> Rows:
    """Return the rows that carry some tags, none where no row knows them."""
    return rows.select(**tags) if all(name in rows.tags for name in tags) else Rows.from_rows([])


def give_back() -> None:
    """Return to the system what finished passes held.

    Their tensors hang in cycles of references, which Python clears by the number of objects, not by their size; and the
    C library keeps the pages. Without this the resident memory grows with the number of pieces of work.
    """
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim is not None:
            trim(0)


class Experiment(Protocol):
    """The settings of an intervention, a pydantic model with a field ``kind``; `run` does it."""

    kind: str
    agent: str | None
    headline: ClassVar[Headline]

    def run(self, subject: Subject) -> Mapping[str, Any]:
        """Do what is not stored yet, keep its rows, and return what is worth knowing about the whole: plain values."""
        ...


def intervention(name: str) -> Callable[[type[Settings]], type[Settings]]:
    """Return a decorator that registers an experiment; entries of a study's ``analysis: interventions:`` name it.

    Args:
        name: the kind; the field ``kind`` of the settings admits it.

    Raises:
        ValueError: a name that is taken.
        TypeError: no pydantic model with the fields ``kind`` and ``agent``, a ``headline`` and a method ``run``.
    """

    def add(settings: type[Settings]) -> type[Settings]:
        fits = isinstance(settings, type) and issubclass(settings, BaseModel)
        fits = fits and {"kind", "agent"} <= set(settings.model_fields)
        if not fits or not hasattr(settings, "run") or not hasattr(settings, "headline"):
            raise TypeError(
                f"an intervention must be a pydantic model with kind, agent, headline and run(subject), got {settings}"
            )
        registry.register("intervention", name)(settings)
        return settings

    return add


def settings_id(settings: BaseModel, agent_id: str) -> str:
    """Return the content id of an experiment on an agent."""
    return content_id("intervention", {"settings": settings.model_dump(mode="json"), "agent": agent_id})


def originals_of(store: Store, agent_id: str) -> list[Original]:
    """Return the first state of each grid that an agent of a run was shown whole, in the order of the run."""
    found: dict[str, Original] = {}
    for episode, step, grid in steps_seen(store, agent_id, "first"):
        world = episode.world
        if grid.fog is not None or world.tags.get("transform", "identity") != "identity":
            continue
        view = GridView(grid=grid, carrying_key=step.state.carrying_key)
        tags = {"size": grid.height, "density": world.tags.get("density")}
        found.setdefault(world.id, Original(view=view, cluster=world.cluster or world.id, tags=tags))
    return list(found.values())


def choose_pairs(
    agent: ChatAgent,
    originals: Sequence[Original],
    settings: PairSettings,
    *,
    control: bool = False,
    find: Callable[..., Pairs] = find_pairs,
) -> Pairs:
    """Return the pairs of some settings: of each size as many as are wanted, one of a grid, things moved in turn."""
    wanted = settings.controls if control else settings.per_size
    kept: list[Pair] = []
    left_out: dict[str, int] = {}
    for size in dict.fromkeys(original.tags.get("size") for original in originals):
        mine = [original for original in originals if original.tags.get("size") == size]
        order = stream(settings.seed, "originals", str(size), control).permutation(len(mine))
        turn, there = count(), 0
        waiting = [mine[index] for index in order]
        while waiting and there < wanted:
            part, waiting = waiting[: 2 * (wanted - there)], waiting[2 * (wanted - there) :]
            for thing, group in _by_thing(part, settings, turn, control=control).items():
                found = find(agent, group, moved=[thing], control=control, tries=settings.tries, seed=settings.seed)
                for reason, number in found.left_out.items():
                    left_out[reason] = left_out.get(reason, 0) + number
                kept += found.kept[: wanted - there]
                there += len(found.kept[: wanted - there])
    return Pairs(kept=tuple(kept), left_out=left_out)


def _by_thing(
    originals: Sequence[Original], settings: PairSettings, turn: Iterator[int], *, control: bool
) -> dict[Moved, list[Original]]:
    """Return originals by what is moved in them: the things in turn, the next one where a grid does not have one."""
    groups: dict[Moved, list[Original]] = {thing: [] for thing in settings.moved}
    for original in originals:
        first = next(turn)
        rotated = [settings.moved[(first + at) % len(settings.moved)] for at in range(len(settings.moved))]
        fits = [thing for thing in rotated if counterfactuals(original, thing, control=control)]
        groups[(fits or rotated)[0]].append(original)
    return {thing: group for thing, group in groups.items() if group}
