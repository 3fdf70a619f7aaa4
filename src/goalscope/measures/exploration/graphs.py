"""Exploration and exploitation errors on any graph of named places, some of which hold tasks.

The metric needs no coordinates: an action is a visit to a place. The observed places O are the visited ones; the
unobserved places U are those that a visited place leads to. Shortest paths use O and U, and the edges of the stale
score are pairs of places visited in succession. On the graph of a task map every step scores as with `score_episode`.

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
from goalscope.measures.exploration.score import EpisodeErrors, Outcome, StaleCounter, Summary, counted
from goalscope.runs.study_parts import StudyPart
from goalscope.worlds.tasks.knowledge import Rejection

_MOST: Final = 100_000
_MOST_WORK: Final = 20_000_000  # visits times edges: each step may search the graph, and stores its targets
_Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
_Names = Annotated[tuple[_Name, ...], Field(strict=False, max_length=_MOST)]


class TaskGraph(StudyPart):
    """A graph of named places, some of which hold tasks that an agent has to achieve; checked when it is created.

    Attributes:
        edges: pairs of place names; usable both ways, or only from the first to the second if ``directed``.
        start: the place where an episode begins; it counts as visited.
        goals: one or several places; the episode succeeds once all their tasks are achieved.
        tasks: place -> alternative sets of prerequisite places (an OR of ANDs). An empty list means that the first
            visit achieves the task, which also holds for a goal that is not listed here.
        directed: whether edges can only be used in one direction.
        jumps: whether every known place (visited or seen) is one step from every other, like files in an editor.
        budget: maximum number of visits; None for no limit.

    Raises:
        ValueError: unknown places, goals or tasks at the start, cyclic prerequisites, or too many edges.
    """

    edges: Annotated[tuple[_Names, ...], Field(strict=False, max_length=_MOST)]
    start: _Name
    goals: Annotated[_Names, Field(min_length=1)]
    tasks: Annotated[dict[_Name, Annotated[tuple[_Names, ...], Field(strict=False)]], Field(default_factory=dict)]
    directed: bool = False
    jumps: bool = False
    budget: Annotated[int, Field(ge=1)] | None = None

    def model_post_init(self, context: Any) -> None:
        """Check conditions that involve several fields, after pydantic has checked each field.

        Raises:
            ValueError: if an edge, the start, a goal or a prerequisite is invalid, or prerequisites form a cycle.
        """
        if wrong := next((edge for edge in self.edges if len(edge) != 2 or edge[0] == edge[1]), None):
            raise ValueError(f"each edge must be a pair of different places, got {list(wrong)}")
        options = self.options
        for name in (
            self.start,
            *options,
            *(place for sets in options.values() for prerequisites in sets for place in prerequisites),
        ):
            if name not in self.ways:
                raise ValueError(f"start, goals and tasks must be places that occur in edges, got {name!r}")
        if self.start in options:
            raise ValueError(f"the start cannot be a goal or a task, got {self.start!r} among goals and tasks")
        parents = {name: {place for prerequisites in sets for place in prerequisites} for name, sets in options.items()}
        if missing := {place for prerequisites in parents.values() for place in prerequisites} - set(options):
            raise ValueError(f"prerequisites must be tasks or goals, got {min(missing)!r}: add it to tasks")
        try:
            TopologicalSorter(parents).prepare()
        except CycleError as error:
            raise ValueError(f"prerequisites must not form a cycle, got {' -> '.join(error.args[1])}") from None

    @cached_property
    def ways(self) -> Mapping[str, tuple[str, ...]]:
        """The graph by place: name of each place -> names of the places that it leads to."""
        ways: dict[str, dict[str, None]] = {}
        for source, target in self.edges:
            ways.setdefault(source, {})[target] = None
            back = ways.setdefault(target, {})
            if not self.directed:
                back[source] = None
        return MappingProxyType({name: tuple(places) for name, places in ways.items()})

    @cached_property
    def options(self) -> Mapping[str, tuple[tuple[str, ...], ...]]:
        """For each place with a task: name of the place -> alternative sets of places whose tasks must be achieved
        before.
        """
        return MappingProxyType({**dict.fromkeys(self.goals, ()), **self.tasks})

    @cached_property
    def id(self) -> str:
        """Content id of the graph: a hash of its places and tasks, so that equal graphs have equal ids."""
        return content_id("taskgraph", self.model_dump(mode="json"))


class GraphStep(NamedTuple):
    """One visit to a place of a `TaskGraph`, judged by what the agent knew before; fields are named as those of
    `MapStep`.

    Attributes:
        number: number of the visit, 0-based.
        here, there: names of the places before and after the visit.
        rejected: "blocked" or "unparsable" for an action without effect, otherwise None.
        case: which of exploration (1), the goal (2), a task (3), or task and exploration (4) the situation calls for.
        targets: names of the places that the agent should approach.
        new_cell: whether the place was visited for the first time.
        achieved: name of the place whose task was achieved, None if none.
        error: whether the visit is an error.
        stale: stale score (loops, reused edges and places since the last progress) after the visit.
    """

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
        """Whether the visit entered a place for the first time or achieved a task."""
        return self.new_cell or self.achieved is not None


def score_graph(graph: TaskGraph, visits: Iterable[str | None]) -> EpisodeErrors[tuple[GraphStep, ...]]:
    """Score the exploration and exploitation errors of an episode on any graph of places, step by step.

    An error is a visit that brings the agent no nearer to any place that it should explore or whose task it could
    achieve, or that goes in circles.

    Args:
        graph: the places, the ways between them, and the tasks.
        visits: the visited places in order, without the start. None, or the place where the agent already is, counts as
            an action without effect.

    Returns:
        The steps and their summary.

    Raises:
        ValueError: a visit to a place that is not yet known or, without ``jumps``, more than one step away; a visit
            after the end; or too many visits for a graph of this size.
    """
    visits = list(visits)
    if len(visits) * len(graph.edges) > _MOST_WORK:
        size = f"{len(visits)} visits on {len(graph.edges)} edges"
        raise ValueError(f"visits times edges must be at most {_MOST_WORK:,}, got {size}")
    walk, steps = _Walk(graph), []
    stale, case, targets = StaleCounter(graph.start), *walk.view()
    for number, place in enumerate(visits):
        if walk.ending(number) is not None:
            raise ValueError(f"no visit can follow the end of an episode, got {place!r} after visit {number}")
        position, new, achieved, error = walk.position, False, None, case > 0
        rejected: Rejection | None = None
        if place is None or place == position:
            place, rejected = position, "unparsable" if place is None else "blocked"
        else:
            gain = walk.gain(position, place, targets)
            new, achieved = walk.visit(place)
            rose = stale.move(position, place)
            error = case > 0 and (not gain or (len(targets) > 1 and rose))
        judged = (case, tuple(sorted(targets)), new, achieved)
        if new or achieved is not None:
            error, stale, case, targets = False, StaleCounter(place), *walk.view()
        steps.append(GraphStep(number, position, place, rejected, *judged, error, stale.total))
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
    return EpisodeErrors(steps=tuple(steps), summary=summary)


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
        """Return how the episode has ended after this many visits, None if it continues."""
        if self.achieved.issuperset(self.graph.goals):
            return "goal"
        return "budget" if self.graph.budget is not None and visits >= self.graph.budget else None

    def visit(self, place: str, *, first: bool = False) -> tuple[bool, str | None]:
        """Go to a place; return whether it was unobserved, and the task achieved there, if any."""
        is_known = place in self.observed or place in self.unobserved
        if not first and not (is_known if self.graph.jumps else place in self.graph.ways[self.position]):
            near = "known" if self.graph.jumps else f"one step from {self.position!r} (jumps: false)"
            raise ValueError(f"a visited place must be {near}, got {place!r:.200}")
        self.position, new = place, place not in self.observed
        if new:
            self.observed.add(place)
            self.unobserved |= {near for near in self.graph.ways[place] if near not in self.observed}
            self.unobserved.discard(place)
        achieved = place if place not in self.achieved and self._met(place) else None
        if achieved:
            self.achieved.add(place)
        if new or achieved:
            self.fields.clear()
        return new, achieved

    def view(self) -> tuple[int, frozenset[str]]:
        """Return the case and the targets by Table 1."""
        pending = {name for name in self.graph.options if name in self.observed - self.achieved and self._met(name)}
        if goals := pending.intersection(self.graph.goals):
            return 2, frozenset(goals)
        if not pending:
            return (1 if self.unobserved else 0), frozenset(self.unobserved)
        return (4 if self.unobserved else 3), frozenset(self.unobserved | pending)

    def gain(self, position: str, place: str, targets: frozenset[str]) -> bool:
        """Return whether a step enters a target or gets closer to at least one."""
        if place in targets or self.graph.jumps:
            return place in targets
        far = len(self.graph.ways)
        from_here, from_there = self._distances(position), self._distances(place)
        return any(from_there.get(target, far) < from_here.get(target, far) for target in targets)

    def _distances(self, source: str) -> dict[str, int]:
        """Return the distances in steps from a place to all known places, cached until progress."""
        if source not in self.fields:
            distances, wave = {source: 0}, [source]
            for place in wave:
                for near in self.graph.ways[place]:
                    if near not in distances and (near in self.observed or near in self.unobserved):
                        distances[near] = distances[place] + 1
                        wave.append(near)
            self.fields[source] = distances
        return self.fields[source]

    def _met(self, name: str) -> bool:
        sets: Sequence[Sequence[str]] | None = self.graph.options.get(name)
        return sets is not None and (not sets or any(self.achieved.issuperset(prerequisites) for prerequisites in sets))
