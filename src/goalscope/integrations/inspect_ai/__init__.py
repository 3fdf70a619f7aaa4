"""Integration with Inspect: goalscope's worlds as tasks, its models as a provider, its runs as logs (extra
``inspect``).

The module `record` defines the content of goalscope's logs and does not need Inspect. All other modules are imported
by Inspect itself or when its logs are read or written (`formats`).
"""

from goalscope.integrations.inspect_ai.record import RecordedEpisode, RecordedTurn, model_events, tool_calls

__all__ = ["RecordedEpisode", "RecordedTurn", "model_events", "tool_calls"]
