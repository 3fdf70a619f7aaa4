"""Inspect: our worlds as its tasks, our models as its provider, our runs as its logs (extra ``inspect``).

`record` says what a log of ours holds and needs no Inspect; everything else is imported by Inspect itself, or where its
logs are read or written (`formats`).
"""

from goalscope.integrations.inspect_ai.recorded import RecordedEpisode, RecordedTurn, model_events, tool_calls

__all__ = ["RecordedEpisode", "RecordedTurn", "model_events", "tool_calls"]
