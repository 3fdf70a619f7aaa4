"""The action of the example in a prompt: balanced over the actions, and blind to the world."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from goalscope.worlds.grid import Action

RULE: Final = "action (sha256(episode id) + step) mod admissible actions"
"""How the action of an example is chosen, as the descriptions of agents record it."""

_OFFSETS: Final = 12  # a multiple of 1, 2, 3 and 4: each number of admissible actions has all remainders equally often


def example_action(episode_id: str, step: int, admissible: Sequence[Action]) -> Action:
    """Return the action that the example in the prompt of one step shows.

    The content id of the episode sets where the actions begin, and from step to step they follow each other. In any
    four consecutive steps of an episode on a grid each action is shown once. Neither the grid nor the place of the
    agent enters but through the id, a hash: the action is independent of the optimal ones.

    Args:
        episode_id: content id of the episode.
        step: number of the step, 0-based.
        admissible: the actions that may be shown, in the order of `Action`.

    Raises:
        ValueError: no action is admissible.
    """
    if not admissible:
        raise ValueError("an example needs an admissible action, got none")
    offset = int.from_bytes(sha256(episode_id.encode()).digest()) % _OFFSETS
    return admissible[(offset + step) % len(admissible)]
