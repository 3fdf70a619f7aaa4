"""How long the prompts of an episode of a task world become."""

from functools import lru_cache

import numpy as np

from goalscope.agents.agent import Observation, Past
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.agents.task_scripted import RandomWalk
from goalscope.preflight.prompt_lengths import Counter, Prompts
from goalscope.runs import Study
from goalscope.runs.record import EpisodeSpec
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.knowledge import Report
from goalscope.worlds.tasks.memory import Memory
from goalscope.worlds.tasks.taskmap import TaskMap
from goalscope.worlds.tasks.world import TaskSession, TaskView, TaskWorld

_ANSWER = '{"action": "right"}'  # stands in for each earlier answer
_POINTS = 5


def task_prompts(study: Study, agent: TaskChatAgent, world: TaskWorld, horizon: int, count: Counter) -> Prompts:
    """Return about how many tokens an agent reads in an episode that lasts to its budget.

    A random walk stands in for the agent: its observations, and the summary where there is one, are as long as those of
    an agent that wanders. A few of its prompts are counted; what stands between follows by a quadratic.
    """
    kind = study.history_of(agent)
    turns = _walked(world.task_map, world.id, study.seed, horizon)
    points: dict[int, int] = {}
    wanted = {round(share * (horizon - 1)) for share in np.linspace(0, 1, _POINTS)}
    memory = Memory()
    for step, (action, report) in enumerate(turns):
        memory.add(report, action)
        if step in wanted:
            said = _ANSWER if kind in ("conversation", "reasoning") else None
            pasts = [Past(view=TaskView(memory=memory, report=told), action=0, text=said) for _, told in turns[:step]]
            shown = Observation(
                view=TaskView(memory=memory), step=step, seed=study.seed, history=tuple(pasts), history_as=kind
            )
            points[step] = count(agent.messages(shown))
    curve = np.polynomial.Polynomial.fit(list(points), list(points.values()), min(2, len(points) - 1))
    lengths = curve(np.arange(horizon))
    return Prompts(
        total=float(lengths.sum()),
        first=points[0],
        last=round(float(lengths[-1])),
        reasoned=horizon * (horizon - 1) // 2 if kind == "reasoning" else 0,
    )


@lru_cache(maxsize=1024)
def _walked(task_map: TaskMap, world_id: str, seed: int, horizon: int) -> tuple[tuple[Action | None, Report], ...]:
    """Return the turns of a random walk up to its last observation."""
    walk, session = RandomWalk(), TaskSession(task_map)
    spec = EpisodeSpec(world_id=world_id, agent_id="plan", trajectory=0, seed=seed, horizon=horizon)
    turns = tuple(session.view.memory.turns)
    for step in range(task_map.budget):
        if session.done:
            break
        turns = tuple(session.view.memory.turns)
        (turn,) = walk.act([Observation(view=session.view, step=step, episode_id=spec.id, seed=seed)])
        session.step(turn.action)
    return turns
