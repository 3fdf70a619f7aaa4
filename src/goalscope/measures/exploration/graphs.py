"""The same metric on any graph: places with names, ways between them, and tasks that stand on some of the places.

Nothing in the metric needs coordinates: an action is a visit of a place. Observed O are the visited places, unobserved
U those that a visited one leads to. Shortest paths run over O and U, and the edges of the stale score are the pairs of
places visited one after the other. On the graph of a task map every step is scored as by `score_episode`.

Source: measuring exploration and exploitation errors, Section 4, Eq. (1), Table 1, Appendix B.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, StringConstraints

from goalscope._ground.ids import content_id
from goalscope.measures.exploration.score import Outcome, Summary, counted
from goalscope.measures.exploration.view import StaleScore
from goalscope.runs.kinds import StudyPart
from goalscope.worlds.tasks.knowledge import Rejection

_MOST: Final = 100_000
_MOST_WORK: Final = 20_000_000  # visits times edges: each step may search the graph, and holds its targets
_Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
_Names = Annotated[tuple[_Name, ...], Field(strict=False, max_length=_MOST)]


class TaskGraph(StudyPart):
    """A graph and its tasks, complete and checked.

    Attributes:
        edges: pairs of places, by name; both ways, with ``directed`` only from the first to the second.
        start: the place where an episode begins, which counts as visited.
        goals: one or several places; the episode succeeds once the tasks of all are achieved.
        tasks: place -> alternative prerequisite sets (an OR of ANDs) of other such places; none for a task that is
            achieved by its first visit, as that of a goal that is not listed here.
        directed: whether edges are ways in one direction.
        jumps: whether every known place (of O and U) is one step from every other, as files are in an editor.
        budget: maximum number of visits, None for no limit.

    Raises:
        ValueError: an unknown place, goals or tasks on the start, a cycle of prerequisites, too many edges.
    """

    edges: Annotated[tuple[_Names, ...], Field(strict=False, max_length=_MOST)]
    start: _Name
    goals: Annotated[_Names, Field(min_length=1)]
    tasks: Annotated[dict[_Name, Annotated[tuple[_Names, ...], Field(strict=False)]], Field(default_factory=dict)]
    directed: bool = False
    jumps: bool = False
    budget: Annotated[int, Field(ge=1)] | None = None

    def model_post_init(self, context: Any) -> None:
        """Check what holds between the fields."""
        if wrong := next((edge for edge in self.edges if len(edge) != 2 or edge[0] == edge[1]), None):
            raise ValueError(f"an edge must be a pair of two places, got {list(wrong)}")
        options = self.options
        for name in (self.start, *options, *(one for sets in options.values() for each in sets for one in each)):
            if name not in self.ways:
                raise ValueError(f"start, goals and tasks must be places of the edges, got {name!r}")
        if self.start in options:
            raise ValueError(f"the start must hold no task, got {self.start!r} among goals and tasks")
        parents = {name: {one for each in sets for one in each} for name, sets in options.items()}
        if missing := {one for each in parents.values() for one in each} - set(options):
            raise ValueError(f"prerequisites must be tasks, got {min(missing)!r}, which is none")
        try:
            TopologicalSorter(parents).prepare()
        except CycleError as error:
            raise ValueError(f"the prerequisites must hold no cycle, got {' -> '.join(error.args[1])}") from None

    @cached_property
    def ways(self) -> Mapping[str, tuple[str, ...]]:
        """Place -> places that it leads to."""
        ways: dict[str, dict[str, None]] = {}
        for one, other in self.edges:
            ways.setdefault(one, {})[other] = None
            back = ways.setdefault(other, {})
            if not self.directed:
                back[one] = None
        return MappingProxyType({name: tuple(others) for name, others in ways.items()})

    @cached_property
    def options(self) -> Mapping[str, tuple[tuple[str, ...], ...]]:
        """Place of a task -> its alternative prerequisite sets."""
        return MappingProxyType({**dict.fromkeys(self.goals, ()), **self.tasks})

    @cached_property
    def id(self) -> str:
        """Content id of graph and tasks."""
        return content_id("taskgraph", self.model_dump(mode="json"))


class GraphStep(NamedTuple):
    """One visit, judged on the state before it; names as in `StepScore`."""

    number: int
    here: str
    there: str
    rejected: Rejection | None
    case: int
    targets: tuple[str, ...]
    new_cell: bool
    achieved: str | None
    error: bool
    stale: int

    @property
    def progress(self) -> bool:
        """Whether it entered an unobserved place or achieved a pending task."""
        return self.new_cell or self.achieved is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphScore:
    """A scored episode: one record a visit, and the episode in numbers; ``cells`` are places there."""

    steps: tuple[GraphStep, ...]
    summary: Summary


def score_graph(graph: TaskGraph, visits: Iterable[str | None]) -> GraphScore:
    """Return the exploration and exploitation errors of an episode on any graph, step by step.

    Args:
        graph: places, ways and tasks.
        visits: the places in the order in which they were visited, the start left out. None, and the place where the
            agent is already, are actions that did nothing.

    Raises:
        ValueError: a visit of a place that is not known yet or, without ``jumps``, not one step away; a visit after the
            end; too many visits for a graph of that size.
    """
    visits = list(visits)
    if len(visits) * len(graph.edges) > _MOST_WORK:
        given = f"{len(visits)} visits on {len(graph.edges)} edges"
        raise ValueError(f"visits times edges must be at most {_MOST_WORK:,}, got {given}")
    walk, steps = _Walk(graph), []
    stale, case, targets = StaleScore(graph.start), *walk.view()
    for number, there in enumerate(visits):
        if walk.ending(number) is not None:
            raise ValueError(f"no visit may follow the end of an episode, got {there!r} after visit {number}")
        here, new, achieved, error = walk.position, False, None, case > 0
        rejected: Rejection | None = None
        if there is None or there == here:
            there, rejected = here, "unparsable" if there is None else "blocked"
        else:
            gain = walk.gain(here, there, targets)
            new, achieved = walk.visit(there)
            rose = stale.move(here, there)
            error = case > 0 and (not gain or (len(targets) > 1 and rose))
        judged = (case, tuple(sorted(targets)), new, achieved)
        if new or achieved is not None:
            error, stale, case, targets = False, StaleScore(there), *walk.view()
        steps.append(GraphStep(number, here, there, rejected, *judged, error, stale.total))
    ending: Outcome = walk.ending(len(steps)) or "stopped"
    summary = Summary(
        **counted(steps),
        budget=graph.budget,
        outcome=ending,
        success=ending == "goal",
        observed_cells=len(walk.observed),
        cells=len(graph.ways),
        achieved_nodes=len(walk.achieved),
        nodes=len(graph.options),
        distances="known",
    )
    return GraphScore(steps=tuple(steps), summary=summary)


@dataclass
class _Walk:
    """The state of one episode on a graph."""

    graph: TaskGraph
    position: str = ""
    observed: set[str] = field(default_factory=set)
    unobserved: set[str] = field(default_factory=set)
    achieved: set[str] = field(default_factory=set)
    fields: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.visit(self.graph.start, first=True)

    def ending(self, visits: int) -> Outcome | None:
        """Return how the episode ended after some visits, None while it goes on."""
        if self.achieved.issuperset(self.graph.goals):
            return "goal"
        return "budget" if self.graph.budget is not None and visits >= self.graph.budget else None

    def visit(self, there: str, *, first: bool = False) -> tuple[bool, str | None]:
        """Go to a place; return whether it was unobserved, and the task that this achieves."""
        known = there in self.observed or there in self.unobserved
        if not first and not (known if self.graph.jumps else there in self.graph.ways[self.position]):
            near = "known" if self.graph.jumps else f"one step from {self.position!r} (jumps: false)"
            raise ValueError(f"a visited place must be {near}, got {there!r:.200}")
        self.position, new = there, there not in self.observed
        if new:
            self.observed.add(there)
            self.unobserved |= {near for near in self.graph.ways[there] if near not in self.observed}
            self.unobserved.discard(there)
        achieved = there if there not in self.achieved and self._met(there) else None
        if achieved:
            self.achieved.add(there)
        if new or achieved:
            self.fields.clear()
        return new, achieved

    def view(self) -> tuple[int, frozenset[str]]:
        """Return case and targets, Table 1."""
        pending = {name for name in self.graph.options if name in self.observed - self.achieved and self._met(name)}
        if goals := pending.intersection(self.graph.goals):
            return 2, frozenset(goals)
        if not pending:
            return (1 if self.unobserved else 0), frozenset(self.unobserved)
        return (4 if self.unobserved else 3), frozenset(self.unobserved | pending)

    def gain(self, here: str, there: str, targets: frozenset[str]) -> bool:
        """Return whether a step enters a target or leads nearer to at least one."""
        if there in targets or self.graph.jumps:
            return there in targets
        far = len(self.graph.ways)
        from_here, from_there = self._distances(here), self._distances(there)
        return any(from_there.get(target, far) < from_here.get(target, far) for target in targets)

    def _distances(self, source: str) -> dict[str, int]:
        """Return the steps from a place to the known ones, over known ones; kept until the next progress."""
        if source not in self.fields:
            found, wave = {source: 0}, [source]
            for place in wave:
                for near in self.graph.ways[place]:
                    if near not in found and (near in self.observed or near in self.unobserved):
                        found[near] = found[place] + 1
                        wave.append(near)
            self.fields[source] = found
        return self.fields[source]

    def _met(self, name: str) -> bool:
        sets: Sequence[Sequence[str]] | None = self.graph.options.get(name)
        return sets is not None and (not sets or any(self.achieved.issuperset(each) for each in sets))
