"""Maximum-entropy goal-directedness (MEG): how well "it seeks this utility" predicts what an agent does, in nats.

Exact functions of decision processes, causal models and files. Over the episodes of a run it is `goalscope.towards`.
"""

from goalscope.goals.meg import *  # noqa: F403 - this module is the face of that one
from goalscope.goals.meg import __all__ as __all__
