"""The metric on recorded episodes of task worlds: what `goalscope measure` makes of a run.

Source: measuring exploration and exploitation errors, Section 4 and Fig. 4.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from goalscope.measures.exploration.records import EpisodeScore
from goalscope.measures.exploration.rows import episode_values
from goalscope.measures.exploration.score import score_episode
from goalscope.rows import Rows, Tag
from goalscope.runs.record import Episode

PROGRESS_SHARE = "exploration share by progress"
"""Share of the steps that entered an unobserved cell, in each tenth of an episode; the tag "progress" is its end."""

TENTHS = 10


def score_recorded(episode: Episode) -> EpisodeScore:
    """Return the score of a recorded episode of a task world.

    Raises:
        ValueError: an episode of another world, or actions that its map does not allow.
    """
    task_map = getattr(episode.world, "task_map", None)
    if task_map is None:
        raise ValueError(f"an episode must be one of a task world to be scored, got {episode.id} in another one")
    try:
        return score_episode(task_map, [step.action for step in episode.steps])
    except ValueError as error:
        raise ValueError(f"episode {episode.id}: {error}") from error


def task_rows(episodes: Iterable[Episode]) -> Rows:
    """Return the rows of recorded episodes of task worlds: one a measure and episode, ten of `PROGRESS_SHARE`."""
    measure, unit, value, grid, identity = list[str](), list[str](), list[float](), list[str](), list[str]()
    tags: list[dict[str, Tag]] = []

    def add(name: str, kind: str, number: float | int | None, episode: Episode, of: dict[str, Tag]) -> None:
        measure.append(name)
        unit.append(kind)
        value.append(math.nan if number is None else float(number))
        grid.append(episode.world.grid_id)
        identity.append(episode.id)
        tags.append(of)

    for episode in episodes:
        score = score_recorded(episode)
        shared = {**episode.world.tags, **episode.tags, "agent": episode.agent, "distances": score.summary.distances}
        for name, kind, number in episode_values(score.summary):
            add(name, kind, number, episode, shared)
        shares = progress_shares(score.steps.column("new_cell"))
        for tenth, share in enumerate(shares.tolist(), start=1):
            add(PROGRESS_SHARE, "share", share, episode, {**shared, "progress": tenth / TENTHS})
    names = list(dict.fromkeys(name for of in tags for name in of))
    return Rows.from_columns(
        measure=measure,
        unit=unit,
        value=value,
        grid_id=grid,
        episode_id=identity,
        tags={name: [of.get(name) for of in tags] for name in names},
    )


def progress_shares(new_cells: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the share of steps that entered an unobserved cell in each tenth of an episode.

    A step that lies on the border of two tenths counts for both with the part that lies in each, so that episodes of
    any length have ten values.

    Args:
        new_cells: ``[T]`` 1 for each step that entered an unobserved cell, else 0.

    Returns:
        ``[10]`` shares, NaN for an episode without steps.
    """
    length = len(new_cells)
    if not length:
        return np.full(TENTHS, np.nan)
    entered = np.concatenate([[0.0], np.cumsum(new_cells, dtype=np.float64)])
    ends = np.interp(np.linspace(0, length, TENTHS + 1), np.arange(length + 1), entered)
    # Rounding must not carry a share over its bounds.
    shares: npt.NDArray[np.float64] = np.clip(np.diff(ends) * TENTHS / length, 0.0, 1.0)
    return shares
