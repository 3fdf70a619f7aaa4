"""Episodes of task worlds, played by an agent turn by turn."""

from dataclasses import dataclass

from goalscope._ground.ids import content_id
from goalscope.agents import Agent, Observation
from goalscope.worlds import Action
from goalscope.worlds.tasks import Report, TaskMap, TaskWorld
from goalscope.worlds.tasks.world import TaskSession


@dataclass(frozen=True, kw_only=True)
class TaskEpisode:
    """What each turn did, and (action that led to it, report) of each report: one more than actions."""

    actions: tuple[Action | None, ...]
    turns: tuple[tuple[Action | None, Report], ...]
    outcome: str


def play(task_map: TaskMap, agent: Agent, *, seed: int = 0) -> TaskEpisode:
    """Play one episode to its end: the goal achieved, or the budget used up."""
    what = {"taskmap": task_map.id, "agent": dict(agent.describe()), "trajectory": 0, "seed": seed}
    episode_id = content_id("episode", what)
    session, world, actions = TaskSession(task_map), TaskWorld(task_map=task_map), list[Action | None]()
    while not session.done and len(actions) < task_map.budget:
        seen = Observation(view=session.view, step=len(actions), episode_id=episode_id, seed=seed, world=world)
        (turn,) = agent.act([seen])
        session.step(turn.action)
        actions.append(None if turn.action is None else Action(turn.action))
    return TaskEpisode(
        actions=tuple(actions),
        turns=tuple(session.view.memory.turns),
        outcome="goal" if session.solved else "budget",
    )
