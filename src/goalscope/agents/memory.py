"""How the earlier steps of an episode are written into a prompt."""

from collections.abc import Sequence

from goalscope.agents.agent import Past

NOTHING = "none"


def render_history(history: Sequence[Past]) -> str:
    """Return the earlier steps, one a line, the oldest first: where the agent was and what it did there.

    Args:
        history: the earlier steps.

    Returns:
        Lines such as ``(3,4) UP``; "none" where there are no steps yet, or in place of a missing action.

    Raises:
        ValueError: a grid that shows no agent.
    """
    return "\n".join(map(_line, history)) or NOTHING


def render_answer(past: Past) -> str:
    """Return an earlier answer as it stands in a conversation: the answer, after its reasoning where that is shown.

    Reasoning and answer are set apart by an empty line. No chat format has a place for the reasoning of earlier turns
    that all servers keep, so that it is handed over as plain text.
    """
    return "\n\n".join(part for part in (past.reasoning, past.text) if part)


def _line(past: Past) -> str:
    if past.grid.start is None:
        raise ValueError(f"the grids of a history must show the agent (A), got one without:\n{past.grid}")
    row, col = past.grid.start
    return f"({row},{col}) {NOTHING if past.action is None else past.action.name}"
