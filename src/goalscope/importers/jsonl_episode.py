"""One episode of a log in JSON lines while its lines come in."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from goalscope.ids import content_id
from goalscope.importers.jsonl_format import EPISODE_KEYS, EpisodeLine, StepLine
from goalscope.importers.problems import Ledger, Numbering, parse_grid
from goalscope.planning import shortest_length, solve
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step, World, begin
from goalscope.untrusted import UntrustedError, shorten
from goalscope.worlds import Action
from goalscope.worlds.dynamics import State, shown, step
from goalscope.worlds.grid import FOG, symbols

UNNAMED_AGENT = "recorded"
"""Agent of logs that name none."""

MakeWorld = Callable[[str, int | None], World]


class OpenEpisode:
    """What is known about an episode so far.

    The first line that contradicts the rules or what was said before spoils it: that one problem is reported, the
    lines that follow are counted, and no episode comes of it.
    """

    def __init__(self, key: str, source: str, ledger: Ledger) -> None:
        self.key, self.source, self.ledger = key, source, ledger
        self.said: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.world: World | None = None
        self.state: State | None = None
        self.place = ""
        self.size = 0
        self.spoilt = False

    @property
    def ended(self) -> bool:
        """Whether no further step is due: at the goal, or at the stated horizon."""
        at_goal = self.world is not None and self.state is not None and self.state.position == self.world.grid.goal
        return at_goal or len(self.steps) == self.said.get("horizon")

    def spoil(self) -> None:
        """Give the episode up; the reason was reported."""
        self.spoilt = True
        self.ledger.counts["steps not imported"] += len(self.steps)
        self.steps.clear()

    def take(
        self, record: EpisodeLine | StepLine, place: str, worlds: Mapping[str, World], make_world: MakeWorld
    ) -> None:
        """Take a line.

        Raises:
            UntrustedError: the line spoils the episode.
        """
        self.place = self.place or place
        if self.spoilt:
            self.ledger.counts["steps not imported"] += int(isinstance(record, StepLine))
            return
        try:
            self._merge(record, worlds, make_world)
            if isinstance(record, StepLine):
                self._step(record, place)
        except UntrustedError as error:
            self.spoil()
            self.ledger.counts["steps not imported"] += int(isinstance(record, StepLine))
            must = f"{error.must} (episode {shorten(self.key)} is not imported)"
            self.ledger.report(self.source, f"{place} {error.where}".strip(), must, error.given)

    def finish(self, numbering: Numbering) -> Episode | None:
        """Return the episode, None where it was spoilt."""
        if not self.spoilt:
            try:
                episode = self._episode(numbering)
            except UntrustedError as error:
                self.spoil()
                must = f"{error.must} (episode {shorten(self.key)} is not imported)"
                self.ledger.report(self.source, f"{self.place} {error.where}".strip(), must, error.given)
            else:
                self.ledger.counts["trajectories"] += 1
                self.ledger.counts["steps"] += len(episode.steps)
                return episode
        self.ledger.counts["trajectories not imported"] += 1
        return None

    def _merge(self, record: EpisodeLine | StepLine, worlds: Mapping[str, World], make_world: MakeWorld) -> None:
        """Keep what the line says about the whole episode; it must not contradict an earlier line."""
        for name in EPISODE_KEYS:
            value = getattr(record, name)
            if value is not None and name != "grid" and self.said.setdefault(name, value) != value:
                raise UntrustedError(
                    f"{name} must be the same on all lines of an episode: {shorten(self.said[name])}",
                    shorten(value),
                    name,
                )
        if record.grid is not None and self.world is None:
            self.said["grid"] = record.grid
        if self.world is None and (isinstance(record, StepLine) or "world" in self.said or "grid" in self.said):
            self._set_world(worlds, make_world)
        if self.world is not None and self.state is not None and record.grid not in (None, self.said.get("grid")):
            self._check_grid(record.grid or "")

    def _set_world(self, worlds: Mapping[str, World], make_world: MakeWorld) -> None:
        named, grid = self.said.get("world"), self.said.get("grid")
        if named is not None:
            if named not in worlds:
                raise UntrustedError("a world must be declared on an earlier line", shorten(named), "world")
            self.world = worlds[named]
            radius = self.said.get("fog_radius")
            if radius not in (None, self.world.fog_radius):
                raise UntrustedError(f"fog_radius must be that of its world: {self.world.fog_radius}", shorten(radius))
        elif grid is not None:
            self.world = make_world(grid, self.said.get("fog_radius"))
        else:
            raise UntrustedError("an episode must name its world or show its grid on its first line", "neither")
        self.state = begin(self.world)
        if named is not None and grid is not None:
            self._check_grid(grid)

    def _check_grid(self, text: str) -> None:
        """Require that a grid shown on a line is the world itself or the state before the step."""
        if self.world is None or self.state is None:
            return
        grid = parse_grid(text, where="grid")
        if grid == self.world.grid:
            return
        given, ours = symbols(grid), symbols(shown(self.world.grid, self.state))
        hidden = (given == FOG) & (self.world.fog_radius is not None)
        if given.shape != ours.shape or not ((given == ours) | hidden).all():
            raise UntrustedError(
                "a grid must show the episode's world, or its state before the step", "another grid", "grid"
            )

    def _step(self, record: StepLine, place: str) -> None:
        world, state, index = self.world, self.state, len(self.steps)
        if world is None or state is None:  # _set_world has seen to it
            return
        self._check_step(record, world, state)
        if record.optimal_actions is not None:
            optimal = solve(world.grid).optimal_in(state)
            right = {each.name for each in Action if optimal[each]}
            if not self.ledger.check("optimal-action labels", set(record.optimal_actions) == right):
                must = f"the optimal actions at {state.position} are {sorted(right)}"
                self.ledger.report(self.source, f"{place} optimal_actions", must, shorten(record.optimal_actions))
        if index:
            self.ledger.check("transitions", True)
        action = None if record.action is None else Action[record.action]
        self.steps.append(
            Step(
                index=index,
                state=state,
                action=action,
                failure=record.failure,
                text=record.text,
                reasoning=record.reasoning,
                prompt_tokens=None if record.prompt_tokens is None else tuple(record.prompt_tokens),
                output_tokens=None if record.output_tokens is None else tuple(record.output_tokens),
                reward=record.reward,
                extra=dict(record.extra or {}),
            )
        )
        self.state = state if action is None else step(world.grid, state, action)

    def _check_step(self, record: StepLine, world: World, state: State) -> None:
        """Require that a step is the next one, and that it begins where the rules say that the agent is."""
        index = len(self.steps)
        if record.step != index:
            twice = record.step < index
            must = "a step must occur once" if twice else f"steps must be numbered in order: {index} comes next"
            raise UntrustedError(must, f"step {record.step}{' again' if twice else ''}")
        if state.position == world.grid.goal:
            raise UntrustedError("an episode must end at the goal", f"a further step {record.step}")
        position = (record.position[0], record.position[1])
        if position != state.position:
            if index:
                self.ledger.check("transitions", False)
                before = self.steps[-1]
                did = before.action.name if before.action is not None else "no action"
                reason = f"after {did} at {before.state.position} the agent must stand at {state.position}"
            else:
                reason = f"the agent must begin at {state.position}, where its world shows it"
            raise UntrustedError(reason, shorten(position), "position")
        for name, ours in (("carrying_key", state.carrying_key), ("door_open", state.door_open)):
            given = getattr(record, name)
            if given not in (None, ours):
                raise UntrustedError(f"{name} must be {ours} by the rules", shorten(given), name)
        if self.steps and len(self.steps) >= (self.said.get("horizon") or index + 1):
            raise UntrustedError(
                f"an episode must end at its horizon of {self.said['horizon']} steps", "a further step"
            )

    def _episode(self, numbering: Numbering) -> Episode:
        said, world, state = self.said, self.world, self.state
        if world is None or state is None:
            raise UntrustedError("an episode must name its world or show its grid", "neither")
        taken, length = len(self.steps), shortest_length(world.grid)
        reached = state.position == world.grid.goal
        outcome: Outcome = said.get("outcome") or (
            "goal" if reached else "horizon" if taken == said.get("horizon") else "stopped"
        )
        usual = 0 if outcome == "horizon" else math.ceil(1.5 * length)
        horizon = said.get("horizon") or max(usual, taken, 1)
        if not self.ledger.check("outcomes", (outcome == "goal") == reached):
            must = f"the outcome must{'' if reached else ' not'} be 'goal', as the agent ends at {state.position}"
            raise UntrustedError(must, shorten(outcome), "outcome")
        if outcome == "horizon" and taken != horizon:
            raise UntrustedError(
                f"an episode that ends at its horizon must have {horizon} steps", f"{taken}", "outcome"
            )
        agent = said.get("agent", UNNAMED_AGENT)
        agent_id = said.get("agent_id") or content_id("agent", {"recorded": agent})
        number = said.get("trajectory")
        if number is not None and not numbering.free(world.id, agent_id, number):
            must = "a trajectory's number must be free for its world and agent"
            raise UntrustedError(must, f"{number} a second time", "trajectory")
        self.ledger.agents.setdefault(agent_id, (agent, {"recorded": agent}))
        spec = EpisodeSpec(
            world_id=world.id,
            agent_id=agent_id,
            trajectory=numbering.take(world.id, agent_id, number),
            seed=said.get("seed", 0),
            horizon=horizon,
            rules=said.get("rules", ""),
        )
        return Episode(
            spec=spec,
            world=world,
            agent=agent,
            steps=tuple(self.steps),
            final=state,
            outcome=outcome,
            tags=said.get("tags", {}),
        )
