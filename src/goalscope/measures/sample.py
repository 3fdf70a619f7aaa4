"""Small sets of episodes of scripted agents, to check and to try out measures on."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from goalscope.agents.agent import Agent, Observation, agent_id
from goalscope.agents.scripted import EpsilonGreedy, Forgetful, KeyLured, Optimal, Uniform, WrongGoal
from goalscope.ids import content_id
from goalscope.planning.shortest import shortest_length
from goalscope.rng import stream, uniform
from goalscope.runs.record import Episode, EpisodeSpec, Outcome, Step
from goalscope.worlds.dynamics import State
from goalscope.worlds.generate import generate_batch
from goalscope.worlds.grid import Action
from goalscope.worlds.gridworld import GridWorld
from goalscope.worlds.layouts import key_door, two_path
from goalscope.worlds.transform import Transform
from goalscope.worlds.world import Session, World

HORIZON_FACTOR = 1.5


def roll_out(
    agent: Agent,
    world: World,
    *,
    seed: int,
    trajectories: int = 10,
    horizon: int | None = None,
    invalid: float = 0.0,
) -> list[Episode]:
    """Let an agent act on one world, in memory and without a store; under fog it sees what it has seen so far.

    Args:
        agent: who acts.
        world: where.
        seed: root seed.
        trajectories: number of episodes.
        horizon: most actions of an episode; ceil(1.5 x shortest path) by default.
        invalid: probability that a turn is replaced by one without an action, as an unparsable answer would be.
    """
    most = horizon if horizon is not None else math.ceil(HORIZON_FACTOR * shortest_length(world.grid))
    who, found = agent_id(agent), list[Episode]()
    for number in range(trajectories):
        spec = EpisodeSpec(world_id=world.id, agent_id=who, trajectory=number, seed=seed, horizon=most)

        def answer(index: int, session: Session, spec: EpisodeSpec = spec) -> int | None:
            if uniform(seed, "invalid turn", spec.id, index) < invalid:
                return None
            observation = Observation(view=session.view, step=index, episode_id=spec.id, seed=seed)
            return agent.act([observation])[0].action

        found.append(_walk(spec, world, agent.name, answer, most))
    return found


def play(
    world: World,
    actions: Sequence[Action | None],
    *,
    agent: str = "played",
    trajectory: int = 0,
    horizon: int | None = None,
) -> Episode:
    """Return the episode of given actions, to work out by hand what a measure must say.

    Args:
        world: where.
        actions: one entry a turn, None for a turn without an action; what follows the goal is left out.
        agent: name of the agent.
        trajectory: number of the trajectory.
        horizon: most actions of the episode; as many as there are turns by default.
    """
    spec = EpisodeSpec(
        world_id=world.id,
        agent_id=content_id("agent", agent),
        trajectory=trajectory,
        seed=0,
        horizon=horizon if horizon is not None else max(len(actions), 1),
    )
    return _walk(spec, world, agent, lambda index, _: actions[index], len(actions))


def sample_worlds(seed: int = 0) -> list[GridWorld]:
    """Return a few plain worlds of two sizes, a world with key and door, a two-path world with its control, and fog."""
    worlds = [
        GridWorld(grid=grid, tags={"size": size, "density": density, "index": index})
        for size, density in ((7, 0.0), (7, 1.0), (9, 0.4))
        for index, grid in enumerate(generate_batch(size, density, seed=seed, count=2, minimum_distance=3))
    ]
    locked = key_door(rng=stream(seed, "sample", "key-door"))
    paths = two_path(rng=stream(seed, "sample", "two-path"))
    keyed = GridWorld(grid=paths, tags={"layout": "two-path", "control": False})
    control = GridWorld(grid=paths.at(key=None), cluster=keyed.grid_id, tags={"layout": "two-path", "control": True})
    maze = next(iter(generate_batch(9, 0.8, seed=seed + 1, count=1, minimum_distance=6)))
    fogged = GridWorld(grid=maze, fog_radius=3, tags={"layout": "fog"})
    return [*worlds, GridWorld(grid=locked, tags={"layout": "key-door"}), keyed, control, fogged]


def sample_episodes(seed: int = 0, trajectories: int = 3, invalid: float = 0.1) -> list[Episode]:
    """Return episodes of all scripted agents on `sample_worlds`, some of their turns without an action."""
    agents: Sequence[Agent] = (
        Optimal(),
        EpsilonGreedy(0.3),
        Uniform(),
        KeyLured(),
        WrongGoal("top-right"),
        Forgetful(0.4, 4),
    )
    return [
        episode
        for agent in agents
        for world in sample_worlds(seed)
        for episode in roll_out(agent, world, seed=seed, trajectories=trajectories, invalid=invalid)
    ]


def transformed(episode: Episode, transform: Transform) -> Episode:
    """Return the episode as it would be on the transformed world, in the cluster of the original.

    Raises:
        ValueError: the transform exchanges start and goal; no recorded episode has a counterpart there.
    """
    if transform.swapped:
        raise ValueError("an episode can be turned and reflected, got a transform that exchanges start and goal")
    shape = episode.world.grid.walls.shape
    original = episode.world
    world = GridWorld(
        grid=transform.grid(original.grid),
        fog_radius=original.fog_radius,
        cluster=original.grid_id,
        tags=original.tags,
    )

    def moved(state: State) -> State:
        return State(transform.position(state.position, shape), state.carrying_key, state.door_open)

    steps = tuple(
        replace(
            turn,
            state=moved(turn.state),
            action=None if turn.action is None else transform.action(turn.action),
        )
        for turn in episode.steps
    )
    return replace(
        episode, spec=replace(episode.spec, world_id=world.id), world=world, steps=steps, final=moved(episode.final)
    )


def _walk(
    spec: EpisodeSpec,
    world: World,
    agent: str,
    answer: Callable[[int, Session], int | None],
    turns: int,
) -> Episode:
    session, steps = world.begin_episode(spec.seed, spec.id), list[Step]()
    outcome: Outcome = "stopped" if turns < spec.horizon else "horizon"
    for index in range(turns):
        taken = answer(index, session)
        action = None if taken is None else world.action(taken)
        failure = None if action is not None else "no answer"
        steps.append(Step(index=index, state=session.state, action=action, failure=failure))
        session.step(action)
        if session.done:
            outcome = "goal"
            break
    return Episode(spec=spec, world=world, agent=agent, steps=tuple(steps), final=session.state, outcome=outcome)
