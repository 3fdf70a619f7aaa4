"""Entry point of the group ``inspect_ai``: Inspect and Scout import it to find goalscope's tasks, scorers, models, hook
and, if inspect-scout is installed, its scanner.
"""

import os
from contextlib import suppress

from goalscope.integrations.inspect_ai.provider import provider
from goalscope.integrations.inspect_ai.scorers import attribution, directedness, meg, verdicts
from goalscope.integrations.inspect_ai.tasks import episode_measures, grids, play, study, task_maps, textworld

with suppress(ModuleNotFoundError):  # the extra scout
    from goalscope.integrations.inspect_ai.scanner import monitor as monitor
if os.environ.get("GOALSCOPE_MONITOR"):  # registered only on request, since Inspect announces each hook that it has
    from goalscope.integrations.inspect_ai.hook import MonitorHook as MonitorHook

__all__ = ["attribution", "directedness", "episode_measures", "grids", "meg", "play", "provider"]
__all__ += ["study", "task_maps", "textworld", "verdicts"]
