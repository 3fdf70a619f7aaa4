"""How long the prompts of an episode of a task world become."""

import numpy as np

from goalscope.agents.task_agent import TaskObservation
from goalscope.agents.task_chat import TaskChatAgent
from goalscope.agents.task_scripted import RandomWalk
from goalscope.cli.prompts import Counter, Prompts
from goalscope.runs import Study
from goalscope.runs.record import EpisodeSpec
from goalscope.runs.taskepisode import TaskLive
from goalscope.runs.taskworld import TaskWorld

_ANSWER = '{"action": "right"}'  # stands in for each earlier answer
_POINTS = 5


def task_prompts(study: Study, agent: TaskChatAgent, world: TaskWorld, horizon: int, count: Counter) -> Prompts:
    """Return about how many tokens an agent reads in an episode that lasts to its budget.

    A random walk stands in for the agent: its observations, and the summary where there is one, are as long as those of
    an agent that wanders. A few of its prompts are counted; what stands between follows by a quadratic.
    """
    kind = study.history_of(agent)
    spec = EpisodeSpec(world_id=world.id, agent_id="plan", trajectory=0, seed=study.seed, horizon=horizon)
    live = TaskLive(spec, world, study, kind)
    points: dict[int, int] = {}
    wanted = {round(share * (horizon - 1)) for share in np.linspace(0, 1, _POINTS)}
    while live.outcome is None:
        seen = live.observe()
        step = seen.step
        if step in wanted:
            answers = (_ANSWER,) * step if kind in ("conversation", "reasoning") else ()
            shown = TaskObservation(memory=seen.memory, step=step, seed=seen.seed, history_as=kind, answers=answers)
            points[step] = count(agent.messages(shown))
        live.apply(RandomWalk().act([seen])[0])
    curve = np.polynomial.Polynomial.fit(list(points), list(points.values()), min(2, len(points) - 1))
    lengths = curve(np.arange(horizon))
    return Prompts(
        total=float(lengths.sum()),
        first=points[0],
        last=round(float(lengths[-1])),
        reasoned=horizon * (horizon - 1) // 2 if kind == "reasoning" else 0,
    )
