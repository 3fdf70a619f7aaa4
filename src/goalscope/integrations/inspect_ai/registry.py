"""Entry point of the group ``inspect_ai``, which Inspect imports to find goalscope's tasks, scorers and models."""

from goalscope.integrations.inspect_ai.episode import episode_measures, play
from goalscope.integrations.inspect_ai.provider import provider
from goalscope.integrations.inspect_ai.scorers import attribution, directedness, meg, verdicts
from goalscope.integrations.inspect_ai.tasks import grids, study, task_maps, textworld

__all__ = ["attribution", "directedness", "episode_measures", "grids", "meg", "play", "provider", "study", "task_maps"]
__all__ += ["textworld", "verdicts"]
