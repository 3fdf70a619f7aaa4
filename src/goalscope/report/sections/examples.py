"""Example episodes of grids and task worlds: which are shown is decided by a rule, never by hand."""

from collections.abc import Iterator, Mapping

import numpy as np

from goalscope.measures.exploration.recorded import score_recorded
from goalscope.report import task_pictures
from goalscope.report.blocks import Figure, counted, number
from goalscope.report.pictures import episode_picture
from goalscope.report.run_data import RunData
from goalscope.report.specs import Declared, section
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode

RULE = (
    "For each agent one episode that arrived and one that did not, where there are any: of those nearest to the middle "
    "size and the middle density of the run, the first by content id."
)
LEGEND = (
    "S start, G goal, K key, D door. Blue moves lie on a shortest path, orange ones do not; a move keeps to the right "
    "of its direction, so that a way walked to and fro shows as two lines. A ring counts actions that changed nothing "
    "in that cell (a bumped wall), a red cross turns without an action."
)
_MOST_AGENTS = 12

TIMES = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Numbers of actions after which an episode is drawn, and its end."""

TASK_RULE = (
    "For each agent one episode that achieved the goal and one that did not, where there are any: the first of each by "
    "content id. Each is drawn after 1, 5, 10, 20, 50, 100, ... actions and at its end."
)
_MOST_TASK_AGENTS = 8
_MOST_PICTURES = 7


@section("examples", worlds="grids")
def examples(run: RunData) -> Iterator[Declared]:
    """A success and a failure of each agent as pictures."""
    found, agents = run.rows.where(run.rows.measure == "success"), run.ledger.agents
    chosen: dict[tuple[str, bool], str] = {}
    names = found["agent"]
    centres = {name: _centre(found, name) for name in ("size", "density")}
    for agent in agents[:_MOST_AGENTS]:
        for success in (True, False):
            mask = (names == agent) & (found.value == float(success))
            identity = _middle(found.where(mask), centres)
            if identity:
                chosen[agent, success] = identity
    if not chosen:
        return
    episodes = {episode.id: episode for episode in run.store.episodes(chosen.values())}
    # Other worlds than grids have no picture.
    chosen = {key: identity for key, identity in chosen.items() if hasattr(episodes[identity].world, "grid")}
    if not chosen:
        return
    lacking = [
        f"{agent} has no episode that {'arrived' if success else 'failed'}"
        for agent in agents[:_MOST_AGENTS]
        for success in (True, False)
        if (agent, success) not in chosen
    ]
    paragraphs = [RULE]
    if lacking:
        paragraphs.append(f"{'; '.join(lacking)}.")
    if len(agents) > _MOST_AGENTS:
        paragraphs.append(f"Only the first {_MOST_AGENTS} of {len(agents)} agents are shown.")
    yield Declared(
        anchor="examples",
        title="Example trajectories",
        paragraphs=paragraphs,
        figures=[_figure(episodes[identity]) for identity in chosen.values()],
        layout="pictures",
        legend=LEGEND,
    )


@section("task examples", worlds="tasks")
def task_examples(run: RunData) -> Iterator[Declared]:
    """The strips of some episodes in task worlds."""
    success, agents = run.rows.where(run.rows.measure == "success"), run.ledger.agents
    chosen: dict[str, None] = {}
    for agent in agents[:_MOST_TASK_AGENTS]:
        mine = success.select(agent=agent)
        for arrived in (1.0, 0.0):
            found = sorted(mine.episode_id[mine.value == arrived].tolist())
            if found:
                chosen[found[0]] = None
    if not chosen:
        return
    episodes = {episode.id: episode for episode in run.store.episodes(chosen)}
    paragraphs = [TASK_RULE]
    if len(agents) > _MOST_TASK_AGENTS:
        paragraphs.append(f"Only the first {_MOST_TASK_AGENTS} of {len(agents)} agents are shown.")
    yield Declared(
        anchor="examples",
        title="Example episodes",
        paragraphs=paragraphs,
        figures=[figure for identity in chosen for figure in _strip(episodes[identity])],
        legend=task_pictures.LEGEND,
    )


def _figure(episode: Episode) -> Figure:
    ends = {
        "goal": "arrived",
        "horizon": "did not arrive within its horizon",
        "failure": "ended by a turn without an action",
        "stopped": "its record stops before the goal",
        "ended": "ended without the goal",
    }
    tags = episode.world.tags
    where = ", ".join(f"{name} {number(tags[name])}" for name in ("kind", "size", "density") if name in tags)
    steps = counted(len(episode.steps), "step")
    caption = f"{episode.agent}: {ends[episode.outcome]} after {steps} ({where or episode.world.id}); {episode.id}"
    return Figure(svg=episode_picture(episode, caption), caption=caption)


def _middle(rows: Rows, centres: Mapping[str, float]) -> str:
    """Return the episode nearest to the middle of size and density, the first id of equals; "" where there is none."""
    if not len(rows):
        return ""

    def far(index: int) -> tuple[float, float, str]:
        gaps = []
        for name, centre in centres.items():
            value: Tag = rows.tags[name][index] if name in rows.tags else None
            gaps.append(abs(float(value) - centre) if isinstance(value, int | float) else np.inf)
        return gaps[0], gaps[1], str(rows.episode_id[index])

    return str(rows.episode_id[min(range(len(rows)), key=far)])


def _centre(rows: Rows, name: str) -> float:
    values = [value for value in rows.tags.get(name, ()) if isinstance(value, int | float)]
    return float(np.median(sorted(set(values)))) if values else 0.0


def _strip(episode: Episode) -> list[Figure]:
    """Return the pictures of one episode, the last of them with its caption."""
    task_map = getattr(episode.world, "task_map", None)
    if task_map is None:
        return []
    score = score_recorded(episode)
    length = len(score.steps)
    times = [*[time for time in TIMES if time < length][: _MOST_PICTURES - 1], length]
    tags = episode.world.tags
    where = ", ".join(str(tags[name]) for name in ("preset", "map", "names") if name in tags)
    ends = "achieved the goal" if score.summary.success else "did not achieve the goal"
    name = f"{episode.agent}, {where or episode.world.id}: {ends} after {counted(length, 'action')}"
    errors = [
        f"{kind} error {'undefined' if value is None else number(round(value, 3))}"
        for kind, value in (
            ("exploration", score.summary.exploration_error),
            ("exploitation", score.summary.exploitation_error),
        )
    ]
    figures = []
    for moment in task_pictures.moments(task_map, score, times):
        last = moment.step == length
        caption = f"{name}; {', '.join(errors)}; {episode.id}" if last else f"{episode.agent}, t = {moment.step}"
        label = f"{name}, map, task graph and errors after {counted(moment.step, 'action')}"
        figures.append(Figure(svg=task_pictures.moment_picture(task_map, score, moment, label), caption=caption))
    return figures
