"""Example episodes of task worlds as strips of pictures: which are shown is decided by a rule, never by hand."""

from goalscope.measures.exploration.recorded import score_recorded
from goalscope.report.parts import Figure, Section, counted, number
from goalscope.report.task_pictures import LEGEND, moment_picture, moments
from goalscope.rows import Rows
from goalscope.runs.record import Episode
from goalscope.runs.store import Store
from goalscope.runs.taskworld import TaskWorld

TIMES = (1, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Numbers of actions after which an episode is drawn, and its end."""

RULE = (
    "For each agent one episode that achieved the goal and one that did not, where there are any: the first of each by "
    "content id. Each is drawn after 1, 5, 10, 20, 50, 100, ... actions and at its end."
)
_MOST_AGENTS = 8
_MOST_PICTURES = 7


def task_examples(store: Store, rows: Rows, agents: tuple[str, ...]) -> list[Section]:
    """Return the section with the strips of some episodes; nothing where no agent has any."""
    success = rows.where(rows.measure == "success")
    chosen: dict[str, None] = {}
    for agent in agents[:_MOST_AGENTS]:
        mine = success.select(agent=agent)
        for arrived in (1.0, 0.0):
            found = sorted(mine.episode_id[mine.value == arrived].tolist())
            if found:
                chosen[found[0]] = None
    if not chosen:
        return []
    episodes = {episode.id: episode for episode in store.episodes(chosen)}
    figures = [figure for identity in chosen for figure in _strip(episodes[identity])]
    paragraphs = [RULE]
    if len(agents) > _MOST_AGENTS:
        paragraphs.append(f"Only the first {_MOST_AGENTS} of {len(agents)} agents are shown.")
    return [
        Section(
            anchor="examples",
            title="Example episodes",
            paragraphs=tuple(paragraphs),
            figures=tuple(figures),
            layout="pairs",
            legend=LEGEND,
        )
    ]


def _strip(episode: Episode) -> list[Figure]:
    """Return the pictures of one episode, the last of them with its caption."""
    if not isinstance(episode.world, TaskWorld):
        return []
    score, task_map = score_recorded(episode), episode.world.task_map
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
    for moment in moments(task_map, score, times):
        last = moment.step == length
        caption = f"{name}; {', '.join(errors)}; {episode.id}" if last else f"{episode.agent}, t = {moment.step}"
        label = f"{name}, map, task graph and errors after {counted(moment.step, 'action')}"
        figures.append(Figure(svg=moment_picture(task_map, score, moment, label), caption=caption))
    return figures
