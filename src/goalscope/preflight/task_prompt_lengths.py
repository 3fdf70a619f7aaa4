"""How long the prompts of an episode of a task world become."""

from functools import lru_cache

import numpy as np

from goalscope.agents.task_agent import TaskObservation
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.agents.task_scripted import RandomWalk
from goalscope.preflight.prompt_lengths import Counter, Prompts
from goalscope.runs import Study
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.taskworld import TaskWorld
from goalscope.worlds.grid import Action
from goalscope.worlds.tasks.knowledge import Knowledge, Report
from goalscope.worlds.tasks.memory import Memory
from goalscope.worlds.tasks.taskmap import TaskMap

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
            answers = (_ANSWER,) * step if kind in ("conversation", "reasoning") else ()
            shown = TaskObservation(memory=memory, step=step, seed=study.seed, history_as=kind, answers=answers)
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
    walk, knowledge, memory = RandomWalk(), Knowledge(task_map), Memory()
    memory.add(knowledge.report())
    spec = EpisodeSpec(world_id=world_id, agent_id="plan", trajectory=0, seed=seed, horizon=horizon)
    while knowledge.ending is None:
        seen = TaskObservation(memory=memory, step=knowledge.steps, episode_id=spec.id, seed=seed)
        (turn,) = walk.act([seen])
        knowledge.move(turn.action)
        if knowledge.ending is None:
            memory.add(knowledge.report(), turn.action)
    return tuple(memory.turns)
