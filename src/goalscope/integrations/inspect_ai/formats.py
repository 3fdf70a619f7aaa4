"""Entry point that registers Inspect logs as a format of `import` and `export`."""

from collections.abc import Callable
from pathlib import Path

from goalscope._ground.extras import lacking
from goalscope.integrations.inspect_ai.log import inspect_episodes, is_inspect_log
from goalscope.runs.importers.formats import Format, exporter, importer
from goalscope.runs.store import Store

importer("inspect", Format(endings=(".eval", ".json"), read=inspect_episodes, holds=is_inspect_log))


@exporter("inspect")
def export(store: Store, out: Path, progress: Callable[[int, int], None]) -> list[Path]:
    """Write a run as Inspect logs, one per agent, or several for an agent with many steps."""
    try:
        from goalscope.integrations.inspect_ai.export import export_logs
    except ImportError as error:
        raise lacking("export --format inspect needs inspect-ai", "inspect", error) from error
    return export_logs(store, out, progress=progress)
